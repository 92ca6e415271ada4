"""What runs with a piece of code, of some nodes that are looked for: the same as a walk through all of it finds."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlift.rewriter.analysis.dataflow.call_graph import Reach
from torchlift.rewriter.analysis.dataflow.met import Met
from torchlift.rewriter.analysis.dataflow.program_flow import solve

SCRIPT = """\
class Trainer:
    def save(self):
        write("a")

    def log(self):
        show("b")

    def end(self):
        self.log()
        self.save()
        later = lambda: write("c")

trainer = Trainer()
if first:
    trainer.end()
if second:
    trainer.log()
if third:
    def never():
        write("d")
if fourth:
    write("e")
    trainer.save()
"""


@pytest.fixture
def reach() -> Reach:
    return Reach(solve([("__main__", cst.parse_module(SCRIPT))]))


def branches(reach: Reach) -> dict[str, cst.CSTNode]:
    tests = (node for node in reach.units[0].names.every(cst.If) if isinstance(node, cst.If))
    return {node.test.value: node.body for node in tests if isinstance(node.test, cst.Name)}


def called(reach: Reach, name: str) -> set[cst.CSTNode]:
    calls = reach.units[0].names.calls
    return {call for call in calls if isinstance(call.func, cst.Name) and call.func.value == name}


@pytest.mark.parametrize(
    ("branch", "text"),
    [
        pytest.param("first", '"a"', id="in what a call of a call runs"),
        pytest.param("second", "", id="not in a method that only shares the object"),
        pytest.param("third", "", id="not in a function that is only defined"),
        pytest.param("fourth", '"e"', id="the first of two"),
    ],
)
def test_first_is_met(reach: Reach, branch: str, text: str) -> None:
    writes = called(reach, "write")
    here = branches(reach)[branch]
    found = Met(reach, writes).first(here)
    assert found is next((node for node in reach.runs(here, reach.units[0]) if node in writes), None)
    assert isinstance(found, cst.Call) is bool(text)
    assert not isinstance(found, cst.Call) or reach.units[0].names.module.code_for_node(found.args[0].value) == text


def test_of_nothing_nothing_is_met(reach: Reach) -> None:
    assert all(Met(reach, ()).first(body) is None for body in branches(reach).values())
