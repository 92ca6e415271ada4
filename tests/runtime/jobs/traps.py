"""What goes wrong with Accelerate (w) and Fabric (f), row by row of the list of it: here it goes right."""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from torchlift.runtime import (
    Accelerator,
    CheckpointError,
    DataLoaderConfiguration,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    MixedUseError,
    ProjectConfiguration,
    set_seed,
    utils,
)
from torchlift.runtime.collectives.world import World
from torchlift.runtime.utils import patch_environment

folder = Path(sys.argv[1])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def numbers(n):
    return TensorDataset(torch.arange(n))


def flat(lists):
    return [value for one in lists for value in one]


def rows_of(loader):
    return [x.tolist() for (x,) in loader]


def raises(kinds, function, *arguments, **more):
    try:
        function(*arguments, **more)
    except kinds as error:
        return str(error)
    raise AssertionError(f"{kinds} was not raised")


def line(value=1.0):
    """A model of one weight."""
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(net.weight, value)
    return net


class counted:
    """How often the processes exchange something in the body."""

    def __enter__(self):
        self.count, self._own = 0, World._gather_rows

        def gather(*arguments):
            self.count += 1
            return self._own(*arguments)

        World._gather_rows = gather
        return self

    def __exit__(self, *_):
        World._gather_rows = self._own


def w1_split_batches_is_minded():
    loader = Accelerator(split_batches=True).prepare(DataLoader(numbers(8), batch_size=4))
    assert rows_of(loader) == ([[0, 1], [4, 5]] if rank == 0 else [[2, 3], [6, 7]])
    config = DataLoaderConfiguration(split_batches=False)
    raises(MixedUseError, Accelerator, split_batches=True, dataloader_config=config)


def rates(make, step, epochs=3):
    accelerator = Accelerator()
    net = line()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scheduler = make(optimizer)
    net, optimizer, loader, scheduler = accelerator.prepare(net, optimizer, DataLoader(numbers(8), 2), scheduler)
    found = []
    for epoch in range(epochs):
        for (x,) in loader:
            optimizer.zero_grad()
            accelerator.backward(net(x[:, None].double()).mean() * 0)
            optimizer.step()
        step(scheduler, epoch)
        found.append(optimizer.param_groups[0]["lr"])
    return found


def w2_a_schedule_by_epochs_moves_once_an_epoch():
    assert rates(lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5), lambda s, _: s.step()) == [0.5, 0.25, 0.125]


def w3_a_plateau_is_seen_once_and_the_same_everywhere():
    def make(optimizer):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3, factor=0.1)

    found = rates(make, lambda s, epoch: s.step(1.0 + rank * epoch), 6)  # gets worse on one process only
    assert found == [1.0] * 4 + [0.1] * 2, found


def w4_a_pass_that_was_left_counts():
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=1))
    loader = accelerator.prepare(DataLoader(numbers(16), 4, shuffle=True))
    firsts = []
    for _ in range(3):
        for (x,) in loader:
            firsts.append(x.tolist())
            break
    assert len({tuple(one) for one in firsts}) == 3, firsts
    assert not accelerator.gradient_state.in_dataloader


def w5_the_last_batch_of_a_loop_that_was_left_is_not_the_end_for_others():
    accelerator = Accelerator(gradient_accumulation_steps=4)
    net = accelerator.prepare(line())
    for _ in accelerator.prepare(DataLoader(numbers(4), 2)):
        break  # its only batch
    found = []
    for _ in range(4):
        with accelerator.accumulate(net):
            found.append(accelerator.sync_gradients)
    assert found == [False, False, False, True], found


def seedable(place=None):
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=1))
    loader = accelerator.prepare(DataLoader(numbers(16), 4, shuffle=True))
    if place is not None:
        accelerator.load_state(place)
    return accelerator, loader


def w7_the_epoch_is_saved():
    accelerator, loader = seedable()
    rows_of(loader)
    accelerator.save_state(folder / "w7")
    assert rows_of(seedable(folder / "w7")[1]) == rows_of(loader)


def w8_every_process_has_its_state_in_the_file():
    config = DataLoaderConfiguration(use_stateful_dataloader=True)

    def prepared():
        accelerator = Accelerator(dataloader_config=config)
        _, loader = accelerator.prepare(line(), DataLoader(numbers(20), 2, shuffle=True))  # noise is a model's
        return accelerator, loader

    accelerator, loader = prepared()
    batches = iter(loader)
    next(batches)
    accelerator.save_state(folder / "w8")
    kept = torch.load(folder / "w8" / "dl_state_dict.bin")
    assert len(kept["ranks"]) == size and not kept["ranks"][0]["torch"].equal(kept["ranks"][1]["torch"])
    other, again = prepared()
    other.load_state(folder / "w8")
    assert rows_of(again) == rows_of(batches)


def w9_what_was_skipped_does_not_hide_the_remainder():
    accelerator = Accelerator()
    loader = accelerator.prepare(DataLoader(numbers(9), 2))
    rest = accelerator.skip_first_batches(loader, 1)
    got = [accelerator.gather_for_metrics(x).tolist() for (x,) in rest]
    assert sorted(flat(got)) == [4, 5, 6, 7, 8], got
    assert rest.total_batch_size == 2 * size


def w10_every_value_is_counted_once():
    accelerator = Accelerator()
    loader = accelerator.prepare(DataLoader(numbers(9), 2))
    losses, collected = [], []
    for (x,) in loader:
        losses += accelerator.gather_for_metrics(torch.tensor(float(rank))).tolist()
        collected.append(x)
    assert losses == [0.0, 1.0] * len(losses[::2]) and len(losses) == 2 * len(loader)
    assert accelerator.gather_for_metrics(torch.cat(collected)).tolist() == list(range(9))
    raises(ValueError, accelerator.gather_for_metrics, torch.ones(5))
    one, other = accelerator.prepare(DataLoader(numbers(9), 2), DataLoader(numbers(9), 2))
    pairs = [accelerator.gather_for_metrics(x).tolist() for (x,), _ in zip(one, other, strict=True)]
    assert flat(pairs) == list(range(9)), pairs


def w11_a_distributed_sampler_stays():
    sampler = DistributedSampler(numbers(16), size, rank, shuffle=False)
    seen = rows_of(Accelerator().prepare(DataLoader(numbers(16), 2, sampler=sampler)))
    assert flat(seen) == list(range(rank, 16, size))


class Named(DataLoader):
    extra = "mine"

    def __iter__(self):
        for batch in super().__iter__():
            yield {"x": batch[0]}


def w12_a_loader_of_ones_own_stays():
    loader = Accelerator().prepare(Named(numbers(8), 2))
    assert isinstance(loader, Named) and loader.extra == "mine"
    assert [batch["x"].tolist() for batch in loader] == ([[0, 1], [4, 5]] if rank == 0 else [[2, 3], [6, 7]])


def w13_no_sample_counts_twice_in_training():
    accelerator = Accelerator(split_batches=True)
    net, data = line(), TensorDataset(torch.arange(1.0, 6.0).double()[:, None])
    net, loader = accelerator.prepare(net, DataLoader(data, 3))
    found = []
    for (x,) in loader:
        accelerator.backward(net(x).mean())
        found.append(round(net.weight.grad.item(), 12))
        net.zero_grad()
    assert found == [2.0, 4.5], "the means of 1, 2, 3 and of 4, 5"


def w14_a_short_window_counts_as_it_is_long():
    plugin = GradientAccumulationPlugin(num_steps=4, exact_windows=True)
    accelerator = Accelerator(gradient_accumulation_plugin=plugin)
    net = line()
    optimizer = torch.optim.SGD(net.parameters(), 0.0)
    data = TensorDataset(torch.ones(12, 1).double())
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data, 1))
    found = []
    for (x,) in loader:
        with accelerator.accumulate(net):
            accelerator.backward(net(x).mean())
            if accelerator.sync_gradients:
                found.append(round(net.weight.grad.item(), 12))
            optimizer.step()
            optimizer.zero_grad()
    assert found == [1.0, 1.0], found


def w15_several_processes_on_the_cpu_know_each_other():
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == size == 2 and str(accelerator.distributed_type) == "MULTI_CPU"
    assert accelerator.gather(torch.tensor([rank])).tolist() == [0, 1]


def w16_weights_are_sharded_on_the_cpu():
    for how in ({"fsdp_plugin": FullyShardedDataParallelPlugin()}, {}):
        with patch_environment(accelerate_use_fsdp=True):
            net = Accelerator(**how).prepare(line())
        assert hasattr(net.weight, "full_tensor") and net.weight.full_tensor().item() == 1.0


def w17_uneven_inputs_are_joined_on_the_cpu():
    accelerator = Accelerator()
    net = accelerator.prepare(line())
    with accelerator.join_uneven_inputs([net]):
        for _ in range(3 + rank):
            accelerator.backward(net(torch.ones(1, 1).double()).sum())


def numbered(limit):
    project = ProjectConfiguration(project_dir=folder / "w18", automatic_checkpoint_naming=True, total_limit=limit)
    accelerator = Accelerator(project_config=project)
    accelerator.prepare(line())
    return accelerator


def w18_and_w34_an_old_checkpoint_goes_when_the_new_one_is_whole_and_damaged_ones_are_passed_over():
    accelerator = numbered(1)
    accelerator.save_state()
    accelerator.register_for_checkpointing(Broken())
    raises((OSError, CheckpointError), accelerator.save_state)
    place = folder / "w18" / "checkpoints"
    assert [path.name for path in place.glob("[!.]*")] == ["checkpoint_0"]
    accelerator.wait_for_everyone()
    if rank == 0:
        (place / "checkpoint_7").mkdir()
    accelerator.wait_for_everyone()
    numbered(1).load_state()
    accelerator.wait_for_everyone()
    if rank == 0:
        (place / "checkpoint_0" / "model.safetensors").write_bytes(b"damaged")
    accelerator.wait_for_everyone()
    assert "damaged" in raises(CheckpointError, numbered(1).load_state, place / "checkpoint_0")


class Broken:
    def state_dict(self):
        raise OSError("on purpose")

    def load_state_dict(self, state):
        raise OSError("on purpose")


def w19_saving_goes_on_after_loading():
    project = ProjectConfiguration(project_dir=folder / "w19", automatic_checkpoint_naming=True)
    accelerator = Accelerator(project_config=project)
    accelerator.prepare(line())
    for _ in range(2):
        accelerator.save_state()
    project.iteration = 0
    accelerator.load_state()
    assert accelerator.save_state().name == "checkpoint_2"
    accelerator.save_iteration = 9
    assert accelerator.save_state().name == "checkpoint_9"


def w22_a_step_asks_the_file_system_nothing():
    accelerator = Accelerator()
    net = line()
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1))
    asked = []

    def step():
        accelerator.backward(net(torch.ones(1, 1).double()).sum())
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    step()
    listening = [True]
    sys.addaudithook(lambda event, _: asked.append(event) if listening else None)
    step()
    listening.clear()
    assert not {"open", "import", "os.listdir", "os.scandir"} & set(asked), asked


def w23_forty_tensors_travel_together():
    accelerator = Accelerator()
    tree = {str(i): torch.ones(4 + i % 3, dtype=(torch.float32, torch.int64)[i % 2]) for i in range(40)}
    with counted() as exchanges:
        gathered = accelerator.gather(tree)
    assert exchanges.count == 1
    assert all(torch.equal(gathered[name], torch.cat([one, one])) for name, one in tree.items())
    with counted() as exchanges:
        accelerator.pad_across_processes(tree)
    assert exchanges.count == 1


def w23_what_is_gathered_is_whole_whatever_its_size():
    """Small trees travel with their sizes, large ones behind them, also where only one process has much."""
    accelerator = Accelerator()
    for rows in (0, 1, 500, 4_095, 4_096, 4_097, 12_000):
        for more in (0, 600 * rank):
            mine = torch.arange(float(rows + more), dtype=torch.float64, requires_grad=True)
            tree = [mine, mine[:, None].expand(-1, 2)[:3], torch.tensor(rank), [torch.ones(1, 1, 1)] * 30, mine > 3]
            with counted() as exchanges:
                flat, cut, ranks, ones, large = accelerator.gather(tree)
            lengths = accelerator.gather(torch.tensor(len(mine))).tolist()
            wanted = torch.cat([torch.arange(float(n), dtype=torch.float64) for n in lengths])
            assert torch.equal(flat, wanted) and torch.equal(large, wanted > 3), (rows, more)
            assert cut.shape == (sum(min(n, 3) for n in lengths), 2) and ranks.tolist() == [0, 1]
            assert all(one.shape == (2, 1, 1) and one.sum() == 2 for one in ones)
            assert exchanges.count == (2 if max(lengths) < 3_000 else 3), (lengths, exchanges.count)
            words = ["x" * len(mine)]
            assert utils.gather_object(words) == ["x" * n for n in lengths]


def w24_one_process_reads_for_all_whatever_it_reads():
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    data = [{"x": torch.full((2,), i), "name": f"row {i}", "n": i} for i in range(8)]
    loader = accelerator.prepare(DataLoader(data, 2))
    seen = [(batch["x"][:, 0].tolist(), batch["name"]) for batch in loader]
    mine = [[0, 1], [4, 5]] if rank == 0 else [[2, 3], [6, 7]]
    assert seen == [(rows, [f"row {i}" for i in rows]) for rows in mine], seen


def w25_a_word_that_is_no_reduction_is_an_error():
    accelerator = Accelerator()
    assert accelerator.reduce(torch.tensor(float(rank)), "min").item() == 0
    assert accelerator.reduce(torch.tensor(float(rank)), "avg").item() == 0.5
    raises(ValueError, accelerator.reduce, torch.ones(1), "none")
    raises(RuntimeError, accelerator.reduce, torch.ones(1, dtype=torch.long), "mean")


def w26_objects_are_gathered_from_lists_only():
    assert utils.gather_object(["hi", rank]) == ["hi", 0, "hi", 1]
    for value in ("hi", {"a": 1}):
        raises(ValueError, utils.gather_object, value)


def w27_what_is_shared_out_is_not_changed():
    accelerator = Accelerator()
    given = {"a": [1, 2, 3], "b": (4, 5, 6)}
    with accelerator.split_between_processes(given) as mine:
        assert mine == ({"a": [1, 2], "b": (4, 5)} if rank == 0 else {"a": [3], "b": (6,)})
    assert given == {"a": [1, 2, 3], "b": (4, 5, 6)}
    with accelerator.split_between_processes((1, 2, 3), apply_padding=True) as mine:
        assert mine == ((1, 2) if rank == 0 else (3, 3))


def w30_an_error_in_what_the_main_process_does_first_frees_the_others():
    accelerator = Accelerator()

    def body():
        with accelerator.main_process_first():
            if rank == 0:
                raise OSError("on purpose")

    raises(OSError, body) if rank == 0 else body()
    accelerator.wait_for_everyone()


def w31_nothing_is_clipped_inside_of_a_window():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    net = accelerator.prepare(line())
    norms, gradients = [], []
    for _ in range(2):
        with accelerator.accumulate(net):
            accelerator.backward(net(torch.full((1, 1), 2.0 + rank).double()).sum())
            norms.append(float(accelerator.clip_grad_norm_(net.parameters(), 0.5)))
            gradients.append(net.weight.grad.item())
    assert gradients[0] == 1.0 + rank / 2, "half of it, not exchanged and not clipped"
    assert norms[1] == 2.5 and abs(gradients[1] - 0.5) < 1e-6, (norms, gradients)


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.cfg = nn.Linear(2, 2), {"width": 2}

    def forward(self, x):
        return self.encode(x)

    def encode(self, x):
        self.seen = (self.layer(x)).dtype
        return self.layer(x)


def w32_nothing_is_hidden_by_a_wrapper():
    accelerator = Accelerator(mixed_precision="bf16")
    net = Coder()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net, optimizer, scheduler = accelerator.prepare(net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1))
    called = []
    optimizer.register_step_post_hook(lambda *_: called.append(1))
    assert net.cfg == {"width": 2} and scheduler.base_lrs == [0.1] and scheduler.last_epoch == 0
    assert isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler)
    output = net.encode(torch.ones(1, 2))
    assert net.seen is torch.bfloat16 and output.dtype is torch.float32
    accelerator.backward(output.sum())
    optimizer.step()
    assert called == [1]


def w33_looking_through_a_compiled_model_changes_nothing():
    accelerator = Accelerator()
    compiled = torch.compile(nn.DataParallel(nn.Linear(1, 1)), backend="eager")
    names = list(compiled.state_dict())
    accelerator.unwrap_model(compiled)
    assert isinstance(compiled._orig_mod, nn.DataParallel) and list(compiled.state_dict()) == names


def w34_a_signal_on_one_process_is_heard_by_all_at_the_same_step():
    accelerator = Accelerator()
    before = signal.signal(signal.SIGTERM, lambda *_: accelerator.set_trigger())
    heard = []
    for step in range(4):
        if rank == 1 and step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        heard.append(accelerator.check_trigger())
    signal.signal(signal.SIGTERM, before)
    assert heard == [False, False, True, False]


def w35_two_accelerators_do_not_disturb_each_other():
    variables = dict(os.environ)
    one, other = Accelerator(gradient_accumulation_steps=2), Accelerator(mixed_precision="bf16")
    net = one.prepare(line())
    with one.accumulate(net):
        assert (one.sync_gradients, other.sync_gradients) == (False, True)
    assert (one.mixed_precision, other.mixed_precision) == ("no", "bf16")
    assert dict(os.environ) == variables


def w36_fp16_is_fp16_on_the_cpu_too():
    net = Accelerator(mixed_precision="fp16").prepare(Coder())
    net(torch.ones(1, 2))
    assert net.seen is torch.float16


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(9))


def f2_a_stream_is_shared_out_and_counted_once():
    accelerator = Accelerator()
    loader = accelerator.prepare(DataLoader(Stream(), 2))
    assert flat(accelerator.gather_for_metrics(x).tolist() for x in loader) == list(range(9))


def f4_there_are_windows_schedules_and_triggers():
    for name in ("accumulate", "prepare_scheduler", "set_trigger", "check_trigger", "gather_for_metrics"):
        assert callable(getattr(Accelerator, name))


found = {}
for name, check in list(globals().items()):
    if name[0] in "wf" and name[1:2].isdigit():
        set_seed(3)
        try:
            check()
            found[name] = ""
        except Exception:  # noqa: BLE001
            found[name] = traceback.format_exc()
print("RESULT " + json.dumps(found), flush=True)
