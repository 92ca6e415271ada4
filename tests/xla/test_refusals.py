"""What does not work by torch_xla: one error each, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchlift.runtime import Accelerator, ShapeBuckets
torch.manual_seed(0)
"""
PROCESSES = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29999"}
NO_TPU = "torch_xla finds no TPU here"


@pytest.fixture
def ends(run_python: Callable[..., Any], tmp_path: Path) -> Callable[..., str]:
    """`ends(script, devices=2, **variables)`: what such a script writes to stderr."""

    def run(script: str, devices: int = 2, **variables: str) -> str:
        (tmp_path / "script.py").write_text(SCRIPT + script)
        written: str = run_python(tmp_path, devices, "script.py", **variables).stderr
        return written

    return run


@pytest.mark.parametrize(
    ("script", "variables", "message"),
    [
        ("Accelerator()", {"PJRT_DEVICE": "TPU"}, NO_TPU),
        ("Accelerator()", {"PJRT_DEVICE": "", "TORCHLIFT_DEVICE": "xla"}, NO_TPU),
        (
            "Accelerator()",
            PROCESSES,
            "one process drives",
        ),
        ('Accelerator(mixed_precision="fp16")', {}, "use one of: no, bf16"),
        ('Accelerator(dynamo_backend="inductor")', {}, "every step is compiled anyway"),
        ('Accelerator().prepare(torch.nn.Linear(2, 2, device="meta"))', {}, "are on the meta device and hold no data"),
        ("Accelerator(kwargs_handlers=[ShapeBuckets(lengths=())])", {}, "whole numbers from 1 on"),
        (
            "import weakref; m = torch.nn.Linear(2, 2); w = weakref.ref(m.weight); Accelerator().prepare(m)",
            {},
            "refers to its weights weakly",
        ),
    ],
)
def test_one_error_that_says_what_to_do(
    ends: Callable[..., str], script: str, variables: dict[str, str], message: str
) -> None:
    assert message in ends(script, **variables).splitlines()[-1]


def test_another_version_of_torch_xla(ends: Callable[..., str]) -> None:
    stderr = ends('import torch_xla; torch_xla.__version__ = "2.6.0"; Accelerator()')
    assert 'torch_xla 2.6.0 is installed; torchlift knows 2.9. Run: pip install "torch==2.9.*"' in stderr


LOOP = """
accelerator = Accelerator(kwargs_handlers=HANDLERS)
model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Flatten(0, 1), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = [torch.randint(9, (length,)) for length in LENGTHS]
loader = DataLoader(rows, batch_size=1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    loss = model(batch).square().sum()
    EXTRA
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""


def loop(lengths: str, handlers: str = "[]", extra: str = "pass") -> str:
    return LOOP.replace("HANDLERS", handlers).replace("LENGTHS", lengths).replace("EXTRA", extra)


def test_shapes_that_change_are_reported_with_their_line(ends: Callable[..., str]) -> None:
    stderr = ends(loop("range(3, 30)"))
    assert "torch_xla compiled anew in 10 of the latest" in stderr and "script.py:17)" in stderr
    assert "ShapeBuckets(lengths=(128, 256))" in stderr
    assert stderr.count("compiled anew") == 1


def test_buckets_make_few_shapes(ends: Callable[..., str]) -> None:
    assert "compiled anew" not in ends(loop("range(3, 30)", "[ShapeBuckets(lengths=(16, 32))]"))


def test_equal_shapes_are_no_news(ends: Callable[..., str]) -> None:
    stderr = ends(loop("[8] * 30"))
    assert "compiled" not in stderr and "lacks" not in stderr


def test_an_operation_that_torch_xla_lacks_is_named(ends: Callable[..., str]) -> None:
    stderr = ends(loop("[8] * 6", extra="torch.histc(loss.detach(), 4)"))
    assert "torch_xla lacks operations, which are run on the CPU: histc (" in stderr


def test_a_stream_of_unknown_length_trains(run_python: Callable[..., Any], tmp_path: Path) -> None:
    """Nothing has to be known of a loader: the batch is whole, and the end of the data is looked for."""
    (tmp_path / "script.py").write_text(
        SCRIPT
        + """
class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.arange(10.0).reshape(10, 1)

accelerator = Accelerator(gradient_accumulation_steps=2)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Stream(), batch_size=4))
steps = []
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        steps.append(accelerator.sync_gradients)
print(steps, model.weight.item())
"""
    )
    plain, laid_out = (run_python(tmp_path, devices, "script.py") for devices in (0, 8))
    assert laid_out.returncode == 0, laid_out.stderr
    assert plain.stdout.startswith("[False, True, True]")
    assert laid_out.stdout.split("]")[0] == plain.stdout.split("]")[0]
    assert float(laid_out.stdout.split("]")[1]) == pytest.approx(float(plain.stdout.split("]")[1]), abs=1e-6)
