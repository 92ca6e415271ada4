"""Downloads and archives: one process brings the files, the others find them."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.effects import Effect, EffectKind
from ...facts.reasons import Reason
from ...facts.reasons.effects import SharedDownload
from ...facts.torch_api import questions, surroundings
from ..dataflow.call_binding import argument_for
from ..dataflow.callees import method_name, outside_name
from ..dataflow.constant_values import constants_of
from ..dataflow.containers import key_of
from ..dataflow.solver import Thing
from ..dataflow.values import CallRecord, Function, Klass, State, Unit
from ..layouts.swallowed_errors import survivals
from ..syntax.nodes import keyword
from ..syntax.walk import descendants
from .brought import brings
from .existing_guards import Together, in_turn
from .file_caches import FileQuestions
from .handles import asks_existence

_TESTS = "every process would download at the same time"
_EXTRACTS = frozenset({"extractall", "extract"})
_UNPACKS = _EXTRACTS | {"unpack_archive", "extract_archive"}


class Fetches:
    """Finds the downloads of one module."""

    def __init__(self, state: State, unit: Unit, together: Together) -> None:
        self.state, self.unit, self.together = state, unit, together

    def of(self, call: cst.Call) -> Effect | Reason | None:
        """What is to become of a call, if it is one that brings files."""
        if in_turn(self.state, self.unit, call):
            return None
        if (asked := keyword(call, "download")) is not None and not self._is_off(asked):
            if self._is_ignored(call) or self._is_brought_below(call):
                return None
            return self._line(call, optional=False)
        if self._processes(call):
            return self._line(call, optional=False)
        if self._loads_weights(call):
            return self._line(call, optional=True)
        if brings(self.state.calls[call]):
            return self._fetched(call)
        return None

    def _line(self, call: cst.Call, *, optional: bool) -> Effect | Reason | None:
        """A thing that every process makes, whose files the first one brings."""
        statement = self.unit.names.statement(call)
        if not isinstance(statement, cst.SimpleStatementLine) or self.together(self.unit, statement):
            return None
        asked = self._asked(call)
        if asked is not None and self.together(self.unit, asked):
            return SharedDownload(call)
        return Effect(asked if asked is not None else statement, EffectKind.DOWNLOAD, _TESTS, optional=optional)

    def _asked(self, call: cst.Call) -> cst.CSTNode | None:
        """The statement around a call by which each process asks whether it needs the files: a question whether they
        exist, or what fails without them. All come to that, and not all to the call."""
        asked: cst.CSTNode | None = None
        below: cst.CSTNode = call
        for around in self.unit.names.ancestors(call):
            if isinstance(around, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
                break
            if isinstance(around, cst.If):
                if any(asks_existence(node) for node in descendants(around.test)) or below is asked:
                    asked = around  # also the first of a chain of ``elif``
            elif isinstance(around, (cst.Try, cst.TryStar)) and below is not around.body:
                asked = around
            below = around
        return asked

    def _is_off(self, asked: cst.BaseExpression) -> bool:
        """Whether a download is never asked for here. A caller that says ``download=`` itself is seen at its call."""
        binding = self.unit.names.binding(asked) if isinstance(asked, cst.Name) else None
        function = binding.scope.node if binding is not None else None
        param = next((d for d in binding.definitions if isinstance(d, cst.Param)), None) if binding else None
        if param is None or not isinstance(function, (cst.FunctionDef, cst.Lambda)):
            return isinstance(asked, cst.Name) and asked.value in ("False", "None")
        sites = self.together.reach.reached_sites(function)
        return function not in self.state.escaped and all(self._asks_for_none(function, param, s) for s in sites)

    def _asks_for_none(self, function: cst.FunctionDef | cst.Lambda, param: cst.Param, site: CallRecord) -> bool:
        """Whether a call of the program's own asks for no download by a parameter, or says so by its word."""
        given = argument_for(self.unit, function, param, site)
        if given is not None and given is keyword(site.node, "download"):
            return True
        if given is None and any(arg.star for arg in site.node.args):
            return False
        constants = constants_of(self.state)
        values = constants.of(site.unit, given) if given is not None else None
        if given is None and param.default is not None:
            values = constants.of(self.unit, param.default)
        return values is not None and values <= {False, None}

    def _processes(self, call: cst.Call) -> bool:
        """A data set of a package whose constructor downloads and processes it, or a class of the program's with such
        a base."""
        record = self.state.calls[call]
        if questions.downloads_always(outside_name(record)):
            return True
        bases = (base for thing in record.callees if isinstance(thing, Klass) for base in _outside_bases(thing))
        return any(map(questions.downloads_always, bases))

    def _is_ignored(self, call: cst.Call) -> bool:
        """Whether a ``download=True`` goes to functions of the program only, which take it in ``**kwargs`` and never
        read those."""
        functions = [_called(thing) for thing in self.state.calls[call].callees]
        return bool(functions) and all(f is not None and _takes_for_nothing(f) for f in functions)

    def _is_brought_below(self, call: cst.Call) -> bool:
        """Whether what runs for a ``download=True`` is the program's own code, with a download that one process makes
        while the others wait: in turns, each would bring the files anew, where the first reads them already."""
        functions = [_called(thing) for thing in self.state.calls[call].callees]
        nodes = {n for f in functions if f is not None for n in self.together.reach.runs(f.node.body, f.unit)}
        calls = [node for node in nodes if isinstance(node, cst.Call) and node in self.state.calls]
        if not functions or None in functions or any(self._hands_on(node) for node in calls):
            return False
        asking = FileQuestions(self.together.reach, self.together.training)
        return any(self._waits(node) and asking.before(node) is None for node in calls)

    def _hands_on(self, call: cst.Call) -> bool:
        """Whether a call gives ``download`` to code outside the program."""
        callees = self.state.calls[call].callees
        return keyword(call, "download") is not None and not all(_called(thing) for thing in callees)

    def _waits(self, call: cst.Call) -> bool:
        """Whether a call brings files in every run, so that the main process does and the others wait."""
        there = Fetches(self.state, self.state.calls[call].unit, self.together)
        effect = there._fetched(call) if brings(self.state.calls[call]) else None
        return isinstance(effect, Effect) and effect.kind is EffectKind.FETCH

    def _loads_weights(self, call: cst.Call) -> bool:
        """``resnet18(pretrained=True)``: a model whose weights are downloaded, where they are not there yet."""
        name = outside_name(self.state.calls[call])
        if name in ("torch.hub.load_state_dict_from_url", "torch.utils.model_zoo.load_url"):
            return True
        words = questions.weights_words(name)
        if "always" in words:
            return key_of(keyword(call, "source")) != "local"
        wanted = [v for word in words if (v := keyword(call, word)) is not None]
        return any(not (isinstance(v, cst.Name) and v.value in ("None", "False")) for v in wanted)

    def _fetched(self, call: cst.Call) -> Effect | Reason | None:
        """Files that are brought: asked for first, or brought again in every run."""
        asked = self._asked(call)
        unpacks = method_name(call) in _UNPACKS
        if asked is not None and not self.together(self.unit, asked):
            return Effect(asked, EffectKind.DOWNLOAD, _TESTS.replace("download", "unpack") if unpacks else _TESTS)
        if asked is None and surroundings.finds_fetched(outside_name(self.state.calls[call])):
            return self._line(call, optional=False)  # below a test that processes answer differently, some would wait
        statement: cst.CSTNode = self.unit.names.statement(call)
        around_it = next(self.unit.names.enclosing(call, cst.With), None)
        if method_name(call) in _EXTRACTS and isinstance(around_it, cst.With):
            statement = around_it
        elif not isinstance(self.unit.names.parents.get(call), cst.Expr):
            return SharedDownload(call)
        tried = next(self.unit.names.enclosing(call, cst.Try), None)
        if tried is not None and _only_tries(tried):
            statement = tried  # where it fails, nobody is left waiting
        if asked is not None or not isinstance(self.unit.names.parents.get(statement), (cst.IndentedBlock, cst.Module)):
            return SharedDownload(call)
        if self.together(self.unit, statement):
            return SharedDownload(call)
        found = list(survivals(self.together.reach, self.unit, statement))
        if any(_is_tried_again(unit, body) for unit, body, _ in found):
            return SharedDownload(call)  # the main process alone would come back to the wait
        handler = found[0][2] if found else ""
        because = f"every process would {'unpack' if unpacks else 'download'} the same files"
        return Effect(statement, EffectKind.FETCH, because, survived=handler)


def _only_tries(statement: cst.Try) -> bool:
    """Whether a ``try`` does one thing, and goes on after it, whether that fails or not."""
    leaves = (cst.Return, cst.Raise, cst.Break, cst.Continue, cst.AssignTarget)
    return len(statement.body.body) == 1 and not any(isinstance(node, leaves) for node in descendants(statement))


def _is_tried_again(unit: Unit, body: cst.CSTNode) -> bool:
    """Whether a loop runs a block again until it has no error: ``while``, or a ``for`` that ends after it."""
    tried = unit.names.parents[body]
    loop = next(unit.names.enclosing(tried, cst.For, cst.While), None)
    after = (body, getattr(tried, "orelse", None))
    ends = any(isinstance(n, (cst.Break, cst.Return)) for part in after if part is not None for n in descendants(part))
    return isinstance(loop, cst.While) or (loop is not None and ends)


def _outside_bases(klass: Klass) -> Iterator[str]:
    yield from klass.externals
    for base in klass.bases:
        yield from _outside_bases(base)


def _called(thing: Thing) -> Function | None:
    """The function of the program that runs where something is called; None if that is outside, or not known."""
    return thing.method("__init__") if isinstance(thing, Klass) else thing if isinstance(thing, Function) else None


def _takes_for_nothing(function: Function) -> bool:
    """Whether a function takes a keyword ``download`` among others, by ``**kwargs``, and never reads those."""
    params, scope = function.node.params, function.unit.names.scopes[function.node]
    named = [param.name.value for param in (*params.posonly_params, *params.params, *params.kwonly_params)]
    rest = params.star_kwarg
    return rest is not None and "download" not in named and not scope.bindings[rest.name.value].reads
