"""Whether the migrated script would mix devices on a machine with an accelerator, tried on a pretended one."""

from __future__ import annotations

from dataclasses import replace

from ..exact.pretended import MixedDevices, NotOnHost
from ..traces import RunTrace
from ..verdict import Outcome, Promise

CPU_BATCH = "batch"
"""The figure of the promise where the batch in hand is on the CPU."""
_KINDS = (MixedDevices.__name__, NotOnHost.__name__)


def mixes(trace: RunTrace) -> bool:
    """Whether a pretended run was ended by an operation that is given tensors of several devices."""
    return trace.main.error is not None and trace.main.error["kind"] in _KINDS


def devices(migrated: RunTrace, original: RunTrace | None) -> Promise:
    """
    No operation mixes devices.

    Args:
        migrated: the pretended run of the migrated script.
        original: that of the original, where the other one mixes devices.
    """
    error = migrated.main.error
    if error is None and not migrated.main.status and not migrated.ended:
        return _promise(Outcome.HELD, "")
    if error is None or not mixes(migrated):
        what = f"{error['kind']}: {error['message']}" if error is not None else f"the run was ended ({migrated.ended})"
        return _promise(Outcome.UNTESTABLE, f"the script does not run on a pretended accelerator: {_line(what)}")
    if original is not None and original.main.error is not None:
        return _promise(Outcome.UNTESTABLE, f"the original also fails there, at {original.main.error['at']}")
    found = replace(_promise(Outcome.BROKEN, f"{error['at']}: {_line(error['message'])}"), at=error["at"])
    batch = next(reversed(migrated.main.of("batch")), None)
    if batch is None or batch.get("on", True) or not batch.get("at"):
        return found
    return replace(found, at=batch["at"], figure=CPU_BATCH)


def _line(text: str) -> str:
    return text.partition("\n")[0][:300]


def _promise(outcome: Outcome, detail: str) -> Promise:
    words = "on an accelerator, no operation mixes devices"
    return Promise(id="devices", promise=words, processes=1, outcome=outcome, detail=detail)
