"""A distributed program as the audit sees it: what distributes it, what is wrapped, and what is sharded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from functools import cached_property

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import method_name, outside_name, outside_names
from ..analysis.dataflow.constant_values import constants_of
from ..analysis.dataflow.program_flow import solve
from ..analysis.dataflow.values import CallRecord, Function, Instance, Klass, Unit, origins
from ..analysis.distributed.rank_questions import USUAL_NAMES, RankQuestions
from ..analysis.distributed.tracing import ValueSource
from ..analysis.syntax.nodes import dotted, keyword
from ..analysis.syntax.walk import descendants
from ..analysis.training.training import whole
from ..facts.accelerate_names import PREPARES
from ..facts.module_paths import ModulePaths
from ..facts.roles import Origin, Role
from ..facts.torch_api import process_calls, questions
from ..validation.program import EmittedProgram
from .guards import AuditGuards

SETUPS = frozenset({"setup", "setup_module", "setup_optimizers", "setup_dataloaders"})
"""Methods of Fabric that prepare their arguments."""
_MODELS = PREPARES | {"setup", "setup_module"}
_STARTERS = frozenset({"notebook_launcher", "debug_launcher"})
_SHARDED = (
    "torch.distributed.fsdp.", "torch.distributed._composable", "torch.distributed.tensor", "torch.distributed._tensor",
    "torch.distributed.rpc", "torch.distributed.pipelining", "horovod.", "deepspeed.",
    "apex.parallel.DistributedDataParallel", "megatron.", "accelerate.parallelism_config",
    "accelerate.ParallelismConfig", "accelerate.utils.MegatronLM", "accelerate.utils.DeepSpeed",
    "accelerate.FullyShardedDataParallelPlugin", "accelerate.utils.FullyShardedDataParallelPlugin",
    "accelerate.DeepSpeedPlugin",
    "colossalai.", "fairscale.", "torch_xla.", "bagua.",
)  # fmt: skip
"""Ways of distributing a model that the audit does not follow."""


class Dialect(Enum):
    """The library that distributes a program."""

    HAND = "torch.distributed"
    ACCELERATE = "Accelerate"
    FABRIC = "Fabric"
    OURS = "torchlift"


class AuditedProgram(EmittedProgram):
    """One analysed program, with the questions that the audit asks."""

    own_rows = False
    """Its loaders may give all rows to each process."""

    def __init__(
        self,
        trees: Sequence[tuple[str, cst.Module]],
        assume: Iterable[tuple[str, str]],
        layout: ModulePaths,
        *,
        notebook: bool = False,
        taken_off_elsewhere: Collection[str] = (),
    ) -> None:
        self.taken_off_elsewhere = taken_off_elsewhere
        """Prefixes that begin with a wrapper's, and that other files of the command take off the names of weights."""
        self.notebook = notebook
        """Its entry is a notebook: one process, until a cell starts others."""
        fabrics = {name for _, tree in trees for name in _fabrics(tree)}
        super().__init__(solve(trees, (*assume, *(("accelerator", name) for name in sorted(fabrics))), layout))
        self.ranks = RankQuestions(self.tracer, USUAL_NAMES)
        self.guards = AuditGuards(self, self.ranks)
        self.constants = constants_of(self.state)
        self._asking: set[cst.CSTNode] = set()
        self._waiting: dict[cst.CSTNode, bool] = {}
        self._fabrics = any(several for _, tree in trees for several in _spreads(tree))

    @cached_property
    def dialects(self) -> frozenset[Dialect]:
        """
        The libraries that distribute the program; empty if it runs in one process.

        If its training is followed, only what it runs counts, and not what the modules that it imports could do. The
        cells of a notebook are no evidence unless they start processes: scripts may use the modules that it imports.
        """
        found: set[Dialect] = set()
        trains = any(self.runs(record) for record in self.training.backwards)
        for record in self.state.calls.values():
            if (trains and not self.runs(record)) or self.is_single(record.unit):
                continue
            for name in outside_names(record):
                if name.startswith("accelerate.") and name.endswith(("Accelerator", "PartialState")):
                    found.add(Dialect.ACCELERATE)
                elif name.startswith("torchlift.runtime") and name.endswith(("Accelerator", "PartialState")):
                    found.add(Dialect.OURS)
                elif process_calls.distributes(name):
                    found.add(Dialect.HAND)
        if self._fabrics:
            found.add(Dialect.FABRIC)
        if len(found) > 1:
            found.discard(Dialect.HAND)
        return frozenset(found)

    @property
    def by_hand(self) -> bool:
        """Whether only the script itself distributes it, without a library."""
        return self.dialects == {Dialect.HAND}

    @cached_property
    def unfollowed(self) -> tuple[CallRecord, str] | None:
        """A call that distributes the model in a way that the audit does not follow, with its name."""
        for record in self.records:
            for name in outside_names(record):
                if name.startswith(_SHARDED):
                    return record, name
        return None

    @cached_property
    def groups(self) -> CallRecord | None:
        """A call that creates a group of some of the processes."""
        return next(self.reached_calls("new_group", "create_group", "new_subgroups", "split_group"), None)

    @cached_property
    def reached(self) -> set[Code]:
        """
        The functions that the start of the program runs.

        A function that is passed as a value counts if code that runs names it, a method if its class may be used.
        """
        found: set[Code] = set()
        pending: list[Code] = [unit.names.module for unit in self.reach.units]
        waiting = [f for f in self.reach.reachable if f in self.state.escaped]
        while pending:
            for code in pending:
                found.update(self.reach.below(code))
            pending = [f for f in waiting if f not in found and self._is_named(f, found)]
        return found

    def runs(self, record: CallRecord) -> bool:
        """Whether the start of the program comes to a call."""
        return self.reach.function_of(record.node) in self.reached

    def _is_named(self, function: Code, found: set[Code]) -> bool:
        unit = self.reach.unit(function)
        scope = unit.names.within.get(function)
        if not isinstance(function, cst.FunctionDef) or scope is None or isinstance(scope.node, cst.ClassDef):
            return isinstance(function, cst.FunctionDef) or unit.names.function(function) in found
        binding = scope.bindings.get(function.name.value)
        return binding is not None and any(unit.names.function(read) in found for read in binding.reads)

    @cached_property
    def workers(self) -> set[Code] | None:
        """The functions that run in started processes; None if a launcher starts the whole script."""
        found: set[Code] = set()
        for record in self.records:
            if method_name(record.node) in _STARTERS or any(map(process_calls.spawns, outside_names(record))):
                given = (self.state.values.get(arg.value) for arg in record.node.args)
                handed = [t.node for slot in given if slot is not None for t in slot.things if isinstance(t, Function)]
                for function in (*self.reach.called(record.node), *handed):
                    found.update(self.reach.below(function))
        return found or None

    def is_single(self, unit: Unit) -> bool:
        """Whether a module is a notebook that starts no processes: no launcher starts several of it."""
        return self.notebook and unit is self.reach.units[0] and self.workers is None

    def is_parallel(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether several processes run a node: it is reached, and not in the process that starts the others."""
        code = unit.names.function(node)
        return code in self.reached and not self.is_single(unit) and (self.workers is None or code in self.workers)

    def waits(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether a piece of code, or what it calls, has a barrier."""
        if node not in self._waiting:
            self._waiting[node] = any(self._is_barrier(each) for each in self.reach.runs(node, unit))
        return self._waiting[node]

    def _is_barrier(self, node: cst.CSTNode) -> bool:
        record = self.state.calls.get(node) if isinstance(node, cst.Call) else None
        if record is None:
            return False
        if origins(record.receiver, Role.ACCELERATOR):
            return method_name(record.node) in ("barrier", "wait_for_everyone")
        found = (process_calls.collective(name) for name in outside_names(record))
        return any(each is not None and each.op == "barrier" for each in found)

    def loaders_of(self, loop: cst.CSTNode) -> tuple[Origin, ...]:
        """
        The loaders that a loop iterates.

        If the loop names them, or the function around a ``while`` that takes its batches by ``next``, only those, not
        what other callers pass to the same helper. If other training loops run in it, what they iterate.
        """
        loaders = self.reach.loaders(loop)
        unit = self.unit_of(loop)
        if len(loaders) < 2 or unit is None:
            return loaders
        named = self._named(loop.iter if isinstance(loop, (cst.For, cst.CompFor)) else unit.names.function(loop))
        if not named and (inner := set(self.reach.runs_in(loop)) & set(self.training.train_loops) - {loop}):
            taken = [n for n in descendants(loop) if isinstance(n, cst.Call) and method_name(n) == "next"]
            named = {loader for each in inner for loader in self.loaders_of(each)}
            named |= {loader for call in taken for loader in self._named(call)}
        return tuple(loader for loader in loaders if loader in named) or loaders

    def _named(self, code: cst.CSTNode) -> set[Origin]:
        """The loaders that some code names."""
        read = (node for node in descendants(code) if isinstance(node, (cst.Name, cst.Attribute)))
        return {loader for node in read for loader in origins(self.state.values.get(node), Role.LOADER)}

    @cached_property
    def prepares(self) -> list[CallRecord]:
        """The calls that prepare something."""
        return [record for record in self.accelerated if method_name(record.node) in PREPARES | SETUPS]

    @cached_property
    def wraps(self) -> list[CallRecord]:
        """The calls that put a model into a wrapper which averages the gradients."""
        wrappers = process_calls.wrappers("processes")
        return [r for r in self.records if any(n in wrappers or _is_wrapper(n) for n in outside_names(r))]

    @cached_property
    def wrapped_itself(self) -> set[Origin]:
        """The models that are wrapped or prepared somewhere."""
        found: set[Origin] = set()
        for record in self.wraps:
            given = keyword(record.node, "module", 0)
            found.update(self.held(record.unit, given) if given is not None else ())
        found.update(self.prepared)
        return found

    @cached_property
    def wrapped(self) -> set[Origin]:
        """The models that are wrapped or prepared somewhere, and their wholes."""
        wholes = (whole(self.state, o) for o in self.wrapped_itself if o.role is Role.MODEL)
        return {*self.wrapped_itself, *wholes}

    def is_wrapped(self, unit: Unit, node: cst.CSTNode) -> bool | None:
        """
        Whether an expression is a wrapped model, on any path to it; None if that is unknown.

        If a script unwraps on one path (``model.module if ddp else model``), the result is the plain model.
        """
        if node in self._asking:
            return None  # ``model = model.module`` in a loop: what depends on itself is not known
        self._asking.add(node)
        try:
            return self._is_wrapped(unit, node)
        finally:
            self._asking.remove(node)

    def _is_wrapped(self, unit: Unit, node: cst.CSTNode) -> bool | None:
        seen: set[cst.CSTNode] = set()
        pending, told = [(unit, node)], list[bool | None]()
        while pending:
            for source in self.tracer.sources(*pending.pop()):
                if source.node in seen:
                    continue
                seen.add(source.node)
                answer = self._wraps(source)
                if answer is False and not _makes(source.node):
                    return False
                told.append(answer if isinstance(answer, bool) else None)
                if isinstance(answer, tuple):
                    told.pop()
                    pending.append(answer)
        return True if True in told else None if None in told else False

    def _wraps(self, source: ValueSource) -> bool | tuple[Unit, cst.CSTNode] | None:
        """Whether an expression creates a wrapped model, or else the expression that decides it."""
        node, unit = source.node, source.unit
        if isinstance(node, cst.Attribute) and node.attr.value in ("module", "_orig_mod"):
            return False if self.is_wrapped(unit, node.value) else None
        record = self.state.calls.get(node) if isinstance(node, cst.Call) else None
        if not isinstance(node, cst.Call) or record is None:
            return None
        if record in self.wraps or (record in self.prepares and method_name(node) in _MODELS):
            return True
        name = outside_name(record)
        if method_name(node) in ("unwrap_model", "extract_model_from_parallel"):
            return False
        if process_calls.same_model(name) and node.args:
            return (True) if process_calls.is_wrapper(name) else (unit, node.args[0].value)
        if isinstance(node.func, cst.Attribute) and origins(record.receiver, Role.MODEL):
            return (unit, node.func.value) if node.func.attr.value in questions.keeps_module() else None
        made = [o for o in origins(record.result, Role.MODEL) if o.node is node]
        return False if made else None

    @cached_property
    def iterated(self) -> dict[Origin, list[cst.CSTNode]]:
        """The loaders that are iterated, each with the loops that train from it."""
        found: dict[Origin, list[cst.CSTNode]] = {}
        for loop in self.training.train_loops:
            for loader in self.loaders_of(loop):
                found.setdefault(loader, []).append(loop)
        return found

    def is_sharded(self, loader: Origin) -> bool | None:
        """Whether each process reads its own rows from a loader; None if that is unknown."""
        if loader in self.prepared:
            return True
        unit, call = self.unit_of(loader.node), loader.node
        record = self.state.calls.get(call) if isinstance(call, cst.Call) else None
        if unit is None or record is None or not isinstance(call, cst.Call):
            return None
        if not outside_name(record).startswith("torch.utils.data") or any(arg.star for arg in call.args):
            return None
        answers = [self._samples(unit, value) for value in self.sampling(call)]
        if True in answers:
            return True
        if None in answers or self.ranks.mentions(unit, call) or self._shards_itself(unit, keyword(call, "dataset", 0)):
            return None
        return False

    def loaders_reading(self, klass: cst.ClassDef) -> list[Origin]:
        """The loaders that read rows from an object of a class."""
        found: list[Origin] = []
        for record in self.records:
            dataset = keyword(record.node, "dataset", 0)
            loaders = [o for o in origins(record.result, Role.LOADER) if o.node is record.node]
            slot = self.state.values.get(dataset) if dataset is not None and loaders else None
            things = slot.things if slot is not None else ()
            made = (thing.klass if isinstance(thing, Instance) else self.state.klass.get(thing) for thing in things)
            if any(each is not None and _is_of(each, klass) for each in made):
                found += loaders
        return found

    def sampling(self, call: cst.Call) -> list[cst.BaseExpression]:
        """The arguments by which a loader chooses its rows."""
        given = (keyword(call, "sampler", 3), keyword(call, "batch_sampler", 4))
        return [value for value in given if value is not None]

    def _samples(self, unit: Unit, value: cst.BaseExpression) -> bool | None:
        """Whether a sampler is, or holds, one that gives each process its own rows."""
        told: list[bool | None] = []
        for source in self.tracer.sources(unit, value):
            if isinstance(source.node, cst.Name) and source.node.value == "None":
                continue
            record = self.state.calls.get(source.node) if isinstance(source.node, cst.Call) else None
            name = outside_name(record) if record is not None else ""
            if process_calls.is_distributed_sampler(name) and isinstance(source.node, cst.Call):
                replicas = keyword(source.node, "num_replicas", 1)
                if replicas is None or not self.constants.is_always(source.unit, replicas, 1):
                    return True
                told.append(False)
                continue
            if isinstance(source.node, cst.Call) and name.startswith("torch.utils.data"):
                given = keyword(source.node, "sampler", 0)
                told.append(self._samples(source.unit, given) if name.endswith("BatchSampler") and given else False)
            else:
                told.append(None)
        return True if True in told else None if None in told else False

    def _shards_itself(self, unit: Unit, dataset: cst.BaseExpression | None) -> bool:
        """Whether a data set may give each process its own rows: an iterable one, or one that reads the rank."""
        if dataset is None:
            return True
        for source in self.tracer.sources(unit, dataset):
            record = self.state.calls.get(source.node) if isinstance(source.node, cst.Call) else None
            names = outside_names(record) if record is not None else []
            if any(
                word in name.lower() for name in names for word in ("iterable", "webdataset", "split_dataset", "shard")
            ):
                return True
            for klass in (self.state.klass.get(t) for t in record.result.things) if record is not None else ():
                if klass is not None and any("Iterable" in base for base in klass.externals):
                    return True
            if self.ranks.mentions(source.unit, source.node):
                return True
        return False

    def reached_calls(self, *names: str) -> Iterator[CallRecord]:
        """The reached calls of methods or functions with one of these last names."""
        return (record for record in self.records if method_name(record.node) in names)


def _is_of(klass: Klass, node: cst.ClassDef) -> bool:
    """Whether a class is one of the program, or has it among its bases."""
    return klass.node is node or any(_is_of(base, node) for base in klass.bases)


_UNWRAPS = frozenset({"module", "_orig_mod", "unwrap_model", "extract_model_from_parallel"})


def _makes(node: cst.CSTNode) -> bool:
    """Whether an expression creates a model, and does not unwrap one."""
    named = node.func if isinstance(node, cst.Call) else node
    return not (isinstance(named, cst.Attribute) and named.attr.value in _UNWRAPS)


def _is_wrapper(name: str) -> bool:
    """Whether an outside name of another package wraps a model for several processes."""
    return name.endswith(("DistributedDataParallel", ".DDP", "FullyShardedDataParallel", "fully_shard"))


def _fabrics(tree: cst.Module) -> Iterator[str]:
    """The variables of a module that hold an object of Fabric."""
    for node in _made_fabrics(tree):
        yield from filter(None, (dotted(target.target) for target in node.targets))


def _spreads(tree: cst.Module) -> Iterator[bool]:
    """For each object of Fabric, whether it may use several processes: ``Fabric(devices=1)`` has one."""
    for node in _made_fabrics(tree):
        assert isinstance(node.value, cst.Call)
        devices, nodes = keyword(node.value, "devices"), keyword(node.value, "num_nodes")
        one = isinstance(devices, cst.Integer) and devices.value == "1"
        yield not one or nodes is not None


def _made_fabrics(tree: cst.Module) -> Iterator[cst.Assign]:
    imports = (small for line in tree.body if isinstance(line, cst.SimpleStatementLine) for small in line.body)
    if not any(_is_lightning(tree, small) for small in imports):
        return
    for node in descendants(tree):
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call) and method_name(node.value) == "Fabric":
            yield node


def _is_lightning(tree: cst.Module, statement: cst.CSTNode) -> bool:
    """Whether a statement imports Lightning, or a part of it."""
    return isinstance(statement, (cst.Import, cst.ImportFrom)) and "lightning" in tree.code_for_node(statement)
