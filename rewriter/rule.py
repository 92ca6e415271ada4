"""
The contract of a rule, and how rules are found.

A rule is a function from what is known of a module to edits and findings. Its module's docstring is its
documentation and its test: an imperative sentence, the reason, and an indented diff whose before and after are run.
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
    """Make a rule of a function; ``doc`` is its module's docstring."""

    def decorate(body: Body) -> Rule:
        return Rule(id, doc or "", body)

    return decorate


class Entry(NamedTuple):
    """A line of the catalogue: a rule known by name, imported only when there is something for it to do."""

    id: str
    module: str
    """Where the rule lives, e.g. ``torchlift.codemods.backward``; the rule is the attribute named like its id."""

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
    """Cut a diff block into the text before and the text after."""
    lines = block.splitlines(keepends=True)
    before = "".join(line[1:] or "\n" for line in lines if not line.startswith("+"))
    after = "".join(line[1:] or "\n" for line in lines if not line.startswith("-"))
    return before, after
