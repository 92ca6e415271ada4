"""
Files that one process writes or takes away, and all processes read: in which order, and where all of them wait.

Two uses of one path need a wait in between where the main process alone makes one of them, and all processes the other:
what it has written is read after it, and what they read it takes away, or writes anew, only after them. The later one,
or a call of what makes it, comes past the earlier one, or past a call of what makes that, in the same function.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import libcst as cst

from ...facts.checkpoints import Wait
from ...facts.reasons import Reason
from ...facts.reasons.effects import ListedEarly, NoWaitInTry
from ..dataflow.call_graph import Code, Reach
from ..dataflow.values import State, Unit
from ..layouts.swallowed_errors import survivals
from ..syntax.names import LONGEST
from ..syntax.walk import descendants, nodes_in
from ..training.row_code import for_rows
from .checkpoints import waits
from .existing_guards import guarded
from .file_uses import FileUse, FileUses
from .path_roots import Root

_WROTE = "this run wrote the file, and all processes read it"
_TAKEN = "every process has read {where}the file that is taken away here, or written anew"
_MAY_HAVE_WRITTEN = "this run may have written the file, and all processes read it"
_PASSED = (cst.With, cst.IndentedBlock)
"""What may enclose a read below the block of the write, so that the read is sure to run, and once: there all processes
can wait."""

_Makers = dict[Hashable, dict[Unit, dict[cst.CSTNode, None]]]
"""The statements that make a use, or call what does, by the names of its path and their module."""


class _Meeting(NamedTuple):
    """Where all processes can wait between two uses of a file."""

    node: cst.CSTNode
    """The statement before which they wait."""
    earlier: tuple[cst.CSTNode, ...]
    """The statements before that make the earlier use, or call what does."""
    keys: frozenset[Hashable] = frozenset()


class ReadBack:
    """
    Answers for one program.

    Args:
        state: the solved program.
        reach: its call graph.
        guarded_writes: the statements by which the main process alone writes, in each module.
        turns: what one process does before the others, which have waited for it when they come to read.
        loads: the statements before which all wait for a checkpoint, in each module.
        perhaps: those of them whose path is not that of a file which the script certainly writes.
        joining: where all processes come together anyway: a backward pass, a gather.
    """

    def __init__(
        self,
        state: State,
        reach: Reach,
        guarded_writes: Mapping[Unit, Sequence[cst.CSTNode]],
        turns: Iterable[cst.CSTNode] = (),
        loads: Mapping[Unit, Sequence[cst.CSTNode]] | None = None,
        joining: Iterable[cst.CSTNode] = (),
        perhaps: Container[cst.CSTNode] = (),
    ) -> None:
        self.state, self.reach = state, reach
        self._turns = {below for node in turns for below in descendants(node)}
        uses = FileUses(state, reach, guarded_writes)
        self._inside, self._joined = uses.inside, JoinedAnyway(reach, joining)
        self._guarded = {unit: set(nodes) for unit, nodes in guarded_writes.items()}
        self._loads = {node: unit for unit, nodes in (loads or {}).items() for node in nodes}
        written = list(uses.written())
        self._writes, self._reads = _alike(written, list(uses.read()) if written else [])
        self._perhaps: set[_Meeting] = set()
        self._met = self._meetings(self._writes, [*self._reads, *(uses.asked() if written else ())])
        writers = self._makers(written) if loads else {}
        for unit, nodes in (loads or {}).items():
            own = list(dict.fromkeys(node for places in writers.values() for node in places.get(unit, ())))
            of_loads = [(node, _of_load(unit, node, own)) for node in nodes]
            self._met.setdefault(unit, []).extend(met for _, met in of_loads)
            self._perhaps.update(met for node, met in of_loads if node in perhaps)
        taken = list(uses.taken())
        self._left = self._meetings(uses.kept(), taken, taken=True) if taken else {}

    def waits(self, unit: Unit) -> list[Wait]:
        """Where all processes must wait, because only the main process wrote what they read there, or takes away
        there what they have read."""
        left = self._left.get(unit, [])
        met = [*self._met.get(unit, ()), *left]
        met = _needed(unit, [each for each in met if not self._fails_alone(unit, each)])
        why: dict[cst.CSTNode, str] = {}
        for each in met:
            may = _WROTE if each not in self._perhaps and _is_sure(unit, each) else _MAY_HAVE_WRITTEN
            why.setdefault(each.node, _taken(unit, each) if each in left else may)
        return [Wait(node, why[node]) for node in why if self._is_open(unit, node)]

    def _is_open(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether all processes come to a statement, and the script does not let them wait there itself."""
        rows = for_rows(self.state, self.reach)  # of which other processes have others
        return not waits(unit, node) and unit.names.function(node) not in rows

    def _fails_alone(self, unit: Unit, met: _Meeting) -> bool:
        """Whether a ``try`` begins before both uses, and the script goes on after an error in it: a process that fails
        at the earlier one would leave the others waiting. Not where they work together in it anyway."""
        if met.node in self._loads:
            return False
        for home, body, _ in survivals(self.reach, unit, met.node):
            both = home is not unit or body not in unit.names.ancestors(met.node)  # around a call of the function
            if both or not set(descendants(body)).isdisjoint(met.earlier):
                if not self._joined.within(home, home.names.parents[body]):
                    return True
        return False

    def without_wait(self) -> Iterator[tuple[Unit, Reason]]:
        """What is reported where all processes should wait, and an error on one of them would let the others wait for
        ever."""
        for found, takes in ((self._met, False), (self._left, True)):
            for unit, meetings in found.items():
                for met in _needed(unit, [each for each in meetings if self._fails_alone(unit, each)]):
                    if self._is_open(unit, met.node):
                        yield unit, NoWaitInTry(met.node, takes)

    def unsure(self) -> Iterator[tuple[Unit, Reason]]:
        """What is said of a folder that is listed after something was written, where only a run tells whether that is
        the same folder."""
        pairs = [
            (write, read)
            for write in range(len(self._writes))
            for read in range(len(self._reads))
            if not _are_known(self._writes[write], self._reads[read])
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

    # Where they meet --------------------------------------------------------------------------------------------------

    def _meetings(
        self, earlier: Iterable[FileUse], later: Iterable[FileUse], *, taken: bool = False
    ) -> dict[Unit, list[_Meeting]]:
        """Where all processes can wait, for each use that comes after another one. ``taken``: the later one is that of
        the main process, and needs no wait where all have come together in between."""
        earlier, later = list(earlier), list(later)
        firsts = self._makers(earlier)
        paths = (
            {(use.unit.names.statement(use.node), use.unit): use.path for use in (*earlier, *later)} if taken else {}
        )
        found: dict[Unit, list[_Meeting]] = {}
        seen: dict[cst.CSTNode, set[Hashable]] = {}
        pending = [(use.unit, use.node, set(use.keys)) for use in later]
        while pending:
            unit, node, keys = pending.pop()
            keys = keys - seen.setdefault(node, set())
            if not keys or (not taken and node in self._inside) or guarded(self.state, unit, node):
                continue
            seen[node] |= keys
            here = unit.names.statement(node)
            before: dict[cst.CSTNode, list[cst.CSTNode]] = {}
            for first in dict.fromkeys(n for key in keys if key in firsts for n in firsts[key].get(unit, ())):
                met = _meeting(unit, first, here)
                if met is None and (first, unit) in paths and (here, unit) in paths:
                    met = self._next_turn(unit, first, here, [paths[first, unit], paths[here, unit]])
                if met is not None and met not in self._turns:
                    before.setdefault(met, []).append(first)
            if taken:
                before = {m: apart for m, all_ in before.items() if (apart := self._apart(unit, all_, here))}
                if not before and self._joined.before(unit, here):
                    continue
            if before:  # the last: who waits there has waited for all of them, and for what a caller has done
                last = max(before, key=unit.names.order)
                met = self._ahead(unit, last, before[last]) if taken else last
                found.setdefault(unit, []).append(_Meeting(met, tuple(before[last]), frozenset(keys)))
            elif not taken and (within := list(self._within(unit, node, keys, firsts))):  # `read(make(folder))`
                for home, inner in within:
                    found.setdefault(home, []).append(inner)
            elif taken or not self._waits_already(unit, here):  # `self.load()`, after the writing
                sites = self.reach.sites(unit.names.function(node))
                pending += [(self.state.calls[site].unit, site, keys) for site in sites]
        return found

    def _within(
        self, unit: Unit, reading: cst.CSTNode, keys: set[Hashable], firsts: _Makers
    ) -> Iterator[tuple[Unit, _Meeting]]:
        """Where all can wait in the functions that write what the same statement reads after it has called them."""
        names = unit.names
        made = [firsts[key] for key in keys if key in firsts]
        for call in nodes_in(names.statement(reading), cst.Call):
            inside = reading in names.ancestors(call)
            if not inside and (reading in descendants(call) or names.order(call) >= names.order(reading)):
                continue
            for function in self.reach.called(call) if call not in self._turns else ():
                home = self.reach.unit(function)
                places = {node for by_unit in made for node in by_unit.get(home, ())}
                own = [node for node in places if home.names.function(node) is function]
                if own and (follows := _after(home, function, max(own, key=home.names.order))) is not None:
                    yield home, _Meeting(follows, tuple(own), frozenset(keys))

    def _waits_already(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether all wait for a checkpoint in the same function on the way to a statement: so they do in each call."""
        names, around = unit.names, {node, *unit.names.ancestors(node)}
        waiting = (each for each, at in self._loads.items() if at is unit and names.order(each) <= names.order(node))
        return any(names.function(w) is names.function(node) and names.parents.get(w) in around for w in waiting)

    def _next_turn(
        self, unit: Unit, first: cst.CSTNode, later: cst.CSTNode, paths: Iterable[cst.BaseExpression]
    ) -> cst.CSTNode | None:
        """The statement of a loop whose next turn takes away what this one reads after it, where that is one path, and
        the processes do not come together in a turn."""
        names = unit.names
        around = list(names.enclosing(first, cst.For, cst.While))
        loop = next((loop for loop in names.enclosing(later, cst.For, cst.While) if loop in around), None)
        if (
            loop is None
            or names.order(first) <= names.order(later)
            or names.function(first) is not names.function(later)
        ):
            return None
        read = (part for path in paths for part in nodes_in(path, cst.Name))
        given = (node for name in read if (binding := names.binding(name)) is not None for node in binding.definitions)
        inside = set(descendants(loop))
        if any(node in inside for node in given) or self._joined.within(unit, loop):
            return None
        body = getattr(getattr(loop, "body", None), "body", ())
        return next((each for each in (later, *names.ancestors(later)) if each in body), None)

    def _apart(self, unit: Unit, earlier: Iterable[cst.CSTNode], later: cst.CSTNode) -> list[cst.CSTNode]:
        """The uses after which a statement follows, and the processes have not come together in between."""
        follows = (first for first in earlier if not _leaves(unit, first, later))
        return [first for first in follows if not self._joined.before(unit, later, after=first)]

    def _ahead(self, unit: Unit, node: cst.CSTNode, earlier: Sequence[cst.CSTNode]) -> cst.CSTNode:
        """The first of the statements in a row that the main process alone runs: all can wait before that as well."""
        body = list(getattr(unit.names.parents.get(node), "body", ()))
        at = next((index for index, each in enumerate(body) if each is node), 0)
        last = max(unit.names.order(first) for first in earlier)
        while at and body[at - 1] in self._guarded.get(unit, ()) and unit.names.order(body[at - 1]) > last:
            at -= 1
        return body[at] if body else node

    def _makers(self, uses: Iterable[FileUse]) -> _Makers:
        """The statements that make a use, or call what does, for each key."""
        inside: dict[Code, set[Hashable]] = {}
        found: _Makers = {}
        for use in uses:
            names = use.unit.names
            inside.setdefault(names.function(use.node), set()).update(use.keys)
            for key in use.keys:
                found.setdefault(key, {}).setdefault(use.unit, {})[names.statement(use.node)] = None
        made: dict[Code, set[Hashable]] = {}
        for code in self.reach.reached_from(inside):
            below = self.reach.below(code)
            made[code] = {key for maker, keys in inside.items() if maker in below for key in keys}
        for unit in self.reach.units if found else ():
            for call in unit.names.calls:
                makers = [function for function in self.reach.called(call) if function in made]
                if makers and call not in self._turns:
                    for key in {key for function in makers for key in made[function]}:
                        found[key].setdefault(unit, {})[unit.names.statement(call)] = None
        return found


class JoinedAnyway:
    """Where all processes come together in a program, without a wait of ours."""

    def __init__(self, reach: Reach, joining: Iterable[cst.CSTNode]) -> None:
        self.reach = reach
        self._points: dict[Code, list[cst.CSTNode]] = {}
        pending, seen = list(joining), set[Code]()
        while pending:
            node = pending.pop()
            code = self.reach.unit_of(node, self.reach.units[0]).names.function(node)
            self._points.setdefault(code, []).append(node)
            if code not in seen:
                seen.add(code)
                pending += self.reach.sites(code)

    def within(self, unit: Unit, loop: cst.CSTNode) -> bool:
        """Whether all come together in each turn of a loop."""
        body = getattr(loop, "body", loop)
        points = (p for p in self._points.get(unit.names.function(loop), ()) if body in unit.names.ancestors(p))
        return any(_surely(unit, point, {body, *unit.names.ancestors(body)}) for point in points)

    def before(self, unit: Unit, node: cst.CSTNode, after: cst.CSTNode | None = None) -> bool:
        """Whether all come together, by no condition, before a statement in its function, and after another one."""
        order, names = unit.names.order, unit.names
        start = names.end(after) if after is not None else -1
        sure = {*names.ancestors(node), *(names.ancestors(after) if after is not None else ())}
        for point in self._points.get(names.function(node), ()):
            if start < order(point) < order(node) and _surely(unit, point, sure):
                return True
        return False


def _surely(unit: Unit, node: cst.CSTNode, sure: Container[cst.CSTNode]) -> bool:
    """Whether no condition is around a node but those that are known to hold."""
    return all(around in sure or not isinstance(around, _BY_CONDITION) for around in unit.names.ancestors(node))


_BY_CONDITION = (cst.If, cst.Else, cst.IfExp, cst.ExceptHandler, cst.Match)


def _is_sure(unit: Unit, met: _Meeting) -> bool:
    """Whether what is read was written in the same function before, by no condition but those of the reading."""
    around = {met.node, *unit.names.ancestors(met.node)}
    here = [node for node in met.earlier if unit.names.parents.get(node) is not None]
    return any(_surely(unit, node, around) and not isinstance(node, _BY_CONDITION) for node in here)


def _of_load(unit: Unit, node: cst.CSTNode, writers: Iterable[cst.CSTNode]) -> _Meeting:
    """Where all wait for a checkpoint: for what its function has written before, or else what came before the function;
    in a loop also for what the turn before has written."""
    names = unit.names
    here = [writer for writer in writers if names.function(writer) is names.function(node)]
    before = [writer for writer in here if names.order(writer) < names.order(node)]
    loops = names.enclosing(node, cst.For, cst.While)
    again = [loop for loop in loops if any(loop in names.ancestors(writer) for writer in here)][:1]
    return _Meeting(node, (*before, *again) or (names.function(node),))


def _taken(unit: Unit, met: _Meeting) -> str:
    """Why all wait before a file is taken away, with the line that has read it: it may be far above."""
    code = next((unit.names.one_line(node) for node in met.earlier if node in unit.names.parents), "")
    return _TAKEN.format(where=f"in `{code}` " if 0 < len(code) <= LONGEST else "")


def _needed(unit: Unit, meetings: Iterable[_Meeting]) -> list[_Meeting]:
    """The meetings without those at which all have waited already: at one between the write and the read."""
    found: list[_Meeting] = []
    for met in sorted(meetings, key=lambda m: unit.names.order(m.node)):
        around = {met.node, *unit.names.ancestors(met.node)}
        passed = [f.node for f in found if f.node is met.node or unit.names.parents.get(f.node) in around]
        passed = [node for node in passed if unit.names.function(node) is unit.names.function(met.node)]
        last = max((unit.names.order(node) for node in passed), default=-1)
        if any(last <= unit.names.order(first) for first in met.earlier):
            found.append(met)
    return found


def _alike(writes: Sequence[FileUse], reads: Sequence[FileUse]) -> tuple[list[FileUse], list[FileUse]]:
    """The writes and the reads, those that may be of one path by its look with a key in common."""
    keys: list[set[Hashable]] = [set(use.keys) for use in (*writes, *reads)]
    for at, write in enumerate(writes):
        for by, read in enumerate(reads, len(writes)):
            if _lists(read, write) if read.lists else any(w.meets(r) for w in write.shapes for r in read.shapes):
                keys[at].add((at, by))
                keys[by].add((at, by))
    uses = [use._replace(keys=found) for use, found in zip((*writes, *reads), keys, strict=True)]
    return uses[: len(writes)], uses[len(writes) :]


def _lists(read: FileUse, write: FileUse) -> bool:
    """Whether a list of a folder may have a file that is written: by the whole paths where these are known, or by where
    they start."""
    if _are_known(write, read):
        return any(one.is_below(folder) for one in write.shapes for folder in read.shapes)
    return not {root.text for root in write.starts}.isdisjoint(root.text for root in read.starts)


def _are_known(write: FileUse, read: FileUse) -> bool:
    """Whether two paths are known as wholes."""
    return bool(write.shapes and read.shapes) and all(shape.is_fixed for shape in (*write.shapes, *read.shapes))


def _may_be_one(written: frozenset[Root], listed: frozenset[Root]) -> bool:
    """Whether two folders may be one, and only a run can tell: one of them is known by the name of a variable alone."""
    unknown = any(starts and all(root.named for root in starts) for starts in (written, listed))
    return bool(written and listed) and unknown and written.isdisjoint(listed)


def _after(unit: Unit, function: cst.CSTNode, node: cst.CSTNode) -> cst.CSTNode | None:
    """The statement of a function's body that follows what holds a node."""
    body = getattr(getattr(function, "body", None), "body", ())
    holds = {node, *unit.names.ancestors(node)}
    return next((later for one, later in pairwise(body) if one in holds), None)


def _leaves(unit: Unit, first: cst.CSTNode, later: cst.CSTNode) -> bool:
    """Whether the block of a statement ends by leaving, so that what follows the block does not come after it."""
    around = set(unit.names.ancestors(later))
    for block in (first, *unit.names.ancestors(first)):
        if block in around:
            return False
        last = block.body[-1] if isinstance(block, (cst.IndentedBlock, cst.SimpleStatementLine)) else None
        last = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
        if isinstance(last, (cst.Return, cst.Raise, cst.Continue, cst.Break)):
            return True
    return False


def _unsure(node: cst.CSTNode, write: FileUse, read: FileUse) -> ListedEarly:
    written, listed = (use.unit.names.one_line(use.path) for use in (write, read))
    lists = read.unit.names.statement(read.path) is not node
    return ListedEarly(node, listed, written, read.path if lists else write.path, lists)


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
