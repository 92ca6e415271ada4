"""What is known of a program that distributes itself by hand, and what takes the place of what in each module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from ...facts.manual_ddp import Instead
from ...facts.reasons import Reason
from ...facts.roles import Origin
from ..dataflow.values import Unit
from .init_sites import Start


@dataclass(eq=False)
class ByHand:
    """How one program distributes itself, and what becomes of it."""

    obstacles: list[tuple[Unit, Reason]] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    """For the accelerator: kinds of settings, as source text."""
    pieces: list[tuple[Unit, Instead]] = field(default_factory=list)
    optional: set[cst.CSTNode] = field(default_factory=set)
    """Pieces that are right as they are where the accelerator does not reach."""
    told: list[tuple[Unit, Reason]] = field(default_factory=list)
    idle: dict[cst.FunctionDef, Unit] = field(default_factory=dict)
    """Functions that do nothing but join and leave."""
    removed: set[cst.CSTNode] = field(default_factory=set)
    """Statements that go."""
    workers: dict[cst.FunctionDef, set[str]] = field(default_factory=dict)
    """Functions that were started as processes, with the parameters that they lose."""
    switches: list[cst.CSTNode] = field(default_factory=list)
    """Statements that switch the wrapper's exchange of gradients on and off."""
    sharded: set[Origin] = field(default_factory=set)
    """Loaders with a sampler that shares the rows."""

    def imports(self) -> Iterator[str]:
        """What the accelerator's arguments name."""
        yield from self.arguments

    def constructor(self) -> tuple[tuple[str, str], ...]:
        """The arguments of the accelerator."""
        made = ", ".join(f"{kind}({text})" for kind, text in self.arguments.items())
        return (("kwargs_handlers", f"[{made}]"),) if made else ()
