"""
Metrics: which tensors a loop turns into numbers, and where they can be made those of all processes.

An evaluation loop is understood if its forward pass is directly in the loop's body, or in ``with`` blocks in it. What
the loop reads after the forward pass is gathered directly after it. A loop that is not understood keeps its loader
unprepared: every process then evaluates the whole set, which costs time and is right.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import libcst as cst

from ...facts.accelerator import Side
from ...facts.container_methods import adds
from ...facts.effects import Effect, EffectKind
from ...facts.module import Gather
from ...facts.roles import Origin
from ..dataflow.call_graph import Reach, reach_of
from ..dataflow.containers import collects
from ..dataflow.values import State, Unit
from ..syntax.definitions import unshadowed
from ..syntax.nodes import is_none, keyword
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from ..training.cached_batches import drained
from ..training.training import Training, switches_gradients_off
from .batch_figures import BatchFigure, BatchFigures, joint_figure
from .batch_shapes import batch_sizes, divided_by, shaped_by, shaped_by_rows
from .best_batches import best_of_batches
from .criterion_calls import without_criteria
from .engine.layout import holds_chosen, holds_figure, is_elsewhere, is_figure
from .joined import by_script
from .long_results import is_long
from .loop_layouts import LoopLayouts, layouts_of
from .loop_step import Step, bound, plain, synchronised
from .numbered_files import numbered_file
from .padding import ragged
from .row_counts import counted, only_counted
from .single_rows import not_joined, read_alone

_SENDING = frozenset({"put", "write"})
"""Methods of queues and of writers."""


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

    groups: bool = False
    """Each batch is a whole: its figures can be averaged over the processes, and its rows cannot be joined."""

    keeps: bool = False
    """Something that outlives a turn of the loop takes figures of its batches."""

    alone: bool = False
    """By the script's own condition on the rank, only one process runs it."""
    figures: tuple[BatchFigure, ...] = ()
    """What the loop collects of each batch that is no sum over rows, where its batches are joined."""
    at: cst.CSTNode | None = None
    """Where the reason is seen, if it is not understood."""

    def leave(self, because: str, *, groups: bool = False, at: cst.CSTNode | None = None) -> None:
        """Leave the loop as it is: every process evaluates the whole set."""
        self.gather, self.understood, self.because, self.groups, self.at = None, False, because, groups, at


class _Doubt(NamedTuple):
    """Why a loop is not understood, and where that is seen."""

    because: str
    at: cst.CSTNode | None = None


def evaluations(state: State, reach: Reach, training: Training) -> list[Evaluation]:
    """Every evaluation loop of the program."""
    found = []
    for loop in training.eval_loops:
        unit = next(u for u in reach.units if loop in u.names.parents)
        layouts = layouts_of(state).loop(unit, loop) if isinstance(loop, cst.For) else None
        answer = _evaluation(state, unit, reach, training, loop, layouts)
        if not answer.understood and layouts is not None:
            further = _evaluation(state, unit, reach, training, loop, layouts, going_on=True)
            answer = further if further.understood else answer
        gathers = [g for g in (answer.gather, *answer.parts) if g is not None]
        if answer.understood and ragged(state, reach, loop, gathers, partial(is_long, state, layouts, loop)):
            answer.leave(
                "its batches are padded to different lengths on each process, or have another number of rows than of "
                "samples, and could not be gathered"
            )
        answer.keeps = _keeps(state, unit, loop)
        if answer.understood and gathers and isinstance(loop, cst.For) and layouts is not None:
            figure = joint_figure(layouts, _figures(state, unit, loop)) or best_of_batches(unit, loop, layouts)
            if figure is not None:
                text = unit.names.module.code_for_node(figure)
                answer.leave(
                    f"`{text}` is a figure of one whole batch, and not of the rows that several have together",
                    groups=True,
                    at=figure,
                )
            else:
                answer.figures = tuple(BatchFigures(state, unit, loop, layouts, gathers).all())
        why = not_joined(state, reach, layouts, loop, gathers) if answer.understood and layouts is not None else ""
        if why:
            answer.figures = ()
            answer.leave(f"its loader gives one row at a time, and {why}", groups=True)
        found.append(answer)
    return found


def _evaluation(
    state: State,
    unit: Unit,
    reach: Reach,
    training: Training,
    loop: cst.CSTNode,
    layouts: LoopLayouts | None,
    *,
    going_on: bool = False,
) -> Evaluation:
    """``going_on``: a module without weights that is given an output of the model is no forward pass of its own."""

    def answer(
        gather: Gather | None,
        understood: bool,
        because: str,
        parts: tuple[Gather, ...] = (),
        at: cst.CSTNode | None = None,
    ) -> Evaluation:
        return Evaluation(loop, unit, reach.loaders(loop), gather, understood, because, parts, at=at)

    if layouts is None or not isinstance(loop, cst.For) or not isinstance(loop.body, cst.IndentedBlock):
        return answer(None, False, "it is not a plain for loop")
    if drained(state, unit, loop) is not None:
        return answer(None, False, "its batches were read once and kept")
    if by_script(state, descendants(loop.body)):
        return answer(None, True, "gathered by the script")
    training = without_criteria(state, reach, training, loop, layouts, going_on=going_on)
    forward = _last_forward(unit, reach, training, loop)
    if forward is None:
        hidden = next((one for one in plain(loop.body) if _runs(unit, reach, training, one)), None)
        return answer(None, False, _HIDDEN if hidden is not None else "its forward pass was not found", at=hidden)
    if any(_of_groups(loader) for loader in reach.loaders(loop)):
        because = "its `batch_sampler` makes each batch a whole, and gathered batches are several"
        return Evaluation(loop, unit, reach.loaders(loop), None, False, because, groups=True)
    step = Step(state, unit, loop, forward, layouts)
    early = step.counted_early(training)
    apart = step.counted_apart(training) if _inline(step, training) else {}
    doubt = _doubt(step, training, set(early), apart)
    if doubt is not None:
        return answer(None, False, doubt.because, at=doubt.at)
    because = "a metric is computed from {}, and each process holds only its shard"
    inline = _inline(step, training)
    if inline:
        rows, counts = step.counted_outside(training, apart)
        names, recounts = tuple(b.name for b in rows), step.recounts(rows)
        if recounts is None:
            return answer(None, False, _COUNTED)
        if (some := _not_rows(step, rows, inline)) is not None:
            return answer(None, False, some)
        single = [call for call in inline if is_figure(layouts.value(call))]
        rest = tuple(call for call in inline if call not in single)
        gather = Gather(forward, names, because, side=Side.BEFORE, inline=rest, counts=counts, recounts=recounts)
        whole = (*early.values(), *apart.values(), *(step.figure(call, because) for call in single))
        return answer(gather if names or rest else None, True, because, whole)
    parts = (*early.values(), *step.parts(because))
    if (some := _not_rows(step, [], [part for gather in parts for part in gather.inline])) is not None:
        return answer(None, False, some)
    later = [b for b in step.read_behind() if not step.is_result(b)]
    if not later:
        nothing = "nothing of the batch is read after the forward pass"
        return answer(None, True, because if parts else nothing, parts)
    rows, counts = counted(
        state, unit, training, loop, step.layouts, [b for b in later if not step.is_scalar(b)], step.behind
    )
    beside = step.beside_rows(later)
    if beside is not None:
        return answer(None, False, f"`{beside}` has one number of the batch in it, beside rows or in place of them")
    if (some := _not_rows(step, rows, [])) is not None:
        return answer(None, False, some)
    scalars, recounts = [b for b in later if step.is_scalar(b)], step.recounts(rows)
    figures = tuple((b.name, step.reduction(b)) for b in scalars)
    if recounts is None:
        return answer(None, False, _COUNTED)
    names = tuple(b.name for b in rows)
    gather = Gather(_behind(unit, forward), names, because, figures=figures, counts=counts, recounts=recounts)
    gather = gather._replace(sized=only_counted(layouts, training, loop, gather, rows))
    return answer(gather, True, because, parts)


def _not_rows(step: Step, variables: Iterable[Binding], values: Iterable[cst.BaseExpression]) -> str | None:
    """Why what would be gathered when the forward pass is done has not the rows of the batch; None if it has."""
    code = step.unit.names.module.code_for_node
    held = [
        *((b.name, step.holds(b)) for b in variables),
        *((code(value), step.layouts.value(value)) for value in values),
    ]
    for text, layout in held:
        if step.layouts.has_number(layout):
            return f"`{text}` is, or has in it, one number, and whether that is a mean over its rows is not known"
        if holds_chosen(layout):
            return f"`{text}` has some rows of the batch, chosen by what is in them, and could not be gathered"
        if is_elsewhere(layout):
            return f"the rows of `{text}` are not along its first dimension, or may not be, and could not be gathered"
    return None


def _of_groups(loader: Origin) -> bool:
    """Whether the script says which rows make a batch: an episode, so many of each class."""
    sampler = keyword(loader.node, "batch_sampler", 4) if isinstance(loader.node, cst.Call) else None
    return sampler is not None and not is_none(sampler)


_COUNTED = "it counts the rows of its batch before the forward pass and uses that number after it"


_BEFORE = "it counts or collects something of its batch before its forward pass"
_COLLECTED = "it collects what one forward pass gives before another"


_HIDDEN = "it runs the model, or a criterion with code of its own, in an inner loop or in some branches alone"


def outside_guards(gathers: list[Gather], effects: list[Effect]) -> list[Gather]:
    """The gathers without those that would be in a statement that only the main process runs."""
    writes = [e for e in effects if e.kind is EffectKind.WRITE]
    ahead = {n for e in writes if e.forward is not None for n in descendants(e.forward)}
    guarded = {n for e in writes for n in descendants(e.node)} - ahead
    kept = [g if not g.inline else g._replace(inline=tuple(c for c in g.inline if c not in guarded)) for g in gathers]
    return [g for g in kept if g.inline or (g.node not in guarded and (g.names or g.figures))]


def _doubt(
    step: Step, training: Training, early: Container[cst.CSTNode], apart: Iterable[cst.CSTNode]
) -> _Doubt | None:
    """Why the loop's metric cannot be made whole by gathering after the forward pass; None if it can. ``early`` and
    ``apart``: the statements before and after it whose counts are gathered where they are."""
    for statement in step.front:
        if statement not in early and any(step.is_local(node) for node in _collecting(step.state, statement)):
            runs = any(node in training.forwards for node in reach_of(step.state).runs(statement, step.unit))
            return _Doubt(_COLLECTED if runs else _BEFORE, statement)
    if isinstance(step.forward, cst.If):
        doubt = _doubt_of_ways(step, step.forward)
        if doubt is not None:
            return _Doubt(doubt, step.forward)
    inline = _inline(step, training)
    direct = any(node in training.forwards for node in descendants(step.forward))
    named = bound(step.unit, step.forward)
    numbers = any(step.is_number(b) for b in named)
    if not direct and (numbers or not named):
        return _Doubt("a function that runs the model returns numbers, not tensors", step.forward)
    if not direct and (grown := step.grown(named)) is not None:
        return _Doubt(
            f"`{grown}` goes from batch to batch in the statement that calls a function which runs the model",
            step.forward,
        )
    if any(holds_figure(layout) and not is_figure(layout) for layout in map(step.layouts.value, inline)):
        return _Doubt("its forward pass gives a number of the batch beside rows, or in place of them", step.forward)
    if len(inline) > 1:
        return _Doubt("it runs several forward passes in one statement", step.forward)
    fed = step.read_inside(training) if inline else []
    both = next((b.name for b in step.counted_outside(training, apart)[0] if b in fed), None)
    if both is not None:
        return _Doubt(f"`{both}` goes into its forward pass, and is used beside what that gives", step.forward)
    if (compared := step.compares(training)) is not None:
        return _Doubt(
            f"`{compared}` compares each row with a figure of its batch, and a last batch is filled up with others"
        )
    if step.copied_off():
        return _Doubt("it copies something from the batch before its forward pass and reads the copy after it")
    beside = step.of_unknown_rows()
    if beside is not None:
        return _Doubt(
            f"`{beside}` is made from the rows of one process and used together with values that would be gathered"
        )
    inside = step.in_containers()
    if inside is not None:
        return _Doubt(f"`{inside}` has rows of the batch in a list or a dict, and could not be gathered")
    if (joined := step.joins_columns()) is not None:
        return _Doubt("it joins rows with columns: of what would be gathered, something has its rows elsewhere", joined)
    if alone := read_alone(step.layouts, step.behind):
        return _Doubt(f"it reads `{alone}` as one number: each batch has one row, and gathered batches have several")
    if (cut := next((node for node in step.behind if step.cuts_rows(node)), None)) is not None:
        return _Doubt(
            "it slices off first or last rows: the first dimension may be the positions of a sequence, not the batch",
            cut,
        )
    single = step.picks_row(lambda statement: _collecting(step.state, statement))
    if single is not None:
        return _Doubt(f"it takes single rows of each batch (`{single}`), and gathered batches are fewer")
    sizes = batch_sizes(reach_of(step.state), step.state.loaders.get(step.loop, ()))
    fixed = any(shaped_by(statement, sizes) is not None for statement in step.tail)
    if fixed or step.layouts.fixes_shape(step.behind) or shaped_by_rows(step.unit, step.front, step.tail):
        return _Doubt("it gives values a shape by the size of a batch, and gathered batches are larger")
    if (divides := next((one for one in step.tail if divided_by(one, sizes)), None)) is not None:
        return _Doubt("it divides by the batch size, and gathered batches are larger", divides)
    if (numbered := numbered_file(step.state, step.unit, step.loop, step.tail)) is not None:
        return _Doubt("it numbers its files by the batch size, and gathered batches are larger", numbered)
    for statement in step.tail:
        for node in descendants(statement):
            target = node.targets[0].target if isinstance(node, cst.Assign) else None
            if isinstance(target, cst.Subscript) and step.is_local(node) and not step.counts_rows(target):
                return _Doubt("it writes results to positions that do not depend on the batch", node)
    return None


def _doubt_of_ways(step: Step, choice: cst.If) -> str | None:
    """Why a forward pass in several branches cannot be gathered after them; None if it can."""
    tests = (node.test for node in nodes_in(choice, cst.If))
    if any(step.is_local(test) for test in tests):
        return "which forward pass it runs depends on the batch"
    plainly = [[one for one in way if isinstance(one, cst.SimpleStatementLine)] for way in _ways(choice)]
    ways = [{b for statement in way for b in bound(step.unit, statement)} for way in plainly]
    read = step.read_behind()
    if any(0 < sum(b in way for way in ways) < len(ways) for b in read):
        return "only some branches set what is read after its forward pass"
    anew = {b for way in plainly for statement in way for b in bound(step.unit, statement)}
    added = [node for node in _collecting(step.state, choice) if not _adds_to(step.unit, node, anew)]
    if any(step.is_local(node) for node in added):
        return "it counts something in the branches of its forward pass"
    return None


def _adds_to(unit: Unit, added: cst.CSTNode, bindings: Container[Binding]) -> bool:
    """Whether a value is added to one of some variables: ``loss += ...`` of a ``loss`` that begins anew."""
    change = unit.names.parents.get(added)
    target = change.target if isinstance(change, cst.AugAssign) else None
    return isinstance(target, cst.Name) and unit.names.binding(target) in bindings


def _keeps(state: State, unit: Unit, loop: cst.CSTNode) -> bool:
    inside = set(descendants(loop))
    if not isinstance(loop, cst.For):
        return True  # a comprehension gives what it computes
    for node in inside:
        counts = isinstance(node, cst.AugAssign)
        added = isinstance(node, cst.Call) and collects(state, node, _takes_in)
        holder = node.target if isinstance(node, cst.AugAssign) else getattr(getattr(node, "func", None), "value", None)
        if counts or added:
            names = list(nodes_in(holder, cst.Name)) if holder is not None else []
            binding = unit.names.binding(names[0]) if names else None
            anew = (d for d in binding.definitions if d in inside) if binding is not None else ()
            if all(isinstance(unit.names.parents.get(d), cst.AugAssign) for d in anew):
                return True
    return False


def _figures(state: State, unit: Unit, loop: cst.For) -> Iterator[cst.BaseExpression]:
    """What a loop collects, and the conditions on which it does."""
    for added in _collecting(state, loop.body):
        yield added
        for around in unit.names.enclosing(added, cst.If, cst.For):
            if around is loop:
                break
            if isinstance(around, cst.If):
                yield around.test


def _collecting(state: State, statement: cst.CSTNode) -> list[cst.BaseExpression]:
    """What a statement adds to a sum, a list or a meter."""
    found: list[cst.BaseExpression] = []
    for node in descendants(statement):
        if isinstance(node, cst.AugAssign):
            found.append(node.value)
        elif isinstance(node, cst.Call) and collects(state, node, _takes_in):
            found.extend(arg.value for arg in node.args)
    return found


def _last_forward(unit: Unit, reach: Reach, training: Training, loop: cst.For) -> cst.CSTNode | None:
    """The last statement in plain sight that runs the model; None where some forward is hidden deeper."""
    found: cst.CSTNode | None = None
    for statement in plain(loop.body):
        if not _runs(unit, reach, training, statement):
            continue
        ways = _ways(statement) if isinstance(statement, cst.If) else []
        runs = [[one for one in way if _runs(unit, reach, training, one)] for way in ways]
        every = bool(ways) and all(way and all(isinstance(one, cst.SimpleStatementLine) for one in way) for way in runs)
        if not every and not isinstance(statement, cst.SimpleStatementLine):
            return None
        found = statement
    return found


def _runs(unit: Unit, reach: Reach, training: Training, statement: cst.CSTNode) -> bool:
    """Whether a statement runs a model."""
    return any(node in training.forwards for node in reach.runs(statement, unit))


def _ways(choice: cst.If) -> list[list[cst.CSTNode]]:
    """The statements of each way through an ``if``; none where one has no ``else``."""
    found: list[list[cst.CSTNode]] = []
    other = choice.orelse
    blocks = [choice.body, *([other.body] if isinstance(other, cst.Else) else [])]
    deeper = [_ways(other)] if isinstance(other, cst.If) else []
    if len(blocks) + len(deeper) < 2:
        return []
    for block in blocks:
        ways: list[list[cst.CSTNode]] = [[]]
        for statement in plain(block):
            if isinstance(statement, cst.If):
                inner = _ways(statement)
                if not inner:
                    return []
                ways = [[*way, *rest] for way in ways for rest in inner]
            else:
                ways = [[*way, statement] for way in ways]
        found += ways
    if not all(deeper):
        return []
    return [*found, *(way for ways in deeper for way in ways)]


def _inline(step: Step, training: Training) -> list[cst.BaseExpression]:
    """Forward calls in a statement whose result no name holds as a tensor: they are read on the spot."""
    names = step.unit.names
    calls = [n for n in nodes_in(step.forward, cst.Call) if n in training.forwards]
    given = bound(step.unit, step.forward)
    here = set(descendants(step.forward))
    reads = [r for b in given for r in b.reads if not here.isdisjoint(unshadowed(names, b, r))]
    if reads and set(reads) <= synchronised(step.state, step.tail):
        return []  # such a metric is given what is made of them: `outputs = [clean(one) for one in model(x)]`
    numbers = any(step.is_number(b) for b in given)
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
        function = around in training.forwards or (isinstance(around, cst.Call) and step.layouts.gives_rows(around))
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
        if switches_gradients_off(around.items[0].item):
            return around
    return forward


def _takes_in(method: str) -> bool:
    """Whether a method puts what it is given into a collection, a meter, a queue or a file."""
    return adds(method) or method in _SENDING
