"""The words for training steps on a device that compiles them."""

from __future__ import annotations

from ..facts.reasons.compiled import (
    OnlyCuda,
    OpenShapes,
    StepWaits,
)
from ..findings import Finding, Severity
from .registry import worded


@worded.register(StepWaits)
def _step_waits(found: StepWaits) -> Finding:
    verb = "need their values" if found.several else "needs its value"
    return Finding(
        "tpu-waits",
        found.node,
        f"{found.values} {verb} in each step: on a TPU the script waits for the device there, and the step is cut in "
        "two",
        "read it every so many steps, or keep a tensor (total += loss.detach()) and read that after the loop",
        Severity.REVIEW,
    )


@worded.register(OpenShapes)
def _open_shapes(found: OpenShapes) -> Finding:
    verb = "have" if found.several else "has"
    return Finding(
        "tpu-shapes",
        found.node,
        f"how many rows {found.values} {verb} depends on values: on a TPU each number of rows is compiled anew",
        "keep the shape: multiply by the mask, or use torch.where, and divide by mask.sum()",
        Severity.REVIEW,
    )


@worded.register(OnlyCuda)
def _only_cuda(found: OnlyCuda) -> Finding:
    return Finding(
        "tpu-cuda",
        found.node,
        f"`{found.text}` is an error, or means nothing, where there is no CUDA",
        "remove it, or do it under `if torch.cuda.is_available():`",
        Severity.REVIEW,
    )
