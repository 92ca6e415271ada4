"""What a cell displays of its own accord, the value of its last line: inside a function it has to be printed."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..facts.torch_api.kinds import outside, tensors, training
from ..facts.torch_api.loading import named, row, transfer
from ..facts.torch_api.surroundings import writing_methods
from .shown import displayed

_SILENT = frozenset("print exec setattr delattr breakpoint help".split())
"""The built-in functions that return nothing."""
_CHANGES = frozenset(
    "append extend insert remove clear update add sort reverse step zero_grad backward close finish flush seed".split()
)
"""Usual names of methods that change their object and return nothing."""
_VALUE, _NOTHING, _UNKNOWN = "value", "nothing", "unknown"


@dataclass(frozen=True)
class LastValues:
    """
    What the last lines of cells display.

    Args:
        texts: the cells, and the modules beside the notebook.
        prepared: what the training prepares: models that are called among it.
    """

    texts: Sequence[str]
    prepared: Collection[str]

    def printed(self, text: str) -> str:
        """
        A cell that displays the value of its last line prints it instead.

        What a call of a class makes may be more than a text (``Image(path)``), and is displayed by the main process.
        Where it is not known whether a call returns something, that is asked before it is printed.
        """
        tree = ast.parse(text)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr) or isinstance(last.value, ast.Constant):
            return text
        gives = self._gives(last.value) if isinstance(last.value, ast.Call) else _VALUE
        lines = text.encode().split(b"\n")
        start, end = last.lineno - 1, (last.end_lineno or last.lineno) - 1
        close = last.end_col_offset or 0
        if gives == _NOTHING or lines[end][close:].lstrip().startswith(b";"):
            return text  # a semicolon: the author wants no display
        made = isinstance(last.value, ast.Call) and _is_class(last.value.func)
        before, rest = lines[start][: last.col_offset], lines[start][last.col_offset :]
        if gives == _UNKNOWN:
            if before.strip():
                return text
            name = next(n for n in ("shown", "last_value", "last_value_") if n not in self._words())
            lines[start] = f"{name} = ".encode() + rest
            lines.insert(end + 1, f"if {name} is not None:\n    print({name})".encode())
            return b"\n".join(lines).decode()
        opening, closing = (b"print((", b"))") if _is_bare_tuple(text, last.value) else (b"print(", b")")
        if silent := self._silent(text, last.value):
            closing, close = f"{silent}))".encode(), close - 1
            lines[end] = lines[end][:close] + lines[end][close + 1 :]
        lines[end] = lines[end][:close] + closing + lines[end][close:]
        printed = opening + lines[start][last.col_offset :]
        lines[start] = before + printed if not made or before.strip() else displayed(printed.decode()).encode()
        return b"\n".join(lines).decode()

    def _gives(self, call: ast.Call) -> str:
        """Whether a call returns something, as far as that is known."""
        func = call.func
        name = func.id if isinstance(func, ast.Name) else ""
        if name in self.prepared or _is_class(func):
            return _VALUE
        full = _full_name(func, self._imports())
        own = [] if row(full) is not None else self._own(full, func)
        if own:
            return _VALUE if any(map(_returns, own)) else _NOTHING
        if full:
            return _of_package(full)
        if name:
            known = hasattr(builtins, name)
            return (_NOTHING if name in _SILENT else _VALUE) if known else _UNKNOWN
        return _of_method(func.attr) if isinstance(func, ast.Attribute) else _UNKNOWN

    def _own(self, full: str, func: ast.expr) -> list[ast.stmt]:
        """The functions of the cells and of the modules that a call may run, by their name: methods of their classes
        where it is none that models, optimizers and the like have by themselves."""
        method = isinstance(func, ast.Attribute) and not full
        taken = method and ast.unparse(func).partition(".")[0] in self.prepared
        if taken and _of_method(getattr(func, "attr", "")) != _UNKNOWN:
            return []
        name = full.rpartition(".")[2] or ast.unparse(func).rpartition(".")[2]
        bodies = [ast.parse(text).body for text in self.texts]
        if method:
            bodies = [s.body for body in bodies for s in body if isinstance(s, ast.ClassDef)]
        return [s for body in bodies for s in body if isinstance(s, ast.FunctionDef) and s.name == name]

    def _silent(self, text: str, value: ast.expr) -> str:
        """The argument, with a comma, by which a call only returns what it shows in a script, as it does in a notebook:
        ``summary(model)``."""
        full = _full_name(value.func, self._imports()) if isinstance(value, ast.Call) else ""
        console = transfer(full, outside.Console)
        if not isinstance(value, ast.Call) or console is None or any(k.arg == console.silent for k in value.keywords):
            return ""
        begun, more = (ast.get_source_segment(text, value) or "")[:-1], f"{console.silent}=0"
        return more if begun.rstrip()[-1:] in ("(", ",") else f", {more}"

    def _imports(self) -> dict[str, str]:
        """The names that the cells import, with their full names."""
        return {name: full for text in self.texts for node in ast.walk(ast.parse(text)) for name, full in _bound(node)}

    def _words(self) -> set[str]:
        return {n.id for text in self.texts for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}


def _returns(definition: ast.stmt) -> bool:
    """Whether a function of the notebook ends with ``return`` and a value."""
    end = definition.body[-1] if isinstance(definition, ast.FunctionDef) else None
    return isinstance(end, ast.Return) and end.value is not None and ast.unparse(end.value) != "None"


def _of_package(name: str) -> str:
    """Whether a function of a package returns something: as the tables say, which describe what matters to training."""
    found, console = row(name), transfer(name, outside.Console)
    if console is not None:
        return _VALUE if console.gives else _NOTHING
    if found is None:
        package = name.partition(".")[0]
        tracks = any(each.partition(".")[0] == package for each in named(outside.Tracker))
        return _NOTHING if tracks or package == "torch" or package in sys.stdlib_module_names else _UNKNOWN
    if isinstance(found.transfer, outside.TextOf | outside.Read):
        return _UNKNOWN
    return _VALUE if type(found.transfer).__module__ == tensors.__name__ else _NOTHING


def _of_method(name: str) -> str:
    """Whether a method returns something: one of a tensor or of a model does."""
    if name in _CHANGES or name in writing_methods():
        return _NOTHING
    of_module = row(f"torch.nn.Module.{name}")
    if of_module is not None and isinstance(of_module.transfer, training.ModuleInPlace):
        return _VALUE
    return _VALUE if row(f"torch.Tensor.{name}") is not None else _UNKNOWN


def _bound(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        heads = ((alias, alias.name.partition(".")[0]) for alias in node.names)
        yield from ((alias.asname, alias.name) if alias.asname else (head, head) for alias, head in heads)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _full_name(func: ast.expr, imports: Mapping[str, str]) -> str:
    """The full name of a function that is imported; empty for others."""
    parts: list[str] = []
    while isinstance(func, ast.Attribute):
        parts.insert(0, func.attr)
        func = func.value
    start = imports.get(func.id, "") if isinstance(func, ast.Name) else ""
    return ".".join([start, *parts]) if start else ""


def _is_class(called: ast.expr) -> bool:
    """Whether a call creates an object, as far as its name tells: ``Image(path)``, ``pd.DataFrame(rows)``. A function
    may start with a capital, too, but then its name is no word of a class: ``LOO_run(model)``."""
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name[:1].isupper() and "_" not in name


def displaying(text: str, last: ast.stmt) -> str:
    """A cell that displays the object of its last line (``HTML(...)``, ``figure``), where another line follows."""
    value = last.value if isinstance(last, ast.Expr) else None
    if value is None or isinstance(value, ast.Constant) or (isinstance(value, ast.Call) and not _is_class(value.func)):
        return text
    lines = text.encode().split(b"\n")
    start, end, close = last.lineno - 1, (last.end_lineno or last.lineno) - 1, last.end_col_offset or 0
    if lines[end][close:].lstrip().startswith(b";"):
        return text
    lines[end] = lines[end][:close] + b")" + lines[end][close:]
    lines[start] = lines[start][: last.col_offset] + b"display(" + lines[start][last.col_offset :]
    return b"\n".join(lines).decode()


def _is_bare_tuple(text: str, value: ast.expr) -> bool:
    """``a, b`` without parentheses, with which it would be displayed."""
    if not isinstance(value, ast.Tuple):
        return False
    try:
        between = ast.parse((ast.get_source_segment(text, value) or "")[1:-1], mode="eval").body
    except SyntaxError:
        return True
    return ast.dump(between) != ast.dump(value)
