"""The loss that a model of transformers computes itself: what it is the mean of, by the kind of model."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

SIMPLE = """\
from transformers import {kind}
model = {kind}.from_pretrained("some-model")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"""


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("AutoModelForSequenceClassification", []),
        ("ViTForImageClassification", []),
        ("ASTForAudioClassification", []),
        ("VideoMAEForVideoClassification", []),
        ("AutoModelForTokenClassification", ["weighted-mean"]),
        ("GPT2LMHeadModel", ["weighted-mean"]),
        ("T5ForConditionalGeneration", ["weighted-mean"]),
        ("AutoModel", ["loss-reduction"]),
    ],
)
@pytest.mark.parametrize("loss", ["loss = model(x, labels=y).loss", "outputs = model(x, labels=y)\nloss = outputs[0]"])
def test_what_it_is_the_mean_of(kind: str, found: list[str], loss: str, trained: Trained) -> None:
    assert trained(built=SIMPLE.format(kind=kind), loss=loss)[1] == found


@pytest.mark.parametrize("kind", ["AutoModelForCausalLM", "AutoModelForMaskedLM"])
def test_a_model_that_is_trained_from_nothing(kind: str, trained: Trained) -> None:
    built = SIMPLE.format(kind=kind).replace('from_pretrained("some-model")', "from_config(settings)")
    assert trained(built=built, loss="loss = model(x, labels=y).loss")[1] == ["weighted-mean"]


BY_OPTION = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--kind", default="plain")
args = parser.parse_args()

class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x)

class Deep(Plain):
    def forward(self, x):
        return self.inner(torch.relu(self.inner(x)))

class Spread(Plain):
    def forward(self, x):
        h = self.inner(x)
        return h, h.mul(0.1), h.exp()

def spread_loss(out, x, mean, var):
    return torch.nn.functional.mse_loss(out, x) - 0.5 * torch.mean(1 + var - mean.pow(2))"""

CHOSEN = """\
if args.kind == "plain":
    model = Plain()
elif args.kind == "deep":
    model = Deep()
else:
    model = Spread()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"""

BRANCHES = """\
if args.kind == "spread":
    out, mean, var = model(x)
    loss = spread_loss(out, x, mean, var)
else:
    loss = torch.nn.functional.mse_loss(model(x), x)"""


def test_what_is_unpacked_is_of_the_model_that_gives_several(trained: Trained) -> None:
    """Of the others' tensors three rows would be taken, and their means would be no means of the batch."""
    assert trained(top=BY_OPTION, built=CHOSEN, loss=BRANCHES)[1] == []


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        ("loss = F.cross_entropy(model(x)[keep], y[keep])", ["weighted-mean"]),
        ("loss = F.cross_entropy(model(x)[keep], y[keep], reduction='sum')", []),
        ("loss = F.cross_entropy(model(x)[:, keep], y)", []),
        ("loss = F.cross_entropy(model(x), y)", []),
    ],
)
def test_rows_that_another_part_of_the_batch_chooses(loss: str, found: list[str], trained: Trained) -> None:
    """How many they are differs between processes, and nothing was said of the mean over them."""
    ids = trained(top="import torch.nn.functional as F", batch="x, y, keep", loss=loss)[1]
    assert [one for one in ids if one == "weighted-mean"] == found
