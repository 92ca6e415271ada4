"""Loops in whose turns all processes train together, and how many turns they take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

STEPS = """\
for part in {source}:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def _told(trained: Trained, source: str, **parts: str) -> list[str]:
    return [one for one in trained(loss=STEPS.format(source=source), **parts)[1] if one == "local-decision"]


@pytest.mark.parametrize(
    "source",
    [
        "range(int(y.sum()))",
        "set(y.tolist())",
        "[row for row in y if row > 0]",
        "filter(lambda row: row > 0, y)",
        "enumerate(x[y > 0])",
        "range(len(y[y > 0]))",
    ],
)
def test_a_number_that_the_rows_of_one_process_decide(trained: Trained, source: str) -> None:
    assert _told(trained, source) == ["local-decision"]


@pytest.mark.parametrize(
    "source", ["range(3)", "(1.0, 0.5)", "range(x.size(1))", "x", "zip(x, y)", "range(len(x))", "x.split(4)"]
)
def test_a_number_that_is_the_same_everywhere(trained: Trained, source: str) -> None:
    """A prepared loader gives all processes as many rows."""
    assert _told(trained, source) == []


def test_what_is_not_seen_may_give_as_many(trained: Trained) -> None:
    text, findings = trained(top="from features import parts", loss=STEPS.format(source="parts(x)"))
    assert findings == ["local-decision"] and "accelerator.backward(loss)" in text


def test_batches_that_are_left_out(trained: Trained) -> None:
    left = {"filter(lambda batch: batch[1].sum() > 0, loader)": 1, "enumerate(loader)": 0}
    for source, found in left.items():
        batch = "n, (x, y)" if source.startswith("enumerate") else "x, y"
        assert trained(source=source, batch=batch)[1] == ["local-decision"] * found, source


@pytest.mark.parametrize(
    "source",
    [
        "itertools.takewhile(lambda batch: batch[1].sum() > 0, loader)",
        "itertools.dropwhile(lambda batch: batch[1].sum() > 0, loader)",
        "itertools.filterfalse(lambda batch: batch[1].sum() > 0, loader)",
        "itertools.compress(loader, chosen)",
    ],
)
def test_iterators_that_leave_batches_out(trained: Trained, source: str) -> None:
    assert trained(top="import itertools", source=source)[1] == ["local-decision"]


GENERATOR = """\
def chosen(batches):
    held = []
    for x, y in batches:
        held.append(x)
        if {test}:
            held.clear()
            yield x, y
"""


def test_a_generator_that_yields_some_batches(trained: Trained) -> None:
    for test, told in (("y.max() > 0", ["local-decision"]), ("len(held) == 2", [])):
        assert trained(built=GENERATOR.format(test=test), source="chosen(loader)")[1] == told, test


@pytest.mark.parametrize(("most", "found"), [("int(y.sum())", 1), ("3", 0), ("len(loader) // 2", 0)])
def test_a_loader_that_is_ended_by_a_number(trained: Trained, most: str, found: int) -> None:
    """Each process would take as many steps as its own rows say."""
    top = "from itertools import islice\nother = torch.utils.data.DataLoader(rows, batch_size=4)"
    for source in (f"islice(other, {most})", f"zip(range({most}), other)"):
        assert _told(trained, source, top=top) == ["local-decision"] * found, source
