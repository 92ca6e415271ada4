"""A function in a thread with a large stack gives what it gives, and raises what it raises."""

from __future__ import annotations

import sys
import threading

import pytest

from torchlift.rewriter.deep_stack import deep_stack


@deep_stack
def depth(levels: int) -> int:
    return 1 + depth.__wrapped__(levels - 1) if levels else 0  # type: ignore[attr-defined]


@deep_stack
def nested() -> tuple[str, str]:
    here = threading.current_thread().name
    return here, deep_stack(lambda: threading.current_thread().name)()


def test_calls_may_be_deeper_than_pythons_limit() -> None:
    limit = sys.getrecursionlimit()
    assert depth(20 * limit) == 20 * limit
    assert sys.getrecursionlimit() == limit and threading.stack_size() == 0


def test_one_thread_serves_calls_in_calls() -> None:
    outer, inner = nested()
    assert outer == inner != threading.current_thread().name


def test_an_error_comes_back() -> None:
    @deep_stack
    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()


def test_what_is_too_deep_for_any_stack_is_an_error() -> None:
    def endless(n: int) -> int:
        return endless(n + 1)

    with pytest.raises(RecursionError):
        deep_stack(endless)(0)
