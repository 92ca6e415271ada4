"""
Distribution by hand, understood: a group that the script opens, models wrapped in DistributedDataParallel, ranks.

Its author has thought of several processes already: which prints once, what is summed, which rows each process reads.
All of that stays as it is. What is replaced is that with which it was brought about, piece by piece, and only where
every piece has a replacement; a piece without one prevents the replacement of all.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.abilities import Abilities
from ...facts.manual_ddp import Instead
from ...facts.reasons.distributed import Hindrance, KeptCall, NoSpawn, NotReplaced
from ...facts.roles import Role
from ...facts.torch_api import process_calls
from ..dataflow import ranks
from ..dataflow.call_binding import argument_of
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import CallRecord, Function, State, Unit, origins
from ..syntax.nodes import is_docstring, keyword, positional
from ..syntax.walk import descendants, nodes_in
from ..training.training import Training
from .init_sites import Start
from .manual_ddp import ByHand
from .obstacles import also_of_user, obstacle, unsure
from .rank_spellings import number
from .replacements import calls, of_torch, running
from .sampled_loaders import sharded, unshared

_PURE = frozenset(
    "is_available device_count device int getenv get get_rank get_world_size get_default_backend_for_device".split()
)
OPENS = "torch.distributed.init_process_group"
_CLOSES = "torch.distributed.destroy_process_group"
_ASKS = (
    "is_initialized",
    "is_available",
    "get_backend",
    "get_default_backend_for_device",
    "is_nccl_available",
    "is_gloo_available",
    "is_mpi_available",
)
_SUMS = {"": "sum", "SUM": "sum", "AVG": "mean"}
_SETS = frozenset({"MASTER_ADDR", "MASTER_PORT"})
_SETTINGS = ("broadcast_buffers", "find_unused_parameters", "gradient_as_bucket_view", "static_graph", "bucket_cap_mb")
_MATTER = frozenset({"broadcast_buffers"})
"""Settings of DistributedDataParallel that change anything in an engine that finds out by itself what is unused."""


def by_hand(
    state: State, reach: Reach, training: Training, abilities: Abilities, shared: Container[Code]
) -> ByHand | None:
    """How a program distributes itself; None where it does not."""
    if not any(process_calls.distributes(name) for unit in reach.units for _, name in running(reach, unit)):
        return None
    found = _DistributionReader(state, reach, abilities, shared)
    found.read()
    loops = [loop for loop in training.train_loops if not found.result.sharded.isdisjoint(reach.loaders(loop))]
    if training.train_loops and not loops and not found.result.obstacles:
        loop = next(iter(training.train_loops))
        unit = next(unit for unit in reach.units if loop in unit.names.parents)
        found.result.obstacles.append(unshared(state, reach, unit, loop))
    return found.result


class _DistributionReader:
    """Reads one program."""

    def __init__(self, state: State, reach: Reach, abilities: Abilities, shared: Container[Code]) -> None:
        self.state, self.reach, self.abilities, self.shared = state, reach, abilities, shared
        self.result = ByHand()

    def read(self) -> None:
        result = self.result
        self._upwards()
        for unit in self.reach.units:
            for call, name in running(self.reach, unit):
                if call in self.state.calls:
                    found = obstacle(self.state, self.reach, unit, call, name)
                    if found is not None:
                        result.obstacles.append((unit, found))
                    elif process_calls.distributes(name) or of_torch(name):
                        self._piece(unit, call, name)
            result.obstacles.extend((unit, finding) for finding in unsure(self.state, self.reach, unit))
            self._variables(unit)
            self._methods(unit)
        self._switches()
        result.sharded.update(sharded(self.state))
        if result.obstacles:
            return
        for unit in self.reach.units:
            self._pins(unit)
        self._idle()
        self._starts()

    def _upwards(self) -> None:
        """Where a helper joins with the rank that it is handed, what its callers hand it is the rank as well."""
        pending = [
            (r.unit, value, name)
            for r in self.state.calls.values()
            if outside_name(r) == OPENS
            for word, name in (("rank", ranks.RANK), ("world_size", ranks.WORLD_SIZE))
            if (value := keyword(r.node, word)) is not None
        ]
        seen: set[cst.CSTNode] = set()
        while pending:
            unit, value, name = pending.pop()
            binding = unit.names.binding(value) if isinstance(value, cst.Name) else None
            if binding is None or value in seen:
                continue
            seen.add(value)
            self.state.solver.add(self.state.binding(binding), ranks.place(self.state, value, name))
            function = binding.scope.function.node
            params = positional(function) if isinstance(function, cst.FunctionDef) else []
            index = next((i for i, p in enumerate(params) if p in binding.definitions), None)
            for site in self.reach.sites(function):
                if index is None:
                    break
                given = argument_of(site, params[index], index)
                if given is not None and not process_calls.spawns(outside_name(self.state.calls[site])):
                    pending.append((self.state.calls[site].unit, given.value, name))
        self.state.solver.run()

    # Calls ------------------------------------------------------------------------------------------------------------

    def _piece(self, unit: Unit, call: cst.Call, name: str) -> None:
        last = name.rpartition(".")[2]
        alone = isinstance(unit.names.parents.get(call), cst.Expr)
        if name == OPENS:
            self._opens(unit, call)
        elif name == _CLOSES:
            self._goes(unit, call, "the accelerator closes what it opened")
        elif process_calls.spawns(name):
            self._spawns(unit, call)
        elif name in process_calls.wrappers("processes"):
            self._settings(call)
        elif process_calls.is_distributed_sampler(name):
            self._sampler(unit, call)
        elif last == "barrier" and alone:
            self._add(unit, call, "{}.wait_for_everyone()", "this is a barrier for all processes")
        elif last in ("all_reduce", "reduce") and alone and self._reduces(unit, call):
            return
        elif not process_calls.rank_number(name) and last not in _ASKS:
            self._kept(unit, call, last)

    def _add(self, unit: Unit, node: cst.CSTNode, text: str, because: str) -> None:
        needed = "{}" in text
        self.result.pieces.append((unit, Instead(node, text, because, needed=needed)))

    def _goes(self, unit: Unit, call: cst.Call, because: str) -> None:
        statement = unit.names.statement(call)
        self.result.removed.add(statement)
        self._add(unit, statement, "", because)

    def _kept(self, unit: Unit, call: cst.Call, last: str) -> None:
        if _asks_first(unit, call):
            return
        self.result.told.append(
            (
                unit,
                KeptCall(call, last),
            )
        )

    def _opens(self, unit: Unit, call: cst.Call) -> None:
        timeout = keyword(call, "timeout")
        if timeout is not None:
            self.result.arguments["InitProcessGroupKwargs"] = f"timeout={_text(unit, timeout)}"
        self.result.told += [(unit, told) for told in also_of_user(self.state, self.reach, unit, call)]
        self._goes(unit, call, "the accelerator opens the group, under torchrun as well")

    def _settings(self, call: cst.Call) -> None:
        unit = self.state.calls[call].unit
        given = {name: _text(unit, value) for name in _SETTINGS if (value := keyword(call, name)) is not None}
        if self.abilities.transparent_models:
            given = {name: text for name, text in given.items() if name in _MATTER}
        given = {name: text for name, text in given.items() if (name, text) != ("broadcast_buffers", "True")}
        if given:
            told = ", ".join(f"{name}={text}" for name, text in given.items())
            self.result.arguments["DistributedDataParallelKwargs"] = told

    def _sampler(self, unit: Unit, call: cst.Call) -> None:
        names = {arg.keyword.value for arg in call.args if arg.keyword is not None}
        plain = len([arg for arg in call.args if arg.keyword is None])
        wanted = (("num_replicas", "{}.num_processes", 1), ("rank", "{}.process_index", 2))
        more = tuple((name, text) for name, text, index in wanted if name not in names and plain <= index)
        if more:
            because = "each process reads the same rows as before, and a single process reads all of them"
            breaks = "\n" not in _text(unit, unit.names.statement(call)).strip()
            self.result.pieces.append((unit, Instead(call, "", because, more, needed=True, breaks=breaks)))

    def _spawns(self, unit: Unit, call: cst.Call) -> None:
        worker = next(t for t in self.state.slot(_given(call, 0, "fn")).things if isinstance(t, Function))
        node = worker.node
        assert isinstance(node, cst.FunctionDef)
        scope, params = worker.unit.names.scopes[node], positional(node)
        held = [self.state.binding(scope.bindings[p.name.value]).things for p in params]
        gone = {0, *(index for index, things in enumerate(held) if number(things) is not None)}
        given = _given(call, 1, "args") if _has(call, 1, "args") else None
        values = [e.value for e in given.elements] if isinstance(given, (cst.Tuple, cst.List)) else []
        kept = [_text(unit, value) for i, value in enumerate(values, 1) if i not in gone]
        func = _text(unit, _given(call, 0, "fn"))
        self._add(
            unit, call, f"{func}({', '.join(kept)})", "the launcher starts the processes, and each of them runs this"
        )
        self.result.workers[node] = {params[i].name.value for i in gone}
        for index in sorted(gone):
            self._add(worker.unit, params[index], "", "the accelerator knows the rank of the process")
        self.result.told.append(
            (
                unit,
                NoSpawn(call),
            )
        )

    def _reduces(self, unit: Unit, call: cst.Call) -> bool:
        """``dist.all_reduce(x)`` changes ``x``, the accelerator gives a new tensor: right where only ``x`` reads it."""
        target = call.args[0].value
        index = 2 if method_name(call) == "reduce" else 1  # ``reduce`` says who gets the result: now all processes do
        plain = [arg.value for arg in call.args if arg.keyword is None]
        op = keyword(call, "op") or (plain[index] if len(plain) > index else None)
        reduction = _SUMS.get(_text(unit, op).rpartition(".")[2] if op is not None else "")
        waits = keyword(call, "async_op")
        if reduction is None or waits is not None or not self._is_own(unit, target):
            return False
        text = _text(unit, target)
        because = "all processes get the sum" if reduction == "sum" else "all processes get the mean"
        small = unit.names.parents[call]
        self._add(unit, small, f'{text} = {{}}.reduce({text}, reduction="{reduction}")', because)
        return True

    def _is_own(self, unit: Unit, target: cst.BaseExpression) -> bool:
        """Whether nothing but this expression can see that the tensor changes in place."""
        if isinstance(target, cst.Subscript):
            return True  # written into the same place
        if isinstance(target, cst.Attribute):
            return isinstance(target.value, cst.Name)
        if not isinstance(target, cst.Name):
            return False
        binding = unit.names.binding(target)
        function = unit.names.function(target)
        if binding is None or binding.scope.function.node is not function:
            return False
        returned = {
            n.value
            for r in unit.names.returns.get(function, ())
            if r.value is not None
            for n in nodes_in(r.value, cst.Name)
        }
        for definition in binding.definitions:
            if isinstance(definition, cst.Param) and target.value not in returned:
                return False
            if isinstance(definition, cst.Param) and self._read_behind(function):
                return False
            assign = next(unit.names.enclosing(definition, cst.Assign), None)
            value = assign.value if isinstance(assign, cst.Assign) else None
            if isinstance(value, (cst.Name, cst.Attribute)):
                return False  # another name for the same tensor
        return True

    def _read_behind(self, function: cst.CSTNode) -> bool:
        """Whether a caller throws away what a function returns: it counts on its argument having changed."""
        for site in self.reach.sites(function):
            if isinstance(self.state.calls[site].unit.names.parents.get(site), cst.Expr):
                return True
        return False

    # Variables, methods, places ---------------------------------------------------------------------------------------

    def _variables(self, unit: Unit) -> None:
        """``os.environ["MASTER_ADDR"] = "localhost"``."""
        for node in unit.names.parents:
            if not isinstance(node, cst.SimpleString) or node.evaluated_value not in _SETS:
                continue
            line = unit.names.statement(node)
            small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
            text = _text(unit, small) if small is not None else ""
            target = isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Subscript)
            called = isinstance(small, cst.Expr) and ".setdefault(" in text
            if text.startswith(("os.environ", "environ")) and (target or called):
                self.result.removed.add(line)
                self._add(unit, line, "", "the launcher sets the rendezvous address")

    def _methods(self, unit: Unit) -> None:
        """``model.no_sync()``."""
        for call in unit.names.calls:
            record = self.state.calls.get(call)
            if record is None or method_name(call) != "no_sync" or not origins(record.receiver, Role.MODEL):
                continue
            if isinstance(call.func, cst.Attribute):
                model = _text(unit, call.func.value)
                self._add(unit, call, f"{{}}.no_sync({model})", "gradients are not averaged in here")

    def _switches(self) -> None:
        """
        ``model.require_backward_grad_sync = step == last``: the wrapper's own ``no_sync``.

        Without it every backward pass exchanges its gradients, which gives the same sum; one that never exchanges would
        train each process for itself.
        """
        found = [(unit, statement, value) for unit in self.reach.units for statement, value in _switches(unit)]
        if all(isinstance(value, cst.Name) and value.value == "False" for _, _, value in found):
            kept = ((unit, NotReplaced(at, Hindrance.EXCHANGE_SWITCH)) for unit, at, _ in found)
            self.result.obstacles.extend(kept)
            return
        for unit, statement, _ in found:
            self.result.switches.append(statement)
            self.result.removed.add(statement)
            self._add(unit, statement, "", "without the wrapper every backward pass exchanges gradients")

    # Where it starts --------------------------------------------------------------------------------------------------

    def _pins(self, unit: Unit) -> None:
        for call in unit.names.calls:
            record = self.state.calls.get(call)
            if record is not None and process_calls.pins(outside_name(record)):
                self.result.removed.add(unit.names.statement(call))

    def _idle(self) -> None:
        """Functions that do nothing but join and leave: they go, with their calls."""
        for unit in self.reach.units:
            for function in unit.names.functions:
                if not isinstance(function, cst.FunctionDef) or function in self.shared or function.decorators:
                    continue
                body = [s for s in getattr(function.body, "body", ()) if not is_docstring(s)]
                gives = any(r.value is not None for r in unit.names.returns.get(function, ()))
                if gives or not self._joins(body) or not all(self._chooses(s) for s in body):
                    continue
                sites = [self.state.calls[site] for site in self.reach.sites(function)]
                alone = all(isinstance(r.unit.names.parents.get(r.node), cst.Expr) for r in sites)
                within = unit.names.within.get(function)
                if sites and alone and within is not None and not isinstance(within.node, cst.ClassDef):
                    self._leaves(unit, function, sites)

    def _joins(self, body: list[cst.CSTNode]) -> bool:
        """Whether something of a function's body goes."""
        return any(node in self.result.removed for statement in body for node in descendants(statement))

    def _only_chooses(self, code: Code) -> bool:
        """Whether a function joins the processes and gives a device or a rank, and does nothing else."""
        body = getattr(getattr(code, "body", None), "body", ())
        return all(self._chooses(statement) for statement in body)

    def _chooses(self, statement: cst.CSTNode) -> bool:
        if statement in self.result.removed or is_docstring(statement):
            return True
        if isinstance(statement, cst.If):
            branches = (statement.body, statement.orelse.body if isinstance(statement.orelse, cst.Else) else None)
            inner = [s for branch in branches for s in getattr(branch, "body", ())]
            return not isinstance(statement.orelse, cst.If) and all(self._chooses(s) for s in inner)
        smalls = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        return bool(smalls) and all(self._is_plain(small) for small in smalls)

    def _is_plain(self, small: cst.CSTNode) -> bool:
        """Whether a statement gives a variable a value, or returns one, without any other effect."""
        if isinstance(small, (cst.Pass, cst.Import, cst.ImportFrom)):
            return True
        if isinstance(small, cst.Assign) and all(isinstance(t.target, cst.Name) for t in small.targets):
            value: cst.CSTNode | None = small.value
        elif isinstance(small, cst.Return):
            value = small.value
        else:
            return False
        asked = nodes_in(value, cst.Call) if value is not None else ()
        return all(method_name(n) in _PURE for n in asked)

    def _leaves(self, unit: Unit, function: cst.FunctionDef, sites: list[CallRecord]) -> None:
        result, inside = self.result, set(descendants(function))
        result.idle[function] = unit
        result.pieces = [(u, p) for u, p in result.pieces if p.node not in inside]
        self._add(unit, function, "", "this has no work left")
        for record in sites:
            self._goes(record.unit, record.node, "this has no work left")

    def _starts(self) -> None:
        for unit in self.reach.units:
            for call, name in calls(self.state, unit):
                if name != OPENS or unit.names.function(call) not in self.reach.reachable:
                    continue
                here, statement, whole = unit, unit.names.statement(call), True
                self.result.starts.append(self._start(here, statement, whole))
                for _ in range(4):  # and where the function around it is called
                    code = here.names.function(statement)
                    sites = [s for s in self.reach.sites(code) if self.reach.function_of(s) in self.reach.reachable]
                    if isinstance(code, cst.Module) or len(sites) != 1:
                        break
                    whole = whole and code in self.result.idle
                    only = code if self._only_chooses(code) and code not in self.shared else None
                    here = self.state.calls[sites[0]].unit
                    statement = here.names.statement(sites[0])
                    self.result.starts.append(self._start(here, statement, whole, only))

    def _start(self, unit: Unit, statement: cst.CSTNode, whole: bool, only: cst.CSTNode | None = None) -> Start:
        sooner = self._asked_before(unit, statement)
        return Start(unit, sooner, whole=False) if sooner is not None else Start(unit, statement, whole, only)

    def _asked_before(self, unit: Unit, start: cst.CSTNode) -> cst.CSTNode | None:
        """The first statement before a start that reads a number which a worker was started with, and loses: from there
        on the accelerator gives it."""
        code = unit.names.function(start)
        if not isinstance(code, cst.FunctionDef) or code not in self.result.workers:
            return None
        order, scope = unit.names.order, unit.names.scopes[code]
        reads = [read for word in self.result.workers[code] for read in scope.bindings[word].reads]
        first = min(filter(unit.names.parents.__contains__, reads), key=order, default=None)
        if first is None or order(first) > order(start):
            return None
        inside = (first, *unit.names.ancestors(first))
        return next(node for node in inside if unit.names.parents[node] is code.body)


def _asks_first(unit: Unit, call: cst.Call) -> bool:
    """Whether the function around a call asks whether there is a group."""
    function = unit.names.function(call)
    if isinstance(function, cst.Module):
        return False
    return any(n.attr.value in _ASKS for n in nodes_in(function, cst.Attribute))


def _text(unit: Unit, node: cst.CSTNode) -> str:
    return unit.names.module.code_for_node(node)


def _has(call: cst.Call, index: int, name: str) -> bool:
    plain = [a for a in call.args if a.keyword is None]
    return len(plain) > index or keyword(call, name) is not None


def _given(call: cst.Call, index: int, name: str) -> cst.BaseExpression:
    """An argument by position or keyword, which is there."""
    named = keyword(call, name)
    return named if named is not None else call.args[index].value


def _switches(unit: Unit) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """The statements that set the wrapper's switch, each with what they set it to."""
    for node in unit.names.every(cst.Assign):
        targets = [target.target for target in node.targets]
        if any(isinstance(t, cst.Attribute) and t.attr.value == "require_backward_grad_sync" for t in targets):
            yield unit.names.statement(node), node.value
