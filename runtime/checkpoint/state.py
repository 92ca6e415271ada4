"""Saving and loading the state of a whole job."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ..collectives.objects import broadcast_objects, gather_objects
from ..collectives.world import World
from ..config.project import PathLike, ProjectConfiguration
from ..errors import CheckpointError, CheckpointPathError
from ..gradients.window import Windows
from ..process.group import wait_for_everyone
from ..strategies.full_state import full_state, gathered
from ..strategies.unwrap import unwrap
from .folders import check_whole, commit, settle, settle_all, stage, staging_of
from .loaders import own_state, write_loaders
from .parts import (
    HasState,
    Parts,
    load_model,
    load_prepared,
    load_registered,
    random_name,
    write,
    write_model,
    write_prepared,
    write_registered,
)
from .randomness import random_states, restore_random_states
from .reading import read
from .rotation import newest_whole, number_of, numbered, prune

log = logging.getLogger(__name__)

SaveHook = Callable[[list[Any], list[Any], str], None]
LoadHook = Callable[[list[Any], str], None]


@dataclass
class _Exchange:
    """What a process tells all others, and what they tell it."""

    mine: Any = None
    all: list[Any] = field(default_factory=list)


class Checkpoints:
    """
    The checkpoints of one accelerator.

    Args:
        world: the processes.
        writes: this process writes files.
        parts: what has been prepared.
        project: folders and naming.
        scaler: for fp16; None otherwise.
        windows: of accumulation. Gradients are not saved: after loading, every process begins a new window.
    """

    def __init__(
        self,
        world: World,
        writes: bool,
        parts: Parts,
        project: ProjectConfiguration,
        scaler: torch.amp.GradScaler | None,
        windows: Windows,
    ) -> None:
        self._world = world
        self._writes = writes
        self._parts = parts
        self._project = project
        self._scaler = scaler
        self._registered: list[HasState] = []
        self._save_hooks: OrderedDict[int, SaveHook] = OrderedDict()
        self._load_hooks: OrderedDict[int, LoadHook] = OrderedDict()
        self._windows = windows

    def register(self, objects: tuple[Any, ...]) -> None:
        """
        Save and load these too.

        Raises:
            CheckpointPathError: an object has no `state_dict` or no `load_state_dict`; a ValueError.
        """
        bad = [
            f"Item at index {i}, a {type(one).__name__}"
            for i, one in enumerate(objects)
            if not (callable(getattr(one, "state_dict", None)) and callable(getattr(one, "load_state_dict", None)))
        ]
        if bad:
            raise CheckpointPathError(
                f"these objects cannot be saved, because they have no state_dict and load_state_dict: {'; '.join(bad)}."
            )
        self._registered.extend(objects)

    def before_saving(self, hook: SaveHook) -> RemovableHandle:
        """Call `hook(models, weights, folder)` before weights are written; what it takes off the lists is its own."""
        handle = RemovableHandle(self._save_hooks)
        self._save_hooks[handle.id] = hook
        return handle

    def before_loading(self, hook: LoadHook) -> RemovableHandle:
        """Call `hook(models, folder)` before weights are loaded; what it takes off the list is its own."""
        handle = RemovableHandle(self._load_hooks)
        self._load_hooks[handle.id] = hook
        return handle

    # ---------------------------------------------------------------- saving

    def save(self, output_dir: PathLike | None, safe: bool = True) -> Path:
        """
        Write a checkpoint. Every process calls it; when it returns, the checkpoint is complete on all of them.

        Returns:
            Its folder.
        """
        target, failure = broadcast_objects(self._world, list(self._target(output_dir)))
        if failure is not None:
            raise CheckpointPathError(failure)
        with self._together("could not start"):
            if self._writes:
                stage(target)
        folder = staging_of(target)
        with self._together("could not return its state") as states:
            weights, optimizers, states.mine = self._collect(folder)
        with self._together("could not write"):
            if self._writes:
                self._write(folder, weights, optimizers, states.all, safe)
        with self._together("could not complete it"):
            if self._writes:
                commit(folder, target, {"num_processes": self._world.size, "step": self._windows.entries})
                if output_dir is None:
                    prune(target.parent, self._project.total_limit, target)
        if output_dir is None:
            self._project.iteration += 1
        return Path(target)

    @contextmanager
    def _together(self, otherwise: str) -> Iterator[_Exchange]:
        """
        Run the body on all processes, then wait for everyone and exchange what they have to say.

        Where one raises, it raises its own error and all others raise too, so that nobody waits for it.
        """
        exchange = _Exchange()
        failed = f"process {self._world.rank} {otherwise}"
        try:
            yield exchange
            failed = ""
        finally:
            answers = gather_objects(self._world, [(failed, exchange.mine)])
            failures = [line for line, _ in answers if line]
            exchange.all = [mine for _, mine in answers]
            if failures and not failed:
                raise CheckpointError(
                    f"the checkpoint was not saved: {'; '.join(failures)}. The error of that process has the cause."
                )

    def _target(self, output_dir: PathLike | None) -> tuple[Path | None, str | None]:
        """Where to save; or why not."""
        if output_dir is not None:
            return Path(output_dir).expanduser().resolve(), None
        if not self._project.automatic_checkpoint_naming or self._project.project_dir is None:
            return None, (
                "save_state has no folder to save to. Give it one, or make the accelerator with ProjectConfiguration"
                "(project_dir=..., automatic_checkpoint_naming=True)."
            )
        target = self._parent() / f"checkpoint_{self._project.iteration}"
        if self._world.rank == 0:
            settle(target)
        if target.exists():
            newest = numbered(target.parent)[-1][0]
            return None, (
                f"{target} already exists. To save after the newest checkpoint, set accelerator.save_iteration = "
                f"{newest + 1}; otherwise remove it."
            )
        return target, None

    def _parent(self) -> Path:
        return Path(self._project.project_dir or ".").expanduser().resolve() / "checkpoints"

    def _collect(self, folder: Path) -> tuple[list[Any], list[Any], Any]:
        """The weights that are left to write, the states of optimizers, and what only this process knows."""
        weights: list[Any] = [full_state(self._world, unwrap(model), "save_state") for model in self._parts.models]
        optimizers = [gathered(self._world, gate.optimizer.state_dict(), "save_state") for gate in self._parts.gates]
        for hook in self._save_hooks.values():
            hook(list(self._parts.models), weights, str(folder))
        loaders = [own_state(loader) for loader in self._parts.loaders]
        return weights, optimizers, (random_states(self._world.device), loaders)

    def _write(self, folder: Path, weights: list[Any], optimizers: list[Any], states: list[Any], safe: bool) -> None:
        for i, state in enumerate(weights):
            write_model(state, folder, i, safe)
        write_prepared(folder, self._parts, optimizers, self._scaler)
        write_loaders(folder, self._parts.loaders, [loaders for _, loaders in states])
        for rank, (random, _) in enumerate(states):
            write({"step": self._windows.entries, **random}, folder / random_name(rank), "the random numbers")
        write_registered(folder, self._registered)

    # ---------------------------------------------------------------- loading

    def load(
        self,
        input_dir: PathLike | None,
        map_location: Any = None,
        load_kwargs: dict[str, Any] | None = None,
        **model_kwargs: Any,
    ) -> Path:
        """
        Load a checkpoint. Every process calls it.

        Returns:
            Its folder.
        """
        if map_location not in (None, "cpu", "on_device"):
            raise TypeError(
                f"Unsupported optimizer map location passed: {map_location!r}. Choose None, 'cpu' or 'on_device'."
            )
        location = self._world.device if map_location == "on_device" else "cpu"
        source, failure = broadcast_objects(self._world, list(self._source(input_dir)))
        if failure is not None:
            raise failure
        folder: Path = source
        if not folder.is_dir():
            raise CheckpointPathError(f"process {self._world.rank} does not see the folder {folder}.")
        kwargs = load_kwargs or {}
        models = list(self._parts.models)
        for hook in self._load_hooks.values():
            hook(models, str(folder))
        for i, model in enumerate(models):
            load_model(model, folder, i, **model_kwargs)
        load_prepared(folder, self._parts, self._scaler, location, self._world.rank, **kwargs)
        load_registered(folder, self._registered, **kwargs)
        self._windows.reset()
        self._restore_random(folder)
        number = number_of(folder)
        if number is not None:
            self._project.iteration = number + 1
        wait_for_everyone()
        return folder

    def _source(self, input_dir: PathLike | None) -> tuple[Path | None, Exception | None]:
        """On process 0: the folder, or why it cannot be loaded."""
        if self._world.rank:
            return None, None
        try:
            folder = self._newest() if input_dir is None else Path(input_dir).expanduser().resolve()
            settle(folder)
            check_whole(folder)
        except (CheckpointError, OSError) as error:
            return None, error
        return folder, None

    def _newest(self) -> Path:
        if not self._project.automatic_checkpoint_naming or self._project.project_dir is None:
            raise CheckpointPathError(
                "load_state has no folder to load from. Give it one, or make the accelerator with ProjectConfiguration"
                "(project_dir=..., automatic_checkpoint_naming=True)."
            )
        settle_all(self._parent())
        newest, passed = newest_whole(self._parent())
        for line in passed:
            log.warning("skipped an incomplete checkpoint: %s", line)
        if newest is None:
            raise CheckpointPathError(f"there is no complete checkpoint in {self._parent()}.")
        return newest

    def _restore_random(self, folder: Path) -> None:
        """Last of all, so that nothing on the way has drawn from it."""
        rank = self._world.rank
        path, noise = folder / random_name(rank), 0
        if not path.is_file():
            path, noise = folder / random_name(0), rank
        if not path.is_file():
            log.warning("%s holds no state of the random generators; they keep their current state", folder)
            return
        restore_random_states(read(path), self._world.device, noise)
