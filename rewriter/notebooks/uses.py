"""What the cells of a notebook bind and read, and why a training may have to stay where it is."""

from __future__ import annotations

import ast
import re
import symtable
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..facts.container_methods import adds_elements
from .magics import used_by_magics

_READERS = frozenset(
    "print len sum max min any all sorted enumerate zip range list tuple set dict str float int round repr type".split()
)
_READING = frozenset(
    "item tolist numpy detach mean sum max min argmax argmin std size dim keys values items copy "
    "index count format join split strip lower upper".split()
)
"""Methods that give something and change nothing."""
_CONTAINERS = frozenset("list dict set defaultdict OrderedDict Counter deque".split())
_PATHS = re.compile(r"\b(sys\.path|chdir|environ)\b")


class NotGathered(Exception):
    """Why the training cells cannot be one function: the cell, the cause, the remedy, the names that it is about, which
    of the situations of its finding it is; and what else is in the way."""

    def __init__(self, cell: int, cause: str, remedy: str, about: Iterable[str] = (), *, case: str) -> None:
        super().__init__(cell, cause, remedy)
        self.about = frozenset(about)
        self.cell = cell
        self.case = case
        self.cause = cause
        self.remedy = remedy
        self.others: tuple[NotGathered, ...] = ()


def named(names: Iterable[str]) -> str:
    """Variables of the notebook in a sentence."""
    return ", ".join(f"`{name}`" for name in names)


def check_all(checks: Iterable[Callable[[], None]]) -> None:
    """Make all checks, and raise the first refusal with the others."""
    found = [why for check in checks if (why := _refusal(check)) is not None]
    if found:
        found[0].others = tuple(found[1:])
        raise found[0]


def _refusal(check: Callable[[], None]) -> NotGathered | None:
    try:
        check()
    except NotGathered as why:
        return why
    return None


@dataclass(frozen=True)
class Use:
    """The globals that a cell binds, and those that it or its functions read."""

    binds: frozenset[str]
    reads: frozenset[str]
    only_defines: bool
    fills: frozenset[str] = frozenset()
    """Lists and other containers of earlier cells that it may fill."""
    repeats: frozenset[str] = frozenset()
    """Lines with imports that an earlier cell has made already: they bind nothing new, wherever they run."""

    @property
    def makes(self) -> frozenset[str]:
        """What has another value after the cell."""
        return self.binds | self.fills


def use(text: str) -> Use:
    """The globals that a cell binds and reads."""
    tree = ast.parse(text)
    table = symtable.symtable(text, "cell", "exec")
    symbols = table.get_symbols()
    binds = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace()}
    reads = {s.get_name() for s in symbols if s.is_referenced()} | set(from_inside(table))
    first: dict[str, bool] = {}
    for name, bound in _order(tree):
        first.setdefault(name, bound)
    reads = {name for name in reads | {n for n, bound in first.items() if not bound} & binds if not first.get(name)}
    by_magics, bound_by_magics = used_by_magics(text)
    reads |= by_magics - binds
    binds |= bound_by_magics
    return Use(frozenset(binds), frozenset(reads), all(defines(statement) for statement in tree.body))


def from_inside(table: symtable.SymbolTable) -> Iterator[str]:
    """The globals that the functions and classes of a cell use."""
    for inner in table.get_children():
        yield from (s.get_name() for s in inner.get_symbols() if s.is_global())
        yield from from_inside(inner)


def _order(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """The names below a node as they come up when it runs, and whether they are certainly bound there."""
    if isinstance(node, ast.Name):
        yield node.id, not isinstance(node.ctx, ast.Load)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for part in (node.value, *targets):
            yield from _order(part) if part is not None else ()
    elif isinstance(node, ast.AugAssign):
        yield from ((name, False) for name, _ in _order(node.target))
        yield from _order(node.value)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name.partition(".")[0], True) for alias in node.names)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        # the body runs when it is called; what it reads is found in the table of symbols
        given = (*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None))
        for part in (*getattr(node, "decorator_list", ()), *given):
            yield from _order(part)
        if not isinstance(node, ast.Lambda):
            yield node.name, True
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        own = {name for part in node.generators for name, _ in _order(part.target)}
        read = (pair for part in ast.iter_child_nodes(node) for pair in _order(part))
        yield from ((name, bound) for name, bound in read if name not in own)
    elif isinstance(node, ast.For):
        for part in (node.iter, node.target, *node.body, *node.orelse):
            yield from _order(part)
    elif isinstance(node, ast.If | ast.While | ast.Try):
        yield from ((name, False) for part in ast.walk(node) for name, bound in _names(part) if not bound)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _order(child)


def _names(node: ast.AST) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Name):
        yield node.id, not isinstance(node.ctx, ast.Load)


def run(text: str) -> list[ast.stmt]:
    """The statements of a cell's top level that do something, without definitions and imports; of definitions the
    decorators, which are called."""
    body = ast.parse(text).body
    return [one for statement in body for one in (statement, *decorators(statement)) if not defines(one)]


def named_in(text: str, names: Collection[str]) -> tuple[int, int, int] | None:
    """Where a cell first reads one of some names, else where it has one in other ways: the line, and the columns."""
    lines = text.split("\n")
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id in names]
    found.sort(key=lambda node: (not isinstance(node.ctx, ast.Load), node.lineno, node.col_offset))
    for node in found[:1]:
        start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode()) + 1
        return node.lineno, start, start + len(node.id)
    others = ((number, line.find(name), name) for number, line in enumerate(lines, 1) for name in sorted(names))
    return next(((number, at + 1, at + 1 + len(name)) for number, at, name in others if at >= 0), None)


def decorators(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The decorators of a definition, as statements."""
    for decorator in getattr(statement, "decorator_list", ()):
        yield ast.copy_location(ast.Expr(decorator), decorator)


def defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    return isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))


def uses_of(texts: Sequence[str]) -> list[Use]:
    """What each cell binds, reads and fills: containers that an earlier cell made empty."""
    uses: list[Use] = []
    empty: frozenset[str] = frozenset()
    imported: dict[str, str] = {}
    known = readers(texts)
    for text in texts:
        found = use(text)
        again = {line: names for line, names in _imports(text) if names.items() <= imported.items()}
        others = use("\n".join(line for line in text.split("\n") if line not in again)).binds
        fills = found.reads & empty & frozenset(filled(text, known))
        uses.append(replace(found, binds=others, fills=fills, repeats=frozenset(again)))
        empty |= frozenset(_empty(text))
        imported = {name: module for name, module in imported.items() if name not in others}
        new = {name: module for _, names in _imports(text) for name, module in names.items()}
        imported |= {name: module for name, module in new.items() if not _assigns(text, name)}
    return uses


def imported(texts: Sequence[str], cells: Collection[int]) -> frozenset[str]:
    """What some cells bind by imports alone, each on a line of its own, which need not be in a function. Where cells
    change the path of imports, or what these read of the environment, they stay where they are."""
    if any(_PATHS.search(texts[n]) for n in cells):
        return frozenset()
    bound: dict[str, set[str]] = {}
    for name, module in (pair for text in texts for _, names in _imports(text) for pair in names.items()):
        bound.setdefault(name, set()).add(module)
    lines = {n: {line for line, _ in _imports(texts[n])} for n in cells}
    here = {name for n in cells for _, names in _imports(texts[n]) for name in names}
    names = frozenset(name for name in here if len(bound[name]) == 1)
    rests = ("\n".join(line for line in texts[n].split("\n") if line not in lines[n]) for n in cells)
    return names.difference(*(use(rest).binds for rest in rests))


def _imports(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The imports of a cell that have a line of their own, each with the names that it binds, and to what."""
    lines = text.split("\n")
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno == node.end_lineno:
            line, module = lines[node.lineno - 1], getattr(node, "module", None)
            start = f"{'.' * getattr(node, 'level', 0)}{module or ''} " if isinstance(node, ast.ImportFrom) else ""
            if ";" not in line and all(alias.name != "*" for alias in node.names):
                yield line, {a.asname or a.name.partition(".")[0]: start + _bound(a) for a in node.names}


def _bound(alias: ast.alias) -> str:
    """What an import binds: ``import torch.nn`` binds ``torch``."""
    return alias.name if alias.asname is not None else alias.name.partition(".")[0]


def _assigns(text: str, name: str) -> bool:
    """Whether a cell gives a name another value than its import."""
    symbol = symtable.symtable(text, "cell", "exec").lookup(name)
    return symbol.is_assigned() or symbol.is_namespace()


def made(uses: Sequence[Use], chosen: Collection[int]) -> frozenset[str]:
    """The names that have other values after some cells; what a function fills, it may fill when they call it."""
    return frozenset[str]().union(*(uses[n].makes for n in chosen), *(one.fills for one in uses if one.only_defines))


def _empty(text: str) -> Iterator[str]:
    """The names that a cell's top level binds to empty lists, dictionaries and sets."""
    for node in run(text):
        value = node.value if isinstance(node, ast.Assign) else None
        literal = isinstance(value, ast.List | ast.Dict) and not ast.unparse(value)[1:-1]
        made = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _CONTAINERS
        if isinstance(node, ast.Assign) and (literal or made):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def filled(text: str, readers: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names whose methods a cell calls, whose items it sets, or that it hands to a function, which may do that;
    ``readers`` are functions that do not."""
    yield from _filled(ast.parse(text), readers)


def _filled(
    code: ast.AST, readers: frozenset[str], keeps: Callable[[str], bool] = lambda method: False
) -> Iterator[str]:
    """``keeps``: of which methods it is known that they keep what they are given, and do not change it."""
    for node in ast.walk(code):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") not in _READERS | readers:
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if not keeps(getattr(node.func, "attr", "")):
                yield from (one.id for one in given if isinstance(one, ast.Name))
            if isinstance(node.func, ast.Attribute) and node.func.attr not in _READING:
                yield from _root(node.func.value)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield from _root(node.value)


def readers(texts: Sequence[str]) -> frozenset[str]:
    """The functions of the cells that change nothing of what they are given."""
    functions = [node for text in texts for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    names = Counter(node.name for node in functions)
    found = frozenset[str]()
    while more := {f.name for f in functions if f.name not in found and names[f.name] == 1 and _only_reads(f, found)}:
        found |= more
    return found


def _only_reads(function: ast.FunctionDef, known: frozenset[str]) -> bool:
    """Whether a function changes neither its arguments nor what it takes from them; what it makes may keep them."""
    nodes = list(ast.walk(function))
    taken = {one.arg for one in nodes if isinstance(one, ast.arg)}
    pairs = [(one, getattr(one, "value", None) or getattr(one, "iter", None)) for one in nodes]
    ways = [(_stored(one), _loaded(source)) for one, source in pairs if isinstance(source, ast.AST)]
    while more := {name for stored, loaded in ways if not taken.isdisjoint(loaded) for name in stored} - taken:
        taken |= more
    changed = [one.target for one in nodes if isinstance(one, ast.AugAssign)]
    changed += [one for one in nodes if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load)]
    roots = {name for one in changed for name in _root(one)}.union(_filled(function, known, adds_elements))
    others = any(isinstance(one, (ast.Delete, ast.Global, ast.Nonlocal, ast.Lambda)) for one in nodes)
    return not others and taken.isdisjoint(roots)


def _stored(node: ast.AST) -> list[str]:
    """The names that an assignment, a loop or a comprehension's clause sets."""
    targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
    found = (one for target in targets if isinstance(target, ast.AST) for one in ast.walk(target))
    return [one.id for one in found if isinstance(one, ast.Name)]


def _loaded(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
