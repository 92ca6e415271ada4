"""A new parameter of a function, laid out as the others are."""

from __future__ import annotations

import libcst as cst

from .edits import AddParameter, between

_Comma = cst.Comma | cst.MaybeSentinel


def with_parameter(function: cst.FunctionDef, edit: AddParameter) -> cst.FunctionDef:
    new = _parameter(edit)
    if edit.index is None:
        return function.with_changes(params=_with_keyword_only(function.params, new))
    params = list(function.params.params)
    index = min(edit.index - len(function.params.posonly_params), len(params))
    space = cst.Comma(whitespace_after=between(params))
    new = new.with_changes(comma=space)
    last = index == len(params) and not _more(function.params)
    if index > 0 and last:
        old, plain = params[-1], cst.SimpleWhitespace("")
        comma, behind = _commas(old.comma, space)
        params[-1] = old.with_changes(comma=comma, whitespace_after_param=plain)
        new = new.with_changes(comma=behind, whitespace_after_param=old.whitespace_after_param)
    elif index == len(params) and params:
        params[-1] = params[-1].with_changes(comma=space)
    elif last:
        new = new.with_changes(comma=cst.MaybeSentinel.DEFAULT)
    params.insert(index, new)
    return function.with_changes(params=function.params.with_changes(params=params))


def _with_keyword_only(old: cst.Parameters, new: cst.Param) -> cst.Parameters:
    """Parameters with one more that only a keyword gives; on lines of their own where the others are."""
    if old.kwonly_params or isinstance(old.star_arg, cst.Param) or not old.params:
        return old.with_changes(kwonly_params=[*old.kwonly_params, new])
    *params, last = old.params
    space = cst.Comma(whitespace_after=between(old.params))
    if old.star_kwarg is not None:
        return old.with_changes(star_arg=cst.ParamStar(space), kwonly_params=[new.with_changes(comma=space)])
    comma, behind = _commas(last.comma, space)
    new = new.with_changes(comma=behind, whitespace_after_param=last.whitespace_after_param)
    last = last.with_changes(comma=comma, whitespace_after_param=cst.SimpleWhitespace(""))
    return old.with_changes(params=[*params, last], star_arg=cst.ParamStar(space), kwonly_params=[new])


def _parameter(edit: AddParameter) -> cst.Param:
    if not edit.default:
        return cst.Param(cst.Name(edit.name))
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Param(cst.Name(edit.name), default=cst.parse_expression(edit.default), equal=equal)


def _commas(old: _Comma, new: cst.Comma) -> tuple[_Comma, _Comma]:
    """The commas of the last part and of a new one after it; a comment stays on its line."""
    space = old.whitespace_after if isinstance(old, cst.Comma) else None
    rest = new.whitespace_after
    if isinstance(space, cst.ParenthesizedWhitespace) and isinstance(rest, cst.ParenthesizedWhitespace):
        line = space.first_line
        plain = line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
        return (
            cst.Comma(whitespace_after=rest.with_changes(first_line=line)),
            cst.Comma(whitespace_after=space.with_changes(first_line=plain)),
        )
    return new, old


def _more(params: cst.Parameters) -> bool:
    return bool(params.kwonly_params) or params.star_kwarg is not None or isinstance(params.star_arg, cst.Param)
