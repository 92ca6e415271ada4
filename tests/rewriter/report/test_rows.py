"""The rows of a diff: what of a changed line stands out, and what does not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.html_diff import sheet
from torchlift.rewriter.report.rows import hunks_of, is_whole, reasons, words
from torchlift.rewriter.report.terminal import print_diff
from torchlift.rewriter.result import Change, FileResult
from torchlift.rewriter.source import decode

BEFORE = b"def f():\n    x = 1\n    print(x)\n    done(x)\n"
AFTER = b"def f():\n    x = 1\n    if main:\n        print(x)\n        done(x, 2)\n"


@pytest.mark.parametrize(
    ("before", "after", "out", "into"),
    [
        ("    print(x)", "        print(x)", (), ()),
        ("        print(x)", "    print(x)", (), ()),
        ("\tprint(x)", "    print(x)", (), ()),
        ("    a = 1", "        b = 1", ((4, 5),), ((8, 9),)),
        ("a =  1", "a = 1", ((3, 5),), ((3, 4),)),
    ],
    ids=["deeper", "less deep", "spaces for a tab", "and a word", "a space inside"],
)
def test_indentation_does_not_stand_out(
    before: str, after: str, out: tuple[tuple[int, int], ...], into: tuple[tuple[int, int], ...]
) -> None:
    assert words(before, after) == (out, into)


def test_a_line_that_differs_as_a_whole_has_no_part_that_stands_out() -> None:
    assert is_whole("    f(x)", ((4, 8),)) and is_whole("f(x)", ((0, 4),))
    assert not is_whole("    f(x)", ((5, 8),)) and not is_whole("f(x)", ()) and not is_whole("f(x)", ((0, 1), (2, 4)))


def test_a_line_of_another_indentation_has_a_coloured_sign_and_no_block() -> None:
    source = decode(BEFORE, Path("x.py"))
    file = FileResult(source, AFTER)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="standard", highlight=False, width=80)
    print_diff([file], console)
    shown = stream.getvalue()
    assert "\x1b[31m-\x1b[0m    print(x)\n" in shown and "\x1b[32m+\x1b[0m        print(x)\n" in shown
    assert "\x1b[7;32m, 2" in shown, "words still stand out"
    moved = [row for hunk in hunks_of(file) for row in hunk.rows if row.moved]
    assert [row.before for row in moved] == ["    print(x)"]
    assert "<ins>        " not in sheet(0, file, {})


def test_reasons_that_differ_in_one_name_are_one_with_all_names() -> None:
    told = [
        ("device_placement", "the loader yields `x` on the device", 3),
        ("device_placement", "the loader yields `y` on the device", 4),
        ("device_placement", "the loader yields `x` on the device", 9),
        ("backward", "the loader yields `x` on the device", 5),
        ("backward", "`a` is a loss", 6),
        ("backward", "`b` is a loss", 7),
        ("prepare", "", 8),
    ]
    assert reasons([Change(rule, line, 1, reason) for rule, reason, line in told]) == [
        ("device_placement", "the loader yields `x`, `y` on the device", [3, 4, 9]),
        ("backward", "the loader yields `x` on the device", [5]),
        ("backward", "`a` is a loss", [6]),
        ("backward", "`b` is a loss", [7]),
        ("prepare", "", [8]),
    ]


PROGRAM = b"""\
import os
import torch
from torch import nn
from torch.nn import DataParallel
from torch.utils.data import DataLoader


from rows import Rows


class Runner:
    def __init__(
        self,
        model,
        loader,
    ):
        super().__init__(
        )
        # what is trained
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        print("end")


def main():
    cuda = torch.cuda.is_available()

    # the rows, from the disk
    # and their loader
    loader = DataLoader(Rows(), batch_size=4)
    model = nn.Linear(4, 2)
    if cuda:
        model = DataParallel(model).cuda()
    Runner(model, loader).train()
    torch.save(
        model.state_dict(),
        "model.pt",
    )
    # what was written
    print(sorted(torch.load("model.pt")))


main()
"""


def test_each_changed_place_has_its_own_reason() -> None:
    file = migrate([decode(PROGRAM, Path("x.py"))], CATALOGUE, Config()).files[0]
    blocks = [block for hunk in hunks_of(file) for block in hunk.blocks if block.changed]
    told = {
        row.after.strip(): {change.rule for change in block.changes}
        for block in blocks
        for row in block.rows
        if row.after is not None and not row.same
    }
    assert all(block.changes for block in blocks), "no place is without a reason"
    assert told["from torchlift.runtime import Accelerator"] == {"accelerator_setup"}
    assert told["accelerator = Accelerator()"] == {"accelerator_setup"}
    assert told["self.accelerator = accelerator"] == {"accelerator_setup"}
    assert told["accelerator.wait_for_everyone()"] == {"checkpoint_load"}
    gone = {row.before: b.changes[0].reason for b in blocks for row in b.rows if row.before and row.after is None}
    assert gone["from torch.nn import DataParallel"] == "nothing reads this any more"
