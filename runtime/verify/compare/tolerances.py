"""What a comparison knows: the two runs, and how closely they must agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ..traces import RankTrace, RunTrace
from ..verdict import Outcome, Promise

K = TypeVar("K")
T = TypeVar("T")
_ADAPTIVE = ("Adam", "Ada", "RMSprop", "Rprop", "Lamb", "Lion", "Muon", "LBFGS")

PROMISES = {
    "runs": "runs as the original does",
    "waits": "no process hangs waiting for the others",
    "steps": "as many optimizer steps",
    "losses": "the same losses",
    "weights": "the same weights after every step",
    "gradients": "the same gradient norms",
    "rates": "the same learning rates",
    "ranks": "all processes hold the same weights",
    "samples": "together the processes read the original's samples",
    "numbers": "the same printed numbers",
    "lines": "each line is printed once",
    "files": "the same files, each written once",
    "checkpoints": "checkpoints have the plain model's keys",
}


def _either(one: Mapping[K, T], two: Mapping[K, T], both: Callable[[T, T], T]) -> dict[K, T]:
    """The entries of two mappings; where both have one, what is made of them."""
    return {**one, **two, **{key: both(one[key], two[key]) for key in one.keys() & two.keys()}}


@dataclass(frozen=True)
class Unstable:
    """What differs between two runs of the original itself, and can therefore not be compared."""

    lines: frozenset[tuple[int, int]] = frozenset()
    """Lines by stream (1 stdout, 3 logged) and number, from 0, that have other words, or are not there each time."""
    numbers: Mapping[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    """By line: which of its numbers differ, where its words are the same."""
    weights: bool = False
    files: frozenset[str] = frozenset()
    """Files that hold something else each time."""
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What such a file held, where it is a short text."""
    names: frozenset[str] = frozenset()
    """Files that are not there each time."""
    homes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Where names of files vary: folder and shape of the name, and by how much the number of files does."""

    def beside(self, other: Unstable) -> Unstable:
        """What differs in either of two repetitions."""
        return Unstable(
            lines=self.lines | other.lines,
            numbers=_either(self.numbers, other.numbers, frozenset.union),
            weights=self.weights or other.weights,
            files=self.files | other.files,
            texts=_either(self.texts, other.texts, lambda one, two: [*one, *two]),
            names=self.names | other.names,
            homes=_either(self.homes, other.homes, max),
        )


@dataclass(frozen=True, kw_only=True)
class About:
    """One comparison."""

    original: RunTrace
    migrated: RunTrace
    exact: bool = True
    double: bool = False
    kept: bool = True
    """The global batch is the original's."""
    kept_until: int | None = None
    """The first step whose short batch the runtime completes with other rows; None when there is none."""
    unstable: Unstable = field(default_factory=Unstable)
    devices: int = 0
    """The migrated run is one process on so many virtual devices of torch_xla; 0: it is not."""
    said: str = ""
    """Why figures of several processes are not equal to the original's, as the request says."""

    @property
    def processes(self) -> int:
        """Of the migrated run; by torch_xla, its devices."""
        return self.devices or self.migrated.size

    @property
    def alone(self) -> bool:
        """One process on the device of the original: figures must agree bit for bit."""
        return self.processes == 1 and not self.devices

    @property
    def by_hand(self) -> bool:
        """The original was run on several processes, too."""
        return self.original.size > 1

    def partner(self, rank: RankTrace) -> RankTrace:
        """What a migrated process is compared with: the original's of its rank, or its only one."""
        return self.original.ranks[rank.rank] if self.by_hand else self.original.main

    @property
    def tolerance(self) -> float:
        """The relative difference that rounding explains."""
        if self.alone:
            return 0.0
        if self.double:
            return 1e-9
        if "mixed precision" in self.original.held():
            return 5e-2
        kinds = {event.get("cls", "") for event in self.original.main.of("step")}
        return 1e-3 if any(kind.startswith(_ADAPTIVE) for kind in kinds) else 1e-5

    def by_nature(self) -> str:
        """Why figures of several processes cannot be compared with the original's; empty when they can."""
        if self.alone or self.devices:
            return ""
        if not self.kept:
            return "the runtime cannot keep the global batch here"
        if not self.exact and any(rank.of("batch") for rank in self.migrated.ranks):
            return ""
        held = self.original.held()
        if "rows of a batch mixed by randperm" in held:
            return "the script mixes the rows of a batch (randperm)"
        if "BatchNorm without running statistics" in held:
            return "BatchNorm without running statistics normalises over the rows of one process"
        if self.draws_by_row():
            return "the script draws random numbers for each row, one by one: they differ between processes"
        return self.uncut() or self.said

    def uncut(self) -> str:
        """Why figures of several processes are none of the global batch, though they may agree in exact mode, where all
        processes draw the same batches; empty when they are."""
        made = self.original.main.of("step") and not self.original.main.training_passes()
        if self.alone or self.by_hand or not made or all((rank.end or {}).get("cut") for rank in self.migrated.ranks):
            return ""
        return "batches are made by hand, not by a loader: the global batch cannot be kept"

    def draws_by_row(self) -> bool:
        """Whether a process draws another number of random numbers than the original: so many for each of its rows."""
        pairs = [(self.partner(rank).end or {}, rank.end or {}) for rank in self.migrated.ranks]
        draws = [(first.get("draws", 0), second.get("draws", 0)) for first, second in pairs]
        return draws[0][0] > 0 and all(map(all, pairs)) and any(first != second for first, second in draws)

    def held(self, id: str, detail: str = "", *, absent: bool = False) -> Promise:
        """The promise has been kept; where the script does nothing of the kind, ``absent``."""
        return replace(self._promise(id, Outcome.HELD, detail), absent=absent)

    def broken(
        self, id: str, detail: str, step: int | None = None, figure: str = "", at: str = "", side: str = "migrated"
    ) -> Promise:
        """The promise has been broken, at a line of one of the scripts where that is known."""
        return replace(self._promise(id, Outcome.BROKEN, detail, step, figure), at=at, side=side)

    def untestable(self, id: str, why: str, *, absent: bool = False) -> Promise:
        """The promise cannot be tested here; ``absent`` as in `held`."""
        return replace(self._promise(id, Outcome.UNTESTABLE, why), absent=absent)

    def _promise(self, id: str, outcome: Outcome, detail: str, step: int | None = None, figure: str = "") -> Promise:
        words = PROMISES[id]
        return Promise(
            id=id,
            promise=words,
            processes=self.processes,
            outcome=outcome,
            detail=detail,
            step=step,
            figure=figure,
        )


def apart(a: float, b: float, floor: float = 0.0) -> float:
    """The relative difference of two numbers; two that are not finite agree when they are of one kind."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b), floor)


def shown(value: float, beside: float | None = None) -> str:
    """A number with eight digits; with all of them where the one beside it would look the same."""
    text = f"{value:.8g}"
    return f"{value:.17g}" if beside is not None and text == f"{beside:.8g}" else text
