"""Functions that files outside the program use as well: an edit that only suits this program would break those."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.values import State, Unit, origins
from ..analysis.syntax.nodes import is_docstring, parameters
from ..facts.module_paths import ENTRY
from ..facts.roles import Role
from ..findings import Finding, Severity


def shared_code(reach: Reach) -> dict[Code, str]:
    """The functions that files outside the program reach, each with one of those files."""
    found: dict[Code, str] = {}
    for unit in reach.units:
        for function in unit.names.functions if unit.place.shared else ():
            user = used_elsewhere(unit, function)
            if user is not None and not _starts(reach, unit, function):
                for code in reach.below(function):
                    found.setdefault(code, user)
    return found


def may_be_given(reach: Reach, shared: Mapping[Code, str], code: Code) -> set[Code]:
    """
    The functions that may get the accelerator as a last parameter with a default, so that some code has it: the one
    around it, and those of its callers that files outside the program use as well; none where one of them is no plain
    function of a module.

    Such a function evaluates. Without an accelerator it makes one, of one process, which gathers what it is given.
    """
    found = {above for above in reach.above(code) if above in shared}
    plain = all(isinstance(reach.unit(f).names.parents.get(f), cst.Module) and first_statement(f) for f in found)
    return found if plain else set()


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
    """Whether the entry script itself begins with a function: who calls it runs the program as it is."""
    if unit.place.name != ENTRY:
        return False
    sites = reach.sites(function) if isinstance(function, (cst.FunctionDef, cst.Lambda)) else ()
    return any(isinstance(unit.names.function(site), cst.Module) for site in sites if site in unit.names.parents)


def used_elsewhere(unit: Unit, function: cst.CSTNode) -> str | None:
    """Which file outside the program uses a function by its name, or by that of the class or function around it."""
    shared = unit.place.shared
    if "*" in shared:
        return shared["*"]
    for around in (function, *unit.names.ancestors(function)):
        if isinstance(around, (cst.FunctionDef, cst.ClassDef)) and around.name.value in shared:
            top = isinstance(unit.names.parents[around], cst.Module)
            if top or isinstance(around, cst.FunctionDef):
                return shared[around.name.value]
    return None


def together(node: cst.CSTNode, user: str, what: str) -> Finding:
    """The finding for an edit that would break a file outside the program."""
    return Finding(
        "shared-module",
        node,
        f"{what} is also used by {user}, which is not part of this program: a change for one would break the other",
        f"if {user} trains as well, migrate both together; otherwise give each its own function",
        Severity.BLOCKED,
    )
