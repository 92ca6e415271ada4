"""The cache of verdicts: it answers as the analysis would, and nothing that is wrong with it is an error."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter import pipeline
from torchlift.rewriter.cli import main
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.gate import cache, keys
from torchlift.rewriter.gate.cache import FOLDER
from torchlift.rewriter.notebooks import migrating
from torchlift.rewriter.result import CausePlace, Diagnosis, FileResult, Result
from torchlift.rewriter.rule import Entry
from torchlift.rewriter.source import decode

COMMAND = [sys.executable, "-m", "torchlift.codemods"]

HEAD = """\
import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator
from sizes import WIDTH
from steps import step

accelerator = Accelerator()
model = torch.nn.Linear(1, WIDTH)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.ones(8, 1), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
MAIN = HEAD + "for x in loader:\n    step(model, optimizer, x, accelerator)\n"
STEPS = """\
def step(model, optimizer, x, accelerator):
    loss = model(x).mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
"""
PLAIN = STEPS.replace("accelerator.backward(loss)", "loss.backward()")
LONE = HEAD.replace("from sizes import WIDTH\nfrom steps import step\n", "WIDTH = 1\n")
NOT_YET = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.ones(8, 1), batch_size=4):
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TOLD = LONE.replace("accelerator = ", "import numpy\naccelerator = ") + (
    "for x in loader:\n    x = x + torch.from_numpy(numpy.random.normal(0, 1, 4))\n    loss = model(x).mean()\n"
    "    optimizer.zero_grad()\n    accelerator.backward(loss)\n    optimizer.step()\n"
)
"""A migrated script with a finding that stays."""


@dataclass
class Answer:
    status: int
    out: bytes
    err: str
    looked: int
    """How many programs were analysed."""

    @property
    def told(self) -> tuple[int, bytes, str]:
        """What the user sees."""
        return self.status, self.out, self.err


Migrate = Callable[..., Answer]


@pytest.fixture(scope="module", autouse=True)
def control() -> None:
    """What is kept means something only where the rewriter would change what is not migrated yet."""
    assert pipeline.migrate([decode(NOT_YET.encode(), Path("x.py"))], CATALOGUE, Config()).changed


@pytest.fixture
def migrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Migrate:
    """The command in a project with one migrated program of three files."""
    monkeypatch.chdir(tmp_path)
    _write("pyproject.toml", "")
    _write("main.py", MAIN)
    _write("steps.py", STEPS)
    _write("sizes.py", "WIDTH = 1\n")
    looked: list[object] = []
    real = pipeline.plan

    def noting(*given: object) -> pipeline.Plan:
        looked.append(given)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "plan", noting)
    monkeypatch.setattr(migrating, "plan", noting)

    def call(*argv: str, catalogue: tuple[Entry, ...] = CATALOGUE) -> Answer:
        looked.clear()
        status = main.run(catalogue, argv)
        captured = capfdbinary.readouterr()
        return Answer(status, captured.out, captured.err.decode(), len(looked))

    return call


def _write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _entries() -> list[Path]:
    """The files of the cache, without those that make it one."""
    return [path for path in Path(FOLDER).iterdir() if path.name not in (".gitignore", "CACHEDIR.TAG")]


# ---------------------------------------------------------------- the second run


def test_the_second_run_looks_no_more_and_says_the_same(migrate: Migrate) -> None:
    first, second = migrate("--check", "main.py"), migrate("--check", "main.py")
    assert (first.looked, second.looked) == (1, 0)
    assert first.told == second.told
    assert first.err == "Nothing to do: 3 files checked, 2 migrated already, 1 without training by torch.\n"


@pytest.mark.parametrize(
    "argv",
    [["--check", "."], ["--hook", "--check", "steps.py"], ["--hook", "--write", "steps.py"], ["--write", "main.py"],
     ["told.py"], ["--check", "told.py"], ["--write", "told.py"], ["--hook", "--check", "told.py"],
     ["--output-format", "json", "told.py"], ["--output-format", "sarif", "."], ["--roles", "main.py"], ["told.ipynb"],
     ["--no-follow", "told.py"], ["--select", "backward", "."]],
    ids=" ".join,
)  # fmt: skip
def test_a_known_verdict_gives_what_the_analysis_gives(migrate: Migrate, argv: list[str]) -> None:
    _write("told.py", TOLD)
    cell = {"cell_type": "code", "source": TOLD.splitlines(keepends=True), "metadata": {}, "outputs": []}
    _write("told.ipynb", json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    plain = migrate("--no-cache", *argv)
    first, second = migrate(*argv), migrate(*argv)
    assert plain.told == first.told == second.told
    assert plain.looked == first.looked > 0 == second.looked
    if "told.py" in argv:
        assert b"same-noise" in plain.out + plain.err.encode()


def test_the_warm_run_imports_neither_the_parser_nor_click(tmp_path: Path) -> None:
    for name, text in {"pyproject.toml": "", "main.py": MAIN, "steps.py": STEPS, "sizes.py": "WIDTH = 1\n"}.items():
        (tmp_path / name).write_text(text)
    code = (
        "import sys; from torchlift.rewriter.cli.main import run; from torchlift.codemods.catalogue import CATALOGUE;"
        "run(CATALOGUE, ['--hook', '--check', 'main.py']);"
        "print(*{'libcst', 'click', 'rich', 'importlib.metadata', 'difflib'} & set(sys.modules))"
    )
    for wanted in ("libcst", ""):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert ("libcst" in done.stdout) == (wanted == "libcst")
    assert done.stdout == "\n"


def test_a_program_that_would_change_is_looked_at_each_time(migrate: Migrate) -> None:
    _write("steps.py", PLAIN)
    for _ in range(2):
        answer = migrate("--check", "main.py")
        assert (answer.status, answer.looked) == (1, 1)
    assert not Path(FOLDER).exists()


def test_a_blocked_program_is_looked_at_each_time(migrate: Migrate) -> None:
    _write("main.py", MAIN + "torch.distributed.rpc.init_rpc('gloo')\n")
    assert [migrate("main.py").status for _ in range(2)] == [2, 2]
    assert not Path(FOLDER).exists()


# ---------------------------------------------------------------- what invalidates


def _changed_helper() -> None:
    _write("steps.py", PLAIN)


def _deleted_helper() -> None:
    Path("sizes.py").unlink()


def _helper_that_comes_first() -> None:
    _write("steps/__init__.py", PLAIN)


def _changed_script() -> None:
    _write("main.py", MAIN.replace("step(model, optimizer, x, accelerator)", "model(x).mean().backward()"))


def _user_of_the_helper() -> None:
    _write("other.py", "from steps import step\nstep(None, None, None, None)\n")


def _setting() -> None:
    _write("pyproject.toml", '[tool.torchlift]\nignore = ["main_process"]\n')


@pytest.mark.parametrize(
    ("change", "status"),
    [(_changed_helper, 1), (_deleted_helper, 0), (_helper_that_comes_first, 1), (_changed_script, 1),
     (_user_of_the_helper, 0), (_setting, 0)],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)  # fmt: skip
def test_a_change_of_what_was_read_or_looked_for_makes_it_look_again(
    migrate: Migrate, change: Callable[[], None], status: int
) -> None:
    assert migrate("--check", "main.py").status == 0
    change()
    again = migrate("--check", "main.py")
    assert (again.status, again.looked > 0) == (status, True)
    assert again.told == migrate("--no-cache", "--check", "main.py").told


def test_a_module_that_was_missing_and_comes_makes_it_look_again(migrate: Migrate) -> None:
    _write("main.py", "try:\n    import extra\nexcept ImportError:\n    pass\n" + MAIN)
    assert [migrate("--check", "main.py").looked for _ in range(2)] == [1, 0]
    _write("extra.py", "import torch\n")
    assert [migrate("--check", "main.py").looked for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(
    "option", ["--keep-global-batch", "--ignore=main_process", "--target=accelerate", "--assume=loss=loss"]
)
def test_another_option_makes_it_look_again_and_both_stay_known(migrate: Migrate, option: str) -> None:
    runs = [["main.py"], [option, "main.py"], ["main.py"], [option, "main.py"]]
    assert [migrate(*argv).looked for argv in runs] == [1, 1, 0, 0]


def test_a_change_that_is_taken_back_is_known_again(migrate: Migrate) -> None:
    migrate("main.py")
    _write("steps.py", STEPS + "\n# a word\n")
    assert migrate("main.py").looked == 1
    _write("steps.py", STEPS)
    assert migrate("main.py").looked == 0


def test_only_so_many_verdicts_on_a_program_are_kept(migrate: Migrate) -> None:
    for number in range(12):
        _write("steps.py", STEPS + f"# {number}\n")
        migrate("main.py")
    (entry,) = _entries()
    assert entry.read_text().count("\n") == 7


# ---------------------------------------------------------------- who judges


def _copied(tmp_path: Path, package: str) -> Path:
    """A package of ours, as another installation of it."""
    where = keys.find_spec(package)
    assert where is not None and where.submodule_search_locations is not None
    folder = tmp_path / "installed" / package
    shutil.copytree(next(iter(where.submodule_search_locations)), folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("package", ["torchlift.rewriter", "torchlift.codemods", "libcst"])
def test_another_version_makes_it_look_again(
    migrate: Migrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    folder, real = _copied(tmp_path, package), keys.find_spec
    spec = real(package)
    assert spec is not None
    if spec.origin is not None:
        spec.origin = str(folder / "__init__.py")
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(keys, "find_spec", lambda name: spec if name == package else real(name))
    assert [migrate("main.py").looked for _ in range(2)] == [1, 0]
    changed = folder / ("_version.py" if package == "libcst" else "__init__.py")
    changed.write_text(changed.read_text() + "\n# another\n")
    assert [migrate("main.py").looked for _ in range(2)] == [1, 0]


def test_another_python_makes_it_look_again(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate("main.py")
    monkeypatch.setattr(sys, "version", "3.99 of tomorrow")
    assert migrate("main.py").looked == 1


RULE = """\
from torchlift.rewriter.rule import rule

@rule("acme_rule", doc="Do nothing.")
def acme_rule(facts):
    yield from ()
"""


def test_a_rule_of_somebody_else_and_its_package_count(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_write("site/acme_rules/__init__.py", "").parents[1]))
    _write("site/acme_rules/acme_rule.py", RULE)
    _write("site/acme_rules/helper.py", "")
    theirs = (*CATALOGUE, Entry("acme_rule", "acme_rules.acme_rule"))
    assert migrate("main.py").looked == 1
    assert [migrate("main.py", catalogue=theirs).looked for _ in range(2)] == [1, 0]
    _write("site/acme_rules/helper.py", "x = 1\n")
    assert migrate("main.py", catalogue=theirs).looked == 1


def test_without_the_files_of_who_judges_nothing_is_kept(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    real = keys.find_spec
    monkeypatch.setattr(keys, "find_spec", lambda name: None if name == "torchlift.rewriter" else real(name))
    answer = migrate("-v", "main.py")
    assert (answer.status, Path(FOLDER).exists()) == (0, False)
    assert "migrate: cache: the cache is not used: torchlift.rewriter is not installed as files\n" in answer.err


def test_a_planted_verdict_makes_nothing_clean_in_another_version(
    migrate: Migrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write("steps.py", PLAIN)
    monkeypatch.setattr(pipeline, "plan", lambda *given: _clean(given[0]))
    with monkeypatch.context() as other:
        other.setattr(sys, "version", "3.99 of tomorrow")
        assert migrate("--check", "main.py").status == 0  # a version with a bug
    (entry,) = _entries()
    assert entry.read_text()
    done = subprocess.run([*COMMAND, "-v", "--check", "main.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "0 of 1 files were found in the cache" in done.stderr


def _clean(sources: object) -> pipeline.Plan:
    from torchlift.rewriter.config import Config
    from torchlift.rewriter.result import FileResult

    assert isinstance(sources, tuple)
    return pipeline.Plan(tuple(FileResult(source, source.data) for source in sources), Config())


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-20]), id="half written"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes().replace(b"equal", b"local", 1)), id="altered"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(b"\xff\xfe\x00 of another kind"), id="binary"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes().split(b" ")[0]), id="the key alone"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), id="a folder"),
    ],
)
def test_a_damaged_cache_is_ignored(migrate: Migrate, damage: Callable[[Path], object]) -> None:
    _write("told.py", TOLD)
    first = migrate("told.py")
    (entry,) = _entries()
    damage(entry)
    quiet = migrate("told.py")
    assert (quiet.told, quiet.looked) == (first.told, 1)


def test_damage_is_told_to_those_who_ask(migrate: Migrate) -> None:
    migrate("main.py")
    (entry,) = _entries()
    entry.write_bytes(entry.read_bytes()[:-20])
    told = migrate("-v", "main.py").err
    assert f"migrate: cache: {entry.resolve()} is damaged, and was ignored\n" in told
    assert "migrate: cache: 1 of 1 files were found in the cache\n" in migrate("--verbose", "main.py").err


@pytest.mark.parametrize("obstacle", ["a file", "a read-only tree"])
def test_a_cache_that_cannot_be_written_is_no_error(
    migrate: Migrate, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    def refused(*given: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    plain = migrate("--no-cache", "main.py")
    if obstacle == "a file":
        _write(FOLDER, "")
    else:
        monkeypatch.setattr(Path, "mkdir", refused)
    for _ in range(2):
        answer = migrate("main.py")
        assert (answer.told, answer.looked) == (plain.told, 1)
    assert "cannot be written" in migrate("-v", "main.py").err


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(migrate: Migrate, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        answer = migrate("-v", "main.py")
    finally:
        tmp_path.chmod(0o755)
    assert (answer.status, Path(FOLDER).exists()) == (0, False)
    assert "cannot be written" in answer.err


def test_a_disk_that_fills_up_leaves_the_old_file(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate("main.py")
    (entry,) = _entries()
    before = entry.read_bytes()

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert migrate("--keep-global-batch", "main.py").status == 0
    assert {path: path.read_bytes() for path in _entries()} == {entry: before}


def test_runs_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    for number in range(6):
        (tmp_path / f"told{number}.py").write_text(TOLD)
    command = [*COMMAND, "--check", "."]
    alone = subprocess.run([*command, "--no-cache"], cwd=tmp_path, capture_output=True, check=True)
    runs = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    for run in runs:
        assert (*run.communicate(), run.returncode) == (alone.stdout, alone.stderr, 0)
    last = subprocess.run([*command, "-v"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "migrate: cache: 6 of 6 files were found in the cache\n" in last.stderr
    assert len(list((tmp_path / FOLDER).iterdir())) == 6 + 2  # nothing half done is left


# ---------------------------------------------------------------- the folder


def test_the_folder_is_at_the_root_of_the_project_and_keeps_itself_out_of_sight(migrate: Migrate) -> None:
    _write("deep/er/told.py", TOLD)
    os.chdir("deep")
    migrate("er/told.py")
    os.chdir("..")
    assert len(_entries()) == 1
    assert not Path("deep", FOLDER).exists()
    assert Path(FOLDER, ".gitignore").read_text().endswith("\n*\n")
    assert Path(FOLDER, "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    subprocess.run(["git", "init", "-q"], check=True)
    status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    assert "deep/" in status
    assert FOLDER not in status


def test_where_nothing_marks_a_project_it_is_in_the_working_directory(
    migrate: Migrate, tmp_path_factory: pytest.TempPathFactory
) -> None:
    Path("pyproject.toml").unlink()
    migrate("main.py")
    assert len(_entries()) == 1
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "told.py").write_text(TOLD)
    assert [migrate(str(elsewhere / "told.py")).looked for _ in range(2)] == [1, 1]
    assert (len(_entries()), (elsewhere / FOLDER).exists()) == (1, False)


def test_no_cache_neither_reads_nor_writes(migrate: Migrate) -> None:
    migrate("--no-cache", "main.py")
    assert not Path(FOLDER).exists()
    migrate("main.py")
    assert migrate("--no-cache", "main.py").looked == 1


def test_stdin_has_no_verdict(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    with _write("input", TOLD).open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert migrate("--check", "-").status == 0
    assert not Path(FOLDER).exists()


def test_a_finding_is_kept_with_its_places() -> None:
    source = decode(b"x = 1\n", Path("a.py"))
    cause = CausePlace("it comes from here", 12, 5, 9, "for x in rows:", "lib/data.py")
    told = (
        Diagnosis("prepare", Severity.NOTE, "m", "r", 1, 1, 6, cause),
        Diagnosis("once", Severity.REVIEW, "m", "", 0),
    )
    result = Result((FileResult(source, source.data, diagnoses=told),), 1)
    assert cache._restored(cache._recorded(result), [source]).files[0].diagnoses == told
