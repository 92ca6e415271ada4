"""What assignments give a variable, and which of them a read can see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from .names import Names
from .scopes import Binding, Scope
from .walk import descendants, nodes_in

_JUMPS = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def reaching(names: Names, binding: Binding, read: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The definitions that a read can see: those before it, and those of an earlier iteration of its loops, unless
    the loop is left after them. A function in the function sees those of the places where it is run."""
    if names.scopes.get(names.function(read)) is not binding.scope.function:
        runs = _runs(names, binding, names.function(read))
        seen = None if runs is None else {d for run in runs for d in unshadowed(names, binding, run)}
        return tuple(d for d in binding.definitions if seen is None or d in seen)
    order, here = names.order, names.order(read)
    turns = [(loop, order(loop), names.end(loop)) for loop in names.enclosing(read, cst.For, cst.While)]
    return tuple(
        d
        for d in binding.definitions
        if order(d) < here or any(start < order(d) <= end and not _ends(names, d, loop) for loop, start, end in turns)
    )


def _runs(names: Names, binding: Binding, function: cst.CSTNode) -> list[cst.CSTNode] | None:
    """The places in a variable's scope where a function of that scope is run: it is called there, or an optimizer's
    step is given it. None where it may be run elsewhere."""
    own = binding.scope.bindings.get(function.name.value) if isinstance(function, cst.FunctionDef) else None
    if own is None or len(own.definitions) != 1 or names.function(own.definitions[0]) is not names.function(function):
        return None
    for read in own.reads:
        argument = names.parents[read]
        given = isinstance(argument, cst.Arg)
        call = names.parents[argument] if given else argument
        if names.function(read) is not names.function(function) or not isinstance(call, cst.Call):
            return None
        if given and not (isinstance(call.func, cst.Attribute) and call.func.attr.value == "step"):
            return None
    return list(own.reads)


def _ends(names: Names, node: cst.CSTNode, loop: cst.CSTNode) -> bool:
    """Whether a loop always ends after a node in it: ``model = plain(model)``, then ``break``."""
    below, inner = node, False
    for around in names.ancestors(node):
        if around is loop or isinstance(around, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            return False
        inner = inner or isinstance(around, (cst.For, cst.While, cst.Try, cst.TryStar))
        if isinstance(around, cst.IndentedBlock):
            for statement in around.body[_place(around, below) + 1 :]:
                jumps = _jumps(names, statement)
                if cst.Continue in jumps or inner:
                    return False
                if isinstance(statement, cst.SimpleStatementLine) and jumps & {cst.Break, cst.Return}:
                    return True
        below = around
    return False


def _place(block: cst.IndentedBlock, statement: cst.CSTNode) -> int:
    return next(i for i, each in enumerate(block.body) if each is statement)


def _jumps(names: Names, statement: cst.CSTNode) -> frozenset[type[cst.CSTNode]]:
    if statement not in names.jumps:
        kinds = {node.__class__ for node in descendants(statement)}
        names.jumps[statement] = frozenset(kinds & {cst.Break, cst.Return, cst.Continue})
    return names.jumps[statement]


def unshadowed(names: Names, binding: Binding, read: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """
    The definitions that a read can see, those left out that a later one certainly replaces before the read.

    One of an earlier turn of a loop is replaced by what is certainly assigned in each turn, before the read; and one in
    a loop, or a branch, before the read by the next in the same block.
    """
    found = names.unshadowed.get((binding, read))
    if found is None:
        found = names.unshadowed[binding, read] = _unshadowed(names, binding, read)
    return found


def _unshadowed(names: Names, binding: Binding, read: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    seen, order = reaching(names, binding, read), names.order
    around = set(names.ancestors(read))
    before = [d for d in seen if order(d) < order(read)]
    last = max(_certain(names, before, around), default=-1)

    def replaced(definition: cst.CSTNode) -> bool:
        if order(definition) < order(read):
            return order(definition) < last or _overwritten(names, definition, before, around)
        loops = names.enclosing(read, cst.For, cst.While)
        return any(order(loop) < last for loop in loops if order(loop) < order(definition) <= names.end(loop))

    return tuple(d for d in seen if not replaced(d))


def _overwritten(
    names: Names, definition: cst.CSTNode, definitions: list[cst.CSTNode], around: set[cst.CSTNode]
) -> bool:
    """Whether another definition in the block of one always follows it before the block ends; what a loop sets is
    followed by those in its body."""
    loop, order = setter(names, definition), names.order
    block = loop.body if isinstance(loop, cst.For) else _block(names, definition)
    if block in around or any(names.enclosing(definition, cst.Try, cst.TryStar)):
        return False
    later = (d for d in definitions if order(d) > order(definition) and _block(names, d) is block)
    plain = (d for d in later if isinstance(setter(names, d), cst.AssignTarget))
    jumps = [order(n) for n in descendants(block) if isinstance(n, _JUMPS)]
    return any(not any(order(definition) < jump < order(d) for jump in jumps) for d in plain)


def setter(names: Names, definition: cst.CSTNode) -> cst.CSTNode | None:
    """What sets a variable, by itself or with others: the target of an assignment, a loop."""
    around = names.parents.get(definition)
    while isinstance(around, (cst.BaseElement, cst.Tuple, cst.List)):
        around = names.parents.get(around)
    return around


def _certain(names: Names, definitions: list[cst.CSTNode], around: set[cst.CSTNode]) -> Iterator[int]:
    """The places from which on a variable certainly has a new value, among the blocks around a read: an assignment, or
    an ``if`` of which each branch has one, or leaves."""
    plain = [d for d in definitions if not isinstance(names.parents.get(d), cst.AugAssign)]
    pending = [(_block(names, d), names.order(d)) for d in plain]
    assigning = {block for block, _ in pending}
    while pending:
        block, place = pending.pop()
        if block in around:
            yield place
            continue
        choice = _choice(names, block)
        if choice is not None and choice not in around and all(b in assigning or _leaves(b) for b in _branches(choice)):
            above = _block(names, choice)
            assigning.add(above)
            pending.append((above, names.order(choice)))


def _choice(names: Names, block: cst.CSTNode) -> cst.If | None:
    """The ``if`` of which a block is a branch, with all its ``elif``."""
    found: cst.If | None = None
    for around in names.ancestors(block):
        if isinstance(around, cst.If):
            if found is not None and around.orelse is not found:
                break
            found = around
        elif not isinstance(around, cst.Else):
            break
    return found


def in_other_branch(names: Names, node: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether two nodes of one function are in different branches of an ``if``: when it is passed, one of them runs."""
    around = [other, *names.ancestors(other)]
    below = node
    for choice in names.ancestors(node):
        if choice in around:
            sides = {below, around[around.index(choice) - 1]}
            return isinstance(choice, cst.If) and sides == {choice.body, choice.orelse}
        below = choice
    return False


def _branches(choice: cst.If) -> Iterator[cst.CSTNode]:
    """The blocks of an ``if``, one of which runs; without an ``else``, the ``if`` itself as well."""
    yield choice.body
    if isinstance(choice.orelse, cst.If):
        yield from _branches(choice.orelse)
    else:
        yield choice.orelse.body if choice.orelse is not None else choice


def _leaves(block: cst.CSTNode) -> bool:
    """Whether nothing after a block runs, when it has."""
    last = block.body[-1] if isinstance(block, cst.IndentedBlock) else None
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _JUMPS)


def _block(names: Names, node: cst.CSTNode) -> cst.CSTNode:
    """The block whose statement a node is a part of; a ``with`` runs its own as often as itself."""
    block = names.block(node)
    around = names.parents.get(block)
    return _block(names, around) if isinstance(around, cst.With) else block


def bindings_value(
    names: Names, binding: Binding, definitions: Sequence[cst.CSTNode] | None = None
) -> list[cst.BaseExpression]:
    """
    The values that plain assignments give a variable, tuples matched by position; augmented ones included.

    ``definitions`` are those to look at; all of them without.
    """
    found: list[cst.BaseExpression] = []
    for definition in binding.definitions if definitions is None else definitions:
        parent = names.parents.get(definition)
        if isinstance(parent, (cst.AugAssign, cst.AnnAssign, cst.NamedExpr)) and parent.value is not None:
            found.append(parent.value)
        elif (value := unpacked(names, definition)) is not None:
            found.append(value)
    return found


def seen_values(names: Names, read: cst.Name) -> list[cst.BaseExpression]:
    """The values that plain assignments give a variable and that one of its reads can see."""
    binding = names.binding(read)
    return bindings_value(names, binding, unshadowed(names, binding, read)) if binding is not None else []


def nodes_behind(names: Names, start: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes of an expression, and of what its variables hold there."""
    pending, seen = [start], set[cst.CSTNode]()
    while pending:
        for node in descendants(pending.pop()):
            yield node
            for value in seen_values(names, node) if isinstance(node, cst.Name) else ():
                if value not in seen:
                    seen.add(value)
                    pending.append(value)


def entered_values(names: Names, binding: Binding) -> list[cst.BaseExpression]:
    """What ``with ... as name`` gives a variable, as far as it can be seen: what is entered."""
    found: list[cst.BaseExpression] = []
    for definition in binding.definitions:
        as_name = names.parents.get(definition)
        item = names.parents.get(as_name) if isinstance(as_name, cst.AsName) else None
        if isinstance(item, cst.WithItem):
            found.append(item.item)
    return found


def plain_values(names: Names, name: cst.Name) -> list[cst.BaseExpression]:
    """The values that a variable is given, where each of its definitions is an assignment; else none."""
    binding = names.binding(name)
    if binding is None:
        return []
    values = bindings_value(names, binding)
    return values if len(values) == len(binding.definitions) else []


def added_to(names: Names, name: cst.Name) -> list[cst.Call]:
    """The calls that put something into the list that a variable holds."""
    binding, found = names.binding(name), list[cst.Call]()
    for read in binding.reads if binding is not None else ():
        method = names.parents.get(read)
        call = names.parents.get(method) if isinstance(method, cst.Attribute) else None
        if isinstance(method, cst.Attribute) and isinstance(call, cst.Call) and call.func is method and call.args:
            if method.attr.value in ("append", "insert", "appendleft", "extend"):
                found.append(call)
    return found


def attribute_assignments(names: Names, attribute: cst.Attribute) -> list[cst.Assign]:
    """The assignments that give an attribute a value under the same name: ``args.cuda = ...``."""
    found = names.every(cst.Assign)
    return [assign for assign in found if any(target.target.deep_equals(attribute) for target in assign.targets)]


def is_target(names: Names, node: cst.CSTNode) -> bool:
    """Whether an assignment gives an attribute its value, alone or in a tuple."""
    above = names.parents.get(node)
    while isinstance(above, (cst.Element, cst.Tuple, cst.List)):
        above = names.parents.get(above)
    return isinstance(above, (cst.AssignTarget, cst.AnnAssign))


def deletions(names: Names, expression: cst.BaseExpression, scope: Scope) -> list[cst.CSTNode]:
    """What deletes something that an expression reads, as a scope sees its names: ``del args.no_cuda``,
    ``delattr(args, "no_cuda")``, ``options.pop("no_cuda")``."""
    read = list(nodes_in(expression, cst.Name, cst.Attribute, cst.Subscript))

    def is_read(gone: cst.CSTNode) -> bool:
        if isinstance(gone, cst.Name):
            binding = scope.lookup(gone.value)
            return binding is not None and binding is names.binding(gone) and any(gone.deep_equals(n) for n in read)
        return any(gone.deep_equals(node) for node in read)

    dropped = (node.target for node in names.every(cst.Del))
    found = [t for target in dropped for t in _targets(target) if is_read(t)]
    inside = set(nodes_in(expression, cst.Call))
    taken = (
        call for call in names.calls if (gone := taken_out(call)) is not None and (call in inside or is_read(gone))
    )
    return [*found, *taken]


def _targets(target: cst.BaseExpression) -> list[cst.BaseExpression]:
    return [e.value for e in target.elements] if isinstance(target, (cst.Tuple, cst.List)) else [target]


def taken_out(call: cst.Call) -> cst.BaseExpression | None:
    """What a call takes out of an object or a dict, as an expression that reads it."""
    values = [arg.value for arg in call.args]
    if isinstance(call.func, cst.Name) and call.func.value == "delattr" and len(values) == 2:
        word = values[1].evaluated_value if isinstance(values[1], cst.SimpleString) else None
        return cst.Attribute(values[0], cst.Name(word)) if isinstance(word, str) and word.isidentifier() else None
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "pop" and values:
        return cst.Subscript(call.func.value, [cst.SubscriptElement(cst.Index(values[0]))])
    return None


def unpacked_value(names: Names, definition: cst.CSTNode) -> cst.BaseExpression | None:
    """What ``a, b = 1, 2`` gives to one of its names, where its value is written out."""
    element = names.parents.get(definition)
    target = names.parents.get(element) if isinstance(element, cst.Element) else None
    above = names.parents.get(target) if target is not None else None
    assign = names.parents.get(above) if isinstance(above, cst.AssignTarget) else None
    value = unpacked(names, definition) if isinstance(assign, cst.Assign) else None
    return value if isinstance(assign, cst.Assign) and value is not assign.value else None


def unpacked(names: Names, part: cst.CSTNode) -> cst.BaseExpression | None:
    """
    What an assignment gives to a target, or to a part of one: the value at its place, or the whole that is unpacked.

    ``b`` of ``(a, b), c = pair, 1`` gets what is in ``pair``. None where it is no target of a plain assignment.
    """
    places: list[tuple[int, int]] = []
    above = names.parents.get(part)
    while isinstance(above, (cst.Element, cst.StarredElement)):
        target = names.parents.get(above)
        if not isinstance(target, (cst.Tuple, cst.List)):
            return None
        places.append((list(target.elements).index(above), len(target.elements)))
        above = names.parents.get(target)
    assign = names.parents.get(above) if isinstance(above, cst.AssignTarget) else None
    if not isinstance(assign, cst.Assign):
        return None
    value = assign.value
    for place, number in reversed(places):
        if not isinstance(value, (cst.Tuple, cst.List)) or len(value.elements) != number:
            break
        value = value.elements[place].value
    return value
