"""What rank 0 makes of what the processes have stated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, TypeAlias

from ..process.statements import JUDGES, SharedVerdict

WEIGHTS = "weights"
"""Statements about the weights of a prepared model."""
SHARDS = "shards"
"""Statements about one shard of its weights, where there are replicas of shards."""
BUFFERS = "buffers"
"""Statements about its buffers."""
LOOSE = "loose"
"""Statements about weights that an optimizer steps and no prepared model holds."""
ROWS = "rows"
"""Statements about the first batches of a loader that is not sharded."""
_ALIKE = 1e-4
"""Gradients of the same rows differ by less, whatever the device; those of other rows by more."""


NamesOf: TypeAlias = "Callable[[int, str], tuple[str, list[str]]]"
"""The class of the prepared model with a number, and the names of its WEIGHTS, SHARDS or BUFFERS."""
_CAUSES = {
    WEIGHTS: "weights that one rank loads, initialises or changes after prepare; an optimizer step or a clipping that "
    "only some ranks make; gradients that one rank changes after backward; random numbers drawn after prepare (weights "
    "that are reset or perturbed), which differ per rank; a learning rate that depends on a rank's own metric; "
    "optimizer steps inside no_sync. If the weights should differ, write `with "
    "accelerator.unsynchronized(model):` around the training.",
    BUFFERS: "a buffer that only some ranks register, or whose class ignores what is copied into it. If they should "
    "differ: Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)]).",
}
_CAUSES[SHARDS] = _CAUSES[WEIGHTS]
_ONE = {WEIGHTS: "parameter", SHARDS: "parameter", BUFFERS: "buffer"}
_ALSO = {WEIGHTS: "", SHARDS: ", which have the same shard of each weight,", BUFFERS: ""}


def enter(names_of: NamesOf) -> None:
    """Judge from now on."""
    JUDGES[WEIGHTS] = lambda said, _: differing(said, WEIGHTS, names_of)
    JUDGES[SHARDS] = lambda said, _: differing(said, SHARDS, names_of)
    JUDGES[BUFFERS] = lambda said, _: differing(said, BUFFERS, names_of)
    JUDGES[LOOSE] = loose
    JUDGES[ROWS] = same_rows


def differing(said: dict[int, Any], kind: str, names_of: NamesOf) -> SharedVerdict | None:
    """Weights or buffers of a model that should be equal on all ranks."""
    first, *others = sorted(said)
    for other in others:
        mine, theirs = said[first], said[other]
        pairs = list(zip(mine["sums"], theirs["sums"], strict=False))
        apart = [index for index, (a, b) in enumerate(pairs) if a != b]
        if apart or len(mine["sums"]) != len(theirs["sums"]):
            model, names = names_of(mine["model"], kind)
            index = apart[0] if apart else len(pairs)
            one = _ONE[kind]
            name = f"`{names[index]}`" if index < len(names) else f"its number of {one}s"
            text = (
                f"the {kind} of the prepared model ({model}) differ between rank {first} and rank {other}{_ALSO[kind]} "
                f"{mine['when']}: the first {one} that differs is {name} ({len(apart)} of {len(pairs)} {one}s "
                f"differ).{_at(mine)} Likely causes: {_CAUSES[kind]}"
            )
            return SharedVerdict("DivergenceError", text)
    return None


def loose(said: dict[int, Any], size: int) -> SharedVerdict | None:
    """Weights that several ranks step, and that nothing keeps equal."""
    for one, other in combinations(sorted(said), 2):
        if not alike(said[one]["norms"], said[other]["norms"]):
            return SharedVerdict("NotPreparedError", _not_prepared(said, one, other))
    first = said[min(said)]
    if len(said) == size and first["step"] == 2 and not any(value["prepared"] for value in said.values()):
        text = (
            f"all {size} ranks train {_model(first)}{first['at']} in the same way, because nothing was prepared: "
            "each rank does all the work. Pass the model, the optimizer and the loader to accelerator.prepare."
        )
        return SharedVerdict("", text)
    return None


def _not_prepared(said: dict[int, Any], one: int, other: int) -> str:
    value = said[one]
    remedy = "Pass it to accelerator.prepare with its optimizer."
    if not value["variable"]:
        remedy = "Put it into an nn.Module that is prepared, or average its gradients with accelerator.reduce."
    return (
        f"{value['optimizer']}.step(){value['at']} trains {_model(value)}, which is not part of a prepared model: "
        f"rank {one} and rank {other} have different gradients for it, so their weights diverge (step "
        f"{value['step']}). {remedy} If each rank should train its own, "
        f"write `with accelerator.unsynchronized({value['variable']}):` around its training."
    )


def _model(value: dict[str, Any]) -> str:
    if value["variable"]:
        return f"`{value['variable']}` (a {value['model']})"
    return f"{value['count']} tensors" if value["count"] > 1 else "a tensor"


def _at(value: dict[str, Any]) -> str:
    return f" Detected{value['at']}." if value["at"] else ""


def alike(mine: list[float], theirs: list[float]) -> bool:
    """These lengths of gradients are of the same rows."""
    pairs = list(zip(mine, theirs, strict=False))
    largest = max((max(abs(a), abs(b)) for a, b in pairs if math.isfinite(a) and math.isfinite(b)), default=0.0)
    return len(mine) == len(theirs) and all(
        abs(a - b) <= _ALIKE * largest if math.isfinite(a) and math.isfinite(b) else str(a) == str(b) for a, b in pairs
    )


def same_rows(said: dict[int, Any], size: int) -> SharedVerdict | None:
    """Batches that all ranks read whole."""
    if len(said) < size:
        return None
    first = said[min(said)]
    alike = all(value["batches"] == first["batches"] for value in said.values()) and list(_different(first["batches"]))
    whole = first["whole"] and all(value["whole"] == first["whole"] for value in said.values())
    if not alike and not whole:
        return None
    if alike:
        seen = f"yields the same rows on all {size} ranks in a training loop: each rank does all the work"
    else:
        seen = f"goes through all rows on each of the {size} ranks, in an order of its own: each rank does all the work"
    remedy = "Pass the loader to accelerator.prepare, which gives each rank its own rows"
    if first["prepared"]:
        remedy = (
            "Its data set or its sampler ignores the indices of the rank, or draws rows by the generator of Python or "
            "NumPy, which is equal on all ranks. Draw by torch, or seed by the rank"
        )
    text = (
        f"{first['loader']}{first['at']} {seen}. {remedy}. If this is intended, filter this warning, or set "
        "TORCHLIFT_MONITOR=0."
    )
    return SharedVerdict("", text)


def _different(batches: list[list[Any]]) -> Iterator[int]:
    """Those that show that the data has more than one row."""
    for index, (total, varied) in enumerate(batches):
        if varied or total != batches[0][0]:
            yield index
