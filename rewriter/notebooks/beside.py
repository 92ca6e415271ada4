"""The cells that stay beside the training: whether the notebook can show them, and what they read of it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from .after import REMEDY, After
from .document import Cell
from .shown import displays, may_draw, only_chooses_devices, only_looks, only_magics, showing, shown_by
from .uses import NotGathered, Use, defines, filled, made, named, readers, run, use


@dataclass(frozen=True)
class Shown:
    """The cells beside the training that show something of it, or of the data."""

    cells: Sequence[Cell]
    texts: Sequence[str]
    uses: Sequence[Use]
    chosen: Sequence[int]
    beside: Collection[int]
    prepared: Collection[str]
    after: After
    modules: frozenset[str] = frozenset()
    """Modules that know something of the training processes alone: a tracker's run."""
    begun: int = 0
    """The cells before it stay before the training, with the data that they show; 0 if all show what they do after
    the training."""

    def check(self, n: int) -> None:
        """Refuse a cell that cannot be shown by the notebook after the training, or before it."""
        function = n in self.after.functions
        if not (self.chosen[0] < n or function) or only_magics(self.texts[n]):
            return
        name = shown_by(ast.parse(self.texts[n]).body, showing(self.texts))
        read = self._made(n)
        known = self.uses[n].reads & self.modules
        if of_process := sorted(read & (self._held() - self._models()) | known):
            held = f"what it reads ({named(of_process)}) stays in the training processes"
            if name or n not in self.after.stays:
                raise displays(self.cells[n], name, held, of_process, case="held")
            raise NotGathered(self.cells[n].number, held, f"{self._to_training(n)}{REMEDY}", of_process, case="held")
        if n > self.chosen[-1] or function:
            return
        later = [m for m in self.chosen if m > n]
        if changed := sorted(name for name in read if self._changes(name, later)):
            raise displays(
                self.cells[n], name, f"the training changes {named(changed)} afterwards", changed, case="later"
            )
        if used := sorted(self.uses[n].binds & _union(self.uses[m].reads for m in later) if read else ()):
            raise displays(
                self.cells[n],
                name,
                f"it also makes {named(used)}, which the training uses afterwards",
                used,
                f"make {named(used)} in a cell of its own, so that this one only shows something",
                case="later",
            )
        earlier = [m for m in self.chosen if m < n]
        draws = may_draw(self.texts[n]) and not self.after.unseeded
        if draws and (read or not all(only_chooses_devices(self.texts[m]) for m in earlier)):
            raise displays(
                self.cells[n], name, "it may draw random numbers between those of the training", case="random"
            )

    def _to_training(self, n: int) -> str:
        """That a cell may be moved to the training, with the cells that it needs; empty where it needs the first one
        that stays with the notebook."""
        start = min(self.after.cells, default=n)
        needed = {n}
        while more := {
            m
            for m in range(start, n)
            if m not in needed and any(self.uses[m].binds & self.uses[k].reads for k in needed)
        }:
            needed |= more
        if start in needed:
            return ""
        others = [str(self.cells[m].number) for m in sorted(needed - {n})]
        along = f", with cell{'' if len(others) == 1 else 's'} {', '.join(others)}," if others else ""
        return f"Move this cell{along} before cell {self.cells[start].number}. If what it reads is data: "

    def returned(self) -> list[str]:
        """The names that cells read and the training makes, in the order of making."""
        read = _union(self._made(n) for n in self.beside if n > self.chosen[0] or n in self.after.functions)
        first = {name: n for n in reversed(range(len(self.uses))) for name in self.uses[n].makes}
        return sorted(read, key=lambda name: (first[name], name))

    def apart(self) -> list[int]:
        """The cells that show something and make nothing that the training reads."""
        read = _union(self.uses[m].reads for m in self.chosen)
        return [
            n
            for n in sorted(self.beside)
            if not only_magics(self.texts[n]) and (n in self.after.stays or not self.uses[n].binds & read)
        ]

    def moved(self) -> list[int]:
        """The cells that show something of the training, before its last cell, and those that look at what it has left:
        they come after it."""
        between = (n for n in sorted(self.beside) if max(self.begun - 1, self.chosen[0]) < n < self.chosen[-1])
        looking = {n for n, text in enumerate(self.texts) if n > self.after.trained and only_looks(text)}
        return [n for n in between if n not in self.after.functions and (n in looking or self._made(n))]

    def _made(self, position: int) -> frozenset[str]:
        """What a cell reads and the training makes: a cell reads what the cells before it have, and a function what all
        have."""
        chosen = self.chosen if position in self.after.functions else [n for n in self.chosen if n < position]
        return self.after.reads(position, self.uses, self.texts) & made(self.uses, chosen)

    def _models(self) -> frozenset[str]:
        """What is given back as the script made it."""
        return self.after.models if self.after.cells else frozenset()

    def _held(self) -> frozenset[str]:
        """What cannot leave the training's processes: what is prepared, and what stands for a definition there."""
        defining = (node for m in self.chosen for node in ast.parse(self.texts[m]).body if defines(node))
        return frozenset(self.prepared).union(*(use(ast.unparse(node)).binds for node in defining))

    def _changes(self, name: str, later: Sequence[int]) -> bool:
        """Whether a later cell of the training binds a name anew, or may change it in place: any but a number may."""
        constants = (
            target.id
            for m in self.chosen
            for node in run(self.texts[m])
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        )
        number = name in constants
        return any(
            name in self.uses[m].makes or (not number and name in filled(self.texts[m], self._readers)) for m in later
        )

    @cached_property
    def _readers(self) -> frozenset[str]:
        """The functions of the cells that change nothing of what they are given."""
        return readers(self.texts)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)
