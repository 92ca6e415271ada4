"""The pretended accelerator: what an accelerator would refuse is refused, what it would allow goes through."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"

BEGIN = """\
import torch
from torch import nn
import torch.nn.functional as F
from torchlift.runtime.verify.exact import pretended
pretended.install()
there, here = torch.ones(4, 3, device="cuda"), torch.ones(4, 3)
net, target = nn.Linear(3, 2).cuda(), torch.zeros(4, dtype=torch.long)
"""

REFUSED = [
    "there + here",
    "there @ here.t()",
    "torch.cat([there, here])",
    "net(here)",
    "F.cross_entropy(net(there), target)",
    "there += here",
    "here[there[:, 0].long() > 5]",
    "nn.Embedding(5, 2)(target.to('cuda'))",
    "nn.LSTM(3, 2)(there)",
    "there.to('cuda:0').numpy()",
    "there + there.type(torch.FloatTensor)",
    "there + there.type('torch.DoubleTensor')",
]

ALLOWED = [
    "assert (there + torch.tensor(2.0)).device.type == 'cuda'",
    "assert there.cpu().numpy().sum() == 12 and there.is_cuda",
    "there[torch.tensor([0, 1])]; there[target] = 0.0",
    "there.copy_(here); here.copy_(there); assert there.is_cuda and not here.is_cuda",
    "assert torch.zeros_like(there).is_cuda and there.new_zeros(2).is_cuda and here.to(there).is_cuda",
    "assert F.cross_entropy(net(there), target.cuda()).item() > 0",
    "assert torch.cuda.is_available() and torch.accelerator.current_accelerator().type == 'cuda'",
    "torch.save(net.state_dict(), 'w.pt'); assert torch.load('w.pt', map_location='cuda')['weight'].is_cuda",
    "import copy; assert copy.deepcopy(net).weight.is_cuda and not copy.deepcopy(nn.Linear(3, 2)).weight.is_cuda",
    "import copy; assert copy.deepcopy(nn.BatchNorm1d(3).cuda()).running_mean.is_cuda and copy.deepcopy(there).is_cuda",
    "here[there[0, 0].long(), there[1, 1].long()] += 1",
    "assert nn.Parameter(there).is_cuda and not nn.Parameter(here).is_cuda",
    "assert not torch.ones(2, device=there.device).cpu().is_cuda and there.type(torch.cuda.FloatTensor).is_cuda",
    "assert there.type(torch.float64).is_cuda and here.type('torch.cuda.DoubleTensor').is_cuda",
    "assert there.type() and not here.type(torch.DoubleTensor).is_cuda",
]

TRAINING = """\
model = nn.Sequential(nn.Linear(3, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
kept = model[0].weight
model.to("cuda")
assert kept is model[0].weight and kept.is_cuda, "an optimizer goes on holding the parameters of a moved model"
for _ in range(2):
    optimizer.zero_grad()
    F.mse_loss(model(there), torch.zeros(4, 2, device="cuda")).backward()
    assert kept.grad.is_cuda
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
model.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
assert next(model.parameters()).is_cuda
"""

EACH = """
for line in REFUSED:
    try:
        exec(line)
    except (pretended.MixedDevices, TypeError):
        continue
    raise AssertionError("went through: " + line)
for line in ALLOWED:
    exec(line)
print("done")
"""


@pytest.mark.slow
def test_the_errors_are_those_of_an_accelerator(tmp_path: Path) -> None:
    script = BEGIN + f"REFUSED, ALLOWED = {REFUSED!r}, {ALLOWED!r}\n" + dedent(EACH) + TRAINING
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "done" in done.stdout, done.stderr


HAS_NONE = pytest.mark.skipif(torch.accelerator.is_available(), reason="pretended only where there is none")
SCRIPTS = {
    "module_level": (),
    "fp16_scaler": ("--epochs", "1", "--fp16"),
    "best_model": ("--epochs", "1"),
    "mnist_functions": ("--epochs", "1", "--save-model"),
    "gan": ("--n_epochs", "1"),
    "grad_accumulation": ("--epochs", "1"),
    "resume_checkpoint": ("--epochs", "1"),
    "scheduler_per_step": ("--epochs", "1"),
    "bf16_autocast": ("--epochs", "1"),
}
EVERY_DAY = ("module_level", "fp16_scaler")


@HAS_NONE
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.slow) for name in SCRIPTS]
)
def test_fixtures_would_mix_no_devices(name: str, tmp_path: Path, verify: Callable[..., Any]) -> None:
    folder = Path(shutil.copytree(FIXTURES / name, tmp_path / "project"))
    seen = verify(folder / "before.py", folder / "after.py", *SCRIPTS[name], options=("--procs", "1"), cpu=False)
    assert seen.of("devices", 1)["outcome"] == "held", seen.of("devices", 1)


@HAS_NONE
def test_a_batch_that_stays_on_the_cpu_is_found(tmp_path: Path, verify: Callable[..., Any]) -> None:
    folder = Path(shutil.copytree(FIXTURES / "module_level", tmp_path / "project"))
    text = (folder / "after.py").read_text()
    (folder / "after.py").write_text(text.replace("outputs = model(images)", "outputs = model(images.cpu())", 1))
    seen = verify(folder / "before.py", folder / "after.py", options=("--procs", "1"), cpu=False)
    assert set(seen.broken()) == {"devices"}
    assert "after.py:" in seen.broken()["devices"] and "cuda:0 and cpu" in seen.broken()["devices"]


@HAS_NONE
def test_an_original_that_mixes_devices_itself_is_not_held_against_the_migration(
    tmp_path: Path, verify: Callable[..., Any]
) -> None:
    folder = Path(shutil.copytree(FIXTURES / "module_level", tmp_path / "project"))
    for name in ("before.py", "after.py"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("outputs = model(images)", "outputs = model(images.cpu())"))
    seen = verify(folder / "before.py", folder / "after.py", options=("--procs", "1"), cpu=False)
    assert seen.broken() == {} and "the original also fails there" in seen.of("devices", 1)["detail"]
