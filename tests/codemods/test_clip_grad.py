"""The rule `clip_grad`: clipping through the accelerator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

NOOPS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a function of that name from elsewhere": (
        {"imports": "from mylib import clip_grad_norm_", "step": "clip_grad_norm_(model.parameters(), 1.0)"},
        [],
    ),
    "a function of that name of the script": (
        {
            "top": "def clip_grad_norm_(parameters, norm):\n    return 0.0",
            "step": "clip_grad_norm_(model.parameters(), 1.0)",
        },
        [],
    ),
    "a method of that name": ({"built": "tool = Tool()", "step": "tool.clip_grad_norm_(1.0)"}, []),
    "the name in a string": ({"end": "note = 'clip_grad_norm_'"}, []),
    "a function that nothing calls": (
        {"end": "def spare(m):\n    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)"},
        [],
    ),
    "an option that the accelerator does not have": (
        {"step": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)"},
        ["clip_grad"],
    ),
}


@pytest.mark.parametrize(("parts", "findings"), NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], findings: list[str], lines: Lines) -> None:
    assert lines(**parts) == ([], [], findings)


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop(
        """
        import torch
        from torch.nn.utils import clip_grad_norm_

        def shorten(model):
            return clip_grad_norm_(model.parameters(), 1.0)
        """
    )


REWRITES = {
    "by its full name": (
        {"step": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"},
        ["        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"],
        ["        accelerator.clip_grad_norm_(model.parameters(), 1.0)"],
    ),
    "through an alias of a module": (
        {"imports": "import torch.nn as nn", "step": "nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)"},
        ["import torch.nn as nn", "        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)"],
        ["        accelerator.clip_grad_norm_(model.parameters(), max_norm=1.0)"],
    ),
    "an import that nothing else reads goes": (
        {"imports": "from torch.nn.utils import clip_grad_norm_", "step": "clip_grad_norm_(model.parameters(), 1.0)"},
        ["from torch.nn.utils import clip_grad_norm_", "        clip_grad_norm_(model.parameters(), 1.0)"],
        ["        accelerator.clip_grad_norm_(model.parameters(), 1.0)"],
    ),
    "its neighbours in the import stay": (
        {
            "imports": "from torch.nn.utils import clip_grad_norm_, parameters_to_vector",
            "step": "clip_grad_norm_(model.parameters(), 1.0)\nflat = parameters_to_vector(model.parameters())",
        },
        [
            "from torch.nn.utils import clip_grad_norm_, parameters_to_vector",
            "        clip_grad_norm_(model.parameters(), 1.0)",
        ],
        [
            "from torch.nn.utils import parameters_to_vector",
            "        accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        ],
    ),
    "the norm is kept": (
        {"step": "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"},
        ["        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"],
        ["        norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)"],
    ),
    "by value": (
        {"step": "torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)"},
        ["        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)"],
        ["        accelerator.clip_grad_value_(model.parameters(), 0.5)"],
    ),
    "imported under another name": (
        {
            "imports": "from torch.nn.utils import clip_grad_norm_ as clip",
            "step": "clip(model.parameters(), 1.0)",
        },
        ["from torch.nn.utils import clip_grad_norm_ as clip", "        clip(model.parameters(), 1.0)"],
        ["        accelerator.clip_grad_norm_(model.parameters(), 1.0)"],
    ),
}


@pytest.mark.parametrize(("parts", "gone", "come"), REWRITES.values(), ids=REWRITES)
def test_rewritten(parts: dict[str, Any], gone: list[str], come: list[str], lines: Lines) -> None:
    assert lines(**parts) == (gone, come, [])
