"""
Indentation that Python reads and LibCST does not: a block whose indentation does not begin with that of the block
around it, a tab and four spaces below four spaces.

The text is read with more of it, which LibCST takes, and written with its own again. Standard library only.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

_LONE_RETURN = re.compile(r"\r(?!\n)")


class Evened(NamedTuple):
    """A text with indentation that LibCST reads."""

    text: str
    written: dict[str, str]
    """By the indentation that is read, the one that is written."""
    wider: dict[int, int]
    """By line, how much wider its indentation is read."""

    def back(self, text: str) -> str:
        """An edited form of the text, with the indentation that is written."""
        if not self.written:
            return text
        return "".join(self._narrowed(line) for line in _lines(text))

    def _narrowed(self, line: str) -> str:
        read = max((read for read in self.written if line.startswith(read)), key=len, default="")
        return self.written[read] + line[len(read) :] if read else line


def evened(text: str) -> Evened | None:
    """A text with indentation that LibCST reads; None where that could not be told from the rest when it is written."""
    lines = _lines(text)
    written: dict[str, str] = {}
    wider: dict[int, int] = {}
    new = list(lines)
    for line, own, read in _indentations(text):
        if own == read:
            continue
        if not lines[line - 1].startswith(own) or written.setdefault(read, own) != own:
            return None
        new[line - 1] = read + lines[line - 1][len(own) :]
        wider[line] = len(read) - len(own)
    found = Evened("".join(new), written, wider)
    mixed = _LONE_RETURN.search(text) or any(line.startswith(tuple(written)) for line in lines)
    return None if not written or mixed or found.back(found.text) != text else found


def _lines(text: str) -> list[str]:
    return io.StringIO(text, newline="\n").readlines()


def uneven(text: str) -> int:
    """The first line of a block whose indentation does not begin with that of the block around it; 0 without one."""
    return next((line for line, own, read in _indentations(text) if own != read), 0)


def _indentations(text: str) -> Iterator[tuple[int, str, str]]:
    """The lines that start a statement, and comments with its indentation: the indentation of each as it is, and
    with that of the blocks around it before it. Nothing more where Python's tokenizer gives up."""
    around = [("", "")]
    fresh = True
    try:
        for token in tokenize.generate_tokens(iter(_lines(text)).__next__):
            if token.type == tokenize.INDENT:
                own, (outer, read) = token.string, around[-1]
                around.append((own, read + own.removeprefix(outer)))
            elif token.type == tokenize.DEDENT:
                around.pop()
            elif token.type == tokenize.COMMENT and fresh:
                indent = token.line[: token.start[1]]
                yield token.start[0], indent, next((read for own, read in around if own == indent), indent)
            elif token.type == tokenize.NEWLINE:
                fresh = True
            elif token.type not in (tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER):
                if fresh:
                    yield token.start[0], *around[-1]
                fresh = False
    except (tokenize.TokenError, SyntaxError):
        return
