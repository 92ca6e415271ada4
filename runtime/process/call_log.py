"""
What this process has asked all processes to do together, in order.

Every collective leaves an entry: its number, a checksum of everything so far, what it is, and the line of the script.
If the checksums of two processes differ at the same number, there is a collective mismatch.
"""

from __future__ import annotations

import sys
import sysconfig
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import torch

OURS = str(Path(__file__).parent.parent)
BETWEEN = (OURS, str(Path(torch.__file__).parent), contextmanager.__code__.co_filename)
"""Frames of these places are between the script and a collective."""
LIBRARIES = (*BETWEEN, *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
"""Frames of these places are, as a rule, no lines of the script."""
_LENGTH = 4096
_SPOKEN = {
    "goes_first": "main_process_first",
    "__next__": "the loop over a loader",
    "__iter__": "the loop over a loader",
    "after_backward": "backward",
    "all_of": "prepare",
}

Shown: TypeAlias = "tuple[Any, ...]"


class LoggedCall(NamedTuple):
    """One collective, as it was asked for."""

    number: int
    chain: int
    kind: str
    asked: str
    """The function of ours that the script called."""
    shapes: Shown
    code: CodeType | None
    line: int
    left: bool = False
    """In its middle: this process knows nothing of the result on the others."""

    def told(self) -> list[Any]:
        """As plain values, for other processes."""
        return [self.number, self.chain, self.describe(), self.place()]

    def place(self, before: str = "") -> str:
        """File and line of the script, after some words; empty where they are not known."""
        return "" if self.code is None else f"{before}{self.code.co_filename}:{self.line}"

    def describe(self) -> str:
        """What the script sees of it."""
        asked = _SPOKEN.get(self.asked, self.asked)
        name = self.kind if not asked or asked.startswith("_") or asked in ("call", self.kind) else asked
        if self.kind.startswith(f"{name} "):  # the word of a reduction
            name = self.kind
        elif name.startswith("broadcast"):
            name += "".join(self.kind.partition(" from ")[1:])
        shapes = ", ".join(str(list(shape)) if isinstance(shape, tuple) else str(shape) for shape in self.shapes[:4])
        more = ", ..." if len(self.shapes) > 4 else ""
        end = ", which was interrupted" if self.left else ""
        return f"{name} of {shapes}{more}{end}" if shapes else f"{name}{end}"


class Ring:
    """The latest entries of this process. Noting one costs a microsecond or two."""

    def __init__(self, length: int = _LENGTH) -> None:
        self.number = 0
        self.chain = 0
        self.entries: deque[LoggedCall] = deque(maxlen=length)

    def note(self, kind: str, signature: str = "", shapes: Shown = ()) -> None:
        """
        Remember a collective.

        Args:
            kind: which one.
            signature: what must be alike on all processes, beside the kind.
            shapes: of the tensors, and their types: for messages only.
        """
        asked, code, line = "", None, 0
        frame = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            if not code.co_filename.startswith(BETWEEN):
                line = frame.f_lineno
                break
            if code.co_filename.startswith(OURS):
                asked = code.co_name
            frame = frame.f_back  # type: ignore[assignment]
        self.number += 1
        self.chain = crc32(f"{kind}|{signature}".encode(), self.chain)
        self.entries.append(LoggedCall(self.number, self.chain, kind, asked, shapes, code if line else None, line))

    def leave(self) -> None:
        """The latest collective was left in its middle: that is another history than that of who has finished it."""
        self.chain = crc32(b"left", self.chain)
        self.entries.append(self.entries.pop()._replace(chain=self.chain, left=True))

    def tail(self, count: int) -> list[LoggedCall]:
        """The last `count` entries, the oldest first."""
        return list(self.entries.copy())[-count:]


def frames() -> list[FrameType]:
    """The frames of the script, the innermost first; those of libraries (a progress bar) where there are no others."""
    found = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(BETWEEN):
            found.append(frame)
        frame = frame.f_back
    return [one for one in found if not one.f_code.co_filename.startswith((*LIBRARIES, "<frozen"))] or found


def parted(mine: list[LoggedCall], theirs: list[list[Any]]) -> tuple[list[Any], list[Any]] | None:
    """
    The first collective at which two processes did different things, as each of them tells it.

    Args:
        mine: entries of this process.
        theirs: what `LoggedCall.told` gave on the other one.

    Returns:
        None as long as one is only slower than the other.
    """
    own = {entry.number: entry for entry in mine}
    common = [told for told in theirs if told[0] in own]
    if not common or own[common[-1][0]].chain == common[-1][1]:
        return None
    for told in common:
        if own[told[0]].chain != told[1]:
            return own[told[0]].told(), told
    return None


def sentence(mine: list[Any], theirs: list[Any], rank: int) -> str:
    """What a script reads about two entries, as `parted` gives them; the second is that of `rank`."""
    places = [f" at {told[3]}" if told[3] else "" for told in (mine, theirs)]
    return (
        f"collective mismatch at call {mine[0]}: rank 0 is in {mine[2]}{places[0]}, rank {rank} is in "
        f"{theirs[2]}{places[1]}. Every process must make the same calls, in the same order, with tensors of the same "
        "kind: look for a condition (on the rank, a metric, the number of batches) around one of these lines."
    )
