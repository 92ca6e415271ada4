"""
Files that the main process has just written, and that every process reads: all of them wait in between.

Told by the names of the path or by its look, or for what lists a folder by where the path starts, where whoever reads,
or calls what reads, has come past the writing, or past a call of what writes, in the same function.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import libcst as cst

from ...facts.torch_api import questions
from ...findings import Finding, Severity
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import made_names, method_name, outside_name
from ..dataflow.open_modes import opens_to_write
from ..dataflow.values import State, Unit
from ..syntax.walk import descendants
from .checkpoints import waits
from .existing_guards import guarded
from .path_names import PathNames, text
from .path_roots import Root, Roots
from .path_shapes import PathShape, PathShapes
from .written import written

_LOADS = "torch.load"
"""What it reads is a checkpoint, which waits by itself."""
_READING_METHODS = frozenset({"read_text", "read_bytes"})
_PATHS = (cst.Name, cst.Attribute, cst.SimpleString, cst.FormattedString, cst.Call, cst.BinaryOperation)
_PASSED = (cst.With, cst.IndentedBlock)
"""What may enclose a read below the block of the write, so that the read is sure to run, and once: there all processes
can wait."""


class _Use(NamedTuple):
    """What writes or reads a path."""

    unit: Unit
    node: cst.CSTNode
    """The statement that writes, or the call that reads."""
    keys: Collection[Hashable]
    """By these a write and a read belong together."""
    path: cst.BaseExpression
    shapes: frozenset[PathShape] = frozenset()
    """How the path may look."""
    starts: frozenset[Root] = frozenset()
    """Where the path starts, of what writes, and of what lists a folder."""


class _Meeting(NamedTuple):
    """Where all processes can wait before something is read."""

    node: cst.CSTNode
    writes: tuple[cst.CSTNode, ...]
    """The statements before that write, or call what does."""
    keys: frozenset[Hashable]


class ReadBack:
    """
    Answers for one program.

    Args:
        state: the solved program.
        reach: its call graph.
        guarded_writes: the statements by which the main process alone writes, in each module.
        turns: what one process does before the others, which have waited for it when they come to read.
    """

    def __init__(
        self,
        state: State,
        reach: Reach,
        guarded_writes: Mapping[Unit, Iterable[cst.CSTNode]],
        turns: Iterable[cst.CSTNode],
    ) -> None:
        self.state, self.reach, self.roots = state, reach, Roots(state, reach)
        self.names = PathNames(state, reach)
        self.shapes = PathShapes(self.names)
        self._turns = {below for node in turns for below in descendants(node)}
        self._inside = {below for nodes in guarded_writes.values() for node in nodes for below in descendants(node)}
        writes = [use for unit, nodes in guarded_writes.items() for node in nodes for use in self._written(unit, node)]
        self._writes, self._reads = _alike(writes, list(self._read()) if writes else [])
        self._met = self._meetings(self._writes, self._reads)

    def waits(self, unit: Unit) -> list[cst.CSTNode]:
        """The statements before which all processes must wait, because only the main process wrote what they read."""
        return [met.node for met in _needed(unit, self._met.get(unit, ())) if not waits(unit, met.node)]

    def unsure(self) -> Iterator[tuple[Unit, Finding]]:
        """What is said of a folder that is listed after something was written, where only a run tells whether that is
        the same folder."""
        pairs = [
            (write, read)
            for write in range(len(self._writes))
            for read in range(len(self._reads))
            if _may_be_one(self._writes[write].starts, self._reads[read].starts)
        ]
        writes = [use._replace(keys=[p for p in pairs if p[0] == at]) for at, use in enumerate(self._writes)]
        reads = [use._replace(keys=[p for p in pairs if p[1] == at]) for at, use in enumerate(self._reads)]
        for unit, found in (self._meetings(writes, reads) if pairs else {}).items():
            known = self._met.get(unit, [])
            for met in _needed(unit, [*known, *found]):
                if met in found and not waits(unit, met.node):
                    write, read = next(pair for pair in pairs if pair in met.keys)
                    yield unit, _unsure(met.node, self._writes[write], self._reads[read])

    # What is written, and what is read --------------------------------------------------------------------------------

    def _written(self, unit: Unit, node: cst.CSTNode) -> Iterator[_Use]:
        for call in (n for n in descendants(node) if isinstance(n, cst.Call)):
            for path in _given(call):
                yield _Use(unit, node, {text(unit, path)}, path)
            for path in self._paths(call):
                starts = frozenset(self.roots.of(unit, path))
                keys = {*self.names.of(unit, path), *(root.text for root in starts)}
                yield _Use(unit, node, keys, path, self.shapes.of(unit, path), starts)

    def _paths(self, call: cst.Call) -> Iterator[cst.BaseExpression]:
        """What may be the path that a call writes, where the call is known to write one."""
        name = outside_name(self.state.calls[call]) if call in self.state.calls else ""
        method = isinstance(call.func, cst.Attribute) and method_name(call) in questions.writing_methods()
        if method or questions.opens(name) or questions.written_path(name) is not None:
            yield from written(self.state, call)

    def _read(self) -> Iterator[_Use]:
        rows = {
            code
            for unit in self.reach.units
            for item in unit.names.functions
            if _gives_rows(item)
            for code in self.reach.below(item)
        }
        for unit in self.reach.units:
            for call in unit.names.calls:
                path, folder, code = _read(self.state, call), _listed(self.state, call), unit.names.function(call)
                if (path is None and folder is None) or call in self._inside:
                    continue
                if code in rows or code not in self.reach.reachable or guarded(self.state, unit, call):
                    continue
                if path is not None and not opens_to_write(call, 1):
                    yield _Use(unit, call, self.names.of(unit, path), path, self.shapes.of(unit, path))
                elif path is None and folder is not None:
                    starts = frozenset(self.roots.of(unit, folder, file=_is_pattern(self.state, call)))
                    yield _Use(unit, call, {root.text for root in starts}, folder, starts=starts)

    # Where they meet --------------------------------------------------------------------------------------------------

    def _meetings(self, writes: Iterable[_Use], reads: Iterable[_Use]) -> dict[Unit, list[_Meeting]]:
        """Where all processes can wait, for each read that comes after a write."""
        writers = self._writers(writes)
        found: dict[Unit, list[_Meeting]] = {}
        seen: dict[cst.CSTNode, set[Hashable]] = {}
        pending = [(use.unit, use.node, set(use.keys)) for use in reads]
        while pending:
            unit, call, keys = pending.pop()
            keys = keys - seen.setdefault(call, set())
            if not keys or call in self._inside or guarded(self.state, unit, call):
                continue
            seen[call] |= keys
            before: dict[cst.CSTNode, list[cst.CSTNode]] = {}
            for writing in dict.fromkeys(node for key in keys for at, node in writers.get(key, ()) if at is unit):
                met = _meeting(unit, writing, unit.names.statement(call))
                if met is not None and met not in self._turns:
                    before.setdefault(met, []).append(writing)
            if before:  # the last: who waits there has waited for all of them, and for what a caller has written
                last = max(before, key=unit.names.order)
                found.setdefault(unit, []).append(_Meeting(last, tuple(before[last]), frozenset(keys)))
            else:  # `self.load()`, after the writing
                sites = self.reach.sites(unit.names.function(call))
                pending += [(self.state.calls[site].unit, site, keys) for site in sites]
        return found

    def _writers(self, writes: Iterable[_Use]) -> dict[Hashable, dict[tuple[Unit, cst.CSTNode], None]]:
        """The statements that write, or call what does, for each key."""
        inside: dict[Code, set[Hashable]] = {}
        found: dict[Hashable, dict[tuple[Unit, cst.CSTNode], None]] = {}
        for use in writes:
            inside.setdefault(use.unit.names.function(use.node), set()).update(use.keys)
            for key in use.keys:
                found.setdefault(key, {})[use.unit, use.node] = None
        for unit in self.reach.units if found else ():
            for call in (call for call in unit.names.calls if call not in self._turns):
                below = {code for function in self.reach.called(call) for code in self.reach.below(function)}
                for key in {key for code in below & inside.keys() for key in inside[code]}:
                    found[key][unit, unit.names.statement(call)] = None
        return found


def _needed(unit: Unit, meetings: Iterable[_Meeting]) -> list[_Meeting]:
    """The meetings without those at which all have waited already: at one between the write and the read."""
    found: list[_Meeting] = []
    for met in sorted(meetings, key=lambda m: unit.names.order(m.node)):
        around = {met.node, *unit.names.ancestors(met.node)}
        passed = [f.node for f in found if f.node is met.node or unit.names.parents.get(f.node) in around]
        passed = [node for node in passed if unit.names.function(node) is unit.names.function(met.node)]
        last = max((unit.names.order(node) for node in passed), default=-1)
        if any(last <= unit.names.order(write) for write in met.writes):
            found.append(met)
    return found


def _alike(writes: Sequence[_Use], reads: Sequence[_Use]) -> tuple[list[_Use], list[_Use]]:
    """The writes and the reads, those that may be of one path by its look with a key in common."""
    keys: list[set[Hashable]] = [set(use.keys) for use in (*writes, *reads)]
    for at, write in enumerate(writes):
        for by, read in enumerate(reads, len(writes)):
            if any(one.meets(other) for one in write.shapes for other in read.shapes):
                keys[at].add((at, by))
                keys[by].add((at, by))
    uses = [use._replace(keys=found) for use, found in zip((*writes, *reads), keys, strict=True)]
    return uses[: len(writes)], uses[len(writes) :]


def _may_be_one(written: frozenset[Root], listed: frozenset[Root]) -> bool:
    """Whether two folders may be one, and only a run can tell: one of them is known by the name of a variable alone."""
    unknown = any(starts and all(root.named for root in starts) for starts in (written, listed))
    return bool(written and listed) and unknown and written.isdisjoint(listed)


def _unsure(node: cst.CSTNode, write: _Use, read: _Use) -> Finding:
    written, listed = (" ".join(use.unit.names.module.code_for_node(use.path).split()) for use in (write, read))
    return Finding(
        "read-back",
        node,
        f"every process lists `{listed}`, and only the main process has written `{written}` before: if both are in one "
        "folder, the others may list it too early",
        "if they are, write accelerator.wait_for_everyone() before this line",
        Severity.NOTE,
    )


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
    whether and how often the read runs. None if the write does not come first."""
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
