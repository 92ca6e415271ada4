"""The facade that a training script talks to. Every method is a few lines; the work is done by the parts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from ..checkpoint.state import Checkpoints
from ..collectives.unseeded import share_unseeded
from ..collectives.world import World
from ..compat.plugins import ComesLater, refuse_arguments
from ..config.environment import read_environment
from ..config.handlers import (
    GradientAccumulationPlugin,
    KwargsHandler,
    TorchDynamoPlugin,
    one_of,
    window_length,
)
from ..config.project import PathLike, ProjectConfiguration, project
from ..config.settings import DataLoaderConfiguration, either, resolve, with_loaders
from ..data.hand_batches import HandBatches
from ..data.loader import pace_of, skip_first_batches
from ..data.progress import Progress
from ..data.timing import Pace
from ..device.memory import clear_device_cache
from ..device.placement import send_to_device
from ..device.precision import Precision, let_round
from ..errors import MixedUseError, NotAvailableYet, refuse_newer
from ..gradients.window import Windows
from ..monitoring.monitor import Monitor
from ..process import group
from ..process.state import PartialState
from ..strategies.unwrap import extract_model_from_parallel, spread
from ..tracking.profiling import ProfileKwargs, profile
from ..tracking.trackers import Trackers
from ..types import Tree
from . import state
from .collective_api import Collectives
from .gradient_api import Gradients
from .handle import found_again, name_of
from .prepare import Preparation
from .project_api import Records

if TYPE_CHECKING:
    from ..config.fsdp import FullyShardedDataParallelPlugin
    from ..config.parallelism import ParallelismConfig

T = TypeVar("T")


class Accelerator(Gradients, Collectives, Records, ComesLater):
    """
    Makes a plain training script run on as many processes as it is started with.

    Args:
        device_placement: move models, optimizer states and batches to `device`.
        split_batches: True: every batch of the script is shared among the processes, so that training is the same on
            any number of them. False: every process gets batches of the script's size, as in Accelerate. None: what
            the environment variable TORCHLIFT_SPLIT_BATCHES says, else False.
        mixed_precision: "no", "bf16", "fp16", or "fp8" (and "int8"), in which linear layers multiply by torchao while
            all else is bf16; None: what TORCHLIFT_MIXED_PRECISION says, else "no".
        gradient_accumulation_steps: batches per optimizer step, for `accumulate`.
        cpu: stay on the CPU even where there is an accelerator.
        dataloader_config: further settings of loaders.
        log_with: trackers: a name ("tensorboard", "wandb", "jsonl", ...; "all" for those that are installed), a
            `GeneralTracker`, or a list of them.
        project_dir: the folder of the project, for checkpoints and logs.
        project_config: further settings of the project: how checkpoints are named, and how many are kept.
        step_scheduler_with_optimizer: prepared schedulers follow the steps of their optimizer; False: every call of
            `scheduler.step()` is one step. `step_with_optimizer` is another name for it.
        rng_types: random numbers that are made those of rank 0 at the start of every pass over the data. The order of
            samples is, in any case.
        gradient_accumulation_plugin: further settings of `accumulate`.
        kwargs_handlers: settings that are handed on to torch: AutocastKwargs, GradScalerKwargs,
            DistributedDataParallelKwargs, InitProcessGroupKwargs, ProfileKwargs, AORecipeKwargs; one of each. Another
            name for it: `kwarg_handler`.
        dynamo_backend: compile models with this back end of `torch.compile`, in place.
        dynamo_plugin: the same with further settings.
        fsdp_plugin: every process keeps a part of each weight, of its gradient and of the optimizer's state. On one
            process it changes nothing.
        parallelism_config: how processes are divided: how many copies there are of a model, and among how many
            processes each is sharded.

    Raises:
        NotAvailableYet: an argument asks for something that is not there yet.
        MixedUseError, UnknownWordError, TopologyError: settings that cannot be.
    """

    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: str | None = None,
        gradient_accumulation_steps: int = 1,
        cpu: bool = False,
        dataloader_config: DataLoaderConfiguration | None = None,
        deepspeed_plugin: None = None,
        fsdp_plugin: FullyShardedDataParallelPlugin | None = None,
        torch_tp_plugin: None = None,
        megatron_lm_plugin: None = None,
        rng_types: list[str] | None = None,
        log_with: Any = None,
        project_dir: PathLike | None = None,
        project_config: ProjectConfiguration | None = None,
        gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
        step_scheduler_with_optimizer: bool = True,
        kwargs_handlers: list[KwargsHandler] | None = None,
        dynamo_backend: str | None = None,
        dynamo_plugin: TorchDynamoPlugin | None = None,
        deepspeed_plugins: None = None,
        parallelism_config: ParallelismConfig | None = None,
        kwarg_handler: list[KwargsHandler] | None = None,
        step_with_optimizer: bool | None = None,
        **newer: NoReturn,
    ) -> None:
        refuse_newer("Accelerator", newer, locals().keys() - {"newer"})
        refuse_arguments(locals())
        self._settings = resolve(
            read_environment(),
            device_placement=device_placement,
            split_batches=split_batches,
            mixed_precision=mixed_precision,
            gradient_accumulation_steps=gradient_accumulation_steps,
            cpu=cpu,
            dataloader_config=dataloader_config,
            step_scheduler_with_optimizer=(
                step_scheduler_with_optimizer if step_with_optimizer is None else step_with_optimizer
            ),
            gradient_accumulation_plugin=gradient_accumulation_plugin,
            kwargs_handlers=either("kwargs_handlers", kwargs_handlers, "kwarg_handler", kwarg_handler),
            dynamo_backend=dynamo_backend,
            dynamo_plugin=dynamo_plugin,
            rng_types=rng_types,
            fsdp_plugin=fsdp_plugin,
            parallelism_config=parallelism_config,
        )
        if group.left():  # another training of the same script
            PartialState._reset_state()
        self._place = PartialState(cpu=self._settings.cpu, **vars(self._settings.joining))
        if self._settings.tf32 is not None:
            let_round(self.device, self._settings.tf32)
        self._world = World(self.process_index, self.num_processes, self.device)
        share_unseeded(self._world)
        autocast = self._settings.autocast
        self._precision = Precision(
            self._settings.mixed_precision, self.device.type, autocast.enabled, autocast.cache_enabled
        )
        self._progress = Progress()
        self._progress.gradient_state = state.GradientState(accelerator=self)
        self._hand_batches = HandBatches(self._world, self._progress)
        plugin = self._settings.accumulation
        self._windows = Windows(
            plugin.num_steps or 1, self._progress.innermost, plugin.sync_with_dataloader, plugin.exact_windows
        )
        self.scaler = self._precision.scaler(**self._settings.scaler.to_kwargs())
        if self._settings.sanitize:
            from ..monitoring.sanitizer.start import with_the_accelerator  # not needed by most

            with_the_accelerator()
        self._monitor = Monitor(self._settings.monitor and not self._world.alone and self._world.speaks)
        self._prepared = Preparation(
            self._settings,
            self._world,
            self.device,
            self._precision,
            self._progress,
            self._windows,
            self.scaler,
            self._monitor,
        )
        self.project_configuration = project(project_dir, project_config)
        writes = self.is_local_main_process if self.project_configuration.save_on_each_node else self.is_main_process
        self._checkpoints = Checkpoints(
            self._world, writes, self._prepared, self.project_configuration, self.scaler, self._windows
        )
        self._is_main = self.is_main_process
        self._trackers = Trackers(log_with, self.logging_dir, self.is_main_process)
        self._trigger = False
        self._loader_config = dataloader_config or DataLoaderConfiguration(split_batches=self._settings.split_batches)
        state.remember(self)

    def __getattr__(self, name: str) -> Any:
        """What scripts read beside what is documented."""
        return state.attribute(self, name)

    # ---------------------------------------------------------------- settings

    @property
    def mixed_precision(self) -> str:
        """The word for what forward passes compute in: "no", "bf16", "fp16", "fp8" or "int8"."""
        return str(self._settings.mixed_precision)

    @property
    def split_batches(self) -> bool:
        """Every batch of the script is shared among the processes."""
        return self._settings.split_batches

    @property
    def dataloader_config(self) -> DataLoaderConfiguration:
        """How loaders are prepared. May be set; it counts for those that are prepared from now on."""
        return self._loader_config

    @dataloader_config.setter
    def dataloader_config(self, config: DataLoaderConfiguration) -> None:
        self._settings = with_loaders(self._settings, config)
        self._prepared.configure(self._settings)
        self._loader_config = config

    @property
    def even_batches(self) -> bool:
        """With batches per process: the last round is completed from the start of the data set."""
        return self._prepared.even_batches

    @even_batches.setter
    def even_batches(self, even: bool) -> None:
        self._prepared.even_batches = even

    @property
    def gradient_accumulation_steps(self) -> int:
        """Batches per optimizer step. May be set; it counts from the next window on."""
        return self._windows.steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, steps: int) -> None:
        length = window_length("gradient_accumulation_steps", steps)
        self._windows.steps = self._windows.divisor = length

    @property
    def sync_gradients(self) -> bool:
        """This is the last batch of a window: gradients are exchanged and optimizers step."""
        return self._windows.sync

    @sync_gradients.setter
    def sync_gradients(self, sync: bool) -> None:
        self._windows.sync = sync

    @property
    def step(self) -> int:
        """Batches that have entered `accumulate` since the data ended last. May be set: windows then begin anew."""
        return self._windows.entries

    @step.setter
    def step(self, step: int) -> None:
        self._windows.reset(step)

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """A prepared optimizer left out its last step because gradients had overflowed (fp16)."""
        return any(gate.skipped for gate in self._prepared.gates)

    # ---------------------------------------------------------------- preparing

    def prepare(self, *args: Any, device_placement: list[bool | None] | None = None) -> Any:
        """
        Make things ready for this process.

        Models, optimizers and schedulers are returned as the objects they are. Loaders are returned as new loaders of
        their own class; the given ones stay usable. Lists, tuples and dicts are prepared element by element. Anything
        else, and what has been prepared before, comes back unchanged.

        Args:
            args: any number of things, in any order.
            device_placement: for each thing, whether it is moved to the device.

        Returns:
            The thing itself for one argument, else a tuple in the order of the arguments.

        Raises:
            ValueError: `device_placement` has another length.
        """
        _ = self._place  # an error where it was to be forgotten
        places: list[bool | None] = [None] * len(args) if device_placement is None else list(device_placement)
        if len(places) != len(args):
            raise MixedUseError(
                f"device_placement has {len(places)} entries for {len(args)} things; give one for each."
            )
        done = self._prepared.all_of(args, places)
        return done[0] if len(done) == 1 else tuple(done)

    def prepare_model(
        self, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> nn.Module:
        """Prepare one model. In `evaluation_mode` it is placed, and no gradients are exchanged for it."""
        return self._prepared.model(model, device_placement, evaluation_mode)

    def prepare_optimizer(self, optimizer: Optimizer, device_placement: bool | None = None) -> Optimizer:
        """Prepare one optimizer; it stays the same object."""
        return self._prepared.optimizer(optimizer, device_placement)

    def prepare_scheduler(self, scheduler: LRScheduler) -> LRScheduler:
        """Prepare one scheduler, after its optimizer; it stays the same object."""
        return self._prepared.scheduler(scheduler)

    def prepare_data_loader(
        self, data_loader: DataLoader[T], device_placement: bool | None = None, slice_fn_for_dispatch: Any = None
    ) -> DataLoader[T]:
        """
        Prepare one loader: a new one of the same class that gives this process its shard.

        Raises:
            NotAvailableYet: a function that cuts batches. Rows are cut from tensors, and from lists of one entry a row.
        """
        if slice_fn_for_dispatch is not None:
            raise NotAvailableYet("prepare_data_loader(slice_fn_for_dispatch=...)", "Leave it out.")
        return self._prepared.loader(data_loader, device_placement)

    def skip_first_batches(self, dataloader: DataLoader[T], num_batches: int = 0) -> DataLoader[T]:
        """
        A loader that leaves out the first batches of a pass, to continue one that was interrupted.

        Go back to the given loader for the next pass. Both count the same epochs, and the order is that of the epoch.

        Args:
            dataloader: prepared or not.
            num_batches: batches of this process.
        """
        skipping: DataLoader[T] = skip_first_batches(dataloader, num_batches)
        return skipping

    def pace(self, dataloader: DataLoader[Any]) -> Pace:
        """
        How long a loop takes for a batch, and which part of that it waits for data, since this was asked last.

        On this process, in seconds of the wall clock; nothing is exchanged.

        Args:
            dataloader: a prepared one.

        Raises:
            WrongKindError: it is not.
        """
        return pace_of(dataloader)

    def unwrap_model(self, model: Any, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True) -> Any:
        """
        The plain model. A prepared model is plain already; foreign wrappers (DDP, torch.compile) are looked through.

        Args:
            model: is not changed.
            keep_fp32_wrapper: False: a `forward` that others have kept as `_original_forward` is put back.
            keep_torch_compile: what `torch.compile(model)` made stays compiled, without the wrappers in it.
        """
        return extract_model_from_parallel(model, keep_fp32_wrapper, keep_torch_compile)

    def verify_device_map(self, model: nn.Module) -> bool:
        """Whether the layers of a model lie on several devices (a `device_map` of Hugging Face)."""
        return spread(model)

    def to_device(self, tree: Tree, non_blocking: bool = False) -> Tree:
        """Move every tensor of a tree, and everything else that has `.to`, to `device`."""
        return send_to_device(tree, self.device, non_blocking)

    # ---------------------------------------------------------------- around

    def profile(self, profile_handler: ProfileKwargs | None = None) -> AbstractContextManager[Any]:
        """A context that profiles its body as the handler says; with `output_trace_dir`, every process writes there."""
        return profile(profile_handler or one_of(self._settings.handlers, ProfileKwargs), self.process_index)

    # ---------------------------------------------------------------- the end

    def free_memory(self, *objects: Any) -> list[None]:
        """Let go of everything that was prepared. Returns as many Nones as there are arguments."""
        self._prepared.clear()
        clear_device_cache(garbage_collection=True)
        return [None] * len(objects)

    def clear(self, *objects: Any) -> list[None]:
        """The same as `free_memory`."""
        return self.free_memory(*objects)

    def end_training(self) -> None:
        """Finish the trackers, and leave the process group. The latter happens by itself when the script ends."""
        self._trackers.finish()
        group.leave()

    def __deepcopy__(self, memo: dict[int, Any]) -> Accelerator:
        """A job has one accelerator: copies of what holds it share it."""
        return self

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """In a pickle it is a handle: what is read again holds the accelerator of the process that reads."""
        return found_again, (name_of(self),)
