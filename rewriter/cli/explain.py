"""``migrate --explain``: what rules and findings mean, or the list of all ids. No rule is imported for it, because that
imports the parser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from shutil import get_terminal_size
from textwrap import shorten

from ..audit.ids import MODULES
from ..config import ConfigError, check_word
from ..report.explaining import (
    documented,
    explained,
    explanation,
    of_a_rule,
    of_one_case,
    one_sentence,
    sections,
    spelled,
)
from ..rule import Entry
from .invoked import invoked
from .output import listed, out
from .usage import EVERYTHING

_NARROWEST = 40
_FILE = re.compile(r".+\.(py|ipynb)(?=:|$)")


def explain(catalogue: Sequence[Entry], words: Sequence[str], *, color: bool) -> None:
    """Explain each id; ``ConfigError`` for one that is not known."""
    audits = {name: f"{__package__.rpartition('.')[0]}.audit.{module}" for name, module in MODULES.items()}
    rules = {entry.id: entry.module for entry in catalogue}
    if tuple(words) == (EVERYTHING,):
        out(_everything(rules, audits))
        return
    asked = " ".join(words).replace(": ", ":").replace(" ", ",")  # as it is shown: `local-decision: loop`
    ids = list(dict.fromkeys(id for id in asked.split(",") if id))
    for id in ids:
        if spelled(id):
            continue
        if file := _FILE.match(id):
            raise ConfigError("--explain", f"`{id}` names no line of the file", f"Name one: --explain {file[0]}:12")
        remedy = "`migrate --explain` lists all of them, a report names its findings in brackets"
        known = {*rules, *audits, *sections(), *(word for each in sections() for word in of_one_case(each))}
        check_word("--explain", "rule or finding", id, known, remedy)
    width = get_terminal_size((100, 24)).columns
    texts = []
    for id in ids:
        if id in rules:
            texts.append(explained(id, documented(rules[id]) + of_a_rule(id), "rules", width=width, color=color))
        elif id in audits:
            texts.append(explained(id, documented(audits[id]), "findings", width=width, color=color))
        elif one := spelled(id):
            texts.append(explanation(*one, width=width, color=color))
        else:
            texts.append(explanation(id, width=width, color=color) + _cases(id))
    out("\n\n".join(texts))


def _cases(id: str) -> str:
    """How one of several cases is asked for."""
    named = of_one_case(id)
    return f"\nOne case alone: {invoked()} --explain {named[0]}\n" if named else ""


def _everything(rules: dict[str, str], audits: dict[str, str]) -> str:
    """All ids, each with a line, as long as the terminal is wide."""
    width = get_terminal_size((100, 24)).columns
    told = {id: " ".join(documented(module).strip().partition("\n\n")[0].split()) for id, module in rules.items()}
    found = {id: one_sentence(id) for id in sections() if id not in rules and id not in audits}
    checked = {id: one_sentence(id) for id in audits}
    parts = []
    for heading, some in (("Rules", told), ("Findings", found), ("Findings of --audit", checked)):
        room = max(width - max(map(len, some)) - 2, _NARROWEST)
        lines = [(id, shorten(text.replace("``", "`"), room, placeholder=" ...")) for id, text in some.items()]
        parts.append(f"{heading}\n\n{listed(lines)}")
    return "\n".join(parts)
