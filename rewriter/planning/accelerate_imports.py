"""
Scripts that are on Accelerate already: the same names can be imported from this runtime instead.

All imports of a program change, or none: the two must not meet. Where a script uses something that the runtime does not
have, it stays as it is, and the names are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from ..analysis.dataflow.solver import Slot
from ..analysis.dataflow.values import State, Unit, origins
from ..analysis.syntax.nodes import dotted, import_source
from ..analysis.syntax.scopes import Binding
from ..facts.accelerate_names import ARGUMENTS, MEMBERS, NAMES
from ..facts.module import Swap
from ..facts.roles import Origin, Role
from ..facts.torch_api import process_calls
from ..findings import Finding

_ROOT = "accelerate"
_RUNTIME = "torchlift.runtime"


@dataclass(eq=False)
class Swaps:
    """What becomes of a program's imports of Accelerate."""

    imports: dict[Unit, list[Swap]] = field(default_factory=dict)
    findings: list[tuple[Unit, Finding]] = field(default_factory=list)


def swaps(state: State, units: list[Unit]) -> Swaps:
    """The imports to change, or a finding that says which names keep the program on Accelerate."""
    found: dict[Unit, list[Swap]] = {}
    missing: list[tuple[Unit, cst.CSTNode, str]] = []
    for unit in units:
        for statement, binding in _imports(unit):
            missing.extend((unit, statement, name) for name in _absent(unit, statement, binding))
            known = found.setdefault(unit, [])
            known.extend([] if any(swap.node is statement for swap in known) else [Swap(statement, _target(statement))])
    for unit in units if found else ():
        missing.extend((unit, node, name) for node, name in _uses(state, unit))
    if not missing:
        return Swaps(found)
    unit, node, _ = missing[0]
    listed = ", ".join(dict.fromkeys(name for _, _, name in missing))
    finding = Finding(
        "accelerate_imports",
        node,
        f"this script keeps using Accelerate: torchlift.runtime has no {listed}",
        "remove these names to switch to torchlift.runtime, or keep Accelerate with --ignore accelerate_imports",
    )
    return Swaps(findings=[(unit, finding)])


def _imports(unit: Unit) -> Iterator[tuple[cst.Import | cst.ImportFrom, Binding | None]]:
    """The imports of Accelerate in a module, with the variable of a plain ``import accelerate``."""
    for scope in unit.names.scopes.values():
        for binding in scope.bindings.values():
            for node in binding.definitions:
                statement = unit.names.parents.get(node)
                if isinstance(node, cst.ImportAlias) and isinstance(statement, (cst.Import, cst.ImportFrom)):
                    if isinstance(statement, cst.ImportFrom):
                        module = import_source(statement)
                    else:
                        module = node.evaluated_name
                    if module.partition(".")[0] == _ROOT:
                        yield statement, binding if isinstance(statement, cst.Import) else None


def _absent(unit: Unit, node: cst.Import | cst.ImportFrom, binding: Binding | None) -> Iterator[str]:
    """What an import asks for and the runtime has not."""
    if isinstance(node, cst.ImportFrom):
        names = _names_of(import_source(node))
        if isinstance(node.names, cst.ImportStar):
            yield "everything (import *)"
            return
        for alias in node.names:
            if alias.evaluated_name not in names:
                yield alias.evaluated_name
        return
    alias = node.names[0]
    if len(node.names) != 1 or alias.evaluated_name != _ROOT:
        yield alias.evaluated_name
        return
    for read in binding.reads if binding is not None else ():
        part = unit.names.parents.get(read)
        name = part.attr.value if isinstance(part, cst.Attribute) and part.value is read else ""
        if name not in NAMES[""]:
            yield f"{_ROOT}.{name}".rstrip(".")


def _names_of(module: str) -> frozenset[str]:
    below = module.removeprefix(_ROOT).lstrip(".")
    return NAMES.get("utils" if below.startswith("utils.") else below, frozenset())


def _target(node: cst.Import | cst.ImportFrom) -> str:
    """The module to import from; empty for ``import accelerate``, which becomes ``from torchlift import runtime``."""
    if isinstance(node, cst.Import):
        return ""
    below = import_source(node).removeprefix(_ROOT).lstrip(".")
    below = "utils" if below.startswith("utils.") else below
    return f"{_RUNTIME}.{below}".rstrip(".")


def _uses(state: State, unit: Unit) -> Iterator[tuple[cst.CSTNode, str]]:
    """Arguments and members of the accelerator that the runtime has not."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None:
            continue
        if any(origin.node is call for origin in _accelerators(record.result)):
            for arg in call.args:
                if arg.keyword is not None and arg.keyword.value not in ARGUMENTS:
                    yield call, f"Accelerator({arg.keyword.value}=...)"
        name = dotted(call.func).rpartition(".")[2]
        if name not in MEMBERS and _accelerators(record.receiver):
            yield call, f"Accelerator.{name}"


def _accelerators(slot: Slot | None) -> list[Origin]:
    """The accelerators among what a slot holds, without what only says which process this is."""
    return [o for o in origins(slot, Role.ACCELERATOR) if not process_calls.only_says_which(o.qualified)]
