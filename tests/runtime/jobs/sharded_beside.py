"""What a script does beside training a sharded model: figures for trackers, printed figures, the pace of its loop."""

import contextlib
import io
import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin
from torchlift.runtime.tracking import GeneralTracker

torch.set_default_dtype(torch.float64)


class Kept(GeneralTracker):
    name, requires_logging_directory, tracker = "kept", False, None

    def __init__(self):
        super().__init__()
        self.rows = []

    def log(self, values, step=None, **_):
        self.rows.append(values)


def net():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def figures(model):
    """As scripts write them."""
    weight = model[0].weight
    return {
        "weight": weight.detach(),
        "norm": weight.norm().detach(),
        "gradient": torch.stack([p.grad.norm() for p in model.parameters()]).norm(),
        "mean": weight.mean().item(),
        "nested": {"largest": [weight.detach().max(), 3]},
    }


def same(found, wanted):
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            same(found[name], value)
    elif isinstance(wanted, list):
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    else:
        assert type(found) is type(wanted), (type(found), type(wanted))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


folder, kept = Path(sys.argv[1]), Kept()
accelerator = Accelerator(
    fsdp_plugin=FullyShardedDataParallelPlugin(), log_with=[kept, "jsonl"], project_dir=folder, split_batches=True
)
accelerator.init_trackers("run", {"lr": 0.1})
data = list(torch.randn(8, 3, generator=torch.Generator().manual_seed(4)))
model, plain = net(), net()
model, loader = accelerator.prepare(model, DataLoader(data, batch_size=4))
wanted, texts, out = [], [], io.StringIO()
for step, x in enumerate(loader):
    accelerator.backward(model(x).square().mean())
    plain(torch.stack(data[4 * step : 4 * step + 4])).square().mean().backward()
    wanted.append(figures(plain))
    accelerator.log(figures(model), step=step)
    accelerator.log(accelerator.pace(loader)._asdict(), step=step)
    with contextlib.redirect_stdout(out):
        accelerator.print(model[0].weight.norm().detach(), "of", f"{model[0].weight.norm():.6f}", step)
    texts.append(f"{plain[0].weight.norm().detach()!s} of {plain[0].weight.norm():.6f} {step}")
accelerator.end_training()
if accelerator.is_main_process:
    same([row for row in kept.rows if "norm" in row], wanted)
    assert [row["batches"] for row in kept.rows if "batches" in row] == [0, 1]
    assert all(0 <= row["data_wait"] <= 1 for row in kept.rows if "batches" in row)
    assert out.getvalue().splitlines() == texts
    lines = [json.loads(line) for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines()]
    (norm,) = {line["norm"] for line in lines if "norm" in line}
    assert abs(norm - plain[0].weight.norm().item()) < 1e-12
else:
    assert kept.rows == [] and out.getvalue() == ""
print("RESULT true")
