"""
What becomes of decisions that could fall differently on each process: all take the mean of a loss, or what the main
process has read; or there is a finding.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.module_paths import ENTRY
from ...facts.reasons import Reason
from ...facts.reasons.decisions import Agreeing, Agreement, Differs, Doubt, LocalDecision, ShortBatch
from ...facts.roles import SHARES, Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import plain_values
from ..syntax.leaving import HANDLERS
from ..syntax.names import LONGEST
from ..syntax.nodes import is_zero
from ..syntax.walk import descendants
from ..training.training import Training
from .batch_shapes import row_counts
from .conditions import TESTED, Tested, own_conditions
from .decisions import Decision, Joint, deciding, has_one_size, joint_of, spelled, undecided
from .divergence import Equality
from .left_out_steps import left_out_together
from .loop_layouts import layouts_of
from .losses import Reducer
from .own_answers import own_answers

_OF_MAIN = "each process reads this by itself (the clock, a file, its device): the main process decides for all"
_BECAUSE = "all processes must decide alike, and each holds only its shard"


def decisions(
    state: State, unit: Unit, reach: Reach, training: Training, equality: Equality, *, split: bool = False
) -> Iterator[Gather | Reason]:
    """
    What becomes of the local decisions of a module: a loss that is reduced first, or a finding.

    ``split``: each batch is split between the processes, so that they may have different numbers of rows.
    """
    reducer = Reducer(state, training, equality)
    joint = joint_of(equality)
    for found in deciding(unit, reach, joint, equality.is_local, split=split):
        node = found.node
        if isinstance(node, cst.If) and found.hangs and not split and _asks_rows(joint, unit, node.test):
            yield ShortBatch(node, spelled(unit, node.test))
            continue
        gathers = reducer.whole(unit, found.value, _BECAUSE)
        turns = isinstance(node, (cst.For, cst.CompFor))
        counts = any(gather.adds_up for gather in gathers or ())
        if not split and (counts or not gathers) and (left := list(left_out_together(joint, unit, training, found))):
            yield from left  # also where a count is 0: of no rows the mean of a process would be NaN
            continue
        if not gathers or (turns and counts):  # that many turns are N times as many
            yield _undecided(joint, unit, found, reducer)
        else:
            yield from gathers
    yield from _by_the_clock(unit, reach, joint)
    everywhere = state.once((_under_conditions, joint), lambda: list(_under_conditions(joint, reducer)))
    yield from (answer for where, answer in everywhere if where is unit)


def counted_together(reducer: Reducer, unit: Unit, node: cst.CSTNode, gathers: Iterable[Gather]) -> bool:
    """Whether a statement adds what is the same on all processes, ``waited += 1``, and the conditions around it are
    made equal by some reductions: then so is the total."""
    equality, made = reducer.equality, {gather.node for gather in gathers}
    if not isinstance(node, cst.AugAssign) or equality.is_local(unit, node.value):
        return False
    tests = [around.test for around in unit.names.enclosing(node, cst.If) if isinstance(around, cst.If)]
    asked = [reducer.whole(unit, test, _BECAUSE) for test in tests if equality.is_local(unit, test)]
    return bool(asked) and all(wanted is not None and {g.node for g in wanted} <= made for wanted in asked)


def _undecided(joint: Joint, unit: Unit, found: Decision, reducer: Reducer | None = None) -> LocalDecision:
    """What is said of a decision, with the part of it that differs and the place where that comes from. ``reducer``
    makes figures equal; None where the main process decides."""
    ways = (joint.equality, joint.equality.timed, joint.equality.timed.chosen)
    remedy = _remedy(unit, found) if reducer is not None else Agreement()
    why = Differs.BY_SHARD if reducer is not None else Differs.BY_ITSELF
    found = replace(found, value=_differing(unit, found.value, ways, reducer))
    sources = (way.source_of(unit, found.value) for way in ways)
    return undecided(unit, found, why, remedy, next((source for source in sources if source is not None), None))


def _differing(
    unit: Unit, value: cst.BaseExpression, ways: Sequence[Equality], reducer: Reducer | None
) -> cst.BaseExpression:
    """The part of a condition that differs between the processes, where all others are equal, or become so."""
    while isinstance(value, cst.BooleanOperation):
        sides = [side for side in (value.left, value.right) if any(way.is_local(unit, side) for way in ways)]
        if reducer is not None:
            sides = [side for side in sides if not reducer.whole(unit, side, _BECAUSE)]
        if len(sides) != 1:
            break
        value = sides[0]
    return value


def _by_the_clock(unit: Unit, reach: Reach, joint: Joint) -> Iterator[Gather | Reason]:
    """What is decided by what each process reads by itself: the time that has passed, the memory of a device, whether
    there is a file. The main process decides for all."""
    if not own_answers(reach, joint.training).any:
        return
    plain, timed = joint.equality, joint.equality.timed

    def differs(unit: Unit, node: cst.CSTNode) -> bool:
        return timed.is_local(unit, node) and not plain.is_local(unit, node)

    agreed: list[cst.CSTNode] = []
    for found in deciding(unit, reach, joint, differs):
        if not found.hangs and not found.weights:
            continue
        value = _set_by(unit, found.value) if isinstance(found.node, (cst.For, cst.CompFor)) else found.value
        if _all_come(timed, unit, value, agreed) and not isinstance(found.node, cst.Call):
            agreed.append(found.value)
            yield Gather(value, (), _OF_MAIN, form=Form.RECEIVE)
        elif found.hangs:
            yield _undecided(joint, unit, found)


def _all_come(equality: Equality, unit: Unit, node: cst.CSTNode, agreed: Container[cst.CSTNode] = ()) -> bool:
    """Whether all processes come to a node, or none; ``agreed``: the conditions that are made equal."""
    if next(unit.names.enclosing(node, *HANDLERS), None) is not None:
        return False
    around = [a.test for a in unit.names.enclosing(node, *TESTED) if isinstance(a, TESTED)]
    return not any(equality.is_local(unit, test) for test in around if test is not node and test not in agreed)


def _set_by(unit: Unit, number: cst.BaseExpression) -> cst.BaseExpression:
    """What gives a variable its value, once and for all: what else reads it has the same."""
    binding = unit.names.binding(number) if isinstance(number, cst.Name) else None
    if not isinstance(number, cst.Name) or binding is None or len(binding.definitions) != 1:
        return number
    return next(iter(plain_values(unit.names, number)), number)


def _under_conditions(joint: Joint, reducer: Reducer) -> Iterator[tuple[Unit, Gather | Reason]]:
    """What is decided, anywhere in the program, by a flag, or a count, that each process sets under a condition of its
    own: that condition is made equal on all processes, or there is a finding."""
    timed, chosen = joint.equality.timed, joint.equality.timed.chosen

    def differs(unit: Unit, node: cst.CSTNode) -> bool:
        return chosen.is_local(unit, node) and not timed.is_local(unit, node)

    for home in joint.reach.units:
        for found in deciding(home, joint.reach, joint, differs):
            if gathers := reducer.whole(home, found.value, _BECAUSE):  # good(loss.item())
                yield from ((home, gather) for gather in gathers)
                continue
            tests = own_conditions(timed, home, found.value)
            if not tests:
                own = joint.equality.chosen.is_local(home, found.value) or not _all_come(timed, home, found.value)
                come = Gather(found.value, (), _OF_MAIN, Form.RECEIVE)
                yield home, _undecided(joint, home, found, reducer) if own else come
            for where, each in tests:
                yield from ((where, answer) for answer in _agreed(where, each, found, joint, reducer))


def _agreed(
    unit: Unit, condition: Tested, decided: Decision, joint: Joint, reducer: Reducer
) -> Iterator[Gather | Reason]:
    """What makes a condition equal on all processes by which something is decided later."""
    if joint.equality.is_local(unit, condition.test):
        gathers = reducer.whole(unit, condition.test, _BECAUSE)
    else:
        come = _all_come(joint.equality.timed, unit, condition.test)
        gathers = [Gather(condition.test, (), _OF_MAIN, form=Form.RECEIVE)] if come else None
    if gathers:
        yield from gathers
    elif decided.hangs or gathers is None:
        found = replace(decided, value=condition.test, node=condition)
        if not any(origins(joint.state.values.get(part), *SHARES) for part in descendants(condition.test)):
            # an object that holds several is looked at
            found = replace(found, hangs=False, doubt=Doubt.FIGURE if found.hangs else found.doubt)
        yield _undecided(joint, unit, found, reducer)


def _remedy(unit: Unit, found: Decision) -> Agreement:
    """How the processes decide alike: for a condition the line that does it."""
    text = unit.names.one_line(found.value)
    own = Agreement(Agreeing.EQUAL if unit.place.name == ENTRY else Agreeing.VALUE_OF_MAIN)
    if not found.hangs or not isinstance(found.node, (cst.If, cst.While)) or len(text) > LONGEST:
        return own
    if found.node.test is not found.value:
        return own
    how = Agreeing.AS_ONE if unit.place.name == ENTRY else Agreeing.TOLD_BY_MAIN
    return Agreement(how, text, "while" if isinstance(found.node, cst.While) else "if")


def _asks_rows(joint: Joint, unit: Unit, test: cst.BaseExpression) -> bool:
    """Whether all that is one process's own in a condition is the number of rows of a batch that has always as many
    rows on all processes: of a loader with batches of one size, which fills up a short last one."""
    names = joint.equality.local_names(unit, test)
    if any(layouts.counts_chosen(test) for layouts in layouts_of(joint.state).around(unit, test)):
        return False
    return bool(names) and all(_is_row_count(joint, unit, name) for name in names)


def _is_row_count(joint: Joint, unit: Unit, name: cst.Name) -> bool:
    parents = unit.names.parents
    if (shape := _first_of(unit, name)) is not None:  # ``rows, width = x.shape``
        inner = joint.equality.local_names(unit, shape)
        return len(inner) == 1 and _is_of_one_size(joint, inner[0])
    values = plain_values(unit.names, name)
    if len(values) == 1:  # ``rows = x.size(0)``
        inner = joint.equality.local_names(unit, values[0])
        return len(inner) == 1 and _is_row_count(joint, unit, inner[0])
    if not _is_of_one_size(joint, name):
        return False
    parent = parents[name]
    if isinstance(parent, cst.Arg):
        call = parents[parent]
        return isinstance(call, cst.Call) and method_name(call) == "len"
    if not isinstance(parent, cst.Attribute) or parent.attr.value not in ("size", "shape"):
        return False
    sizes = parents[parent] if parent.attr.value == "size" else parent
    if isinstance(sizes, cst.Call) and sizes.args:
        return is_zero(sizes.args[0].value)
    at = parents[sizes]
    index = at.slice[0].slice if isinstance(at, cst.Subscript) and len(at.slice) == 1 else None
    return isinstance(index, cst.Index) and is_zero(index.value)


def _first_of(unit: Unit, name: cst.Name) -> cst.BaseExpression | None:
    """The sizes of a tensor of which a variable is given the first alone."""
    binding = unit.names.binding(name)
    definitions = binding.definitions if binding is not None else ()
    line = unit.names.statement(definitions[0]) if len(definitions) == 1 else None
    counts = row_counts(unit, line) if isinstance(line, cst.SimpleStatementLine) else ()  # not a whole loop's `x, y`
    found = (c.assign.value for c in counts if c.binding is binding and c.form == "first of sizes")
    return next(found, None)


def _is_of_one_size(joint: Joint, name: cst.Name) -> bool:
    batches = origins(joint.state.values.get(name), Role.BATCH)
    return bool(batches) and all(has_one_size(joint, batch) for batch in batches)
