"""
The private names of torch's `fully_shard` and of its sharded tensors: all of them, each with its reason.

As in `torch_internals`: nobody promises that they stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from types import SimpleNamespace
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch import nn

from .errors import MixedUseError, ShardedTensorError, UnknownTorchError

RUN_WITH = ("2.13.0", "2.14.1")
"""The versions of torch that the tests were run with."""
REFUSED = ("2.9.1", "2.12.1")
"""Versions that the tests were run with, too: some failed."""


def check_torch() -> None:
    """
    Make sure that torch shards weights as it is needed here.

    Raises:
        UnknownTorchError: it is older than 2.13.
    """
    from torch.distributed.fsdp import FSDPModule

    if not hasattr(FSDPModule, "reset_iter_state"):
        raise UnknownTorchError(
            f"weights cannot be sharded with torch {torch.__version__}. Versions before 2.13 have no way on after an "
            "error in a pass, and in some of them figures of sharded weights are wrong without an error (2.9: a mean "
            "where the number of processes does not divide the rows). Install torch 2.13 or newer, or train without "
            "sharding."
        )


def sharded_parts(model: nn.Module) -> list[Any]:
    """
    What `fully_shard` keeps of each weight that it has sharded: `sharded_param` is the parameter of the model outside
    of forward and backward passes, `unsharded_accumulated_grad` what windows without an exchange have collected.
    """
    found: dict[int, Any] = {}
    for state in _states(model):
        found.update((id(part), part) for group in _groups(state) for part in group.fsdp_params)
    return list(found.values())


def _groups(state: Any) -> list[Any]:
    """What is gathered, and exchanged, together."""
    return [group for group in state._fsdp_param_groups if group is not None]


def _states(model: nn.Module) -> Iterator[Any]:
    """What `fully_shard` keeps of each unit."""
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            yield module._get_fsdp_state()


def begin_sharded(root: Any) -> None:
    """
    Do what the first forward pass would do: from now on parts of the model can be called by themselves, and every part
    has its whole parameter, empty between passes. All processes call it.
    """
    root._get_fsdp_state()._lazy_init()
    for module in root.modules():
        if hasattr(module, "unshard") and hasattr(module, "reshard"):
            module.unshard()
            module.reshard()


def whole_parameter(part: Any) -> nn.Parameter:
    """The parameter that passes compute with: gradients of this process are added there, and hooks are called."""
    found: nn.Parameter = part._unsharded_param
    return found


def around_forward(root: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run another method of a sharded model as its forward pass is run (`register_fsdp_forward_method` does so)."""
    state = root._get_fsdp_state()
    args, kwargs = state._pre_forward(root, args, kwargs)
    return state._post_forward(root, args, call(*args, **kwargs))


def is_view(value: object) -> bool:
    """
    A tensor in whose graph torch would lose its hook if it were changed in place (`out += 1`): what a layer returns for
    inputs of three dimensions, for one. Without the hook weights are not gathered for the backward pass.
    """
    return isinstance(value, torch.Tensor) and value.requires_grad and value._base is not None


def stopped_in_a_pass(root: Any) -> bool:
    """A pass has ended in an error, outside of all passes: what it has gathered is still there."""
    states = root._get_fsdp_state()._state_ctx.all_states
    return any(state._training_state.name != "IDLE" for state in states)


def copied_part(tensor: Any) -> tuple[torch.Tensor, str] | None:
    """
    Of a tensor that is sharded in several replicas, the part of this process, and which part it is: one process of each
    replica has it. None for any other tensor.
    """
    if not is_sharded(tensor):
        return None
    mesh, places = tensor.device_mesh, list(enumerate(tensor.placements))
    if all(mesh.size(axis) == 1 for axis, place in places if place.is_replicate()):
        return None
    return tensor.to_local(), ", ".join(str(mesh.get_local_rank(axis)) for axis, place in places if place.is_shard())


def is_uneven(tensor: object) -> bool:
    """A sharded tensor of which some processes have fewer rows than others."""
    return is_sharded(tensor) and tensor.shape[0] % tensor.device_mesh.size(-1) != 0  # type: ignore[attr-defined]


def forget_failed_pass(root: Any) -> None:
    """Take a sharded model out of a pass that has failed; what it has collected without an exchange stays."""
    parts = sharded_parts(root)
    kept = [(part, part.unsharded_accumulated_grad, whole_parameter(part).grad) for part in parts]
    root.reset_iter_state()
    for part, collected, gradient in kept:
        part.unsharded_accumulated_grad, whole_parameter(part).grad = collected, gradient


def hear_backward(root: Any, call: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
    """
    Call something when a backward pass comes to a unit: once its weights are there, and before it exchanges.

    Args:
        root: a sharded model.
        call: what is called.
        failed: is called with the error, where gathering or exchanging ends in one.
    """
    for state in _states(root):
        _call_with(state, "_pre_backward", call, failed, after=True)
        for group in _groups(state):
            _call_with(group, "post_backward", call, failed, after=False)


def _call_with(
    owner: Any, name: str, call: Callable[[], None], failed: Callable[[BaseException], None], after: bool
) -> None:
    """Let a method of one object call something else, too."""
    own = getattr(owner, name)

    def both(*given: Any) -> Any:
        if not after:
            call()
        try:
            answer = own(*given)
        except RuntimeError as error:
            failed(error)
            raise
        if after:
            call()
        return answer

    setattr(owner, name, both)


def keep_gathered(parts: list[Any]) -> None:
    """
    From now on, whole weights stay in memory where torch would free them: a graph of a backward pass computes with them
    wherever it is run, before torch hears of it. All else is as before: they are gathered again, into the same memory.
    """
    for part in parts:
        part.free_unsharded_param = _nothing


def give_up_gathered(parts: list[Any]) -> None:
    """The end of `keep_gathered`."""
    for part in parts:
        if vars(part).pop("free_unsharded_param", None) and part.sharded_state.name != "UNSHARDED":
            part.free_unsharded_param()


def end_with_exchange(root: Any) -> None:
    """At the end of the backward pass that is under way, gradients are exchanged, also if it comes by no output."""
    root._get_fsdp_state()._register_root_post_backward_final_callback()


def exchange_rest(root: Any) -> None:
    """Exchange gradients that have come after those of their unit were exchanged. All processes call it."""
    root._get_fsdp_state()._root_post_backward_final_callback()


def _nothing() -> None:
    """Stands for a method that is not to run."""


def move_hooks(source: torch.Tensor, whole: torch.Tensor, sharded: torch.Tensor | None = None) -> None:
    """
    Let others call the hooks of a parameter; the handles that the script holds take them off there.

    Args:
        source: the parameter; of a sharded model, hooks of gradients are not called there.
        whole: calls hooks of gradients, with those of this process, as other strategies do.
        sharded: calls hooks after gradients have been added, with those of all processes; None where it is the source.
    """
    hooks = source._backward_hooks
    if hooks:
        whole._backward_hooks, source._backward_hooks = hooks, None
    after = None if sharded is None else getattr(source, "_post_accumulate_grad_hooks", None)
    if after:
        sharded._post_accumulate_grad_hooks = after  # type: ignore[union-attr]


def checkpoint_in_place(module: nn.Module) -> None:
    """Compute what is inside of a module again in the backward pass, with the same random numbers. No name changes."""
    from torch.distributed import _composable

    checkpoint: Any = _composable.checkpoint  # type: ignore[attr-defined]
    checkpoint(module, preserve_rng_state=True)


class AskedGradients(Protocol):
    """Of one sharded model: what `torch.autograd.grad`, and `backward(inputs=...)`, need to know."""

    def whole(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What passes compute with in the place of a weight; None for what is no weight of the model."""

    def asked(self) -> AbstractContextManager[None]:
        """In the body, a pass gives gradients to who asks for them, and none to weights."""


_ASKED: WeakSet[AskedGradients] = WeakSet()


def guard_gradients(model: AskedGradients) -> None:
    """
    Let scripts ask for gradients with regard to the weights of a sharded model. Its graphs know them by other tensors,
    so torch would give None (`allow_unused=True`) or no gradient (`backward(inputs=...)`). What is asked for is the
    gradient of this process, whole, as without sharding; nothing is exchanged.
    """
    _ASKED.add(model)
    own = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    if own.__module__ == __name__:
        return

    def run(outputs: Any, gradients: Any, retain: Any, graph: Any, inputs: Any, *given: Any, **more: Any) -> Any:
        with ExitStack() as stack:
            models = list(_ASKED) if inputs else []
            for one in models if not more.get("accumulate_grad") else ():
                stack.enter_context(one.asked())
            wholes = [[one.whole(tensor) for one in models] for tensor in inputs]
            inputs = tuple(
                next((whole for whole in found if whole is not None), tensor)
                for tensor, found in zip(inputs, wholes, strict=True)
            )
            return own(outputs, gradients, retain, graph, inputs, *given, **more)

    torch.autograd._engine_run_backward = run  # type: ignore[attr-defined, assignment]


_MESHES: dict[Any, Callable[[], None]] = {}
"""Those of sharded models, and what is called before all processes read a whole tensor."""


def guard_shards(mesh: Any, read: Callable[[], None]) -> None:
    """
    Take three silent faults out of tensors that are sharded over a mesh, and say what helps in one that torch tells.

    A number that is read of one (`.item()`, `float`, `bool`, a format) is that of the whole tensor; to pickle one is an
    error, as the file would hold the part of one process; setting `.data` of one, which torch does without effect, sets
    it; and a loss that is the sum of a batch's and of weights themselves says what to write.

    Args:
        mesh: whose tensors.
        read: called before a number is read: all processes must do so.
    """
    from torch.distributed.tensor import DTensor

    first = not _MESHES
    _MESHES[mesh] = read
    if not first:
        return
    scalar = torch.ops.aten._local_scalar_dense.default

    def number(_operation: Any, args: tuple[Any, ...], _kwargs: Any) -> Any:
        return whole_of(args[0]).item()

    def reduced(self: Any, protocol: Any) -> Any:
        if self.device_mesh in _MESHES and any(not placement.is_replicate() for placement in self.placements):
            raise ShardedTensorError(
                "this tensor is sharded: a file, or another process, would get the part of one process alone. Save "
                "weights with accelerator.save(accelerator.get_state_dict(model), path) and anything else with "
                "accelerator.save(..., path), on all processes; tensor.full_tensor() is the whole one."
            )
        return torch.Tensor.__reduce_ex__(self, protocol)  # type: ignore[no-untyped-call]

    def set_data(self: Any, value: torch.Tensor) -> None:
        if self.device_mesh in _MESHES:
            fill_shard(self, value)
        else:
            torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]

    def backward(self: Any, *given: Any, **more: Any) -> None:
        try:
            torch.Tensor.backward(self, *given, **more)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if self.device_mesh in _MESHES and "mixed torch.Tensor and DTensor" in str(error):
                raise ShardedTensorError(
                    "this loss has a term of the sharded weights themselves beside that of the batch, and no backward "
                    "pass goes through both. For a squared norm use weight_decay of the optimizer; any other term can "
                    "be a loss of its own, with a backward pass of its own."
                ) from error
            raise

    def formatted(self: Any, spec: str) -> str:
        ours = self.device_mesh in _MESHES and not self.dim()
        return format(whole_of(self), spec) if ours else torch.Tensor.__format__(self, spec)  # type: ignore[no-untyped-call]

    for name in _MEANS:
        _compute_whole(getattr(torch.ops.aten, name).default)
    for overload in ("default", "dim_IntList"):
        _compute_whole(getattr(torch.ops.aten.sum, overload), only=_of_norms)
    kind: Any = DTensor
    kind.__format__ = formatted
    kind.backward = backward
    kind._op_dispatcher._custom_op_handlers[scalar] = number
    kind.__reduce_ex__ = reduced
    kind.data = property(torch.Tensor.data.__get__, set_data)  # type: ignore[attr-defined]


_LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy")
_MEANS = (*_LOSSES, *(f"{name}_backward" for name in _LOSSES), "binary_cross_entropy_with_logits")
"""Torch (2.9 to 2.14) makes their means of the means of the parts: the gradient of one is too large by the number of
processes, and so is the value wrong where parts differ in size."""


def _of_norms(tensor: Any) -> bool:
    """A norm whose parts are not joined yet: torch (2.9 to 2.13) adds up the parts of several, and joins the sums."""
    return any("Norm" in type(placement).__name__ for placement in tensor.placements)


def _compute_whole(operation: Any, only: Callable[[Any], bool] = lambda _: True) -> None:
    """Let an operation compute with whole tensors in the place of sharded ones; its result is laid out as they are."""
    from torch.distributed.tensor import DTensor, Replicate

    handlers: dict[Any, Any] = DTensor._op_dispatcher._custom_op_handlers

    def handle(_operation: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        ours = [one for one in args if is_sharded(one) and only(one)]
        if not ours:
            del handlers[operation]
            try:
                return operation(*args, **kwargs)
            finally:
                handlers[operation] = handle
        result = operation(*map(whole_of, args), **kwargs)
        first = max(ours, key=lambda one: one.dim())
        mesh = first.device_mesh
        whole = DTensor.from_local(result, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return whole.redistribute(mesh, first.placements) if result.shape == first.shape and result.dim() else whole

    handlers[operation] = handle


def whole_of(tensor: Any) -> torch.Tensor:
    """The whole of a sharded tensor; any other one is itself. All processes ask for it, if it is not whole on each."""
    if not hasattr(tensor, "placements"):
        return tensor  # type: ignore[no-any-return]
    if all(placement.is_replicate() for placement in tensor.placements):
        return tensor.to_local()  # type: ignore[no-any-return]
    _MESHES.get(tensor.device_mesh, bool)()
    return tensor.full_tensor()  # type: ignore[no-any-return]


def fill_shard(sharded: Any, value: torch.Tensor) -> None:
    """
    Copy the values of a whole tensor, or of one that is sharded alike, into a sharded one.

    Raises:
        MixedUseError: it has another shape or type.
    """
    if value.shape != sharded.shape or value.dtype != sharded.dtype:
        raise MixedUseError(
            f"the data of a sharded weight of shape {list(sharded.shape)} and type {sharded.dtype} was to become a "
            f"tensor of {list(value.shape)} and {value.dtype}. Change weights before accelerator.prepare."
        )
    with torch.no_grad():
        sharded.detach().copy_(as_sharded(value, sharded))


def as_sharded(value: torch.Tensor, like_this: Any) -> torch.Tensor:
    """This process's part of a tensor that all processes have, as a sharded one. Nothing is exchanged."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if isinstance(value, DTensor):
        return value
    local = value.detach().to(like_this.to_local().device)
    return distribute_tensor(local, like_this.device_mesh, like_this.placements, src_data_rank=None)


def unscale_apart(scaler: torch.amp.GradScaler) -> None:
    """Let a scaler take sharded gradients and whole ones one after the other: torch has one call for all of them."""
    if "_unscale_grads_" in vars(scaler):
        return
    own = scaler._unscale_grads_

    def unscale(optimizer: Any, *arguments: Any) -> dict[torch.device, torch.Tensor]:
        given = [one for group in optimizer.param_groups for one in group["params"]]
        kinds = [[one for one in given if is_sharded(one) is kind] for kind in (True, False)]
        found: dict[torch.device, torch.Tensor] = {}
        for parameters in filter(None, kinds):
            found.update(own(SimpleNamespace(param_groups=[{"params": parameters}]), *arguments))  # type: ignore[arg-type]
        return found

    scaler._unscale_grads_ = unscale  # type: ignore[method-assign, assignment]


def shards_weights() -> bool:
    """This process has a sharded model, or had one."""
    return bool(_MESHES)


def is_sharded(value: object) -> bool:
    """A tensor that is laid over the processes of a sharded model."""
    return bool(_MESHES) and isinstance(value, torch.Tensor) and getattr(value, "device_mesh", None) in _MESHES
