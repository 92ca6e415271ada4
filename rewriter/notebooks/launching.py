"""How the training of a notebook is started: where its accelerator is created, and the launcher's call."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..result import FileResult
from .document import Notebook
from .uses import NotGathered, use

LAUNCHER = "notebook_launcher"
_MADE = "Accelerator"
_OURS = re.compile(r"from (?:torchlift\.runtime|accelerate) import \w+(?:, \w+)*")
_TRACKS = "track its own run"
"""Words of the finding of a tracker that could not be changed."""


class NotebookHome(NamedTuple):
    """Where an accelerator is created."""

    module: Path | None
    """The file of the module; None for the notebook itself."""
    name: str
    """The function or class; empty for the top level."""
    called: bool
    """It is a function."""


def home_of(files: Sequence[FileResult]) -> NotebookHome | None:
    """
    The place in a migrated program that creates an accelerator, the notebook's script first; None if there is none.

    Raises ``NotGathered`` if a module creates it at import.
    """
    for number, file in enumerate(files):
        module = file.source.path if number else None
        for statement in ast.parse(file.after).body:
            if any(_makes(node) for node in ast.walk(statement)):
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    return NotebookHome(module, statement.name, not isinstance(statement, ast.ClassDef))
                if module is not None:
                    raise NotGathered(
                        0,
                        f"{module.name} would create the accelerator on import, before the launcher starts",
                        "Choose the device in a function of that module or in the notebook, and pass it as an argument",
                        case="start",
                    )
                return NotebookHome(None, "", False)
    return None


def made_in(notebook: Notebook, file: FileResult) -> list[int]:
    """The positions of the cells whose top level creates an accelerator in a migrated notebook."""
    kept = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    bodies = ([s for s in ast.parse(t).body if not isinstance(s, kept)] for t in notebook.split(file.after.decode()))
    return [n for n, body in enumerate(bodies) if any(_makes(node) for s in body for node in ast.walk(s))]


def of_one_process(file: FileResult) -> tuple[frozenset[str], frozenset[str]]:
    """The trackers that a migrated script has on the main process alone: the names that it gives them, and the modules
    that know them by themselves (``wandb.init()``)."""
    lines = {change.line for change in file.changes if change.rule == "tracking"}
    lines |= {found.line for found in file.diagnoses if found.id == "once" and _TRACKS in found.message}
    names: set[str] = set()
    modules: set[str] = set()
    for node in ast.walk(ast.parse(file.source.text)):
        if isinstance(node, ast.Assign | ast.Expr) and lines.intersection(range(node.lineno, _end(node))):
            if isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
            func = node.value.func if isinstance(node.value, ast.Call) else None
            if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
                modules.add(func.value.id)
    return frozenset(names), frozenset(modules)


def _end(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) + 1


def _makes(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _MADE


def starting(files: Sequence[FileResult]) -> frozenset[str]:
    """The names of the functions and classes of a program that create an accelerator, directly or through others."""
    return _leading_to(files, _makes)


def training(files: Sequence[FileResult]) -> frozenset[str]:
    """``backward``, and the names of the functions, methods and classes that lead to it."""
    inner = (node for file in files for node in ast.walk(ast.parse(file.after)))
    methods = {node.name for node in inner if isinstance(node, ast.FunctionDef) and any(map(_trains, ast.walk(node)))}
    return _leading_to(files, _trains) | methods | {"backward"}


def _trains(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "backward"


def _leading_to(files: Sequence[FileResult], goal: Callable[[ast.AST], bool]) -> frozenset[str]:
    bodies: list[tuple[str, frozenset[str]]] = []
    found: set[str] = set()
    for file in files:
        tree = ast.parse(file.after)
        for statement in tree.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                bodies.append((statement.name, frozenset(_named([statement]))))
                if any(map(goal, ast.walk(statement))):
                    found.add(statement.name)
        aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
        bodies += [(alias.asname, frozenset({alias.name})) for alias in aliases if alias.asname]
    while more := {name for name, mentioned in bodies if name not in found and not mentioned.isdisjoint(found)}:
        found |= more
    return frozenset(found)


def used(text: str) -> frozenset[str]:
    """The names and attributes that the top level of a cell reads, outside of its definitions."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(_named(statement for statement in ast.parse(text).body if not isinstance(statement, definitions)))


def _named(statements: Iterable[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr


def started_by_itself(notebook: Notebook, home: NotebookHome, files: Sequence[FileResult]) -> str:
    """
    The function that trains and can be passed to the launcher unchanged; empty if cells must be gathered.

    It is the function in which the notebook creates its accelerator. If a module creates it: the only function leading
    there that the notebook calls, once and without using the result.
    """
    if home.module is None:
        return home.name if home.called else ""
    names, text = starting(files), notebook.script()
    tree = ast.parse(text)
    called = {name for s in _top(tree.body) if isinstance(s, ast.Expr) for name in names if _calls(s.value, name)}
    mentioned = [name for name in _named(tree.body) if name in names]
    return mentioned[0] if len(mentioned) == 1 and mentioned[0] in called else ""


def started(notebook: Notebook, text: str, function: str, gathered: bool = False) -> str:
    """Replace the one call of the training function by the launcher's. A function of ``gathered`` cells returns what
    the later ones read."""
    tree = ast.parse(text)
    calls = [s for s in _top(tree.body) if isinstance(s, ast.Expr | ast.Assign) and _calls(s.value, function)]
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == function and isinstance(n.ctx, ast.Load)]
    if len(calls) != 1 or len(uses) != 1:
        what = "is called more than once, or not by a line of its own" if uses else "is not called"
        raise NotGathered(0, f"{function}, which trains, {what}", "Call it once, in a line of its own", case="start")
    call = calls[0].value
    assert isinstance(call, ast.Call)
    if isinstance(calls[0], ast.Assign) and (held := _returns_held(tree, function)):
        why = f"{function} returns {held}, which stays in the training processes"
        remedy = (
            "Make it anew in the cell that reads it, under another name (a loader: DataLoader(...) of its data set); "
        )
        raise NotGathered(
            0, why, f"{remedy}save weights in the training (torch.save), and load them there", case="held"
        )
    if not gathered:
        _nothing_comes_back(notebook, text, calls[0], call)
    arguments = [ast.get_source_segment(text, argument) or "" for argument in call.args]
    if call.keywords or any(isinstance(argument, ast.Starred) for argument in call.args):
        start = f"lambda: {ast.get_source_segment(text, call)}"
    else:
        given = f", ({', '.join(arguments)}{',' if len(arguments) == 1 else ''})" if arguments else ""
        start = f"{function}{given}"
    count = ", num_processes=torch.cuda.device_count() or 1" if "torch" in use(text).binds else ""
    lines = text.split("\n")
    first, last = calls[0].lineno - 1, (calls[0].end_lineno or calls[0].lineno) - 1
    indent = lines[first][: calls[0].col_offset]
    targets = calls[0].targets if isinstance(calls[0], ast.Assign) else ()
    names = "".join(f"{ast.get_source_segment(text, target)} = " for target in targets)
    lines[first : last + 1] = [f"{indent}{names}{LAUNCHER}({start}{count})"]
    return "\n".join(_with_import(tree, lines, first))


def _returns_held(tree: ast.Module, function: str) -> str:
    """What a function returns of that which it prepares; empty if it returns nothing of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            prepared = {
                name.id
                for made in ast.walk(node)
                if isinstance(made, ast.Assign) and ".prepare(" in ast.unparse(made.value)
                for target in made.targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            }
            inner = {n for part in node.body for n in _below_definitions(part)}
            returned = (n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n not in inner and n.value)
            named = (n.id for value in returned for n in _held_by_processes(value) if isinstance(n, ast.Name))
            return next((name for name in named if name in prepared or name == "accelerator"), "")
    return "what another module makes"


def _held_by_processes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a value, without models that are given back as the script made them, and devices."""
    unwrapped = isinstance(node, ast.Call) and ".unwrap_model" in ast.unparse(node.func)
    if not unwrapped and not (isinstance(node, ast.Attribute) and node.attr == "device"):
        yield node
        for inner in ast.iter_child_nodes(node):
            yield from _held_by_processes(inner)


def _below_definitions(node: ast.AST) -> Iterator[ast.AST]:
    """What is in the functions and classes below a node."""
    for inner in ast.walk(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from ast.walk(inner)


def _with_import(tree: ast.Module, lines: list[str], before: int) -> list[str]:
    """Lines with the import of the launcher added: to one of the same module, or after the first imports."""
    for number, line in enumerate(lines[:before]):
        if _OURS.fullmatch(line):
            return [*lines[:number], f"{line}, {LAUNCHER}", *lines[number + 1 :]]
    behind = 0
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            behind = statement.end_lineno or 0
        elif behind:
            break
    if not 0 < behind <= before:
        raise NotGathered(
            0, "there is no cell of imports before the training", "Import it in the first cell", case="start"
        )
    return [*lines[:behind], f"from torchlift.runtime import {LAUNCHER}", *lines[behind:]]


def _nothing_comes_back(notebook: Notebook, text: str, statement: ast.stmt, call: ast.Call) -> None:
    """Refuse a call with an argument that a later cell reads: the processes change their own copies."""
    given = {n.id for a in [*call.args, *call.keywords] for n in ast.walk(a) if isinstance(n, ast.Name)}
    cells = notebook.split(text)
    segment = ast.get_source_segment(text, statement) or ""
    at = next(n for n, cell in enumerate(cells) if segment in cell)
    for cell, later in list(zip(notebook.cells, cells, strict=True))[at + 1 :]:
        both = sorted(given & use(later).reads)
        if both:
            raise NotGathered(
                cell.number,
                f"it reads {', '.join(both)}, which the training processes change in their own memory",
                "Save it in the training (torch.save), and load it here",
                both,
                case="held",
            )


def _top(statements: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """The statements that run at the top level of the notebook, including those below `if __name__ == ...`."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If):
            yield from _top(statement.body)


def _calls(node: ast.expr, function: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function
