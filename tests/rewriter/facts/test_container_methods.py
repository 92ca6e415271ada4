"""What the table of container methods says, beside what the containers of Python do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from torchlift.rewriter.facts import container_methods

_HELD: tuple[Any, ...] = ([3, 1, 2], deque([3, 1, 2]), {3, 1, 2}, {3: 30, 1: 10, 2: 20})
_GIVEN: tuple[tuple[Any, ...], ...] = ((), (1,), (7,), ([1],), ([7, 8],), ({7: 70},), (0, 7), (7, 70))


def _tried(method: str) -> Iterator[tuple[list[Any], list[Any]]]:
    """The elements before and after a method, for whatever it takes."""
    for held in _HELD:
        for given in _GIVEN:
            now = deepcopy(held)
            act: Callable[..., Any] | None = getattr(now, method, None)
            try:
                if act is not None:
                    act(*given)
            except (TypeError, ValueError, KeyError, IndexError):
                continue
            yield list(held), list(now)


_METHODS = sorted({name for held in _HELD for name in dir(held) if not name.startswith("_")})


@pytest.mark.parametrize("method", _METHODS)
def test_each_method_of_a_container_does_what_the_table_says(method: str) -> None:
    tried = list(_tried(method))
    grows, shrinks = (any(len(new) > len(old) for old, new in tried), any(len(new) < len(old) for old, new in tried))
    assert container_methods.adds(method) is grows
    assert container_methods.takes_out(method) is shrinks
    assert container_methods.changes(method) is any(old != new for old, new in tried)
