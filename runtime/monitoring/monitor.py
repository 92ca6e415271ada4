"""
What an accelerator tells the monitor, and what the monitor sees by itself: every step of every optimizer.

Nothing here is a collective, and nobody waits: a process states what it has seen, and goes on. Where statements do not
agree, all processes get an error at their next step, or at their next exchange.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .. import torch_internals as internals
from ..process import watched_calls
from . import checksums, judges, script
from .rows import Rows

_KEY = "_torchlift_steps"
_OFTEN = 2
_RARELY = 250
"""After the first two, every such step is looked at."""
_FEW = 16
"""Of so many optimizers of a model the first steps are looked at."""


class _PreparedModel:
    """A model whose weights are to be equal on all processes."""

    def __init__(self, number: int, model: nn.Module) -> None:
        self.number = number
        self.model = weakref.ref(model)
        self.optimizers = 0
        self.buffers = 0
        """How often they were made equal."""


class _Steps:
    """Those of one optimizer, while somebody looks."""

    def __init__(self) -> None:
        self.made = 0
        self.due = 1
        self.names: dict[int, int] = {}
        """Which optimizer it is of those of a prepared model, by the number of that."""
        self.loose = ""
        """Which one it is of those that step weights alike at the same place and time, and no prepared model holds."""
        self.version = -1
        """Counts the changes of the weights in place, after the last step; -1 before the first one."""
        self.touched = 0
        """How often the script has changed weights between two steps."""


class _Process:
    """What is known in this process, by whichever accelerator."""

    def __init__(self) -> None:
        self.prepared: dict[int, _PreparedModel] = {}
        self.count = 0
        """How many there have been."""
        self.quiet = 0
        """So many contexts say that weights may differ for now."""
        self.meant: list[nn.Module] = []
        """Models that every process trains by itself, on purpose."""
        self.loose: dict[str, int] = {}
        """How many optimizers there were of weights alike, by where and when they stepped first."""
        self.sharing = False
        """A loader gives every process its own rows."""
        self.by_hand = False
        """The script shares its batches out itself."""
        self.steps = 0
        """Of all optimizers."""
        self.saved = (-1, -1)
        """When weights were saved last: the collectives before that, and the steps."""
        self.rows = Rows()
        self.hooked = False


_HERE = _Process()


class Monitor:
    """
    The monitor, as an accelerator talks to it.

    Args:
        active: there is more than one process, and the monitor has not been switched off.
    """

    def __init__(self, active: bool) -> None:
        self._active = active
        if active and not _HERE.hooked:
            _HERE.hooked = True
            judges.enter(_names_of)
            register_optimizer_step_pre_hook(_before_step)
            register_optimizer_step_post_hook(_after_step)

    def keeps_equal(self, model: nn.Module) -> None:
        """From now on the weights of this model are equal on all processes."""
        if self._active and _entry_of(model) is None:
            _HERE.count += 1
            _HERE.prepared[_HERE.count] = _PreparedModel(_HERE.count, model)
            _HERE.rows.watch()

    def lets_go(self, models: Iterable[nn.Module]) -> None:
        """These are kept equal no more."""
        for model in models:
            entry = _entry_of(model)
            if entry is not None:
                del _HERE.prepared[entry.number]

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Weights may differ in the body."""
        _HERE.quiet += 1
        try:
            yield
        finally:
            _HERE.quiet -= 1

    @contextmanager
    def meant(self, models: tuple[nn.Module, ...]) -> Iterator[None]:
        """Every process trains these models by itself, on purpose; any model when none is named."""
        if not models or any(_entry_of(model) is not None for model in models):
            with self.quiet():
                yield
            return
        _HERE.meant.extend(models)
        try:
            yield
        finally:
            del _HERE.meant[-len(models) :]

    def shares_rows(self) -> None:
        """A loader gives every process its own rows."""
        _HERE.sharing = True

    def handed_out(self, loader: Any, batch: Any) -> None:
        """A prepared loader yields a batch that may be trained on."""
        if self._active:
            _HERE.rows.note_prepared(loader, batch)

    def shared_by_hand(self) -> None:
        """The script gives every process its own part of something: batches may be equal before that."""
        _HERE.by_hand = True

    def made_equal(self, model: nn.Module) -> None:
        """The buffers of this model have those values now that rank 0 has."""
        entry = _entry_of(model) if self._active and not _HERE.quiet else None
        if entry is not None:
            entry.buffers += 1
            if entry.buffers <= _OFTEN or entry.buffers % _RARELY == 0:
                _state_buffers(entry)

    def saves(self, what: str) -> None:
        """This process saves what it has trained. Others may do so too: then they have the same at the same time."""
        now = watched_calls.chain(), _HERE.steps
        if self._active and not _HERE.quiet and now != _HERE.saved:
            _HERE.saved = now
            for entry in list(_HERE.prepared.values()):
                when = f"in {what}, after {_HERE.steps} optimizer step{'' if _HERE.steps == 1 else 's'}"
                _state_weights(entry, f"save {now}", when)


def kept_equal(weights: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Those of these weights that no context of the script lets differ between ranks."""
    if _HERE.quiet:
        return []
    meant = {id(one) for model in _HERE.meant for one in model.parameters()}
    return [one for one in weights if id(one) not in meant]


def _entry_of(model: nn.Module) -> _PreparedModel | None:
    return next((entry for entry in _HERE.prepared.values() if entry.model() is model), None)


def _names_of(number: int, kind: str) -> tuple[str, list[str]]:
    entry = _HERE.prepared.get(number)
    model = None if entry is None else entry.model()
    if model is None:
        return "gone by now", []
    named = model.named_buffers() if kind == judges.BUFFERS else model.named_parameters()
    names = {id(one): name for name, one in named}
    tensors = list(model.buffers() if kind == judges.BUFFERS else model.parameters())
    groups = checksums.copies(tensors).items()
    return type(model).__name__, [
        names[id(one)] for part, pairs in groups if bool(part) is (kind == judges.SHARDS) for one, _ in pairs
    ]


# ---------------------------------------------------------------- steps


def _before_step(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
    """Called by torch before every step of every optimizer: were weights changed since the last one?"""
    steps: _Steps | None = optimizer.__dict__.get(_KEY)
    if steps is None or steps.version < 0 or _HERE.quiet or torch.compiler.is_compiling():
        return
    if _version(optimizer) != steps.version:
        steps.touched += 1
        if steps.touched & (steps.touched - 1) == 0:  # some scripts do so at every step: the first time, 2nd, 4th ...
            steps.due = 0


def _version(optimizer: Optimizer) -> int:
    return internals.changes_of(one for group in optimizer.param_groups for one in group["params"])


def _after_step(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
    """Called by torch after every step of every optimizer: a look at a counter, as a rule."""
    steps: _Steps | None = optimizer.__dict__.get(_KEY)
    if steps is None:
        steps = optimizer.__dict__[_KEY] = _Steps()
    if _HERE.quiet:
        steps.version = -1
    else:
        compiled = torch.compiler.is_compiling()
        steps.made += 1
        _HERE.steps += 1
        if steps.made >= steps.due and not compiled:
            steps.due = 2 if steps.made == 1 else (steps.made // _RARELY + 1) * _RARELY
            _look(optimizer, steps)
        steps.version = -1 if compiled else _version(optimizer)
    watched_calls.heed()


def _look(optimizer: Optimizer, steps: _Steps) -> None:
    stepped = [one for group in optimizer.param_groups for one in group["params"]]
    owners: dict[int, _PreparedModel] = {}
    for entry in list(_HERE.prepared.values()):
        model = entry.model()
        if model is None:
            del _HERE.prepared[entry.number]
        else:
            owners.update((id(one), entry) for one in model.parameters())
    reached = {owners[id(one)].number: owners[id(one)] for one in stepped if id(one) in owners}
    for entry in reached.values():
        if entry.number not in steps.names:
            entry.optimizers += 1
            steps.names[entry.number] = entry.optimizers
        own = steps.names[entry.number]
        if own <= _FEW or steps.made >= _RARELY:
            _state_weights(entry, f"optimizer {own} step {steps.made}", f"after step {steps.made}")
    if reached:
        _state_rows(steps)
    loose = [one for one in kept_equal(stepped) if id(one) not in owners]
    if loose:
        _state_loose(optimizer, steps, [one for one in loose if checksums.comparable(one)])


def _state_weights(entry: _PreparedModel, occasion: str, when: str) -> None:
    model = entry.model()
    if model is not None:
        for part, pairs in checksums.copies(model.parameters()).items():
            where = f"{part}, {occasion}" if part else occasion
            _state(entry, judges.SHARDS if part else judges.WEIGHTS, where, when, [own for _, own in pairs])


def _state_buffers(entry: _PreparedModel) -> None:
    model = entry.model()
    if model is not None:
        when = f"after backward pass {entry.buffers}, where they were made equal"
        buffers = [one for one in model.buffers() if checksums.comparable(one)]
        _state(entry, judges.BUFFERS, str(entry.buffers), when, buffers)


def _state(entry: _PreparedModel, kind: str, occasion: str, when: str, tensors: list[torch.Tensor]) -> None:
    said = {"model": entry.number, "when": when, "at": _at(), "sums": checksums.sums(tensors)}
    watched_calls.say(kind, f"model {entry.number}, {occasion}", said)


def _state_loose(optimizer: Optimizer, steps: _Steps, weights: list[torch.Tensor]) -> None:
    """Weights that no prepared model holds. Plain tensors of an optimizer that was not prepared are an affair of it."""
    prepared = "_is_accelerate_prepared" in optimizer.__dict__
    weights = [one for one in weights if prepared or isinstance(one, nn.Parameter)]
    gradients = [one.grad for one in weights if one.grad is not None and checksums.comparable(one.grad)]
    norms = checksums.norms(gradients)
    if not any(norms):
        return
    if not steps.loose:
        shapes = crc32("".join(f"{tuple(one.shape)}{one.dtype}" for one in weights).encode())
        # one that a rank steps alone must not shift the numbers of those that all ranks step later, elsewhere
        occasion = f"{shapes} {type(optimizer).__name__}{_at()} {watched_calls.chain()}"
        _HERE.loose[occasion] = _HERE.loose.get(occasion, 0) + 1
        steps.loose = f"{occasion} {_HERE.loose[occasion]}"
    variable, model = script.model_with(weights[0])
    said = {
        "step": steps.made,
        "at": _at(),
        "optimizer": type(optimizer).__name__,
        "variable": variable,
        "model": model,
        "count": len(weights),
        "norms": norms,
        "prepared": _HERE.count or _HERE.sharing or (steps.made == 2 and _in_a_wrapper(weights)),
    }
    watched_calls.say(judges.LOOSE, f"{steps.loose} step {steps.made}", said)


def _in_a_wrapper(weights: list[torch.Tensor]) -> bool:
    """The script keeps them equal by a DistributedDataParallel of its own. Asked once for an optimizer."""
    wrappers = [one for one in gc.get_objects() if issubclass(type(one), DistributedDataParallel)]
    wanted = set(map(id, weights))
    return any(id(parameter) in wanted for wrapper in wrappers for parameter in wrapper.parameters())


def _state_rows(steps: _Steps) -> None:
    if _HERE.by_hand or steps.made > 2:
        _HERE.rows.stop()
        return
    for one in _HERE.rows.stepped():
        if len(one.steps) == 2:
            said = {
                "loader": one.loader,
                "at": one.at,
                "prepared": one.prepared,
                "whole": 0 if _HERE.sharing else one.whole,
                "batches": [list(batch) for batch in one.steps],
            }
            watched_calls.say(judges.ROWS, f"{one.at} {steps.made}", said)


def _at() -> str:
    line = script.line()
    return f" at {line}" if line else ""
