"""The rule `data_parallel`: the wrapper of one process's GPUs goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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


WRAP = "model = torch.nn.DataParallel(model)"
REWRITES = {
    "the wrapping": (WRAP, [WRAP], []),
    "the wrapping with its condition": (
        f"if torch.cuda.device_count() > 1:\n    {WRAP}",
        ["if torch.cuda.device_count() > 1:", f"    {WRAP}"],
        [],
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
