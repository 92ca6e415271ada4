"""
Functions that a library starts, as the command line says: nothing in the script calls them.

``@click.command()``, ``@group.command()``, ``@app.command`` of Typer, ``@experiment.automain`` of Sacred hand it one
function; ``fire.Fire()`` hands it all of the file, and ``globals()[sys.argv[1]]()`` does so without a library.
With argparse a command sets what the script then calls itself: ``set_defaults(run=train)``, and ``args.run(args)``.
"""

from __future__ import annotations

import libcst as cst

from ...facts.torch_api import process_calls
from .call_binding import Evaluate, EvaluatedCall, takes
from .registries import UNNAMED
from .solver import Slot, Thing
from .values import External, Function, State, Unit, Unknown

_OF_GROUPS = ("command", "group")
"""What a function has that a library has made a group of commands of."""


def started(state: State, unit: Unit, node: cst.FunctionDef, decorator: cst.BaseExpression, evaluate: Evaluate) -> None:
    """Note a function that a decorator hands to the command line."""
    made = decorator.func if isinstance(decorator, cst.Call) else decorator

    def itself(thing: Thing) -> None:
        if isinstance(thing, External) and process_calls.starts_commands(thing.qualified):
            state.escape(node)
            state.commands.add(node)

    def owner(thing: Thing) -> None:
        grouped = isinstance(thing, Function) and isinstance(made, cst.Attribute) and made.attr.value in _OF_GROUPS
        if grouped or (isinstance(thing, Unknown) and process_calls.starts_commands(thing.qualified)):
            state.escape(node)
            state.commands.add(node)

    state.solver.watch(evaluate(state, unit, made), itself)
    if isinstance(made, cst.Attribute):
        state.solver.watch(evaluate(state, unit, made.value), owner)


def offered(call: EvaluatedCall, qualified: str) -> None:
    """Note what a call offers: the functions of its file that take what it gives."""
    chosen = qualified == f"{call.unit.name}.{UNNAMED}" and _is_all(call)
    if not chosen and ((call.args and call.args[0][0].keyword is None) or not process_calls.offers_module(qualified)):
        return
    for function in call.unit.names.functions:
        if isinstance(function, cst.FunctionDef) and isinstance(call.unit.names.within[function].node, cst.Module):
            if not chosen or takes(function, call.node):
                call.state.escape(function)
                call.state.commands.add(function)


def _is_all(call: EvaluatedCall) -> bool:
    """Whether a call is a statement of the file itself, or of its main guard: nothing is made that is kept."""
    names = call.unit.names
    return isinstance(names.parents.get(call.node), cst.Expr) and isinstance(names.function(call.node), cst.Module)


def of_parser(call: EvaluatedCall, parser: str, name: str, result: Unknown) -> None:
    """
    Let what a command sets be attributes of what the command line is read into.

    Args:
        call: of a method of a parser, or of something made by one.
        parser: its full name.
        name: that of the method.
        result: what the call gives.
    """
    if not parser.startswith("argparse."):
        return
    read = call.state.field(call.state.external("argparse.Namespace"), "")
    if name in ("parse_args", "parse_known_args"):
        call.state.solver.add(read, result)
        if name == "parse_known_args":  # which gives it first, and what it does not know
            pair, space = call.state.sequence(call.node), Slot()
            call.state.solver.add(space, result)
            pair.items[:] = [space, Slot()]
            call.state.solver.add(call.result, pair)
    for arg, slot in call.args if name == "set_defaults" else ():
        if arg.keyword is not None:
            _set(call.state, read, arg.keyword.value, slot)


def _set(state: State, read: Slot, name: str, slot: Slot) -> None:
    state.solver.watch(read, lambda space: state.solver.flow(slot, state.field(space, name)))


def option(call: cst.Call) -> str | None:
    """The attribute in which the value of an option of the command line is kept, if a call adds one."""
    if not (isinstance(call.func, cst.Attribute) and call.func.attr.value == "add_argument"):
        return None
    words = [a.value for a in call.args if isinstance(a.value, cst.SimpleString)]
    named = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "dest"]
    texts = [str(w.evaluated_value) for w in [*(n for n in named if isinstance(n, cst.SimpleString)), *words]]
    text = next((t for t in texts if t.startswith("--") or not t.startswith("-")), "")
    return text.lstrip("-").replace("-", "_") or None
