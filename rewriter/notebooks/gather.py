"""
The training cells of a notebook as one function, which the launcher can start on several processes.

A notebook keeps its objects in globals, and a started process has its own globals: objects that training creates there
do not come back. So everything from the first cell that needs the accelerator to the last one that reads what was
created since then goes into the function. If that would change the meaning of the program, a reason is returned instead
of a function.
"""

from __future__ import annotations

import ast
import io
import symtable
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .document import Cell, Notebook, masked

NAME = "training_function"
_SHOWN = frozenset("plt pylab matplotlib sns seaborn display IPython px plotly alt altair".split())
MOVED = f"# Moved into {NAME}() below."


class NotGathered(Exception):
    """Why the training cells cannot be one function: the cell, the cause, the remedy."""

    def __init__(self, cell: int, cause: str, remedy: str) -> None:
        super().__init__(cell, cause, remedy)
        self.cell = cell
        self.cause = cause
        self.remedy = remedy


@dataclass(frozen=True)
class Use:
    """The globals that a cell binds, and those that it or its functions read."""

    binds: frozenset[str]
    reads: frozenset[str]
    only_defines: bool


def use(text: str) -> Use:
    """The globals that a cell binds and reads."""
    tree = ast.parse(text)
    table = symtable.symtable(text, "cell", "exec")
    symbols = table.get_symbols()
    binds = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace()}
    reads = {s.get_name() for s in symbols if s.is_referenced()} | set(_from_inside(table))
    reads |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in binds
    }
    return Use(frozenset(binds), frozenset(reads), all(_defines(statement) for statement in tree.body))


def _from_inside(table: symtable.SymbolTable) -> Iterator[str]:
    """The globals that the functions and classes of a cell use."""
    for inner in table.get_children():
        yield from (s.get_name() for s in inner.get_symbols() if s.is_global())
        yield from _from_inside(inner)


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    return isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))


def top_level(text: str, made: str) -> tuple[list[str], frozenset[str]]:
    """
    What runs at the top level of a cell, in a comparable form, without definitions, imports and the creation of
    ``made``. Also returns the names that ``made.prepare(...)`` binds there.
    """
    parts: list[str] = []
    prepared: set[str] = set()
    for statement in ast.parse(text).body:
        if _defines(statement) or (
            isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == [made]
        ):
            continue
        parts.append(ast.dump(statement))
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value).startswith(f"{made}.prepare("):
            names = (name for target in statement.targets for name in ast.walk(target))
            prepared.update(name.id for name in names if isinstance(name, ast.Name))
    return parts, frozenset(prepared)


def gathered(notebook: Notebook, needing: Sequence[int]) -> list[str]:
    """
    The texts of the cells with the training in one function, called in the last of its cells.

    ``needing`` are the positions of the cells that need the accelerator at their top level. Raises ``NotGathered``.
    """
    texts = [masked(cell.text) for cell in notebook.cells]
    uses = [use(text) for text in texts]
    chosen = _chosen(uses, needing)
    for position in chosen:
        _check(notebook.cells[position], texts[position])
    _check_names(notebook.cells, uses, chosen)
    body = "\n\n".join(_indented(_printed(texts[position])) for position in chosen if texts[position].strip())
    for position in chosen:
        texts[position] = MOVED
    texts[chosen[-1]] = f"def {NAME}():\n{body.rstrip()}\n\n\n{NAME}()"
    return texts


def _chosen(uses: Sequence[Use], needing: Sequence[int]) -> list[int]:
    """The cells that belong to the training, from the first that needs the accelerator, found by repeating until
    nothing changes."""
    first = needing[0]
    chosen = set(needing)
    while True:
        made = frozenset[str]().union(*(uses[n].binds for n in chosen))
        last = max(chosen)
        more = {
            n
            for n in range(first, len(uses))
            if n not in chosen and (uses[n].reads & made or (n < last and not uses[n].only_defines))
        }
        if not more:
            return sorted(chosen)
        chosen |= more


def _check(cell: Cell, text: str) -> None:
    """Refuse a cell that would behave differently inside a function, or in a process without a display."""
    if cell.magic:
        raise NotGathered(
            cell.number,
            "there is a magic between the cells of the training",
            "Move it to a separate cell before the training",
        )
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            raise NotGathered(
                cell.number, "there is a star import between the cells of the training", "Move it to the first cell"
            )
        if isinstance(node, ast.Global):
            names = ", ".join(node.names)
            raise NotGathered(
                cell.number, f"a function changes a global ({names})", "Pass it as an argument and return it"
            )
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _SHOWN:
            raise NotGathered(
                cell.number,
                f"it displays something of the training ({node.id}), but the training processes cannot display "
                "anything",
                "Save it to a file during the training (on the main process), and read the file here",
            )


def _printed(text: str) -> str:
    """A cell that displays the value of its last line prints it instead: inside a function nothing is displayed."""
    tree = ast.parse(text)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or isinstance(last.value, (ast.Call, ast.Constant)):
        return text
    lines = text.encode().split(b"\n")
    start, end = last.lineno - 1, (last.end_lineno or last.lineno) - 1
    close = last.end_col_offset or 0
    if lines[end][close:].lstrip().startswith(b";"):
        return text  # a semicolon: the author wants no display
    lines[end] = lines[end][:close] + b")" + lines[end][close:]
    lines[start] = lines[start][: last.col_offset] + b"print(" + lines[start][last.col_offset :]
    return b"\n".join(lines).decode()


def _check_names(cells: Sequence[Cell], uses: Sequence[Use], chosen: Sequence[int]) -> None:
    """Refuse names that are used both inside and outside the function."""
    inside = set(chosen)
    made = {name: n for n in reversed(chosen) for name in uses[n].binds}
    for n, other in enumerate(uses):
        if n in inside:
            continue
        for name in sorted(other.binds & made.keys()):
            if n < chosen[-1] and _read_first([uses[m] for m in chosen], name):
                raise NotGathered(
                    cells[made[name]].number,
                    f"it uses {name}, which cell {cells[n].number} created",
                    "Create it in the training",
                )


def _read_first(uses: Sequence[Use], name: str) -> bool:
    """Whether a name may be read before the function binds it."""
    for found in uses:
        if name in found.reads:
            return True
        if name in found.binds:
            return False
    return False


def _indented(text: str) -> str:
    """A cell's text, indented one level more; lines inside strings stay unchanged."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text + "\n").readline):
        if token.type == tokenize.STRING or tokenize.tok_name[token.type].startswith("FSTRING"):
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
    lines = text.split("\n")
    return "\n".join(
        line if number in inside or not line.strip() else f"    {line}" for number, line in enumerate(lines, 1)
    )
