"""Functions and classes of other cells that read what the training makes: its names are local to one function now."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .document import Cell
from .uses import NotGathered, Use, from_inside, use


@dataclass(frozen=True)
class Definition:
    """A statement at the top level of a cell with a function in it."""

    cell: int
    node: ast.stmt
    binds: frozenset[str]
    reads: frozenset[str]
    later: frozenset[str]
    """The globals that its functions read when they are called."""


def definitions(texts: Sequence[str], cells: Collection[int]) -> list[Definition]:
    """The functions and classes of some cells, and other statements with a function in them."""
    found: list[Definition] = []
    for n in sorted(cells):
        for node in ast.parse(texts[n]).body:
            functions = [one for one in ast.walk(node) if isinstance(one, _FUNCTIONS)]
            if functions:
                of_node = use(ast.unparse(node))
                later = frozenset(name for one in functions for name in _globals(one))
                found.append(Definition(n, node, of_node.binds, of_node.reads, later))
    return found


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _globals(function: ast.AST) -> Iterable[str]:
    return from_inside(symtable.symtable(ast.unparse(function), "function", "exec"))


def reached(names: Collection[str], among: Sequence[Definition]) -> list[Definition]:
    """The definitions that some names lead to."""
    found: list[Definition] = []
    wanted = frozenset(names)
    while more := [one for one in among if one not in found and one.binds & wanted]:
        found += more
        wanted = wanted.union(*(one.reads | one.later for one in more))
    return [one for one in among if one in found]


def taken_along(among: Sequence[Definition], uses: Sequence[Use], chosen: Collection[int]) -> list[Definition]:
    """The definitions of other cells that the training calls and that read what it makes."""
    called = reached(frozenset[str]().union(*(uses[n].reads for n in chosen)), among)
    local = frozenset[str]().union(*(uses[n].binds for n in chosen))
    taken: list[Definition] = []
    while more := [
        one
        for one in called
        if one not in taken and (one.later & local or one.reads & frozenset[str]().union(*(t.binds for t in taken)))
    ]:
        taken += more
    return [one for one in called if one in taken]


def check_taken(
    cells: Sequence[Cell], texts: Sequence[str], taken: Sequence[Definition], local: frozenset[str]
) -> None:
    """
    Refuse definitions that cannot be taken along: which are no `def` or `class`, or used by cells that stay.

    ``texts`` are those of the cells that stay, without what is taken; ``local`` is what the training makes.
    """
    for one in taken:
        read = ", ".join(sorted(one.later & local) or sorted(one.reads & local))
        name = min(one.binds, default="a function")
        if not isinstance(one.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            raise NotGathered(
                cells[one.cell].number,
                f"{name} reads {read}, which the training makes in a function of its own",
                f"Define {name} with def, or pass {read} to it as an argument",
                one.later & local or one.reads & local,
                case="function",
            )
        for n, text in enumerate(texts):
            if name in use(text).reads:
                raise NotGathered(
                    cells[n].number,
                    f"it uses {name}, which reads {read} of the training processes",
                    f"Pass {read} to {name} as an argument",
                    [name],
                    case="function",
                )


def without(text: str, taken: Sequence[Definition]) -> tuple[str, str]:
    """The text of a cell without some of its definitions, and the text of these."""
    lines = text.split("\n")
    spans = [(_first_line(one.node) - 1, one.node.end_lineno or one.node.lineno) for one in taken]
    gone = {i for start, end in spans for i in range(start, end)}
    rest = "\n".join(line for i, line in enumerate(lines) if i not in gone)
    return rest.strip("\n"), "\n\n".join("\n".join(lines[start:end]) for start, end in spans)


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(one.lineno for one in decorators)])
