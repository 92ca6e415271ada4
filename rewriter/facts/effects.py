"""Facts about what happens, or is created, once for all processes."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import libcst as cst


class EffectKind(Enum):
    """What must happen once, not once per process."""

    PRINT = "print"
    WRITE = "write"
    CONSOLE = "console"
    """A write to the console that is no ``print``: once per machine."""
    DOWNLOAD = "download"
    """The main process runs it first, then the others, which find the result."""
    FETCH = "fetch"
    """Only the main process runs it, and the others wait."""
    COMMAND = "command"
    """A command of the system, whose result nobody takes: once per job."""
    BAR = "bar"


class Effect(NamedTuple):
    """A print, or a statement that writes."""

    node: cst.CSTNode
    """The ``print`` name for PRINT, the call for BAR, else a statement: a whole line, or one of several on a line."""
    kind: EffectKind
    because: str
    forward: cst.CSTNode | None = None
    """For a write: the call in its arguments that all processes must make together, before the guard. If another rule
    edits that call: the expression that reads its result."""
    name: str = ""
    """The variable that gets its value."""
    parts: tuple[int, ...] = ()
    """For several statements on a line, or a statement after a colon: the positions of those that write."""
    optional: bool = False
    """The script is still correct if this edit is impossible."""
    guarded: bool = False
    """For what one process does before the others: the writes in it are those of the main process alone."""
    creates: bool = False
    """For the same: the file is computed, and not brought from elsewhere."""
    awaited: bool = False
    """For a command: the script waits until it has ended."""
    survived: str = ""
    """For FETCH: the handler after which the script goes on where this fails, as it is written."""

    @property
    def verb(self) -> str:
        """What every process does, as a verb."""
        if self.creates:
            return "creates"
        words = {
            EffectKind.PRINT: "prints", EffectKind.CONSOLE: "prints", EffectKind.DOWNLOAD: "downloads",
            EffectKind.COMMAND: "runs",
        }  # fmt: skip
        return words.get(self.kind, "fetches" if self.kind is EffectKind.FETCH else "writes")


class Handle(NamedTuple):
    """Something created at one place and used at many: the other processes get one that does nothing."""

    call: cst.Call
    because: str
    elsewhere: str
    """Source text that the other processes use for the whole call or one argument; empty for a switch
    (``disabled=...``)."""
    argument: str | None = None
    """The keyword of the argument that makes it inert; None if the whole call is replaced."""
    value: cst.Arg | None = None
    """That argument, if the script gives it."""
    default: str = "None"
    """The default of the argument."""
    imports: tuple[tuple[str, str], ...] = ()
    each_machine: bool = False
    """The main process of each machine has one."""
    tracker: bool = True
    noun: str = "tracker"
    """What the other processes are without."""


class Folder(NamedTuple):
    """A folder that every process may create, provided that it may exist already."""

    call: cst.Call
    renamed: bool
    """``os.mkdir``, which has no ``exist_ok``: ``os.makedirs`` replaces it."""


class Received(NamedTuple):
    """A value that the main process computes, and the others receive."""

    node: cst.CSTNode
    """The expression; the loop that looks for a free name; or the ``with`` that makes and removes a folder."""
    source: cst.Call
    """The call that makes it differ between processes."""
    because: str
    names: tuple[str, ...] = ()
    """For a loop or a ``with``: the variables that it sets."""
