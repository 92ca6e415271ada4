"""
The accelerator's way, and the arguments of its constructor: each depends on the other.

What the constructor reads must be known where the accelerator is made, and where it is made decides what is known. So
both are decided in one loop, in which decisions are only added: it ends because there are only so many to add.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import Klass, Unit, origins
from ..analysis.devices.constants import Constant, Constants
from ..analysis.devices.device_names import DeviceName
from ..analysis.precision.precision import ManualPrecision, PrecisionSetting
from ..analysis.syntax.walk import descendants, nodes_in
from ..analysis.training.no_sync import unsynced_of
from ..facts.effects import EffectKind
from ..facts.module import Unsynced
from ..facts.module_paths import ENTRY
from ..facts.placement import Move, Placement
from ..facts.roles import Role
from .accelerator_path import Way
from .accumulation import Window, window_of
from .collected import Collected
from .device_reads import vanishing
from .existing_way import existing_way
from .home import Homes, owner
from .prepare import PreparePlan
from .program import ProgramFacts
from .reached_module import ReachedModule
from .routing import Router
from .shared_code import chooses_device, first_statement, hand_it_on, may_be_given

MOVES = frozenset({Move.STATEMENT, Move.LINK, Move.RETARGET})


@dataclass(frozen=True)
class _Decided:
    """What is decided about the way; each turn of the loop adds to it."""

    code: Code | None
    """The code by whose names the settings are said: that which prepares, until they are not ready there."""
    raised: bool = False
    """It is the code that makes the accelerator."""
    by_hand: frozenset[str] = frozenset()
    """Settings that the script keeps: those of ``precision`` or of its ``window``."""
    taken: frozenset[Constant] = frozenset()
    """Devices of modules that the way takes over, so that they settle nothing."""
    gone: frozenset[cst.CSTNode] = frozenset()
    """Nodes that the migration takes away."""


class SettledWay:
    """
    The search in one program.

    Args:
        program: what is known of it; its settings are those of the way that is found last.
        parts: what was found in its modules.
        plan: what is prepared where.
    """

    def __init__(self, program: ProgramFacts, parts: Sequence[Collected], plan: PreparePlan) -> None:
        self.program, self.parts, self.plan = program, {part.unit: part for part in parts}, plan
        self.state, self.reach = program.state, program.reach
        self._asked = program.settings.flag
        self._placements = [p for part in parts for p in part.placements]
        prepares = plan.code or self.reach.function_of(program.training.backwards[0].node)
        self._anchor, above = self.reach.unit(prepares), self.reach.above(prepares)
        self._kept = [top for top in program.tops if top.unit.names.module not in above]
        manual = ManualPrecision(self.state, self.reach, program.training) if program.existing is None else None
        self._manual = manual
        self._precision, self._window = cache(self._precision_in), cache(self._window_in)

    def find(self) -> Way:
        """The way, once nothing more has to be decided; the settings of the program are those that it can have."""
        vanished = frozenset(n for p in self._placements for n in vanishing(p))
        decided, way = _Decided(self.plan.code, gone=vanished), None
        while way is None or (more := self._more(decided, way)) != decided:
            if way is not None:
                decided = more
            self._settle(decided)
            way = self._way()
        settings = self.program.settings
        settings.unsynced = self._unsynced(way)
        if self._manual is not None:
            asked = self.program.config.mixed_precision
            for unit, finding in self._manual.told(settings.precision, way.code, asked):
                self.parts[unit].findings.append(finding)
        return way

    def _settle(self, decided: _Decided) -> None:
        """Make the settings of the program those that follow from what is decided."""
        settings, new = self.program.settings, self.program.existing is None
        settings.precision = self._precision(decided.code) if "precision" not in decided.by_hand else None
        hand = "window" in decided.by_hand or not self._may_accumulate(settings.precision)
        settings.window = self._window(decided.code) if not hand else None
        kept = [top for top in self._kept if top not in decided.taken]
        settings.constants = Constants(self.state, kept, self.reach, self._placements, set(decided.gone))
        settings.flag = self._asked or (settings.constants.flag(self._anchor) if new else None)

    def _more(self, decided: _Decided, way: Way) -> _Decided:
        """What is decided, and the first thing that the way shows to be needed beside it."""
        taken = self._taken_over(decided, way)
        handed = {n for _, h in way.handings if h.replaces is not None for n in descendants(h.replaces)}
        if taken - decided.taken or handed - decided.gone:
            return replace(decided, taken=decided.taken | taken, gone=decided.gone | handed)
        settings = self.program.settings
        has_precision, has_window = self._has_precision(way), self._has_window(way)
        if not (has_precision and has_window) and not decided.raised and way.code is not decided.code:
            raised = replace(decided, code=way.code, raised=True)
            if self._says(raised) or self._says(decided):
                return raised
        if settings.precision is not None and not has_precision:
            return replace(decided, by_hand=decided.by_hand | {"precision"})
        if settings.window is not None and not has_window:
            return replace(decided, by_hand=decided.by_hand | {"window"})
        return decided

    def _taken_over(self, decided: _Decided, way: Way) -> frozenset[Constant]:
        """The devices of modules that the way takes over; none, where nothing would be left that settles its flag."""
        if self.program.existing is not None:
            return frozenset()
        replaced = {*way.replaced, *(name.binding for _, name in way.redefined)}
        kept = [top for top in self._kept if top not in decided.taken]
        gone = frozenset(top for top in kept if top.name.binding in replaced)
        return gone if len(gone) < len(kept) else frozenset()

    # The settings -----------------------------------------------------------------------------------------------------

    def _says(self, decided: _Decided) -> bool:
        """Whether there is a setting that the names of some code can say."""
        precision = self._precision(decided.code) if "precision" not in decided.by_hand else None
        window = self._window(decided.code) if self._may_accumulate(precision) else None
        return precision is not None or window is not None

    def _precision_in(self, code: Code | None) -> PrecisionSetting | None:
        config = self.program.config
        wanted = config.enables("autocast") and config.enables("grad_scaler")
        return self._manual.precision(code) if self._manual is not None and wanted else None

    def _window_in(self, code: Code | None) -> Window | None:
        return window_of(self.state, self.reach, self.program.training, code, self.program.loss_reductions)

    def _unsynced(self, way: Way) -> tuple[Unit, Unsynced] | None:
        """The backward passes that need not exchange gradients, where the script goes on counting its window."""
        program = self.program
        switched = program.hand is not None and bool(program.hand.switches)
        counts = switched or self._may_accumulate(program.settings.precision)
        if program.settings.window is not None or not counts:
            return None
        found = unsynced_of(self.state, self.reach, program.training)
        return found if found is not None and found[0].names.function(found[1].loop) in way.reaches else None

    def _may_accumulate(self, precision: PrecisionSetting | None) -> bool:
        """Whether the rule is on, and neither an accelerator nor a gradient scaler of the script's is in the way."""
        program = self.program
        if program.existing is not None or program.hand is not None or not program.config.enables("accumulation"):
            return False
        scalers = any(origins(r.result, Role.SCALER) for r in self.state.calls.values())
        return not scalers or precision is not None

    def _has_precision(self, way: Way) -> bool:
        """Whether the accelerator reaches every region of the setting, and its home the names that this reads."""
        precision = self.program.settings.precision
        regions = precision.regions if precision is not None else ()
        places = [pair for region in regions for pair in (*region.entered, *region.made)]
        reached = all(ReachedModule(self.parts[unit], way).here(node) for unit, node in places)
        reached = reached and all(unit.names.function(node) not in self._brings_none for unit, node in places)
        return precision is not None and reached and _ready(way, precision.names)

    def _has_window(self, way: Way) -> bool:
        window = self.program.settings.window
        inside = window is not None and window.unit.names.function(window.fact.loop) in way.reaches - self._brings_none
        return window is not None and inside and _ready(way, window.names)

    @property
    def _brings_none(self) -> set[Code]:
        """The functions that files outside the program call without an accelerator: the one that they make has none of
        its settings."""
        return self.program.optional - self.program.trainers

    # The way ----------------------------------------------------------------------------------------------------------

    def _way(self) -> Way:
        if self.program.existing is not None:
            return existing_way(self.program)
        way, lacking = self._routed(spares=False)
        if not lacking:
            return way
        other, left = self._routed(spares=True)
        return other if left < lacking else way

    def _is_imported(self, unit: Unit, name: DeviceName) -> bool:
        """Whether a module that a notebook imports chooses the current GPU, or the CPU, as it is imported: before the
        processes start, and it is that of each of them where the accelerator is."""
        imported = unit.place.name != ENTRY and isinstance(owner(name), cst.Module)
        if not self.program.config.launched or not imported:
            return False
        parts = [part for definition in name.definitions for part in descendants(definition)]
        words = {part.evaluated_value for part in parts if isinstance(part, cst.SimpleString)}
        numbered = any(isinstance(part, (cst.FormattedString, cst.Integer, cst.BinaryOperation)) for part in parts)
        return "cuda" in words and words <= {"cuda", "cpu", "mps"} and not numbered

    def _moved_late(self, devices: list[tuple[Unit, DeviceName]]) -> Iterator[tuple[Unit, cst.CSTNode]]:
        """The moves to such devices, in functions: the accelerator has to be there, with the device of the process."""
        late = {name.binding for unit, name in devices if self._is_imported(unit, name)}
        for unit, part in self.parts.items() if late else ():
            for placement in part.placements:
                aims = (unit.names.binding(name) for name in nodes_in(placement.node, cst.Name))
                inside = not isinstance(unit.names.function(placement.node), cst.Module)
                if inside and not late.isdisjoint(aim for aim in aims if aim is not None):
                    yield unit, placement.node

    def _routed(self, *, spares: bool) -> tuple[Way, int]:
        """
        The way to all that needs the accelerator, and how much that must have it is left without.

        Args:
            spares: what moves to the current device, `noise.cuda()`, can do without it.
        """
        program, settings, holders = self.program, self.program.settings, self.program.holders
        needs: dict[Code, None] = {}
        essential: dict[Code, None] = {}
        own: dict[Code, None] = {}
        marked: set[cst.CSTNode] = set()
        for part in self.parts.values():
            for code, node in part.needs():
                needs[code] = None
                marked.add(node)
            optional: set[cst.CSTNode] = {e.node for e in part.effects if e.kind is not EffectKind.WRITE}
            optional.update(p.node for p in part.placements if spares and _goes_to_current(p))
            essential.update(dict.fromkeys(code for code, node in part.needs(optional)))
            own.update(dict.fromkeys(code for code, node in part.needs(set(part.guards()))))
        devices = [(u, n) for u, n in program.devices if n.binding not in settings.constants.bindings]
        for unit, node in self._moved_late(devices):
            needs[unit.names.function(node)] = own[unit.names.function(node)] = None
            marked.add(node)
        devices = [(unit, name) for unit, name in devices if not self._is_imported(unit, name)]
        for code in (owner(name) for _, name in devices):
            if not self._is_replaced(code):
                needs[code] = own[code] = None
        placing = [unit.names.function(p.node) for unit, part in self.parts.items() for p in part.placements]
        placing += [*(owner(name) for _, name in program.devices), *(field.code for field in program.fields)]
        keepers = {found[1]: None for code in own if code in essential and (found := holders.method(code)) is not None}
        for klass in keepers:
            needs.update(dict.fromkeys(holders.inits(klass)))
            own.update(dict.fromkeys(holders.inits(klass)))
        for klass in self._trainers():
            makers = holders.inits(klass) or self._builders(klass, own)
            if klass.role is Role.MODEL:
                makers = self._of_module(klass, own)
            program.trainers.update(init for init in makers if self._may_make_one(init))
        for init in program.trainers:
            program.optional |= hand_it_on(self.reach, program.shared, init)
        program.optional |= program.trainers | self._may_train()
        guards = frozenset(code for code in needs if code not in own)
        said = (found.names for found in (settings.precision, settings.window) if found is not None)
        homes = Homes(
            state=self.state,
            reach=self.reach,
            holders=holders,
            devices=devices,
            name=program.name,
            fields=program.fields,
            lent=program.lent,
            marked=frozenset(marked | {call for _, call in program.draws}),
            flag=settings.flag,
            moves=any(p.move in MOVES for p in self._placements),
            placing=tuple(dict.fromkeys(placing)),
            reads=frozenset().union(*said),
            starts=program.hand.starts if program.hand is not None else (),
            constructor=program.hand.constructor() if program.hand is not None else (),
        )
        homes.stamps = frozenset(
            part.unit.names.function(answer.node) for part in self.parts.values() for answer in part.received
        )
        first = self.reach.function_of(program.training.backwards[0].node) if marked else None
        prepares = [prepare for _, prepare in self.plan.prepares]
        working = {self.reach.function_of(record.node) for record in program.training.backwards}
        uncalled = (code for code in self.state.started | self.state.commands if not self.reach.sites(code))
        apart = {code for code in uncalled if not working.isdisjoint(self.reach.below(code))}
        router = Router(homes, program.shared, keepers, program.optional, guards, apart)
        way = router.route(needs, essential, self.plan.code or first, prepares)
        return way, len(router.lacking(way, needs, essential))

    def _is_replaced(self, code: Code) -> bool:
        """Whether what calls a function is the device that objects keep: the accelerator's takes the place of each."""
        values = {field.value for field in self.program.fields}
        sites = self.reach.sites(code)
        return bool(sites) and all(site in values for site in sites)

    def _methods(self, codes: Iterable[Code]) -> Iterator[tuple[cst.FunctionDef, Klass]]:
        return (found for code in codes if (found := self.program.holders.method(code)) is not None)

    def _builders(self, klass: Klass, codes: Iterable[Code]) -> list[cst.FunctionDef]:
        """The methods that build the objects of a class which has no constructor, for some of its methods."""
        methods = [method for method, of in self._methods(codes) if of is klass]
        return [one for method in methods if (one := self.program.holders.builder(method, klass)) is not None]

    def _of_module(self, klass: Klass, codes: Iterable[Code]) -> list[cst.FunctionDef]:
        """The methods of a module of torch that train it, where no other file trains with it."""
        mine = list(dict.fromkeys(method for method, of in self._methods(codes) if of is klass))
        mine = [m for m in mine if m not in self.program.shared or m in self._training_codes()]
        named = any(m.name.value in self.reach.unit(m).place.shared for m in mine if m.name.value != "__init__")
        return [] if named else mine

    def _may_make_one(self, init: cst.FunctionDef) -> bool:
        """Whether a constructor that others call may make an accelerator for them: not where they choose the device."""
        chosen = chooses_device(self.state, self.reach.unit(init), init)
        return init in self.program.shared and first_statement(init) is not None and not chosen

    def _may_train(self) -> set[Code]:
        """The functions that train for files outside the program as well, and prepare nothing there: those hand over
        what they have made themselves."""
        program = self.program
        codes = {self.reach.function_of(record.node) for record in program.training.backwards} & program.shared.keys()
        prepares = {unit.names.function(prepare.wraps or prepare.node) for unit, prepare in self.plan.prepares}
        given = (may_be_given(self.reach, program.shared, code) for code in codes)
        return {function for functions in given if prepares.isdisjoint(functions) for function in functions}

    def _trainers(self) -> dict[Klass, None]:
        """The classes whose methods prepare something, or run a backward pass."""
        return {klass: None for _, klass in self._methods(self._training_codes())}

    def _training_codes(self) -> list[Code]:
        """The code that prepares something, or runs a backward pass."""
        codes = [self.reach.function_of(record.node) for record in self.program.training.backwards]
        return codes + [unit.names.function(prepare.node) for unit, prepare in self.plan.prepares]


def _goes_to_current(placement: Placement) -> bool:
    """Whether a move that stays without the accelerator goes to the device that it has chosen: ``noise.cuda()``."""
    call = placement.node
    return (
        placement.move is Move.RETARGET and isinstance(call, cst.Call) and method_name(call) == "cuda" and not call.args
    )


def _ready(way: Way, names: Iterable[str]) -> bool:
    """Whether names have their values where the accelerator is made."""
    if way.home is None or way.code is None:
        return False
    unit, home = way.home
    bindings = (unit.names.scopes[way.code].lookup(name) for name in names)
    made = [d for b in bindings if b is not None for d in b.definitions if isinstance(d, cst.Name)]
    return all(unit.names.order(definition) < unit.names.order(home.node) for definition in made)
