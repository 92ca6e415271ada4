"""What has no role and is followed to where it ends: open files, stamps, listings, sets, lengths."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import libcst as cst

from .solver import Slot


class Trail(Enum):
    """Why something without a role is followed."""

    FILE = "file"
    """An open file."""
    STAMP = "stamp"
    """What differs from process to process: the clock, a process id, random text."""
    LISTING = "listing"
    """The entries of a folder: their number differs, while another process makes one."""
    ENTRY = "entry"
    """One of these."""
    NUMBER = "number"
    """The number that is the name of an entry: the highest differs as the number of entries does."""
    SET = "set"
    """A set: the order of its strings differs from process to process."""
    LENGTH = "length"
    """How many elements something has: ``len(data)``, ``data.shape[0]``, wherever the number is kept."""


OF_ITS_OWN = frozenset({Trail.SET, Trail.LENGTH})
"""What is followed as it is, and not in what is computed from it."""


@dataclass(eq=False)
class Trace:
    """Something from outside that has no role, and is followed to where it ends."""

    node: cst.CSTNode
    trail: Trail


def traces(slot: Slot | None, trail: Trail) -> list[Trace]:
    """What a slot holds that is followed for one reason."""
    return [t for t in (slot.things if slot is not None else ()) if isinstance(t, Trace) and t.trail is trail]


def counts_rows_of(node: cst.CSTNode) -> cst.BaseExpression | None:
    """What a tensor's or an array's own count is of: ``x`` of ``x.shape[0]`` and ``x.size(0)``; None for all else."""
    attribute: cst.CSTNode | None = None
    if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        attribute, word, place = node.value, "shape", node.slice[0].slice.value
    elif isinstance(node, cst.Call) and len(node.args) == 1:
        attribute, word, place = node.func, "size", node.args[0].value
    if not isinstance(attribute, cst.Attribute) or attribute.attr.value != word:
        return None
    return attribute.value if isinstance(place, cst.Integer) and place.evaluated_value == 0 else None
