"""Facts of what happens, or is made, once for all processes."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import libcst as cst


class EffectKind(Enum):
    """What must happen once, not once a process."""

    PRINT = "print"
    WRITE = "write"
    CONSOLE = "console"
    """A write to the console that is no ``print``: once a machine."""
    DOWNLOAD = "download"
    """The main process first, then the others, which find it there."""
    FETCH = "fetch"
    """The main process alone, and the others wait for it."""
    BAR = "bar"


class Effect(NamedTuple):
    """A print, or a statement that writes."""

    node: cst.CSTNode
    """The ``print`` name for PRINT, the call for BAR, else a statement: a line, or one of several in a line."""
    kind: EffectKind
    because: str
    forward: cst.CSTNode | None = None
    """For a write: the call in its arguments that all processes must make together, in front of the guard; or what
    reads its result, where another rule edits the call."""
    name: str = ""
    """The name that its value is given."""
    parts: tuple[int, ...] = ()
    """For a line of several statements, or one behind a colon: the positions of those that write."""
    optional: bool = False
    """Nothing breaks where it cannot be brought about."""

    @property
    def verb(self) -> str:
        """What every process does, as a verb."""
        words = {EffectKind.PRINT: "prints", EffectKind.CONSOLE: "prints", EffectKind.DOWNLOAD: "downloads"}
        return words.get(self.kind, "fetches" if self.kind is EffectKind.FETCH else "writes")


class Handle(NamedTuple):
    """Something made at one place and used at many: the other processes get one that does nothing."""

    call: cst.Call
    because: str
    elsewhere: str
    """Source text for the other processes, of the whole or of an argument; empty for a switch (``disabled=...``)."""
    argument: str | None = None
    """The keyword of the argument that makes it inert; None where the whole call gives way."""
    value: cst.Arg | None = None
    """That argument, where the script gives it."""
    default: str = "None"
    """What the argument is by default."""
    imports: tuple[tuple[str, str], ...] = ()
    each_machine: bool = False
    """The main process of each machine has one."""
    tracker: bool = True


class Folder(NamedTuple):
    """A folder that every process may make, once it need not be new."""

    call: cst.Call
    renamed: bool
    """``os.mkdir``, which knows no ``exist_ok``: ``os.makedirs`` takes its place."""


class Received(NamedTuple):
    """A value that the main process makes, and the others receive."""

    node: cst.CSTNode
    """The expression; or the loop that found a free name, behind which it is handed out."""
    source: cst.Call
    """The call by which it differs from process to process."""
    because: str
    names: tuple[str, ...] = ()
    """For a loop: the variables that it sets."""
