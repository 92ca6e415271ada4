"""The migration of one notebook: as a script whose training `notebook_launcher` starts, and back into its cells."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from ..config import Config
from ..edits import Unit
from ..findings import Severity
from ..pipeline import migrate, plan
from ..result import Change, Diagnosis, FileResult, Result
from ..rule import Entry
from ..source import Source, SourceError
from .document import Notebook, invalid, masked, source_of
from .gather import NAME, NotGathered, gathered, top_level, use

LAUNCHER = "notebook_launcher"
_REASON = "a notebook is one process: the launcher starts the others"


def migrate_notebook(notebook: Notebook, catalogue: Sequence[Entry], config: Config) -> Result:
    """Migrate a notebook. Raises ``SourceError`` for a cell that is not valid Python."""
    for cell in notebook.cells:
        _sound(notebook, cell.number, masked(cell.text))
    script = notebook.script()
    planned = plan([source_of(notebook, script)], catalogue, config)
    result = planned.result()
    (file,) = result.files
    home = _home(file.after.decode())
    origins: Callable[[int], int] = lambda line: line  # noqa: E731
    text = script
    try:
        if file.changed and home is not None and LAUNCHER not in script:
            if home:
                text = _started(notebook, file.after.decode(), home)
            else:
                alone = {change.group for change in file.changes} - {unit.value for unit in Unit}
                (needed,) = planned.result(alone).files
                file, origins = _gathered(notebook, needed, catalogue, config)
                text = file.after.decode()
                if not file.blocked:
                    if _home(text) != NAME:
                        raise NotGathered(
                            0, "the accelerator would be made outside of the training", "Put it in a function"
                        )
                    text = _started(notebook, text, NAME)
        elif file.changed:
            text = file.after.decode()
    except NotGathered as why:
        file, text = _refused(notebook, file, why), script
    if file.blocked and not config.partial:
        text = script
    return result._replace(files=(_restored(notebook, script, file, text, origins),))


def _sound(notebook: Notebook, number: int, text: str) -> None:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        message = getattr(error, "msg", str(error))
        cause = f"cell {number}, line {line}: not valid Python: {message}"
        raise SourceError(notebook.path, 0, cause, "Correct the cell, or make it a text cell, then migrate") from None


def _home(text: str) -> str | None:
    """The function in which an accelerator is made, empty for the top level; None where none is made."""
    tree = ast.parse(text)
    for statement in tree.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Accelerator":
                return statement.name if isinstance(statement, ast.FunctionDef) else ""
    return None


def _gathered(
    notebook: Notebook, file: FileResult, catalogue: Sequence[Entry], config: Config
) -> tuple[FileResult, Callable[[int], int]]:
    """Migrate the notebook again, its training in a function; and which line of the first script each line was."""
    cells = notebook.split(file.after.decode())
    tree = ast.parse(file.after.decode())
    name = next(
        (
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if isinstance(target, ast.Name) and ast.unparse(node.value.func) == "Accelerator"
        ),
        "accelerator",
    )
    texts = gathered(notebook, _needing(notebook, cells, name))
    script = notebook.script(texts)
    (again,) = migrate([source_of(notebook, script)], catalogue, config).files
    return again, _origins(notebook.script(), script)


def _needing(notebook: Notebook, cells: Sequence[str], name: str) -> list[int]:
    """The cells whose top level changes, and those that make what is prepared."""
    before = [masked(cell.text) for cell in notebook.cells]
    changed: set[int] = set()
    prepared: set[str] = set()
    for n, (old, new) in enumerate(zip(before, cells, strict=True)):
        parts, names = top_level(new, name)
        prepared |= names
        if parts != top_level(old, name)[0]:
            changed.add(n)
    changed |= {n for n, old in enumerate(before) if use(old).binds & prepared}
    if not changed:
        raise NotGathered(0, "the training was not found in the cells", "Put it in a function, and call it once")
    return sorted(changed)


def _origins(script: str, other: str) -> Callable[[int], int]:
    """Which line of a script each line of another one was, by its text; the last one known where it was none."""
    places: dict[str, list[int]] = {}
    for number, line in enumerate(script.split("\n"), 1):
        if line.strip():
            places.setdefault(line.strip(), []).append(number)
    known: list[int] = [0]
    for line in other.split("\n"):
        found = places.get(line.strip(), [])
        after = [number for number in found if number > known[-1]]
        known.append(after[0] if after else found[-1] if found else known[-1])
    return lambda line: known[line] if 0 < line < len(known) else line


def _started(notebook: Notebook, text: str, function: str) -> str:
    """Replace the one call of the training function by the launcher's."""
    tree = ast.parse(text)
    calls = [s for s in _top(tree.body) if isinstance(s, ast.Expr) and _calls(s.value, function)]
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == function and isinstance(n.ctx, ast.Load)]
    if len(calls) != 1 or len(uses) != 1:
        what = "is called more than once, or what it returns is used" if uses else "is not called"
        raise NotGathered(0, f"{function}, which trains, {what}: nothing comes back from the processes", "Call it once")
    call = calls[0].value
    assert isinstance(call, ast.Call)
    _nothing_comes_back(notebook, text, calls[0], call)
    arguments = [ast.get_source_segment(text, argument) or "" for argument in call.args]
    if call.keywords or any(isinstance(argument, ast.Starred) for argument in call.args):
        started = f"lambda: {ast.get_source_segment(text, call)}"
    else:
        given = f", ({', '.join(arguments)}{',' if len(arguments) == 1 else ''})" if arguments else ""
        started = f"{function}{given}"
    count = ", num_processes=torch.cuda.device_count() or 1" if "torch" in use(text).binds else ""
    lines = text.split("\n")
    first, last = calls[0].lineno - 1, (calls[0].end_lineno or calls[0].lineno) - 1
    indent = lines[first][: calls[0].col_offset]
    lines[first : last + 1] = [f"{indent}{LAUNCHER}({started}{count})"]
    for number, line in enumerate(lines):
        if line.startswith("from ") and line.endswith(" import Accelerator"):
            lines[number] = f"{line}, {LAUNCHER}"
            return "\n".join(lines)
    raise NotGathered(0, "the import of the accelerator stands in an unusual place", "Import it in the first cell")


def _nothing_comes_back(notebook: Notebook, text: str, statement: ast.stmt, call: ast.Call) -> None:
    """Refuse a call that is handed something which a later cell reads: the processes change their own copies."""
    given = {n.id for a in [*call.args, *call.keywords] for n in ast.walk(a) if isinstance(n, ast.Name)}
    cells = notebook.split(text)
    segment = ast.get_source_segment(text, statement) or ""
    at = next(n for n, cell in enumerate(cells) if segment in cell)
    for cell, later in list(zip(notebook.cells, cells, strict=True))[at + 1 :]:
        both = sorted(given & use(later).reads)
        if both:
            raise NotGathered(
                cell.number,
                f"it reads {', '.join(both)}, which the processes that train change for themselves",
                "Save it in the training (accelerator.save), and load it here",
            )


def _top(statements: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """The statements that run with the notebook, those below `if __name__ == ...` included."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If):
            yield from _top(statement.body)


def _calls(node: ast.expr, function: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function


def _refused(notebook: Notebook, file: FileResult, why: NotGathered) -> FileResult:
    """The file with the reason why its cells cannot be gathered, at the cell."""
    lines = notebook.script().split("\n")
    line = lines.index(f'"cell {why.cell} of the notebook"') + 2 if why.cell else 0
    found = Diagnosis("notebook-state", Severity.BLOCKED, why.cause, why.remedy, line)
    return file._replace(diagnoses=(*file.diagnoses, found), changes=())


def _restored(
    notebook: Notebook, script: str, file: FileResult, text: str, origins: Callable[[int], int]
) -> FileResult:
    """The result for the notebook itself: its bytes, and places in the script of its cells."""
    source = Source(notebook.path, notebook.data, script, "utf-8", notebook=notebook)
    if text == script:
        return file._replace(source=source, after=notebook.data, changes=(), diagnoses=_moved(file.diagnoses, origins))
    cells = notebook.split(text)
    for cell, new in zip(notebook.cells, cells, strict=True):
        if masked(cell.text).count("#<notebook>") != new.count("#<notebook>"):
            lost = Diagnosis(
                "invalid-output", Severity.BLOCKED, f"cell {cell.number}: a magic would be lost", "please report this"
            )
            return file._replace(source=source, after=notebook.data, changes=(), diagnoses=(lost,))
    after = notebook.with_texts(cells)
    if problem := invalid(notebook.data, after):
        lost = Diagnosis("invalid-output", Severity.BLOCKED, problem, "please report this, with the notebook")
        return file._replace(source=source, after=notebook.data, changes=(), diagnoses=(lost,))
    changes = [change._replace(line=origins(change.line)) for change in file.changes]
    if LAUNCHER in text and LAUNCHER not in script:
        line = next(n for n, line in enumerate(text.split("\n"), 1) if f"{LAUNCHER}(" in line)
        changes.append(Change("notebook", min(line, script.count("\n")), 1, _REASON, group="training"))
    return file._replace(
        source=source,
        after=after,
        changes=tuple(sorted(changes, key=lambda change: (change.line, change.column))),
        diagnoses=_moved(file.diagnoses, origins),
        roles=tuple(role._replace(line=origins(role.line)) for role in file.roles),
        traits=tuple(trait._replace(line=origins(trait.line)) for trait in file.traits),
        idle=(),
    )


def _moved(diagnoses: Sequence[Diagnosis], origins: Callable[[int], int]) -> tuple[Diagnosis, ...]:
    return tuple(diagnosis._replace(line=origins(diagnosis.line)) for diagnosis in diagnoses)
