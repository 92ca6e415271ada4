"""What a script counts in steps, batches or rows while it loops: each process counts its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import libcst as cst

from ...facts.module import Count, Form, Gather
from ...facts.torch_api import questions
from ..dataflow.values import Unit
from ..syntax.definitions import bindings_value, entered_values, plain_values
from ..syntax.nodes import adds_one, counter, dotted, is_zero
from ..syntax.walk import contains, descendants, nodes_in
from .schedules import asks_length
from .training import Training

BARS = frozenset({"tqdm", "trange", "tqdm_notebook", "alive_bar"})
_RANGES = frozenset({"range", "trange", "tnrange"})


def counts(
    unit: Unit, training: Training, loops: Iterable[cst.CSTNode], gathers: Collection[Gather] = ()
) -> Iterator[Count]:
    """The cadences, the limits and the bars in some loops over shared loaders; ``gathers``: what will come from all
    processes, such as the rows that a bar counts."""
    steps = {record.node for record in training.steps}
    for loop in loops:
        if not isinstance(loop, cst.For) or loop not in unit.names.parents:
            continue
        yield from _cut_short(unit, loop, steps)
        numbers = _numbers(unit, loop)
        for node in descendants(loop.body):
            if isinstance(node, cst.If):
                yield from _tested(unit, loop, node, numbers, steps)
            elif (
                isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "update"
            ):
                bar = _bar(unit, node)
                if bar is not None and not any(_tells_all(unit, node, gather) for gather in gathers):
                    yield bar


def limits(unit: Unit, source: cst.BaseExpression) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """The numbers that may end a loop before its loader does, with the calls that take them: ``islice(loader, n)``,
    ``zip(range(n), loader)``."""
    if isinstance(source, cst.Name):
        for value in plain_values(unit.names, source):
            if not isinstance(value, cst.Name):
                yield from limits(unit, value)
    if not isinstance(source, cst.Call):
        return
    last = dotted(source.func).rpartition(".")[2]
    stop = 1 if len(source.args) == 2 else 2
    for place, arg in enumerate(source.args):
        if last == "range" or (questions.limits(last) and place == stop):
            yield source, arg.value
        elif last in ("enumerate", "zip") or questions.iterates(last):
            yield from limits(unit, arg.value)


def _cut_short(unit: Unit, loop: cst.For, steps: set[cst.Call]) -> Iterator[Count]:
    """A limit among what a loop goes through; what is made of a length is one process's already. A loop around one that
    takes batches until there are none counts epochs."""
    if any(call in steps for inner in nodes_in(loop.body, cst.While) for call in nodes_in(inner, cst.Call)):
        return
    for call, number in limits(unit, loop.iter):
        owned = any(asks_length(unit, arg.value, inner=True) for arg in call.args)  # also ``range(1, len(loader))``
        if not owned and dotted(number) != "None" and not is_zero(number):
            yield Count(loop, "limit", unit.names.module.code_for_node(call))
            return


def _tested(unit: Unit, loop: cst.For, node: cst.If, numbers: set[str], steps: set[cst.Call]) -> Iterator[Count]:
    text = unit.names.module.code_for_node(node.test)
    rests = list(nodes_in(node.test, cst.BinaryOperation))
    rests = [rest for rest in rests if isinstance(rest.operator, cst.Modulo)]
    if rests:
        trains = any(inner in steps for inner in nodes_in(node.body, cst.Call))
        if not trains and not all(_is_fixed(unit, rest.left) for rest in rests):
            through = all(_is_never_reset(unit, loop, rest.left) for rest in rests)
            often = "interval" if _holds_at_first(unit, node.test) else "long-cadence" if through else "cadence"
            yield Count(node, often, text)
    elif contains(node.body, cst.Break, cst.Return):
        asked = [node.test, *(v for n in nodes_in(node.test, cst.Name) for v in _values(unit, n))]
        compared = (c for one in asked for c in nodes_in(one, cst.Comparison))
        if any(dotted(n) in numbers for c in compared for n in nodes_in(c, cst.Name, cst.Attribute)):
            yield Count(node, "limit", text)


def _values(unit: Unit, name: cst.Name) -> Iterator[cst.BaseExpression]:
    """What a condition's name is given in the loop: ``last = step == most``."""
    return (value for value in plain_values(unit.names, name) if isinstance(value, cst.Comparison))


def _is_never_reset(unit: Unit, loop: cst.For, number: cst.BaseExpression) -> bool:
    """Whether a number counts the steps of all epochs: no loop around that over the batches begins it anew."""
    bindings = [unit.names.binding(node) for node in nodes_in(number, cst.Name)]
    around = {node for outer in unit.names.enclosing(loop, cst.For, cst.While) for node in descendants(outer)}
    changed = [d for binding in bindings if binding is not None for d in binding.definitions if d in around]
    changes = [unit.names.parents.get(definition) for definition in changed]
    return bool(changes) and all(isinstance(one, cst.AugAssign) for one in changes)


def _is_fixed(unit: Unit, number: cst.BaseExpression) -> bool:
    """Whether a number counts the rounds of loops that are as long on N processes: ``range(epochs)``."""
    names = list(nodes_in(number, cst.Name))
    return bool(names) and all(_counts_range(unit, name) for name in names)


def _counts_range(unit: Unit, name: cst.Name) -> bool:
    """Whether a name is nothing but the counter of such loops."""
    binding = unit.names.binding(name)
    loops = [unit.names.parents.get(d) for d in binding.definitions] if binding is not None else []
    return bool(loops) and all(isinstance(lp, cst.For) and _is_range(unit, lp.iter) for lp in loops)


def _is_range(unit: Unit, source: cst.BaseExpression) -> bool:
    """``range(steps)``, ``trange(steps)``, ``tqdm(range(steps))``, or a name for one; no length is asked for."""
    made = [*bars(unit, source), *(plain_values(unit.names, source) if isinstance(source, cst.Name) else ())]
    for call in made or [source]:
        if not isinstance(call, cst.Call):
            return False
        last = dotted(call.func).rpartition(".")[2]
        inner = [arg.value for arg in call.args if arg.keyword is None]
        if last in BARS - _RANGES and len(inner) == 1 and isinstance(inner[0], cst.Call):
            return _is_range(unit, inner[0])
        if last not in _RANGES or any(asks_length(unit, arg.value, inner=True) for arg in call.args):
            return False
    return True


def _holds_at_first(unit: Unit, test: cst.BaseExpression) -> bool:
    """``i % 100 == 0`` of the ``i`` that ``enumerate`` counts from zero: it is true of the first batch."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or):
        return _holds_at_first(unit, test.left) or _holds_at_first(unit, test.right)
    asked = test.comparisons[0] if isinstance(test, cst.Comparison) and len(test.comparisons) == 1 else None
    rest = test.left if isinstance(test, cst.Comparison) else None
    if asked is not None and not (isinstance(asked.operator, cst.Equal) and is_zero(asked.comparator)):
        return False
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        rest = test.expression
    index = rest.left if isinstance(rest, cst.BinaryOperation) else None
    binding = unit.names.binding(index) if isinstance(index, cst.Name) else None
    loops = [unit.names.enclosing(d, cst.For) for d in binding.definitions] if binding is not None else []
    firsts = [next(around, None) for around in loops]
    return bool(firsts) and all(
        isinstance(lp, cst.For) and counter(lp, from_zero=True) in getattr(binding, "definitions", ()) for lp in firsts
    )


def _numbers(unit: Unit, loop: cst.For) -> set[str]:
    """What counts the batches: the number that ``enumerate`` gives to each, and what each adds one to."""
    number = numbered(loop)
    found = {number} if number else set()
    turns = {loop.body, *getattr(loop.body, "body", ())}
    adds = (n for n in nodes_in(loop.body, cst.AugAssign, cst.Assign) if unit.names.statement(n) in turns)
    return found | {name for each in adds if (name := adds_one(each))}


def numbered(loop: cst.For) -> str:
    """The number that ``enumerate`` gives to each turn of a loop, also inside a progress bar; empty without one."""
    target = loop.target
    counts = any(dotted(n.func) == "enumerate" for n in nodes_in(loop.iter, cst.Call))
    first = target.elements[0].value if isinstance(target, cst.Tuple) and target.elements else None
    return first.value if counts and isinstance(first, cst.Name) else ""


def bars(unit: Unit, holder: cst.CSTNode) -> Iterator[cst.Call]:
    """The calls that make the progress bars that a name may hold."""
    binding = unit.names.binding(holder) if isinstance(holder, cst.Name) else None
    if binding is not None:
        for made in (*bindings_value(unit.names, binding), *entered_values(unit.names, binding)):
            if isinstance(made, cst.Call) and dotted(made.func).rpartition(".")[2] in BARS:
                yield made


def _bar(unit: Unit, update: cst.Call) -> Count | None:
    """A bar with a total of its own that counts rows: ``bar.update(images.shape[0])``."""
    holder = update.func.value if isinstance(update.func, cst.Attribute) else None
    told = update.args[0].value if update.args else None
    if holder is None or told is None or isinstance(told, cst.Integer):
        return None
    for made in bars(unit, holder):
        total = [a.value for a in made.args if a.keyword is not None and a.keyword.value == "total"]
        if total and all(a.keyword is not None for a in made.args):
            return Count(update, "bar", unit.names.module.code_for_node(total[0]))
    return None


def _tells_all(unit: Unit, update: cst.Call, gather: Gather) -> bool:
    """Whether a bar counts rows that come from all processes: gathered before it, or counted in their place."""
    read = set(nodes_in(update, cst.Name))
    if any(name in read for name, _ in gather.counts):
        return True
    names = unit.names
    if gather.form is not Form.GATHER or names.parents.get(gather.node) not in set(names.ancestors(update)):
        return False
    return names.order(gather.node) < names.order(update) and any(node.value in gather.set_anew for node in read)
