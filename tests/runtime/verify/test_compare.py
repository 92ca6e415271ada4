"""The comparison, on traces made by hand: pure functions, no process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torchlift.runtime.verify.compare import printed, samples, saved, training, waits
from torchlift.runtime.verify.compare.everything import compare, unstable
from torchlift.runtime.verify.compare.tolerances import About, Unstable, apart, shown
from torchlift.runtime.verify.curve import curve, draw
from torchlift.runtime.verify.traces import FileSeen, RankTrace, RunTrace
from torchlift.runtime.verify.verdict import Outcome, Promise

Event = dict[str, Any]


def batch(*rows: str, number: int = 1, valid: int | None = None) -> Event:
    return {
        "e": "batch",
        "t": 0,
        "p": number,
        "l": 0,
        "rows": list(rows),
        "valid": len(rows) if valid is None else valid,
    }


def loss(value: float, number: int | None = 1, at: str = "train.py:5") -> Event:
    return {"e": "loss", "t": 0, "v": value, "p": number, "at": at}


def step(weight: float = 1.0, *, k: int = 1, lr: float = 0.1, gradient: float = 1.0, cls: str = "SGD") -> Event:
    sketch = [weight, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    fields = {"o": 0, "k": k, "lr": [lr], "gn": gradient, "w": abs(weight), "h": repr(weight), "s": sketch}
    return {
        "e": "step",
        "t": 0,
        "p": 1,
        **fields,
        "ps": [sketch],
        "pw": [abs(weight)],
        "cls": cls,
        "names": ["fc.weight"],
    }


def line(text: str, number: int | None = None, stream: int = 1) -> Event:
    return {"e": "line", "t": 0, "s": stream, "x": text, "p": number}


def end(draws: int = 0, **held: int) -> Event:
    return {"e": "end", "t": 0, "code": 0, "held": held, "lr": [[0.1]], "draws": draws}


def run(*ranks: list[Event], files: dict[str, FileSeen] | None = None, **held: int) -> RunTrace:
    processes = [RankTrace(number, [*events, end(**held)], 0) for number, events in enumerate(ranks)]
    return RunTrace("run", processes, files=files or {})


def about(original: RunTrace, migrated: RunTrace, **more: Any) -> About:
    return About(original=original, migrated=migrated, **more)


TRAINED = [batch("a", "b"), loss(2.0), {"e": "backward", "t": 0}, step(1.0)]


def test_equal_runs_hold_everything_that_can_be_tested() -> None:
    found = compare(about(run(TRAINED), run(TRAINED)))
    assert {p.outcome for p in found} <= {Outcome.HELD, Outcome.UNTESTABLE}
    assert [p.id for p in found if p.outcome is Outcome.UNTESTABLE] == ["checkpoints"]


def test_on_one_process_the_last_bit_counts() -> None:
    other = run([batch("a", "b"), loss(2.0000000000000004), step(1.0000000000000002)])
    one = about(run(TRAINED), other)
    assert training.losses(one).outcome is Outcome.BROKEN
    assert training.weights(one).outcome is Outcome.BROKEN


@pytest.mark.parametrize(
    ("cls", "more", "apart_by", "outcome"),
    [
        ("SGD", {}, 5e-6, Outcome.HELD),
        ("SGD", {}, 5e-5, Outcome.BROKEN),
        ("AdamW", {}, 5e-4, Outcome.HELD),
        ("Adadelta", {}, 5e-4, Outcome.HELD),
        ("AdamW", {}, 5e-3, Outcome.BROKEN),
        ("AdamW", {"double": True}, 5e-9, Outcome.BROKEN),
        ("AdamW", {"double": True}, 5e-10, Outcome.HELD),
    ],
)
def test_the_tolerance_knows_the_optimizer(cls: str, more: dict[str, Any], apart_by: float, outcome: Outcome) -> None:
    migrated = [batch("a"), loss(2.0), step(1.0 + apart_by, cls=cls)]
    two = about(run([batch("a"), loss(2.0), step(1.0, cls=cls)]), run(migrated, migrated), **more)
    assert training.weights(two).outcome is outcome


def test_mixed_precision_is_compared_to_a_few_digits() -> None:
    two = about(run(TRAINED, **{"mixed precision": 1}), run(TRAINED, TRAINED))
    assert two.tolerance == 5e-2


def test_the_loss_of_several_processes_is_their_mean() -> None:
    ranks = [batch("a"), loss(1.0), step()], [batch("b"), loss(3.0), step()]
    assert training.losses(about(run(TRAINED), run(*ranks))).outcome is Outcome.HELD


@pytest.mark.parametrize(("factor", "words"), [(0.25, "1/4 of it"), (2.0, "2 times it")])
def test_a_factor_is_named(factor: float, words: str) -> None:
    other = [batch("a", "b"), loss(2.0 * factor), step()]
    assert words in training.losses(about(run(TRAINED), run(other))).detail


def test_the_first_step_and_the_first_weight_are_named() -> None:
    first = [batch("a"), loss(1.0), step(1.0), batch("b"), loss(1.0), step(2.0, k=2)]
    other = [batch("a"), loss(1.0), step(1.0), batch("b"), loss(1.0), step(3.0, k=2)]
    promise = training.weights(about(run(first), run(other)))
    assert (promise.step, promise.figure) == (2, "fc.weight")


def test_ranks_that_differ_are_named() -> None:
    promise = training.ranks(about(run(TRAINED), run(TRAINED, [batch("a"), loss(1.0), step(1.5, gradient=2.0)])))
    assert promise.detail == "fc.weight differs between process 1 and process 0: its gradients are not averaged"


def test_weights_of_one_process_that_are_no_fault_of_its_gradients() -> None:
    begun = [{**step(), "first": step(weight)} for weight in (1.0, 1.5)]
    apart = training.ranks(about(run(TRAINED), run(*([batch("a"), loss(1.0), one] for one in begun))))
    assert apart.detail == "fc.weight differs between process 1 and process 0 before the first step"
    changed = training.ranks(about(run(TRAINED), run(TRAINED, [batch("a"), loss(1.0), step(1.5)])))
    assert changed.detail == "fc.weight differs between process 1 and process 0, though their gradients are equal"


def test_first_weights_are_compared_with_the_originals() -> None:
    first, other = ([loss(1.0), {**step(), "first": step(weight)}] for weight in (1.0, 1.5))
    promise = training.weights(about(run(first), run(other)))
    assert (promise.outcome, promise.step, promise.figure) == (Outcome.BROKEN, 1, "fc.weight")
    assert promise.detail.startswith("fc.weight differs before the first step; all weights are apart by ")
    assert training.weights(about(run(first), run(first))).outcome is Outcome.HELD


def test_the_rates_of_all_processes_are_compared() -> None:
    promise = training.rates(about(run(TRAINED), run(TRAINED, [batch("a"), loss(1.0), step(lr=0.2)])))
    assert promise.detail == "learning rate 0.2 on process 1, the original's is 0.1"


def test_a_step_too_many_is_found() -> None:
    promise = training.steps(about(run(TRAINED), run([*TRAINED, step(k=2)])))
    assert promise.outcome is Outcome.BROKEN
    assert promise.step == 2


def test_rates_are_compared_at_the_end_too() -> None:
    other = run(TRAINED)
    other.main.events[-1]["lr"] = [[0.05]]
    assert training.rates(about(run(TRAINED), other)).detail == "learning rate 0.05, the original's is 0.1"


def test_duplicates_with_weight_0_are_no_samples() -> None:
    ranks = [batch("a"), loss(1.0), step()], [batch("a", valid=0), loss(0.0), step()]
    assert samples.samples(about(run([batch("a"), loss(1.0), step()]), run(*ranks))).outcome is Outcome.HELD


def test_a_step_without_a_row_of_its_own_is_a_step() -> None:
    """The rows of the next step belong to the next step."""
    short = [batch("a", valid=0), loss(0.0), step(), batch("c"), loss(1.0), step(k=2)]
    ranks = [batch("a"), loss(1.0), step(), batch("b"), loss(1.0), step(k=2)], short
    wanted = [batch("a"), loss(1.0), step(), batch("b", "c"), loss(1.0), step(k=2)]
    assert samples.samples(about(run(wanted), run(*ranks))).outcome is Outcome.HELD
    without = [batch("a"), loss(1.0), step(), batch("b"), loss(1.0), step(k=2)]
    assert samples.samples(about(run(without), run(*ranks))).step == 2


def test_batches_in_which_no_rows_are_seen_are_not_compared() -> None:
    bare = run([batch(), loss(1.0), step()])
    assert samples.samples(about(bare, bare)).outcome is Outcome.UNTESTABLE


def test_evaluation_batches_are_no_training_samples() -> None:
    evaluated = [*TRAINED, batch("x", "y", number=2), batch("c", number=3), loss(1.0, 3), step(k=2)]
    assert [sum(rows.values()) for rows in samples.by_step(run(evaluated).main)] == [2, 1]


_OTHER = "the rows of this loop are not the original's (a sampler, `drop_last`, a loop that ends early)"


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([["c", "d"]], ""),
        ([["c"], ["d"]], ""),
        ([["c", "d"], ["c", "d"]], ""),
        ([["c"]], f"{_OTHER}: it reads 1 here, and the original's 2"),
        ([["c"], []], f"{_OTHER}: it reads 1 here, and the original's 2"),
        ([["c", "x"]], _OTHER),
    ],
)
def test_the_rows_of_an_evaluation(ranks: list[list[str]], words: str) -> None:
    def evaluated(*rows: str) -> list[Event]:
        return [*TRAINED, {**batch(*rows, number=2), "at": "train.py:9"}]

    found = samples.evaluated(about(run(evaluated("c", "d")), run(*(evaluated(*rows) for rows in ranks))))
    assert found == (("train.py:9", words) if words else None)


def test_a_sample_read_twice_is_found() -> None:
    ranks = [batch("a"), loss(1.0), step()], [batch("a"), loss(1.0), step()]
    promise = samples.samples(about(run(TRAINED), run(*ranks)))
    assert "1 of its rows are missing, 1 are read in addition" in promise.detail


@pytest.mark.parametrize(
    ("original", "migrated", "training_line", "outcome"),
    [
        ("loss 0.50000", "loss 0.50001", False, Outcome.HELD),
        ("loss 0.50000", "loss 0.50100", False, Outcome.BROKEN),
        ("loss 0.50000", "loss 0.61234", True, Outcome.HELD),
        ("[640/1500] loss 0.5", "[320/1500] loss 0.7", True, Outcome.HELD),
        ("[640/1500] loss 0.5", "[320/750] loss 0.7", True, Outcome.HELD),
        ("step 12 loss 0.5", "step 13 loss 0.5", True, Outcome.BROKEN),
        ("right 97 of 100", "right 98 of 100", False, Outcome.BROKEN),
        ("loss nan", "loss nan", False, Outcome.HELD),
        ("loss 1.0", "loss nan", False, Outcome.BROKEN),
        ("conv2d 1e-05", "conv2d 1e-05", False, Outcome.HELD),
        ("loss 0.5 in 32.19ms", "loss 0.5 in 38.62ms", False, Outcome.HELD),
        ("done in 0m 4s", "done in 0m 5s", False, Outcome.HELD),
        ("12.5it/s, 3 seconds", "9.75it/s, 4 seconds", False, Outcome.HELD),
        ("12.5s, accuracy 0.71", "13.5s, accuracy 0.74", False, Outcome.BROKEN),
        ("3 samples", "4 samples", False, Outcome.BROKEN),
    ],
)
def test_printed_numbers(original: str, migrated: str, training_line: bool, outcome: Outcome) -> None:
    number = 1 if training_line else None
    first = run([*TRAINED, line(original, number)])
    two = about(first, run([*TRAINED, line(migrated, number)], TRAINED))
    assert printed.numbers(two).outcome is outcome
    assert printed.lines(two).outcome is Outcome.HELD


def test_on_one_process_printed_numbers_are_equal() -> None:
    one = about(run([*TRAINED, line("loss 0.5", 1)]), run([*TRAINED, line("loss 0.6", 1)]))
    assert printed.numbers(one).detail == "0.6 in 'loss 0.6', the original prints 0.5"


@pytest.mark.parametrize("stream", [1, 2])
def test_a_line_of_another_process_is_found(stream: int) -> None:
    ranks = [*TRAINED, line("epoch 1", None, stream)], [*TRAINED, line("epoch 1", None, stream)]
    promise = printed.lines(about(run(ranks[0]), run(*ranks)))
    assert promise.detail == "process 1 also prints it: 'epoch 1'"


def test_warnings_of_another_process_are_its_own() -> None:
    ranks = [*TRAINED], [*TRAINED, line("[W] gloo is slow", None, 2)]
    assert printed.lines(about(run(TRAINED), run(*ranks))).outcome is Outcome.HELD


def cell_line(text: str, cell: int) -> Event:
    return {**line(text), "at": f"train.ipynb:cell {cell}, line 1"}


def test_cells_that_stay_in_a_notebook_are_shown_first() -> None:
    """What is launched is one function, and its cells come after those between them."""
    wanted = [cell_line("device 0", 1), cell_line("rows 40", 2), cell_line("loss 0.5", 3), cell_line("loss 0.25", 3)]
    found = [wanted[1], cell_line("device 0", 3), *wanted[2:]]
    two = about(run([*TRAINED, *wanted]), run([*TRAINED, *found], TRAINED))
    assert printed.lines(two).outcome is printed.numbers(two).outcome is Outcome.HELD
    for other in ([], [cell_line("else", 3)]):
        two = about(run([*TRAINED, *wanted]), run([*TRAINED, *found[:1], *other, *found[2:]], TRAINED))
        assert printed.lines(two).outcome is Outcome.BROKEN
    two = about(run([*TRAINED, *wanted]), run([*TRAINED, *found[:3], cell_line("loss 0.5", 3)], TRAINED))
    assert printed.numbers(two).outcome is Outcome.BROKEN


def test_a_line_that_is_missing_is_found() -> None:
    promise = printed.lines(about(run([*TRAINED, line("a"), line("b")]), run([*TRAINED, line("a")])))
    assert promise.detail == "1 lines, the original prints 2; the first without a partner is 'b'"


def write(path: str, event: str = "write") -> Event:
    return {"e": event, "t": 0, "f": path}


def text(contents: str) -> FileSeen:
    return FileSeen(len(contents), contents, contents)


def test_a_file_that_two_processes_write_is_found() -> None:
    files = {"m.pt": FileSeen(1, "a", None)}
    ranks = [*TRAINED, write("m.pt")], [*TRAINED, write("m.pt")]
    promise = saved.files(about(run([*TRAINED, write("m.pt")], files=files), run(*ranks, files=files)))
    assert promise.detail == "m.pt is written by processes 0, 1"


def test_a_rename_is_a_write() -> None:
    files = {"m.pt": FileSeen(1, "a", None)}
    rename = {"e": "rename", "t": 0, "f": ".m.tmp", "to": "m.pt"}
    ranks = [*TRAINED, rename], [*TRAINED, rename]
    assert "processes 0, 1" in saved.files(about(run(TRAINED, files=files), run(*ranks, files=files))).detail


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, "log.json is not written"),
        ({"log.json": text("loss 0.5\n"), "b.txt": text("")}, "b.txt is written, which the original does not do"),
        ({"log.json": text("loss 0.7\n")}, "log.json: line 1 is 'loss 0.7'"),
        ({"log.json": text("loss 0.5\nmore\n")}, "log.json: 2 lines"),
    ],
)
def test_files_that_differ(other: dict[str, FileSeen], words: str) -> None:
    promise = saved.files(about(run(TRAINED, files={"log.json": text("loss 0.5\n")}), run(TRAINED, files=other)))
    assert words in promise.detail


def arrays(**held: Any) -> FileSeen:
    return FileSeen(8, repr(held), None, held)


FLOATS = np.linspace(1.0, 2.0, 8)


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        ("p.npz", arrays(x=FLOATS[:4]), "p.npz: x: shape [4], the original's is [8]"),
        ("p.npz", arrays(y=FLOATS), "p.npz: it holds y, the original's x"),
        ("p.npz", arrays(x=FLOATS + 1e-3), "values are apart by 5.0e-04 of the largest"),
        ("p.pkl", FileSeen(400, "b", None), "p.pkl: 400 bytes, the original's has 8"),
    ],
)
def test_saved_arrays_and_objects_that_differ(name: str, other: FileSeen, words: str) -> None:
    first = arrays(x=FLOATS) if name == "p.npz" else FileSeen(8, "a", None)
    two = about(run(TRAINED, files={name: first}), run(TRAINED, TRAINED, files={name: other}))
    assert words in saved.files(two).detail


def test_arrays_agree_to_rounding_and_predictions_but_for_a_few() -> None:
    many = np.zeros(1000, dtype=np.int64)
    few = many.copy()
    few[:4] = 1
    for first, second in ((FLOATS, FLOATS * (1 + 1e-6)), (many, few)):
        files = [{"p.npz": arrays(x=one)} for one in (first, second)]
        assert saved.files(about(run([], files=files[0]), run([], [], files=files[1]))).outcome is Outcome.HELD
    assert "other values" in saved.files(about(run([], files=files[0]), run([], files=files[1]))).detail


def test_one_process_writes_the_same_bytes() -> None:
    one, other = ({"a.png": FileSeen(8, name, None)} for name in "ab")
    assert "bytes are not" in saved.files(about(run([], files=one), run([], files=other))).detail
    assert saved.files(about(run([], files=one), run([], [], files=other))).outcome is Outcome.HELD


def events(*names: str) -> dict[str, FileSeen]:
    return {name: FileSeen(8, name, None) for name in names}


def test_names_that_vary_by_themselves_are_counted() -> None:
    first, again = events("runs/a1/x", "runs/a1/y", "log.csv"), events("runs/b2/x", "runs/b2/y", "log.csv")
    shaky = unstable(run([], files=first), run([], files=again))
    found = saved.files(
        about(run([], files=first), run([], files=events("runs/c3/x", "runs/c3/y", "log.csv")), unstable=shaky)
    )
    assert found.outcome is Outcome.HELD, found
    twice = events("runs/c3/x", "runs/c3/y", "runs/d4/x", "runs/d4/y", "log.csv")
    found = saved.files(about(run([], files=first), run([], [], files=twice), unstable=shaky))
    assert found.detail == "4 files in runs, the original writes 2"
    gone = saved.files(about(run([], files=first), run([], files=events("runs/c3/x", "runs/c3/y")), unstable=shaky))
    assert gone.detail == "log.csv is not written"


def test_arrays_that_vary_by_themselves() -> None:
    first, again = ({"p.npz": arrays(x=FLOATS + n)} for n in (0, 1))
    shaky = unstable(run([], files=first), run([], files=again))
    assert shaky.files == {"p.npz"}
    assert saved.files(about(run([], files=first), run([], files=again), unstable=shaky)).outcome is Outcome.HELD


def test_varying_names_beside_the_script() -> None:
    first, again = events("run-1699999.txt"), events("run-1700001.txt")
    shaky = unstable(run([], files=first), run([], files=again))
    assert saved.files(about(run([], files=first), run([], files=events("run-17002.txt")), unstable=shaky)).detail
    added = saved.files(about(run([], files=first), run([], files=events("run-17002.txt", "b.txt")), unstable=shaky))
    assert added.detail == "b.txt is written, which the original does not do"


def test_logged_lines_are_compared_without_their_time() -> None:
    first, second = line("INFO loss 0.5", stream=3), line("INFO loss 0.7", stream=3)
    found = printed.numbers(about(run([*TRAINED, first]), run([*TRAINED, second])))
    assert found.detail == "0.7 in 'INFO loss 0.7', the original prints 0.5"
    found = printed.lines(about(run([*TRAINED, first]), run(TRAINED)))
    assert found.detail.startswith("0 logged lines, the original prints 1")
    found = printed.lines(about(run([*TRAINED, first]), run([*TRAINED, first], [*TRAINED, first])))
    assert found.detail == "process 1 also prints it: 'INFO loss 0.5'"


def test_a_count_of_a_share_is_none_above_the_originals() -> None:
    original, share = run([*TRAINED, line("right 9", 1)]), [*TRAINED, line("right 2", 1)]
    assert printed.numbers(about(original, run(share, share))).outcome is Outcome.HELD
    share = [*TRAINED, line("right 30", 1)]
    assert printed.numbers(about(original, run(share, share))).outcome is Outcome.BROKEN


def test_the_loss_of_the_step_before_is_a_share_wherever_it_is_printed() -> None:
    original = run([*TRAINED, line("epoch 1 loss 2.00 accuracy 0.75")])
    share = [batch("a"), loss(1.5), step(), line("epoch 1 loss 1.50 accuracy 0.75")]
    found = printed.numbers(about(original, run(share, share)))
    assert "1 number not compared: the loss, or another figure, of one process's own rows" in found.detail
    worse = [*share[:-1], line("epoch 1 loss 1.50 accuracy 0.80")]
    found = printed.numbers(about(original, run(worse, worse)))
    assert found.detail.startswith("0.80 in")


def save(*items: list[Any], path: str = "m.pt") -> Event:
    return {"e": "save", "t": 0, "f": path, "items": list(items)}


WEIGHT = ["fc.weight", "torch.Tensor", [2], "torch.float32", 1.0, "aa"]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (["module.fc.weight", *WEIGHT[1:]], "a wrapper was saved ('module' begins every key)"),
        (["fc.weight", "torch.Tensor", [3], *WEIGHT[3:]], "fc.weight is torch.float32 [3]"),
        (["fc.weight", "torch.Tensor", [2], "torch.float64", 1.0, "aa"], "fc.weight is torch.float64 [2]"),
        ([*WEIGHT[:5], "bb"], "fc.weight differs"),
        (["fc.weight", "builtins.int", 3], "fc.weight is of another kind"),
    ],
)
def test_checkpoints_that_differ(item: list[Any], words: str) -> None:
    promise = saved.checkpoints(about(run([*TRAINED, save(WEIGHT)]), run([*TRAINED, save(item)])))
    assert promise.outcome is Outcome.BROKEN
    assert words in promise.detail


def test_a_checkpoint_that_is_renamed_is_found_under_its_name() -> None:
    rename = {"e": "rename", "t": 0, "f": ".m.tmp", "to": "m.pt"}
    other = run([*TRAINED, save(WEIGHT, path=".m.tmp"), rename])
    assert saved.checkpoints(about(run([*TRAINED, save(WEIGHT)]), other)).outcome is Outcome.HELD


def test_what_is_saved_in_memory_is_compared() -> None:
    first, second = ({**save(WEIGHT), "f": None} for _ in range(2))
    promise = saved.checkpoints(about(run([*TRAINED, first]), run([*TRAINED, second])))
    assert promise.outcome is Outcome.HELD and "(memory)" in promise.detail


def test_a_folder_that_the_system_names_is_one_and_the_same() -> None:
    first, second = save(WEIGHT, path="../tmp/tmpab12cd_f/best.pt"), save(WEIGHT, path="../tmp/tmpzz98xy_0/best.pt")
    assert saved.checkpoints(about(run([*TRAINED, first]), run([*TRAINED, second]))).outcome is Outcome.HELD
    other = save(WEIGHT, path="../tmp/tmpzz98xy_0/last.pt")
    assert saved.checkpoints(about(run([*TRAINED, first]), run([*TRAINED, other]))).outcome is Outcome.BROKEN


def coll(op: str, at: str) -> Event:
    return {"e": "coll", "t": 0, "op": op, "at": at}


def test_a_hang_names_rank_collective_and_line() -> None:
    first = RankTrace(
        0, [*TRAINED, coll("all_gather", "train.py:9")], -9, stack=["x.py:1 in wait", "@train.py:9 in test"]
    )
    second = RankTrace(1, [*TRAINED, loss(1.0, at="train.py:5")], -9, stack=["@train.py:5 in train"])
    promise = waits.waits(about(run(TRAINED), RunTrace("hang", [first, second], ended="wait")))
    assert promise.outcome is Outcome.BROKEN
    assert promise.detail == (
        "process 0 waits in all_gather at train.py:9; "
        "process 1 waits in the exchange of gradients (backward) at train.py:5. Collective mismatch at call 2: "
        "process 0: all_gather at train.py:9, process 1: the exchange of gradients (backward) at train.py:5"
    )


def test_a_lost_connection_is_a_hang_and_an_own_error_is_not() -> None:
    inside = [*TRAINED, coll("all_reduce", "train.py:9")]
    error = {"e": "error", "t": 0, "kind": "RuntimeError", "message": "Connection closed by peer", "at": "train.py:9"}
    left = RunTrace("run", [RankTrace(0, [*inside, error], 1), RankTrace(1, [*TRAINED, end()], 0)])
    assert "process 1 has reached the end of the script" in waits.waits(about(run(TRAINED), left)).detail
    own = {**error, "kind": "ValueError", "message": "my own"}
    fails = RunTrace("run", [RankTrace(0, [*TRAINED, own], 1), RankTrace(1, [*inside, error], 1)])
    assert waits.waits(about(run(TRAINED), fails)).outcome is Outcome.HELD
    assert waits.runs(about(run(TRAINED), fails)).detail == "process 0 ends with ValueError at train.py:9: my own"


def test_a_run_that_fails_holds_nothing_beyond_the_steps_that_it_has_made() -> None:
    error = {"e": "error", "t": 0, "kind": "ValueError", "message": "my own", "at": "train.py:9"}

    def found(*events: Event) -> dict[str, Promise]:
        fails = RunTrace("run", [RankTrace(0, [*events, error], 1)])
        return {p.id: p for p in compare(about(run([*TRAINED, *TRAINED]), fails))}

    early = found(batch("a", "b"))
    assert early["weights"].outcome is Outcome.BROKEN
    for id in ("losses", "gradients", "rates", "samples"):
        assert early[id].outcome is Outcome.UNTESTABLE, id
        assert early[id].detail == "the migrated run ended before its first step"
    later = found(*TRAINED)
    assert later["weights"].outcome is Outcome.HELD and later["samples"].outcome is Outcome.HELD
    assert later["samples"].detail == "2 rows; up to step 1, where the run ended"
    assert later["weights"].detail.endswith("up to step 1, where the run ended")


@pytest.mark.parametrize(
    ("held", "more", "why"),
    [
        ({"rows of a batch mixed by randperm": 1}, {}, "the script mixes the rows of a batch (randperm)"),
        ({}, {"kept": False}, "the runtime cannot keep the global batch here"),
        ({"BatchNorm without running statistics": 1}, {}, "normalises over the rows of one process"),
        ({}, {"said": "train.py:3: pairs are formed within the batch"}, "pairs are formed within the batch"),
    ],
)
def test_what_cannot_be_compared_is_said(held: dict[str, int], more: dict[str, Any], why: str) -> None:
    other = [batch("a"), loss(9.0), step(9.0)]
    found = {p.id: p for p in compare(about(run(TRAINED, **held), run(other, other), **more))}
    assert found["weights"].outcome is Outcome.UNTESTABLE
    assert why in found["weights"].detail


def test_batches_made_by_hand_are_compared_where_the_runtime_cuts_them() -> None:
    other = [loss(9.0, None), step(9.0)]
    two = about(run([loss(2.0, None), step(1.0)]), run(other, other))
    found = {p.id: p for p in compare(two)}
    assert found["weights"].outcome is Outcome.UNTESTABLE and "made by hand" in found["weights"].detail
    for rank in two.migrated.ranks:
        rank.events[-1]["cut"] = True
    assert {p.id: p for p in compare(two)}["weights"].outcome is Outcome.BROKEN


def test_random_numbers_for_each_row() -> None:
    other = [batch("a"), loss(9.0), step(9.0)]
    two = about(run(TRAINED, draws=8), run(other, other, draws=4))
    found = {p.id: p for p in compare(two)}
    assert "draws random numbers for each row" in found["weights"].detail
    same = about(run(TRAINED, draws=8), run(other, other, draws=8))
    assert {p.id: p for p in compare(same)}["weights"].outcome is Outcome.BROKEN


def test_two_runs_of_the_original_that_differ() -> None:
    first, second = (
        run([*TRAINED, line("took 1 s"), line("a 1 b 2"), line("c")]),
        run([*TRAINED[:-1], step(2.0), line("took 2 s"), line("a 1 b 3"), line("d")]),
    )
    shaky = unstable(first, second)
    assert shaky == Unstable(lines=frozenset({(1, 2)}), numbers={(1, 1): frozenset({1})}, weights=True)
    found = {p.id: p for p in compare(about(first, second, unstable=shaky))}
    assert found["weights"].detail == "two runs of the original itself differ"
    assert found["numbers"].outcome is Outcome.HELD


def test_a_short_batch_that_is_completed() -> None:
    original = run([batch("a", "b"), loss(1.0), step(), batch("c"), loss(1.0), step(k=2)])
    first = [batch("a"), loss(1.0), step(), batch("c"), loss(1.0), step(k=2)]
    second = [batch("b"), loss(1.0), step(), batch("a"), loss(1.0), step(k=2)]
    assert samples.first_completed(original, run(first, second)) == 2
    assert samples.first_completed(original, run(first, first)) is None


@pytest.mark.parametrize(
    ("a", "b", "result"), [(1.0, 1.0, 0.0), (1.0, 1.1, 0.1 / 1.1), (float("nan"), float("nan"), 0.0), (0.0, 0.0, 0.0)]
)
def test_apart(a: float, b: float, result: float) -> None:
    assert apart(a, b) == pytest.approx(result)


def test_the_curve_is_that_of_the_first_loss_of_a_script() -> None:
    alternating = [loss(1.0, at="a:1"), loss(9.0, at="a:2"), loss(2.0, at="a:1")]
    assert curve(run(alternating)) == [1.0, 2.0]
    lines = draw([1.0, 2.0], [1.0, 1.5], ("original", "migrated"))
    assert any("*" in text for text in lines)
    assert lines[0].startswith("2 |")
    assert draw([1.0], [], ("a", "b")) == ()


def two(*changed: Event, both: bool = False, rows: str = "ca", valid: int = 2, weight: float = 1.0) -> RunTrace:
    """A run of two processes, of which the second one, or both, do more."""
    first = [batch("a", "b"), loss(1.0), step(), *(changed if both else ())]
    second = [batch(*rows, valid=valid), loss(3.0), step(weight), *changed]
    return run(first, second, files={"m.pt": FileSeen(1, "a", None)})


RANK = line("rank 1")


@pytest.mark.parametrize(
    ("original", "migrated", "broken"),
    [
        (two(), two(), set()),
        (two(), two(valid=1), set()),  # the sampler has repeated a row, and the original trains on it, too
        (two(), two(rows="cb"), {"samples"}),
        (two(), run(*[[batch("a", "b"), loss(1.0), step()]] * 2), {"samples", "losses", "files"}),
        (two(), two(weight=2.0), {"ranks"}),
        (two(weight=2.0), two(weight=2.0), set()),
        (two(RANK), two(RANK), set()),
        (two(RANK), two(RANK, RANK), {"lines"}),
        (two(), two(RANK), {"lines"}),
        (two(write("m.pt"), both=True), two(write("m.pt"), both=True), set()),
        (two(write("m.pt")), two(write("m.pt"), both=True), {"files"}),
        (two(step(k=2)), two(), {"steps"}),
    ],
)
def test_an_original_of_several_processes(original: RunTrace, migrated: RunTrace, broken: set[str]) -> None:
    found = compare(about(original, migrated))
    assert {p.id for p in found if p.outcome is Outcome.BROKEN} == broken


def test_two_figures_never_look_the_same() -> None:
    assert shown(0.0872866261, 0.0872866258) != shown(0.0872866258, 0.0872866261)
    assert shown(1 / 3, 0.25) == "0.33333333"


def test_what_is_allowed_of_norms_is_what_they_are_held_to():
    """They were "to 1.1e-03 (allowed: 1e-03)", and held."""
    one, two = step(gradient=1.0), step(gradient=1.0 + 5e-5)
    held = training.gradients(about(run([loss(1.0), one]), run(*([loss(1.0), two] for _ in range(2)))))
    assert held.outcome is Outcome.HELD and held.detail == "to 5.0e-05 (allowed: 1e-04)"
