"""Variables without a reader: what only served removed code goes, anything else stays."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlift.rewriter.analysis.syntax.resolving import resolve
from torchlift.rewriter.editing.leftovers import Written, tidied

KEPT = {
    "still read": ("flag = args.gpu\nif flag:\n    f()\nprint(flag)\n", "flag = args.gpu\nprint(flag)\n"),
    "never read, before and after": ("flag = args.gpu\nf()\n", "flag = args.gpu\n"),
    "its value has an effect": ("flag = ask()\nif flag:\n    f()\n", "flag = ask()\n"),
    "read in a nested function": (
        "flag = args.gpu\nif flag:\n    f()\ndef g():\n    return flag\n",
        "flag = args.gpu\ndef g():\n    return flag\n",
    ),
    "handed out by __all__": ("__all__ = ['flag']\nflag = 1\nif flag:\n    f()\n", "__all__ = ['flag']\nflag = 1\n"),
    "the script looks at its names": ("flag = 1\nif flag:\n    f()\ng(globals())\n", "flag = 1\ng(globals())\n"),
    "it looks at them by vars": ("a = 1\nf(a)\ng(vars(), vars(b))\n", "a = 1\ng(vars(), vars(b))\n"),
    "the next of what others read, too": ("one = next(rows)\nif one:\n    f()\n", "one = next(rows)\n"),
    "one of two definitions has an effect": (
        "flag = 1\nflag = ask()\nif flag:\n    f()\n",
        "flag = 1\nflag = ask()\n",
    ),
    "an attribute of a class": ("class C:\n    flag = 1\n    if flag:\n        f()\n", "class C:\n    flag = 1\n"),
    "the value of a parameter, which has an effect": (
        "def g(d=None):\n    if d is None:\n        d = ask()\n    f(d)\n    h()\n",
        "def g(d=None):\n    if d is None:\n        d = ask()\n    h()\n",
    ),
    "the value of a parameter, beside something else": (
        "def g(d=None):\n    if d is None:\n        d = 1\n        h()\n    f(d)\n",
        "def g(d=None):\n    if d is None:\n        d = 1\n        h()\n",
    ),
    "the value of a parameter that is still read": (
        "def g(d=None):\n    if d is None:\n        d = 1\n    f(d)\n    h(d)\n",
        "def g(d=None):\n    if d is None:\n        d = 1\n    h(d)\n",
    ),
    "several targets": ("a = b = 1\nif a and b:\n    f()\n", "a = b = 1\n"),
}


@pytest.mark.parametrize(("before", "after"), KEPT.values(), ids=KEPT)
def test_kept(before: str, after: str) -> None:
    assert _dropped(before, after) == after


GONE = {
    "a flag": ("import os\nflag = args.gpu and torch.cuda.is_available()\nif flag:\n    f()\n", "import os\n"),
    "in two branches": ("if args.gpu:\n    d = 'cuda'\nelse:\n    d = 'cpu'\nf(d)\nh()\n", "h()\n"),
    "one after the other": ("a = args.gpu\nb = 1 if a else 2\nf(b)\nh()\n", "h()\n"),
    "in a function": ("def g():\n    n = torch.cuda.device_count()\n    f(n)\n    h()\n", "def g():\n    h()\n"),
    "beside the fields of an object": ("a = args.gpu\nf(a)\nsave(vars(args))\n", "save(vars(args))\n"),
    "the first part of a model": (
        "def g():\n    d = next(net.parameters()).device.index\n    f(d)\n    h()\n",
        "def g():\n    h()\n",
    ),
    "on a line with another": ("a = 1; h()\nf(a)\n", "h()\n"),
    "the value of a parameter that is not given": (
        "def g(d=None):\n    if d is None:\n        d = torch.device('cpu')\n    f(d)\n    h()\n",
        "def g(d=None):\n    h()\n",
    ),
}


@pytest.mark.parametrize(("before", "expected"), GONE.values(), ids=GONE)
def test_gone_with_its_last_reader(before: str, expected: str) -> None:
    without = "".join(line for line in before.splitlines(keepends=True) if "f(" not in line)
    without = without.replace("if flag:\n", "")
    assert _dropped(before, without) == expected


def test_a_module_that_others_import_keeps_its_names() -> None:
    before, after = "flag = 1\nif flag:\n    f()\n", "flag = 1\n"
    assert _dropped(before, after, outside=True) == after


def test_a_comment_of_the_device_goes_and_any_other_stays() -> None:
    before = "import os\n# use the gpu\na = 1\n# the seed of all evil\nb = 2\nf(a, b)\nh()\n"
    assert _dropped(before, before.replace("f(a, b)\n", "")) == "import os\n# the seed of all evil\nh()\n"


def _dropped(before: str, after: str, *, outside: bool = False) -> str:
    names, tree = resolve(cst.parse_module(before)), cst.parse_module(after)
    return tidied([Written(names, tree, open=outside)])[0].code
