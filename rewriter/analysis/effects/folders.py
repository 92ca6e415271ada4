"""Folders that a run makes: who may make them, and that all processes mean the same one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.effects import Folder, Received
from ...facts.reasons import Reason
from ...facts.reasons.effects import FolderOfAll, SearchedName, TemporaryFolder
from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.containers import members
from ..dataflow.trails import Trail, traces
from ..dataflow.values import State, Unit
from ..syntax.definitions import seen_values
from ..syntax.walk import descendants, nodes_in
from .existing_guards import guarded, starred
from .handles import Handles, asks_existence

_MAKING = frozenset("os.makedirs os.mkdir os.chdir".split())
_REMOVED = "tempfile.TemporaryDirectory"
_COUNTING = ("builtins.len", "builtins.max")
"""What tells how many entries a folder has, and the highest of their numbers."""
_CHOICES = (cst.If, cst.IfExp, cst.Try, cst.While, cst.For)


def folders(state: State, unit: Unit, reach: Reach) -> Iterator[Folder]:
    """Folders that are made if they are not there: any process may be the first."""
    handles = Handles(state, unit)
    for call in making(state, unit, reach):
        if handles.may_exist(call) or not handles.is_tested(call) or starred(call):
            continue
        name = outside_name(state.calls[call])
        if name == "os.mkdir":
            bare = isinstance(call.func, cst.Name) and "makedirs" not in unit.names.scope.bindings
            if (bare or isinstance(call.func, cst.Attribute)) and len(call.args) == 1:
                yield Folder(call, renamed=True)
        elif name == "os.makedirs" and len(call.args) > 2:
            continue
        else:
            yield Folder(call, renamed=False)


def making(state: State, unit: Unit, reach: Reach) -> Iterator[cst.Call]:
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None or unit.names.function(call) not in reach.reachable or guarded(state, unit, call):
            continue
        name = outside_name(record)
        method = method_name(call) == "mkdir" and isinstance(call.func, cst.Attribute) and name != "os.mkdir"
        if name in ("os.makedirs", "os.mkdir") or (method and not name.startswith("os.")):
            yield call


def made_by_all(state: State, statements: Iterable[cst.CSTNode]) -> dict[cst.CSTNode, Folder]:
    """The statements that make a folder which must be new, where nobody can say which process is to make it."""
    found: dict[cst.CSTNode, Folder] = {}
    for statement in statements:
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        call = small.value if isinstance(small, cst.Expr) else None
        if isinstance(call, cst.Call) and call in state.calls and len(call.args) < 3 and not starred(call):
            name = outside_name(state.calls[call])
            if name == "os.mkdir" and isinstance(call.func, cst.Attribute) and len(call.args) == 1:
                found[statement] = Folder(call, renamed=True)
            elif name == "os.makedirs" or (method_name(call) == "mkdir" and not name.startswith("os.")):
                found[statement] = Folder(call, renamed=False)
    return found


def may_be_there(folder: Folder) -> Reason:
    """The finding for such a folder."""
    return FolderOfAll(folder.call)


def received(state: State, reach: Reach) -> Iterator[tuple[Unit, Received | Reason]]:
    """Names of folders that would differ from process to process: made by the main process, handed to the others."""
    sources: dict[cst.CSTNode, None] = {}
    for unit in reach.units:
        for call in unit.names.calls:
            if call in state.calls and unit.names.function(call) in reach.reachable:
                for value in _paths(state, call):
                    for trace in traces(state.values.get(value), Trail.STAMP):
                        sources.update(dict.fromkeys(_where_one_way(state, reach, trace.node)))
    done: set[cst.CSTNode] = set()
    asked: dict[cst.CSTNode, Unit] = {}
    for source in sources:
        unit = next(u for u in reach.units if source in u.names.parents)
        assert isinstance(source, cst.Call)
        if outside_name(state.calls[source]) == _REMOVED:
            around = next(unit.names.enclosing(source, cst.With), None)
            shared = isinstance(around, cst.With) and any(map(_broadcasts, around.body.body[:1]))
            if not guarded(state, unit, source) and not shared:
                yield unit, _temporary(unit, source)
            continue
        node = _whole(state, unit, source)
        if node not in done and not _is_handed_out(unit, source) and not guarded(state, unit, source):
            done.add(node)
            if _is_chosen_by_entries(state, unit, source):
                yield unit, SearchedName(source)
                continue
            yield unit, Received(node, source, "each process would have a different name")
            asked.update(dict.fromkeys(_questions_around(state, unit, node), unit))
    for question, unit in asked.items():
        if question not in done and not _is_handed_out(unit, question):
            assert isinstance(question, cst.Call)
            yield (
                unit,
                Received(question, question, "all processes must go on alike, and one may make the folder first"),
            )
    for unit in reach.units:
        yield from ((unit, answer) for answer in _numbered(state, unit, reach))


def _where_one_way(state: State, reach: Reach, source: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The call that gives what differs, or those of the function around it, where what the function finds in a folder
    may decide whether it comes to that call: ``return max(numbers) + 1 if numbers else 0``."""
    unit = next(u for u in reach.units if source in u.names.parents)
    code = unit.names.function(source)
    counts = isinstance(source, cst.Call) and outside_name(state.calls[source]) in _COUNTING
    if counts and isinstance(code, cst.FunctionDef) and _decides(unit, code, source):
        yield from reach.sites(code)
    else:
        yield source


def _decides(unit: Unit, code: cst.FunctionDef, source: cst.CSTNode) -> bool:
    """Whether a function comes to a call on some ways alone: in a branch, or after a ``return``."""
    inside = set(descendants(code.body))
    around = [node for node in unit.names.ancestors(source) if node in inside]
    order = unit.names.order
    returns = (answer for answer in unit.names.returns.get(code, ()) if answer not in around)
    return any(isinstance(node, _CHOICES) for node in around) or any(order(node) < order(source) for node in returns)


def _questions_around(state: State, unit: Unit, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The questions for files that decide whether a process comes to a node: ``while os.path.isdir(path):``, also by a
    variable. One process may have made the folder before another asks."""
    below = node
    for around in unit.names.ancestors(node):
        if isinstance(around, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            return
        if isinstance(around, (cst.If, cst.While, cst.IfExp)) and below is not around.test:
            parts = list(descendants(around.test))
            values = [v for part in parts if isinstance(part, cst.Name) for v in seen_values(unit.names, part)]
            for part in (*parts, *(part for value in values for part in descendants(value))):
                if asks_existence(part) or any(t.node is part for t in traces(state.values.get(part), Trail.STAMP)):
                    yield part
        below = around


def _is_chosen_by_entries(state: State, unit: Unit, source: cst.CSTNode) -> bool:
    """Whether a branch around a call depends on whether a folder has entries: ``if numbers:``."""
    for around in unit.names.ancestors(source):
        if isinstance(around, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            return False
        asked = around.test if isinstance(around, (cst.If, cst.While, cst.IfExp)) else None
        asked = asked.expression if isinstance(asked, cst.UnaryOperation) else asked
        slot = state.values.get(asked) if asked is not None else None
        inside = members(state, slot) if slot is not None else None
        state.solver.run()
        if traces(slot, Trail.LISTING) or traces(inside, Trail.NUMBER):
            return True
    return False


def _temporary(unit: Unit, source: cst.Call) -> Received | Reason:
    """A temporary folder of the main process for all, until every process has left its ``with``."""
    item = unit.names.parents.get(source)
    around = unit.names.parents.get(item) if isinstance(item, cst.WithItem) else None
    name = item.asname.name if isinstance(item, cst.WithItem) and item.asname is not None else None
    body = around.body.body if isinstance(around, cst.With) else ()
    leaves = any(isinstance(node, cst.Return) for statement in body for node in descendants(statement))
    alone = isinstance(around, cst.With) and len(around.items) == 1 and isinstance(around.body, cst.IndentedBlock)
    if isinstance(around, cst.With) and alone and isinstance(name, cst.Name) and not leaves:
        return Received(around, source, "each process would have a temporary folder of its own", (name.value,))
    return TemporaryFolder(source)


def _paths(state: State, call: cst.Call) -> Iterator[cst.BaseExpression]:
    """The expressions that name the folder which a call makes, or the file which it reads on every process."""
    name = outside_name(state.calls[call])
    if name in _MAKING or surroundings.reads(name):
        yield from (arg.value for arg in call.args[:1])
    elif method_name(call) == "mkdir" and isinstance(call.func, cst.Attribute):
        yield call.func.value
    elif name in ("torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter"):
        return


_BUILDING = (cst.Attribute, cst.FormattedString, cst.ConcatenatedString, cst.BinaryOperation, cst.Subscript)
_TEXT = frozenset("str int round float format join hex".split())


def _whole(state: State, unit: Unit, source: cst.Call) -> cst.BaseExpression:
    """The whole of the name that an expression makes, from the clock on outwards."""
    names = unit.names
    here: cst.BaseExpression = source
    for around in names.ancestors(source):
        if isinstance(around, _BUILDING):
            here = around
        elif isinstance(around, cst.Call):
            record = state.calls.get(around)
            name = outside_name(record) if record is not None else ""
            method = isinstance(around.func, cst.Attribute) and around.func is here
            makes = name.startswith(("os.path.", "pathlib.", "datetime.", "time.strf")) or (
                name.rpartition(".")[0] == "builtins" and name.rpartition(".")[2] in _TEXT
            )
            if not (method or makes or method_name(around) in ("format", "join")):
                break
            here = around
        elif not isinstance(around, (cst.Arg, cst.FormattedStringExpression, cst.Index, cst.SubscriptElement)):
            break
    if isinstance(here, cst.Attribute):  # the last step is a call that does something else: Path(...).mkdir()
        here = here.value
    return here


def _is_handed_out(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a value goes through a broadcast already."""
    calls = (a for a in unit.names.ancestors(node) if isinstance(a, cst.Call))
    return any(method_name(call) in ("broadcast_object_list", "gather_object") for call in calls)


# Names found by counting ----------------------------------------------------------------------------------------------


def _numbered(state: State, unit: Unit, reach: Reach) -> Iterator[Received | Reason]:
    """Loops that look for a name that is still free: another process may have taken it meanwhile."""
    for loop in unit.names.loops:
        if unit.names.function(loop) not in reach.reachable or not isinstance(loop, (cst.While, cst.For)):
            continue
        asked = _question(unit, loop)
        if asked is None or guarded(state, unit, loop) or _followed_by_broadcast(unit, loop):
            continue
        returns = list(nodes_in(loop.body, cst.Return))
        if returns:
            yield SearchedName(asked)
            continue
        names = _set_and_read(unit, loop)
        if names:
            yield Received(loop, asked, "the processes may find different unused names", names)


def _question(unit: Unit, loop: cst.While | cst.For) -> cst.Call | None:
    """The call that asks whether a name is taken, where a loop goes on until one is free."""
    tests = [loop.test] if isinstance(loop, cst.While) else []
    ends = ((node, around) for node in _ends(unit, loop) for around in _choices(unit, loop, node))
    tests += [around.test for node, around in ends if not _has_found(node, around)]
    parts = [part for test in tests for part in descendants(test)]
    values = [v for part in parts if isinstance(part, cst.Name) for v in seen_values(unit.names, part)]
    for node in (*parts, *(part for value in values for part in descendants(value))):
        if asks_existence(node) and isinstance(node, cst.Call):
            return node if _only_counts(loop) else None
    return None


def _has_found(end: cst.CSTNode, around: cst.If) -> bool:
    """Whether a loop ends at an existing file: ``if path.exists(): return path`` looks for no unused name."""
    parts = list(descendants(around.test))
    asked = any(map(asks_existence, parts)) and not any(isinstance(node, (cst.Not, cst.Comparison)) for node in parts)
    return isinstance(end, (cst.Return, cst.Break)) and asked and end in set(descendants(around.body))


def _ends(unit: Unit, loop: cst.While | cst.For) -> Iterator[cst.CSTNode]:
    """What ends a loop: a `break`, a `return`, a new value of what its condition reads; and what goes past these."""
    read = {n.value for n in nodes_in(loop.test, cst.Name)} if isinstance(loop, cst.While) else ()
    found = [
        node
        for node in descendants(loop.body)
        if (isinstance(node, cst.Break) and next(unit.names.enclosing(node, cst.For, cst.While), None) is loop)
        or isinstance(node, cst.Return)
        or (isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name) and node.target.value in read)
    ]
    yield from found
    yield from (node for node in descendants(loop.body) if found and isinstance(node, cst.Continue))


def _choices(unit: Unit, loop: cst.CSTNode, node: cst.CSTNode) -> Iterator[cst.If]:
    """The conditions in a loop on which a node depends."""
    for around in unit.names.ancestors(node):
        if around is loop:
            return
        if isinstance(around, cst.If):
            yield around


def _only_counts(loop: cst.While | cst.For) -> bool:
    """Whether a loop does nothing but to make names: no waiting, no training, no reading of files."""
    counted = isinstance(loop, cst.For)
    for node in descendants(loop.body):
        if isinstance(node, (cst.AugAssign, cst.Assign)):
            counted = True
        if isinstance(node, cst.Call):
            known = asks_existence(node) or method_name(node) in ("join", "format", "str", "Path", "int", "mkdir")
            if not known and method_name(node) not in ("makedirs", "print", "with_name", "strip", "count"):
                return False
    return counted


def _set_and_read(unit: Unit, loop: cst.While | cst.For) -> tuple[str, ...]:
    """The variables that a loop sets and the code after it reads; what it sets in an object or a dictionary, whoever
    reads that."""
    inside = set(descendants(loop))
    order = unit.names.order
    found = []
    for scope in unit.names.scopes.values():
        for binding in scope.bindings.values():
            if any(d in inside for d in binding.definitions):
                reads = [r for r in binding.reads if r in unit.names.parents and r not in inside]
                if any(order(r) > order(loop) for r in reads):
                    found.append(binding.name)
    targets = [node.target for node in nodes_in(loop.body, cst.AssignTarget, cst.AugAssign)]
    placed = sorted((node for node in targets if isinstance(node, (cst.Attribute, cst.Subscript))), key=order)
    return tuple(dict.fromkeys([*found, *(unit.names.module.code_for_node(_place(node)) for node in placed)]))


def _place(target: cst.BaseExpression) -> cst.BaseExpression:
    """What is set by an assignment, however the loop counts: ``args.run``, ``paths["run"]``, and all of ``paths`` for
    ``paths[i]``."""
    while isinstance(target, cst.Subscript):
        index = target.slice[0].slice
        if isinstance(index, cst.Index) and isinstance(index.value, (cst.SimpleString, cst.Integer)):
            break
        target = target.value
    return target


def _followed_by_broadcast(unit: Unit, loop: cst.CSTNode) -> bool:
    block = unit.names.parents.get(loop)
    body = list(getattr(block, "body", ()))
    position = next((i for i, statement in enumerate(body) if statement is loop), len(body))
    return any(map(_broadcasts, body[position + 1 : position + 2]))


def _broadcasts(statement: cst.CSTNode) -> bool:
    calls = nodes_in(statement, cst.Call)
    return any(method_name(call) == "broadcast_object_list" for call in calls)
