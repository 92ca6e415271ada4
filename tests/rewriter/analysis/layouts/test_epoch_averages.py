"""Totals of an epoch that become an average: what is known to be the loss is reduced, other figures are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


def test_the_loss_is_reduced(trained: Trained) -> None:
    text, findings = trained(step="value = loss.item()\ntotal += value", epoch="print(total / len(loader))")
    assert 'accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert findings == []


def test_another_figure_that_is_read_off_is_not_taken_for_the_loss(trained: Trained) -> None:
    step = "norm = x.norm()\nvalue = norm.item()\ntotal += value"
    text, findings = trained(step=step, epoch="print(total / len(loader))")
    assert "reduce(" not in text
    assert findings == ["metrics_gather"]


@pytest.mark.parametrize(
    ("read", "becomes"),
    [
        ("float(loss)", 'float(accelerator.reduce(loss.detach(), reduction="mean"))'),
        ("abs(loss)", "abs(loss)"),
    ],
)
def test_a_number_is_read_off_by_float_alone(read: str, becomes: str, trained: Trained) -> None:
    text, findings = trained(step=f"value = {read}\ntotal += value", epoch="print(total / len(loader))")
    assert f"value = {becomes}\n" in text
    assert findings == ([] if read != becomes else ["metrics_gather"])


VALUE_OF = """\
def value_of(x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()"""


@pytest.mark.parametrize("step", ["total += value_of(x, y)", "value = value_of(x, y)\ntotal += value"])
def test_a_loss_that_a_function_gives_is_reduced_where_it_returns(step: str, trained: Trained) -> None:
    text, findings = trained(top=VALUE_OF, step=step, epoch="print(total / len(loader))")
    assert '    return accelerator.reduce(loss.detach(), reduction="mean").item()\n' in text
    assert findings == []


def test_a_number_from_before_the_loop_is_no_loss(trained: Trained) -> None:
    text, findings = trained(built="weight = 0.5", step="total += weight", epoch="print(total / len(loader))")
    assert "reduce(" not in text and findings == []
