"""`--strategy fsdp`: what a script does with weights that would not work sharded is told; the new code is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, ConfigError, Strategy, load
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

SCRIPT = """\
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.head(self.encoder(x)) * self.scale + self.head.weight[0, 0]

    def encode(self, x):
        return self.encoder(x)
{top}
model = Net()
{built}
loader = DataLoader(data, batch_size=32)
optimizer = {optimizer}
for epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y){penalty}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{step}
{end}
"""
SGD = "torch.optim.SGD(model.parameters(), lr=0.1)"


def run(strategy: Strategy, text: str) -> FileResult:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(strategy=strategy)).files
    return file


def told(
    top: str = "", built: str = "", optimizer: str = SGD, penalty: str = "", step: str = "", end: str = ""
) -> list[str]:
    """The messages about sharded weights; the emitted text is that without the strategy, which says nothing of them."""
    inside = "\n".join(f"        {line}" for line in step.splitlines())
    text = SCRIPT.format(top=top, built=built, optimizer=optimizer, penalty=penalty, step=inside, end=end)
    plain, sharded = run(Strategy.DDP, text), run(Strategy.FSDP, text)
    assert plain.changed and plain.after == sharded.after
    assert [d.id for d in plain.diagnoses] == [d.id for d in sharded.diagnoses if d.id != "sharded-weights"]
    return [d.message for d in sharded.diagnoses if d.id == "sharded-weights"]


NOTHING = {
    "plain training": {},
    "arithmetic element by element": {"step": "for p in model.parameters():\n    p.data.clamp_(-0.1, 0.1)"},
    "a norm": {"step": "norm = sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5"},
    "a method of the model": {"end": "codes = model.encode(data[0])"},
    "before prepare": {"built": "model.head.weight.data[0] = 1.0\nprint(model.head.weight.tolist())"},
    "shared before prepare": {"built": "model.head.weight = model.encoder.weight"},
    "an index of the list of parameters": {"end": "first = list(model.parameters())[0]"},
    "a copy of other things": {"end": "kept = copy.deepcopy({'a': 1})"},
    "a model that is traced before": {"built": "torch.jit.trace(model, data[0])"},
    "the state dict": {"end": "torch.save(model.state_dict(), 'm.pt')"},
    "another optimizer": {"optimizer": "torch.optim.AdamW(model.parameters())"},
    "a loss of the outputs": {"penalty": " + 0.1 * model(x).pow(2).mean()"},
    "a figure in a tracker": {
        "top": "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter()",
        "step": "writer.add_scalar('norm', model.head.weight.norm().item(), epoch)",
    },
    "a tensor that is no weight": {"end": "rows = data[0]\nprint(rows[0].tolist())"},
}


@pytest.mark.parametrize("parts", NOTHING.values(), ids=NOTHING)
def test_nothing_is_said_of(parts: dict[str, str]) -> None:
    assert told(**parts) == []


OWN = """
class Descent(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"])
"""
EMA = "for e, p in zip(ema.parameters(), model.parameters()):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)"
TOLD = {
    "a weight read by an index": ({"end": "print(model.head.weight[0])"}, "`model.head.weight[0]` reads a part"),
    "a weight of the model's own": ({"end": "print(model.scale.data[0])"}, "`model.scale.data[0]` reads a part"),
    "a weight written by an index": (
        {"step": "with torch.no_grad():\n    model.head.weight[0] = 0.0"},
        "`model.head.weight[0]` writes to a part",
    ),
    "the elements of a loop": ({"step": "for p in model.parameters():\n    p.data[0] = 0.0"}, "`p.data[0]` writes"),
    "a list of numbers": ({"end": "print(model.head.bias.tolist())"}, "`model.head.bias.tolist()` raises"),
    "a histogram of a tracker": (
        {
            "top": "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter()",
            "step": "for name, p in model.named_parameters():\n    writer.add_histogram(name, p, epoch)",
        },
        "`writer.add_histogram` is handed the weight `p`",
    ),
    "what other packages draw": (
        {"top": "import wandb", "step": "for p in model.parameters():\n    h = wandb.Histogram(p.data.cpu())"},
        "`wandb.Histogram` is handed the weight `p.data.cpu()`",
    ),
    "an array": ({"end": "a = model.head.weight.detach().cpu().numpy()"}, "numpy()` raises an error with sharded"),
    "a vector": (
        {"end": "v = nn.utils.parameters_to_vector(model.parameters())"},
        "`nn.utils.parameters_to_vector` joins weights in one vector",
    ),
    "weights out of a vector": (
        {"end": "nn.utils.vector_to_parameters(vector, model.parameters())"},
        "`nn.utils.vector_to_parameters` joins weights",
    ),
    "a copy after prepare": ({"end": "best = copy.deepcopy(model)"}, "`copy.deepcopy(model)` copies a model after"),
    "a copy from before": (
        {"built": "ema = copy.deepcopy(model)", "step": EMA},
        "`ema.parameters()` are whole on each",
    ),
    "the model as an object": ({"end": "torch.save(model, 'm.pt')"}, "`model` is saved as an object"),
    "a model that is traced": ({"end": "torch.jit.trace(model, data[0])"}, "`torch.jit.trace` follows a model"),
    "a picture of a model": (
        {
            "built": "from torch.utils.tensorboard import SummaryWriter\nw = SummaryWriter()",
            "end": "w.add_graph(model, x)",
        },
        "add_graph` follows a model",
    ),
    "a part called by itself": ({"end": "codes = model.encoder(data[0])"}, "`model.encoder` is a part of a model"),
    "shared afterwards": (
        {"step": "model.head.weight = model.encoder.weight"},
        "`model.head.weight` becomes the same parameter as `model.encoder.weight`",
    ),
    "filled from a whole tensor": (
        {"step": "model.head.weight.data.copy_(torch.ones(2, 8))"},
        "`model.head.weight.data.copy_` copies a tensor that each process has whole",
    ),
    "a penalty": (
        {"penalty": " + 0.1 * sum(p.pow(2).sum() for p in model.parameters())"},
        "this loss has a term of the weights themselves",
    ),
    "a penalty of one weight": ({"penalty": " + model.head.weight.abs().sum()"}, "a term of the weights themselves"),
    "an optimizer without a sharded form": (
        {"optimizer": "torch.optim.Adafactor(model.parameters())"},
        "torch.optim.Adafactor needs each weight as a whole",
    ),
    "an optimizer of the script": (
        {"top": OWN, "optimizer": "Descent(model.parameters())"},
        "`Descent` is an optimizer of this program",
    ),
}


@pytest.mark.parametrize(("parts", "words"), TOLD.values(), ids=TOLD)
def test_told(parts: dict[str, str], words: str) -> None:
    (message,) = told(**parts)
    assert words in message


def test_the_setting_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.torchlift]\nstrategy = "fsdp"\n')
    assert load(tmp_path).strategy is Strategy.FSDP
    (tmp_path / "pyproject.toml").write_text('[tool.torchlift]\nstrategy = "fsdq"\n')
    with pytest.raises(ConfigError, match=r"there is no choice 'fsdq'\. Did you mean fsdp\?"):
        load(tmp_path)
