"""Every call of a function fits its parameters, also after these changed."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_binding import argument_of
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.values import CallRecord, Klass, Unit, decorators, origins
from ..analysis.syntax.nodes import FunctionNode, positional
from ..analysis.syntax.scopes import Binding
from ..facts.roles import Role
from .program import EmittedProgram
from .violation import Violation

_KEEP = frozenset("no_grad enable_grad inference_mode staticmethod classmethod override".split())
"""Decorators that do not change the parameters of a function."""


def misfits(program: EmittedProgram) -> Iterator[Violation]:
    """The calls that pass too few or too many arguments to a function of the program, or unknown keywords."""
    for unit in program.reach.units:
        for function in unit.names.functions:
            if isinstance(function, cst.FunctionDef):
                for site in program.sites(function):
                    words = _misfit(unit, function, site)
                    if words:
                        yield Violation("call-fits", program.at(site), words, CodePlace(unit, function), True)


def strangers(program: EmittedProgram) -> Iterator[Violation]:
    """The arguments that are no accelerator, for parameters whose functions call its methods."""
    used = {id(record.receiver) for record in program.accelerated}
    for unit in program.reach.units:
        for function in unit.names.functions:
            if isinstance(function, cst.FunctionDef):
                bindings = unit.names.scopes[function].bindings
                for place, param in enumerate(positional(function)):
                    if _is_accelerator(program, bindings.get(param.name.value), used):
                        yield from _given_else(program, unit, function, place, param)


def _is_accelerator(program: EmittedProgram, parameter: Binding | None, used: set[int]) -> bool:
    """Whether a parameter is used as an accelerator: some call gives it one, or its name says so."""
    if parameter is None:
        return False
    named = parameter.name == "accelerator" and parameter.reads
    return bool(named) or any(id(program.state.values.get(read)) in used for read in parameter.reads)


def _given_else(
    program: EmittedProgram, unit: Unit, function: cst.FunctionDef, place: int, param: cst.Param
) -> Iterator[Violation]:
    for site in program.sites(function):
        given = argument_of(site.node, param, place - _firsts(unit, function, site)[-1])
        strange = given is not None and not origins(program.state.values.get(given.value), Role.ACCELERATOR)
        if not strange or not _calls(function, site):
            continue
        name = param.name.value
        words = f"`{function.name.value}` needs the accelerator as `{name}`, and this call gives something else"
        yield Violation("call-fits", program.at(site), words, CodePlace(unit, function), True)


def _misfit(unit: Unit, function: FunctionNode, site: CallRecord) -> str:
    """What is wrong with a call; empty if it fits, or if stars hide its arguments."""
    assert isinstance(function, cst.FunctionDef)
    if any(argument.star for argument in site.node.args) or not _calls(function, site):
        return ""
    found = [_wrong(function, site.node, first) for first in _firsts(unit, function, site)]
    return "" if "" in found else found[0]


def _firsts(unit: Unit, function: cst.FunctionDef, site: CallRecord) -> list[int]:
    """Which parameter the first argument of a call fills, where that is certain; else all that it may fill."""
    scope = unit.names.within.get(function)
    if scope is None or not isinstance(scope.node, cst.ClassDef) or unit.function(function).decorated("staticmethod"):
        return [0]
    through = site.receiver.things if site.receiver is not None else ()
    return [0, 1] if any(isinstance(thing, Klass) for thing in through) else [1]


def _calls(function: cst.FunctionDef, site: CallRecord) -> bool:
    """Whether a call is a direct call of the function: not a callback, nor a call on one of several classes."""
    func = site.node.func
    last = func.attr.value if isinstance(func, cst.Attribute) else getattr(func, "value", "")
    made = function.name.value == "__init__" and len([t for t in site.callees if isinstance(t, Klass)]) == 1
    return bool(last == function.name.value or made) and set(decorators(function)) <= _KEEP


def _wrong(function: cst.FunctionDef, call: cst.Call, first: int) -> str:
    params, name = function.params, function.name.value
    places = [param.name.value for param in positional(function)][first:]
    plain = [argument for argument in call.args if argument.keyword is None]
    keywords = {argument.keyword.value for argument in call.args if argument.keyword is not None}
    if len(plain) > len(places) and not isinstance(params.star_arg, cst.Param):
        return f"`{name}` takes {len(places)} arguments by position, and this call gives {len(plain)}"
    known = {*places, *(param.name.value for param in params.kwonly_params)}
    if params.star_kwarg is None and (strange := keywords - known):
        return f"`{name}` has no parameter `{min(strange)}`"
    if twice := keywords & set(places[: len(plain)]):
        return f"this call gives `{min(twice)}` of `{name}` twice"
    given = {*places[: len(plain)], *keywords}
    needed = [param.name.value for param in positional(function)[first:] if param.default is None]
    needed += [param.name.value for param in params.kwonly_params if param.default is None]
    missing = [parameter for parameter in needed if parameter not in given]
    return f"`{name}` needs `{missing[0]}`, and this call does not give it" if missing else ""
