"""Which parts of Python text are keywords, strings, comments, numbers and defined names, line by line."""

from __future__ import annotations

import io
import keyword
import tokenize

Span = tuple[int, int, str]

_KINDS = {tokenize.STRING: "s", tokenize.COMMENT: "c", tokenize.NUMBER: "d"}
_KINDS.update({getattr(tokenize, name): "s" for name in dir(tokenize) if name.startswith("FSTRING_")})


def colors(text: str) -> dict[int, list[Span]]:
    """Return for each line, counted from 1, its spans in order: start, end and kind; nothing for text that is not
    Python."""
    found: dict[int, list[Span]] = {}
    lines = text.split("\n")
    defines = False
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
            kind = _KINDS.get(token.type, "")
            if token.type == tokenize.NAME:
                kind = "k" if keyword.iskeyword(token.string) else "f" if defines else ""
                defines = token.string in ("def", "class")
            if kind:
                _add(found, lines, token.start, token.end, kind)
    except (tokenize.TokenError, SyntaxError):
        pass  # the spans up to the error are correct
    return found


def _add(
    found: dict[int, list[Span]], lines: list[str], start: tuple[int, int], end: tuple[int, int], kind: str
) -> None:
    for line in range(start[0], end[0] + 1):
        first = start[1] if line == start[0] else 0
        last = end[1] if line == end[0] else len(lines[line - 1])
        if first < last:
            found.setdefault(line, []).append((first, last, kind))
