"""
Decide whether a file may need work. Standard library only: the answer must not cost the import of libcst.

First the bytes, then the names in the syntax tree. The analysis decides whether a file that trains is migrated already;
``cache`` keeps its answer.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator

TORCH = frozenset({"torch", "torchvision", "torchaudio", "torchtext", "torchdata", "torchlift", "accelerate"})
"""A file that imports one of these top-level modules may train."""


def trains(data: bytes) -> bool:
    """Whether a file trains with torch, judged by its names; true if Python cannot parse it."""
    if b"backward" not in data or not (b"torch" in data or b"accelerate" in data):
        return False
    try:
        return _trains(_nodes(parse(data)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def helps(data: bytes) -> bool:
    """Whether a file without an import of torch has backward passes: it may hold the training step of another
    script."""
    if b".backward" not in data:
        return False
    try:
        return any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in _nodes(parse(data)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def handed_on(data: bytes) -> Iterator[tuple[str, str, int]]:
    """The functions of other packages that a file hands an optimizer of torch to: name, the optimizer, and line."""
    if b"optim" not in data or b"torch" not in data:
        return
    try:
        nodes = list(_nodes(parse(data)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    names = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    calls = [(n.targets[0], n.value) for n in nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)]
    made = [(target.id, _full(call.func, names)) for target, call in calls if isinstance(target, ast.Name)]
    held = {name for name, full in made if full.startswith("torch.optim.") and ".lr_scheduler." not in full}
    for node in nodes if held else ():
        if isinstance(node, ast.Call) and (full := _full(node.func, names)).partition(".")[0] not in {"", *TORCH}:
            given = (*node.args, *(word.value for word in node.keywords))
            found = next((part.id for part in given if isinstance(part, ast.Name) and part.id in held), None)
            if found is not None:
                yield full, found, node.lineno


def _full(node: ast.expr, names: dict[str, str]) -> str:
    """The full name of something that is imported; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{base}.{node.attr}" if (base := _full(node.value, names)) else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def syntax_error(data: bytes) -> SyntaxError | None:
    """Return the error if Python cannot parse the bytes of a file, else None."""
    try:
        parse(data)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        pass
    return None


def parse(data: bytes) -> ast.Module:
    """Parse bytes without warnings about invalid escapes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(data)


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that may hold a name or a value: three times as fast as ``ast.walk``."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        if node.__class__ is ast.Name or node.__class__ is ast.Constant:  # nothing below them is needed
            continue
        for name in node._fields:
            value = getattr(node, name)
            if value.__class__ is list:
                stack.extend([item for item in value if isinstance(item, ast.AST)])
            elif isinstance(value, ast.AST) and value._fields:
                stack.append(value)


def _trains(nodes: Iterable[ast.AST]) -> bool:
    """Whether torch is imported, and something called ``backward`` is used as an attribute or imported."""
    torch = backward = False
    for node in nodes:
        if isinstance(node, ast.Attribute):
            backward = backward or node.attr == "backward"
        elif isinstance(node, ast.Import):
            torch = torch or any(alias.name.partition(".")[0] in TORCH for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            torch = torch or (node.module or "").partition(".")[0] in TORCH
            backward = backward or any(alias.name == "backward" for alias in node.names)
        if torch and backward:
            return True
    return False
