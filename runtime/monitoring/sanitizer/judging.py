"""What ranks did differently, or several times: the records of all ranks, compared."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from .records import Event, RankRecord

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

Said: TypeAlias = "dict[int, Event]"
"""What ranks have recorded of the same occasion."""


class Report(NamedTuple):
    """One thing that is wrong, at one line."""

    kind: str
    at: str
    """File and line."""
    text: str
    times: int = 1
    """How often it was seen."""
    of: str = ""
    """The expression, where a line may have several."""


class Judgement(NamedTuple):
    """What was found."""

    reports: list[Report]
    natural: list[str]
    """Lines whose values differ because each rank trains on rows of its own."""


def judge(records: list[RankRecord]) -> Judgement:
    """Compare what ranks have recorded."""
    if len(records) < 2:
        return Judgement([], [])
    training = {event["loops"][0] for record in records for event in record.of("step") if event["loops"]}
    logged, natural = _values(records, "logged", training)
    saved, more = _values(records, "saved", training)
    reports = [
        *_steps(records),
        *_collectives(records),
        *_compared(records),
        *saved,
        *logged,
        *_files(records),
        *_lines(records),
    ]
    return Judgement(_deduplicated(reports), sorted({*natural, *more}, key=_in_order))


def _deduplicated(reports: Iterable[Report]) -> list[Report]:
    """One for each kind and line; the first text stands for all, and other expressions of the line are named."""
    each: dict[tuple[str, str], dict[str, Report]] = defaultdict(dict)
    for one in reports:
        same = each[one.kind, one.at]
        known = same.get(one.of)
        same[one.of] = one if known is None else known._replace(times=known.times + one.times)
    found = []
    for same in each.values():
        first, *others = same.values()
        also = f"; also {', '.join(f'`{one.of}`' for one in others)}" if first.of and others else ""
        times = max(one.times for one in same.values()) if first.of else sum(one.times for one in same.values())
        found.append(first._replace(text=first.text + also, times=times))
    return found


def _in_order(at: str) -> tuple[str, int]:
    file, _, line = at.rpartition(":")
    return file, int(line)


def _together(records: list[RankRecord], kind: str, key: Callable[[Event], Any]) -> Iterator[Said]:
    """Events of the same occasion, of those ranks that had it; in the order in which the first of them did."""
    found: dict[Any, Said] = {}
    for record in records:
        for event in record.of(kind):
            found.setdefault(key(event), {})[record.rank] = event
    return (said for said in found.values() if len(said) > 1)


def _turn(event: Event) -> tuple[Any, ...]:
    """Which value of which expression."""
    return (event["at"], event.get("c"), event.get("x"), *event["n"])


# ---------------------------------------------------------------- weights, collectives


def _steps(records: list[RankRecord]) -> Iterator[Report]:
    """The first step after which the weights of an optimizer differ; later ones follow from it."""
    names = {event["of"]: event for record in records for event in record.of("weights")}
    number: Counter[tuple[str, int]] = Counter()
    parted: dict[tuple[str, int], Report] = {}
    for said in _together(records, "step", lambda event: (event["at"], event["of"], *event["n"])):
        first, *others = said.values()
        about = first["at"], first["of"]
        number[about] += 1
        other = next((one for one in others if one["sums"] != first["sums"]), None)
        if about in parted:
            parted[about] = parted[about]._replace(times=parted[about].times + (other is not None))
        elif other is not None:
            pairs = list(zip(first["sums"], other["sums"], strict=False))
            apart = [index for index, (a, b) in enumerate(pairs) if a != b]
            known = names[first["of"]]
            listed = known["names"] if len(known["names"]) == len(pairs) else []
            which = f"{len(apart)} of {len(listed)} weights" if listed else "weights"
            name = f"; the first is `{listed[apart[0]]}`" if listed and apart else ""
            text = f"{which} differ after step {number[about]} of {known['kind']} {_ranks(said, first, other)}{name}"
            parted[about] = Report("weights differ", first["at"], text)
    yield from parted.values()


def _ranks(said: Said, *two: Event) -> str:
    ranks = [next(rank for rank, event in said.items() if event is one) for one in two]
    return f"between rank {ranks[0]} and rank {ranks[1]}"


def _collectives(records: list[RankRecord]) -> Iterator[Report]:
    """The first collective of all ranks at which one makes another call."""
    first, *others = records
    mine = [event for event in first.of("collective") if event["all"]]
    for record in others:
        theirs = [event for event in record.of("collective") if event["all"]]
        for index, (a, b) in enumerate(zip(mine, theirs, strict=False)):
            if _name(a) != _name(b):
                places = [
                    f"rank {one.rank} makes {event['op']}{_place(event)}" for one, event in ((first, a), (record, b))
                ]
                yield Report("collective calls differ", a["at"] or b["at"], f"call {index + 1}: {', '.join(places)}")
                return
        if len(mine) != len(theirs) and first.ended and record.ended:
            longer, rank = (mine, first.rank) if len(mine) > len(theirs) else (theirs, record.rank)
            event = longer[min(len(mine), len(theirs))]
            yield Report("collective calls differ", event["at"], f"only rank {rank} makes this call: {_name(event)}")
            return


def _name(event: Event) -> str:
    return str(event["op"]).partition(" of ")[0]


def _place(event: Event) -> str:
    return f" at {short(event['at'])}" if event["at"] else ""


def short(at: str) -> str:
    """The name of a file, and the line."""
    return at.rpartition("/")[2]


# ---------------------------------------------------------------- values


def _compared(records: list[RankRecord]) -> Iterator[Report]:
    """One report for each expression: the first time that ranks took different branches, or else its first time."""
    found: dict[tuple[str, str], Report] = {}
    seen: Counter[tuple[str, str]] = Counter()
    parted: Counter[tuple[str, str]] = Counter()
    for said in _together(records, "compared", _turn):
        first, *others = said.values()
        other = next((one for one in others if one["way"] != first["way"]), None)
        apart = other is not None
        if other is None:
            other = next((one for one in others if not _same(one["v"], first["v"])), None)
        if other is None or _names_ranks(said):
            continue
        whole = all(isinstance(value, (bool, int)) for one in (first, other) for value in one["v"])
        if apart or not (whole or first["time"]):
            about = first["at"], first["x"]
            seen[about] += 1
            parted[about] += apart
            if about not in found or (apart and parted[about] == 1):
                found[about] = Report("compared value differs", first["at"], ", ".join(_two(said, first, other)))
    for about, one in found.items():
        ways = "both took the same branch each time"
        if parted[about]:
            ways = "they took different branches" + (
                f", {parted[about]} of {seen[about]} times" if seen[about] > 1 else ""
            )
        yield one._replace(text=f"`{about[1]}`: {one.text}; {ways}", times=seen[about], of=about[1])


def _two(said: Said, first: Event, other: Event) -> list[str]:
    """What two ranks have compared: the sides that differ."""
    pairs = list(zip(first["v"], other["v"], strict=True))
    shown = [side for side, (a, b) in enumerate(pairs) if not _same(a, b)] or range(len(pairs))
    ranks = {id(event): rank for rank, event in said.items()}
    return [
        f"{' and '.join(_number(event['v'][side]) for side in shown)} on rank {ranks[id(event)]}"
        for event in (first, other)
    ]


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _same(one: Any, other: Any) -> bool:
    """Equal, and one NaN is like another."""
    return str(one) == str(other)


def _names_ranks(said: Said) -> bool:
    """One of the values is the number of the rank itself."""
    columns = zip(*(event["v"] for event in said.values()), strict=False)
    return any(list(column) == list(said) for column in columns)


def _values(records: list[RankRecord], kind: str, training: set[str]) -> tuple[list[Report], list[str]]:
    """Values that are logged or saved on several ranks."""
    elsewhere = {
        (_turn_at(event), rank)
        for said in _together(records, "saved to", lambda event: (event["at"], *event["n"]))
        if len({event["path"] for event in said.values()}) > 1
        for rank, event in said.items()
    }
    reports: list[Report] = []
    natural: list[str] = []
    for said in _together(records, kind, _turn):
        found = _entry(said)
        if found is None or any((_turn_at(event), rank) in elsewhere for rank, event in said.items()):
            continue
        key, one, other = found
        event = said[one]
        if any(key in event["own"] for event in said.values()) or set(event["loops"]) & training:
            natural.append(event["at"])
            continue
        name = f"`{event['x']}`" + (f", entry `{key}`" if key else "")
        pair = [said[rank]["v"].get(key, "none") for rank in (one, other)]
        values = [f"{_number(value)} on rank {rank}" for value, rank in zip(pair, (one, other), strict=True)]
        kinds = {str(value).partition(" ")[0] for value in pair if isinstance(value, str)}
        if len(kinds) == 1 and all(isinstance(value, str) and " " in value for value in pair):  # checksums
            values = [f"another {kinds.pop()} on rank {one} than on rank {other}"]
        reports.append(Report(f"{kind} value differs", event["at"], f"{name}: {', '.join(values)}", of=event["x"]))
    return reports, natural


def _turn_at(event: Event) -> tuple[Any, ...]:
    return (event["at"], *event["n"])


def _entry(said: Said) -> tuple[str, int, int] | None:
    """The first entry that differs, and two ranks."""
    first, *others = said
    for key, value in said[first]["v"].items():
        values = [said[rank]["v"].get(key, value) for rank in said]
        if values == list(said):  # the ranks themselves
            continue
        for rank in others:
            if not _same(said[rank]["v"].get(key, value), value):
                return key, first, rank
    return None


# ---------------------------------------------------------------- files, lines


def _files(records: list[RankRecord]) -> Iterator[Report]:
    opened: dict[str, dict[int, Event]] = defaultdict(dict)
    for record in records:
        for event in record.of("open"):
            opened[event["path"]].setdefault(record.rank, event)
    for path, said in opened.items():
        if len(said) > 1:
            first = said[min(said)]
            lines = {event["at"] for event in said.values()} - {first["at"]}
            more = f" (also at {', '.join(map(short, sorted(lines)))})" if lines else ""
            yield Report("file written by several ranks", first["at"], f"{path}, by {_list(said)}{more}")


def _list(ranks: Iterable[int]) -> str:
    *some, last = [str(rank) for rank in sorted(ranks)]
    return f"ranks {', '.join(some)} and {last}" if some else f"rank {last}"


def _lines(records: list[RankRecord]) -> Iterator[Report]:
    """Lines that several ranks print at the same place, unless one of them says there which rank it is."""
    printed: dict[tuple[str, str], dict[int, list[str]]] = {}
    for record in records:
        for event in record.of("line"):
            shape = event["at"], " ".join(_NUMBER.sub("#", event["x"]).split())
            printed.setdefault(shape, {}).setdefault(record.rank, []).append(event["x"])
    others = Counter(at for (at, _), said in printed.items() if len(said) > 1)
    shown_at: set[str] = set()
    telling = {at for (at, _), said in printed.items() if len(said) > 1 and _tell_ranks(said)}
    for (at, _), said in printed.items():
        if len(said) > 1 and at not in telling:
            text = said[min(said)][0].strip()
            shown = repr(text if len(text) <= 60 else text[:57] + "...")
            if at not in shown_at and others[at] > 1:
                shown += f" and {others[at] - 1} other text{'s' if others[at] > 2 else ''}"
            shown_at.add(at)
            yield Report(
                "line printed by several ranks", at, f"{shown}, by {_list(said)}", min(map(len, said.values()))
            )


def _tell_ranks(said: dict[int, list[str]]) -> bool:
    numbers = [[_NUMBER.findall(line) for line in lines] for lines in said.values()]
    return any(
        all(
            len(found) > place and found[place].lstrip("+-") == str(rank)
            for rank, lines in zip(said, numbers, strict=True)
            for found in lines
        )
        for place in range(min(len(found) for lines in numbers for found in lines))
    )
