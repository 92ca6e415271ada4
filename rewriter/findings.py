"""
A finding: something that the migration could not do automatically, with its place, its cause and its remedy.

A refusal is an answer like an edit. Rules and analysis yield findings; the pipeline gives them a line and a file.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from libcst import CSTNode


class Severity(str, Enum):
    """How much a finding (or an edit) asks of its reader."""

    NOTE = "note"
    """Good to know: what changes at run time."""
    REVIEW = "review"
    """Done, or left unchanged: the user should check it."""
    BLOCKED = "blocked"
    """The script needs a manual change first: nothing is written unless ``--partial``."""
    ERROR = "error"
    """``--audit``: the script is wrong on several processes as it is."""


class Cause(NamedTuple):
    """Where it comes from what a finding is about: a second place, in any file of the program."""

    node: CSTNode
    label: str
    """What happens there: a few words that are shown under the code."""


CODE = "    "
"""How a line of a remedy begins that is code to write."""


class Finding(NamedTuple):
    """
    Something to tell the user about one place of the source.

    ``id`` is a rule's id or that of a refusal class (``already-distributed``, ``no-entry-point``, ...);
    ``node`` is the place, or None for the file as a whole.
    """

    id: str
    node: CSTNode | None
    message: str
    remedy: str = ""
    """What to do: a sentence, or lines, of which those are code that begin with ``CODE``."""
    severity: Severity = Severity.REVIEW
    part: CSTNode | None = None
    """What of the node it is about, to be underlined: the value in a condition."""
    cause: Cause | None = None
    case: str = ""
    """Which of the situations it is that its id covers: a heading of ``report/findings.md``."""
