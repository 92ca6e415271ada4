"""The output of a run: checkpoints, weights, logs. The part of the facade that writes files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from ..checkpoint.pieces import save_in_pieces
from ..checkpoint.save import save_whole
from ..checkpoint.shards import save_weights
from ..checkpoint.state import Checkpoints, LoadHook, SaveHook
from ..collectives.world import World
from ..config.project import PathLike, ProjectConfiguration
from ..errors import WrongKindError
from ..monitoring.monitor import Monitor
from ..strategies.full_state import full_state, gathered, holds_shards, whole_everywhere
from ..strategies.unwrap import extract_model_from_parallel
from ..strategies.unwrap import unwrap as plain_model
from ..tracking.base import GeneralTracker
from ..tracking.trackers import Trackers


class Records:
    """Methods of `Accelerator` for its project: files, checkpoints and trackers."""

    project_configuration: ProjectConfiguration
    """The folders of the project."""
    _world: World
    _checkpoints: Checkpoints
    _trackers: Trackers
    _is_main: bool
    _monitor: Monitor

    @property
    def project_dir(self) -> PathLike | None:
        """The folder of the project."""
        return self.project_configuration.project_dir

    @property
    def logging_dir(self) -> PathLike | None:
        """The folder for logs."""
        return self.project_configuration.logging_dir

    @property
    def save_iteration(self) -> int:
        """The number of the next checkpoint that is named by itself. May be set."""
        return self.project_configuration.iteration

    @save_iteration.setter
    def save_iteration(self, iteration: int) -> None:
        self.project_configuration.iteration = iteration

    # ---------------------------------------------------------------- files

    def get_state_dict(self, model: Any, unwrap: bool = True) -> dict[str, Any]:
        """
        The state dict of a model, with the names that the script's own `model.state_dict()` has.

        A sharded model's is whole, and on the CPU of rank 0; it is empty on the others. All processes call it then.

        Args:
            model: prepared or not. What `torch.compile(model)` made keeps its names (`_orig_mod.`...): the script's
                checkpoints have them, too. A foreign wrapper (DDP, DataParallel) is looked through.
            unwrap: False: a foreign wrapper's names are kept.

        Raises:
            WrongKindError: it is no model.
        """
        if not hasattr(model, "state_dict"):
            raise WrongKindError(f"get_state_dict was given a {type(model).__name__}; it takes a model.")
        self._monitor.saves("get_state_dict")
        one = extract_model_from_parallel(model) if unwrap else model
        if isinstance(one, nn.Module):
            return full_state(self._world, one, "get_state_dict")
        state: dict[str, Any] = one.state_dict()
        return state

    def save(self, obj: Any, f: Any, safe_serialization: bool = False) -> None:
        """
        `torch.save`, on the main process only. A path is there whole or not at all.

        Sharded tensors in it (of an optimizer's state dict, for one) are written whole. All processes call it then.

        Args:
            obj: what to save.
            f: a path, or an open binary file.
            safe_serialization: write a state dict as safetensors; `f` is a path then.
        """
        self._monitor.saves("save")
        obj = gathered(self._world, obj, "save")
        if self._is_main:
            save_whole(obj, f, safe_serialization)

    def save_model(
        self, model: Any, save_directory: PathLike, max_shard_size: int | str = "10GB", safe_serialization: bool = True
    ) -> None:
        """
        Save the weights of a model on the main process, in files of a limited size with an index, as the Hugging Face
        Hub has them.

        Args:
            model: prepared or not.
            save_directory: the folder; is made if need be. Weights that it holds are replaced.
            max_shard_size: of one file: bytes, or words like "500MB" or "2GiB".
            safe_serialization: safetensors (of tied tensors one is written); False: pickles of torch.

        Raises:
            CheckpointError: it is a file, or weights have no data.
        """
        self._monitor.saves("save_model")
        plain = plain_model(model)
        if holds_shards(list(plain.parameters())):
            save_in_pieces(self._world, plain, Path(save_directory), max_shard_size, safe_serialization)
        elif self._is_main:
            state = self.get_state_dict(plain)
            save_weights(state, Path(save_directory), max_shard_size, safe_serialization)

    def save_state(
        self, output_dir: PathLike | None = None, safe_serialization: bool = True, **save_model_kwargs: Any
    ) -> Path:
        """
        Save models, optimizers, schedulers, loaders, random numbers and registered objects. Call it on all processes.

        The folder is complete, with a manifest of checksums, or not there at all; older ones are removed afterwards.

        Args:
            output_dir: the folder; None: `{project_dir}/checkpoints/checkpoint_{iteration}`.
            safe_serialization: weights as safetensors; False: pickles of torch.
            save_model_kwargs: without effect here; taken for the sake of scripts.

        Returns:
            The folder.

        Raises:
            CheckpointError: some process could not save its part, or the folder exists already.
        """
        self._monitor.saves("save_state")
        return self._checkpoints.save(output_dir, safe_serialization)

    def load_state(
        self,
        input_dir: PathLike | None = None,
        load_kwargs: dict[str, Any] | None = None,
        map_location: str | None = None,
        **load_model_func_kwargs: Any,
    ) -> None:
        """
        Load what `save_state` has saved, on as many processes or on another number. Call it on all processes.

        Args:
            input_dir: the folder, of ours or of Accelerate; None: the newest one that is whole.
            load_kwargs: for `torch.load`; `weights_only=False` is refused.
            map_location: where optimizer states are read to: "cpu" (the same as None), or "on_device".
            load_model_func_kwargs: for `load_state_dict` of the models (`strict=False`).

        Raises:
            CheckpointError: there is nothing, it is damaged, or it cannot be loaded without running code.
            TypeError: another `map_location`.
        """
        self._checkpoints.load(input_dir, map_location, load_kwargs, **load_model_func_kwargs)

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Save and load these, too: anything with `state_dict` and `load_state_dict`. Their order counts."""
        self._checkpoints.register(objects)

    def register_save_state_pre_hook(self, hook: SaveHook) -> RemovableHandle:
        """Call `hook(models, weights, folder)` in `save_state`; weights that it takes off the list are not written."""
        return self._checkpoints.before_saving(hook)

    def register_load_state_pre_hook(self, hook: LoadHook) -> RemovableHandle:
        """Call `hook(models, folder)` in `load_state`; models that it takes off the list are not loaded."""
        return self._checkpoints.before_loading(hook)

    # ---------------------------------------------------------------- what a run logs

    @property
    def log_with(self) -> list[Any]:
        """The names and objects of the trackers that were asked for."""
        return self._trackers.log_with

    @property
    def trackers(self) -> list[GeneralTracker]:
        """The trackers that run on this process: after `init_trackers`, on the main process."""
        return self._trackers.running

    def init_trackers(
        self,
        project_name: str,
        config: dict[str, Any] | None = None,
        init_kwargs: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """
        Start the trackers.

        Args:
            project_name: of the run.
            config: settings of the run, to be kept with it: plain values by name.
            init_kwargs: further arguments for a tracker, by its name: `{"wandb": {"tags": ["a"]}}`.
        """
        self._trackers.start(project_name, config, init_kwargs)

    def log(
        self,
        values: dict[str, Any],
        step: int | None = None,
        log_kwargs: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """
        Hand figures and texts to all trackers; once a job. `log_kwargs` holds arguments by name of the tracker.

        Of sharded weights, and of what is computed from them, trackers get the whole: all processes call it then.
        """
        self._trackers.log(whole_everywhere(values), step, log_kwargs)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """
        The tracker of this name (with `unwrap`, the run or writer in it). On other processes, one that does nothing.

        Raises:
            TrackerError: there is none of this name.
        """
        return self._trackers.get(name, unwrap)
