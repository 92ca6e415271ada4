"""The accelerator on one process: words, windows, precision, optimizers, schedulers, files."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LinearLR, StepLR
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset

from torchlift.runtime import (
    Accelerator,
    CheckpointError,
    DataLoaderConfiguration,
    DistributedType,
    MixedUseError,
    NotAvailableYet,
    PrecisionType,
    TopologyError,
    UnknownWordError,
)
from torchlift.runtime.config.environment import read_environment
from torchlift.runtime.config.handlers import (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    TorchDynamoPlugin,
)
from torchlift.runtime.data_loader import (
    BatchSamplerShard,
    DataLoaderDispatcher,
    DataLoaderShard,
    IterableDatasetShard,
    SkipDataLoader,
    prepare_data_loader,
)
from torchlift.runtime.process.topology import topology
from torchlift.runtime.state import AcceleratorState


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHLIFT_SPLIT_BATCHES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHLIFT_CPU", "1")


def small():
    net = nn.Linear(2, 1)
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


# ---------------------------------------------------------------- words and settings


def test_one_process():
    accelerator = Accelerator()
    assert accelerator.distributed_type == DistributedType.NO == "NO"
    assert (accelerator.num_processes, accelerator.process_index, accelerator.device.type) == (1, 0, "cpu")
    assert accelerator.is_main_process and accelerator.is_last_process and not accelerator.use_distributed
    assert accelerator.sync_gradients
    assert "bf16" in PrecisionType and "fp7" not in PrecisionType and str(PrecisionType.BF16) == "bf16"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"mixed_precision": "half"}, UnknownWordError, "no, fp16, bf16"),
        ({"megatron_lm_plugin": object()}, NotAvailableYet, "megatron_lm_plugin"),
        ({"gradient_accumulation_steps": 0}, MixedUseError, "1 or more"),
        (
            {"gradient_accumulation_steps": 2, "gradient_accumulation_plugin": GradientAccumulationPlugin(num_steps=2)},
            MixedUseError,
            "Give one",
        ),
        ({"kwargs_handlers": [AutocastKwargs(), AutocastKwargs()]}, MixedUseError, "two AutocastKwargs"),
        ({"kwargs_handlers": [{}]}, AssertionError, "takes objects"),
        ({"dynamo_backend": "warp"}, UnknownWordError, "inductor"),
        ({"dynamo_backend": "eager", "dynamo_plugin": TorchDynamoPlugin()}, MixedUseError, "Give one"),
        ({"rng_types": ["dice"]}, UnknownWordError, "generator"),
        ({"mixed_precision": "bf16-true"}, NotAvailableYet, "bf16-true"),
        (
            {"split_batches": True, "dataloader_config": DataLoaderConfiguration(split_batches=False)},
            MixedUseError,
            "in one place",
        ),
    ],
)
def test_settings_that_cannot_be(arguments, error, words):
    with pytest.raises(error, match=words):
        Accelerator(**arguments)


class Counting(IterableDataset):
    def __iter__(self):
        return iter(range(16))


@pytest.mark.parametrize("data", [range(16), Counting()], ids=["data set", "stream"])
@pytest.mark.parametrize("kind", [DataLoaderShard, DataLoaderDispatcher, SkipDataLoader])
def test_a_loader_made_by_hand_with_a_state(kind, data):
    def make():
        more = {"skip_batches": 1} if kind is SkipDataLoader else {}
        return kind(data, batch_size=3, use_stateful_dataloader=True, **more)

    first, second, seen, state = make(), make(), [], {}
    for batch in first:
        seen.append((batch.tolist(), first.end_of_dataloader))
        state = first.state_dict() if len(seen) == 2 else state
    assert [last for _, last in seen] == [False] * (len(seen) - 1) + [True]
    second.load_state_dict(state)
    assert [batch.tolist() for batch in second] == [batch for batch, _ in seen[2:]]
    assert [batch.tolist() for batch in second] == [batch for batch, _ in seen], "the next pass is whole"
    assert second.iteration == 2 and not hasattr(kind(data, batch_size=3), "state_dict")


def test_a_loader_with_a_state():
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    first, second = (accelerator.prepare(DataLoader(range(20), batch_size=3, shuffle=True)) for _ in range(2))
    for seen in range(1, 4):
        batches = iter(first)
        for _ in range(seen):
            next(batches)
        state = first.state_dict()
        second.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert second.state_dict()["position"] == state["position"] == seen
        assert [b.tolist() for b in second] == [b.tolist() for b in batches]
        assert first.state_dict()["position"] == second.state_dict()["position"] == 0, "the pass is over"
    other = Accelerator()
    assert not hasattr(other.prepare(DataLoader(range(3))), "state_dict") and not other.use_stateful_dataloader
    other.dataloader_config = DataLoaderConfiguration(use_stateful_dataloader=True, even_batches=False)
    assert hasattr(other.prepare(DataLoader(range(3))), "state_dict") and other.use_stateful_dataloader
    assert not other.even_batches and other.dataloader_config.use_stateful_dataloader
    with pytest.raises(CheckpointError, match="not the state of a loader"):
        second.load_state_dict({"_num_yielded": 3})
    with pytest.raises(CheckpointError, match="on 2 processes, but now there are 1"):
        second.load_state_dict({**state, "processes": 2})


@pytest.mark.parametrize(
    ("word", "meaning"), [("bf16-mixed", "bf16"), ("16-mixed", "fp16"), ("32-true", "no"), ("fp16", "fp16")]
)
def test_precisions_have_several_spellings(word, meaning):
    assert Accelerator(mixed_precision=word).mixed_precision == meaning


def test_handlers_are_handed_on():
    given = [GradScalerKwargs(init_scale=1024, growth_interval=7), AutocastKwargs(cache_enabled=False)]
    accelerator = Accelerator(mixed_precision="fp16", kwarg_handler=given)
    assert (accelerator.scaler.get_scale(), accelerator.scaler.get_growth_interval()) == (1024, 7)
    with accelerator.autocast():
        assert torch.is_autocast_enabled("cpu") and not torch.is_autocast_cache_enabled()
        with accelerator.autocast(AutocastKwargs(enabled=False)):
            assert not torch.is_autocast_enabled("cpu"), "it ends the one around it"
        assert torch.is_autocast_enabled("cpu")
    with accelerator.autocast(AutocastKwargs(enabled=False)):
        assert not torch.is_autocast_enabled("cpu")
    assert GradScalerKwargs(init_scale=2).to_kwargs() == {"init_scale": 2}
    with pytest.raises(UnknownWordError, match="power_sgd"):
        DistributedDataParallelKwargs(comm_hook="zip")


def test_the_environment_speaks_where_arguments_do_not(monkeypatch):
    monkeypatch.setenv("TORCHLIFT_SPLIT_BATCHES", "1")
    monkeypatch.setenv("TORCHLIFT_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3")
    accelerator = Accelerator()
    assert (accelerator.split_batches, accelerator.mixed_precision) == (True, "bf16")
    assert accelerator.gradient_accumulation_steps == 3
    assert Accelerator(split_batches=False, mixed_precision="no").split_batches is False
    monkeypatch.setenv("TORCHLIFT_SPLIT_BATCHES", "perhaps")
    with pytest.raises(UnknownWordError, match="TORCHLIFT_SPLIT_BATCHES"):
        Accelerator()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"WORLD_SIZE": "2"}, "torchrun"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "from 0 to 1"),
        ({"WORLD_SIZE": "0"}, "1 or more"),
    ],
)
def test_places_that_cannot_be(variables, words):
    with pytest.raises(TopologyError, match=words):
        topology(read_environment(variables))


# ---------------------------------------------------------------- prepare


def test_prepare_keeps_order_objects_and_containers():
    accelerator = Accelerator()
    net, opt = small()
    sched, loader = StepLR(opt, 1), DataLoader(TensorDataset(torch.ones(3, 2)))
    a, b, c, d, e = accelerator.prepare(sched, None, loader, opt, net)
    assert (a, b, d, e) == (sched, None, opt, net)
    assert c is not loader
    assert accelerator.prepare(net) is net
    assert accelerator.prepare(c) is c
    assert accelerator.prepare(net, c, opt, sched) == (net, c, opt, sched)
    holder = [net, opt]
    assert accelerator.prepare(holder) is holder
    assert accelerator.prepare({"loader": loader})["loader"].dataset is loader.dataset
    with pytest.raises(ValueError, match="one for each"):
        accelerator.prepare(net, opt, device_placement=[True])
    assert type(net) is nn.Linear, "one process, full precision: nothing is added"


def test_a_prepared_optimizer_is_the_scripts_own():
    accelerator = Accelerator()
    net, opt = small()
    before = StepLR(opt, 1)
    opt = accelerator.prepare(opt)
    after = LinearLR(opt)
    seen = []
    opt.register_step_post_hook(lambda *_: seen.append(1))
    accelerator.backward(net(torch.ones(1, 2)).sum())
    opt.step()
    before.step()
    after.step()
    opt.zero_grad(set_to_none=True)
    assert seen == [1]
    assert net.weight.grad is None
    assert type(opt) is torch.optim.SGD
    twin = copy.deepcopy(opt)
    assert "step" not in vars(twin)
    assert b"torchlift" not in pickle.dumps(opt)
    fresh = torch.optim.SGD(small()[0].parameters(), lr=0.1, momentum=0.9)
    fresh.load_state_dict(opt.state_dict())

    def closure():
        opt.zero_grad()
        loss = net(torch.ones(1, 2)).square().sum()
        accelerator.backward(loss)
        return loss

    assert opt.step(closure).item() > 0


def test_a_prepared_scheduler_saves_and_copies_as_its_own_class():
    accelerator = Accelerator()
    _net, opt = small()
    sched = StepLR(opt, 2)
    plain_keys = set(sched.state_dict())
    accelerator.prepare(opt, sched)
    assert isinstance(sched, StepLR)
    assert set(sched.state_dict()) == plain_keys
    assert type(copy.deepcopy(sched)) is StepLR
    buffer = io.BytesIO()
    torch.save(sched.state_dict(), buffer)
    assert sched.base_lrs == [0.1]


def test_unwrap_looks_through_foreign_wrappers_and_changes_nothing():
    accelerator = Accelerator()
    net = nn.Linear(1, 1)
    parallel, compiled = nn.DataParallel(net), torch.compile(net)
    assert accelerator.unwrap_model(net) is net
    assert accelerator.unwrap_model(parallel) is net
    assert accelerator.unwrap_model(compiled) is compiled
    assert accelerator.unwrap_model(compiled, keep_torch_compile=False) is net
    assert compiled._orig_mod is net
    assert set(accelerator.get_state_dict(parallel)) == {"weight", "bias"}


# ---------------------------------------------------------------- windows


def accumulated(steps, place, batches=6, sized=True, exact=True):
    """The gradient at every step, for a weight whose gradient is the value of the batch."""
    plugin = GradientAccumulationPlugin(num_steps=steps, exact_windows=exact)
    accelerator = Accelerator(gradient_accumulation_plugin=plugin)
    net = nn.Linear(1, 1, bias=False)
    data = TensorDataset(torch.arange(1.0, batches + 1)[:, None])
    loader = DataLoader(data)
    if not sized:
        loader = DataLoader(data, batch_sampler=iter([[i] for i in range(batches)]))
    net, opt, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.0), loader)
    seen = []
    for (x,) in loader:
        with accelerator.accumulate(net):
            if place == "first":
                opt.zero_grad()
            accelerator.backward(net(x).sum())
            opt.step()
            if accelerator.sync_gradients:
                seen.append(net.weight.grad.item())
            if place == "last":
                opt.zero_grad()
    return seen


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize(
    ("steps", "means"), [(1, [1, 2, 3, 4, 5, 6]), (2, [1.5, 3.5, 5.5]), (4, [2.5, 5.5]), (6, [3.5]), (9, [3.5])]
)
def test_an_exact_window_gives_the_mean_of_its_batches(steps, means, place, sized):
    assert accumulated(steps, place, sized=sized) == pytest.approx(means)


def test_a_short_window_is_divided_by_the_length_it_should_have():
    assert accumulated(4, "last", exact=False) == pytest.approx([2.5, 11 / 4])


def test_a_loop_left_on_its_last_batch_does_not_end_later_windows():
    accelerator = Accelerator(gradient_accumulation_steps=3)
    train, test = (accelerator.prepare(DataLoader(TensorDataset(torch.ones(n, 1)))) for n in (7, 1))
    synced = []
    for _ in train:
        for _ in test:
            break
        with accelerator.accumulate():
            synced.append(accelerator.sync_gradients)
    assert synced == [False, False, True, False, False, True, True]


def test_models_that_accumulate_in_turn_have_windows_of_their_own():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    d, g = nn.Linear(1, 1), nn.Linear(1, 1)
    synced = []
    for _ in range(2):
        for net in (d, g):
            with accelerator.accumulate(net):
                synced.append(accelerator.sync_gradients)
    assert synced == [False, False, True, True]


def test_a_backward_outside_of_windows_is_stepped():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    net, opt = accelerator.prepare(*small())
    with accelerator.accumulate(net):
        accelerator.backward(net(torch.ones(1, 2)).sum())
    before = net.weight.detach().clone()
    accelerator.backward(net(torch.ones(1, 2)).sum())
    opt.step()
    assert not torch.equal(before, net.weight)


def test_between_the_batches_of_a_window_gradients_are_kept():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    net, opt = accelerator.prepare(*small())
    kept = []
    for _ in range(2):
        with accelerator.accumulate(net):
            accelerator.backward(net(torch.ones(1, 2)).sum())
            opt.step()
        opt.zero_grad()
        kept.append(net.weight.grad is not None)
    assert kept == [True, False]


def test_step_counts_the_batches_and_may_be_set():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    net, _ = accelerator.prepare(*small())

    def seen(batches):
        found = []
        for _ in batches:
            with accelerator.accumulate(net):
                found.append((accelerator.step, accelerator.sync_gradients))
        return found

    assert seen(accelerator.prepare(DataLoader(torch.ones(3, 1)))) == [(1, False), (2, True), (0, True)]
    assert seen(range(3)) == [(1, False), (2, True), (3, False)]
    accelerator.step = 3
    assert seen(range(2)) == [(4, True), (5, False)]
    accelerator.free_memory()
    assert accelerator.step == 0 and seen(range(1)) == [(1, False)]


def test_names_that_scripts_know_from_accelerate():
    accelerator = Accelerator(gradient_accumulation_steps=2, step_with_optimizer=False)
    state = accelerator.gradient_state
    assert (state.num_steps, state.sync_gradients, state.in_dataloader, state.remainder) == (2, True, False, -1)
    assert (accelerator.dispatch_batches, accelerator.step_scheduler_with_optimizer) == (None, False)
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.ones(3, 1))))
    for number, _ in enumerate(loader):
        assert state.active_dataloader is loader and state.dataloader_references == [None, loader]
        assert state.end_of_dataloader == loader.end_of_dataloader == (number == 2)
    assert state.active_dataloader is None and not state.end_of_dataloader
    assert isinstance(loader, DataLoaderShard) and not isinstance(loader, DataLoaderDispatcher)
    assert AcceleratorState().mixed_precision == "no" and AcceleratorState().num_processes == 1
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = accelerator.nonsense


def test_loaders_made_by_hand():
    batches = BatchSampler(range(9), 2, False)
    shards = [list(BatchSamplerShard(batches, 2, rank)) for rank in range(2)]
    assert shards == [[[0, 1], [4, 5], [8, 0]], [[2, 3], [6, 7], [1, 2]]]
    assert list(BatchSamplerShard([[0], [1, 2], [3]], 2, 1)) == [[1, 2], [0]]
    assert list(BatchSamplerShard(BatchSampler(range(6), 4, False), 2, 1, split_batches=True)) == [[2, 3], [0, 1]]
    with pytest.raises(ValueError, match="round multiple"):
        BatchSamplerShard(BatchSampler(range(6), 3, False), 2, 0, split_batches=True)
    assert list(IterableDatasetShard(range(5), 2, num_processes=2, process_index=1)) == [2, 3, 1, 2]
    assert [b.tolist() for b in SkipDataLoader(list(range(6)), batch_size=2, skip_batches=2)] == [[4, 5]]
    loader = DataLoaderShard(list(range(6)), batch_size=2)
    assert [loader.end_of_dataloader for _ in loader] == [False, False, True]
    assert isinstance(prepare_data_loader(loader), DataLoaderShard)


def test_reductions_of_a_loss_are_words():
    with pytest.raises(UnknownWordError, match="mean, sum"):
        Accelerator().backward(torch.ones((), requires_grad=True), reduction="none")


# ---------------------------------------------------------------- precision


class Spy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        self.seen = self.inner(x).dtype
        return {"out": self.inner(x), "names": ["a"]}


@pytest.mark.parametrize(("word", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_forward_runs_in_mixed_precision_and_hands_out_fp32(word, dtype):
    accelerator = Accelerator(mixed_precision=word)
    net = Spy()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    assert accelerator.prepare(net, opt) == (net, opt)
    out = net(torch.ones(1, 2))
    assert net.seen is dtype
    assert out["out"].dtype is torch.float32
    assert out["names"] == ["a"]
    assert net.inner.weight.dtype is torch.float32
    with accelerator.autocast():
        assert net.inner(torch.ones(1, 2)).dtype is dtype
    before = net.inner.weight.detach().clone()
    accelerator.backward(out["out"].sum() / 2)  # with the scale of 65536 a gradient of 1 would overflow in fp16
    opt.step()
    assert torch.allclose(before - net.inner.weight, torch.full((2, 2), 0.05), atol=1e-3)
    assert type(pickle.loads(pickle.dumps(nn.Sequential(net)))[0]).__name__ == "Spy"
    assert (accelerator.scaler is not None) == (word == "fp16")


def test_fp16_clips_unscaled_gradients_of_the_optimizer_concerned():
    accelerator = Accelerator(mixed_precision="fp16")
    (a, opt_a), (b, opt_b) = small(), small()
    a, opt_a, b, opt_b = accelerator.prepare(a, opt_a, b, opt_b)
    for net in (a, b):
        accelerator.backward(net(torch.ones(1, 2)).sum() / 2)
    assert accelerator.clip_grad_norm_(a.parameters(), 0.5).item() == pytest.approx(0.75**0.5, rel=1e-3)
    assert a.weight.grad.norm() < 0.5
    assert b.weight.grad.norm() > 100, "the other one still carries its scale"
    accelerator.clip_grad_value_(b.parameters(), clip_value=0.5)
    assert b.weight.grad.abs().max() <= 0.5
    opt_a.step()
    opt_b.step()
    assert not accelerator.optimizer_step_was_skipped


def test_an_overflow_skips_the_step_and_the_scheduler():
    accelerator = Accelerator(mixed_precision="fp16")
    net, opt = small()
    sched = StepLR(opt, 1, gamma=0.5)
    net, opt, sched = accelerator.prepare(net, opt, sched)
    before = net.weight.detach().clone()
    accelerator.backward(net(torch.full((1, 2), float("inf"))).sum())
    opt.step()
    sched.step()
    assert accelerator.optimizer_step_was_skipped
    assert torch.equal(before, net.weight)
    assert sched.last_epoch == 0
    opt.zero_grad()
    accelerator.backward(net(torch.ones(1, 2)).sum() / 4)
    opt.step()
    sched.step()
    assert sched.last_epoch == 1


# ---------------------------------------------------------------- files


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    accelerator = Accelerator()
    path = tmp_path / "state.pt"
    accelerator.save({"a": 1}, path)
    mode = path.stat().st_mode & 0o777
    (tmp_path / "plain").write_text("")
    assert mode == (tmp_path / "plain").stat().st_mode & 0o777

    with pytest.raises(AttributeError):
        accelerator.save(lambda: None, str(path))
    assert torch.load(path) == {"a": 1}, "the old file is untouched"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain", "state.pt"]
    buffer = io.BytesIO()
    accelerator.save({"b": 2}, buffer)
    buffer.seek(0)
    assert torch.load(buffer) == {"b": 2}
    (tmp_path / "link").symlink_to(path)
    accelerator.save({"c": 3}, tmp_path / "link")
    assert torch.load(path) == {"c": 3}
    assert (tmp_path / "link").is_symlink()
    with pytest.raises(RuntimeError, match="Create it first"):
        accelerator.save({}, Path("no/such/folder/x.pt"))


def test_gathering_alone_gives_the_same_object():
    accelerator = Accelerator()
    tree = {"x": torch.ones(2)}
    assert accelerator.gather(tree) is tree
    assert accelerator.gather_for_metrics(tree) is tree
    assert accelerator.gather_for_metrics(["a"]) == ["a"]
    assert accelerator.reduce(tree, "mean")["x"] is not tree["x"]
