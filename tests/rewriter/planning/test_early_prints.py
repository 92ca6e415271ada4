"""Prints that come before the accelerator: the process asks itself which one it is, where that chooses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.source import decode

SCRIPT = """\
import argparse
import os
import torch
from torch.utils.data import DataLoader, TensorDataset


class Rows(TensorDataset):
    def __getitem__(self, index):
        {row}
        return super().__getitem__(index)


def settings():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda", action="store_true")
    args = parser.parse_args()
    {early}
    return args


def main(args):
    loader = DataLoader(Rows(torch.randn(8, 3)), batch_size=4)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        {step}
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()


{first}
if __name__ == "__main__":
    args = settings()
    {late}
    main(args)
"""


def migrated(**parts: str) -> tuple[str, list[str]]:
    """The text of the script, migrated, and the ids of its findings."""
    given = {**dict.fromkeys(("row", "early", "step", "first", "late"), "pass"), **parts}
    (file,) = migrate([decode(SCRIPT.format(**given).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    return file.after.decode(), [found.id for found in file.diagnoses]


@pytest.mark.parametrize("place", ["early", "late", "first"])
def test_a_print_before_the_accelerator_is_made_once(place: str) -> None:
    after, findings = migrated(**{place: "print(os.getcwd())"})
    assert "PartialState().print(os.getcwd())\n" in after and findings == []
    assert "from torchlift.runtime import Accelerator, PartialState\n" in after


def test_so_are_lines_that_no_print_writes() -> None:
    after, findings = migrated(late='import tqdm; tqdm.tqdm.write("starts")')
    assert "if PartialState().is_local_main_process:\n" in after and findings == []


@pytest.mark.parametrize("place", ["early", "late", "first"])
def test_where_the_script_stays_on_the_cpu_the_print_says_so_too(place: str) -> None:
    """Whoever asks first chooses the device: an accelerator on the CPU after a state on a GPU would be an error."""
    after, findings = migrated(**{place: "print(os.getcwd())"}, step="x = x.to('cpu') + torch.zeros(3)")
    assert "Accelerator(cpu=True)" in after, after
    assert "PartialState(cpu=True).print(os.getcwd())\n" in after and "main_process" not in findings


LEFT = {
    "whose device a flag decides": {"step": "x = x.cuda() if args.cuda else x", "late": "print(args)"},
    "before the environment is set": {"late": 'print(args); os.environ["NCCL_DEBUG"] = "INFO"'},
}


@pytest.mark.parametrize("parts", LEFT.values(), ids=LEFT)
def test_a_print_is_left_and_reported(parts: dict[str, str]) -> None:
    """Whoever asks first chooses the device, and starts what joins the processes."""
    after, findings = migrated(**parts)
    assert "PartialState" not in after and findings == ["main_process"]


def test_a_print_for_a_row_is_that_of_the_process_that_has_it() -> None:
    """A worker of a loader runs it, and has no place among the processes."""
    after, findings = migrated(row="print(index)")
    assert "PartialState" not in after and "accelerator.print" not in after and findings == []


def test_an_import_asks_nobody(tmp_path: Path) -> None:
    """Other scripts may import the module as well."""
    (tmp_path / "train.py").write_text(
        "import words\n" + SCRIPT.format(**dict.fromkeys(("row", "early", "step", "first", "late"), "pass"))
    )
    (tmp_path / "words.py").write_text("print('imported')\n")
    train, words = Surveyor(CATALOGUE, RawConfig()).look([tmp_path / "train.py"]).files
    assert b"accelerator.backward(" in train.after and not words.changed
    assert [found.id for found in words.diagnoses] == ["main_process"]
