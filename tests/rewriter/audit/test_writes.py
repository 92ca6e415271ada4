"""Files that every process may write, each beside a program that differs in a line and may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parent / "fixtures" / "ddp_torchrun.py").read_text()
DATA = "    data = TensorDataset"
MAIN = "def main():\n"
HEAD = """\
import io
import json
import threading
from contextlib import contextmanager
from pathlib import Path

import fasteners
import filelock
import portalocker
import urllib.request
from PIL import Image
from filelock import FileLock
"""


def script(lines: str, above: str = "") -> str:
    """The script with other lines before it makes its data, and other functions above."""
    assert DATA in SCRIPT
    text = SCRIPT.replace(DATA, "".join(f"    {line}\n" for line in lines.split("\n")) + DATA)
    return HEAD + text.replace(MAIN, f"{above}\n\n{MAIN}")


FIRST_COMES = """\
@contextmanager
def first_comes(rank):
    if rank not in [-1, 0]:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()
"""
FIRST_COMES_CLASS = """\
class first_comes:
    def __init__(self, rank):
        self.rank = rank

    def __enter__(self):
        if self.rank != 0:
            dist.barrier()

    def __exit__(self, *error):
        if self.rank == 0:
            dist.barrier()
"""
NOBODY_WAITS = """\
@contextmanager
def first_comes(rank):
    print("begins")
    yield
    print("ends")
"""
RETURNS = """\
def cache(path):
    if os.path.exists(path):
        return torch.load(path)
    rows = [1, 2]
    torch.save(rows, path)
    return rows
"""
CATCHES = """\
def cache(path):
    try:
        rows = torch.load(path)
    except OSError:
        rows = [1, 2]
        torch.save(rows, path)
    return rows
"""
ASKS_BY_NAME = """\
def cache(path):
    there = Path(path).exists()
    if not there:
        torch.save([1, 2], path)
"""
OVERWRITES = """\
def cache(path):
    torch.save([1, 2], path)
"""
TURN = 'with first_comes(rank):\n    cache("rows.pt")'


@pytest.mark.parametrize("enters", [FIRST_COMES, FIRST_COMES_CLASS], ids=["generator", "class"])
@pytest.mark.parametrize("writes", [RETURNS, CATCHES, ASKS_BY_NAME], ids=["returns", "catches", "by name"])
def test_a_context_that_lets_the_first_process_go_first(
    enters: str, writes: str, found: Callable[[str], set[str]]
) -> None:
    assert found(script(TURN, enters + writes)) == set()
    assert found(script('cache("rows.pt")', enters + writes)) == {"unguarded-write"}


def test_each_process_in_its_turn_overwrites_the_file(found: Callable[[str], set[str]]) -> None:
    assert found(script(TURN, FIRST_COMES + OVERWRITES)) == {"unguarded-write"}


def test_a_context_in_which_nobody_waits(found: Callable[[str], set[str]]) -> None:
    assert found(script(TURN, NOBODY_WAITS + RETURNS)) == {"unguarded-write"}


def test_a_function_that_is_called_outside_of_its_turn_too(found: Callable[[str], set[str]]) -> None:
    assert found(script(f'{TURN}\ncache("others.pt")', FIRST_COMES + RETURNS)) == {"unguarded-write"}


WRITE = 'with open("a", "w") as out:\n    out.write("1")'
LOOKS = f"if not os.path.exists('a'):\n    {WRITE}".replace("\n    out", "\n        out")
FETCH = "if not os.path.exists('a'):\n    urllib.request.urlretrieve('u', 'a')"


def inside(context: str, lines: str) -> str:
    return f"{context}:\n" + "".join(f"    {line}\n" for line in lines.split("\n"))


@pytest.mark.parametrize(
    "context",
    [
        'with FileLock("a.lock")',
        'lock = FileLock("a.lock")\nwith lock',
        'with fasteners.InterProcessLock("a.lock")',
        'with filelock.SoftFileLock("a.lock")',
        'with portalocker.Lock("a.lock", timeout=60)',
    ],
)
def test_a_lock_that_the_processes_share(context: str, found: Callable[[str], set[str]]) -> None:
    assert found(script(inside(context, LOOKS))) == set()
    assert found(script(inside(context, FETCH))) == set()
    assert found(script(inside(context, WRITE))) == {"unguarded-write"}, "the last process overwrites what others read"
    late = inside("if not os.path.exists('a')", inside(context, WRITE).rstrip())
    assert found(script(late)) == {"unguarded-write"}, "nobody looks again when it is its turn"


def test_a_lock_of_one_process_alone(found: Callable[[str], set[str]]) -> None:
    assert found(script(inside("with threading.Lock()", LOOKS))) == {"unguarded-write"}


PICTURE = 'img = Image.new("RGB", (8, 8))\n'
IN_MEMORY = {
    "a state": "out = io.BytesIO()\ntorch.save({}, out)",
    "a picture": f'{PICTURE}with io.BytesIO() as out:\n    img.save(out, format="PNG")',
    "a text": "with io.StringIO() as out:\n    json.dump({}, out)",
    "by keyword": "out = io.BytesIO()\ntorch.save({}, f=out)",
    "by a function": "out = io.BytesIO()\nkeep(out)",
}
KEEP = "def keep(file):\n    torch.save({}, file)\n"


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_buffer_in_memory_is_no_file(name: str, found: Callable[[str], set[str]]) -> None:
    lines = IN_MEMORY[name]
    assert found(script(lines, KEEP)) == set()
    path = lines.replace("io.BytesIO()", "'a'").replace("io.StringIO()", "open('a', 'w')")
    path = path.replace("with 'a' as out:\n    ", "out = 'a'\n")
    assert found(script(path, KEEP)) == {"unguarded-write"}


def test_a_function_that_is_given_a_path_too(found: Callable[[str], set[str]]) -> None:
    assert found(script("keep(io.BytesIO())\nkeep('a')", KEEP)) == {"unguarded-write"}


WRITER = """\
    if rank == 0:
        writer = SummaryWriter("runs")
    else:
        writer = None
"""
CHOSEN = '    writer = SummaryWriter("runs") if rank == 0 else None\n'
EVERYONE = '    writer = SummaryWriter(f"runs{rank}")\n'
SHOWS = """\
def show(model, writer=None):
    if writer is not None:
        shutil.rmtree("samples")


def evaluate(model, log):
    show(model, writer=log)
"""


def showing(makes: str, call: str) -> str:
    text = (
        script("size = 512", SHOWS)
        .replace("    size = 512\n", makes)
        .replace("    dist.destroy", f"    {call}\n    dist.destroy")
    )
    return "import shutil\nfrom torch.utils.tensorboard import SummaryWriter\n" + text


@pytest.mark.parametrize("call", ["show(model, writer)", "show(model, writer=writer)", "evaluate(model, writer)"])
def test_a_writer_of_the_main_process_that_a_function_is_given(call: str, found: Callable[[str], set[str]]) -> None:
    assert found(showing(WRITER, call)) == set()
    assert found(showing(CHOSEN, call)) == set()
    assert found(showing(EVERYONE, call)) == {"unguarded-write"}


def test_a_function_that_is_given_a_writer_of_each_process_too(found: Callable[[str], set[str]]) -> None:
    both = "show(model, writer)\n    show(model, SummaryWriter(str(rank)))"
    assert found(showing(WRITER, both)) == {"unguarded-write"}
    assert found(showing(WRITER, "show(model, writer)\n    show(model)")) == set(), "it has none there"


ROWS = """\
class Pictures(Dataset):
    def __getitem__(self, index):
        return torch.zeros(8), f"{index}.jpg"

    def __len__(self):
        return 8
"""
SHARDED = "pictures = Pictures()\nshow = DataLoader(pictures, 4, sampler=DistributedSampler(pictures, shuffle=False))\n"
WHOLE = "show = DataLoader(Pictures(), 4)\n"
OWN_NAMES = {
    "a row": "for x, names in show:\n    for row, name in zip(x, names):\n        np.save(name, row)",
    "counted": (
        "for i, (x, names) in enumerate(tqdm(show)):\n    for j, name in enumerate(names):\n        np.save(name, x[j])"
    ),
    "an opened file": (
        "for x, names in show:\n    for name in names:\n        with open(name, 'w') as f:\n            f.write('1')"
    ),
    "a path": (
        "for x, names in show:\n    for j in range(len(x)):\n        stem = os.path.splitext(names[j])[0]\n"
        '        np.save(os.path.join("out", f"{stem}.npy"), x[j])'
    ),
}
SAME_NAMES = {
    "the count of the batch": 'for i, (x, names) in enumerate(show):\n    np.save(f"{i}.npy", x)',
    "the count of the row": "for x, names in show:\n    for j, row in enumerate(x):\n        np.save(str(j), row)",
    "no name at all": "for x, names in show:\n    np.save('x.npy', x)",
    "a figure": "for x, names in show:\n    mean = x.mean()\n    np.save(f'{mean}', x)",
}


def of_pictures(loader: str, lines: str) -> str:
    text = script(loader + lines, ROWS).replace("import DataLoader", "import DataLoader, Dataset")
    return "import numpy as np\nfrom tqdm import tqdm\n" + text


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_file_that_is_named_by_a_row(name: str, found: Callable[[str], set[str]]) -> None:
    assert found(of_pictures(SHARDED, OWN_NAMES[name])) == set()
    assert found(of_pictures(WHOLE, OWN_NAMES[name])) == {"unguarded-write"}


@pytest.mark.parametrize("name", SAME_NAMES)
def test_a_file_that_is_named_by_a_count(name: str, found: Callable[[str], set[str]]) -> None:
    assert found(of_pictures(SHARDED, SAME_NAMES[name])) == {"unguarded-write"}


@pytest.mark.parametrize(
    "lines",
    [
        FETCH,
        "if os.path.exists('a'):\n    print('there')\nelse:\n    urllib.request.urlretrieve('u', 'a')",
        "# the archive\n" + FETCH,
        FETCH.replace("    url", "    os.makedirs('b', exist_ok=True)\n    url"),
    ],
)
def test_the_call_that_downloads_is_quoted(lines: str, words: Callable[[str], list[str]]) -> None:
    assert words(script(lines)) == ["every process downloads this: `urllib.request.urlretrieve('u', 'a')`"]


def test_what_comes_if_the_file_is_missing_is_quoted(words: Callable[[str], list[str]]) -> None:
    lines = "if not os.path.exists('a'):\n    with open('a', 'w') as out:\n        out.write('1')"
    assert words(script(lines)) == ["every process downloads this: `with open('a', 'w') as out:`"]


def test_a_condition_is_quoted_without_the_comment_above(words: Callable[[str], list[str]]) -> None:
    lines = "# one process waits\nif rank == 0:\n    dist.barrier()"
    assert words(script(lines)) == [
        "`barrier` waits for all processes, but only some of them come to it: `if rank == 0:`"
    ]
