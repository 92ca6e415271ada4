"""The verdict as text: broken promises first, each with its line and its cause, the same table from both commands."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from torchlift.rewriter.report.verdict import verdict_text
from torchlift.rewriter.verify.handover import read_verdict
from torchlift.runtime.verify.progress import RunProgress
from torchlift.runtime.verify.text import as_text
from torchlift.runtime.verify.verdict import Outcome, Promise, Verdict

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
        promise("checkpoints", Outcome.UNTESTABLE, "nothing is saved"),
        promise(
            "numbers",
            Outcome.BROKEN,
            LONG,
            at="train.py:60",
            code="print('Test set', correct)",
            cause="it is computed from the rows of one process: gather it",
        ),
        promise("losses", Outcome.BROKEN, "loss 1", step=3),
    ),
)


def test_what_is_broken_comes_first_with_its_line_and_its_cause() -> None:
    lines = as_text(VERDICT, 300).splitlines()
    assert lines[:7] == [
        "promise               on  verdict       detail",
        f"the same numbers      2   BROKEN        {LONG}",
        "    migrated train.py:60: print('Test set', correct)",
        "    likely cause: it is computed from the rows of one process: gather it",
        "the same losses       2   BROKEN        step 3: loss 1",
        "the same checkpoints  2   not testable  nothing is saved",
        "the same steps        2   held          20 steps",
    ]


@pytest.mark.parametrize("width", [20, 80, 140])
def test_both_commands_show_one_table(width: int) -> None:
    own = as_text(VERDICT, width).partition("\n\n")[0]
    theirs = verdict_text(read_verdict(json.dumps(VERDICT.to_json())), width=width).partition("\n\n")[0]
    assert own == theirs
    assert max(map(len, own.splitlines())) <= max(width, 70)


def test_a_verdict_of_a_later_runtime_is_read() -> None:
    data = VERDICT.to_json()
    data["promises"][0]["invented_later"] = 1
    assert read_verdict(json.dumps(data)).promises[0].id == "steps"


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
        run.processes[0].task.trace.write_text('{"e": "step", "t": 1}\n{"e": "line"}\n{"e": "st')
        progress.going([run])
        run.processes[0].task.trace.write_text('{"e": "step", "t": 1}\n{"e": "line"}\n{"e": "step"}\n')
        progress.over(run)
    assert plain.getvalue() == "verify: original: 2 steps in 3 s\n"
    assert terminal.getvalue() == "\r\x1b[Kverify: original: 1 steps, 3 s\r\x1b[K"


def test_a_trace_that_is_not_there_yet_has_no_steps(tmp_path: Any) -> None:
    terminal = Terminal()
    RunProgress(terminal).going([running(tmp_path / "none.jsonl")])
    assert "original: 0 steps" in terminal.getvalue()
