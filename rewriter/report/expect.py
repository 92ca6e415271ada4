"""What this migrated script does differently on several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ..result import FileResult, Result
from .diff import shown
from .text import at_lines, counted, visible

_NAMED = 6
"""So many places of one thing are named."""


class _LocatedTrait(NamedTuple):
    """A trait in its file."""

    name: str
    line: int
    file: FileResult


_Where = Callable[[Sequence[_LocatedTrait]], str]
"""Names the places of some traits, or none."""


def expectations(result: Result) -> Iterator[str]:
    """Yield one or two sentences about each thing that changes."""
    by_kind: dict[str, list[_LocatedTrait]] = {}
    for file in result.files:
        for trait in file.traits:
            by_kind.setdefault(trait.kind, []).append(_LocatedTrait(trait.name, trait.line, file))
    where = partial(_places, alone=len(result.files) == 1)
    if by_kind.pop("by-hand", []):
        yield (
            "The script was already distributed: every process takes batches of the script's size, as before, and N "
            "processes compute what N processes computed."
        )
    said = {diagnosis.id for file in result.files for diagnosis in file.diagnoses}
    yield from _batch(result)
    if "batch-norm" in said:
        by_kind.pop("statistics", None)
    if found := by_kind.get("statistics"):
        yield (
            f"{_named(found, where)}: each process normalises with the statistics of its own rows, so results differ "
            "slightly from those of one process."
        )
    yield from _alike(by_kind, where)
    if found := by_kind.get("noise"):
        yield f"{_named(found, where)}: each process draws its own noise for its own rows."
    if found := by_kind.get("anew"):
        yield (
            f"{_named(found, where)}: made anew in each forward pass. Each process draws other weights for it, which "
            "no optimizer trains: results differ from those of one process, as with noise. To train the layer, make it "
            "in __init__."
        )
    if found := by_kind.get("transforms"):
        yield f"{_named(found, where)}: each process draws its own random transforms."
    if found := by_kind.get("shown-later"):
        yield (
            f"What {where(found) or 'a cell'} shows comes after the whole training, because the cells around it "
            "are one function now: it shows the values at the end of the training."
        )
    if found := by_kind.get("wiping"):
        yield (
            f"{_named(found, where)}: wipes now also what the cells of the training before it have printed, because "
            "they are one function. Leave it out, or print that again after it."
        )
    if found := by_kind.get("length"):
        yield (
            f"{_named(found, where, 'len(', ')')}: after prepare(...) this is the number of batches per process, 1/N "
            "of the original. Values computed from it after prepare(...) (totals, progress in percent, scheduler "
            "lengths) change too."
        )
    if found := by_kind.get("early-length"):
        yield (
            f"{_named(found, where)}: the number of batches on one process, asked for before prepare(...). On N "
            "processes each goes through 1/N of them, so what is shown or computed with it (steps of an epoch, "
            "progress, time left) is N times too large: ask for it again after prepare(...). A prepared scheduler "
            "takes this into account."
        )
    if found := by_kind.get("steps"):
        yield (
            f"{_named(found, where)}: the number of steps of an epoch on one process; on N processes an epoch has N "
            "times fewer. A prepared scheduler takes this into account. Other code that counts steps (an optimizer "
            "with its own warm-up, a learning rate set by hand) does not: divide by accelerator.num_processes."
        )
    if found := by_kind.get("unseen"):
        yield (
            f"{_named(found, where)}: of {'a package' if len(found) == 1 else 'packages'} whose effects are not known. "
            f"Every process calls {'it' if len(found) == 1 else 'them'}: what should happen once (a file, a message), "
            "guard by hand."
        )
    yield from _counted(by_kind, where)
    if found := by_kind.get("mac"):
        yield (
            f"On a Mac: the GPU, where the script took the CPU{_unless(found)}. Accelerator(cpu=True) keeps the CPU."
        )
    if found := by_kind.get("cuda"):
        yield (
            "The script chose between MPS and the CPU, so it ran on the CPU on a machine with an NVIDIA GPU. It now "
            f"runs on that GPU{_unless(found)}; to stay on the CPU, use Accelerator(cpu=True)."
        )
    if "gpu" in by_kind:
        yield (
            "The script names no device, so it ran on the CPU. Where there is a GPU it now runs on that; to stay on "
            "the CPU, use Accelerator(cpu=True)."
        )
    if found := by_kind.get("numbered"):
        yield (
            f'{_named(found, where)}: asked only whether it is "cpu". A GPU that it names by number (cuda:1) is not '
            "chosen by it any more, but at the start: torchlift launch --gpu-ids 1."
        )
    if found := by_kind.get("precision"):
        yield (
            f"{_named(found, where)}: autocast asked for CUDA and had no effect on a machine without CUDA. The "
            "accelerator's setting applies to every device: on such a machine the script now computes in low "
            "precision, and its numbers differ."
        )


def _alike(by_kind: dict[str, list[_LocatedTrait]], where: _Where) -> Iterator[str]:
    """The random numbers for rows that are the same on all processes."""
    if found := by_kind.get("alike"):
        yield (
            f"{_named(found, where)}: Python's and NumPy's generators are kept equal on all processes, so without "
            "loader workers each process draws the same numbers for its own rows. Workers draw different ones."
        )
    if found := by_kind.get("reseeded"):
        drawn = [*by_kind.pop("transforms", []), *by_kind.pop("noise", [])]
        yield (
            f"{_named(found, where)}: without loader workers each process seeds torch with the same numbers here, and "
            "what torch draws after that is the same on all processes"
            f"{f': {_named(drawn, _nowhere)}' if drawn else ''}."
        )


def _counted(by_kind: dict[str, list[_LocatedTrait]], where: _Where) -> Iterator[str]:
    """The values that are counted in steps, batches and rows of one process."""
    if found := by_kind.get("cadence"):
        yield (
            f"{_named(found, where)}: this counts the steps of one process, and on N processes an epoch has N times "
            "fewer. Code that depends on it runs N times less often, and never if an epoch has fewer steps than that."
        )
    if found := by_kind.get("long-cadence"):
        yield (
            f"{_named(found, where)}: this counts the steps of one process through all epochs, and on N processes an "
            "epoch has N times fewer. Code that depends on it runs after N times as many rows."
        )
    if found := by_kind.get("interval"):
        yield (
            f"{_named(found, where)}: this counts the steps of one process, and on N processes an epoch has N times "
            "fewer. Code that depends on it runs about N times less often, and at least once an epoch."
        )
    if found := by_kind.get("rate"):
        yield (
            f"{_named(found, where)}: the learning rate follows this count of the steps of one process, and on N "
            "processes an epoch has N times fewer. A warm-up or a decay takes N times as many epochs: multiply the "
            "count by accelerator.num_processes to keep the original's."
        )
    if found := by_kind.get("limit"):
        yield f"{_named(found, where)}: this limit applies to each process, so N processes use N times as many batches."
    if found := by_kind.get("filled"):
        yield (
            f"{_named(found, where)}: collects a mean over the batches of all processes. Where the rows do not share "
            "out evenly, the last batches are filled up with repeated rows, which count: a figure of the epoch is then "
            "close to the original's but not equal."
        )
    if found := by_kind.get("running"):
        yield (
            f"{_named(found, where)}: collected and shown inside the training loop. What is printed or logged is the "
            "figure of the main process's own rows."
        )
    if found := by_kind.get("figure"):
        yield (
            f"{_named(found, where)}: shown for a step of the training loop. What is printed, logged or saved is the "
            "figure of the main process's own rows."
        )
    if found := by_kind.get("shown"):
        yield (
            f"{_named(found, where)}: computed from the rows of one process. What is printed, logged or written is the "
            "figure of the main process's own rows."
        )
    if found := by_kind.get("rows-done"):
        yield (
            f"{_named(found, where)}: this counts the rows that one process has gone through: 1/N of those of all "
            "processes."
        )
    if found := by_kind.get("bar"):
        yield (
            f"{_named(found, where, 'total=')}: this bar counts only the rows of one process, so it stops at 1/N of "
            "its total."
        )


def _batch(result: Result) -> Iterator[str]:
    """What the script's batch size is on several processes; with the scripts named where they differ."""
    scripts: dict[str, list[str]] = {}
    for file in result.files:
        for trait in file.traits if file.changed else ():
            if trait.kind == "batch":
                scripts.setdefault(trait.name, []).append(visible(shown(file.source.path)))
    for batch, names in sorted(scripts.items(), reverse=True):
        text = _BATCHES[batch]
        yield text if len(scripts) == 1 else f"{', '.join(names)}: {text[0].lower()}{text[1:]}"


_BATCHES = {
    "global": "The script's batch size is the global batch size: each process takes its shard of every batch.",
    "process": (
        "On N processes the global batch is N times the script's: every process takes its own whole batch. Scale the "
        "learning rate (often by N, with a warm-up), or keep the global batch: --keep-global-batch."
    ),
}


def _unless(found: Sequence[_LocatedTrait]) -> str:
    """The condition under which the accelerator takes the CPU, as the script says it."""
    conditions = dict.fromkeys(trait.name for trait in found)
    said = " or ".join(f"`{condition}`" for condition in conditions)
    return f" unless {said}" if all(conditions) else ""


def _nowhere(found: Sequence[_LocatedTrait]) -> str:
    """No place is named."""
    return ""


def _places(found: Sequence[_LocatedTrait], *, alone: bool) -> str:
    """Where some things are: ``lines 14, 18``, and if there are several files ``net.py:14, 18; train.py:3``."""
    places = list(dict.fromkeys((one.file.source.path, one.line) for one in found if one.line))
    files = {one.file.source.path: one.file for one in found}
    told = []
    for path, file in files.items():
        lines = [line for other, line in places[:_NAMED] if other == path]
        notebook = file.source.notebook
        if lines and alone:
            told.append(at_lines(lines, notebook))
        elif lines:
            inside = at_lines(lines, notebook) if notebook is not None else ", ".join(map(str, lines))
            told.append(f"{visible(shown(path))}:{inside}")
    more = [f"and {counted(len(places) - _NAMED, 'other place')}"] if len(places) > _NAMED else []
    return " ".join(["; ".join(told), *more])


def _named(found: Sequence[_LocatedTrait], where: _Where, before: str = "", behind: str = "") -> str:
    """``BatchNorm2d (lines 14, 18)``; of a notebook ``BatchNorm2d (cell 3, line 2)``."""
    names = ", ".join(f"{before}{name}{behind}" for name in dict.fromkeys(one.name for one in found))
    places = where(found) if all(one.line for one in found) else ""
    return f"{names} ({places})" if places else names
