"""The ids of the audit's rules and where they are, for whoever needs no more: importing the rules imports libcst."""

from __future__ import annotations

MODULES = {
    "unwrapped-model": "models",
    "unsharded-loader": "loaders",
    "missing-set-epoch": "epochs",
    "misprepared": "preparing",
    "outside-backward": "preparing",
    "gathered-loss": "preparing",
    "collective-apart": "apart",
    "unguarded-write": "writes",
    "one-rank-metric": "metrics",
    "saved-wrapper": "wrappers",
    "seed-differs": "seeds",
    "seed-agrees": "seeds",
    "wrong-device": "devices",
    "not-followed": "unfollowed",
}
"""The module of each rule, whose docstring is its documentation; in the order in which they are listed."""
IDS = tuple(MODULES)
