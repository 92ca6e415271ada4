"""
The whole programs of `fixtures/`: what the command makes of them, and whether they train as before.

`python tests/snapshots.py NAME` shows what of a `findings.txt` is different today, and with `--write` takes it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
NAMES = sorted(folder.name for folder in FIXTURES.iterdir() if (folder / "before.py").exists())
MIGRATED = [name for name in NAMES if (FIXTURES / name / "after.py").exists()]
PROGRAMS = sorted(folder.name for folder in FIXTURES.iterdir() if (folder / "before").is_dir())
MIGRATED_PROGRAMS = [name for name in PROGRAMS if (FIXTURES / name / "after").is_dir()]
UNTOUCHED = [name for name in NAMES if name not in MIGRATED]
COMMANDS = Path(sys.executable).parent
SECONDS = 600


# ---------------------------------------------------------------- the text


def migrate(folder: Path, *options: str, entry: str = "before.py") -> subprocess.CompletedProcess[str]:
    command = [str(COMMANDS / "migrate"), *options, entry]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def findings_of(folder: Path, entry: str = "before.py") -> str:
    """The findings that `migrate before.py` has, as lines that are good to read and to compare."""
    document = json.loads(migrate(folder, "--output-format", "json", entry=entry).stdout)
    changed = any(file["changed"] for file in document["files"])
    lines = [f"exit status {document['status']}, {'would change' if changed else 'unchanged'}"]
    for file in document["files"]:
        for found in file["findings"]:
            lines.append(
                f"{Path(file['path']).name}:{found['line']}: {found['severity']} [{found['id']}] {found['message']}"
            )
            lines.append(f"    -> {found['remedy']}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def copy(tmp_path: Path) -> Any:
    """`copy(name)` is a folder with the `before.py` of a fixture."""

    def make(name: str) -> Path:
        shutil.copy(FIXTURES / name / "before.py", tmp_path)
        return tmp_path

    return make


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_those_on_record(name: str, copy: Any) -> None:
    assert findings_of(copy(name)) == (FIXTURES / name / "findings.txt").read_text()


@pytest.mark.parametrize("name", MIGRATED)
def test_the_command_writes_what_an_expert_would_write_and_leaves_that_alone(name: str, copy: Any) -> None:
    folder, wanted = copy(name), (FIXTURES / name / "after.py").read_bytes()
    assert wanted != (FIXTURES / name / "before.py").read_bytes()
    assert "would change" in (FIXTURES / name / "findings.txt").read_text()
    assert migrate(folder, "--write").returncode == 0
    assert (folder / "before.py").read_bytes() == wanted
    assert migrate(folder, "--check").returncode == 0


@pytest.mark.parametrize("name", UNTOUCHED)
def test_a_script_that_must_not_change_does_not(name: str, copy: Any) -> None:
    folder = copy(name)
    status = 0 if name == "inference_only" else 2
    assert migrate(folder, "--write").returncode == status
    assert (folder / "before.py").read_bytes() == (FIXTURES / name / "before.py").read_bytes()


def test_the_patch_is_what_write_writes(copy: Any) -> None:
    folder = copy("mnist_functions")
    patch = migrate(folder).stdout
    subprocess.run(["git", "apply", "-p1"], cwd=folder, input=patch, text=True, check=True)
    patched = (folder / "before.py").read_bytes()
    assert patched == (FIXTURES / "mnist_functions" / "after.py").read_bytes()


# ---------------------------------------------------------------- programs of several files


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """`program(name)` is a project with the files of a fixture's `before`."""

    def make(name: str, what: str = "before") -> Path:
        shutil.copytree(FIXTURES / name / what, tmp_path, dirs_exist_ok=True)
        (tmp_path / "pyproject.toml").touch()
        return tmp_path

    return make


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.py"))}


@pytest.mark.parametrize("name", MIGRATED_PROGRAMS)
def test_a_program_comes_out_as_an_expert_would_write_it_and_stays_so(name: str, program: Any) -> None:
    folder = program(name)
    assert migrate(folder, "--write", entry="train.py").returncode == 0
    assert texts(folder) == texts(FIXTURES / name / "after")
    assert migrate(folder, "--check", entry="train.py").returncode == 0
    assert migrate(folder, "--check", entry=".").returncode == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_findings_of_a_program_are_those_on_record(name: str, program: Any) -> None:
    assert findings_of(program(name), "train.py") == (FIXTURES / name / "findings.txt").read_text()


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in MIGRATED_PROGRAMS])
def test_a_program_that_must_not_change_does_not(name: str, program: Any) -> None:
    folder = program(name)
    assert migrate(folder, "--write", entry="train.py").returncode == 2
    assert texts(folder) == texts(FIXTURES / name / "before")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "program_base_trainer" else pytest.mark.slow) for n in MIGRATED_PROGRAMS],
)
def test_a_program_computes_the_same(name: str, program: Any) -> None:
    said = migrate(program(name), "--verify", "--steps", "4", entry="train.py")
    assert said.returncode == 0, said.stderr
    assert "\nHELD (" in said.stderr


# ---------------------------------------------------------------- the training


@dataclass(frozen=True)
class Training:
    """How a fixture is run, and what must agree on two processes."""

    name: str
    steps: tuple[str, ...] = ("",)
    """Arguments of the runs, one after the other in one folder."""
    metrics: str | None = None
    """Lines that say a metric of the whole data set; None where the numbers of two processes differ by nature."""
    tolerance: float = 0.0
    """By how much a printed number may differ: 0 where the lines are equal."""

    texts: bool = False
    """The text files of two processes are those of the original, line by line."""

    @property
    def id(self) -> str:
        return "-".join(re.findall(r"\w+", f"{self.name} {self.steps[0] if 'fp16' in self.steps[0] else ''}"))


TRAININGS = [
    Training("mnist_functions", ("--epochs 2 --save-model",), r"Test set: "),
    Training("module_level", metrics=r"Accuracy"),
    Training("gan", ("--n_epochs 2",)),
    Training("bf16_autocast", ("--epochs 2",), r"^epoch ", tolerance=2e-2),
    Training("fp16_scaler", ("--epochs 2",), r"accuracy"),
    Training("fp16_scaler", ("--epochs 2 --fp16",), r"accuracy", tolerance=2e-2),
    Training("grad_accumulation", ("--epochs 2",), r"accuracy"),
    Training("resume_checkpoint", ("--epochs 2", "--epochs 3 --resume checkpoint.pth.tar"), r"Acc|loaded|best"),
    Training("best_model", ("--epochs 12",), r"^(?!\[)"),
    Training("phases", metrics=r"Acc"),
    Training("run_folder", metrics=r"accuracy", texts=True),
    Training("scheduler_per_step", ("--epochs 2",), r"^(?!epoch \d+ step)"),
]
EVERY_DAY = {"mnist_functions", "phases", "best_model", "grad_accumulation"}


def trainings(every_day: set[str]) -> list[Any]:
    """As parameters; runs of one fixture stay on one worker, where they are run once."""
    return [
        pytest.param(
            training,
            id=training.id,
            marks=[
                pytest.mark.xdist_group(training.name),
                *([] if training.name in every_day else [pytest.mark.slow]),
            ],
        )
        for training in TRAININGS
    ]


@dataclass(frozen=True)
class Ran:
    """What a run has left."""

    lines: tuple[str, ...]
    files: dict[str, Any]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder for all runs; those of one script are asked for by several tests and run once."""
    with tempfile.TemporaryDirectory(prefix="torchlift-fixtures-") as folder:
        yield Path(folder)
    run.cache_clear()


@cache
def run(forks: Any, place: Path, training: Training, processes: int) -> Ran:
    """Run the original (0 processes) or what the command makes of it, in an empty folder."""
    folder = place / training.id / str(processes)
    folder.mkdir(parents=True)
    script = folder.with_suffix(".py")
    shutil.copy(FIXTURES / training.name / "before.py", script)
    if processes:
        subprocess.run([str(COMMANDS / "migrate"), "--write", str(script)], check=True, capture_output=True)
        assert "accelerator.backward(" in script.read_text(), "the training itself was not migrated"
    launch = ["-m", "torchlift.runtime.launch.command", "launch", "--num-processes", str(processes)]
    lines: list[str] = []
    for arguments in training.steps:
        argv = [*(launch if processes > 1 else []), str(script), *arguments.split()]
        lines += _output(forks, argv, folder)
    return Ran(tuple(lines), _read(folder))


def _output(forks: Any, argv: list[str], folder: Path) -> list[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHLIFT_", "ACCELERATE_", "MASTER_"))}
    environment = {**kept, "OMP_NUM_THREADS": "1", "TORCHLIFT_CPU": "1", "TORCHLIFT_SPLIT_BATCHES": "1"}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    running = forks.start(argv, folder, environment, apart=True)
    status = running.wait(SECONDS)
    printed, errors = running.output()
    assert status == 0, f"{' '.join(argv)}: exit {status}\n{printed}\n{errors}"
    return list(printed.splitlines())


def _read(folder: Path) -> dict[str, Any]:
    """The content of every file that a run has written."""
    import numpy as np
    import torch

    read: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".npy":
            read[name] = torch.from_numpy(np.load(path))
        elif path.suffix in (".json", ".txt"):
            read[name] = path.read_text()
        else:
            read[name] = torch.load(path, weights_only=False)
    return read


def _same(one: Any, other: Any) -> bool:
    """Equal to the last bit, keys and their order included."""
    import torch

    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def _shape(line: str) -> str:
    return _NUMBER.sub("#", line)


def _timeless(lines: tuple[str, ...]) -> list[str]:
    return [re.sub(r"\d+\.\d+ ?s\b", "# s", line) for line in lines]


@pytest.mark.parametrize("training", trainings({*EVERY_DAY, "scheduler_per_step"}))
def test_one_process_prints_and_writes_the_same(training: Training, forks: Any, place: Path) -> None:
    before, after = run(forks, place, training, 0), run(forks, place, training, 1)
    assert _timeless(after.lines) == _timeless(before.lines)
    assert list(after.files) == list(before.files)
    assert before.files, "the fixture writes nothing: it shows nothing"
    different = [name for name in before.files if not _same(before.files[name], after.files[name])]
    assert not different


@pytest.mark.parametrize("training", trainings(EVERY_DAY))
def test_two_processes_print_once_and_have_the_same_metrics(training: Training, forks: Any, place: Path) -> None:
    before, after = run(forks, place, training, 0), run(forks, place, training, 2)
    assert [_shape(line) for line in after.lines] == [_shape(line) for line in before.lines]
    assert list(after.files) == list(before.files)
    if training.texts:
        texts = {name: text for name, text in before.files.items() if isinstance(text, str)}
        assert texts, "the fixture writes no text"
        assert {name: after.files[name] for name in texts} == texts
    if training.metrics is None:
        return
    metric = re.compile(training.metrics)
    wanted = [line for line in before.lines if metric.search(line)]
    got = [line for line in after.lines if metric.search(line)]
    assert wanted, "no line is a metric"
    if not training.tolerance:
        assert got == wanted
        return
    for one, other in zip(wanted, got, strict=True):
        numbers = [float(number) for number in _NUMBER.findall(one)]
        assert [float(number) for number in _NUMBER.findall(other)] == pytest.approx(numbers, abs=training.tolerance)
