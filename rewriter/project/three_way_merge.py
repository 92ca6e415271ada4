"""Apply the changes of one version of a text to another version of it."""

from __future__ import annotations

import difflib


def carried(base: str, mine: str, ours: str) -> str | None:
    """
    Apply the changes from ``base`` to ``mine`` to ``ours``, which comes from ``base``, too.

    Returns None if ``ours`` differs from ``base`` in the same lines, or directly beside them.
    """
    before, after, target = (text.splitlines(keepends=True) for text in (base, mine, ours))
    matcher = difflib.SequenceMatcher(None, before, target, autojunk=False)
    same = [(block.a, block.a + block.size, block.b - block.a) for block in matcher.get_matching_blocks()]
    result = list(target)
    changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for tag, i1, i2, j1, j2 in reversed(changes):
        if tag == "equal":
            continue
        shift = next((shift for first, end, shift in same if first <= i1 and i2 <= end), None)
        if shift is None:
            return None
        result[i1 + shift : i2 + shift] = after[j1:j2]
    return "".join(result)
