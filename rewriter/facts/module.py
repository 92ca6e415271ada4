"""What is known about one module of a program, in the terms that the rules use."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

import libcst as cst

from ..findings import Finding
from .abilities import Abilities
from .accelerator import HandDown, Handing, Home, LoaderCopy, Prepare, Side, Store
from .checkpoints import Load, Save, StateDict, Wait
from .effects import Effect, Folder, Handle, Received
from .legacy import LegacyTensor
from .manual_ddp import Instead
from .placement import Arrival, DeviceRead, Placement, WrapperRead
from .reasons import Reason
from .roles import Role


class Call(NamedTuple):
    """One call, and what its method is called on."""

    node: cst.Call
    name: str
    """The last name of what is called: ``backward`` for ``loss.backward()``."""
    qualified: str
    """The full outside name, ``torch.nn.utils.clip_grad_norm_``; empty where the program itself defines it."""
    role: Role | None
    """The role of the object whose method is called, if it is certain."""
    because: str
    reachable: bool
    """Whether the accelerator can be used here: the script runs this code, and the name is visible in it."""
    reduction: str = "mean"
    """For a ``backward``: whether the loss is a ``mean`` or a ``sum`` over the batch, or ``mixed``."""


class Form(Enum):
    """How a metric gets the inputs of all processes."""

    GATHER = "gather"
    REDUCE = "reduce"
    RECEIVE = "receive"
    """All take what the main process has."""


SUM_OF_MEANS = "sum_of_means"
"""How the runtime calls the sum of the means of the script's own batches."""


class Gather(NamedTuple):
    """Tensors of an evaluation step (or losses of an epoch average) that must come from all processes."""

    node: cst.CSTNode
    """For ``GATHER``: the statement after which it is written. For ``REDUCE``: the expression to reduce. For
    ``RECEIVE``: the loop that sets the names; without names the expression itself."""
    names: tuple[str, ...]
    because: str
    form: Form = Form.GATHER
    side: Side = Side.AFTER
    inline: tuple[cst.BaseExpression, ...] = ()
    """Forward calls to gather in place, because no name holds their result."""
    reduction: str = "mean"
    """For ``REDUCE``: ``mean``; ``sum`` for a loss that is itself a sum over the batch; ``SUM_OF_MEANS`` for a mean
    that is added up and not divided by the number of batches; empty for a sum inside a text, in which no other text
    can be written."""
    counts: tuple[tuple[cst.Name, str], ...] = ()
    """Names of inputs of which only the rows are counted, and what is counted in their place."""
    sized: tuple[str, ...] = ()
    """Names among these of which only the rows are counted: a number for each row is gathered in their place."""
    recounts: tuple[str, ...] = ()
    """For ``GATHER``: statements that count the rows again, because the script counted those of its own batch
    before."""
    number: str = ""
    """For ``REDUCE``: the module's name for torch, where what is reduced is a number and no tensor."""
    real: bool = False
    """For ``REDUCE`` of a number: it is a Python float, which a tensor holds exactly as float64 only."""
    figures: tuple[tuple[str, str], ...] = ()
    """For ``GATHER``: single numbers among the values that are read (a loss that the model computed), and the reduction
    of each."""

    kept: str = ""
    """For ``REDUCE``: the name of the reduced value, where several places have the same."""
    kept_at: cst.CSTNode | None = None
    """For ``REDUCE``: the statement before which it gets that name."""

    @property
    def adds_up(self) -> bool:
        """For ``REDUCE``: the values of the processes are added up."""
        return self.reduction in ("", "sum", SUM_OF_MEANS)

    @property
    def set_anew(self) -> tuple[str, ...]:
        """For ``GATHER``: the names that get a value of all processes."""
        return (*self.names, *(name for name, _ in self.figures))


class Deferred(NamedTuple):
    """A number that each step adds to a sum, and that the sum can have as a tensor: ``total += loss.item()``."""

    call: cst.Call
    reads: tuple[cst.Name, ...]
    """Where the sum is read, and must be a number."""


class OwnName(NamedTuple):
    """A statement that only sets a variable to the model inside its wrapper: ``model = model.module``."""

    line: cst.SimpleStatementLine
    inner: cst.Attribute
    choice: cst.IfExp | None
    """The choice between both, where there is one."""


class MixedPrecision(NamedTuple):
    """Hand-written mixed precision that becomes a setting of the accelerator."""

    regions: tuple[cst.BaseExpression, ...] = ()
    """Context managers that ``accelerator.autocast()`` replaces."""
    makers: tuple[cst.BaseExpression, ...] = ()
    """Callables that create a region, and that ``accelerator.autocast`` replaces."""
    branches: tuple[tuple[cst.If, bool], ...] = ()
    """Code that is written twice, with and without mixed precision, and whether the first branch is the one with: that
    branch stays."""
    made_early: tuple[cst.CSTNode, ...] = ()
    """Statements that only created a region, to be entered later: they are removed."""
    removed: tuple[cst.CSTNode, ...] = ()
    """Statements of the gradient scaler that are removed."""
    steps: tuple[cst.Call, ...] = ()
    """``scaler.step(optimizer)``."""
    scales: tuple[cst.Call, ...] = ()
    """``scaler.scale(loss)``."""
    parameters: tuple[cst.Param, ...] = ()
    arguments: tuple[cst.Arg, ...] = ()


class HandBatch(NamedTuple):
    """A batch that the script makes without a loader, and where it is cut into shards."""

    node: cst.CSTNode
    """The expression that gives it; where ``names`` are cut before they are used, the statement before which."""
    dim: int = 0
    """The dimension of the rows."""
    names: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    """The names of the shards, where the whole data is read elsewhere; else they take the names of the data."""
    reads: tuple[cst.Name, ...] = ()
    """The reads that are of the shard then."""

    def renamed(self, name: str) -> str:
        """What the shard of a variable is called."""
        return dict(zip(self.names, self.news or self.names, strict=True)).get(name, name)


class ShardCount(NamedTuple):
    """A number of rows of the whole batch, where that of a shard is needed."""

    node: cst.CSTNode
    of: str
    """The name of the shard."""
    dim: int


class Accumulation(NamedTuple):
    """Hand-written gradient accumulation that the accelerator takes over."""

    loop: cst.For
    gate: cst.If
    """The condition under which the optimizer is stepped."""
    division: cst.CSTNode | None
    """The statement that divides the loss by the window's size; None if the operand of the backward pass does."""
    quotient: cst.CSTNode | None
    """That operand."""
    products: tuple[cst.BinaryOperation, ...]
    """Where the loss is multiplied by the window's size again, for a log."""
    models: tuple[str, ...]


class Unsynced(NamedTuple):
    """Gradient accumulation that stays the script's own, but averages gradients only once per window."""

    loop: cst.For | cst.While
    """The loop in whose block the backward pass is a statement."""
    model: str
    """The name by which that block calls the model."""
    exchanges: cst.BaseExpression
    """The condition under which gradients are averaged. It has the same value at the top of the loop and at the
    step."""


class Schedule(NamedTuple):
    """A learning-rate scheduler and how often it is stepped."""

    node: cst.CSTNode
    name: str
    unit: str
    """``optimizer step``, ``own batch`` (of this process alone), ``step`` (of a loop of fixed length), ``epoch``,
    ``metric`` or ``position``."""
    prepared: bool


class Swap(NamedTuple):
    """An import of Accelerate that can be one of this runtime."""

    node: cst.Import | cst.ImportFrom
    module: str
    """The module to import from; empty for ``import accelerate``."""


class Fact(NamedTuple):
    """One line of ``--roles``."""

    node: cst.CSTNode
    name: str
    scope: str
    role: Role
    because: str


class Count(NamedTuple):
    """Something that a loop counts, and that each process counts for itself."""

    node: cst.CSTNode
    kind: str
    """``cadence`` (every so many steps), ``long-cadence`` (counted through all epochs), ``interval`` (the first step as
    well), ``limit`` (the first so many batches), ``rate`` (a learning rate follows it), ``bar``, ``early-length`` (of a
    loader, before it is prepared), ``filled`` (means of batches, of which the last are filled up), ``running`` (a
    figure of the epoch so far), ``figure`` (of a step), ``alike`` (random numbers for rows that are the same on all
    processes), ``reseeded`` (torch, with such a number), ``unseen`` (a call of a package that no table
    describes, before the training)."""
    text: str


class Behaviour(NamedTuple):
    """What ``--roles`` reports about a loop, a statement or a variable."""

    node: cst.CSTNode
    name: str
    scope: str
    kind: str
    """``training step``, ``micro-step``, ``epoch loop``, ``evaluation loop``, ``together``, ``equal``, ``local``, or
    one of ``LAYOUTS``."""
    because: str


REPLICATED, SHARD, ROW, COUNT, MEAN, SUM = "replicated", "shard", "row", "row count", "mean", "sum"
JOINT, WHOLE, SEVERAL, MIXED, UNKNOWN = "joint", "whole batch", "several", "mixed", "unknown"
LAYOUTS = (REPLICATED, SHARD, ROW, COUNT, MEAN, SUM, JOINT, WHOLE, SEVERAL, MIXED, UNKNOWN)
"""What each process can hold of a variable that a loop over batches sets, in the words of ``Behaviour.kind``."""


class ModuleFacts(NamedTuple):
    """Everything that rules may ask about one module."""

    module: cst.Module
    accelerator: str
    """The name that the accelerator has in emitted code."""
    abilities: Abilities
    """What the target runtime can do, and where it is imported from."""
    existing: bool
    """The script creates an accelerator already."""
    keep_global_batch: bool = False
    """The user wants the script's batch size to be the global batch size."""
    mixed_precision: str | None = None
    """Source text of the precision that the user or the script asks for; None if neither does."""
    calls: tuple[Call, ...] = ()
    home: Home | None = None
    hand_downs: tuple[HandDown, ...] = ()
    handings: tuple[Handing, ...] = ()
    stores: tuple[Store, ...] = ()
    given_back: tuple[cst.CSTNode, str] | None = None
    """The assignment by which an object takes the accelerator's device, and the statement before which it goes."""
    spelled: Mapping[cst.CSTNode, str] = MappingProxyType({})
    """What the object is called in functions that read the accelerator from it: ``self`` for ``self.accelerator``."""
    behind: frozenset[cst.CSTNode] = frozenset()
    """Functions that do not get the accelerator, and run only when it exists: they use ``PartialState()``."""
    ahead: frozenset[cst.CSTNode] = frozenset()
    """Prints that may come before the accelerator: so do they."""
    early: frozenset[cst.CSTNode] = frozenset()
    """Those where not even the device is chosen: they use ``EarlyState()``."""
    on_cpu: bool = False
    """The accelerator stays on the CPU, whatever the command line says: what comes before it says so, too."""
    placements: tuple[Placement, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    opened: tuple[cst.If | cst.IfExp, ...] = ()
    """Questions for CUDA that held nothing but moves to the accelerator's device, which are made in any case."""
    closed: tuple[cst.CSTNode, ...] = ()
    """Statements that took to the CPU, where there is no CUDA, what is on the accelerator's device in any case."""
    device_reads: tuple[DeviceRead, ...] = ()
    still_called: tuple[tuple[cst.CSTNode, cst.Call], ...] = ()
    """Statements that get the device by a call that does more than choose it: the call is made still."""
    connects: bool = False
    """The accelerator opens the group of a script that distributed itself."""
    legacy: tuple[LegacyTensor, ...] = ()
    visible: tuple[cst.CSTNode, ...] = ()
    """Statements that choose which GPUs are visible."""
    numbered: tuple[cst.BaseExpression, ...] = ()
    """Names of GPUs in constants that stay, each with a number that must be removed."""
    wrappers: tuple[Placement, ...] = ()
    """``DataParallel`` around models."""
    unwrapped_branches: tuple[cst.If, ...] = ()
    """Conditions that held nothing but such a wrapping, and whose ``else`` is for a model that is not wrapped; and
    those that do the same for a model inside a wrapper and for one without."""
    by_hand: tuple[Instead, ...] = ()
    """Pieces of distribution by hand, and their replacements."""
    unwrapped: tuple[Placement, ...] = ()
    """``DistributedDataParallel`` around models."""
    settings: tuple[str, ...] = ()
    """Classes of settings objects that the accelerator is created with here."""
    inner_models: tuple[cst.Attribute, ...] = ()
    """``model.module`` of models that were wrapped."""
    idle_choices: tuple[tuple[cst.IfExp, bool], ...] = ()
    """``model.module if wrapped else model``, which chooses nothing any more; whether the first is the wrapper's."""
    own_names: tuple[OwnName, ...] = ()
    deferred: tuple[Deferred, ...] = ()
    """With ``--device tpu``: reads of the device in each step that can wait."""
    of_wrappers: tuple[cst.Attribute, ...] = ()
    """Reads of what only their wrapper had: ``model.device_ids``."""
    wrapper_reads: tuple[WrapperRead, ...] = ()
    """What else was asked of their wrapper."""
    for_wrappers: tuple[cst.CSTNode, ...] = ()
    """Statements that call what takes their wrapper alone."""
    prefixed: tuple[cst.Call, ...] = ()
    """States of such models whose keys began with the wrapper's prefix."""
    prepares: tuple[Prepare, ...] = ()
    loader_copies: tuple[LoaderCopy, ...] = ()
    hand_batches: tuple[HandBatch, ...] = ()
    cuts_batches: bool = False
    """The program's batches are cut into shards: the global batch stays."""
    row_counts: tuple[ShardCount, ...] = ()
    gathers: tuple[Gather, ...] = ()
    effects: tuple[Effect, ...] = ()
    handles: tuple[Handle, ...] = ()
    folders: tuple[Folder, ...] = ()
    received: tuple[Received, ...] = ()
    plain_models: tuple[cst.BaseExpression, ...] = ()
    """Reads of a prepared model where the plain one is needed: its names, its export."""
    saves: tuple[Save, ...] = ()
    state_dicts: tuple[StateDict, ...] = ()
    loads: tuple[Load, ...] = ()
    read_back: tuple[Wait, ...] = ()
    """Between what the main process does to a file, and what all processes do with it."""
    schedules: tuple[Schedule, ...] = ()
    precision: MixedPrecision = MixedPrecision()
    accumulation: Accumulation | None = None
    accumulation_steps: str | None = None
    """Source text of the number of batches per optimizer step."""
    unsynced: Unsynced | None = None
    counts: tuple[Count, ...] = ()
    swaps: tuple[Swap, ...] = ()
    unswapped: tuple[Finding, ...] = ()
    """Why the imports of Accelerate stay."""
    findings: tuple[Reason, ...] = ()
    """What the analysis itself has found: refusals, conflicts."""
    roles: tuple[Fact, ...] = ()
    behaviour: tuple[Behaviour, ...] = ()
    """Collected only if the user asked for it (``Config.tells``)."""

    def called(self, name: str) -> tuple[Call, ...]:
        """The calls whose last name is ``name``, in source order."""
        return tuple(call for call in self.calls if call.name == name)
