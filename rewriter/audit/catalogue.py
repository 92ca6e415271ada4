"""The rules of the audit, in the order in which they are listed."""

from __future__ import annotations

from . import apart, devices, epochs, loaders, metrics, models, preparing, seeds, unfollowed, wrappers, writes
from .rule import AuditRule

RULES: tuple[AuditRule, ...] = (
    models.RULE,
    loaders.RULE,
    epochs.RULE,
    preparing.RULE,
    preparing.BACKWARD,
    preparing.GATHERED,
    apart.RULE,
    writes.RULE,
    metrics.RULE,
    wrappers.RULE,
    seeds.DIFFERS,
    seeds.AGREES,
    devices.RULE,
    unfollowed.RULE,
)
