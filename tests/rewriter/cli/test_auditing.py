"""The command with `--audit`: its exit status, its reports in each format, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.audit.catalogue import RULES
from torchlift.rewriter.cli import main

SCRIPTS = Path(__file__).resolve().parents[1] / "audit" / "fixtures"
RIGHT = (SCRIPTS / "accelerate_basic.py").read_text()
WRONG = RIGHT.replace("accelerator.save(", "torch.save(")
PLAIN = "import torch\nmodel = torch.nn.Linear(1, 1)\nmodel(x).sum().backward()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "plain.py").write_text(PLAIN)
    return tmp_path


def run(*argv: str) -> int:
    return main.run(CATALOGUE, argv)


@pytest.mark.parametrize(
    ("name", "status", "first"),
    [
        ("right.py", 0, "Nothing wrong was found; 1 distributed program audited, 1 file checked."),
        ("wrong.py", 1, "1 error; 1 distributed program audited, 1 file checked."),
        ("plain.py", 0, "No distributed training found; 1 file checked."),
        (".", 1, "1 error; 2 distributed programs audited, 3 files checked."),
    ],
)
def test_the_status_and_the_first_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, status: int, first: str
) -> None:
    assert run("--audit", name) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == first
    assert ("wrong.py:25: error [unguarded-write]" in err) == bool(status)


def test_many_programs_have_a_line_each_the_worst_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(6):
        (folder / f"w{number}.py").write_text(WRONG)
    assert run("--audit", ".") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("1 error; 8 distributed programs audited")
    assert lines[2] == "7 programs, the worst first; 1 other without edits and findings"
    assert [line.split() for line in lines[3:10]] == [
        ["error", f"{name}.py", "1", "error:", "unguarded-write"] for name in (*(f"w{n}" for n in range(6)), "wrong")
    ]
    assert lines[10:] == [
        "",
        "Details:   migrate --audit --details .  # or name one of the scripts",
        "To learn more: migrate --explain unguarded-write",
    ]
    assert run("--audit", "--html", "page.html", ".") == 1
    page = Path("page.html").read_text()
    assert "<h1>1 error</h1><p class='dim'>8 distributed programs audited, 9 files checked</p>" in page
    assert "<p>1 error; 8 distributed programs audited, 9 files checked.</p>" in page
    assert page.count("class='has-blocked'") == 7 and "right.py" not in page
    capsys.readouterr()
    run("--audit", "--details", ".")
    told = capsys.readouterr().err
    assert "25 | " in told and "(also w1.py:25, " in told and "the worst first" not in told


def test_a_hook_audits_in_short(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    assert run("--audit", "--hook", "wrong.py", "right.py") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("wrong.py:25: error [unguarded-write] ")
    assert not any(line.startswith(("  25 | ", "  help: ")) for line in lines)
    assert lines[3:] == [
        "1 error; 2 distributed programs audited, 2 files checked.",
        "To learn more: migrate --explain unguarded-write",
    ]


def test_files_that_are_not_distributed_cost_no_analysis(folder: Path) -> None:
    """Neither libcst nor a rule is loaded for them."""
    code = (
        "import sys\nfrom torchlift.rewriter.cli.main import run\nassert run([], ['--audit', 'plain.py']) == 0\n"
        "assert not {'libcst', 'torchlift.rewriter.audit.audit'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=60)


def test_a_backward_pass_in_a_library(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "scaled.py").write_text(WRONG.replace("accelerator.backward(loss)", "scaler(loss, optimizer)"))
    assert run("--audit", "scaled.py") == 0
    err = capsys.readouterr().err
    assert "no training was found in this program" in err
    assert "1 distributed program audited" in err


@pytest.mark.parametrize(
    ("entry", "programs"),
    [
        ("from right import main\n\nRATE = 0.1\noptions = dict(rate=RATE)\n", 1),
        ("import right\n\nif right.RATE:\n    options = dict(rate=0.1)\n", 1),
        ("from right import main\n\nmain()\n", 2),
        ("from right import main\n\nif __name__ == '__main__':\n    main()\n", 2),
        ("from right import main\n\nfor seed in range(3):\n    result = main()\n", 2),
    ],
)
def test_a_file_that_only_configures_is_no_program(
    folder: Path, entry: str, programs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "wrong.py").unlink()
    (folder / "start.py").write_text(entry)
    run("--audit", ".")
    assert f"{programs} distributed program{'s' * (programs > 1)} audited" in capsys.readouterr().err


def test_another_file_that_takes_the_prefix_off(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files are written for readers of the same project."""
    text = (SCRIPTS / "ddp_torchrun.py").read_text().replace("model.module.state_dict()", "model.state_dict()")
    (folder / "train.py").write_text(text)
    reader = "import torch\n\nnames = {name.CUT: w for name, w in torch.load('last.pt').items()}\n"
    (folder / "export.py").write_text(reader.replace("CUT", "replace('encoder.', '')"))
    run("--audit", "train.py", "export.py")
    assert "[saved-wrapper]" in capsys.readouterr().err
    (folder / "export.py").write_text(reader.replace("CUT", "replace('module.', '')"))
    assert run("--audit", "train.py", "export.py") == 0
    assert "[saved-wrapper]" not in capsys.readouterr().err


def test_nothing_is_written(folder: Path) -> None:
    run("--audit", ".")
    assert sorted(p.name for p in folder.iterdir()) == ["plain.py", "right.py", "wrong.py"]
    assert (folder / "wrong.py").read_text() == WRONG


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--audit", "--output-format", "json", "wrong.py") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["audited"]) == (1, 1)
    (finding,) = document["files"][0]["findings"]
    assert (finding["id"], finding["severity"], finding["line"]) == ("unguarded-write", "error", 25)


def test_sarif_and_annotations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--audit", "--output-format", "sarif", "wrong.py") == 1
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("unguarded-write", "error")
    assert run("--audit", "--output-format", "github", "wrong.py") == 1
    assert capsys.readouterr().out.startswith("::error file=wrong.py,line=25,")


def test_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--audit", "--html", "page.html", ".") == 1
    page = (folder / "page.html").read_text()
    assert "finding error" in page and "unguarded-write" in page
    assert "1 error; 2 distributed programs audited" in page
    assert run("--audit", "--html", "page.html", "right.py") == 0
    assert "Nothing wrong was found" in (folder / "page.html").read_text()


def test_a_program_of_several_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "saving.py").write_text("import torch\n\n\ndef save(state):\n    torch.save(state, 'm.pt')\n")
    text = RIGHT.replace("accelerator.save(", "save(").replace(', "model.pt")', ")")
    (folder / "right.py").write_text("from saving import save\n" + text)
    assert run("--audit", "right.py") == 1
    assert "saving.py:5: error [unguarded-write]" in capsys.readouterr().err


def test_stdin(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "wrong.py").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert run("--audit", "-") == 1
    assert "<stdin>:25: error" in capsys.readouterr().err


def notebook(*cells: str) -> str:
    code = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": s} for s in cells]
    return json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


HEAD, _, REST = WRONG.partition("def main")
MAIN = "def main" + REST.partition("\n\n\nif __name__")[0]
STARTS = "from accelerate import notebook_launcher\nnotebook_launcher(main, num_processes=2)"


def test_a_notebook(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "n.ipynb").write_text(notebook(HEAD, MAIN, STARTS))
    assert run("--audit", "n.ipynb") == 1
    assert "n.ipynb:cell 2, line 19: error [unguarded-write]" in capsys.readouterr().err


def test_a_notebook_that_starts_no_processes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "n.ipynb").write_text(notebook(HEAD, MAIN, "main()"))
    assert run("--audit", "n.ipynb") == 0
    assert "No distributed training found" in capsys.readouterr().err


def test_a_module_of_a_notebook_that_starts_no_processes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts that are launched may use the module; the cells are one process."""
    (folder / "training.py").write_text(WRONG.partition("\n\n\nif __name__")[0])
    own = "import torch\nfrom training import main\nmain()\ntorch.save([1], 'own.pt')"
    (folder / "n.ipynb").write_text(notebook(own))
    assert run("--audit", "n.ipynb") == 1
    told = capsys.readouterr().err
    assert "training.py:25: error [unguarded-write]" in told
    assert "n.ipynb:cell" not in told


def test_a_module_that_could_start_processes_for_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    helper = "import torch.distributed as dist\n\ndef start():\n    dist.init_process_group('gloo')\n\n"
    (folder / "helper.py").write_text(helper + "def seed():\n    return 1\n")
    step = (
        "sgd = torch.optim.SGD(model.parameters())\nloss = model(torch.ones(2, 1)).sum()\nloss.backward()\nsgd.step()\n"
    )
    trains = PLAIN.replace("model(x).sum().backward()\n", step)
    (folder / "one.py").write_text("from helper import seed\nseed()\n" + trains)
    (folder / "many.py").write_text("from helper import start\nstart()\n" + trains)
    assert run("--audit", "one.py") == 0
    assert "No distributed training found" in capsys.readouterr().err
    run("--audit", "many.py")
    assert "1 distributed program audited" in capsys.readouterr().err


def test_a_file_that_is_not_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.py").write_text("from accelerate import Accelerator\nx = = 1\nx.backward()\n")
    assert run("--audit", "bad.py", "right.py") == 3
    assert "bad.py:2: not valid Python" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["--write", "--check", "--roles", "--partial", "-i", "--verify", "--side-by-side"])
def test_what_does_not_go_with_it(folder: Path, capsys: pytest.CaptureFixture[str], other: str) -> None:
    assert run("--audit", other, "right.py") == 3
    assert "cannot be used together" in capsys.readouterr().err


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_each_rule_is_listed_and_explained(capsys: pytest.CaptureFixture[str], rule: str) -> None:
    assert run("--audit", "--rules") == 0
    assert f"{rule} " in capsys.readouterr().out
    assert run("--explain", rule) == 0
    assert capsys.readouterr().out.startswith(f"{rule}\n\n")


def test_a_rule_that_does_not_exist(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--audit", "--ignore", "unguarded-rite", "wrong.py") == 3
    assert "unguarded-write" in capsys.readouterr().err
    assert run("--audit", "--ignore", "unguarded-write", "wrong.py") == 0
