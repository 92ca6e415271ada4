"""The check of an emitted program: all invariants, except those that the original breaks too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.program_flow import solve
from ..analysis.dataflow.values import State, Unit
from ..analysis.distributed.guards import Guards
from ..facts.module_paths import ModulePaths
from . import (
    bound_attributes,
    bound_names,
    collectives,
    coverage,
    effects,
    fixed_attributes,
    gradients,
    loaders,
    placement,
    preparation,
    prepare_order,
    shown_figures,
    signatures,
)
from .program import EmittedProgram
from .violation import Violation

_SIMPLE: tuple[Callable[[EmittedProgram], Iterator[Violation]], ...] = (
    preparation.together,
    preparation.each_definition,
    prepare_order.ordered,
    prepare_order.early,
    placement.placed,
    loaders.prepared,
    gradients.backwards,
    gradients.joined,
    signatures.misfits,
    signatures.strangers,
    bound_attributes.kept,
    bound_attributes.had,
    fixed_attributes.settable,
)


class ModuleTexts(NamedTuple):
    """One module of a program, before and after the edits."""

    name: str
    before: cst.Module
    after: cst.Module


class Checked(NamedTuple):
    """The result of the check."""

    violations: tuple[Violation, ...] = ()
    gaps: tuple[Violation, ...] = ()
    """What the new analysis did not understand: the program counts as not analysed, never as correct."""
    figures: tuple[Violation, ...] = ()
    """What leaves the process and is computed from its own rows: no fault of an edit, but somebody must say it."""


def check(
    texts: Sequence[ModuleTexts],
    assume: Iterable[tuple[str, str]],
    layout: ModulePaths,
    original: State | None = None,
) -> Checked:
    """
    Analyse the emitted program, and report what breaks an invariant that the original keeps.

    ``original`` is the original program, where somebody has solved it already.
    """
    assume = tuple(assume)
    known = {unit.names.module: unit.names for unit in original.units.values()} if original is not None else {}
    after = EmittedProgram(solve([(text.name, text.after) for text in texts], assume, layout, known))
    if not after.accelerated:
        return Checked()
    guards = _guards(after)
    found = [*_found(after, guards), *coverage.unseen(after)]
    writes = list(effects.repeated(after, guards))
    named = {text.name for text in texts if text.before is not text.after}
    reads = [v for unit in after.reach.units if unit.name in named for v in _names(unit)]
    cuts = list(gradients.cut(after))
    figures = (*shown_figures.divided(after), *shown_figures.shown(after))
    if not (found or writes or reads or cuts):
        return Checked(figures=figures)
    before = EmittedProgram(original or solve([(text.name, text.before) for text in texts], assume, layout))
    of_original = {violation.key for violation in (*_found(before, _guards(before)), *coverage.unseen(before))}
    if effects.is_distributed(before):  # its author decided which process writes, and who waits: by other words
        writes = list(_beyond(writes, effects.repeated(before, _guards(before))))
        apart = [violation for violation in found if violation.invariant == collectives.INVARIANT]
        left = list(_beyond(apart, collectives.parted_by_script(before, _guards(before))))
        found = [violation for violation in found if violation not in apart or violation in left]
    read_before = {key for unit in before.reach.units if unit.name in named for key in _read_before(unit)}
    found = [violation for violation in found if violation.key not in of_original]
    found += [*writes, *_more(after, cuts, gradients.cut(before))]
    found += [violation for violation in reads if read_before.isdisjoint(_keys(violation))]
    gaps = [violation for violation in found if violation.invariant == coverage.INVARIANT]
    return Checked(tuple(v for v in found if v not in gaps), tuple(gaps), figures)


def _guards(program: EmittedProgram) -> Guards:
    return Guards(program.state, program.reach, program.ranks)


def _found(program: EmittedProgram, guards: Guards) -> Iterator[Violation]:
    for invariant in _SIMPLE:
        yield from invariant(program)
    yield from collectives.apart(program, guards)


def _more(after: EmittedProgram, found: Sequence[Violation], before: Iterable[Violation]) -> Iterator[Violation]:
    """
    The violations in functions that have more of them than before, or others in the place of old ones.

    They are counted, because an edit may change the text of an old one. One whose text is still there is no longer
    found where a new one comes before it.
    """
    old = Counter(violation.place.key for violation in before)
    new = Counter(violation.place.key for violation in found)
    left, now = (Counter(key[:2] for key in counted.elements()) for counted in (old, new))
    hidden = (old - new).keys() and {key[:2] for key in (old - new).keys() & _calls(after)}
    for violation in found:
        place = violation.place.key
        if now[place[:2]] > left[place[:2]] or (place[:2] in hidden and place not in old):
            yield violation


def _beyond(found: Sequence[Violation], before: Iterable[Violation]) -> Iterator[Violation]:
    """The violations in functions that have more of them than before."""
    old = list(before)
    left, now = (Counter(violation.place.key[:2] for violation in one) for one in (old, found))
    keys = {violation.key for violation in old}
    yield from (v for v in found if now[v.place.key[:2]] > left[v.place.key[:2]] and v.key not in keys)


def _calls(program: EmittedProgram) -> set[tuple[str, str, str]]:
    return {CodePlace(unit, call).key for unit in program.reach.units for call in unit.names.calls}


def _names(unit: Unit) -> Iterator[Violation]:
    yield from bound_names.unbound(unit)
    yield from bound_names.unknown(unit)
    yield from bound_names.late(unit)


def _read_before(unit: Unit) -> Iterator[tuple[str, ...]]:
    """Identifies the reads that the original cannot be certain of; with a star import, the names that only this can
    bind, wherever they are read."""
    for violation in _names(unit):
        yield violation.place.key
    if unit.names.stars:
        for violation in bound_names.unknown(unit):
            yield unit.name, violation.place.key[-1]


def _keys(violation: Violation) -> tuple[tuple[str, ...], ...]:
    """Identifies a read by its module, its function and its name; and by its module and name alone."""
    module, _, name = violation.place.key
    return violation.place.key, (module, name)
