"""What leaves the program or comes from outside: files, the console, the clock, trackers."""

from __future__ import annotations

from typing import Literal, NamedTuple


class PerProcess(NamedTuple):
    """A value that differs from process to process, and is not random."""

    why: str = ""
    stamp: bool = False
    """Scripts use it in the names of files and runs."""
    unique: bool = False
    """No two processes have the same, however close in time they ask for it."""
    file: bool = False
    """It is a file that the call has made for this process."""


class Write(NamedTuple):
    """Writes, moves or removes a file or a folder: it should run once, not once per process."""

    path: int | None = None
    """The position of the path or the open file; None if the object of a method knows it."""
    data: int | None = None
    how: Literal["writes", "moves", "removes", "makes a folder", "exports", "settings", "shows", "settles"] = "writes"
    """``settles``: it makes an open file lie on the disk, or cuts it off, which the null device cannot do."""
    optional: str = ""
    """The keyword of the path, where a call without one writes nothing and gives the text back."""
    picture: bool = False
    """It writes a picture, for somebody to look at."""


class Read(NamedTuple):
    """Reads a file or a folder, or asks about it."""

    path: int | None = 0
    what: Literal["content", "listing", "existence", "state"] = "content"
    """``state``: its size, its times, its mode, which a file that is not there does not have."""


class Open(NamedTuple):
    """Opens a file; the mode says what for."""

    path: int = 0
    mode: int = 1


class Console(NamedTuple):
    """Writes to the console, or opens a window."""

    model: bool = False
    """It shows a model that it is given, and may run it."""
    silent: str = ""
    """The keyword by which it shows nothing: ``verbose=0``."""
    gives: bool = False
    """It returns what it shows, and a notebook displays that."""


class Picture(NamedTuple):
    """Draws what it is given into a picture, which another call shows or writes."""


class Download(NamedTuple):
    """Fetches something and leaves it in a folder, or unpacks it there."""

    keeps: bool = False
    """What is there already is used: whoever comes later finds it."""


class Tracker(NamedTuple):
    """Starts an experiment tracker, or creates an object that writes to one, or to one file: a film."""

    off: str = ""
    """How it is made inert: source text of an argument; empty if the whole call is replaced."""
    folder: bool = False
    """It creates its folder, and those above it."""
    file: bool = False
    """It writes one file, and is no tracker."""


class LogFile(NamedTuple):
    """A handler of ``logging`` that writes a file."""


class Bar(NamedTuple):
    """A progress bar around what is iterated."""

    off: str = ""
    stays: bool = False
    """It has no option that turns it off."""


class TextOf(NamedTuple):
    """Makes a text, a number or a path from its arguments: if they are equal on all processes, so is the result."""

    host: bool = False
    """It makes a Python value from a tensor."""
    bends: bool = False
    """It is not linear: of a mean over some rows it does not make a part of the mean over all."""
    finds: bool = False
    """It gives None where it finds nothing."""


class InMemory(NamedTuple):
    """Makes a buffer in memory that is written like a file."""


class Lock(NamedTuple):
    """A lock that one process at a time holds, of all on a machine."""


class Exit(NamedTuple):
    """Ends the process."""


class Command(NamedTuple):
    """Runs another program."""

    command: int = 0


class Interrupt(NamedTuple):
    """Has a function run when something happens to this process alone: a signal."""


class Raised(NamedTuple):
    """An exception."""

    alike: bool = False
    """All processes meet it at the same place, or none: it comes from the code, from the end of the data, from the
    person who stops the run."""
