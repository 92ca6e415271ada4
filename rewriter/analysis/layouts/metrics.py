"""
Metrics: which tensors a loop turns into numbers, and where they can be made those of all processes.

An evaluation loop is understood if its forward pass is directly in the loop's body, or in ``with`` blocks in it. What
the loop reads after the forward pass is gathered directly after it. A loop that is not understood keeps its loader
unprepared: every process then evaluates the whole set, which costs time and is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from ...facts.effects import Effect, EffectKind
from ...facts.module import Form, Gather, Side
from ...facts.roles import SHARES, TENSORS, Origin, Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.containers import collects
from ..dataflow.values import State, Unit, Unknown, origins
from ..syntax.scopes import Binding
from ..syntax.walk import descendants
from ..training.cached_batches import drained
from ..training.training import Training, method_name
from .batch_shapes import batch_sizes, row_counts, shaped_by, shaped_by_rows
from .padding import ragged
from .row_counts import counted
from .rowwise import by_rows

_COLLECTING = frozenset("append extend update add insert put write".split())


@dataclass(eq=False)
class Evaluation:
    """What was found of one evaluation loop."""

    loop: cst.CSTNode
    unit: Unit
    loaders: tuple[Origin, ...]
    gather: Gather | None
    understood: bool
    because: str
    parts: tuple[Gather, ...] = ()
    """Entries of results and batches that are gathered where they are read."""

    def leave(self, because: str) -> None:
        """Leave the loop as it is: every process evaluates the whole set."""
        self.gather, self.understood, self.because = None, False, because


def evaluations(state: State, reach: Reach, training: Training) -> list[Evaluation]:
    """Every evaluation loop of the program."""
    found = []
    for loop in training.eval_loops:
        unit = next(u for u in reach.units if loop in u.names.parents)
        answer = _evaluation(state, unit, reach, training, loop)
        gathers = [g for g in (answer.gather, *answer.parts) if g is not None]
        if answer.understood and ragged(state, reach, unit, loop, gathers):
            answer.leave("its batches are padded to different lengths on each process, and could not be gathered")
        found.append(answer)
    return found


def _evaluation(state: State, unit: Unit, reach: Reach, training: Training, loop: cst.CSTNode) -> Evaluation:
    def answer(gather: Gather | None, understood: bool, because: str) -> Evaluation:
        return Evaluation(loop, unit, reach.loaders(loop), gather, understood, because)

    if not isinstance(loop, cst.For) or not isinstance(loop.body, cst.IndentedBlock):
        return answer(None, False, "it is not a plain for loop")
    if drained(state, unit, loop) is not None:
        return answer(None, False, "its batches were read once and kept")
    if _already_gathered(state, loop):
        return answer(None, True, "gathered by the script")
    forward = _last_forward(unit, reach, training, loop)
    if forward is None:
        return answer(None, False, "its forward pass was not found")
    step = Step(state, unit, loop, forward)
    doubt = _doubt(step, training)
    if doubt is not None:
        return answer(None, False, doubt)
    because = "a metric is computed from them, and each process holds only its shard"
    inline = _inline(step, training)
    if inline:
        rows, counts = step.counted_outside(training)
        names, recounts = tuple(b.name for b in rows), step.recounts(rows)
        if recounts is None:
            return answer(None, False, _COUNTED)
        gather = Gather(
            forward, names, because, side=Side.BEFORE, inline=tuple(inline), counts=counts, recounts=recounts
        )
        return answer(gather, True, because)
    parts = tuple(step.parts(because))
    later = [b for b in step.read_behind() if not step.is_result(b)]
    if not later:
        nothing = "nothing of the batch is read after the forward pass"
        return Evaluation(loop, unit, reach.loaders(loop), None, True, because if parts else nothing, parts)
    rows, counts = counted(state, unit, training, loop, [b for b in later if not step.is_scalar(b)], step.behind)
    means, recounts = tuple(b.name for b in later if step.is_scalar(b)), step.recounts(rows)
    if recounts is None:
        return answer(None, False, _COUNTED)
    names = tuple(b.name for b in rows)
    gather = Gather(_behind(unit, forward), names, because, means=means, counts=counts, recounts=recounts)
    return Evaluation(loop, unit, reach.loaders(loop), gather, True, because, parts)


_COUNTED = "it counts the rows of its batch before the forward pass and uses that number after it"
_COPYING = frozenset("numpy tolist array asarray".split())


class Step:
    """One pass through a loop's body: the statements in plain sight, and the forward among them."""

    def __init__(self, state: State, unit: Unit, loop: cst.For, forward: cst.CSTNode) -> None:
        self.state, self.unit, self.loop, self.forward = state, unit, loop, forward
        self.statements = plain(loop.body)
        self.position = self.statements.index(forward)
        self.front = self.statements[: self.position]
        self.tail = self.statements[self.position + 1 :]
        self.before = [*bound_by(unit, loop.target), *(b for s in self.front for b in bound(unit, s))]
        self.behind = {n for statement in self.tail for n in descendants(statement)} - synchronised(state, self.tail)

    def read_behind(self) -> list[Binding]:
        """Variables that hold a batch's tensors when the forward is done and are read before they are set again."""
        candidates: dict[Binding, None] = dict.fromkeys([*bound(self.unit, self.forward), *self.before])
        return [b for b in candidates if self.is_tensor(b) and _read_first(b, self.tail, self.behind)]

    def counted_outside(self, training: Training) -> tuple[list[Binding], tuple[tuple[cst.Name, str], ...]]:
        """
        The variables of the batch that the forward's statement, or one after it, reads outside the forward's call;
        and those of which only the rows are counted, with what is counted in their place.
        """
        inside = {n for call in descendants(self.forward) if call in training.forwards for n in descendants(call)}
        own = synchronised(self.state, [self.forward])
        tail = ({*descendants(self.forward)} - inside - own) | self.behind
        unique = dict.fromkeys(self.before)
        read = [b for b in unique if self.is_tensor(b) and any(read in tail for read in b.reads)]
        return counted(self.state, self.unit, training, self.loop, read, tail)

    def read_inside(self, training: Training) -> list[Binding]:
        """Variables that the forward's own arguments read."""
        calls = (node for node in descendants(self.forward) if node in training.forwards)
        names = [n for call in calls for n in descendants(call) if isinstance(n, cst.Name)]
        return [b for n in names if (b := self.unit.names.binding(n)) is not None and self.is_tensor(b)]

    def is_tensor(self, binding: Binding) -> bool:
        """Whether a variable holds a tensor of the batch."""
        return bool(origins(self.state.binding(binding), *TENSORS))

    def is_result(self, binding: Binding) -> bool:
        """Whether only entries of a variable are read after the forward pass: ``outputs.logits``,
        ``batch["labels"]``."""
        reads = [read for read in binding.reads if read in self.behind]
        return bool(reads) and all(entry(self.unit, read) is not None for read in reads)

    def parts(self, because: str) -> Iterator[Gather]:
        """The entries of results and batches that are read after the forward pass, to be gathered in place."""
        rows: list[cst.BaseExpression] = []
        for binding in self.read_behind():
            for read in binding.reads if self.is_result(binding) else ():
                part = entry(self.unit, read) if read in self.behind else None
                if part is not None and is_loss_entry(part):
                    text = self.unit.names.module.code_for_node(part)
                    yield Gather(part, (text,), because, form=Form.REDUCE)
                elif part is not None:
                    rows.append(part)
        if rows:
            yield Gather(self.forward, (), because, inline=tuple(rows))

    def is_scalar(self, binding: Binding) -> bool:
        """Whether a tensor is turned into one number just as it is: a loss that the model computed."""
        names = self.unit.names
        for read in binding.reads:
            parent = names.parents.get(read)
            if isinstance(parent, cst.Attribute) and parent.attr.value == "item":
                return True
            call = names.parents.get(parent) if isinstance(parent, cst.Arg) else None
            if isinstance(call, cst.Call) and method_name(call) == "float" and isinstance(call.func, cst.Name):
                return True
        return False

    def counts_rows(self, target: cst.Subscript) -> bool:
        """Whether a position follows the batch: an index from the batch, or counted on by what the batch holds."""
        names = [n for part in target.slice for n in descendants(part) if isinstance(n, cst.Name)]
        bindings = [b for n in names if n in self.unit.names.within and (b := self.unit.names.binding(n)) is not None]
        return bool(bindings) and all(self.is_tensor(b) or self.is_number(b) for b in bindings)

    def cuts_rows(self, node: cst.CSTNode) -> bool:
        """``target[1:]``, ``scores[:-1, :]`` of a tensor of the batch: the idiom of sequences shifted by one."""
        first = node.slice[0].slice if isinstance(node, cst.Subscript) else None
        if not isinstance(node, cst.Subscript) or not isinstance(first, cst.Slice) or first.step is not None:
            return False
        later = isinstance(first.lower, cst.Integer) and first.lower.evaluated_value > 0 and first.upper is None
        shifted = later or (isinstance(first.upper, cst.UnaryOperation) and first.lower is None)
        return shifted and bool(origins(self.state.values.get(node.value), *TENSORS))

    def copied_off(self) -> bool:
        """Whether what is read after the forward pass was taken from the batch before: ``labels = y.numpy()``. It holds
        the rows of one process, beside gathered ones."""
        for statement in self.front:
            if any(isinstance(n, cst.Call) and method_name(n) in _COPYING for n in descendants(statement)):
                copies = [b for b in bound(self.unit, statement) if self.is_number(b)]
                if any(read in self.behind for b in copies for read in b.reads):
                    return True
        return False

    def of_unknown_rows(self) -> str | None:
        """
        A variable of unknown kind that is made from the batch, and used together with gathered rows.

        It holds what belongs to the rows of one process: labels that are looked up by the words of a batch.
        """
        made = dict.fromkeys(bound_by(self.unit, self.loop.target))
        for statement in self.front:
            names = (n for n in descendants(statement) if isinstance(n, cst.Name))
            if any(b in made or self.is_tensor(b) for n in names if (b := self.unit.names.binding(n)) is not None):
                made.update(dict.fromkeys(bound(self.unit, statement)))
        unknown = [b for b in made if not self.is_tensor(b) and not self.is_number(b) and not self._is_index(b)]
        gathered = dict.fromkeys(self.read_behind())
        for statement in self.tail if unknown else ():
            for node in descendants(statement):
                if isinstance(node, (cst.Call, cst.Comparison, cst.BinaryOperation)) and node in self.behind:
                    parts = set(descendants(node))
                    beside = next((b for b in unknown if not parts.isdisjoint(b.reads)), None)
                    if beside is not None and any(not parts.isdisjoint(b.reads) for b in gathered):
                        return beside.name
            if any(not set(descendants(statement)).isdisjoint(b.reads) for b in gathered):
                gathered.update(dict.fromkeys(bound(self.unit, statement)))
        return None

    def _is_index(self, binding: Binding) -> bool:
        """The number that ``enumerate`` gives."""
        source, target = self.loop.iter, self.loop.target
        counted = isinstance(source, cst.Call) and method_name(source) == "enumerate"
        first = target.elements[0].value if isinstance(target, cst.Tuple) else None
        return counted and first is not None and first in binding.definitions

    def recounts(self, gathered: list[Binding]) -> tuple[str, ...] | None:
        """
        What counts the rows anew after the gather: ``n = y.shape[0]``, for each number of rows that the script takes
        before the forward pass and reads after it. None where one cannot be had.
        """
        found: list[str] = []
        code = self.unit.names.module.code_for_node
        lines = (statement for statement in self.front if isinstance(statement, cst.SimpleStatementLine))
        for count in (count for line in lines for count in row_counts(self.unit, line)):
            name, value = count.binding.name, count.assign.value
            base = next((n for n in descendants(value) if isinstance(n, cst.Name) and n.value != "len"), None)
            read = any(read in self.behind for read in count.binding.reads)
            if base is None or not read or not self.is_number(count.binding) or len(count.assign.targets) > 1:
                continue
            if count.form != "number" or not gathered:
                return None
            same = self.unit.names.binding(base) in gathered
            found.append(f"{name} = {code(value) if same else f'len({gathered[0].name})'}")
        return tuple(found)

    def is_number(self, binding: Binding) -> bool:
        """Whether a variable holds a number computed from the batch, and no tensor."""
        return bool(origins(self.state.binding(binding), Role.LOCAL)) and not self.is_tensor(binding)

    def is_local(self, node: cst.CSTNode) -> bool:
        """Whether something below a node is computed from the batch."""
        return any(origins(self.state.values.get(part), *SHARES) for part in descendants(node))


_OF_TENSORS = frozenset("shape T mT H data dtype device ndim grad real imag is_cuda requires_grad".split())


def entry(unit: Unit, read: cst.Name) -> cst.Attribute | cst.Subscript | None:
    """The entry of a result object or of a dict that a read of its name reads; None for a method or a tensor's part."""
    part = unit.names.parents.get(read)
    above = unit.names.parents.get(part) if part is not None else None
    if isinstance(part, cst.Attribute) and part.value is read and part.attr.value not in _OF_TENSORS:
        return None if isinstance(above, cst.Call) and above.func is part else part
    if isinstance(part, cst.Subscript) and part.value is read and isinstance(_key(part), cst.SimpleString):
        return part
    return None


def is_loss_entry(part: cst.Attribute | cst.Subscript) -> bool:
    """``outputs.loss``, ``out["total_loss"]``: by its name one number, not one for each row."""
    key = part.attr.value if isinstance(part, cst.Attribute) else _key(part)
    word = key.evaluated_value if isinstance(key, cst.SimpleString) else key
    return isinstance(word, str) and "loss" in word.lower()


def synchronised(state: State, statements: list[cst.CSTNode]) -> set[cst.CSTNode]:
    """What is handed to metrics that join the processes by themselves, those of torchmetrics and ignite."""
    found: set[cst.CSTNode] = set()
    for statement in statements:
        for node in descendants(statement):
            if isinstance(node, cst.Call) and is_synchronised(state, node):
                found.update(n for arg in node.args for n in descendants(arg))
    return found


def is_synchronised(state: State, call: cst.Call) -> bool:
    """Whether a call feeds such a metric: ``metric.update(...)``, ``metric(...)``."""
    func = call.func
    name = func.attr.value if isinstance(func, cst.Attribute) else ""
    holder = func.value if isinstance(func, cst.Attribute) and name in ("update", "forward") else func
    slot = state.values.get(holder)
    things = slot.things if slot is not None else ()
    return any(isinstance(t, Unknown) and questions.joins_processes(t.qualified) for t in things)


def outside_guards(gathers: list[Gather], effects: list[Effect]) -> list[Gather]:
    """The gathers without those that would be in a statement that only the main process runs."""
    writes = [e for e in effects if e.kind is EffectKind.WRITE]
    ahead = {n for e in writes if e.forward is not None for n in descendants(e.forward)}
    guarded = {n for e in writes for n in descendants(e.node)} - ahead
    kept = [g if not g.inline else g._replace(inline=tuple(c for c in g.inline if c not in guarded)) for g in gathers]
    return [g for g in kept if g.inline or (g.node not in guarded and (g.names or g.means))]


def _key(node: cst.Subscript) -> cst.BaseExpression | None:
    first = node.slice[0].slice
    return first.value if isinstance(first, cst.Index) else None


def _doubt(step: Step, training: Training) -> str | None:
    """Why the loop's metric cannot be made whole by gathering after the forward pass; None if it can."""
    for statement in step.front:
        if any(step.is_local(node) for node in _collecting(step.state, statement)):
            return "it counts something before its forward pass"
    inline = _inline(step, training)
    direct = any(node in training.forwards for node in descendants(step.forward))
    named = bound(step.unit, step.forward)
    numbers = any(step.is_number(b) for b in named)
    if not direct and (numbers or not named):
        return "a function that runs the model returns numbers, not tensors"
    if len(inline) > 1:
        return "it runs several forward passes in one statement"
    if inline and not set(step.counted_outside(training)[0]).isdisjoint(step.read_inside(training)):
        return "it compares the output of its forward pass with the input"
    if step.copied_off():
        return "it copies something from the batch before its forward pass and reads the copy after it"
    beside = step.of_unknown_rows()
    if beside is not None:
        return f"`{beside}` is made from the rows of one process and used together with values that would be gathered"
    if any(step.cuts_rows(node) for node in step.behind):
        return "it slices off first or last rows: the first dimension may be the positions of a sequence, not the batch"
    sizes = batch_sizes(step.state.loaders.get(step.loop, ()))
    fixed = any(shaped_by(statement, sizes) is not None for statement in step.tail)
    if fixed or shaped_by_rows(step.unit, step.front, step.tail):
        return "it reshapes values by the batch size, and gathered batches are larger"
    for statement in step.tail:
        for node in descendants(statement):
            target = node.targets[0].target if isinstance(node, cst.Assign) else None
            if isinstance(target, cst.Subscript) and step.is_local(node) and not step.counts_rows(target):
                return "it writes results to positions that do not depend on the batch"
    return None


def _collecting(state: State, statement: cst.CSTNode) -> list[cst.CSTNode]:
    """What a statement adds to a sum, a list or a meter."""
    found: list[cst.CSTNode] = []
    for node in descendants(statement):
        if isinstance(node, cst.AugAssign):
            found.append(node.value)
        elif isinstance(node, cst.Call) and collects(state, node, _COLLECTING):
            found.extend(node.args)
    return found


def _last_forward(unit: Unit, reach: Reach, training: Training, loop: cst.For) -> cst.CSTNode | None:
    """The last statement in plain sight that runs the model; None where some forward is hidden deeper."""
    found: cst.CSTNode | None = None
    for statement in plain(loop.body):
        runs = any(node in training.forwards for node in reach.runs(statement, unit))
        if runs and not isinstance(statement, cst.SimpleStatementLine):
            return None
        if runs:
            found = statement
    return found


def plain(block: cst.CSTNode) -> list[cst.CSTNode]:
    """The statements of a block, those in its ``with`` blocks in place of these."""
    found: list[cst.CSTNode] = []
    for statement in getattr(block, "body", ()):
        if isinstance(statement, cst.With):
            found.extend(plain(statement.body))
        else:
            found.append(statement)
    return found


def _already_gathered(state: State, loop: cst.For) -> bool:
    for node in descendants(loop.body):
        if isinstance(node, cst.Attribute) and node.attr.value in ("gather_for_metrics", "gather", "reduce"):
            if origins(state.values.get(node.value), Role.ACCELERATOR):
                return True
    return False


def bound(unit: Unit, statement: cst.CSTNode) -> list[Binding]:
    """The variables that plain assignments in a statement set."""
    found: list[Binding] = []
    for node in descendants(statement):
        if isinstance(node, cst.Assign):
            for target in node.targets:
                found.extend(bound_by(unit, target.target))
    return found


def bound_by(unit: Unit, target: cst.CSTNode) -> list[Binding]:
    """The variables of an assignment's target."""
    if isinstance(target, cst.Name):
        binding = unit.names.binding(target)
        return [binding] if binding is not None else []
    if isinstance(target, (cst.Tuple, cst.List)):
        return [b for element in target.elements for b in bound_by(unit, element.value)]
    return []


def _read_first(binding: Binding, statements: list[cst.CSTNode], counting: set[cst.CSTNode]) -> bool:
    """Whether a variable is read in statements before one of them sets it; reads that do not count are passed over."""
    for statement in statements:
        nodes = set(descendants(statement))
        if any(read in nodes and read in counting for read in binding.reads):
            return True
        if isinstance(statement, cst.SimpleStatementLine) and any(d in nodes for d in binding.definitions):
            return False
    return False


def _inline(step: Step, training: Training) -> list[cst.BaseExpression]:
    """Forward calls in a statement whose result no name holds as a tensor: they are read on the spot."""
    names = step.unit.names
    calls = [n for n in descendants(step.forward) if isinstance(n, cst.Call) and n in training.forwards]
    numbers = any(step.is_number(b) for b in bound(step.unit, step.forward))
    own = synchronised(step.state, [step.forward])
    plainly = [c for c in calls if not isinstance(names.parents[c], cst.Expr) and c not in own]
    return [c for c in plainly if numbers or not _is_named(step, training, c)]


def _is_named(step: Step, training: Training, call: cst.Call) -> bool:
    """Whether the value of a call goes straight into names, through methods and functions of its rows at most."""
    node: cst.CSTNode = call
    for around in step.unit.names.ancestors(call):
        if isinstance(around, cst.Assign):
            return all(_only_names(t.target) for t in around.targets)
        method = isinstance(around, cst.Attribute) or (isinstance(around, cst.Call) and around.func is node)
        function = isinstance(around, cst.Call) and by_rows(step.state, training, around)
        if isinstance(around, cst.Arg):
            pass  # of a function of the rows: torch.sigmoid(model(x))
        elif not (method or function or isinstance(around, (cst.Subscript, cst.BinaryOperation, cst.UnaryOperation))):
            return False
        node = around
    return False


def _only_names(target: cst.CSTNode) -> bool:
    if isinstance(target, (cst.Tuple, cst.List)):
        return all(_only_names(element.value) for element in target.elements)
    return isinstance(target, cst.Name)


def _behind(unit: Unit, forward: cst.CSTNode) -> cst.CSTNode:
    """The forward's statement, or the ``with torch.no_grad()`` that holds nothing else."""
    block = unit.names.parents[forward]
    around = unit.names.parents.get(block)
    if isinstance(around, cst.With) and len(getattr(block, "body", ())) == 1 and len(around.items) == 1:
        text = unit.names.module.code_for_node(around.items[0].item)
        if "no_grad" in text or "inference_mode" in text:
            return around
    return forward
