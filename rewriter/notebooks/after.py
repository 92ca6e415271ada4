"""The cells after the training that show something of its models: the notebook runs them with what it is given back."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..facts.roles import Role
from ..result import FileResult
from .document import Notebook, masked
from .launching import LAUNCHER, training, used
from .masks import MASK
from .shown import only_chooses_devices, only_looks, showing, shown_by, shows_figures, unhidden
from .uses import NotGathered, Use, defines, filled, imported, made, run, use, uses_of

_SEVERAL = (ast.Dict, ast.DictComp, ast.List, ast.ListComp)
REMEDY = "Save it in the training (torch.save), and load it here"


@dataclass(frozen=True)
class After:
    """The cells that the notebook runs by itself once the training has ended: from the first that shows something of a
    model to the last."""

    cells: frozenset[int] = frozenset()
    models: frozenset[str] = frozenset()
    """What the training gives back as the script made it."""
    device: str = ""
    """Where these cells want the models: the name of a device, empty for the CPU."""
    loaders: frozenset[str] = frozenset()
    """The names of data loaders."""
    functions: frozenset[int] = frozenset()
    """The cells that define functions for these cells alone: they stay in the notebook, too."""
    remade: Mapping[str, str] = field(default_factory=dict)
    """Loaders that the notebook makes again, each with the line that does: those of the training stay there."""
    trained: int = 0
    """The position of the first cell that trains."""
    unseeded: bool = False
    """The notebook sets no seed, so that no run draws the numbers of another: cells that show something may draw."""

    @property
    def stays(self) -> frozenset[int]:
        """The cells that are no part of the training."""
        return self.cells | self.functions

    def reads(self, position: int, uses: Sequence[Use], texts: Sequence[str]) -> frozenset[str]:
        """What a cell reads, but for what these cells have bound before it; what a loader is made of in its place."""
        bound = (name for n in self.cells if n < position for name in _certainly_bound(texts[n]))
        read = uses[position].reads - frozenset(bound if position in self.cells else ())
        again = [use(self.remade[name]).reads for name in read & self.remade.keys()]
        return (read - self.remade.keys()).union(*again)

    def made_again(self, reads: Iterable[frozenset[str]]) -> list[str]:
        """The lines that make the loaders that some cells read."""
        wanted = frozenset[str]().union(*reads)
        return [line for name, line in self.remade.items() if name in wanted]

    def unwrapped(self, name: str, accelerator: str) -> str:
        """What the training returns for a model."""
        return f"{accelerator}.unwrap_model({name}){'' if self.device else '.cpu()'}"

    def placed(self, names: Collection[str]) -> list[str]:
        """The lines that bring the models to their device: from other processes they come on the CPU. A cell that ends
        with such a call alone would show the whole model."""
        return [f"{name} = {name}.to({self.device})" for name in names if name in self.models and self.device]


def after_training(notebook: Notebook, files: Sequence[FileResult], whole: bool = False) -> After:
    """The cells after the training that the notebook runs by itself: from the first that shows something of a model, or
    the ``whole`` rest. Raises ``NotGathered``."""
    texts = [masked(cell.text) for cell in notebook.cells]
    uses, functions, trains = uses_of(texts), showing(texts), training(files)
    last = max((n for n, text in enumerate(texts) if not used(text).isdisjoint(trains)), default=len(texts))
    models, devices, loaders = (_of_role(files[0], role) for role in (Role.MODEL, Role.DEVICE, Role.LOADER))
    loaders |= _of_several(files[0])
    rest = range(last + 1, len(texts))
    first = next((n for n in rest if whole or (shown_by(run(texts[n]), functions) and uses[n].reads & models)), None)
    begins = min((n for n, text in enumerate(texts) if not used(text).isdisjoint(trains)), default=0)
    if first is None:
        return After(loaders=loaders, trained=begins)
    cells = frozenset(range(first, len(texts)))
    alone = _of_these_alone(texts, uses, cells)
    found = After(cells, models, functions=alone)
    read = {n: found.reads(n, uses, texts) for n in sorted(found.stays)}
    named = sorted(devices.intersection(*[frozenset().union(*read.values())]))
    for n in read:
        if (not named and read[n] & models and _names_a_gpu(texts[n])) or len(named) > 1:
            what = f"several devices ({', '.join(named)})" if named else "a GPU of its own"
            raise NotGathered(
                notebook.cells[n].number, f"it needs the trained model on {what}", REMEDY, devices, case="held"
            )
    return After(cells, models, next(iter(named), ""), loaders, alone, trained=begins)


def after_launch(notebook: Notebook) -> frozenset[int]:
    """The cells of a migrated notebook that its own process runs, after the last call of the launcher."""
    texts = [masked(cell.text) for cell in notebook.cells]
    last = max((n for n, text in enumerate(texts) if f"{LAUNCHER}(" in text), default=len(texts))
    cells = range(last + 1, len(texts))
    return frozenset(cells) | _of_these_alone(texts, uses_of(texts), cells)


def _of_these_alone(texts: Sequence[str], uses: Sequence[Use], cells: Collection[int]) -> frozenset[int]:
    """The cells that define functions and nothing else, which some cells use, and no others but such functions."""
    found = {
        n
        for n, text in enumerate(texts)
        if n not in cells and text.strip() and all(isinstance(s, ast.FunctionDef) for s in ast.parse(text).body)
    }
    while others := {
        n
        for n in found
        if any(uses[n].binds & one.reads for m, one in enumerate(uses) if m not in cells and m not in found)
    }:
        found -= others
    called = {n for n in found if any(uses[n].binds & uses[m].reads for m in cells)}
    while more := {n for n in found - called if any(uses[n].binds & uses[m].reads for m in called)}:
        called |= more
    return frozenset(called)


def made_again(
    texts: Sequence[str], uses: Sequence[Use], chosen: Sequence[int], prepared: Collection[str], after: After
) -> dict[str, str]:
    """The loaders that the notebook can make again: each is made in one line, of what the training gives back."""
    held = after.loaders.intersection(prepared)
    found: dict[str, str] = {}
    for n in chosen:
        for statement in run(texts[n]):
            binds = use(ast.unparse(statement)).binds & held
            plain = isinstance(statement, ast.Assign) and isinstance(statement.value, (ast.Call, *_SEVERAL))
            for name in binds:
                line = ast.get_source_segment(texts[n], statement) or ""
                drawn = any(isinstance(n, ast.keyword) and n.arg == "generator" for n in ast.walk(statement))
                alone = plain and not drawn and use(line).binds == {name} and not use(line).reads & {*prepared, name}
                found[name] = line if alone and name not in found else ""
    return {name: line for name, line in found.items() if line}


def drawing(notebook: Notebook, files: Sequence[FileResult], joint: bool = False) -> dict[int, set[int]]:
    """The cells that train and draw when that is done: for their positions, the lines that draw, with those that need
    what these make, and those before the training that only begin a figure (``fig, ax = plt.subplots()``). ``joint``:
    also those after the training that draw, and use a function that the migration changes (``evaluate(...)``)."""
    texts = [masked(cell.text) for cell in notebook.cells]
    functions, trains = showing(texts), training(files)
    changed = _changed(notebook.script(), files) if joint else set()
    found: dict[int, set[int]] = {}
    trained = False
    for n, text in enumerate(texts):
        body = ast.parse(text).body
        parts = [_text(statement, text) for statement in body]
        uses = [used(part) for part in parts]
        ends = [m for m, names in enumerate(uses, 1) if not names.isdisjoint(trains)]
        together = {m for m, names in enumerate(uses) if trained and not names.isdisjoint(changed)}
        trained = trained or bool(ends)
        rest = range(ends[-1] if ends else 0, len(body)) if ends or together else ()
        shown = {m for m, s in enumerate(body) if not defines(s) and shown_by([s], functions)}
        shown |= _magics_below(parts, rest) if ends else set()
        first = next((m for m in rest if m in shown), None)
        if first is None:
            continue
        begun = {m for m in shown if ends and m < ends[0] - 1 and _only_drawn_with(body, m, first)}
        drawn = _drawn(parts, begun | shown.intersection(rest), rest)
        left = [body[m] for m in sorted(shown - drawn)]
        if left and not shows_figures(left):  # the training draws in this figure
            continue
        if not drawn.isdisjoint(together):
            continue
        taken = set[int]().union(*(_lines_of(body, m, text) for m in drawn))
        others = set[int]().union(*(_lines_of(body, m, text) for m in range(len(body)) if m not in drawn))
        if taken.isdisjoint(others):
            found[n] = taken
    return found


def choosing(notebook: Notebook, files: Sequence[FileResult]) -> dict[int, set[int]]:
    """The cells that choose the device beside other things, of which none needs it: for their positions, the lines that
    choose it or tell it. The rest of such a cell need not be part of the training."""
    devices = _of_role(files[0], Role.DEVICE)
    found: dict[int, set[int]] = {}
    for n, cell in enumerate(notebook.cells):
        text = masked(cell.text)
        body = ast.parse(text).body
        parts = [ast.unparse(statement) for statement in body]
        uses = [use(part) for part in parts]
        chosen = {m for m, one in enumerate(uses) if one.binds and one.binds <= devices}
        names = frozenset[str]().union(*(uses[m].binds for m in chosen))
        told = {m for m, one in enumerate(uses) if one.reads & names and m not in chosen}
        others = [m for m, statement in enumerate(body) if m not in chosen | told and not _is_import(statement)]
        if not chosen or not others or any(uses[m].binds - devices for m in told):
            continue
        if all(only_chooses_devices(parts[m]) for m in chosen | told):
            lines = set[int]().union(*(_lines_of(body, m, text) for m in chosen | told))
            if lines.isdisjoint(set[int]().union(*(_lines_of(body, m, text) for m in others))):
                found[n] = lines
    return found


def _text(statement: ast.stmt, text: str) -> str:
    """A statement of a cell, or the magic that stands for one."""
    line = text.split("\n")[statement.lineno - 1]
    return line if isinstance(statement, ast.Pass) and MASK in line else ast.unparse(statement)


def _magics_below(parts: Sequence[str], rest: Sequence[int]) -> set[int]:
    """The magics after the training of a cell that need not run before it: those that only look at what is there, and
    all that end the cell (``!cp model.pt backup``)."""
    magics = {m for m in rest if MASK in parts[m] and not parts[m][:1].isspace()}
    last = max((m for m in rest if m not in magics), default=-1)
    return {m for m in magics if m > last or only_looks(parts[m])}


def _drawn(parts: Sequence[str], shown: set[int], rest: Iterable[int]) -> set[int]:
    """The statements that draw, with those below them that use what they make or may change, or that may change what
    they read."""
    uses = [use(part) for part in parts]
    changes = [{*one.binds, *filled(part)} for one, part in zip(uses, parts, strict=True)]
    while more := {
        m
        for m in rest
        if m not in shown and any(uses[m].reads & changes[n] or uses[n].reads & changes[m] for n in shown if n < m)
    }:
        shown = shown | more
    return shown


def _only_drawn_with(body: Sequence[ast.stmt], position: int, until: int) -> bool:
    """Whether a statement uses nothing of those before it, and those after it, up to some place, nothing of it."""
    uses = [use(ast.unparse(statement)) for statement in body[:until]]
    own = uses[position]
    others = [one for n, one in enumerate(uses) if n != position]
    return not any(one.reads & own.binds or one.binds & (own.reads | own.binds) for one in others)


def _lines_of(body: Sequence[ast.stmt], position: int, text: str) -> set[int]:
    """The lines of a statement, with the comments above it."""
    first = (body[position - 1].end_lineno or 0) + 1 if position else 1
    end = body[position].end_lineno or 0
    last = text.count("\n") + 1 if position == len(body) - 1 else end
    return {*range(min(first, body[position].lineno), last + 1)}


def kept_apart(
    texts: Sequence[str], uses: Sequence[Use], chosen: Sequence[int], beside: Collection[int], after: After
) -> dict[int, tuple[str, list[str]]]:
    """
    The texts of cells without the definitions that the notebook needs as well, and the lines of these definitions:
    imports, functions and classes that need nothing of the training. The classes of the models are among them where
    the notebook gets models back. ``beside``: the cells that show something, and those after the training.
    """
    reading = (n for n in beside if n > chosen[0] or n in after.functions)
    wanted = frozenset[str]().union(*(after.reads(n, uses, texts) for n in reading))
    wanted |= imported(texts, chosen)
    statements = [(n, s, use(ast.unparse(s))) for n in chosen for s in ast.parse(texts[n]).body if defines(s)]
    apart = [one for one in statements if after.cells and (isinstance(one[1], ast.ClassDef) or _is_import(one[1]))]
    while more := [one for one in statements if one not in apart and one[2].binds & wanted]:
        apart += more  # and what these need in turn: an import, another function
        wanted |= frozenset[str]().union(*(found.reads for _, _, found in more))
    apart = [one for one in statements if one in apart]
    by_others = made(uses, chosen) - frozenset[str]().union(*(one[2].binds for one in statements))
    while needy := [
        one for one in apart if one[2].reads & (by_others | _bound(other for other in statements if other not in apart))
    ]:
        apart = [one for one in apart if one not in needy]
    found: dict[int, tuple[str, list[str]]] = {}
    for n in chosen:
        lines = texts[n].split("\n")
        own = [s for m, s, _ in apart if m == n and ";" not in lines[s.lineno - 1]]
        tops = [_top(s, own, lines) for s in own]
        taken = [i for s, top in zip(own, tops, strict=True) for i in range(top, _end_with_blanks(s, lines))]
        if taken:
            rest = "\n".join(line for i, line in enumerate(lines) if i not in taken)
            parts = ["\n".join(lines[top : s.end_lineno]) for s, top in zip(own, tops, strict=True)]
            bare = ["\n".join(lines[_first_line(s) - 1 : s.end_lineno]) for s in own]
            spaced = (f"{_blanks(own, n, lines[: tops[n]], bare)}{part}" for n, part in enumerate(parts))
            found[n] = (rest.lstrip("\n"), "\n".join([*spaced, *(["", ""] if "\n" in bare[-1] else [])]).split("\n"))
    return found


def _blanks(own: Sequence[ast.stmt], position: int, lines: Sequence[str], parts: Sequence[str]) -> str:
    """The empty lines above a definition: those of the cell, where it follows the one before it there."""
    if not position:
        return ""
    before = own[position - 1].end_lineno or 0
    between = lines[before:]
    if not any(line.strip() for line in between):
        return "\n" * len(between)
    return "\n\n" if "\n" in parts[position] + parts[position - 1] else ""


def _bound(statements: Iterable[tuple[int, ast.stmt, Use]]) -> frozenset[str]:
    return frozenset[str]().union(*(found.binds for _, _, found in statements))


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _first_line(statement: ast.stmt) -> int:
    decorators = statement.decorator_list if isinstance(statement, ast.ClassDef | ast.FunctionDef) else []
    return min(statement.lineno, *(d.lineno for d in decorators), statement.lineno)


def _top(statement: ast.stmt, own: Sequence[ast.stmt], lines: Sequence[str]) -> int:
    """The first line of a definition, with the comments above it; of an import, with those above imports alone."""
    first = top = _first_line(statement) - 1
    while top and lines[top - 1].startswith("#"):
        top -= 1
    if top < first and _is_import(statement):
        imports = {line for s in own if _is_import(s) for line in range(s.lineno - 1, s.end_lineno or s.lineno)}
        below = next((n for n in range(first, len(lines)) if n not in imports), len(lines))
        if below < len(lines) and lines[below].strip():
            return first
    return top


def _end_with_blanks(statement: ast.stmt, lines: Sequence[str]) -> int:
    end = statement.end_lineno or statement.lineno
    while end < len(lines) and not lines[end].strip():
        end += 1
    return end


def check_functions(notebook: Notebook, after: After, before: str, done: Sequence[FileResult]) -> None:
    """Refuse cells that use a function which the migration changes."""
    changed = _changed(before, done)
    for n in sorted(after.cells):
        if both := sorted(use(masked(notebook.cells[n].text)).reads & changed):
            raise NotGathered(
                notebook.cells[n].number,
                f"it uses {both[0]}, which the migration changes for the training processes",
                "Give this cell a copy of that function with a name of its own",
                both[:1],
                case="function",
            )


def _changed(before: str, done: Sequence[FileResult]) -> set[str]:
    """The functions and classes that the migration changes, and those of the notebook that use them, by name."""
    old, new = _definitions(before), _definitions(unhidden(done[0].after.decode()))
    changed = {name for name, text in old.items() if new.get(name) != text}
    changed |= {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(before))
        if isinstance(node, ast.ImportFrom) and node.module
        for file in done[1:]
        if file.changed and file.source.path.stem == node.module.rpartition(".")[2]
        for alias in node.names
    }
    while more := {n for n, text in old.items() if n not in changed and use(text).reads & changed}:
        changed |= more
    return changed


def _definitions(text: str) -> dict[str, str]:
    return {
        node.name: ast.unparse(node)
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


def _of_role(file: FileResult, role: Role) -> frozenset[str]:
    return frozenset(one.name for one in file.roles if one.role == role.value and one.scope == "<module>")


def _of_several(file: FileResult) -> frozenset[str]:
    """The names of dictionaries and lists of loaders, of which each is prepared where it is made."""
    made = (statement for statement in ast.parse(file.after).body if isinstance(statement, ast.Assign))
    several = [one for one in made if isinstance(one.value, _SEVERAL) and ".prepare(" in ast.unparse(one.value)]
    return frozenset(target.id for one in several for target in one.targets if isinstance(target, ast.Name))


def _names_a_gpu(text: str) -> bool:
    nodes = list(ast.walk(ast.parse(text)))
    return any(isinstance(n, ast.Attribute) and n.attr == "cuda" for n in nodes) or any(
        isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.startswith("cuda") for n in nodes
    )


def _certainly_bound(text: str) -> frozenset[str]:
    """The names that a cell binds whatever happens."""
    plain = [s for s in ast.parse(text).body if isinstance(s, ast.Assign | ast.AnnAssign) or defines(s)]
    return frozenset().union(*(use(ast.unparse(s)).binds for s in plain))
