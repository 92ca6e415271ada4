"""
Makes the sanitizer see values: the tree of a file of the script, with calls around what is compared, logged and saved.

The text of the script stays as it is; only what Python runs is different, and it computes the same.
"""

from __future__ import annotations

import ast
from functools import partial
from typing import NamedTuple

from .words import Nature

COMPARED, TESTED, LOGGED, SAVED, LOSS = "@compared", "@tested", "@logged", "@saved", "@loss"
"""Names in the name space of a file; no script can have such a name."""
_OPERATORS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_LOGS = frozenset(
    "print debug info warning error critical log write set_postfix set_description log_metric log_metrics log_dict "
    "log_scalar log_scalars add_scalar add_scalars report_scalar".split()
)
_SAVES = frozenset("save save_file dump savez savez_compressed savetxt".split())
_NO_LOGS = frozenset("math cmath torch np numpy F tf tensorflow jnp jax os".split())
"""Modules whose `log` is a logarithm, and whose `write` writes bytes."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LONGEST = 60
_LINE = 10_000
"""Columns of a line: one of a later line of the same call is counted on from these."""


class Site(NamedTuple):
    """An expression of the script that is looked at."""

    file: str
    line: int
    column: int
    text: str
    time: bool
    """It is a time: of such values only the way that is taken counts."""

    @property
    def key(self) -> str:
        """The same on all ranks."""
        return f"{self.file}:{self.line}:{self.column}"


SITES: list[Site] = []
"""Of all files, by the numbers that the calls are given."""


def rewritten(tree: ast.Module, file: str) -> ast.Module:
    """The tree of a file with calls of the sanitizer; it is changed in place."""
    _Rewriter(file, tree).visit(tree)
    return ast.fix_missing_locations(tree)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, file: str, module: ast.Module) -> None:
        self._file = file
        self._attributes: dict[str, str] = {}
        self._natures = [Nature(module, self._attributes)]
        self._modules = {
            alias.asname: alias.name.partition(".")[0]
            for node in ast.walk(module)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.asname
        }
        """What modules are imported as another name."""
        self._rows: list[set[str]] = [set()]
        """Targets of the loops around, in this function: what is compared with them is a row."""

    # ------------------------------------------------------------ scopes and loops

    def _scope(self, node: ast.AST) -> ast.AST:
        self._natures.append(Nature(node, self._attributes))
        self._rows.append(set())
        self.generic_visit(node)
        self._natures.pop()
        self._rows.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _scope

    def _loop(self, node: ast.For | ast.AsyncFor) -> ast.AST:
        before = set(self._rows[-1])
        self._rows[-1] |= _names(node.target) - _counters(node)
        node.iter = self.visit(node.iter)
        node.body = [self.visit(one) for one in node.body]
        self._rows[-1] = before
        node.orelse = [self.visit(one) for one in node.orelse]
        return node

    visit_For = visit_AsyncFor = _loop

    def _comprehension(self, node: ast.AST) -> ast.AST:
        return node  # decisions about single rows

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node  # who fails alone is noticed anyway

    # ------------------------------------------------------------ what is compared

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        kind = self._natures[-1].of(node)
        operator = _OPERATORS.get(type(node.ops[0])) if len(node.ops) == 1 else None
        seen = operator is not None and kind != "rank" and not _names(node) & self._rows[-1]
        site = self._site(node, kind == "time") if seen else node
        self.generic_visit(node)
        if not seen:
            return node
        arguments = [site, ast.Constant(operator), node.left, node.comparators[0]]
        return _call(COMPARED, arguments, node)

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._tested(node.test)
        self.generic_visit(node)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self._tested(node.test)
        self.generic_visit(node)
        return node

    def _tested(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.BoolOp):
            test.values = [self._tested(value) for value in test.values]
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._tested(test.operand)
        elif isinstance(test, (ast.Call, ast.Name, ast.Attribute)):
            if not self._natures[-1].of(test) and not _names(test) & self._rows[-1]:
                return _call(TESTED, [self._site(test, False), test], test)
        return test

    # ------------------------------------------------------------ what is logged, saved, and differentiated

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name, base = _called(node)
        if base is None:
            logs, saves = name == "print", name in _SAVES
        else:
            logs, saves = name in _LOGS and self._modules.get(base, base) not in _NO_LOGS, name in _SAVES
        if (logs or saves) and not self._names_the_rank(node):
            wrap = self._logged if logs else partial(self._saved, call=node)
            node.args = [one if isinstance(one, ast.Starred) else wrap(one) for one in node.args]
            for keyword in node.keywords:
                if keyword.arg != "file":
                    keyword.value = wrap(keyword.value)
        elif name in ("backward", "scale") and base is not None:
            self._differentiated(node)
        self.generic_visit(node)
        return node

    def _names_the_rank(self, call: ast.Call) -> bool:
        """Each rank says or saves something of its own, and whose it is."""
        inner = [one for argument in (*call.args, *call.keywords) for one in ast.walk(argument)]
        return any(isinstance(one, (ast.Name, ast.Attribute)) and self._natures[-1].of(one) == "rank" for one in inner)

    def _logged(self, node: ast.expr) -> ast.expr:
        """The values in an expression that becomes a text, each by itself."""
        if isinstance(node, ast.JoinedStr):
            for one in node.values:
                if isinstance(one, ast.FormattedValue):
                    one.value = self._logged(one.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left):
            node.right = self._logged(node.right)
        elif (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Add)
            and (_is_text(node.left) or _is_text(node.right))
        ):
            node.left, node.right = self._logged(node.left), self._logged(node.right)
        elif isinstance(node, (ast.Tuple, ast.List)):
            node.elts = [self._logged(one) for one in node.elts]
        elif isinstance(node, ast.Dict):
            node.values = [
                value if key is not None and self._natures[-1].of(key) else self._logged(value)
                for key, value in zip(node.keys, node.values, strict=True)
            ]
        elif isinstance(node, ast.Call) and _called(node)[0] in ("format", "str", "repr", "join"):
            node.args = [one if isinstance(one, ast.Starred) else self._logged(one) for one in node.args]
            for keyword in node.keywords:
                keyword.value = self._logged(keyword.value)
        elif not isinstance(node, ast.Constant) and not self._natures[-1].of(node):
            return _call(LOGGED, [self._site(node, False), node], node)
        return node

    def _saved(self, node: ast.expr, call: ast.Call) -> ast.expr:
        """An argument of a call that saves; all of them have the line of the call: one is the path of the others."""
        if isinstance(node, ast.Constant):
            return node
        return _call(SAVED, [self._site(node, False, call), node], node)

    def _differentiated(self, node: ast.Call) -> None:
        """The loss is the first argument (`accelerator.backward(loss)`), or what `backward` is called on."""
        if node.args and not isinstance(node.args[0], ast.Starred):
            node.args[0] = _loss(node.args[0])
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            node.func.value = _loss(node.func.value)

    def _site(self, node: ast.expr, time: bool, call: ast.Call | None = None) -> ast.expr:
        line = node.lineno if call is None else call.lineno
        column = node.col_offset + _LINE * (node.lineno - line)
        SITES.append(Site(self._file, line, column, _text(node), time))
        return ast.Constant(len(SITES) - 1)


def _text(node: ast.expr) -> str:
    try:
        text = " ".join(ast.unparse(node).split())
    except ValueError:  # before Python 3.12, some texts with quotes and backslashes cannot be written again
        return "..."
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _call(function: str, arguments: list[ast.expr], at: ast.AST) -> ast.Call:
    call = ast.Call(func=ast.Name(function, ast.Load()), args=arguments, keywords=[])
    return ast.copy_location(call, at)


def _loss(node: ast.expr) -> ast.expr:
    """A loss; of one that is divided by the length of a window, what the script prints."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        node.left = _loss(node.left)
        return node
    return _call(LOSS, [node], node)


def _called(node: ast.Call) -> tuple[str, str | None]:
    """The name of a function or method, and what comes before it: None for a function."""
    if isinstance(node.func, ast.Name):
        return node.func.id, None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr, node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    return "", None


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _counters(node: ast.For | ast.AsyncFor) -> set[str]:
    """Targets of a loop that only count."""
    called = _called(node.iter)[0] if isinstance(node.iter, ast.Call) else ""
    if called == "range":
        return _names(node.target)
    if called == "enumerate" and isinstance(node.target, ast.Tuple):
        return _names(node.target.elts[0])
    return set()


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _is_text(node.left)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
