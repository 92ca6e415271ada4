"""The rule `data_parallel`: the wrapper of one process's GPUs goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Lines = Callable[..., tuple[list[str], list[str], list[str]]]
Migrated = Callable[[str], str]

NOOPS: dict[str, dict[str, Any]] = {
    "a class of that name of the script": {"top": "class DataParallel:\n    pass\nx = DataParallel()"},
    "an attribute called module of something else": {"end": "name = data.module"},
    "an attribute called module where nothing was wrapped": {"end": "name = model.module"},
    "the name in a comment": {"end": "done = True  # nn.DataParallel"},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop("import torch\nmodel = torch.nn.DataParallel(torch.nn.Linear(1, 1))\n")


APPLIED = """\
class Net(torch.nn.Module):
    def __init__(self, gpus):
        super().__init__()
        self.gpus = gpus
        self.body = torch.nn.Linear(8, 1)

    def forward(self, x):
{body}
        return y

net = Net(2)"""
CALLED = "y = torch.nn.parallel.data_parallel(self.body, x, range(self.gpus))"
CALLS = {
    "the call": (f"        {CALLED}", "        y = self.body(x)\n"),
    "the choice between it and the model's own": (
        f"        if x.is_cuda and self.gpus > 1:\n            {CALLED}\n        else:\n            y = self.body(x)",
        "    def forward(self, x):\n        y = self.body(x)\n        return y",
    ),
    "a choice that does something else as well": (
        f"        if x.is_cuda:\n            {CALLED}\n        else:\n            y = self.body(x) + 1",
        "        if x.is_cuda:\n            y = self.body(x)\n        else:\n            y = self.body(x) + 1\n",
    ),
    "several inputs, and some by keyword": (
        "        y = torch.nn.parallel.data_parallel(self.body, (x,), module_kwargs=self.more)",
        "        y = self.body(x, **self.more)\n",
    ),
}


@pytest.mark.parametrize(("body", "expected"), CALLS.values(), ids=CALLS)
def test_one_call_of_a_model_on_several_gpus_is_the_call_of_the_model(body: str, expected: str, after: Any) -> None:
    text = after(top=APPLIED.format(body=body), loss="torch.nn.functional.cross_entropy(model(net(x)), y)")
    assert expected in text
    assert "data_parallel" not in text


WRAP = "model = torch.nn.DataParallel(model)"
REWRITES = {
    "the wrapping": (WRAP, [WRAP], []),
    "the wrapping with its condition": (
        f"if torch.cuda.device_count() > 1:\n    {WRAP}",
        ["if torch.cuda.device_count() > 1:", f"    {WRAP}"],
        [],
    ),
    "the choice between it and what a plain model needs": (
        f"if torch.cuda.device_count() > 1:\n    {WRAP}\nelse:\n    state = plain(state)",
        ["if torch.cuda.device_count() > 1:", f"    {WRAP}", "else:", "    state = plain(state)"],
        ["state = plain(state)"],
    ),
    "its condition, where the script ends without it": (
        f"if torch.cuda.device_count() > 1:\n    {WRAP}\nelse:\n    raise SystemExit",
        ["if torch.cuda.device_count() > 1:", f"    {WRAP}", "else:"],
        ["if not (torch.cuda.device_count() > 1):"],
    ),
    "around a placement": (
        "model = torch.nn.DataParallel(model, device_ids=[0, 1]).cuda()",
        ["model = torch.nn.DataParallel(model, device_ids=[0, 1]).cuda()"],
        [],
    ),
    "looked through": (f"{WRAP}\nwidth = model.module.in_features", [WRAP, "width = model.module.in_features"],
                       ["width = model.in_features"]),
}  # fmt: skip


@pytest.mark.parametrize(("built", "out", "new"), REWRITES.values(), ids=REWRITES)
def test_rewritten(built: str, out: list[str], new: list[str], lines: Lines) -> None:
    assert lines(built=built) == (out, new, ["data_parallel"])


def test_with_the_global_batch_kept_nothing_is_left_to_say(lines: Lines) -> None:
    assert lines({"keep_global_batch": True}, built=WRAP)[2] == []


def test_a_checkpoint_whose_keys_change_is_named(lines: Lines) -> None:
    save = "torch.save(model.state_dict(), 'm.pt')"
    assert lines(built=WRAP, end=save)[2] == ["data_parallel", "data_parallel"]
    inner = "torch.save(model.module.state_dict(), 'm.pt')"
    assert lines(built=WRAP, end=inner)[1:] == (
        ["accelerator.save(accelerator.get_state_dict(model), 'm.pt')"],
        ["data_parallel"],
    )


CHILDREN = {
    "in a loop": ("for part in model.children():\n    part.eval()", "for part in [model]:\n    part.eval()"),
    "in a list": ("parts = list(model.children())", "parts = list([model])"),
    "one of them": ("part = next(model.children())", "part = next(iter([model]))"),
    "with their names": (
        "kept = {name: part for name, part in model.named_children()}",
        'kept = {name: part for name, part in [("module", model)]}',
    ),
    "in a function": (
        "def parts(net):\n    return [part for part in net.eval().children()]\nparts(model)",
        "def parts(net):\n    return [part for part in [net.eval()]]\nparts(model)",
    ),
}


@pytest.mark.parametrize(("asks", "gets"), CHILDREN.values(), ids=CHILDREN)
def test_the_only_child_of_the_wrapper_was_the_model(asks: str, gets: str, migrated: Migrated) -> None:
    """Without the wrapper `children()` would give the layers of the model."""
    top = "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(8, 2))\n"
    after = migrated(f"{top}{WRAP}\n{asks}\n{LOOP}")
    assert f"\n{gets}\n" in after and "DataParallel" not in after
    assert migrated(after) == after


NAMES = {
    "by their beginning": "head = [p for n, p in model.named_parameters() if n.startswith('module.head')]",
    "one of them": "for n, p in model.named_parameters():\n    p.requires_grad = n == 'module.weight'",
    "without the prefix": "fresh = {n[7:]: b for n, b in model.named_buffers()}",
    "by a part": "parts = [n.split('.')[1] for i, (n, m) in enumerate(model.named_modules())]",
    "kept in a variable": "named = dict(model.named_parameters())\nnamed['module.weight'].requires_grad = False",
    "asked for one": "named = dict(model.named_parameters())\nfound = 'module.weight' in named",
    "by a pattern": "head = [p for n, p in model.named_parameters() if re.match('module.h', n)]",
}


@pytest.mark.parametrize("asks", NAMES.values(), ids=NAMES)
def test_names_that_are_read_from_their_beginning_keep_it(asks: str, migrated: Migrated) -> None:
    top = "import re\nimport torch\nmodel = torch.nn.Linear(8, 2)\n"
    after = migrated(f"{top}{WRAP}\n{asks}\n{LOOP}")
    for method in ("named_parameters", "named_buffers", "named_modules"):
        asks = asks.replace(f"model.{method}()", f'model.{method}(prefix="module")')
    assert f"{asks}\n" in after and "DataParallel" not in after


def test_names_that_a_function_reads_keep_their_beginning(migrated: Migrated) -> None:
    """The argument is the prefix, whether or not the accelerator is visible there."""
    head = "def head(net):\n    return [p for n, p in net.named_parameters() if n == 'module.weight']\n"
    inside = indent(f"model = torch.nn.Linear(8, 2)\n{WRAP}\nprint(head(model))\n{LOOP}", "    ")
    after = migrated(f"import torch\n{head}def main():\n{inside}\nmain()\n")
    assert head.replace("parameters()", 'parameters(prefix="module")') in after
    assert "PartialState" not in after


ANY_NAMES = {
    "by their end": "head = [p for n, p in model.named_parameters() if n.endswith('bias')]",
    "by a word": "head = [p for n, p in model.named_parameters() if 'head' in n]",
    "shown": "for n, p in model.named_parameters():\n    total = len(n)",
    "the prefix taken off": "names = [n.replace('module.', '') for n, p in model.named_parameters()]",
    "taken off where it is": ("names = [n[7:] if n.startswith('module.') else n for n, p in model.named_parameters()]"),
    "the last part": "names = [n.split('.')[-1] for n, p in model.named_parameters()]",
    "before it is wrapped": "",
    "of another model": "other = torch.nn.Linear(2, 2)\nnames = [n[7:] for n, p in other.named_parameters()]",
    "of what is in the wrapper": "names = [n[7:] for n, p in model.module.named_parameters()]",
    "children of what is in it": "parts = list(model.module.children())",
    "where it is the wrapper": ("if isinstance(model, torch.nn.DataParallel):\n    parts = list(model.children())"),
}


@pytest.mark.parametrize("asks", ANY_NAMES.values(), ids=ANY_NAMES)
def test_names_that_may_begin_in_any_way_stay(asks: str) -> None:
    before = "names = [n[7:] for n, p in model.named_parameters()]\nparts = list(model.children())"
    text = f"import torch\nmodel = torch.nn.Linear(8, 2)\n{before}\n{WRAP}\n{asks}\n{LOOP}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert f"{before}\n{asks.replace('.module.', '.')}".rstrip() in file.after.decode()
    assert [found.severity for found in file.diagnoses if found.id == "data_parallel"] == [Severity.NOTE]


SPLIT = "one batch over the GPUs"
PERHAPS = "if torch.cuda.device_count() > 1:\n    model = torch.nn.DataParallel(model)"
OTHER_ANSWERS = {
    "children, wrapped for several GPUs": (
        PERHAPS, "parts = list(model.children())", Severity.REVIEW,
        "`model.children()` may have given the model inside the wrapper, which is removed: now it gives the parts of "
        "`model`",
    ),
    "names, wrapped for several GPUs": (
        PERHAPS, "head = [p for n, p in model.named_parameters() if n.startswith('module.head')]", Severity.REVIEW,
        '`model.named_parameters()` may have given names that begin with "module.", the wrapper\'s prefix, and '
        "`n.startswith('module.head')` depends on that",
    ),
    "keys that are cut": (
        WRAP, "plain = {k[7:]: v for k, v in model.state_dict().items()}", Severity.BLOCKED,
        '`model.state_dict()` gave names that begin with "module.", the wrapper\'s prefix, and `k[7:]` depends on that',
    ),
    "a key": (
        WRAP, "state = model.state_dict()\nfirst = state['module.weight']", Severity.BLOCKED,
        '`model.state_dict()` gave names that begin with "module.", the wrapper\'s prefix, and '
        "`state['module.weight']` depends on that",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wrap", "asks", "severity", "message"), OTHER_ANSWERS.values(), ids=OTHER_ANSWERS)
def test_what_is_another_answer_without_the_wrapper_is_named(
    wrap: str, asks: str, severity: Severity, message: str
) -> None:
    text = f"import torch\nmodel = torch.nn.Linear(8, 2)\n{wrap}\n{asks}\n{LOOP}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    told = [d for d in file.diagnoses if d.id == "data_parallel" and SPLIT not in d.message]
    assert [(d.severity, d.message) for d in told] == [(severity, message)]


def test_names_that_may_have_had_the_prefix_stay_where_nothing_expects_it() -> None:
    """The script was written for both: with one GPU nothing was wrapped."""
    asks = "head = [p for n, p in model.named_parameters() if n.startswith('head')]"
    text = f"import torch\nmodel = torch.nn.Linear(8, 2)\n{PERHAPS}\n{asks}\n{LOOP}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert asks in file.after.decode()
    assert [d.severity for d in file.diagnoses if d.id == "data_parallel"] == [Severity.NOTE]


def test_who_loads_the_checkpoint_is_told_of_new_files_too(lines: Lines) -> None:
    text = f"import torch\nmodel = torch.nn.Linear(8, 2)\n{WRAP}\n{LOOP}torch.save(model.state_dict(), 'm.pt')\n"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [d for d in file.diagnoses if d.severity is Severity.REVIEW and d.id == "data_parallel"]
    assert found.remedy.startswith("what loads a new file must expect plain keys")
    assert found.remedy.endswith("remove the prefix from the keys of older files")


OF_THE_WRAPPER = {
    "a read": f"{WRAP}\nprint(model.device_ids)",
    "a read in a text": f"{WRAP}\nprint(f'on {{model.output_device}}')",
}


@pytest.mark.parametrize("built", OF_THE_WRAPPER.values(), ids=OF_THE_WRAPPER)
def test_what_only_the_wrapper_has_blocks(built: str, lines: Lines) -> None:
    """The model inside has no such attribute: the script would crash."""
    assert lines(built=built) == ([], [], ["data_parallel", "data_parallel"])


def test_what_is_read_of_a_wrapper_alone_is_no_matter(lines: Lines) -> None:
    asked = "if isinstance(model, torch.nn.DataParallel):\n    print(model.device_ids)"
    assert lines(built=f"{WRAP}\n{asked}")[2] == ["data_parallel"]
    own = "class Net(torch.nn.Linear):\n    device_ids = (1,)"
    assert lines(top=own, built=f"{WRAP}\nother = Net(8, 2)\nprint(other.device_ids)")[2] == ["data_parallel"]


def test_a_choice_between_the_wrapper_s_model_and_the_model_is_none(after: Callable[..., str]) -> None:
    """Both branches would be the same; where they do different work, they stay."""
    built = "model = torch.nn.DataParallel(model)"
    end = (
        "if isinstance(model, torch.nn.DataParallel):\n    state = model.module.state_dict()\n"
        "else:\n    state = model.state_dict()\ntorch.save(state, 'a')"
    )
    text = after(built=built, end=end)
    assert "isinstance" not in text and text.count("state = accelerator.get_state_dict(model)\n") == 1
    other = end.replace("    state = model.state_dict()", "    state = {'model': model.state_dict()}")
    assert "isinstance" in after(built=built, end=other)
    asked = end.replace("isinstance(model, torch.nn.DataParallel)", "started()")
    assert "if started():" in after(built=built, end=asked)


def test_a_state_that_is_the_model_s_either_way_keeps_its_keys(lines: Lines) -> None:
    state = "model.module.state_dict() if many else model.state_dict()"
    assert lines(built=f"many = 2\nif many:\n    {WRAP}", end=f"torch.save({state}, 'm.pt')")[2] == ["data_parallel"]


SCALED = """\
import torch
class Scaled(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, x):
        return self.module(x) * 2
"""
LOOP = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
"""
SCALES = "model = torch.nn.Sequential(Scaled(torch.nn.Linear(2, 2)))"
OWN = {
    "in a class of the script": ([SCALES, WRAP], [SCALES]),
    "inside the wrapper": (
        [SCALES, WRAP, "width = model.module[0].module.in_features"],
        [SCALES, "width = model[0].module.in_features"],
    ),
    "of a model that is not wrapped": (
        [SCALES, "other = Scaled(torch.nn.Linear(2, 2))", "width = other.module.in_features", WRAP],
        [SCALES, "other = Scaled(torch.nn.Linear(2, 2))", "width = other.module.in_features"],
    ),
    "of what a function wraps": (
        ["def many(net):", "    return torch.nn.DataParallel(net).eval()", SCALES, "model = many(model)",
         "width = model.train().module[0].module.in_features"],
        ["def many(net):", "    return net.eval()", SCALES, "model = many(model)",
         "width = model.train()[0].module.in_features"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("built", "out"), OWN.values(), ids=OWN)
def test_an_own_attribute_that_is_called_module_stays(built: list[str], out: list[str], migrated: Migrated) -> None:
    """Only what may be the wrapper loses its `.module`."""
    after = migrated("\n".join([SCALED + built[0], *built[1:], LOOP]))
    assert SCALED.replace("import torch\n", "") in after
    assert "\n".join(out) in after


def test_a_wrapped_model_with_an_own_attribute_that_is_called_module_is_named() -> None:
    """Which of the two is read is not known: the wrapper's is taken."""
    lines = [SCALED + "model = Scaled(torch.nn.Linear(2, 2))", WRAP, "width = model.module.module.in_features", LOOP]
    (file,) = migrate([decode("\n".join(lines).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"width = model.module.in_features" in file.after
    told = [found.message for found in file.diagnoses if found.severity is Severity.REVIEW]
    assert told == ["this `.module` is taken for the removed wrapper's, but Scaled has one of its own"]


def test_the_model_inside_the_wrapper_is_not_replaced() -> None:
    """`model = net` would leave the model that others hold as it was."""
    text = f"{WRAP}\nmodel.module = torch.nn.Linear(8, 2)\n"
    top = "import torch\nmodel = torch.nn.Linear(8, 2)\n"
    (file,) = migrate([decode((top + text + LOOP).encode(), Path("train.py"))], CATALOGUE, Config()).files
    told = [found.message for found in file.diagnoses if found.severity is Severity.BLOCKED]
    assert told == ["model.module is an attribute of the wrapper, which is removed"]


BY_HAND = """\
import torch
model = torch.nn.Linear(4, 1)
model = torch.nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 4), torch.randn(64, 1)
for i in range(0, 64, 8):
    optimizer.zero_grad()
    loss = (model(x[i:i + 8]) - y[i:i + 8]).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


def test_a_batch_that_is_cut_is_no_whole_one() -> None:
    (file,) = migrate([decode(BY_HAND.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"shard_batch" in file.after and b"DataParallel" not in file.after
    assert "data_parallel" not in [found.id for found in file.diagnoses]


SAVED = "torch.save(model.state_dict(), 'm.pt')"
BUILD = f"import torch\ndef build():\n    model = torch.nn.Linear(8, 2)\n    {WRAP}\n    return model\n"
BESIDE = "model = torch.nn.Linear(8, 2)\nhelper = torch.nn.DataParallel(torch.nn.Linear(8, 8))\n"
WRAPPED = {
    "another model": (f"{BESIDE}{LOOP}", "", []),
    "in another module": (f"from build import build\nmodel = build()\n{LOOP}", BUILD, [Severity.REVIEW]),
}


@pytest.mark.parametrize(("built", "beside", "told"), WRAPPED.values(), ids=WRAPPED)
def test_the_keys_are_told_of_a_model_that_was_wrapped(
    built: str, beside: str, told: list[Severity], tmp_path: Path
) -> None:
    """Wherever that is, and of no other."""
    texts = {"train": f"import torch\n{built}{SAVED}\n", "build": beside}
    sources = [decode(text.encode(), tmp_path / f"{name}.py") for name, text in texts.items()]
    found = [d for f in migrate(sources, CATALOGUE, Config()).files for d in f.diagnoses if "keys of this" in d.message]
    assert [d.severity for d in found] == told


TEACHER = """\
import torch

def teacher(cuda=True):
    net = torch.nn.Linear(8, 2)
    if cuda:
        net = torch.nn.DataParallel(net).cuda()
    return net

model, guide = torch.nn.Linear(8, 2), teacher()
"""


def test_a_teacher_that_nothing_prepares_keeps_its_move() -> None:
    """Both rules changed that line, and the script was refused for it."""
    text = f"{TEACHER}{LOOP}".replace("model(x)", "(model(x) + guide(x).detach())")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"        net = net.to(accelerator.device)\n" in file.after
    assert "conflict" not in [found.id for found in file.diagnoses]


WATCHED = """\
from torch.nn.parallel.data_parallel import DataParallel

def watch(wrapped):
    {first}
    old = wrapped.replicate
    wrapped.replicate = lambda *given: old(*given)
"""


@pytest.mark.parametrize(
    ("first", "goes"), [("assert isinstance(wrapped, DataParallel)", True), ("assert wrapped is not None", False)]
)
def test_a_call_of_what_takes_the_wrapper_alone_goes_with_it(first: str, goes: bool, lines: Lines) -> None:
    """It stayed, and its demand failed."""
    built = "if torch.cuda.is_available():\n    model = torch.nn.DataParallel(model)\n    watch(model)"
    gone, _, _ = lines(top=WATCHED.format(first=first), built=built)
    assert ("    watch(model)" in gone) == goes


@pytest.mark.parametrize(
    ("comment", "stays"),
    [
        ("# use several GPUs if there are any", False),
        ("# Check DataParallel available", False),
        ("# slow on the old machine", True),
        ("# gpus = [0, 1]", True),
    ],
)
def test_a_comment_that_spoke_of_the_gpus_goes_with_the_choice(comment: str, stays: bool, lines: Lines) -> None:
    """It was above the line after it, of which it said nothing."""
    wrapped = "if torch.cuda.device_count() > 1:\n    model = torch.nn.DataParallel(model)"
    out, _, _ = lines(built=f"{comment}\n{wrapped}")
    assert (comment not in out) is stays
