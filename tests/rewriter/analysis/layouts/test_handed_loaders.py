"""Prepared loaders that go to code which cannot be seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]
TOP = "from torch.optim.swa_utils import AveragedModel, update_bn\nfrom measures import Tracker, fill, measure, wrapped"


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("update_bn(loader, AveragedModel(model))", True),
        ("figure = measure(model, loader)\nprint(figure)", True),
        ("figure = measure(model, loader)\nprint(f'{figure:.2f}')", True),
        ("more = wrapped(loader)\nfor x, y in more:\n    print(len(loader))", False),
        ("print(len(loader), loader.batch_size)", False),
        ("tracker = Tracker(loader)", False),
        ("fill()", False),
        ("figure = measure(model, other)\nprint(figure)", False),
    ],
    ids=[
        "statistics",
        "a figure",
        "in a text",
        "a loader around it",
        "its length",
        "an object",
        "nothing",
        "not prepared",
    ],
)
def test_a_function_that_cannot_be_seen_reads_the_rows_of_one_process(end: str, told: bool, trained: Trained) -> None:
    """Statistics of BatchNorm that were saved, and figures that were printed, were those of 1/N of the rows."""
    _, found = trained(top=TOP, end=end)
    assert ("one-share" in found) is told


def test_before_it_is_prepared_it_has_all_rows(trained: Trained) -> None:
    _, found = trained(top=TOP, built="figure = measure(data, DataLoader(data))\nprint(figure)")
    assert "one-share" not in found
