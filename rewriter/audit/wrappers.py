"""
Save the model, not its wrapper.

The state dict of a wrapper has `module.` before each name, and does not load into the plain model; a pickled wrapper
needs an open process group to be loaded at all.

    -torch.save(ddp.state_dict(), path)
    +torch.save(ddp.module.state_dict(), path)

With Accelerate: `accelerator.unwrap_model(model).state_dict()`, or `accelerator.get_state_dict(model)`. A script that
loads what it saved into the wrapper again gets a `review`: the script itself works, but other programs cannot load the
file. Where this program, or another file of the same command, takes the prefix off when it loads, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name, outside_name
from ..analysis.dataflow.containers import members
from ..analysis.dataflow.values import CallRecord, Unit, origins
from ..analysis.effects.memory import into_memory
from ..analysis.syntax.walk import descendants
from ..facts.roles import Role
from ..findings import Finding, Severity
from .program import AuditedProgram, Dialect
from .rule import AuditRule, Found, line_of

_PREFIX = "module."
_OTHER_CUTS = frozenset({"len", "sub"})
"""Calls by which programs take a prefix off, beside the methods of texts."""


def saved_wrappers(program: AuditedProgram) -> Found:
    """The saves of a wrapper, and of its state dict."""
    if program.dialects & {Dialect.OURS, Dialect.FABRIC} or program.unfollowed is not None:
        return  # torchlift wraps nothing, and Fabric's wrapper gives the plain names
    prefixes = {*_taken_off(program), *program.taken_off_elsewhere}
    again = [record for record in program.reached_calls("load_state_dict") if _loads_wrapper(program, record)]
    for record in _saves(program):
        data = record.node.args[0].value
        if origins(program.state.values.get(data), Role.MODEL) and program.is_wrapped(record.unit, data) is True:
            yield record.unit, _finding(record.unit, record.node, "pickles the wrapper of the model", Severity.ERROR)
            continue
        for unit, call in _state_dicts(program, data):
            receiver = call.func.value if isinstance(call.func, cst.Attribute) else call
            if _takes_off(program, receiver, prefixes) or _has_own_names(program, receiver):
                continue
            if program.is_wrapped(unit, receiver) is True:
                severity = Severity.REVIEW if again else Severity.ERROR
                words = "saves the state dict of the wrapper, whose names begin with `module.`"
                yield unit, _finding(unit, call, words, severity)


def _taken_off(program: AuditedProgram) -> Iterator[str]:
    """The prefixes that begin with the wrapper's and that the program takes off names: ``k.replace("module.", "")``."""
    for unit in program.reach.units:
        for call in unit.names.calls:
            cuts = hasattr(str, method_name(call)) or method_name(call) in _OTHER_CUTS
            if cuts and unit.names.function(call) in program.reached:
                texts = [arg.value for arg in call.args[:2] if isinstance(arg.value, cst.SimpleString)]
                values = (str(text.evaluated_value) for text in texts)
                yield from (value for value in values if value.startswith(_PREFIX))


def _takes_off(program: AuditedProgram, model: cst.BaseExpression, prefixes: set[str]) -> bool:
    """Whether the program reads the names of a wrapped model: it takes off the prefix, and no more than has that."""
    held = origins(program.state.values.get(model), Role.MODEL)
    classes = [klass for origin in held if (klass := program.state.klass.get(origin)) is not None]
    parts = {n.attr.value for k in classes for n in descendants(k.node) if isinstance(n, cst.Attribute)}
    return any(prefix == _PREFIX or prefix.split(".")[1] in parts for prefix in prefixes)


def _has_own_names(program: AuditedProgram, model: cst.BaseExpression) -> bool:
    """Whether the class of an object makes its state dict itself, with names of its own."""
    held = origins(program.state.values.get(model), Role.MODEL)
    classes = [program.state.klass.get(origin) for origin in held]
    return bool(classes) and all(klass is not None and klass.method("state_dict") is not None for klass in classes)


def _finding(unit: Unit, call: cst.Call, words: str, severity: Severity) -> Finding:
    text = line_of(unit.names.module.code_for_node(call))
    remedy = "save the model inside: model.module.state_dict(), or accelerator.unwrap_model(model).state_dict()"
    return Finding("saved-wrapper", call, f"`{text}` {words}: the plain model cannot load it", remedy, severity)


def _saves(program: AuditedProgram) -> Iterator[CallRecord]:
    for record in program.records:
        name = outside_name(record)
        ours = method_name(record.node) == "save" and bool(origins(record.receiver, Role.ACCELERATOR))
        saves = name in ("torch.save", "pickle.dump", "accelerate.utils.save") or ours
        if saves and record.node.args and not into_memory(program.state, record.unit, program.reach, record.node):
            yield record


def _state_dicts(program: AuditedProgram, data: cst.BaseExpression) -> Iterator[tuple[Unit, cst.Call]]:
    """The calls of ``state_dict()`` of models whose results are saved."""
    held = members(program.state, program.state.slot(data))
    program.state.solver.run()
    for origin in origins(held, Role.STATE):
        if origin.source is not None and origin.source.role is Role.MODEL and isinstance(origin.node, cst.Call):
            home = program.unit_of(origin.node)
            if home is not None and method_name(origin.node) == "state_dict":
                yield home, origin.node


def _loads_wrapper(program: AuditedProgram, record: CallRecord) -> bool:
    """Whether a ``load_state_dict`` may be that of a wrapper."""
    receiver = record.node.func.value if isinstance(record.node.func, cst.Attribute) else None
    if receiver is None:
        return False
    sources = program.tracer.sources(record.unit, receiver)
    if all(isinstance(s.node, cst.Name) and not s.known for s in sources):  # ``for key, value in kwargs.items()``
        function = record.unit.names.function(record.node)
        given = [(site.unit, arg.value) for site in program.sites(function) for arg in site.node.args]
        if given:
            return any(program.is_wrapped(unit, value) for unit, value in given)
    return program.is_wrapped(record.unit, receiver) is not False


RULE = AuditRule("saved-wrapper", __doc__, saved_wrappers)
