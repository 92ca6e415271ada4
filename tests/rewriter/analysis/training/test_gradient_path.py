"""What a backward pass flows through is never detached, gathered or reduced (hazards U2, U3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

LOOP = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
{imports}

model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    total = 0.0
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
{loss}
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total / len(loader), losses)
"""
FIT = "fit = F.mse_loss(out, y)"
KEPT = f"{FIT}\nlosses.append(fit)"


def migrated(text: str) -> str:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(loss)" in file.after, "the training itself was not migrated"
    return file.after.decode()


def program(loss: str, imports: str = "") -> str:
    return LOOP.format(imports=imports, loss="\n".join(f"        {line}" for line in loss.splitlines()))


TRAINED_ON = {
    "a sum by a function of torch": f"{FIT}\nloss = torch.add(fit, model.weight.pow(2).sum())",
    "a sum of a list": f"{FIT}\nlosses.append(fit)\nloss = sum(losses) / len(losses)\nlosses = []",
    "a numbered list": f"{KEPT}\nloss = 0\nfor i, one in enumerate(losses): loss += one / (i + 1)\nlosses = []",
    "a list of pairs": f"{FIT}\nlosses.append((2, fit))\nloss = sum(w * one for w, one in losses)\nlosses = []",
    "a nested tuple": f"{KEPT}\n(loss, _), rest = (losses[0], 1), 2\nlosses = []",
    "an entry put into a dict": f'{FIT}\nlosses = {{}}\nlosses["fit"] = fit\nloss = sum(losses.values())',
    "attributes of an object": f"{KEPT}\nmodel.fit, model.rest = losses[0], 1\nloss = model.fit * 2\nlosses = []",
    "an annotated attribute": f"{KEPT}\nmodel.fit: float = losses[0]\nloss = model.fit * 2\nlosses = []",
    "an entry of a dict": f'{FIT}\nparts = {{"fit": fit}}\nloss = parts["fit"] * 2',
    "a running sum": f"{FIT}\nloss = 0\nloss += fit",
    "one of two": f"{FIT}\nloss = fit if epoch else 2 * fit",
    "a module of the program's own": f"{FIT}\nloss = torch.nn.functional.relu(fit)",
}


@pytest.mark.parametrize("loss", TRAINED_ON.values(), ids=TRAINED_ON)
def test_a_term_of_the_loss_stays_as_it_is(loss: str) -> None:
    text = migrated(program(loss))
    assert "accelerator.backward(loss)" in text
    kept = [line.strip() for line in text.splitlines() if line.startswith("        ")]
    assert [line for line in loss.splitlines() if line not in kept] == []
    assert 'total += accelerator.reduce(loss.detach(), reduction="mean").item()' in kept


def test_the_loss_of_an_outside_criterion_is_not_gathered_before_its_backward_pass() -> None:
    text = program("loss = criterion(out, y)", "from pytorch_metric_learning.losses import NTXentLoss")
    text = text.replace("for epoch", "criterion = NTXentLoss()\nfor epoch", 1)
    after = migrated(text.replace("total += loss.item()", "losses.append(loss.item())"))
    assert "accelerator.backward(loss)" in after
    assert "gather_for_metrics" not in after.split("accelerator.backward(loss)")[0]


def test_an_attack_in_an_evaluation_is_not_gathered() -> None:
    attack = """
test_loader = DataLoader(test_data, batch_size=32)
hits = 0
for x, y in test_loader:
    x.requires_grad_()
    out = model(x)
    cost = F.cross_entropy(out, y)
    cost.backward()
    hits += (model(x + 0.1 * x.grad.sign()).argmax(1) == y).sum().item()
print(hits)
"""
    text = migrated(program(f"loss = {FIT.partition(' = ')[2]}") + attack)
    evaluation = text.split("test_loader:")[1]
    assert "gather_for_metrics" not in evaluation.split("cost.backward()")[0].split("cost = ")[0]


SCORED = """\
import torch
from torch.utils.data import DataLoader

def score(out, y):
    return ((out - y) ** 2).mean()

model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
test_loader = DataLoader(test_data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = score(model(x), y)
    loss.backward()
    optimizer.step()
hits = 0
for x, y in test_loader:
    out = model(x)
    hits += score(out.argmax(1), y).item()
print(hits)
"""


def test_an_evaluation_may_call_the_function_that_training_calls() -> None:
    assert 'accelerator.reduce(score(out.argmax(1), y).detach(), reduction="sum_of_means")' in migrated(SCORED)


def test_a_term_that_is_kept_in_an_attribute_stays_as_it_is(trained: Callable[..., tuple[str, list[str]]]) -> None:
    text, findings = trained(
        built="class Keep: pass\nkeep = Keep()\nkeep.total = 0.0",
        loss="fit = torch.nn.functional.cross_entropy(model(x), y)\nkeep.total += fit\nloss = keep.total",
        epoch="print(keep.total / len(loader))\nkeep.total = 0.0",
    )
    assert "        keep.total += fit\n" in text
    assert findings == ["metrics_gather"]


OF_A_METHOD = """\
class Trainer:
    def update(self, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
trainer = Trainer()
"""
THROUGH_TWO = """\
def change(cost):
    optimizer.zero_grad()
    cost.backward()
    optimizer.step()
def update(loss):
    change(loss)
"""
HANDED = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{functions}
for epoch in range(3):
    total = 0.0
    losses = []
    for x, y in loader:
        fit = torch.nn.functional.cross_entropy(model(x), y)
        losses.append(fit)
        {call}(sum(losses) / len(losses))
        losses = []
        total += fit.item()
    print(epoch, total / len(loader), losses)
"""


@pytest.mark.parametrize(
    ("functions", "call"), [(OF_A_METHOD, "trainer.update"), (THROUGH_TWO, "update")], ids=["a method", "two functions"]
)
def test_a_term_of_a_loss_that_is_handed_on_stays_as_it_is(
    functions: str, call: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, _ = trained_project(train=HANDED.format(functions=functions, call=call))
    text = texts["train"]
    assert "        losses.append(fit)\n" in text
    assert 'total += accelerator.reduce(fit.detach(), reduction="mean").item()\n' in text


def test_a_loader_and_its_data_have_no_gradient() -> None:
    """An evaluation by `next()` that computes a loss under the same name led to the data set's NumPy arrays."""
    evaluation = """\
    batches = iter(valid)
    for k in range(3):
        x, y = next(batches)
        loss = F.mse_loss(model(x), y)
        losses.append(loss)
    print(sum(losses).item())
"""
    text = program("loss = F.mse_loss(out, y) + sum(p.pow(2).sum() for p in model.parameters())") + evaluation
    migrated(text.replace("model = ", "valid = DataLoader(Rows(inputs.numpy()), batch_size=32)\nmodel = ", 1))


def test_a_closure_sees_its_variables_as_they_are_where_the_step_runs_it() -> None:
    """What is gathered behind the step, under the name of the batch, is no part of its loss."""
    closure = """\
def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    return loss
loss = optimizer.step(closure)
total += loss.item() * x.size(0)"""
    text = program(closure).replace("        optimizer.zero_grad()\n        out = model(x)\n", "", 1)
    text = text.replace("        loss.backward()\n        optimizer.step()\n        total += loss.item()\n", "", 1)
    new = migrated(text)
    assert "            accelerator.backward(loss)\n" in new
    assert "accelerator.gather_for_metrics(" in new


@pytest.mark.parametrize("runs", ["later.append(closure)", "optimizer.step(lambda: closure())"])
def test_a_closure_that_is_kept_may_be_run_whenever(runs: str) -> None:
    closure = f"def closure():\n    return F.mse_loss(model(x), y)\n{runs}\nloss = closure()\nx = x + 1"
    migrated("later = []\n" + program(closure))
