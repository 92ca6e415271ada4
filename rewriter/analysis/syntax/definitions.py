"""What assignments give a variable, and which of them a read can see."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import libcst as cst

from ...facts.container_methods import adds_in_order
from .names import Names, Ranked
from .scopes import Binding, Scope
from .walk import descendants, nodes_in

_JUMPS = (cst.Return, cst.Raise, cst.Continue, cst.Break)
_LEFT = frozenset({cst.Return, cst.Continue, cst.Break})


def reaching(names: Names, binding: Binding, read: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The definitions that a read can see: those before it, and those of an earlier iteration of its loops, unless
    the loop is left after them. A function in the function sees those of the places where it is run."""
    if names.scopes.get(names.function(read)) is not binding.scope.function:
        return _seen_from_inside(names, binding, read)
    ranked = _ranked(names, binding)
    before = bisect_left(ranked.orders, names.order(read))
    return ranked.told([*ranked.nodes[:before], *_of_earlier_turns(names, ranked, before, read)])


def _seen_from_inside(names: Names, binding: Binding, read: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The definitions that a function in the function can see."""
    runs = _runs(names, binding, names.function(read))
    seen = None if runs is None else {d for run in runs for d in unshadowed(names, binding, run)}
    return tuple(d for d in binding.definitions if seen is None or d in seen)


def _ranked(names: Names, binding: Binding) -> Ranked:
    found = names.ranked.get(binding)
    if found is None or len(found.nodes) != len(binding.definitions):
        found = names.ranked[binding] = Ranked.of(binding.definitions, names.order)
    return found


def _of_earlier_turns(
    names: Names, ranked: Ranked, before: int, read: cst.CSTNode, certain: int = -1
) -> Iterator[cst.CSTNode]:
    """The definitions after a read that an earlier turn of a loop around it has made, unless the loop is left after
    them, or each of its turns certainly makes another one before the read, at the place ``certain``."""
    turns = [(loop, names.order(loop), names.end(loop)) for loop in names.enclosing(read, cst.For, cst.While)]
    turns = [turn for turn in turns if turn[1] > certain]  # of a loop around that one, each turn makes another
    if not turns:
        return
    for place in range(before, bisect_right(ranked.orders, turns[-1][2])):
        node, order = ranked.nodes[place], ranked.orders[place]
        if any(start < order <= end and not _ends_after(names, node, loop) for loop, start, end in turns):
            yield node


def _ends_after(names: Names, node: cst.CSTNode, loop: cst.CSTNode) -> bool:
    """Whether a loop always ends after a node in it, found once: each read of a variable asks of each definition."""
    ended = names.ended.get((node, loop))
    if ended is None:
        ended = names.ended[node, loop] = _ends(names, node, loop)
    return ended


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
            ends = False if inner and below is not around.body[-1] else _what_follows(names, around, below)
            if ends is not None:
                return ends
        below = around
    return False


def _what_follows(names: Names, block: cst.IndentedBlock, statement: cst.CSTNode) -> bool | None:
    """Whether what follows a statement in a block certainly ends the turns of the loop around it; None where nothing
    that follows decides it. Found for all statements of a block at once, from its end."""
    if block.body and block.body[-1] not in names.ends_after:
        ends: bool | None = None
        for each in reversed(block.body):
            names.ends_after[each] = ends
            jumps = {node.__class__ for node in descendants(each)} & _LEFT
            if cst.Continue in jumps:
                ends = False
            elif jumps and isinstance(each, cst.SimpleStatementLine):
                ends = True
    return names.ends_after[statement]


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
    here, around = names.order(read), set(names.ancestors(read))
    own = names.scopes.get(names.function(read)) is binding.scope.function
    ranked = _ranked(names, binding) if own else Ranked.of(_seen_from_inside(names, binding, read), names.order)
    before = bisect_left(ranked.orders, here)
    certain = max(_certain(names, ranked, before, around), default=-1)
    first = bisect_left(ranked.orders, certain, hi=before)  # those before it are replaced by it
    found = [
        ranked.nodes[place] for place in range(first, before) if not _overwritten(names, ranked, place, before, around)
    ]
    if own:
        found += _of_earlier_turns(names, ranked, before, read, certain)
    else:
        loops = [loop for loop in names.enclosing(read, cst.For, cst.While) if names.order(loop) < certain]
        later = zip(ranked.nodes[before:], ranked.orders[before:], strict=True)
        found += [d for d, at in later if not any(names.order(loop) < at <= names.end(loop) for loop in loops)]
    return ranked.told(found)


def _overwritten(names: Names, ranked: Ranked, place: int, before: int, around: set[cst.CSTNode]) -> bool:
    """Whether another definition before a read, in the block of one, always follows it before the block ends; what a
    loop sets is followed by those in its body."""
    definition = ranked.nodes[place]
    loop = setter(names, definition)
    block = loop.body if isinstance(loop, cst.For) else _block(names, definition)
    if block in around:
        return False
    for later in range(bisect_right(ranked.orders, ranked.orders[place]), before):
        other = ranked.nodes[later]
        if _block(names, other) is block and isinstance(setter(names, other), cst.AssignTarget):
            jumps = _jumps(names, block)
            jump = bisect_right(jumps, ranked.orders[place])
            follows = jump == len(jumps) or jumps[jump] >= ranked.orders[later]
            return follows and not any(names.enclosing(definition, cst.Try, cst.TryStar))
        if ranked.orders[later] > names.end(block):
            return False
    return False


def _jumps(names: Names, block: cst.CSTNode) -> list[int]:
    """The places of what leaves a block, or something in it, in their order."""
    if block not in names.jumps:
        names.jumps[block] = sorted(names.order(node) for node in descendants(block) if isinstance(node, _JUMPS))
    return names.jumps[block]


def setter(names: Names, definition: cst.CSTNode) -> cst.CSTNode | None:
    """What sets a variable, by itself or with others: the target of an assignment, a loop."""
    around = names.parents.get(definition)
    while isinstance(around, (cst.BaseElement, cst.Tuple, cst.List)):
        around = names.parents.get(around)
    return around


def _certain(names: Names, ranked: Ranked, before: int, around: set[cst.CSTNode]) -> Iterator[int]:
    """The places from which on a variable certainly has a new value, among the blocks around a read: an assignment, or
    an ``if`` of which each branch has one, or leaves. What comes before the last such assignment adds none after it."""
    pending: list[tuple[cst.CSTNode, int]] = []
    for place in range(before - 1, -1, -1):
        definition = ranked.nodes[place]
        if not isinstance(names.parents.get(definition), cst.AugAssign):
            pending.append((_block(names, definition), ranked.orders[place]))
            if pending[-1][0] in around:
                break
    assigning = {block for block, _ in pending}
    waiting: dict[cst.If, list[cst.CSTNode]] = {}
    while pending:
        block, order = pending.pop()
        if block in around:
            yield order
            continue
        choice = _choice(names, block)
        if choice is None or choice in around:
            continue
        if choice not in waiting:
            waiting[choice] = [*_branches(choice)]
        elif not waiting[choice]:
            continue  # done already
        left = waiting[choice]
        while left and (left[-1] in assigning or _leaves(left[-1])):
            left.pop()
        if not left:
            above = _block(names, choice)
            assigning.add(above)
            pending.append((above, names.order(choice)))


def _choice(names: Names, block: cst.CSTNode) -> cst.If | None:
    """The ``if`` of which a block is a branch, with all its ``elif``."""
    around = names.parents.get(block)
    around = names.parents.get(around) if isinstance(around, cst.Else) else around
    return first_of_chain(names, around) if isinstance(around, cst.If) else None


def first_of_chain(names: Names, question: cst.If) -> cst.If:
    """The ``if`` at which a chain of ``elif`` begins."""
    passed, found = list[cst.If](), question
    while found not in names.choices:
        passed.append(found)
        above = names.parents.get(found)
        if not isinstance(above, cst.If) or above.orelse is not found:
            break
        found = above
    found = names.choices.get(found, found)
    names.choices.update(dict.fromkeys(passed, found))
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
    last = choice
    yield last.body
    while isinstance(last.orelse, cst.If):
        last = last.orelse
        yield last.body
    yield last.orelse.body if last.orelse is not None else last


def _leaves(block: cst.CSTNode) -> bool:
    """Whether nothing after a block runs, when it has."""
    last = block.body[-1] if isinstance(block, cst.IndentedBlock) else None
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _JUMPS)


def _block(names: Names, node: cst.CSTNode) -> cst.CSTNode:
    """The block whose statement a node is a part of; a ``with`` runs its own as often as itself."""
    found = names.blocks.get(node)
    if found is None:
        block = names.block(node)
        around = names.parents.get(block)
        found = names.blocks[node] = _block(names, around) if isinstance(around, cst.With) else block
    return found


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
            if adds_in_order(method.attr.value):
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
