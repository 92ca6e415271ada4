"""
The state of a script under the names that Accelerate gives it.

Accelerate keeps one state for a process, here every accelerator has its own. These are views: of the accelerator that
was made last, or of the one they are asked for.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import TorchliftError, missing
from ..process.state import PartialState
from ..types import FP8BackendType

if TYPE_CHECKING:
    from ..data.progress import Pass, Progress
    from ..gradients.window import Windows


class _Latest:
    accelerator: weakref.ref[Any] | None = None


def remember(accelerator: Any) -> None:
    """This accelerator was made last."""
    _Latest.accelerator = weakref.ref(accelerator)


def latest() -> Any:
    """
    The accelerator that was made last.

    Raises:
        TorchliftError: there is none.
    """
    found = None if _Latest.accelerator is None else _Latest.accelerator()
    if found is None:
        raise TorchliftError("there is no Accelerator yet: create one first.")
    return found


class GradientState:
    """
    Where accumulation is, and the loop over the data.

    Args:
        gradient_accumulation_plugin: accepted; the settings are those of the accelerator.
        accelerator: whose state; that of the latest one when None.
    """

    _shared_state: ClassVar[dict[str, Any]] = {}

    def __init__(self, gradient_accumulation_plugin: Any = None, accelerator: Any = None) -> None:
        self._accelerator = None if accelerator is None else weakref.ref(accelerator)

    @property
    def _of_nobody(self) -> bool:
        """Asked for before there is an accelerator: outside of all loops and windows, then."""
        return self._accelerator is None and not self.initialized

    @property
    def _of(self) -> Any:
        found = None if self._accelerator is None else self._accelerator()
        return latest() if found is None else found

    @property
    def _windows(self) -> Windows:
        found: Windows = self._of._windows
        return found

    @property
    def _progress(self) -> Progress:
        found: Progress = self._of._progress
        return found

    @property
    def _pass(self) -> Pass | None:
        return None if self._of_nobody else self._progress.innermost()

    @property
    def initialized(self) -> bool:
        """There is an accelerator."""
        return _Latest.accelerator is not None and _Latest.accelerator() is not None

    @property
    def num_steps(self) -> int:
        """Batches per optimizer step."""
        return 1 if self._of_nobody else self._windows.steps

    @property
    def sync_gradients(self) -> bool:
        """Gradients are exchanged, and optimizers step."""
        return True if self._of_nobody else self._windows.sync

    @property
    def in_dataloader(self) -> bool:
        """Some loop over a prepared loader runs."""
        return self._pass is not None

    @property
    def active_dataloader(self) -> Any:
        """The loader that the batch in hand comes from; None outside of all loops."""
        return None if self._pass is None else self._pass.loader()

    @property
    def dataloader_references(self) -> list[Any]:
        """The loaders that loops run over, and None."""
        return [None, *(one.loader() for one in reversed(self._progress.running()))]

    @property
    def sync_with_dataloader(self) -> bool:
        """The end of the data ends a window."""
        return self._windows.with_data

    @property
    def adjust_scheduler(self) -> bool:
        """Accepted setting; schedulers count optimizer steps here."""
        return bool(self._of._settings.accumulation.adjust_scheduler)

    @property
    def sync_each_batch(self) -> bool:
        """Gradients are exchanged after every batch."""
        return bool(self._of._settings.accumulation.sync_each_batch)

    @property
    def plugin_kwargs(self) -> dict[str, Any]:
        """The settings of accumulation that differ from the defaults."""
        found: dict[str, Any] = self._of._settings.accumulation.to_kwargs()
        return found

    def _set_sync_gradients(self, sync: bool) -> None:
        self._windows.sync = sync

    @property
    def end_of_dataloader(self) -> bool:
        """The batch in hand is the last one of its loader."""
        return self._pass is not None and self._pass.ended

    @property
    def remainder(self) -> int:
        """Rows of the data set in the step in hand, when some of its rows are duplicates; else -1."""
        one = self._pass
        if one is None or one.shares is None or one.shares.exact:
            return -1
        return sum(one.shares.valid)

    @property
    def is_xla_gradients_synced(self) -> bool:
        """Of XLA; here always."""
        return True

    @classmethod
    def _reset_state(cls) -> None:
        _Latest.accelerator = None


class AcceleratorState:
    """
    The place of this process, and the precision.

    Args:
        mixed_precision: accepted when it is that of the latest accelerator.
        cpu: stay on the CPU, where there is no accelerator yet.
        accelerator: whose state; that of the latest one when None.
        more: accepted.
    """

    _shared_state: ClassVar[dict[str, Any]] = PartialState._shared_state
    _era: ClassVar[object] = object()
    """Another one after every `_reset_state`: accelerators that were made before know their place no more."""

    def __init__(
        self, mixed_precision: str | None = None, cpu: bool = False, accelerator: Any = None, **more: Any
    ) -> None:
        self._place = PartialState(cpu=cpu)
        self._precision = mixed_precision
        self._accelerator = None if accelerator is None else weakref.ref(accelerator)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_place":
            raise AttributeError(name)
        if name in _NONE_OF_THESE:
            return None
        try:
            return getattr(self._place, name)
        except AttributeError as missing:
            text = str(missing).replace("PartialState", "AcceleratorState")
            raise AttributeError(text, name=name, obj=self) from None

    def __setattr__(self, name: str, value: Any) -> None:
        """What a script keeps here is seen by all states, as in Accelerate."""
        if name.startswith("_") or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._place, name, value)

    def __repr__(self) -> str:
        return f"{self._place!r}\nMixed precision type: {self.mixed_precision}\n"

    @property
    def _of(self) -> Any:
        latest = None if _Latest.accelerator is None else _Latest.accelerator()
        own = None if self._accelerator is None else self._accelerator()
        return latest if own is None else own

    @property
    def mixed_precision(self) -> str:
        "The precision of forward passes."
        return str(self._precision or "no") if self._of is None else str(self._of.mixed_precision)

    @property
    def dynamo_plugin(self) -> Any:
        """How models are compiled."""
        return None if self._of is None else self._of._settings.dynamo

    @property
    def is_fsdp2(self) -> bool:
        """Weights are sharded, by version 2 of FSDP."""
        return self._of is not None and bool(self._of.is_fsdp2)

    @property
    def fsdp_plugin(self) -> Any:
        """How weights are sharded; None where they are not."""
        return None if self._of is None else self._of._settings.sharding

    @property
    def parallelism_config(self) -> Any:
        """How processes are divided; None where that was not asked for."""
        return None if self._of is None else self._of._settings.mesh

    @property
    def device_mesh(self) -> Any:
        """The processes as a mesh; None where nothing is sharded."""
        return None if self._of is None else self._of.torch_device_mesh

    @property
    def initialized(self) -> bool:
        """The place of this process is known."""
        return self._place.initialized

    @classmethod
    def _reset_state(cls, reset_partial_state: bool = False) -> None:
        GradientState._reset_state()
        AcceleratorState._era = object()
        if reset_partial_state:
            PartialState._reset_state()


_NONE_OF_THESE = (
    "deepspeed_plugin",
    "deepspeed_plugins",
    "torch_tp_plugin",
    "megatron_lm_plugin",
)
"""What scripts ask a state for, and what is not there yet."""

_NAMES: dict[str, Callable[[Any], Any]] = {
    "dispatch_batches": lambda a: a._loader_config.dispatch_batches,
    "use_seedable_sampler": lambda a: a._settings.use_seedable_sampler,
    "use_stateful_dataloader": lambda a: a._settings.stateful,
    "non_blocking": lambda a: a._settings.non_blocking,
    "device_placement": lambda a: a._settings.device_placement,
    "rng_types": lambda a: [str(word) for word in a._settings.rng_types],
    "step_scheduler_with_optimizer": lambda a: a._settings.step_scheduler_with_optimizer,
    "native_amp": lambda a: a._precision.mixed,
    "autocast_handler": lambda a: a._settings.autocast,
    "scaler_handler": lambda a: a._settings.scaler,
    "ddp_handler": lambda a: a._settings.parallel,
    "init_handler": lambda a: a._settings.joining,
    "is_fsdp2": lambda a: a._settings.sharding is not None and a.use_distributed,
    "multi_device": lambda a: a.use_distributed and a.device.type != "cpu",
    "is_composable_parallelism_enabled": lambda a: a._settings.sharding is not None and a.use_distributed,
    "should_save_model": lambda a: a.is_main_process,
    "deepspeed_plugin": lambda a: None,
    "fsdp_plugin": lambda a: a._settings.sharding,
    "parallelism_config": lambda a: a._settings.mesh,
    "torch_device_mesh": lambda a: a._prepared.mesh,
    "fp8_backend": lambda a: FP8BackendType.NO if a._settings.recipe is None else FP8BackendType.AO,
    "fp8_enabled": lambda a: a._settings.mixed_precision == "fp8",
    "ao_recipe_handler": lambda a: a._settings.recipe,
    "flag_tensor": lambda a: None,
    "_models": lambda a: a._prepared.models,
    "_optimizers": lambda a: [gate.optimizer for gate in a._prepared.gates],
    "_schedulers": lambda a: a._prepared.schedulers,
    "_dataloaders": lambda a: a._prepared.loaders,
}
"""What scripts read of an accelerator beside what is documented, and where it is here."""


def attribute(accelerator: Any, name: str) -> Any:
    """
    An attribute under the name that it has in Accelerate.

    Raises:
        AttributeError: it has none.
    """
    if name not in _NAMES:
        asked = getattr(type(accelerator), name, None)
        if isinstance(asked, property) and asked.fget is not None:
            return asked.fget(accelerator)  # it has raised an AttributeError: again, for what that says
        said = f"an Accelerator has no attribute {name!r}"
        known = {*_NAMES, *dir(type(accelerator))}
        raise AttributeError(said if name.startswith("_") else missing(said, name, known))
    return _NAMES[name](accelerator)
