"""
Pictures that the training draws: the main process shows them.

A process that a notebook starts displays in the notebook, where a call asks for it (``plt.show()``, ``display(...)``).
The figure that a notebook draws at the end of a cell is that of its own process.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence

from .document import Cell
from .shown import (
    HIDDEN,
    called_instead,
    displays,
    hidden,
    how_shown,
    is_setting,
    may_draw,
    saves_figures,
    shown_by,
    shows_figures,
)
from .uses import NotGathered, use

_CHANGES = frozenset(
    "append extend insert pop update add clear remove sort reverse backward step zero_grad eval train".split()
)
_WIDGETS, _FIGURE = "ipywidgets", "FigureWidget"
_OF_PRINT = frozenset("sep end file flush".split())


def of_main_process(
    texts: Sequence[str], calling: Sequence[str], functions: frozenset[str], held: Collection[str]
) -> frozenset[str]:
    """
    The functions of cells that show something and do nothing else, so that one process may call them alone.

    Args:
        texts: of the cells, masked.
        calling: of those of the training and those that define functions.
        functions: what shows something when it is called.
        held: names of models, loaders and the like, which all processes use together, and of what trains.
    """
    defined = [node for text in texts for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    trees = [ast.parse(text) for text in calling]
    names = [node.name for node in defined]
    found = {node.name for node in defined if shown_by([node], functions) and _only_looks(node, held)}
    calls = [call for tree in trees for call in _calls(tree, found)]
    taking = {_name(call) for call in calls if _takes(call, held)}
    bare = [_name(call) for call in calls]
    read = [node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return frozenset(n for n in found - taking if names.count(n) == 1 and read.count(n) == bare.count(n))


def without_show(texts: Sequence[str], functions: frozenset[str]) -> frozenset[str]:
    """The functions of cells that draw a figure that only the end of the cell displays."""
    defined = (node for text in texts for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    return frozenset(
        node.name
        for node in defined
        if shown_by([node], functions) and not saves_figures([node]) and not shows_figures([node])
    )


def widgets_of(texts: Sequence[str]) -> frozenset[str]:
    """The names of widgets in the cells, and of the packages and classes that make them."""
    trees = [ast.parse(text) for text in texts]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    found = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).partition(".")[0] == _WIDGETS or alias.name == _FIGURE
    }
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = {n.id for n in ast.walk(node.value.func) if isinstance(n, ast.Name)} & found
            if made or ast.unparse(node.value.func).rpartition(".")[2] == _FIGURE:
                found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return frozenset(found)


def _only_looks(node: ast.FunctionDef, held: Collection[str]) -> bool:
    """Whether a function changes nothing but a figure, draws no random number, and uses nothing that all processes use
    together."""
    text = ast.unparse(node)
    inner = list(ast.walk(node))
    own = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    changed: list[ast.expr] = [
        n for n in inner if isinstance(n, ast.Subscript | ast.Attribute) and isinstance(n.ctx, ast.Store)
    ]
    changed += [n.func for n in inner if isinstance(n, ast.Call) and getattr(n.func, "attr", "") in _CHANGES]
    given = {argument.arg for argument in inner if isinstance(argument, ast.arg)}  # called, it may be a model
    left = any(isinstance(n, ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom) for n in inner)
    left = left or any(
        isinstance(n, ast.Call) and _root(n.func) in given and isinstance(n.func, ast.Name) for n in inner
    )
    return not (left or use(text).reads & {*held} or may_draw(text) or any(_root(n) not in own for n in changed))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _calls(tree: ast.AST, functions: Collection[str]) -> Iterable[ast.Call]:
    """The calls of some functions that are statements of their own."""
    for node in ast.walk(tree):
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in functions:
            yield call


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _takes(call: ast.Call, held: Collection[str]) -> bool:
    """Whether a call hands over what all processes use together, or has an argument that `print` understands."""
    given = {n.id for part in (*call.args, *call.keywords) for n in ast.walk(part) if isinstance(n, ast.Name)}
    return bool(given & {*held}) or any(keyword.arg in _OF_PRINT for keyword in call.keywords)


def for_rules(text: str, functions: Collection[str]) -> str:
    """A text whose functions that show something are not seen by the rules, which would put their guard inside; where
    they are called, the rules see a print, and the main process makes the call. Nor do they see settings of figures."""
    tree = ast.parse(text)
    lines = text.split("\n")
    for one in tree.body:
        if is_setting(one) and one.lineno == one.end_lineno and not lines[one.lineno - 1].startswith(HIDDEN):
            lines[one.lineno - 1] = hidden(lines[one.lineno - 1])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in functions:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
            end = node.end_lineno or node.lineno
            indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
            lines[first:end] = [
                f"{indent}{hidden(line[len(indent) :])}" if line.strip() else line for line in lines[first:end]
            ]
    calls = [call for call in _calls(tree, functions) if not lines[call.lineno - 1].lstrip().startswith(HIDDEN)]
    for call in sorted(calls, key=lambda one: one.lineno, reverse=True):
        at = call.lineno - 1
        indent, rest = lines[at][: call.col_offset], lines[at][call.col_offset :]
        if not indent.strip():
            lines[at] = called_instead(indent, _name(call), rest)
    return "\n".join(lines)


def check_shown(cell: Cell, body: Sequence[ast.stmt], unshown: Collection[str], widgets: Collection[str]) -> None:
    """Refuse what a cell of the training draws and shows by its end alone, and widgets. ``unshown``: functions that do
    so; ``widgets``: the names of widgets, and of what makes them."""
    named = (node for one in body for node in ast.walk(one) if isinstance(node, ast.Name) and node.id in widgets)
    if (first := next(named, None)) is not None:
        raise NotGathered(
            cell.number,
            f"the training uses a widget (`{first.id}`), and a process of the training cannot reach the widgets of the "
            "notebook: it would stay as it is",
            "Print what it shows instead (a bar: from tqdm import tqdm), or fill it in a cell after the training",
            [first.id],
            case="widget",
        )
    parts: list[list[ast.stmt]] = [[]]
    for one in body:
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            parts.append([one])
        else:
            parts[0].append(one)
    for part in parts:
        name = shown_by(part)
        called = [call for one in part for call in _calls(one, unshown)]
        if called and not shows_figures(part):
            name = _name(called[0])
        elif not name or saves_figures(part) or shows_figures(part):
            continue
        how = how_shown(name) if not called else "plt.show()"
        save = "save it (savefig)" if how == "plt.show()" else "save it"
        raise displays(
            cell,
            name,
            f"a process of the training shows a figure only where {how} is called",
            remedy=f"Call {how} where the figure is complete, {save}, or draw it in a cell after the training",
            case="figure",
        )
