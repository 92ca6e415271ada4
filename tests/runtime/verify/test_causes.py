"""The likeliest cause of a broken promise: the first thing that went wrong has one, what follows from it names that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchlift.runtime.verify.compare.causes import explained
from torchlift.runtime.verify.program import line_of
from torchlift.runtime.verify.request import Script
from torchlift.runtime.verify.verdict import Outcome, Promise


def broken(id: str, detail: str = "", step: int | None = None, processes: int = 2, **more: Any) -> Promise:
    more = {"figure": "", "at": "train.py:1", **more}
    return Promise(
        id=id, promise=f"the same {id}", processes=processes, outcome=Outcome.BROKEN, detail=detail, step=step, **more
    )


def causes(*promises: Promise, code: str = "accelerator.backward(loss)") -> list[str]:
    return [promise.cause for promise in explained(promises, lambda _: code)]


def test_what_follows_names_what_it_follows_from() -> None:
    found = causes(broken("losses", step=2), broken("weights", step=2), broken("gradients", step=2), broken("numbers"))
    after = 'it follows from another broken promise, "the same losses", from step 2 on'
    assert found[:3] == ["", after, after]
    assert found[3] == 'it follows from another broken promise, "the same weights", from step 2 on'


def test_weights_that_differ_first_explain_later_losses() -> None:
    found = causes(broken("losses", step=3), broken("weights", step=2))
    assert found == ['it follows from another broken promise, "the same weights", from step 2 on', ""]


def test_what_is_broken_on_another_number_of_processes_explains_nothing() -> None:
    assert causes(broken("losses", step=3), broken("weights", step=2, processes=1)) == ["", ""]


def test_other_rows_explain_everything_of_the_training() -> None:
    found = causes(broken("samples", "every process reads all 8 rows: the loader is not sharded"), broken("losses"))
    assert "not given to `accelerator.prepare(...)`" in found[0]
    assert found[1] == 'it follows from another broken promise, "the same samples"'
    missing = causes(broken("samples", "16 of its rows are missing", step=2), broken("steps", step=9))
    assert "a random split, a sampler, `drop_last`" in missing[0]
    assert missing[1] == 'it follows from another broken promise, "the same samples", from step 2 on'


def test_a_process_whose_weights_differ() -> None:
    weights = broken("ranks", "w differs between process 1 and process 0, though their gradients are equal", step=1)
    assert "the optimizer's settings differ between processes" in causes(weights)[0]
    rates = broken("rates", "learning rate 0.2 on process 1, the original's is 0.1", step=1)
    found = causes(weights, rates, broken("runs", "process 0 ends with DivergenceError", step=5))
    assert found[0] == 'it follows from another broken promise, "the same rates", from step 1 on'
    assert found[1].startswith("a process trains at a learning rate of its own")
    assert found[2] == 'it follows from another broken promise, "the same ranks", from step 1 on'
    apart = broken("ranks", "w differs between process 1 and process 0: its gradients are not averaged", step=1)
    assert causes(apart) == ["the model is not given to `accelerator.prepare(...)`"]


def test_what_is_wrong_on_one_process_is_no_fault_of_several() -> None:
    wrong = broken("numbers", "0.4 in 'acc 0.4', the original prints 0.8")
    (found,) = explained([wrong], lambda _: "", before=[replace(wrong, processes=1)])
    assert found.cause == ""


def test_what_a_file_holds_follows_from_what_is_printed() -> None:
    wrong = broken("numbers", "0.4 in 'acc 0.4', the original prints 0.8")
    files = broken("files", "a.json: line 1 is '0.4'", figure="a.json")
    saved = broken("checkpoints", "a.pt: w differs (norm 3, the original's 4)")
    found = causes(wrong, files, saved)
    assert found[1:] == ['it follows from another broken promise, "the same numbers"'] * 2


def test_a_file_that_is_read_before_it_is_written() -> None:
    text = "accelerator.save(model, 'a.pt')\nmodel.load_state_dict(torch.load('a.pt'))\nprint(score)\n"
    wrong = broken("numbers", at="train.py:3")
    (found,) = explained([wrong], lambda _: "", lambda _: (text, 3))
    assert (found.origin, found.origin_code) == ("train.py:2", "model.load_state_dict(torch.load('a.pt'))")
    assert "call `accelerator.wait_for_everyone()` before the line that reads it" in found.cause
    waits = text.replace("model.load", "accelerator.wait_for_everyone()\nmodel.load")
    assert explained([replace(wrong, at="train.py:4")], lambda _: "", lambda _: (waits, 4))[0].origin == ""
    (fails,) = causes(broken("runs", "process 1 ends with FileNotFoundError at train.py:2"))
    assert "wait_for_everyone" in fails


def test_first_weights_point_to_prepare() -> None:
    text = "model = accelerator.prepare(model)\nscale(model)\naccelerator.backward(loss)\n"
    apart = broken("ranks", "w differs between process 1 and process 0 before the first step", step=1, at="train.py:3")
    (found,) = explained([apart], lambda _: "", lambda _: (text, 3))
    assert (found.origin, found.origin_code) == ("train.py:1", "model = accelerator.prepare(model)")


@pytest.mark.parametrize(
    ("code", "handed"),
    [
        ("loss.backward()", False),
        ("(loss / 4).backward(retain_graph=True)", False),
        ("self.accelerator.backward(loss)", True),
        ("acc.backward(loss / 4, reduction='sum')", True),
        ("optimizer.step()", True),
    ],
)
def test_a_loss_that_is_not_handed_over(code: str, handed: bool) -> None:
    (cause,) = causes(broken("gradients", step=1), code=code)
    assert cause.startswith("the loss is not handed over: write `accelerator.backward(loss)`") == (not handed)
    assert bool(cause) == (not handed)


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (broken("numbers", "0.4 in 'acc 0.4', the original prints 0.8"), "call `accelerator.gather_for_metrics(...)`"),
        (broken("numbers", "0.4", processes=1), ""),
        (broken("files", "a.npy: shape [2]", figure="a.npy"), "call `accelerator.gather_for_metrics(...)`"),
        (broken("files", "a.npy is written by processes 0, 1", figure="a.npy"), "save with `accelerator.save(...)`"),
        (broken("files", "a.npy is not written", figure="a.npy"), ""),
        (broken("lines", "process 1 also prints it: 'x'"), "print with `accelerator.print(...)`"),
        (broken("losses", "1/2 of it: divided or multiplied once too often"), "divided or multiplied by hand"),
        (broken("checkpoints", "a.pt: a wrapper was saved ('module'"), "save `accelerator.get_state_dict(model)`"),
        (broken("waits"), "not all processes come to this line"),
        (broken("devices", processes=1), "give it `device=accelerator.device`"),
        (broken("devices", processes=1, figure="batch"), "this loader is not given to `accelerator.prepare(...)`"),
    ],
)
def test_causes(promise: Promise, words: str) -> None:
    (cause,) = causes(promise)
    assert words in cause and bool(words) == bool(cause)


def test_only_broken_promises_have_a_cause_and_a_line() -> None:
    held = Promise(id="waits", promise="", processes=2, outcome=Outcome.HELD)
    assert explained([held], lambda _: "code") == [held]


def test_the_line_is_that_of_the_text_that_ran(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("old\n")
    notebook = (
        b'{"cells": [{"cell_type": "code", "source": "a"}, {"cell_type": "markdown", "source": "t"}, '
        b'{"cell_type": "code", "source": ["b\\n", "  c"]}]}'
    )
    program = Script(
        script=tmp_path / "train.py", folder=tmp_path, texts={"train.py": b"a\n  b\n", "n.ipynb": notebook}
    )
    wanted = {
        "train.py:2": "b",
        "train.py:9": "",
        "n.ipynb:cell 3, line 2": "c",
        "n.ipynb:cell 4, line 1": "",
        "?": "",
        "none.py:1": "",
    }
    assert {place: line_of(program, place) for place in wanted} == wanted


def test_a_wrong_figure_has_a_second_line(tmp_path: Path) -> None:
    text = "for x, y in loader:\n    right += hits(x, y)\nprint(right)\n"
    wrong = broken("numbers", processes=2, at="train.py:3")
    (found,) = explained([wrong], lambda _: "print(right)", lambda _: (text, 3))
    assert (found.origin, found.origin_code) == ("train.py:2", "right += hits(x, y)")
    assert found.cause == (
        "`right` is computed from `x` and `y`, of the rows of one process: add `x, y = "
        "accelerator.gather_for_metrics((x, y))` before line 2"
    )
    in_cell = replace(wrong, at="n.ipynb:cell 4, line 3")
    assert explained([in_cell], lambda _: "", lambda _: (text, 3))[0].origin == "n.ipynb:cell 4, line 2"
    (other,) = explained([replace(wrong, side="original")], lambda _: "", lambda _: (text, 3))
    assert other.origin == "" and other.cause.startswith("it is computed from the rows of one process")


def test_a_rate_that_is_set_by_hand_points_to_its_line() -> None:
    """A script without a scheduler was told to look at `scheduler.step()`."""
    text = "optimizer.step()\nlast = loss.item()\noptimizer.param_groups[0].update(lr=0.1 * last)\n"
    wrong = broken("rates", "learning rate 0.2, the original's is 0.1", step=3)
    (found,) = explained([wrong], lambda _: "", lambda _: (text, 1))
    assert (found.origin, found.origin_code) == ("train.py:3", "optimizer.param_groups[0].update(lr=0.1 * last)")
    assert found.cause.startswith("the learning rate is set from a value that is not the original's")
    (own,) = explained(
        [replace(wrong, detail="learning rate 0.2 on process 1, the original's is 0.1")],
        lambda _: "",
        lambda _: ('for group in optimizer.param_groups:\n    group["lr"] = rate\n', 1),
    )
    assert own.origin == "train.py:2" and own.cause.startswith("a process trains at a learning rate of its own")
    (none,) = explained([wrong], lambda _: "", lambda _: ("optimizer.step()\n", 1))
    assert (none.cause, none.origin) == ("", "")
    (stepped,) = explained([wrong], lambda _: "", lambda _: ("scheduler.step()\n", 1))
    assert stepped.cause.startswith("`scheduler.step()` is called another number of times")
