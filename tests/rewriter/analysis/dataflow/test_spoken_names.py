"""A method that is asked for by a text is reached: events of callbacks, steps by mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

TOP = """\
class Printer:
    kind = "text"

    def on_step(self, step):
        print("a step")

    def on_end(self):
        print("the end")

    def other(self):
        print("never")


class Events:
    def __init__(self, callbacks):
        self.callbacks = list(callbacks)

    def {ask}


events = Events([Printer()])"""
ASKED = {
    "by what the caller names": (
        "emit(self, event, *args):\n        for one in self.callbacks:\n            getattr(one, event)(*args)",
        'events.emit("on_step", 1)',
        ["a step", "the end"],
    ),
    "by the end of the name": (
        'emit(self, event, *args):\n        for one in self.callbacks:\n            getattr(one, f"on_{event}")(*args)',
        'events.emit("step", 1)',
        ["a step", "the end"],
    ),
    "joined to a word": (
        'emit(self, event, *args):\n        for one in self.callbacks:\n            getattr(one, "on_" + event)(*args)',
        'events.emit(event="step")',
        ["a step", "the end"],
    ),
    "where it is there": (
        "emit(self, event, *args):\n        for one in self.callbacks:\n            found = getattr(one, event, None)\n"
        "            if found is not None:\n                found(*args)",
        'events.emit("on_step", 1)',
        ["a step", "the end"],
    ),
    "by a name that is not known": (
        "emit(self, event, *args):\n        for one in self.callbacks:\n            getattr(one, event)(*args)",
        "events.emit(sys.argv[1], 1)",
        ["a step", "the end", "never"],
    ),
    "one after the other": (
        'emit(self):\n        for one in self.callbacks:\n            for word in ("on_step", "on_end"):\n'
        "                getattr(one, word)()",
        "events.emit()",
        ["a step", "the end"],
    ),
}


@pytest.mark.hazard("U15")
@pytest.mark.parametrize(("ask", "step", "lines"), ASKED.values(), ids=ASKED)
def test_a_method_that_a_text_names_is_reached(ask: str, step: str, lines: list[str], trained: Trained) -> None:
    """Every process printed, wrote and removed files there, and nothing was said."""
    end = 'events.emit("on_end")' if "event, *args" in ask and "on_" not in ask else ""
    end = 'events.emit("end")' if "on_" in ask and "event, *args" in ask else end
    text, findings = trained(top=f"import sys\n\n{TOP.format(ask=ask)}", step=step, end=end)
    for line in ("a step", "the end", "never"):
        assert (f'        print("{line}")' not in text) is (line in lines), line
    assert findings == []
