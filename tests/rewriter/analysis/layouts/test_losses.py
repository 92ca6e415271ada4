"""Numbers in a loss that each process would compute from its own shard."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]
LOSS = "out = model(x)\nreal, fake = out.abs().mean(), out.pow(2).mean()\nloss = real - k * fake"
REDUCED = 'accelerator.reduce(gap.detach(), reduction="mean").item()'


@pytest.mark.parametrize(
    ("moved", "becomes"),
    [
        ("k = k + 0.001 * gap.item()\nk = min(max(k, 0), 1)", f"k = k + 0.001 * {REDUCED}"),
        ("k += 0.001 * gap.item()", f"k += 0.001 * {REDUCED}"),
        ("k = gap.item()", f"k = {REDUCED}"),
    ],
)
def test_a_weight_that_each_step_moves_on(moved: str, becomes: str, trained: Trained) -> None:
    """The loss of the next step is weighted with it: all processes need the same."""
    text, findings = trained(built="k = 0.0", loss=LOSS, step=f"gap = torch.mean(0.5 * real - fake)\n{moved}")
    assert f"        {becomes}\n" in text and findings == []


def test_a_weight_that_is_no_mean_is_told(trained: Trained) -> None:
    text, findings = trained(built="k = 0.0", loss=LOSS, step="gap = out.std()\nk = k + 0.001 * gap.item()")
    assert "reduce(" not in text and findings == ["one-share"]


def test_a_schedule_is_equal_everywhere(trained: Trained) -> None:
    text, findings = trained(built="k = 0.0", loss=LOSS, step="k = min(1.0, k + 0.1)")
    assert "reduce(" not in text and findings == []


EITHER = """\
out = model(x)
if kind == "flat":
    loss = out.mean()
elif kind == "square":
    loss = out.pow(2).mean()"""


def test_a_figure_under_the_name_of_the_loss_is_no_weight(trained: Trained) -> None:
    """It is reported after the epoch. A number has no backward pass, so each step has bound the name anew."""
    epoch = "loss = total / steps if steps else None\nreport(loss)"
    step = "total += loss.item() * out.std().item()\nsteps += 1"
    _, findings = trained(top="kind = choose()\nsteps = 0", loss=EITHER, step=step, epoch=epoch)
    assert "one-share" not in findings


CLOSURE = """\
def closure():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return {returned}
lbfgs.step(closure)"""


@pytest.mark.parametrize("returned", ["loss", "loss * 2", "(lambda by=len(x): loss / by)()"])
def test_the_loss_that_lbfgs_asks_for(returned: str, trained: Trained) -> None:
    built = "lbfgs = torch.optim.LBFGS(model.parameters())"
    text, findings = trained(built=built, step=CLOSURE.format(returned=returned))
    if returned == "loss":
        assert '            return accelerator.reduce(loss.detach(), reduction="mean")\n' in text
    else:
        assert "accelerator" not in text
    assert ("local-decision" in findings) is (returned != "loss")


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_what_an_optimizer_returns_of_its_closure_is_joined_already(reduction: str, trained: Trained) -> None:
    """It was reduced once more where it was printed, collected or compared: a sum became N times as large."""
    step = CLOSURE.format(returned="loss").replace(
        "cross_entropy(model(x), y)", f"cross_entropy(model(x), y, reduction='{reduction}')"
    )
    step = step.replace(
        "lbfgs.step(closure)", "loss = optimizer.step(closure)\nprint(loss.item())\ntotal += loss.item()"
    )
    text, findings = trained(
        step=step, epoch="if total < 3:\n    torch.save(model.state_dict(), 'best.pt')\nprint(total)"
    )
    assert 'reduction="sum")' not in text.replace('backward(loss, reduction="sum")', "")
    assert "local-decision" not in findings
