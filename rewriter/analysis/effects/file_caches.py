"""
Files that are made where they are missing: a vocabulary, a cache of features, an index.

One process makes them, the others come when they are there. A guard on the write alone would let the others pass while
the file is missing, or half written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from functools import cached_property
from typing import NamedTuple

import libcst as cst

from ...facts.reasons.effects import AskedApart, AskedInHead
from ...facts.roles import Role
from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.code_place import CodePlace
from ..dataflow.open_modes import opens_to_write
from ..dataflow.values import CallRecord, State, Unit, origins
from ..syntax.definitions import first_of_chain
from ..syntax.walk import descendants, nodes_in
from ..training.row_code import for_rows
from ..training.training import Training
from .brought import brings
from .existing_guards import Together, guarded, in_turn, is_elif
from .handles import asks_existence
from .written import removes, writes_by_method

_Changes = Callable[[State, cst.CSTNode], bool]
"""Whether a call changes the answer to a question for a file."""


class _Question(NamedTuple):
    """A question for a file, and how it decides."""

    head: cst.If
    """The ``if`` at which its chain begins."""
    returns: bool
    """Its function returns at once where the file is there, and makes it after that; else a branch makes it."""


class Makings:
    """Finds, for a write, the question whether its file is there."""

    def __init__(self, state: State, unit: Unit, reach: Reach, together: Together) -> None:
        self.state, self.unit, self.reach, self.together = state, unit, reach, together

    def of(self, call: cst.Call) -> cst.If | None:
        """The ``if`` that asks for a file that a call below it writes; None where all must run it together."""
        if self.reach.batch_loops(call, self.unit):
            return None
        found: cst.If | None = None
        for around in self.unit.names.ancestors(call):
            if isinstance(around, (cst.FunctionDef, cst.ClassDef)):
                break
            if isinstance(around, cst.If) and not is_elif(self.unit, around) and self._asks_for(around, call):
                found = around
        return None if found is None or self.together(self.unit, found) else found

    def asked_elsewhere(
        self, makes: Iterable[cst.Call], meets: Set[cst.CSTNode]
    ) -> Iterator[cst.CSTNode | AskedInHead]:
        """
        The statements that ask for a file which a function of the module makes: ``if not self.is_there():
        self.build()``, and the calls of a function that returns at once where the file is there; a finding for one at
        the head of a block that all processes run together, or in which they wait for each other (``meets``).
        """
        made = [call for call in makes if not self.reach.batch_loops(call, self.unit)]
        returning = set(self._returning_elsewhere())
        for question in self._making_questions(made):
            if question.returns:
                returning.add(self.unit.names.function(question.head))
            elif self._can_wait(question.head):
                yield question.head
        for call in self.unit.names.calls:
            if returning.isdisjoint(self.reach.called(call)) or self.is_done(call):
                continue
            statement = self.unit.names.statement(call)
            block = isinstance(statement, _BLOCKS)
            if not block and not isinstance(statement, cst.SimpleStatementLine):
                continue
            if self._can_wait(statement) and not (block and not meets.isdisjoint(descendants(statement))):
                yield statement
            elif block and self._can_wait(call) and not self.together.starts(call):
                yield AskedInHead(call)

    def _making_questions(self, made: list[cst.Call]) -> Iterator[_Question]:
        """The questions for a file that decide whether code runs which makes one. ``made``: what makes them here."""
        names, making = self.unit.names, {self.unit.names.function(call) for call in made}
        for question in names.every(cst.If):
            assert isinstance(question, cst.If)
            head = first_of_chain(self.unit.names, question)
            direct = any(asks_existence(node) for node in descendants(question.test))
            if not direct and not any(self._asks(call) for call in nodes_in(question.test, cst.Call)):
                continue
            missing = if_missing(question)
            rest = _rest(self.unit, question) if missing is None and head is question else []
            wanted = [missing] if missing is not None else rest
            functions = [f for part in wanted for call in nodes_in(part, cst.Call) for f in self.reach.called(call)]
            below = {code for function in functions for code in self.reach.below(function)}
            inside = {node for part in wanted for node in descendants(part)}
            own = any(call in inside for call in made) and (bool(rest) or not direct or head is not question)
            if not own and not any(code in making or self._makes_elsewhere(code) for code in below):
                continue
            if rest and isinstance(names.function(question), cst.FunctionDef):
                yield _Question(head, returns=True)
            elif missing is not None:
                yield _Question(head, returns=False)

    def _returning_elsewhere(self) -> frozenset[Code]:
        """The functions of all modules that return at once where a file is there, and else make it."""

        def find() -> frozenset[Code]:
            found: set[Code] = set()
            for unit in self.reach.units:
                own = Makings(self.state, unit, self.reach, self.together)
                calls = (c for c in unit.names.calls if c in self.state.calls and own._makes_alone(c))
                made = [c for c in calls if not self.reach.batch_loops(c, unit)]
                found.update(unit.names.function(q.head) for q in own._making_questions(made) if q.returns)
            return frozenset(found)

        return self.state.once((Makings, self.reach), find)

    def _makes_alone(self, call: cst.Call) -> bool:
        """Whether each process makes a file by a call, or brings it: nothing says yet which of them does."""
        record = self.state.calls[call]
        makes = _makes_file(self.state, record) and not self.holds_state(call)
        return (makes or brings(record)) and not self.is_done(call) and not guarded(self.state, record.unit, call)

    def _can_wait(self, statement: cst.CSTNode) -> bool:
        """Whether processes can come to a statement one after the other."""
        loops = [node for node in self.reach.loops(statement, self.unit) if self.reach.loaders(node)]
        code = self.unit.names.function(statement)
        once = code in self.reach.reachable and code not in for_rows(self.state, self.reach)
        turn = in_turn(self.state, self.unit, statement)
        return once and not loops and not turn and not self.together(self.unit, statement)

    def _makes_elsewhere(self, code: Code) -> bool:
        """Whether a function of another module makes a file."""
        if code in self.unit.names.scopes:
            return False
        calls = (n for n in self.reach.own(code) if isinstance(n, cst.Call) and n in self.state.calls)
        return any(map(self._makes_alone, calls))

    def _asks(self, call: cst.Call) -> bool:
        """Whether a function of the script does nothing but ask whether files are there: ``self._check_exists()``."""
        functions = [f for f in self.reach.called(call) if isinstance(f, cst.FunctionDef)]
        return bool(functions) and all(
            any(asks_existence(node) for node in descendants(f.body)) and len(getattr(f.body, "body", ())) <= _FEW
            for f in functions
        )

    def holds_state(self, call: cst.Call) -> bool:
        """Whether a ``torch.save`` writes the state of what trains, which all processes collect together."""
        parts = (n for arg in call.args[:1] for n in descendants(arg))
        return any(origins(self.state.values.get(part), Role.STATE, Role.MODEL, Role.OPTIMIZER) for part in parts)

    def is_done(self, call: cst.Call) -> bool:
        """Whether the processes come to it one after the other already."""
        return in_turn(self.state, self.unit, call)

    def _asks_for(self, question: cst.If, call: cst.Call) -> bool:
        """Whether a check is for a path that is in the write, or in the ``with`` that opens it."""
        paths = {
            self.unit.names.module.code_for_node(part)
            for node in nodes_in(question.test, cst.Call)
            if asks_existence(node)
            for part in _asked(node)
        }
        wholes: list[cst.CSTNode] = [call]
        for around in self.unit.names.enclosing(call, cst.With):
            wholes += [item.item for item in getattr(around, "items", ())]
        kinds = (cst.Name, cst.Attribute, cst.Call, cst.SimpleString)
        parts = (n for whole in wholes for n in descendants(whole) if isinstance(n, kinds))
        return (
            bool(paths)
            and _is_missing(question, call)
            and any(self.unit.names.module.code_for_node(part) in paths for part in parts)
        )


class FileQuestion(NamedTuple):
    """A question for a file that each process asks for itself."""

    place: CodePlace
    takes: bool
    """What runs where the file is there takes it away; else what runs where it is missing makes it."""


class FileQuestions:
    """
    The questions for a file that each process asks for itself, and that decide what it runs.

    The answers differ where one process makes the file before another asks. In a training all have met before.
    """

    def __init__(self, reach: Reach, training: Training) -> None:
        self.reach = reach
        self._trained = {record.node for record in (*training.backwards, *training.steps)}

    def before(self, node: cst.CSTNode) -> FileQuestion | None:
        """The question that decides whether a process comes to a node."""
        return next((question for question, runs in self._asked if node in runs), None)

    @cached_property
    def _asked(self) -> list[tuple[FileQuestion, frozenset[cst.CSTNode]]]:
        """The questions, each with all that runs after it in some processes alone."""
        return [
            (FileQuestion(CodePlace(home, question), takes=changes is _takes_away), runs)
            for home in self.reach.units
            for question in home.names.every(cst.If)
            if home.names.function(question) in self.reach.reachable
            if any(asks_existence(part) for part in descendants(question.test))
            for part, changes in self._chosen(home, question)
            if (runs := frozenset(self.reach.runs(part, home))).isdisjoint(self._trained)
            if any(changes(self.reach.state, n) for n in runs)
        ]

    def _chosen(self, home: Unit, question: cst.If) -> Iterator[tuple[cst.CSTNode, _Changes]]:
        """What runs where the file is missing, or is there, and what in it changes the answer."""
        missing = if_missing(question)
        for part in [missing] if missing is not None else _rest(home, question):
            yield part, _makes
        there = question.orelse if missing is question.body else question.body
        if there is not None:
            yield there, _takes_away


def asked_apart(node: cst.CSTNode, question: FileQuestion) -> AskedApart:
    """What is said of a place where all processes must wait, and that each comes to by its own question for a file."""
    assert isinstance(question.place.node, cst.If)
    return AskedApart(node, question.place.unit.names.one_line(question.place.node.test), question.takes)


def _makes(state: State, node: cst.CSTNode) -> bool:
    record = state.calls.get(node) if isinstance(node, cst.Call) else None
    if record is None or (
        method_name(record.node) in surroundings.text_methods() and not writes_by_method(record.node)
    ):
        return False
    return _makes_file(state, record) or brings(record) or writes_by_method(record.node)


def _takes_away(state: State, node: cst.CSTNode) -> bool:
    record = state.calls.get(node) if isinstance(node, cst.Call) else None
    return record is not None and (surroundings.takes_away(outside_name(record)) or removes(record))


def _makes_file(state: State, record: CallRecord) -> bool:
    """Whether a call makes a file of which the program knows the path."""
    name = outside_name(record)
    if surroundings.opens(name):
        return opens_to_write(state, record.node, 1)
    return surroundings.written_path(name) is not None and not surroundings.prints_lines(name)


_BLOCKS = (cst.If, cst.For, cst.With)
_FEW = 4
"""Statements of a function that only asks."""


def if_missing(question: cst.If) -> cst.CSTNode | None:
    """The branch that is taken if the file is missing; None where there is none."""
    tests = list(descendants(question.test))
    denied = any(isinstance(n, cst.UnaryOperation) and isinstance(n.operator, cst.Not) for n in tests)
    return question.body if denied else question.orelse


def _rest(unit: Unit, question: cst.If) -> list[cst.CSTNode]:
    """What follows a question in its function, where it returns if the file is there."""
    block = unit.names.block(question)
    if not _returns(question.body) or unit.names.parents.get(block) is not unit.names.function(question):
        return []
    statements = list(getattr(block, "body", ()))
    return statements[statements.index(question) + 1 :] if question in statements else []


def _returns(block: cst.BaseSuite) -> bool:
    """Whether a block ends with a ``return``, also of what it opens: ``with open(path) as file: return load(file)``."""
    last = block.body[-1] if block.body else None
    if isinstance(last, cst.With):
        return _returns(last.body)
    return isinstance(last, cst.Return) or (
        isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Return)
    )


def _asked(call: cst.Call) -> list[cst.BaseExpression]:
    """The path in ``os.path.exists(path)`` or ``path.exists()``."""
    if call.args:
        return [call.args[0].value]
    return [call.func.value] if isinstance(call.func, cst.Attribute) else []


def _is_missing(question: cst.If, call: cst.Call) -> bool:
    """Whether a call is in the branch that is taken if the file is missing."""
    denials = nodes_in(question.test, cst.UnaryOperation)
    nots = (n for n in denials if isinstance(n.operator, cst.Not))
    denied = any(asks_existence(part) for n in nots for part in descendants(n))
    branch = question.body if denied else question.orelse
    return branch is not None and any(node is call for node in descendants(branch))
