"""
Files that the main process has just written, and that every process reads: all of them wait in between.

Told by the text of the path, or for what lists a folder by where the path starts, where whoever reads, or calls what
reads, has come past the writing in the same function.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator

import libcst as cst

from ...facts.effects import Effect, EffectKind
from ...facts.module import Save
from ...facts.torch_api import questions
from ..dataflow.call_graph import Code, Reach
from ..dataflow.values import State, Unit
from ..syntax.walk import descendants
from ..training.training import made_names, method_name, outside_name
from .checkpoints import waits
from .effects import opens_to_write
from .existing_guards import guarded
from .path_roots import Roots

_LOADS = "torch.load"
"""What it reads is a checkpoint, which waits by itself."""
_ROOT = "in "
"""Before the start of a path, beside the texts of whole paths."""
_READING_METHODS = frozenset({"read_text", "read_bytes"})
_PATHS = (cst.Name, cst.Attribute, cst.SimpleString, cst.FormattedString, cst.Call, cst.BinaryOperation)
_PASSED = (cst.For, cst.With, cst.IndentedBlock)
"""What may enclose a read below the block of the write, so that the read is sure to run: there all processes can
wait."""


def read_back(
    state: State, unit: Unit, reach: Reach, effects: Collection[Effect], saves: Iterable[Save]
) -> Iterator[cst.CSTNode]:
    """The statements before which all processes must wait, because only the main process wrote what they read."""
    written = [effect.node for effect in effects if effect.kind is EffectKind.WRITE]
    written += [unit.names.statement(save.call) for save in saves]
    if not written:
        return
    rows = {
        code
        for unit_ in reach.units
        for item in unit_.names.functions
        if _gives_rows(item)
        for code in reach.below(item)
    }
    roots = Roots(state, reach)
    paths: dict[str, list[cst.CSTNode]] = {}
    inside: set[cst.CSTNode] = set()
    for node in written:
        below = list(descendants(node))
        inside.update(below)
        for call in below:
            keys = _text_keys(unit, call) | _root_keys(state, unit, roots, call) if isinstance(call, cst.Call) else ()
            for key in keys:
                paths.setdefault(key, []).append(node)
    turns = {below for e in effects if e.kind is EffectKind.DOWNLOAD for below in descendants(e.node)}
    _add_calls(unit, reach, paths, turns)
    own: dict[cst.Call, set[str]] = {}
    reads: dict[Code, set[str]] = {}
    for call in unit.names.calls:
        read, folder = _read(state, call), _listed(state, call)
        code = unit.names.function(call)
        usual = call not in inside and code not in rows and code in reach.reachable
        if read is not None and usual and not opens_to_write(call, 1) and not guarded(state, unit, call):
            own[call] = {_text(unit, read)}
        elif folder is not None and usual and not guarded(state, unit, call):
            own[call] = {_ROOT + root for root in roots.of(unit, folder, file=_is_pattern(state, call))}
        reads.setdefault(code, set()).update(own.get(call, ()))
    found: dict[cst.CSTNode, None] = {}
    for call in unit.names.calls if reads else ():
        if call in inside or guarded(state, unit, call):
            continue
        read_here = set(own.get(call, ()))
        for function in reach.called(call):  # `self.load()`, after the writing
            read_here.update(text for below in reach.below(function) for text in reads.get(below, ()))
        writers = dict.fromkeys(node for text in read_here for node in paths.get(text, ()))
        for meeting in (_meeting(unit, node, unit.names.statement(call)) for node in writers):
            if meeting is not None and not waits(unit, meeting):
                found[meeting] = None
    yield from found


def _add_calls(unit: Unit, reach: Reach, paths: dict[str, list[cst.CSTNode]], turns: Container[cst.CSTNode]) -> None:
    """To the statements that write a path, those that call what does: `self.download()`; not where one process does it
    before the others."""
    writing: dict[Code, set[str]] = {}
    for text, nodes in paths.items():
        for node in nodes:
            writing.setdefault(unit.names.function(node), set()).add(text)
    for call in (call for call in unit.names.calls if call not in turns):
        for function in reach.called(call):
            for text in {text for below in reach.below(function) for text in writing.get(below, ())}:
                paths[text].append(unit.names.statement(call))


def _gives_rows(code: cst.CSTNode) -> bool:
    """A method by which a data set gives rows: workers run it, or each process for rows of its own."""
    return isinstance(code, cst.FunctionDef) and code.name.value in (
        "__getitem__",
        "__getitems__",
        "__iter__",
        "__next__",
    )


def _meeting(unit: Unit, writing: cst.CSTNode, reading: cst.CSTNode) -> cst.CSTNode | None:
    """The statement after the write before which all processes can meet: the read itself, or the statement that decides
    whether the read runs. None if the write does not come first."""
    if unit.names.function(writing) is not unit.names.function(reading):
        return None
    above = [writing, *unit.names.ancestors(writing)]
    here, sure = reading, True
    for around in unit.names.ancestors(reading):
        if around in above:
            position = above.index(around)
            before = above[position - 1] if position else None
            body = around.body if isinstance(around, (cst.Module, cst.IndentedBlock)) else ()
            order: dict[cst.CSTNode | None, int] = {statement: index for index, statement in enumerate(body)}
            if before in order and here in order and order[before] < order[here]:
                return reading if sure else here
            return None
        sure = sure and isinstance(around, _PASSED)
        here = around
    return None


def _given(call: cst.Call) -> Iterator[cst.BaseExpression]:
    """What may be a path in a call that writes: its arguments, and the object of ``path.write_text(...)``."""
    yield from (arg.value for arg in call.args if isinstance(arg.value, _PATHS))
    if isinstance(call.func, cst.Attribute):
        yield call.func.value


def _text_keys(unit: Unit, call: cst.Call) -> set[str]:
    return {_text(unit, path) for path in _given(call)}


def _root_keys(state: State, unit: Unit, roots: Roots, call: cst.Call) -> set[str]:
    """Where the paths start that a call writes to, as far as it says which of its arguments is one."""
    name = outside_name(state.calls[call]) if call in state.calls else ""
    method = isinstance(call.func, cst.Attribute) and method_name(call) in questions.writing_methods()
    position = questions.written_path(name) if not questions.opens(name) else 0
    position = 0 if position is None and method else position
    paths = [arg.value for arg in call.args[position : position + 1]] if position is not None else []
    if method and isinstance(call.func, cst.Attribute):
        paths.append(call.func.value)
    return {_ROOT + root for path in paths for root in roots.of(unit, path)}


def _is_pattern(state: State, call: cst.Call) -> bool:
    """Whether what a call lists is a pattern of files, and not a folder: ``glob.glob("*.jpg")``."""
    return outside_name(state.calls[call]).startswith("glob.")


def _read(state: State, call: cst.Call) -> cst.BaseExpression | None:
    """The path that a call reads."""
    record = state.calls.get(call)
    if isinstance(call.func, cst.Attribute) and method_name(call) in _READING_METHODS:
        return call.func.value
    name = outside_name(record) if record is not None and call.args else ""
    reads = (questions.reads(name) and name != _LOADS) or questions.opens(name)
    return call.args[0].value if reads else None


def _listed(state: State, call: cst.Call) -> cst.BaseExpression | None:
    """The folder that a call lists, or the pattern that starts with it."""
    record = state.calls.get(call)
    if record is None:
        return None
    if questions.lists(outside_name(record)):
        return call.args[0].value if call.args else None
    lists = any(map(questions.lists, made_names(record)))
    return call.func.value if lists and isinstance(call.func, cst.Attribute) else None


def _text(unit: Unit, node: cst.BaseExpression) -> str:
    return unit.names.module.code_for_node(node)
