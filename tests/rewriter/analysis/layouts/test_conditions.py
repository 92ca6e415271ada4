"""A flag, or a count, that is set under a condition of one process's own, and read where all must go on alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

MEAN = 'accelerator.reduce(loss.detach(), reduction="mean").item()'
FUNCTIONS = """\
bad, stop, rate = 0, False, 0.1

def good(loss):
    if loss > 0.1:
        return False
    return True
"""


@pytest.mark.parametrize(
    "step",
    [
        "if {loss} > 0.5:\n    stop = True\nif stop:\n    break",
        "if {loss} > 0.5:\n    bad += 1\nif bad > 5:\n    break",
        "if {loss} > 0.5:\n    rate = rate * 0.9\nfor group in optimizer.param_groups:\n    group['lr'] = rate",
        "if good({loss}):\n    break",
    ],
)
def test_the_condition_is_made_equal(trained: Trained, step: str) -> None:
    """One process would leave the loop alone, or go on with another rate."""
    text, findings = trained(built=FUNCTIONS, step=step.format(loss="loss.item()"))
    assert findings == []
    lines = [line.strip() for line in text.splitlines()]
    assert all(line in lines for line in step.format(loss=MEAN).replace("    ", "").splitlines())


def test_the_condition_is_no_mean(trained: Trained) -> None:
    """All are not alike if some row of one process is."""
    step = "if model(x).max() > 0.5:\n    stop = True\nif stop:\n    break"
    text, findings = trained(built=FUNCTIONS, step=step)
    assert findings == ["local-decision"] and "import Accelerator" not in text


def test_a_count_of_some_batches_is_one_of_each_process(trained: Trained) -> None:
    """The first process to have counted enough would end its training alone."""
    text, findings = trained(built=FUNCTIONS, step="if x.max() > 0:\n    bad += 1", epoch="if bad >= 9:\n    break")
    assert "local-decision" in findings and "import Accelerator" not in text


def test_what_is_read_by_nobody_together(trained: Trained) -> None:
    step = "if loss.item() > 0.5:\n    bad += 1\nif epoch > 3:\n    break"
    text, findings = trained(built=FUNCTIONS, step=step, epoch="print(bad)")
    assert "if loss.item() > 0.5:\n" in text and "local-decision" not in findings


def test_the_loss_of_the_epoch_is_equal(trained: Trained) -> None:
    step, epoch = (
        "total += loss.item()",
        "if total < best:\n    best = total\nelse:\n    bad += 1\nif bad > 5:\n    break",
    )
    text, findings = trained(built="best, bad = 1e9, 0", step=step, epoch=epoch)
    assert f"total += {MEAN}" in text and "if total < best:" in text and findings == ["mean-of-batches"] * 0


HOLDERS = """\
import pandas as pd

class Log:
    def __init__(self):
        self.last = None
    def show(self, row):
        self.last = row

class Meter:
    def __init__(self, *keys, log=None):
        self.totals = pd.DataFrame(index=keys, columns=["average"])
        self.log = log
    def result(self):
        return dict(self.totals.average)

names, log = ["acc"], Log()
meter = Meter("loss", *names, log=log)
bad = 0
"""


def test_what_is_given_beside_a_star_is_no_part_of_it(trained: Trained) -> None:
    """The log gets rows of one process; the figures, and their names, are the same everywhere."""
    epoch = "if meter.result()['loss'] > 3:\n    bad += 1\nif bad > 5:\n    break"
    assert trained(built=HOLDERS, step="log.show(x)", epoch=epoch)[1] == []
