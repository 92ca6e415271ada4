"""The rows of a batch: what two halves hold together is what the whole one holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchlift.runtime.verify.hooks.rows import row_hashes

IMAGES = torch.arange(8 * 3 * 4 * 4).float().reshape(8, 3, 4, 4)
LABELS = torch.arange(8)


class Graph:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


def targets(rows: range) -> list[dict[str, torch.Tensor]]:
    return [{"boxes": torch.full((n + 1, 4), n), "labels": torch.full((n + 1,), n)} for n in rows]


def detection(rows: range) -> Any:
    return tuple(IMAGES[n] for n in rows), tuple(targets(rows))


def joined(rows: range) -> Any:
    """All words of a batch in one text, where each row begins, and the labels."""
    parts = [torch.arange(10 * n, 10 * n + 2 + n % 3) for n in rows]
    begins = torch.tensor([0, *(len(part) for part in parts[:-1])]).cumsum(0)
    return torch.cat(parts), begins, torch.tensor([7 - n for n in rows])


SHAPES: dict[str, Any] = {
    "tensors": lambda rows: [IMAGES[rows.start : rows.stop], LABELS[rows.start : rows.stop]],
    "a dict with names": lambda rows: {"x": IMAGES[rows.start : rows.stop], "name": [f"row {n}" for n in rows]},
    "pairs and labels": lambda rows: [
        [IMAGES[rows.start : rows.stop], IMAGES[rows.start : rows.stop] + 1],
        LABELS[rows.start : rows.stop],
    ],
    "pairs of pairs": lambda rows: [[IMAGES[rows.start : rows.stop]] * 2, [LABELS[rows.start : rows.stop]] * 2],
    "images and targets": detection,
    "a list of samples": lambda rows: [(IMAGES[n], n) for n in rows],
    "a list of samples of other lengths": lambda rows: [(torch.arange(n + 2), torch.tensor([n])) for n in rows],
    "sequences and their lengths": lambda rows: (tuple(torch.arange(n + 2) for n in rows), tuple(rows)),
    "a list of dicts": lambda rows: targets(rows),
    "two dicts": lambda rows: [{"x": IMAGES[rows.start : rows.stop]}, {"y": LABELS[rows.start : rows.stop]}],
    "pairs and names": lambda rows: [[IMAGES[rows.start : rows.stop]] * 2, [f"row {n}" for n in rows]],
    "one text of all rows": joined,
    "graphs": lambda rows: Graph(IMAGES[rows.start : rows.stop]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_two_halves_hold_the_rows_of_the_whole(shape: str) -> None:
    make = SHAPES[shape]
    whole = row_hashes(make(range(8)))
    assert len(whole) == len(set(whole)) == 8
    assert sorted(row_hashes(make(range(5))) + row_hashes(make(range(5, 8)))) == sorted(whole)
    assert row_hashes(make(range(8))) == whole


def test_objects_without_tensors_have_no_address() -> None:
    class Thing:
        pass

    assert row_hashes(Thing()) == row_hashes(Thing())


def test_a_pair_of_texts_is_one_row() -> None:
    def texts(rows: range) -> Any:
        return [tuple(f"question {n}" for n in rows), tuple(f"answer {n}" for n in rows)]

    assert row_hashes(texts(range(7))) + row_hashes(texts(range(7, 8))) == row_hashes(texts(range(8)))
    assert len(row_hashes(texts(range(1)))) == 1


@pytest.mark.parametrize("fill", [0, -100])
def test_a_row_is_the_same_in_a_batch_that_is_padded_to_a_longer_one(fill: int) -> None:
    """The other process's batch is as long as its own longest text: a right script was told that rows are missing."""
    text, sound = torch.tensor([[5, 0, 3, 7]]), torch.tensor([[[0.5, 0.0], [0.0, 2.0]]])
    longer = torch.full((1, 6), fill).index_copy(1, torch.arange(4), text)
    padded = torch.zeros(1, 3, 5).index_copy(1, torch.arange(2), torch.nn.functional.pad(sound, (0, 3)))
    valid, wider = torch.ones(1, 4, dtype=torch.bool), torch.arange(6)[None] < 4
    assert (
        row_hashes((text, sound, valid)) == row_hashes((longer, padded, wider)) == row_hashes((longer, padded, ~wider))
    )


def test_rows_of_one_shape_differ_wherever_they_do() -> None:
    rows = torch.tensor([[[1, 0], [2, 0]], [[1, 2], [0, 0]], [[1, 2], [0, 1]], [[0, 0], [0, 0]], [[0, 1], [2, 0]]])
    assert len(set(row_hashes((rows, torch.zeros(5))))) == 5
    assert len(set(row_hashes(torch.tensor([[True, False], [False, False], [False, True]])))) == 3


@pytest.mark.parametrize(("pad", "left"), [(0, False), (1, False), (-100, False), (0, True), (0.0, False)])
def test_what_fills_up_a_text_is_no_part_of_its_row(pad, left):
    """`--verify` called the samples broken where a shard has no long row to pad to."""
    texts = [[5, 7], [4, 1, 0, 9, 6], [8], [3, 1, 2]]

    def made(some):
        fill = [[pad] * (max(map(len, some)) - len(text)) for text in some]
        rows = [f + t if left else t + f for t, f in zip(some, fill, strict=True)]
        return torch.tensor(rows, dtype=torch.float if isinstance(pad, float) else torch.long), torch.ones(len(some))

    parts = (texts[:1], texts[1:3], texts[3:])
    assert row_hashes(made(texts)) == [one for some in parts for one in row_hashes(made(some))]
    assert len(set(row_hashes(made(texts)))) == len(texts)


def test_rows_of_zeros_and_ones_stay_apart():
    for rows in (torch.eye(4), torch.eye(4, dtype=torch.long), torch.tensor([[0.0, 1], [1, 0], [1, 1], [0, 0]])):
        assert len(set(row_hashes(rows))) == len(rows)
