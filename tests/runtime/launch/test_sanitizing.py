"""`torchlift launch --sanitize`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torchlift.runtime.errors import LaunchError, UnknownWordError
from torchlift.runtime.launch.plan import Job, plan
from torchlift.runtime.launch.sanitizing import asked_for, attempt_folder, latest, new_folder

COMMAND = [sys.executable, "-m", "torchlift.runtime.launch.command", "launch", "--num-processes", "2"]
SCRIPT = """
import os, sys
print("everybody")
print("rank", os.environ["RANK"])
sys.exit(5 if "fails" in sys.argv and os.environ["RANK"] == "0" else 0)
"""


def test_the_table_comes_at_the_end_and_the_status_says_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    arguments = ["--sanitize", "--sanitize-dir", "records", "script.py"]
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 66, done.stderr
    # both write to one pipe: a line of one may stand in a line of the other
    assert [done.stdout.count(one) for one in ("everybody", "rank", "0", "1")] == [2, 2, 1, 1]
    first, _, _, row, *_ = done.stderr.splitlines()
    assert first == "torchlift: sanitizer: 1 report (2 ranks)"
    assert row.split() == "line printed by several ranks script.py:3 1 'everybody', by ranks 0 and 1".split()
    assert len(list((tmp_path / "records").glob("run_*/attempt_0/rank*.jsonl"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "found"),
    [(["--sanitize-status", "0"], 0, "1 report"), (["--sanitize"], 5, "1 report"), (["-m"], 66, "1 report")],
    ids=["another status", "the script's own status first", "a module"],
)
def test_by_the_environment_too(tmp_path, arguments, status, found):
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "TORCHLIFT_SANITIZE": "1"}
    script = ["script"] if "-m" in arguments else ["script.py", *(["fails"] if status == 5 else [])]
    command = [*COMMAND, *arguments, *script]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == status, done.stderr
    assert f"torchlift: sanitizer: {found}" in done.stderr


def test_the_environment_asks_for_it():
    assert asked_for({"TORCHLIFT_SANITIZE": "1", "WORLD_SIZE": "many"})
    assert not asked_for({"TORCHLIFT_SANITIZE": "0"})
    assert not asked_for({})
    with pytest.raises(UnknownWordError):
        asked_for({"TORCHLIFT_SANITIZE": "perhaps"})


def test_processes_are_planned_under_it():
    (one,) = plan(Job(num_processes=1, command=("a.py", "-v"), sanitize="/records", port=1), {})
    assert one.command[1:] == ("-u", "-m", "torchlift.runtime.monitoring.sanitizer", "a.py", "-v")
    assert (one.environment["TORCHLIFT_SANITIZE"], one.environment["TORCHLIFT_SANITIZE_FOLDER"]) == ("1", "/records")
    (one,) = plan(Job(num_processes=1, command=("a.py",), port=1), {})
    assert one.command[1:] == ("-u", "a.py")
    assert "TORCHLIFT_SANITIZE" not in one.environment


def test_every_attempt_has_a_folder(tmp_path):
    folder = new_folder(str(tmp_path / "records"))
    for restart in (0, 9, 10):
        attempt_folder(folder, restart)
    assert latest(folder).name == "attempt_10"
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="the sanitizer cannot write to "):
        new_folder(str(tmp_path / "file"))
