"""What the calls in the rewritten script do: they record a value, and hand it on."""

from __future__ import annotations

import operator
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from zlib import crc32

import torch
from torch import nn

from ...torch_internals import code_of_a_call
from .. import checksums
from ..checksums import comparable
from .events import EventLog
from .rewriting import COMPARED, LOGGED, LOSS, SAVED, SITES, TESTED, Site
from .words import kind_of

_OPERATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_FORWARD = code_of_a_call()
_DATA = os.path.dirname(torch.utils.data.__file__) + os.sep  # noqa: PTH120
_LOSSES = 16
_MOST_ENTRIES = 2_000
_DEEPEST = 8


class Values:
    """
    Records values of the script.

    Args:
        log: of this process.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._losses: deque[float] = deque(maxlen=_LOSSES)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By the names that the rewritten script uses."""
        return {
            COMPARED: self.compared,
            TESTED: self.tested,
            LOGGED: self.logged,
            SAVED: self.saved,
            LOSS: self.loss,
        }

    def compared(self, number: int, word: str, left: Any, right: Any) -> Any:
        """`left < right`, or another order."""
        result = _OPERATIONS[word](left, right)
        if not torch.compiler.is_compiling():
            values = [number_of(left), number_of(right)]
            if None not in values:
                self._decision(SITES[number], values, bool(result))
        return result

    def tested(self, number: int, value: Any) -> Any:
        """What a condition asks; of plain values of Python nobody knows whether they tell the rank."""
        if not torch.compiler.is_compiling() and isinstance(value, torch.Tensor):
            one = number_of(value)
            if one is not None:
                self._decision(SITES[number], [one], bool(one))
        return value

    def _decision(self, site: Site, values: list[Any], way: bool) -> None:
        turn = self._log.turn(site.key) if self._log.mine else None
        if turn is not None and self._inside_a_model_or_a_data_set():
            self._log.give_back(site.key)
        elif turn is not None:
            self._log.write("compared", at=_at(site), x=site.text, n=turn, v=values, way=way, time=site.time)

    def logged(self, number: int, value: Any) -> Any:
        """What is printed, or handed to a logger or a tracker."""
        if not torch.compiler.is_compiling() and self._log.mine:
            site = SITES[number]
            figures = dict(_figures(value))
            turn = self._log.turn(site.key) if figures else None
            if turn is not None:
                self._write("logged", site, turn, figures)
        return value

    def saved(self, number: int, value: Any) -> Any:
        """An argument of a function that saves."""
        if not torch.compiler.is_compiling() and self._log.mine:
            site = SITES[number]
            found = path_of(value)
            turn = self._log.turn(site.key)
            if turn is not None and found is not None:
                self._log.write("saved to", at=_at(site), n=turn, path=found)
            elif turn is not None:
                self._write("saved", site, turn, dict(_contents(value)))
        return value

    def loss(self, value: Any) -> Any:
        """What is differentiated: each rank has its own, by nature."""
        if not torch.compiler.is_compiling():
            one = number_of(value)
            if one is not None:
                self._losses.append(float(one))
        return value

    def _write(self, event: str, site: Site, turn: tuple[int, int], entries: dict[str, Any]) -> None:
        own = [key for key, value in entries.items() if isinstance(value, float) and value in self._losses]
        loops = self._log.loops()
        self._log.write(event, at=_at(site), c=site.column, x=site.text, n=turn, v=entries, own=own, loops=loops)

    def _inside_a_model_or_a_data_set(self) -> bool:
        """There, decisions are about the rows of one rank."""
        frame = sys._getframe(3)
        while frame is not None:
            code = frame.f_code
            if code is _FORWARD or code.co_filename.startswith(_DATA):
                return True
            frame = frame.f_back  # type: ignore[assignment]
        return False


def _at(site: Site) -> str:
    return f"{site.file}:{site.line}"


def number_of(value: Any) -> Any:
    """The number in a value that is one, or holds exactly one; None for all others."""
    if isinstance(value, (bool, int, float)):
        return value if type(value) in (bool, int, float) else float(value)
    if isinstance(value, torch.Tensor):
        whole = value.numel() == 1 and comparable(value) and not value.is_complex()
        return _item(value) if whole else None
    if type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1:
        one = value.item()
        return one if isinstance(one, (bool, int, float)) else None
    return None


def _item(tensor: torch.Tensor) -> Any:
    """None for one that has no value now: inside of torch.func, or of a graph that is captured."""
    try:
        return tensor.detach().item()
    except RuntimeError:
        return None


def _figures(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers in a value that is logged, by their keys."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not kind_of(str(name)):
                yield from _figures(inner, f"{key}/{name}" if key else str(name))
        return
    one = number_of(value)
    if one is not None:
        yield key, one


def path_of(value: Any) -> str | None:
    """The path that a value names: a text, a path, or an open file."""
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    name = getattr(value, "name", None)
    return name if isinstance(name, str) and hasattr(value, "write") else None


def _contents(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value holds, by keys: numbers as they are, checksums of tensors and texts."""
    tensors: dict[str, torch.Tensor] = {}
    for key, leaf in _leaves(value, "", 0):
        if len(tensors) == _MOST_ENTRIES:
            return
        if isinstance(leaf, torch.Tensor):
            if comparable(leaf):
                tensors[key] = leaf
        elif isinstance(leaf, (str, bytes)):
            yield key, f"text {crc32(leaf.encode(errors='replace') if isinstance(leaf, str) else leaf):x}"
        else:
            one = number_of(leaf)
            if one is not None:
                yield key, one
            elif hasattr(leaf, "tobytes"):  # an array
                yield key, f"array {crc32(leaf.tobytes()):x}"
    for key, total in zip(tensors, checksums.sums(list(tensors.values())), strict=True):
        yield key, f"tensor {total & 0xFFFFFFFFFFFFFFFF:x}"


def _leaves(value: Any, key: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        value = value.state_dict()
    if depth < _DEEPEST and isinstance(value, Mapping):
        for name, inner in value.items():
            if not kind_of(str(name)):
                yield from _leaves(inner, f"{key}/{name}" if key else str(name), depth + 1)
    elif depth < _DEEPEST and isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{key}/{index}" if key else str(index), depth + 1)
    else:
        yield key, value
