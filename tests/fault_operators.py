"""
Faults, put mechanically into emitted programs at every place that fits: what the check of the output must find.

Each operator makes one wrong program of a right one, as a careless edit would: something is left out, is moved into a
branch, or does not reach all of its places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

Mutate = Callable[[cst.CSTNode], "cst.CSTNode | None"]
"""What a fault makes of a node; None where it does not fit."""


def method(node: cst.CSTNode, *names: str) -> bool:
    """Whether a node is a call of a method of the accelerator."""
    func = node.func if isinstance(node, cst.Call) else None
    if not isinstance(func, cst.Attribute) or func.attr.value not in names:
        return False
    return cst.Module([]).code_for_node(func.value).endswith("accelerator")


def is_prepare(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Assign):
        return False
    return method(node.body[0].value, "prepare")


def prepared(node: cst.CSTNode, change: Callable[[list[str]], list[str] | None], both: bool) -> cst.CSTNode | None:
    """A `prepare` with other arguments; `both`: with the names that take them changed alike."""
    if not is_prepare(node):
        return None
    assert isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], cst.Assign)
    assign = node.body[0]
    assert isinstance(assign.value, cst.Call)
    code = cst.Module([]).code_for_node
    given = [code(argument.value) for argument in assign.value.args]
    changed = change(given)
    if changed is None:
        return None
    target = ", ".join(changed) if both else code(assign.targets[0].target)
    return cst.parse_statement(f"{target} = {code(assign.value.func)}({', '.join(changed)})")


def without(part: str) -> Mutate:
    def change(given: list[str]) -> list[str] | None:
        kept = [name for name in given if part not in name.lower()]
        return kept if kept and len(kept) < len(given) else None

    return lambda node: prepared(node, change, both=True)


def swapped(node: cst.CSTNode) -> cst.CSTNode | None:
    return prepared(node, lambda given: [given[1], given[0], *given[2:]] if len(given) > 1 else None, both=False)


def backward_left(node: cst.CSTNode) -> cst.CSTNode | None:
    if not method(node, "backward"):
        return None
    assert isinstance(node, cst.Call)
    return cst.parse_expression(f"({cst.Module([]).code_for_node(node.args[0].value)}).backward()")


def on_loss(template: str) -> Mutate:
    def change(node: cst.CSTNode) -> cst.CSTNode | None:
        if not method(node, "backward"):
            return None
        assert isinstance(node, cst.Call)
        code = cst.Module([]).code_for_node
        receiver = code(node.func.value) if isinstance(node.func, cst.Attribute) else ""
        loss = template.format(loss=code(node.args[0].value), accelerator=receiver)
        return node.with_changes(args=[cst.Arg(cst.parse_expression(loss)), *node.args[1:]])

    return change


def unguarded(node: cst.CSTNode) -> cst.CSTNode | None:
    """A write that was guarded, or went through the accelerator, as every process would do it."""
    if method(node, "save"):
        assert isinstance(node, cst.Call)
        return node.with_changes(func=cst.parse_expression("torch.save"))
    return None


def in_branch(condition: str) -> Mutate:
    def change(node: cst.CSTNode) -> cst.CSTNode | None:
        if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Expr):
            return None
        call = node.body[0].value
        if not method(call, "backward", "wait_for_everyone", "clip_grad_norm_"):
            return None
        receiver = cst.Module([]).code_for_node(call.func.value)  # type: ignore[attr-defined]
        test = cst.parse_expression(condition.format(accelerator=receiver))
        return cst.If(test, cst.IndentedBlock([node.with_changes(leading_lines=[])]))

    return change


def gather_in_branch(node: cst.CSTNode) -> cst.CSTNode | None:
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Assign):
        return None
    if not method(node.body[0].value, "gather_for_metrics", "gather", "reduce"):
        return None
    receiver = cst.Module([]).code_for_node(node.body[0].value.func.value)  # type: ignore[attr-defined]
    test = cst.parse_expression(f"{receiver}.is_main_process")
    return cst.If(test, cst.IndentedBlock([node.with_changes(leading_lines=[])]))


def one_path(node: cst.CSTNode) -> cst.CSTNode | None:
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Assign):
        return None
    value, target = node.body[0].value, node.body[0].targets[0].target
    made = isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.func.value == "Accelerator"
    if not made or not isinstance(target, cst.Name):
        return None
    block = cst.IndentedBlock([node.with_changes(leading_lines=[])])
    return cst.If(cst.parse_expression("torch.cuda.is_available()"), block)


def call_unchanged(node: cst.CSTNode) -> cst.CSTNode | None:
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or node.func.value[:1].isupper():
        return None
    kept = [a for a in node.args if not (isinstance(a.value, cst.Name) and a.value.value == "accelerator")]
    return node.with_changes(args=kept) if len(kept) < len(node.args) else None


def term_detached(node: cst.CSTNode) -> cst.CSTNode | None:
    """A loss that is a sum, without the gradient of its first term."""
    if not isinstance(node, cst.Assign) or not isinstance(node.value, cst.BinaryOperation):
        return None
    target = node.targets[0].target
    sums = isinstance(node.value.operator, cst.Add) and isinstance(target, cst.Name) and "loss" in target.value.lower()
    if not sums or len(node.targets) > 1:
        return None
    left = cst.Module([]).code_for_node(node.value.left)
    return node.with_changes(value=node.value.with_changes(left=cst.parse_expression(f"({left}).detach()")))


def guard_opened(node: cst.CSTNode) -> cst.CSTNode | None:
    """A write that only the main process made, as every process would do it."""
    if not isinstance(node, cst.If) or node.orelse is not None or not writes(node.body):
        return None
    return node.with_changes(test=cst.Name("True")) if is_guard(node) else None


def is_guard(node: cst.CSTNode) -> bool:
    """A condition that only the main process meets."""
    asks = ("is_main_process", "is_local_main_process")
    return isinstance(node, cst.If) and isinstance(node.test, cst.Attribute) and node.test.attr.value in asks


def writes(node: cst.CSTNode) -> bool:
    """Some call in it is one that writes a file, under a name that tells so."""
    names = ("save", "savefig", "dump", "to_csv", "write_text", "save_image", "imsave", "savez", "rmtree", "remove")
    calls = [one for one in nodes(node) if isinstance(one, cst.Call)]
    return any(isinstance(one.func, cst.Attribute) and one.func.attr.value in names for one in calls)


def is_statement_of(node: cst.CSTNode, *names: str) -> cst.SimpleStatementLine | None:
    """A statement that is a call of a method of the accelerator, alone or assigned."""
    if not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
        return None
    small = node.body[0]
    value = small.value if isinstance(small, (cst.Expr, cst.Assign)) else None
    return node if value is not None and method(value, *names) else None


COLLECTIVES = ("backward", "wait_for_everyone", "gather", "gather_for_metrics", "reduce", "prepare", "clip_grad_norm_")


def receiver_of(statement: cst.SimpleStatementLine) -> str:
    (small,) = statement.body
    assert isinstance(small, (cst.Expr, cst.Assign)) and isinstance(small.value, cst.Call)
    assert isinstance(small.value.func, cst.Attribute)
    return cst.Module([]).code_for_node(small.value.func.value)


def among(template: str) -> Mutate:
    """A collective call in a statement of the template, which has `{accelerator}`, and `pass` where the call comes."""

    def change(node: cst.CSTNode) -> cst.CSTNode | None:
        statement = is_statement_of(node, *COLLECTIVES)
        if statement is None:
            return None
        tree = cst.parse_module(template.format(accelerator=receiver_of(statement)))
        (empty,) = [one for one in nodes(tree) if isinstance(one, cst.Pass)]
        line = next(one for one in nodes(tree) if isinstance(one, cst.SimpleStatementLine) and empty in one.body)
        changed = tree.visit(_At(line, statement.with_changes(leading_lines=[])))
        assert isinstance(changed, cst.Module)
        (whole,) = changed.body
        return whole

    return change


def after_step(text: str) -> Mutate:
    """One process leaves the loop, or the function, after a step of an optimizer."""

    def change(node: cst.CSTNode) -> cst.CSTNode | None:
        if not isinstance(node, cst.IndentedBlock):
            return None
        backward = next((one for one in node.body if is_statement_of(one, "backward")), None)
        if not isinstance(backward, cst.SimpleStatementLine):
            return None
        more = cst.parse_statement(text.format(accelerator=receiver_of(backward)))
        return node.with_changes(body=[*node.body, more])

    return change


def in_turn_opened(node: cst.CSTNode) -> cst.CSTNode | None:
    """What the first process fetched before the others, as all of them would do it at once."""
    turn = isinstance(node, cst.With) and any(
        isinstance(item.item, cst.Call) and method(item.item, "main_process_first", "local_main_process_first")
        for item in node.items
    )
    return cst.If(cst.Name("True"), node.body) if turn and isinstance(node, cst.With) else None


def parameter_dropped(node: cst.CSTNode) -> cst.CSTNode | None:
    """A function that no longer takes what its calls hand over."""
    if not isinstance(node, cst.FunctionDef):
        return None
    kept = [one for one in node.params.params if one.name.value != "accelerator"]
    if len(kept) == len(node.params.params):
        return None
    return node.with_changes(params=node.params.with_changes(params=kept))


def misspelled(node: cst.CSTNode) -> cst.CSTNode | None:
    """A name that nothing binds."""
    if not method(node, "backward", "gather_for_metrics", "prepare"):
        return None
    assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
    if not isinstance(node.func.value, cst.Name):
        return None
    return node.with_changes(func=node.func.with_changes(value=cst.Name("the_accelerator")))


def prepare_left_out(node: cst.CSTNode) -> cst.CSTNode | None:
    return cst.parse_statement("pass") if is_prepare(node) else None


OPERATORS: dict[str, Mutate] = {
    "a model taken out of prepare": without("model"),
    "an optimizer taken out of prepare": without("optim"),
    "a training loader taken out of prepare": without("train"),
    "two arguments of prepare swapped": swapped,
    "a backward left": backward_left,
    "a gather before the loss": on_loss("{accelerator}.gather({loss}).mean()"),
    "a loss detached": on_loss("({loss}).detach()"),
    "a guard removed": unguarded,
    "a collective on the main process": in_branch("{accelerator}.is_main_process"),
    "a collective on the other processes": in_branch("not {accelerator}.is_main_process"),
    "a gather on the main process": gather_in_branch,
    "the accelerator bound on one path": one_path,
    "a call left unchanged": call_unchanged,
    "an evaluation loader taken out of prepare": without("test"),
    "a prepare left out": prepare_left_out,
    "a loss reduced before its gradient": on_loss("{accelerator}.reduce({loss})"),
    "a loss made a number": on_loss("torch.tensor(({loss}).item(), requires_grad=True)"),
    "a term of the loss detached": term_detached,
    "a guard opened": guard_opened,
    "a fetch in turn opened": in_turn_opened,
    "a collective in a handler": among("try:\n    print(end='')\nexcept ValueError:\n    pass\n"),
    "a collective in a finally": among("try:\n    print(end='')\nfinally:\n    pass\n"),
    "a collective in a loop over an own part": among("for _ in range({accelerator}.process_index, 4):\n    pass\n"),
    "a collective of one process by its number": among("if {accelerator}.process_index == 0:\n    pass\n"),
    "a collective in the other case": among("if {accelerator}.is_main_process:\n    print(end='')\nelse:\n    pass\n"),
    "a collective of each process in turn": among("with {accelerator}.main_process_first():\n    pass\n"),
    "a loop that one process leaves": after_step("if {accelerator}.process_index == 1:\n    break\n"),
    "a loop that the main process leaves": after_step("if {accelerator}.is_main_process:\n    break\n"),
    "a parameter dropped": parameter_dropped,
    "a name that nothing binds": misspelled,
}


class _At(cst.CSTTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: cst.CSTNode, new: cst.CSTNode) -> None:
        super().__init__()
        self.old, self.new = old, new

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        return self.new if original_node is self.old else updated_node


def nodes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node, and all that is in it."""
    yield node
    for child in node.children:
        yield from nodes(child)


def mutants(tree: cst.Module) -> Iterator[tuple[str, cst.CSTNode, cst.Module]]:
    """Every program with one fault: the operator, the node that it has changed, and the text with the fault."""
    guarded = {one for node in nodes(tree) if is_guard(node) for one in nodes(node.body)}  # type: ignore[attr-defined]
    for node in nodes(tree):
        for operator, mutate in OPERATORS.items():
            new = mutate(node)
            if new is not None and not (mutate is unguarded and node in guarded):  # a second guard is no fault
                mutant = tree.visit(_At(node, new))
                assert isinstance(mutant, cst.Module)
                if is_python(mutant.code):
                    yield operator, node, cst.parse_module(mutant.code)


def is_python(text: str) -> bool:
    """Whether a text compiles: a `break` outside of a loop is no fault to be found."""
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
