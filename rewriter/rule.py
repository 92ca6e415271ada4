"""
The contract of a rule, and how rules are found.

A rule is a function from the facts of a module to edits and findings. Its module's docstring is its
documentation and its test: an imperative sentence, the reason, and an indented diff; tests run its two programs.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .editing.edits import Edit
    from .facts.module import ModuleFacts
    from .findings import Finding

    Body = Callable[[ModuleFacts], Iterator[Edit | Finding]]


class Rule(NamedTuple):
    """One codemod: an id, its documentation, and the function that answers for a module."""

    id: str
    doc: str
    body: Any

    def __call__(self, facts: ModuleFacts) -> Iterator[Edit | Finding]:
        """Yield the edits and findings of this rule for one module."""
        answers: Iterator[Edit | Finding] = self.body(facts)
        return answers

    @property
    def summary(self) -> str:
        """The imperative sentence that opens the documentation."""
        return " ".join(self.doc.strip().split("\n\n")[0].split())

    @property
    def examples(self) -> list[tuple[str, str]]:
        """The (before, after) programs of the indented diff blocks in the documentation."""
        return [_cut(block) for block in _blocks(self.doc)]


def rule(id: str, *, doc: str | None) -> Callable[[Body], Rule]:
    """Make a rule from a function; ``doc`` is its module's docstring."""

    def decorate(body: Body) -> Rule:
        return Rule(id, doc or "", body)

    return decorate


class Entry(NamedTuple):
    """A line of the catalogue: a rule by its name, imported only when it has work to do."""

    id: str
    module: str
    """The module of the rule, e.g. ``torchlift.codemods.backward``; the rule is the attribute with the name of its
    id."""

    def load(self) -> Rule:
        """Import the rule."""
        found = getattr(importlib.import_module(self.module), self.id)
        if not isinstance(found, Rule):
            raise TypeError(f"{self.module}.{self.id} is not a rule: decorate it with torchlift.rewriter.rule.rule")
        return found


def _blocks(doc: str) -> list[str]:
    """The indented blocks of a docstring that hold a diff."""
    blocks: list[list[str]] = [[]]
    for line in doc.expandtabs(4).split("\n"):
        if line.startswith("    ") or (not line.strip() and blocks[-1]):
            blocks[-1].append(line[4:])
        elif blocks[-1]:
            blocks.append([])
    texts = ["\n".join(block).strip("\n") + "\n" for block in blocks if block]
    return [text for text in texts if re.search(r"^[-+]", text, re.MULTILINE)]


def _cut(block: str) -> tuple[str, str]:
    """Split a diff block into the text before and the text after."""
    lines = block.splitlines(keepends=True)
    before = "".join(line[1:] or "\n" for line in lines if not line.startswith("+"))
    after = "".join(line[1:] or "\n" for line in lines if not line.startswith("-"))
    return before, after
