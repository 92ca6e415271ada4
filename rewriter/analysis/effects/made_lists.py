"""Lists of files that the process which makes the files fills as it goes, and the others from the folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.container_methods import adds_in_order
from ...facts.reasons.effects import OtherOrder
from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import Unit
from ..syntax.nodes import dotted
from ..syntax.walk import nodes_in


def other_orders(unit: Unit, reach: Reach, question: cst.CSTNode) -> Iterator[OtherOrder]:
    """What is said where one branch of a question for files makes them and lists them in that order, and the other one
    lists the folder: in a first run the main process has another order than those that come after it."""
    if not isinstance(question, cst.If) or not isinstance(question.orelse, cst.Else):
        return
    branches = (question.body, question.orelse.body)
    for listing, making in (branches, branches[::-1]):
        for call in nodes_in(listing, cst.Call):
            if not _lists(reach, call) or _is_sorted(unit, call):
                continue
            called = (function for made in nodes_in(making, cst.Call) for function in reach.called(made))
            others = {name for part in (making, *called) for name in _filled(nodes_in(part, cst.Call))}
            for name in _filled(nodes_in(listing, cst.Call)):
                if name in others and not _sorted_later(unit, name):
                    yield OtherOrder(call, unit.names.one_line(call), name)
                    return


def _lists(reach: Reach, call: cst.Call) -> bool:
    """``os.listdir(folder)``, ``folder.glob("*.png")``."""
    record = reach.state.calls.get(call)
    if record is not None and surroundings.lists(outside_name(record)):
        return True
    return isinstance(call.func, cst.Attribute) and method_name(call) in surroundings.path_methods("listing")


def _filled(calls: Iterable[cst.Call]) -> dict[str, None]:
    """The names of the lists to which calls add."""
    funcs = (call.func for call in calls if adds_in_order(method_name(call)))
    return dict.fromkeys(dotted(func.value) for func in funcs if isinstance(func, cst.Attribute) and dotted(func.value))


def _is_sorted(unit: Unit, call: cst.Call) -> bool:
    around = (a for a in unit.names.ancestors(call) if isinstance(a, cst.Call))
    return any(method_name(each) in ("sorted", "natsorted") for each in around)


def _sorted_later(unit: Unit, name: str) -> bool:
    sorting = (
        call for call in unit.names.calls if method_name(call) == "sort" and isinstance(call.func, cst.Attribute)
    )
    return any(dotted(call.func.value) == name for call in sorting if isinstance(call.func, cst.Attribute))
