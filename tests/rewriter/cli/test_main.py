"""The command: exit status, what goes to stdout and stderr, what is written, and how bad input is answered."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter import pipeline
from torchlift.rewriter.cli import main
from torchlift.rewriter.cli.options import read
from torchlift.rewriter.cli.request import plain
from torchlift.rewriter.source import Source

TRAINS = b"""\
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
"""
MIGRATED = b"""\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.ones(8, 1), batch_size=4)
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(
    model, optimizer, loader
)
for x in loader:
    loss = model(x).mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
"""
TWICE = TRAINS.replace(
    b"for x",
    b"scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\nfor x",
).replace(b"    optimizer.step()\n", b"    optimizer.step()\n    scheduler.step()\nscheduler.step()\n")
BLOCKED = TRAINS + b"torch.distributed.rpc.init_rpc('gloo')\n"
INNOCENT = b"print('hello')\n"


@dataclass
class Answer:
    status: int
    out: bytes
    err: str


Migrate = Callable[..., Answer]


@pytest.fixture
def migrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Migrate:
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> Answer:
        status = main.run(CATALOGUE, argv)
        captured = capfdbinary.readouterr()
        return Answer(status, captured.out, captured.err.decode())

    return call


def _write(name: str, data: bytes) -> Path:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(data)
    return Path(name)


def test_nothing_to_do_is_status_0_and_an_empty_stdout(migrate: Migrate) -> None:
    _write("a.py", INNOCENT)
    answer = migrate("a.py")
    assert (answer.status, answer.out) == (0, b"")
    assert answer.err == "Nothing to do: 1 file checked, 1 without training by torch.\n"


@pytest.mark.unchanged
def test_what_is_migrated_already_is_called_so(migrate: Migrate) -> None:
    _write("a.py", MIGRATED)
    assert "1 migrated already" in migrate("a.py").err


def test_what_is_migrated_is_told_of_those_who_ask(migrate: Migrate) -> None:
    _write("a.py", MIGRATED)
    assert b"accelerator" in migrate("--roles", "a.py").out


def test_what_was_migrated_by_an_assumption_needs_it_no_more(migrate: Migrate) -> None:
    _write("a.py", TRAINS.replace(b"from torch.utils.data import DataLoader", b"from somewhere import DataLoader"))
    assert "shard_batch" in migrate("a.py").out.decode()
    assert migrate("--write", "--assume", "loader=loader", "a.py").status == 0
    assert b"shard_batch" not in Path("a.py").read_bytes()
    assert migrate("--check", "a.py").err == "Nothing to do: 1 file checked, 1 migrated already.\n"


KEEPER = b"""\
import torch
from torchlift.runtime import Accelerator


class Trainer:
    def __init__(self, model, optimizer):
        self.accelerator = Accelerator()
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    def step(self, batch):
        loss = self.model(batch)
        self.accelerator.backward(loss)
        self.optimizer.step()
"""


def test_a_class_that_keeps_an_accelerator_lacks_no_entry_point(migrate: Migrate) -> None:
    _write("a.py", KEEPER)
    assert (migrate("a.py").status, migrate("a.py").out) == (0, b"")
    _write("a.py", KEEPER.replace(b"self.accelerator.backward(loss)", b"loss.backward()"))
    assert "[no-entry-point]" in migrate("a.py").err


def test_what_is_good_to_know_of_a_migrated_file_is_not_told_in_a_check(migrate: Migrate) -> None:
    made = b"scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\naccelerator = "
    stepped = MIGRATED.replace(b"accelerator = ", made).replace(b"optimizer, loader", b"optimizer, loader, scheduler")
    _write("a.py", stepped + b"    scheduler.step()\n")
    assert "note [scheduler]" in migrate("a.py").err
    answer = migrate("--check", "a.py")
    assert (answer.status, answer.err) == (0, "Nothing to do: 1 file checked, 1 migrated already.\n")


@pytest.mark.unchanged
def test_a_script_that_was_never_migrated_is_not_called_migrated(migrate: Migrate) -> None:
    _write("a.py", b"# migrate: skip\n" + TRAINS)
    _write("b.py", b"# migrate: skip\n" + TRAINS)
    assert migrate("--check", "a.py").err == "Nothing to do: 1 file checked, 1 that needs no change.\n"
    assert migrate("--check", "a.py", "b.py").err == "Nothing to do: 2 files checked, 2 that need no change.\n"


@pytest.mark.parametrize(
    ("argv", "environment", "color"),
    [
        ([], {}, True),
        (["--no-color"], {}, False),
        ([], {"NO_COLOR": "1"}, False),
        ([], {"NO_COLOR": ""}, True),
        ([], {"TERM": "dumb"}, False),
    ],
)
def test_colour_is_wanted_unless_somebody_says_no(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], environment: dict[str, str], color: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main.parse([*argv, "a.py"]).color is color


def test_a_preview_touches_nothing(migrate: Migrate) -> None:
    path = _write("a.py", TRAINS)
    answer = migrate("a.py")
    assert answer.status == 0
    assert path.read_bytes() == TRAINS
    assert answer.out.startswith(b"--- a/a.py\n+++ b/a.py\n@@ ")
    assert "    backward (1): " in answer.err
    assert answer.err.startswith("1 file would change; 1 file checked. ")
    assert answer.err.endswith(
        "To apply:  migrate --write a.py\n"
        "To verify: migrate a.py --verify\n"
        "It needs:  pip install 'torchlift[runtime]'  # where the script runs\n"
    )


@pytest.mark.parametrize(
    "reads",
    [
        b"import argparse\nargparse.ArgumentParser().add_argument('data')\n",
        b"import sys\nprint(sys.argv)\n",
        b"from absl import flags\n",
    ],
)
def test_a_script_that_reads_its_command_line_is_verified_with_arguments(migrate: Migrate, reads: bytes) -> None:
    _write("a.py", reads + TRAINS)
    assert "To verify: migrate a.py --verify -- ARGUMENTS\n" in migrate("a.py").err


@pytest.mark.parametrize("argument", [b"'--lr', type=float, default=0.1", b'"-b", required=False'])
def test_a_script_whose_arguments_have_defaults_is_verified_without(migrate: Migrate, argument: bytes) -> None:
    _write("a.py", b"import argparse\nargparse.ArgumentParser().add_argument(" + argument + b")\n" + TRAINS)
    assert "To verify: migrate a.py --verify\n" in migrate("a.py").err


def test_a_page_takes_the_place_of_a_page_alone(migrate: Migrate) -> None:
    """`--html a.py b.py` made a page of the script ``a.py``."""
    scripts = [_write("a.py", TRAINS), _write("b.py", TRAINS)]
    kept = _write("notes.txt", b"mine")
    assert migrate("--html", "a.py", "b.py").err.startswith("error: --html takes the name of the page")
    assert migrate("--html", "notes.txt", "b.py").err.startswith("error: --html would replace notes.txt")
    assert [path.read_bytes() for path in (*scripts, kept)] == [TRAINS, TRAINS, b"mine"]
    assert [migrate("--html", "report.html", "b.py").status for _ in range(2)] == [0, 0]


def test_what_is_written_is_followed_by_the_command_that_runs_it(migrate: Migrate) -> None:
    _write("a.py", TRAINS)
    told = migrate("--write", "a.py").err
    assert "To run:    torchlift launch --num-processes 2 a.py\n" in told and "To apply" not in told


def test_many_programs_have_a_line_each_the_worst_first(migrate: Migrate) -> None:
    for number in range(6):
        _write(f"r{number}/train.py", TRAINS)
    _write("r4/train.py", BLOCKED)
    answer = migrate(".")
    table = answer.err.split("\n\n")[1].splitlines()
    assert table[0] == "6 programs, the worst first"
    assert table[1].split()[:2] == ["blocked", "r4/train.py"]
    assert [line.split()[:2] for line in table[2:]] == [["ready", f"r{n}/train.py"] for n in (0, 1, 2, 3, 5)]
    assert (
        "backward: " not in answer.err
        and "Details:   migrate --details .  # or name one of the scripts\n" in answer.err
    )
    assert answer.out.count(b"--- a/") == 5, "the patch is whole"
    details = migrate("--details", ".")
    assert details.out == answer.out and "backward" in details.err and "the worst first" not in details.err


@pytest.mark.parametrize(
    "data", [TRAINS, TRAINS[:-1], TRAINS.replace(b"\n", b"\r\n"), b"# coding: latin-1\n#\xe9\x0c\n" + TRAINS]
)
def test_write_gives_what_the_patch_gives(migrate: Migrate, data: bytes) -> None:
    path = _write("a.py", data)
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "apply"], input=migrate("a.py").out, check=True)
    patched = path.read_bytes()
    path.write_bytes(data)
    answer = migrate("--write", "a.py")
    assert (answer.status, answer.out) == (0, b"")
    assert path.read_bytes() == patched != data
    assert "1 file changed" in answer.err


@pytest.mark.parametrize(("data", "status"), [(INNOCENT, 0), (TRAINS, 1)])
def test_check_tells_by_its_status_and_shows_no_diff(migrate: Migrate, data: bytes, status: int) -> None:
    path = _write("a.py", data)
    answer = migrate("--check", "a.py")
    assert (answer.status, answer.out, path.read_bytes()) == (status, b"", data)


def test_a_folder_is_searched(migrate: Migrate) -> None:
    for name in ("src/a.py", "src/b/c.py", "src/.venv/x.py"):
        _write(name, TRAINS)
    assert migrate("--write", "src").status == 0
    assert [Path(n).read_bytes() == MIGRATED for n in ("src/a.py", "src/b/c.py", "src/.venv/x.py")] == [
        True,
        True,
        False,
    ]


def test_a_blocked_file_is_status_2_without_a_patch(migrate: Migrate) -> None:
    path = _write("a.py", BLOCKED)
    answer = migrate("a.py")
    assert (answer.status, answer.out) == (2, b"")
    assert "a.py:13: blocked [already-distributed] " in answer.err
    assert migrate("--check", "a.py").status == 2
    assert path.read_bytes() == BLOCKED


def test_a_blocked_file_keeps_the_whole_run_from_being_written(migrate: Migrate) -> None:
    _write("a.py", TRAINS)
    _write("b.py", BLOCKED)
    answer = migrate("--write", "a.py", "b.py")
    assert (answer.status, Path("a.py").read_bytes()) == (2, TRAINS)
    assert "Nothing was written: a file is blocked." in answer.err


def test_partial_writes_a_blocked_file_and_still_says_so(migrate: Migrate) -> None:
    _write("a.py", TWICE)
    assert migrate("--write", "a.py").status == 2
    assert Path("a.py").read_bytes() == TWICE
    assert migrate("--write", "--partial", "a.py").status == 2
    assert b"accelerator.backward(loss)" in Path("a.py").read_bytes()
    assert migrate("a.py").status == 2


def test_the_preview_of_a_blocked_file_has_a_patch_only_with_partial(migrate: Migrate) -> None:
    _write("a.py", TWICE)
    assert migrate("a.py").out == b""
    assert b"accelerator.backward(loss)" in migrate("--partial", "a.py").out


def _binary() -> str:
    return str(_write("bad.py", b"torch backward\0"))


def _folder() -> str:
    Path("bad.py").mkdir()
    _write("bad.py/notes.txt", b"")
    return "bad.py"


BAD: list[tuple[str, Callable[[], str], str]] = [
    ("a missing path", lambda: "bad.py", "bad.py: there is no such file or folder. Check the spelling of the path."),
    ("a binary file", _binary, "bad.py:1: a binary file, not Python source (it holds a NUL byte)."),
    ("a folder without Python", _folder, "bad.py: there is no Python file in this folder."),
    (
        "a notebook",
        lambda: str(_write("bad.ipynb", b'{"a": []}')),
        "bad.ipynb: not a notebook: it has no list of cells",
    ),
    ("unknown encoding", lambda: str(_write("bad.py", b"# coding: klingon\n" + TRAINS)), "bad.py:1: unknown encoding"),
    (
        "undecodable bytes",
        lambda: str(_write("bad.py", TRAINS + b"#\xe9\n")),
        "bad.py:13: byte 0xe9 is not utf-8 text, so that Python cannot read this file either.",
    ),
    (
        "a syntax error",
        lambda: str(_write("bad.py", TRAINS + b"x = (  # SYNTAX\n")),
        "bad.py:13: not valid Python:",
    ),
]


@pytest.mark.parametrize(("make", "says"), [pytest.param(*case[1:], id=case[0]) for case in BAD])
@pytest.mark.parametrize("options", [[], ["--write"], ["--check"]], ids=["preview", "write", "check"])
def test_bad_input_is_one_line_and_status_3(
    migrate: Migrate, make: Callable[[], str], says: str, options: list[str]
) -> None:
    answer = migrate(*options, make())
    assert (answer.status, answer.out) == (3, b"")
    assert answer.err.startswith(f"error: {says}")
    assert answer.err.count("\n") == (3 if "x = (  # SYNTAX" in answer.err else 1), "with the line, where it is known"


@pytest.mark.parametrize("data", [b"def f(:\n", b"# coding: klingon\n", b"x = '\xe9'\n", b"x\0"])
def test_a_file_given_alone_is_read_in_full_though_it_does_not_train(migrate: Migrate, data: bytes) -> None:
    _write("bad.py", data)
    answer = migrate("bad.py")
    code = "  1 | def f(:\n    |       ^\n" if data.startswith(b"def") else ""
    assert answer.status == 3 and answer.err.startswith("error: bad.py:1: ")
    assert answer.err.partition("\n")[2] == code


@pytest.mark.parametrize(("make", "says"), [pytest.param(*case[1:], id=case[0]) for case in BAD])
def test_a_bad_file_keeps_nobody_from_being_previewed_and_all_from_being_written(
    migrate: Migrate, make: Callable[[], str], says: str
) -> None:
    _write("good.py", TRAINS)
    bad = make()
    preview = migrate(bad, "good.py")
    assert preview.status == 3
    assert preview.out.startswith(b"--- a/good.py")
    assert says in preview.err
    written = migrate("--write", bad, "good.py")
    assert (written.status, Path("good.py").read_bytes()) == (3, TRAINS)
    assert "Nothing was written: a file is in error." in written.err


def test_an_unreadable_file(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    _write("a.py", TRAINS).chmod(0)
    if os.access("a.py", os.R_OK):
        pytest.skip("root reads everything")
    assert "a.py: cannot be read (Permission denied). Check its permissions." in migrate("a.py").err


def test_a_read_only_target(migrate: Migrate) -> None:
    _write("a.py", TRAINS).chmod(0o444)
    _write("b.py", TRAINS)
    answer = migrate("--write", "b.py", "a.py")
    assert (answer.status, Path("b.py").read_bytes()) == (3, TRAINS)
    assert answer.err == "error: a.py: cannot be written: it is read-only. Make it writable; nothing was written.\n"


def test_a_file_that_changes_while_we_work(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pipeline.plan

    def meddling(sources: Sequence[Source], *given: Any) -> pipeline.Plan:
        sources[0].path.write_bytes(b"mine\n")
        return real(sources, *given)

    monkeypatch.setattr(pipeline, "plan", meddling)
    _write("a.py", TRAINS)
    answer = migrate("--write", "a.py")
    assert (answer.status, Path("a.py").read_bytes()) == (3, b"mine\n")
    assert answer.err.startswith("error: a.py: the file changed during the run.")


MAIN = b"""\
import torch
from torch.utils.data import DataLoader
from steps import step

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.ones(8, 1), batch_size=4):
    step(model, optimizer, x)
"""
STEPS = b"""\
def step(model, optimizer, x):
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_program_of_two_files_is_written_whole(migrate: Migrate) -> None:
    _write("main.py", MAIN)
    _write("steps.py", STEPS)
    assert migrate("--write", "main.py").status == 0
    assert b"accelerator.prepare" in Path("main.py").read_bytes()
    assert b"accelerator.backward(loss)" in Path("steps.py").read_bytes()


def test_a_folder_with_a_file_that_is_no_python_and_no_torch(migrate: Migrate) -> None:
    _write("old.py", b'print "x"\nloss.backward()\n')
    _write("main.py", MAIN)
    _write("steps.py", STEPS)
    answer = migrate(".")
    assert (answer.status, b"+    accelerator.backward(loss)" in answer.out) == (0, True)
    assert "2 files would change; 3 files checked" in answer.err


def test_a_read_only_module_keeps_its_program_from_being_written(migrate: Migrate) -> None:
    _write("main.py", MAIN)
    _write("steps.py", STEPS).chmod(0o444)
    answer = migrate("--write", "main.py")
    assert (answer.status, Path("main.py").read_bytes(), Path("steps.py").read_bytes()) == (3, MAIN, STEPS)
    assert "steps.py: cannot be written: it is read-only." in answer.err


def test_a_module_that_changes_while_we_work_keeps_its_program_from_being_written(
    migrate: Migrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pipeline.plan

    def meddling(sources: Sequence[Source], *given: Any) -> pipeline.Plan:
        Path("steps.py").write_bytes(b"mine\n")
        return real(sources, *given)

    monkeypatch.setattr(pipeline, "plan", meddling)
    _write("main.py", MAIN)
    _write("steps.py", STEPS)
    answer = migrate("--write", "main.py")
    assert (answer.status, Path("main.py").read_bytes(), Path("steps.py").read_bytes()) == (3, MAIN, b"mine\n")
    assert "steps.py: the file changed during the run." in answer.err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        pytest.param([], "Name a script or a folder, or - for stdin", id="nothing"),
        pytest.param(["--writ", "a.py"], "No such option", id="an unknown option"),
        pytest.param(["--write", "--check", "a.py"], "cannot be used together", id="write and check"),
        pytest.param(["--roles", "--write", "a.py"], "--roles and --write cannot be used", id="roles and write"),
        pytest.param(["-", "a.py"], "- (stdin) cannot be combined with other paths", id="stdin and a file"),
        pytest.param(["a.py", "--", "--epochs", "2"], "(--epochs 2) are for --verify", id="arguments of the script"),
        pytest.param(["--select", "bakward", "a.py"], "no rule 'bakward'. Did you mean backward?", id="unknown rule"),
        pytest.param(["--ignore", "backward,zzz", "a.py"], "--ignore: there is no rule 'zzz'", id="unknown in a list"),
        pytest.param(["--explain", "prepar"], "Did you mean prepare?", id="explain an unknown rule"),
        pytest.param(["--assume", "loss", "a.py"], "'loss' is not ROLE=NAME", id="no assumption"),
        pytest.param(["--assume", "los=x", "a.py"], "there is no role 'los'. Did you mean loss?", id="unknown role"),
        pytest.param(["--mixed-precision", "fp8", "a.py"], "'fp8' is not one of", id="unknown precision"),
        pytest.param(["--output-format", "xml", "a.py"], "'xml' is not one of", id="an unknown format"),
        pytest.param(
            ["-i", "--write", "a.py"], "--write and --interactive cannot be used together", id="-i and --write"
        ),
        pytest.param(
            ["-i", "--output-format", "json", "a.py"], "cannot be used together", id="-i and a format for machines"
        ),
        pytest.param(["-i", "-"], "- (stdin) cannot be combined with other paths", id="-i and stdin"),
        pytest.param(["-i", "a.py"], "needs a terminal for your answers", id="-i without a terminal"),
    ],
)
def test_wrong_usage_is_one_line_and_status_3(migrate: Migrate, argv: list[str], says: str) -> None:
    _write("a.py", TRAINS)
    answer = migrate(*argv)
    assert (answer.status, answer.out, answer.err.count("\n")) == (3, b"", 1)
    assert answer.err.startswith("error: ")
    assert says in answer.err


def test_a_double_dash_with_nothing_behind_it_is_nothing(migrate: Migrate) -> None:
    _write("a.py", INNOCENT)
    assert migrate("a.py", "--").status == 0


def test_select_and_ignore_reach_the_pipeline(migrate: Migrate) -> None:
    _write("a.py", TRAINS)
    assert migrate("--select", "clip_grad", "--check", "a.py").status == 0
    assert migrate("--select", "clip_grad,backward,accelerator_setup,prepare", "--check", "a.py").status == 1
    assert migrate("--ignore", ",".join(entry.id for entry in CATALOGUE), "--check", "a.py").status == 0


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (
            "--select backward",
            2,
            "--select leaves out accelerator_setup and prepare: without them the other edits do not",
        ),
        ("--ignore prepare", 2, "--ignore leaves out prepare: without it the other edits would train each process"),
        ("--select main_process", 2, "--select leaves out accelerator_setup"),
        ("--ignore clip_grad", 0, "--ignore leaves out clip_grad, which changes this for several processes"),
        ("--select clip_grad", 2, "--select leaves out accelerator_setup"),
        ("--ignore main_process", 0, "No findings"),
        ("--select directories", 0, ""),
    ],
)
def test_no_option_leaves_a_program_half_migrated(migrate: Migrate, options: str, status: int, says: str) -> None:
    """With one rule of those that need each other the name `accelerator` does not exist, or nothing joins gradients."""
    clipped = TRAINS.replace(
        b"    optimizer.step()", b"    nn.utils.clip_grad_norm_(model.parameters(), 1)\n    optimizer.step()"
    )
    _write("a.py", clipped + b"print(loss)\nimport os\nos.mkdir('runs')\n")
    answer = migrate(*options.split(), "a.py")
    assert says in answer.err
    assert answer.status == status and (status == 0 or not answer.out)


def test_settings_of_the_project_count(migrate: Migrate) -> None:
    _write("a.py", TRAINS)
    _write("old/b.py", TRAINS)
    _write("pyproject.toml", b'[tool.torchlift]\nexclude = ["old"]\ntarget = "accelerate"\nkeep-global-batch = true\n')
    answer = migrate(".", "old/b.py")
    assert re.findall(rb"^--- (.*)$", answer.out, re.MULTILINE) == [b"a/a.py"]
    assert "It needs:  pip install 'accelerate'  # where the script runs\n" in answer.err
    assert "is the global batch size" in answer.err


def test_a_mistake_in_the_settings_of_the_project(migrate: Migrate) -> None:
    _write("a.py", INNOCENT)
    _write("pyproject.toml", b'[tool.torchlift]\nselect = ["bakward"]\n')
    answer = migrate("a.py")
    assert answer.status == 3
    assert "pyproject.toml: [tool.torchlift] select: there is no rule 'bakward'. Did you mean backward?" in answer.err


def test_rules_are_listed_with_their_summaries(migrate: Migrate) -> None:
    lines = migrate("--rules").out.decode().splitlines()
    assert [line.split()[0] for line in lines] == [entry.id for entry in CATALOGUE]
    assert all(re.fullmatch(r"\w+ +[A-Z].+", line) for line in lines)


def test_a_rule_is_explained(migrate: Migrate) -> None:
    out = migrate("--explain", "backward").out
    assert out.startswith(b"backward\n\nRun the backward pass")
    assert b"\n    +    accelerator.backward(loss, retain_graph=True)\n" in out
    assert b"\n\nA finding [backward] in a report:\n\nA backward pass was left unchanged" in out
    assert b"What to do (" in out and b"\n    +(first + second).backward()\n" in out


def test_a_finding_is_explained(migrate: Migrate) -> None:
    answer = migrate("--explain", "kept-batches")
    assert answer.status == 0 and answer.out.startswith(b"kept-batches\n\nAll batches of a loader are read")


def test_what_a_blocked_run_may_be_told_is_a_command_to_copy(migrate: Migrate) -> None:
    text = "import torch\nimport odd\nmodel = torch.nn.Linear(4, 1)\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nrows = odd.rows()\nfor x in rows:\n"
    _write("a.py", f"{text}    odd.score(model, x).backward()\n    optimizer.step()\n".encode())
    lines = migrate("a.py").err.splitlines()
    assert "If `rows` is a loader: migrate --assume loader=rows a.py" in lines


def test_a_hook_names_the_file_of_which_something_may_be_said(migrate: Migrate) -> None:
    text = "import torch\nimport odd\nmodel = torch.nn.Linear(4, 1)\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nrows = odd.rows()\nfor x in rows:\n"
    _write("blocked.py", f"{text}    odd.score(model, x).backward()\n    optimizer.step()\n".encode())
    free = text.replace("import odd", "from torch.utils.data import DataLoader").replace(
        "odd.rows()", "DataLoader([1])"
    )
    _write("free.py", f"{free}    model(x).mean().backward()\n    optimizer.step()\n".encode())
    lines = migrate("--hook", "--check", "blocked.py", "free.py").err.splitlines()
    assert "If `rows` is a loader: migrate --hook --assume loader=rows blocked.py" in lines


@pytest.mark.parametrize("word", ["local-decision-loop", "local-decision:loop", "local-decision: loop"])
def test_one_case_of_a_finding_is_explained(word: str, migrate: Migrate) -> None:
    answer = migrate("--explain", *word.split(" "))
    assert answer.status == 0 and answer.out.startswith(b"local-decision: loop\n")
    assert answer.out.endswith(b"findings.md#local-decision-loop\n") and b"local-decision: step" not in answer.out
    whole = migrate("--explain", "local-decision").out
    assert whole.endswith(b"One case alone: migrate --explain local-decision-step\n")
    assert "Did you mean local-decision-loop?" in migrate("--explain", "local-decision-lop").err


def test_cases_are_completed() -> None:
    from torchlift.rewriter.cli.options import _ids, command

    context = click.Context(command)
    assert "local-decision-loop" in _ids(context, command.params[0], "local-decision-")
    assert "local-decision-loop" not in _ids(context, command.params[0], "")


def test_several_ids_are_explained(migrate: Migrate) -> None:
    for given in (["once", "set-order"], ["once,set-order"]):
        out = migrate("--explain", *given).out.decode()
        assert out.startswith("once\n\n") and "\n\n\nset-order\n\n" in out
    answer = migrate("--explain", "once", "train")
    assert answer.status == 3 and "no rule or finding 'train'" in answer.err


def test_all_ids_are_listed_where_none_is_given(migrate: Migrate) -> None:
    out = migrate("--explain").out.decode()
    assert out == migrate("--explain", "list").out.decode()
    listed = [line.split(maxsplit=1) for line in out.splitlines() if "  " in line]
    assert [id for id, _ in listed][: len(CATALOGUE)] == [entry.id for entry in CATALOGUE]
    assert {id for id, _ in listed} >= {"local-decision", "missing-set-epoch", "invalid-output"}
    assert len({id for id, _ in listed}) == len(listed)


def test_a_finding_of_which_nothing_is_known_names_the_nearest(migrate: Migrate) -> None:
    answer = migrate("--explain", "kept-batch")
    assert answer.status == 3 and "no rule or finding 'kept-batch'. Did you mean kept-batches?" in answer.err


def test_roles_take_the_place_of_the_diff(migrate: Migrate) -> None:
    _write("a.py", TRAINS)
    out = migrate("--roles", "a.py").out
    assert re.search(rb"5 +<module> +model +model +constructed by torch.nn.Linear\n", out)
    assert b"@@" not in out


def test_roles_have_no_summary_after_them(migrate: Migrate) -> None:
    _write("a.py", TRAINS)
    assert migrate("--roles", "a.py").err == ""


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--json", "No such option: --json. Did you mean --output-format json?"),
        ("--wirte", "No such option: --wirte. Did you mean --write?"),
        ("--foo", "No such option: --foo. `migrate --help`"),
    ],
)
def test_an_unknown_option_names_one_that_is_like_it_or_none(migrate: Migrate, option: str, says: str) -> None:
    assert says in migrate(option, "a.py").err


@pytest.mark.parametrize(
    ("line", "old"), [(b"print 'hello'", True), (b"y = x.cuda(async=True)", True), (b"x = = 1", False)]
)
def test_the_syntax_of_an_older_python_is_called_that(migrate: Migrate, line: bytes, old: bool) -> None:
    _write("a.py", TRAINS + line + b"\n")
    err = migrate("a.py").err
    assert ("the syntax of an older Python" in err) == old and ("newer Python" in err) != old
    assert f" | {line.decode()}\n" in err and "?." not in err


def test_what_is_underlined_is_named_where_something_may_be_said_of_it(migrate: Migrate) -> None:
    text = TRAINS.replace(b"model.parameters()", b"odd.parts()").replace(
        b"import torch\n", b"import torch\nimport odd\n", 1
    )
    _write("a.py", text)
    answer = migrate("a.py")
    assert "=NAME" not in answer.err.partition("To learn more")[2]


def test_json(migrate: Migrate) -> None:
    _write("a.py", TRAINS)
    _write("b.py", b"torch backward\0")
    answer = migrate("--output-format", "json", "a.py", "b.py", "c.py")
    document = json.loads(answer.out)
    assert (answer.status, document["version"], document["status"], answer.err) == (3, 1, 3, "")
    assert [file["path"] for file in document["files"]] == ["a.py"]
    assert sorted(error["path"] for error in document["errors"]) == ["b.py", "c.py"]


def test_json_of_nothing(migrate: Migrate) -> None:
    _write("a.py", INNOCENT)
    document = json.loads(migrate("--output-format", "json", "a.py").out)
    assert (document["files"], document["checked"]) == ([], 1)


def test_help_teaches_the_tool(migrate: Migrate) -> None:
    answer = migrate("--help")
    assert answer.status == 0
    for word in (b"git apply", b"Exit status", b"--keep-global-batch", b"[tool.torchlift]"):
        assert word in answer.out


def test_version(migrate: Migrate) -> None:
    assert re.fullmatch(rb"migrate \(torchlift\) \d+\.\d+\S*\n", migrate("--version").out)


def test_an_assumption_that_names_nothing_is_said_to(migrate: Migrate) -> None:
    _write("a.py", TRAINS)
    told = "error: --assume loss=zzz matches nothing: no variable in these programs is called zzz.\n"
    for more in ((), ("--write",), ("--output-format", "json")):
        answer = migrate("--assume", "loss=zzz", *more, "a.py")
        assert (answer.status, answer.out, answer.err) == (main.FAILED, b"", told)
    assert Path("a.py").read_bytes() == TRAINS
    assert "no effect" not in migrate("--assume", "loss=loss", "a.py").err


NEWER = (
    TRAINS
    + b"""\
try:
    print(model)
except ValueError, TypeError:
    raise
"""
)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python can parse it")
@pytest.mark.unchanged
def test_syntax_of_a_newer_python_is_no_fault_of_ours(migrate: Migrate) -> None:
    """LibCST can parse it: what comes out cannot be checked by this Python, and neither can the script."""
    _write("a.py", NEWER)
    line = NEWER.split(b"\n").index(b"except ValueError, TypeError:") + 1
    answer = migrate("--write", "a.py")
    assert (answer.status, Path("a.py").read_bytes()) == (3, NEWER)
    assert f"a.py:{line}: this file needs a newer Python than 3." in answer.err
    assert "Run migrate with the Python that runs the script." in answer.err
    assert "report" not in answer.err


def test_the_next_command_repeats_what_was_asked_for(migrate: Migrate) -> None:
    _write("a b.py", TRAINS)
    told = migrate("--keep-global-batch", "--assume", "loss=loss", "a b.py").err
    assert "To apply:  migrate --assume loss=loss --keep-global-batch --write 'a b.py'\n" in told


def test_an_internal_error_is_one_line_that_asks_for_a_report(
    migrate: Migrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(*arguments: object) -> pipeline.Plan:
        raise RuntimeError("a bug\nof ours")

    monkeypatch.setattr(pipeline, "plan", buggy)
    _write("a.py", TRAINS)
    answer = migrate("a.py")
    assert (answer.status, answer.err.count("\n")) == (3, 1)
    assert answer.err.startswith("error: internal error (RuntimeError: a bug of ours). Please report it")
    monkeypatch.setenv("TORCHLIFT_DEBUG", "1")
    with pytest.raises(RuntimeError):
        migrate("a.py")


def test_ctrl_c_is_quiet(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> pipeline.Plan:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "plan", interrupted)
    _write("a.py", TRAINS)
    answer = migrate("a.py")
    assert (answer.status, answer.out, answer.err) == (130, b"", "")


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[bytes], None]:
    def feed(data: bytes) -> None:
        (tmp_path / "stdin").write_bytes(data)
        monkeypatch.setattr(sys, "stdin", (tmp_path / "stdin").open())

    return feed


@pytest.mark.parametrize("data", [INNOCENT, b"", BLOCKED], ids=["innocent", "empty", "blocked"])
def test_a_filter_gives_back_what_it_does_not_change(
    migrate: Migrate, stdin: Callable[[bytes], None], data: bytes
) -> None:
    stdin(data)
    answer = migrate("--write", "-")
    assert (answer.out, answer.status) == (data, 2 if data is BLOCKED else 0)


def test_a_filter_gives_the_migrated_text(migrate: Migrate, stdin: Callable[[bytes], None]) -> None:
    stdin(TRAINS.replace(b"\n", b"\r\n"))
    assert migrate("--write", "-").out == MIGRATED.replace(b"\n", b"\r\n")


def test_stdin_without_write_gives_the_patch(migrate: Migrate, stdin: Callable[[bytes], None]) -> None:
    stdin(TRAINS)
    assert b"\n+    accelerator.backward(loss)\n" in migrate("-").out


def test_a_bad_stdin_gives_no_text(migrate: Migrate, stdin: Callable[[bytes], None]) -> None:
    stdin(b"def f(:\n")
    answer = migrate("--write", "-")
    assert (answer.status, answer.out) == (3, b"")
    assert answer.err.startswith("error: <stdin>:1: not valid Python:")


COMMAND = [sys.executable, "-m", "torchlift.codemods"]


def test_nothing_heavy_is_imported_where_nothing_is_to_be_done(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(INNOCENT)
    code = (
        "import sys; from torchlift.rewriter.cli.main import run; from torchlift.codemods.catalogue import CATALOGUE;"
        "run(CATALOGUE, ['a.py']);"
        "print({'libcst', 'rich', 'yaml', 'torch', 'importlib.metadata', 'tempfile', 'difflib', 'json', 'tomllib'}"
        " & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    (tmp_path / "a.py").write_bytes(INNOCENT)
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run([*COMMAND, "--version"], cwd=tmp_path, stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.parametrize(
    "line",
    ["a.py", "--check src", "a.py --write b.py", "--hook --partial a.py", "--roles --no-color -", "--side-by-side a.py",
     "--no-follow --keep-global-batch a", "--write --write a", "--no-cache --verbose a.py", ""],
)  # fmt: skip
def test_paths_and_switches_mean_the_same_to_us_and_to_click(line: str) -> None:
    assert plain(line.split()) == read(line.split())


@pytest.mark.parametrize("line", ["-w a.py", "--target accelerate", "--select=x a", "--chec a", "--steps 3", "-wi"])
def test_anything_else_is_left_to_click(line: str) -> None:
    assert plain(line.split()) is None


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_their_completion(migrate: Migrate, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setattr("click.shell_completion.BashComplete._check_version", lambda *arguments: None)
    monkeypatch.setenv("_MIGRATE_COMPLETE", f"{shell}_source")
    assert b"_MIGRATE_COMPLETE" in migrate().out


def test_options_are_completed(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MIGRATE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "migrate --side")
    monkeypatch.setenv("COMP_CWORD", "1")
    answer = migrate()
    assert (answer.status, answer.out) == (0, b"plain,--side-by-side\n")


@pytest.mark.parametrize(
    ("words", "at"),
    [("tra", 1), ("--html pag", 2), ("--explain train.p", 2), ("--python /usr/bin/py", 2), ("-w a b", 3)],
)
def test_the_shell_completes_files(migrate: Migrate, monkeypatch: pytest.MonkeyPatch, words: str, at: int) -> None:
    """With the completion of options switched on, it completed no file any more."""
    monkeypatch.setenv("_MIGRATE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"migrate {words}")
    monkeypatch.setenv("COMP_CWORD", str(at))
    assert migrate().out.decode() == f"file,{words.rpartition(' ')[2]}\n"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("--explain local-d", ["local-decision"]),
        ("--explain backw", ["backward"]),
        ("--explain missing-set", ["missing-set-epoch"]),
        ("--select backward,autoc", ["backward,autocast"]),
        ("--ignore seed-d", ["seed-differs"]),
        ("--assume lo", ["loader=", "loss=", "local="]),
    ],
)
def test_ids_are_completed(migrate: Migrate, monkeypatch: pytest.MonkeyPatch, words: str, completed: list[str]) -> None:
    monkeypatch.setenv("_MIGRATE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"migrate {words}")
    monkeypatch.setenv("COMP_CWORD", "2")
    answer = migrate()
    assert (answer.status, answer.out.decode().splitlines()) == (0, [f"plain,{id}" for id in completed])
