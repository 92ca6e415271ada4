"""What an operation of the tables does to the layouts of its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import libcst as cst

from ....facts.torch_api.kinds import outside, tensors, training
from ...dataflow.callees import method_name
from ...syntax.nodes import dotted, keyword
from ..loss_arguments import asked_reduction
from .arguments import Arguments
from .axes import moved, pattern
from .layout import (
    CHOSEN,
    NEUTRAL,
    PADDED,
    REPLICATED,
    Each,
    Foreign,
    Layout,
    Made,
    Partial,
    Replicated,
    Several,
    Shape,
    Shard,
    ShardRow,
    ShardSize,
    Unclear,
    Whole,
    WholeCount,
    as_rows,
    hosted,
    inner,
    join_all,
    mapped,
    on_each_path,
    settled,
    varies,
)
from .pointwise import masking, normalised, paired, pointwise
from .reductions import after_reduction, figure, losses, open_dimension
from .shapes import cut, integer, position, product, reshaped, shaped_as


def applied(transfer: tuple[object, ...], given: Arguments) -> Layout | None:
    """The layout of what an operation gives; None where its row does not say."""
    found = _applied(transfer, given)
    return found if found is None or isinstance(transfer, tensors.Choose) else typed(found, given)


def typed(found: Layout, given: Arguments) -> Layout:
    """What a call gives, as a mask where it asks something of each value or makes truths of them; else as it is."""
    if not isinstance(found, (Shard, Replicated)):
        return found
    types = {method_name(given.node), *(dotted(arg.value).rpartition(".")[2] for arg in given.node.args)}
    if not types.isdisjoint(_NUMBERS) and found.mask:
        return replace(found, mask=False)
    return masking(found) if not types.isdisjoint(_TESTS) else found


def _applied(transfer: tuple[object, ...], given: Arguments) -> Layout | None:
    operand = settled(given.operand(), given.node)
    if isinstance(transfer, tensors.Pointwise) and transfer.chooses and len(given.node.args) == 1:
        transfer = tensors.Choose("a tuple of places")
    if isinstance(transfer, tensors.Pointwise):
        shape_only = {given.plain[i][0] for i in transfer.shape_only if i < len(given.plain)}
        held = [given.base] if given.base is not None else []
        held += [layout for node, layout in given.plain if node not in shape_only]
        if method_name(given.node) in _DIVIDES and len(held) == 2 and isinstance(inner(held[1]), Partial):
            of = settled(inner(held[0]), given.node)
            return normalised(of) if isinstance(of, (Shard, Partial)) else pointwise(held, given.node)
        if (
            method_name(given.node) == "pow"
            and len(held) == 2
            and isinstance(root := inner(held[0]), Unclear)
            and root.squared
        ):
            return root.squared if integer(given.plain[-1][0]) == 2 else root
        named = [layout for _, layout in given.named.values()]
        return pointwise([*held, *named], given.node, linear=_is_linear(given))
    if isinstance(transfer, tensors.Convert) and not varies(operand):
        return operand if isinstance(operand, Foreign) else Replicated(mask=getattr(inner(operand), "mask", False))
    if isinstance(transfer, tensors.ToHost) and transfer.gives != "tensor":
        return hosted(operand)
    if isinstance(transfer, (tensors.Same, tensors.Detach, tensors.Convert, tensors.ToHost, tensors.Passes)):
        return operand
    if isinstance(transfer, outside.TextOf):
        if isinstance(inner(operand), Partial) and transfer.bends:
            return Unclear("a figure of the batch is changed by a function that is not linear", given.node)
        return hosted(operand) if transfer.host else REPLICATED
    if isinstance(transfer, tensors.Structural):
        return _structure(operand, given)
    if isinstance(transfer, tensors.Reduce) and transfer.sized and keyword(given.node, transfer.sized) is None:
        return None
    if isinstance(transfer, tensors.Reduce):
        operand = pointwise(given.layouts()[:2], given.node) if transfer.two else operand
        return after_reduction(inner(as_rows(operand)), transfer, given)
    if isinstance(transfer, tensors.AlongDim):
        return _along(operand, transfer, given)
    if isinstance(transfer, tensors.Reshape):
        like = [inner(given.plain[place][1]) for place in transfer.shape_only if place < len(given.plain)]
        if like and isinstance(like[0], Shard) and isinstance(rows := inner(operand), (Shard, Replicated)):
            return shaped_as(rows, like[0], transfer, given.node)
        arguments = given.from_place(transfer.dim)
        nodes, sizes = [node for node, _ in arguments], [layout for _, layout in arguments]
        rows, shape = inner(operand), sizes[0] if len(sizes) == 1 and transfer.how in ("view", "expand") else None
        if isinstance(shape, Shape) and isinstance(rows, Shard):
            return shaped_as(rows, shape.of, transfer, given.node)  # `y.view(x.shape)`, `y.view(*x.shape)`
        return mapped(
            operand,
            lambda one: (
                reshaped(one, transfer, nodes, sizes, given.node)
                if isinstance(one, Shard)
                else (_made(given, arguments, one) if isinstance(one, Replicated) else cut(one, transfer.how in _CUTS))
            ),
        )
    if isinstance(transfer, tensors.Concat):
        return _joined(operand, transfer, given)
    if isinstance(transfer, tensors.Product):
        held = [settled(inner(layout), given.node) for layout in given.layouts()[:2]]
        if transfer.distances and held and all(map(_is_matrix_of_rows, held)):
            return paired(given.node)
        if any(isinstance(one, (Shard, ShardRow, Partial)) for one in held) and len(held) == 2:
            left, right = map(_as_vector, held) if transfer.vectors else held
            return product(left, right, transfer.batched, given.node)
        return pointwise(held, given.node)
    if isinstance(transfer, tensors.Choose):
        return _chosen(operand, transfer, given)
    if isinstance(transfer, tensors.Einsum):
        return _summed(given)
    if isinstance(transfer, tensors.Axes):
        return _renamed(operand, given)
    if isinstance(transfer, tensors.Create):
        if transfer.like is not None and transfer.like < len(given.plain):
            return given.plain[transfer.like][1]
        if transfer.steps and len(given.plain) > 1:
            return Shard(0, 1) if any(isinstance(one, ShardSize) for one in given.layouts()) else Made(node=given.node)
        return made(given)
    if isinstance(transfer, tensors.Random):
        held = [inner(layout) for layout in given.layouts()]
        if any(isinstance(one, (Shard, Whole, Unclear)) for one in held):
            return pointwise(held, given.node)  # noise beside each value: dropout
        return made(given, transfer.size)
    if isinstance(transfer, tensors.RowGradient):
        return _gradients(given)
    if isinstance(transfer, training.Loss):
        return losses(given.layouts(), asked_reduction(given.constant, transfer), transfer.classes, given.node)
    if isinstance(transfer, outside.Bar):
        return operand
    if isinstance(transfer, training.Collate):
        return _batched(given)
    if isinstance(transfer, tensors.Opaque) and transfer.linear and isinstance(inner(operand), Partial):
        return operand
    return None


_CUTS = frozenset({"narrow", "select", "split"})


def _batched(given: Arguments) -> Layout:
    """``tokenizer(texts, pairs, padding=True)``: a table whose entries have a row for each text."""
    found = pointwise([inner(as_rows(layout)) for layout in given.layouts()], given.node)
    return Each(replace(found, rank=None, least=0, uneven=PADDED), table=True) if isinstance(found, Shard) else found


_LINEAR = frozenset("neg negative mul div true_divide multiply divide float double half to type bfloat16 real".split())


def _gradients(given: Arguments) -> Layout | None:
    """``torch.autograd.grad(scores, x)``: of what is computed row by row, or of a sum, each row has its own; of weights
    they are a sum or a mean over the rows, as what they start from."""
    plain = [layout for _, layout in given.plain[:2]]
    asked = [given.named[name][1] for name in ("outputs", "inputs") if name in given.named]
    if len(plain) + len(asked) != 2:
        return None
    of, by = (settled(inner(layout), given.node) for layout in (*plain, *asked))
    if isinstance(of, Shard) and isinstance(by, (Shard, Replicated)):
        return Each(by if isinstance(by, Shard) else figure("sum", of))
    if isinstance(of, Partial) and isinstance(by, Replicated):
        return Each(of)
    lost = next((one for one in (by, of) if isinstance(one, Unclear)), None)
    if lost is not None and not isinstance(by, Replicated):
        return Each(replace(lost, near=""))  # the sum from which they start is gone: it made one number of all rows
    return Each(by) if isinstance(of, Partial) and of.op == "sum" and isinstance(by, Shard) else None


def _is_matrix_of_rows(layout: Layout) -> bool:
    return isinstance(layout, Shard) and layout.dim == 0 and layout.rank in (None, 2)


def _as_vector(layout: Layout) -> Layout:
    return replace(layout, rank=1) if isinstance(layout, Shard) and layout.dim == 0 else layout


_TESTS = frozenset(
    "eq ne gt ge lt le isnan isin logical_and logical_or logical_not bool equal not_equal "
    "bool_ byte uint8 BoolTensor ByteTensor".split()
)
"""What gives true and false, by a question or as a type of tensors. A tensor of bytes is a mask as an index, too."""
_NUMBERS = frozenset(
    "long int float double half bfloat16 int64 int32 float32 float64 LongTensor IntTensor FloatTensor".split()
)
"""What a test becomes a number by: it can look up an entry of a table for each row, and chooses none of them."""
_DIVIDES = frozenset("div div_ divide true_divide".split())


def _is_linear(given: Arguments) -> bool:
    last = method_name(given.node)
    held = list(map(inner, given.layouts()))
    terms = [one for one in held if not isinstance(one, Replicated) and not (isinstance(one, Unclear) and one.per_row)]
    return last.rstrip("_") in _LINEAR and len(terms) == 1 and isinstance(terms[0], (Partial, Unclear))


def _structure(operand: Layout, given: Arguments) -> Layout:
    """``len(x)``, ``x.size()``, ``x.size(0)``, ``x.numel()``, ``np.shape(x)``."""
    last = method_name(given.node)
    dimension = given.dimension(0 if given.base is not None else 1, "dim") if last == "size" else None
    asked = integer(dimension)
    if last == "size" and dimension is None and given.base is None:
        last = "numel"  # `np.size(x)`
    if last in ("size", "shape") and isinstance(operand, Each):
        operand = inner(operand)  # no list has a size: the batch is one tensor
    if isinstance(operand, Unclear) and (last in ("numel", "nelement") or (last == "size" and not asked)):
        return operand
    if not isinstance(operand, Shard):
        return (
            Unclear("the number of rows of a container is not known", given.node)
            if isinstance(operand, (ShardRow, Whole)) and last == "len"
            else REPLICATED
        )
    if last == "len":
        return ShardSize(operand.chosen) if operand.dim == 0 else REPLICATED
    if last in ("numel", "nelement"):
        return ShardSize(operand.chosen)
    if last in ("size", "shape"):
        return sized(operand, asked) if dimension is not None else Shape(operand)
    return REPLICATED


def sized(rows: Shard, place: int | None) -> Layout:
    """The length of a tensor along a dimension."""
    if place is None:
        return REPLICATED
    return ShardSize(rows.chosen) if position(rows, place) == rows.dim else REPLICATED


def _along(operand: Layout, transfer: tensors.AlongDim, given: Arguments) -> Layout:
    others = [inner(layout) for layout in given.layouts()]
    if not isinstance(operand, Shard):
        return pointwise(others, given.node)
    asked = given.dimension(transfer.dim, transfer.keyword)
    parts = [part.value for part in asked.elements] if isinstance(asked, (cst.Tuple, cst.List)) else [asked]
    usual = transfer.default if isinstance(transfer.default, tuple) else (transfer.default,)
    numbers = [given.number(part) if part is not None else None for part in parts] if asked is not None else usual
    if None in numbers:
        return open_dimension(asked, given)
    if transfer.ranks and _ranks_rows(operand, numbers):
        how: Literal["all", "some"] = "some" if method_name(given.node) == "topk" else "all"
        return Unclear("it goes by how large the rows of a batch are", given.node, joint=True, ranked=how)
    if any(number is not None and position(operand, number) == operand.dim for number in numbers):
        return Unclear("it mixes the rows of the batch", given.node, joint=True)
    whole = next((one for one in others if isinstance(one, (Unclear, Whole))), None)
    if whole is not None:
        return pointwise([operand, whole], given.node)
    return Several((operand, operand)) if transfer.gives == "value and index" else operand


def _ranks_rows(rows: Shard, numbers: Iterable[int | None]) -> bool:
    """Whether rows are put in an order, and not what each of them has."""
    last = rows.flat and rows.rank is None and rows.dim == 0
    return any(
        number is not None and (position(rows, number) == rows.dim or (last and number == -1)) for number in numbers
    )


def _chosen(operand: Layout, transfer: tensors.Choose, given: Arguments) -> Layout:
    """``x.masked_select(y > 0)``, ``(y > 0).nonzero()``, ``np.where(y > 0)[0]``."""
    values = transfer.gives in ("values", "a tuple of values")
    rows = pointwise(given.layouts(), given.node) if values else inner(operand)
    if not isinstance(rows, Shard):
        return rows
    found = Shard(0, merged=rows.dim > 0, uneven=rows.uneven or CHOSEN, chosen=True, mask=not values, host=rows.host)
    as_tuple = keyword(given.node, "as_tuple")
    several = transfer.gives in ("a tuple of values", "a tuple of places") or (
        isinstance(as_tuple, cst.Name) and as_tuple.value == "True"
    )
    return Each(found) if several else found


def _summed(given: Arguments) -> Layout | None:
    """``torch.einsum("bij,jk->bik", x, w)``, ``einops.einsum(x, w, "b i j, j k -> b i k")``: the letter or the word of
    the rows has to be in what is given, too."""
    texts = [node.evaluated_value for node, _ in given.plain if isinstance(node, cst.SimpleString)]
    text = texts[0] if texts else None
    if not isinstance(text, str) or "->" not in text or "..." in text:
        return None
    words = not isinstance(given.plain[0][0], cst.SimpleString)
    before, after = (
        [one.split() if words else list(one.replace(" ", "")) for one in side.split(",")]
        for side in text.split("->", 1)
    )
    operands = [layout for node, layout in given.plain if not isinstance(node, cst.SimpleString)]
    if len(operands) == 1 and isinstance(operands[0], Several):
        operands = list(operands[0].items)
    held = [settled(inner(layout), given.node) for layout in operands]
    if len(before) != len(held) or not any(isinstance(one, Shard) for one in held):
        return pointwise(held, given.node)
    if any(isinstance(one, Shard) and one.dim >= len(terms) for terms, one in zip(before, held, strict=True)):
        return None
    rows = {terms[one.dim] for terms, one in zip(before, held, strict=True) if isinstance(one, Shard)}
    shards = [one for one in held if isinstance(one, Shard)]
    if len(shards) + sum(isinstance(one, Replicated) for one in held) < len(held) or len(rows) != 1:
        return pointwise(held, given.node) if len(rows) == 1 else paired(given.node)
    letter = rows.pop()
    if any(one.merged for one in shards):
        return Unclear("it sums over the rows", given.node, joint=True)
    if letter not in after[0]:
        return figure("sum", shards[0])
    uneven = next((one.uneven for one in shards if one.uneven), "")
    return Shard(after[0].index(letter), len(after[0]), uneven=uneven, chosen=any(one.chosen for one in shards))


def _renamed(operand: Layout, given: Arguments) -> Layout | None:
    """``rearrange(x, "b h c -> b c h")``, ``repeat(x, "1 d -> b d", b=len(y))``, ``reduce(x, "b d -> b", "sum")``."""
    nodes = [node for node, _ in given.plain[1:]]
    found = pattern(given.named["pattern"][0] if "pattern" in given.named else nodes[0] if nodes else None)
    if found is None:
        return None
    before, after = found
    if isinstance(operand, Replicated):
        named = [(names[0] if len(names) == 1 else "") for names in after]
        return _made(given, [given.named.get(name, (given.node, REPLICATED)) for name in named], operand)
    if not isinstance(operand, Shard):
        return None
    asked = given.named["reduction"][0] if "reduction" in given.named else nodes[1] if len(nodes) > 1 else None
    how = asked.evaluated_value if isinstance(asked, cst.SimpleString) else None
    return moved(operand, before, after, given.named, how if isinstance(how, str) else None, given.node)


def _joined(operand: Layout, transfer: tensors.Concat, given: Arguments) -> Layout:
    if isinstance(operand, Each) and isinstance(inner(operand), ShardRow):
        return Shard(0) if transfer.new else Unclear("rows of unknown length are put together", given.node)
    held = (
        pointwise(operand.items, given.node, linear=True)
        if isinstance(operand, Several)
        else settled(inner(operand), given.node)
    )
    if isinstance(held, ShardRow):
        return Unclear("single rows are put together", given.node)
    if isinstance(operand, Shard):  # a list with one element a row
        return Shard(0) if transfer.new else Unclear("rows of unknown length are put together", given.node)
    if not isinstance(held, Shard):
        return held
    asked = given.dimension(transfer.dim, transfer.keyword)
    number = transfer.fixed if transfer.fixed is not None else (given.number(asked) if asked is not None else 0)
    if number is None:
        return open_dimension(asked, given)
    place = position(held, number)
    if transfer.new:
        return replace(held, dim=held.dim + (place <= held.dim), rank=held.rank + 1 if held.rank is not None else None)
    if (
        place == held.dim
        and isinstance(operand, Several)
        and not all(isinstance(inner(i), Shard) for i in operand.items)
    ):
        return Unclear("rows of one process and of the whole batch are put together", given.node)
    return held


def made(given: Arguments, size: int | None = None) -> Layout:
    """
    The layout of what a call makes of a shape.

    Args:
        given: the arguments of the call.
        size: the position of what says how many, where other arguments come before.
    """
    named = [pair for name, pair in given.named.items() if name in ("size", "shape")]
    shapes = [pair for pair in given.plain if isinstance(pair[1], (Several, Shape))]
    if named or shapes:
        return _made(given, (named or shapes)[:1], REPLICATED)  # `torch.full((n, 2), 1.0)`: the value is no size
    return _made(given, given.plain[size : size + 1] if size is not None else given.plain, REPLICATED)


def _made(given: Arguments, sizes: Sequence[tuple[cst.BaseExpression, Layout]], otherwise: Layout) -> Layout:
    """The layout of what is made with a shape: of rows where a size is their number."""
    flat: list[tuple[cst.BaseExpression | None, Layout]] = []
    for node, layout in sizes:
        if isinstance(node, (cst.Tuple, cst.List)) and isinstance(layout, Several):
            flat.extend(zip((e.value for e in node.elements), layout.items, strict=True))
        elif isinstance(layout, Shape):
            return layout.of
        elif isinstance(layout, Several):
            flat.extend((None, item) for item in layout.items)
        else:
            flat.append((node, layout))
    for place, (_, layout) in enumerate(flat):
        if isinstance(layout, ShardSize):
            return Shard(place, len(flat))
        if isinstance(layout, Unclear):
            return layout
        if isinstance(inner(layout), Shard) and (place == 0 or method_name(given.node) != "full"):
            return Unclear("it is as large as a number says that each batch brings", given.node, fixed=True)
    for place, (_, layout) in enumerate(flat):
        if isinstance(layout, WholeCount):
            return Whole(given.node, layout.node, place)
    return Made(node=given.node, sizes=tuple(node for node, _ in flat)) if otherwise == REPLICATED else otherwise


def elements(layout: Layout, node: cst.CSTNode) -> Layout:
    """What a loop over a value goes through."""
    return on_each_path(layout, lambda one: _elements(one, node), node)


def _elements(layout: Layout, node: cst.CSTNode) -> Layout:
    if isinstance(layout, Shard):
        rank = layout.rank - 1 if layout.rank is not None else None
        return (
            ShardRow()
            if layout.dim == 0
            else replace(layout, dim=layout.dim - 1, rank=rank, least=max(layout.least - 1, 0))
        )
    if isinstance(layout, Several):
        return join_all(layout.items)
    if isinstance(layout, Each):
        return layout.element
    if isinstance(layout, Made) and len(layout.sizes) > 1:
        return replace(layout, sizes=layout.sizes[1:])
    if isinstance(layout, Replicated):
        return layout if isinstance(layout, Foreign) else REPLICATED
    return layout if isinstance(layout, (Unclear, ShardRow)) else Unclear("it is looped over", node)


def collected(source: Layout, element: Layout) -> Layout:
    """What a comprehension over a value gives, whose elements have a layout."""
    if isinstance(source, Shard) and source.dim == 0:
        if isinstance(inner(element), ShardRow):
            return Shard(0)
    if isinstance(source, Each) and source.rows:
        return Each(element, rows=True, uneven=source.uneven)
    return Each(element) if varies(element) or not isinstance(source, Shard) else Each(NEUTRAL)
