"""Which invariants of the check foresee that a promise breaks when the program runs: where two nets overlap."""

from __future__ import annotations

from collections.abc import Mapping

_TRAINED_APART = ("model-prepared", "optimizer-prepared", "each-definition", "backward", "prepared-late")
_GRADIENTS = ("gradient-gathered", "gradient-cut")

FORESEEN: Mapping[str, tuple[str, ...]] = {
    "runs": ("name-bound", "call-fits", "prepare-order", "backward", "model-placed"),
    "waits": ("collective-apart",),
    "steps": ("loader-prepared", "each-definition"),
    "losses": ("loader-prepared", *_GRADIENTS),
    "weights": (*_TRAINED_APART, *_GRADIENTS),
    "gradients": (*_TRAINED_APART, *_GRADIENTS),
    "rates": ("prepare-order",),
    "ranks": _TRAINED_APART,
    "samples": ("loader-prepared", "each-definition"),
    "numbers": (),
    "lines": (),
    "files": ("effect-once",),
    "checkpoints": (),
    "devices": ("loader-prepared", "model-placed"),
}
"""The id of a promise -> the names of invariants. A promise without any is about values, which no invariant follows."""
