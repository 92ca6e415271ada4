"""Steps, losses, weights, gradients, rates: figure by figure, step by step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import zip_longest

from ..traces import Event, RankTrace, RunTrace
from ..verdict import Promise
from .tolerances import About, apart, shown

_FACTORS = {1 / n: f"1/{n} of" for n in range(2, 65)} | {float(n): f"{n} times" for n in range(2, 65)}

BEFORE = "before the first step"
ALIKE = "though their gradients are equal"
UNLIKE = "its gradients are not averaged"
"""What is known of weights that differ."""
_OF_NORMS = 10
"""On several processes gradient norms may be so many times farther apart than weights: they are not averaged."""


def steps(about: About) -> Promise:
    """As many optimizer steps, of each optimizer, on every process."""
    if about.original.cut or about.migrated.cut:
        return about.untestable("steps", "a run was ended before the script finished")
    for rank in about.migrated.ranks:
        made, wanted = _counts(rank), _counts(about.partner(rank))
        if made != wanted:
            text = f"process {rank.rank} makes {_listed(made)} steps, the original {_listed(wanted)}"
            if not about.exact and not about.alone:
                return about.untestable("steps", f"{text} (as is, the batch is per process)")
            number = min(map(sum, (made.values(), wanted.values()))) + 1
            return about.broken("steps", text, step=number, figure="steps", at=_backward(rank, number))
    wanted = _counts(about.original.main)
    if not wanted:
        return about.untestable("steps", "the original makes no optimizer step")
    return about.held("steps", f"{_listed(wanted)} steps")


def _counts(rank: RankTrace) -> dict[int, int]:
    counts: dict[int, int] = {}
    for event in rank.of("step"):
        counts[event["o"]] = counts.get(event["o"], 0) + 1
    return counts


def _backward(rank: RankTrace, number: int) -> str:
    """The line of the last backward pass before an optimizer step; before the last one there is, where it has fewer."""
    at = ""
    for event in rank.events:
        if event["e"] == "loss":
            at = event["at"]
        elif event["e"] == "step":
            number -= 1
            if not number:
                break
    return at


def _listed(counts: dict[int, int]) -> str:
    return " + ".join(str(counts[key]) for key in sorted(counts)) or "no"


def losses(about: About) -> Promise:
    """What is backpropagated: the mean over the processes is the original's loss."""
    wanted = _means(about.original)
    if not wanted:
        return about.untestable("losses", "the original backpropagates nothing")
    found = _means(about.migrated)
    floor = about.tolerance and max(abs(v) for v, _ in wanted if math.isfinite(v)) * 1e-3
    worst, wrong = _worst(about, wanted, found, floor)
    if wrong is not None:
        sums = _of_steps(wanted), _of_steps(found)
        cut_up = not about.alone and len(sums[0]) < len(wanted) == len(found)
        distance, differs = _worst(about, *sums, floor) if cut_up else (worst, wrong)
        if differs is None:
            text = f"summed over each step, {agreement(about, distance)}; its backward passes split each shard"
            return about.held("losses", text)
        (a, step), (b, _) = wanted[wrong], found[wrong]
        ratios = [y / x for (x, _), (y, _) in zip(wanted[wrong:], found[wrong:], strict=False) if x]
        text = f"loss {shown(b, a)}, the original's is {shown(a, b)}{_factor(ratios)}"
        at = about.migrated.main.of("loss")[wrong]["at"]
        return about.broken("losses", text, step=step, figure=f"loss {wrong + 1}", at=at)
    if len(found) != len(wanted) and about.original.sound and about.migrated.sound:
        text = f"{len(found)} backward passes, the original makes {len(wanted)}"
        return about.broken("losses", text, figure="backward passes")
    return about.held("losses", agreement(about, worst))


def _worst(
    about: About, wanted: list[tuple[float, int]], found: list[tuple[float, int]], floor: float
) -> tuple[float, int | None]:
    """How far losses are apart at most, and the index of the first that is too far off, where one is."""
    worst = 0.0
    for index, ((a, _), (b, _)) in enumerate(zip(wanted, found, strict=False)):
        worst = max(worst, apart(a, b, floor))
        if apart(a, b, floor) > about.tolerance:
            return worst, index
    return worst, None


def _of_steps(found: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """
    The sum of the losses of each optimizer step.

    A script that cuts its batch into pieces, with a backward pass for each, has other rows in a piece on N processes,
    and the same ones in the sum.
    """
    sums: dict[int, list[float]] = {}
    for value, step in found:
        sums.setdefault(step, []).append(value)
    return [(math.fsum(values), step) for step, values in sums.items()]


def _means(trace: RunTrace) -> list[tuple[float, int]]:
    """Each loss, the mean over the processes, with the number of the step that it belongs to."""
    per_rank = [_losses(rank) for rank in trace.ranks]
    return [(mean([v for v, _ in column]), column[0][1]) for column in zip(*per_rank, strict=False)]


def _losses(rank: RankTrace) -> list[tuple[float, int]]:
    """Each loss, with the number of the step that it belongs to."""
    found, step = [], 1
    for event in rank.events:
        if event["e"] == "loss":
            found.append((float(event["v"]), step))
        elif event["e"] == "step":
            step += 1
    return found


def mean(values: list[float]) -> float:
    """The mean; of one value, that value bit for bit."""
    return values[0] if len(values) == 1 else math.fsum(values) / len(values)


def _factor(ratios: list[float]) -> str:
    for factor, words in _FACTORS.items():
        if ratios and abs(ratios[0] / factor - 1) < 1e-3 and all(abs(r / factor - 1) < 0.3 for r in ratios[1:3]):
            return f" ({words} it: divided or multiplied once too often)"
    return ""


def agreement(about: About, worst: float, times: int = 1) -> str:
    """How closely figures agree, in words, and how far they may be apart: so many ``times`` the tolerance."""
    return "bit for bit" if about.alone else f"to {worst:.1e} (allowed: {about.tolerance * times:.0e})"


def pairs(about: About) -> Iterable[tuple[int, Event, Event]]:
    """The steps of the original and of rank 0, in order: (number from 1, original's, migrated)."""
    both = zip(about.original.main.of("step"), about.migrated.main.of("step"), strict=False)
    for number, (a, b) in enumerate(both, 1):
        yield number, a, b


def weights(about: About) -> Promise:
    """The parameters of all optimizers after every step."""
    worst = 0.0
    names: dict[int, list[str]] = {}
    for number, a, b in pairs(about):
        names.setdefault(a["o"], a.get("names") or [])
        if a.get("first") and b.get("first") and (found := _begun(about, a, b)):
            at = _backward(about.migrated.main, number)
            return about.broken("weights", found[1], step=number, figure=found[0], at=at)
        if about.alone and a["h"] == b["h"]:
            continue
        distance = _distance(a, b)
        worst = max(worst, distance)
        if distance > about.tolerance or (about.alone and a["h"] != b["h"]):
            name = _first_name(a, b, names[a["o"]], about.tolerance)
            text = f"{name} differs; all weights are apart by {distance:.1e} of their norm"
            at = _backward(about.migrated.main, number)
            return about.broken("weights", text, step=number, figure=name, at=at)
    if not about.original.main.of("step"):
        return about.untestable("weights", "the original makes no optimizer step")
    if not about.migrated.main.of("step"):
        return about.broken("weights", "the migrated script makes no optimizer step", step=1, figure="steps")
    return about.held("weights", agreement(about, worst))


def _begun(about: About, a: Event, b: Event) -> tuple[str, str] | None:
    """The first weights of an optimizer, where they are others than the original's: the weight, and what is said."""
    one, other = a["first"], b["first"]
    distance = 0.0 if one["h"] == other["h"] else _distance(one, other)
    if distance <= about.tolerance and not (about.alone and one["h"] != other["h"]):
        return None
    name = _first_name(one, other, a.get("names") or [], about.tolerance)
    return name, f"{name} differs {BEFORE}; all weights are apart by {distance:.1e} of their norm"


def _distance(a: Event, b: Event) -> float:
    """The norm of the difference of all parameters, relative to their norm."""
    if len(a["ps"]) != len(b["ps"]) or not all(map(math.isfinite, (a["w"], b["w"]))):
        return 0.0 if not math.isfinite(a["w"]) and not math.isfinite(b["w"]) else math.inf
    squares = sum(_square(x, y) for x, y in zip(a["ps"], b["ps"], strict=True))
    return float(math.sqrt(squares) / max(a["w"], b["w"], 1e-30))


def _square(x: list[float], y: list[float]) -> float:
    return math.fsum((i - j) ** 2 for i, j in zip(x, y, strict=True))


def _first_name(a: Event, b: Event, names: list[str], tolerance: float) -> str:
    for index, (x, y) in enumerate(zip_longest(a["ps"], b["ps"])):
        name = names[index] if index < len(names) else f"parameter {index}"
        if x is None or y is None:
            return name
        size = max(a["pw"][index] if index < len(a["pw"]) else 0.0, 1e-30)
        if math.sqrt(_square(x, y)) / size > tolerance:
            return name
    return "a weight"


def gradients(about: About) -> Promise:
    """Gradient norms just before every step, after everything that reduces, unscales or clips them."""
    if not about.original.main.of("step"):
        return about.untestable("gradients", "the original makes no optimizer step")
    worst = 0.0
    finite = [event["gn"] for event in about.original.main.of("step") if math.isfinite(event["gn"])]
    floor = 0.0 if about.alone else max(finite, default=0.0) * 1e-2
    ratios: list[float] = []
    for number, a, b in pairs(about):
        difference = apart(a["gn"], b["gn"], floor)
        worst = max(worst, difference)
        if difference > about.tolerance * (1 if about.alone else _OF_NORMS):
            ratios = [y["gn"] / x["gn"] for n, x, y in pairs(about) if n >= number and x["gn"]]
            text = f"norm {shown(b['gn'], a['gn'])}, the original's is {shown(a['gn'], b['gn'])}{_factor(ratios)}"
            at = _backward(about.migrated.main, number)
            return about.broken("gradients", text, step=number, figure="gradient norm", at=at)
    return about.held("gradients", agreement(about, worst, _OF_NORMS))


def rates(about: About) -> Promise:
    """Learning rates of all groups at every step, and at the end."""
    if not about.original.main.of("step"):
        return about.untestable("rates", "the original makes no optimizer step")
    found = [one for rank in about.migrated.ranks if (one := _other_rates(about, rank)) is not None]
    if not found:
        return about.held("rates")
    number, text, at = min(found, key=lambda one: one[0])
    return about.broken("rates", text, step=number, figure="learning rate", at=at)


def _other_rates(about: About, rank: RankTrace) -> tuple[int, str, str] | None:
    """Where a process first trains at other rates than the original: the step, what is said, and the line."""
    partner, steps = about.partner(rank), rank.of("step")
    both = zip(partner.of("step"), steps, strict=False)
    rows = [(number, a["lr"], b["lr"]) for number, (a, b) in enumerate(both, 1)]
    if partner.end and rank.end and about.original.sound and about.migrated.sound:
        rows.append((len(rows), flat(partner.end["lr"]), flat(rank.end["lr"])))
    for number, a, b in rows:
        different = len(a) != len(b) or any(
            apart(x, y) > (0.0 if about.alone else 1e-6) for x, y in zip(a, b, strict=True)
        )
        if different:
            whose = f" on process {rank.rank}" if rank.rank else ""
            text = f"learning rate {', '.join(map(shown, b))}{whose}, the original's is {', '.join(map(shown, a))}"
            return number, text, steps[number - 1].get("at", "") if number else ""
    return None


def flat(groups: list[list[float]]) -> list[float]:
    """The numbers of all groups, one after the other."""
    return [rate for group in groups for rate in group]


def ranks(about: About) -> Promise:
    """All processes hold the same weights after every step."""
    found = _unlike(about.migrated)
    if found is not None and about.by_hand and _unlike(about.original) is not None:
        return about.untestable("ranks", "the original's processes do not hold the same weights either")
    if found is not None:
        number, rank, name, why = found
        text = f"{name} differs between process {rank} and process 0{why}"
        at = _backward(about.migrated.main, number)
        return about.broken("ranks", text, step=number, figure=name, at=at)
    if not about.migrated.main.of("step"):
        return about.untestable("ranks", "no optimizer step was made")
    return about.held("ranks", "bit for bit")


def _unlike(trace: RunTrace) -> tuple[int, int, str, str] | None:
    """The first step after which a process has other weights than the first one: step, rank, parameter, and what is
    known of the reason."""
    names: dict[int, list[str]] = {}
    for number, events in enumerate(zip(*(rank.of("step") for rank in trace.ranks), strict=False), 1):
        first = events[0]
        own = names.setdefault(first["o"], first.get("names") or [])
        for rank, other in enumerate(events):
            begun = first.get("first"), other.get("first")
            if begun[0] and begun[1] and begun[0]["h"] != begun[1]["h"]:
                return number, rank, _first_name(*begun, own, 0.0), f" {BEFORE}"
            if other["h"] != first["h"]:
                averaged = apart(other["gn"], first["gn"]) == 0.0
                why = f", {ALIKE}" if averaged else f": {UNLIKE}"
                return number, rank, _first_name(first, other, own, 0.0), why
    return None
