"""Layers that differ between processes by nature: dropout is off, BatchNorm uses its running statistics."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ...device.kinds import current
from ..hooks.recorder import Recorder

_DROPOUTS = "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout"


def install(recorder: Recorder) -> None:
    """Hold layers still from now on, and note which."""
    for name in _DROPOUTS.split():
        setattr(F, name, _off(getattr(F, name), recorder))
    _attention(recorder)
    _recurrent(recorder)
    _batch_norm(recorder)
    nn.modules.module.register_module_forward_pre_hook(lambda module, _: _note(module, recorder))


def _note(module: nn.Module, recorder: Recorder) -> None:
    if isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0:
        recorder.hold("dropout", id(module))


def _off(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @wraps(original)
    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or p == 0:
            return original(input, p, training, inplace)
        if not recorder.held.get("dropout"):
            recorder.hold("dropout", 0)
        return input

    return dropout


def _attention(recorder: Recorder) -> None:
    scaled, heads = F.scaled_dot_product_attention, F.multi_head_attention_forward

    @wraps(scaled)
    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *a: Any, **k: Any
    ) -> Any:
        if dropout_p:
            recorder.hold("dropout in attention", 0)
        return scaled(query, key, value, attn_mask, 0.0, *a, **k)

    @wraps(heads)
    def multi_head(*args: Any, **kwargs: Any) -> Any:
        found = list(args)
        if len(found) > 10 and found[10]:
            recorder.hold("dropout in attention", 0)
            found[10] = 0.0
        return heads(*found, **{**kwargs, "dropout_p": 0.0} if "dropout_p" in kwargs else kwargs)

    F.scaled_dot_product_attention = attention
    F.multi_head_attention_forward = multi_head


def _recurrent(recorder: Recorder) -> None:
    def hold(module: nn.Module, _: Any) -> None:
        if isinstance(module, nn.RNNBase) and module.dropout and module.training:
            recorder.hold("dropout in recurrent layers", id(module))
            module.dropout = 0.0

    nn.modules.module.register_module_forward_pre_hook(hold)


def _batch_norm(recorder: Recorder) -> None:
    original = F.batch_norm

    @wraps(original)
    def batch_norm(
        input: Any,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        if training and running_mean is not None and running_var is not None:
            recorder.hold("BatchNorm", id(running_mean))
            training = False
        elif training:
            recorder.hold("BatchNorm without running statistics", 0)
        return original(input, running_mean, running_var, weight, bias, training, momentum, eps)

    F.batch_norm = batch_norm
    nn.SyncBatchNorm.forward = nn.BatchNorm2d.forward  # type: ignore[method-assign]  # nothing is left to exchange


def determinism(recorder: Recorder) -> None:
    """Compile nothing, and ask an accelerator for the same bits each time."""
    compiled = torch.compile

    @wraps(compiled)
    def not_compiled(*args: Any, **kwargs: Any) -> Any:
        recorder.hold("compiled", 0)
        return compiled(*args, **kwargs)

    torch.compile = not_compiled
    torch._dynamo.config.disable = True
    if not current().is_cpu:
        torch.use_deterministic_algorithms(True, warn_only=True)
