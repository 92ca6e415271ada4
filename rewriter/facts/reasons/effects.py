"""What every process would do, and should happen once, or in an order that no wait can give."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst


class SharedDownload(NamedTuple):
    """A download whose result is used, which every process would make."""

    node: cst.Call


class ShownByAll(NamedTuple):
    """What every process still writes to the console."""

    node: cst.Call
    why: str


class UsedWrite(NamedTuple):
    """A write whose result is used."""

    node: cst.Call


class JointWrite(NamedTuple):
    """A write in a statement that also runs what all processes must run together."""

    node: cst.Call


class AskedInHead(NamedTuple):
    """The call of a function that makes a file unless it is there, at the head of a block that all must run."""

    node: cst.Call


class OtherOrder(NamedTuple):
    """A list of files that is in another order on the process that makes the files."""

    node: cst.Call
    listing: str
    name: str


class AskedApart(NamedTuple):
    """A place where all must wait, to which each process comes by its own question for a file."""

    node: cst.CSTNode
    test: str
    takes: bool
    """What runs where the file is there takes it away."""


class FolderOfAll(NamedTuple):
    """A folder that every process creates, where the script ensured that it is new."""

    node: cst.CSTNode


class SearchedName(NamedTuple):
    """A search for a name that is not taken yet."""

    node: cst.Call


class LeftFile(NamedTuple):
    """A temporary file that each process makes, and nothing removes."""

    node: cst.Call


class TemporaryFolder(NamedTuple):
    """A temporary folder of each process's own."""

    node: cst.CSTNode


class SharedFile(NamedTuple):
    """A file that every process would open for writing."""

    node: cst.CSTNode


class TrackedValue(NamedTuple):
    """A value of a tracker, or of what writes a film, that every process computes with."""

    node: cst.CSTNode
    text: str
    why: str
    """What happens then, as a phrase."""
    noun: str = "tracker"
    """What it is called."""


class RunName(NamedTuple):
    """The name of a run, which only the main process has."""

    node: cst.CSTNode


class RunsCommand(NamedTuple):
    """A command that every process runs."""

    node: cst.CSTNode


class RunsOnAll(NamedTuple):
    """What every process does, and is left to the user."""

    node: cst.CSTNode
    why: str


class NoWaitInTry(NamedTuple):
    """Files of the main process in a ``try`` that goes on after an error, where no wait can be added."""

    node: cst.CSTNode
    takes: bool
    """They are taken away there, or overwritten, after all have read them; else they are read."""


class ListedEarly(NamedTuple):
    """A folder that is listed after something was written, which may be in it."""

    node: cst.CSTNode
    listed: str
    written: str
    source: cst.CSTNode
    """The other place of the two."""
    lists: bool
    """The other place is where it is listed; else, where it is written."""


class StateOfOne(NamedTuple):
    """The state of a model that each process takes by itself."""

    node: cst.CSTNode
    handler: str
    """``except ValueError``, ``finally``."""
    taken: str


class FileOfRows(NamedTuple):
    """A file that each process writes for its own rows, under one name."""

    node: cst.CSTNode
    path: str


class FileForRows(NamedTuple):
    """A file that loaders make for rows, and other code on every process."""

    node: cst.CSTNode
    path: str
    """Empty where it is not known what is written."""


class UnknownEffects(NamedTuple):
    """Calls of a package whose effects are not known."""

    node: cst.CSTNode
    calls: tuple[str, ...]
    package: str
    """Empty where they are of an object whose class the script chooses by a name."""


class ChosenDownload(NamedTuple):
    """A download in code that nothing is seen to call, in a program that chooses classes by a name."""

    node: cst.CSTNode
    inside: str
    chooser: str
    method: str
