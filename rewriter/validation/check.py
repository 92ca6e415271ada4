"""The check of an emitted program: all invariants, except those that the original breaks too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.values import Unit
from ..facts.module_paths import ModulePaths
from . import bound_names, collectives, coverage, effects, gradients, loaders, preparation, signatures
from .guards import Guards
from .program import EmittedProgram
from .violation import CodePlace, Violation

_SIMPLE: tuple[Callable[[EmittedProgram], Iterator[Violation]], ...] = (
    preparation.together,
    preparation.each_definition,
    preparation.ordered,
    preparation.early,
    loaders.prepared,
    gradients.backwards,
    gradients.joined,
    signatures.misfits,
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


def check(texts: Sequence[ModuleTexts], assume: Iterable[tuple[str, str]], layout: ModulePaths) -> Checked:
    """Analyse the emitted program, and report what breaks an invariant that the original keeps."""
    assume = tuple(assume)
    after = EmittedProgram([(text.name, text.after) for text in texts], assume, layout)
    if not after.accelerated:
        return Checked()
    guards = Guards(after)
    found = [*_found(after, guards), *coverage.unseen(after)]
    writes = list(effects.repeated(after, guards))
    named = {text.name for text in texts if text.before is not text.after}
    reads = [v for unit in after.reach.units if unit.name in named for v in _names(unit)]
    cuts = list(gradients.cut(after))
    if not (found or writes or reads or cuts):
        return Checked()
    before = EmittedProgram([(text.name, text.before) for text in texts], assume, layout)
    known = {violation.key for violation in (*_found(before, Guards(before)), *coverage.unseen(before))}
    if effects.is_distributed(before):
        writes = []
    read_before = {_read(v) for unit in before.reach.units if unit.name in named for v in _names(unit)}
    found = [violation for violation in found if violation.key not in known]
    found += [*writes, *_more(after, cuts, gradients.cut(before))]
    found += [violation for violation in reads if _read(violation) not in read_before]
    gaps = [violation for violation in found if violation.invariant == coverage.INVARIANT]
    return Checked(tuple(v for v in found if v not in gaps), tuple(gaps))


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


def _calls(program: EmittedProgram) -> set[tuple[str, str, str]]:
    return {CodePlace(unit, call).key for unit in program.reach.units for call in unit.names.calls}


def _names(unit: Unit) -> Iterator[Violation]:
    yield from bound_names.unbound(unit)
    yield from bound_names.unknown(unit)


def _read(violation: Violation) -> tuple[str, str, str]:
    """Identifies a variable by its module, the function that reads it, and its name."""
    return violation.place.key
