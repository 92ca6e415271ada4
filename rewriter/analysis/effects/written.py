"""Which expressions may be the path or the open file that a call writes."""

from __future__ import annotations

import libcst as cst

from ...facts.torch_api import surroundings
from ..dataflow.callees import made_names, method_name, outside_name
from ..dataflow.values import CallRecord, State
from ..syntax.nodes import is_none, keyword

_FILES = frozenset({"f", "fp", "file", "filename", "fname", "path", "stream"})
"""Keywords by which a call is given the file that it writes."""
_OF_PATHS = frozenset({"write_text", "write_bytes", "unlink"})
"""Methods of the path that is written."""


def written(state: State, call: cst.Call) -> tuple[cst.BaseExpression, ...]:
    """The path that a call writes, as far as it says which argument that is, or else all that may be it."""
    of = call.func.value if isinstance(call.func, cst.Attribute) else None
    if of is not None and method_name(call) in _OF_PATHS and _place(state, call) is None:  # not os.unlink(path)
        return (of,)
    named = [arg.value for arg in call.args if arg.keyword is not None and arg.keyword.value in _FILES]
    if named:
        return tuple(named)
    plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    place = _place(state, call)
    if place is not None and len(plain) > place:
        return (plain[place],)
    return (*(arg.value for arg in call.args), *([of] if of is not None else []))


def writes_by_method(call: cst.Call) -> bool:
    """Whether a call is of a method that writes a file, on whatever object: ``to_csv``, given a path."""
    name = method_name(call)
    if not isinstance(call.func, cst.Attribute) or name not in surroundings.writing_methods():
        return False
    optional = surroundings.text_methods().get(name)
    if optional is None or any(arg.star for arg in call.args):
        return True
    path = keyword(call, optional, 0)
    return path is not None and not is_none(path)


def removes(record: CallRecord) -> bool:
    """Whether a call takes away a file or a folder, and puts nothing in its place."""
    names = (outside_name(record), *made_names(record), f"pathlib.Path.{method_name(record.node)}")
    return any(surroundings.takes_away(name) and not surroundings.moves(name) for name in names)


def _place(state: State, call: cst.Call) -> int | None:
    """The position of the path among the arguments; None if it is not known."""
    record = state.calls.get(call)
    if record is None:
        return None
    name = outside_name(record)
    if surroundings.opens(name):
        return 0
    places = (surroundings.written_path(each) for each in (name, *made_names(record)))
    return next((place for place in places if place is not None), None)
