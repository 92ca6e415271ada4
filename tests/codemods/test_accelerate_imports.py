"""The rule ``accelerate_imports``: scripts that are on Accelerate already."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, Target
from torchlift.rewriter.facts.accelerate_names import ARGUMENTS, MEMBERS, NAMES
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
{imports}
from torch.utils.data import DataLoader

accelerator = {accelerator}
model = torch.nn.Linear(8, 2)
loader = DataLoader(train, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
{end}
"""
PLAIN = "from accelerate import Accelerator"


def swapped(imports: str = PLAIN, accelerator: str = "Accelerator()", end: str = "", **options: Any) -> FileResult:
    text = SCRIPT.format(imports=imports, accelerator=accelerator, end=end)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(**options)).files
    return file


LEFT: dict[str, Callable[[], FileResult]] = {
    "on this runtime": lambda: swapped("from torchlift.runtime import Accelerator"),
    "on Accelerate, and meant to stay": lambda: swapped(target=Target.ACCELERATE),
    "declined": lambda: swapped(ignore=frozenset({"accelerate_imports"})),
    "a module of a like name": lambda: swapped(
        "from accelerated import speed\nfrom torchlift.runtime import Accelerator"
    ),
}


EVALUATES = """\
tests = accelerator.prepare(DataLoader(test, batch_size=32))
def score(rows):
    errors = []
    for x, y in rows:
        errors.append(accelerator.gather_for_metrics(model(x).argmax(1) != y).sum().item())
    accelerator.print("errors", sum(errors))
def show(rows):
    for x, y in rows:
        count = x.shape[0]
        guesses = model(x).argmax(1).cpu().numpy()
        for i in range(count):
            accelerator.print(guesses[i])
        break
score(tests)
show(tests)"""


def test_a_loader_that_the_script_prepares_is_called_prepared() -> None:
    """An evaluation that is not understood is as its author wrote it, and so is another one of the same loader."""
    file = swapped(end=EVALUATES)
    assert file.after == file.source.data.replace(b"from accelerate ", b"from torchlift.runtime ")
    assert [found.id for found in file.diagnoses] == ["own-figure"]


@pytest.mark.unchanged
@pytest.mark.parametrize("case", LEFT.values(), ids=LEFT)
def test_left_alone(case: Callable[[], FileResult]) -> None:
    file = case()
    assert not file.changed and not file.diagnoses


SWAPPED = {
    "the accelerator": (PLAIN, "Accelerator()", "from torchlift.runtime import Accelerator"),
    "under another name": (
        "from accelerate import Accelerator as Acc  # here", "Acc()",
        "from torchlift.runtime import Accelerator as Acc  # here",
    ),
    "the module": ("import accelerate", "accelerate.Accelerator()", "from torchlift import runtime as accelerate"),
    "the module under another name": (
        "import accelerate as acc", "acc.Accelerator()", "from torchlift import runtime as acc",
    ),
    "a helper": (
        f"{PLAIN}\nfrom accelerate.utils import set_seed", "Accelerator()",
        "from torchlift.runtime import Accelerator\nfrom torchlift.runtime.utils import set_seed",
    ),
    "a helper by its inner module": (
        f"{PLAIN}\nfrom accelerate.utils.operations import gather", "Accelerator()",
        "from torchlift.runtime import Accelerator\nfrom torchlift.runtime.utils import gather",
    ),
    "a precision": (
        f"{PLAIN}\nfrom accelerate.utils import AORecipeKwargs",
        "Accelerator(mixed_precision='fp8', kwargs_handlers=[AORecipeKwargs()])",
        "from torchlift.runtime import Accelerator\nfrom torchlift.runtime.utils import AORecipeKwargs",
    ),
    "a logger": (
        f"{PLAIN}\nfrom accelerate.logging import get_logger", "Accelerator()",
        "from torchlift.runtime import Accelerator\nfrom torchlift.runtime.logging import get_logger",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("imports", "accelerator", "after"), SWAPPED.values(), ids=SWAPPED)
def test_swapped(imports: str, accelerator: str, after: str) -> None:
    file = swapped(imports, accelerator)
    assert file.after.decode() == SCRIPT.format(imports=after, accelerator=accelerator, end="")
    assert not file.diagnoses
    assert not swapped(after, accelerator).changed


MISSING = {
    "big models": (f"{PLAIN}, init_empty_weights", "Accelerator()", "", "init_empty_weights"),
    "an engine": (f"{PLAIN}, DeepSpeedPlugin", "Accelerator()", "", "DeepSpeedPlugin"),
    "an argument": (PLAIN, "Accelerator(fsdp_plugin=None)", "", "Accelerator(fsdp_plugin=...)"),
    "a method": (PLAIN, "Accelerator()", "accelerator.lomo_backward(loss, 0.1)", "Accelerator.lomo_backward"),
    "a sub-module": ("import accelerate.utils\n" + PLAIN, "Accelerator()", "", "accelerate.utils"),
    "by the module": (
        "import accelerate",
        "accelerate.Accelerator()",
        "accelerate.dispatch_model(model)",
        "dispatch_model",
    ),
}


@pytest.mark.parametrize(("imports", "accelerator", "end", "name"), MISSING.values(), ids=MISSING)
def test_what_is_missing_is_named_and_nothing_changes(imports: str, accelerator: str, end: str, name: str) -> None:
    file = swapped(imports, accelerator, end)
    assert not file.changed
    (found,) = [d for d in file.diagnoses if d.id == "accelerate_imports"]
    assert name in found.message


@pytest.mark.parametrize("saved", ["model.state_dict()", "accelerator.unwrap_model(model).state_dict()"])
def test_what_the_main_process_saves_is_left_alone(saved: str) -> None:
    end = f"if accelerator.is_main_process:\n    torch.save({saved}, 'model.pt')"
    file = swapped(end=end)
    assert file.changed and not file.blocked
    assert end in file.after.decode(), "nobody else comes to a call that waits for all"


DECIDES = """\
for x, y in loader:
    if model(x).argmax(1).bool().all():
        break
    model.zero_grad()
"""


def test_what_a_script_on_accelerate_decides_is_its_own_affair() -> None:
    """It was refused for a decision that it has always taken so."""
    file = swapped(end=DECIDES)
    assert "from torchlift.runtime import Accelerator" in file.after.decode()
    assert [d.id for d in file.diagnoses if d.id == "local-decision"] == []


def test_what_is_named_is_there() -> None:
    from torchlift.runtime import Accelerator
    from torchlift.runtime.compat import plugins

    for module, names in NAMES.items():
        found = import_module(f"torchlift.runtime.{module}".rstrip("."))
        assert [name for name in names if not hasattr(found, name)] == []
        assert [name for name in names if hasattr(plugins, name) and isinstance(getattr(plugins, name), type)] == []
    assert set(signature(Accelerator.__init__).parameters) >= ARGUMENTS
    assert [name for name in MEMBERS if not hasattr(Accelerator, name)] == []
