"""
What each finding means and what to do: the sections of ``findings.md``, which is a page of the docs, too.

At a terminal they are shown as the docstrings of the rules are: sentences as wide as it is, examples as they are.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

PAGE = Path(__file__).with_name("findings.md")
ADDRESS = "https://github.com/torchlift/torchlift/blob/main/docs"
"""Where the pages of the documentation are read."""
_WIDTH = 100
_WIDEST, _NARROWEST = 110, 20
"""Sentences are wrapped at the width of the terminal, but not at more or fewer columns than these."""
_SIGNS = {"-": "31", "+": "32"}
"""The colours of an example's lines."""
_EXAMPLE = "    "
_REMEDY = "What to do"
_CASE = "### "
"""Begins the heading of a case."""
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


@cache
def cases(id: str) -> dict[str, str]:
    """What is said of each case of an id, without its heading; nothing where there is one situation only."""
    parts = re.split(r"^### ", sections().get(id, ""), flags=re.MULTILINE)[1:]
    return {head.rpartition(": ")[2]: body.strip() for head, _, body in (part.partition("\n") for part in parts)}


def section(id: str, case: str = "") -> str:
    """What is said of an id as Markdown; with a ``case`` what is said of all its cases, and of this one."""
    whole = sections()[id]
    return f"{_shared(whole)}\n\n{cases(id)[case]}" if case in cases(id) else whole


def meaning(id: str, case: str = "") -> str:
    """What a finding means, without what to do about it in general: of one that says that by itself, for its line."""
    parts = [_shared(sections()[id]).partition("\n\n")[0], cases(id)[case]] if case in cases(id) else [sections()[id]]
    return "\n\n".join(part.partition(f"**{_REMEDY}**")[0].strip() for part in parts).strip()


def spelled(word: str) -> tuple[str, str] | None:
    """The id and the case that a word names: ``local-decision-loop``, ``local-decision:loop``; None for others."""
    return next(
        ((id, case) for id in sections() for case in cases(id) if word in (f"{id}-{case}", f"{id}:{case}")), None
    )


def of_one_case(id: str) -> list[str]:
    """The words that name the cases of an id, for one who asks of them."""
    return [f"{id}-{case}" for case in cases(id)]


def _shared(whole: str) -> str:
    """What a section says before its first case."""
    return re.split(r"^### ", whole, maxsplit=1, flags=re.MULTILINE)[0].strip()


def of_a_rule(id: str) -> str:
    """What is said of the findings that have the id of a rule; empty where there are none."""
    return f"\n\nA finding [{id}] in a report:\n\n{sections()[id]}" if id in sections() else ""


def explanation(id: str, case: str = "", *, width: int = _WIDTH, color: bool = False) -> str:
    """What is said of a finding at a terminal."""
    return explained(id, section(id, case), "findings", case, width=width, color=color)


def explained(id: str, text: str, page: str, case: str = "", *, width: int = _WIDTH, color: bool = False) -> str:
    """A section or the docstring of a rule for a terminal: its paragraphs as plain text, its examples as they are, and
    the address of its page."""
    width = max(_NARROWEST, min(width, _WIDEST))
    parts = re.split(r"```\w*\n(.*?)```", text.strip("\n"), flags=re.DOTALL)
    blocks: list[str] = []
    for number, part in enumerate(parts):
        if number % 2:
            blocks.append(_example(part.strip("\n").split("\n"), color))
            continue
        for indented, some in groupby(part.strip("\n").split("\n\n"), lambda block: block.startswith(_EXAMPLE)):
            if indented:
                lines = "\n\n".join(some).split("\n")
                blocks.append(_example([line[len(_EXAMPLE) :] for line in lines], color))
            else:
                blocks += [_plain(block.strip("\n"), width, color) for block in some if block.strip()]
    title = f"{id}: {case}" if case else id
    return "\n\n".join([_painted(title, "1", color), *blocks, f"See {address(page, id, case)}"]) + "\n"


def paragraphs(id: str, case: str = "") -> list[str]:
    """The section of an id in parts: paragraphs and lists without other signs than those of code, and examples."""
    return [part if part.startswith("```") else _words(part) for part in re.split(r"\n\n(?! )", section(id, case))]


def address(page: str, id: str, case: str = "") -> str:
    """The address of what a page of the documentation says of an id, or of one of its cases."""
    headings = _headings() if page == "findings" else ()
    heading = next((heading for heading in headings if id in heading.split(", ")), id)
    if case in cases(id):
        heading = f"{heading.partition(', ')[0]}: {case}"
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


def _example(lines: Sequence[str], color: bool) -> str:
    """An example, not wrapped: what is before has a minus, what is after a plus."""
    return "\n".join(_painted(f"{_EXAMPLE}{line}".rstrip(), _SIGNS.get(line[:1], ""), color) for line in lines)


def _plain(block: str, width: int, color: bool) -> str:
    if block.startswith(_CASE):
        return _painted(_filled(block.removeprefix(_CASE), width), "1", color)
    entries = re.split(r"\n(?=- )", _words(block))
    text = "\n".join(_filled(entry, width) for entry in entries)
    if not text.startswith(_REMEDY):
        return text
    return _painted(_REMEDY, "1", color) + text[len(_REMEDY) :]


def _filled(entry: str, width: int) -> str:
    indent = "  " if entry.startswith("- ") else ""
    return textwrap.fill(
        " ".join(entry.split()), width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def _words(text: str) -> str:
    """Markdown without its signs; code keeps its backticks, one on each side."""
    return _STRONG.sub(r"\1", _LINK.sub(r"\1", text)).replace("``", "`")


def _painted(text: str, style: str, color: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if color and style else text
