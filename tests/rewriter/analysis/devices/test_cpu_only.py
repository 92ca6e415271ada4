"""Scripts that name no device stay on the CPU where a GPU would meet what they keep there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


@pytest.mark.parametrize(
    "part",
    [
        {"step": "zeros = torch.zeros(len(x), 8)\nscores = model(zeros)"},
        {"top": "rows = read()\n", "epoch": "scores = model(rows)"},
        {"top": "rows = read()\n", "end": "scores = model(rows[:100])"},
        {"end": "for x, y in data:\n    scores = model(x)"},
        {"step": "x, y = x.cpu(), y.cpu()\nscores = model(x)"},
        {"step": "scores = model(x.cpu())"},
        {"top": "shift = torch.rand(2)\n", "step": "scores = model(x) + shift"},
        {
            "top": "shift = torch.rand(2).type(torch.FloatTensor)\n",
            "step": "scores = model(x.type(torch.FloatTensor)) + shift",
        },
        {"top": "hits = torch.tensor(0)\n", "step": "hits += (model(x).argmax(1) == y).sum()"},
        {"top": "hits = torch.tensor(0)\n", "step": "hits.add_((model(x).argmax(1) == y).sum())"},
    ],
    ids=[
        "made by hand",
        "a test set at once",
        "a part of it",
        "each row",
        "a batch that is moved there",
        "moved where it is fed",
        "a constant",
        "a constant in a type of the CPU",
        "a total of one number, which takes nothing from a GPU",
        "a total of one number, by its method",
    ],
)
def test_it_stays_on_the_cpu(part: dict[str, str], trained: Trained) -> None:
    text, findings = trained(**part)
    assert "accelerator = Accelerator(cpu=True)\n" in text and "cpu-only" in findings


@pytest.mark.parametrize(
    "part",
    [
        {"step": "scores = model(x.flip(0))"},
        {"step": "history.append(loss.data.numpy())", "top": "history = []\n"},
        {"step": "scores = model(x)\nx = x.cpu()\nprint(x.sum())"},
        {"top": "other = torch.nn.Linear(8, 2)\n", "epoch": "other(read())"},
        {"top": "rate = torch.tensor(0.5)\n", "step": "scores = model(x) * rate"},
        {"top": "seen = torch.zeros(2)\n", "step": "seen += model(x).detach().cpu().mean(0)"},
        {"top": "hits = torch.tensor(0)\n", "step": "hits = hits + (model(x).argmax(1) == y).sum()"},
    ],
    ids=[
        "a batch",
        "taken to the CPU",
        "a batch, moved after the forward pass",
        "a model that is not trained",
        "a constant of one number",
        "a sum on the CPU",
        "a total of one number that is made anew",
    ],
)
def test_it_uses_the_gpu(part: dict[str, str], trained: Trained) -> None:
    text, findings = trained(**part)
    assert "accelerator = Accelerator()\n" in text and "cpu-only" not in findings


def test_a_loss_is_taken_to_the_cpu_where_numpy_reads_it(trained: Trained) -> None:
    text, _ = trained(step="print(loss.data.numpy())")
    assert "accelerator.print(loss.data.cpu().numpy())" in text


def test_what_stays_on_the_cpu_is_not_taken_there(trained: Trained) -> None:
    step = "zeros = torch.zeros(len(x), 8)\nscores = model(zeros)\nhistory.append(loss.data.numpy())"
    text, findings = trained(step=step, top="history = []\n")
    assert "cpu-only" in findings
    assert "history.append(loss.data.numpy())" in text


OWN_ITERATOR = """\
class Rows:
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        for batch in self.loader:
            yield batch
rows = {rows}
"""


def test_batches_of_a_loader_that_is_not_prepared_stay_on_the_cpu(trained: Trained) -> None:
    """They come by way of something that was made of the loader, and are cut into shards where they are used."""
    rows = "(batch for batch in loader)"
    text, findings = trained(built=OWN_ITERATOR.format(rows=rows), source="rows")
    assert "accelerator = Accelerator(cpu=True)\n" in text and "x, y = accelerator.shard_batch((x, y))\n" in text
    assert "cpu-only" in findings


def test_an_object_of_the_scripts_own_is_made_of_the_prepared_loader(trained: Trained) -> None:
    text, findings = trained(built=OWN_ITERATOR.format(rows="Rows(loader)"), source="rows")
    assert "accelerator = Accelerator()\n" in text and "shard_batch" not in text and findings == []
    assert text.index("accelerator.prepare(") < text.index("rows = Rows(loader)")


PINNED = """\
class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, x):
        out = self.layer(x)
        noise = {noise}
        return out + noise
model = Noisy()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("noise", "stays"),
    [
        ("torch.randn_like(out).to('cpu')", True),
        ("torch.rand_like(out).to(torch.device('cpu'))", True),
        ("torch.zeros_like(out, device='cpu')", True),
        ("torch.normal(0.0, 1.0, out.shape, device=torch.device('cpu'))", True),
        ("out.abs().cpu()", True),
        ("torch.randn_like(out)", False),
        ("torch.randn_like(out).to(out.dtype)", False),
        ("out.cpu().mean().item()", False),
    ],
)
def test_what_the_loss_is_made_of_is_put_on_the_cpu_by_name(noise: str, stays: bool, trained: Trained) -> None:
    text, findings = trained(built=PINNED.format(noise=noise))
    assert ("accelerator = Accelerator(cpu=True)\n" in text, "cpu-only" in findings) == (stays, stays)


def test_a_figure_that_is_put_on_the_cpu_by_name(trained: Trained) -> None:
    text, findings = trained(step="seen.append(loss.detach().to('cpu'))", top="seen = []\n")
    assert "accelerator = Accelerator()\n" in text and "cpu-only" not in findings


KEEPER = """\
class Weighted({base}):
    def __init__(self, weight=None):
        {init}
        {keep}
    def {call}(self, out, y):
        return torch.nn.functional.cross_entropy(out, y, {use})
weighted = Weighted({given})
"""
MODULE = {"base": "torch.nn.Module", "init": "super().__init__()", "call": "forward"}
OBJECT = {"base": "object", "init": "self.seen = 0", "call": "__call__"}


@pytest.mark.parametrize(
    ("kind", "keep", "use", "given", "stays"),
    [
        (MODULE, "self.weight = weight", "self.weight", "torch.ones(2)", True),
        (OBJECT, "self.weight = torch.ones(2)", "weight=self.weight", "", True),
        (MODULE, "self.register_buffer('weight', torch.ones(2))", "self.weight", "", True),
        (OBJECT, "self.weight = torch.tensor([0.5, 2.0])", "self.weight.abs() * y.float().mean()", "", True),
        (MODULE, "self.weight = torch.nn.Parameter(torch.ones(2))", "self.weight.to(out)", "", False),
        (OBJECT, "self.weight = torch.ones(2)", "self.weight.to(out.device)", "", False),
        (OBJECT, "self.weight = torch.tensor(0.1)", "label_smoothing=self.weight * out.mean()", "", False),
        (OBJECT, "self.weight = torch.ones(2)", "label_smoothing=self.weight.mean().item()", "", False),
        (OBJECT, "self.weight = torch.ones(2)", "reduction='mean' if self.weight.shape[0] else 'sum'", "", False),
    ],
    ids=[
        "what a constructor is given",
        "an object of no module",
        "a buffer of what is not prepared",
        "through an operation",
        "a parameter that is moved",
        "moved where it is read",
        "a single number",
        "read as a number",
        "its shape",
    ],
)
def test_a_tensor_that_the_loss_of_a_script_keeps(
    kind: dict[str, str], keep: str, use: str, given: str, stays: bool, trained: Trained
) -> None:
    top = KEEPER.format(**kind, keep=keep, use=use, given=given)
    text, findings = trained(top=top, loss="loss = weighted(model(x), y)")
    assert ("accelerator = Accelerator(cpu=True)\n" in text, "cpu-only" in findings) == (stays, stays)


INNER = """\
class Inner(torch.nn.Module):
    def __init__(self, weight=None):
        super().__init__()
        self.loss = torch.nn.NLLLoss(weight)
    def forward(self, out, y):
        return self.loss(out.log_softmax(1), y)
inner = Inner({given})
"""


@pytest.mark.parametrize(
    ("given", "stays"),
    [("torch.ones(2)", True), ("weight=read()", True), ("", False), ("None", False)],
    ids=["given", "not known", "none", "said to be none"],
)
def test_a_loss_inside_a_loss_keeps_a_weight(given: str, stays: bool, trained: Trained) -> None:
    text, findings = trained(top=INNER.format(given=given), loss="loss = inner(model(x), y)")
    assert ("accelerator = Accelerator(cpu=True)\n" in text, "cpu-only" in findings) == (stays, stays)


NET = """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
        {keep}
    def forward(self, x):
        return self.layer(x * self.scale)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("keep", "stays"),
    [
        ("self.scale = torch.ones(8)", True),
        ("self.register_buffer('scale', torch.ones(8))", False),
        ("self.scale = torch.nn.Parameter(torch.ones(8))", False),
    ],
    ids=["an attribute", "a buffer", "a parameter"],
)
def test_a_tensor_that_a_model_keeps(keep: str, stays: bool, trained: Trained) -> None:
    text, findings = trained(built=NET.format(keep=keep))
    assert ("accelerator = Accelerator(cpu=True)\n" in text, "cpu-only" in findings) == (stays, stays)


def test_the_finding_names_what_is_kept() -> None:
    script = (
        "import torch\nfrom torch.utils.data import DataLoader\n"
        + KEEPER.format(**OBJECT, keep="self.weight = torch.ones(2)", use="self.weight", given="")
        + "model = torch.nn.Linear(8, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in DataLoader(data, batch_size=4):\n    weighted(model(x), y).backward()\n    optimizer.step()\n"
    )
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [one for one in file.diagnoses if one.id == "cpu-only"]
    assert (found.line, "keeps `self.weight` on the CPU" in found.message) == (6, True)


ASKED = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), batch_size=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def ask(rows):
    rows = torch.tensor(rows)
    with torch.no_grad():
        return model(rows)TAKEN


print(ask([[1.0, 2.0, 3.0, 4.0]]))
"""


ALIKE = "(likewise for what meets these tensors or a result of the model)"


@pytest.mark.parametrize(
    ("taken", "back"),
    [
        (".numpy()", ", add .cpu() where the CPU needs a result (`model(rows).numpy()`), and"),
        (".cpu().numpy()", " and"),
        ("", " and"),
    ],
)
def test_the_remedy_says_all_that_a_gpu_needs(taken: str, back: str) -> None:
    text = ASKED.replace("TAKEN", taken)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (told,) = [found.remedy for found in file.diagnoses if found.id == "cpu-only"]
    assert told == f"to train on GPUs, add .to(accelerator.device) to `rows` {ALIKE}{back} remove cpu=True"


def test_a_script_without_a_flag_is_told_of_none() -> None:
    (file,) = migrate([decode(ASKED.replace("TAKEN", "").encode(), Path("train.py"))], CATALOGUE, Config()).files
    reasons = [change.reason for change in file.changes if change.rule == "accelerator_setup"]
    assert "the accelerator is created before its first use; the script works on the CPU" in reasons
    assert not any("flag" in reason for reason in reasons)


def test_the_remedy_names_all_that_the_model_is_given() -> None:
    """Whoever moves the first alone meets the next."""
    text = ASKED.replace("TAKEN", "") + "held = torch.load('held.pt')\nprint(model(held).mean())\n"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (told,) = [found.remedy for found in file.diagnoses if found.id == "cpu-only"]
    both = "add .to(accelerator.device) to `rows`, add .to(accelerator.device) to `held`"
    assert told == f"to train on GPUs, {both} {ALIKE} and remove cpu=True"


LEFT = """\
import torch
from torch.utils.data import DataLoader
from torchvision.models import resnet18
{top}
class Shares(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 2))
        {init}
    def forward(self, x, net):
        with torch.no_grad():
            out = net(x.to("cuda"))
        shares = torch.zeros(len(x), 4){made}
        shares[:, 0] = out[:, 0].cpu(){made}
        return shares @ self.weight
shares = {built}
optimizer = torch.optim.SGD(shares.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
net = resnet18().to("cuda")
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(shares(x, net).to("cuda"), y.to("cuda"))
    loss.backward()
    optimizer.step()
"""
USUAL = {"top": "", "init": "pass", "made": "", "built": "Shares()"}
ELSEWHERE = {
    "moved": {"built": "Shares().cuda()"},
    "moved in parallel": {"built": "torch.nn.DataParallel(Shares()).cuda()"},
    "moved by itself": {"init": "self.to('cuda')"},
    "made there": {"init": "self.tail = torch.nn.Linear(2, 2, device='cuda')"},
    "by default": {"top": "torch.set_default_device('cuda')"},
    "moved as it is made": {"made": ".to(self.weight.device)"},
}


@pytest.mark.parametrize("parts", [{}, *ELSEWHERE.values()], ids=["left on the CPU", *ELSEWHERE])
def test_what_a_model_makes_on_the_cpu_where_the_script_leaves_it(parts: dict[str, str]) -> None:
    """`prepare` moves its weights: on a GPU the first step failed, and nothing was said."""
    script = LEFT.format(**{**USUAL, **parts})
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    told = [found.message for found in file.diagnoses if found.case == "in-forward"]
    assert file.changed and bool(told) is not bool(parts)
    assert all("the script never moves Shares" in message for message in told)
