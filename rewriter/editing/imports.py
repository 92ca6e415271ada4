"""Imports: add ours after the last one at the top, and remove those that only removed code used."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import dropwhile

import libcst as cst

from ..analysis.syntax.names import Names
from ..analysis.syntax.nodes import dotted, is_docstring
from ..analysis.syntax.walk import children
from .edits import AddImport


def add(module: cst.Module, wanted: Iterable[AddImport]) -> cst.Module:
    """Write ``from module import name`` for each wanted import that is still missing, in alphabetical order."""
    missing: dict[str, dict[str, None]] = {}
    for edit in wanted:
        if not _imported(module, edit.module, edit.name):
            missing.setdefault(edit.module, {})[edit.name] = None
    for source, names in sorted(missing.items()):
        text = f"from {source} import {', '.join(sorted(names))}\n"
        standard = source.partition(".")[0] in sys.stdlib_module_names
        module = _with_standard(module, text) if standard else _inserted(module, text, names)
    return module


def _with_standard(module: cst.Module, text: str) -> cst.Module:
    """An import from the standard library after the others of its kind, or as a separate group at the top."""
    body = list(module.body)
    imports = [index for index in range(_position(body)) if _is_import(body[index])]
    position = next((index + 1 for index in reversed(imports) if _is_standard(body[index])), None)
    if position is None and not imports:
        return _inserted(module, text, ())
    line = cst.parse_statement(text, config=module.config_for_parsing)
    if position is None:
        position = imports[0]
        first = body[position]
        lines = list(getattr(first, "leading_lines", ()))
        kept = _trimmed(lines)
        body[position] = first.with_changes(leading_lines=[cst.EmptyLine(indent=False), *kept])
        line = line.with_changes(leading_lines=lines[: len(lines) - len(kept)])
    body.insert(position, line)
    return module.with_changes(body=body)


def _is_standard(statement: cst.BaseStatement) -> bool:
    """Whether an import line imports from the standard library alone."""
    assert isinstance(statement, cst.SimpleStatementLine)
    for small in statement.body:
        if isinstance(small, cst.Import):
            sources = [dotted(alias.name) for alias in small.names]
        else:
            assert isinstance(small, cst.ImportFrom)
            sources = [dotted(small.module) if small.module is not None and not small.relative else ""]
        if any(source.partition(".")[0] not in sys.stdlib_module_names for source in sources):
            return False
    return True


def _imported(module: cst.Module, source: str, name: str) -> bool:
    for statement in module.body:
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.ImportFrom) and not isinstance(small.names, cst.ImportStar):
                from_here = small.module is not None and dotted(small.module) == source
                if from_here and any(alias.evaluated_name == name and not alias.asname for alias in small.names):
                    return True
    return False


def _inserted(module: cst.Module, text: str, names: Iterable[str]) -> cst.Module:
    position = min([_position(module.body), *(_first_reader(module.body, name) for name in names)])
    line = cst.parse_statement(text, config=module.config_for_parsing)
    body = list(module.body)
    if position == 0 and body:
        first = body[0]
        lines = (
            list(first.leading_lines) if isinstance(first, (cst.SimpleStatementLine, cst.BaseCompoundStatement)) else []
        )
        if not module.header and not lines:
            body[0] = first.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    body.insert(position, line)
    return module.with_changes(body=body)


def _first_reader(body: Sequence[cst.BaseStatement], name: str) -> int:
    """The position of the first statement that runs at import time and reads the name."""
    for index, statement in enumerate(body):
        if isinstance(statement, cst.FunctionDef):
            parts: list[cst.CSTNode] = [statement.params, *statement.decorators]
            parts += [statement.returns] if statement.returns is not None else []
        else:
            parts = [] if _is_import(statement) else [statement]
        if any(found.value == name for part in parts for found in names_in(part)):
            return index
    return len(body)


def _position(body: Sequence[cst.BaseStatement]) -> int:
    """After the last import of the file's head: the statements before the first function, class or other code."""
    found = 0
    for index, statement in enumerate(body):
        if _is_import(statement):
            found = index + 1
        elif isinstance(statement, (cst.FunctionDef, cst.ClassDef, cst.For, cst.While)):
            break
        elif index == 0 and is_docstring(statement):
            found = 1
        elif found > 1 and not isinstance(statement, (cst.Try, cst.If)) and not _imports_later(body, index):
            break
    return found


def _imports_later(body: Sequence[cst.BaseStatement], index: int) -> bool:
    """Whether plain imports follow before any definition: ``matplotlib.use("Agg")`` between two imports."""
    for statement in body[index : index + 6]:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            return False
        if _is_import(statement):
            return True
    return False


def _is_import(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )


def drop_unused(before: Names, module: cst.Module, taken: Collection[str] = ()) -> cst.Module:
    """Remove the top-level imports that the original reads and the new text does not, except those that other modules
    import from here."""
    imported = {
        name
        for name, binding in before.scope.bindings.items()
        if binding.reads and all(isinstance(d, cst.ImportAlias) for d in binding.definitions)
        if name not in taken and "*" not in taken
    }
    if not imported:
        return module
    still = {node.value for statement in module.body if not _is_import(statement) for node in names_in(statement)}
    idle = imported - still - exported(module)
    if not idle:
        return module
    body: list[cst.BaseStatement] = []
    carried: Sequence[cst.EmptyLine] = ()
    """What is above an import that goes: the next line of its group begins the group then."""
    for statement in module.body:
        kept, own = _kept(statement, idle), getattr(statement, "leading_lines", ())
        if kept is None:
            carried = own or carried
        else:
            body.append(kept if own or not carried else kept.with_changes(leading_lines=carried))
            carried = ()
    if body and body[0] is not module.body[0] and not module.header:
        body[0] = _without_blanks(body[0])
    return module.with_changes(body=body)


def _without_blanks(statement: cst.BaseStatement) -> cst.BaseStatement:
    """The new first statement of a file, without the blank lines above it."""
    return statement.with_changes(leading_lines=_trimmed(getattr(statement, "leading_lines", ())))


def _trimmed(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """The lines above a statement, starting at the first comment."""
    return list(dropwhile(lambda line: line.comment is None, lines))


def names_in(node: cst.CSTNode) -> Iterator[cst.Name]:
    """The names that are read, and those that are set."""
    pending = [node]
    while pending:
        node = pending.pop()
        kind = node.__class__
        if kind is cst.Name:
            yield node  # type: ignore[misc]
        elif kind is cst.Attribute or kind is cst.Arg:  # names of attributes and keywords are no variables
            pending.append(node.value)  # type: ignore[attr-defined]
        else:
            pending += children(node)[::-1]


def exported(module: cst.Module) -> set[str]:
    """What a module lists in its ``__all__``."""
    for statement in module.body:
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
                if small.targets[0].target.value == "__all__" and isinstance(small.value, (cst.List, cst.Tuple)):
                    strings = [e.value for e in small.value.elements]
                    return {str(s.evaluated_value) for s in strings if isinstance(s, cst.SimpleString)}
    return set()


def _kept(statement: cst.BaseStatement, idle: set[str]) -> cst.BaseStatement | None:
    if not _is_import(statement) or not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return statement
    small = statement.body[0]
    assert isinstance(small, (cst.Import, cst.ImportFrom))
    if isinstance(small.names, cst.ImportStar):
        return statement
    names = [alias for alias in small.names if _bound(alias) not in idle]
    if len(names) == len(small.names):
        return statement
    if not names:
        return None
    names[-1] = names[-1].with_changes(comma=small.names[-1].comma)
    return statement.with_changes(body=[small.with_changes(names=names)])


def _bound(alias: cst.ImportAlias) -> str:
    if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
        return alias.asname.name.value
    return alias.evaluated_name.partition(".")[0]
