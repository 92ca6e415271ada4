"""
Who uses a file, and how: what the main process alone writes or takes away, and what all processes read or ask about.

Two uses belong together by their paths: by the names of the variables and by the look, or for what lists a folder by
where that starts.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

import libcst as cst

from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import made_names, method_name, outside_name
from ..dataflow.open_modes import opens_to_write
from ..dataflow.values import State, Unit
from ..syntax.walk import descendants, nodes_in
from .existing_guards import guarded
from .folders import making
from .path_names import PathNames, around, text
from .path_roots import Root, Roots
from .path_shapes import PathShape, PathShapes
from .written import writes_by_method, written

_LOADS = "torch.load"
"""What it reads is a checkpoint, for which other rules of the same path hold: see `checkpoints.loads`."""
_PATHS = (cst.Name, cst.Attribute, cst.SimpleString, cst.FormattedString, cst.Call, cst.BinaryOperation)


class FileUse(NamedTuple):
    """What uses a path."""

    unit: Unit
    node: cst.CSTNode
    """The statement that writes, or the call that reads."""
    keys: Collection[Hashable]
    """By these two uses belong together."""
    path: cst.BaseExpression
    shapes: frozenset[PathShape] = frozenset()
    """How the path may look."""
    starts: frozenset[Root] = frozenset()
    """Where the path starts, of what writes, and of what lists a folder."""
    lists: bool = False
    """It lists a folder, and reads what is below it."""


class FileUses:
    """
    Answers for one program.

    Args:
        state: the solved program.
        reach: its call graph.
        guarded_writes: the statements by which the main process alone writes, in each module.
    """

    def __init__(self, state: State, reach: Reach, guarded_writes: Mapping[Unit, Iterable[cst.CSTNode]]) -> None:
        self.state, self.reach, self.roots = state, reach, Roots(state, reach)
        self.names = state.once(PathNames, lambda: PathNames(state, reach))
        self.shapes = PathShapes(self.names)
        self._by_all: dict[bool, list[tuple[Unit, cst.Call]]] = {}
        self._writing = [(unit, node) for unit, nodes in guarded_writes.items() for node in nodes]
        self.inside = {below for _, node in self._writing for below in descendants(node)}
        """The nodes that only the main process comes to."""

    def written(self) -> Iterator[FileUse]:
        """What the main process alone writes."""
        for unit, node, call in self._of_main():
            for path in _given(call):
                if not self.names.is_open(path):
                    yield FileUse(unit, node, {text(unit, path)}, path)
            for path in self._paths(call):
                starts = frozenset(() if self.names.is_open(path) else self.roots.of(unit, path))
                keys = {*self.names.of(unit, path), *(root.text for root in starts)}
                yield FileUse(unit, node, keys, path, self.shapes.of(unit, path), starts)

    def read(self) -> Iterator[FileUse]:
        """What all processes read: files, and lists of folders."""
        for unit, call in self._of_all():
            path, folder = self._read(call), self._listed(call)
            if path is not None:
                yield FileUse(unit, call, self.names.of(unit, path), path, self.shapes.of(unit, path))
            elif folder is not None:
                starts = frozenset(self.roots.of(unit, folder, file=_is_pattern(self.state, call)))
                yield FileUse(unit, call, (), folder, self.shapes.of(unit, folder), starts, lists=True)

    def asked(self) -> Iterator[FileUse]:
        """What all processes ask about a file, or hand to something that may look at it, and the folders around one
        that they make: known by its names alone."""
        for unit, call in self._of_all():
            if self._read(call) is None and self._listed(call) is None:
                for path in self._touched(call):
                    if keys := self.names.sure(unit, path):
                        yield FileUse(unit, call, keys, path)
        for unit in self.reach.units:
            for call in making(self.state, unit, self.reach):
                for arg in call.args[:1] if call not in self.inside else ():
                    if keys := around(self.names.sure(unit, arg.value)):
                        yield FileUse(unit, call, keys, arg.value)

    def kept(self) -> Iterator[FileUse]:
        """What all processes read, as that which must be there until they have: the file, and the folders around it."""
        for unit, call in self._of_all(loads=True):
            read = self._read(call, loads=True)
            for path in [read] if read is not None else self._touched(call, existence=False):
                folders = _folders(self.state, path)
                around = {("below", key) for folder in folders for key in self.names.sure(unit, folder)}
                if keys := {*self.names.sure(unit, path), *around}:
                    yield FileUse(unit, call, keys, path)

    def taken(self) -> Iterator[FileUse]:
        """What the main process alone writes anew, or takes away."""
        for unit, node, call in self._of_main():
            names = [outside_name(self.state.calls[call])] if call in self.state.calls else []
            names += made_names(self.state.calls[call]) if call in self.state.calls else []
            paths = list(self._paths(call))
            if any(map(surroundings.moves, names)):
                paths = [arg.value for arg in call.args[:2]]
            for path in paths:
                keys = self.names.sure(unit, path)
                if any(map(surroundings.takes_away, names)):
                    keys = {*keys, *(("below", key) for key in keys)}
                if keys:
                    yield FileUse(unit, node, keys, path)

    # Whose calls these are --------------------------------------------------------------------------------------------

    def _of_main(self) -> Iterator[tuple[Unit, cst.CSTNode, cst.Call]]:
        for unit, node in self._writing:
            yield from ((unit, node, call) for call in nodes_in(node, cst.Call))

    def _of_all(self, *, loads: bool = False) -> list[tuple[Unit, cst.Call]]:
        """The calls that all processes come to, and that may use a file; ``loads``: those of checkpoints too."""
        if loads not in self._by_all:
            self._by_all[loads] = list(self._find_of_all(loads))
        return self._by_all[loads]

    def _find_of_all(self, loads: bool) -> Iterator[tuple[Unit, cst.Call]]:
        rows = {
            code
            for unit in self.reach.units
            for item in unit.names.functions
            if _gives_rows(item)
            for code in self.reach.below(item)
        }
        for unit in self.reach.units:
            for call in unit.names.calls:
                uses = self._read(call, loads=loads) is not None or self._listed(call) is not None
                if call in self.inside or not (uses or any(True for _ in self._touched(call))):
                    continue
                code = unit.names.function(call)
                if code in self.reach.reachable and code not in rows and not guarded(self.state, unit, call):
                    yield unit, call

    # What a call uses -------------------------------------------------------------------------------------------------

    def _paths(self, call: cst.Call) -> Iterator[cst.BaseExpression]:
        """What may be the path that a call writes, where the call is known to write one."""
        record = self.state.calls.get(call)
        name, made = (outside_name(record), made_names(record)) if record is not None else ("", [])
        if method_name(call) in surroundings.text_methods() and not writes_by_method(call):
            return
        knows = any(surroundings.written_path(each) is not None for each in (name, *made))  # ``image.save(path)`` too
        if writes_by_method(call) or surroundings.opens(name) or knows:
            yield from written(self.state, call)
        elif not name and isinstance(call.func, cst.Attribute) and method_name(call) == "open":
            yield from [call.func.value] * opens_to_write(self.state, call, 0)

    def _read(self, call: cst.Call, *, loads: bool = False) -> cst.BaseExpression | None:
        """The path that a call reads; None also where it opens a file to write it."""
        record = self.state.calls.get(call)
        name = outside_name(record) if record is not None else ""
        if not name and isinstance(call.func, cst.Attribute):
            reads = method_name(call) in surroundings.path_methods("content", "state")
            reads = reads or (method_name(call) == "open" and not opens_to_write(self.state, call, 0))
            return call.func.value if reads else None
        if not call.args:
            return None
        if surroundings.opens(name):
            return None if opens_to_write(self.state, call, 1) else call.args[0].value
        reads = (surroundings.reads(name) and (loads or name != _LOADS)) or surroundings.asks_state(name)
        return call.args[0].value if reads else None

    def _listed(self, call: cst.Call) -> cst.BaseExpression | None:
        """The folder that a call lists, or the pattern that starts with it."""
        record = self.state.calls.get(call)
        if record is None:
            return None
        if surroundings.lists(outside_name(record)):
            return call.args[0].value if call.args else None
        lists = any(map(surroundings.lists, made_names(record)))
        return call.func.value if lists and isinstance(call.func, cst.Attribute) else None

    def _touched(self, call: cst.Call, *, existence: bool = True) -> Iterator[cst.BaseExpression]:
        """What may be the path of a file that a call asks about, or looks at: ``publish(path)``. ``existence``: also
        where it only asks whether there is one."""
        record = self.state.calls.get(call)
        if record is None or self.reach.called(call):
            return
        name = outside_name(record)
        if not name and isinstance(call.func, cst.Attribute) and existence:
            yield from [call.func.value] * (method_name(call) in surroundings.path_methods("existence"))
        names = [name] if name else made_names(record)
        if not existence and any(map(surroundings.asks_existence, names)):
            return
        if names and name != _LOADS and any(map(surroundings.may_touch, names)):
            for arg in call.args:
                parts = descendants(arg.value) if surroundings.runs_command(name) else [arg.value]
                yield from (part for part in parts if isinstance(part, _PATHS))


def _folders(state: State, path: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The folders that a path is joined from: ``out`` of ``os.path.join(out, "a.txt")`` and of ``out / "a.txt"``."""
    if isinstance(path, cst.BinaryOperation) and isinstance(path.operator, cst.Divide):
        yield path.left
        yield from _folders(state, path.left)
    elif isinstance(path, cst.Call) and len(path.args) > 1 and path in state.calls:
        if outside_name(state.calls[path]) in ("os.path.join", "pathlib.Path"):
            yield path.args[0].value
            yield from _folders(state, path.args[0].value)


def _gives_rows(code: cst.CSTNode) -> bool:
    """A method by which a data set gives rows: workers run it, or each process for rows of its own."""
    return isinstance(code, cst.FunctionDef) and code.name.value in (
        "__getitem__",
        "__getitems__",
        "__iter__",
        "__next__",
    )


def _given(call: cst.Call) -> Iterator[cst.BaseExpression]:
    """What may be a path in a call that writes: its arguments, and the object of ``path.write_text(...)``."""
    yield from (arg.value for arg in call.args if isinstance(arg.value, _PATHS))
    if isinstance(call.func, cst.Attribute):
        yield call.func.value


def _is_pattern(state: State, call: cst.Call) -> bool:
    """Whether what a call lists is a pattern of files, and not a folder: ``glob.glob("*.jpg")``."""
    return outside_name(state.calls[call]).startswith("glob.")
