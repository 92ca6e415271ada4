"""Functions that collate: whether they leave samples out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

COLLATE = """\
def collate(samples):
    {body}

loader = DataLoader(data, batch_size=32, collate_fn={given})
"""
STACKED = "return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])"
LOOP = """\
rows = []
    for x, y in samples:
        if {test}:
            {then}
        rows.append(x)
    return torch.stack(rows), torch.zeros(len(rows))"""


def _told(trained: Trained, body: str, given: str = "collate", **parts: str) -> list[str]:
    return trained(built=COLLATE.format(body=body, given=given), **parts)[1]


@pytest.mark.parametrize(
    "body",
    [
        f"samples = [sample for sample in samples if sample is not None]\n    {STACKED}",
        f"samples = list(filter(lambda sample: sample[0].sum() > 0, samples))\n    {STACKED}",
        LOOP.format(test="y < 0", then="continue"),
        f"return good(samples)\n\ndef good(samples):\n    samples = [s for s in samples if s]\n    {STACKED}",
    ],
    ids="a_comprehension filter continue in_a_function".split(),
)
def test_samples_that_are_left_out(trained: Trained, body: str) -> None:
    """Each process averages over those that it has kept."""
    assert _told(trained, body) == ["weighted-mean"]
    assert _told(trained, body, "lambda rows: collate(rows)") == ["weighted-mean"]


OBJECTS = """\
class Together:
    @staticmethod
    def plain(samples):
        samples = [sample for sample in samples if sample is not None]
        {stacked}

    def method(self, samples):
        samples = [sample for sample in samples if sample is not None]
        {stacked}

    def __call__(self, samples):
        samples = [sample for sample in samples if sample is not None]
        {stacked}


def wide(least, samples, most=9):
    samples = [sample for sample in samples if sample is not None]
    {stacked}


together = Together()
loader = DataLoader(data, batch_size=32, collate_fn={given})
"""


@pytest.mark.parametrize(
    "given",
    ["together", "together.method", "together.plain", "Together.plain", "partial(wide, 3)", "partial(wide, 3, most=5)"],
)
def test_samples_that_a_method_or_an_object_leaves_out(trained: Trained, given: str) -> None:
    """Functions of one parameter were read alone: nothing was said of these."""
    built = "from functools import partial\n" + OBJECTS.format(stacked=STACKED, given=given)
    assert trained(built=built)[1] == ["weighted-mean"]


@pytest.mark.parametrize("given", ["together", "together.method", "Together.plain", "partial(wide, 3)"])
def test_a_short_batch_of_stacked_rows_is_short_on_all_processes(trained: Trained, given: str) -> None:
    """It was refused: what a method collates was taken for another number of rows."""
    kept = OBJECTS.replace("samples = [sample for sample in samples if sample is not None]", "longest = 3")
    built = "from functools import partial\n" + kept.format(stacked=STACKED, given=given)
    loss = "if len(x) < 32:\n    continue\nloss = torch.nn.functional.cross_entropy(model(x), y)"
    assert trained(built=built, loss=loss)[1] == ["local-decision"]


@pytest.mark.parametrize(
    "body",
    [
        STACKED,
        LOOP.format(test="len(x) > 8", then="x = x[:8]"),
        f"longest = max(len(x) for x, _ in samples)\n    {STACKED}",
        f"names = [name for name in ('x', 'y') if name != 'y']\n    {STACKED}",
    ],
    ids="each_is_stacked some_are_cut the_longest another_list".split(),
)
def test_samples_that_are_all_kept(trained: Trained, body: str) -> None:
    assert "weighted-mean" not in _told(trained, body)


def test_a_sum_is_that_of_the_samples_that_all_have_kept(trained: Trained) -> None:
    loss = 'loss = torch.nn.functional.cross_entropy(model(x), y, reduction="sum")'
    body = f"samples = [sample for sample in samples if sample]\n    {STACKED}"
    assert "weighted-mean" not in _told(trained, body, loss=loss)
