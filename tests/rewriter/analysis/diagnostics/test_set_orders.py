"""The strings of a set have another order in each process: what follows it is told, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.groups import groups
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]

ROWS = """\
lines = open("rows.txt").read().split("\\n")
{made}
rows = [torch.tensor([{asked} for word in line.split()]) for line in lines]"""


def _told(made: str, trained: Trained, asked: str = "number[word]") -> bool:
    return "set-order" in trained(top=ROWS.format(made=made, asked=asked))[1]


@pytest.mark.parametrize(
    "made",
    [
        "number = {word: i for i, word in enumerate(set(' '.join(lines).split()))}",
        "number = {word: i for i, word in enumerate({word for line in lines for word in line.split()})}",
        "known = set()\nfor line in lines:\n    known.update(line.split())\n"
        "number = {word: i for i, word in enumerate(known)}",
        "number = {}\nfor word in set(' '.join(lines).split()):\n    number[word] = len(number)",
        "number, last = {}, 0\nfor word in set(' '.join(lines).split()):\n    number[word] = last\n    last += 1",
        "known = list(set(' '.join(lines).split()))\nnumber = dict(zip(known, range(len(known))))",
        "known = ['?'] + list(set(' '.join(lines).split()))\nnumber = {word: known.index(word) for word in known}",
        "def words(lines):\n    return set(' '.join(lines).split()) | {'?'}\n\n"
        "number = {word: i for i, word in enumerate(words(lines))}",
        "known = sorted(set(' '.join(lines).split()), key=len)\nnumber = {word: i for i, word in enumerate(known)}",
        "class Words:\n    def __init__(self):\n        self.of = {}\n\n    def take(self, word):\n"
        "        self.of[word] = len(self.of)\n\n"
        "words = Words()\nfor word in set(' '.join(lines).split()):\n    words.take(word)\nnumber = words.of",
        "class Words:\n    def __init__(self):\n        self.size, self.of = 0, {}\n\n    def take(self, lines):\n"
        "        size, of = self.size, self.of\n        for word in set(' '.join(lines).split()):\n"
        "            if word not in of:\n                of[word] = size\n                size += 1\n"
        "        self.size = size\n\nwords = Words()\nwords.take(lines)\nnumber = words.of",
        "def fill(table, lines):\n    for word in set(' '.join(lines).split()):\n        table[word] = len(table)\n\n"
        "number = {}\nfill(number, lines)",
    ],
    ids="enumerate comprehension update len counter zip index function ties method alias argument".split(),
)
def test_numbers_of_words_by_the_order_of_a_set(made: str, trained: Trained) -> None:
    assert _told(made, trained)


@pytest.mark.parametrize(
    "made",
    [
        "number = {word: i for i, word in enumerate(sorted(set(' '.join(lines).split())))}",
        "known = list(set(' '.join(lines).split()))\nknown.sort()\nnumber = {word: i for i, word in enumerate(known)}",
        "known = set(' '.join(lines).split())\nknown = sorted(known)\nnumber = {w: i for i, w in enumerate(known)}",
        "known = set(' '.join(lines).split())\nnumber = {word: len(word) for word in known}",
        "known = set(' '.join(lines).split())\nprint(len(known), 'a' in known, list(known))\n"
        "number = {word: 1 for line in lines for word in line.split() if word in known}",
        "number = {}\nfor word in set(' '.join(lines).split()):\n    number[word] = len(word)",
        "lengths = set(len(line) for line in lines)\nnumber = {str(n): i for i, n in enumerate(lengths)}",
        "places = list(set(range(9)) - {2, 3})\nnumber = {str(n): i for i, n in enumerate(places)}",
        "seen = list(set(torch.tensor([1, 2]).numpy()))\nnumber = {str(n): i for i, n in enumerate(seen)}",
        "number = {word: i for i, word in enumerate(dict.fromkeys(' '.join(lines).split()))}",
    ],
    ids="sorted sort again looked-up counted measured numbers places array dict".split(),
)
def test_what_does_not_see_the_order(made: str, trained: Trained) -> None:
    assert not _told(made, trained)


def test_hashes_of_text(trained: Trained) -> None:
    assert _told("", trained, "hash(word) % 50")
    assert not _told("", trained, "hash(len(word)) % 50")


CLASS = """\
import torch
from torch.utils.data import DataLoader


class Tagged(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.tags = set({tags})
        self.place = {{tag: i for i, tag in enumerate(self.tags)}}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        values, tag = self.rows[index]
        return torch.tensor(values), self.place[tag]


rows = Tagged(read())
loader = DataLoader(rows, batch_size=8)
model = torch.nn.Linear(4, len(rows.place))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ("tag.lower() for _, tag in rows", "and the order of strings differs"),
        ("tag for _, tag in rows", "and the order of its elements, if they are strings, differs"),
        ("int(tag) for _, tag in rows", ""),
    ],
)
def test_what_is_said(tags: str, words: str) -> None:
    text = CLASS.format(tags=tags)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    said = [d for d in file.diagnoses if d.id == "set-order"]
    assert [d.line for d in said] == [9] * bool(words)
    for one in said:
        assert f"`self.place` follows the order of the set `self.tags`, {words}" in one.message
        assert "sorted(self.tags)" in one.remedy


TWICE = """\
import torch
kinds = {line.strip() for line in open("rows.txt")}
counts = [len(kind) for kind in kinds]
weights = [1.0 / len(kind) for kind in kinds]
model = torch.nn.Linear(4, len(kinds))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = torch.nn.CrossEntropyLoss(weight=torch.tensor(weights) * torch.tensor(counts))
for x, y in torch.utils.data.DataLoader(rows, batch_size=4):
    optimizer.zero_grad()
    loss_fn(model(x), y).backward()
    optimizer.step()
"""


def test_what_follows_one_set_is_one_finding_with_its_places() -> None:
    result = migrate([decode(TWICE.encode(), Path("train.py"))], CATALOGUE, Config())
    (group,) = [group for group in groups(result) if group.first.id == "set-order"]
    assert group.places() == ["train.py:3", "train.py:4"]
    assert [(view.number, view.label) for view in group.shown()] == [
        (3, ""),
        (4, ""),  # what it says of its own is the code that is underlined
        (2, "the set is made here"),
    ]
