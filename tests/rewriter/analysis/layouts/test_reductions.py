"""What a loss is over the rows of a batch: read through what it is computed from, by itself as well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


def test_a_loss_that_becomes_its_own_root(trained: Trained) -> None:
    text, _ = trained(loss="loss = torch.nn.functional.cross_entropy(model(x), y)\nloss = loss.sqrt()")
    assert "accelerator.backward(loss)" in text


SCALED = """\
class Scaled(torch.nn.Module):
    def forward(self, loss, factor):
        return loss * factor
scaled = Scaled()"""
CROSS = "torch.nn.functional.cross_entropy(model(x), y, "


@pytest.mark.parametrize(
    "loss",
    [
        f'{CROSS}reduction="sum")',
        f'{CROSS}None, None, -100, None, "sum")',
        f"{CROSS}size_average=False)",
        f'scaled({CROSS}reduction="sum"), 2.0)',
    ],
    ids=["by keyword", "by position", "in the old words", "handed to a module"],
)
def test_a_sum_over_the_rows_is_told_to_the_backward_pass(loss: str, trained: Trained) -> None:
    text, findings = trained(top=SCALED, loss=f"loss = {loss}", step="total += loss.item()", epoch="print(total)")
    assert 'accelerator.backward(loss, reduction="sum")' in text
    assert 'total += accelerator.reduce(loss.detach(), reduction="sum").item()' in text
    assert findings == ["filled-batch"]


@pytest.mark.parametrize("asked", ["", "weight=None", '"mean"', 'reduction="mean"'])
def test_a_mean_over_the_rows_needs_no_word(asked: str, trained: Trained) -> None:
    text, _ = trained(loss=f"loss = torch.nn.MSELoss({asked})(model(x), y)" if "weight" not in asked else
                      f"loss = {CROSS}{asked})")  # fmt: skip
    assert "accelerator.backward(loss)\n" in text


COUNTED = """\
class Boxes(torch.nn.Module):
    def forward(self, out, y):
        found = y > 0
        per_box = found.sum(dim=1)
        place = torch.nn.functional.smooth_l1_loss(out, y, size_average=False)
        kind = torch.nn.functional.mse_loss(out, y, reduction="none")
        kind = torch.nn.functional.mse_loss(out, y, reduction="sum")
        count = per_box.data.sum()
        place /= count
        kind /= count
        return place, kind
boxes = Boxes()"""


@pytest.mark.parametrize(
    "loss",
    [
        "place, kind = boxes(model(x), y)\nloss = place + kind",
        "loss = torch.nn.functional.mse_loss(model(x), y, reduction='sum') / (y > 0).sum().clamp(min=1)",
        "loss = torch.nn.functional.mse_loss(model(x), y, reduction='sum')\nseen = (y > 0).sum().item()\n"
        "loss /= max(seen, 1)",
    ],
    ids=["in a criterion, in place", "at once", "by a variable"],
)
def test_a_sum_divided_by_what_is_counted_in_the_batch(loss: str, trained: Trained) -> None:
    """U5: a mean of one's own matches; scaled up as a sum the gradient would be N times too large."""
    text, findings = trained(top=COUNTED, loss=loss)
    assert "accelerator.backward(loss)\n" in text
    assert findings == ["weighted-mean"]


def test_a_sum_divided_by_a_constant_stays_one(trained: Trained) -> None:
    text, findings = trained(top="scale = 8", loss=f'loss = {CROSS}reduction="sum")\nloss /= scale')
    assert 'accelerator.backward(loss, reduction="sum")' in text
    assert findings == []


KEPT = """\
class Smooth(torch.nn.Module):
    def forward(self, out):
        self.cost = 0.1 * (out[:, 1:] - out[:, :-1]).square().REDUCED
        return out
class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.smooth = Smooth()
    def forward(self, out, y):
        self.smooth(out)
        return torch.nn.functional.mse_loss(out, y, reduction="ASKED") + self.smooth.cost
both = Both().to("cpu")"""


@pytest.mark.parametrize(
    ("reduced", "asked", "emitted"),
    [
        ("sum()", "mean", None),
        ("mean()", "sum", None),
        ("mean()", "mean", "accelerator.backward(loss)\n"),
        ("sum()", "sum", 'accelerator.backward(loss, reduction="sum")'),
    ],
)
def test_a_term_that_a_module_keeps_for_the_loss(
    reduced: str, asked: str, emitted: str | None, trained: Trained
) -> None:
    """A penalty in an attribute counts as one that is written out: a sum and a mean have no common factor."""
    text, findings = trained(
        top=KEPT.replace("REDUCED", reduced).replace("ASKED", asked), loss="loss = both(model(x), y)"
    )
    assert (findings == ["backward"]) is (emitted is None)
    assert emitted is None or emitted in text


def test_a_module_that_adds_to_what_it_keeps(trained: Trained) -> None:
    """`self.cost = self.cost + ...` is read once."""
    top = KEPT.replace("self.cost = 0.1", "self.cost = self.cost + 0.1").replace("REDUCED", "mean()")
    text, _ = trained(top=top.replace("ASKED", "mean"), loss="loss = both(model(x), y)")
    assert "accelerator.backward(loss)\n" in text


@pytest.mark.parametrize(
    ("entry", "reduced"),
    [("F.cross_entropy(out, y)", ""), ("F.cross_entropy(out, y, reduction='sum')", ', reduction="sum"')],
)
def test_a_loss_in_a_table_beside_a_count(entry: str, reduced: str, trained: Trained) -> None:
    """All entries of a table were one: a mean on one path, and a sum on another."""
    top = (
        "import torch.nn.functional as F\ndef step(x, y):\n    out = model(x)\n"
        f"    return {{'loss': {entry}, 'hits': (out.argmax(1) == y).sum().item(), 'n': len(y)}}\n"
    )
    text, findings = trained(top=top, loss="result = step(x, y)\nloss = result['loss']")
    assert f"accelerator.backward(loss{reduced})" in text and findings == []
