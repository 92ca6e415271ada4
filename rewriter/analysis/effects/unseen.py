"""
What nothing in this program shows: effects of packages that no table describes, and downloads in code that is chosen by
name when the program runs. They are reported, each with its place.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.container_methods import changes
from ...facts.module import Count
from ...facts.module_paths import ENTRY
from ...facts.reasons import Reason
from ...facts.reasons.effects import ChosenDownload, UnknownEffects
from ...facts.roles import SHARES, Role
from ...facts.torch_api import questions, surroundings
from ...facts.torch_api.loading import row
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.containers import collects
from ..dataflow.values import CallRecord, External, State, Unit, Unknown, origins
from ..syntax.definitions import plain_values
from ..syntax.nodes import is_none, keyword
from ..syntax.scopes import Binding
from ..training.training import Training
from .brought import brings
from .existing_guards import guarded, in_turn

_ROLES = (*SHARES, Role.MODEL, Role.OPTIMIZER, Role.SCHEDULER, Role.LOADER, Role.ACCELERATOR, Role.CRITERION)
_BY_NAME = frozenset({"builtins.eval", "builtins.getattr", "importlib.import_module", "builtins.globals"})
"""What gives a function or a class by a name that is made when the program runs."""


def unseen(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Reason]:
    """The findings of one module."""
    yield from _of_unknown_packages(state, unit, reach, training)
    yield from _downloads_chosen_by_name(state, unit, reach)


def _of_unknown_packages(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Reason]:
    """
    Calls of packages that no table describes, whose results nobody takes, once the training has begun: a row for a
    shared table, a message. One finding for each package.
    """
    calls: dict[str, list[cst.Call]] = {}
    begun = _TrainingBegun(reach, training)
    for package, call in _effects_of_unknown_packages(state, unit, reach):
        if begun(unit, call):
            calls.setdefault(package, []).append(call)
    for package, found in calls.items():
        asked = [call for call in _asked_too(unit, found) if begun(unit, call)]
        texts = tuple(dict.fromkeys(f"{unit.names.one_line(call.func)}(...)" for call in (*found, *asked)))
        yield UnknownEffects(found[0], texts, package.replace(ENTRY, ""))


def _asked_too(unit: Unit, found: list[cst.Call]) -> Iterator[cst.Call]:
    """What is called beside such calls on the same thing, and whose result is taken: ``model = run.register(path)``."""
    held = (call.func.value for call in found if isinstance(call.func, cst.Attribute))
    things = [thing for thing in held if isinstance(thing, cst.Name)]
    bindings = {binding for thing in things if (binding := unit.names.binding(thing)) is not None}
    for call in unit.names.calls:
        thing = call.func.value if isinstance(call.func, cst.Attribute) else None
        if call.args and call not in found and isinstance(thing, cst.Name) and unit.names.binding(thing) in bindings:
            yield call


def before_training(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Count]:
    """Such calls before the training begins: most set something up in the process. The summary names them."""
    begun = _TrainingBegun(reach, training)
    for package, call in _effects_of_unknown_packages(state, unit, reach):
        if not begun(unit, call) and package != ENTRY:
            name = unit.names.one_line(call.func)
            yield Count(call, "unseen", name if name.startswith(package) else f"{name} of {package}")


def _effects_of_unknown_packages(state: State, unit: Unit, reach: Reach) -> Iterator[tuple[str, cst.Call]]:
    """The calls of packages that no table describes and whose results nobody takes, each with its package."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None or not call.args or not _is_thrown_away(unit, call) or brings(record):
            continue
        if (collects(state, call, changes) and _is_read(unit, call)) or _trains(state, call):
            continue
        package = _unknown_package(state, unit, reach, call)
        if package and unit.names.function(call) in reach.reachable and not guarded(state, unit, call):
            yield package, call


def _is_thrown_away(unit: Unit, call: cst.Call) -> bool:
    """Whether nobody takes what a call gives, or a notebook's cell only shows it: ``shown = mount(path)``, and then
    ``if shown is not None: print(shown)``."""
    above = unit.names.parents.get(call)
    target = above.targets[0].target if isinstance(above, cst.Assign) and len(above.targets) == 1 else None
    if not isinstance(target, cst.Name) or above is None:
        return isinstance(above, cst.Expr)
    body = list(getattr(unit.names.block(above), "body", ()))
    behind = body[body.index(unit.names.statement(above)) + 1 :][:1]
    test = behind[0].test if behind and isinstance(behind[0], cst.If) else None
    return test is not None and unit.names.module.code_for_node(test) == f"{target.value} is not None"


def _trains(state: State, call: cst.Call) -> bool:
    """Whether a call is given the parameters of a model: it clips or changes them."""
    return any(origins(state.values.get(arg.value), Role.PARAMETERS) for arg in call.args)


def _is_read(unit: Unit, call: cst.Call) -> bool:
    """Whether the program reads what an object has collected: a meter, ``losses.avg``, ``losses.value()``."""
    root = call.func
    while isinstance(root, (cst.Attribute, cst.Subscript)):
        root = root.value
    binding = unit.names.binding(root) if isinstance(root, cst.Name) else None
    for read in binding.reads if binding is not None else ():
        around = unit.names.parents.get(read)
        above = unit.names.parents.get(around) if isinstance(around, cst.Attribute) else around
        asked = isinstance(above, cst.Call) and above.func is around
        if above is None or not asked or not isinstance(unit.names.parents.get(above), cst.Expr):
            return True
    return False


def _unknown_package(state: State, unit: Unit, reach: Reach, call: cst.Call) -> str:
    """The package from which what is called comes, where nothing is known of it; or none."""
    if reach.called(call) or origins(state.calls[call].receiver, *_ROLES):
        return ""
    packages = set(_packages(state, unit, reach, call.func, set()))
    unknown = len(packages) == 1 and not any(map(questions.is_described, packages))
    if packages == {ENTRY} and row(f"torch.nn.Module.{method_name(call)}") is not None:
        return ""  # what a model does in its own process
    return packages.pop() if unknown else ""


def _packages(state: State, unit: Unit, reach: Reach, node: cst.CSTNode, seen: set[Binding]) -> Iterator[str]:
    """The packages from which a value comes, by calls and attributes of what they give; empty text where it is no
    package's. None comes from nowhere."""
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.Call)):
        if isinstance(node, cst.Call) and reach.called(node):
            yield ""
            return
        node = node.func if isinstance(node, cst.Call) else node.value
    if is_none(node):
        return
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    if not isinstance(node, cst.Name) or binding in seen:
        yield ""
        return
    held = state.values.get(node)
    things = held.things if held is not None else ()
    outside = [t.qualified for t in things if isinstance(t, (External, Unknown)) and t.qualified != "builtins.None"]
    if outside or binding is None:
        yield from {name.partition(".")[0] for name in outside or [""]}
        return
    seen.add(binding)
    values = [(unit, value) for value in plain_values(unit.names, node)] + list(reach.given(binding))
    for where, value in values:
        yield from _packages(state, where, reach, value, seen)
    if not values:
        yield ""


class _TrainingBegun:
    """Whether code runs in a training, or after one."""

    def __init__(self, reach: Reach, training: Training) -> None:
        self.reach, self.training = reach, training
        self.trains: set[Code] = set()
        for loop in training.train_loops:
            self.trains.update(reach.above(reach.unit_of(loop, reach.units[0]).names.function(loop)))

    def __call__(self, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
        names, code = unit.names, unit.names.function(node)
        starts = (n for n in (*self.training.train_loops, *names.calls) if n in names.parents and self._trains(n))
        if any(names.function(start) is code and names.order(start) < names.order(node) for start in starts):
            return True
        return code not in seen and any(
            self(self.reach.state.calls[site].unit, site, seen | {code}) for site in self.reach.sites(code)
        )

    def _trains(self, node: cst.CSTNode) -> bool:
        called = self.reach.called(node) if isinstance(node, cst.Call) else ()
        return node in self.training.train_loops or not self.trains.isdisjoint(called)


def _downloads_chosen_by_name(state: State, unit: Unit, reach: Reach) -> Iterator[Reason]:
    """Downloads in code that nothing is seen to call, in a program that chooses classes by a name."""
    chosen = next(iter(_chosen_by_name(state, reach)), None)
    if chosen is None:
        return
    where, by = chosen
    for call in unit.names.calls:
        record, code = state.calls.get(call), unit.names.function(call)
        if record is None or code in reach.reachable or not _brings(record) or in_turn(state, unit, call):
            continue
        around = next((a for a in unit.names.ancestors(call) if isinstance(a, cst.ClassDef)), code)
        named = around.name.value if isinstance(around, (cst.ClassDef, cst.FunctionDef)) else "it"
        yield ChosenDownload(call, named, where.names.one_line(by), method_name(by))


def _brings(record: CallRecord) -> bool:
    """Whether a call downloads."""
    asked = keyword(record.node, "download")
    wanted = asked is not None and not (isinstance(asked, cst.Name) and asked.value in ("False", "None"))
    return wanted or surroundings.fetches(outside_name(record)) or questions.downloads_always(outside_name(record))


def _chosen_by_name(state: State, reach: Reach) -> list[tuple[Unit, cst.Call]]:
    """The calls that give a function or a class by a name, which is then called."""
    calls = ((unit, call) for unit in reach.units for call in unit.names.calls if call in state.calls)
    return state.once(
        _chosen_by_name,
        lambda: [(u, c) for u, c in calls if outside_name(state.calls[c]) in _BY_NAME and is_called(u, c)],
    )


def is_called(unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether what an expression gives is called: in place, or by the variable that it is assigned to."""
    pending, seen = [value], set[cst.CSTNode]()
    while pending:
        value = pending.pop()
        above = unit.names.parents.get(value)
        if isinstance(above, cst.Call) and above.func is value:
            return True
        if above is None or above in seen:
            continue  # ``node = node.next`` comes round again
        seen.add(above)
        if isinstance(above, (cst.Subscript, cst.Attribute)) and above.value is value:
            pending.append(above)
        elif isinstance(above, cst.Assign):
            targets = [target.target for target in above.targets]
            bindings = [unit.names.binding(target) for target in targets if isinstance(target, cst.Name)]
            reads = (read for binding in bindings if binding is not None for read in binding.reads)
            pending += [read for read in reads if isinstance(read, cst.Name)]
    return False
