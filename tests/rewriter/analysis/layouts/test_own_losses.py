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
        ("AutoModelForTokenClassification", ["weighted-mean"]),
        ("GPT2LMHeadModel", ["weighted-mean"]),
        ("T5ForConditionalGeneration", ["weighted-mean"]),
        ("AutoModel", ["loss-reduction"]),
    ],
)
@pytest.mark.parametrize("loss", ["loss = model(x, labels=y).loss", "outputs = model(x, labels=y)\nloss = outputs[0]"])
def test_what_it_is_the_mean_of(kind: str, found: list[str], loss: str, trained: Trained) -> None:
    assert trained(built=SIMPLE.format(kind=kind), loss=loss)[1] == found
