"""
Moves of whole batches: ``[t.to(device) for t in batch]``, ``{k: v.to(device) for k, v in batch.items()}``.

Without the move such an expression only copies its source; written as what it is then, it is a ``list(batch)``, a
``dict(batch)``, or nothing at all.
"""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from ..syntax.names import Names


class Copy(NamedTuple):
    """What a comprehension becomes whose only work was to move."""

    node: cst.CSTNode
    """The comprehension, or the statement that goes as a whole."""
    text: str | None
    """What replaces it; None if the statement is removed."""


def copy_of(names: Names, move: cst.Call) -> Copy | None:
    """What is left of the comprehension or the loop around a move, where it does nothing else."""
    loop = _in_place(names, move)
    if loop is not None:
        return Copy(loop, None)
    found: cst.BaseComp | None = None
    node: cst.CSTNode = move
    assert isinstance(move.func, cst.Attribute)
    kept: cst.CSTNode = move.func.value
    source: cst.BaseExpression | None = None
    while True:
        around = names.parents.get(node)
        if isinstance(around, cst.IfExp) and around.body is node and around.orelse.deep_equals(kept):
            node = around
            continue
        given = _source(around, node, kept) if isinstance(around, cst.BaseComp) else None
        if given is None:
            break
        assert isinstance(around, cst.BaseComp)
        found, source, node, kept = around, given, around, given
    if found is None or source is None or names.scope.lookup("list") or names.scope.lookup("dict"):
        return None
    return _written(names, found, source)


def _source(comp: cst.BaseComp, element: cst.CSTNode, kept: cst.CSTNode) -> cst.BaseExpression | None:
    """What a comprehension copies, if ``element`` is all that it computes and is its own variable, moved."""
    clause = comp.for_in
    if clause.ifs or clause.inner_for_in is not None or clause.asynchronous is not None:
        return None
    if isinstance(comp, cst.DictComp):
        call = clause.iter
        items = isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value == "items"
        target = clause.target
        if not items or comp.value is not element or not isinstance(target, cst.Tuple) or len(target.elements) != 2:
            return None
        key, value = (e.value for e in target.elements)
        same = key.deep_equals(comp.key) and value.deep_equals(kept)
        return call.func.value if same else None  # type: ignore[attr-defined]
    if isinstance(comp, (cst.ListComp, cst.GeneratorExp)) and comp.elt is element and clause.target.deep_equals(kept):
        return clause.iter
    return None


def _written(names: Names, comp: cst.BaseComp, source: cst.BaseExpression) -> Copy:
    text = names.module.code_for_node(source)
    parent = names.parents.get(comp)
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        statement = names.statement(comp)
        alone = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
        if isinstance(target, (cst.Tuple, cst.List)):
            return Copy(statement, None) if alone and _alike(target, source) else Copy(comp, text)
        if isinstance(comp, cst.DictComp) and alone and target.deep_equals(source):
            return Copy(statement, None)
    if isinstance(parent, cst.Arg) and parent.star:
        return Copy(comp, text)
    if isinstance(comp, cst.GeneratorExp):
        call = names.parents.get(parent) if isinstance(parent, cst.Arg) else None
        named = isinstance(call, cst.Call) and isinstance(call.func, cst.Name)
        if named and call.func.value in ("list", "tuple", "set", "sorted") and len(call.args) == 1:  # type: ignore[union-attr]
            return Copy(comp, text)
        return Copy(comp, f"iter({text})")
    return Copy(comp, f"{'dict' if isinstance(comp, cst.DictComp) else 'list'}({text})")


def _alike(target: cst.Tuple | cst.List, source: cst.BaseExpression) -> bool:
    """``x, y = [each.to(device) for each in (x, y)]``."""
    if not isinstance(source, (cst.Tuple, cst.List)) or len(source.elements) != len(target.elements):
        return False
    pairs = zip(target.elements, source.elements, strict=True)
    return all(isinstance(one.value, cst.Name) and one.value.deep_equals(other.value) for one, other in pairs)


def _in_place(names: Names, move: cst.Call) -> cst.For | None:
    """``for k, v in batch.items(): batch[k] = v.to(device)``: the loop, where it does nothing else."""
    assign = names.parents.get(move)
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return None
    target = assign.targets[0].target
    if not isinstance(target, cst.Subscript):
        return None
    assert isinstance(move.func, cst.Attribute)
    loop = _only_statement_of(names, names.statement(move))
    if loop is None or loop.orelse is not None:
        return None
    index = target.slice[0].slice
    key = index.value if isinstance(index, cst.Index) else None
    moved, over = move.func.value, loop.iter
    if isinstance(over, cst.Call) and isinstance(over.func, cst.Attribute) and not over.args:
        if over.func.attr.value == "items" and isinstance(loop.target, cst.Tuple) and len(loop.target.elements) == 2:
            names_ = [e.value for e in loop.target.elements]
            fits = names_[0].deep_equals(key) and names_[1].deep_equals(moved) if key is not None else False
            return loop if fits and over.func.value.deep_equals(target.value) else None
        over = over.func.value if over.func.attr.value == "keys" else over
    over = over.args[0].value if isinstance(over, cst.Call) and len(over.args) == 1 else over
    same = key is not None and loop.target.deep_equals(key) and moved.deep_equals(target)
    return loop if same and over.deep_equals(target.value) else None


def _only_statement_of(names: Names, statement: cst.CSTNode) -> cst.For | None:
    """The ``for`` of which a statement is the whole body, an ``if`` in between allowed."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    for _ in range(2):
        block = names.parents.get(statement)
        around = names.parents.get(block) if block is not None else None
        if len(getattr(block, "body", ())) != 1:
            return None
        if isinstance(around, cst.For):
            return around
        if not isinstance(around, cst.If) or around.orelse is not None or around.body is not block:
            return None
        if not isinstance(around.test, (cst.Comparison, cst.Call, cst.Name)):
            return None
        statement = around
    return None
