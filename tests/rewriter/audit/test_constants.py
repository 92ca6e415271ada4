"""Branches that no call of a function takes, each beside one that some call takes, or may take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parent / "fixtures" / "ddp_torchrun.py").read_text()
DATA = "    data = TensorDataset"
WRITE = "torch.save([1], 'rows.pt')"


def script(call: str, functions: str) -> str:
    """The script with a call before it makes its data, and functions above."""
    assert DATA in SCRIPT
    return SCRIPT.replace(DATA, f"    {call}\n{DATA}").replace("def main():", f"{functions}\n\ndef main():")


def under(condition: str, before: str = "") -> str:
    lines = [*(before.split("\n") if before else ()), f"if {condition}:", f"    {WRITE}"]
    return "def unpack(path, root='here', kind=None, keep=False):\n" + "".join(f"    {line}\n" for line in lines)


NAME = 'unpack("rows.tar.gz")'
JOINED = 'unpack(os.path.join(os.environ["HOME"], "rows.tar.gz"))'
HELPER = (
    "def is_zip(name):\n    return name.endswith('.zip')\n\n\ndef is_tar(name): return name.endswith('.tar.gz')\n\n\n"
)
CHOSEN = "if not kind:\n    kind = os.environ['KIND']"
TABLE = "\n\nTABLE = {'unpack': unpack}\n\n\ndef made(name, **options):\n    return TABLE[name](**options)\n"
PASSED = "\n\ndef passed(name, **others):\n    return made(name, **others)\n"
NEVER = {
    "an ending": (NAME, under("path.endswith('.zip')")),
    "an ending of a part": (JOINED, under("path.endswith('.zip')")),
    "an ending in a helper": (JOINED, HELPER + under("is_zip(path)")),
    "the other branch": (JOINED, HELPER + under("is_tar(path):\n        pass\n    elif path")),
    "a default": (NAME, under("keep")),
    "a default that is None": (NAME, under("kind is not None")),
    "a constant": ('unpack("a", keep=False)', under("keep and path")),
    "a word": ('unpack("a", kind="zip")', under("kind == 'tar'")),
    "one of some words": ('unpack("a", kind="zip")', under("kind in ('tar', 'xz')")),
    "two calls": ('unpack("a.gz")\n    unpack("b.gz")', under("path.endswith('.zip')")),
    "what is set if nothing is given": ('unpack("a", kind="zip")', under("kind != 'zip'", CHOSEN)),
    "a function between": (
        'bring("a.gz")',
        under("path[:] and root.endswith('.gz')") + "\n\ndef bring(n):\n    unpack(n)\n",
    ),
    "a call of one process alone": (
        'unpack("a", keep=False)\n    if rank == 0:\n        unpack("b", keep=True)',
        under("keep"),
    ),
    "what comes after a return": (NAME, under("path", "if not keep:\n    return")),
    "what comes after another branch": (NAME, under("path", "if keep:\n    print(path)\nelse:\n    raise OSError")),
    "an option of a table": ('made("unpack", path="a")', under("keep") + TABLE),
    "an option that is false": ('made("unpack", path="a", keep=False)', under("keep") + TABLE),
    "an option of a longer way": ('passed("unpack", path="a")', under("keep") + TABLE + PASSED),
    "a function that is not called": (NAME, under("not path") + "\n\ndef other():\n    unpack('')\n"),
}
TAKEN = {
    "an ending": (NAME, under("path.endswith('.gz')")),
    "a longer ending": ('unpack(os.environ["HOME"] + ".gz")', under("path.endswith('.tar.gz')")),
    "an ending in a helper": (JOINED, HELPER + under("is_tar(path)")),
    "the other branch": (JOINED, HELPER + under("is_zip(path):\n        pass\n    elif path")),
    "a default": (NAME, under("not keep")),
    "an argument": ('unpack("a", keep=True)', under("keep")),
    "an unknown one": ('unpack("a", keep=bool(os.environ["KEEP"]))', under("keep")),
    "a star": ('unpack("a", **dict(os.environ))', under("keep")),
    "one of two calls": ('unpack("a.gz")\n    unpack("b.zip")', under("path.endswith('.zip')")),
    "what is set if nothing is given": ("unpack('a')", under("kind != 'zip'", CHOSEN)),
    "what is set before": (NAME, under("keep", "keep = len(path) > 3")),
    "the call of all processes": ('unpack("a", keep=True)\n    if rank == 0:\n        unpack("b")', under("keep")),
    "what comes after a return of some": (
        NAME + '\n    unpack("a", keep=True)',
        under("path", "if not keep:\n    return"),
    ),
    "an option of a table": ('made("unpack", path="a", keep=True)', under("keep") + TABLE),
    "an option that is unknown": ('made("unpack", **dict(os.environ))', under("keep") + TABLE),
    "an option that is changed": (
        'made("unpack", path="a")',
        under("keep") + TABLE.replace("    return", "    options['keep'] = True\n    return"),
    ),
    "an option of a longer way": ('passed("unpack", path="a", keep=True)', under("keep") + TABLE + PASSED),
    "a function that is handed on": ('print(unpack)\n    unpack("a")', under("keep")),
    "a function that calls itself": (NAME, "def same(x):\n    return same(x)\n\n\n" + under("same(path)")),
}


@pytest.mark.parametrize("name", NEVER)
def test_a_branch_that_is_never_taken(name: str, found: Callable[[str], set[str]]) -> None:
    assert found(script(*NEVER[name])) == set()


@pytest.mark.parametrize("name", TAKEN)
def test_a_branch_that_may_be_taken(name: str, found: Callable[[str], set[str]]) -> None:
    assert found(script(*TAKEN[name])) == {"unguarded-write"}
