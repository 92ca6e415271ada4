"""Looking through the wrappers that others put around a model."""

from __future__ import annotations

from typing import Any

from torch import nn

_BY_MODULE = ("DistributedDataParallel", "DataParallel")


def unwrap(model: Any) -> Any:
    """The model inside foreign wrappers (DDP, DataParallel, torch.compile); else the model itself. Changes nothing."""
    while isinstance(model, nn.Module):
        names = {cls.__name__ for cls in type(model).__mro__ if cls.__module__.startswith("torch.nn.parallel")}
        if names & set(_BY_MODULE):
            model = model._modules["module"]
        elif "_orig_mod" in model._modules:
            model = model._modules["_orig_mod"]
        else:
            break
    return model


def device_maps(model: nn.Module) -> list[dict[str, Any]]:
    """Where Hugging Face's loaders have put the layers of a model: what its parts keep as `hf_device_map`."""
    maps = (getattr(module, "hf_device_map", None) for module in model.modules())
    return [one for one in maps if one]


def spread(model: nn.Module) -> bool:
    """The layers of a model lie on several devices."""
    return any(len({str(place) for place in one.values()}) > 1 for one in device_maps(model))


def is_compiled_module(module: Any) -> bool:
    """It is what `torch.compile` makes of a module."""
    return isinstance(module, nn.Module) and "_orig_mod" in module._modules


def extract_model_from_parallel(
    model: Any, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True, recursive: bool = False
) -> Any:
    """
    The model inside foreign wrappers; the given object is not changed.

    Args:
        model: wrapped or not.
        keep_fp32_wrapper: False: a `forward` that was kept as `_original_forward` is put back.
        keep_torch_compile: the result is compiled if the model was; a new object where there were wrappers between.
        recursive: without effect: only whole models are wrapped here.
    """
    inner = unwrap(model)
    if not keep_fp32_wrapper and "_original_forward" in vars(inner):
        original = vars(inner).pop("_original_forward")
        vars(inner).pop("forward", None)
        if original.__func__ is not type(inner).forward:
            inner.forward = original
    if keep_torch_compile and is_compiled_module(model):
        return model if model._modules["_orig_mod"] is inner else type(model)(inner, model.dynamo_ctx)
    return inner
