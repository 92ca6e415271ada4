"""What a reader of the verdict learns about the runs: what was held still, and what was not seen."""

from __future__ import annotations

from collections.abc import Mapping

from .program import root_of
from .request import VerifyRequest
from .traces import LEAVING, RunTrace


def notes(traces: Mapping[str, RunTrace], request: VerifyRequest, rehearsals: tuple[str, ...]) -> list[str]:
    """
    What was held still, and what was not seen, in words.

    Args:
        traces: by the names of the runs.
        request: of the verification.
        rehearsals: end the names of runs that are not compared.
    """
    found: list[str] = []
    words = {
        "dropout": "dropout off: {} layers",
        "dropout in attention": "dropout off in attention",
        "dropout in recurrent layers": "dropout off in {} recurrent layers",
        "BatchNorm": "BatchNorm: {} layers on running statistics",
        "noise per row": "noise drawn per row is a function of (step, call, row)",
        "mixed precision": "mixed precision: compared to a few digits (--double compares to 1e-9)",
        "rows of a batch mixed by randperm": "randperm mixes the rows of a batch",
        "BatchNorm without running statistics": "BatchNorm without running statistics",
        "compiled": "nothing is compiled",
    }
    held: dict[str, int] = {}
    for trace in traces.values():
        for kind, count in trace.held().items():
            held[kind] = max(held.get(kind, 0), count)
    found += [words[kind].format(count) for kind, count in held.items() if kind in words]
    for program in (request.original, request.migrated):
        module = root_of(program)[1]
        started = f"started as python -m {module}"
        if module and started not in found:
            found.append(started)
    if request.exact:
        found.append("samples in the order of their indices; --as-is shows what exact mode hides")
    if request.distributed:
        found.append("already distributed: N processes of the migrated script are compared with N of the original")
    if any(rank.of("spawned") for trace in traces.values() for rank in trace.ranks):
        found.append("the function that the original passes to mp.spawn ran in processes of the verification")
    for name, trace in traces.items():
        if name.endswith(rehearsals):
            continue
        if trace.ended == LEAVING:
            found.append(f"{name}: a process did not end after the training, and was ended")
        if trace.cut:
            found.append(f"{name}: ended early, so later parts of the script were not compared")
        elsewhere = {event["f"] for rank in trace.ranks for event in rank.of("elsewhere")}
        if elsewhere:
            found.append(f"{name}: writes outside its folder, for example {sorted(elsewhere)[0]}")
    return found
