"""Collectives, guards, files and the loss of a window, on several processes."""

import random
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, CollectiveError, DistributedType, PartialState, UnknownWordError, set_seed
from torchlift.runtime.config.handlers import GradientAccumulationPlugin

folder = Path(sys.argv[1])
accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes


def refused(error, words, function, *arguments, **more):
    try:
        function(*arguments, **more)
    except error as raised:
        assert words in str(raised), raised
    else:
        raise AssertionError(f"not refused: {words}")


def the_place_of_a_process():
    assert accelerator.distributed_type is DistributedType.MULTI_CPU and accelerator.use_distributed
    assert accelerator.is_main_process == (rank == 0) == accelerator.is_local_main_process
    assert accelerator.should_save_model == (rank == 0)
    assert accelerator.is_last_process == (rank == size - 1) and accelerator.local_process_index == rank
    state = PartialState()
    assert (state.process_index, state.num_processes) == (rank, size)


def gathering():
    ragged = accelerator.gather({"a": torch.full((rank + 1, 2), rank), "b": [torch.ones(rank, dtype=torch.bool)]})
    assert ragged["a"][:, 0].tolist() == [r for r in range(size) for _ in range(r + 1)]
    assert ragged["b"][0].tolist() == [True] * sum(range(size))
    assert accelerator.gather(torch.tensor(float(rank))).tolist() == [float(r) for r in range(size)]
    kinds = [torch.tensor([rank], dtype=t) for t in (torch.float16, torch.bfloat16, torch.uint8, torch.complex64)]
    assert [t.dtype for t in accelerator.gather(kinds)] == [t.dtype for t in kinds]
    assert accelerator.gather(torch.zeros(0, 3)).shape == (0, 3)
    for columns in (4, 20_000):  # with their sizes, and behind them
        row = torch.arange(columns)[None]
        for one in accelerator.gather((row, row + 1.0, row + 2.0)):
            assert one.is_contiguous() and one.view(-1)[columns] == one[0, 0], "a row of every process can be viewed"
    refused(TypeError, "str", accelerator.gather, "text")
    refused(CollectiveError, "pad_across_processes", accelerator.gather, torch.ones(2, rank + 1))


def padding():
    got = accelerator.pad_across_processes({"a": torch.ones(2, rank + 1), "b": torch.ones(())}, dim=-1, pad_index=7)
    assert got["a"].tolist() == [[1.0] * (rank + 1) + [7.0] * (size - 1 - rank)] * 2 and got["b"].shape == ()
    got = accelerator.pad_across_processes(torch.ones(rank + 1, dtype=torch.long), pad_first=True)
    assert got.tolist() == [0] * (size - 1 - rank) + [1] * (rank + 1)


def reducing():
    total = sum(range(size))
    assert accelerator.reduce(torch.tensor([rank])).tolist() == [total]
    assert accelerator.reduce(torch.tensor([float(rank)]), "mean").item() == total / size
    assert accelerator.reduce(torch.tensor(rank), "max").item() == size - 1
    assert accelerator.reduce(torch.tensor(rank), "min").item() == 0
    assert accelerator.reduce(torch.tensor(rank == 0), "max").item() is True
    mixed = accelerator.reduce((torch.ones(2, dtype=torch.bfloat16), torch.tensor(3), torch.ones(1, 1)), scale=0.5)
    assert [float(t.sum()) for t in mixed] == [size, 1.5 * size, size / 2]
    refused(UnknownWordError, "none", accelerator.reduce, torch.ones(1), "none")
    refused(CollectiveError, "float()", accelerator.reduce, torch.tensor(1), "mean")
    refused(CollectiveError, "gather", accelerator.reduce, torch.ones(rank + 1))


def broadcasting():
    assert accelerator.broadcast(torch.tensor([rank, 5])).tolist() == [0, 5]
    assert accelerator.broadcast({"x": torch.tensor(rank)}, from_process=size - 1)["x"].item() == size - 1
    assert accelerator.broadcast_object_list([rank, {"a": rank}]) == [0, {"a": 0}]


def triggers():
    assert not accelerator.check_trigger()
    if rank == size - 1:
        accelerator.set_trigger()
    assert accelerator.check_trigger()
    assert not accelerator.check_trigger()


def some_run_first():
    with accelerator.main_process_first():
        if rank == 0:
            time.sleep(0.2)
            (folder / "download").write_text("x")
        assert (folder / "download").exists()
    with accelerator.main_process_first():  # a turn within a turn, which only the process comes by that builds
        if not (folder / "built").exists():
            with accelerator.main_process_first():
                (folder / "built").write_text("x")
    try:
        with accelerator.local_main_process_first():
            if rank == 0:
                raise ValueError("on purpose")
    except ValueError:
        assert rank == 0
    else:
        assert rank, "the error was swallowed"
    accelerator.wait_for_everyone()
    assert accelerator.on_main_process(lambda: 5)() == (5 if rank == 0 else None)
    assert accelerator.on_last_process(lambda: 5)() == (5 if rank == size - 1 else None)

    @accelerator.on_local_main_process
    def named():
        """Kept."""
        return rank

    assert named() == (0 if rank == 0 else None) and named.__doc__ == "Kept."


def files_are_written_once():
    accelerator.save({"rank": rank}, folder / "state.pt")
    accelerator.wait_for_everyone()
    assert torch.load(folder / "state.pt") == {"rank": 0}
    assert sorted(p.name for p in folder.iterdir()) == ["built", "download", "state.pt"]


def seeds():
    set_seed(3)
    assert len(set(accelerator.gather(torch.rand(1)).tolist())) == 1
    set_seed(3, device_specific=True)
    assert len(set(accelerator.gather(torch.rand(1)).tolist())) == size
    assert len(set(accelerator.gather(torch.tensor([random.random()])).tolist())) == size
    set_seed(3)


def a_short_last_window_counts_by_its_own_length():
    for known in (True, False):
        plugin = GradientAccumulationPlugin(num_steps=4, exact_windows=True)
        own = Accelerator(gradient_accumulation_plugin=plugin, split_batches=True)
        data = TensorDataset(torch.arange(1.0, 7.0)[:, None])  # 6 batches of 1: windows of 4 and 2
        loader = DataLoader(data if known else Stream(data), batch_size=1)
        net = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(net.weight)
        net, opt, loader = own.prepare(net, torch.optim.SGD(net.parameters(), lr=1.0), loader)
        gradients = []
        for (x,) in loader:
            with own.accumulate(net):
                own.backward(net(x).mean())
                before = net.weight.detach().clone()
                norm = own.clip_grad_norm_(net.parameters(), 100.0)
                opt.step()
                if own.sync_gradients:
                    gradients.append(net.weight.grad.item())
                    assert abs(norm.item() - net.weight.grad.item()) < 1e-6
                    assert not torch.equal(before, net.weight)
                else:
                    assert torch.equal(before, net.weight)
                opt.zero_grad()
        assert gradients == [2.5, 5.5], gradients


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(self.data[i] for i in range(len(self.data)))


def schedulers_count_batches_of_the_script():
    for split, ticks in ((False, size), (True, 1)):
        own = Accelerator(split_batches=split)
        net = torch.nn.Linear(1, 1)
        opt = torch.optim.SGD(net.parameters(), lr=1.0)
        step = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=3)
        assert own.prepare(step, net, opt, plateau)[0] is step
        own.backward(net(torch.ones(1, 1)).sum())
        opt.step()
        step.step()
        assert step.last_epoch == ticks and isinstance(step, torch.optim.lr_scheduler.StepLR)
        for _ in range(4):
            plateau.step(1.0)
        assert opt.param_groups[0]["lr"] == 0.5**ticks
        plateau.step(1.0)
        assert opt.param_groups[0]["lr"] < 0.5**ticks


def fp16_skips_a_step_on_all_processes():
    own = Accelerator(mixed_precision="fp16")
    net = torch.nn.Linear(2, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    net, opt = own.prepare(net, opt)
    before = net.weight.detach().clone()
    own.backward(net(torch.full((1, 2), float("inf") if rank == 0 else 1.0)).sum())
    opt.step()
    assert own.optimizer_step_was_skipped and torch.equal(before, net.weight)
    opt.zero_grad()
    out = net(torch.ones(1, 2))
    assert out.dtype is torch.float32
    own.backward(out.sum())
    norm = own.clip_grad_norm_(net.parameters(), 1000.0)
    assert abs(norm.item() - 3**0.5) < 1e-2, "unscaled before it is measured"
    opt.step()
    assert not own.optimizer_step_was_skipped and not torch.equal(before, net.weight)


SKIPPED = ("refused", "Stream", "set_seed")
for name, check in list(globals().items()):
    if callable(check) and getattr(check, "__module__", "") == "__main__" and name not in SKIPPED:
        try:
            check()
        except BaseException:
            print("FAILED", name, flush=True)
            raise
accelerator.print("once a machine")
print("RESULT true", flush=True)
