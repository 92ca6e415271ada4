"""A violation: an invariant that the emitted program must keep, and breaks."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.values import Unit


class CodePlace(NamedTuple):
    """A node of the emitted program, and the module that contains it."""

    unit: Unit
    node: cst.CSTNode

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the place in another text of the same module: by module, function and code."""
        names, node = self.unit.names, self.node
        scope = names.scopes[names.function(node)]
        if isinstance(
            node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        ):  # comments above it are no part of it
            node = node.with_changes(leading_lines=())
        return self.unit.name, scope.qualname, names.module.code_for_node(node).strip()


class Violation(NamedTuple):
    """One broken invariant, with the place that breaks it and the place that it conflicts with."""

    invariant: str
    """Its name, one word or two: ``prepared-together``."""
    place: CodePlace
    words: str
    """What is wrong, as a clause that names both places."""
    other: CodePlace | None = None
    same_by_words: bool = False
    """An edit may change the code of the place, as it adds an argument to a call; the words stay."""

    @property
    def key(self) -> tuple[str, tuple[str, str, str]]:
        """Equal for the same violation in another text of the program."""
        module, function, code = self.place.key
        return self.invariant, (module, function, self.words if self.same_by_words else code)
