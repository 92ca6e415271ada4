"""Correct distributed programs in the shapes of real ones, and what the audit says when one line of them is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.rewriter.audit.audit import audit
from torchlift.rewriter.config import Config
from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.source import decode

SCRIPTS = {file.stem: file.read_text() for file in sorted((Path(__file__).parent / "fixtures").glob("*.py"))}
LAYOUT = ModulePaths({ENTRY: Place(ENTRY)})
WRAP = "net = Net().to(rank)\n    model = DDP(net, device_ids=[rank])"


def found(text: str) -> set[str]:
    """The ids of what is wrong, or to be reviewed, in a script."""
    result = audit([decode(text.encode(), Path("train.py"))], Config(), LAYOUT)
    assert result is not None, "the script is not taken for a distributed one"
    return {d.id for file in result.files for d in file.diagnoses if d.severity is not Severity.NOTE}


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_is_wrong_with_a_correct_script(name: str) -> None:
    assert found(SCRIPTS[name]) == set()


FAULTS = [
    # one for each script
    (
        "ddp_torchrun",
        "        if rank == 0:\n            print",
        "        if True:\n            print",
        "unguarded-write",
    ),
    ("ddp_spawn", WRAP, "model = Net().to(rank)", "unwrapped-model"),
    ("ddp_trainer", "        self.train_data.sampler.set_epoch(epoch)\n", "", "missing-set-epoch"),
    ("ddp_optional", "sampler=train_sampler, num", "shuffle=True, num", "unsharded-loader"),
    ("ddp_validate", "    dist.all_reduce(correct)\n    dist.all_reduce(total)\n", "", "one-rank-metric"),
    (
        "ddp_download",
        "    dist.barrier()\n    if rank == 0:\n",
        "    if rank == 0:\n        dist.barrier()\n",
        "collective-apart",
    ),
    ("ddp_windows", "1337 + seed_offset", "1337", "seed-agrees"),
    ("ddp_split", "torch.Generator().manual_seed(42)", "torch.Generator().manual_seed(rank)", "seed-differs"),
    ("ddp_gan", "fake = g_ddp(noise)", "fake = generator(noise)", "unwrapped-model"),
    ("ddp_amp", "    dist.all_reduce(mean, op=dist.ReduceOp.AVG)\n", "", "one-rank-metric"),
    (
        "accelerate_basic",
        "model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
        "model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)",
        "unsharded-loader",
    ),
    (
        "accelerate_metrics",
        'accelerator.gather_for_metrics((predictions, batch["labels"]))',
        'predictions, batch["labels"]',
        "one-rank-metric",
    ),
    (
        "accelerate_class",
        "        if self.accelerator.is_main_process:\n            torch",
        "        if True:\n            torch",
        "unguarded-write",
    ),
    (
        "accelerate_state",
        '            accelerator.save_state("best")',
        '            if accelerator.is_main_process:\n                accelerator.save_state("best")',
        "collective-apart",
    ),
    ("accelerate_distill", "accelerator.backward(loss)", "loss.backward()", "outside-backward"),
    ("fabric_basic", "    loader = fabric.setup_dataloaders(loader)\n", "", "unsharded-loader"),
    (
        "fabric_eval",
        '    test_loss = fabric.all_reduce(test_loss, reduce_op="sum")\n'
        '    correct = fabric.all_reduce(correct, reduce_op="sum")\n',
        "",
        "one-rank-metric",
    ),
    ("fabric_class", "            self.fabric.barrier()", "                self.fabric.barrier()", "collective-apart"),
    (
        "torchlift_functions",
        "model, optimizer, train_loader, test_loader = acc",
        "optimizer, model, train_loader, test_loader = acc",
        "misprepared",
    ),
    (
        "torchlift_module",
        'SummaryWriter("runs") if accelerator.is_main_process else None',
        'SummaryWriter("runs")',
        "unguarded-write",
    ),
    (
        "torchlift_resume",
        '        accelerator.save(state, "last.pt")',
        '        torch.save(state, "last.pt")',
        "unguarded-write",
    ),
    # others
    ("ddp_torchrun", "        sampler.set_epoch(epoch)\n", "", "missing-set-epoch"),
    ("ddp_torchrun", "model.module.state_dict()", "model.state_dict()", "saved-wrapper"),
    ("ddp_torchrun", "    model = DDP(model, device_ids=[local_rank])\n", "", "unwrapped-model"),
    ("ddp_torchrun", "device_ids=[local_rank]", "device_ids=[0]", "wrong-device"),
    ("ddp_spawn", "Net().to(rank)", 'Net().to("cuda:0")', "wrong-device"),
    (
        "ddp_spawn",
        "            loss.backward()",
        "            if rank == 0:\n                loss.backward()",
        "collective-apart",
    ),
    (
        "ddp_spawn",
        'torch.save(model.module.state_dict(), "mnist.pt")',
        'torch.save(model, "mnist.pt")',
        "saved-wrapper",
    ),
    ("ddp_spawn", 'data", train=True, transform', 'data", train=True, download=True, transform', "unguarded-write"),
    ("ddp_trainer", "if self.gpu_id == 0 and epoch", "if epoch", "unguarded-write"),
    ("ddp_trainer", "self.model.module.state_dict()", "self.model.state_dict()", "saved-wrapper"),
    ("ddp_trainer", "        self.model = DDP(self.model, device_ids=[self.gpu_id])\n", "", "unwrapped-model"),
    ("ddp_trainer", ", shuffle=False, sampler=DistributedSampler(dataset)", "", "unsharded-loader"),
    ("ddp_optional", "        save_on_master(", "        torch.save(", "unguarded-write"),
    ("ddp_optional", "            train_sampler.set_epoch(epoch)", "            pass", "missing-set-epoch"),
    ("ddp_optional", "        torch.cuda.set_device(args.gpu)\n", "", "wrong-device"),
    (
        "ddp_optional",
        "        train_one_epoch(model, criterion, optimizer, loader",
        "        train_one_epoch(model_without_ddp, criterion, optimizer, loader",
        "unwrapped-model",
    ),
    (
        "ddp_validate",
        "        accuracy = validate(model, test_loader, device)\n",
        "        if rank != 0:\n            continue\n        accuracy = validate(model, test_loader, device)\n",
        "collective-apart",
    ),
    (
        "ddp_validate",
        "            if rank == 0:\n                torch",
        "            if best:\n                torch",
        "unguarded-write",
    ),
    (
        "ddp_download",
        "            if step % 50 == 0:",
        "            if step % 50 == 0 and rank == 0:",
        "collective-apart",
    ),
    (
        "ddp_download",
        "    dist.barrier()\n    return datasets",
        "        dist.barrier()\n    return datasets",
        "collective-apart",
    ),
    ("ddp_download", " if rank == 0 else None", "", "unguarded-write"),
    ("ddp_windows", "raw_model.state_dict()", "model.state_dict()", "saved-wrapper"),
    ("ddp_windows", " and master_process", "", "unguarded-write"),
    ("ddp_windows", "loss = model(X, Y)", "loss = raw_model(X, Y)", "unwrapped-model"),
    ("ddp_split", ", seed=7", ", seed=rank", "seed-differs"),
    ("ddp_split", ", generator=torch.Generator().manual_seed(42)", "", "seed-differs"),
    (
        "ddp_gan",
        "    d_ddp = DDP(discriminator, device_ids=[local_rank])\n",
        "    d_ddp = discriminator\n",
        "unwrapped-model",
    ),
    (
        "ddp_amp",
        "        if is_master:\n            torch",
        "        if val_loss:\n            torch",
        "unguarded-write",
    ),
    (
        "accelerate_basic",
        "model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
        "optimizer, loader, scheduler = accelerator.prepare(optimizer, loader, scheduler)",
        "unwrapped-model",
    ),
    (
        "accelerate_basic",
        "model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
        "model, loader, scheduler = accelerator.prepare(model, loader, scheduler)",
        "misprepared",
    ),
    ("accelerate_basic", "accelerator.unwrap_model(model).state_dict()", "model.state_dict()", "saved-wrapper"),
    ("accelerate_metrics", "accelerator.backward(loss)", "loss.backward()", "outside-backward"),
    (
        "accelerate_class",
        "        self.accelerator.wait_for_everyone()\n        state",
        "        if not self.accelerator.is_main_process:\n            return\n"
        "        self.accelerator.wait_for_everyone()\n        state",
        "collective-apart",
    ),
    (
        "accelerate_state",
        "        predicted, y = accelerator.gather_for_metrics((predicted, y))\n",
        "",
        "one-rank-metric",
    ),
    (
        "accelerate_state",
        "    if accelerator.is_main_process:\n        with",
        "    if best:\n        with",
        "unguarded-write",
    ),
    ("accelerate_state", "    set_seed(0)\n", "", "seed-differs"),
    (
        "accelerate_distill",
        "        accelerator.backward(loss)",
        "        loss = accelerator.gather(loss).mean()\n        accelerator.backward(loss)",
        "gathered-loss",
    ),
    (
        "accelerate_distill",
        "teacher = models.resnet50().eval().to(device)",
        'teacher = models.resnet50().eval().to("cuda:0")',
        "wrong-device",
    ),
    ("fabric_basic", "fabric.backward(loss)", "loss.backward()", "outside-backward"),
    ("fabric_basic", "    model, optimizer = fabric.setup(model, optimizer)\n", "", "unwrapped-model"),
    ("fabric_eval", "    if fabric.is_global_zero:\n        torch", "    if args:\n        torch", "unguarded-write"),
    ("fabric_class", "            if self.fabric.global_rank == 0:", "            if epoch:", "unguarded-write"),
    ("torchlift_functions", "accelerator.save(acc", "torch.save(acc", "unguarded-write"),
    (
        "torchlift_functions",
        "            output, target = accelerator.gather_for_metrics((output, target))\n",
        "",
        "one-rank-metric",
    ),
    (
        "torchlift_module",
        '    mean = accelerator.reduce(loss.detach(), reduction="mean")\n    if writer is not None:\n',
        '    if writer is not None:\n        mean = accelerator.reduce(loss.detach(), reduction="mean")\n',
        "collective-apart",
    ),
    ("torchlift_resume", "        accelerator.backward(loss)", "        loss.backward()", "outside-backward"),
]


@pytest.mark.parametrize(("name", "old", "new", "rule"), FAULTS, ids=[f"{f[0]}: {f[3]}" for f in FAULTS])
def test_a_planted_fault_is_found(name: str, old: str, new: str, rule: str) -> None:
    assert SCRIPTS[name].count(old) == 1
    assert found(SCRIPTS[name].replace(old, new)) == {rule}
