"""Moves to a device: what the script moves, and what becomes of each move."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

import libcst as cst

from ...facts.placement import Move, Placement
from ...facts.reasons import Reason
from ...facts.reasons.devices import TwofoldModule
from ...facts.roles import TENSORS, Origin, Role
from ...facts.torch_api import process_calls, questions
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import State, Unit, Unknown, Wrapped, origins
from ..syntax.definitions import unshadowed
from ..syntax.nodes import keyword
from ..syntax.walk import contains, descendants, nodes_in
from ..training.training import Training, whole
from .after_prepare import NewLayers
from .batch_moves import copy_of
from .constants import gpus_by_number
from .gpu_numbers import is_called_one, is_number
from .made_on_host import MadeOnHost
from .use_before_prepare import Early, Stands


class Mover:
    """Decides for every move what becomes of it."""

    def __init__(
        self,
        state: State,
        reach: Reach,
        training: Training,
        *,
        prepared: set[Origin],
        arriving: Iterable[Origin] = (),
        stands: dict[Origin, Stands],
        existing: bool,
        shared: Mapping[Code, str],
        whole: Container[cst.CSTNode] = (),
    ) -> None:
        """
        ``prepared``: what is prepared, ``stands``: where; ``arriving``: loaders that stay whole, and whose batches are
        moved as they come; ``existing``: the script works with an accelerator already,
        and has made its own moves; ``shared``: functions that files outside the program call, each with one of those;
        ``whole``: loops that read a loader of their own, beside the prepared one.
        """
        self.shared, self.stands, self.whole = shared, stands, whole
        self.state, self.reach, self.training = state, reach, training
        self.prepared, self.existing = prepared, existing
        self.placed = prepared.union(arriving)
        self.early = Early(state, reach, training, stands)
        self.new_layers = NewLayers(state, reach, stands)
        self.made_on_host = MadeOnHost(state, reach, training.forwards)

    def placements(self, unit: Unit) -> list[Placement]:
        """The placements of a module that the script reaches, in source order."""
        found = []
        for call in unit.names.calls:
            if call not in self.state.calls or unit.names.function(call) not in self.reach.reachable:
                continue
            if self.is_move(call):
                if not self._in_helper(unit, call):
                    found.append(self._decide(unit, call))
            elif (made := self._on_numbered(unit, call)) is not None:
                because = "{} is created on the GPU of its process"
                found.append(Placement(call, Move.RETARGET, because, target=made, spare=True))
        return _merged(found)

    def _on_numbered(self, unit: Unit, call: cst.Call) -> cst.BaseExpression | None:
        """The device on which a call of torch creates something, if that is a GPU by its number."""
        name = outside_name(self.state.calls[call])
        value = keyword(call, "device") if name.startswith("torch.") and not name.startswith("torch.cuda.") else None
        named = isinstance(value, (cst.Name, cst.Attribute)) and origins(self.state.values.get(value))
        if value is None or named or self.existing:
            return None
        return value if any(gpus_by_number(value)) or is_number(self.state, unit, value) else None

    def _in_helper(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a move is in a function that moves whatever it gets to the device it gets: such a helper
        stays, and is given the accelerator's device."""
        function = unit.names.function(call)
        argument = self._device_argument(call)
        if not isinstance(function, cst.FunctionDef) or argument is None or not isinstance(argument.value, cst.Name):
            return False
        binding = unit.names.binding(argument.value)
        if binding is None or not any(isinstance(d, cst.Param) for d in binding.definitions):
            return False
        if self._numbered(call, argument.value):
            return False  # whoever calls it has a number, and no device
        work = {record.node for record in (*self.training.backwards, *self.training.steps)}
        runs = self.reach.runs(function.body, unit)
        works = any(n in work or n in self.training.forwards or bool(self.state.loaders.get(n)) for n in runs)
        return not works and bool(unit.names.returns.get(function))

    def unwrapped(self, unit: Unit, wrappers: frozenset[str]) -> list[Placement]:
        """``nn.DataParallel(model)`` and its like: the accelerator takes its place, so that the wrapping goes."""
        found = []
        for call in unit.names.calls:
            if call not in self.state.calls or unit.names.function(call) not in self.reach.reachable:
                continue
            if outside_name(self.state.calls[call]) in wrappers and call.args:
                statement = unit.names.statement(call)
                small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
                reason = "the accelerator does the data parallelism"
                alone = isinstance(small, cst.Assign) and self._gives_itself(small)
                if isinstance(small, cst.Assign) and alone and not self._stays(unit, small.value):
                    found.append(Placement(call, Move.STATEMENT, reason, statement=statement))
                else:
                    found.append(Placement(call, Move.UNWRAP, reason))
        return found

    def _stays(self, unit: Unit, value: cst.BaseExpression) -> bool:
        """Whether a move in a value is still needed, of a teacher that nothing prepares."""
        moves = (n for n in nodes_in(value, cst.Call) if n in self.state.calls and self.is_move(n))
        return any(self._decide(unit, move).move is Move.RETARGET for move in moves)

    def _wraps(self, value: cst.BaseExpression) -> bool:
        calls = (n for n in nodes_in(value, cst.Call) if n in self.state.calls)
        return any(process_calls.is_wrapper(outside_name(self.state.calls[call])) for call in calls)

    def _gives_itself(self, assign: cst.Assign) -> bool:
        """Whether an assignment only wraps and moves what it assigns: ``net = nn.DataParallel(net).cuda()``."""
        node = assign.value
        while isinstance(node, cst.Call) and node in self.state.calls:
            if process_calls.is_wrapper(outside_name(self.state.calls[node])) and node.args:
                node = node.args[0].value
            elif self.is_move(node) and isinstance(node.func, cst.Attribute):
                node = node.func.value
            else:
                break
        return len(assign.targets) == 1 and bool(assign.targets[0].target.deep_equals(node))

    def wrapping(self, node: cst.BaseExpression, wrappers: frozenset[str]) -> set[str]:
        """Those of some wrappers that a value may be in."""
        slot = self.state.values.get(node)
        held = [thing for thing in slot.things if isinstance(thing, Wrapped)] if slot is not None else []
        return {outside_name(self.state.calls[wrapper.node]) for wrapper in held} & wrappers

    def inner(self, unit: Unit, wrappers: frozenset[str]) -> list[cst.Attribute]:
        """``model.module`` where the model may come from one of the wrappers that are removed."""
        return [
            node
            for node in self.state.evaluated(unit)
            if isinstance(node, cst.Attribute)
            and node.attr.value == "module"
            and not isinstance(unit.names.parents[node], cst.AssignTarget)
            and self.wrapping(node.value, wrappers)
            and unit.names.function(node) in self.reach.reachable
        ]

    def of_wrappers(self, unit: Unit, wrappers: frozenset[str]) -> list[cst.Attribute]:
        """``model.device_ids`` and ``model.module = net`` where the model is no longer wrapped: nothing has that
        attribute any more."""
        found = []
        for node in unit.names.every(cst.Attribute) if wrappers else ():
            assert isinstance(node, cst.Attribute)
            runs = unit.names.function(node) in self.reach.reachable
            around = self.wrapping(node.value, wrappers) if runs else set()
            if node.attr.value == "module":
                if around and isinstance(unit.names.parents[node], cst.AssignTarget):
                    found.append(node)
            elif any(node.attr.value in process_calls.wrapper_attributes(name) for name in around):
                slot = self.state.values.get(node)
                if slot is None or all(isinstance(thing, Unknown) for thing in slot.things):
                    found += [node] if not _asked_before(unit, node) else []
        return found

    def twofold(self, nodes: Iterable[cst.Attribute]) -> Iterator[Reason]:
        """Findings for those of some ``model.module`` that may as well be an attribute of the model's own."""
        for node in nodes:
            for thing in self.state.slot(node.value).things:
                if not isinstance(thing, Wrapped) and self.state.field(thing, "module").things:
                    yield TwofoldModule(node, thing.qualified if isinstance(thing, Origin) else "")
                    break

    def pins(self, unit: Unit) -> list[Placement]:
        """Statements that pin the process to one GPU by number: the launcher gives each process its own."""
        found = []
        for call in unit.names.calls:
            if call in self.state.calls and process_calls.pins(outside_name(self.state.calls[call])):
                statement = unit.names.statement(call)
                if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
                    reason = "the launcher assigns a device to each process"
                    found.append(Placement(call, Move.STATEMENT, reason, statement=statement))
        return found

    def is_move(self, call: cst.Call) -> bool:
        """Whether a call moves its receiver to a device that the script chose."""
        if not isinstance(call.func, cst.Attribute) or call not in self.state.calls:
            return False
        if origins(self.state.calls[call].receiver, Role.ACCELERATOR):
            return False
        name = method_name(call)
        if name == "cuda":
            return self._can_move(call)
        if name == "cpu":
            return self._is_other_side(call)
        return name == "to" and self._device_argument(call) is not None

    def _is_other_side(self, call: cst.Call) -> bool:
        """``else: x = x.cpu()``, where ``x`` moves to the GPU otherwise, and comes on the accelerator's device."""
        unit, held = self.state.calls[call].unit, self._held(self.state.calls[call].unit, call)
        assert isinstance(call.func, cst.Attribute)
        for around, below in unit.names.outwards(call):
            if isinstance(around, cst.If) and below is around.orelse and isinstance(below, cst.Else):
                moved = [c.func for c in nodes_in(around.body, cst.Call) if method_name(c) != "cpu" and self.is_move(c)]
                same = any(isinstance(f, cst.Attribute) and f.value.deep_equals(call.func.value) for f in moved)
                return same and self.arrives_placed(unit, held, call) is not None
        return False

    def _can_move(self, call: cst.Call) -> bool:
        """
        Whether the receiver of ``.cuda()`` is something that torch moves, and not an object of a class of the script.

        Where nothing is known of it, and a number is given or a function got it, it is moved only if that takes its
        place: ``x = x.cuda(1)``, not ``toolkit.cuda(12)``. A storage, ``lambda storage, _: storage.cuda()``, has
        another ``to``.
        """
        receiver = self.state.calls[call].receiver
        if receiver is None or self.reach.called(call):
            return False
        if any(isinstance(t, (Origin, Unknown)) for t in receiver.things):
            return True
        if receiver.things or not isinstance(call.func, cst.Attribute):
            return False
        unit, moved = self.state.calls[call].unit, call.func.value
        assign = unit.names.parents.get(call)
        target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
        if target is not None and target.deep_equals(moved):
            return True
        binding = unit.names.binding(moved) if isinstance(moved, cst.Name) else None
        given = binding is not None and any(isinstance(d, cst.Param) for d in binding.definitions)
        return not given and not any(arg.keyword is None for arg in call.args)

    def _device_argument(self, call: cst.Call) -> cst.Arg | None:
        for position, arg in enumerate(call.args):
            if arg.star or (arg.keyword is not None and arg.keyword.value != "device"):
                continue
            held = origins(self.state.values.get(arg.value), Role.DEVICE, Role.PLACE)
            if is_host(arg.value):
                return None
            if any(o.qualified != "follows" for o in held):
                return arg
            if position == 0 and (self._named_device(arg.value) or arg.value in gpus_by_number(arg.value)):
                return arg
            if (position == 0 or arg.keyword is not None) and self._numbered(call, arg.value):
                return arg
        return None

    def _named_device(self, node: cst.BaseExpression) -> bool:
        """``args.device`` and the like: an attribute of something unknown that is called device."""
        if not isinstance(node, cst.Attribute) or node.attr.value not in ("device", "dev"):
            return False
        base = self.state.values.get(node.value)
        if base is None or origins(base):
            return False
        return any(isinstance(t, Unknown) and not questions.gives_tensor(t.qualified) for t in base.things)

    def _numbered(self, call: cst.Call, node: cst.BaseExpression) -> bool:
        """``model.to(0)``, ``x.to(self.gpu_id)``: a GPU by its number, which is the same one on every process."""
        record = self.state.calls[call]
        if origins(self.state.values.get(node)) or self.reach.called(call):
            return False
        if is_number(self.state, record.unit, node):  # for torch a number can be nothing else here
            return True
        if is_called_one(node, of_several=True):  # one of several is no type of numbers
            return True
        held = origins(record.receiver) if is_called_one(node) else []
        return bool(held) and all(o.role in TENSORS or o.role in (Role.MODEL, Role.CRITERION) for o in held)

    def _held(self, unit: Unit, call: cst.Call) -> list[Origin]:
        """What a move moves: nothing that a parameter was given, and that its function has certainly replaced."""
        held = origins(self.state.calls[call].receiver)
        name = call.func.value if isinstance(call.func, cst.Attribute) else None
        binding = unit.names.binding(name) if isinstance(name, cst.Name) else None
        seen = unshadowed(unit.names, binding, name) if binding is not None and name is not None else ()
        if not seen or not all(isinstance(definition, cst.Name) for definition in seen):
            return held
        return [o for o in held if any(o in self.state.slot(d).things for d in seen)] or held

    def _decide(self, unit: Unit, call: cst.Call) -> Placement:
        held = self._held(unit, call)
        argument = self._device_argument(call)
        keeps = tuple(a for a in call.args if a is not argument and not _is_keyword(a, "non_blocking"))
        if method_name(call) == "cuda":
            keeps = ()
        target = argument.value if argument is not None and method_name(call) != "cuda" else None
        user = self._lent(unit, call, held)
        gone = self.arrives_placed(unit, held, call) if user is None else None
        if gone is None:
            device = origins(self.state.values.get(target), Role.DEVICE) if target is not None else []
            if isinstance(target, cst.Name) and device and not origins(self.state.values.get(target), Role.PLACE):
                target = None  # the name is replaced where it is read
            why = self._why_kept(held, call) if user is None else f"{user} also runs this, and prepares nothing"
            return Placement(call, Move.RETARGET, why, target=target)
        copy = copy_of(unit.names, call) if not keeps else None
        statement = self._only_moves(unit, call) if not keeps else None
        if copy is not None and copy.text is None:
            statement = copy.node
        if statement is not None:
            return Placement(call, Move.STATEMENT, gone, statement=statement)
        copied = (copy.node, copy.text) if copy is not None and copy.text is not None else None
        return Placement(call, Move.LINK, gone, keeps=keeps, copied=copied)

    def _lent(self, unit: Unit, call: cst.Call, held: list[Origin]) -> str | None:
        """A file outside the program that runs a move as well, with nothing prepared: what prepares it here is not in
        code that the file runs."""
        user = self.shared.get(unit.names.function(call))
        sources = (o.source if o.role is Role.BATCH else whole(self.state, o) for o in held)
        stands = (self.stands.get(source) for source in sources if source is not None)
        inside = [s is not None and s.unit.names.function(s.prepare.node) in self.shared for s in stands]
        return None if inside and all(inside) else user

    def _why_kept(self, held: list[Origin], call: cst.Call) -> str:
        if held and all(o.role is Role.MODEL and whole(self.state, o) in self.prepared for o in held):
            if any(self.new_layers.may_precede(call, whole(self.state, o)) for o in held):
                return "the model may have got layers after prepare has placed it"
            return "the model is used before prepare places it"
        if held and all(o.role is Role.BATCH and o.source in self.prepared for o in held):
            return "{} may not always be a batch of the prepared loader: it moves to the accelerator's device"
        return "{} is no batch of a prepared loader: it moves to the accelerator's device"

    def arrives_placed(self, unit: Unit, held: list[Origin], call: cst.Call) -> str | None:
        """Why the receiver of a move is on the device already, or None where that is not certain."""
        if not held:
            return None
        models = [whole(self.state, o) for o in held if o.role is Role.MODEL]
        if models and len(models) == len(held) and all(m in self.prepared for m in models):
            needed = any(self.early.use(call, unit, model) is not None for model in models)
            away = any(self.early.away(call, unit, model) for model in models)
            grown = any(self.new_layers.may_precede(call, model) for model in models)
            return None if needed or away or grown else "`prepare` places {} on the device"
        if all(o.role is Role.CRITERION for o in held) and all(stateless(o) for o in held):
            return "a loss without state needs no device"
        batches = [o for o in held if o.role is Role.BATCH]
        if batches and len(batches) == len(held) and all(o.source in self.prepared for o in batches):
            if self.inside_model(unit, call) or not self.reach.always_in_batch_loop(call, unit):
                return None  # a batch drawn by hand may come from the loader before it is prepared
            loops = list(self.reach.batch_loops(call, unit))
            around = {loader for loop in loops for loader in self.reach.loaders(loop)}
            if any(loop in self.whole for loop in loops) or any(self.early.drawn(call, loader) for loader in around):
                return None
            if isinstance(call.func, cst.Attribute) and self.made_on_host(unit, call.func.value):
                return None
            return "the prepared loader yields {} on the device"
        return None

    def inside_model(self, unit: Unit, call: cst.CSTNode) -> bool:
        """Whether a call is in a class of torch's kinds, whose methods may get anything; not of what a loop over a
        loader in the same method gives."""
        around = (a for a in unit.names.ancestors(call) if isinstance(a, cst.ClassDef))
        klasses = any((klass := unit.classes.get(a)) is None or klass.role is not None for a in around)
        return klasses and not self._is_drawn_there(unit, call)

    def _is_drawn_there(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether the rows in an expression are those of a loop over a loader around it, in the same function."""
        loops = [loop for loop in self.reach.loops(node, unit) if self.state.loaders.get(loop)]
        inside = set(descendants(loops[-1])) if loops else set()
        names = [n for n in nodes_in(node, cst.Name) if origins(self.state.values.get(n), Role.BATCH)]
        bindings = [(unit.names.binding(name), name) for name in names]
        return bool(names) and all(
            b is not None and inside.issuperset(unshadowed(unit.names, b, n)) for b, n in bindings
        )

    def _only_moves(self, unit: Unit, call: cst.Call) -> cst.CSTNode | None:
        """The statement that does nothing but move values to where they are already, around a move."""
        line = unit.names.statement(call)
        around = set(unit.names.ancestors(call))
        suite = unit.names.parents.get(line)
        guard = unit.names.parents.get(suite) if isinstance(suite, cst.SimpleStatementSuite) else None
        if isinstance(guard, cst.If):
            return guard if self._is_guarded_move(unit, guard, call) else None
        if not isinstance(line, cst.SimpleStatementLine):
            return None
        small = next(s for s in line.body if s in around)
        statement: cst.CSTNode = line if len(line.body) == 1 else small
        if isinstance(small, cst.Expr):
            return statement if small.value is call else None
        if not isinstance(small, cst.Assign) or len(small.targets) != 1:
            return None
        if self._wraps(small.value):
            return statement if self._gives_itself(small) else None
        target, value = small.targets[0].target, small.value
        pairs: list[tuple[cst.CSTNode, cst.BaseExpression]] = [(target, value)]
        if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            if len(target.elements) != len(value.elements):
                return None
            pairs = [(t.value, v.value) for t, v in zip(target.elements, value.elements, strict=True)]
        for name, moved in pairs:
            if not self._moves_itself(unit, name, moved):
                return None
        return statement

    def _is_guarded_move(self, unit: Unit, line: cst.If, call: cst.Call) -> bool:
        """``if self.gpu: self.net.cuda()``, in one line, and nothing else."""
        alone = line.orelse is None and not isinstance(unit.names.parents.get(line), cst.If) and _is_still(line.test)
        small = (
            line.body.body[0] if isinstance(line.body, cst.SimpleStatementSuite) and len(line.body.body) == 1 else None
        )
        if isinstance(small, cst.Expr):
            return alone and small.value is call
        target = small.targets[0].target if isinstance(small, cst.Assign) and len(small.targets) == 1 else None
        return (
            alone
            and isinstance(small, cst.Assign)
            and target is not None
            and self._moves_itself(unit, target, small.value)
        )

    def _moves_itself(self, unit: Unit, name: cst.CSTNode, moved: cst.BaseExpression) -> bool:
        if isinstance(moved, cst.IfExp) and _is_still(moved.test):
            sides = (moved.body, moved.orelse)
            return any(
                name.deep_equals(one) and self._moves_itself(unit, name, other) for one, other in (sides, sides[::-1])
            )
        if isinstance(moved, cst.Name):
            return isinstance(name, cst.Name) and name.value == moved.value
        if not (isinstance(moved, cst.Call) and self.is_move(moved) and isinstance(moved.func, cst.Attribute)):
            return False
        held = self._held(unit, moved)
        if self.arrives_placed(unit, held, moved) is None:
            return False
        extra = [a for a in moved.args if a is not self._device_argument(moved) and not _is_keyword(a, "non_blocking")]
        if extra and method_name(moved) != "cuda":
            return False
        same: bool = name.deep_equals(unpinned(moved.func.value))
        return same


def _is_still(test: cst.BaseExpression) -> bool:
    """Whether a condition does nothing but read."""
    return not contains(test, cst.Call, cst.NamedExpr, cst.Await)


def unpinned(node: cst.BaseExpression) -> cst.BaseExpression:
    """A tensor without its ``.pin_memory()``, which only serves the move, and only on the CPU."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "pin_memory":
        node = node.func.value
    return node


def is_host(node: cst.BaseExpression) -> bool:
    """Whether an expression names the CPU outright: such a move is meant."""
    if isinstance(node, cst.Call) and method_name(node) == "device" and len(node.args) == 1:
        node = node.args[0].value
    return isinstance(node, cst.SimpleString) and node.evaluated_value == "cpu"


def stateless(criterion: Origin) -> bool:
    """Whether a loss module has no tensors of its own: constructed without a weight."""
    call = criterion.node
    if not isinstance(call, cst.Call) or not criterion.qualified.startswith("torch.nn."):
        return False
    return not any(a.keyword is None or a.keyword.value in ("weight", "pos_weight") for a in call.args)


def _asked_before(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a condition around a read asks what the object is: of a plain model nothing is read then."""
    around = (a.test for a in unit.names.enclosing(node, cst.If, cst.IfExp))
    calls = (n for test in around for n in nodes_in(test, cst.Call))
    return any(method_name(call) in ("isinstance", "hasattr") for call in calls)


def _is_keyword(arg: cst.Arg, name: str) -> bool:
    return arg.keyword is not None and arg.keyword.value == name


def _merged(found: list[Placement]) -> list[Placement]:
    """One placement for each removed statement, however many moves it contains."""
    statements: dict[cst.CSTNode, None] = {}
    result = []
    for placement in found:
        if placement.statement is not None:
            if placement.statement in statements:
                continue
            statements[placement.statement] = None
        result.append(placement)
    return result
