"""What scripts read under the names of Accelerate, and what is not there yet."""

from __future__ import annotations

import copy
import os
import pickle
import weakref

import pytest
import torch
from torch.utils.data import DataLoader

from torchlift import runtime
from torchlift.runtime import (
    Accelerator,
    DataLoaderConfiguration,
    MixedUseError,
    NotAvailableYet,
    PartialState,
    TorchDynamoPlugin,
    skip_first_batches,
    utils,
)
from torchlift.runtime.data_loader import DataLoaderDispatcher, DataLoaderShard, prepare_data_loader
from torchlift.runtime.state import AcceleratorState, GradientState


@pytest.fixture(autouse=True)
def found_out_anew():
    PartialState._reset_state()
    yield
    PartialState._reset_state()


def test_all_places_are_one(monkeypatch):
    first = PartialState()
    monkeypatch.setenv("WORLD_SIZE", "7")  # too late: the place of a process does not change
    assert PartialState().num_processes == 1
    first.mine = 3
    assert PartialState().mine == 3


def test_a_place_that_was_forgotten_says_so():
    place = PartialState()
    with pytest.raises(AttributeError, match="'PartialState' object has no attribute 'nothing'"):
        _ = place.nothing
    PartialState._reset_state()
    with pytest.raises(AttributeError, match=r"This happens if `PartialState._reset_state\(\)`"):
        _ = place.num_processes


def test_an_accelerator_whose_place_was_forgotten_says_so(capsys):
    accelerator = Accelerator()
    AcceleratorState._reset_state()
    for use in (lambda: accelerator.num_processes, lambda: accelerator.prepare(torch.nn.Linear(1, 1))):
        with pytest.raises(
            AttributeError, match=r"This happens if `AcceleratorState._reset_state\(\)` .* create a new one"
        ):
            use()
    accelerator.print(accelerator.is_main_process and accelerator.is_local_main_process, accelerator.is_last_process)
    assert capsys.readouterr().out == "True True\n", "who speaks is known all the same"
    again = Accelerator()
    assert again.num_processes == 1
    PartialState._reset_state()
    with pytest.raises(AttributeError, match=r"has no attribute `num_processes`\. This happens if `PartialState"):
        _ = again.num_processes


def test_what_a_script_keeps_in_a_state_is_in_all_of_them():
    accelerator = Accelerator()
    accelerator.state.mine = 3
    assert accelerator.state.mine == AcceleratorState().mine == 3
    with pytest.raises(AttributeError):
        accelerator.state.mixed_precision = "bf16"


def test_cpu_after_an_accelerator_has_been_chosen():
    PartialState()
    PartialState._shared_state["device"] = torch.device("cuda:0")
    with pytest.raises(ValueError, match=r"already computes on cuda:0. Pass cpu=True where the first"):
        Accelerator(cpu=True)


def test_the_state_of_an_accelerator():
    accelerator = Accelerator(mixed_precision="bf16")
    state = accelerator.state
    assert isinstance(state, AcceleratorState) and state.mixed_precision == "bf16"
    assert state.deepspeed_plugin is None and state.fsdp_plugin is None and state.num_processes == 1
    assert "Num processes: 1" in repr(state) and "Mixed precision type: bf16" in repr(state)
    with pytest.raises(AttributeError, match="'AcceleratorState' object has no attribute 'nothing'"):
        _ = state.nothing


def test_states_are_those_of_their_accelerators():
    first = Accelerator(gradient_accumulation_steps=4)
    second = Accelerator()
    assert (first.gradient_state.num_steps, second.gradient_state.num_steps) == (4, 1)
    assert GradientState().num_steps == 1
    loader = first.prepare(DataLoader(range(4)))
    assert loader.gradient_state.num_steps == 4


def test_nothing_keeps_an_accelerator_alive():
    accelerator = Accelerator()
    loader = accelerator.prepare(DataLoader(range(4)))
    batches = iter(loader)
    next(batches)
    gone = [weakref.ref(one) for one in (accelerator, loader)]
    del accelerator, loader, batches
    assert [one() for one in gone] == [None, None]


def test_things_that_were_prepared_are_marked():
    accelerator = Accelerator()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    things = accelerator.prepare(model, optimizer, scheduler, DataLoader(range(4)))
    assert all(one._is_accelerate_prepared for one in things)
    accelerator.free_memory()
    assert not hasattr(model, "_is_accelerate_prepared")


def test_a_whole_model_in_a_file_is_not_marked(tmp_path):
    """The file is the one that `torch.save(model, path)` would have written."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    (tmp_path / "plain").mkdir()
    torch.save({"net": model}, tmp_path / "plain" / "net.pkl")
    accelerator = Accelerator()
    accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    accelerator.save({"net": model}, tmp_path / "net.pkl")
    assert model._is_accelerate_prepared
    assert (tmp_path / "net.pkl").read_bytes() == (tmp_path / "plain" / "net.pkl").read_bytes()
    accelerator.save(model, tmp_path / "net.pkl")
    assert not hasattr(torch.load(tmp_path / "net.pkl", weights_only=False), "_is_accelerate_prepared")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("dispatch", [False, True])
def test_copies_of_loaders_are_prepared(duplicate, dispatch):
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
    loader = skip_first_batches(accelerator.prepare(DataLoader(range(6), batch_size=2)), 1)
    list(loader)  # a pass that has run
    other = duplicate(loader)
    assert isinstance(other, DataLoaderDispatcher if dispatch else DataLoaderShard)
    assert len(other) == 2 and [batch.tolist() for batch in other] == [[2, 3], [4, 5]]


def test_shares_of_a_job_that_is_not_there():
    seen = []
    for rank in range(2):
        torch.manual_seed(3)
        loader = DataLoader(range(6), batch_size=1, shuffle=True)
        seen += [b.item() for b in prepare_data_loader(loader, num_processes=2, process_index=rank)]
    assert sorted(seen) == list(range(6))


def test_a_scheduler_minds_an_overflow_that_a_test_has_set():
    accelerator = Accelerator()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer, scheduler = accelerator.prepare(optimizer, scheduler)
    optimizer._is_overflow = True
    scheduler.step()
    assert scheduler.get_last_lr() == [1.0] and accelerator.optimizer_step_was_skipped


def test_compiled_models_stay_compiled_unless_asked():
    accelerator, model = Accelerator(), torch.nn.Linear(2, 2)
    compiled = torch.compile(torch.nn.DataParallel(model))
    assert accelerator.unwrap_model(compiled)._orig_mod is model
    assert accelerator.unwrap_model(compiled, keep_torch_compile=False) is model
    assert isinstance(compiled._orig_mod, torch.nn.DataParallel)  # what is trained is not changed


def test_compilation_as_the_environment_says():
    with utils.patch_environment(accelerate_dynamo_backend="eager", accelerate_dynamo_mode="reduce-overhead"):
        assert TorchDynamoPlugin().to_kwargs() == {"backend": "eager", "mode": "reduce-overhead"}
        assert TorchDynamoPlugin(backend="no").to_kwargs() == {"mode": "reduce-overhead"}
    assert TorchDynamoPlugin().to_kwargs() == {}


@pytest.mark.parametrize("name", ["DeepSpeedPlugin"])
def test_names_that_come_later(name):
    assert getattr(utils, name) is getattr(runtime, name)
    with pytest.raises(NotAvailableYet, match=rf"{name}\(...\) is not available in this version"):
        getattr(runtime, name)(1, two=2)


def test_methods_that_come_later():
    accelerator = Accelerator()
    with accelerator.maybe_context_parallel(buffers=[], buffer_seq_dims=[]):
        pass
    for ask in ("tensor_parallel_rank", "data_parallel_rank", "pipeline_parallel_rank", "context_parallel_rank"):
        with pytest.raises(RuntimeError, match=f"a mesh, and with it Accelerator.{ask}, is not available"):
            getattr(accelerator, ask)
    with pytest.raises(NotAvailableYet, match="lomo_backward"):
        accelerator.lomo_backward(torch.ones(()), 0.1)


def test_models_whose_layers_lie_on_several_devices():
    accelerator, model = Accelerator(), torch.nn.Linear(2, 2)
    assert not accelerator.verify_device_map(model)
    model.hf_device_map = {"a": 0, "b": "cpu"}
    assert accelerator.verify_device_map(model)
    assert accelerator.prepare(model) is model  # one process: it stays where it is
    other = torch.nn.Linear(2, 2)
    other.hf_device_map, other.is_loaded_in_8bit = {"": "cpu"}, True
    with pytest.raises(MixedUseError, match="in few bits on cpu: such a model cannot be trained with CPU or disk off"):
        accelerator.prepare(other)


def test_variables_of_a_test_are_put_back(monkeypatch):
    monkeypatch.setenv("ACCELERATE_KEPT", "1")

    @utils.purge_accelerate_environment
    class Tests:
        def test_one(self):
            os.environ.update(ACCELERATE_KEPT="2", TORCHLIFT_NEW="3")
            return 5

    class More(Tests):
        def test_two(self):
            os.environ["TORCHLIFT_NEW"] = "4"

    assert More().test_one() == 5
    More().test_two()
    assert os.environ["ACCELERATE_KEPT"] == "1" and "TORCHLIFT_NEW" not in os.environ
    assert utils.convert_dict_to_env_variables({"A": "1", "B": "<2", "": "3"}) == ["A=1\n"]


def test_words_of_accelerate():
    assert utils.DynamoBackend("INDUCTOR") is utils.DynamoBackend.INDUCTOR
    assert utils.PrecisionType.FP8 == "fp8" and "bf16" in utils.PrecisionType
    with pytest.raises(ValueError, match="warp"):
        utils.DynamoBackend("warp")


def test_any_prepared_optimizer_can_be_told_to_train():
    class Scheduled(torch.optim.SGD):
        def train(self):
            return "mine"

    parameters = [torch.nn.Parameter(torch.ones(1))]
    plain, own = Accelerator().prepare(torch.optim.SGD(parameters, 0.1), Scheduled(parameters, 0.1))
    assert (plain.train(), plain.eval(), own.train()) == (None, None, "mine")


def test_settings_for_a_wrapper_of_torch():
    handler = runtime.DistributedDataParallelKwargs(bucket_cap_mb=3, comm_hook="fp16")
    assert handler.to_kwargs() == {"bucket_cap_mb": 3}


def test_a_loader_made_by_hand_knows_its_sizes():
    loader = DataLoaderShard(range(10), batch_size=4)
    assert (loader.total_batch_size, loader.total_dataset_length) == (4, 10)


def test_weights_on_a_device(tmp_path):
    utils.save({"w": torch.ones(2)}, tmp_path / "w.bin")
    assert utils.load_state_dict(tmp_path / "w.bin", {"": "cpu"})["w"].tolist() == [1, 1]
    assert utils.load_state_dict(tmp_path / "w.bin", device_map={"": "meta"})["w"].is_meta


def test_before_there_is_an_accelerator():
    GradientState._reset_state()
    state = GradientState()
    assert state.active_dataloader is None and state.sync_gradients and state.num_steps == 1
    assert not (state.in_dataloader or state.end_of_dataloader or state.initialized) and state.remainder == -1
    accelerator = Accelerator(gradient_accumulation_steps=2)
    assert state.num_steps == 2
    GradientState._reset_state()
    assert accelerator.gradient_state.num_steps == 2


def test_the_state_dict_of_a_compiled_model_has_the_script_s_own_names():
    """U23: what the original saved of a compiled model loads into it, and the other way round."""
    model = torch.nn.Linear(2, 2)
    compiled = torch.compile(model, backend="eager")
    accelerator = Accelerator()
    prepared = accelerator.prepare(compiled)
    assert list(accelerator.get_state_dict(prepared)) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert list(accelerator.get_state_dict(torch.nn.DataParallel(model))) == ["weight", "bias"]
