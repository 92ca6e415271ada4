"""The verdict as text: broken promises first, each with its line and its cause, the same table from both commands."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from torchlift.rewriter.report.verdict import verdict_text
from torchlift.rewriter.verify.handover import read_verdict
from torchlift.runtime.verify.overview import FOLLOWS, as_json, conclusion, rows
from torchlift.runtime.verify.progress import RunProgress
from torchlift.runtime.verify.text import as_text
from torchlift.runtime.verify.verdict import Failure, Outcome, Promise, Verdict

LONG = (
    "0.4149 in 'Test set: Average loss: 0.4149, Accuracy: 55/297 (18.5%)', the original prints 0.8649, and more words"
)


def promise(id: str, outcome: Outcome, detail: str = "", **more: Any) -> Promise:
    return Promise(id=id, promise=f"the same {id}", processes=2, outcome=outcome, detail=detail, **more)


VERDICT = Verdict(
    status=1,
    mode="exact",
    device="cpu",
    promises=(
        promise("steps", Outcome.HELD, "20 steps"),
        promise("checkpoints", Outcome.UNTESTABLE, "nothing is saved", absent=True),
        promise(
            "numbers",
            Outcome.BROKEN,
            LONG,
            at="train.py:60",
            code="print('Test set', correct)",
            cause="it is computed from the rows of one process: gather it",
            origin="train.py:53",
            origin_code="correct += found",
        ),
        promise("losses", Outcome.BROKEN, "loss 1", step=3),
    ),
)


def test_what_is_broken_comes_first_with_its_line_and_its_cause() -> None:
    lines = as_text(VERDICT, 300).splitlines()
    assert lines[:11] == [
        'BROKEN (exact mode, CPU): 2 of 3 promises on 2 processes. First: "the same losses", step 3.',
        "",
        "verdict  procs  promise           detail",
        "BROKEN   2      the same losses   step 3: loss 1",
        f"BROKEN   2      the same numbers  {LONG}",
        "    --> train.py:60, in the migrated script",
        "    60 | print('Test set', correct)",
        "    --> train.py:53, where this comes from",
        "    53 | correct += found",
        "    likely cause: it is computed from the rows of one process: gather it",
        "held     2      the same steps",
    ]
    assert lines[11] == "Nothing to compare: the same checkpoints (nothing is saved)."


@pytest.mark.parametrize("width", [5, 20, 60, 80, 140])
def test_both_commands_show_one_table(width: int) -> None:
    own, _, _ = as_text(VERDICT, width).partition("Nothing to")
    seen = read_verdict(json.dumps(as_json(VERDICT)))
    theirs, _, _ = verdict_text(seen, width=width).partition("Nothing to")
    assert own == theirs
    assert max(map(len, own.splitlines())) <= max(width, 20)
    bright = verdict_text(seen, width=width, color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", bright) == verdict_text(seen, width=width)


def on(processes: int, *promises: Promise) -> list[Promise]:
    return [replace(promise, processes=processes) for promise in promises]


HELD = [promise("losses", Outcome.HELD, "bit for bit"), promise("steps", Outcome.HELD, "20 steps")]


def test_what_is_held_on_several_numbers_of_processes_has_one_row() -> None:
    promises = (*on(1, *HELD), promise("losses", Outcome.HELD, "to 1e-07"), HELD[1])
    assert [(row.promise, row.on, row.detail) for row in rows(promises)] == [
        ("the same losses", "1, 2", "on 1: bit for bit; on 2: to 1e-07"),
        ("the same steps", "1, 2", "20 steps"),
    ]
    said = conclusion(replace(VERDICT, status=0, promises=promises))
    assert said == "HELD (exact mode, CPU): 2 promises on 1 process, 2 promises on 2 processes."


def test_what_is_broken_alike_on_several_numbers_of_processes_has_one_row() -> None:
    alike = {"at": "train.py:9", "code": "x", "cause": "why", "step": 3}
    one = replace(promise("losses", Outcome.BROKEN, "loss 1", **alike), processes=1)
    two = promise("losses", Outcome.BROKEN, "loss 1.5", **alike)
    (row,) = rows([one, two])
    assert (row.on, row.detail, row.at) == ("1, 2", "step 3: on 1: loss 1; on 2: loss 1.5", "train.py:9")
    assert rows([one, replace(two, detail="loss 1")])[0].detail == "step 3: loss 1"
    assert len(rows([one, replace(two, step=4)])) == 2
    broken = conclusion(Verdict(status=1, mode="exact", device="cpu", promises=(one, two)))
    assert broken.endswith('First: "the same losses", step 3, train.py:9.')


def test_what_cannot_be_tested_for_one_reason_has_one_row() -> None:
    why = "batches are made by hand"
    promises = (*on(1, *HELD), promise("losses", Outcome.UNTESTABLE, why), promise("steps", Outcome.UNTESTABLE, why))
    found = rows(promises)[0]
    assert (found.promise, found.detail) == ("2 promises", f"{why}: the same losses; the same steps")
    said = conclusion(replace(VERDICT, status=0, promises=promises))
    assert said.endswith("as far as it can be tested: 2 promises on 1 process, 0 of 2 promises on 2 processes.")


def test_beside_what_is_broken_the_rest_is_short() -> None:
    weights = promise("weights", Outcome.BROKEN, "w differs", step=1, at="train.py:3", code="backward()", cause="a, b")
    losses = promise(
        "losses", Outcome.BROKEN, "1", step=2, at="train.py:3", cause=f'{FOLLOWS}, "the same weights", from step 1 on'
    )
    promises = (losses, *on(1, *HELD), HELD[1], weights)
    found = rows(promises)
    assert [(row.promise, row.on, row.detail, row.at) for row in found] == [
        ("the same weights", "2", "step 1: w differs", "train.py:3"),
        ("the same losses", "2", 'step 2: 1; follows from "the same weights"', ""),
        ("the same steps", "1, 2", "", ""),
        ("the same losses", "1", "", ""),
    ]
    said = conclusion(replace(VERDICT, promises=promises))
    assert said.endswith('2 of 3 promises on 2 processes. First: "the same weights", step 1, train.py:3.')


def test_what_a_script_does_nothing_of_is_no_row() -> None:
    nothing = on(1, promise("files", Outcome.HELD, "no file is written", absent=True))
    assert rows(nothing) == []
    assert rows([*nothing, promise("files", Outcome.UNTESTABLE, "the migrated run did not finish")]) == []
    said = conclusion(replace(VERDICT, status=0, promises=(*HELD, *nothing)))
    assert said == "HELD (exact mode, CPU): 2 promises on 2 processes."


def test_a_verdict_of_another_runtime_is_read() -> None:
    data = as_json(VERDICT)
    data["promises"][0]["invented_later"] = data["rows"][0]["invented_later"] = 1
    assert read_verdict(json.dumps(data)).promises[0].id == "steps"
    for name in ("conclusion", "rows", "left_out"):
        del data[name]
    earlier = read_verdict(json.dumps(data))
    assert (earlier.conclusion, len(earlier.rows), earlier.rows[0].outcome) == ("BROKEN.", 4, "broken")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def running(trace: Any) -> Any:
    task = SimpleNamespace(trace=trace)
    return SimpleNamespace(name="original", seconds=3.2, processes=[SimpleNamespace(task=task)])


def test_progress_is_a_line_a_run_and_at_a_terminal_one_that_is_drawn_anew(tmp_path: Any) -> None:
    run = running(tmp_path / "trace.jsonl")
    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        progress = RunProgress(stream)
        progress.planned = 4
        run.processes[0].task.trace.write_text('{"e": "step", "t": 1}\n{"e": "line"}\n{"e": "st')
        progress.going([run])
        run.processes[0].task.trace.write_text('{"e": "step", "t": 1}\n{"e": "line"}\n{"e": "step"}\n')
        progress.over(run)
    assert plain.getvalue() == "verify: run 1 of 4: original: 2 steps in 3 s\n"
    assert terminal.getvalue() == "\r\x1b[Kverify: run 1 of 4: original: 1 steps, 3 s\r\x1b[K"


def test_a_trace_that_is_not_there_yet_has_no_steps(tmp_path: Any) -> None:
    terminal = Terminal()
    RunProgress(terminal).going([running(tmp_path / "none.jsonl")])
    assert "original: starting, 3 s" in terminal.getvalue()


def test_a_script_that_fails_may_only_need_longer_passes() -> None:
    """It compared the predictions of a shortened pass with all rows, and was called broken."""
    said = conclusion(replace(VERDICT, status=2, original_error=Failure(error="ValueError", at="a.py:1", traceback="")))
    assert said.startswith("NOT VERIFIED") and "--steps" in said
