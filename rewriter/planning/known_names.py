"""Where in some code all that an expression reads is known, and in what words its callers say it."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ..analysis.dataflow.call_binding import argument_of
from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.modules import imported
from ..analysis.dataflow.values import Unit
from ..analysis.syntax.definitions import attribute_assignments, deletions, taken_out
from ..analysis.syntax.nodes import dotted, names_read, positional, with_names
from ..analysis.syntax.scopes import Binding, Scope
from ..analysis.syntax.walk import nodes_in


class KnownNames:
    """Answers for one program."""

    def __init__(self, reach: Reach) -> None:
        self.state, self.reach = reach.state, reach

    def said_above(self, text: str, lower: Code, code: Code) -> str | None:
        """What a condition on a function's parameters reads in the code that calls it; None where it cannot be said."""
        text, lower = self._of_constructor(text, lower)
        unit, above = self.reach.unit(lower), self.reach.unit(code)
        scope = unit.names.scopes[lower]
        given: dict[str, str] = {}
        sites = [site for site in self.reach.sites(lower) if self.reach.function_of(site) is code]
        for word in names_read(cst.parse_expression(text)):
            binding = scope.lookup(word)
            if binding is None:
                continue
            if binding.scope is unit.names.scope and (above is unit or self._is_imported(binding, unit, above)):
                continue
            param = next((d for d in binding.definitions if isinstance(d, cst.Param)), None)
            if (
                param is None
                or len(binding.definitions) != 1
                or len(sites) != 1
                or not isinstance(lower, cst.FunctionDef)
            ):
                return None
            said = self._argument(sites[0], lower, param)
            if said is None:
                return None
            given[word] = said
        return with_names(text, given)

    @staticmethod
    def _is_imported(binding: Binding, unit: Unit, other: Unit) -> bool:
        """Whether a name is an import of the same in two modules: ``torch``."""
        same = other.names.scope.bindings.get(binding.name)
        found = [
            {imported(at, d) if isinstance(d, cst.ImportAlias) else None for d in held.definitions}
            for at, held in ((unit, binding), (other, same))
            if held is not None
        ]
        return len(found) == 2 and found[0] == found[1] and len(found[0]) == 1 and None not in found[0]

    def _of_constructor(self, text: str, method: Code) -> tuple[str, Code]:
        """A condition on what an object keeps in an attribute that is set once, by its constructor, in the words of
        that, and the constructor: ``torch.device(device).type == "cpu"`` for ``self.device.type == "cpu"``."""
        unit = self.reach.unit(method)
        parent = unit.names.scopes[method].parent
        klass = parent.node if parent is not None else None
        if not isinstance(klass, cst.ClassDef) or not isinstance(method, cst.FunctionDef) or not positional(method):
            return text, method
        owner = positional(method)[0].name.value
        kept = {dotted(a) for a in nodes_in(cst.parse_expression(text), cst.Attribute) if dotted(a.value) == owner}
        given = [a for a in nodes_in(klass, cst.Assign) for t in a.targets if dotted(t.target) in kept]
        init = unit.names.function(given[0]) if len(kept) == len(given) == 1 else None
        if not isinstance(init, cst.FunctionDef) or init.name.value != "__init__" or given[0] not in _top(init):
            return text, method
        return text.replace(kept.pop(), unit.names.module.code_for_node(given[0].value)), init

    def _argument(self, site: cst.Call, function: cst.FunctionDef, param: cst.Param) -> str | None:
        """The name that a call gives to a parameter."""
        places = positional(function)
        names = self.reach.unit(function).names
        method = isinstance(names.scopes[function].parent.node, cst.ClassDef)  # type: ignore[union-attr]
        index = places.index(param) - method if param in places else -1
        argument = argument_of(site, param, index)
        if argument is None or not isinstance(argument.value, (cst.Name, cst.Attribute)):
            return None
        return self.state.calls[site].unit.names.module.code_for_node(argument.value)

    def known_from(
        self,
        unit: Unit,
        scope: Scope,
        texts: Iterable[str],
        *,
        own: bool = False,
        given: Binding | None = None,
        site: cst.Call | None = None,
    ) -> int:
        """
        The position in the source after which all names of some expressions are defined, as a scope sees them.

        Args:
            unit, scope, texts: the module, the scope, and the source texts of the expressions.
            own: those of that scope alone count.
            given: a parameter whose first value is meant.
            site: a call that is given the values which are meant, where they are defined before it.
        """
        found = -1
        for word in (word for text in texts for word in names_read(cst.parse_expression(text))):
            binding = scope.lookup(word)
            if binding is None or binding is given or (own and binding.scope is not scope):
                continue
            for definition in _before(unit, binding, site) or binding.definitions:
                if not isinstance(definition, (cst.ImportAlias, cst.FunctionDef, cst.ClassDef, cst.Param)):
                    found = max(found, unit.names.order(definition))
        return max([found, *(self.set_by(unit, scope.node, text) for text in texts)])

    def still(
        self, unit: Unit, code: Code, node: cst.CSTNode, texts: Iterable[str], ready: int = -1
    ) -> cst.CSTNode | None:
        """
        A statement, or one before it, where the code has not deleted yet what some expressions read.

        None where there is none after ``ready``, the position from which they are known, and where an expression can be
        evaluated only once: ``options.pop("gpu")``.
        """
        names, scope = unit.names, unit.names.scopes[code]
        expressions = [cst.parse_expression(text) for text in texts]
        if any(taken_out(n) for each in expressions for n in nodes_in(each, cst.Call)):
            return None
        gone = {deletion for each in expressions for deletion in deletions(names, each, scope)}
        if not gone:
            return node
        below = node
        for around in names.ancestors(node):
            for statement in around.body if isinstance(around, (cst.IndentedBlock, cst.Module)) else ():
                if names.order(statement) >= names.order(below):
                    break
                if not gone.isdisjoint(self.reach.runs(statement, unit)):
                    return statement if names.order(statement) > ready else None
            if around in (code, getattr(code, "body", None)):
                break
            below = around
        return node

    def set_by(self, unit: Unit, code: Code, text: str) -> int:
        """The position in the source after which some code has set all attributes that an expression reads:
        ``args.cuda = ...``; -1 where it sets none."""
        read = nodes_in(cst.parse_expression(text), cst.Attribute)
        assigns = (assign for node in read for assign in attribute_assignments(unit.names, node))
        return max((unit.names.order(a) for a in assigns if unit.names.function(a) is code), default=-1)


def _before(unit: Unit, binding: Binding, site: cst.Call | None) -> list[cst.CSTNode]:
    """The definitions of a variable in statements before that of a call."""
    if site is None:
        return []
    start = unit.names.order(unit.names.statement(site))
    return [definition for definition in binding.definitions if unit.names.order(definition) < start]


def _top(function: cst.FunctionDef) -> list[cst.CSTNode]:
    """The statements of a function that no condition is around."""
    lines = getattr(function.body, "body", ())
    return [small for line in lines if isinstance(line, cst.SimpleStatementLine) for small in line.body]
