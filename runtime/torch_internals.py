"""
The private names of torch that the runtime uses: all of them, each with its reason.

Nobody promises that they stay. They were run with torch 2.13.0, and looked up in the files of torch 2.6.0, the oldest
version that is asked for. What can be done without one is, where a version of torch lacks it; for the others the import
of this module fails, and says what is missing.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from inspect import signature
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel, distributed

from .errors import UnknownTorchError

RUN_WITH = ("2.13.0",)
"""The versions of torch that the tests were run with."""
LOOKED_UP_IN = ("2.6.0",)
"""Versions in whose files the names were found."""

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket, Reducer, Store

T = TypeVar("T")

OVERRIDDEN = {
    "_auto_collation": "of DataLoader: a loader that reads shares of a stream collates by itself",
    "_index_sampler": "of DataLoader: what its workers are told to read is the shard of this process",
    "_get_iterator": "of DataLoader: where every pass begins; it keeps the class and `__iter__` of the script",
    "_reset": "of the iterators of DataLoader: how a loader asks workers that persist for another pass",
    "_iterator": "of DataLoader: the iterator whose workers persist; a loader made from another must not share it",
    "_sampler_iter": "of the iterators of DataLoader: what they draw from, when batches are skipped",
    "_num_yielded": "of the iterators of torchdata: how many batches one that goes on has read",
    "_initial_iter_for_state_dict": "of torchdata's StatefulDataLoader: what its `__init__` would set",
    "_num_samples": "of RandomSampler: None where the length of the data set decides; `num_samples` is a number then",
    "_wrapped_by_lr_sched": "set by LRScheduler on the step of its optimizer, which then counts: two would count twice",
    "_step_count": "of LRScheduler: where a schedule of a fixed length has got to",
    "_orig_mod": "of what torch.compile makes of a module: the module",
    "_modules": "of nn.Module: asked without going through a `__getattr__` of the script",
    "_parameters": "as _modules",
}
"""
Attributes that must be spelled where they are overridden or read, because they are names in classes of ours, too.

The test of this module knows them from here, and finds every other private name outside of it.
"""


def _has(path: str) -> bool:
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            return False
    return True


_NEEDED = {
    "_C._current_graph_task_id": "tells backward passes apart",
    "nn.Module._call_impl": "tells frames of a forward pass from those of a script; compiled for a class of torch.nn",
    "autograd.Variable._execution_engine.queue_callback": "says that a backward pass is over",
}


def _check() -> None:
    missing = [f"torch.{path} ({why})" for path, why in _NEEDED.items() if not _has(path)]
    if missing:
        raise UnknownTorchError(
            f"torchlift.runtime cannot work with torch {torch.__version__}, which lacks {' and '.join(missing)}. "
            f"It was tried with {', '.join(RUN_WITH)}: install that version of torch, or a newer torchlift."
        )


_check()

# ---------------------------------------------------------------- devices


def is_lost_to_forks(module: Any) -> bool:
    """Whether a fork of this process could use none of the devices of a module (`torch.cuda`): only a fork knows."""
    told = getattr(module, "_is_in_bad_fork", None)
    if told is None or not hasattr(os, "fork"):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are threads: this fork asks one question, and ends
        child = os.fork()
    if not child:
        answer = False
        try:
            answer = bool(told())
        finally:
            os._exit(int(answer))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


# ---------------------------------------------------------------- modules


def code_of_a_call() -> CodeType:
    """What runs when a module is called: a frame of it says that the frames above belong to a forward pass."""
    return nn.Module._call_impl.__code__


def compile_call(module: nn.Module, **arguments: Any) -> None:
    """
    As `module.compile`, also where the class is one of torch.nn, as `nn.Sequential`.

    Frames of such a class are none that the compiler looks at by itself: its `compile` does nothing, without a word.
    The module is an argument, not part of a closure: blocks that are alike share what is compiled.
    """
    module._compiled_call_impl = partial(torch.compile(_call, **arguments), module)


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]


# ---------------------------------------------------------------- backward passes


def backward_pass() -> int:
    """The number of the backward pass that this thread is in; -1 outside of all."""
    return torch._C._current_graph_task_id()


def when_backward_is_over(call: Callable[[], None]) -> None:
    """Call something at the end of the backward pass that this thread is in; not if that fails."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def heard_by_others(parameter: torch.Tensor) -> bool:
    """Somebody else, too, has a hook where gradients are accumulated; it may use them up."""
    hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
    return hooks is not None and len(hooks) > 1


def is_hooked(parameter: torch.Tensor) -> bool:
    """A hook of the script is called with the gradients of a parameter."""
    return bool(getattr(parameter, "_backward_hooks", None)) or heard_by_others(parameter)


_CLOCK = _has("_C._autograd._get_sequence_nr")


def graph_clock() -> int:
    """The number that the next node of a graph will get in this thread; -1 where torch does not say."""
    return torch._C._autograd._get_sequence_nr() if _CLOCK else -1


def number_in_graph(loss: torch.Tensor) -> int | None:
    """The number of the last node of the graph of a loss; None where there is none."""
    return None if loss.grad_fn is None or not _CLOCK else loss.grad_fn._sequence_nr()


_SAVED = "_raw_saved_"


def saved_by(node: Any) -> Iterator[torch.Tensor]:
    """
    Tensors that a node of a graph has kept for its backward pass, except for those that something else keeps for it.

    To ask for those would run it: a checkpoint, for one, computes its part of the model again.
    """
    for name in _saved_names(node.__class__):
        try:
            kept = getattr(node, name, ())
        except RuntimeError:  # a backward pass has used it up
            continue
        for one in kept if isinstance(kept, (list, tuple)) else (kept,):
            tensor = getattr(one, "data", None) if getattr(one, "unpack_hook", None) is None else None
            if isinstance(tensor, torch.Tensor):
                yield tensor


@cache
def _saved_names(kind: type[object]) -> list[str]:
    return [name for name in dir(kind) if name.startswith(_SAVED)]


# ---------------------------------------------------------------- the reducer of DistributedDataParallel


_REDUCER = ("_reset_state", "_remove_autograd_hooks", "_check_reducer_finalized", "_get_zeros_like_grad_buckets")


def has_reducer() -> bool:
    """All that is used of the reducer is there; without it gradients are exchanged when a pass is over."""
    inner: Any = dist
    counted = hasattr(inner.ProcessGroup, "_get_sequence_number_for_group")
    return counted and hasattr(dist, _DIVIDING) and all(hasattr(inner.Reducer, name) for name in _REDUCER)


_STARTING = ("_verify_param_shape_across_processes", "_sync_module_states")
"""What DistributedDataParallel calls together with the other processes when it is made; `init_sync` leaves it out in
newer versions of torch."""
_DIVIDING = "_compute_bucket_assignment_by_size"
"""Divides parameters among buckets."""


_FIRST_BUCKET = 1 << 20
"""So many bytes leave first, in DDP."""
_BUCKET_MB = 25
"""How much travels at once, in DDP."""


def made_alone(module: nn.Module, bucket_cap_mb: int | None, gradient_as_bucket_view: bool) -> DistributedDataParallel:
    """
    A DistributedDataParallel of parameters that are equal already: to make it takes no call together with others.

    It expects that every backward pass reaches all parameters. Its buckets are those that DDP comes to after its first
    step: counted from the last parameter, whose gradient comes first, so that the small first bucket leaves early.
    """
    limits = [_FIRST_BUCKET, _BUCKET_MB << 20] if bucket_cap_mb is None else [bucket_cap_mb << 20]
    options: dict[str, Any] = {"bucket_cap_mb": bucket_cap_mb, "gradient_as_bucket_view": gradient_as_bucket_view}
    changed: dict[tuple[Any, str], Any] = {(dist, _DIVIDING): _from_the_last(getattr(dist, _DIVIDING), limits)}
    if "init_sync" in signature(DistributedDataParallel.__init__).parameters:
        options["init_sync"] = False
    else:
        changed.update({(distributed, name): _nothing for name in _STARTING})
    before = {(home, name): getattr(home, name) for home, name in changed}
    try:
        for (home, name), call in changed.items():
            setattr(home, name, call)
        return DistributedDataParallel(module, **options)
    finally:
        for (home, name), call in before.items():
            setattr(home, name, call)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Makes nothing equal, and compares nothing."""


def _from_the_last(divided: Callable[..., tuple[list[list[int]], list[int]]], limits: list[int]) -> Callable[..., Any]:
    """Division among buckets that counts from the last tensor; reversed, as DDP reverses what it is given."""

    def from_the_last(tensors: list[torch.Tensor], _limits: list[int], sparse: list[bool]) -> Any:
        buckets, sizes = divided(tensors[::-1], limits, sparse[::-1])
        last = len(tensors) - 1
        return [[last - place for place in bucket] for bucket in reversed(buckets)], sizes[::-1]

    return from_the_last


def forget_pass(reducer: Reducer) -> None:
    """Take a reducer out of a backward pass that has not reached all of its parameters."""
    reducer._reset_state()


def unhook(reducer: Reducer) -> None:
    """Take the hooks of a reducer off the parameters: nothing else releases them while the parameters live."""
    reducer._remove_autograd_hooks()


def finished(reducer: Reducer) -> bool:
    """What a reducer began in the last backward pass is complete."""
    try:
        reducer._check_reducer_finalized()
    except RuntimeError:
        return False
    return True


def calls_made() -> int:
    """How many collective calls the default group has begun on this process."""
    group: Any = dist.group.WORLD
    return int(group._get_sequence_number_for_group())


def counts_calls() -> bool:
    """The default group counts its calls: those of back ends that packages have registered do not (torch 2.13)."""
    if not dist.is_initialized():
        return True
    try:
        calls_made()
    except RuntimeError:
        return False
    return True


def empty_buckets(reducer: Reducer) -> list[GradBucket]:
    """What a reducer exchanges in a backward pass, in order, with zeros for the gradients (torch's Join does so)."""
    return reducer._get_zeros_like_grad_buckets()


# ---------------------------------------------------------------- many tensors at once

_AS_ONE = _has("_C._nn.flatten_dense_tensors")


def _keeps_shapes() -> bool:
    """Pieces without elements have the shapes of their tensors: in older versions of torch they are vectors."""
    if not _has("_C._nn.unflatten_dense_tensors"):
        return False
    (piece,) = torch._C._nn.unflatten_dense_tensors(torch.empty(0), [torch.empty(0, 2)])
    return tuple(piece.shape) == (0, 2)


_LIKE = _keeps_shapes()


def as_one(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Dense tensors of one type, one after another, as a vector: one call instead of one for each and one for all."""
    if _AS_ONE:
        return torch._C._nn.flatten_dense_tensors(tensors)
    return torch.cat([one.reshape(-1) for one in tensors])


def like(flat: torch.Tensor, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The pieces of a vector in the shapes of tensors, as views; what is left over is not asked for."""
    if _LIKE:
        return list(torch._C._nn.unflatten_dense_tensors(flat, tensors))
    lengths = [one.numel() for one in tensors]
    pieces = flat[: sum(lengths)].split(lengths)  # type: ignore[no-untyped-call]
    return [piece.view_as(one) for piece, one in zip(pieces, tensors, strict=True)]


def copy_each(into: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    """Copy tensors into others in one call."""
    if _has("_foreach_copy_"):
        torch._foreach_copy_(into, values)
        return
    for one, value in zip(into, values, strict=True):
        one.copy_(value)


def changes_of(tensors: Iterable[torch.Tensor]) -> int:
    """How often the tensors were changed in place, all together."""
    return sum([one._version for one in tensors])


def lengths_of(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The length of each tensor as a vector, in one call."""
    if _has("_foreach_norm"):
        return list(torch._foreach_norm(tensors))
    return [torch.linalg.vector_norm(one) for one in tensors]


# ---------------------------------------------------------------- modules


Table = Mapping[str, Any]


def tables(model: nn.Module) -> list[Table]:
    """The parameters and the parts of every part of a model, by name; the tables themselves, which stay up to date."""
    parts = [part for part in model.modules() if not isinstance(part, torch.jit.ScriptModule)]
    return [table for part in parts for table in (part._parameters, part._modules)]


def buffers_in(parts: Iterable[nn.Module]) -> list[torch.Tensor]:
    """The buffers that these modules hold themselves, each once, in their order."""
    found = {id(one): one for part in parts for one in part._buffers.values() if one is not None}
    return list(found.values())


_LENDING = ("functional_call.py", "stateless.py")
"""The files of `torch.func.functional_call`, which puts other tensors in the place of weights for one call."""


def weights_are_lent() -> bool:
    """This code is called by `torch.func.functional_call`: what is in the place of weights is not there to stay."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_LENDING) and "torch" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


# ---------------------------------------------------------------- loaders


def iterators_of_loaders() -> Any:
    """The class whose `__next__` every pass over a loader goes through; None where there is none."""
    from torch.utils.data import dataloader

    return getattr(dataloader, "_BaseDataLoaderIter", None)


def data_of(iterator: Any) -> Any:
    """The data set that such an iterator reads, which tells whose pass it is; None where it does not say."""
    return getattr(iterator, "_dataset", None)


def sampler_of(iterator: Any) -> Any:
    """What such an iterator draws rows by; None where it does not say."""
    return getattr(getattr(iterator, "_index_sampler", None), "sampler", None)


# ---------------------------------------------------------------- elsewhere


def default_store() -> Store:
    """The store where the processes of the default group have met: it is there, and a second one would need a port."""
    return dist.distributed_c10d._get_default_store()


def pinned(tree: T) -> T:
    """A tree in page-locked memory, as loaders do it: also objects of the script that have `pin_memory`."""
    from torch.utils.data._utils.pin_memory import pin_memory

    done: T = pin_memory(tree)  # type: ignore[no-untyped-call]
    return done


# ---------------------------------------------------------------- meshes


def join_axes(mesh: Any, axes: list[str], name: str) -> None:
    """Give some axes of a DeviceMesh a joint name, by which `mesh[name]` finds them. Torch has no public way yet."""
    mesh[axes]._flatten(name)
