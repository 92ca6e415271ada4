"""The names that scripts import from sub-modules, and the small operations behind them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from collections import UserDict, namedtuple
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from torchlift import runtime
from torchlift.runtime import Accelerator, NotAvailableYet, utils
from torchlift.runtime.optimizer import AcceleratedOptimizer
from torchlift.runtime.scheduler import AcceleratedScheduler

NAMES = {
    "utils": """
        gather gather_object broadcast broadcast_object_list reduce pad_across_processes concatenate slice_tensors
        send_to_device find_batch_size find_device recursively_apply honor_type listify convert_to_fp32
        convert_outputs_to_fp32 copy_tensor_to_devices get_data_structure initialize_tensors set_seed
        synchronize_rng_state synchronize_rng_states extract_model_from_parallel save load wait_for_everyone
        release_memory is_compiled_module tqdm find_executable_batch_size AutocastKwargs GradScalerKwargs
        InitProcessGroupKwargs DistributedDataParallelKwargs ProfileKwargs TorchDynamoPlugin DistributedType
        PrecisionType LoggerType RNGType DynamoBackend DDPCommunicationHookType ProjectConfiguration
        DataLoaderConfiguration GradientAccumulationPlugin is_wandb_available is_tensorboard_available
        is_cuda_available is_bf16_available is_xpu_available is_npu_available is_torch_xla_available
        is_transformers_available is_torch_version patch_environment load_checkpoint_in_model clear_device_cache
    """,
    "utils.operations": "gather recursively_apply is_namedtuple send_to_device",
    "utils.memory": "find_executable_batch_size release_memory",
    "utils.dataclasses": "DistributedType ProjectConfiguration KwargsHandler",
    "utils.random": "set_seed synchronize_rng_states",
    "utils.imports": "is_aim_available is_torchao_available",
    "utils.other": "extract_model_from_parallel save",
    "utils.modeling": "load_checkpoint_in_model",
    "state": "PartialState AcceleratorState GradientState DistributedType",
    "accelerator": "Accelerator DataLoaderConfiguration GradientAccumulationPlugin",
    "local_sgd": "LocalSGD",
    "optimizer": "AcceleratedOptimizer",
    "scheduler": "AcceleratedScheduler",
    "data_loader": "skip_first_batches prepare_data_loader DataLoaderShard SeedableRandomSampler",
    "launchers": "notebook_launcher debug_launcher",
    "logging": "get_logger MultiProcessAdapter",
    "tracking": "GeneralTracker TensorBoardTracker WandBTracker register_tracker_class filter_trackers",
}

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
    found = import_module(f"torchlift.runtime.{module}")
    missing = [name for name in NAMES[module].split() if not hasattr(found, name)]
    assert missing == []
    assert all(getattr(found, name).__doc__ for name in NAMES[module].split())


LATER = {
    "": "cpu_offload dispatch_model disk_offload infer_auto_device_map load_checkpoint_and_dispatch prepare_pippy",
    "big_modeling": "cpu_offload_with_hook dispatch_model",
    "hooks": "ModelHook AlignDevicesHook add_hook_to_module remove_hook_from_module",
    "inference": "prepare_pippy",
    "utils": "save_fsdp_model GatheredParameters compile_regions infer_auto_device_map load_and_quantize_model",
    "utils.modeling": "get_balanced_memory set_module_tensor_to_device",
}


@pytest.mark.parametrize("module", LATER)
def test_names_of_what_is_not_there_yet_can_be_imported_and_say_so(module):
    found = import_module(f"torchlift.runtime.{module}".rstrip("."))
    for name in LATER[module].split():
        one = getattr(found, name)
        assert one is getattr(found, name) and not isinstance(nn.Linear(1, 1), one)
        with pytest.raises(NotAvailableYet, match=name):
            one(nn.Linear(1, 1), device_map="auto")
    with pytest.raises(AttributeError):
        found.no_such_name  # noqa: B018


def test_figures():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model.tied = model[0]
    assert utils.find_tied_parameters(model) == [["0.weight", "tied.weight"], ["0.bias", "tied.bias"]]
    sizes = utils.compute_module_sizes(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    assert (sizes["0"], sizes["0.weight"], sizes["1"], sizes[""]) == (36, 24, 56, 92)
    assert utils.compute_module_sizes(nn.Linear(2, 3), dtype=torch.float16)[""] == 18
    assert utils.merge_dicts({"a": {"b": 1}, "c": 2}, {"a": {"d": 3}}) == {"a": {"b": 1, "d": 3}, "c": 2}
    assert utils.recursive_getattr(model, "tied.in_features") == 2
    assert (utils.convert_bytes(1536), utils.convert_bytes(3)) == ("1.5 KB", "3 bytes")
    assert utils.get_pretty_name(nn.Linear) == utils.get_pretty_name(model[0]) == "Linear"
    assert utils.get_current_device_type()[0] in ("cpu", "cuda", "mps")
    view = model[0].weight[:1]
    assert utils.id_tensor_storage(view) == utils.id_tensor_storage(model[0].weight)
    assert not utils.is_peft_model(model) and not utils.has_offloaded_params(model)


@pytest.mark.parametrize("buffers", [False, True])
def test_models_without_memory(buffers, tmp_path):
    with runtime.init_empty_weights(include_buffers=buffers):
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        model[0].bias.requires_grad_(False)
    assert all(one.is_meta for one in model.parameters()) and model[1].running_mean.is_meta is buffers
    assert [one.requires_grad for one in model.parameters()] == [True, False, True, True]
    assert not nn.Linear(1, 1).weight.is_meta
    real = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    torch.save(real.state_dict(), tmp_path / "pytorch_model.bin")
    runtime.load_checkpoint_in_model(model, tmp_path, device_map={"": "cpu"})
    assert all(one.equal(other) for one, other in zip(model.parameters(), real.parameters(), strict=True))


@pytest.fixture
def tree():
    return {"a": torch.arange(4.0).view(2, 2), "b": [torch.ones(2, dtype=torch.float16), Point(torch.zeros(2), "t")]}


def test_trees(tree):
    doubled = utils.recursively_apply(lambda t, by: t * by, tree, 2)
    assert doubled["a"][1, 1] == 6 and type(doubled["b"][1]) is Point and doubled["b"][1].y == "t"
    assert utils.listify(tree)["b"] == [[1, 1], Point([0, 0], "t")]
    assert utils.find_batch_size(tree) == 2
    assert utils.find_device([1, tree]) == torch.device("cpu") and utils.find_device([1]) is None
    assert utils.slice_tensors(tree, slice(0, 1))["a"].tolist() == [[0, 1]]
    assert utils.convert_to_fp32(tree)["b"][0].dtype is torch.float32
    empty = utils.initialize_tensors(utils.get_data_structure(tree))
    assert empty["a"].shape == (2, 2) and empty["b"][0].dtype is torch.float16
    assert utils.get_shape(tree)["a"] == [2, 2]
    assert utils.honor_type(Point(1, 2), (i for i in (3, 4))) == Point(3, 4)
    assert utils.ignorant_find_batch_size(["x"]) is None
    with pytest.raises(TypeError, match=r"Unsupported types \(<class 'int'>\) passed to `neg`"):
        utils.recursively_apply(torch.neg, (torch.tensor(1), 1), error_on_other_type=True)
    with pytest.raises(TypeError, match="batch size of tensors"):
        utils.find_batch_size("x")


def test_joining(tree):
    joined = utils.concatenate([{"a": tree["a"], "b": (tree["a"],)}] * 2)
    assert joined["a"].shape == (4, 2) and type(joined["b"]) is tuple
    assert utils.concatenate(["x"]) == "x"
    with pytest.raises(TypeError, match="Can only concatenate tensors"):
        utils.concatenate(["x", "y"])


@pytest.mark.parametrize(("rows", "processes", "filled"), [(1, 2, 2), (4, 2, 4), (4, 3, 6), (61, 6, 66)])
def test_filling(rows, processes, filled):
    result = utils.pad_input_tensors(torch.ones(rows, 3), rows, processes)
    assert result.shape == (filled, 3) and result.sum() == rows * 3


def test_moving():
    moved = utils.send_to_device(UserDict(a=torch.ones(1), b=torch.ones(2)), "meta", skip_keys="b")
    assert moved["a"].is_meta and not moved["b"].is_meta and isinstance(moved, UserDict)


def test_alone(tmp_path):
    tree = {"a": [torch.ones(1)]}
    assert utils.gather(tree) is tree and utils.gather_object([1]) == [1]
    assert utils.reduce(torch.ones(2)).tolist() == [1, 1]
    assert utils.broadcast_object_list([2]) == [2]
    assert utils.copy_tensor_to_devices(torch.ones(1)).tolist() == [1]
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    with pytest.warns(utils.CannotPadNestedTensorWarning):
        assert utils.pad_across_processes(nested) is nested
    utils.save({"x": torch.ones(1)}, tmp_path / "x.bin")
    utils.save({"x": torch.ones(1)}, tmp_path / "x.safetensors", safe_serialization=True)
    for name in ("x.bin", "x.safetensors"):
        assert utils.load(tmp_path / name)["x"].tolist() == [1]
    utils.synchronize_rng_states(["torch"])
    with pytest.raises(ValueError, match="needs a generator"):
        utils.synchronize_rng_state("generator")
    with pytest.raises(ValueError, match="rng_type is 'dice'"):
        utils.synchronize_rng_state("dice")


def test_wrappers_are_looked_through():
    model = nn.Linear(2, 2)
    compiled = torch.compile(nn.DataParallel(model), backend="eager")
    assert utils.extract_model_from_parallel(compiled, keep_torch_compile=False) is model
    kept = utils.extract_model_from_parallel(compiled)
    assert utils.is_compiled_module(kept) and kept._orig_mod is model
    assert isinstance(compiled._orig_mod, nn.DataParallel), "what was given is not changed"
    model._original_forward = model.forward
    model.forward = utils.convert_outputs_to_fp32(model.forward)
    pickle.dumps(utils.extract_model_from_parallel(model, keep_fp32_wrapper=False))


def test_wrappers_of_accelerate_are_questions(monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert not isinstance(optimizer, AcceleratedOptimizer) and not isinstance(scheduler, AcceleratedScheduler)
    accelerator = Accelerator(mixed_precision="fp16")
    accelerator.prepare(optimizer, scheduler)
    assert isinstance(optimizer, AcceleratedOptimizer) and isinstance(scheduler, AcceleratedScheduler)
    assert optimizer.optimizer is optimizer
    for value, skipped in ((float("inf"), True), (1.0, False)):
        accelerator.backward(weight.sum() * value)
        optimizer.step()
        optimizer.zero_grad()
        assert optimizer.step_was_skipped is skipped
    assert "optimizer" not in pickle.loads(pickle.dumps(optimizer)).__dict__
    for cls, argument in ((AcceleratedOptimizer, optimizer), (AcceleratedScheduler, scheduler)):
        with pytest.raises(NotAvailableYet, match=r"accelerator\.prepare"):
            cls(argument)


def test_variables_come_back(monkeypatch):
    monkeypatch.setenv("ONE", "1")
    with pytest.raises(ValueError), utils.patch_environment(one=2, two="x"):
        assert (os.environ["ONE"], os.environ["TWO"]) == ("2", "x")
        raise ValueError
    assert os.environ["ONE"] == "1" and "TWO" not in os.environ
    with utils.clear_environment():
        assert not os.environ
    assert os.environ["ONE"] == "1"
    assert utils.parse_flag_from_env("ONE") and not utils.parse_flag_from_env("TWO")
    assert (utils.str_to_bool("no"), utils.str_to_bool("Yes", to_bool=True)) == (0, True)
    with pytest.raises(ValueError, match="maybe"):
        utils.str_to_bool("maybe")
    assert utils.get_int_from_env(["TWO", "ONE"], 5) == 1 and utils.parse_choice_from_env("TWO") == "no"


def test_versions_and_machines(monkeypatch, caplog):
    assert utils.is_torch_version(">=", "2.6") and utils.compare_versions("1.10", ">", "1.9.2")
    assert utils.compare_versions("1.0", "==", "1.0.0")
    with pytest.raises(ValueError, match="must be one of"):
        utils.compare_versions("1", "~", "1")
    for release, lines in (("5.15.0-35-generic", 0), ("5.4.0-35", 1)):
        monkeypatch.setattr("platform.uname", lambda release=release: SimpleNamespace(system="Linux", release=release))
        utils.check_os_kernel()
        assert len(caplog.records) == lines
    assert not utils.is_port_in_use(utils.get_free_port())
    assert utils.is_pytest_available() and not utils.is_lomo_available()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a port is only looked at")
def test_a_port_that_is_given_away_is_given_to_nobody_else():
    asks = "import sys; from torchlift.runtime.process import system; print(system._reserve(int(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", asks, str(utils.get_free_port())], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_no_name_warns_of_anything():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_module("torchlift.runtime.utils")


def test_without_an_accelerator_at_hand(job_text):
    source = """
import torch
from torchlift import runtime
from torchlift.runtime import Accelerator, NotAvailableYet, utils
from torchlift.runtime.optimizer import AcceleratedOptimizer
from torchlift.runtime.scheduler import AcceleratedScheduler
from torchlift.runtime.state import PartialState
rank = PartialState().process_index
assert utils.gather_object([rank]) == [0, 1]
assert utils.reduce(torch.tensor([float(rank)])).item() == 0.5
assert utils.broadcast(torch.tensor([rank])).item() == 0
assert utils.copy_tensor_to_devices(torch.tensor([7.0]) if rank == 0 else None).item() == 7
torch.manual_seed(rank)
generator = torch.Generator().manual_seed(rank)
utils.synchronize_rng_states(["torch", "generator"], generator)
drawn = torch.cat([torch.rand(1), torch.rand(1, generator=generator)])
assert utils.gather(drawn)[:2].equal(utils.gather(drawn)[2:])
assert utils.pad_across_processes(torch.ones(rank + 1)).shape == (2,)
print("RESULT true")
"""
    assert job_text(source, 2) == [True, True]
