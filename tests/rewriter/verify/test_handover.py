"""The rewriter's side of a verification: which python, what is asked, what is made of the answer."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchlift.rewriter.findings import Severity
from torchlift.rewriter.report.verdict import unforeseen, verdict_text
from torchlift.rewriter.result import Diagnosis, FileResult, Trait
from torchlift.rewriter.source import decode
from torchlift.rewriter.validation import foreseen
from torchlift.rewriter.validation.foreseen import FORESEEN
from torchlift.rewriter.verify import handover
from torchlift.rewriter.verify.options import Asked, VerifyError
from torchlift.runtime.verify.compare.tolerances import PROMISES

ROOT = Path(__file__).resolve().parents[3]
BEFORE, AFTER = b"import torch\nloss.backward()\n", b"import torch\naccelerator.backward(loss)\n"


def answer(**more: Any) -> dict[str, Any]:
    """A verdict as the runtime writes it."""
    promise = {
        "id": "losses",
        "promise": "the same losses",
        "processes": 2,
        "outcome": "broken",
        "detail": "loss 1, the original's is 2",
        "step": 3,
        "figure": "loss 3",
    }
    held = {**promise, "id": "steps", "promise": "as many steps", "outcome": "held", "step": None, "detail": "20 steps"}
    plain = {"version": 1, "kind": "verdict", "status": 1, "mode": "exact", "device": "cpu", "notes": ["dropout off"]}
    rest = {"drawing": ["2 |*", "  +-"], "curves": {}, "runs": [{"scratch": None}], "original_error": None}
    return {**plain, "promises": [held, promise], **rest, **more}


# ---------------------------------------------------------------- which python


def python(folder: Path, words: str, name: str = "python") -> Path:
    """A stand-in for an interpreter that answers the probe with `words`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {words}\n")
    path.chmod(0o755)
    return path


def test_the_active_environment_comes_first(tmp_path: Path) -> None:
    active = python(tmp_path / "venv" / "bin", "1 1")
    python(tmp_path / "path", "1 1")
    environment = {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": str(tmp_path / "path")}
    assert handover.find_python(None, environment) == str(active)


def test_the_first_on_path_that_imports_torch_is_taken(tmp_path: Path) -> None:
    python(tmp_path / "a", "0 0")
    python(tmp_path / "b", "0 1", "python3")
    wanted = python(tmp_path / "c", "1 1", "python3")
    path = os.pathsep.join(str(tmp_path / name) for name in ("", "a", "nowhere", "b", "c"))
    assert handover.find_python(None, {"PATH": path}) == str(wanted)


def test_without_any_other_it_is_ours() -> None:
    assert handover.find_python(None, {"PATH": ""}) == sys.executable


def test_torch_without_the_runtime_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = python(tmp_path, "1 0")
    monkeypatch.setattr(sys, "executable", str(python(tmp_path, "0 0", "ours")))
    with pytest.raises(
        VerifyError, match=f"{lacking} can import torch, but not torchlift.runtime. Run: {lacking} -m pip"
    ):
        handover.find_python(None, {"PATH": str(tmp_path)})


def test_no_torch_at_all_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(python(tmp_path, "0 0")))
    with pytest.raises(VerifyError, match="no python on PATH can import torch"):
        handover.find_python(None, {"PATH": ""})


@pytest.mark.parametrize("name", ["nowhere", "/nowhere/python"])
def test_a_named_python_is_the_only_one(name: str) -> None:
    with pytest.raises(VerifyError, match=f"--python {name} cannot import torch"):
        handover.find_python(name, os.environ)


# ---------------------------------------------------------------- what is asked


def test_the_request_carries_bytes_and_the_place(tmp_path: Path) -> None:
    path = tmp_path / "code" / "train.py"
    file = FileResult(decode(BEFORE, path), AFTER)
    asked = Asked(procs=(2,), steps=5, as_is=True, limit=9, arguments=("--epochs", "1"))
    found = handover.request(
        [file, FileResult(decode(BEFORE, path.with_name("same.py")), BEFORE)], path, asked, tmp_path
    )
    place = {"script": str(path), "folder": str(tmp_path)}
    assert found["original"] == {**place, "texts": {}}
    assert found["migrated"] == {**place, "texts": {"code/train.py": base64.b64encode(AFTER).decode()}}
    assert (found["version"], found["procs"], found["steps"], found["exact"]) == (1, [2], 5, False)
    assert (found["seconds"], found["arguments"], found["sharded"]) == (9, ["--epochs", "1"], False)
    assert handover.request([], path, asked, tmp_path, sharded=True)["sharded"] is True


def test_the_request_says_what_differs_by_nature(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    pairs = Diagnosis("in-batch-pairs", Severity.REVIEW, "pairs are formed", "", 7)
    other = Diagnosis("one-share", Severity.REVIEW, "rows of one process", "", 8)
    file = FileResult(decode(BEFORE, path), AFTER, diagnoses=(other, pairs))
    assert handover.request([file], path, Asked(), tmp_path)["by_nature"] == "train.py:7: pairs are formed"
    assert handover.request([], path, Asked(), tmp_path)["by_nature"] == ""


def test_a_script_elsewhere_runs_in_its_own_folder(tmp_path: Path) -> None:
    found = handover.request([], tmp_path / "train.py", Asked(), Path("/"))
    assert found["original"]["folder"] == "/"
    found = handover.request([], tmp_path / "train.py", Asked(), tmp_path / "other")
    assert found["original"]["folder"] == str(tmp_path)


# ---------------------------------------------------------------- what is made of the answer


def test_a_verdict_is_read() -> None:
    found = handover.read_verdict(json.dumps(answer(runs=[{"scratch": "/tmp/x"}, {"scratch": None}])))
    assert (found.status, found.mode, found.kept) == (1, "exact", ("/tmp/x",))
    assert [promise.outcome for promise in found.promises] == ["held", "broken"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(answer(version=2)), "the verdict has version 2, but this command reads version 1"),
        ("no json", "cannot be read"),
        (json.dumps({"version": 1}), "KeyError"),
        (json.dumps(answer(promises=[{"id": 1}])), "TypeError"),
    ],
)
def test_another_version_or_nonsense_is_refused(text: str, words: str) -> None:
    with pytest.raises(VerifyError, match=words):
        handover.read_verdict(text)


def test_the_table_shows_outcome_step_and_detail() -> None:
    text = verdict_text(handover.read_verdict(json.dumps(answer())))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "BROKEN 2 the same losses step 3: loss 1, the original's is 2" in lines
    assert "held 2 as many steps 20 steps" in lines
    assert {"2 |*", "- dropout off"} <= set(lines) and lines[0] == "BROKEN."
    assert "\x1b" not in text
    assert "\x1b[" in verdict_text(handover.read_verdict(json.dumps(answer())), color=True)


def test_an_original_that_does_not_run_is_told_first() -> None:
    failure = {"error": "E: x", "at": "train.py:1", "traceback": "Traceback [bold]mine[/bold]"}
    found = handover.read_verdict(json.dumps(answer(status=2, promises=[], drawing=[], original_error=failure)))
    assert verdict_text(found) == "NOT VERIFIED.\n\nTraceback [bold]mine[/bold]\n"


# ---------------------------------------------------------------- the command


def migrate(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchlift.codemods", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1", **environment}
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return Path(shutil.copy(ROOT / "fixtures" / "module_level" / "before.py", tmp_path / "train.py"))


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[[dict[str, Any], int], str]:
    """`stand_in(verdict, status)` is an interpreter that gives this verdict, and keeps the request beside it."""

    def make(verdict: dict[str, Any], status: int) -> str:
        (tmp_path / "verdict.json").write_text(json.dumps(verdict))
        path = tmp_path / "fake-python"
        path.write_text(
            f'#!/bin/sh\nif [ "$1" = -c ]; then echo 1 1; exit; fi\ncat > {tmp_path}/request.json\n'
            f"cat {tmp_path}/verdict.json\nexit {status}\n"
        )
        path.chmod(0o755)
        return str(path)

    return make


def test_a_broken_promise_is_status_1_and_nothing_is_written(
    script: Path, stand_in: Callable[[dict[str, Any], int], str]
) -> None:
    before = script.read_bytes()
    python = stand_in(answer(), 1)
    done = migrate(
        script.parent, "train.py", "--write", "--verify", "--python", python, "--steps", "3", "--", "-x", "--y"
    )
    assert done.returncode == 1, done.stderr
    assert "BROKEN" in done.stderr
    assert "Nothing was written: not every promise is held." in done.stderr
    assert script.read_bytes() == before
    asked = json.loads((script.parent / "request.json").read_text())
    assert (asked["arguments"], asked["steps"]) == (["-x", "--y"], 3)
    assert b"accelerator.backward" in base64.b64decode(asked["migrated"]["texts"]["train.py"])


def test_held_promises_let_it_be_written(script: Path, stand_in: Callable[[dict[str, Any], int], str]) -> None:
    python = stand_in(answer(status=0, promises=answer()["promises"][:1]), 0)
    done = migrate(script.parent, "train.py", "--write", "--verify", "--python", python)
    assert done.returncode == 0, done.stderr
    assert b"accelerator.backward" in script.read_bytes()


@pytest.mark.parametrize(
    ("status", "hint"),
    [(0, "To apply:  "), (1, "To mend:   cp train.py train_original.py; "), (2, "To verify: ")],
)
def test_the_command_that_applies_is_shown_where_all_is_held(
    script: Path, stand_in: Callable[[dict[str, Any], int], str], status: int, hint: str
) -> None:
    done = migrate(script.parent, "train.py", "--verify", "--python", stand_in(answer(status=status), status))
    assert done.returncode == status
    assert hint in done.stderr and ("To apply" in done.stderr) == (status == 0)
    assert done.stderr.splitlines()[-1].startswith("To "), "the last line is the next command"


def test_json_carries_the_verdict(script: Path, stand_in: Callable[[dict[str, Any], int], str]) -> None:
    python = stand_in(answer(), 1)
    done = migrate(script.parent, "train.py", "--verify", "--python", python, "--output-format", "json")
    document = json.loads(done.stdout)
    assert document["verification"] == answer()
    (told,) = document["unforeseen"]
    assert told.startswith('"the same losses": the check of the migrated program passed') and "gradient-cut" in told
    assert (document["status"], done.returncode) == (1, 1)


def test_no_verdict_is_status_3(script: Path, stand_in: Callable[[dict[str, Any], int], str]) -> None:
    done = migrate(script.parent, "train.py", "--verify", "--python", stand_in({}, 70))
    assert done.returncode == 3
    assert "the runtime gave no verdict (exit status 70)" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train.py", "--", "--epochs", "1"), "the arguments after -- (--epochs 1) are for --verify"),
        (("train.py", "--steps", "3"), "--steps needs --verify"),
        (("train.py", "--verify", "--procs", "0"), "not a list of different numbers"),
        (("train.py", "--verify", "--as-is", "--double"), "cannot be used together"),
        ((".", "--verify"), "--verify runs one script"),
    ],
)
def test_wrong_usage(script: Path, arguments: tuple[str, ...], words: str) -> None:
    done = migrate(script.parent, *arguments)
    assert (done.returncode, words in done.stderr) == (3, True), done.stderr


@pytest.mark.slow
def test_the_whole_way(script: Path) -> None:
    before = script.read_bytes()
    done = migrate(script.parent, "train.py", "--verify", VIRTUAL_ENV=sys.prefix)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\nHELD \(exact mode, .*\): \d+ promises on 1", done.stderr), done.stderr
    assert done.stdout.startswith("--- a/train.py")
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]
    assert script.read_bytes() == before


@pytest.mark.parametrize("traits", [(), (Trait("by-hand", "distributed before", 2),)])
def test_the_runtime_is_told_what_was_distributed_before(traits: tuple[Trait, ...]) -> None:
    text = b"import torch.multiprocessing as mp\nmp.spawn(main)\n"
    file = FileResult(decode(text, Path("a.py")), text, traits=traits)
    asked = handover.request([file], Path("a.py"), Asked(), Path.cwd())
    assert (asked["distributed"], asked["procs"]) == (bool(traits), [1, 2])


@pytest.mark.parametrize("id", FORESEEN)
def test_a_broken_promise_is_shown_with_what_should_have_foreseen_it(id: str) -> None:
    promise = handover.SeenPromise(id, "it is so", 2, "broken", "", None, "")
    verdict = handover.SeenVerdict(1, "exact", (promise,), (), (), "", (), {})
    (told,) = unforeseen(verdict)
    assert all(name in told for name in FORESEEN[id])
    assert ("no invariant" in told) == (not FORESEEN[id])
    assert unforeseen(replace(verdict, check_passed=False)) == []


def test_the_promise_that_is_broken_first_is_named_alone() -> None:
    """The others follow from it: a report for each was longer than the verdict."""
    rows = tuple(handover.SeenRow(words, "2", "broken") for words in ("the same rates", "the same losses"))
    verdict = handover.SeenVerdict(1, "exact", (), (), (), "", (), {}, rows=rows)
    (told,) = [line for line in verdict_text(verdict, width=1000).split("\n") if line.startswith("- ")]
    assert 'did not foresee "the same rates"' in told
    assert "For the comparison" not in verdict_text(replace(verdict, check_passed=False))


def test_every_promise_is_known_and_every_invariant_exists() -> None:
    assert set(FORESEEN) == {*PROMISES, "devices"}
    validation = Path(foreseen.__file__).parent
    text = "".join(path.read_text() for path in validation.glob("*.py") if path.name != "foreseen.py")
    assert [name for names in FORESEEN.values() for name in names if f'"{name}"' not in text] == []
