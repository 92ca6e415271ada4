"""Effects outside the process: what is printed, written and fetched, and whether one process may do it alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import libcst as cst

from ...facts.effects import Effect, EffectKind, Handle
from ...facts.reasons import Reason
from ...facts.reasons.effects import AskedInHead, JointWrite, RunsOnAll, ShownByAll, UsedWrite
from ...facts.roles import SHARES, Origin, Role
from ...facts.torch_api.process_calls import saves_by_one
from ...facts.torch_api.surroundings import (
    prints_lines,
    settles,
    shows_bar,
    shows_model,
    silenced_by,
    stays_shown,
    text_methods,
    writes,
)
from ..dataflow.call_graph import Reach
from ..dataflow.callees import built_names, made_names, method_name, outside_name, outside_names
from ..dataflow.open_modes import opens_path, opens_to_write
from ..dataflow.trails import Trail, traces
from ..dataflow.values import Instance, Klass, State, Unit, Unknown, origins
from ..layouts.random_splits import splits_by_torch
from ..syntax.definitions import attribute_assignments, bindings_value, entered_values
from ..syntax.nodes import keyword
from ..syntax.walk import contains, descendants, nodes_in
from ..training.row_code import for_rows, only_for_rows
from ..training.training import Training
from .brought import brings
from .downloads import Fetches
from .existing_guards import Together, guarded, names_main, silent_elsewhere, starred
from .file_caches import Makings
from .handles import COMMANDS, Handles
from .made_lists import other_orders
from .memory import into_memory
from .row_files import for_rows_too, same_file
from .written import removes, writes_by_method


@dataclass
class Output:
    """What a module prints, writes and fetches."""

    effects: list[Effect] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)
    findings: list[Reason] = field(default_factory=list)


def output(
    state: State, unit: Unit, reach: Reach, training: Training, together: Together, *, own_rows: bool = True
) -> Output:
    """The effects of the code of a module that the script reaches. ``own_rows``: what loaders run for rows is left out,
    because each process has rows of its own."""
    return _Search(state, unit, reach, training, together).run(own_rows)


class _Search:
    """One pass over the calls of a module."""

    def __init__(self, state: State, unit: Unit, reach: Reach, training: Training, together: Together) -> None:
        self.state, self.unit, self.reach, self.training, self.together = state, unit, reach, training, together
        self.found = Output()
        self.settled: set[cst.CSTNode] = set()
        """Statements that only the main process will run."""
        self.brought: set[cst.CSTNode] = set()
        """Those of them that each process runs in its turn: what they print is printed once all the same."""
        self.made: set[cst.CSTNode] = set()
        """Questions for a file that the processes ask one after the other."""
        self.lines: dict[tuple[cst.CSTNode, EffectKind], list[int]] = {}
        """Lines of several statements -> the positions of those that write."""
        self.awaited: set[cst.CSTNode] = set()
        """Commands that the script waits for."""
        self.handles = Handles(state, unit)
        self.fetches = Fetches(state, unit, together)
        self.makings = Makings(state, unit, reach, together)

    def run(self, own_rows: bool) -> Output:
        calls = [c for c in self.unit.names.calls if c in self.state.calls]
        calls = [c for c in calls if self.unit.names.function(c) in self.reach.reachable]
        calls = [c for c in calls if not guarded(self.state, self.unit, c)]
        calls = [c for c in calls if not into_memory(self.state, self.unit, self.reach, c)]
        own = only_for_rows(self.state, self.reach) if own_rows else set()
        of_rows = [c for c in calls if self.unit.names.function(c) in own]
        self._write_of_rows(of_rows)
        too = for_rows(self.state, self.reach) - own if own_rows else set()
        both = [c for c in calls if self.unit.names.function(c) in too and self._brings(c)]
        for call in both:
            self._add(for_rows_too(self.state, self.unit, call))
        left = {*of_rows, *both}
        calls = [c for c in calls if c not in left]  # each process says what there is to say of its own rows
        for call in calls:
            self._fetch(call)
        for call in calls:
            self._make(call)
        self._ask_first([call for call in calls if self._makes(call) or brings(self.state.calls[call])])
        for call in calls:
            self._write(call)
        for (line, kind), parts in self.lines.items():
            self._add(self._alike(Effect(line, kind, _WHY, parts=tuple(sorted(parts)))))
        for call in calls:
            if not self._is_settled(call):
                self._made(call)
        for call in calls:
            if not self._is_settled(call, self.brought):
                self._print(call)
        apart = [q for q in self.made if isinstance(q, cst.If) and not contains(q.test, cst.BooleanOperation)]
        for answer in self.handles.trackers(self.reach, self.settled, self.together, apart):
            self._add(answer)
        return self.found

    def _is_settled(self, call: cst.Call, but: Collection[cst.CSTNode] = ()) -> bool:
        around = (call, *self.unit.names.ancestors(call))
        return any(node in self.settled and node not in but for node in around)

    def _add(self, answer: Effect | Handle | Reason | None) -> None:
        if isinstance(answer, Effect):
            self.found.effects.append(answer)
        elif isinstance(answer, Handle):
            self.found.handles.append(answer)
        elif answer is not None:
            self.found.findings.append(answer)

    # Writes -----------------------------------------------------------------------------------------------------------

    def _fetch(self, call: cst.Call) -> None:
        """Calls that download or unpack. They come first: what one process brings it writes there as well."""
        fetched = self.fetches.of(call) if not self._is_settled(call) else None
        if fetched is not None:
            self.settled.update([fetched.node] if isinstance(fetched, Effect) else [call])
            self.brought.update([fetched.node] if isinstance(fetched, Effect) else [])
            self._add(fetched)

    def _make(self, call: cst.Call) -> None:
        """Files that are made where they are missing: one process makes them before the others ask."""
        question = self.makings.of(call) if self._makes(call) and not self._is_settled(call) else None
        if question is None:
            return
        again = question in self.made
        self.made.add(question)
        if not again and not self.makings.is_done(call):
            self._add(Effect(question, EffectKind.DOWNLOAD, _FIRST, creates=True))

    def _brings(self, call: cst.Call) -> bool:
        """Whether a call makes a file, or downloads one, for which the other processes would wait."""
        return self._makes(call) or isinstance(self.fetches.of(call), Effect)

    def _write_of_rows(self, calls: list[cst.Call]) -> None:
        """Calls that loaders run for their rows: each process writes what it has of its own."""
        for call in calls:
            if self._makes(call):
                self._add(same_file(self.state, self.unit, call))

    def _makes(self, call: cst.Call) -> bool:
        """Whether a call makes a file that others may read."""
        name = outside_name(self.state.calls[call])
        if removes(self.state.calls[call]) or self._settles(call):
            return False
        makes = not self._on_console(call, name) and (self._writes(call, name) or self._opens(call))
        makes = makes or (name == "lmdb.open" and keyword(call, "readonly") is None)
        makes = makes or (name == "h5py.File" and opens_to_write(self.state, call, 1))
        return makes or (name == "torch.save" and not self.makings.holds_state(call))

    def _ask_first(self, makes: list[cst.Call]) -> None:
        """Files that one function asks for and another makes: the first process asks before the others do."""
        for statement in self.makings.asked_elsewhere(makes, self.settled):
            if isinstance(statement, AskedInHead):
                self.found.findings.append(statement)
                continue
            around = {statement, *self.unit.names.ancestors(statement)}
            if around.isdisjoint(self.settled) and around.isdisjoint(self.made):
                self._add(Effect(statement, EffectKind.DOWNLOAD, _FIRST, guarded=True, creates=True))
                self.found.findings.extend(other_orders(self.unit, self.reach, statement))

    def _write(self, call: cst.Call) -> None:
        """Calls that write: guarded as statements."""
        if self._is_settled(call) or any(around in self.made for around in self.unit.names.ancestors(call)):
            return
        name = outside_name(self.state.calls[call])
        if self._writes(call, name):
            self._written(call, EffectKind.CONSOLE if self._on_console(call, name) else EffectKind.WRITE)
        elif self._opens(call):
            self._opened(call)
        elif name in COMMANDS and stands_alone(self.unit, call) and not self._of_process(call):
            if not _in_background(call, name):
                self.awaited.add(call)
            self._written(call, EffectKind.COMMAND)
        elif self._may_save(call):
            self._add(RunsOnAll(call, "it may save a file, by a method that is not known"))

    def _of_process(self, call: cst.Call) -> bool:
        """Whether a command names the process that runs it: each process has one of its own."""
        inside = (node for arg in call.args for node in descendants(arg.value))
        slots = [slot for node in inside if (slot := self.state.values.get(node)) is not None]
        return any(traces(slot, Trail.STAMP) or origins(slot, Role.PLACE) for slot in slots)

    def _may_save(self, call: cst.Call) -> bool:
        """Whether a call is the method `save`, with a path, of an object of which nothing is known but what it was made
        from: a tensor has no such method."""
        if method_name(call) != "save" or not isinstance(call.func, cst.Attribute) or not call.args:
            return False
        receiver = self.state.calls[call].receiver
        things = receiver.things if receiver is not None else ()
        known = [t for t in things if not isinstance(t, Unknown) and not (isinstance(t, Origin) and t.role in SHARES)]
        return not known and not self.reach.called(call)

    def _renames(self, call: cst.Call) -> bool:
        """``temporary.replace(path)``, of what the function has written: a text has that method as well."""
        if method_name(call) not in ("replace", "rename") or len(call.args) != 1:
            return False
        path = call.func.value if isinstance(call.func, cst.Attribute) else None
        if not isinstance(path, cst.Name):
            return False
        names, function = self.unit.names, self.unit.names.function(call)
        before = (c for c in names.calls if names.function(c) is function and names.order(c) < names.order(call))
        given = (c for c in before if c in self.state.calls and any(arg.value.deep_equals(path) for arg in c.args))
        return any(writes(outside_name(self.state.calls[other])) or self._opens(other) for other in given)

    def _writes(self, call: cst.Call, name: str) -> bool:
        """Whether a call changes something outside the process, which once is enough for."""
        if name in ("os.makedirs", "os.mkdir") or method_name(call) == "mkdir":
            return self.handles.must_be_new(call)
        if self._renames(call):
            return True
        if method_name(call) in text_methods() and not writes_by_method(call):
            return False
        if (writes(name) and name != "torch.save") or self._on_console(call, name):  # a rule of its own saves states
            return True
        if self._settles(call):
            return True
        if not isinstance(call.func, cst.Attribute) or self._is_for_all(call):
            return False
        return writes_by_method(call) or self._writes_itself(call)

    def _settles(self, call: cst.Call) -> bool:
        """Whether a call needs an open file on the disk: what the others write to, the null device, is none."""
        file = call.func.value if isinstance(call.func, cst.Attribute) and method_name(call) == "truncate" else None
        cut = file is not None and bool(traces(self.state.values.get(file), Trail.FILE))
        return cut or settles(outside_name(self.state.calls[call]))

    def _is_for_all(self, call: cst.Call) -> bool:
        """Whether a call is of a method that all processes call, because it lets one of them write by itself."""
        receiver = self.state.calls[call].receiver
        for thing in receiver.things if receiver is not None else ():
            klass = thing.klass if isinstance(thing, Instance) else None
            names = klass.externals if klass is not None else (thing.qualified,) if isinstance(thing, Unknown) else ()
            if any(saves_by_one(f"{name}.{method_name(call)}") for name in names):
                return True
        return False

    def _on_console(self, call: cst.Call, name: str) -> bool:
        """Whether a call writes lines to the console: also by a bar, which writes them where it is disabled, too."""
        named = (each for each in (name, *made_names(self.state.calls[call])) if each != "builtins.print")
        prints = any(prints_lines(each) and not _is_silenced(call, each) for each in named)
        if prints or method_name(call) != "write" or not isinstance(call.func, cst.Attribute):
            return prints
        bar = call.func.value
        binding = self.unit.names.binding(bar) if isinstance(bar, cst.Name) else None
        made = bindings_value(self.unit.names, binding) if binding is not None else []
        made += entered_values(self.unit.names, binding) if binding is not None else []
        if isinstance(bar, cst.Attribute):
            made = [assign.value for assign in attribute_assignments(self.unit.names, bar)]
        calls = (self.state.calls.get(value) for value in made if isinstance(value, cst.Call))
        return any(record is not None and outside_name(record).startswith("tqdm.") for record in calls)

    def _writes_itself(self, call: cst.Call) -> bool:
        """Whether a call is of a method by which an object of another package writes a file: an image's ``save``."""
        return any(map(writes, made_names(self.state.calls[call])))

    def _written(self, call: cst.Call, kind: EffectKind) -> None:
        if self._into_handle(call):
            return
        around = next((w for w in self.unit.names.enclosing(call, cst.With) if self._writes_file(w)), None)
        if around is not None:  # the file is opened by a ``with``: guarded as a whole when its ``open`` is met
            return
        statement = self.unit.names.statement(call)
        if shows_model(outside_name(self.state.calls[call])) and splits_by_torch(self.state, self.reach):
            self.found.findings.append(ShownByAll(call, "it may draw numbers by which the data is split after it"))
        elif not stands_alone(self.unit, call):
            if outside_name(self.state.calls[call]) == "mlflow.start_run":
                return  # its handle is what counts
            self.found.findings.append(
                UsedWrite(call) if kind is not EffectKind.CONSOLE else ShownByAll(call, "its result is used")
            )
        elif _takes_along(call):
            self.found.findings.append(UsedWrite(call))
        elif self.together(self.unit, call):
            self._hoisted(call, statement, kind)
        elif isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
            self.settled.add(statement)
            self._add(self._alike(Effect(statement, kind, _WHY)))
        else:
            self._in_line(call, kind)

    def _alike(self, effect: Effect) -> Effect:
        """An effect with what is said of a command, where it is one."""
        if effect.kind is not EffectKind.COMMAND:
            return effect
        awaited = not self.awaited.isdisjoint(descendants(effect.node))
        return effect._replace(because="every process would run the command", awaited=awaited)

    def _in_line(self, call: cst.Call, kind: EffectKind) -> None:
        """A write beside other statements on a line, or after the colon of an ``if``."""
        small = self.unit.names.parents[call]
        line = self.unit.names.parents[small]
        assert isinstance(line, (cst.SimpleStatementLine, cst.SimpleStatementSuite))
        self.settled.add(small)
        self.lines.setdefault((line, kind), []).append(next(i for i, s in enumerate(line.body) if s is small))

    def _hoisted(self, call: cst.Call, statement: cst.CSTNode, kind: EffectKind) -> None:
        """A write whose argument is computed by all: computed first, then written by one."""
        forwards = [node for arg in call.args for node in nodes_in(arg, cst.Call) if self.together.starts(node)]
        outer = [f for f in forwards if not any(f is not g and f in set(descendants(g)) for g in forwards)]
        alone = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
        if len(outer) != 1 or not alone or _moves_ahead(call, outer[0]):
            self.found.findings.append(JointWrite(call))
            return
        self.settled.add(statement)
        name = self._free_name(call, ("batch",) if method_name(outer[0]) == "next" else _NAMES)
        forward: cst.CSTNode = outer[0]
        if forward in self.together.reduced:  # a rule edits it: the code around it is edited here
            forward = self.unit.names.parents[forward]
        self._add(Effect(statement, kind, "all processes compute it, one writes it", forward=forward, name=name))

    def _free_name(self, call: cst.Call, wanted: tuple[str, ...]) -> str:
        scope = self.unit.names.scopes[self.unit.names.function(call)]
        return next(n for n in (*wanted, *(f"result_{i}" for i in range(99))) if scope.lookup(n) is None)

    def _into_handle(self, call: cst.Call) -> bool:
        """Whether a call writes to a file that is inert on the other processes, or will be."""
        given = [arg.value for arg in call.args]
        handed = any(traces(self.state.values.get(one), Trail.FILE) for one in given)
        return handed and not any(isinstance(one, cst.Call) for one in given) and not self._settles(call)

    # Files that are opened --------------------------------------------------------------------------------------------

    def _opens(self, call: cst.Call) -> bool:
        names = outside_names(self.state.calls[call])
        if any(n in ("builtins.open", "io.open", "codecs.open", "gzip.open") for n in names):
            return opens_to_write(self.state, call, 1)
        return (
            method_name(call) == "open"
            and not names
            and isinstance(call.func, cst.Attribute)
            and opens_path(self.state, call)
        )

    def _writes_file(self, node: cst.CSTNode) -> bool:
        assert isinstance(node, cst.With)
        calls = [item.item for item in node.items if isinstance(item.item, cst.Call)]
        return any(c in self.state.calls and self._opens(c) for c in calls)

    def _opened(self, call: cst.Call) -> None:
        if call.args and names_main(self.state, call.args[0].value):
            return
        with_ = next((w for w in self.unit.names.enclosing(call, cst.With) if _is_item(w, call)), None)
        whole = with_ is not None and not self.together(self.unit, with_) and not _binds_for_later(self.unit, with_)
        if with_ is not None and whole:
            self.settled.add(with_)
            self._add(Effect(with_, EffectKind.WRITE, "every process would write the same file"))
        else:
            self._add(self.handles.file(call))

    # What is made and used elsewhere ----------------------------------------------------------------------------------

    def _made(self, call: cst.Call) -> None:
        record = self.state.calls[call]
        own = any(isinstance(klass, Klass) and klass.method("__init__") for klass in record.callees)
        if any(map(shows_bar, built_names(record))) and not own:
            self._bar(call)
        else:
            self._add(self.handles.log(call))

    def _bar(self, call: cst.Call) -> None:
        if any(map(stays_shown, built_names(self.state.calls[call]))):
            self._add(ShownByAll(call, "no option turns this bar off"))
        elif starred(call):
            self._add(ShownByAll(call, "what it is given with `**` may already hold `disable`"))
        elif not silent_elsewhere(self.state, self.unit, keyword(call, "disable")):
            self._add(Effect(call, EffectKind.BAR, "every process would show its own bar"))

    def _print(self, call: cst.Call) -> None:
        if outside_name(self.state.calls[call]) != "builtins.print":
            return
        file = keyword(call, "file")
        if file is None or not traces(self.state.values.get(file), Trail.FILE):
            self._add(Effect(call.func, EffectKind.PRINT, "every process would print this"))


_FIRST = "the first process creates the file, and the others find it"
_WHY = "every process would do the same work"
_NAMES = ("output", "outputs", "result", "results")


def stands_alone(unit: Unit, call: cst.Call) -> bool:
    """Whether a call is all that its statement does, on a line of its own or beside others."""
    parent = unit.names.parents.get(call)
    return isinstance(parent, cst.Expr)


def _takes_along(call: cst.Call) -> bool:
    """Whether the arguments of a call change something that all processes keep: ``os.remove(kept.pop(0))``."""
    inner = (n for arg in call.args for n in nodes_in(arg, cst.Call, cst.NamedExpr))
    return any(isinstance(n, cst.NamedExpr) or method_name(n) in ("pop", "popleft", "popitem") for n in inner)


def _moves_ahead(call: cst.Call, forward: cst.Call) -> bool:
    """Whether some other call in a statement would run later than it did, were one part of it computed first."""
    for node in descendants(call):
        if node is forward:
            return False
        if isinstance(node, cst.Call) and node is not call and forward not in set(descendants(node)):
            return True
    return False


def _in_background(call: cst.Call, name: str) -> bool:
    """Whether nothing waits for a command: ``os.system("plot.sh &")``."""
    texts = (n for arg in call.args[:1] for n in descendants(arg.value))
    words = (n.evaluated_value if isinstance(n, cst.SimpleString) else getattr(n, "value", "") for n in texts)
    return name == "subprocess.Popen" or any(str(word).rstrip().endswith(" &") for word in words)


def _is_item(node: cst.CSTNode, call: cst.Call) -> bool:
    return isinstance(node, cst.With) and any(item.item is call for item in node.items)


def _is_silenced(call: cst.Call, name: str) -> bool:
    """Whether a keyword keeps a call from writing to the console: ``summary(model, verbose=0)``."""
    word = silenced_by(name)
    value = keyword(call, word) if word else None
    return (isinstance(value, cst.Integer) and value.evaluated_value == 0) or (
        isinstance(value, cst.Name) and value.value == "False"
    )


def _binds_for_later(unit: Unit, block: cst.CSTNode) -> bool:
    """Whether names set inside a block are read outside of it: other processes would miss them."""
    inside, names = set(descendants(block)), unit.names
    loops = set(names.enclosing(block, cst.For, cst.While))
    for scope in names.scopes.values():
        for binding in scope.bindings.values():
            if not any(d in inside for d in binding.definitions):
                continue
            others = [d for d in binding.definitions if d not in inside and d in names.parents]
            for read in binding.reads:
                if read in inside or read not in names.parents:
                    continue
                later = names.order(read) > names.order(block)
                around = None if later else loops & set(names.enclosing(read, cst.For, cst.While))
                if not later and not around:
                    continue
                start = names.order(block) if later else min(names.order(loop) for loop in around or ())
                if not any(start < names.order(d) < names.order(read) for d in others):
                    return True
    return False
