"""
Which code of a function a call does not come to: ``train("valid")`` never runs what is under ``if phase == "train":``.

The constants of a call go on to the calls that its function makes. Nothing is known of a parameter that gets another
value in the function, or of an argument that is no constant.
"""

from __future__ import annotations

import ast

import libcst as cst

from ..syntax.nodes import FunctionNode, positional, statements_before
from .call_graph import Code, Reach
from .values import Unit

Constants = frozenset[tuple[str, str]]
"""Parameters of a function, each with the text of its constant."""
NOTHING: Constants = frozenset()
_MOST = 8
"""With more different constants than this, a function counts as called with any."""
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)


class CallConstants:
    """Answers for one program."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach

    def below(self, call: cst.Call, known: Constants = NOTHING) -> dict[Code, set[Constants]]:
        """The functions that a call comes to, each with the constants that it is called with."""
        found: dict[Code, set[Constants]] = {}
        pending = [(f, self.given(call, f, known)) for f in self.reach.called(call)]
        while pending:
            function, constants = pending.pop()
            seen = found.setdefault(function, set())
            if len(seen) >= _MOST:
                constants = NOTHING
            if constants in seen or NOTHING in seen:
                continue
            seen.add(constants)
            unit = self.reach.unit(function)
            for node in self.reach.own(function):
                callees = self.reach.called(node) if isinstance(node, cst.Call) else []
                if isinstance(node, cst.Call) and callees and not excludes(unit, node, constants):
                    pending += [(callee, self.given(node, callee, constants)) for callee in callees]
        return found

    def given(self, call: cst.Call, function: FunctionNode, known: Constants) -> Constants:
        """The constants that a call gives to the parameters of a function, or leaves to be their defaults."""
        names = self.reach.unit(function).names
        scope, params = names.scopes[function], positional(function)
        if any(arg.star for arg in call.args):
            return NOTHING
        methods = isinstance(names.within[function].node, cst.ClassDef)
        static = isinstance(function, cst.FunctionDef) and any(
            isinstance(d.decorator, cst.Name) and d.decorator.value == "staticmethod" for d in function.decorators
        )
        handed = params[1 if methods and not static else 0 :]
        plain = [arg.value for arg in call.args if arg.keyword is None]
        values = {param.name.value: value for param, value in zip(handed, plain, strict=False)}
        values |= {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
        found: dict[str, str] = {}
        for param in (*params, *function.params.kwonly_params):
            word = param.name.value
            value = values.get(word, param.default)
            text = _text(value, known if word in values else NOTHING) if value is not None else None
            if text is not None and len(scope.bindings[word].definitions) == 1:
                found[word] = text
        return frozenset(found.items())


def excludes(unit: Unit, node: cst.CSTNode, known: Constants) -> bool:
    """Whether a function that is called with some constants does not come to a node of its own code."""
    if not known:
        return False
    below, function = node, unit.names.function(node)
    for above in unit.names.ancestors(node):
        if above is function:
            break
        if isinstance(above, (cst.If, cst.IfExp)) and below is not above.test:
            if decided(above.test, known) is (below is not above.body):
                return True
        elif isinstance(above, cst.BooleanOperation) and below is above.right:
            if decided(above.left, known) is isinstance(above.operator, cst.Or):
                return True
        elif isinstance(above, cst.IndentedBlock) and any(_leaves(s, known) for s in statements_before(above, below)):
            return True
        below = above
    return False


def _leaves(statement: cst.CSTNode, known: Constants) -> bool:
    """``if not training: return``, where the constants say so."""
    if not isinstance(statement, cst.If):
        return False
    holds = decided(statement.test, known)
    taken = statement.body if holds else statement.orelse.body if isinstance(statement.orelse, cst.Else) else None
    last = taken.body[-1] if holds is not None and taken is not None and taken.body else None
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _LEAVES)


def decided(test: cst.BaseExpression, known: Constants) -> bool | None:
    """What a condition is with these constants; None if they do not say."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        inner = decided(test.expression, known)
        return None if inner is None else not inner
    if isinstance(test, cst.BooleanOperation):
        sides = (decided(test.left, known), decided(test.right, known))
        settles = isinstance(test.operator, cst.Or)
        return settles if settles in sides else None if None in sides else not settles
    if isinstance(test, cst.Comparison):
        return _compared(test, known)
    text = _text(test, known)
    return bool(ast.literal_eval(text)) if text is not None else None


def _compared(test: cst.Comparison, known: Constants) -> bool | None:
    if len(test.comparisons) != 1:
        return None
    operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
    left = _text(test.left, known)
    if left is None:
        return None
    if isinstance(operator, (cst.In, cst.NotIn)):
        if not isinstance(other, (cst.Tuple, cst.List, cst.Set)):
            return None
        texts = [_text(element.value, known) for element in other.elements]
        return (left in texts) is isinstance(operator, cst.In) if None not in texts or left in texts else None
    right = _text(other, known)
    if right is None or not isinstance(operator, (cst.Equal, cst.NotEqual, cst.Is, cst.IsNot)):
        return None
    return (left == right) is isinstance(operator, (cst.Equal, cst.Is))


def _text(node: cst.BaseExpression, known: Constants) -> str | None:
    """The text of a constant, or of the constant that a parameter has."""
    if isinstance(node, (cst.SimpleString, cst.Integer)):
        return repr(node.evaluated_value)
    if isinstance(node, cst.Name):
        return node.value if node.value in ("True", "False", "None") else dict(known).get(node.value)
    return None
