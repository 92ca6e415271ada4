"""A hook that fails says how a program is left out, and what is said to be left out is."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.cli.main import run as command

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), batch_size=16)
"""
STOP = f"""{HEAD}\
for x, y in loader:
    if y.max() > 5:
        break
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
LOOK = f"""{HEAD}\
for x, y in loader:
    try:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    except RuntimeError:
        continue
"""
TEST = f"{HEAD.partition('model = ')[0]}\n\ndef test_a_step():\n" + "".join(
    f"    {line}\n"
    for line in (
        "model = nn.Linear(2, 1)",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "model(torch.ones(4, 2)).mean().backward()",
        "optimizer.step()",
    )
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def run(*arguments: str) -> int:
    return command(CATALOGUE, arguments)


@pytest.mark.parametrize("asked", [("--hook", "--check", "stop.py"), ("--hook", "--write", "stop.py")])
def test_a_refused_program_is_left_out_as_the_hook_says(
    folder: Path, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...]
) -> None:
    (folder / "stop.py").write_text(STOP)
    assert run(*asked) == 2
    said = capsys.readouterr().err
    assert 'To leave it out: exclude = ["stop.py"] in [tool.torchlift], pyproject.toml\n' in said
    assert "If a finding is mistaken: # migrate: skip[local-decision] at the end of stop.py:9\n" in said
    (folder / "pyproject.toml").write_text('[tool.torchlift]\nexclude = ["stop.py"]\n')
    assert run(*asked) == 0
    (folder / "pyproject.toml").write_text("")
    (folder / "stop.py").write_text(STOP.replace("> 5:", "> 5:  # migrate: skip[local-decision]"))
    assert run("--hook", "--check", "stop.py") == 1 and "blocked" not in capsys.readouterr().err


def test_a_check_says_each_finding_to_review_in_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "look.py").write_text(LOOK)
    assert run("--hook", "--check", "look.py") == 1
    (line,) = (
        line
        for line in capsys.readouterr().err.split("\n")
        if line.startswith("  look.py:13: review [local-decision] ")
    )
    assert line.endswith("...") and len(line) <= 100


def test_a_test_that_trains_does_not_fail_the_run_of_its_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tests").mkdir()
    (folder / "tests" / "test_step.py").write_text(TEST)
    assert run(".") == 0
    assert "1 with training that nothing here is seen to start (tests/test_step.py)" in capsys.readouterr().err
    assert run("tests/test_step.py") == 2, "somebody asks for it"
    told = capsys.readouterr().err
    assert "[no-entry-point] this file is a test" in told and "migrate the script whose code it tests" in told


ALONE = """\
import torch

model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(1, 3, requires_grad=True)
for step in range(9):
    optimizer.zero_grad()
    model(x).pow(2).sum().backward(){comment}
    optimizer.step()
"""


def test_a_skipped_refusal_is_said_to_leave_the_script_on_one_device(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "Nothing to do: needs no change", although the script trains on one device for ever."""
    (folder / "alone.py").write_text(ALONE.format(comment=""))
    assert run("alone.py") == 2 and "[no-data-parallel-axis]" in capsys.readouterr().err
    (folder / "alone.py").write_text(ALONE.format(comment="  # migrate: skip[no-data-parallel-axis]"))
    assert run("alone.py") == 0
    said = capsys.readouterr()
    assert "alone.py:8: note [skipped] a skip comment silences no-data-parallel-axis" in said.out + said.err
    assert run("--check", "alone.py") == 0 and "skipped" not in capsys.readouterr().err


@pytest.mark.parametrize("way", [("--hook", "--check"), ("--check",)])
def test_the_next_command_can_be_copied_however_many_files_there_are(
    way: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free = STOP.replace("    if y.max() > 5:\n        break\n", "")
    names = [f"a{number:02}.py" for number in range(23)]
    for name in names:
        (folder / name).write_text(free)
    run(*way, *names)
    said = capsys.readouterr().err.splitlines()
    (applied,) = [line for line in said if line.startswith("To apply")]
    words = applied.split("migrate ")[1].split()
    assert applied.startswith("To apply the first 20 of 23 files: ") and words[-20:] == names[:20]
    assert all(word in {"--hook", "--write", *names} for word in words)
