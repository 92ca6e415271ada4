"""What cannot be meant: one sentence that says what was given and what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from torchlift.runtime import (
    Accelerator,
    AutocastKwargs,
    DataLoaderConfiguration,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    ProjectConfiguration,
    TorchDynamoPlugin,
)

MODEL = nn.Linear(2, 2)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), 0.1)

CONSTRUCTED = {
    "mixed_precision": ({"mixed_precision": "fp17"}, ValueError, "is 'fp17'; it must be one of: no, fp16, bf16"),
    "double": ({"mixed_precision": "64-true"}, NotImplementedError, 'mixed_precision="64-true" is not available'),
    "windows twice": (
        {"gradient_accumulation_steps": 2, "gradient_accumulation_plugin": GradientAccumulationPlugin(num_steps=3)},
        ValueError,
        "both set the number of accumulation steps. Give one",
    ),
    "compiled twice": (
        {"dynamo_backend": "eager", "dynamo_plugin": TorchDynamoPlugin()},
        ValueError,
        "both configure compilation. Give one",
    ),
    "a back end": ({"dynamo_backend": "warp"}, ValueError, "dynamo_backend is 'warp'; it must be one of: no, eager"),
    "handlers twice": ({"kwargs_handlers": [GradScalerKwargs()] * 2}, ValueError, "holds two GradScalerKwargs; give"),
    "no handler": ({"kwargs_handlers": [3]}, AssertionError, "holds 3; it takes objects such as AutocastKwargs"),
    "one handler": ({"kwargs_handlers": AutocastKwargs()}, TypeError, r"takes a list: \[AutocastKwargs\(...\)\]"),
    "two names": ({"kwargs_handlers": [], "kwarg_handler": []}, ValueError, "two names of one argument. Give one"),
    "random numbers": ({"rng_types": ["dice"]}, ValueError, "rng_types is 'dice'; it must be one of: torch"),
    "a tracker": ({"log_with": "wandbb"}, ValueError, "log_with is 'wandbb'; it must be one of: all, aim"),
    "a package": ({"log_with": "clearml"}, ImportError, r'Run: pip install "torchlift\[clearml\]"'),
    "a part of a batch": ({"gradient_accumulation_steps": 1.5}, ValueError, "is 1.5; it must be 1 or more, in whole"),
    "a window": ({"gradient_accumulation_steps": 0}, ValueError, "is 0; it must be 1 or more"),
    "loaders": ({"dataloader_config": {"split_batches": True}}, TypeError, "given a dict; it takes a DataLoaderConfig"),
    "split twice": (
        {"split_batches": True, "dataloader_config": DataLoaderConfiguration(split_batches=False)},
        ValueError,
        "Give it in one place",
    ),
    "an engine": ({"megatron_lm_plugin": 1}, NotImplementedError, r"Accelerator\(megatron_lm_plugin=...\) is not"),
    "another plugin": ({"fsdp_plugin": 1}, TypeError, r"fsdp_plugin was given a int; it takes a FullySharded"),
    "another mesh": ({"parallelism_config": "dp"}, TypeError, "parallelism_config was given a str"),
}


@pytest.mark.parametrize("case", CONSTRUCTED)
def test_an_accelerator_that_cannot_be(case):
    arguments, error, words = CONSTRUCTED[case]
    with pytest.raises(error, match=words):
        Accelerator(cpu=True, **arguments)


CALLED = {
    "a length": (lambda a: a.prepare(1, 2, device_placement=[True]), ValueError, "1 entries for 2 things; give one"),
    "a class": (lambda a: a.prepare(nn.Linear), TypeError, r"the class Linear. Give it an object: Linear\(...\)"),
    "a set": (lambda a: a.prepare({MODEL}), TypeError, "a set, which has no order. Make a list of it"),
    "a generator": (lambda a: a.prepare(m for m in [MODEL]), TypeError, "a generator, whose items .* Make a list"),
    "a model": (lambda a: a.prepare_model("m"), TypeError, "prepare_model was given a str; it takes a model"),
    "an optimizer": (lambda a: a.prepare_optimizer(MODEL), TypeError, "was given a Linear; it takes an optimizer"),
    "a scheduler": (lambda a: a.prepare_scheduler(OPTIMIZER), TypeError, "was given a SGD; it takes a scheduler"),
    "a loader": (lambda a: a.prepare_data_loader([1]), TypeError, "was given a list; it takes a torch.utils.data.Data"),
    "a loss": (lambda a: a.backward(1.0), TypeError, "backward was given a float; it takes the loss, a tensor"),
    "a reduction of losses": (
        lambda a: a.backward(MODEL.weight.sum(), reduction="max"),
        ValueError,
        "is 'max'; it must be one of: mean, sum",
    ),
    "a reduction": (
        lambda a: a.reduce(torch.ones(1), "none"),
        ValueError,
        "is 'none'; it must be one of: sum, sum_of_means, mean",
    ),
    "whole numbers": (lambda a: a.reduce(torch.ones(1).int(), "mean"), RuntimeError, r"Reduce tensor.float\(\)"),
    "words": (lambda a: a.gather("x"), TypeError, "takes tensors, .* given a str. Convert it to a tensor"),
    "autocast": (lambda a: a.autocast(3), TypeError, "autocast was given a int; it takes an AutocastKwargs"),
    "skipping": (lambda a: a.skip_first_batches([1], 1), TypeError, "was given a list; it takes a loader"),
    "skipping back": (lambda a: a.skip_first_batches(DataLoader([1]), -1), ValueError, "must be 0 or more"),
    "a state": (lambda a: a.get_state_dict(3), TypeError, "given a int; it takes a model"),
    "registering": (lambda a: a.register_for_checkpointing(3), ValueError, "no state_dict .* index 0, a int"),
    "loading": (lambda a: a.load_state("nowhere"), ValueError, "no folder .*nowhere to load from. Check the path"),
    "saving": (lambda a: a.save_state(), ValueError, "no folder to save to. Give it one"),
    "a size": (lambda a: a.save_model(MODEL, "x", "lots"), ValueError, "max_shard_size is 'lots'"),
    "a name": (lambda a: a.nothing, AttributeError, "an Accelerator has no attribute 'nothing'"),
    "a method": (lambda a: a.mark_forward_method(MODEL, "encode"), AttributeError, "encode"),
}


@pytest.mark.parametrize("case", CALLED)
def test_a_call_that_cannot_be_meant(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, error, words = CALLED[case]
    accelerator = Accelerator(cpu=True)
    with pytest.raises(error, match=words):
        call(accelerator)


def test_what_is_not_known_comes_back():
    things = (None, "x", 3, {1, 2}, range(2), len)
    assert Accelerator(cpu=True).prepare(*things) == things


def test_an_optimizer_whose_gradients_nobody_scales():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16")
    with pytest.raises(ValueError, match=r"this SGD has not been prepared: .* Hand it to accelerator.prepare"):
        accelerator.unscale_gradients(OPTIMIZER)


def test_windows_that_cannot_be():
    with pytest.raises(ValueError, match=r"num_steps of the GradientAccumulationPlugin is 2.5; it must be 1 or more"):
        GradientAccumulationPlugin(num_steps=2.5)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps="3")
    assert accelerator.gradient_accumulation_steps == 3
    with pytest.raises(ValueError, match="gradient_accumulation_steps is None; it must be"):
        accelerator.gradient_accumulation_steps = None


def test_projects_that_cannot_be():
    with pytest.raises(ValueError, match="total_limit is 0; it must be 1 or more, or None to keep all"):
        ProjectConfiguration(total_limit=0)


def test_figures_that_are_lost(tmp_path, caplog):
    accelerator = Accelerator(cpu=True, log_with="jsonl", project_dir=tmp_path)
    with caplog.at_level(logging.WARNING):
        accelerator.log({"a": 1})
        accelerator.log({"a": 2})
    assert [record.message for record in caplog.records].count(
        "this log call is lost: call accelerator.init_trackers(project_name) first"
    ) == 1


def _again(loader: DataLoader[float]) -> Iterator[torch.Tensor]:
    while True:
        yield from loader


def test_a_generator_over_prepared_loaders_comes_back_as_it_is() -> None:
    """Scripts on Accelerate hand such generators to `prepare`; one over a loader that is not prepared is an error."""
    accelerator = Accelerator(cpu=True)
    loader: DataLoader[float] = DataLoader([1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a generator, whose items"):
        accelerator.prepare(_again(loader))
    batches = _again(accelerator.prepare(loader))
    assert accelerator.prepare(batches) is batches
    assert next(batches).tolist() == [1.0]
