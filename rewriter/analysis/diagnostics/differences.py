"""What the processes compute differently from one process by its nature: loss means of means, and numpy's noise."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.roles import Role
from ...findings import Finding, Severity
from ..dataflow.call_graph import Reach
from ..dataflow.values import State, Unit, origins
from ..effects.existing_guards import guarded
from ..syntax.nodes import keyword
from ..training.training import Training, outside_name


def weighted(state: State, training: Training) -> Iterator[tuple[Unit, Finding]]:
    """Losses that are normalised by something else than the number of rows."""
    seen: set[cst.CSTNode] = set()
    for record in training.backwards:
        for loss in (*origins(record.receiver, Role.LOSS), *origins(record.first, Role.LOSS)):
            maker = loss.source.node if loss.source is not None and loss.source.role is Role.CRITERION else loss.node
            names = [n for n in ("weight", "ignore_index") if isinstance(maker, cst.Call) and keyword(maker, n)]
            if names and maker not in seen:
                seen.add(maker)
                yield (
                    record.unit,
                    Finding(
                        "weighted-mean",
                        maker,
                        f"each process normalises this loss by its own {names[0]}: the gradient is close to the "
                        "original's but not equal to it",
                        "no action needed if close is good enough; for the exact gradient, sum the losses and divide "
                        "by a reduced count",
                    ),
                )


_NOISE = frozenset(
    f"numpy.random.{name}"
    for name in "rand randn random normal uniform randint choice permutation standard_normal".split()
)


def same_noise(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Finding]:
    """Draws of numpy's generator in a training step: alike on all processes."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None or unit.names.function(call) not in reach.reachable or guarded(state, unit, call):
            continue
        if outside_name(record) in _NOISE and any(
            loop in training.train_loops for loop in reach.batch_loops(call, unit)
        ):
            yield Finding(
                "same-noise",
                call,
                "NumPy's generator is kept equal on all processes because control flow may depend on it, so every "
                "process draws the same numbers here",
                "draw them with torch, whose generators differ between processes: torch.randn(..., "
                "device=accelerator.device)",
                Severity.REVIEW,
            )
