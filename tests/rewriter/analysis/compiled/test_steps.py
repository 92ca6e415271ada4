"""`--device tpu`: what of each step a device waits for that compiles its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, load
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Linear(8, 3).to(device)
loader = DataLoader(data, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{step}
print(total)
"""


def told(step: str) -> list[tuple[str, str]]:
    """The ids and messages that the option adds; but for sums of losses the emitted text is that without it."""
    text = SCRIPT.format(step="\n".join(f"    {line}" for line in step.splitlines()))
    sources = [decode(text.encode(), Path("train.py"))]
    kept = Config(ignore=frozenset({"deferred_reads"}))
    (plain,), (asked,) = (migrate(sources, CATALOGUE, kept._replace(device=device)).files for device in ("", "tpu"))
    assert plain.changed and plain.after == asked.after
    assert not any(found.id.startswith("tpu") for found in plain.diagnoses)
    return [(found.id, found.message) for found in asked.diagnoses if found.id.startswith("tpu")]


WAITS = {
    "an item": ("total += loss.item()", "`loss.item()`"),
    "a number": ("total += float(loss)", "`float(loss)`"),
    "a list": ("rows = out.tolist()", "`out.tolist()`"),
    "a printed tensor": ("print(f'{loss:.3f}')", "`loss`"),
    "a comparison": ("if loss > 5:\n    break", "`loss > 5`"),
    "a call": ("if torch.isnan(loss):\n    break", "`torch.isnan(loss)`"),
}


@pytest.mark.parametrize(("step", "named"), WAITS.values(), ids=WAITS)
def test_what_needs_a_value_in_each_step(step: str, named: str) -> None:
    ((found, message),) = told(step)
    assert found == "tpu-waits" and message.startswith(f"{named} needs its value in each step")


def test_several_places_of_a_loop_are_one_finding() -> None:
    step = "total += loss.item()\nif loss > 5:\n    break\nprint(f'{out}')\nbest = float(loss)\nlast = y.tolist()"
    ((found, message),) = told(step)
    assert found == "tpu-waits" and message.startswith(
        "`loss.item()`, `loss > 5`, `out` and 2 others need their values"
    )


@pytest.mark.parametrize(
    "step",
    [
        "total += loss.detach()",
        "if step % 100 == 0:\n    print(loss.item())",
        "if len(x) < 8:\n    break",
        "if x.shape[0] > 5:\n    print(step)",
        "if y is None:\n    break",
        "if torch.cuda.is_available():\n    torch.cuda.synchronize()",
        "y[y == 2] = 0",
    ],
)
def test_what_costs_nothing_in_each_step(step: str) -> None:
    assert told(step) == []


@pytest.mark.parametrize("step", ["best = out[y > 0]", "keep = y > 0\nbest = out[keep]", "places = torch.nonzero(y)"])
def test_how_many_rows_there_are_depends_on_values(step: str) -> None:
    assert [found for found, _ in told(step)] == ["tpu-shapes"]


def test_a_function_of_cuda_has_no_answer() -> None:
    ((found, message),) = told("torch.cuda.synchronize()")
    assert found == "tpu-cuda" and "`torch.cuda.synchronize()`" in message


def test_the_project_can_ask_for_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.torchlift]\ndevice = "tpu"\n')
    assert load(tmp_path).device == "tpu"
