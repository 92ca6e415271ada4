"""Devices: where the script chooses one, what it moves there, and what becomes of each move."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from ..facts.module import Move, Placement
from ..facts.roles import Origin, Role
from . import knowledge
from .copies import copy_of
from .early import Early
from .names import Binding, ScopeKind
from .preparing import Plan
from .reach import Reach
from .things import State, Unit, Unknown, origins
from .training import Training, method_name, outside_name, whole
from .walk import descendants


@dataclass(eq=False)
class DeviceName:
    """A variable that holds the device, and the statements that define it."""

    binding: Binding
    definitions: list[cst.CSTNode] = field(default_factory=list)
    """Whole statements: an assignment, or an ``if`` whose branches do nothing else."""
    values: list[cst.BaseExpression] = field(default_factory=list)
    word: bool = False
    """It is a string in the script."""


def device_names(state: State, unit: Unit) -> list[DeviceName]:
    """The variables of a module that its own statements set to a device (parameters are not among them)."""
    found = []
    for scope in unit.names.scopes.values():
        if scope.kind is ScopeKind.CLASS:
            continue
        for binding in scope.bindings.values():
            name = _device_name(state, unit, binding)
            if name is not None:
                found.append(name)
    return found


def _device_name(state: State, unit: Unit, binding: Binding) -> DeviceName | None:
    if not binding.definitions or not all(isinstance(d, cst.Name) for d in binding.definitions):
        return None
    held = [t for t in state.binding(binding).things if isinstance(t, Origin)]
    if not held or any(o.role is not Role.DEVICE or o.qualified == "follows" for o in held):
        return None
    name = DeviceName(binding, word=all(o.qualified == "str" for o in held))
    for target in binding.definitions:
        parent = unit.names.parents[target]
        assign = unit.names.parents[parent] if isinstance(parent, cst.AssignTarget) else parent
        if not isinstance(assign, (cst.Assign, cst.AnnAssign)) or assign.value is None:
            return None
        if isinstance(assign, cst.Assign) and len(assign.targets) != 1:
            return None
        name.values.append(assign.value)
        statement = _whole_if(unit, unit.names.statement(target), binding)
        if statement not in name.definitions:
            name.definitions.append(statement)
    return name


def _whole_if(unit: Unit, statement: cst.CSTNode, binding: Binding) -> cst.CSTNode:
    """The outermost ``if`` around a definition whose branches all define nothing but the device."""
    while True:
        block = unit.names.parents.get(statement)
        around = unit.names.parents.get(block) if block is not None else None
        if isinstance(around, cst.Else):
            around = unit.names.parents.get(around)
        if not isinstance(around, cst.If) or not _only_defines(around, binding.name):
            return statement
        statement = around
        while isinstance(outer := unit.names.parents.get(statement), cst.If) and outer.orelse is statement:
            if not _only_defines(outer, binding.name):
                return statement
            statement = outer


def _only_defines(node: cst.If, name: str) -> bool:
    branch: cst.If | cst.Else | None = node
    while branch is not None:
        body = branch.body.body
        for statement in body:
            smalls = statement.body if isinstance(statement, cst.SimpleStatementLine) else [statement]
            for small in smalls:
                target = small.targets[0].target if isinstance(small, cst.Assign) else None
                if not (isinstance(target, cst.Name) and target.value == name):
                    return False
        branch = branch.orelse if isinstance(branch, cst.If) else None
    return True


# Which device the flags meant -----------------------------------------------------------------------------------------


def cpu_condition(state: State, unit: Unit, name: DeviceName) -> str | None:
    """The source text of the condition under which the script wanted the CPU; None where it took what there is."""
    statement = name.definitions[0]
    if isinstance(statement, cst.If):
        return _from_branches(state, unit, statement)
    return condition_of(state, unit, name.values[0])


def _from_branches(state: State, unit: Unit, node: cst.If) -> str | None:
    conditions: list[str] = []
    branch: cst.If | cst.Else | None = node
    while isinstance(branch, cst.If):
        line = branch.body.body[0]
        assign = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        wants_cpu = isinstance(assign, cst.Assign) and _is_cpu(state, unit, assign.value)
        otherwise = refused(state, unit, branch.test)
        if wants_cpu:
            conditions.append(_text(unit, branch.test))
        elif otherwise is None:
            return None
        else:
            conditions.append(otherwise)
        branch = branch.orelse
    if branch is None:
        return None
    return " and ".join(conditions) if conditions else None


def condition_of(state: State, unit: Unit, value: cst.BaseExpression) -> str | None:
    """The condition under which an expression that chooses a device gives the CPU; None where there is none."""
    if isinstance(value, cst.Call) and outside_name(state.calls[value]) == "torch.device" and value.args:
        return condition_of(state, unit, value.args[0].value)
    if isinstance(value, cst.IfExp):
        if _is_cpu(state, unit, value.body):
            return _text(unit, value.test)
        if _is_cpu(state, unit, value.orelse):
            chosen = isinstance(value.body, (cst.Name, cst.Attribute))
            otherwise = condition_of(state, unit, value.body) if chosen else None
            return refused(state, unit, value.test) or otherwise
        return None
    if isinstance(value, cst.SimpleString):
        return "True" if value.evaluated_value == "cpu" else None
    held = origins(state.values.get(value))
    chosen = isinstance(value, cst.Attribute) and all(o.qualified == "str" for o in held)
    chosen = chosen or _is_set_here(unit, value)
    if (isinstance(value, (cst.Name, cst.Attribute)) and not held) or chosen:
        return f'{_text(unit, value)} == "cpu"'
    return None


def _is_set_here(unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether the statement gives the device to what named it: ``args.device = torch.device(args.device)``."""
    assign = next(unit.names.enclosing(value, cst.Assign), None)
    return isinstance(assign, cst.Assign) and any(t.target.deep_equals(value) for t in assign.targets)


def _is_cpu(state: State, unit: Unit, value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.Call) and value.args and outside_name(state.calls[value]) == "torch.device":
        value = value.args[0].value
    return isinstance(value, cst.SimpleString) and value.evaluated_value == "cpu"


def refused(state: State, unit: Unit, test: cst.BaseExpression) -> str | None:
    """The text of ``not test`` with the availability of a device taken as given; None where nothing is left."""
    parts = _wanted(state, unit, test, 0)
    if not parts:
        return None
    return " or ".join(_negated(unit, part) for part in parts)


def _wanted(state: State, unit: Unit, test: cst.BaseExpression, depth: int) -> list[cst.BaseExpression]:
    """The conditions joined by ``and``, without those that ask whether a device is there."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return [*_wanted(state, unit, test.left, depth), *_wanted(state, unit, test.right, depth)]
    asked = test.left if isinstance(test, cst.Comparison) else test
    if isinstance(asked, cst.Call) and asked in state.calls:
        if outside_name(state.calls[asked]) in knowledge.AVAILABILITY:
            return []
    if isinstance(test, cst.Name) and depth < 3:
        binding = unit.names.binding(test)
        value = _only_value(unit, binding) if binding is not None else None
        if value is not None and _asks_availability(state, value):
            return _wanted(state, unit, value, depth + 1)
    return [test]


def _asks_availability(state: State, value: cst.BaseExpression) -> bool:
    calls = (node for node in descendants(value) if isinstance(node, cst.Call) and node in state.calls)
    return any(outside_name(state.calls[call]) in knowledge.AVAILABILITY for call in calls)


def _only_value(unit: Unit, binding: Binding) -> cst.BaseExpression | None:
    if len(binding.definitions) != 1:
        return None
    parent = unit.names.parents.get(unit.names.parents.get(binding.definitions[0]))  # type: ignore[arg-type]
    return parent.value if isinstance(parent, cst.Assign) and len(parent.targets) == 1 else None


def _negated(unit: Unit, node: cst.BaseExpression) -> str:
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        return _text(unit, node.expression)
    text = _text(unit, node)
    simple = isinstance(node, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)) or text.startswith("(")
    return f"not {text}" if simple else f"not ({text})"


def _text(unit: Unit, node: cst.CSTNode) -> str:
    return unit.names.module.code_for_node(node)


# What is moved --------------------------------------------------------------------------------------------------------


class Mover:
    """Decides for every move what becomes of it."""

    def __init__(self, state: State, reach: Reach, training: Training, plan: Plan, *, existing: bool = False) -> None:
        """``existing``: the script works with an accelerator already, and has made its own moves."""
        self.state, self.reach, self.training = state, reach, training
        self.prepared, self.existing = plan.prepared, existing
        self.early = Early(state, reach, training, plan.stands)

    def placements(self, unit: Unit) -> list[Placement]:
        """The placements of a module that the script reaches, in source order."""
        found = []
        for call in unit.names.calls:
            if call in self.state.calls and unit.names.function(call) in self.reach.reachable and self.is_move(call):
                if not self._in_helper(unit, call):
                    found.append(self._decide(unit, call))
        return _merged(found)

    def _in_helper(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a move stands in a function that moves whatever it is given to the device it is given: such a helper
        stays, and is given the accelerator's device."""
        function = unit.names.function(call)
        argument = self._device_argument(call)
        if not isinstance(function, cst.FunctionDef) or argument is None or not isinstance(argument.value, cst.Name):
            return False
        binding = unit.names.binding(argument.value)
        if binding is None or not any(isinstance(d, cst.Param) for d in binding.definitions):
            return False
        work = {record.node for record in (*self.training.backwards, *self.training.steps)}
        runs = self.reach.runs(function.body, unit)
        works = any(n in work or n in self.training.forwards or bool(self.state.loaders.get(n)) for n in runs)
        return not works and bool(unit.names.returns.get(function))

    def unwrapped(self, unit: Unit, wrappers: frozenset[str]) -> list[Placement]:
        """``nn.DataParallel(model)`` and its like: the accelerator takes its place, so that the wrapping goes."""
        found = []
        for call in unit.names.calls:
            if call in self.state.calls and outside_name(self.state.calls[call]) in wrappers and call.args:
                statement = unit.names.statement(call)
                small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
                reason = "data parallelism is the accelerator's"
                if isinstance(small, cst.Assign) and self._gives_itself(small):
                    found.append(Placement(call, Move.STATEMENT, reason, statement=statement))
                else:
                    found.append(Placement(call, Move.UNWRAP, reason))
        return found

    def _wraps(self, value: cst.BaseExpression) -> bool:
        calls = (n for n in descendants(value) if isinstance(n, cst.Call) and n in self.state.calls)
        return any(outside_name(self.state.calls[call]) in knowledge.WRAPPERS for call in calls)

    def _gives_itself(self, assign: cst.Assign) -> bool:
        """Whether an assignment only wraps and moves what it assigns: ``net = nn.DataParallel(net).cuda()``."""
        node = assign.value
        while isinstance(node, cst.Call) and node in self.state.calls:
            if outside_name(self.state.calls[node]) in knowledge.WRAPPERS and node.args:
                node = node.args[0].value
            elif self.is_move(node) and isinstance(node.func, cst.Attribute):
                node = node.func.value
            else:
                break
        return len(assign.targets) == 1 and bool(assign.targets[0].target.deep_equals(node))

    def inner(self, unit: Unit) -> list[cst.Attribute]:
        """``model.module`` where the model is no longer wrapped."""
        if not any(outside_name(r) in knowledge.WRAPPERS for r in self.state.calls.values()):
            return []
        return [
            node
            for node in self.state.values
            if isinstance(node, cst.Attribute)
            and node in unit.names.parents
            and node.attr.value == "module"
            and origins(self.state.values.get(node.value), Role.MODEL)
        ]

    def pins(self, unit: Unit) -> list[Placement]:
        """Statements that pin the process to one GPU by number: the launcher gives each process its own."""
        found = []
        for call in unit.names.calls:
            if call in self.state.calls and outside_name(self.state.calls[call]) in knowledge.PINS:
                statement = unit.names.statement(call)
                if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
                    reason = "each process is given a device of its own by the launcher"
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
        return name == "to" and self._device_argument(call) is not None

    def _can_move(self, call: cst.Call) -> bool:
        """Whether the receiver of ``.cuda()`` is known to be something that torch moves."""
        receiver = self.state.calls[call].receiver
        return receiver is not None and any(isinstance(t, (Origin, Unknown)) for t in receiver.things)

    def _device_argument(self, call: cst.Call) -> cst.Arg | None:
        for position, arg in enumerate(call.args):
            if arg.star or (arg.keyword is not None and arg.keyword.value != "device"):
                continue
            held = origins(self.state.values.get(arg.value), Role.DEVICE, Role.PLACE)
            if _is_host(arg.value):
                return None
            if any(o.qualified != "follows" for o in held) or (position == 0 and self._named_device(arg.value)):
                return arg
        return None

    def _named_device(self, node: cst.BaseExpression) -> bool:
        """``args.device`` and the like: an attribute of something unknown that is called device."""
        if not isinstance(node, cst.Attribute) or node.attr.value not in ("device", "dev"):
            return False
        base = self.state.values.get(node.value)
        return base is not None and any(isinstance(t, Unknown) for t in base.things) and not origins(base)

    def _decide(self, unit: Unit, call: cst.Call) -> Placement:
        record = self.state.calls[call]
        held = origins(record.receiver)
        argument = self._device_argument(call)
        keeps = tuple(a for a in call.args if a is not argument and not _is_keyword(a, "non_blocking"))
        if method_name(call) == "cuda":
            keeps = ()
        target = argument.value if argument is not None and method_name(call) != "cuda" else None
        gone = self.arrives_placed(unit, held, call)
        if gone is None:
            if isinstance(target, cst.Name) and not origins(self.state.values.get(target), Role.PLACE):
                target = None  # the name is replaced where it is read
            return Placement(call, Move.RETARGET, self._why_kept(held), target=target)
        copy = copy_of(unit.names, call) if not keeps else None
        statement = self._only_moves(unit, call) if not keeps else None
        if copy is not None and copy.text is None:
            statement = copy.node
        if statement is not None:
            return Placement(call, Move.STATEMENT, gone, statement=statement)
        copied = (copy.node, copy.text) if copy is not None and copy.text is not None else None
        return Placement(call, Move.LINK, gone, keeps=keeps, copied=copied)

    def _why_kept(self, held: list[Origin]) -> str:
        if held and all(o.role is Role.MODEL and whole(self.state, o) in self.prepared for o in held):
            return "the model is used before prepare would place it"
        return "not a batch of a prepared loader: it follows the device"

    def arrives_placed(self, unit: Unit, held: list[Origin], call: cst.Call) -> str | None:
        """Why the receiver of a move is on the device already, or None where that is not certain."""
        if not held:
            return None
        models = [whole(self.state, o) for o in held if o.role is Role.MODEL]
        if models and len(models) == len(held) and all(m in self.prepared for m in models):
            needed = any(self.early.use(call, unit, model) is not None for model in models)
            return None if needed else "prepare places the model"
        if all(o.role is Role.CRITERION for o in held) and all(stateless(o) for o in held):
            return "a loss without state needs no device"
        batches = [o for o in held if o.role is Role.BATCH]
        if batches and len(batches) == len(held) and all(o.source in self.prepared for o in batches):
            if self.inside_model(unit, call) or not self.reach.always_in_batch_loop(call, unit):
                return None  # a batch drawn by hand may come from the loader before it is prepared
            around = {loader for loop in self.reach.batch_loops(call, unit) for loader in self.reach.loaders(loop)}
            if any(self.early.drawn(call, loader) for loader in around):
                return None
            return "the prepared loader yields it on the device"
        return None

    def inside_model(self, unit: Unit, call: cst.CSTNode) -> bool:
        """Whether a call stands in a class of torch's kinds, which may be handed anything."""
        around = (a for a in unit.names.ancestors(call) if isinstance(a, cst.ClassDef))
        return any((klass := unit.classes.get(a)) is None or klass.role is not None for a in around)

    def _only_moves(self, unit: Unit, call: cst.Call) -> cst.CSTNode | None:
        """The statement that does nothing but move values to where they are already, around a move."""
        line = unit.names.statement(call)
        if not isinstance(line, cst.SimpleStatementLine):
            return None
        around = set(unit.names.ancestors(call))
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

    def _moves_itself(self, unit: Unit, name: cst.CSTNode, moved: cst.BaseExpression) -> bool:
        if isinstance(moved, cst.Name):
            return isinstance(name, cst.Name) and name.value == moved.value
        if not (isinstance(moved, cst.Call) and self.is_move(moved) and isinstance(moved.func, cst.Attribute)):
            return False
        held = origins(self.state.calls[moved].receiver)
        if self.arrives_placed(unit, held, moved) is None:
            return False
        extra = [a for a in moved.args if a is not self._device_argument(moved) and not _is_keyword(a, "non_blocking")]
        if extra and method_name(moved) != "cuda":
            return False
        same: bool = name.deep_equals(moved.func.value)
        return same


def _is_host(node: cst.BaseExpression) -> bool:
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


def _is_keyword(arg: cst.Arg, name: str) -> bool:
    return arg.keyword is not None and arg.keyword.value == name


def _merged(found: list[Placement]) -> list[Placement]:
    """One placement for each removed statement, however many moves stand in it."""
    statements: dict[cst.CSTNode, None] = {}
    result = []
    for placement in found:
        if placement.statement is not None:
            if placement.statement in statements:
                continue
            statements[placement.statement] = None
        result.append(placement)
    return result
