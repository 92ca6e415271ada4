"""From a program to what is known of it: every analysis in its order, and the facts of each module at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.constant_values import constants_of
from ..analysis.dataflow.modules import taken
from ..analysis.dataflow.program_flow import solve
from ..analysis.dataflow.values import State, Unit, origins
from ..analysis.devices.use_before_prepare import Stands
from ..analysis.diagnostics.alike_draws import makes_alike
from ..analysis.diagnostics.nature import by_nature
from ..analysis.effects.checkpoints import in_front
from ..analysis.effects.unused_code import may_run
from ..analysis.layouts import metrics
from ..analysis.syntax.names import Names
from ..analysis.syntax.nodes import parameters
from ..analysis.training.modes import is_never_noisy
from ..config import Config
from ..facts.module import ModuleFacts
from ..facts.module_paths import ModulePaths
from ..facts.roles import Origin, Role
from ..findings import Finding, Severity
from ..wording import worded
from .attempt import Attempt
from .early_draws import seeded_apart, too_early
from .late_draws import too_late
from .program import ProgramFacts
from .reached_module import ReachedModule, roles
from .unreachable import UNREACHED
from .whole_evaluations import Left, leave_from_the_start, to_decide, undecided, with_left, without_accelerator


class ParsedModule(NamedTuple):
    """A parsed module of a program: its import name, and its tree."""

    name: str
    tree: cst.Module


class Understood(NamedTuple):
    """What is known of a module, and its names resolved."""

    facts: ModuleFacts
    names: Names
    entry: bool = False
    """It is the script itself, not a module that others import."""
    taken: frozenset[str] = frozenset()
    """The names that other modules take from it."""
    idle: tuple[cst.FunctionDef | cst.If, ...] = ()
    """Its functions that the program does not run."""
    whole: frozenset[cst.CSTNode] = frozenset()
    """Where it asks for the length of a loader that is not prepared."""
    solved: State | None = None
    """The program that it is a module of."""
    unbuilt: frozenset[cst.CSTNode] = frozenset()
    """What would make something that is different on each process, or count the steps of an epoch, in code that the
    program never runs; and what is the same on all of them."""


def understand(
    modules: Sequence[ParsedModule],
    config: Config,
    layout: ModulePaths = ModulePaths(),  # noqa: B008 (frozen)
) -> list[Understood]:
    """What is known of each module of a program; the first is the entry script."""
    program = _Analyses(solve([(m.name, m.tree) for m in modules], config.assume, layout), config)
    found = program.facts()
    others = program.other_experiments() if any(f.id == UNREACHED for f in _refusals(found)) else frozenset()
    if others:
        started = layout._replace(started=others)
        again = _Analyses(solve([(m.name, m.tree) for m in modules], config.assume, started), config)
        if not any(_refusals(more := again.facts())):
            program, found = again, more
    state, units = program.state, program.reach.units
    known = []
    for facts, unit in zip(found, units, strict=True):
        names = taken(state, unit)
        entry = unit is units[0] and not names
        idle = tuple(program.reach.idle(unit))
        reach, named = program.reach, [call for call in unit.names.calls if by_nature(call) is not None]
        alike = {c for c in named if makes_alike(state, reach, c) or is_never_noisy(state, c)}
        alike.update(c for c in named if constants_of(state).never(unit, c))
        divided = unit.names.every(cst.BinaryOperation)
        unbuilt = frozenset(n for n in (*named, *divided) if n in alike or not may_run(unit, reach, n))
        whole = frozenset(program.whole_loaders(unit))
        known.append(Understood(facts, unit.names, entry, names, idle, whole, state, unbuilt))
    return known


def _refusals(found: Sequence[ModuleFacts]) -> Iterator[Finding]:
    told = (worded(reason) for facts in found for reason in facts.findings)
    return (finding for finding in told if finding.severity is Severity.BLOCKED)


class _Analyses(ProgramFacts):
    """The analyses of one program, in their order."""

    prepared: frozenset[Origin] | None = None
    """What is prepared, once that is decided."""
    stands: Mapping[Origin, Stands] = MappingProxyType({})
    """Where."""

    def whole_loaders(self, unit: Unit) -> Iterator[cst.CSTNode]:
        """Where a module asks for the length of a loader that is not prepared, or not yet; and of something else that
        has the name of a loader elsewhere: ``train = Rows()``, and later ``train = DataLoader(train)``."""
        if self.prepared is None or self.existing is not None:
            return
        for call in unit.names.calls:
            if isinstance(call.func, cst.Name) and call.func.value == "len" and len(call.args) == 1:
                held = origins(self.state.values.get(call.args[0].value), Role.LOADER)
                stands = [self.stands.get(loader) for loader in held]
                before = all(s is not None and in_front(s, unit, self.reach, call) for s in stands)
                if not held or before or self.prepared.isdisjoint(held):
                    yield call

    def other_experiments(self) -> frozenset[str]:
        """The functions of the entry script that train and that nothing calls: ``# large()`` in a comment."""
        names = self.reach.units[0].names
        working = (self.reach.function_of(record.node) for record in self.training.backwards)
        above = {caller for code in working for caller in self.reach.above(code) if caller not in self.reach.reachable}
        return frozenset(
            code.name.value
            for code in above
            if isinstance(code, cst.FunctionDef) and names.parents.get(code) is names.module
            if not self.reach.sites(code) and all(p.default is not None for p in parameters(code))
        )

    def facts(self) -> list[ModuleFacts]:
        """The facts of each module."""
        if not self.training.backwards or self._foreign():
            return [self._bare(unit) for unit in self.reach.units]
        evaluations = metrics.evaluations(self.state, self.reach, self.training) if not self.settled else []
        leave_from_the_start(self, evaluations)
        found = self._settled(evaluations)
        parts, way, plan = found.parts, found.way, found.plan
        self.settings = found.settings
        early = [*too_early(self.reach, way, self.draws, self.rows)]
        if self.existing is None and self.hand is None:
            given = {received.source for part in parts.values() for received in part.received}
            early += seeded_apart(self.state, self.reach, way, given, self.rows)
        for unit, finding in early:
            parts[unit].findings.append(finding)
        if not self.adopted and not self.settled:
            for unit, finding in too_late(self.state, self.reach, plan, self.rows):
                parts[unit].findings.append(finding)
        self.stands = plan.stands
        self.prepared = frozenset(o for part in parts.values() for o in part.plan.prepared)
        for part in parts.values():
            part.settle_loads(ReachedModule(part, way).here)
        left = {f.target.attr.value for f in self.fields if not ReachedModule(parts[f.unit], way).redefines(f)}
        self.redefined = {field.target.attr.value for field in self.fields} - left
        return [ReachedModule(parts[unit], way).facts() for unit in self.reach.units]

    def _settled(self, evaluations: Sequence[metrics.Evaluation]) -> Attempt:
        """
        The attempt that holds: no more evaluations have to be left whole.

        Those that are left stay left, so this ends: each turn leaves at least one more. That decisions follow a figure
        which cannot be gathered is a reason only if they are equal then: slower and right is better than refused.
        """
        left: Left = {}
        found = Attempt(self, with_left(evaluations, left))
        while more := (lost := without_accelerator(found)) or to_decide(found):
            left = {**left, **more}
            tried = Attempt(self, with_left(evaluations, left))
            if not lost and undecided(tried):
                break
            found = tried
        return found

    def _foreign(self) -> bool:
        """Whether a refusal makes every other answer pointless."""
        whole = (
            "already-distributed",
            "framework-owns-loop",
            "no-entry-point",
            "computed-import",
            "no-data-parallel-axis",
            "unknown-loader",
        )
        return any(worded(reason).id in whole for _, reason in self.blocked)

    def _bare(self, unit: Unit) -> ModuleFacts:
        findings = tuple(f for u, f in self.blocked if u is unit)
        return ModuleFacts(
            unit.names.module,
            self.name,
            self.abilities,
            self.existing is not None,
            findings=findings,
            roles=tuple(roles(self.state, unit)),
        )
