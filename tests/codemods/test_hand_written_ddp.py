"""The rule `hand_written_ddp`: distribution by hand is replaced as a whole, or refused as a whole."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, Target
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

SCRIPT = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main():
    {opens}
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = {wraps}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {built}
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.cuda(local_rank), y.cuda(local_rank)
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        {epoch}
    {end}


if __name__ == "__main__":
    main()
"""
OPENS = 'dist.init_process_group("nccl")'
WRAPS = "DDP(torch.nn.Linear(8, 2).cuda(local_rank), device_ids=[local_rank])"


def script(opens: str = OPENS, wraps: str = WRAPS, built: str = "pass", epoch: str = "pass", end: str = "pass") -> str:
    return SCRIPT.format(opens=opens, wraps=wraps, built=built, epoch=epoch, end=end)


def result(text: str, **options: Any) -> FileResult:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(**options)).files
    return file


def after(**parts: str) -> str:
    file = result(script(**parts))
    assert not file.blocked, file.diagnoses
    text = file.after.decode()
    ast.parse(text)
    assert "accelerator.backward(loss)" in text, "the training itself was not migrated"
    assert result(text).after.decode() == text, "a second run changes nothing"
    return text


OBSTACLES: dict[str, tuple[dict[str, str], str]] = {
    "a group of its own": ({"end": "dist.all_reduce(loss, group=group)"}, "all_reduce works on its own process group"),
    "groups": ({"end": "group = dist.new_group([0])"}, "new_group has no counterpart"),
    "rpc": ({"end": "torch.distributed.rpc.init_rpc('w')"}, "init_rpc has no counterpart"),
    "FSDP": ({"end": "torch.distributed.fsdp.FullyShardedDataParallel(model)"}, "has no counterpart"),
    "hooks of the wrapper": ({"built": "model.register_comm_hook(None, hook)"}, "belongs to the wrapper"),
    "uneven inputs": ({"built": "with model.join():\n        pass"}, "belongs to the wrapper"),
    "the wrapper's own variable": ({"built": "model.require_backward_grad_sync = False"}, "belongs to the wrapper"),
    "a group that the wrapper works on": (
        {"wraps": "DDP(torch.nn.Linear(8, 2), process_group=group)"}, "works on its own process group",
    ),
    "several devices of one process": (
        {"wraps": "DDP(torch.nn.Linear(8, 2), device_ids=[0, 1])"}, "several devices of one process",
    ),
    "a device worked out from the rank": (
        {"wraps": "DDP(torch.nn.Linear(8, 2).to(2 * local_rank))"}, "computed from the rank",
    ),
    "a setting without counterpart": (
        {"wraps": "DDP(torch.nn.Linear(8, 2), mixed_precision=policy)"}, "gets mixed_precision",
    ),
    "arguments that cannot be seen": ({"opens": "dist.init_process_group(**settings)"}, "cannot be seen here"),
    "a group for some users": ({"opens": f"if args.distributed:\n        {OPENS}"}, "`args.distributed` decides"),
    "variables of the launcher": ({"opens": f"os.environ['RANK'] = '0'\n    {OPENS}"}, "sets RANK itself"),
}  # fmt: skip


def test_settings_that_are_written_out_are_seen() -> None:
    """They are as good as arguments of the call."""
    settings = "settings = {'backend': 'nccl'}\n    if slow:\n        settings['timeout'] = LONG\n"
    text = after(opens=f"{settings}    dist.init_process_group(**settings)")
    assert "init_process_group" not in text
    (found,) = result(script(opens="settings = {'store': s}\n    dist.init_process_group(**settings)")).diagnoses
    assert "store" in found.message


@pytest.mark.hazard("S10")
@pytest.mark.parametrize(("parts", "cause"), OBSTACLES.values(), ids=OBSTACLES)
def test_refused_with_what_stands_in_the_way(parts: dict[str, str], cause: str) -> None:
    text = script(**parts)
    file = result(text)
    assert file.after.decode() == text
    assert {found.id for found in file.diagnoses} == {"already-distributed"}
    assert [found for found in file.diagnoses if cause in found.message], file.diagnoses


def test_rows_that_nobody_shares_are_no_business_of_prepare() -> None:
    text = script().replace(", sampler=sampler", ", sampler=own_sampler")
    assert [d.message for d in result(text).diagnoses if "cannot find a DistributedSampler" in d.message]


def test_without_the_rule_every_place_is_named() -> None:
    found = result(script(), ignore=("hand_written_ddp",)).diagnoses
    assert {d.id for d in found} == {"already-distributed"}
    assert len(found) == 4


KEPT: dict[str, str] = {
    "the sampler's epoch": "sampler.set_epoch(epoch)",
    "the sampler in its loader": "loader = DataLoader(data, batch_size=32, sampler=sampler)",
    "reading it keeps it": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
}


@pytest.mark.parametrize("line", KEPT.values(), ids=KEPT)
def test_kept(line: str) -> None:
    assert line in after()


def test_who_prints_and_what_is_gathered_is_left_to_its_author() -> None:
    text = after(epoch="print(loss.item())", end='torch.save(model.state_dict(), "m.pt")')
    assert "        print(loss.item())\n" in text
    assert '    torch.save(model.state_dict(), "m.pt")\n' in text


EPOCH: dict[str, tuple[str, str]] = {
    "the main process": ("if dist.get_rank() == 0: pass", "if accelerator.is_main_process: pass"),
    "all others": ("if dist.get_rank() != 0: pass", "if not accelerator.is_main_process: pass"),
    "the main process of a machine": ("if local_rank == 0: pass", "if accelerator.is_local_main_process: pass"),
    "the number of processes": ("n = dist.get_world_size() + 0", "n = accelerator.num_processes + 0"),
    "from the environment": ('r = os.environ["RANK"] + ""', 'r = accelerator.process_index + ""'),
    "a sum": ("dist.all_reduce(loss)", 'loss = accelerator.reduce(loss, reduction="sum")'),
    "a sum that is named": (
        "dist.all_reduce(loss, op=dist.ReduceOp.SUM)", 'loss = accelerator.reduce(loss, reduction="sum")',
    ),
    "a mean": ("dist.all_reduce(loss, dist.ReduceOp.AVG)", 'loss = accelerator.reduce(loss, reduction="mean")'),
    "one place of a list": (
        "dist.all_reduce(totals[0])", 'totals[0] = accelerator.reduce(totals[0], reduction="sum")',
    ),
    "for one of them": ("dist.reduce(loss, 0)", 'loss = accelerator.reduce(loss, reduction="sum")'),
    "waiting": ("dist.barrier()", "accelerator.wait_for_everyone()"),
    "without exchange": ("with model.no_sync(): pass", "with accelerator.no_sync(model): pass"),
    "looked through": ("state = model.module.state_dict()", "state = model.state_dict()"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), EPOCH.values(), ids=EPOCH)
def test_replaced(old: str, new: str) -> None:
    assert f"        {new}\n" in after(epoch=old)


LEFT: dict[str, str] = {
    "the largest": "dist.all_reduce(loss, op=dist.ReduceOp.MAX)",
    "a list of all": "dist.all_gather(parts, loss)",
    "without waiting for it": "dist.all_reduce(loss, async_op=True)",
}


@pytest.mark.parametrize("line", LEFT.values(), ids=LEFT)
def test_what_the_accelerator_has_nothing_for_stays_on_its_group_and_is_named(line: str) -> None:
    file = result(script(epoch=line))
    assert f"        {line}\n" in file.after.decode()
    assert [(d.id, d.severity.value) for d in file.diagnoses] == [("hand_written_ddp", "review")]


def test_a_helper_that_joins_and_does_something_else_is_kept() -> None:
    helper = f"def join():\n    {OPENS}\n    for name in old:\n        os.remove(name)\n\n\ndef main"
    migrated = result(script(opens="join()").replace("def main", helper, 1)).after.decode()
    assert "def join():\n    for name in old:\n" in migrated and "    join()\n" in migrated
    assert "init_process_group" not in migrated and "accelerator.backward(loss)" in migrated


def test_a_helper_that_only_joins_goes() -> None:
    helper = f'def join():\n    """Meet the others."""\n    {OPENS}\n\n\ndef main'
    migrated = result(script(opens="join()").replace("def main", helper, 1)).after.decode()
    assert "join()" not in migrated and "accelerator.backward(loss)" in migrated


def test_what_a_caller_would_miss_stays_in_place() -> None:
    """A helper that changes its argument, and gives nothing back, cannot give a new tensor."""
    text = script(epoch="total(loss)").replace("def main", "def total(x):\n    dist.all_reduce(x)\n\n\ndef main", 1)
    migrated = result(text).after.decode()
    assert "    dist.all_reduce(x)\n" in migrated
    assert "accelerator.backward(loss)" in migrated


def test_a_helper_that_returns_its_argument_gives_what_is_reduced() -> None:
    helper = "def total(x):\n    if x is None:\n        return\n    dist.all_reduce(x)\n    return x\n\n\ndef main"
    text = script(epoch="loss = total(loss)").replace("def main", helper, 1)
    assert '    x = accelerator.reduce(x, reduction="sum")\n' in result(text).after.decode()


def test_settings_that_matter_are_handed_on() -> None:
    text = after(wraps="DDP(torch.nn.Linear(8, 2), broadcast_buffers=False, find_unused_parameters=True)")
    assert "accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)])" in text
    assert "from torchlift.runtime import Accelerator, DistributedDataParallelKwargs" in text


def test_a_condition_on_what_the_launcher_says_is_none() -> None:
    text = after(opens=f'if int(os.environ.get("WORLD_SIZE", 1)) > 1:\n        {OPENS}')
    assert "    accelerator = Accelerator()\n" in text
    assert "init_process_group" not in text


SPAWN = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def worker(rank, world_size, lr):
    dist.init_process_group("nccl", init_method="tcp://localhost:1", rank=rank, world_size=world_size)
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DDP(torch.nn.Linear(8, 2).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.to(rank)), y.to(rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(loss.item() / world_size)


if __name__ == "__main__":
    mp.spawn(worker, args=(torch.cuda.device_count(), 0.1), nprocs=torch.cuda.device_count())
"""


def test_processes_that_the_script_started_by_itself_are_the_launchers() -> None:
    file = result(SPAWN)
    text = file.after.decode()
    for line in (
        "def worker(lr):",
        "    sampler = DistributedSampler(data, accelerator.num_processes, accelerator.process_index)",
        "    if accelerator.is_main_process:",
        "        print(loss.item() / accelerator.num_processes)",
        "    worker(0.1)",
    ):
        assert f"{line}\n" in text
    assert [d.severity.value for d in file.diagnoses] == ["note"]
    assert "torchlift launch" in file.diagnoses[0].remedy


def test_a_worker_that_is_called_in_another_way_as_well_is_a_script_of_several_modes() -> None:
    text = SPAWN.replace("    mp.spawn", "    worker(0, 1, 0.1)\n    mp.spawn")
    assert "several modes" in result(text).diagnoses[0].message


def test_a_worker_that_reads_its_number_before_it_joins_has_the_accelerator_before() -> None:
    opens = "    dist.init_process_group"
    text = result(SPAWN.replace(opens, f'    print("process", rank)\n{opens}')).after.decode()
    assert '    accelerator = Accelerator()\n    print("process", accelerator.process_index)\n    sampler' in text


def test_a_condition_that_joins_the_processes_in_each_branch_is_none() -> None:
    text = after(opens=f'if sys.platform == "win32":\n        {OPENS}\n    else:\n        {OPENS}')
    assert "    accelerator = Accelerator()\n" in text
    assert "init_process_group" not in text


def test_accelerate_would_share_the_rows_twice_so_the_loader_is_not_prepared() -> None:
    text = result(script(), target=Target.ACCELERATE).after.decode()
    assert "model, optimizer = accelerator.prepare(" in text
    assert "x, y = x.to(accelerator.device), y.to(accelerator.device)" in text


def test_accelerate_wraps_the_model_so_the_plain_one_is_asked_for() -> None:
    text = result(script(end='torch.save(model.module.state_dict(), "m.pt")'), target=Target.ACCELERATE).after.decode()
    assert '    torch.save(accelerator.unwrap_model(model).state_dict(), "m.pt")\n' in text


@pytest.mark.parametrize(
    ("built", "saved"),
    [
        ("plain = model.module if local_rank >= 0 else model", "plain"),
        ("plain = model.module", "plain"),
        ("pass", "(model.module if local_rank >= 0 else model)"),
    ],
)
def test_a_checkpoint_of_the_model_inside_has_the_same_keys(built: str, saved: str) -> None:
    file = result(script(built=built, end=f'torch.save({saved}.state_dict(), "m.pt")'))
    assert not file.diagnoses
    assert "if local_rank >= 0 else" not in file.after.decode(), "there is nothing to choose"


def test_a_checkpoint_of_the_wrapper_has_other_keys_now() -> None:
    (found,) = result(script(end='torch.save(model.state_dict(), "m.pt")')).diagnoses
    assert (found.id, found.severity.value) == ("hand_written_ddp", "review")
    assert "no longer begin" in found.message


def test_a_sampler_in_a_batch_sampler_shares_the_rows_as_well() -> None:
    batches = "batch_sampler=torch.utils.data.BatchSampler(sampler, 32, False)"
    text = script().replace("batch_size=32, sampler=sampler", batches)
    assert "model, optimizer, loader = accelerator.prepare(" in result(text).after.decode()


MADE = """\
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
"""
GIVEN_BACK = """\
def rows(data):
    sampler = DistributedSampler(data)
    return DataLoader(data, batch_size=32, sampler=sampler), sampler


def load(data):
    loader, sampler = rows(data)
    return loader, sampler


def main():
"""


def test_a_loader_that_functions_give_back_keeps_its_sampler() -> None:
    """It was refused: give the loader a sampler."""
    loaded = "    loader, sampler = load(data)\n    held, _ = load(other)\n"
    text = script().replace(MADE, loaded).replace("def main():\n", GIVEN_BACK)
    file = result(text)
    assert "model, optimizer, loader = accelerator.prepare(" in file.after.decode(), file.diagnoses


OWN_SAMPLER = """class Portion(torch.utils.data.Sampler):
    def __init__(self, data):
        self.data, self.rank, self.count = data, dist.get_rank(), dist.get_world_size()

    def __iter__(self):
        return iter(range(self.rank, len(self.data), self.count))

    def set_epoch(self, epoch):
        pass


def main():
"""


def test_a_sampler_of_the_scripts_own_is_named() -> None:
    text = script().replace("= DistributedSampler(data)", "= Portion(data)").replace("def main():\n", OWN_SAMPLER)
    (found,) = result(text).diagnoses
    assert found.id == "already-distributed" and "Portion, the sampler of this loader" in found.message
    assert found.remedy == "use torch.utils.data.distributed.DistributedSampler in place of Portion"


def test_a_script_that_has_an_accelerator_and_a_sampler_is_no_hand_written_one(check_noop: Callable[..., None]) -> None:
    check_noop(dedent(after()))


FLAGGED = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class Settings:
    rate = 0.1


def connect(settings, place):
    if settings.many:
        torch.cuda.set_device(place)
        dist.init_process_group("nccl")
        where = torch.device("cuda", place)
        settings.count = dist.get_world_size()
    else:
        where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        settings.count = 1
    return where


class Work:
    def __init__(self, settings):
        self.place = int(os.getenv("LOCAL_RANK", -1))
        settings.many = {asked}
        self.where = connect(settings, self.place)
        self.net = torch.nn.Linear(8, 2).to(self.where)
        if settings.many:
            self.net = DistributedDataParallel(self.net, device_ids=[self.place])
        rows = torch.load("rows.pt", map_location="cpu")
        self.loader = DataLoader(rows, 16, sampler=DistributedSampler(rows) if settings.many else None)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=settings.rate * settings.count)

    def run(self):
        assert self.where
        for x, y in self.loader:
            loss = torch.nn.functional.cross_entropy(self.net(x.to(self.where)), y.to(self.where))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


Work(Settings()).run()
"""
LAUNCHED = {
    "not minus one": "self.place != -1",
    "not negative": "self.place >= 0",
    "several": 'int(os.environ.get("WORLD_SIZE", 1)) > 1',
}


@pytest.mark.parametrize("asked", LAUNCHED.values(), ids=LAUNCHED)
def test_an_attribute_that_only_the_launcher_decides(asked: str) -> None:
    file = result(FLAGGED.format(asked=asked))
    text = file.after.decode()
    assert "init_process_group" not in text
    assert not file.diagnoses
    kept = (
        "self.accelerator = Accelerator()\n        connect(settings, self.place)\n        self.where = self.accelerator"
    )
    assert kept in text, "what else the helper sets is still set, once there is a group"


def test_an_attribute_that_the_user_decides_is_an_obstacle() -> None:
    (found,) = [d for d in result(FLAGGED.format(asked="settings.rate > 1")).diagnoses if d.severity.value == "blocked"]
    assert "decides whether the processes are connected" in found.message


def test_what_the_user_decides_beside_the_launcher_is_said() -> None:
    """A launcher's processes are connected in any case, and the script would take each of them for the only one."""
    file = result(FLAGGED.format(asked="self.place != -1 and not settings.alone"))
    (found,) = file.diagnoses
    assert "init_process_group" not in file.after.decode()
    assert found.severity.value == "review"
    assert "What `settings.many` decides follows `settings.alone` too" in found.message


HYBRID = """\
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

if __name__ == "__main__":
    use_cuda = True
    distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
    sync_bn = False
    if distributed:
        dist.init_process_group(backend="nccl")
        local_rank = int(os.environ["LOCAL_RANK"])
    else:
        local_rank = 0
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model_train = model.train()
    if sync_bn and distributed:
        model_train = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model_train)
    if use_cuda:
        if distributed:
            model_train = model_train.cuda(local_rank)
            model_train = torch.nn.parallel.DistributedDataParallel(model_train, device_ids=[local_rank])
        else:
            model_train = torch.nn.DataParallel(model)
            model_train = model_train.cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rows = TensorDataset(torch.randn(64, 8), torch.rand(64, 1))
    sampler = DistributedSampler(rows) if distributed else None
    loader = DataLoader(rows, shuffle=sampler is None, batch_size=8, sampler=sampler)
    for x, y in loader:
        with torch.no_grad():
            if use_cuda:
                x = x.cuda(local_rank)
                y = y.cuda(local_rank)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model_train(x), y).backward()
        optimizer.step()
"""


def test_a_model_whose_norms_are_converted_is_the_same_model() -> None:
    """The check of the new text took it for another, and called its own tool faulty."""
    file = result(HYBRID)
    text = file.after.decode()
    assert "output-check" not in [found.id for found in file.diagnoses]
    assert "prepare(\n        model_train, optimizer, loader\n    )" in text
    assert "no_grad" not in text, "a block that is left with nothing goes"
