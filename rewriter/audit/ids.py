"""The ids of the audit's rules, for modules that only need the names: importing the rules imports libcst."""

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
