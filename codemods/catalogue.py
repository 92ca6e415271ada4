"""The rules, in the order that suits a reader of the diff. A rule is imported only when it has work to do."""

from __future__ import annotations

from ..rewriter.rule import Entry

_IDS = (
    "accelerate_imports",
    "accelerator_setup",
    "hand_written_ddp",
    "data_parallel",
    "device_placement",
    "legacy_tensors",
    "directories",
    "log_files",
    "tracking",
    "downloads",
    "prepare",
    "shard_batch",
    "backward",
    "accumulation",
    "autocast",
    "grad_scaler",
    "clip_grad",
    "scheduler",
    "metrics_gather",
    "deferred_reads",
    "main_process",
    "progress_bars",
    "checkpoint_save",
    "checkpoint_load",
)

CATALOGUE: tuple[Entry, ...] = tuple(Entry(id, f"torchlift.codemods.{id}") for id in _IDS)
