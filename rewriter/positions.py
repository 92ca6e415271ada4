"""Lines and columns of nodes, found in one pass of code generation: a third of what LibCST's own provider takes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import libcst as cst
from libcst._nodes.internal import CodegenState

from .analysis.walk import children


@dataclass(frozen=False)
class _Locating(CodegenState):
    """Counts lines and columns while code is generated, and notes where each node starts."""

    line: int = 1
    column: int = 1
    starts: dict[cst.CSTNode, tuple[int, int]] = field(default_factory=dict)

    def before_codegen(self, node: cst.CSTNode) -> None:
        self.starts[node] = (self.line, self.column)

    def after_codegen(self, node: cst.CSTNode) -> None:
        return

    def add_token(self, value: str) -> None:
        super().add_token(value)
        newlines = value.count("\n") or value.count("\r")
        if newlines:
            self.line += newlines
            self.column = len(value) - max(value.rfind("\n"), value.rfind("\r"))
        else:
            self.column += len(value)

    def add_indent_tokens(self) -> None:
        super().add_indent_tokens()
        self.column += sum(len(token) for token in self.indent_tokens)

    @contextmanager
    def record_syntactic_position(
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> Generator[None, None, None]:
        if start_node is None:  # the lines above a statement are out by now
            self.starts[node] = (self.line, self.column)
        yield


def locate(module: cst.Module) -> tuple[str, dict[cst.CSTNode, tuple[int, int]]]:
    """The text of a module, and the (line, column) at which each of its nodes starts, both counted from 1."""
    state = _Locating(default_indent=module.default_indent, default_newline=module.default_newline)
    module._codegen(state)
    return "".join(state.tokens), state.starts


def start(starts: dict[cst.CSTNode, tuple[int, int]], node: cst.CSTNode | None) -> tuple[int, int]:
    """Where a node starts, for a statement its first token; (0, 0) for none and for nodes that are not in the tree."""
    if node is None or isinstance(node, cst.Module):
        return (0, 0)
    if isinstance(node, cst.SimpleStatementLine) and node.body:
        return starts.get(node.body[0], (0, 0))
    if node in starts:
        return starts[node]
    return next((starts[child] for child in children(node) if child in starts), (0, 0))
