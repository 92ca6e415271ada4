"""The first batches of loaders that were not prepared, as long as a training loop may begin."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils.data import DataLoader

from .. import torch_internals as internals
from ..process.call_log import OURS
from . import checksums, script

_Iterators: Any = internals.iterators_of_loaders()
"""Without it, no loader is looked at."""
_BATCHES = 200
"""After so many without a step nobody trains: these loops are no training loops."""


class _Seen:
    """The batches of one loader since the last step, or those before it."""

    def __init__(self, loader: str, at: str) -> None:
        self.loader = loader
        self.at = at
        self.steps: list[tuple[int, bool]] = []
        """What each step was made from."""
        self.latest: tuple[int, bool] | None = None


class Rows:
    """Looks at what raw loaders hand out; prepared ones give every process its own rows."""

    def __init__(self) -> None:
        self._original: Any = None
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._left = 0

    def watch(self) -> None:
        """A training loop may begin soon."""
        self._left = _BATCHES
        if self._original is None and _Iterators is not None:
            original = self._original = _Iterators.__next__

            def following(iterator: Any) -> Any:
                batch = original(iterator)
                caller = sys._getframe(1).f_code.co_filename
                # a prepared loader reads what it shares; a loop without gradients is none that trains
                if not caller.startswith(OURS) and torch.is_grad_enabled():
                    self._note(iterator, batch)
                return batch

            _Iterators.__next__ = following

    def stop(self) -> None:
        """Nobody is asked any more; torch has its own method back."""
        if self._original is not None:
            _Iterators.__next__, self._original = self._original, None
        self._seen.clear()

    def _note(self, iterator: Any, batch: Any) -> None:
        if self._left <= 0:
            self.stop()
            return
        self._left -= 1
        line = script.line()
        key = line, id(internals.data_of(iterator))
        if key not in self._seen:
            self._seen[key] = _Seen(_called(iterator), f" at {line}" if line else "")
        self._seen[key].latest = checksums.rows(batch)

    def stepped(self) -> list[_Seen]:
        """Loaders that this step was made from; a weight of a prepared model was trained."""
        found = [one for one in self._seen.values() if one.latest is not None]
        for one in found:
            assert one.latest is not None
            one.steps.append(one.latest)
            one.latest = None
        return found


def _called(iterator: Any) -> str:
    data = internals.data_of(iterator)

    def fits(value: Any) -> bool:
        return isinstance(value, DataLoader) and value.dataset is data

    name, _ = script.variable_of(fits)
    kind = f"of {type(data).__name__}"
    return (
        f"the loader `{name}` ({kind}), which was not prepared," if name else f"a loader {kind} that was not prepared"
    )
