"""``# migrate: skip`` and ``# migrate: skip[ids]``: code that the user wants to keep unchanged."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

_SKIP = re.compile(r"#\s*migrate:\s*skip\b(?:\s*\[([^\]]*)\])?")
_QUIET = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING})

Ids = frozenset[str]
"""Of rules and findings; the empty set stands for all of them."""


class Skips(NamedTuple):
    """What is kept unchanged in one file."""

    lines: Mapping[int, Sequence[Ids]] = MappingProxyType({})
    file: tuple[Ids, ...] = ()
    """What a comment before the first statement says about the whole file."""

    @property
    def whole(self) -> bool:
        """Whether the whole file is kept unchanged."""
        return any(not ids for ids in self.file)

    def covers(self, line: int, id: str) -> bool:
        """Whether a rule, or a finding, must skip a line."""
        return any(not ids or id in ids for ids in (*self.lines.get(line, ()), *self.file))

    def names(self, line: int, id: str) -> bool:
        """Whether an id is named explicitly; a finding that blocks a file is only skipped if it is."""
        return any(id in ids for ids in (*self.lines.get(line, ()), *self.file))


def skips(text: str) -> Skips:
    """
    Read the comments of a file.

    A comment after a statement applies to all lines of that statement. A comment on a separate line applies to the
    statement that follows, or, before the first statement, to the file.
    """
    if "migrate:" not in text or not _SKIP.search(text):
        return Skips()
    lines: dict[int, list[Ids]] = {}
    whole: list[Ids] = []
    waiting: list[Ids] = []
    here: list[Ids] = []
    first = 0
    begun = False
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
            if token.type == tokenize.COMMENT and (said := _SKIP.match(token.string)):
                ids = frozenset(word.strip() for word in (said[1] or "").split(",") if word.strip())
                (here if first else waiting if begun else whole).append(ids)
            elif token.type not in _QUIET and token.type != tokenize.NEWLINE and not first:
                first, begun, here, waiting = token.start[0], True, waiting, []
            elif token.type == tokenize.NEWLINE:
                for line in range(first, token.start[0] + 1) if here else ():
                    lines.setdefault(line, []).extend(here)
                first, here = 0, []
    except (tokenize.TokenError, SyntaxError):
        pass  # a file that is not valid Python is refused elsewhere
    return Skips(lines, tuple(whole))
