"""The rule `checkpoint_save`: saved once, with the plain model's keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

NOOPS: dict[str, dict[str, Any]] = {
    "a state dict that is only looked at": {"end": "keys = list(model.state_dict())"},
    "another save": {"top": "class Log:\n    def save(self, name):\n        return name", "end": "Log().save('x.png')"},
    "a save of the script": {"top": "def save(what, where):\n    return where", "end": "save(model, 'x.pt')"},
    "a state dict of something unknown": {"end": "kept = thing.state_dict()"},
    "a state dict that is saved to memory": {
        "imports": "import io",
        "end": "best = io.BytesIO()\ntorch.save(model.state_dict(), best)",
    },
    "a state dict that a function saves to memory": {
        "imports": "import io",
        "top": "def keep(what, where):\n    torch.save(what, where)",
        "end": "with io.BytesIO() as best:\n    keep(model.state_dict(), best)",
    },
    "the name, not called": {"end": "save = torch.save"},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop(
        """
        import torch
        model = torch.nn.Linear(2, 2)
        torch.save(model.state_dict(), "start.pt")
        """
    )


REWRITES = {
    "a state dict": (
        "torch.save(model.state_dict(), 'm.pt')",
        "accelerator.save(accelerator.get_state_dict(model), 'm.pt')",
    ),
    "one value of a dict": (
        "torch.save({'epoch': epoch, 'model': model.state_dict(), 'opt': optimizer.state_dict()}, 'm.pt')",
        "accelerator.save({'epoch': epoch, 'model': accelerator.get_state_dict(model), 'opt': optimizer.state_dict()}, "
        "'m.pt')",
    ),
    "the whole model": ("torch.save(model, 'm.pt')", "accelerator.save(model, 'm.pt')"),
    "a list of losses": ("torch.save([0.5, 0.4], 'losses.pt')", "accelerator.save([0.5, 0.4], 'losses.pt')"),
    "the keyword f": (
        "torch.save(model.state_dict(), f='m.pt')",
        "accelerator.save(accelerator.get_state_dict(model), f='m.pt')",
    ),
}


@pytest.mark.hazard("C2", "C4")
@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_saved_once(before: str, after: str, lines: Lines) -> None:
    assert lines(epoch=before) == ([f"    {before}"], [f"    {after}"], [])


OPENED = {
    "torch.save": "torch.save(model.state_dict(), f)",
    "a dict": "torch.save({'epoch': 1, 'model': model.state_dict(), 'opt': optimizer.state_dict()}, f)",
}


@pytest.mark.parametrize("save", OPENED.values(), ids=OPENED)
def test_a_state_that_goes_into_a_file_that_is_open(save: str, lines: Lines) -> None:
    """The state is taken by all processes, so that no guard can stand around it: it was refused as a fault of ours."""
    before, after, findings = lines(imports="import os", end=f"with open('m.pt', 'wb') as f:\n    {save}")
    assert before == ["with open('m.pt', 'wb') as f:", f"    {save}"] and findings == []
    taken = save.replace("torch.save", "accelerator.save").replace(
        "model.state_dict()", "accelerator.get_state_dict(model)"
    )
    assert after == ["with open('m.pt' if accelerator.is_main_process else os.devnull, 'wb') as f:", f"    {taken}"]


def test_a_checkpoint_that_was_given_a_name(lines: Lines) -> None:
    end = "state = {'model': model.state_dict()}\ntorch.save(state, 'm.pt')"
    assert lines(end=end) == (
        end.splitlines(),
        ["state = {'model': accelerator.get_state_dict(model)}", "accelerator.save(state, 'm.pt')"],
        [],
    )


def test_an_option_that_the_accelerator_does_not_have_is_reported(lines: Lines) -> None:
    text = "torch.save(model.state_dict(), 'm.pt', _use_new_zipfile_serialization=False)"
    _, come, findings = lines(end=text)
    assert findings == ["checkpoint_save"]
    assert not any("accelerator.save(" in line for line in come)
