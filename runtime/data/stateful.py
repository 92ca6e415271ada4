"""
Loaders whose place in the middle of a pass can be saved, and gone on from.

What is kept is how the pass began (the random numbers that its order was drawn from) and how many batches of it this
process has been handed. Going on draws the same order again, and leaves those batches out without reading them; a
stream, which cannot be entered in the middle, is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..errors import CheckpointError
from .batches import KEY
from .order import generators_of


@dataclass(frozen=True)
class Beginning:
    """How a pass began."""

    noise: torch.Tensor
    """The state of torch's generator."""
    generators: list[torch.Tensor]
    """Those of the generators that the loader and its samplers were given."""
    before: int = 0
    """Batches that were handed out before the pass was gone on with."""
    workers: bool = False
    """Workers that persist were there: no new seed was drawn for them."""


def _generators(loader: Any) -> list[torch.Generator]:
    return generators_of(loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None))


def note_beginning(loader: Any, share: Any) -> None:
    """A pass begins; one that is gone on with has begun before."""
    if share.epochs.go_on is None:
        states = [generator.get_state() for generator in _generators(loader)]
        share.epochs.beginning = Beginning(torch.get_rng_state(), states, workers=has_workers(loader))


def has_workers(loader: Any) -> bool:
    """Workers that persist are there, or were when the state was saved that the loader goes on from."""
    return vars(loader).get("_iterator") is not None or loader.__dict__[KEY].epochs.workers


def go_on(loader: Any, share: Any, make: Callable[[Any, bool], Any]) -> Any:
    """
    The iterator of a pass, from where it was when the state of its loader was saved.

    Args:
        loader: prepared.
        share: of the loader.
        make: makes the iterator, for a shard, and with workers that were there or not.
    """
    beginning: Beginning = share.epochs.go_on
    share.epochs.go_on, share.epochs.beginning = None, beginning
    share.epochs.workers = False
    now = torch.get_rng_state()
    torch.set_rng_state(beginning.noise)
    for generator, state in zip(_generators(loader), beginning.generators, strict=True):
        generator.set_state(state)
    loader.__dict__[KEY] = replace(share, skip=share.skip + beginning.before)
    try:
        batches = make(loader.__dict__[KEY], beginning.workers)
        batches.leave_out()
    finally:
        loader.__dict__[KEY] = share
        torch.set_rng_state(now)  # what is drawn by the samples to come goes on from here
    return batches


class Stateful:
    """Methods of prepared loaders with `DataLoaderConfiguration(use_stateful_dataloader=True)`."""

    def state_dict(self) -> dict[str, Any]:
        """Where this process is: the epoch, the batches of it that were handed out, how it began."""
        epochs = self.__dict__[KEY].epochs
        state: dict[str, Any] = {"epoch": epochs.number, "position": 0, "processes": _processes(self)}
        if has_workers(self):
            state["workers"] = True
        one, beginning = epochs.current, epochs.beginning
        if epochs.go_on is not None:  # loaded, and not begun since
            one, beginning = None, epochs.go_on
        if beginning is None or (one is not None and one.exhausted):
            return state
        position = beginning.before + (0 if one is None else one.position)
        kept = {"torch": beginning.noise, "generators": beginning.generators, "began_with_workers": beginning.workers}
        return {**state, "position": position, **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        The next pass goes on where `state_dict` was asked for.

        Raises:
            CheckpointError: it is the state of another kind of loader, or of another number of processes.
        """
        epochs = self.__dict__[KEY].epochs
        if not is_ours(state):
            raise CheckpointError(
                "this is not the state of a loader with use_stateful_dataloader=True. Use the result of "
                "loader.state_dict()."
            )
        if state["position"] and state["processes"] != _processes(self):
            raise CheckpointError(
                f"the state of this loader was saved in the middle of an epoch on {state['processes']} processes, but "
                f"now there are {_processes(self)}. Resume on the same number, or save at the end of an epoch."
            )
        epochs.set(state["epoch"])
        epochs.current = epochs.beginning = epochs.go_on = None
        epochs.workers = state.get("workers", False)
        self.__dict__["_iterator"] = None  # workers that persist are in a pass that is over now
        if state["position"]:
            kept = [one.clone() for one in state["generators"]]
            if len(kept) != len(_generators(self)):
                raise CheckpointError("this loader has different generators from the one whose state was saved.")
            workers = state.get("began_with_workers", False)
            epochs.go_on = Beginning(state["torch"].clone(), kept, state["position"], workers)


def is_ours(state: Any) -> bool:
    """The state of a loader of ours, not that of a class which keeps its own."""
    return isinstance(state, dict) and {"epoch", "position", "processes"} <= set(state)


def _processes(loader: Any) -> int:
    size: int = loader.__dict__[KEY].options.world.size
    return size
