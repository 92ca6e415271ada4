"""What `Accelerator.prepare` does with each kind of thing."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from ..classes import MARK
from ..collectives.gather import gather_pieces
from ..collectives.objects import broadcast_objects
from ..collectives.world import World
from ..config.settings import Settings
from ..data.epochs import seed_of
from ..data.loader import LoaderOptions, made_by_hand, prepare_loader, set_even_batches
from ..data.loader import is_prepared as is_prepared_loader
from ..data.progress import Progress
from ..device.kinds import kind_of
from ..device.placement import move_module
from ..device.precision import Precision
from ..errors import MixedUseError, NotAvailableYet, UnclearBatchError, expect
from ..gradients.optimizer import Gate, gate_of, prepare_optimizer, state_to_device, update_scale
from ..gradients.scheduler import Counting, Ticks, made_after_its_optimizer, prepare_scheduler
from ..gradients.scheduler import is_prepared as is_prepared_scheduler
from ..gradients.window import Windows
from ..monitoring.monitor import Monitor
from ..process.rng import part_noise
from ..strategies.compiling import compile_in_place
from ..strategies.data_parallel import DataParallelEngine
from ..strategies.eight_bits import Converted, convert
from ..strategies.extend import extend, restore
from ..strategies.join import joined
from ..strategies.strategy import PrecisionEngine, TrainingEngine
from ..strategies.unwrap import spread
from .all_devices import AllDevices
from .sharded_models import ShardedModels, modules_in
from .unfit import check_device_map, check_unknown

T = TypeVar("T", bool, int)


def _weakly(method: Callable[[], T]) -> Callable[[], T]:
    """A method that does not keep its object alive; what its type is when empty, once that is gone."""
    reference = weakref.WeakMethod(method)

    def call() -> T:
        found = reference()
        return found is not None and found()

    return call


class Preparation:
    """
    Prepares things, and remembers what it has prepared.

    Args:
        settings: of the accelerator.
        world: the processes.
        device: where things go.
        precision: of forward passes.
        progress: of the loaders.
        windows: of accumulation.
        scaler: for fp16; None otherwise.
        monitor: hears which models are kept equal.
    """

    def __init__(
        self,
        settings: Settings,
        world: World,
        device: torch.device,
        precision: Precision,
        progress: Progress,
        windows: Windows,
        scaler: torch.amp.GradScaler | None,
        monitor: Monitor,
    ) -> None:
        self._settings = settings
        self._world = world
        self._device = device
        self._precision = precision
        self._progress = progress
        self._windows = windows
        self._scaler = scaler
        self._monitor = monitor
        self._sharded = ShardedModels(settings, world, precision)
        self._all_devices: AllDevices | None = None
        if kind_of(device).drives_all:
            self._all_devices = AllDevices(settings, world, precision, _weakly(self._optimizers))
        self._noise_parted = False
        self.even_batches = settings.even_batches
        """For loaders that are prepared from now on."""
        self._loss_factor: float | None = None
        """What the loss of a batch of this process counts in the mean over all processes; None before the first one."""
        self.models: list[nn.Module] = []
        self._converted: list[Converted] = []
        """Layers that multiply in eight bits."""
        self._coming: list[nn.Module] = []
        """Those of the call that is under way."""
        self.engines: dict[int, TrainingEngine] = {}
        """Those that exchange gradients, by the identity of their model."""
        self.gates: list[Gate] = []
        self.schedulers: list[LRScheduler] = []
        self.loaders: list[DataLoader[Any]] = []
        progress.watch = monitor.handed_out
        progress.evaluates = _weakly(
            self._evaluates
        )  # loaders know of the progress, and live no longer than the script

    def _optimizers(self) -> int:
        return len(self.gates)

    def _evaluates(self) -> bool:
        return bool(self.models) and not any(model.training for model in self.models)

    def configure(self, settings: Settings) -> None:
        """Prepare what comes from now on in another way."""
        self._settings = settings
        self.even_batches = settings.even_batches

    def all_of(self, things: tuple[Any, ...], placements: list[bool | None]) -> list[Any]:
        """Prepare many things: models, optimizers and loaders first, then schedulers, which ask their optimizers."""
        self._coming = modules_in(things)
        first = [self._walk(thing, place, False) for thing, place in zip(things, placements, strict=True)]
        done = [self._walk(thing, place, True) for thing, place in zip(first, placements, strict=True)]
        self._coming = []
        if self.models and not self._noise_parted:  # a model that is still to be built has the same weights everywhere
            self._noise_parted = True
            self._part_noise()
        return done

    def _part_noise(self) -> None:
        """Let every process draw its own noise from now on; a script that has seeded them by rank has done that."""
        if self._world.alone:
            return
        seeds = {seed for (seed,) in self._world.gather_numbers([torch.initial_seed() % 2**63])}
        if len(seeds) < self._world.size:
            part_noise(self._world.rank)

    def _walk(self, thing: Any, place: bool | None, schedulers: bool) -> Any:
        if type(thing) in (list, tuple):
            new = [self._walk(item, place, schedulers) for item in thing]
            same = all(a is b for a, b in zip(new, thing, strict=True))
            return thing if same else type(thing)(new)
        if type(thing) is dict:
            items = {key: self._walk(value, place, schedulers) for key, value in thing.items()}
            return thing if all(items[key] is thing[key] for key in items) else items
        if schedulers:
            return self.scheduler(thing) if isinstance(thing, LRScheduler) else thing
        return self._one(thing, place)

    def _one(self, thing: Any, place: bool | None) -> Any:
        if isinstance(thing, nn.Module):
            return self.model(thing, place)
        if isinstance(thing, Optimizer):
            return self.optimizer(thing, place)
        if isinstance(thing, DataLoader):
            return self.loader(thing, place)
        check_unknown(thing)
        return thing

    def _places(self, place: bool | None) -> bool:
        return self._settings.device_placement if place is None else place

    def model(self, model: nn.Module, place: bool | None = None, evaluation_mode: bool = False) -> nn.Module:
        """The same model: on the device, in the precision, equal on all processes."""
        expect("prepare_model", model, nn.Module, "a model, an object of nn.Module")
        if any(model is known for known in self.models):
            return model
        check_device_map(model, self._world)
        self.models.append(model)
        if self._settings.recipe is not None:
            first = self._world.rank == 0
            self._converted += convert(model, self._precision.word, self._settings.recipe, self._device, first)
        model.__dict__[MARK] = True
        if self._all_devices is not None:
            on_all = self._all_devices.model(model, not evaluation_mode)
            if not evaluation_mode:
                self._add(on_all)
            return model
        if self._sharded.shards(model) and not evaluation_mode:
            known = [*self.models, *self._coming]
            self._add(self._sharded.shard(model, known, self._scaler, self._settings.parallel.broadcast_buffers))
            return model
        if self._places(place) and not spread(model):
            move_module(model, self._device)
        if self._settings.dynamo.wanted and not evaluation_mode:
            compile_in_place(model, self._settings.dynamo)
        foreign = isinstance(model, DistributedDataParallel)
        if foreign:
            self._monitor.keeps_equal(model)
        holds = any(True for _ in model.parameters()) or any(True for _ in model.buffers())
        if self._world.alone or foreign or evaluation_mode:
            if self._precision.mixed and holds:
                extend(model, PrecisionEngine(self._precision))
            return model
        engine = DataParallelEngine(model, self._world, self._precision, self._settings.parallel)
        self._add(engine)
        if not extend(model, engine):
            engine.outlive()
        return model

    @property
    def mesh(self) -> Any:
        """The processes as a mesh; None where nothing is sharded."""
        return self._sharded.mesh

    def _add(self, engine: TrainingEngine) -> None:
        """An engine begins its work: it knows the optimizers, and others hear of its exchanges."""
        model = engine.model
        engine.when_plain.append(self._check_plain)
        engine.when_equal.append(self._equal)
        if self._settings.parallel.broadcast_buffers and any(True for _ in model.buffers()):
            engine.when_equal.append(self._buffers_are_equal)
        self.engines[id(model)] = engine
        for gate in self.gates:
            engine.wire(gate.optimizer)
        self._monitor.keeps_equal(model)

    def _check_plain(self) -> None:
        """
        A backward pass that the script runs by itself gives a loss no weight.

        Raises:
            UnclearBatchError: batches are split, and shards of this loop can be uneven.
        """
        one = self._progress.innermost()
        if self._progress.asks and one is not None and not one.plan.even and one.handed and one.handed[-1].trains:
            raise UnclearBatchError(
                "loss.backward() was called in a loop over batches whose shards can be uneven (split_batches=True): "
                "each loss counts by the rows of its shard, and only accelerator.backward(loss) does that. For a loss "
                "of other data: accelerator.backward(loss, batch=None). Or use Accelerator(split_batches=False)."
            )

    def _buffers_are_equal(self, engine: TrainingEngine) -> None:
        if engine.model.training:
            self._monitor.made_equal(engine.model)

    def optimizer(self, optimizer: Optimizer, place: bool | None = None) -> Optimizer:
        """The same optimizer: it steps when a window is complete and nothing has overflowed."""
        expect("prepare_optimizer", optimizer, Optimizer, "an optimizer of torch, or of a class made from one")
        if gate_of(optimizer) is None:
            for engine in self.engines.values():
                engine.wire(optimizer)
            if self._places(place):
                state_to_device(optimizer)
            agree = None if self._world.alone else self._agree_on_loss
            before = None if self._world.alone else self._before_step
            after = None if self._all_devices is None else self._all_devices.after_step
            hooks = (agree, before, self._zeroed, after)
            self.gates.append(prepare_optimizer(optimizer, self._windows, self._scaler, *hooks))
        return optimizer

    def _zeroed(self, gate: Gate) -> None:
        """An optimizer has dropped its gradients: also what waits for an exchange."""
        owned = [one for group in gate.optimizer.param_groups for one in group["params"]]
        for engine in self.engines.values():
            engine.forget(owned)

    def _before_step(self, _gate: Gate) -> None:
        """An optimizer is about to step, on all processes."""
        for engine in self.engines.values():
            engine.look()

    def _equal(self, engine: TrainingEngine) -> None:
        """The gradients of a model are those of all processes, on all of them."""
        for other in self.engines.values():
            if other is not engine:
                other.another_is_equal()

    def update_scale(self) -> None:
        """The steps that belong to the last scaled loss have been made: the scaler may choose another scale."""
        update_scale(self.gates, self._scaler)

    def check_known(self, optimizers: Iterable[Optimizer]) -> None:
        """
        Where gradients are scaled, make sure that optimizers have been prepared.

        Raises:
            MixedUseError: one has not.
        """
        for one in optimizers:
            if self._scaler is not None and gate_of(one) is None:
                raise MixedUseError(
                    f"this {type(one).__name__} has not been prepared: its gradients are not known to be scaled. "
                    "Hand it to accelerator.prepare."
                )

    def scheduler(self, scheduler: LRScheduler) -> LRScheduler:
        """The same scheduler: it moves on with its optimizer."""
        expect("prepare_scheduler", scheduler, LRScheduler, "a scheduler of torch.optim.lr_scheduler")
        if not is_prepared_scheduler(scheduler):
            gate = gate_of(getattr(scheduler, "optimizer", None))
            by_one = self._progress.length_asked and made_after_its_optimizer(scheduler, gate)
            coupled = self._settings.step_scheduler_with_optimizer
            counting = Counting(self._windows, self._script_batches, self._agree, coupled)
            prepare_scheduler(scheduler, Ticks(counting, self.gates if gate is None else [gate], by_one))
            self.schedulers.append(scheduler)
        return scheduler

    def _script_batches(self) -> int:
        """How many batches of the script the step in hand was made from."""
        if self._settings.split_batches:
            return 1
        one = self._progress.innermost()
        if one is None or one.shares is None or self._windows.steps > 1:
            return self._world.size
        return sum(1 for rows in one.shares.valid if rows) or 1

    def _agree(self, metric: float) -> float:
        """The mean of a metric over the processes; itself, to the last bit, where all have the same."""
        values = self._of_all(metric)
        return metric if len(set(values)) == 1 else sum(values) / len(values)

    def _of_all(self, number: float) -> list[float]:
        """What each process has of a number, by rank."""
        if self._world.alone:
            return [number]
        (pieces,) = gather_pieces(self._world, [torch.tensor(number, dtype=torch.float64)]).pieces
        return [float(one) for one in torch.cat(pieces)]

    def note_loss(self, factor: float, of_a_batch: bool) -> None:
        """What a loss counts. One of other data counts alike on all processes, and does not decide."""
        if of_a_batch or self._loss_factor is None:
            self._loss_factor = factor

    def _agree_on_loss(self, closure: Callable[[], Any]) -> Any:
        """What a closure returns, as a number of the whole batch; None where it returns nothing."""
        self._loss_factor = None
        loss = closure()
        if loss is None:
            return None
        value = loss.item() if isinstance(loss, torch.Tensor) else float(loss)
        if len(set(self._of_all(value))) > 1:  # what all have is of the whole batch already: the closure has joined it
            value = self._agree(value * (1.0 if self._loss_factor is None else self._loss_factor))
        return loss.new_tensor(value) if isinstance(loss, torch.Tensor) else value

    def loader(self, loader: DataLoader[Any], place: bool | None = None) -> DataLoader[Any]:
        """A loader of the same class that gives this process its shard."""
        expect("prepare_data_loader", loader, DataLoader, "a torch.utils.data.DataLoader. Make one of the data set")
        if is_prepared_loader(loader) and not made_by_hand(loader):
            return loader
        options = LoaderOptions(
            world=self._world,
            progress=self._progress,
            device=self._device if self._places(place) else None,
            non_blocking=self._settings.non_blocking,
            split=self._settings.split_batches,
            even=self.even_batches,
            dispatch=self._settings.dispatch_batches,
            seed=seed_of(self._world, self._settings.data_seed) if self._settings.use_seedable_sampler else None,
            rng_types=self._settings.rng_types,
            stateful=self._settings.stateful,
            buckets=self._settings.buckets,
        )
        prepared = prepare_loader(loader, options)
        self.loaders.append(prepared)
        self._monitor.shares_rows()
        return prepared

    def engines_of(self, models: Iterable[Any]) -> list[TrainingEngine]:
        """
        The engines of some models, of all when none is named.

        One that holds a prepared model (a wrapper), or is a part of one, stands for it; one that has nothing to do with
        any has no engine.
        """
        named = list(models)
        if not named:
            return list(self.engines.values())
        if all(id(model) in self.engines for model in named):
            return [self.engines[id(model)] for model in named]
        modules = [model for model in named if isinstance(model, nn.Module)]
        return [e for e in self.engines.values() if any(_holds(m, e.model) or _holds(e.model, m) for m in modules)]

    @contextmanager
    def even_batches_as(self, even: bool) -> Iterator[None]:
        """Whether rounds are completed, for passes that begin in the body."""
        before = [(loader, set_even_batches(loader, even)) for loader in self.loaders]
        if any(was is None for _, was in before) and not self._world.alone:
            warnings.warn(
                "Overriding even_batches is only supported for map-style datasets that prepare shares by rounds; other "
                "loaders go on as they are.",
                stacklevel=4,
            )
        try:
            yield
        finally:
            for loader, was in before:
                if was is not None:
                    set_even_batches(loader, was)

    def joined(self, models: Iterable[Any]) -> AbstractContextManager[None]:
        """Train some models with inputs that may end earlier on some processes."""
        engines = self.engines_of(models) or self.engines_of(())
        replicated = [engine for engine in engines if isinstance(engine, DataParallelEngine)]
        if len(replicated) < len(engines):
            raise NotAvailableYet(
                "join_uneven_inputs with sharded models",
                "Prepare the loaders: they give every process as many batches.",
            )
        return joined(self._world, replicated, self._optimizers_as_on)

    def _optimizers_as_on(self, rank: int) -> None:
        """What optimizers have remembered (momentum, for one) becomes that of one process."""
        for gate in self.gates:
            (state,) = broadcast_objects(self._world, [gate.optimizer.state_dict()], rank)
            if self._world.rank != rank:
                gate.optimizer.load_state_dict(state)

    def gradients_of(self, models: Iterable[Any]) -> list[torch.Tensor]:
        """What has been collected for some models; for all when none is named. Each once."""
        found = [one.grad for one in self._parameters_of(models) if one.grad is not None]
        return [*found, *(one for engine in self.engines_of(models) for one in engine.collected())]

    def _parameters_of(self, models: Iterable[Any]) -> list[torch.Tensor]:
        """The parameters of some models; of all when none is named. Each once."""
        chosen = [model for model in models if isinstance(model, nn.Module)] or self.models
        found = {id(p): p for model in chosen for p in model.parameters()}
        if chosen is self.models:
            owned = (p for gate in self.gates for group in gate.optimizer.param_groups for p in group["params"])
            found.update((id(p), p) for p in owned)
        return list(found.values())

    def clear(self) -> None:
        """Let go of everything; models get their own classes back."""
        self._monitor.lets_go(self.models)
        for engine in self.engines.values():
            engine.release()
        for layer in self._converted:
            layer.undo()
        for model in self.models:
            model.__dict__.pop(MARK, None)
            restore(model)
        for held in (self._converted, self.models, self.engines, self.gates, self.schedulers, self.loaders):
            held.clear()
        self._windows.reset()
        self._progress.clear()


def _holds(outer: nn.Module, inner: nn.Module) -> bool:
    return any(part is inner for part in outer.modules())
