"""What `migrate -i` asks: long groups of alike edits in short, and wrong answers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import plan
from torchlift.rewriter.project.session import TRAINING, Session
from torchlift.rewriter.report.asking import Asking
from torchlift.rewriter.source import decode

PRINTS = "".join(f'print("step {n}")\nn = {n}\n' for n in range(6))
TRAINS = f"""\
import torch
from torch import nn
from torch.utils.data import DataLoader

model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.ones(8, 1), batch_size=4)
for x in loader:
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{PRINTS}"""


def asked(*answers: str) -> tuple[str, Session]:
    """What is said, for some answers, and the session that holds them."""
    session = Session(plan([decode(TRAINS.encode(), Path("train.py"))], CATALOGUE, Config()))
    stream, given = io.StringIO(), iter(answers)
    typed: Iterator[str] = (f"{answer}\n" for answer in given)
    asking = Asking(Console(file=stream, width=100, highlight=False), lambda: next(typed, ""), session.whole)
    asking.about([session])
    return stream.getvalue(), session


def test_of_many_edits_that_are_alike_three_are_shown_and_all_on_request() -> None:
    said, session = asked("y", "y")
    assert '# and 3 more edits like these: "v" shows all' in said and "Make these 6 edits [y,n,a,i,v,s,q,?]?" in said
    assert said.count('accelerator.print("step') == 3
    assert session.accepted == {TRAINING, *session.groups}
    said, session = asked("y", "v", "n")
    assert said.count('accelerator.print("step') == 9 and session.accepted == {TRAINING}


def test_a_wrong_answer_is_called_wrong() -> None:
    said, _ = asked("x", "?", "q")
    assert said.count("'x' is none of the answers:") == 1 and said.count("  y  make these edits") == 2
    assert "  s  skip the rest of this file: accepted edits are written\n" in said and "the next one" not in said
