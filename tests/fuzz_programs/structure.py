"""How the blocks of a script are laid out: one after the other, in a main function, in functions, in a class."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Block = list[ast.stmt]


@dataclass
class Blocks:
    """The parts of a script, as syntax trees."""

    imports: Block
    definitions: Block
    """Settings, classes and functions at module level."""
    setup: Block
    training: Block
    """What one epoch of training is."""
    evaluation: Block
    """What one evaluation is."""
    after: Block
    """What follows both in an epoch."""
    end: Block
    heading: str = "for epoch in range(EPOCHS):"
    known: frozenset[str] = field(default=frozenset())

    def __post_init__(self) -> None:
        named = {alias.asname or alias.name.split(".")[0] for s in self.imports for alias in getattr(s, "names", ())}
        named |= {s.name for s in self.definitions if isinstance(s, (ast.FunctionDef, ast.ClassDef))}
        self.known = frozenset(named | sets(self.definitions) | set(dir(builtins)))


def block(text: str) -> Block:
    """The statements of a text."""
    return ast.parse(text).body


def reads(statements: Sequence[ast.stmt], known: frozenset[str]) -> list[str]:
    """The variables that statements read before they have set them, in the order of the reading."""
    found: dict[str, None] = {}
    bound: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)):
            inner: set[str] = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            inner |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
            for n in ast.walk(node):
                if isinstance(n, ast.Name) and n.id not in inner | bound | known:
                    found.setdefault(n.id)
            if isinstance(node, ast.FunctionDef):
                bound.add(node.name)
            return
        if isinstance(node, ast.ClassDef):
            bound.add(node.name)
            return
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id not in bound | known
        ):
            found.setdefault(node.target.id)
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.For)):  # what is read there is read first
            children.sort(key=lambda n: n in getattr(node, "targets", [getattr(node, "target", None)]))
        if isinstance(node, ast.For):
            children = [node.iter, node.target, *node.body, *node.orelse]
        for child in children:
            visit(child)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                bound.add(node.id)
            elif node.id not in bound | known:
                found.setdefault(node.id)

    for statement in statements:
        visit(statement)
    return list(found)


def sets(statements: Sequence[ast.stmt]) -> set[str]:
    """The variables that statements set, those of functions in them left out."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return found


def flat(parts: Blocks) -> ast.Module:
    """All of it at module level."""
    return ast.Module([*parts.imports, *parts.definitions, *_run(parts, parts.training, parts.evaluation)], [])


def in_main(parts: Blocks) -> ast.Module:
    """All of it in a function, which is called when the script is run."""
    body = _run(parts, parts.training, parts.evaluation)
    return ast.Module([*parts.imports, *parts.definitions, *_main(body)], [])


def in_functions(parts: Blocks) -> ast.Module:
    """The training and the evaluation in functions of module level, the rest there too."""
    made = _outlined(parts)
    return ast.Module([*parts.imports, *parts.definitions, *made[0], *_run(parts, *made[1:])], [])


def in_functions_and_main(parts: Blocks) -> ast.Module:
    """The training and the evaluation in functions, the rest in a main function."""
    made = _outlined(parts)
    return ast.Module([*parts.imports, *parts.definitions, *made[0], *_main(_run(parts, *made[1:]))], [])


def in_class(parts: Blocks) -> ast.Module:
    """A class: what is set up is kept by the object, and each part is a method."""
    kept = sets(parts.setup) & {
        name for part in (parts.training, parts.evaluation, parts.after, parts.end) for name in reads(part, parts.known)
    }
    training = _method("train_epoch", parts, parts.training, (parts.evaluation, parts.after, parts.end), kept)
    evaluation = _method("evaluate", parts, parts.evaluation, (parts.after, parts.end), kept)
    setup = _defined("__init__", ["self"], _on_self(parts.setup, kept))
    fit = [_loop(parts, [*training[1], *evaluation[1], *parts.after]), *parts.end]
    run = _defined("fit", ["self"], _on_self(fit, kept))
    methods = [setup, *training[0], *evaluation[0], run]
    (whole,) = block("class Trainer:\n    pass")
    assert isinstance(whole, ast.ClassDef)
    whole.body = [*methods]
    return ast.Module(
        [*parts.imports, *parts.definitions, whole, *_main(block("trainer = Trainer()\ntrainer.fit()"))], []
    )


STRUCTURES = {
    "flat": flat,
    "main": in_main,
    "functions": in_functions,
    "functions and main": in_functions_and_main,
    "class": in_class,
}


def _run(parts: Blocks, training: Block, evaluation: Block) -> Block:
    return [*parts.setup, _loop(parts, [*training, *evaluation, *parts.after]), *parts.end]


def _loop(parts: Blocks, body: Block) -> ast.stmt:
    (loop,) = block(parts.heading + "\n    pass")
    assert isinstance(loop, (ast.For, ast.While))
    loop.body = body
    return loop


def _main(body: Block) -> Block:
    return [_defined("main", [], body), *block("if __name__ == '__main__':\n    main()")]


def _defined(name: str, given: Sequence[str], body: Block) -> ast.FunctionDef:
    (function,) = block(f"def {name}({', '.join(given)}):\n    pass")
    assert isinstance(function, ast.FunctionDef)
    function.body = body
    return function


def _outlined(parts: Blocks) -> tuple[Block, Block, Block]:
    """The functions, and the calls in the places of what they hold."""
    functions: Block = []
    calls = []
    for name, part, later in (
        ("train", parts.training, (parts.evaluation, parts.after, parts.end)),
        ("evaluate", parts.evaluation, (parts.after, parts.end)),
    ):
        given = reads(part, parts.known)
        back = _back(parts, part, later)
        functions += _function(name, given, part, back)
        calls.append(_call(name, given, back) if part else [])
    return functions, calls[0], calls[1]


def _back(parts: Blocks, part: Block, later: Sequence[Block]) -> list[str]:
    """What a part sets and others read, the part itself in the next epoch included."""
    needed = {name for other in (*later, part) for name in reads(other, parts.known)}
    return sorted(sets(part) & needed)


def _function(name: str, given: Sequence[str], body: Block, back: Sequence[str]) -> list[ast.FunctionDef]:
    if not body:
        return []
    ending = block(f"return {', '.join(back)}") if back else []
    return [_defined(name, given, [*body, *ending])]


def _call(name: str, given: Sequence[str], back: Sequence[str]) -> Block:
    assigned = f"{', '.join(back)} = " if back else ""
    return block(f"{assigned}{name}({', '.join(given)})")


def _method(
    name: str, parts: Blocks, part: Block, later: Sequence[Block], kept: set[str]
) -> tuple[list[ast.FunctionDef], Block]:
    if not part:
        return [], []
    given = [n for n in reads(part, parts.known) if n not in kept]
    back = [n for n in _back(parts, part, later) if n not in kept]
    functions = _function(name, ["self", *given], part, back)
    for function in functions:
        function.body = _on_self(function.body, kept)
    return functions, _call(f"self.{name}", given, back)


class _OnSelf(ast.NodeTransformer):
    def __init__(self, kept: set[str]) -> None:
        self.kept = kept

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.kept:
            return ast.Attribute(ast.Name("self", ast.Load()), node.id, node.ctx)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        inner = _OnSelf(self.kept - sets(node.body) - {a.arg for a in node.args.args})
        node.body = [inner.visit(statement) for statement in node.body]
        return node


def _on_self(statements: Block, kept: set[str]) -> Block:
    copied = ast.parse(ast.unparse(ast.fix_missing_locations(ast.Module(statements, [])))).body
    return [_OnSelf(kept).visit(statement) for statement in copied]


class _Replaced(ast.NodeTransformer):
    def __init__(self, by: Mapping[str, ast.expr]) -> None:
        self.by = by

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.by.get(node.id, node)


def replaced(tree: ast.Module, by: Mapping[str, str]) -> ast.Module:
    """The tree with expressions in the places of names."""
    found = {name: ast.parse(text, mode="eval").body for name, text in by.items()}
    return _Replaced(found).visit(tree)  # type: ignore[no-any-return]


class _Renamed(ast.NodeTransformer):
    def __init__(self, by: Mapping[str, str]) -> None:
        self.by = by

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.by.get(node.id, node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.name = self.by.get(node.name, node.name)
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.by.get(node.arg, node.arg)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self.by.get(node.attr, node.attr)
        return node


def renamed(tree: ast.Module, by: Mapping[str, str]) -> ast.Module:
    """The tree with other names for its variables and for the attributes of its object."""
    return _Renamed(by).visit(tree)  # type: ignore[no-any-return]
