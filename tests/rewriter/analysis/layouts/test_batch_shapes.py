"""Which tensor a count of rows is about, and which one has to be gathered for it."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_rows_are_counted_by_the_smaller_tensor(trained: Trained) -> None:
    """A count needs the rows and nothing of what is in them: labels are gathered, and no images."""
    step = "seen += x.size(0)\ntotal += loss.item() * x.size(0)"
    text, findings = trained(built="seen = 0", step=step, epoch="print(total / seen)")
    assert "y = accelerator.gather_for_metrics(y)" in text
    assert "seen += y.size(0)" in text
    assert 'total += accelerator.reduce(loss.detach(), reduction="mean").item() * y.size(0)' in text
    assert findings == ["filled-batch"]


def test_the_labels_are_those_of_the_model_s_own_output(trained: Trained) -> None:
    """Another criterion comes first: what it compares need not have a row for each of the inputs."""
    loss = (
        "extra = torch.nn.functional.mse_loss(prior, w)\nloss = torch.nn.functional.cross_entropy(model(x), y) + extra"
    )
    text, findings = trained(
        top="prior = torch.zeros(8)",
        built="seen = 0",
        batch="x, y, w",
        loss=loss,
        step="seen += x.size(0)\ntotal += loss.item() * x.size(0)",
        epoch="print(total / seen)",
    )
    assert "        y = accelerator.gather_for_metrics(y)\n        seen += y.size(0)\n" in text
    assert findings == ["filled-batch"]
