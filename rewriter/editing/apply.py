"""
Apply all edits of a module at once, by rebuilding the ancestors of the edited nodes.

So inner and outer edits nest, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import libcst as cst

from ..facts.torch_api import questions
from ..findings import Finding, Severity
from .comment_lines import (
    before_definition,
    heading_of,
    heads_nothing,
    joined_lines,
    led,
    lines_above,
    lines_below,
    names_a_device,
    paragraph,
    speaks_for_nothing,
    surviving,
    without_closing_blanks,
    without_opening_blanks,
    without_trailing,
)
from .conditions import merged, opposite, pure
from .edits import (
    AddArgument,
    AddImport,
    AddParameter,
    Edit,
    InsertAfter,
    InsertBefore,
    Made,
    Remove,
    Replace,
    alternatives,
    keeps_comments,
    with_argument,
)
from .parameters import with_parameter

_BLOCKS = (cst.If, cst.With, cst.For, cst.While, cst.Try)


def apply(
    module: cst.Module, parents: Mapping[cst.CSTNode, cst.CSTNode], edits: Sequence[Edit]
) -> tuple[cst.Module, list[Edit], list[Finding]]:
    """
    Apply edits to a module. Returns the new tree, the edits that were made, and a finding for each that was not.

    ``AddImport`` is not applied here but in ``imports``, which knows where imports are.
    """
    made, findings = _without_conflicts(edits, parents)
    work = _Application(module, parents, made)
    return work.run(), made, findings


def _without_conflicts(
    edits: Iterable[Edit], parents: Mapping[cst.CSTNode, cst.CSTNode]
) -> tuple[list[Edit], list[Finding]]:
    """The edits that can be made together. An edit that would be lost inside another is reported, never dropped
    silently."""
    covering: dict[cst.CSTNode, Replace | Remove] = {}
    findings: list[Finding] = []
    unique: list[Edit] = []
    for edit in edits:
        if isinstance(edit, (Replace, Remove)):
            first = covering.get(edit.node)
            if first is not None:
                if not _agree(first, edit):
                    findings.append(_conflict(edit, first))
                continue
            covering[edit.node] = edit
        unique.append(edit)
    made = []
    for edit in unique:
        over = _over(edit, covering, parents)
        if over is None:
            made.append(edit)
        elif edit.rule not in over.absorbs:
            findings.append(_conflict(edit, over))
    return made, findings


def _agree(first: Edit, second: Edit) -> bool:
    return isinstance(first, Remove) and isinstance(second, Remove)


def _over(
    edit: Edit, covering: Mapping[cst.CSTNode, Replace | Remove], parents: Mapping[cst.CSTNode, cst.CSTNode]
) -> Replace | Remove | None:
    """The removal or whole replacement that contains an edit, which would be lost in it."""
    own = covering.get(edit.node)
    if isinstance(edit, (InsertBefore, InsertAfter)):
        own = None
    if own is not None and own is not edit and (isinstance(own, Remove) or own.whole):
        return own
    node = parents.get(edit.node)
    while node is not None:
        found = covering.get(node)
        if found is not None and (isinstance(found, Remove) or found.whole):
            return found
        node = parents.get(node)
    return None


def _conflict(edit: Edit, other: Edit) -> Finding:
    return Finding(
        "conflict",
        edit.node,
        f"the rules {edit.rule} and {other.rule} change this place in different ways ({edit.reason}; {other.reason})",
        f"make one of the two edits by hand, or pass --ignore {edit.rule}",
        Severity.BLOCKED,
    )


class _Gone:
    """Replaces a statement whose block became empty, and keeps the comment lines that must stay."""

    def __init__(self, lines: Sequence[cst.EmptyLine]) -> None:
        self.lines = list(lines)


class _Application:
    """One application: edits by node, and the rebuilding walk."""

    def __init__(self, module: cst.Module, parents: Mapping[cst.CSTNode, cst.CSTNode], edits: Sequence[Edit]) -> None:
        self.module = module
        self.replace: dict[cst.CSTNode, Replace] = {}
        self.remove: dict[cst.CSTNode, Remove] = {}
        self.other: dict[cst.CSTNode, list[Edit]] = {}
        self.touched: set[cst.CSTNode] = set()
        self.joining: set[cst.CSTNode] = set()
        """The ``if`` statements that edits created, and that the next statement may join."""
        self.unsaid: dict[cst.CSTNode, Callable[[str], bool]] = {}
        """The lines of replacements that drop comments."""
        self.created: set[cst.CSTNode] = set()
        """The statements with a block of their own that edits created."""
        for edit in edits:
            if isinstance(edit, AddImport):
                continue
            if isinstance(edit, Replace):
                self.replace[edit.node] = edit
            elif isinstance(edit, Remove):
                self.remove[edit.node] = edit
            else:
                self.other.setdefault(edit.node, []).append(edit)
            node: cst.CSTNode | None = edit.node
            while node is not None and node not in self.touched:
                self.touched.add(node)
                node = parents.get(node)
            if isinstance(edit, Replace) and edit.drops is not keeps_comments:
                node = edit.node
                while not isinstance(node, (cst.SimpleStatementLine, type(None))):
                    node = parents.get(node)
                if node is not None:
                    self.unsaid[node] = edit.drops

    def run(self) -> cst.Module:
        if not self.touched:
            return self.module
        result = self.rebuild(self.module)
        assert isinstance(result, cst.Module)
        return result

    def statement(self, text: str) -> cst.BaseStatement:
        """Parse a statement in the file's own style of indentation and line endings."""
        parsed = cst.parse_statement(text, config=self.module.config_for_parsing)
        assert isinstance(parsed, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
        return parsed

    def transform(self, node: cst.CSTNode) -> Made | _Gone:
        """A node after its own edits and those below it."""
        if node not in self.touched:
            return node
        result = self.rebuild(node)
        if isinstance(result, _Gone):
            return result
        for edit in self.other.get(node, ()):
            if isinstance(edit, AddParameter) and isinstance(result, cst.FunctionDef):
                result = with_parameter(result, edit)
            elif isinstance(edit, AddArgument) and isinstance(result, cst.Call):
                result = with_argument(result, edit)
        replace = self.replace.get(node)
        if replace is not None:
            made = replace.make(result)
            own = getattr(result, "body", None)
            self.created.update(n for n in _listed(made) if isinstance(n, _BLOCKS) and n.body is not own)
            return made
        if isinstance(node, cst.IfExp) and isinstance(result, cst.IfExp):
            return merged(node, result) or result
        return result

    def rebuild(self, node: cst.CSTNode) -> cst.CSTNode | _Gone:
        """A node after the edits below it."""
        changes: dict[str, object] = {}
        carried: list[cst.EmptyLine] = []
        for name in node.__dataclass_fields__:
            value = getattr(node, name)
            if isinstance(value, cst.CSTNode):
                if value in self.touched:
                    changes[name] = self.transform(value)
            elif isinstance(value, (tuple, list)) and any(item in self.touched for item in value if _is_node(item)):
                if name == "body" and isinstance(node, (cst.Module, cst.IndentedBlock)):
                    changes[name], carried = self.block(value, getattr(node, "indent", None))
                elif name == "body" and isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
                    changes[name] = self.line(value)
                else:
                    changes[name] = self.items(value)
        if carried and isinstance(node, (cst.Module, cst.IndentedBlock)):
            changes["footer"] = [*carried, *node.footer]
        return _closed(node, changes)

    def block(
        self, statements: Sequence[cst.BaseStatement], indent: str | None
    ) -> tuple[list[cst.CSTNode], list[cst.EmptyLine]]:
        """The statements of a block after all edits, and the comment lines that have no statement any more. What is
        created in it is indented as the block is, where that is not as in the rest of the file."""
        result: list[cst.CSTNode] = []
        carried: list[cst.EmptyLine] = []
        opened = False
        """The block's first statement was removed, and nothing has replaced it yet."""
        taken: list[cst.EmptyLine] = []
        for index, (statement, following) in enumerate(zip(statements, [*statements[1:], None], strict=True)):
            others = self.other.get(statement, ())
            before: list[cst.CSTNode] = [
                _indented(self.statement(e.text), indent) for e in others if isinstance(e, InsertBefore)
            ]
            after: list[cst.CSTNode] = [
                _indented(self.statement(e.text), indent) for e in others if isinstance(e, InsertAfter)
            ]
            removed = self.remove.get(statement)
            last = not others and self.goes(statement) and heads_nothing(statements, index, self.goes)
            made = (
                _Gone(surviving(statement, removed.drops, removed.attached, last))
                if removed is not None
                else self.transform(statement)
            )
            if removed is None and isinstance(made, _Gone) and isinstance(statement, cst.If):
                made = self.emptied(statement, made, last)
            if isinstance(made, cst.If) and isinstance(statement, cst.If) and statement not in self.replace:
                made = merged(statement, made) or made
            if isinstance(made, _Gone):
                new: list[cst.CSTNode] = [*before, *after]
                opened = opened or not result
                own, taken = lines_below(taken, made.lines), []
                if not new:
                    carried = joined_lines(carried, own)
                    continue
            else:
                placed = [_indented(n, indent) if n in self.created else n for n in _listed(made)]
                own = lines_above(statement, placed)
                if (drops := self.unsaid.get(statement)) is not None and not any(map(names_a_device, placed)):
                    placed = [*placed[:-1], without_trailing(placed[-1], drops)]
                    heading = heading_of(own)
                    if speaks_for_nothing(heading, drops) and self.moves_nothing(paragraph(statements, index)[1:]):
                        own = own[: -len(heading)]
                own, taken = lines_below(taken, own), []
                if after and following is not None and following not in self.remove:
                    taken = alternatives(statement, following)
                    after[0] = after[0].with_changes(leading_lines=taken) if taken else after[0]
                new = [*before, *placed, *after]
            if opened and not result and not carried:
                own = without_opening_blanks(own)
            own = joined_lines(carried, own)
            opened, carried = False, []
            definition = isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and not isinstance(made, _Gone)
            if definition and before:
                new = before_definition(new, own, len(before), result[-1] if result else None)
            else:
                new = led(new, own, len(before))
            if removed is None and (replace := self.replace.get(statement)) is not None and replace.joins:
                new = self.join(result, new)
            result.extend(new)
        return result, without_closing_blanks(carried)

    def goes(self, statement: cst.CSTNode) -> bool:
        """Whether a statement is removed, or all that an ``if`` holds."""
        if isinstance(statement, cst.If):
            inner = [*statement.body.body, *([statement.orelse] if statement.orelse is not None else [])]
            return statement in self.remove or all(each in self.remove for each in inner)
        return statement in self.remove

    def moves_nothing(self, statements: Sequence[cst.BaseStatement]) -> bool:
        """Whether statements name no device after their edits."""
        return not any(
            names_a_device(node)
            for statement in statements
            if statement not in self.remove
            for node in _listed(self.transform(statement))
        )

    def emptied(self, choice: cst.If, made: _Gone, last: bool) -> _Gone:
        """What stays of an ``if`` that has gone with all in its block: not the comment that those would drop."""
        drops = [self.remove[inner].drops for inner in choice.body.body if inner in self.remove]
        own = surviving(choice, lambda comment: any(each(comment) for each in drops), last=last)
        return _Gone([*own, *made.lines[len(choice.leading_lines) :]]) if drops else made

    def join(self, above: list[cst.CSTNode], new: list[cst.CSTNode]) -> list[cst.CSTNode]:
        """Merge a new ``if``, or ``with``, into the one directly above it that is the same; return what is left."""
        last, first = (above[-1] if above else None), new[0]
        kinds = (cst.If, cst.With)
        if last in self.joining and isinstance(last, kinds) and isinstance(first, kinds) and _continues(last, first):
            begun, *more = first.body.body
            lines = [line if line.comment else line.with_changes(indent=False) for line in first.leading_lines]
            body = [*last.body.body, begun.with_changes(leading_lines=lines), *more]
            above[-1] = last.with_changes(body=last.body.with_changes(body=body))
            self.joining.add(above[-1])
            new = new[1:]
        self.joining.update(node for node in new[-1:] if isinstance(node, kinds))
        return new

    def items(self, nodes: Sequence[cst.CSTNode]) -> list[cst.CSTNode]:
        """Parameters, arguments and the like after all edits. If the last one is removed, so is its comma."""
        kept = [n for item in nodes if item not in self.remove for n in _listed(self.transform(item))]
        if kept and nodes[-1] in self.remove and hasattr(kept[-1], "comma"):
            kept[-1] = kept[-1].with_changes(comma=nodes[-1].comma)  # type: ignore[attr-defined]
        return kept

    def line(self, smalls: Sequence[cst.BaseSmallStatement]) -> list[cst.CSTNode]:
        """The small statements of one line after all edits."""
        kept: list[cst.CSTNode] = []
        for small in smalls:
            if small in self.remove:
                continue
            kept.extend(_listed(self.transform(small)))
        if kept and len(kept) < len(smalls):
            last = kept[-1]
            assert isinstance(last, cst.BaseSmallStatement)
            kept[-1] = last.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return kept


def _indented(statement: cst.CSTNode, indent: str | None) -> cst.CSTNode:
    """A statement whose block has an indentation."""
    block = statement.body if isinstance(statement, _BLOCKS) else None
    if indent is None or not isinstance(block, cst.IndentedBlock) or block.indent is not None:
        return statement
    return statement.with_changes(body=block.with_changes(indent=indent))


def _continues(above: cst.If | cst.With, node: cst.If | cst.With) -> bool:
    """Whether a choice continues the one directly above it: the same test, and nothing between them. So does a ``with``
    the same one, also after a comment or a blank line."""
    if isinstance(above, cst.With) or isinstance(node, cst.With):
        return isinstance(above, cst.With) and isinstance(node, cst.With) and _same_items(above, node)
    return above.orelse is None and not node.leading_lines and above.test.deep_equals(node.test)


def _same_items(one: cst.With, other: cst.With) -> bool:
    return len(one.items) == len(other.items) and all(map(cst.WithItem.deep_equals, one.items, other.items))


def _is_node(item: object) -> bool:
    return isinstance(item, cst.CSTNode)


def _listed(made: Made | _Gone) -> list[cst.CSTNode]:
    if isinstance(made, _Gone):
        return []
    return [made] if isinstance(made, cst.CSTNode) else list(made)


def _closed(node: cst.CSTNode, changes: dict[str, object]) -> cst.CSTNode | _Gone:
    """Rebuild a node. If its block became empty, the node is removed, or gets the statement that the grammar
    requires."""
    body = changes.get("body")
    if isinstance(node, cst.SimpleStatementLine) and body == []:
        return _Gone(surviving(node, lambda comment: False))
    if isinstance(node, cst.IndentedBlock) and body == []:
        footer = changes.get("footer", node.footer)
        assert isinstance(footer, (list, tuple))
        return _Gone([line for line in footer if line.comment is not None])
    if isinstance(node, (cst.If, cst.Else)):
        return _branch(node, changes)
    if isinstance(body, _Gone) and isinstance(node, cst.With) and all(map(_only_switches, node.items)):
        return _Gone([*node.leading_lines, *body.lines])
    if isinstance(body, _Gone):
        changes["body"] = _passing(getattr(node, "body", None), body)
    return node.with_changes(**changes)


def _branch(node: cst.If | cst.Else, changes: dict[str, object]) -> cst.CSTNode | _Gone:
    body = changes.get("body")
    if isinstance(node, cst.Else):
        return body if isinstance(body, _Gone) else node.with_changes(**changes)
    orelse = changes.get("orelse", node.orelse)
    if isinstance(orelse, _Gone):
        changes["orelse"] = orelse = None
    if not isinstance(body, _Gone):
        return node.with_changes(**changes)
    if orelse is None and pure(node.test):
        return _Gone([*node.leading_lines, *body.lines])
    if isinstance(orelse, cst.Else) and pure(node.test):
        test = changes.get("test", node.test)
        assert isinstance(test, cst.BaseExpression)
        return node.with_changes(test=opposite(test), body=orelse.body, orelse=None)
    changes["body"] = _passing(node.body, body)
    return node.with_changes(**changes)


def _only_switches(item: cst.WithItem) -> bool:
    """Whether a context only says how what is in it computes: ``with torch.no_grad():``."""
    call = item.item
    name = call.func if isinstance(call, cst.Call) and not call.args else None
    attribute = name.attr if isinstance(name, cst.Attribute) else name
    contexts = questions.gradient_contexts("no gradient")
    return item.asname is None and isinstance(attribute, cst.Name) and attribute.value in contexts


def _passing(block: object, gone: _Gone) -> cst.IndentedBlock:
    filler = cst.SimpleStatementLine([cst.Pass()], leading_lines=gone.lines)
    if isinstance(block, cst.IndentedBlock):
        return block.with_changes(body=[filler], footer=[])
    return cst.IndentedBlock([filler])


# Comments and blank lines ---------------------------------------------------------------------------------------------
