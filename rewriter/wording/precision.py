"""The words for mixed precision that stays as it is."""

from __future__ import annotations

from ..facts.reasons.precision import (
    KeptScaler,
    ScaledTwice,
    UnlikeBranches,
)
from ..findings import Finding, Severity
from .registry import worded


@worded.register(UnlikeBranches)
def _unlike_branches(found: UnlikeBranches) -> Finding:
    return Finding(
        "autocast",
        found.node,
        "the branches with and without mixed precision also differ in other ways, so both are kept; each of them is "
        "correct",
        "no action needed; if they differ only in autocast and the scaler, one branch is enough",
        Severity.NOTE,
    )


@worded.register(ScaledTwice)
def _scaled_twice(found: ScaledTwice) -> Finding:
    return Finding(
        "grad_scaler",
        found.node,
        f"the script's own scaler is kept ({found.because}), and --mixed-precision fp16 would scale the loss twice",
        "do not use --mixed-precision, or remove the scaler by hand",
        Severity.BLOCKED,
    )


@worded.register(KeptScaler)
def _kept_scaler(found: KeptScaler) -> Finding:
    return Finding(
        "grad_scaler",
        found.node,
        f"the script's own scaler is kept ({found.because}): this is correct, because the gradients are equal on all "
        "processes",
        "no action needed; do not start it with --mixed-precision, which would scale the loss twice",
        Severity.NOTE,
    )
