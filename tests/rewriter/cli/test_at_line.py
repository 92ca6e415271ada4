"""``--explain FILE:LINE``: what is said about a line, and what is answered where that is nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.cli.at_line import AskedLine, place_of
from torchlift.rewriter.cli.main import BLOCKED, FAILED, NOTHING, run

TRAINING = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if len(model(x).unique()) > 5:
            break
"""
SCRIPT = """

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, loader, optimizer)
"""
CALM = TRAINING.replace("        if len(model(x).unique()) > 5:\n            break\n", "")

Explain = Callable[..., tuple[int, str, str]]


@pytest.fixture
def explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Explain:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "train.py").write_text(TRAINING + SCRIPT)
    (tmp_path / "calm.py").write_text(CALM + SCRIPT)

    def call(*argv: str) -> tuple[int, str, str]:
        status = run(CATALOGUE, ["--explain", *argv])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def test_a_finding_is_shown_with_what_it_means(explain: Explain) -> None:
    status, out, err = explain("train.py:12")
    assert (status, err) == (NOTHING, "")
    assert "| blocked [local-decision] whether this step continues" in out
    assert "\nlocal-decision: step\n" in out and "findings.md#local-decision-step\n" in out
    assert "LBFGS" not in out, "another case"
    condition = "accelerator.reduce(torch.tensor(float(bool(len(model(x).unique()) > 5)), device=accelerator.device), "
    decided = f'{condition}reduction="sum") > 0'
    assert f"if {decided}:" in " ".join(out.replace("\n|       ", " ").split()), "a line to copy"
    own = "from torchlift.runtime import Accelerator\naccelerator = Accelerator()\n"
    mended = (own + TRAINING + SCRIPT).replace("len(model(x).unique()) > 5", decided)
    Path("mended.py").write_text(mended)
    assert run(CATALOGUE, ["--check", "mended.py"]) == 1, "the remedy works"


def test_an_edit_is_shown_with_its_reason_and_its_rule(explain: Explain) -> None:
    status, out, _ = explain("calm.py:10")
    assert status == NOTHING
    assert "# backward: `loss` is a loss" in out
    assert "10    -        loss.backward()\n" in out and "11 +        accelerator.backward(loss)\n" in out
    assert "\nbackward: Run the backward pass with the accelerator" in out and "--explain backward\n" in out


def test_the_place_that_a_finding_comes_from_has_it_too(explain: Explain) -> None:
    assert "[local-decision]" in explain("train.py:7")[1]


def test_a_module_is_looked_at_with_the_program_that_imports_it(explain: Explain) -> None:
    Path("steps.py").write_text(CALM)
    Path("calm.py").write_text(CALM.partition("\n\n\n")[0] + "\nfrom steps import train\n" + SCRIPT)
    status, out, _ = explain("steps.py:10")
    assert status == NOTHING and "accelerator.backward(loss)" in out


def test_a_line_of_a_notebook_is_named_as_a_finding_names_it(explain: Explain) -> None:
    texts = (CALM, SCRIPT.strip())
    cells = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": n}
        for n, text in enumerate(texts, 4)
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    Path("train.ipynb").write_text(json.dumps(notebook))
    for words in (["train.ipynb:1:10"], ["train.ipynb:cell 1, line 10"], ["train.ipynb:cell", "1,", "line", "10"]):
        assert "accelerator.backward(loss)" in explain(*words)[1]
    assert "accelerator.backward(loss)" in explain("train.ipynb:cell 1 In[4], line 10")[1]
    assert "accelerator = Accelerator" in explain("train.ipynb:cell 2 In[5], line 1")[1], "a first line"
    assert "a line of a notebook is that of a cell" in explain("train.ipynb:10")[2]
    assert "the notebook has no such line" in explain("train.ipynb:9:10")[2]


@pytest.mark.parametrize(
    ("place", "answer"),
    [
        ("calm.py:3", "calm.py:3: nothing is said of this line, `from torch.utils.data import"),
        ("calm.py:4", "calm.py:4: nothing is said of this line. Something is said of lines 10, "),
        ("calm.py:99:2", "calm.py:99: the file has no such line: it has 18."),
        ("calm.py", "--explain: `calm.py` names no line of the file. Name one: --explain calm.py:12."),
        ("calm.py:9-12", "--explain: `calm.py:9-12` names no line of the file. Name one: --explain calm.py:12."),
        ("calm.py:99", "calm.py:99: the file has no such line: it has 18."),
        ("gone.py:1", "gone.py: there is no such file"),
        ("quiet.py:1", "quiet.py: nothing is said of this file"),
    ],
)
def test_a_line_of_which_nothing_is_said_is_an_error(explain: Explain, place: str, answer: str) -> None:
    Path("quiet.py").write_text("x = 1\n")
    status, out, err = explain(place)
    assert (status, out) == (FAILED, "") and answer in err


def test_lines_that_are_not_named_are_counted(explain: Explain) -> None:
    shown = "".join(f"print({number})\n" for number in range(9))
    Path("long.py").write_text(CALM + SCRIPT + shown)
    assert "Something is said of lines 10, 14, 17, 19, 20, 21, 22, 23 and 4 other lines." in explain("long.py:4")[2]


def test_what_changes_at_run_time_is_said_of_its_line(explain: Explain) -> None:
    text = (CALM + SCRIPT).replace(
        "optimizer.step()", "optimizer.step()\n        if int(loss) < len(loader):\n            pass"
    )
    Path("calm.py").write_text(text)
    number = text.split("\n").index("        if int(loss) < len(loader):") + 1
    status, out, err = explain(f"calm.py:{number}")
    assert (status, err) == (NOTHING, "")
    assert "What changes at run time\n  - len(loader) (line" in out and "batches per process" in out


def test_a_refusal_names_the_command_for_its_line(explain: Explain, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(CATALOGUE, ["train.py"]) == BLOCKED
    assert "To learn more: migrate --explain train.py:12\n" in capsys.readouterr().err


@pytest.mark.parametrize("start", [".", "lib"])
def test_a_module_in_a_folder_is_explained_by_the_script_above(
    start: str, explain: Explain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("lib").mkdir()
    Path("lib/engine.py").write_text(CALM)
    Path("calm.py").write_text(f"from lib.engine import *\n{SCRIPT}")
    monkeypatch.chdir(tmp_path / start)
    status, out, _ = explain("lib/engine.py:10" if start == "." else "engine.py:10")
    assert status == NOTHING and "10 +        accelerator.backward(loss)" in out


def test_a_line_has_one_remedy_and_names_the_example(explain: Explain) -> None:
    """What to do about a finding in general contradicted what its own line needs."""
    start = f"{CALM.partition('def train')[0]}{SCRIPT}".removesuffix("train(model, loader, optimizer)\n")
    lines = [
        "for epoch in range(3):",
        "    for x, y in loader:",
        "        optimizer.zero_grad()",
        "        out = model(x)",
        "        nn.functional.mse_loss(out, y).backward()",
        "        optimizer.step()",
        "    error = (out - y).abs().max().item()",
        "    if error < 0.1:",
        "        optimizer.param_groups[0]['lr'] = 0.01",
    ]
    Path("rate.py").write_text(start + "\n".join(lines) + "\n")
    status, out, _ = explain(f"rate.py:{start.count(chr(10)) + 8}")
    assert status == NOTHING and out.count("| help: ") == 1
    assert "What to do" not in out and "scheduler.step(error)" not in out
    assert "\nWith an example: migrate --explain local-decision-learning-rate\n" in out


def test_places_are_told_from_ids() -> None:
    assert place_of(["local-decision"]) is None and place_of(["a.py"]) is None
    assert place_of(["src/a b.py:3"]) == AskedLine(Path("src/a b.py"), 3)
    assert place_of([r"C:\a.py:3"]) == AskedLine(Path(r"C:\a.py"), 3)
    assert str(AskedLine(Path("a.ipynb"), 3, 2)) == "a.ipynb:cell 2, line 3"
