"""Scripts that name no device stay on the CPU where a GPU would meet what they keep there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


@pytest.mark.parametrize(
    "part",
    [
        {"step": "zeros = torch.zeros(len(x), 8)\nscores = model(zeros)"},
        {"top": "rows = read()\n", "epoch": "scores = model(rows)"},
        {"top": "rows = read()\n", "end": "scores = model(rows[:100])"},
        {"step": "x, y = x.cpu(), y.cpu()\nscores = model(x)"},
        {"step": "scores = model(x.cpu())"},
    ],
    ids=["made by hand", "a test set at once", "a part of it", "a batch that is moved there", "moved where it is fed"],
)
def test_it_stays_on_the_cpu(part: dict[str, str], trained: Trained) -> None:
    text, findings = trained(**part)
    assert "accelerator = Accelerator(cpu=True)\n" in text and "cpu-only" in findings


@pytest.mark.parametrize(
    "part",
    [
        {"step": "scores = model(x.flip(0))"},
        {"step": "history.append(loss.data.numpy())", "top": "history = []\n"},
        {"step": "scores = model(x)\nx = x.cpu()\nprint(x.sum())"},
        {"top": "other = torch.nn.Linear(8, 2)\n", "epoch": "other(read())"},
    ],
    ids=["a batch", "taken to the CPU", "a batch, moved after the forward pass", "a model that is not trained"],
)
def test_it_uses_the_gpu(part: dict[str, str], trained: Trained) -> None:
    text, findings = trained(**part)
    assert "accelerator = Accelerator()\n" in text and "cpu-only" not in findings


def test_a_loss_is_taken_to_the_cpu_where_numpy_reads_it(trained: Trained) -> None:
    text, _ = trained(step="print(loss.data.numpy())")
    assert "accelerator.print(loss.data.cpu().numpy())" in text


def test_what_stays_on_the_cpu_is_not_taken_there(trained: Trained) -> None:
    step = "zeros = torch.zeros(len(x), 8)\nscores = model(zeros)\nhistory.append(loss.data.numpy())"
    text, findings = trained(step=step, top="history = []\n")
    assert "cpu-only" in findings
    assert "history.append(loss.data.numpy())" in text
