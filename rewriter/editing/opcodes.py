"""
What changed between two texts, line by line.

``difflib`` ignores every line that occurs more than once in a hundred, such as a blank one or a ``return``, as a line
to meet at, and shows equal lines as removed and added. Without that a long file takes seconds. So the lines that both
texts have once come first: what lies between two of them is short.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby, pairwise

CONTEXT = 3
"""The number of unchanged lines shown around a change."""
Opcode = tuple[str, int, int, int, int]
"""As ``difflib`` gives them: equal, replace, delete or insert, and the spans of both texts."""


def opcodes(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Opcode]:
    """Return how one text becomes the other; a change is beside another only if something equal is between them."""
    meetings = [(-1, -1), *_meetings(before, after), (len(before), len(after))]
    pairs: list[tuple[int, int]] = []
    for (i1, j1), (i2, j2) in pairwise(meetings):
        pairs += _alike(before, after, range(i1 + 1, i2), range(j1 + 1, j2))
        pairs.append((i2, j2))
    return list(_spans(pairs))


def origins(before: Sequence[str], after: Sequence[str]) -> dict[int, int]:
    """
    For the lines of a text, those of an earlier one that they are, wherever they have gone and however they are
    indented; both count from 0.

    A line that is nothing but space and brackets goes with its neighbours.
    """
    found: dict[int, int] = {}
    left, right = list(range(len(before))), list(range(len(after)))
    while left and right:
        pairs: list[tuple[int, int]] = []
        for kind, i1, i2, j1, _ in opcodes([before[i].strip() for i in left], [after[j].strip() for j in right]):
            if kind == "equal" and any(map(str.isalnum, "".join(before[left[i]] for i in range(i1, i2)))):
                pairs += [(left[i], right[j1 + i - i1]) for i in range(i1, i2)]
        if not pairs:
            break
        found.update({j: i for i, j in pairs})
        gone, come = ({pair[side] for pair in pairs} for side in (0, 1))
        left, right = [i for i in left if i not in gone], [j for j in right if j not in come]
    return found


def grouped(codes: Sequence[Opcode], context: int) -> Iterator[list[Opcode]]:
    """Yield the opcodes that one hunk shows, with so many equal lines around each change."""
    hunk: list[Opcode] = []
    for number, (kind, i1, i2, j1, j2) in enumerate(codes):
        if kind != "equal":
            hunk.append((kind, i1, i2, j1, j2))
            continue
        ends, starts = min(i2 - i1, context), min(i2 - i1, context)
        if hunk and (number == len(codes) - 1 or i2 - i1 > 2 * context):
            yield [*hunk, (kind, i1, i1 + ends, j1, j1 + ends)]
            hunk = []
        elif hunk:
            starts = i2 - i1
        if number < len(codes) - 1:
            hunk.append((kind, i2 - starts, i2, j2 - starts, j2))
    if hunk:
        yield hunk


def _meetings(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The lines that both texts have once, as many as are in the same order in both."""
    once, again = (Counter(text) for text in (before, after))
    places = {line: j for j, line in enumerate(after) if again[line] == 1}
    shared = [(i, places[line]) for i, line in enumerate(before) if once[line] == 1 and line in places]
    ends: list[int] = []
    """The smallest last place of a row of so many."""
    rows: list[int] = []
    back: list[int] = []
    for number, (_, j) in enumerate(shared):
        length = bisect_left(ends, j)
        ends[length:] = [j] if length == len(ends) else [j, *ends[length + 1 :]]
        rows[length : length + 1] = [number]
        back.append(rows[length - 1] if length else -1)
    found: list[tuple[int, int]] = []
    number = rows[-1] if rows else -1
    while number >= 0:
        found.append(shared[number])
        number = back[number]
    return found[::-1]


def _alike(before: Sequence[Hashable], after: Sequence[Hashable], old: range, new: range) -> Iterator[tuple[int, int]]:
    """The pairs of equal lines in two spans."""
    first, last = 0, 0
    shorter = min(len(old), len(new))
    while first < shorter and before[old[first]] == after[new[first]]:
        first += 1
    while last < shorter - first and before[old[-1 - last]] == after[new[-1 - last]]:
        last += 1
    yield from zip(old[:first], new[:first], strict=True)
    one, other = old[first : len(old) - last], new[first : len(new) - last]
    if one and other:
        a, b = ([text[n] for n in span] for text, span in ((before, one), (after, other)))
        for block in difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
            yield from ((one[block.a + n], other[block.b + n]) for n in range(block.size))
    yield from zip(old[len(old) - last :], new[len(new) - last :], strict=True)


def _spans(pairs: Sequence[tuple[int, int]]) -> Iterator[Opcode]:
    """The opcodes for pairs of equal lines in order; the last pair is the ends of both texts."""
    i = j = 0
    ends = pairs[-1]
    runs = groupby(enumerate(pairs), lambda numbered: (numbered[1][0] - numbered[0], numbered[1][1] - numbered[0]))
    for _, run in runs:
        equal = [pair for _, pair in run]
        start, stop = equal[0], (equal[-1][0] + 1, equal[-1][1] + 1)
        if (i, j) != start:
            kind = "insert" if i == start[0] else "delete" if j == start[1] else "replace"
            yield kind, i, start[0], j, start[1]
        i, j = stop[0], stop[1]
        if equal[-1] == ends:
            stop = ends
        if start != stop:
            yield "equal", start[0], stop[0], start[1], stop[1]
