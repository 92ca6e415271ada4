"""What is known of a program that distributes itself by hand, and what takes the place of what in each module."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

import libcst as cst

from ..facts.by_hand import Instead
from ..facts.module import Side
from ..facts.roles import Origin
from ..findings import Finding, Severity
from .numbers import numbers
from .starts import Start
from .things import State, Unit
from .walk import descendants
from .ways import Way


@dataclass(eq=False)
class ByHand:
    """How one program distributes itself, and what becomes of it."""

    obstacles: list[tuple[Unit, Finding]] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    """For the accelerator: kinds of settings, as source text."""
    pieces: list[tuple[Unit, Instead]] = field(default_factory=list)
    optional: set[cst.CSTNode] = field(default_factory=set)
    """Pieces that are right as they are where the accelerator does not reach."""
    told: list[tuple[Unit, Finding]] = field(default_factory=list)
    idle: dict[cst.FunctionDef, Unit] = field(default_factory=dict)
    """Functions that do nothing but join and leave."""
    removed: set[cst.CSTNode] = field(default_factory=set)
    """Statements that go."""
    workers: dict[cst.FunctionDef, set[str]] = field(default_factory=dict)
    """Functions that were started as processes, with the parameters that they lose."""
    sharded: set[Origin] = field(default_factory=set)
    """Loaders with a sampler that shares the rows."""

    def imports(self) -> Iterator[str]:
        """What the accelerator's arguments name."""
        yield from self.arguments

    def constructor(self) -> tuple[tuple[str, str], ...]:
        """The arguments of the accelerator."""
        made = ", ".join(f"{kind}({text})" for kind, text in self.arguments.items())
        return (("kwargs_handlers", f"[{made}]"),) if made else ()


def replaced(
    hand: ByHand, state: State, unit: Unit, way: Way, gone: Container[cst.CSTNode], here: Callable[[cst.CSTNode], bool]
) -> Iterator[Instead]:
    """What takes the place of what in one module, once the accelerator's way is known; ``gone``: what others remove."""
    home = way.home[1].node if way.home is not None and way.home[1].side is Side.INSTEAD else None
    idle = [function for function in way.idle if function in unit.names.scopes]
    within = {n for function in idle for n in descendants(function)}
    for function in idle:
        yield Instead(function, "", "nothing calls it any more")
    for owner, node in way.dropped:
        if owner is unit:
            yield Instead(node, "", "the accelerator knows the place of the process")
    within.update(n for _, node in way.dropped for n in descendants(node))
    mine = within | {n for u, p in hand.pieces if u is unit and not p.keywords for n in descendants(p.node)}
    for owner, piece in hand.pieces:
        if owner is unit and piece.node is not home and piece.node not in within:
            if not piece.needed or here(piece.node):
                yield piece
    lost = {
        function_unit.names.scopes[function].bindings[name]
        for function, names in hand.workers.items()
        for function_unit in (next(u for u in state.units.values() if function in u.names.scopes),)
        for name in names
    } | way.given_up
    for piece in numbers(state, unit, lambda n: n in mine or n in gone, lost):
        if here(piece.node):
            yield piece


def unconnected(node: cst.CSTNode) -> Finding:
    """The accelerator cannot be made where the script joins its processes."""
    return Finding(
        "already-distributed", node, "distributed by hand: the group is opened where the accelerator cannot be made",
        "open it in the function that builds the model and the optimizer, or in one that calls that function",
        Severity.BLOCKED,
    )  # fmt: skip


def without_prefix(call: cst.Call) -> Finding:
    """A checkpoint of the wrapper itself: its keys are other ones now."""
    return Finding(
        "hand_written_ddp", call, "this checkpoint's keys began with module., those of the wrapper; now they do not",
        "strip the prefix from the keys of older checkpoints",
    )  # fmt: skip
