"""The ids of the audit's rules, for those who need no more than the names: importing the rules costs libcst."""

from __future__ import annotations

IDS = (
    "unwrapped-model",
    "unsharded-loader",
    "missing-set-epoch",
    "misprepared",
    "outside-backward",
    "gathered-loss",
    "collective-apart",
    "unguarded-write",
    "one-rank-metric",
    "saved-wrapper",
    "seed-differs",
    "seed-agrees",
    "wrong-device",
    "not-followed",
)
"""In the order in which they are listed."""
