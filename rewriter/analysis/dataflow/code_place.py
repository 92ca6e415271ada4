"""A place in a program, and how it is found again in another text of it."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from .values import Unit


class CodePlace(NamedTuple):
    """A node of a program, and the module that contains it."""

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
