"""
One turn of a loop over batches: what is bound before its forward pass, what the pass gives, and what is read after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.roles import SHARES, TENSORS, Role
from ...facts.torch_api import process_calls, tensor_parts
from ..dataflow.callees import method_name
from ..dataflow.trails import Trail, traces
from ..dataflow.values import State, Unit, Unknown, origins
from ..syntax.definitions import unshadowed
from ..syntax.nodes import counter
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from ..training.training import Training
from .batch_shapes import is_row_count, row_counts
from .engine.layout import (
    REPLICATED,
    Each,
    Layout,
    Partial,
    Several,
    Shard,
    Unclear,
    held,
    holds_chosen,
    holds_figure,
    holds_rows_apart,
    is_elsewhere,
    is_figure,
)
from .loop_layouts import LoopLayouts
from .row_counts import counted

_INNER = (cst.Lambda, cst.CompFor)
_COPYING = frozenset("numpy tolist array asarray".split())


class Step:
    """One pass through a loop's body: the statements in plain sight, and the forward among them."""

    def __init__(self, state: State, unit: Unit, loop: cst.For, forward: cst.CSTNode, layouts: LoopLayouts) -> None:
        self.state, self.unit, self.loop, self.forward, self.layouts = state, unit, loop, forward, layouts
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

    def counted_outside(
        self, training: Training, apart: Iterable[cst.CSTNode] = ()
    ) -> tuple[list[Binding], tuple[tuple[cst.Name, str], ...]]:
        """
        The variables of the batch that the forward's statement, or one after it, reads outside the forward's call;
        and those of which only the rows are counted, with what is counted in their place. Not those that only the
        statements ``apart`` read, whose counts are gathered where they are.
        """
        inside = {n for call in descendants(self.forward) if call in training.forwards for n in descendants(call)}
        own = synchronised(self.state, [self.forward])
        tail = ({*descendants(self.forward)} - inside - own) | self.behind
        tail -= {n for statement in apart for n in descendants(statement)}
        unique = dict.fromkeys(self.before)
        read = [b for b in unique if self.is_tensor(b) and any(read in tail for read in b.reads)]
        return counted(self.state, self.unit, training, self.loop, self.layouts, read, tail)

    def counted_apart(self, training: Training) -> dict[cst.CSTNode, Gather]:
        """The statements that count the rows of what the forward's call alone is given, and the gather that makes the
        count that of all processes' rows: ``rows += len(x)`` after ``hits += (model(x) == y).sum()``."""
        fed = self.read_inside(training)
        beside = [b for b in self.counted_outside(training)[0] if b in fed and self.layouts.is_rows(b)]
        found: dict[cst.CSTNode, Gather] = {}
        for statement in self.tail:
            added = _added(statement)
            of = _counted_name(added.value) if isinstance(added, cst.AugAssign) else None
            if of is not None and self.unit.names.binding(of) in beside:
                because = "this counts the rows of a batch, and each process holds only its shard"
                found[statement] = Gather(statement, (), because, inline=(of,), sized=(of.value,))
        return found

    def read_inside(self, training: Training) -> list[Binding]:
        """Variables that the forward's own arguments read."""
        calls = (node for node in descendants(self.forward) if node in training.forwards)
        names = [n for call in calls for n in nodes_in(call, cst.Name)]
        return [b for n in names if (b := self.unit.names.binding(n)) is not None and self.is_tensor(b)]

    def compares(self, training: Training) -> str | None:
        """What the forward pass is given that has a figure of its batch in each row: ``x - x.mean()``."""
        calls = [call for call in nodes_in(self.forward, cst.Call) if call in training.forwards]
        for value in (arg.value for call in calls for arg in call.args):
            if any(isinstance(one, Unclear) and one.compared for one in held(self.layouts.value(value))):
                return self.unit.names.one_line(value)
        return None

    def is_tensor(self, binding: Binding) -> bool:
        """Whether a variable holds a tensor of the batch."""
        return bool(origins(self.state.binding(binding), *TENSORS))

    def is_result(self, binding: Binding) -> bool:
        """Whether only entries of a variable are read after the forward pass: ``outputs.logits``,
        ``batch["labels"]``, ``output[1]`` of several."""
        reads = [read for read in binding.reads if read in self.behind]
        return bool(reads) and all(self._entry(binding, read) is not None for read in reads)

    def holds(self, binding: Binding) -> Layout:
        """What a variable holds when the forward pass is done."""
        return self.layouts.of(binding, [self.loop.target, *self.front, self.forward])

    def beside_rows(self, bindings: Iterable[Binding]) -> str | None:
        """The first of some variables that has, or may have, a number of the batch in it and is not such a tensor
        itself: it can neither be gathered nor reduced."""
        for binding in bindings:
            layout = self.holds(binding)
            if holds_figure(layout) and not is_figure(layout):
                return binding.name
        return None

    def _entry(self, binding: Binding, read: cst.Name) -> cst.Attribute | cst.Subscript | None:
        part = entry(self.unit, read)
        above = self.unit.names.parents.get(read)
        if part is not None or not isinstance(above, cst.Subscript) or above.value is not read:
            return part
        held = self.holds(binding)
        several = isinstance(held, Several) and holds_figure(held) and isinstance(_key(above), cst.Integer)
        return above if several and self._is_whole(self.layouts.value(above)) else None

    def _is_whole(self, part: Layout) -> bool:
        """Whether an entry is rows, or one number that can be reduced, and nothing more."""
        return is_figure(part) or isinstance(part, Shard)

    def parts(self, because: str) -> Iterator[Gather]:
        """The entries of results and batches that are read after the forward pass, to be gathered in place."""
        rows: list[cst.BaseExpression] = []
        for binding in self.read_behind():
            for read in binding.reads if self.is_result(binding) else ():
                part = self._entry(binding, read) if read in self.behind else None
                layout = self.layouts.value(part) if part is not None else REPLICATED
                if part is not None and (is_loss_entry(part, layout) or is_figure(layout)):
                    yield self.figure(part, because)
                elif part is not None:
                    rows.append(part)
        if rows:
            yield Gather(self.forward, (), because, inline=tuple(rows))

    def figure(self, node: cst.BaseExpression, because: str) -> Gather:
        """The reduction of one number of the batch, where it is read."""
        layout = self.layouts.value(node)
        text = self.unit.names.module.code_for_node(node)
        op = layout.op if isinstance(layout, Partial) else "mean"
        return Gather(node, (text,), because, form=Form.REDUCE, reduction=op)

    def reduction(self, binding: Binding) -> str:
        """How one number of the batch is to be joined."""
        layout = self.holds(binding)
        return layout.op if isinstance(layout, Partial) else "mean"

    def is_scalar(self, binding: Binding) -> bool:
        """Whether a tensor is one number of the batch, or turned into one just as it is: a loss that the model
        computed."""
        if is_figure(self.holds(binding)):
            return True
        names = self.unit.names
        for read in self._reads_of_pass(binding):
            parent = names.parents.get(read)
            if isinstance(parent, cst.Attribute) and parent.attr.value == "item":
                return True
            call = names.parents.get(parent) if isinstance(parent, cst.Arg) else None
            if isinstance(call, cst.Call) and method_name(call) == "float" and isinstance(call.func, cst.Name):
                return True
        return False

    def _reads_of_pass(self, binding: Binding) -> Iterator[cst.Name]:
        """The reads after the forward pass that see what a variable holds when the pass is done."""
        done = {n for part in (self.loop.target, *self.front, self.forward) for n in descendants(part)}
        for read in binding.reads:
            if read in self.behind and not done.isdisjoint(unshadowed(self.unit.names, binding, read)):
                yield read

    def counts_rows(self, target: cst.Subscript) -> bool:
        """Whether a position follows the batch: an index from the batch, or counted on by what the batch holds."""
        names = [n for part in target.slice for n in nodes_in(part, cst.Name)]
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

    def picks_row(self, collecting: Callable[[cst.CSTNode], Sequence[cst.CSTNode]]) -> str | None:
        """
        One row of a batch that goes into a figure: ``items[0]``, the right answer among a hundred candidates.

        The batch is a group then, and what is read of it cannot be read of several groups at once. ``collecting`` gives
        what a statement adds to a figure.
        """
        number = counter(self.loop)
        targets = [b for b in bound_by(self.unit, self.loop.target) if number not in b.definitions]
        rows = targets if len(targets) > 1 else []  # a single name may hold a tuple of tensors
        picked: dict[Binding, str] = {}
        for statement in self.tail:
            found = ""
            for node in descendants(statement):
                if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and len(node.slice) == 1:
                    index = node.slice[0].slice
                    constant = isinstance(index, cst.Index) and isinstance(index.value, cst.Integer)
                    if constant and self.unit.names.binding(node.value) in rows:
                        found = self.unit.names.module.code_for_node(node)
                elif isinstance(node, cst.Name) and (binding := self.unit.names.binding(node)) in picked:
                    found = found or picked[binding]
            if found:
                if collecting(statement):
                    return found
                picked.update(dict.fromkeys(bound(self.unit, statement), found))
        return None

    def copied_off(self) -> bool:
        """Whether what is read after the forward pass was taken from the batch before: ``labels = y.numpy()``. It holds
        the rows of one process, beside gathered ones."""
        for statement in self.front:
            if any(method_name(n) in _COPYING for n in nodes_in(statement, cst.Call)):
                copies = [b for b in bound(self.unit, statement) if self.is_number(b)]
                if any(read in self.behind for b in copies for read in b.reads):
                    return True
        return False

    def joins_columns(self) -> cst.BinaryOperation | None:
        """Where rows meet columns: where those of one of the values are was taken for granted, and is not so."""
        met = (node for node in self.behind if isinstance(node, cst.BinaryOperation) and self.layouts.ran(node))
        found = ((node, self.layouts.value(node)) for node in met)
        return next((node for node, one in found if isinstance(one, Unclear) and one.elsewhere), None)

    def of_unknown_rows(self) -> str | None:
        """
        A variable of unknown kind that is made from the batch, and used together with gathered rows.

        It holds what belongs to the rows of one process: labels that are looked up by the words of a batch.
        """
        made = dict.fromkeys(bound_by(self.unit, self.loop.target))
        for statement in self.front:
            names = nodes_in(statement, cst.Name)
            if any(b in made or self.is_tensor(b) for n in names if (b := self.unit.names.binding(n)) is not None):
                made.update(dict.fromkeys(bound(self.unit, statement)))
        number = counter(self.loop)
        unknown = [b for b in made if not self.is_tensor(b) and not self.is_number(b) and number not in b.definitions]
        gathered = dict.fromkeys(self.read_behind())
        for statement in self.tail if unknown else ():
            for node in nodes_in(statement, cst.Call, cst.Comparison, cst.BinaryOperation):
                if node in self.behind:
                    parts = set(descendants(node))
                    beside = next((b for b in unknown if not parts.isdisjoint(b.reads)), None)
                    if beside is not None and any(not parts.isdisjoint(b.reads) for b in gathered):
                        return beside.name
            if any(not set(descendants(statement)).isdisjoint(b.reads) for b in gathered):
                gathered.update(dict.fromkeys(bound(self.unit, statement)))
        return None

    def grown(self, bindings: Iterable[Binding]) -> str | None:
        """The one of some variables that the forward's statement adds to: ``found = torch.cat((found, f(x)))``."""
        inside = set(descendants(self.forward))
        for binding in bindings:
            seen = (unshadowed(self.unit.names, binding, read) for read in binding.reads if read in inside)
            if any(definition in inside for definitions in seen for definition in definitions):
                return binding.name
        return None

    def in_containers(self) -> str | None:
        """A list, a tuple or a dict with rows of one process that is read after the forward pass: what a function
        gives."""
        for binding in dict.fromkeys([*bound(self.unit, self.forward), *self.before]):
            rows = holds_rows_apart(self.holds(binding))
            if rows and not self.is_tensor(binding) and _read_first(binding, self.tail, self.behind):
                return binding.name
        return None

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
            base = next((n for n in nodes_in(value, cst.Name) if n.value != "len"), None)
            read = any(read in self.behind for read in count.binding.reads)
            if base is None or not read or not self.is_number(count.binding) or len(count.assign.targets) > 1:
                continue
            if count.form != "number" or not gathered:
                return None
            same = self.unit.names.binding(base) in gathered
            found.append(f"{name} = {code(value) if same else f'len({gathered[0].name})'}")
        return tuple(found)

    def counted_early(self, training: Training) -> dict[cst.CSTNode, Gather]:
        """
        The statements before the forward pass that add the number of the batch's rows to a sum, or something of these
        rows to what the loop collects, and the gather that makes it that of all processes' rows:
        ``total += y.size(0)``, ``seen.update(y.tolist())``.
        """
        found: dict[cst.CSTNode, Gather] = {}
        known = dict.fromkeys(bound_by(self.unit, self.loop.target))
        for statement in self.front:
            added = _added(statement)
            of = _counted_name(added.value) if isinstance(added, cst.AugAssign) else None
            binding = self.unit.names.binding(of) if of is not None else None
            if of is not None and binding is not None and self.is_tensor(binding):
                (rows,), counts = counted(self.state, self.unit, training, self.loop, self.layouts, [binding], {of})
                swapped = counts if rows in known else ()
                because = "this counts the rows of a batch, and each process holds only its shard"
                found[statement] = Gather(statement, (), because, inline=(of,), counts=swapped)
            elif added is not None and (rows_read := self._rows_read(added)):
                because = "{} is collected, and each process holds only its shard"
                found[statement] = Gather(statement, (), because, inline=rows_read)
            known.update(dict.fromkeys(bound(self.unit, statement)))
        return found

    def _rows_read(self, added: cst.BaseSmallStatement) -> tuple[cst.Name, ...]:
        """The rows that a statement reads to collect something; none if it reads anything else of the batch."""
        if not isinstance(added, cst.Expr | cst.AugAssign) or any(isinstance(n, _INNER) for n in descendants(added)):
            return ()
        names = [node for node in nodes_in(added.value, cst.Name) if self.is_local(node)]
        for name in names:
            binding, layout = self.unit.names.binding(name), self.layouts.value(name)
            whole = isinstance(layout, Shard) and not holds_chosen(layout) and not is_elsewhere(layout)
            if binding is None or not whole or not self.is_tensor(binding) or entry(self.unit, name) is not None:
                return ()
        given = (
            [added.value] if isinstance(added, cst.AugAssign) else [a.value for a in getattr(added.value, "args", ())]
        )
        known = all(self._of_rows(value) or (self._fills_a_set(added) and _distinct(value)) for value in given)
        return tuple(names) if known else ()

    def _of_rows(self, value: cst.BaseExpression) -> bool:
        """Whether it is known what a value has of the rows: something of each, or a sum or mean over them."""
        layout = self.layouts.value(value)
        entries = layout.items if isinstance(layout, Several) else (layout,)
        return all(
            isinstance(one, Shard)
            or (isinstance(one, Each) and one.rows)
            or (isinstance(one, Partial) and one.op in ("sum", "mean"))
            for one in entries
        )

    def _fills_a_set(self, added: cst.BaseSmallStatement) -> bool:
        """Whether a statement puts something into a set."""
        func = added.value.func if isinstance(added, cst.Expr) and isinstance(added.value, cst.Call) else None
        return isinstance(func, cst.Attribute) and bool(list(traces(self.state.values.get(func.value), Trail.SET)))

    def is_number(self, binding: Binding) -> bool:
        """Whether a variable holds a number computed from the batch, and no tensor."""
        return bool(origins(self.state.binding(binding), Role.LOCAL)) and not self.is_tensor(binding)

    def is_local(self, node: cst.CSTNode) -> bool:
        """Whether something below a node is computed from the batch."""
        return any(origins(self.state.values.get(part), *SHARES) for part in descendants(node))


def _distinct(value: cst.BaseExpression) -> bool:
    """``y.unique().tolist()``: each value once. In a set it is once for any number of batches."""
    found = False
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and not value.args:
        name = value.func.attr.value
        if name != "unique" and name not in _COPYING | {"cpu", "detach"}:
            return False
        found, value = found or name == "unique", value.func.value
    return found and isinstance(value, cst.Name)


def _added(statement: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """What a line does, where it does one thing."""
    sums = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
    return sums[0] if len(sums) == 1 else None


def _counted_name(value: cst.BaseExpression) -> cst.Name | None:
    """``x`` of ``x.size(0)``, ``x.shape[0]``, ``len(x)``."""
    names = [node for node in nodes_in(value, cst.Name) if node.value != "len"]
    return names[0] if is_row_count(value) and names and names[0].value not in ("size", "shape") else None


def entry(unit: Unit, read: cst.Name) -> cst.Attribute | cst.Subscript | None:
    """The entry of a result object or of a dict that a read of its name reads; None for a method or a tensor's part."""
    part = unit.names.parents.get(read)
    above = unit.names.parents.get(part) if part is not None else None
    if isinstance(part, cst.Attribute) and part.value is read and not tensor_parts.is_part(part.attr.value):
        return None if isinstance(above, cst.Call) and above.func is part else part
    if isinstance(part, cst.Subscript) and part.value is read and isinstance(_key(part), cst.SimpleString):
        return part
    return None


def is_loss_entry(part: cst.Attribute | cst.Subscript, layout: Layout) -> bool:
    """``outputs.loss``, ``out["total_loss"]``: one number by its name, if it is not known to be one for each row."""
    key = part.attr.value if isinstance(part, cst.Attribute) else _key(part)
    word = key.evaluated_value if isinstance(key, cst.SimpleString) else key
    return isinstance(word, str) and "loss" in word.lower() and not isinstance(layout, Shard)


def synchronised(state: State, statements: list[cst.CSTNode]) -> set[cst.CSTNode]:
    """What is handed to metrics that join the processes by themselves, those of torchmetrics and ignite."""
    found: set[cst.CSTNode] = set()
    for statement in statements:
        for node in nodes_in(statement, cst.Call):
            if is_synchronised(state, node):
                found.update(n for arg in node.args for n in descendants(arg))
    return found


def is_synchronised(state: State, call: cst.Call) -> bool:
    """Whether a call feeds such a metric: ``metric.update(...)``, ``metric(...)``."""
    func = call.func
    name = func.attr.value if isinstance(func, cst.Attribute) else ""
    holder = func.value if isinstance(func, cst.Attribute) and name in ("update", "forward") else func
    slot = state.values.get(holder)
    things = slot.things if slot is not None else ()
    return any(isinstance(t, Unknown) and process_calls.joins_processes(t.qualified) for t in things)


def plain(block: cst.CSTNode) -> list[cst.CSTNode]:
    """The statements of a block, those in its ``with`` blocks in place of these."""
    found: list[cst.CSTNode] = []
    for statement in getattr(block, "body", ()):
        if isinstance(statement, cst.With):
            found.extend(plain(statement.body))
        else:
            found.append(statement)
    return found


def bound(unit: Unit, statement: cst.CSTNode) -> list[Binding]:
    """The variables that plain assignments in a statement set."""
    found: list[Binding] = []
    for node in nodes_in(statement, cst.Assign):
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


def _key(node: cst.Subscript) -> cst.BaseExpression | None:
    first = node.slice[0].slice
    return first.value if isinstance(first, cst.Index) else None
