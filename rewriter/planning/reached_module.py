"""The facts of one module, once the accelerator's way is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.running_order import may_follow
from ..analysis.dataflow.values import State, Unit, origins
from ..analysis.devices.choosers import assigned, does_more
from ..analysis.devices.device_fields import (
    DeviceField,
    class_around,
    fields_of_class,
    follows_field,
    is_superseded,
    redefined,
)
from ..analysis.devices.scattered import unmoved_input
from ..analysis.diagnostics.alike_draws import alike_draws
from ..analysis.diagnostics.own_noise import own_noise
from ..analysis.distributed.cuda_guards import CudaGuards
from ..analysis.effects import checkpoints
from ..analysis.effects.folders import made_by_all, may_be_there
from ..analysis.effects.unseen import before_training
from ..analysis.layouts.by_hand.plan import ShardedBatches
from ..analysis.layouts.rows_done import rows_done
from ..analysis.layouts.running_figures import running_figures
from ..analysis.syntax.nodes import is_docstring
from ..analysis.syntax.walk import descendants
from ..analysis.training.early_lengths import early_lengths
from ..analysis.training.hand_schedules import hand_schedules
from ..analysis.training.step_counts import counts
from ..analysis.training.training import is_loss
from ..facts.accelerator import Home, Side, Store
from ..facts.effects import EffectKind
from ..facts.legacy import Legacy
from ..facts.module import Call, Count, Fact, Form, Gather, ModuleFacts
from ..facts.module_paths import ENTRY
from ..facts.placement import DeviceRead, Move, Placement
from ..facts.reasons.devices import ChosenForOthers, PinnedForOthers
from ..facts.reasons.distributed import Unconnected
from ..facts.roles import Role
from .accelerator_path import Way
from .collected import Collected, called_name
from .device_reads import device_reads, vanished
from .distribution_edits import replaced
from .early_draws import Before, is_past
from .former_wrappers import idle_choices, own_names, same_branches, unwrapped_branches
from .holders import base_call, receiver
from .numbered_gpus import NumberedGpus
from .shared_code import shared_ways
from .shared_reductions import shared_reductions, without_data
from .unreachable import (
    dead_caller,
    unmoved,
    unreached_backwards,
    unreached_effects,
    unreached_saves,
    unreached_waits,
    unreached_work,
)

_SHOWN = (EffectKind.PRINT, EffectKind.CONSOLE)
_BROUGHT = (EffectKind.DOWNLOAD, EffectKind.FETCH)
_ON_CPU = (("cpu", "True"),)


class ReachedModule:
    """
    What was found in one module, as the accelerator's way divides it.

    Args:
        found: what was found.
        way: where the accelerator reaches.
    """

    def __init__(self, found: Collected, way: Way) -> None:
        self._found, self._way = found, way
        self._program, self._unit = found.program, found.unit
        self._shared = shared_ways(found.program.reach, found.program.shared, way.code)

    def here(self, node: cst.CSTNode) -> bool:
        """Whether the accelerator is there when a node runs."""
        way = self._way
        code = self._unit.names.function(node)
        if code not in way.reaches or self._before_existing(code, node):
            return False
        if code is not way.code or way.home is None:
            return True
        return not _stands_before(self._unit, node, way.home[1])

    def redefines(self, field: DeviceField) -> bool:
        """Whether an attribute can be given the accelerator's device where it is set: not by what comes before that."""
        home = self._way.home[1] if self._way.home is not None else None
        before = home is not None and home.side is Side.AFTER and home.node is field.statement
        return self.here(field.target) and not before

    def _is_set_anew(self, field: DeviceField) -> bool:
        """Whether an attribute is given the accelerator's device where the accelerator, which follows it, is made."""
        if is_superseded(field, self._program.state):
            return True
        unit, home = self._way.home if self._way.home is not None else (None, None)
        if home is None or unit is not self._unit:
            return False
        if class_around(unit, home.node) is not class_around(unit, field.target):
            return False
        return home.gives.startswith(f"{unit.names.module.code_for_node(field.target)} = ")

    def facts(self) -> ModuleFacts:
        """All that the rules are told of the module."""
        program, unit, found, way, here = self._program, self._unit, self._found, self._way, self.here
        settings, told = program.settings, list(found.findings)
        prepares = tuple(p for u, p in found.plan.prepares if u is unit)
        behind = {code for code in way.behind - way.reaches if code in unit.names.scopes}
        (ahead, early), new = self._ahead(), program.existing is None
        dead = self._dead()
        numbered = NumberedGpus(found, way, here, self.redefines)

        def attained(node: cst.CSTNode) -> bool:
            return here(node) or unit.names.function(node) in way.behind or node in ahead or node in early

        def joined(node: cst.CSTNode) -> bool:
            return here(node) or unit.names.function(node) in way.after

        told.extend(ChosenForOthers(s) for s in found.lent_choices if not joined(s))  # after that it has no effect
        told.extend(unreached_backwards(unit, program.reach, found.calls, self._shared, here, existing=not new))
        transparent = program.abilities.transparent_models
        anyway = made_by_all(program.state, (e.node for e in found.effects if not attained(e.node) and not e.optional))
        effects = [e for e in found.effects if e.node not in anyway]
        told.extend(
            unreached_effects(
                effects, found.handles, found.received, lambda n: attained(n) or not self._is_run_by_all(n), self._why
            )
        )
        late = (w for w in found.read_back if way.code and may_follow(program.reach, unit, w.node, way.code))
        told.extend(unreached_waits(late, attained))  # what never runs after the training reads no file of it
        apart = [s for s in found.saves if not here(s.call) and attained(s.call) and (transparent or not s.whole)]
        guarded = {s: write for s in apart if (write := checkpoints.as_write(unit, s)) is not None}
        whole = {e.node for e in effects if e.kind is EffectKind.WRITE and attained(e.node)}
        effects += (each for each in guarded.values() if whole.isdisjoint(unit.names.ancestors(each.node)))
        told.extend(unreached_saves([s for s in found.saves if s not in guarded], here))
        told.extend(may_be_there(folder) for folder in anyway.values())
        told.extend(unreached_work(unit, prepares, found.gathers, self._shared, here, joined, dead=dead))
        told.extend(unmoved(a.loop) for a in found.arrivals if not here(a.loop))
        for given in found.scattered:
            if not isinstance(given, Placement):
                told.append(given)
            elif not here(given.node):
                told.append(unmoved_input(unit, given.node))

        home = way.home[1] if way.home is not None and way.home[0] is unit else None
        if home is not None and home.gives and settings.flag is not None:
            handed = {n for _, h in way.handings if h.replaces is not None for n in descendants(h.replaces)}
            if handed.issuperset(settings.flag.reads):
                home = home._replace(gives="")
        instead = [home.node, *home.removed] if home and home.side is Side.INSTEAD else []
        removed = {n for d in instead for n in descendants(d)}
        if home is not None and home.side is Side.BEFORE:
            removed.update(n for d in home.removed for n in descendants(d))
        if found.hand is not None and way.home is not None and not way.joins and unit is way.home[0]:
            told.append(Unconnected(way.home[1].node))
        placed = (*found.placements, *found.wrappers, *found.unwrapped)
        gone = vanished(unit, way, placed, found.precision(), removed)
        reads = list(device_reads(program.state, program.reach, unit, way, gone))
        gone.update(read.node for read in reads)
        fields = [f for f in program.fields if f.unit is unit and self.redefines(f)]
        kept = [read for field in fields for read in redefined(field, program.state, gone)]
        kept = [read for read in kept if not self._gives_device(read.node)]
        whole = {n for read in kept for n in descendants(read.node)}  # what is read in it goes with it
        reads = [*(read for read in reads if read.node not in whole), *kept]
        reads.extend(DeviceRead(v, n.word) for u, n in way.redefined if u is unit for v in n.values if v not in gone)
        lost = [home.node, *home.removed] if home is not None and home.side is Side.INSTEAD else []
        lost += home.removed if home is not None and home.side is Side.BEFORE else ()
        values = [assigned(statement) for statement in lost] + [read.node for read in reads]
        still = [v for v in dict.fromkeys(values) if isinstance(v, cst.Call) and self._is_called_still(v)]
        told.extend(settings.constants.findings(unit, way.home[0] if way.home else None) if new else ())
        pieces = (
            replaced(found.hand, program.state, unit, way, self._aimed(gone), here) if found.hand is not None else ()
        )
        placements = tuple(p for p in found.placements if self._moves(p))
        pins = found.pins if new and found.hand is None else ()
        told.extend(PinnedForOthers(pin.node) for pin in pins if pin not in placements)
        flagged = settings.flag is not None and way.home is not None and "cpu" in dict(way.home[1].arguments)
        cpu = settings.flag.said(unit) if settings.flag is not None and flagged else None
        questions = CudaGuards(program.state, program.reach, unit, placements if new else (), cpu)
        guards = list(questions.opened())
        told.extend(guard for guard in guards if not isinstance(guard, (cst.If, cst.IfExp)))
        window, unsynced = settings.window, settings.unsynced
        plain = transparent or not found.unwrapped
        moved = {p.node for p in placements if p.move is Move.HOST}

        def at(gather: Gather) -> bool:
            return (joined if gather.form is Form.RECEIVE else here)(gather.node)

        return ModuleFacts(
            module=unit.names.module,
            accelerator=program.name,
            abilities=program.abilities,
            keep_global_batch=program.config.keep_global_batch,
            mixed_precision=self._mixed_precision(),
            precision=found.precision(),
            accumulation=window.fact if window is not None and window.unit is unit else None,
            accumulation_steps=window.steps if window is not None else None,
            unsynced=unsynced[1] if unsynced is not None and unsynced[0] is unit else None,
            existing=program.existing is not None,
            calls=tuple(self._call(call) for call in found.calls),
            home=home,
            hand_downs=tuple(h for u, h in way.hand_downs if u is unit),
            handings=tuple(h for u, h in way.handings if u is unit),
            stores=tuple(_stores(unit, way)),
            given_back=way.given_back[1:] if way.given_back is not None and way.given_back[0] is unit else None,
            spelled={code: name for code, name in way.spelled.items() if code in unit.names.scopes},
            behind=frozenset(behind),
            ahead=ahead,
            early=early,
            on_cpu=way.home is not None and way.home[1].arguments == _ON_CPU,
            placements=placements,
            arrivals=tuple(a for a in found.arrivals if here(a.loop)),
            opened=tuple(guard for guard in guards if isinstance(guard, (cst.If, cst.IfExp))),
            closed=tuple(questions.closed()),
            device_reads=tuple(reads),
            still_called=tuple((unit.names.statement(call), call) for call in still),
            connects=way.joins,
            visible=tuple(found.visible),
            numbered=tuple(dict.fromkeys(numbered.beside(gone))) if way.home is not None or not new else (),
            legacy=tuple(t for t in found.legacy if t.placed or t.use is Legacy.UNSURE or here(t.node)),
            wrappers=tuple(found.wrappers),
            unwrapped_branches=(
                *unwrapped_branches(unit, found.wrappers),
                *(same_branches(unit, found.inner_models) if plain else ()),
            ),
            by_hand=tuple(pieces),
            unwrapped=tuple(found.unwrapped),
            settings=tuple(found.hand.imports()) if found.hand is not None and home is not None else (),
            inner_models=tuple(found.inner_models),
            idle_choices=tuple(idle_choices(unit, found.inner_models)) if plain else (),
            deferred=tuple(found.deferred),
            own_names=tuple(own_names(unit, found.inner_models)) if plain else (),
            of_wrappers=tuple(found.of_wrappers),
            wrapper_reads=tuple(found.wrapper_reads),
            for_wrappers=tuple(found.for_wrappers),
            prefixed=tuple(found.prefixed),
            cuts_batches=self._cuts_batches(),
            prepares=tuple(p for p in prepares if here(p.wraps or p.node)),
            loader_copies=tuple(copy for u, copy in found.plan.copies if u is unit),
            hand_batches=tuple(b for b in found.hand_batches if here(b.node)),
            row_counts=tuple(found.row_counts),
            gathers=shared_reductions(unit, [without_data(unit, g, moved) for g in found.gathers if at(g)]),
            effects=tuple(e for e in effects if attained(e.node)),
            handles=tuple(h for h in found.handles if attained(h.call)),
            folders=(*found.folders, *anyway.values()),
            received=tuple(r for r in found.received if attained(r.node)),
            plain_models=tuple(m for m in found.plain_models if here(m)),
            saves=tuple(s for s in found.saves if here(s.call)),
            state_dicts=tuple(s for s in found.state_dicts if here(s.call)),
            loads=tuple(ld for ld in found.loads if ld.on_host or not ld.needs_map or here(ld.call)),
            read_back=tuple(w for w in found.read_back if attained(w.node)),
            schedules=tuple(s for u, s in found.plan.schedules if u is unit),
            counts=() if program.settled else tuple(self._counts()),
            swaps=tuple(program.swaps.imports.get(unit, ())),
            unswapped=tuple(f for u, f in program.swaps.findings if u is unit),
            findings=tuple(told),
            roles=tuple(roles(program.state, unit)),
            behaviour=found.behaviour,
        )

    def _ahead(self) -> tuple[frozenset[cst.CSTNode], frozenset[cst.CSTNode]]:
        """What asks which process this is where the accelerator is not, or not yet: what is shown, written or
        downloaded, what keeps a file open, and the waits for a file. And of these what asks the environment alone,
        because nothing may be chosen there: it neither waits nor lets others wait."""
        found = self._found
        shown = [e.node for e in found.effects if e.kind in _SHOWN]
        waits = [wait.node for wait in found.read_back]
        kept = [n for h in found.handles for n in (h.call, *([h.value.value] if h.value is not None else []))]
        written = [e.node for e in found.effects if e.kind is EffectKind.WRITE]
        for save in found.saves:
            if self._program.abilities.transparent_models or not save.whole:
                if (line := checkpoints.as_write(self._unit, save)) is not None:
                    written += [save.call, line.node]
        brought = [e.node for e in found.effects if e.kind in _BROUGHT]
        behind, named = self._way.behind, self._unit.names
        away = {node for node in (*shown, *waits, *kept, *written, *brought) if not self.here(node)}
        nodes = {node for node in away if self._knows_itself(node)}
        early = {node for node in away - nodes if self._may_ask_early(node)} - {*waits, *brought}
        if any(w in away and w not in nodes and named.function(w) not in behind for w in waits):
            nodes.difference_update(written)  # nobody could wait for them
            early.difference_update(written)
        return frozenset(nodes), frozenset(early)

    def _why(self, node: cst.CSTNode) -> str:
        """What keeps the accelerator from some code, as the end of a sentence."""
        code = self._unit.names.function(node)
        if isinstance(code, cst.Module) and self._unit.place.name != ENTRY:
            return "it runs where this module is imported, before the accelerator is created"
        home, shared = self._way.home, self._shared.get(code)
        chosen = dict(home[1].arguments).get("cpu") if home is not None else None
        early = chosen is not None and Before(self._program.reach, self._way)(self._unit, node)
        if early and not self._knows_itself(node) and (shared is not None or self._may_ask(node)):
            return f"it knows its rank only once the accelerator is created, with `cpu={chosen}`"
        if shared is not None:
            return f"{shared} uses this function too, and has no accelerator"
        return "this code has no access to the accelerator"

    def _gives_device(self, call: cst.CSTNode) -> bool:
        """Whether a call hands over the accelerator and gets its device back: in the function that takes its place."""
        if not isinstance(call, cst.Call) or all(handing.call is not call for _, handing in self._way.handings):
            return False
        for code in self._program.reach.called(call):
            names = self._program.reach.unit(code).names
            given = [answer.value for answer in names.returns.get(code, ())]
            if not all(isinstance(each, cst.Name) and names.binding(each) in self._way.replaced for each in given):
                return False
        return True

    def _is_called_still(self, call: cst.Call) -> bool:
        """Whether a call from which the script had its device does more, and the accelerator's arguments make none."""
        text, home = self._unit.names.module.code_for_node(call), self._way.home
        asked = home is not None and any(text in said for _, said in home[1].arguments)
        alone = assigned(self._unit.names.statement(call)) is call
        removed = self._program.hand.removed if self._program.hand is not None and self._way.joins else ()
        return alone and not asked and does_more(self._program.state, call, removed)

    def _knows_itself(self, node: cst.CSTNode) -> bool:
        """
        Whether a process may learn before it creates the accelerator which one it is.

        Not where the script chooses the device, or sets the environment, after it; not in the workers of a loader, in
        code that other files use, or where a module is imported. A script that stays on the CPU chooses nothing, and
        what has created the accelerator on every way has chosen.
        """
        settled = self._way.home is not None and self._way.home[1].arguments in ((), _ON_CPU)
        return (settled or is_past(self._program.reach, self._way, self._unit, node)) and self._may_ask(node)

    def _may_ask(self, node: cst.CSTNode) -> bool:
        """Whether a process may learn that, if the arguments of the accelerator were known there."""
        program, way, code = self._program, self._way, self._unit.names.function(node)
        if program.existing is not None or program.hand is not None or program.config.launched:
            return False
        if way.home is None or code in self._shared:
            return False
        order = self._unit.names.order
        for unit, sets in program.environment:
            before = unit is self._unit and unit.names.function(sets) is code and order(sets) < order(node)
            if not before and unit.names.statement(sets) not in self._found.visible:
                return False
        if isinstance(code, cst.Module):
            return self._unit.place.name == ENTRY
        return code in program.reach.above(way.code) or code not in program.given_away

    def _may_ask_early(self, node: cst.CSTNode) -> bool:
        """Whether a process may ask the environment which one it is, and has a reason to."""
        program = self._program
        able = program.abilities.early_state and program.existing is None and program.hand is None
        return able and self._unit.names.function(node) not in self._way.behind and self._is_run_by_all(node)

    def _is_run_by_all(self, node: cst.CSTNode) -> bool:
        """Whether not the process of a notebook alone runs a node: that starts the others only for the training."""
        code, reach = self._unit.names.function(node), self._program.reach
        if not self._program.config.launched or self._way.code is None:
            return True
        started = [above for above in reach.above(self._way.code) if not isinstance(above, cst.Module)]
        return not started or any(code in reach.below(above) for above in started)

    def _counts(self) -> Iterator[Count]:
        """What each process counts, or collects, for itself."""
        found, program, unit = self._found, self._program, self._unit
        state, reach, training = program.state, program.reach, program.training
        yield from counts(unit, training, found.loops, found.gathers)
        yield from rows_done(state, unit, training, found.loops, program.config.keep_global_batch)
        yield from hand_schedules(reach, unit, training, found.loops)
        yield from found.averages
        yield from alike_draws(state, unit, reach)
        yield from own_noise(state, unit, reach, training, self._loops_by_hand())
        yield from (one for one in before_training(state, unit, reach, training) if self._is_run_by_all(one.node))
        yield from early_lengths(state, unit, found.before_prepare)
        yield from running_figures(state, reach, unit, training, found.effects, found.gathers)

    def _cuts_batches(self) -> bool:
        """Whether batches that no loader yields are cut into shards, and no loader feeds a training."""
        cut = self._program.batches
        return isinstance(cut, ShardedBatches) and bool(cut.batches) and not cut.beside_loaders

    def _loops_by_hand(self) -> Sequence[cst.CSTNode]:
        """The loops of trainings whose batches are cut into shards."""
        cut = self._program.batches
        return cut.loops if isinstance(cut, ShardedBatches) and cut.batches else ()

    def _aimed(self, gone: set[cst.CSTNode]) -> set[cst.CSTNode]:
        """What goes, and what the moves that stay have in their place."""
        return (
            gone
            | {n for p in self._found.placements if p.target is not None for n in descendants(p.target)}
            | {
                n
                for p in self._found.placements
                if p.move is Move.RETARGET
                for a in getattr(p.node, "args", ())
                for n in descendants(a)
            }
        )

    def _mixed_precision(self) -> str | None:
        asked = self._program.config.mixed_precision
        if asked is not None:
            return f'"{asked}"'
        return self._program.settings.precision.value if self._program.settings.precision is not None else None

    def _moves(self, placement: Placement) -> bool:
        """Whether a move can be changed: aimed where the accelerator is, dropped where nobody else needs it."""
        if placement.move is Move.PLACE:
            return placement.beside is not None or self.here(placement.node)
        if placement.move is Move.RETARGET:
            fields = self._program.redefined | self._program.given
            own = fields_of_class(self._program.fields, self._unit, placement.target)
            stays = bool(own) and all(self.redefines(field) or self._is_set_anew(field) for field in own)
            stays = stays or follows_field(placement, fields)
            stays = stays or self._program.settings.constants.followed(placement)
            return self.here(placement.node) and not stays
        code, program = self._unit.names.function(placement.node), self._program
        brings_none = code in program.optional and code not in program.trainers
        return code not in self._shared or (self.here(placement.node) and not brings_none)

    def _dead(self) -> bool:
        """Whether a function that nothing calls keeps the accelerator from a backward pass."""
        reach = self._program.reach
        codes = {reach.function_of(record.node) for record in self._program.training.backwards}
        return any(dead_caller(reach, code) is not None for code in codes - self._way.reaches)

    def _before_existing(self, code: Code, node: cst.CSTNode) -> bool:
        """Whether a node comes before the line that creates the script's own accelerator."""
        if self._program.existing is None or self._program.existing[0] is not self._unit:
            return False
        made, names = self._program.existing[1].node, self._unit.names
        return names.function(made) is code and names.order(node) < names.order(made)

    def _call(self, call: cst.Call) -> Call:
        state, training = self._program.state, self._program.training
        record = state.calls[call]
        name = called_name(record)
        role, because = None, ""
        if origins(record.receiver, Role.ACCELERATOR):
            role, because = Role.ACCELERATOR, "the accelerator's own"
        elif name == "backward" and record in training.backwards:
            loss, because = is_loss(state, record)
            role = Role.LOSS if loss else None
        asks = record in training.backwards and not self._program.settled
        reduction = self._program.loss_reductions.of(record).word if asks else "mean"
        return Call(call, name, outside_name(record), role, because, self.here(call), reduction)


def _stores(unit: Unit, way: Way) -> Iterable[Store]:
    """The constructors of a module that keep the accelerator, and where."""
    for init, owner in way.stores.items():
        if owner is unit:
            base = base_call(init)
            body = [s for s in getattr(init.body, "body", ()) if not is_docstring(s)]
            if base is not None and init not in way.early_stores:
                yield Store(base, Side.AFTER, receiver(init))
            else:
                yield Store(body[0], Side.BEFORE, receiver(init))


def _stands_before(unit: Unit, node: cst.CSTNode, home: Home) -> bool:
    """Whether a node of the home's code runs before the accelerator is made."""
    order = unit.names.order
    return order(node) < order(home.node)


def roles(state: State, unit: Unit) -> Iterable[Fact]:
    """What every variable of a module was taken for."""
    for scope in unit.names.scopes.values():
        for binding in scope.bindings.values():
            if binding.name == "self":
                continue
            for origin in origins(state.binding(binding)):
                node = binding.definitions[0] if binding.definitions else unit.names.module
                yield Fact(node, binding.name, scope.qualname, origin.role, origin.because)
