"""Sixteen faults that a migration can have, each in a migrated fixture, each found and named by the right promise."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst
import pytest
import torch

from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.validation.check import ModuleTexts, check
from torchlift.rewriter.validation.foreseen import FORESEEN

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Fault:
    """A text that takes the place of another one in the migrated script, and what is said about it."""

    fixture: str
    before: str
    after: str
    promise: str
    words: str
    arguments: tuple[str, ...] = ()
    processes: int = 2
    daily: bool = False
    code: str = ""
    """Part of the line that the verdict points to."""
    cause: str = ""
    """Part of the cause that it names."""


ONE_EPOCH, TWO_EPOCHS = ("--epochs", "1"), ("--epochs", "2")
_PREPARE = "model, optimizer, train_loader, test_loader = accelerator.prepare(\n        model, optimizer, train_loader"
_GAN = (
    "generator, discriminator, optimizer_G, optimizer_D, dataloader = accelerator.prepare(\n"
    "    generator, discriminator,"
)
FAULTS = {
    "backward not swapped": Fault(
        "module_level",
        "accelerator.backward(loss)",
        "loss.backward()",
        "runs",
        "UnclearBatchError at after.py",
        code="loss.backward()",
        cause="write `accelerator.backward(loss)` for `loss.backward()`",
    ),
    "model not prepared": Fault(
        "mnist_functions",
        _PREPARE,
        "optimizer, train_loader, test_loader = accelerator.prepare(\n        optimizer, train_loader",
        "ranks",
        "conv1.weight differs between process 1 and process 0: its gradients are not averaged",
        ONE_EPOCH,
        daily=True,
        code="accelerator.backward(loss)",
        cause="the model is not given to `accelerator.prepare(...)`",
    ),
    "second model not prepared": Fault(
        "gan",
        _GAN,
        "generator, optimizer_G, optimizer_D, dataloader = accelerator.prepare(\n    generator,",
        "ranks",
        "model.0.weight differs between process 1 and process 0",
        ("--n_epochs", "1"),
        code=".backward(",
        cause="the model is not given to `accelerator.prepare(...)`",
    ),
    "loader not prepared": Fault(
        "mnist_functions",
        f"{_PREPARE}, test_loader",
        "model, optimizer, test_loader = accelerator.prepare(\n        model, optimizer, test_loader",
        "samples",
        "every process reads all 64 rows: the loader is not sharded",
        ONE_EPOCH,
        daily=True,
        code="in enumerate(train_loader)",
        cause="this loader is not given to `accelerator.prepare(...)`",
    ),
    "prints unguarded": Fault(
        "mnist_functions",
        "accelerator.print('\\nTest",
        "print('\\nTest",
        "lines",
        "process 1 also prints it: 'Test set: Average loss",
        ONE_EPOCH,
        code="print('\\nTest",
        cause="a guard is missing: print with `accelerator.print(...)`",
    ),
    "save on all ranks": Fault(
        "module_level",
        "accelerator.save(accelerator.get",
        "torch.save(accelerator.get",
        "files",
        "model.ckpt is written by processes 0, 1",
        code="torch.save(accelerator.get",
        cause="a guard is missing: save with `accelerator.save(...)`",
    ),
    "save of the wrapped model": Fault(
        "module_level",
        "accelerator.get_state_dict(model)",
        "nn.DataParallel(model).state_dict()",
        "checkpoints",
        "a wrapper was saved ('module' begins every key), so the plain model cannot load it",
        code="nn.DataParallel(model).state_dict()",
        cause="save `accelerator.get_state_dict(model)`",
    ),
    "metric not gathered": Fault(
        "mnist_functions",
        "            output, target = accelerator.gather_for_metrics((output, target))\n",
        "",
        "numbers",
        "'Test set: Average loss:",
        ONE_EPOCH,
        code="accelerator.print('\\nTest",
        cause="add `output, target = accelerator.gather_for_metrics((output, target))` before line 53",
    ),
    "scheduler stepped N times": Fault(
        "mnist_functions",
        "        scheduler.step()\n",
        "        for _ in range(accelerator.num_processes):\n            scheduler.step()\n",
        "rates",
        "learning rate 0.49, the original's is 0.7",
        TWO_EPOCHS,
        code="optimizer.step()",
        cause="`scheduler.step()` is called another number of times",
    ),
    "a learning rate of its own": Fault(
        "mnist_functions",
        "    for epoch in range(1, args.epochs + 1):\n",
        "    optimizer.param_groups[0]['lr'] *= 1 + 0.1 * accelerator.process_index\n"
        "    for epoch in range(1, args.epochs + 1):\n",
        "rates",
        "on process 1, the original's is 1",
        ONE_EPOCH,
        code="optimizer.step()",
        cause="a process trains at a learning rate of its own",
    ),
    "first weights of its own": Fault(
        "mnist_functions",
        "    for epoch in range(1, args.epochs + 1):\n",
        "    model.fc2.bias.data += accelerator.process_index\n    for epoch in range(1, args.epochs + 1):\n",
        "ranks",
        "fc2.bias differs between process 1 and process 0 before the first step",
        ONE_EPOCH,
        daily=True,
        code="accelerator.backward(loss)",
        cause="or its weights are changed after it by a value of one process",
    ),
    "test loader not prepared": Fault(
        "mnist_functions",
        "train_loader, test_loader = accelerator.prepare(\n        model, optimizer, train_loader, test_loader\n",
        "train_loader = accelerator.prepare(\n        model, optimizer, train_loader\n",
        "devices",
        "Expected all tensors to be on the same device",
        ONE_EPOCH,
        1,
        code="for data, target in test_loader:",
        cause="this loader is not given to `accelerator.prepare(...)`",
    ),
    "rows dropped from the test": Fault(
        "mnist_functions",
        "DataLoader(test_set, **test_kwargs)",
        "DataLoader(test_set, drop_last=True, **test_kwargs)",
        "numbers",
        "'Test set: Average loss:",
        ONE_EPOCH,
        code="accelerator.print('\\nTest",
        cause="the rows of this loop are not the original's (a sampler, `drop_last`, a loop that ends early): it reads",
    ),
    "loss divided twice": Fault(
        "grad_accumulation",
        "accelerator.backward(loss)",
        "accelerator.backward(loss / args.accum_steps)",
        "losses",
        "1/4 of it: divided or multiplied once too often",
        ONE_EPOCH,
        1,
        True,
        code="accelerator.backward(loss / args.accum_steps)",
        cause="divided or multiplied by hand",
    ),
    "rank-local break": Fault(
        "mnist_functions",
        "        optimizer.step()\n",
        "        optimizer.step()\n        if accelerator.process_index == 1 and batch_idx == 3:\n            break\n",
        "waits",
        "after.py:36 and after.py:55",
        TWO_EPOCHS,
        daily=True,
        cause="not all processes come to this line",
    ),
    "forward under a main-process guard": Fault(
        "mnist_functions",
        "        test(model, accelerator, test_loader)\n",
        "        if accelerator.is_main_process:\n            test(model, accelerator, test_loader)\n",
        "waits",
        "after.py:53 and after.py:32",
        TWO_EPOCHS,
        cause="not all processes come to this line",
    ),
}


_OF_VALUES = "which value leaves the process, and how often a step is made, are questions of layouts"
NOT_FORESEEN = {
    "prints unguarded": "lines are not among the effects that the check follows",
    "save of the wrapped model": "the keys of a checkpoint are values",
    "metric not gathered": _OF_VALUES,
    "scheduler stepped N times": _OF_VALUES,
    "loss divided twice": _OF_VALUES,
    "a learning rate of its own": _OF_VALUES,
    "first weights of its own": _OF_VALUES,
    "rows dropped from the test": _OF_VALUES,
}
"""Faults that only a run shows, and why."""


@pytest.mark.parametrize("name", FAULTS)
def test_the_check_of_the_migrated_program_foresees_it(name: str) -> None:
    fault = FAULTS[name]
    before, after = ((ROOT / "fixtures" / fault.fixture / f"{which}.py").read_text() for which in ("before", "after"))
    faulty = cst.parse_module(after.replace(fault.before, fault.after))
    texts = [ModuleTexts(ENTRY, cst.parse_module(before), faulty)]
    found = {one.invariant for one in check(texts, (), ModulePaths({ENTRY: Place(ENTRY)})).violations}
    assert bool(found & set(FORESEEN[fault.promise])) == (name not in NOT_FORESEEN), found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if fault.daily else pytest.mark.slow) for name, fault in FAULTS.items()]
)
def test_fault_is_found_and_named(name: str, tmp_path: Path, verify: Callable[..., Any]) -> None:
    fault = FAULTS[name]
    folder = Path(shutil.copytree(ROOT / "fixtures" / fault.fixture, tmp_path / "project"))
    migrated = folder / "after.py"
    text = migrated.read_text()
    assert text.count(fault.before) == 1
    migrated.write_text(text.replace(fault.before, fault.after))
    pretends = fault.promise == "devices"
    if pretends and torch.accelerator.is_available():
        pytest.skip("pretended only where there is none")
    seen = verify(folder / "before.py", migrated, *fault.arguments, cpu=not pretends)
    assert seen.status == 1, seen.errors
    promise = seen.of(fault.promise, fault.processes)
    assert promise["outcome"] == "broken", seen.broken()
    for words in fault.words.split(" and "):
        assert words in promise["detail"]
    assert promise["at"].startswith("after.py:") and fault.code in promise["code"], promise
    assert fault.cause in promise["cause"]
    if fault.promise in ("samples", "lines", "files", "checkpoints", "waits"):
        assert set(seen.broken()) == {fault.promise}
