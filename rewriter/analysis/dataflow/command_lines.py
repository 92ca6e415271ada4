"""
Functions that a library starts, as the command line says: nothing in the script calls them.

``@click.command()``, ``@group.command()``, ``@app.command`` of Typer, ``@experiment.automain`` of Sacred hand it one
function; ``fire.Fire()`` hands it all of the file.
"""

from __future__ import annotations

import libcst as cst

from ...facts.torch_api import questions
from .call_binding import Evaluate, EvaluatedCall
from .solver import Thing
from .values import External, Function, State, Unit, Unknown

_OF_GROUPS = ("command", "group")
"""What a function has that a library has made a group of commands of."""


def started(state: State, unit: Unit, node: cst.FunctionDef, decorator: cst.BaseExpression, evaluate: Evaluate) -> None:
    """Note a function that a decorator hands to the command line."""
    made = decorator.func if isinstance(decorator, cst.Call) else decorator

    def itself(thing: Thing) -> None:
        if isinstance(thing, External) and questions.starts_commands(thing.qualified):
            state.escaped.add(node)
            state.commands.add(node)

    def owner(thing: Thing) -> None:
        grouped = isinstance(thing, Function) and isinstance(made, cst.Attribute) and made.attr.value in _OF_GROUPS
        if grouped or (isinstance(thing, Unknown) and questions.starts_commands(thing.qualified)):
            state.escaped.add(node)
            state.commands.add(node)

    state.solver.watch(evaluate(state, unit, made), itself)
    if isinstance(made, cst.Attribute):
        state.solver.watch(evaluate(state, unit, made.value), owner)


def offered(call: EvaluatedCall, qualified: str) -> None:
    """Note what a call without an argument offers: the functions of its file."""
    if (call.args and call.args[0][0].keyword is None) or not questions.offers_module(qualified):
        return
    for function in call.unit.names.functions:
        if isinstance(function, cst.FunctionDef) and isinstance(call.unit.names.within[function].node, cst.Module):
            call.state.escaped.add(function)
            call.state.commands.add(function)


def option(call: cst.Call) -> str | None:
    """The attribute in which the value of an option of the command line is kept, if a call adds one."""
    if not (isinstance(call.func, cst.Attribute) and call.func.attr.value == "add_argument"):
        return None
    words = [a.value for a in call.args if isinstance(a.value, cst.SimpleString)]
    named = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "dest"]
    texts = [str(w.evaluated_value) for w in [*(n for n in named if isinstance(n, cst.SimpleString)), *words]]
    text = next((t for t in texts if t.startswith("--") or not t.startswith("-")), "")
    return text.lstrip("-").replace("-", "_") or None
