"""Functions that files outside the program use as well: an edit that only suits this program would break those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import Klass, State, Unit, origins
from ..analysis.syntax.nodes import FunctionNode, is_docstring, parameters
from ..analysis.syntax.walk import nodes_in
from ..facts.module_paths import ENTRY
from ..facts.roles import Role
from ..facts.torch_api import questions
from ..findings import Finding, Severity


def shared_code(reach: Reach) -> dict[Code, str]:
    """The functions that files outside the program reach, each with one of those files."""
    used = [
        (unit, function, user)
        for unit in reach.units
        for function in unit.names.functions
        if unit.place.shared and (user := used_elsewhere(unit, function)) is not None
        if not _starts(reach, unit, function)
    ]
    used += _called_by_idle(reach, used)
    made = _made_in(reach)
    others = _had_elsewhere(reach, [function for _, function, _ in used], made)
    found: dict[Code, str] = {}
    around = {function: _class_of(unit, function) for unit, function, _ in used}
    # what functions reach comes first: a method may only share its name with what another file calls
    for _, function, user in sorted(used, key=lambda each: around[each[1]] is not None):
        klass = around[function]
        if klass is None or not others.isdisjoint(derived_from(reach, klass)):
            for code in [function] if _trains_alone(reach, function) else reach.below(function):
                found.setdefault(code, user)
    inside = {base for classes in made.values() for klass in classes for base in klass.lineage()}
    alone = others - inside
    for klass in (k for unit in reach.units for k in unit.classes.values() if k in alone):
        # only others make its objects: what its methods call of its bases is not seen here
        shared = klass.unit.place.shared
        user = shared.get(klass.node.name.value, shared.get("*"))
        if user is None:
            continue
        for base in klass.lineage():
            for method in getattr(base.node.body, "body", ()):
                for code in reach.below(method) if isinstance(method, cst.FunctionDef) else ():
                    found.setdefault(code, user)
    return found


def _called_by_idle(
    reach: Reach, used: Sequence[tuple[Unit, FunctionNode, str]]
) -> list[tuple[Unit, FunctionNode, str]]:
    """The methods that used functions name which the program itself never runs, so that it is not known of what."""
    named = {
        node.attr.value: user
        for _, function, user in used
        if function not in reach.reachable
        for node in nodes_in(function, cst.Attribute)
    }
    known = {function for _, function, _ in used}
    methods = (
        (unit, function, function.name.value)
        for unit in (reach.units if named else ())
        for function in unit.names.functions
        if isinstance(function, cst.FunctionDef) and isinstance(unit.names.within[function].node, cst.ClassDef)
    )
    return [(unit, one, named[name]) for unit, one, name in methods if name in named and one not in known]


def _made_in(reach: Reach) -> dict[Code, set[Klass]]:
    """The classes of which the program makes objects, by the code that does."""
    made: dict[Code, set[Klass]] = {}
    for record in reach.state.calls.values():
        given = {thing for thing in record.callees if isinstance(thing, Klass)}
        made.setdefault(record.unit.names.function(record.node), set()).update(given)
    return made


def _had_elsewhere(reach: Reach, used: Sequence[FunctionNode], made: Mapping[Code, set[Klass]]) -> set[Klass]:
    """
    The classes of which files outside the program may have objects.

    They name the class, a module makes one as it is imported, or a function that they use makes one. A method of
    another class only shares its name with what they call: ``trainer.train()``.
    """
    classes = [(unit, klass) for unit in reach.units for klass in unit.classes.values()]
    found = {klass for unit, klass in classes if not unit.place.shared.keys().isdisjoint(("*", klass.node.name.value))}
    found.update(*(made.get(unit.names.module, set()) for unit in reach.units[1:]))
    around = {function: _class_of(reach.unit(function), function) for function in used}
    derived = {klass: derived_from(reach, klass) for klass in set(around.values()) if klass is not None}
    while True:
        running = {
            code
            for function, klass in around.items()
            if klass is None or not found.isdisjoint(derived[klass])
            for code in reach.below(function)
        }
        more = {klass for code in running for klass in made.get(code, ())} - found
        if not more:
            return found
        found |= more


def _class_of(unit: Unit, function: FunctionNode) -> Klass | None:
    """The class of which a function is a method, or is inside one; None for the function of a module."""
    around = (n for n in (function, *unit.names.ancestors(function)) if isinstance(n, cst.ClassDef))
    return next((unit.classes[node] for node in around if node in unit.classes), None)


def shared_ways(reach: Reach, shared: Mapping[Code, str], home: Code | None) -> dict[Code, str]:
    """What files outside the program run as well without the accelerator: what they reach, but for what a function does
    that creates it by itself; ``home``: the code that creates it."""
    found = dict(shared)
    for function, user in shared.items():
        below = reach.below(function)
        if home is None or home not in below:
            found.update((code, user) for code in below if code not in found)
    return found


def shared_by(reach: Reach, shared: Mapping[Code, str], code: Code) -> str | None:
    """Which file outside the program runs some code as well, or makes the objects of which that is a method."""
    klass = _class_of(reach.unit(code), code) if isinstance(code, (cst.FunctionDef, cst.Lambda)) else None
    init = klass.method("__init__") if klass is not None else None
    return shared.get(code) or (shared.get(init.node) if init is not None else None)


def derived_from(reach: Reach, klass: Klass) -> set[Klass]:
    """A class, and those of the program that derive from it."""
    return {other for unit in reach.units for other in unit.classes.values() if klass in other.lineage()}


def may_be_given(reach: Reach, shared: Mapping[Code, str], code: Code) -> set[Code]:
    """
    The functions that may get the accelerator as a last parameter with a default, so that some code has it: the one
    around it, and those of its callers that files outside the program use as well; none where one of them is no plain
    function of a module.

    Without an accelerator it makes one, of one process, which gathers what it is given.
    """
    found = {above for above in reach.above(code) if above in shared}
    return found if all(_may_be_given(reach.unit(function), function) for function in found) else set()


def hand_it_on(reach: Reach, shared: Mapping[Code, str], builder: Code) -> set[Code]:
    """The functions that call a method which builds objects, for files outside the program as well, and that may hand
    it the accelerator; none where one of them is no plain function of a module."""
    found = {above for above in reach.above(builder) if above in shared and above is not builder}
    return found if all(_may_be_given(reach.unit(function), function) for function in found) else set()


def _may_be_given(unit: Unit, function: Code) -> bool:
    """Whether a function is a plain one, of a module that may change."""
    plain = isinstance(unit.names.parents.get(function), cst.Module) and first_statement(function) is not None
    return plain and "*" not in unit.place.shared


def first_statement(code: Code) -> cst.CSTNode | None:
    """The first statement in the block of a function, after its docstring."""
    block = code.body if isinstance(code, cst.FunctionDef) else None
    if not isinstance(block, cst.IndentedBlock):
        return None
    return next((statement for statement in block.body if not is_docstring(statement)), None)


def chooses_device(state: State, unit: Unit, function: cst.FunctionDef) -> bool:
    """Whether who calls a function gives it a device."""
    bindings = unit.names.scopes[function].bindings
    given = (state.binding(bindings[param.name.value]) for param in parameters(function))
    return any(origins(held, Role.DEVICE, Role.PLACE) for held in given)


def _starts(reach: Reach, unit: Unit, function: cst.CSTNode) -> bool:
    """Whether the entry script itself begins with a function: who calls it runs the program as it is. A function that
    makes no optimizer is a part of the program; so are all of a script that makes one below
    ``if __name__ == "__main__":`` itself."""
    if unit.place.name != ENTRY or not isinstance(function, (cst.FunctionDef, cst.Lambda)):
        return False
    sites = (site for site in reach.sites(function) if site in unit.names.parents)
    if not any(isinstance(unit.names.function(site), cst.Module) for site in sites):
        return False
    making = reach.state.once((_making, unit), lambda: _making(reach.state, unit))
    if unit.names.module in making:
        return False
    return not making or _class_of(unit, function) is not None or not making.isdisjoint(reach.below(function))


def _trains_alone(reach: Reach, function: Code) -> bool:
    """Whether a function makes all that trains, and trains it: what it calls gets the accelerator that is created in
    it, whoever calls it. Only where the accelerator has to come to it from above is its signature one for all."""
    training = reach.state.once(_trains_alone, lambda: _training(reach.state))
    return bool(training) and training.issubset(reach.below(function))


def _training(state: State) -> frozenset[Code]:
    """The code that makes optimizers, or runs a backward pass."""
    made = (r for r in state.calls.values() if any(o.node is r.node for o in origins(r.result, Role.OPTIMIZER)))
    passes = (record for record in state.calls.values() if method_name(record.node) == "backward")
    return frozenset(record.unit.names.function(record.node) for record in (*made, *passes))


def _making(state: State, unit: Unit) -> frozenset[Code]:
    """The code that makes optimizers; of the script's own what is under a condition, which is none where it is
    imported."""
    made = (r for r in state.calls.values() if any(o.node is r.node for o in origins(r.result, Role.OPTIMIZER)))
    codes = {record.unit.names.function(record.node): record for record in made}
    own = codes.pop(unit.names.module, None)
    below = own is not None and next(unit.names.enclosing(own.node, cst.If), None) is not None
    return frozenset([*codes, unit.names.module] if below else codes)


def used_elsewhere(unit: Unit, function: cst.CSTNode) -> str | None:
    """
    Which file outside the program uses a function by its name, or by that of the class or function around it.

    Of the methods of a class these are the ones that it, or what it imports, names; and what runs without being named.
    """
    shared, method = unit.place.shared, function
    if "*" in shared:
        return shared["*"]
    for around in (function, *unit.names.ancestors(function)):
        if isinstance(around, cst.FunctionDef):
            name, method = around.name.value, around
            of_object = isinstance(unit.names.within[around].node, cst.ClassDef)
            user = shared.get(name) or (shared.get(f".{name}") if of_object else None)
            if user is not None:
                return user
        elif isinstance(around, cst.ClassDef) and around.name.value in shared:
            top, klass = isinstance(unit.names.parents[around], cst.Module), unit.classes.get(around)
            if top and (klass is None or _runs_unnamed(klass, method)):
                return shared[around.name.value]
    return None


def _runs_unnamed(klass: Klass, method: cst.CSTNode) -> bool:
    """Whether an object runs a method of its own that no code names: by an operator, or by what its base class does."""
    name = method.name.value if isinstance(method, cst.FunctionDef) else ""
    if name.startswith("__") or not name:
        return True
    if klass.role is Role.MODEL:
        return name == "forward" or name in questions.of_modules()
    return any(not base.startswith(_PLAIN_BASES) for base in klass.externals)


_PLAIN_BASES = ("abc.", "typing.", "torch.utils.data.")
"""Base classes that call only methods with underscores."""


def together(node: cst.CSTNode, user: str, what: str) -> Finding:
    """The finding for an edit that would break a file outside the program."""
    return Finding(
        "shared-module",
        node,
        f"{what} is also used by {user}, which is not part of this program: a change for one would break the other",
        f"if {user} trains as well, migrate both together: add {user} to the command; otherwise give each "
        "its own function",
        Severity.BLOCKED,
    )
