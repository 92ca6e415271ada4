"""The private names of `fully_shard` and of sharded tensors are where they are looked for."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group, _fsdp_state
from torch.distributed.tensor import DTensor

from torchlift.runtime import torch_sharding
from torchlift.runtime.errors import UnknownTorchError


def test_it_was_tried_with_the_torch_that_is_installed() -> None:
    assert torch.__version__.partition("+")[0] in torch_sharding.RUN_WITH


def test_a_torch_without_what_is_needed_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_sharding.check_torch()
    monkeypatch.delattr(FSDPModule, "reset_iter_state")
    with pytest.raises(UnknownTorchError, match=r"cannot be sharded with torch 2.* Install torch 2.13 or newer"):
        torch_sharding.check_torch()
    assert not set(torch_sharding.REFUSED) & set(torch_sharding.RUN_WITH)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (FSDPModule, "_get_fsdp_state"),
        (FSDPModule, "reset_iter_state"),
        (FSDPModule, "set_reduce_scatter_unused_params"),
        (_fsdp_state.FSDPState, "_lazy_init"),
        (_fsdp_state.FSDPState, "_pre_forward"),
        (_fsdp_state.FSDPState, "_post_forward"),
        (_fsdp_state.FSDPState, "_pre_backward"),
        (_fsdp_state.FSDPState, "_register_root_post_backward_final_callback"),
        (_fsdp_state.FSDPState, "_root_post_backward_final_callback"),
        (_fsdp_param_group.FSDPParamGroup, "post_backward"),
        (_fsdp_param.FSDPParam, "free_unsharded_param"),
        (torch.Tensor, "_backward_hooks"),
        (torch.Tensor, "_post_accumulate_grad_hooks"),
        (torch.distributed._composable, "checkpoint"),
        (torch.autograd, "_engine_run_backward"),
    ],
)
def test_a_method_is_there(owner: type, name: str) -> None:
    assert hasattr(owner, name)


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (_fsdp_state.FSDPState, ["self._fsdp_param_groups"]),
        (_fsdp_param_group.FSDPParamGroup, ["self.fsdp_params"]),
        (
            _fsdp_param.FSDPParam,
            ["self.sharded_param", "self._unsharded_param", "self.unsharded_accumulated_grad", "self.sharded_state"],
        ),
    ],
)
def test_an_attribute_is_still_set(owner: type, words: list[str]) -> None:
    source = inspect.getsource(owner)
    assert [word for word in words if word not in source] == []


def test_numbers_of_sharded_tensors_can_be_handled() -> None:
    assert isinstance(DTensor._op_dispatcher._custom_op_handlers, dict)


def test_gradients_are_asked_for_by_positions_that_are_known() -> None:
    """The fifth argument is what gradients are asked for, the keyword says whether weights get them."""
    calls = re.findall(r"(?<!def )_engine_run_backward\(([^)]*)\)", inspect.getsource(torch.autograd))
    assert len(calls) == 3
    for call in calls:
        arguments = [one.strip() for one in call.split(",") if one.strip()]
        assert arguments[4] in ("inputs", "inputs_tuple") and arguments[-1].startswith("accumulate_grad=")


def test_every_function_says_what_it_is_for() -> None:
    functions = [one for one in vars(torch_sharding).values() if inspect.isfunction(one)]
    assert all(one.__doc__ for one in functions if one.__module__ == torch_sharding.__name__)
