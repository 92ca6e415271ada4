"""The private names of torch stand in one file, those of sharded weights in another one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel, distributed
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from torchlift.runtime import torch_internals as internals

RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
HOMES = (RUNTIME / "torch_internals.py", RUNTIME / "torch_sharding.py")
# `verify` runs scripts of torch alone, and puts itself in the place of what is inside of torch to record what they do:
# each file there is a table of such places, and no training depends on it.
FILES = sorted(file for file in RUNTIME.rglob("*.py") if file not in HOMES and "verify" not in file.parts)


OURS = {
    ("accelerator/facade.py", "_reset_state"),  # of PartialState, as Accelerate calls it
    ("accelerator/state.py", "_reset_state"),
    ("data/iterable.py", "_dataset"),  # an attribute of a class there
}
"""Names of ours that torch has, too."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def objects() -> Iterator[object]:
    """What scripts hand to the runtime, and what torch makes of it."""
    linear = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(linear.parameters(), 0.1, momentum=0.9)
    loader = DataLoader(TensorDataset(torch.ones(2)), shuffle=True)
    yield from (linear, linear.weight, optimizer, loader, loader.sampler, iter(loader), RandomSampler(range(2)))
    yield from (StepLR(optimizer, 1), ReduceLROnPlateau(optimizer), torch.amp.GradScaler("cpu"), torch.compile(linear))
    yield from (torch, dist, dist.distributed_c10d, dist.Reducer, DistributedDataParallel, LRScheduler, optimizer.step)


NAMES = {name for one in objects() for name in [*dir(one), *vars(type(one))] if private(name)}
NAMES |= {"_sampler_iter", "_num_yielded", "_initial_iter_for_state_dict"}  # of iterators, and of torchdata


def spelled(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Private names on other objects than `self`, in strings, in imports of torch, and as methods."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            ours = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not ours:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and private(node.value):
            yield node.lineno, node.value
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch."):
            for name in [*(node.module or "").split("."), *(alias.name for alias in node.names)]:
                yield from [(node.lineno, f"import of {name}")] * private(name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                inside = alias.name.startswith("torch.") and any(map(private, alias.name.split(".")))
                yield from [(node.lineno, f"import of {alias.name}")] * inside
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name in internals.OVERRIDDEN:
                    yield inner.lineno, inner.name


def foreign(tree: ast.AST) -> list[str]:
    """Those that are torch's, and not in the table."""
    known = set(internals.OVERRIDDEN)
    found = [(line, name) for line, name in spelled(tree) if name in NAMES or name.startswith("import of")]
    return [f"{line}: {name}" for line, name in found if name not in known]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(RUNTIME)))
def test_no_other_file_touches_private_names_of_torch(file: Path) -> None:
    place = str(file.relative_to(RUNTIME))
    found = foreign(ast.parse(file.read_text()))
    assert [one for one in found if (place, one.partition(": ")[2]) not in OURS] == []


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch._C._nn.flatten_dense_tensors([])",
        "from torch.utils.data._utils.pin_memory import pin_memory",
        "import torch._dynamo",
        "ddp.reducer._reset_state()",
        "getattr(optimizer, '_optimizer_step_pre_hooks')",
        "model._forward_hooks.clear()",
    ],
)
def test_such_a_name_is_found(source: str) -> None:
    assert len(foreign(ast.parse(source))) == 1


def test_the_table_names_what_is_used() -> None:
    used = {name for file in FILES for _, name in spelled(ast.parse(file.read_text()))}
    assert set(internals.OVERRIDDEN) <= used
    assert all(reason for reason in internals.OVERRIDDEN.values())


def test_it_was_tried_with_the_torch_that_is_installed() -> None:
    release = torch.__version__.partition("+")[0]
    assert release in internals.RUN_WITH, f"run all tests with torch {release}, then add it to RUN_WITH"


def test_a_torch_without_a_needed_name_is_refused_in_words() -> None:
    source = "import torch; del torch._C._current_graph_task_id; from torchlift.runtime import Accelerator"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "UnknownTorchError: torchlift.runtime cannot work with torch" in done.stderr


@pytest.mark.parametrize("lacking", [False, True])
def test_what_can_be_done_without_gives_the_same(lacking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacking:
        monkeypatch.setattr(internals, "_AS_ONE", False)
        monkeypatch.setattr(internals, "_LIKE", False)
        monkeypatch.setattr(internals, "_has", lambda path: False)
    tensors = [torch.arange(6.0).view(2, 3), torch.tensor(7.0), torch.ones(0, 2)]
    flat = internals.as_one(tensors)
    assert torch.equal(flat, torch.tensor([0.0, 1, 2, 3, 4, 5, 7]))
    pieces = internals.like(torch.cat([flat, torch.ones(2)]), tensors)
    assert all(torch.equal(piece, one) for piece, one in zip(pieces, tensors, strict=True))
    assert [float(one) for one in internals.lengths_of(tensors[:2])] == pytest.approx([55**0.5, 7])
    into = [torch.zeros_like(one) for one in tensors]
    internals.copy_each(into, pieces)
    assert all(torch.equal(one, tensor) for one, tensor in zip(into, tensors, strict=True))


class _Older:
    """A DistributedDataParallel as in torch 2.6: without `init_sync`."""

    def __init__(self, module: nn.Module, **options: object) -> None:
        assert "init_sync" not in options
        calls: Any = distributed
        calls._verify_param_shape_across_processes(None, None)
        calls._sync_module_states()
        self.made = module


def test_a_wrapper_of_an_older_torch_is_made_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would call together with the other processes is left out, and there again afterwards."""
    before = distributed._sync_module_states
    monkeypatch.setattr(internals, "DistributedDataParallel", _Older)
    module = nn.Linear(1, 1)
    made: Any = internals.made_alone(module, None, False)
    assert made.made is module
    assert distributed._sync_module_states is before


def test_the_first_bucket_is_of_the_last_parameters() -> None:
    """Their gradients come first: a small bucket leaves early, as when DDP has seen the order of a whole pass."""
    sizes = [3, 300, 200, 100, 40, 2]
    tensors = [torch.zeros(size) for size in sizes]
    limits = [64 * 4, 256 * 4]
    real = torch.distributed._compute_bucket_assignment_by_size
    buckets, bounds = internals._from_the_last(real, limits)(tensors, [sys.maxsize], [False] * len(sizes))
    arrival = list(range(len(sizes)))[::-1]
    rebuilt, rebuilt_bounds = real(tensors[::-1], limits, [False] * len(sizes), arrival)
    assert (buckets[::-1], bounds[::-1]) == (rebuilt, rebuilt_bounds)
    assert buckets[-1] == [5, 4, 3]
    assert buckets != real(tensors, limits, [False] * len(sizes))[0]
