"""The patch: bytes in, bytes out, so that ``migrate script.py | git apply`` has the same result as ``--write``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..editing.opcodes import CONTEXT, grouped, opcodes

_NO_NEWLINE = b"\\ No newline at end of file\n"
_SPECIAL = re.compile(rb'[\x00-\x1f"\\\x7f-\xff]')
_ESCAPES = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}


def patch(path: Path, before: bytes, after: bytes, base: Path | None = None) -> bytes:
    """
    Return the unified diff of one file, empty where nothing changes; its name is relative to ``base``.

    Lines end at line feeds and nowhere else: a carriage return, a form feed or U+2028 is part of its line.
    """
    if before == after:
        return b""
    name = shown(path, base)
    return b"".join((_header(b"--- ", f"a/{name}"), _header(b"+++ ", f"b/{name}"), *hunks(before, after)))


def base_of(paths: Sequence[Path]) -> Path:
    """
    Return the folder to which the names of a patch are relative: the current one.

    In a sub-folder ``sub`` of a repository git takes ``a/sub/x.py`` for ``x.py`` and would patch the wrong file; there
    the names are relative to the top of the repository, which git takes as they are meant.
    """
    here = Path.cwd()
    top = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    prefix = here.relative_to(top).as_posix() + "/"
    return top if any(shown(path, here).startswith(prefix) for path in paths) else here


def hunks(before: bytes, after: bytes) -> Iterator[bytes]:
    """Yield the lines of the diff without the two header lines, each with its line feed."""
    old, new = _lines(before), _lines(after)
    for group in grouped(opcodes(old, new), CONTEXT):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        yield b"@@ -%s +%s @@\n" % (_span(i1, i2), _span(j1, j2))
        for tag, first, end, start, stop in group:
            if tag == "equal":
                yield from (_line(b" ", line) for line in old[first:end])
            else:
                yield from (_line(b"-", line) for line in old[first:end])
                yield from (_line(b"+", line) for line in new[start:stop])


def shown(path: Path, base: Path | None = None) -> str:
    """Return a path relative to a folder, by default the current one, with slashes."""
    try:
        relative = os.path.relpath(path, base)
    except ValueError:  # another drive
        relative = os.path.abspath(path)  # noqa: PTH100
    return relative.replace(os.sep, "/")


def _header(mark: bytes, name: str) -> bytes:
    """Name a file as git does: special characters in C's notation, a tab after a name with spaces."""
    raw = os.fsencode(name)
    if _SPECIAL.search(raw):
        raw = b'"' + _SPECIAL.sub(_escaped, raw) + b'"'
    return mark + raw + (b"\t" if b" " in raw else b"") + b"\n"


def _escaped(match: re.Match[bytes]) -> bytes:
    code = match[0][0]
    return b"\\" + _ESCAPES.get(code, b"%03o" % code)


def _span(first: int, end: int) -> bytes:
    """The lines of a hunk as a patch counts them: from 1, and of none the line before."""
    count = end - first
    start = first + 1 if count else first
    return b"%d" % start if count == 1 else b"%d,%d" % (start, count)


def _line(mark: bytes, line: bytes) -> bytes:
    return mark + line if line.endswith(b"\n") else mark + line + b"\n" + _NO_NEWLINE


def _lines(data: bytes) -> list[bytes]:
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])
