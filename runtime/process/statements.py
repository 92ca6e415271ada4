"""
What processes tell one another beside their collectives: statements, which nobody waits for.

A statement goes to the store by the watching thread. Rank 0 compares those of one topic, of as many processes as have
made them so far. So a question to all processes can neither hang, where some are never asked, nor shift a collective.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from .. import errors

_SAID = "torchlift/said"
_COUNT = f"{_SAID}/count"
_KEPT = 16
"""How many statements of a process others can read: it may be so many ahead of them."""
_JUDGED = 1024


class SharedVerdict(NamedTuple):
    """What is wrong; every process raises it."""

    error: str
    """The name of its class in `errors`; empty for a warning, which rank 0 gives."""
    text: str

    def exception(self) -> errors.TorchliftError:
        """As something to raise."""
        kind: type[errors.TorchliftError] = getattr(errors, self.error)
        return kind(self.text)


Judge: TypeAlias = "Callable[[dict[int, Any], int], SharedVerdict | None]"
"""Of what ranks have said about one topic so far, and how many ranks there are."""
JUDGES: dict[str, Judge] = {}
"""By the kind of a statement. They run in the watching thread of rank 0."""


class Board:
    """The statements of this process; on rank 0, also the comparison with those of the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.fresh = threading.Event()
        """There is something to post."""
        self.warnings: deque[str] = deque()
        """For the main thread to give."""
        self._rank = rank
        self._size = size
        self._own: deque[tuple[str, str, Any]] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._seen = 0
        self._judged: deque[tuple[str, str]] = deque(maxlen=_JUDGED)

    def say(self, kind: str, topic: str, value: Any) -> None:
        """
        State something; it is posted soon.

        Args:
            kind: who judges it.
            topic: statements of the same topic are compared.
            value: plain, as JSON has it.
        """
        with self._lock:
            self._own.append((kind, topic, value))
        self.fresh.set()

    def warn(self) -> None:
        """Give the warnings that have come up. For the main thread."""
        while self.warnings:
            warnings.warn(self.warnings.popleft(), stacklevel=4)

    def post(self, store: Any) -> None:
        """Let the others read what has been said since."""
        if self.fresh.is_set():
            self.fresh.clear()
            with self._lock:
                said = json.dumps(list(self._own))
            store.set(f"{_SAID}/{self._rank}", said)
            store.add(_COUNT, 1)

    def compare(self, store: Any) -> SharedVerdict | None:
        """What is wrong with what has been said, if anybody has said something since. For rank 0."""
        count = store.add(_COUNT, 0)
        if count == self._seen:
            return None
        self._seen = count
        said: dict[tuple[str, str], dict[int, Any]] = {}
        for rank in range(self._size):
            key = f"{_SAID}/{rank}"
            for kind, topic, value in json.loads(store.get(key)) if store.check([key]) else ():
                said.setdefault((kind, topic), {})[rank] = value
        return self._judge(said)

    def _judge(self, said: dict[tuple[str, str], dict[int, Any]]) -> SharedVerdict | None:
        for about, values in said.items():
            if about in self._judged or len(values) < 2 or about[0] not in JUDGES:
                continue
            verdict = JUDGES[about[0]](values, self._size)
            if verdict is not None or len(values) == self._size:
                self._judged.append(about)
            if verdict is not None and verdict.error:
                return verdict
            if verdict is not None:
                self.warnings.append(verdict.text)
        return None
