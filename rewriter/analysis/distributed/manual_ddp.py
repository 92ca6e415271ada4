"""What is known of a program that distributes itself by hand, and what takes the place of what in each module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from ...facts.manual_ddp import PLAIN_KEYS, Instead
from ...facts.roles import Origin
from ...findings import Finding, Severity
from ..dataflow.values import Unit
from .init_sites import Start


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


def unconnected(node: cst.CSTNode) -> Finding:
    """The accelerator cannot be made where the script joins its processes."""
    return Finding(
        "already-distributed",
        node,
        "distributed by hand: the process group is opened where the accelerator cannot be created",
        "open it in the function that builds the model and the optimizer, or in a caller of that function",
        Severity.BLOCKED,
        case="connected",
    )


def without_prefix(call: cst.Call) -> Finding:
    """A checkpoint of the wrapper itself: its keys are other ones now."""
    return Finding("hand_written_ddp", call, *PLAIN_KEYS, case="prefix")
