"""`# migrate: skip`: which statements it speaks of, and what becomes of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.editing.suppressions import skips
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

TRAINS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.ones(8, 1), batch_size=4)
print("start")
for x in loader:
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("end")
"""


def _migrated(text: str) -> FileResult:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # migrate\n",
        "x = 1  # migrate: no skip\n",
        "x = '# migrate: skip'\n",
        "x = 1  # migrate: skipping\n",
        "x = 1  # please migrate: skip\n",
    ],
)
def test_what_is_no_such_comment(text: str) -> None:
    assert (skips(text).lines, skips(text).file) == ({}, ())


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a = 1\nx = 1  # migrate: skip\ny = 2\n", {2}),
        ("a = 1\nx = (1,\n  2)  # migrate:skip\ny = 2\n", {2, 3}),
        ("a = 1\nx = (1,  # migrate: skip\n  2)\ny = 2\n", {2, 3}),
        ("a = 1\n# migrate: skip\nx = (1,\n  2)\ny = 2\n", {3, 4}),
        ("a = 1\nfor x in y:\n    # migrate: skip\n    b\n    c\n", {4}),
        ("a = 1\nx = 1  # migrate: skip  # and a reason\n", {2}),
    ],
    ids=["behind a statement", "behind its last line", "inside it", "above it", "in a block", "with a reason"],
)
def test_a_comment_speaks_of_a_statement(text: str, lines: set[int]) -> None:
    assert set(skips(text).lines) == lines
    assert skips(text).covers(min(lines), "any")
    assert not skips(text).names(min(lines), "any")


def test_a_comment_before_the_first_statement_speaks_of_the_file() -> None:
    assert skips("#!/usr/bin/env python\n# migrate: skip\n'''doc'''\nx = 1\n").whole
    named = skips("# migrate: skip[main_process, prepare]\nx = 1\n")
    assert not named.whole
    assert named.covers(7, "prepare")
    assert not named.covers(7, "backward")


def test_a_print_stays_and_the_other_does_not() -> None:
    file = _migrated(TRAINS.replace('print("start")', 'print("start")  # migrate: skip[main_process]'))
    text = file.after.decode()
    assert '\nprint("start")  # migrate' in text
    assert '\naccelerator.print("end")' in text
    assert file.diagnoses == ()


def test_another_rules_name_changes_nothing() -> None:
    file = _migrated(TRAINS.replace('print("start")', 'print("start")  # migrate: skip[backward]'))
    assert 'accelerator.print("start")' in file.after.decode()


def test_an_edit_that_the_training_needs_leaves_a_finding() -> None:
    file = _migrated(TRAINS.replace("loss.backward()", "loss.backward()  # migrate: skip"))
    assert "    loss.backward()  # migrate: skip\n" in file.after.decode()
    assert [(d.id, d.severity.value, d.line) for d in file.diagnoses] == [("skipped", "review", 12)]


def test_a_whole_file_is_left_alone() -> None:
    assert _migrated(TRAINS).changed
    file = _migrated("# migrate: skip\n" + TRAINS)
    assert not file.changed
    assert file.diagnoses == ()


def test_a_whole_module_that_the_program_needs_edited_blocks_it() -> None:
    train = TRAINS.replace("import torch\n", "import torch\nfrom step import step\n", 1).replace(
        "    loss.backward()\n    optimizer.step()\n", "    step(loss, optimizer)\n"
    )
    step = "# migrate: skip\ndef step(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n"
    sources = [decode(train.encode(), Path("train.py")), decode(step.encode(), Path("step.py"))]
    result = migrate(sources, CATALOGUE, Config())
    assert [d.id for file in result.files for d in file.diagnoses if d.severity.value == "blocked"][:1] == ["skipped"]
    assert result.changed == ()


def test_what_blocks_goes_only_by_its_name() -> None:
    blocked = TRAINS + "torch.distributed.rpc.init_rpc('worker')"
    assert _migrated(blocked + "  # migrate: skip\n").blocked
    found = _migrated(blocked + "  # migrate: skip[already-distributed]\n")
    assert not found.blocked
