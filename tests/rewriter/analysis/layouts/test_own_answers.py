"""What each process finds out by itself, where all of them must go on alike: the main process asks for all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

STOP = """\
import os
import signal
import time
from pathlib import Path

flag = Path("STOP")
start = time.time()
leave = False

class Timer:
    def __init__(self, seconds):
        self.end = time.time() + seconds
        self.late = False
    def look(self):
        if time.time() > self.end:
            self.late = True
    @property
    def done(self):
        return time.time() > self.end

class Watch:
    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGTERM, self.stop)
    def stop(self, number, frame):
        self.asked = True

def stop(number, frame):
    global leave
    leave = True

def wanted():
    return os.path.isfile("STOP")

signal.signal(signal.SIGINT, stop)
timer, watch = Timer(60), Watch()
"""


@pytest.mark.parametrize(
    "asked",
    [
        'os.path.exists("STOP")',
        "flag.exists()",
        "epoch > 1 and flag.exists()",
        "wanted()",
        "leave",
        "timer.done",
        "timer.late",
        "watch.asked",
    ],
)
def test_one_process_may_see_it_a_step_before_another(trained: Trained, asked: str) -> None:
    for part in ("step", "epoch"):
        text, findings = trained(built=STOP, **{part: f"timer.look()\nif {asked}:\n    break"})
        assert f"if broadcast_object_list([{asked}])[0]:\n" in text and findings == []


def test_a_file_that_is_asked_for_before_the_training_is_there_for_all(trained: Trained) -> None:
    text, findings = trained(built="import os\nif os.path.exists('done.txt'):\n    raise SystemExit")
    assert "if os.path.exists('done.txt'):\n    raise SystemExit" in text and findings == []


@pytest.mark.parametrize("asked", ["timer.done", 'not os.path.exists("a.pt")'])
def test_weights_are_saved_by_all_or_by_none(trained: Trained, asked: str) -> None:
    """All processes give their part of them, if they are sharded. What is no weight is the main process's own."""
    saved = "if {asked}:\n    torch.save({what}, 'a.pt')"
    text, findings = trained(built=STOP, step=saved.format(asked=asked, what="model.state_dict()"))
    assert f"if broadcast_object_list([{asked}])[0]:\n" in text and findings == []
    text, findings = trained(built=STOP, step=saved.format(asked=asked, what="{'at': 3}"))
    assert f"if {asked}:\n" in text and findings == []


def test_nobody_waits_where_an_exception_leads_to(trained: Trained) -> None:
    step = (
        "try:\n    wanted()\nexcept OSError:\n    if not flag.exists():\n        torch.save(model.state_dict(), 'a.pt')"
    )
    text, _ = trained(built=STOP, step=step)
    assert "    if not flag.exists():\n" in text


def test_who_only_writes_a_line_need_not_wait(trained: Trained) -> None:
    text, findings = trained(built=STOP, step='if flag.exists():\n    print("soon")')
    assert "broadcast_object_list" not in text and findings == []


@pytest.mark.parametrize(
    ("number", "written"),
    [
        ("int(60 / (time.time() - start))", "range(broadcast_object_list([int(60 / (time.time() - start))])[0])"),
        ("3, turns", "range(3, broadcast_object_list([turns])[0])"),
        ("3", "range(3)"),
    ],
)
def test_the_time_says_how_many_steps_are_taken(trained: Trained, number: str, written: str) -> None:
    built = STOP + "turns = int(time.time() - start)\nturns += 1"
    again = f"for _ in range({number}):\n    for x, y in loader:\n        optimizer.zero_grad()\n"
    again += "        model(x).sum().backward()\n        optimizer.step()"
    text, _ = trained(built=built, end=again)
    assert f"for _ in {written}:\n" in text and text.count("import broadcast_object_list") == (number != "3")


def test_a_number_of_epochs_is_the_same_wherever_it_is_read(trained: Trained) -> None:
    """It may also be the length of a schedule, or be printed."""
    built = STOP + "turns = max(1, int(time.time() - start))"
    again = "for _ in range(turns):\n    for x, y in loader:\n        optimizer.zero_grad()\n"
    again += "        model(x).sum().backward()\n        optimizer.step()"
    text, _ = trained(built=built, end=again)
    assert "turns = broadcast_object_list([max(1, int(time.time() - start))])[0]\n" in text
    assert "for _ in range(turns):\n" in text
