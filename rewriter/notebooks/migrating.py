"""The migration of a notebook: as a script whose training `notebook_launcher` starts, written back into its cells."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ..config import Config
from ..editing.edits import EditGroup
from ..editing.opcodes import origins as origins_of
from ..facts.module_paths import ModulePaths
from ..facts.roles import Role
from ..findings import Severity
from ..pipeline import Plan, plan
from ..result import Change, Diagnosis, FileResult, Result, Trait
from ..rule import Entry
from ..source import Source
from .after import After, after_launch, after_training, check_functions, choosing, drawing
from .closures import definitions, reached
from .document import TIME, Notebook, file_of, invalid, masked, source_of
from .gather import BELOW, NAME, gathered, top_level
from .given import loading_cells
from .launching import (
    LAUNCHER,
    NotebookHome,
    home_of,
    made_in,
    of_one_process,
    started,
    started_by_itself,
    starting,
    training,
    used,
)
from .masks import MASK
from .shown import given_the_accelerator, hidden, is_handed, run_by_magics, seeds, unhidden
from .uses import NotGathered, defines, named_in, use

_OF_EVERY_PROCESS = frozenset("main_process downloads checkpoint once unseeded same-noise".split())
_OF_STARTED_ANEW = frozenset({"set-order"})
"""What differs between processes that are started anew, and not between the forks of a notebook."""
_HELD = frozenset({Role.MODEL.value, Role.LOADER.value, Role.OPTIMIZER.value})
_REASON = "a notebook is one process: the launcher starts the others"


def plan_notebook(
    notebook: Notebook,
    modules: Sequence[Source],
    catalogue: Sequence[Entry],
    config: Config,
    layout: ModulePaths | None = None,
    each: Mapping[Path, Config] | None = None,
) -> NotebookPlan:
    """
    Analyse a notebook and the modules that it imports, and find out how its training is started.

    The arguments are those of ``pipeline.plan``. Raises ``SourceError`` for a cell that is not valid Python.
    """
    notebook.check()
    script, config = notebook.script(), config._replace(launched=True)
    settings = (catalogue, config, layout, each)
    if LAUNCHER in script:
        seen = notebook.script(_hidden(notebook, after_launch(notebook)))
        return NotebookPlan(notebook, plan([source_of(notebook, seen), *modules], *settings))
    planned = plan([source_of(notebook, script), *modules], *settings)
    result = planned.result()
    try:
        home = home_of(result.files) if result.changed else None
    except NotGathered as why:
        return NotebookPlan(notebook, planned, refusal=why)
    if home is not None and (function := started_by_itself(notebook, home, result.files)):
        return NotebookPlan(notebook, planned, function)
    devices = choosing(notebook, result.files)

    def ways(joint: bool) -> _Ways:
        parted = notebook.parted(drawing(notebook, result.files, joint), devices)
        return _Ways(notebook, parted, planned, lambda text: plan([source_of(notebook, text), *modules], *settings))

    plain = ways(joint=False)
    first = plain.plan()
    if first.holds:
        return first
    if not plain.same and (found := plain.plan(whole=True)).holds:
        return found
    together = ways(joint=True)
    if together.parted != plain.parted and (found := together.plan()).holds:
        return found
    return first


@dataclass(frozen=True)
class _Ways:
    """How the training of a notebook may become a function: what stays in the notebook, and what it gives back."""

    notebook: Notebook
    parted: Notebook
    """With the cells in two that train and then draw, or that also choose the device."""
    planned: Plan
    planned_of: Callable[[str], Plan]
    """The plan of another text of the script."""

    @property
    def same(self) -> bool:
        """Whether the notebook runs the same cells both ways, or neither way."""
        return self._after(False) == self._after(True)

    def _after(self, whole: bool) -> After | None:
        try:
            return after_training(self.parted, self.planned.result().files, whole)
        except NotGathered:
            return None

    def plan(self, whole: bool = False) -> NotebookPlan:
        """The notebook runs all cells from the first that shows something of a model; or the ``whole`` rest after the
        training."""
        parted, of_training = self.parted, self.planned
        script, origins = self.notebook.script(), self._origins
        try:
            after = after_training(parted, self.planned.result().files, whole)
            seen = parted.script(_hidden(parted, after.stays))
            if seen != script:
                of_training = self.planned_of(seen)
            if of_training.result().blocked and not of_training.config.partial:
                _check_blocked(parted, of_training, after)
                return NotebookPlan(self.notebook, of_training, origins=origins)
            if (home := home_of(of_training.result().files)) is None:
                return NotebookPlan(self.notebook, self.planned)
        except NotGathered as why:
            return NotebookPlan(self.notebook, of_training, origins=origins, refusal=why)
        found: list[NotebookPlan] = []
        ways = [(False, after), (True, after)]
        if not any(seeds(masked(cell.text)) for cell in parted.cells):
            ways.append((False, replace(after, unseeded=True)))
        for loading, given in ways:
            try:
                found.append(self._as_function(of_training, seen, home, given, loading))
            except NotGathered as why:
                found.append(NotebookPlan(self.notebook, of_training, origins=origins, refusal=why))
            if found[-1].holds:
                return found[-1]
        return found[0]

    @property
    def _origins(self) -> Callable[[int], int]:
        script, parts = self.notebook.script(), self.parted.script()
        return _same_line if parts == script else _origins(script, parts)

    def _as_function(
        self, of_training: Plan, seen: str, home: NotebookHome, after: After, loading: bool
    ) -> NotebookPlan:
        """The plan of the notebook with its training in a function; raises ``NotGathered``."""
        inside = home if home.name else home._replace(name=NAME, called=True)
        also: frozenset[int] = frozenset()
        while True:
            text = self.notebook.script(
                self.parted.joined(_gathered(self.parted, of_training, home, after, loading, also))
            )
            again = self.planned_of(text)
            done = again.result()
            if done.blocked or home_of(done.files) == inside:
                break
            numbers = {self.notebook.cells[n].number for n in made_in(self.notebook, done.files[0])}
            more = {n for n, cell in enumerate(self.parted.cells) if cell.number in numbers and not cell.draws}
            if more <= also:
                raise NotGathered(
                    0, "the accelerator would be created outside the training", "Put it in a function", case="start"
                )
            also |= more  # a tracker of an earlier cell: only one process may have it
        if function := given_the_accelerator(done.files[0].after.decode()):
            raise NotGathered(
                0, f"{function} shows a figure of all processes", "Compute it in a line of its own", case="function"
            )
        check_functions(self.parted, after, seen, done.files)
        starts = "" if done.blocked else NAME
        return NotebookPlan(self.notebook, again, starts, _origins(self.notebook.script(), text))


def _same_line(line: int) -> int:
    return line


def _hidden(notebook: Notebook, cells: Collection[int]) -> list[str]:
    """The texts of the cells, some of them, and what a cell draws of its training, without a word for the rules."""
    apart = {n for n, cell in enumerate(notebook.cells) if cell.draws or n in cells}
    texts = [masked(cell.text) for cell in notebook.cells]
    return [hidden(text) if n in apart else text for n, text in enumerate(texts)]


def _check_blocked(notebook: Notebook, blocked: Plan, after: After) -> None:
    """Refuse the cells of a blocked program that could not be gathered either, so that all is reported at once."""
    anyway = blocked._replace(config=blocked.config._replace(partial=True))
    home = home_of(anyway.result().files)
    if home is None or started_by_itself(notebook, home, anyway.result().files):
        return
    try:
        _gathered(notebook, anyway, home, after)
    except NotGathered as why:
        if why.cell:
            raise


class NotebookPlan(NamedTuple):
    """The migration of a notebook and its modules, not applied yet; see ``pipeline.Plan``."""

    notebook: Notebook
    plan: Plan
    starts: str = ""
    """The function of the planned script that the launcher starts; empty if there is none."""
    origins: Callable[[int], int] = _same_line
    """For each line of the planned script, the line of the notebook's script that it comes from."""
    refusal: NotGathered | None = None

    @property
    def holds(self) -> bool:
        """Whether it changes something, and nothing is in its way."""
        result = self.result()
        return bool(result.changed) or not result.blocked

    def result(self, declined: Collection[str] = ()) -> Result:
        """Apply the edits, without the groups that the user declined: to the notebook and its modules, or to none of
        them."""
        result = self.plan.result(declined)
        file, *modules = result.files
        script = self.notebook.script()
        try:
            if self.refusal is not None:
                raise self.refusal
            text = script
            if result.changed and (self.plan.config.partial or not result.blocked):
                text = unhidden(file.after.decode())
                if self.starts:
                    text = started(self.notebook, text, self.starts, gathered=self.starts == NAME)
                    file = _of_processes(file, self.starts)
            file = _restored(self.notebook, file, text, self.origins)
        except NotGathered as why:
            file = _refused(self.notebook, _restored(self.notebook, file, script, self.origins), why)
        if file.blocked:
            file = file._replace(diagnoses=(*file.diagnoses, *_run_by_magics(self.notebook)))
        if file.blocked and not file.changed:
            modules = [module._replace(after=module.source.data, changes=()) for module in modules]
        modules = [module._replace(diagnoses=self._of_module(module)) for module in modules]
        return result._replace(files=(file, *modules))

    def _of_module(self, module: FileResult) -> tuple[Diagnosis, ...]:
        """The findings of a module, without causes in the script that was made of the cells."""
        own = str(self.notebook.path)
        told = module.diagnoses
        return tuple(d._replace(cause=None) if d.cause is not None and d.cause.path == own else d for d in told)


def _gathered(
    notebook: Notebook,
    planned: Plan,
    home: NotebookHome,
    after: After,
    loading: bool = False,
    also: Collection[int] = (),
) -> list[str]:
    """The texts of the cells with the training in a function; raises ``NotGathered``. ``loading``: the cells that make
    its loaders stay in the notebook, before it. ``also``: the positions of other cells that belong to it."""
    groups = {change.group for file in planned.result().files for change in file.changes}
    needed = planned.result(groups - {unit.value for unit in EditGroup})
    file = needed.files[0]
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
    names = starting(needed.files) if home.name else frozenset[str]()
    changed, prepared = _changed(notebook, cells, name, names, after.stays)
    trains, before = training(needed.files), _hidden(notebook, after.stays)
    changed |= {n for n, text in enumerate(before) if used(text) & use(text).reads & trains}.union(also)
    files = [module.source.text for module in needed.files[1:]]
    held = trains | {name, *prepared, *(one.name for one in file.roles if one.role in _HELD)}
    trackers, modules = of_one_process(planned.result().files[0])
    prepared |= trackers
    needing = changed | {n for n, text in enumerate(before) if use(text).binds & prepared}
    if not needing:
        raise NotGathered(
            0, "the training was not found in the cells", "Put it in a function, and call it once", case="start"
        )
    if not loading:
        return gathered(notebook, sorted(needing), prepared, after, name, modules, files=files, held=held)
    data = loading_cells(before, needing, changed, prepared & after.loaders)
    if not data:
        raise NotGathered(0, "no cell makes loaders alone", "Make them in a cell of their own", case="start")
    return gathered(notebook, sorted(needing), prepared, after, name, modules, data, files, held)


def _changed(
    notebook: Notebook, cells: Sequence[str], name: str, names: Collection[str], after: Collection[int]
) -> tuple[set[int], frozenset[str]]:
    """The cells whose top level changes or uses ``names``, and the names of what is prepared. Those ``after`` the
    training are hidden from the rules."""
    before = _hidden(notebook, after)
    changed: set[int] = set()
    prepared: set[str] = set()
    for n, (old, new) in enumerate(zip(before, cells, strict=True)):
        parts, bound = top_level(new, name)
        prepared |= bound
        if parts != top_level(old, name)[0] or not used(old).isdisjoint(names):
            changed.add(n)
    return changed, frozenset(prepared)


def _origins(script: str, other: str) -> Callable[[int], int]:
    """For each line of a script, the line of another script that it is or that is in it (``print(x)``); for a new line
    the last known one."""
    old, new = script.split("\n"), other.split("\n")
    same = origins_of(old, new)
    taken, known = set(same.values()), [0]
    for number, line in enumerate(new):
        found = same.get(number, known[-1] - 1)
        following = old[found + 1].strip().rstrip(")") if found + 1 < len(old) and found + 1 not in taken else ""
        if number not in same and following and following in line:
            found += 1
        elif number not in same and (call := line.partition(" = ")[2]):  # ``shown = mount(path)``
            shown = [n for n, text in enumerate(old) if n not in taken and text.strip() == call]
            found = shown[0] if len(shown) == 1 else found
        known.append(found + 1)
    return lambda line: known[line] if 0 < line < len(known) else line


def _of_processes(file: FileResult, starts: str) -> FileResult:
    """The file without findings of what every process would do, where only the notebook's own process does it: at the
    top level, and in functions that the one which the processes start with does not call."""
    tree = ast.parse(file.source.text)
    functions = definitions([file.source.text], [0])
    known = any(starts in one.binds for one in functions)
    calls = (reads for s in tree.body if starts in (reads := use(ast.unparse(s)).reads) and not defines(s))
    run = frozenset[str]().union(*(one.binds for one in reached({starts}.union(*calls), functions)))
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    alone = [s for s in tree.body if not isinstance(s, defined) or (known and s.name not in run)]
    lines = {line for s in alone for line in range(s.lineno, (s.end_lineno or s.lineno) + 1)}
    told = (found for found in file.diagnoses if found.id not in _OF_STARTED_ANEW)
    stay = tuple(found for found in told if found.line not in lines or found.id not in _OF_EVERY_PROCESS)
    return file._replace(diagnoses=stay)


def _run_by_magics(notebook: Notebook) -> Iterator[Diagnosis]:
    """A finding for each call that a refused notebook makes in a magic: it may be the one that was not found."""
    lines = notebook.script().split("\n")
    for n, number, function in run_by_magics([masked(cell.text) for cell in notebook.cells]):
        yield Diagnosis(
            "notebook-state",
            Severity.BLOCKED,
            f"a magic calls {function}() in its own line, which is not Python, so the call is not seen",
            "Write %%time in the first line of the cell, and the call as a line of its own",
            lines.index(f'"cell {notebook.cells[n].number} of the notebook"') + 1 + number,
            case="magic",
        )


def _refused(notebook: Notebook, file: FileResult, why: NotGathered) -> FileResult:
    """The file with a finding at each cell that says why the cells cannot be gathered."""
    found = [
        Diagnosis(
            "notebook-state",
            Severity.BLOCKED,
            one.cause,
            one.remedy,
            *_placed(notebook, one),
            case=one.case,
        )
        for one in (why, *why.others)
    ]
    return file._replace(diagnoses=(*file.diagnoses, *found), changes=())


def _placed(notebook: Notebook, why: NotGathered) -> tuple[int, int, int]:
    """The line and the columns of what a refusal is about: the first line of its cell where nothing is found there."""
    if not why.cell:
        return 0, 0, 0
    first = notebook.script().split("\n").index(f'"cell {why.cell} of the notebook"') + 2
    text = masked(next(cell.text for cell in notebook.cells if cell.number == why.cell))
    line, start, end = named_in(text, why.about) or (1, 0, 0)
    return first + line - 1, start, end


def _restored(notebook: Notebook, file: FileResult, text: str, origins: Callable[[int], int]) -> FileResult:
    """The result for the notebook itself: its bytes, and places as lines of the script of its cells."""
    script = notebook.script()
    source = file_of(notebook)
    if text == script:
        return file._replace(source=source, after=notebook.data, changes=(), diagnoses=_moved(file, source, origins))
    cells = notebook.split(text)
    if missing := _magics(masked(cell.text) for cell in notebook.cells) - _magics(cells):
        cause = f"a magic would be lost: `{next(iter(missing))}`"
        lost = Diagnosis("invalid-output", Severity.BLOCKED, cause, "please report this")
        return file._replace(source=source, after=notebook.data, changes=(), diagnoses=(lost,))
    after = notebook.with_texts(cells)
    if problem := invalid(notebook.data, after):
        lost = Diagnosis("invalid-output", Severity.BLOCKED, problem, "please report this, with the notebook")
        return file._replace(source=source, after=notebook.data, changes=(), diagnoses=(lost,))
    planned = file.source.text.split("\n")
    made = (change for change in file.changes if not is_handed(planned[max(change.line, 1) - 1]))
    changes = [change._replace(line=origins(change.line)) for change in made]
    if LAUNCHER in text and LAUNCHER not in script:
        line, below = _launched_at(notebook, cells, text)
        changes.append(Change("notebook", line, 1, _REASON, group=EditGroup.TRAINING.value, offset=below))
    return file._replace(
        source=source,
        after=after,
        changes=tuple(sorted(changes, key=lambda change: (change.line, change.column))),
        diagnoses=_moved(file, source, origins),
        roles=tuple(role._replace(line=origins(role.line)) for role in file.roles),
        traits=(
            *(one._replace(line=origins(one.line)) for one in file.traits),
            *_shown_later(notebook, cells),
            *_wiping(notebook, cells),
        ),
        idle=(),
    )


def _magics(texts: Iterable[str]) -> Counter[str]:
    """The magics of some cells, and how often each is there: of several ``%%time`` one is enough."""
    found = Counter(line.partition(MASK)[2].strip() for text in texts for line in text.split("\n") if MASK in line)
    return found - Counter({TIME: max(found[TIME] - 1, 0)})


def _shown_later(notebook: Notebook, cells: Sequence[str]) -> Iterator[Trait]:
    """The cells of which what they show comes after the training."""
    line = 1
    for cell, new in zip(notebook.cells, cells, strict=True):
        if BELOW in new and BELOW not in cell.text:
            yield Trait("shown-later", f"cell {cell.number}", line + 1)
        line += masked(cell.text).count("\n") + 2


def _wiping(notebook: Notebook, cells: Sequence[str]) -> Iterator[Trait]:
    """The cells of the training that wipe what is shown, and with it what cells before them have printed: they are one
    function now."""
    line, prints = 1, False
    for cell, new in zip(notebook.cells, cells, strict=True):
        inside = f"# Moved into {NAME}()" in new or f"def {NAME}(" in new
        stays = new.partition(f"def {NAME}(")[0].count("clear_output(")
        if inside and prints and cell.text.count("clear_output(") > stays:
            own = next(n for n, row in enumerate(cell.text.split("\n"), 1) if "clear_output(" in row)
            yield Trait("wiping", "clear_output", line + own)
        prints = prints or (inside and "print(" in cell.text)
        line += masked(cell.text).count("\n") + 2


def _launched_at(notebook: Notebook, cells: Sequence[str], text: str) -> tuple[int, int]:
    """The line of the notebook's script at which the launcher's call is in the new ``text``, or above it: the last one
    of a cell whose training became a function. And how far above."""
    call = next(n for n, line in enumerate(text.split("\n"), 1) if f"{LAUNCHER}(" in line)
    script, at = notebook.script(), next(n for n, cell in enumerate(cells) if f"{LAUNCHER}(" in cell)
    if f"{LAUNCHER}({NAME}" not in cells[at]:
        return max(_origins(script, text)(call), 1), 0
    first = script.split("\n").index(f'"cell {notebook.cells[at].name} of the notebook"') + 1
    return first + len(masked(notebook.cells[at].text).rstrip().split("\n")), 1


def _moved(file: FileResult, source: Source, origins: Callable[[int], int]) -> tuple[Diagnosis, ...]:
    """The findings at the lines of the notebook's own script, whose lines may have another indentation."""
    planned, own = file.source.text.split("\n"), source.text.split("\n")

    def shift(line: int) -> int | None:
        """How much less a line is indented in the notebook; None where it is another line there."""
        one, other = (rows[n - 1] if 0 < n <= len(rows) else "" for rows, n in ((planned, line), (own, origins(line))))
        return len(one) - len(other) if one.strip() == other.strip() else None

    found = []
    for told in file.diagnoses:
        by, cause = shift(told.line), told.cause
        if cause is not None and not cause.path:
            back, line = shift(cause.line), origins(cause.line)
            place = (cause.column - back, max(cause.end - back, 0)) if back is not None else (1, 0)
            cause = cause._replace(line=line, column=place[0], end=place[1], text=own[line - 1]) if line else None
        column, end = (told.column - (by or 0), max(told.end - (by or 0), 0)) if by is not None else (told.column, 0)
        found.append(told._replace(line=origins(told.line), column=max(column, 0), end=end, cause=cause))
    return tuple(found)
