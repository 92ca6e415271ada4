"""Faults that nobody would see for hours: each is named, and nothing else is."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Subset, TensorDataset

from torchlift.runtime.config.environment import read_environment
from torchlift.runtime.monitoring import checksums, judges
from torchlift.runtime.monitoring.rows import _whole
from torchlift.runtime.process.statements import JUDGES, Board, SharedVerdict

pytestmark = pytest.mark.xdist_group("monitor")  # one worker runs the job

NOT_PREPARED = {
    "a_model_that_is_never_prepared": ["SGD.step() at ", "`model` (a Sequential)", "unsynchronized(model)"],
    "weights_beside_the_model": ["Adam.step() at ", "`margins` (a Linear)", "unsynchronized(margins)"],
    "plain_tensors_of_a_prepared_optimizer": ["SGD.step() at ", "a tensor", "(step 1)"],
    "a_script_that_ends_at_once": ["`head` (a Sequential)", "(step 1)"],
}
DIFFERENT = {
    "weights_that_are_reset_by_random_numbers": [
        "after step 3:",
        "is `2.weight`",
        "random numbers drawn after prepare",
    ],
    "weights_that_differ_when_a_file_is_written": ["in get_state_dict, after ", "is `0.weight`"],
    "weights_of_one_rank": ["after step 1:", "the first parameter that differs is `2.weight`"],
    "gradients_of_one_rank": ["after step 2:", "the first parameter that differs is `0.bias`"],
    "buffers_that_do_not_become_equal": ["after backward pass 1", "the first buffer that differs is `1.statistics`"],
    "weights_that_differ_when_they_are_saved": [
        "in save_state, after ",
        "the first parameter that differs is `0.weight`",
    ],
}


@pytest.fixture(scope="module")
def seen(job, tmp_path_factory):
    (told, *_) = job("monitoring.py", 1, tmp_path_factory.mktemp("saved"))
    return told


@pytest.mark.parametrize("case", NOT_PREPARED)
def test_weights_that_no_prepared_model_holds(seen, case):
    for error, _ in seen[case]:
        assert error.startswith("torchlift.runtime.errors.NotPreparedError: "), error
        assert [part for part in [*NOT_PREPARED[case], "monitoring.py:"] if part not in error] == []


@pytest.mark.parametrize("case", DIFFERENT)
def test_weights_that_differ(seen, case):
    for error, _ in seen[case]:
        assert error.startswith("torchlift.runtime.errors.DivergenceError: "), error
        assert [part for part in [*DIFFERENT[case], "monitoring.py:", "Likely causes"] if part not in error] == []


def test_nobody_else_is_disturbed(seen):
    quiet = {case: told for case, told in seen.items() if case.startswith("quiet_")}
    assert len(quiet) == 17
    assert {case: told for case, told in quiet.items() if told != [["", []], ["", []]]} == {}


def test_the_loader_is_named_once(seen):
    (error, warned), other = seen["a_loader_that_was_not_prepared"]
    assert (error, other, len(warned)) == ("", ["", []], 1)
    assert warned[0].startswith("the loader `loader` (of TensorDataset), which was not prepared, at ")
    assert "the same rows on all 2 ranks" in warned[0]


SHUFFLED = "goes through all rows on each of the 2 ranks"
PREPARED = "the prepared loader `loader` (of Drawn) at "


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("a_loader_that_every_rank_shuffles", ["the loader `loader` (of TensorDataset)", SHUFFLED]),
        ("a_prepared_loader_whose_data_ignore_the_rank", [PREPARED, "the same rows", "generator of Python or NumPy"]),
        ("a_loader_in_a_progress_bar", ["the loader `training_rows`", "monitoring.py:"]),
        ("a_warning_of_the_last_step", ["the loader `training_rows`", "the same rows on all 2 ranks"]),
    ],
)
def test_loaders_that_give_all_ranks_all_rows(seen, case, words):
    (error, warned), other = seen[case]
    assert (error, other, len(warned)) == ("", ["", []], 1)
    assert [part for part in words if part not in warned[0]] == []


def test_who_has_gone_and_where_and_why(seen):
    (waiting, _), _ = seen["one_rank_raises_while_the_other_waits"]
    assert "rank 1 has ended" in waiting
    assert "gather of [2] at " in waiting
    assert "rank 1 failed with ValueError: no such file: labels.csv, at " in waiting
    _, (waiting, _) = seen["rank_0_raises_while_the_other_trains"]
    assert "rank 0 failed with KeyError: 'accuracy', at " in waiting


def test_replicas_of_shards_that_differ(job):
    assert job("sharded_replicas.py", 4, "alike") == [True] * 4
    for status, output in job("sharded_replicas.py", 4, "apart", fails=True):
        assert status == 1
        assert "DivergenceError: the shards of the prepared model (Net) differ between rank 1 and rank 3" in output
        assert "which have the same shard of each weight, after step 2" in output
        assert "the first parameter that differs is `body.weight` (1 of 4 parameters differ)" in output


SILENT = """
import torch
from torchlift.runtime import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(1, 1))
with torch.no_grad():
    model.weight.fill_(accelerator.process_index)
loose = torch.nn.Linear(1, 1)
loose(torch.full((1, 1), 1.0 + accelerator.process_index)).sum().backward()
torch.optim.SGD([*model.parameters(), *loose.parameters()], lr=0.1).step()
accelerator.end_training()
"""


def test_it_can_be_switched_off(job_text):
    assert read_environment({"TORCHLIFT_MONITOR": "0"}).monitor is False
    job_text(SILENT, 2, TORCHLIFT_MONITOR="0")
    assert all("Error: " in output for _, output in job_text(SILENT, 2, fails=True))


# ---------------------------------------------------------------- the parts


def test_checksums_are_of_values():
    weights = torch.randn(50, 3)
    same = checksums.sums([weights.clone(), weights.t().contiguous().t(), torch.tensor(weights.tolist())])
    assert len(set(same)) == 1
    odd = torch.arange(40.0)
    assert checksums.sums([odd[5:28], odd[5:28].clone()])[0] == checksums.sums([odd[5:28].clone()])[0]
    nudged = weights.clone()
    nudged[7, 1] = torch.nextafter(nudged[7, 1], torch.tensor(math.inf))
    assert checksums.sums([nudged]) != checksums.sums([weights])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.complex64])
def test_checksums_of_any_type(dtype):
    one, other = torch.ones(3, 2, dtype=dtype), torch.ones(3, 2, dtype=dtype)
    other[0, 0] = 2
    first, second = checksums.sums([one, other])
    assert first != second


def test_one_nan_is_like_another_and_like_no_number():
    nans = torch.ones(3, 2)
    nans.view(torch.int32)[0] = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32)
    others = torch.ones(3, 2)
    others[0] = -math.nan
    zeros = torch.ones(3, 2)
    zeros[0] = 0
    infinite = torch.ones(3, 2)
    infinite[0] = math.inf
    first, second, third, fourth = checksums.sums([nans, others, zeros, infinite])
    assert first == second
    assert len({first, third, fourth}) == 3


def test_gradients_of_the_same_rows():
    assert judges.alike([1.0, 0.5], [1.0 + 1e-7, 0.5])
    assert judges.alike([math.nan, math.inf, 1.0], [math.nan, math.inf, 1.0])
    assert not judges.alike([1.0, 0.5], [1.0, 0.51])
    assert not judges.alike([math.nan, 1.0], [1.0, 1.0])
    assert not judges.alike([1.0], [1.0, 1.0])


def rows(*batches, whole=0, prepared=False):
    told = {"loader": "a loader", "at": "", "prepared": prepared, "whole": whole}
    return {**told, "batches": [list(batch) for batch in batches]}


def test_rows_of_data_that_has_more_than_one():
    same = {0: rows((1, False), (2, False)), 1: rows((1, False), (2, False))}
    assert "the same rows on all 2 ranks" in (judges.same_rows(same, 2) or SharedVerdict("", "")).text
    assert judges.same_rows(same, 3) is None
    assert judges.same_rows({0: rows((1, True), (2, True)), 1: rows((3, True), (2, True))}, 2) is None
    one_value = {rank: rows((1, False), (1, False)) for rank in range(2)}
    assert judges.same_rows(one_value, 2) is None


def test_rows_that_all_ranks_shuffle_by_themselves():
    def said(mine, other):
        batches = {0: [(1, True), (2, True)], 1: [(3, True), (4, True)]}
        return {rank: rows(*batches[rank], whole=whole) for rank, whole in enumerate((mine, other))}

    assert "goes through all rows on each of the 2 ranks" in judges.same_rows(said(7, 7), 2).text
    assert judges.same_rows(said(7, 8), 2) is None
    assert judges.same_rows(said(0, 0), 2) is None


def pass_over(data, **options):
    return iter(DataLoader(data, **options))


def test_what_is_in_a_data_set_identifies_it():
    one, other = TensorDataset(torch.arange(6.0)), TensorDataset(torch.arange(6.0) + 1)
    assert _whole(pass_over(one, shuffle=True)) == _whole(pass_over(TensorDataset(torch.arange(6.0)), shuffle=True)) > 0
    assert _whole(pass_over(one, shuffle=True)) != _whole(pass_over(other, shuffle=True))
    assert _whole(pass_over(one)) == 0
    assert _whole(pass_over(one, sampler=RandomSampler(one, replacement=True))) == 0
    halves = [Subset(one, range(rank, 6, 2)) for rank in range(2)]
    assert len({_whole(pass_over(half, shuffle=True)) for half in halves}) == 2


class Store(dict):
    """What `Board` asks of the store of a process group."""

    def set(self, key, value):
        self[key] = value

    def add(self, key, number):
        self[key] = self.get(key, 0) + number
        return self[key]

    def check(self, keys):
        return all(key in self for key in keys)


def test_statements_are_compared_when_two_have_made_them(monkeypatch):
    monkeypatch.setitem(
        JUDGES, "test", lambda said, _: SharedVerdict("CollectiveError", str(said)) if said[0] == 2 else None
    )
    store, boards = Store(), [Board(rank, 3) for rank in range(3)]
    for board in boards[:2]:
        board.say("test", "one", 1)
        board.post(store)
    assert boards[0].compare(store) is None
    boards[0].say("test", "two", 2)
    boards[0].post(store)
    assert boards[0].compare(store) is None
    boards[2].say("test", "two", 3)
    boards[2].post(store)
    verdict = boards[0].compare(store)
    assert verdict is not None
    assert str(verdict.exception()) == "{0: 2, 2: 3}"
