"""The code of a finding on the page: each line with its number, the part that it is about marked, and what is said; and
what its id means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from .explaining import address, paragraphs, sections
from .frames import View

_CODE = re.compile(
    r"""``?([^`]+)``?
    | (?<![\w`/.=-]) (
        [A-Za-z_][\w.]* [ ] [+]?=[ ]  # x = f(...).g(...)
            [A-Za-z_][\w.]* (?: \( (?: [^()] | \( (?: [^()] | \([^()]*\) )* \) )* \) (?: \. \w+ )* )+
        | from[ ][\w.]+[ ]import[ ]\w+ | if[ ]accelerator\.is_main_process
        | [\w./-]+ \. (?:py|ipynb) \b (?: :\d+ )?  # a file, and a line of it
        | [A-Za-z_]\w+ (?: \.[A-Za-z_]\w+ )+ (?: \( (?: [^()] | \([^()]*\) )* \) )?  # accelerator.reduce(x.sum())
        | (?! \w+ \( (?: s | es ) \) ) [A-Za-z_]\w* \( (?: [^()] | \( [^()]* \) )* \) (?: \. \w+ )*  # prepare(...)
        | --[a-z][a-z-]+ (?: [ ] [a-z_]+=\w+ )?  # an option, also with a role
        | [A-Za-z_]\w*= (?: \.\.\. | [\w'"] [\w.'"]* (?<!\.) )? (?! [\w=] )  # an argument: device=, cpu=...
        | torchlift[ ][a-z]+ \b
    )""",
    re.VERBOSE,
)
"""Code in a sentence: what is between backticks, and what is plainly no prose."""


def frame(views: Sequence[View]) -> str:
    """The lines of code of a finding; empty where there are none."""
    return f"<div class='frame'>{''.join(map(_line, views))}</div>" if views else ""


def _line(view: View) -> str:
    kind = "cause" if view.is_cause else "primary"
    text, start, end = view.text, view.start, view.end
    indent = len(text) - len(text.lstrip(" "))
    text, start, end = text[min(indent, start) :], start - min(indent, start), end - min(indent, start)
    code = f"{escape(text[:start])}<mark>{escape(text[start:end])}</mark>{escape(text[end:])}"
    where = f"<span class='where'>{escape(view.place)}</span>" if view.is_cause else ""
    label = f"<span class='label'>{code_words(view.label)}</span>" if view.label else ""
    return f"<div class='{kind}'>{where}<div class='row'><span class='n'>{view.number}</span><pre>{code}</pre></div>{label}</div>"  # noqa: E501


def path_words(text: str) -> str:
    """A path that a narrow column breaks after its slashes and underscores first."""
    return re.sub(r"([/_])(?=.)", r"\1<wbr>", escape(text))


def option_words(text: str) -> str:
    """Code in which no line is broken inside of an option: ``--write`` would get its dashes on two lines."""
    return re.sub(r"(?<![\w-])(--?[a-z][\w-]*)", r"<span class='o'>\1</span>", escape(text))


def code_words(text: str) -> str:
    """A sentence, with the code in it set as code."""
    parts, last = [], 0
    for found in _CODE.finditer(text):
        parts += [escape(text[last : found.start()]), f"<code>{option_words(found[1] or found[2])}</code>"]
        last = found.end()
    return "".join([*parts, escape(text[last:])])


def meaning(id: str, case: str = "") -> str:
    """What an id of a finding means in one of its cases, to be opened; empty where the documentation has no section of
    it."""
    if id not in sections():
        return ""
    blocks = "".join(map(_block, paragraphs(id, case)))
    more = f"<p><a href='{address('findings', id, case)}'>In the documentation</a></p>"
    return f"<details class='meaning'><summary>What {escape(id)} means</summary>{blocks}{more}</details>"


def _of_example(line: str) -> str:
    """A line of an example, in the colours of a diff."""
    sign = {"-": "del", "+": "ins"}.get(line[:1])
    return f"<{sign}>{escape(line)}</{sign}>" if sign else escape(line)


def _block(text: str) -> str:
    if text.startswith("```"):
        lines = [_of_example(line) for line in text.splitlines() if not line.startswith("```")]
        return f"<pre>{chr(10).join(lines)}</pre>"
    if text.startswith("### "):
        return f"<h4>{escape(text.removeprefix('### '))}</h4>"
    entries = text.split("\n- ") if text.startswith("- ") else [text]
    return "".join(f"<p>{code_words(entry.removeprefix('- '))}</p>" for entry in entries)
