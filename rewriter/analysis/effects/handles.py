"""
What is made at one place and used at many: trackers, log files, open files, folders.

The uses stay as they are. Where the thing is made, the other processes get one that does nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.effects import Effect, EffectKind, Handle
from ...facts.module_paths import ENTRY
from ...facts.reasons import Reason
from ...facts.reasons.effects import RunName, RunsCommand, RunsOnAll, SharedFile, TrackedValue
from ...facts.torch_api import questions, surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import built_names, method_name, outside_name, outside_names
from ..dataflow.values import External, Klass, State, Unit, Unknown
from ..syntax.leaving import ends
from ..syntax.nodes import dotted, keyword
from ..syntax.walk import descendants, nodes_in
from ..training.draws import drawn
from .brought import only_asks
from .existing_guards import Together, guarded, names_main, starred
from .handle_reads import HandleReads

INERT = "Inert()"
_TRACKS = "each process would track its own run"
_SAME_FILE = "every process would write the same file"

_RUN = "mlflow.start_run"
_ASKS_FOR_RUN = frozenset({"mlflow.active_run", "mlflow.last_active_run", "mlflow.get_artifact_uri"})
_WRITES = frozenset({"write", "writelines", "flush", "close", "truncate"})
_TELLS = frozenset("log_dir logdir get_logdir dir id name url path info run_id get_key get_name".split())
"""What the run of a module tells, and scripts name files by."""

COMMANDS = (
    "os.system",
    "os.popen",
    "subprocess.run",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.Popen",
)
"""What runs a command of the system."""
_ONCE = {
    "wandb.agent": "starts one sweep per process",
    "wandb.sweep": "starts one sweep per process",
    "loguru.logger.add": "every process writes to the log",
    "coloredlogs.install": "every process logs to the console",
    "h5py.File": _SAME_FILE,
    "pandas.ExcelWriter": _SAME_FILE,
    **dict.fromkeys(COMMANDS, "every process runs the command"),
}


_LEVELLED = frozenset("logging.getLogger logging.Logger logging.StreamHandler".split())
_QUIET = frozenset({"WARNING", "WARN", "ERROR", "CRITICAL", "FATAL"})


class Handles:
    """Finds the handles of one module."""

    def __init__(self, state: State, unit: Unit) -> None:
        self.state, self.unit = state, unit

    # Trackers ---------------------------------------------------------------------------------------------------------

    def trackers(
        self, reach: Reach, settled: Container[cst.CSTNode], together: Together, asked: Container[cst.CSTNode] = ()
    ) -> Iterator[Handle | Effect | Reason]:
        """The trackers of a module, and what else is made by every process and cannot be settled here. ``asked``: what
        makes files where they are missing, the main process before the others."""
        for call in self.unit.names.calls:
            record = self.state.calls.get(call)
            if record is None or self.unit.names.function(call) not in reach.reachable:
                continue
            around = (call, *self.unit.names.ancestors(call))
            if guarded(self.state, self.unit, call) or any(node in settled for node in around):
                continue
            names, own = outside_names(record), [klass for klass in record.callees if isinstance(klass, Klass)]
            kinds = [questions.tracker(name) for name in names]
            if own and any(map(questions.tracker, built_names(record))):
                yield from self._own(call, own, settled, together)
            elif kinds and None not in kinds:
                arguments = {kind.off for kind in kinds if kind is not None}
                if names == [_RUN] and self._is_begun_by_one(call, reach):
                    yield Effect(self.unit.names.statement(call), EffectKind.WRITE, _TRACKS)
                elif arguments == {""} or len(arguments) > 1:
                    film = all(kind.file for kind in kinds if kind is not None)
                    yield from self._replaced(call, settled, film=film)
                else:
                    yield from self._switched(call, names[0], arguments.pop(), settled)
            elif name := next((n for n in built_names(record) if n in _ONCE and self._counts(call, n)), ""):
                if name == "h5py.File" and any(node in asked for node in around):
                    continue
                yield RunsCommand(call) if name in COMMANDS else RunsOnAll(call, _ONCE[name])

    def _is_begun_by_one(self, call: cst.Call, reach: Reach) -> bool:
        """Whether a run that a module keeps begins in a statement of its own, and nobody asks the module for it: what
        is logged to it, and its end, are of the main process alone."""
        statement, parents = self.unit.names.statement(call), self.unit.names.parents
        alone = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
        if not alone or not isinstance(parents.get(call), cst.Expr):
            return False
        calls = (self.state.calls[c] for unit in reach.units for c in unit.names.calls if c in self.state.calls)
        return not any(outside_name(record) in _ASKS_FOR_RUN for record in calls)

    def _switched(
        self, call: cst.Call, name: str, off: str, settled: Container[cst.CSTNode]
    ) -> Iterator[Handle | Reason]:
        """A tracker that the argument ``off`` makes inert: ``mode="disabled"``, ``disabled=True``."""
        argument, _, null = off.partition("=")
        switch = null == "True"
        given = next((a for a in call.args if a.keyword is not None and a.keyword.value == argument), None)
        if given is not None and names_main(self.state, given.value):
            return
        if (given is not None and switch) or (given is None and starred(call)):
            yield RunsOnAll(call, _TRACKS)
            return
        yield Handle(call, _TRACKS, "" if switch else null, argument=argument, value=given)
        if not switch:
            yield from self._module_told(name.partition(".")[0], settled)

    def _replaced(
        self,
        call: cst.Call,
        settled: Container[cst.CSTNode],
        inside: Container[cst.CSTNode] = (),
        *,
        film: bool = False,
    ) -> Iterator[Handle | Reason]:
        """A tracker that gives way to an object that does nothing, or what writes a ``film``. ``inside``: its own
        methods."""
        noun, why = ("writer", _SAME_FILE) if film else ("tracker", _TRACKS)
        if not self._can_give_way(call):
            yield RunsOnAll(call, why)
        elif (told := HandleReads(self.state, call, settled, inside).by_all()) is not None:
            unit, node = told
            text = unit.names.one_line(node)
            yield TrackedValue(node if unit is self.unit else call, text, why, noun)
        else:
            yield Handle(call, why, INERT, noun=noun)

    def _own(
        self, call: cst.Call, classes: list[Klass], settled: Container[cst.CSTNode], together: Together
    ) -> Iterator[Handle | Reason]:
        """A tracker of a class of the program's own: it gives way where its code does nothing that all must do, draws
        no numbers, after which the others would draw different ones, and gives nothing back that they use."""
        units = {
            code: klass.unit
            for below in classes
            for klass in below.lineage()
            for code in klass.unit.names.functions
            if klass.node in klass.unit.names.ancestors(code)
        }
        ran = (node for code, unit in units.items() for node in together.reach.runs(code.body, unit))
        draws = any(isinstance(n, cst.Call) and (r := self.state.calls.get(n)) and drawn(r) is not None for n in ran)
        joins = any(together(unit, code.body) for code, unit in units.items())
        if draws or joins:
            yield RunsOnAll(call, _TRACKS)
        else:
            yield from self._replaced(call, settled, units)

    def _can_give_way(self, call: cst.Call) -> bool:
        """Whether a conditional expression can replace a call as it is."""
        parent = self.unit.names.parents.get(call)
        kinds = (cst.Assign, cst.AnnAssign, cst.Return, cst.WithItem, cst.DictElement, cst.Element, cst.Arg)
        return isinstance(parent, kinds) or (isinstance(parent, cst.NamedExpr) and parent.value is call)

    def _module_told(self, module: str, settled: Container[cst.CSTNode]) -> Iterator[Reason]:
        """``wandb.run.dir`` and the like."""
        for node in self.state.evaluated(self.unit):
            if isinstance(node, cst.Attribute) and node.attr.value in _TELLS:
                held = self.state.values.get(node.value)
                run = held is not None and any(
                    isinstance(t, External) and t.qualified == f"{module}.run" for t in held.things
                )
                if run and self._is_read_by_all(node, settled):
                    yield RunName(node)

    def _is_read_by_all(self, node: cst.Attribute, settled: Container[cst.CSTNode]) -> bool:
        names = self.unit.names
        if node not in names.parents:
            return True  # in another module
        if isinstance(names.parents[node], (cst.AssignTarget, cst.Expr)) or guarded(self.state, self.unit, node):
            return False
        around = list(names.ancestors(node))
        if any(a in settled for a in around):
            return False
        calls = (a for a in around if isinstance(a, cst.Call) and a in self.state.calls)
        return not any(outside_name(self.state.calls[c]) == "builtins.print" for c in calls)

    def _counts(self, call: cst.Call, name: str) -> bool:
        """Whether a call of something that may or may not write does."""
        if name == "h5py.File":
            mode = keyword(call, "mode") or (call.args[1].value if len(call.args) > 1 else None)
            return isinstance(mode, cst.SimpleString) and "r" not in str(mode.evaluated_value)
        return name not in COMMANDS or not only_asks(call)

    # Files ------------------------------------------------------------------------------------------------------------

    def file(self, call: cst.Call) -> Handle | Reason:
        """A file that is opened for writing and used in many places: the other processes write to nowhere."""
        plain = outside_name(self.state.calls[call]) in ("builtins.open", "io.open", "codecs.open")
        mode = keyword(call, "mode", 1)
        reads = any("+" in n.value for n in (nodes_in(mode, cst.SimpleString) if mode is not None else ()))
        reads = reads and not self._only_writes(call)
        path = call.args[0] if call.args and not call.args[0].star else None
        if not plain or reads or path is None or (path.keyword is not None and path.keyword.value != "file"):
            return SharedFile(call)
        null, imports = self._devnull()
        return Handle(call, _SAME_FILE, null, argument="file", value=path, imports=imports, tracker=False)

    def _only_writes(self, call: cst.Call) -> bool:
        """Whether a file is only written, in whatever mode it is open, by one name that no other module has."""
        assign = self.unit.names.parents.get(call)
        target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
        binding = self.unit.names.binding(target) if isinstance(target, cst.Name) else None
        if binding is None or (isinstance(binding.scope.node, cst.Module) and self.unit.place.name != ENTRY):
            return False
        uses = (self.unit.names.parents.get(read) for read in binding.reads)
        return all(isinstance(use, cst.Attribute) and use.attr.value in _WRITES for use in uses)

    def _devnull(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        binding = self.unit.names.scope.bindings.get("os")
        if binding is not None and all(isinstance(d, cst.ImportAlias) for d in binding.definitions):
            return "os.devnull", ()
        return "devnull", (("os", "devnull"),)

    # Logging ----------------------------------------------------------------------------------------------------------

    def log(self, call: cst.Call) -> Handle | Reason | None:
        """A log file, or the level at which everything is logged."""
        record = self.state.calls[call]
        name = outside_name(record)
        if any(map(surroundings.writes_log, built_names(record))):
            return self._log_file(call)
        if name == "logging.basicConfig":
            return self._basic_config(call)
        if method_name(call) == "setLevel" and self._is_logger(call) and len(call.args) == 1:
            return self._level(call, call.args[0], self._logging(call.args[0].value))
        return None

    def _log_file(self, call: cst.Call) -> Handle | Reason:
        module = dotted(call.func).partition(".")[0]
        binding = self.unit.names.scope.bindings.get("logging")
        imported = binding is not None and all(isinstance(d, cst.ImportAlias) for d in binding.definitions)
        null = "logging.NullHandler()" if module == "logging" or imported else "NullHandler()"
        imports = () if null.startswith("logging.") else (("logging", "NullHandler"),)
        if not self._can_give_way(call):
            return RunsOnAll(call, "every process writes to the log file")
        return Handle(call, "every process would write to the log file", null, imports=imports, tracker=False)

    def _basic_config(self, call: cst.Call) -> Handle | Reason | None:
        module = dotted(call.func).rpartition(".")[0]
        filename = next((a for a in call.args if a.keyword is not None and a.keyword.value == "filename"), None)
        if starred(call) or (filename is not None and not module):
            return RunsOnAll(call, "every process logs")
        if filename is not None:
            if names_main(self.state, filename.value):
                return None
            null, imports = self._devnull()
            why = "every process would write to the log file"
            return Handle(call, why, null, argument="filename", value=filename, imports=imports, tracker=False)
        level = next((a for a in call.args if a.keyword is not None and a.keyword.value == "level"), None)
        return self._level(call, level, module) if level is not None else None

    def _level(self, call: cst.Call, level: cst.Arg, module: str) -> Handle | Reason | None:
        """``level=logging.INFO``: of the others only what has gone wrong is wanted."""
        word = dotted(level.value).rpartition(".")[2]
        if word in _QUIET or names_main(self.state, level.value):
            return None
        binding = self.unit.names.scope.bindings.get("logging")
        imported = binding is not None and all(isinstance(d, cst.ImportAlias) for d in binding.definitions)
        if not module and not imported:
            return RunsOnAll(call, "every process logs")
        why = "every process would log the same lines"
        where = module if module else "logging"
        key = level.keyword.value if level.keyword is not None else "level"
        return Handle(call, why, f"{where}.ERROR", argument=key, value=level, each_machine=True, tracker=False)

    def _logging(self, level: cst.BaseExpression) -> str:
        """What names the module `logging` in a level: ``log`` of ``log.INFO``; empty for a level of anything else, such
        as ``settings.LEVEL``."""
        held = self.state.values.get(level.value) if isinstance(level, cst.Attribute) else None
        things = held.things if held is not None else ()
        named = isinstance(level, cst.Attribute) and any(
            isinstance(t, External) and t.qualified == "logging" for t in things
        )
        return dotted(level).rpartition(".")[0] if named else ""

    def _is_logger(self, call: cst.Call) -> bool:
        """Whether the object of a call is a logger, or what shows its lines on the console."""
        receiver = self.state.calls[call].receiver
        things = receiver.things if receiver is not None else ()
        return any(isinstance(t, Unknown) and t.qualified in _LEVELLED for t in things)

    # Folders ----------------------------------------------------------------------------------------------------------

    def must_be_new(self, call: cst.Call) -> bool:
        """Whether making a folder fails where another process was quicker, so that only one may try."""
        return not self.may_exist(call) and not self.is_tested(call)

    def may_exist(self, call: cst.Call) -> bool:
        """Whether ``exist_ok=True`` is given, or the error is caught, and the script goes on after it."""
        value = keyword(call, "exist_ok")
        if isinstance(value, cst.Name) and value.value == "True":
            return True
        for around in self.unit.names.enclosing(call, cst.Try):
            assert isinstance(around, cst.Try)
            catching = [h for h in around.handlers if _catches(h)]
            if catching and any(node is call for node in descendants(around.body)):
                return not any(self._fails(h) or (self.is_tested(call) and self._leaves(h)) for h in catching)
        return False

    def _fails(self, handler: cst.ExceptHandler) -> bool:
        """Whether a handler raises, or ends the process: it does not go on with a folder that was there."""
        return self._leaves(handler) and not any(nodes_in(handler.body, cst.Return, cst.Continue, cst.Break))

    def _leaves(self, handler: cst.ExceptHandler) -> bool:
        return ends(handler.body, self._exits)

    def _exits(self, node: cst.CSTNode) -> bool:
        record = self.state.calls.get(node) if isinstance(node, cst.Call) else None
        return record is not None and surroundings.ends_process(outside_name(record))

    def is_tested(self, call: cst.Call) -> bool:
        """Whether a folder is made under a question whether it exists: it was meant to be there or not."""
        if keyword(call, "exist_ok") is not None or starred(call):
            return False
        for around in self.unit.names.enclosing(call, cst.If):
            assert isinstance(around, cst.If)
            if any(asks_existence(n) for n in descendants(around.test)):
                return True
        return False


def asks_existence(node: cst.CSTNode) -> bool:
    """Whether a node is a call such as ``os.path.exists(path)``."""
    return isinstance(node, cst.Call) and method_name(node) in ("exists", "isdir", "is_dir", "isfile", "is_file")


def _catches(handler: cst.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    types = {n.value for n in nodes_in(handler.type, cst.Name)}
    return bool(types & {"OSError", "FileExistsError", "IOError", "EnvironmentError", "Exception", "BaseException"})
