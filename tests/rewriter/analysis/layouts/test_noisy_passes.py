"""Decisions on figures of equal rows that each process computes with random numbers of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 16)
        self.outer = nn.Linear(16, 3)
        LAYER

    def forward(self, x):
        return self.outer(NOISE)

loader = DataLoader(data, batch_size=16, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = """\
    optimizer.zero_grad()
    out = model(xb)
    loss = F.cross_entropy(out, yb)
    loss.backward()
    optimizer.step()
"""
KEPT = "xb, yb = next(iter(loader))\nfor step in range(500):\n" + STEP
ALL = "for xb, yb in loader:\n" + STEP
ACCURACY = "    accuracy = (out.argmax(1) == yb).float().mean().item()\n    if accuracy > 0.9:\n        break\n"
QUIET, LOUD = "self.inner(x)", "F.dropout(self.inner(x), 0.5, self.training)"


def _migrated(text: str, noise: str = LOUD, layer: str = "") -> FileResult:
    text = text.replace("NOISE", noise).replace("        LAYER\n", f"        {layer}\n" if layer else "")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    if file.changed:
        (again,) = migrate([decode(file.after, Path("train.py"))], CATALOGUE, Config()).files
        assert again.after == file.after, "a second run changes something"
    return file


def _received(text: str, noise: str = LOUD, layer: str = "") -> list[str]:
    """The lines in which all processes take what the main process has."""
    file = _migrated(text, noise, layer)
    assert file.changed
    return re.findall(r".*broadcast_object_list\(.*", file.after.decode())


@pytest.mark.parametrize(
    ("noise", "layer"),
    [
        (LOUD, ""),
        ("self.drop(self.inner(x))", "self.drop = nn.Dropout(0.1)"),
        ("self.inner(x) + torch.randn(16)", ""),
    ],
)
def test_one_batch_that_is_kept(noise: str, layer: str) -> None:
    """All processes train on the same rows, with dropout of their own: each would leave the loop at another step."""
    received = ["    accuracy = broadcast_object_list([accuracy])[0]"]
    assert _received(HEAD + KEPT + ACCURACY + ALL, noise, layer) == received


@pytest.mark.parametrize(("noise", "layer"), [(QUIET, ""), ("F.dropout(self.inner(x), 0.0)", "")])
def test_a_model_without_noise(noise: str, layer: str) -> None:
    """Equal rows through equal weights give equal figures."""
    assert _received(HEAD + KEPT + ACCURACY + ALL, noise, layer) == []


def test_a_loss_that_ends_the_loop() -> None:
    """What is decided on is no variable of its own: the condition is received."""
    text = HEAD + KEPT + "    if loss.item() < 0.2:\n        break\n" + ALL
    assert _received(text) == ["    if broadcast_object_list([loss.item() < 0.2])[0]:"]


def test_noise_beside_the_model() -> None:
    """The numbers are drawn in the loop, and not by the model."""
    noisy = KEPT.replace("    out = model(xb)", "    noise = torch.randn_like(xb)\n    out = model(xb + noise)")
    assert _received(HEAD + noisy + ACCURACY + ALL, QUIET) == ["    accuracy = broadcast_object_list([accuracy])[0]"]


def test_how_many_rows_there_are() -> None:
    """Noise changes the values of a tensor, and not its size."""
    asked = "    if len(out) < 16 or out.shape[0] < 16 or out.size(0) < 16:\n        break\n"
    assert _received(HEAD + KEPT + asked + ALL) == []


TEST = """\
def accuracy():
    MODE
    with torch.no_grad():
        return (model(test_x).argmax(1) == test_y).float().mean().item()

best = 0.0
for epoch in range(10):
    model.train()
    for xb, yb in loader:
"""
STOP = "    score = accuracy()\n    if score > 0.9:\n        break\n    if score > best:\n        best = score\n"
SAVE = "        torch.save(model.state_dict(), 'best.pt')\n"


@pytest.mark.parametrize(
    ("mode", "received"), [("model.eval()", []), ("", ["    score = broadcast_object_list([score])[0]"])]
)
def test_a_test_set_that_is_one_tensor(mode: str, received: list[str]) -> None:
    """Every process tests on all rows: with noise only if the model is in training mode. The score is received once,
    for all that is decided on it."""
    test = TEST.replace("    MODE\n", f"    {mode}\n" if mode else "")
    text = HEAD + test + "".join(f"    {line}\n" for line in STEP.splitlines()) + STOP + SAVE
    assert _received(text) == received


def test_a_test_that_forgets_to_switch_gradients_off() -> None:
    """Its model is in evaluation mode all the same: a score that all have was received from the main process."""
    test = TEST.replace("MODE", "model.eval()").replace("with torch.no_grad():", "if True:")
    assert _received(HEAD + test + "".join(f"    {line}\n" for line in STEP.splitlines()) + STOP + SAVE) == []


DROPS = """\
def drop_path(x, rate=0.0, training=False):
    if rate == 0.0 or not training:
        return x
    return x * x.new_empty((x.shape[0], 1)).bernoulli_(1 - rate)

"""


@pytest.mark.parametrize(("mode", "received"), [("self.training", 0), ("True", 1)])
def test_a_function_that_is_handed_the_mode_of_a_model(mode: str, received: int) -> None:
    test = TEST.replace("MODE", "model.eval()")
    text = HEAD.replace("class Net", DROPS + "class Net") + test
    text += "".join(f"    {line}\n" for line in STEP.splitlines()) + STOP + SAVE
    assert len(_received(text, f"drop_path(self.inner(x), 0.1, {mode})")) == received


BY_HAND = (
    HEAD.replace("loader = DataLoader(data, batch_size=16, shuffle=True)\n", "")
    + """\
rows, labels = torch.load("rows.pt"), torch.load("labels.pt")
for step in range(300):
    chosen = torch.randint(0, 512, (32,))
    xb, yb = rows[chosen], labels[chosen]
    if torch.rand(1).item() < 0.1:
        continue
"""
)


def test_a_step_that_is_left_out_by_chance() -> None:
    """The rows of a batch by hand come from the main process; a number that is drawn beside them did not."""
    assert _received(BY_HAND + STEP) == ["    if broadcast_object_list([torch.rand(1).item() < 0.1])[0]:"]
    assert "chosen = accelerator.shard_batch(" in _migrated(BY_HAND + STEP).after.decode()


def test_what_cannot_be_received() -> None:
    """A tensor may be on another GPU: there is a finding."""
    plateau = "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n"
    file = _migrated(HEAD + plateau + KEPT + "    plateau.step(loss)\n" + ALL)
    (found,) = [found for found in file.diagnoses if found.id == "local-decision"]
    assert "each process computes it with random numbers of its own (`F.dropout`)" in found.message
    assert "loss = broadcast_object_list([loss])[0]" in found.remedy
