"""A loader of its own for an evaluation that must see the whole set, beside a training that reads the same data."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

PROGRAM = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from rows import kept, loaders, rows


def run(model, loader, device, optimizer=None):
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def lowest(model, loader, device):
    best = 100.0
    with torch.no_grad():
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            best = min(best, loss.item())
    return best


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(rows, batch_size=8, shuffle=True)
    MADE
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        run(model, train_loader, device, optimizer)
        run(model, valid_loader, device)
        END


main()
"""
MADE = "valid_loader = DataLoader(kept, batch_size=8)"
END = "print(lowest(model, valid_loader, device))"


def migrated(made: str = MADE, end: str = END, text: str = PROGRAM) -> FileResult:
    text = text.replace("MADE", made).replace("END", end)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


COPY = "    whole_valid_loader = DataLoader(kept, batch_size=8)\n"


def test_the_evaluation_gets_a_loader_of_its_own() -> None:
    """It was refused, or went through the shard of each process."""
    file = migrated()
    text = file.after.decode()
    assert f"    {MADE}\n{COPY}" in text and "lowest(model, whole_valid_loader, " in text
    assert "run(model, valid_loader, " in text and "train_loader, valid_loader = accelerator.prepare(" in text
    body = text[text.index("def lowest") : text.index("def main")]
    assert "model(x.to(accelerator.device)), y.to(accelerator.device)" in body and "reduce" not in body
    assert [d.case for d in file.diagnoses if d.id == "prepare"] == ["own-copy"]


LOOP = """\
best = 100.0
        for x, y in valid_loader:
            with torch.no_grad():
                best = min(best, F.cross_entropy(model(x.to(device)), y.to(device)).item())
        print(best)"""
COPIED = {
    "a loop of the code itself": (MADE, LOOP, "for x, y in whole_valid_loader:"),
    "given twice": (MADE, f"{END}\n        {END}", "lowest(model, whole_valid_loader, "),
    "by its name": (
        MADE,
        "print(lowest(loader=valid_loader, model=model, device=device))",
        "loader=whole_valid_loader",
    ),
    "of the training": (MADE, "print(lowest(model, train_loader, device))", "lowest(model, whole_train_loader, "),
    "beside a name that is taken": (
        f"{MADE}\n    whole_valid_loader = 1",
        END,
        "whole_valid_loader_2 = DataLoader(kept, batch_size=8)",
    ),
}


@pytest.mark.parametrize(("made", "end", "after"), COPIED.values(), ids=COPIED)
def test_wherever_it_comes_from(made: str, end: str, after: str) -> None:
    file = migrated(made, end)
    assert after in file.after.decode() and not file.blocked


def test_its_batches_come_to_the_device_where_the_script_moves_nothing() -> None:
    text = PROGRAM.replace(".to(device)", "").replace("    device = torch", "    device = None and torch")
    after = migrated(text=text).after.decode()
    assert "x, y = send_to_device((x, y), accelerator.device)" in after and COPY in after


LEFT = {
    "made by a call that may do more": ("valid_loader = DataLoader(make(kept), batch_size=8)", END),
    "made elsewhere": ("_, valid_loader = loaders()", END),
    "made twice": (f"{MADE}\n    valid_loader = DataLoader(rows, batch_size=4)", END),
    "handed on": (MADE, "print((lambda given: lowest(model, given, device))(valid_loader))"),
}


@pytest.mark.parametrize(("made", "end"), LEFT.values(), ids=LEFT)
def test_what_cannot_be_made_again_is_not_copied(made: str, end: str) -> None:
    file = migrated(made, end)
    assert "whole_" not in file.after.decode()


def test_an_evaluation_that_is_shared_needs_no_copy() -> None:
    summed = PROGRAM.replace("best = 100.0", "best = 0.0").replace(
        "min(best, loss.item())", "best + loss.item() * len(y)"
    )
    assert "whole_" not in migrated(text=summed).after.decode()
