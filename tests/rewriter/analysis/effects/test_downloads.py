"""Weights that are downloaded: by the first process, before the others read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


TRAINING = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""
FIRST = "with accelerator.main_process_first():\n    "


def test_pretrained_models_of_both_libraries(trained: Trained) -> None:
    old, new = "torchvision.models.resnet18(pretrained=True)", 'timm.create_model("vit", pretrained=True)'
    text, findings = trained(top="import timm\nimport torchvision", built=f"old = {old}\nnew = {new}")
    assert f"{FIRST}old = {old}\n    new = {new}" in text
    assert findings == []


def test_a_model_of_a_hub_is_brought_by_one_process(trained: Trained) -> None:
    """Its repository is, whether weights are asked for or not; a folder of this machine is not brought."""
    made = 'old = torch.hub.load("pytorch/vision", "resnet18")\n'
    local = 'new = torch.hub.load("vision", "resnet18", source="local")'
    text, findings = trained(built=made + local)
    assert f"{FIRST}{made}" in text and f"\n{local}" in text and text.count("main_process_first") == 1
    assert findings == []


def test_weights_of_a_backbone_are_brought_by_one_process(trained: Trained) -> None:
    made = 'old = torchvision.models.segmentation.fcn_resnet50(weights_backbone="DEFAULT")'
    text, findings = trained(top="import torchvision", built=made)
    assert f"{FIRST}{made}" in text and findings == []


def test_a_model_without_weights_is_built_by_all_at_once(trained: Trained) -> None:
    text, _ = trained(top="import torchvision", built="old = torchvision.models.resnet18(pretrained=False)")
    assert "main_process_first" not in text and "\nold = torchvision" in text


@pytest.mark.parametrize("asked", ["True", "args.download", "not here()"])
def test_a_data_set_that_may_be_downloaded(asked: str, trained: Trained) -> None:
    made = f'data = torchvision.datasets.MNIST("mnist", download={asked})'
    text, findings = trained(top="import torchvision", built=made)
    assert f"{FIRST}{made}\n" in text and findings == []


@pytest.mark.parametrize("asked", ["False", "None"])
def test_a_data_set_that_is_never_downloaded(asked: str, trained: Trained) -> None:
    text, _ = trained(top="import torchvision", built=f'data = torchvision.datasets.MNIST("mnist", download={asked})')
    assert "main_process_first" not in text


def test_what_a_class_is_asked_for_is_seen_where_it_is_made(trained: Trained) -> None:
    """A turn within a turn of the main process would hang."""
    top = (
        "import torchvision\n\n\nclass Pairs(torch.utils.data.Dataset):\n    def __init__(self, download=False):\n"
        '        self.digits = torchvision.datasets.MNIST("mnist", download=download)\n'
    )
    text, _ = trained(top=top, built="pairs = Pairs(download=True)")
    assert f"{FIRST}pairs = Pairs(download=True)\n" in text and text.count("main_process_first") == 1


@pytest.mark.parametrize(
    "made",
    [
        "paths = [extract_archive(download_from_url(url))[0] for url in urls]",
        "train, valid = torchtext.datasets.Multi30k(split=('train', 'valid'))",
    ],
)
def test_what_finds_the_files_that_are_there_is_run_in_turn(made: str, trained: Trained) -> None:
    """One call or several, whose value is used: the others find what the first has brought."""
    top = "import torchtext\nfrom torchtext.utils import download_from_url, extract_archive\nurls = ['a', 'b']"
    text, findings = trained(top=top, built=made)
    assert f"{FIRST}{made}\n" in text and findings == []


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("shutil.unpack_archive('a.zip', 'a')", "every process would unpack the same files"),
        ("urllib.request.urlretrieve('a', 'b')", "every process would download the same files"),
        ("if os.path.exists('a.zip'):\n    zipfile.ZipFile('a.zip').extractall()", "would unpack at the same time"),
        ("if not os.path.exists('b'):\n    urllib.request.urlretrieve('a', 'b')", "would download at the same time"),
    ],
)
def test_what_is_unpacked_is_said_to_be(before: str, reason: str) -> None:
    text = f"import os\nimport shutil\nimport urllib.request\nimport zipfile\n{before}\n{TRAINING}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [change.reason for change in file.changes if reason in change.reason]


def test_a_class_of_rows_that_are_given_brings_nothing(trained: Trained) -> None:
    """The other names beside it download; and no method of what has been brought does."""
    top = "from torchtext import datasets"
    built = "texts = datasets.TextClassificationDataset(words, rows, labels)\nwords = texts.get_vocab()"
    text, findings = trained(top=top, built=built)
    assert f"\n{built}" in text and findings == []
    text, findings = trained(top=top, built=built.replace("TextClassificationDataset", "AG_NEWS"))
    assert f"{FIRST}texts = datasets.AG_NEWS(words, rows, labels)\nwords = texts" in text and findings == []


@pytest.mark.hazard("U17")
@pytest.mark.parametrize("fetch", ["download_url(url, 'd')", "paths = [download_url(url, 'd')]"])
def test_what_finds_the_files_is_no_meeting_behind_a_test_for_them(fetch: str, trained: Trained) -> None:
    """One process may answer that the file is there when another has just begun to fetch it."""
    top = "import os\nfrom torchvision.datasets.utils import download_url\nurl = 'a'"
    text, findings = trained(top=top, built=f"if not os.path.exists('d/a'):\n    {fetch}")
    assert f"{FIRST}if not os.path.exists('d/a'):\n        {fetch}" in text and findings == []


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("torch_geometric.datasets", 'data = TUDataset("rows", name="MUTAG")'),
        ("torch_geometric.datasets", 'data = Planetoid("rows", "Cora")[0]'),
        ("dgl.data", "data = CoraGraphDataset()"),
        ("ogb.nodeproppred", 'data = PygNodePropPredDataset(name="ogbn-arxiv")'),
        ("sklearn.datasets", "data = fetch_california_housing()"),
    ],
)
def test_a_data_set_whose_constructor_downloads(source: str, made: str, trained: Trained) -> None:
    """No argument asks for it: the files are fetched and processed where they are not there yet."""
    name = made.partition(" = ")[2].partition("(")[0]
    text, findings = trained(top=f"from {source} import {name}", built=made)
    assert f"{FIRST}{made}\n" in text and findings == []


def test_a_class_of_the_script_whose_base_processes(trained: Trained) -> None:
    """The base class calls `process`, and saves what it gives, in its constructor."""
    top = (
        "from torch_geometric.data import InMemoryDataset\n\n\nclass Rings(InMemoryDataset):\n"
        "    def process(self):\n        self.save(rings(), self.processed_paths[0])\n"
    )
    text, _ = trained(top=top, built='rings = Rings("rings")')
    assert f'{FIRST}rings = Rings("rings")\n' in text
