"""``# migrate: skip`` and ``# migrate: skip[ids]``: what the user wants to be left as it is."""

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
    """What is left as it is in one file."""

    lines: Mapping[int, Sequence[Ids]] = MappingProxyType({})
    file: tuple[Ids, ...] = ()
    """What a comment before the first statement says of the whole file."""

    @property
    def whole(self) -> bool:
        """Whether the file is left alone altogether."""
        return any(not ids for ids in self.file)

    def covers(self, line: int, id: str) -> bool:
        """Whether a rule, or a finding, is to keep silent about a line."""
        return any(not ids or id in ids for ids in (*self.lines.get(line, ()), *self.file))

    def names(self, line: int, id: str) -> bool:
        """Whether it is named; what blocks a file has to be."""
        return any(id in ids for ids in (*self.lines.get(line, ()), *self.file))


def skips(text: str) -> Skips:
    """
    Read the comments of a file.

    A comment after a statement applies to that statement, all its lines; a comment on a separate line to the statement
    that follows, or, before the first statement, of the file.
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
        pass  # a file that is no Python is refused elsewhere
    return Skips(lines, tuple(whole))
