"""Which values are numbers that can be compared, and what is found in what is logged or saved."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from torchlift.runtime.monitoring.sanitizer import rewriting, values
from torchlift.runtime.monitoring.sanitizer.events import EventLog
from torchlift.runtime.monitoring.sanitizer.rewriting import Site


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (2, 2),
        (0.5, 0.5),
        (True, True),
        (torch.tensor([[0.5]], requires_grad=True), 0.5),
        (torch.tensor(3), 3),
        (np.float32(0.5), 0.5),
        (np.array([2]), 2),
        (torch.ones(2), None),
        (np.ones(2), None),
        (torch.tensor(1j), None),
        (torch.ones((), device="meta"), None),
        ("0.5", None),
        (None, None),
        (torch.ones, None),
    ],
)
def test_numbers(value, number):
    found = values.number_of(value)
    assert (found, type(found)) == (number, type(number))


def test_a_tensor_without_a_value():
    seen = []

    def double(x):
        seen.append(values.number_of(x))
        return x * 2

    assert torch.func.vmap(double)(torch.ones(3)).tolist() == [2, 2, 2]
    assert seen == [None]


@pytest.fixture
def log(tmp_path):
    """A log, its values, and what it has recorded."""
    rewriting.SITES.append(Site(str(tmp_path / "a.py"), 3, 0, "x", False))
    log = EventLog(str(tmp_path), 0, 2, (str(tmp_path),), "launcher")

    def recorded(kind):
        events = [json.loads(line) for line in (tmp_path / "rank0.jsonl").read_text().splitlines()]
        return [event for event in events if event["e"] == kind]

    return log, values.Values(log), recorded


def test_what_is_saved_is_compared_entry_by_entry(log):
    _, kept, recorded = log
    number = len(rewriting.SITES) - 1
    tree = {"a": [1.5, {"weights": torch.ones(2)}], "name": "x", "array": np.ones(2), "time": 3.5, "own": object()}
    assert kept.saved(number, tree) is tree
    assert kept.saved(number, torch.nn.Linear(1, 1)) is not None
    kept.saved(number, "folder/model.pt")
    first, second = (event["v"] for event in recorded("saved"))
    assert set(first) == {"a/0", "a/1/weights", "name", "array"}
    assert set(second) == {"weight", "bias"}
    assert [event["path"] for event in recorded("saved to")] == ["folder/model.pt"]


def test_a_mapping_is_logged_number_by_number(log):
    _, kept, recorded = log
    kept.logged(
        len(rewriting.SITES) - 1, {"loss": torch.tensor(0.5), "text": "x", "eval": {"acc": 1}, "step_time": 2.0}
    )
    assert [event["v"] for event in recorded("logged")] == [{"loss": 0.5, "eval/acc": 1}]


def test_of_one_expression_there_are_so_many_values(log):
    own, kept, recorded = log
    number = len(rewriting.SITES) - 1
    for _ in range(150):  # rows of one batch
        kept.compared(number, "<", 1.0, 2)
    assert len(recorded("compared")) == 100
    for _ in range(2_000):
        own.moves += 1
        kept.compared(number, "<", 1.0, 2)
    assert len(recorded("compared")) == 2_000
    assert [place.rpartition("/")[2] for place in own.full] == ["a.py:3:0"]


def test_decisions_of_a_model_count_for_nothing(log):
    own, kept, recorded = log

    class Model(torch.nn.Module):
        def forward(self, x):
            return kept.compared(len(rewriting.SITES) - 1, "<", x.sum(), math.inf)

    model = Model()
    for _ in range(2_100):
        own.moves += 1
        assert model(torch.ones(1))
    assert (recorded("compared"), own.full) == ([], set())
