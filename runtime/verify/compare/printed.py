"""What is printed: each line once, and the same numbers in it."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass
from itertools import zip_longest

from ..overview import NOT_COMPARED
from ..traces import RankTrace
from ..verdict import Promise
from .tolerances import About

_NUMBER = re.compile(
    r"(?<![A-Za-z_])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?%?|(?<![A-Za-z])(?:nan|inf)(?![A-Za-z])"
)
"""A number, with its percent sign: a whole one that has it is rounded, and no count."""
_DURATION = re.compile(
    r"(?<![\w.])\d+(?:\.\d+)?(?:\s?(?:ns|us|µs|ms|s|secs?|seconds?|minutes?|hours?|it/s|s/it)(?![\w/])|m(?=\s?\d+(?:\.\d+)?s)|h(?=\s?\d+m))"
)
"""How long something took, or how fast it was: no result of the script."""
_OUT, _ERR, _LOG = 1, 2, 3
_RECENT = 8
"""Losses that a line may still mean."""
_WORDS = {_OUT: "line", _LOG: "logged line"}


@dataclass(frozen=True)
class Line:
    """One printed line."""

    text: str
    training: bool
    """Printed while a batch of a training pass was in hand: its loss is that of one process's shard, by design."""

    losses: tuple[float, ...] = ()
    """The last losses that the process had backpropagated by then."""

    at: str = ""
    """The line of the script that prints it."""

    @property
    def shape(self) -> str:
        """The text without its numbers."""
        return " ".join(_NUMBER.sub("#", self._timeless).split())

    @property
    def numbers(self) -> list[str]:
        """Its numbers, as they are printed."""
        return _NUMBER.findall(self._timeless)

    @property
    def _timeless(self) -> str:
        return _DURATION.sub("#", self.text)


def lines_of(rank: RankTrace, stream: int = _OUT) -> list[Line]:
    """The lines of one stream."""
    training = rank.training_passes()
    found: list[Line] = []
    losses: deque[float] = deque(maxlen=_RECENT)
    for event in rank.events:
        if event["e"] == "loss":
            losses.append(float(event["v"]))
        elif event["e"] == "line" and event["s"] == stream:
            found.append(Line(event["x"], event["p"] in training, tuple(losses), event.get("at", "")))
    return found


def lines(about: About) -> Promise:
    """Process 0 prints and logs what the original does, and the others nothing, or what the original's do."""
    for rank in about.migrated.ranks[1:]:
        again = _repeated(about, rank)
        if again is not None:
            text = f"process {rank.rank} also prints it: {_quoted(again.text)}"
            return about.broken("lines", text, figure=again.text, at=again.at)
    count = 0
    for stream, words in _WORDS.items():
        wanted, found = _both(about, stream)
        count += len(wanted)
        for index, (a, b) in enumerate(zip(wanted, found, strict=False)):
            if a.shape != b.shape and (stream, index) not in about.unstable.lines:
                text = f"{words} {index + 1} is {_quoted(b.text)}, the original's {_quoted(a.text)}"
                return about.broken("lines", text, figure=a.text, at=b.at)
        varies = (stream, min(len(wanted), len(found))) in about.unstable.lines
        if len(wanted) != len(found) and not varies and not about.original.cut and not about.migrated.cut:
            return _number(about, wanted, found, words)
    return about.held("lines", _counted(count) if count else "nothing is printed", absent=not count)


def _both(about: About, stream: int) -> tuple[list[Line], list[Line]]:
    """The lines of both main processes. Cells of a notebook that stay are shown before those that are launched as one
    function: so its lines are brought into the original's order."""
    wanted, found = lines_of(about.original.main, stream), lines_of(about.migrated.main, stream)
    if not any(".ipynb:cell " in line.at for line in wanted):
        return wanted, found
    left: dict[str, deque[Line]] = {}
    for line in found:
        left.setdefault(line.shape, deque()).append(line)
    same = [left[line.shape].popleft() if left.get(line.shape) else None for line in wanted]
    used = set(map(id, same))
    others = iter([line for line in found if id(line) not in used])
    ordered = [line if line is not None else next(others, None) for line in same]
    return wanted, [*(line for line in ordered if line is not None), *others]


def _numbers(numbers: int) -> str:
    return f"{numbers} number{'' if numbers == 1 else 's'}"


def _counted(lines: int) -> str:
    return f"{lines} line{'' if lines == 1 else 's'}"


def _number(about: About, wanted: list[Line], found: list[Line], words: str) -> Promise:
    """Another number of lines."""
    if not about.exact and not about.alone:
        return about.untestable("lines", "as is, the batch is per process, and there are fewer steps")
    more = len(found) > len(wanted)
    extra = (found if more else wanted)[min(len(wanted), len(found))]
    text = (
        f"{len(found)} {words}s, the original prints {len(wanted)}; "
        f"the first without a partner is {_quoted(extra.text)}"
    )
    return about.broken("lines", text, figure=extra.text, at=extra.at, side="migrated" if more else "original")


def _repeated(about: About, rank: RankTrace) -> Line | None:
    """A line of another process that the original prints, or any line that it adds to stdout. Its own may stay."""
    partner = about.partner(rank) if about.by_hand else RankTrace(rank.rank, [], 0)
    own = {stream: _shapes(partner, stream) for stream in (_OUT, _ERR, _LOG)}
    for line in lines_of(rank):
        if not own[_OUT][line.shape]:
            return line
        own[_OUT][line.shape] -= 1
    for stream in (_ERR, _LOG):
        known = _shapes(about.original.main, stream)
        for line in lines_of(rank, stream):
            if line.shape in known and len(line.shape) > 3 and line.shape not in own[stream]:
                return line
    return None


def _shapes(rank: RankTrace, stream: int) -> Counter[str]:
    return Counter(line.shape for line in lines_of(rank, stream))


def numbers(about: About) -> Promise:
    """The numbers in the lines. Those of a line that is printed inside a training step may be one process's."""
    nature = about.by_nature()
    shares = count = 0
    for stream in _WORDS:
        wanted, found = _both(about, stream)
        count += len(wanted)
        for index, (a, b) in enumerate(zip(wanted, found, strict=False)):
            if (stream, index) in about.unstable.lines or a.shape != b.shape:
                continue
            different = _different(a, b, about, about.unstable.numbers.get((stream, index), frozenset()))
            shares += len([one for one in different if one is None])
            first = next(filter(None, different), None)
            if first is not None and nature:
                return about.untestable("numbers", nature)
            if first is not None:
                text = f"{first[1]} in {_quoted(b.text)}, the original prints {first[0]}"
                return about.broken("numbers", text, figure=a.text, at=b.at)
    notes = [_counted(count)]
    if shares:
        notes.append(f"{_numbers(shares)} {NOT_COMPARED}")
    if shaky := len(about.unstable.lines) + len(about.unstable.numbers):
        notes.append(f"two runs of the original differ in {_counted(shaky)}")
    return about.held("numbers", "; ".join(notes) if count else "nothing is printed", absent=not count)


def _different(a: Line, b: Line, about: About, shaky: frozenset[int]) -> list[tuple[str, str] | None]:
    """The numbers of a line that differ; None stands for one that is of a process's shard."""
    found: list[tuple[str, str] | None] = []
    for number, (x, y) in enumerate(zip(a.numbers, b.numbers, strict=False)):
        if number not in shaky and not agree(x, y, about.tolerance):
            share = a.training and b.training and _of_one_process(x, y, about.processes)
            share = not about.alone and (share or (_is_loss(x, a) and _is_loss(y, b)))
            found.append(None if share else (x, y))
    return found


def agree(x: str, y: str, tolerance: float) -> bool:
    """Whether two printed numbers are one, to rounding and to their last digits."""
    if x == y:
        return True
    if tolerance == 0.0:
        return False
    try:
        a, b = float(x.rstrip("%")), float(y.rstrip("%"))
    except ValueError:
        return False
    if _whole(x) and _whole(y):
        return abs(a - b) <= tolerance * max(abs(a), abs(b)) if tolerance > 1e-2 else False
    return abs(a - b) <= tolerance * max(abs(a), abs(b)) + max(_last_place(x), _last_place(y)) * 1.01


def _is_loss(number: str, line: Line) -> bool:
    """Whether it is the loss of the step before, printed after the loop or after an evaluation inside it."""
    if _whole(number):
        return False
    value, place = float(number.rstrip("%")), _last_place(number)
    return any(abs(value - loss) <= 0.51 * place + 1e-6 * abs(loss) for loss in line.losses)


def _of_one_process(x: str, y: str, processes: int) -> bool:
    """A loss of one process's rows; or a count of some of them, which is none above the original's."""
    if not (_whole(x) and _whole(y)):
        return True
    a, b = int(x), int(y)
    return 0 <= b <= a or abs(a - b * processes) <= processes * max(1, abs(a) // 50)


def _whole(number: str) -> bool:
    return number.lstrip("+-").isdigit()


def _last_place(number: str) -> float:
    """What one unit of the last printed digit is worth."""
    mantissa, _, exponent = number.lower().rstrip("%").partition("e")
    digits = len(mantissa.partition(".")[2])
    try:
        return float(10.0 ** (int(exponent or 0) - digits))
    except (ValueError, OverflowError):
        return 0.0


def _quoted(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 100 else text[:97] + "...")


def differing(
    first: RankTrace, second: RankTrace
) -> tuple[frozenset[tuple[int, int]], dict[tuple[int, int], frozenset[int]]]:
    """
    What differs between two runs of one script: the lines, by stream and number from 0, that have other words in them,
    and the numbers of lines that have the same.
    """
    lines, numbers = set(), {}
    for stream in _WORDS:
        for index, (a, b) in enumerate(zip_longest(lines_of(first, stream), lines_of(second, stream))):
            if a is None or b is None or a.shape != b.shape:
                lines.add((stream, index))
            elif a.numbers != b.numbers:
                pairs = enumerate(zip(a.numbers, b.numbers, strict=True))
                numbers[stream, index] = frozenset(number for number, (x, y) in pairs if x != y)
    return frozenset(lines), numbers
