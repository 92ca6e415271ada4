"""Evaluation loops whose metric is gathered: what the script has counted before is counted anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]
EVALUATION = """\
with torch.no_grad():
    right, seen = 0, 0
    for x, y in test_loader:
        {counted}
        out = model(x)
        right += (out.argmax(1) == y).sum().item()
        seen += n
    print(right / seen)"""


@pytest.mark.parametrize(
    ("counted", "anew"),
    [
        ("n = y.shape[0]", "n = y.shape[0]"),
        ("n = y.size(0)", "n = y.size(0)"),
        ("n = len(y)", "n = len(y)"),
        ("n = x.size(0)", "n = len(out)"),
    ],
)
def test_rows_that_were_counted_before_the_forward_are_counted_anew(counted: str, anew: str, trained: Trained) -> None:
    """The number of rows of one process would divide what all of them have right."""
    text, findings = trained(epoch=EVALUATION.format(counted=counted))
    assert f"out, y = accelerator.gather_for_metrics((out, y))\n            {anew}\n" in text
    assert findings == []


@pytest.mark.parametrize("counted", ["n, _ = x.shape", "n = float(y.size(0))", "n, *_ = x.size()"])
def test_a_count_that_cannot_be_repeated_leaves_the_loop(counted: str, trained: Trained) -> None:
    text, findings = trained(epoch=EVALUATION.format(counted=counted))
    assert "gather" not in text and findings == ["prepare"]


def test_a_count_that_only_the_forward_reads_is_left(trained: Trained) -> None:
    counted = "m = x.size(0)\n        x = x.view(m, -1)\n        n = 1"
    text, _ = trained(epoch=EVALUATION.format(counted=counted))
    assert text.count("m = x.size(0)") == 1


def test_what_is_set_anew_after_the_forward_is_not_gathered(trained: Trained) -> None:
    """The images are not sent around for a variable that holds the answers by then."""
    evaluation = EVALUATION.format(counted="n = len(y)").replace("(out.argmax(1) == y)", "(x == y)")
    text, findings = trained(epoch=evaluation.replace("out = model(x)", "out = model(x)\n        x = out.argmax(1)"))
    assert "out, y = accelerator.gather_for_metrics((out, y))\n" in text
    assert findings == []


LOOKED_UP = """\
held = torch.utils.data.DataLoader(other, batch_size=32)
hits = 0
for words, names in held:
    labels = Table().find(names)
    out = model(words)
    best = out.argmax(1)
    {metric}
print(hits)"""
TABLE = """\
class Table:
    def find(self, names):
        return torch.LongTensor([self.numbers.index(name) for name in names])"""


@pytest.mark.hazard("U12")
@pytest.mark.parametrize(
    ("metric", "whole"),
    [("hits += best.eq(labels).sum().item()", True), ("hits += (best == 1).sum().item()", False)],
    ids=["beside gathered rows", "not read"],
)
def test_rows_that_nobody_knows_are_not_compared_with_gathered_ones(metric: str, whole: bool, trained: Trained) -> None:
    text, findings = trained(top=TABLE, end=LOOKED_UP.format(metric=metric))
    assert ("gather_for_metrics" not in text) is whole
    assert ("prepare" in findings) is whole


EPISODES = """\
episodes = torch.utils.data.DataLoader(other, {batches})
scores = []
for x, y in episodes:
    out = model(x)
    scores.append(torch.nn.functional.cross_entropy(out, y).item())
print(sum(scores) / len(scores))"""


@pytest.mark.parametrize(
    ("batches", "whole"),
    [("batch_sampler=Episodes(other)", True), ("1, False, None, Episodes(other)", True), ("batch_sampler=None", False)],
    ids=["by keyword", "by position", "none"],
)
def test_batches_that_a_sampler_makes_are_not_joined(batches: str, whole: bool, trained: Trained) -> None:
    """An episode is a whole: the rows of two of them are no larger episode."""
    top = "class Episodes:\n    def __iter__(self):\n        yield [0, 1]"
    text, findings = trained(top=top, end=EPISODES.format(batches=batches))
    assert ("gather_for_metrics" not in text) is whole
    assert ("prepare" in findings) is whole


FIGURE = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
total = hits = 0
for x, y in held:
    out = model(x)
    {counted}
print(total, hits)"""
PSNR = """\
def psnr(a, b):
    return 10 * torch.log10(1 / ((a - b) ** 2).mean())"""


@pytest.mark.parametrize(
    ("counted", "whole"),
    [
        ("total += psnr(out, y).item()", True),
        ("if out.argmax() == 0:\n        hits += 1", True),
        ("total += ((out - y) ** 2).mean(1).sqrt().sum().item()", False),
        ("hits += (out.argmax(1) == y).sum().item()", False),
    ],
    ids=["a logarithm of a mean", "the best row of the batch", "a root for each row", "the best column of each row"],
)
def test_a_figure_that_rows_make_together_is_not_that_of_joined_batches(
    counted: str, whole: bool, trained: Trained
) -> None:
    """A PSNR of four batches at once is not the mean of theirs, and one best row among four batches is one of four."""
    text, findings = trained(top=PSNR, end=FIGURE.format(counted=counted))
    assert ("gather_for_metrics" not in text) is whole
    assert ("prepare" in findings) is whole
