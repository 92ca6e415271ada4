"""Edits: they nest, they move comments on, and two that cannot both stand are named."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlift.rewriter.analysis.syntax.resolving import resolve
from torchlift.rewriter.editing.apply import apply
from torchlift.rewriter.editing.edits import (
    AddArgument,
    AddParameter,
    Edit,
    InsertAfter,
    InsertBefore,
    Remove,
    Replace,
    speaks_of_moving,
    with_keyword,
)
from torchlift.rewriter.findings import Severity


class Text:
    """A module, with its statements and calls at hand."""

    def __init__(self, text: str) -> None:
        self.module = cst.parse_module(text)
        self.names = resolve(self.module)

    def statement(self, line: str) -> cst.CSTNode:
        """The statement whose text starts with ``line``."""
        return next(n for n in self._nodes() if self._is_statement(n) and self._code(n).lstrip().startswith(line))

    def call(self, text: str) -> cst.Call:
        """The call with exactly this text."""
        return next(n for n in self._nodes() if isinstance(n, cst.Call) and self._code(n) == text)

    def name(self, text: str) -> cst.Name:
        """The first name with this text that is read or set."""
        return next(n for n in self._nodes() if isinstance(n, cst.Name) and n.value == text)

    def function(self, name: str) -> cst.FunctionDef:
        """The function of this name."""
        return next(n for n in self._nodes() if isinstance(n, cst.FunctionDef) and n.name.value == name)

    def apply(self, *edits: Edit) -> str:
        """The text after the edits; they must all be made."""
        tree, made, findings = apply(self.module, self.names.parents, edits)
        assert not findings
        assert len(made) == len(edits)
        return tree.code

    def _nodes(self) -> list[cst.CSTNode]:
        return list(self.names.parents)

    def _is_statement(self, node: cst.CSTNode) -> bool:
        return isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement))

    def _code(self, node: cst.CSTNode) -> str:
        lines = getattr(node, "leading_lines", None)
        bare = node.with_changes(leading_lines=()) if lines else node
        return self.module.code_for_node(bare)


def remove(node: cst.CSTNode, rule: str = "r", **options: object) -> Remove:
    return Remove(rule, node, reason="gone", **options)  # type: ignore[arg-type]


def rename(node: cst.CSTNode, name: str, rule: str = "r") -> Replace:
    return Replace(rule, node, lambda _: cst.Name(name), reason="renamed", whole=True)


def test_no_edits_give_the_same_tree() -> None:
    text = Text("x = 1\n")
    assert apply(text.module, text.names.parents, [])[0] is text.module


def test_inner_and_outer_replacements_nest() -> None:
    text = Text("f(g(x))\n")
    outer = Replace("r", text.call("f(g(x))"), lambda n: cst.Call(cst.Name("h"), [cst.Arg(n)]), reason="")  # type: ignore[arg-type]
    assert text.apply(rename(text.name("x"), "y"), outer) == "h(f(g(y)))\n"


def test_everything_outside_the_edited_span_keeps_its_bytes() -> None:
    source = "a  =  1 ; b = ( 2 )\t# c\n\n\n\nif  a :\n\tpass\nx=f( y ,)\n"
    text = Text(source)
    assert text.apply(rename(text.name("y"), "z")) == source.replace("y", "z")


GONE = "b = 2\nc = 3\n"
OVER_NOTHING = {
    "another comment follows": (f"a = 1\n# both\n{GONE}# next\nd = 4\n", "a = 1\n# next\nd = 4\n"),
    "after a blank line": (f"a = 1\n\n# both\n{GONE}\n# next\nd = 4\n", "a = 1\n\n# next\nd = 4\n"),
    "each has one": ("a = 1\n# b\nb = 2\n# c\nc = 3\n# next\nd = 4\n", "a = 1\n# next\nd = 4\n"),
    "a function follows": (f"a = 1\n# both\n{GONE}\n\ndef f(): pass\n", "a = 1\n\n\ndef f(): pass\n"),
    "nothing follows": (f"a = 1\n\n# both\n{GONE}", "a = 1\n"),
    "the end of a block": (f"if x:\n    a = 1\n    # b\n    {GONE}d = 4\n", "if x:\n    a = 1\nd = 4\n"),
    "two lines": (f"a = 1\n# on\n# both\n{GONE}# next\nd = 4\n", "a = 1\n# next\nd = 4\n"),
    "beside them": ("b = 2  # the first\nc = 3  # the next\nd = 4\n", "d = 4\n"),
    "more follows it": (f"a = 1\n# all\n{GONE}d = 4\n", "a = 1\n# all\nd = 4\n"),
    "it may head more": (f"a = 1\n# all\n{GONE}\nd = 4\n", "a = 1\n# all\n\nd = 4\n"),
    "it is code": (f"# b = 3\n{GONE}# next\nd = 4\n", "# b = 3\n# next\nd = 4\n"),
    "code above it": (f"a = 1\n# b = 3\n# both\n{GONE}# next\nd = 4\n", "a = 1\n# b = 3\n# next\nd = 4\n"),
    "its whole block goes": ("if x:\n    # both\n    b = 2\n    c = 3\nd = 4\n", "# both\nd = 4\n"),
    "it is a plan": (f"# TODO: more\n{GONE}# next\nd = 4\n", "# TODO: more\n# next\nd = 4\n"),
    "a plan beside": ("b = 2\nc = 3  # FIXME: 4\nd = 4\n", "# FIXME: 4\nd = 4\n"),
    "code beside": ("b = 2\nc = 3  # c = f(2)\nd = 4\n", "# c = f(2)\nd = 4\n"),
    "the start of a branch beside": ("b = 2\nc = 3  # if a:\nd = 4\n", "# if a:\nd = 4\n"),
    "a type beside": ("b = 2\nc = 3  # shape: [4]\nd = 4\n", "d = 4\n"),
    "it names other code": (
        f"a = 1\n# see read_rows\n{GONE}# next\nd = 4\n",
        "a = 1\n# see read_rows\n# next\nd = 4\n",
    ),
    "it is prose": (f"# one\n# two\n# three\n# four\n{GONE}# next\n", "# one\n# two\n# three\n# four\n# next\n"),
    "it divides the page": (f"# ===== both\n{GONE}# next\nd = 4\n", "# ===== both\n# next\nd = 4\n"),
}


class TestRemoval:
    def test_comments_above_it_move_on_to_the_next_statement(self) -> None:
        text = Text("a = 1\n# why\nb = 2  # what\nc = 3\n")
        assert text.apply(remove(text.statement("b"))) == "a = 1\n# why\nc = 3\n"

    @pytest.mark.parametrize(("text", "rest"), OVER_NOTHING.values(), ids=OVER_NOTHING)
    def test_a_comment_over_nothing_goes(self, text: str, rest: str) -> None:
        """It was a line over another comment, a blank line or the end, of which it said nothing."""
        before = Text(text)
        assert before.apply(*(remove(before.statement(name)) for name in ("b", "c"))) == rest

    def test_a_comment_about_the_move_goes(self) -> None:
        text = Text("a = 1\n# move to the GPU\nb = 2\nc = 3\n")
        assert text.apply(remove(text.statement("b"), drops=speaks_of_moving)) == "a = 1\nc = 3\n"

    def test_at_the_end_of_a_block_comments_stay_in_it(self) -> None:
        text = Text("if x:\n    a = 1\n    # b = 3\n    b = 2\nc = 3\n")
        assert text.apply(remove(text.statement("b"))) == "if x:\n    a = 1\n    # b = 3\nc = 3\n"

    def test_blank_lines_are_not_doubled(self) -> None:
        text = Text("a = 1\n\nb = 2\n\nc = 3\n")
        assert text.apply(remove(text.statement("b"))) == "a = 1\n\nc = 3\n"

    def test_a_block_does_not_open_with_the_blank_line_that_followed(self) -> None:
        text = Text("for i in x:\n    a = 1\n\n    b = 2\n")
        assert text.apply(remove(text.statement("a"))) == "for i in x:\n    b = 2\n"

    def test_an_emptied_if_goes_with_its_condition(self) -> None:
        text = Text("x = 1\nif cuda:\n    a = 1\ny = 2\n")
        assert text.apply(remove(text.statement("a"))) == "x = 1\ny = 2\n"

    def test_an_emptied_if_keeps_what_its_condition_does(self) -> None:
        text = Text("if pop():\n    a = 1\n")
        assert text.apply(remove(text.statement("a"))) == "if pop():\n    pass\n"

    def test_a_question_whether_the_processes_are_connected_goes_with_what_it_guards(self) -> None:
        text = Text("if not dist.is_initialized():\n    a = 1\nb = 2\n")
        assert text.apply(remove(text.statement("a"))) == "b = 2\n"

    def test_an_emptied_branch_leaves_the_other_one(self) -> None:
        text = Text("if cuda:\n    a = 1\nelse:\n    b = 2\n")
        assert text.apply(remove(text.statement("a"))) == "if not cuda:\n    b = 2\n"
        assert text.apply(remove(text.statement("b"))) == "if cuda:\n    a = 1\n"

    @pytest.mark.parametrize(
        ("test", "opposite"),
        [
            ("y is not None", "y is None"),
            ("y is None", "y is not None"),
            ("k in table", "k not in table"),
            ("a < b", "not (a < b)"),
            ("a == b", "not (a == b)"),
        ],
    )
    def test_a_condition_is_turned_round(self, test: str, opposite: str) -> None:
        text = Text(f"if {test}:\n    a = 1\nelse:\n    b = 2\n")
        assert text.apply(remove(text.statement("a"))) == f"if {opposite}:\n    b = 2\n"

    def test_an_emptied_loop_passes(self) -> None:
        text = Text("for i in x:\n    a = 1\n")
        assert text.apply(remove(text.statement("a"))) == "for i in x:\n    pass\n"

    def test_one_of_two_statements_on_a_line(self) -> None:
        text = Text("a = 1; b = 2\n")
        line = text.statement("a")
        assert isinstance(line, cst.SimpleStatementLine)
        assert text.apply(remove(line.body[1])) == "a = 1\n"
        assert text.apply(remove(line.body[0])) == "b = 2\n"


class TestInsertion:
    def test_before_takes_the_blank_lines_and_leaves_the_comments(self) -> None:
        text = Text("a = 1\n\n# why\nb = 2\n")
        assert text.apply(InsertBefore("r", text.statement("b"), "wait()", reason="")) == (
            "a = 1\n\nwait()\n# why\nb = 2\n"
        )

    def test_after(self) -> None:
        text = Text("def f():\n\ta = 1\n\n\tb = 2\n")
        new = "x = g(\n\tx\n)"
        assert text.apply(InsertAfter("r", text.statement("a"), new, reason="")) == (
            "def f():\n\ta = 1\n\tx = g(\n\t\tx\n\t)\n\n\tb = 2\n"
        )

    @pytest.mark.parametrize(
        ("lines", "rest"),
        [
            ("# a = 2\n", "b = 2\n"),
            ("# a = f(\n#     2,\n# )\n", "# the rest\nb = 2\n"),
            ("#a = 2\n# a=3\n", "\n# a = 4\nb = 2\n"),
            ("", "# b = 3\nb = 2\n"),
            ("", "# a is one\nb = 2\n"),
            ("", "\n# a = 2\nb = 2\n"),
        ],
        ids=["one", "of several lines", "two", "of another", "said of it", "below a blank line"],
    )
    def test_below_what_gives_the_same_name_another_value(self, lines: str, rest: str) -> None:
        text = Text(f"a = 1\n{lines}{rest}")
        new = InsertAfter("r", text.statement("a"), "c = g(a)", reason="")
        assert text.apply(new) == f"a = 1\n{lines}c = g(a)\n{rest}"
        text = Text(f"a = 1\n{lines}{rest}")
        new = InsertAfter("r", text.statement("a"), "c = g(a)", reason="")
        before = InsertBefore("r", text.statement("b"), "d = 4", reason="")
        assert text.apply(new, before).replace("d = 4\n", "") == f"a = 1\n{lines}c = g(a)\n{rest}"

    def test_beside_a_removed_statement(self) -> None:
        text = Text("a = 1\nb = 2\nc = 3\n")
        line = text.statement("b")
        assert text.apply(remove(line), InsertAfter("r", line, "d = 4", reason="")) == "a = 1\nd = 4\nc = 3\n"

    def test_in_the_line_endings_of_the_file(self) -> None:
        text = Text("a = 1\r\nb = 2\r\n")
        assert text.apply(InsertAfter("r", text.statement("a"), "c = 3", reason="")) == "a = 1\r\nc = 3\r\nb = 2\r\n"


@pytest.mark.parametrize(
    ("before", "index", "after"),
    [
        ("def f(): pass\n", 0, "def f(n): pass\n"),
        ("def f(a): pass\n", 1, "def f(a, n): pass\n"),
        ("def f(a, b=1): pass\n", 1, "def f(a, n, b=1): pass\n"),
        ("def f(a, *, c): pass\n", 1, "def f(a, n, *, c): pass\n"),
        ("def f(*, c): pass\n", 0, "def f(n, *, c): pass\n"),
        ("def f(a, b=1): pass\n", None, "def f(a, b=1, *, n): pass\n"),
        ("def f(a, b=1, **k): pass\n", None, "def f(a, b=1, *, n, **k): pass\n"),
        ("def f(a=1, *b): pass\n", None, "def f(a=1, *b, n): pass\n"),
        ("def f(a=1, *, c): pass\n", None, "def f(a=1, *, c, n): pass\n"),
        (
            "def f(\n    a,\n    b=1,  # why\n): pass\n",
            None,
            "def f(\n    a,\n    b=1,  # why\n    *,\n    n,\n): pass\n",
        ),
        ("def f(a,\n      b=1): pass\n", None, "def f(a,\n      b=1,\n      *,\n      n): pass\n"),
    ],
)
def test_a_parameter_is_added_at_its_place(before: str, index: int | None, after: str) -> None:
    text = Text(before)
    assert text.apply(AddParameter("r", text.function("f"), "n", index, reason="")) == after


@pytest.mark.parametrize(
    ("before", "index", "after"),
    [
        ("f()\n", 0, "f(n)\n"),
        ("f(a)\n", 1, "f(a, n)\n"),
        ("f(a, 1)\n", 1, "f(a, n, 1)\n"),
        ("f(a, b=1)\n", 1, "f(a, n, b=1)\n"),
        ("f(b=1)\n", 1, "f(b=1, n=n)\n"),
    ],
)
def test_an_argument_is_added_where_the_parameter_is(before: str, index: int, after: str) -> None:
    text = Text(before)
    assert text.apply(AddArgument("r", text.call(before.strip()), "n", index, reason="")) == after


class TestConflicts:
    def test_an_edit_under_a_removed_statement_is_named_with_both_rules(self) -> None:
        text = Text("a = f(x)\n")
        _, made, findings = apply(
            text.module,
            text.names.parents,
            [remove(text.statement("a"), "first"), rename(text.name("x"), "y", "second")],
        )
        assert [edit.rule for edit in made] == ["first"]
        assert [finding.severity for finding in findings] == [Severity.BLOCKED]
        assert "first" in findings[0].message
        assert "second" in findings[0].message

    def test_an_absorbed_edit_goes_without_a_word(self) -> None:
        text = Text("a = f(x)\nb = 1\n")
        absorbing = remove(text.statement("a"), "first", absorbs=frozenset({"second"}))
        tree, _, findings = apply(text.module, text.names.parents, [absorbing, rename(text.name("x"), "y", "second")])
        assert tree.code == "b = 1\n"
        assert not findings

    @pytest.mark.parametrize(
        ("head", "after"),
        [
            ("with torch.no_grad():", "b = 1\n"),
            ("with no_grad():", "b = 1\n"),
            ("with open(path):", "with open(path):\n    pass\nb = 1\n"),
            ("with torch.no_grad() as c:", "with torch.no_grad() as c:\n    pass\nb = 1\n"),
        ],
    )
    def test_a_context_without_a_body_goes_where_it_does_nothing_else(self, head: str, after: str) -> None:
        text = Text(f"{head}\n    if cuda:\n        a = 1\nb = 1\n")
        tree, _, _ = apply(text.module, text.names.parents, [remove(text.statement("a"), "first")])
        assert tree.code == after

    def test_two_replacements_of_one_node(self) -> None:
        text = Text("f(x)\n")
        edits = [rename(text.name("x"), "y", "first"), rename(text.name("x"), "z", "second")]
        tree, _, findings = apply(text.module, text.names.parents, edits)
        assert tree.code == "f(y)\n"
        assert len(findings) == 1

    def test_two_rules_may_remove_the_same_statement(self) -> None:
        text = Text("a = 1\nb = 2\n")
        line = text.statement("a")
        tree, _, findings = apply(text.module, text.names.parents, [remove(line, "first"), remove(line, "second")])
        assert tree.code == "b = 2\n"
        assert not findings


@pytest.mark.parametrize(
    ("comment", "moving"),
    [
        ("# move data to the same device as model", True),
        ("# to GPU", True),
        ("#Get data to cuda if possible", True),
        ("# shape: (batch, 64) on the device", False),
        ("# images", False),
        ("#", False),
        ("# device", True),
        ("# normalise on the GPU", False),
        ("# Send the network to the GPU to speed up calculations", True),
        ("# Check if CUDA is available", True),
        ("# check the loss on the GPU", False),
    ],
)
def test_which_comments_speak_of_the_move_only(comment: str, moving: bool) -> None:
    assert speaks_of_moving(comment) is moving


STYLES = {
    "empty": ("f()", "f(k=v)"),
    "on one line": ("f(a, b)", "f(a, b, k=v)"),
    "one line of its own": ("f(\n    a\n)", "f(\n    a,\n    k=v\n)"),
    "one line of its own, with a comma": ("f(\n    a,\n)", "f(\n    a,\n    k=v,\n)"),
    "one a line": ("f(\n    a,\n    b\n)", "f(\n    a,\n    b,\n    k=v\n)"),
    "one a line, with a comma": ("f(\n    a,\n    b,\n)", "f(\n    a,\n    b,\n    k=v,\n)"),
    "aligned": ("f(a,\n  b)", "f(a,\n  b,\n  k=v)"),
    "several a line": ("f(\n    a, b,\n    c\n)", "f(\n    a, b,\n    c, k=v\n)"),
    "all on the line between the brackets": ("f(\n    a, b\n)", "f(\n    a, b, k=v\n)"),
    "a comment": ("f(\n    a,\n    b  # note\n)", "f(\n    a,\n    b,  # note\n    k=v\n)"),
    "a comment behind a comma": ("f(\n    a,\n    b, # note\n)", "f(\n    a,\n    b,  # note\n    k=v,\n)"),
    "comments on all lines": (
        "f(\n    a,  # one\n    b,  # two\n)",
        "f(\n    a,  # one\n    b,  # two\n    k=v,\n)",
    ),
    "a bracket of its own inside": ("f({\n  1: 2,\n}, p)", "f({\n  1: 2,\n}, p, k=v)"),
}


@pytest.mark.parametrize(("before", "after"), STYLES.values(), ids=STYLES)
def test_one_more_argument_follows_the_calls_own_style(before: str, after: str) -> None:
    call = cst.parse_expression(before)
    assert isinstance(call, cst.Call)
    assert cst.Module([]).code_for_node(with_keyword(call, "k", cst.Name("v"))) == after


BEFORE_A_FUNCTION = {
    "after a plain line": ("a = 1\n\n\ndef f():\n    pass\n", "a = 1\nnew = 2\n\n\ndef f():\n    pass\n"),
    "after another function": (
        "def e():\n    pass\n\n\n# of f\ndef f():\n    pass\n",
        "def e():\n    pass\n\n\nnew = 2\n\n\n# of f\ndef f():\n    pass\n",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BEFORE_A_FUNCTION.values(), ids=BEFORE_A_FUNCTION)
def test_what_is_inserted_before_a_function_leaves_it_its_blank_lines(text: str, expected: str) -> None:
    """A line between the blank lines and ``def`` stood as if it belonged to the function."""
    tree = cst.parse_module(text)
    edit = InsertBefore("rule", tree.body[-1], "new = 2", reason="")
    assert apply(tree, resolve(tree).parents, [edit])[0].code == expected
