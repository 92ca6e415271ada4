"""Loaders whose batches are padded to their longest row: their evaluation is shared only where rows have one entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
import torch.nn.functional as F
from functools import partial
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
{top}
model = torch.nn.Linear(8, 3)
loader = DataLoader(data, batch_size=8, shuffle=True)
test = DataLoader(others, batch_size=8, collate_fn={collate})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
hits = 0
with torch.no_grad():
    for {batch} in test:
        {take}
        out = model(x).argmax(-1)
        hits += (out == y).sum().item()
print(hits)
"""
TUPLE = {"batch": "x, y", "take": "pass", "collate": "collate"}
WHOLE = {"batch": "batch", "collate": "collate"}

PADDED = {
    "both": {**TUPLE, "top": """
def collate(rows):
    xs, ys = zip(*rows)
    return pad_sequence(xs), pad_sequence(ys)
"""},
    "by keys, taken in one line": {
        **WHOLE,
        "take": 'text, y = batch["x"], batch["y"]\n        x = batch["n"]',
        "top": """
def collate(rows):
    xs, ys = zip(*rows)
    return {"x": torch.stack(xs), "y": pad_sequence(ys), "n": torch.stack(xs)}
""",
    },
    "by hand": {**TUPLE, "top": """
def collate(rows):
    longest = max(len(r[1]) for r in rows)
    y = torch.zeros(len(rows), longest)
    for i, row in enumerate(rows):
        y[i, :len(row[1])] = row[1]
    return torch.stack([r[0] for r in rows]), y
"""},
    "in a list": {**TUPLE, "top": """
def collate(rows):
    lengths = [len(r[1]) for r in rows]
    size = max(lengths)
    ys = []
    for _, row in rows:
        ys.append(F.pad(row, (0, size - len(row))))
    return torch.tensor(lengths), torch.stack(ys)
"""},
    "by the largest of an array": {**TUPLE, "top": """
import numpy as np
def collate(rows):
    part = lambda place: [row[place] for row in rows]
    lengths = part(2)
    longest = np.array(lengths).max()
    filled = lambda place: torch.LongTensor([row[place] + [0] * (longest - len(row[place])) for row in rows])
    y = filled(1)
    return torch.tensor(part(0)), y
"""},
    "by a helper": {**TUPLE, "top": """
def filled(rows, size=None):
    size = size or max(map(len, rows))
    return torch.tensor([r + [0] * (size - len(r)) for r in rows])
def collate(rows):
    return torch.tensor([r[0] for r in rows]), filled([r[1] for r in rows])
"""},
    "an object": {**TUPLE, "collate": "Collate(0)", "top": """
class Collate:
    def __init__(self, value): self.value = value
    def __call__(self, rows):
        y = pad_sequence([r[1] for r in rows], padding_value=self.value)
        return torch.stack([r[0] for r in rows]), y
"""},
    "partial, a dict": {**WHOLE, "take": 'x = batch["ids"]; y = batch["tags"]', "collate": "partial(collate, value=0)",
                        "top": """
def collate(rows, value):
    tags = pad_sequence([r["tags"] for r in rows], padding_value=value)
    return {"ids": torch.stack([r["ids"] for r in rows]), "tags": tags}
"""},
    "a function that it is handed": {**TUPLE, "collate": "partial(collate, finish=lambda rows: finish(rows, 0))",
                                     "top": """
def finish(rows, value):
    return torch.stack([r[0] for r in rows]), pad_sequence([r[1] for r in rows], padding_value=value)
def collate(rows, finish):
    x, y = finish([r for r in rows])
    return x, y
"""},
    "a tokenizer": {**WHOLE, "take": 'x = batch["input_ids"]; y = batch["labels"]', "top": """
from somewhere import tokenizer
def collate(rows):
    batch = tokenizer([r[0] for r in rows], padding=True, return_tensors="pt")
    batch["labels"] = tokenizer([r[1] for r in rows], padding=True, return_tensors="pt")["input_ids"]
    return batch
"""},
    "several rows for a sample": {**TUPLE, "top": """
def collate(rows):
    xs, ys = [], []
    for text in rows:
        for place in range(len(text) - 2):
            xs.append(text[place : place + 2])
            ys.append(text[place + 2])
    return torch.tensor(xs), torch.tensor(ys)
"""},
    "rows that are put in one after another": {**TUPLE, "collate": "partial(collate, size=2)", "top": """
def collate(rows, size):
    xs, ys = [], []
    for boxes, labels in rows:
        xs.extend(boxes[:size])
        ys.extend(labels[:size])
    return torch.stack(xs), torch.tensor(ys)
"""},
    "foreign": {**WHOLE, "take": 'x = batch["input_ids"]; y = batch["labels"]', "collate": "DataCollatorForSeq2Seq(t)",
                "top": "from transformers import DataCollatorForSeq2Seq"},
}  # fmt: skip


ROWS = {
    "no collate": {**TUPLE, "collate": "None", "top": ""},
    "labels of whole rows": {**TUPLE, "top": """
def collate(rows):
    return pad_sequence([r[0] for r in rows]), torch.tensor([r[1] for r in rows])
"""},
    "labels in a dict": {**WHOLE, "take": 'x = batch["x"].float(); y = batch["y"].long()', "top": """
def collate(rows):
    x = pad_sequence([r[0] for r in rows])
    y = torch.tensor([r[1] for r in rows])
    return dict() if not rows else {"x": x, "y": y}
""".replace("dict() if not rows else ", "")},
    "a list for each sample": {**TUPLE, "top": """
def collate(rows):
    xs = []
    for row in rows:
        words = []
        for word in row[0]:
            words.append(float(word))
        xs.append(torch.tensor(words))
    return torch.stack(xs), torch.tensor([r[1] for r in rows])
"""},
    "labels beside words that are put in one after another": {**TUPLE, "top": """
def collate(rows):
    words, labels = [], []
    for row, label in rows:
        words.extend(row)
        labels.append(label)
    return torch.tensor(words), torch.tensor(labels)
"""},
    "lists of boxes": {**TUPLE, "collate": "lambda rows: tuple(zip(*rows))", "top": ""},
    "to a fixed length": {**WHOLE, "take": 'x = batch["input_ids"]; y = batch["labels"]', "top": """
from somewhere import tokenizer
def collate(rows):
    batch = tokenizer([r[0] for r in rows], padding="max_length", return_tensors="pt")
    return batch
"""},
    "foreign, by row": {**WHOLE, "take": 'x = batch["input_ids"]; y = batch["labels"]',
                        "collate": "DataCollatorWithPadding(t)",
                        "top": "from transformers import DataCollatorWithPadding"},
    "torch's own": {**TUPLE, "collate": "default_collate", "top": "from torch.utils.data import default_collate"},
}  # fmt: skip


def text_of(parts: dict[str, str]) -> tuple[str, list[str]]:
    (file,) = migrate([decode(SCRIPT.format(**parts).encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file.after.decode(), [d.message for d in file.diagnoses]


@pytest.mark.parametrize("parts", PADDED.values(), ids=PADDED)
def test_what_is_as_long_as_the_longest_row_is_not_gathered(parts: dict[str, str]) -> None:
    text, messages = text_of(parts)
    assert "accelerator.backward(" in text
    assert "gather" not in text
    assert any("padded" in message and "evaluates the whole set" in message for message in messages)


@pytest.mark.parametrize("parts", ROWS.values(), ids=ROWS)
def test_what_has_one_entry_a_row_is(parts: dict[str, str]) -> None:
    text, messages = text_of(parts)
    assert "gather_for_metrics(" in text
    assert not any("padded" in message for message in messages)


def test_totals_of_training_are_summed_and_not_gathered() -> None:
    text = SCRIPT.format(**PADDED["both"]).split("hits = 0")[0].replace("shuffle=True", "collate_fn=collate")
    text = text.replace(
        "    F.cross_entropy(model(x), y).backward()", "    out = model(x)\n    F.cross_entropy(out, y).backward()"
    )
    text = (
        text.replace("for x, y", "hits = 0\nfor x, y") + "    hits += (out.argmax(-1) == y).sum().item()\nprint(hits)\n"
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    counted = 'accelerator.reduce((out.argmax(-1) == y).sum().detach(), reduction="sum").item()'
    assert "gather" not in file.after.decode() and f"    hits += {counted}\n" in file.after.decode()
    assert not any("totals only its own shard" in d.message for d in file.diagnoses)


def test_batches_that_are_numbered() -> None:
    parts = {**PADDED["partial, a dict"], "batch": "i, batch"}
    text = SCRIPT.format(**parts).replace(" in test:", " in enumerate(test):")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert "accelerator.backward(" in after and "gather" not in after
    assert any("padded" in d.message for d in file.diagnoses)


def test_numbered_batches_that_are_unpacked_at_once() -> None:
    """Only what comes first is padded: in the pair of the number and the batch, it is at the second place."""
    top = """
def collate(rows):
    return pad_sequence([r[1] for r in rows]), torch.stack([r[0] for r in rows])
"""
    for batch, padded in (("i, (y, x)", True), ("i, (x, y)", False)):
        text = SCRIPT.format(top=top, collate="collate", batch=batch, take="pass")
        (file,) = migrate([decode(text.replace(" in test:", " in enumerate(test):").encode(), Path("t.py"))], CATALOGUE,
                          Config()).files  # fmt: skip
        assert ("gather_for_metrics(" in file.after.decode()) is not padded
        assert any("padded" in d.message for d in file.diagnoses) is padded


SPANS = """\
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


def collate(rows):
    places, texts = zip(*rows)
    text = pad_sequence(texts, batch_first=True)
    return {{"place": torch.tensor(places), "text": text, "first": torch.tensor(places)}}


class Spans(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.ends = nn.Linear(8, 2)

    def forward(self, text, first=None):
        ends = self.ends(nn.functional.gelu(self.words(text)){pooled})
        begin, end = ends.split(1, dim=-1)
        loss = nn.functional.cross_entropy(begin.squeeze(-1), first) if first is not None else None
        return {{"loss": loss, "begin": begin.squeeze(-1), "end": end.squeeze(-1)}}


model = Spans()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(data, batch_size=8, collate_fn=collate):
    batch.pop("place")
    optimizer.zero_grad()
    model(**batch)["loss"].backward()
    optimizer.step()
found = {{}}
with torch.no_grad():
    for batch in DataLoader(others, batch_size=8, collate_fn=collate):
        place = batch.pop("place")
        out = model(batch["text"])
        begins = out["begin"].cpu()
        for row, number in enumerate(place.tolist()):
            found[number] = begins[row].argmax().item()
print(len(found))
"""


@pytest.mark.parametrize(
    ("pooled", "gathered"),
    [("", False), (".mean(1)", True), ("[:, 0]", True), (".max(dim=1).values", True), (".select(1, 0)", True)],
)
def test_what_a_model_gives_for_each_word_of_a_padded_text(pooled: str, gathered: bool) -> None:
    """Places of the rows have one entry each, so the model's results were taken to have as well: the processes' results
    had other lengths, and the script stopped at the first evaluation."""
    (file,) = migrate([decode(SPANS.format(pooled=pooled).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("gather_for_metrics" in file.after.decode()) is gathered


def test_a_padded_entry_that_is_popped() -> None:
    """``batch.pop("y")`` is that entry of the batch, as ``batch["y"]`` is."""
    text = SCRIPT.format(
        **WHOLE,
        take='y = batch.pop("y")\n        x = batch["x"]',
        top="""
def collate(rows):
    xs, ys = zip(*rows)
    return {"x": torch.stack(xs), "y": pad_sequence(ys)}
""",
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "gather" not in file.after.decode()
