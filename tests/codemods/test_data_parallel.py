"""The rule `data_parallel`: the wrapper of one process's GPUs goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

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
