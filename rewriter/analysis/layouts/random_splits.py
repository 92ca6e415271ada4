"""
What chance decides about the data: splits, folds, shuffled lists, drawn by every process for itself.

They must be the same everywhere. A script that seeds them is right as it is; for one that does not, the accelerator
makes the generators those of the first process when it is made, so that it must be made before the draw.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import State, Unit


def unseeded(state: State, reach: Reach) -> list[tuple[Unit, cst.Call]]:
    """The draws whose generator the script seeds nowhere."""
    seeded = set(_seeded(state, reach))
    if "all" in seeded:
        return []
    found = []
    for unit in reach.units:
        for call in unit.names.calls:
            if call in state.calls and unit.names.function(call) in reach.reachable:
                name = outside_name(state.calls[call])
                kind = _kind(call, name)
                if kind is None and not reach.batch_loops(call, unit):
                    kind = _values(name)
                if kind is not None and (kind not in seeded or _makes_seed(state, unit, call)):
                    found.append((unit, call))
    return found


def _makes_seed(state: State, unit: Unit, call: cst.Call) -> bool:
    """``seed = random.randint(1, 10000)``: what seeds the script is drawn before anything is seeded."""
    assign = unit.names.parents.get(call)
    if not isinstance(assign, cst.Assign) or assign.value is not call or len(assign.targets) != 1:
        return False
    target = assign.targets[0].target
    seeds = (r.node for r in state.calls.values() if r.unit is unit and questions.seeds(outside_name(r)))
    return any(arg.value.deep_equals(target) for seed in seeds for arg in seed.args)


def _seeded(state: State, reach: Reach) -> Iterator[str]:
    """The generators that the script seeds; ``all`` where a function with such a name does it."""
    for call, record in state.calls.items():
        name = outside_name(record)
        if reach.function_of(call) not in reach.reachable:
            continue
        if generator := questions.seeds(name):
            yield generator
        elif "seed" in method_name(call).lower() and not name.startswith(("torch.", "numpy.", "random.")):
            if not reach.called(call):  # what a function of the script seeds is seen there
                yield "all"


def divides(state: State, call: cst.Call) -> bool:
    """Whether a call draws which rows there are, or their order, and not only the values that they hold."""
    return _kind(call, outside_name(state.calls[call])) is not None


def _kind(call: cst.Call, name: str) -> str | None:
    """Whose numbers a call draws to decide about data; None where it draws none, or names its own generator."""
    keywords = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    if keywords.keys() & {"generator", "random_state"}:
        return None
    split = questions.splits(name)
    if split is not None:
        shuffled = isinstance(keywords.get("shuffle"), cst.Name) and keywords["shuffle"].value == "True"  # type: ignore[attr-defined]
        return split.generator if split.shuffles == "always" or shuffled else None
    drawn = questions.draws(name)
    if drawn is None or drawn.draws == "noise" or (drawn.draws == "numbers" and drawn.generator == "torch"):
        return None
    return drawn.generator


def _values(name: str) -> str | None:
    """Whose numbers a call draws that are data outside the loops over batches, and noise inside."""
    drawn = questions.draws(name)
    return drawn.generator if drawn is not None and drawn.generator in ("torch", "numpy") else None
