"""What each finding means and what to do: the sections of ``findings.md``, which is a page of the docs, too."""

from __future__ import annotations

import ast
import re
import textwrap
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PAGE = Path(__file__).with_name("findings.md")
ADDRESS = "https://github.com/torchlift/torchlift/blob/main/docs"
"""Where the pages of the documentation are read."""
_WIDTH = 100
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_STRONG = re.compile(r"\*+([^*\s][^*]*)\*+")


@cache
def sections() -> dict[str, str]:
    """The section of each id of a finding, as Markdown, without its heading."""
    found: dict[str, str] = {}
    for part in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        body = re.split(r"^# ", body, maxsplit=1, flags=re.MULTILINE)[0]  # a heading that opens the next chapter
        found.update(dict.fromkeys(heading.split(", "), body.strip()))
    return found


def explanation(id: str) -> str:
    """The section of an id for a terminal: its paragraphs as plain text, its examples as they are, its address."""
    blocks = [_plain(block) for block in re.split(r"\n\n(?! )", sections()[id])]
    return "\n\n".join([id, *blocks, f"See {address('findings', id)}"]) + "\n"


def paragraphs(id: str) -> list[str]:
    """The section of an id in parts: paragraphs and lists without other signs than those of code, and examples."""
    return [part if part.startswith("```") else _words(part) for part in re.split(r"\n\n(?! )", sections()[id])]


def address(page: str, id: str) -> str:
    """The address of what a page of the documentation says of an id."""
    heading = next((heading for heading in _headings() if id in heading.split(", ")), id)
    return f"{ADDRESS}/{page}.md#{re.sub('[^a-z0-9_ -]', '', heading.lower()).replace(' ', '-')}"


def documented(module: str) -> str:
    """The docstring of a module, which is not imported: that of a rule costs the parser."""
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return import_module(module).__doc__ or ""
    return ast.get_docstring(ast.parse(Path(spec.origin).read_bytes()), clean=False) or ""


def _headings() -> list[str]:
    return re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def one_sentence(id: str) -> str:
    """The first sentence of a section, as plain text."""
    first = " ".join(_words(sections()[id].partition("\n\n")[0]).split())
    return re.split(r"(?<=[.]) (?=[A-Z`])", first, maxsplit=1)[0]


def _plain(block: str) -> str:
    if block.startswith("```"):
        return "\n".join(f"    {line}".rstrip() for line in block.splitlines() if not line.startswith("```"))
    entries = re.split(r"\n(?=- )", _words(block))
    return "\n".join(map(_filled, entries))


def _filled(entry: str) -> str:
    indent = "  " if entry.startswith("- ") else ""
    return textwrap.fill(" ".join(entry.split()), _WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _words(text: str) -> str:
    """Markdown without its signs; code keeps its backticks."""
    return _STRONG.sub(r"\1", _LINK.sub(r"\1", text))
