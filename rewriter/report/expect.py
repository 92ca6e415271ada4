"""What the migrated script does differently once it runs on several processes, as far as this script is concerned."""

from __future__ import annotations

from collections.abc import Iterator

from ..result import Result, Trait
from .text import at_lines


def expectations(result: Result) -> Iterator[str]:
    """Yield one sentence or two about each thing that changes."""
    by_kind: dict[str, list[Trait]] = {}
    for file in result.files:
        for trait in file.traits:
            by_kind.setdefault(trait.kind, []).append(trait)
    many = len(result.files) > 1
    kept = result.options.get("batch") == "global"
    if by_hand := by_kind.pop("by-hand", []):
        by_kind.pop("statistics", None)
        by_kind.pop("length", None)
        yield (
            "The script was distributed before: every process takes batches of the size that it says, as it did, and N "
            "processes compute what N processes computed."
        )
    yield from () if by_hand else _batch(kept)
    said = {diagnosis.id for file in result.files for diagnosis in file.diagnoses}
    if "batch-norm" in said:
        by_kind.pop("statistics", None)
    if found := by_kind.get("statistics"):
        yield (
            f"{_named(found, many)}: each process normalises with the statistics of its own rows, so that results "
            "differ a little from those of one process."
        )
    if found := by_kind.get("noise"):
        yield f"{_named(found, many)}: noise is drawn by each process for its own rows, never the same twice."
    if found := by_kind.get("transforms"):
        yield f"{_named(found, many)}: images are changed at random by each process for itself."
    if found := [] if kept else by_kind.get("length", []):
        yield (
            f"{_named(found, many, 'len(', ')')}: the number of batches of one process, an N-th of what it was. "
            "Totals, progress in percent and horizons of schedulers that are made of it behind prepare follow."
        )
    if found := [] if kept else by_kind.get("steps", []):
        yield (
            f"{_named(found, many)}: the steps of an epoch, counted as on one process; on N there are N times fewer. A "
            "prepared scheduler follows. What counts by itself (an optimizer with a warm-up of its own, a learning "
            "rate that is set by hand) does not: divide by accelerator.num_processes."
        )
    yield from _counted(by_kind, many, kept)
    if "mac" in by_kind:
        yield "On a Mac with a GPU of its own the script now runs there, not on the CPU; Accelerator(cpu=True) stays."
    if found := by_kind.get("precision"):
        yield (
            f"{_named(found, many)}: autocast asked for CUDA, and did nothing on a machine without. The accelerator's "
            "setting holds on any device: there the script now computes in low precision, too, and its numbers differ."
        )
    if result.options.get("target", "torchlift") == "accelerate":
        yield "The script now imports accelerate: add `accelerate` to its requirements."
    else:
        yield "The script now imports torchlift.runtime: add `torchlift[runtime]` to its requirements."


def _counted(by_kind: dict[str, list[Trait]], many: bool, kept: bool) -> Iterator[str]:
    """What is counted in steps, batches and rows of one process."""
    if found := [] if kept else by_kind.get("cadence", []):
        yield (
            f"{_named(found, many)}: counted in steps of one process, of which an epoch has N times fewer. What hangs "
            "on it happens N times less often."
        )
    if found := [] if kept else by_kind.get("limit", []):
        yield f"{_named(found, many)}: so many batches of each process, together N times as many."
    if found := by_kind.get("bar", []):
        yield f"{_named(found, many, 'total=')}: this bar is told of one process's rows, and stops at an N-th of it."


def _batch(kept: bool) -> Iterator[str]:
    if kept:
        yield "The batch size of the script is that of all processes together; each takes its share of every batch."
        return
    yield (
        "On N processes the global batch is N x the script's: every process takes a whole batch of its own. Scale the "
        "learning rate with it (often by N, with a warm-up), or keep the batch: --keep-global-batch."
    )


def _named(traits: list[Trait], many: bool, before: str = "", behind: str = "") -> str:
    """``BatchNorm2d (lines 14, 18)``."""
    names = ", ".join(f"{before}{name}{behind}" for name in dict.fromkeys(trait.name for trait in traits))
    return names if many else f"{names} ({at_lines(trait.line for trait in traits)})"
