"""The first batches of loaders that were not prepared, as long as a training loop may begin."""

from __future__ import annotations

import sys
from typing import Any
from zlib import crc32

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from .. import torch_internals as internals
from ..process.call_log import OURS
from . import checksums, script

_Iterators: Any = internals.iterators_of_loaders()
"""Without it, no loader is looked at."""
_DEEPEST = 4
_LONGEST = 200
_BATCHES = 200
"""After so many without a step nobody trains: these loops are no training loops."""


class _Seen:
    """The batches of one loader since the last step, or those before it."""

    def __init__(self, loader: str, at: str, prepared: bool = False, whole: int = 0) -> None:
        self.loader = loader
        self.at = at
        self.prepared = prepared
        self.whole = whole
        """Identifies the data set where a pass goes through all of its rows in an order of this rank; else 0."""
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
            self._seen[key] = _Seen(_called(iterator), f" at {line}" if line else "", whole=_whole(iterator))
        self._seen[key].latest = checksums.rows(batch)

    def note_prepared(self, loader: Any, batch: Any) -> None:
        """A prepared loader yields a batch: its data set, or a sampler of the script, may ignore the rank."""
        if self._left <= 0 or self._original is None:
            return
        self._left -= 1
        line = script.line()
        key = line, id(loader)
        if key not in self._seen:
            name, _ = script.variable_of(lambda value: value is loader)
            kind = f"of {type(getattr(loader, 'dataset', None)).__name__}"
            named = f"the prepared loader `{name}` ({kind})" if name else f"a prepared loader {kind}"
            self._seen[key] = _Seen(named, f" at {line}" if line else "", prepared=True)
        self._seen[key].latest = checksums.rows(batch)

    def stepped(self) -> list[_Seen]:
        """Loaders that this step was made from; a weight of a prepared model was trained."""
        found = [one for one in self._seen.values() if one.latest is not None]
        for one in found:
            assert one.latest is not None
            one.steps.append(one.latest)
            one.latest = None
        return found


def _whole(iterator: Any) -> int:
    """
    A checksum of what is in the data set, if a pass reads all rows of it once, in random order; else 0.

    It is of the attributes that hold rows; no row is read. A data set that is a part of another one names its rows.
    """
    data, sampler = internals.data_of(iterator), internals.sampler_of(iterator)
    if type(sampler) is not RandomSampler or sampler.replacement or sampler.num_samples != len(data):
        return 0
    return _contents(data)


def _contents(data: Any, depth: int = 0) -> int:
    total, found = crc32(type(data).__name__.encode()), False
    for name, value in sorted(getattr(data, "__dict__", {}).items()):
        one = 0
        if isinstance(value, Dataset) and depth < _DEEPEST:
            one = _contents(value, depth + 1)
        elif isinstance(value, (list, tuple, str, int, range, torch.Tensor)) or type(value).__module__ == "numpy":
            one = checksums.rows(_ends(value))[0]
        if one:
            total, found = crc32(f"{name} {one}".encode(), total), True
    return total if found else 0


def _ends(value: Any) -> Any:
    """What tells a long list or an array from another one: its length, and its first and last elements."""
    if isinstance(value, (torch.Tensor, str, int)) or not getattr(value, "ndim", 1):
        return value
    few = [value[index] for index in (0, -1)] if len(value) else []
    plain = [one if isinstance(one, (torch.Tensor, str, int, float)) else repr(one)[:_LONGEST] for one in few]
    return [len(value), *plain]


def _called(iterator: Any) -> str:
    data = internals.data_of(iterator)

    def fits(value: Any) -> bool:
        return isinstance(value, DataLoader) and value.dataset is data

    name, _ = script.variable_of(fits)
    kind = f"of {type(data).__name__}"
    return (
        f"the loader `{name}` ({kind}), which was not prepared," if name else f"a loader {kind} that was not prepared"
    )
