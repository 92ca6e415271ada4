"""The memory of weights, gradients and optimizer states: against what torch really allocates."""

from __future__ import annotations

import json
import struct
import sys

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from torch import nn

from torchlift.runtime.config.fsdp import FullyShardedDataParallelPlugin
from torchlift.runtime.errors import ConfigError, UnknownWordError
from torchlift.runtime.launch.command import main
from torchlift.runtime.memory_plan.estimate import PRECISIONS, figures
from torchlift.runtime.memory_plan.table import lines, readable
from torchlift.runtime.memory_plan.target import read_target

NETS = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.grow = nn.Linear(width, 4 * width)
        self.norm = nn.BatchNorm1d(4 * width)
        self.shrink = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.shrink(self.norm(self.grow(x)))

class Net(nn.Module):
    def __init__(self, layers=3, width=6, tied=False):
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.head = nn.Linear(width, 11, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.blocks[0].requires_grad_(False)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    @classmethod
    def large(cls):
        return cls(width=60_000, layers=200)

WORD = 3
def nothing():
    return {}
class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
        self.layers = nn.ModuleList(nn.Linear(2, 3) for _ in rates)
def fails(layers):
    raise ValueError("layers must be odd")
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "nets_of_the_test.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield "nets_of_the_test.py"
    sys.path[:] = before
    sys.modules.pop("nets_of_the_test", None)


def size(tensors):
    return sum(one.numel() * one.element_size() for one in tensors)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp64"])
@pytest.mark.parametrize(
    "optimizer",
    [
        "AdamW",
        "adam(amsgrad=True)",
        "SGD(lr=0.1)",
        "SGD(0.1, momentum=0.9)",
        "Adafactor",
        "Adagrad",
        "RMSprop",
        "Rprop",
    ],
)
def test_what_one_process_allocates(nets, precision, optimizer):
    model = read_target(f"{nets}:Net(tied=True)")
    found = figures(model, PRECISIONS[precision], optimizer, 1)
    from nets_of_the_test import Net

    real = Net(tied=True).to(PRECISIONS[precision].kept)
    real(torch.randint(11, (5,))).sum().backward()
    name, _, rest = optimizer.partition("(")
    cls = {one.lower(): getattr(torch.optim, one) for one in dir(torch.optim)}[name.lower()]
    made = eval(
        f"cls([one for one in real.parameters() if one.requires_grad], {rest or ')'}", {"cls": cls, "real": real}
    )
    made.step()
    states = [v for state in made.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    assert found.weights == size(real.parameters()) + size(real.buffers())
    assert found.gradients == size(p.grad for p in real.parameters() if p.grad is not None)
    assert found.optimizer == size(states) and found.gathered == 0


def test_what_a_process_of_two_keeps(nets, job_text, tmp_path):
    source = f"""
import json, sys, torch, torch.distributed as dist
sys.path.insert(0, {str(tmp_path)!r})
from nets_of_the_test import Net
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
model = Net()
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
made = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
model(torch.randint(11, (5,))).sum().backward()
made.step()
local = lambda t: t.to_local() if hasattr(t, "to_local") else t
size = lambda ts: sum(local(t).numel() * local(t).element_size() for t in ts)
states = [v for s in made.state.values() for v in s.values()]
weights = size(model.parameters()) + size(model.buffers())
grads = size(p.grad for p in model.parameters() if p.grad is not None)
print("RESULT", json.dumps([weights, grads, size(states)]))
dist.barrier()
dist.destroy_process_group()
"""
    first, _ = job_text(source, 2)
    plugin = FullyShardedDataParallelPlugin(transformer_cls_names_to_wrap="Block")
    found = figures(read_target(f"{nets}:Net"), PRECISIONS["fp32"], "AdamW", 2, plugin)
    assert [found.weights, found.gradients, found.optimizer] == first
    block = 6 * 24 + 24 + 24 + 24 + 24 * 6 + 6
    assert found.gathered == 2 * 4 * block and found.total == sum(first) + found.gathered
    mixed = figures(read_target(f"{nets}:Net"), PRECISIONS["bf16-mixed"], "AdamW", 2, plugin)
    assert mixed.weights == found.weights and mixed.gathered == found.gathered // 2


def test_a_model_that_fits_nowhere_is_estimated(nets):
    found = figures(read_target(f"{nets}:Net.large"), PRECISIONS["bf16"], "AdamW", 8)
    assert found.weights > 10**12


def test_a_model_that_computes_while_it_is_made(nets):
    assert figures(read_target(f"{nets}:Steps"), PRECISIONS["fp32"], "SGD", 1).weights == 3 * 9 * 4


def test_files(tmp_path):
    weights = {"a.weight": torch.zeros(3, 4), "a.bias": torch.zeros(3, dtype=torch.float16)}
    save_file(weights, tmp_path / "model-1.safetensors")
    save_file({"steps": torch.zeros(1, dtype=torch.int64)}, tmp_path / "model-2.safetensors", metadata={"format": "pt"})
    for target, buffers in ((tmp_path, 8), (tmp_path / "model-1.safetensors", 0)):
        found = figures(read_target(str(target)), PRECISIONS["fp32"], "AdamW", 1)
        assert (found.weights, found.gradients, found.optimizer) == (60 + buffers, 60, 120 + 8)
    text = "\n".join(lines(str(tmp_path), ["fp32"], "AdamW", [1, 2]))
    assert "15 parameters, 15 of them trained" in text and "Files do not say what is trained" in text
    with pytest.raises(ConfigError, match="files say nothing about modules"):
        list(lines(str(tmp_path), ["fp32"], "AdamW", [1], blocks="Block"))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nothing here", "neither a folder of safetensors files nor MODULE:FACTORY"),
        ("nets_of_the_test.py:", "neither a folder"),
        ("absent.py:Net", "there is no file absent.py"),
        ("absent.module:Net", "absent.module cannot be imported"),
        ("nets_of_the_test:Nett", "has no 'Nett'"),
        ("nets_of_the_test:WORD", "is a int; it must be a class or a function"),
        ("nets_of_the_test:nothing", "gave a dict"),
        ("nets_of_the_test:fails(2)", "failed: ValueError: layers must be odd"),
        ("nets_of_the_test:fails", "failed: TypeError"),
        ("nets_of_the_test:Net(layers=n)", "with literal values"),
        ("empty", "there are no safetensors files at empty"),
        ("broken.safetensors", "cannot be read as a safetensors file"),
        ("long.safetensors", "its header is longer than the file"),
        ("twice", "several files in twice have a tensor 'a'"),
    ],
)
def test_targets_that_are_none(nets, tmp_path, target, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "twice").mkdir()
    (tmp_path / "broken.safetensors").write_bytes(b"abc")
    (tmp_path / "long.safetensors").write_bytes(struct.pack("<Q", 10**9) + json.dumps({}).encode())
    for name in ("x", "y"):
        save_file({"a": torch.zeros(1)}, tmp_path / "twice" / f"{name}.safetensors")
    with pytest.raises(ConfigError, match=words):
        read_target(target)


@pytest.mark.parametrize(
    ("optimizer", "shards", "error", "words"),
    [
        ("Sophia", 1, UnknownWordError, "AdamW"),
        ("AdamW(speed=2)", 1, ConfigError, "torch.optim.AdamW cannot be made"),
        ("Adafactor", 2, ConfigError, "does not work on sharded weights"),
        ("LBFGS", 1, ConfigError, "states of LBFGS cannot be estimated"),
        ("Adam(", 1, ConfigError, "cannot be read"),
    ],
)
def test_optimizers_that_cannot_be_estimated(nets, optimizer, shards, error, words):
    with pytest.raises(error, match=words):
        figures(read_target(f"{nets}:Net"), PRECISIONS["fp32"], optimizer, shards)


def test_a_model_without_anything_to_train(nets):
    model = read_target(f"{nets}:Block(6)")
    assert figures(model, PRECISIONS["fp32"], "AdamW", 1).optimizer > 0
    assert isinstance(model.module, nn.Module) and model.module.grow.weight.is_meta


def test_readable():
    assert [readable(n) for n in (0, 1023, 1536, 3 * 2**20, 5 * 2**30, 7 * 2**40, 2**51)] == [
        *("0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.0 GiB", "7.0 TiB", "2048.0 TiB")
    ]


def test_the_command(nets):
    def invoke(*arguments):
        return CliRunner().invoke(main, ["estimate-memory", *arguments])

    done = invoke(f"{nets}:Net(layers=2)", "--shards", "1,2", "--precision", "fp32, bf16", "--block", "Block")
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if line.startswith(("fp32", "bf16"))]
    assert [row[:2] for row in rows] == [["fp32", "1"], ["fp32", "2"], ["bf16", "1"], ["bf16", "2"]]
    assert "come on top" in done.output
    for arguments, words in (
        (("x.py:Net",), "there is no file x.py"),
        ((f"{nets}:Net", "--shards", "two"), "--shards is 'two'"),
        ((f"{nets}:Net", "--precision", "fp12"), "the precision is 'fp12'"),
        ((f"{nets}:Net", "--block", "Blok"), "Did you mean Block?"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == 3 and words in done.output
