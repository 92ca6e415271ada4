"""The findings of the check: each violation as a diagnosis, at the line of the original that the edit replaced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.solver import TooComplex
from ..analysis.dataflow.values import State
from ..editing.indentation import evened
from ..editing.positions import Starts, code, locate, start
from ..facts.module_paths import ModulePaths
from ..findings import Severity
from ..result import CausePlace, Diagnosis, Trait
from .check import ModuleTexts, check
from .shown_figures import COUNTED, DIVIDED, EVALUATION
from .violation import Violation


class Emitted(NamedTuple):
    """One module of a migrated program, and its findings so far."""

    name: str
    before: cst.Module
    text: str | None
    """The emitted text; None if it equals the original."""
    told: tuple[Diagnosis, ...] = ()
    traits: tuple[Trait, ...] = ()


class Said(NamedTuple):
    """What the check has to say of one module."""

    diagnoses: list[Diagnosis]
    traits: list[Trait]


def _parsed(text: str) -> cst.Module:
    """The tree of an emitted text."""
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError:
        other = evened(text)
        if other is None:
            raise
        return cst.parse_module(other.text)


def diagnoses(
    modules: Sequence[Emitted],
    assume: Iterable[tuple[str, str]],
    layout: ModulePaths,
    *,
    written: bool,
    original: State | None = None,
) -> dict[str, Said]:
    """
    Check an emitted program, and return what is said of each module, by name.

    A violation at a place that already has a finding is not repeated; a note is none: it says that nothing is wrong.
    ``written``: the program is written all the same. ``original``: the solved program as it was.
    """
    try:
        texts = [ModuleTexts(m.name, m.before, m.before if m.text is None else _parsed(m.text)) for m in modules]
        checked = check(texts, assume, layout, original)
    except (RecursionError, TooComplex):
        unread = Diagnosis("output-unchecked", Severity.NOTE, "the migrated program is too complex to be checked", "")
        return {modules[0].name: Said([unread], [])}
    lines = {m.name: _Lines(m, text.after) for m, text in zip(modules, texts, strict=True)}
    found: dict[str, Said] = defaultdict(lambda: Said([], []))
    for violation in checked.violations:
        places = [place for place in (violation.place, violation.other) if place is not None]
        if not any(lines[place.unit.name].told(place) for place in places):
            found[violation.place.unit.name].diagnoses.append(_failed(violation, lines, written))
    for gap in checked.gaps:
        found[gap.place.unit.name].diagnoses.append(_unchecked(gap, lines))
    named = {trait.name for module in modules for trait in module.traits if trait.kind in ("running", "figure")}
    named |= {name for figure in checked.figures if figure.invariant == DIVIDED for name in _assigned(figure.place)}
    own: dict[tuple[str, int, CausePlace | None], list[str]] = defaultdict(list)
    for figure in checked.figures:
        of = lines[figure.place.unit.name]
        if figure.invariant == DIVIDED:
            if not any(figure.words in one.message for module in modules for one in module.told):
                found[figure.place.unit.name].diagnoses.append(_too_small(figure, of.original(figure.place)))
            continue
        if of.told(figure.place) or any(figure.words == name or figure.words.startswith(f"{name}.") for name in named):
            continue
        line = of.original(figure.place)
        if figure.invariant == EVALUATION:
            own[figure.place.unit.name, line, of.around(figure.place)].append(figure.words)
        elif figure.invariant == COUNTED:
            found[figure.place.unit.name].diagnoses.append(_own_count(figure.words, line))
        else:
            found[figure.place.unit.name].traits.append(Trait("shown", figure.words, line))
    for (name, line, cause), words in own.items():
        found[name].diagnoses.append(_own_figures(words, line, cause))
    return dict(found)


class _Lines:
    """Maps the lines of an emitted module to those of the original."""

    def __init__(self, module: Emitted, after: cst.Module) -> None:
        self._module, self._after = module, after
        self._starts: Starts | None = None
        self._origins: list[int] = []

    def emitted(self, place: CodePlace) -> tuple[int, int]:
        """The line of a place in the emitted text."""
        if self._starts is None:
            self._starts = locate(self._after)[1]
        return start(self._starts, place.node)

    def original(self, place: CodePlace) -> int:
        """The line of the original that belongs to a place."""
        if not self._origins:
            before, after = (code(tree).split("\n") for tree in (self._module.before, self._after))
            self._origins = list(_origins(before, after))
        line = self.emitted(place)[0]
        return self._origins[line - 1] if 0 < line <= len(self._origins) else 0

    def around(self, place: CodePlace) -> CausePlace | None:
        """The function that shows the figures, which are then one finding."""
        function = place.unit.names.function(place.node)
        line = self.original(place._replace(node=function)) if isinstance(function, cst.FunctionDef) else 0
        if not line:
            return None
        text = code(self._module.before).split("\n")[line - 1]
        return CausePlace("it shows them", line, len(text) - len(text.lstrip()) + 1, len(text.rstrip()) + 1, text)

    def told(self, place: CodePlace) -> bool:
        """Whether a finding asks for something at the place, or at the statement that contains it."""
        statement = place._replace(node=place.unit.names.statement(place.node))
        lines = {self.original(place), self.original(statement)} - {0}
        return any(told.line in lines and told.severity is not Severity.NOTE for told in self._module.told)


def _origins(before: list[str], after: list[str]) -> Iterator[int]:
    """For each line of a text, counted from 1, the line of another text that it comes from, or the nearest one."""
    for kind, start_, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for n in range(last - first):
            yield start_ + n + 1 if kind == "equal" else min(start_ + n, max(end - 1, start_)) + 1


def _failed(violation: Violation, lines: Mapping[str, _Lines], written: bool) -> Diagnosis:
    where = f"`{_code(violation.place)}`"
    if violation.other is not None:
        other = violation.other
        line = lines[other.unit.name].original(other)
        where += f", see `{_code(other)}`" + (f" (line {line} of {_file(other)})" if line else "")
    outcome = "it was written all the same, as --partial asks" if written else "nothing was written"
    return Diagnosis(
        "output-check", Severity.BLOCKED,
        f"the migrated program breaks the invariant {violation.invariant}: {violation.words}: {where}",
        f"this is a fault of migrate, not of your script, and {outcome}: please report it, with the script",
        lines[violation.place.unit.name].original(violation.place),
        1,
    )  # fmt: skip


def _own_figures(words: Sequence[str], line: int, cause: CausePlace | None) -> Diagnosis:
    texts = [f"`{text}`" for text in words]
    shown = f"{texts[0]} is"
    if len(texts) > 1:
        shown = f"{', '.join(texts[:-1])} and {texts[-1]} are"
    return Diagnosis(
        "own-figure", Severity.REVIEW,
        f"{shown} shown, and computed from the rows of one process: what the main process shows is the figure of "
        "its own rows",
        "gather what is shown, or what it is computed from, with accelerator.gather_for_metrics(...), or read it as "
        "that of one process",
        line,
        1, cause=cause, case="shown",
    )  # fmt: skip


def _own_count(text: str, line: int) -> Diagnosis:
    return Diagnosis(
        "own-figure", Severity.REVIEW,
        f"`{text}` is shown after the loop, and numbers the batches of one process: on N processes it is a part of all",
        "count the rows that accelerator.gather_for_metrics(...) gives, or show len(loader.dataset)",
        line,
        1, case="batch-count",
    )  # fmt: skip


def _assigned(place: CodePlace) -> list[str]:
    """What the statement of a place gives its value to."""
    assign = next(place.unit.names.enclosing(place.node, cst.Assign), None)
    targets = assign.targets if isinstance(assign, cst.Assign) else ()
    return [place.unit.names.module.code_for_node(target.target) for target in targets]


def _too_small(figure: Violation, line: int) -> Diagnosis:
    place = figure.other or figure.place
    total = _code(place)
    asked = place.unit.names.parents.get(place.node)
    is_tensor = isinstance(asked, cst.Attribute) and asked.attr.value in ("item", "cpu", "numpy", "tolist", "detach")
    summed = f'accelerator.reduce({total}, reduction="sum")'
    if not is_tensor:
        summed = f'accelerator.reduce(torch.tensor({total}, device=accelerator.device), reduction="sum").item()'
    return Diagnosis(
        "own-figure", Severity.REVIEW,
        f"`{total}` totals only the rows of one process, and `{figure.words}` divides it by the number of all rows: on "
        "N processes it is N times too small",
        f"add up the totals of all processes before this line: {total} = {summed}",
        line,
        1, case="total",
    )  # fmt: skip


def _unchecked(gap: Violation, lines: Mapping[str, _Lines]) -> Diagnosis:
    message = f"the check of the migrated program could not follow this: {gap.words}"
    remedy = "look at what is emitted here: nobody has checked it"
    return Diagnosis(
        "output-unchecked", Severity.NOTE, message, remedy, lines[gap.place.unit.name].original(gap.place), 1
    )


def _code(place: CodePlace) -> str:
    """The first line of the emitted code of a place."""
    text = place.unit.names.module.code_for_node(place.node).strip()
    rows = [row for row in text.split("\n") if row.strip() and not row.lstrip().startswith("#")]
    return rows[0].strip()[:80] if rows else ""


def _file(place: CodePlace) -> str:
    return "the script" if place.unit.name == "__main__" else f"{place.unit.name}"
