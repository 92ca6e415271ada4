"""The contract: a request and a verdict as versioned JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from torchlift.runtime.verify.overview import as_json
from torchlift.runtime.verify.request import RequestError, Script, VerifyRequest, from_json, program_at, to_json
from torchlift.runtime.verify.text import as_text
from torchlift.runtime.verify.verdict import Failure, Outcome, Promise, RunSeen, Verdict

PROGRAM = Script(script=Path("/a/b/train.py"), folder=Path("/a"), texts={"b/train.py": b"\xff\x00print(1)\r\n"})
REQUEST = VerifyRequest(
    original=PROGRAM,
    migrated=PROGRAM,
    arguments=("--epochs", "1"),
    procs=(2,),
    steps=5,
    double=True,
    by_nature="x",
    distributed=True,
)


def test_a_request_comes_back_as_it_was() -> None:
    assert from_json(json.loads(json.dumps(to_json(REQUEST)))) == REQUEST


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"version": 99}, "the request has version 99, but this runtime reads version 1"),
        ([], "the request has version list"),
        ({"version": 1}, "KeyError: 'original'"),
    ],
)
def test_what_is_no_request_is_refused(data: object, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        from_json(data)


@pytest.mark.parametrize(
    ("cwd", "folder"), [("/a", "/a"), ("/a/b", "/a/b"), ("/elsewhere", "/a/b"), ("/a/b/c", "/a/b")]
)
def test_a_script_runs_where_the_user_stands_or_in_its_folder(cwd: str, folder: str) -> None:
    assert program_at(Path("/a/b/train.py"), Path(cwd)).folder == Path(folder)


def test_a_verdict_is_strict_json_and_text() -> None:
    promises = (
        Promise(id="losses", promise="the same losses", processes=2, outcome=Outcome.BROKEN, detail="loss 1", step=3),
    )
    seen = RunSeen(name="original", processes=1, seconds=1.5, steps=3, ended="end", status=0)
    verdict = Verdict(
        status=1, mode="exact", device="cpu", promises=promises, curves={"original": [float("nan"), 1.0]}, runs=(seen,)
    )
    data = json.loads(json.dumps(as_json(verdict), allow_nan=False))
    assert (data["version"], data["kind"], data["curves"]["original"]) == (1, "verdict", [None, 1.0])
    assert data["promises"][0]["outcome"] == "broken"
    assert (data["rows"][0]["outcome"], data["rows"][0]["detail"]) == ("broken", "step 3: loss 1")
    assert "BROKEN   2      the same losses  step 3: loss 1" in as_text(verdict)
    failed = Verdict(
        status=2, mode="exact", device="cpu", original_error=Failure(error="E: x", at="a:1", traceback="T")
    )
    first, _, rest = as_text(failed).partition("\n\n")
    assert (first.partition(":")[0], rest) == ("NOT VERIFIED", "T\n\nE: x\n")
    assert as_text(replace(failed, original_error=Failure(error="T", at="a:1", traceback="T"))).endswith(
        "first.\n\nT\n"
    )


def test_json_in_json_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"# -*- coding: latin-1 -*-\nprint('caf\xe9')\n")
    program = Script(script=tmp_path / "train.py", folder=tmp_path)
    migrated = Script(script=program.script, folder=tmp_path, texts={"train.py": b"print('tea')\n"})
    asked = VerifyRequest(original=program, migrated=migrated, procs=(1,), cpu=True)
    command = [sys.executable, "-m", "torchlift.runtime.verify", "--request", "-"]
    done = subprocess.run(command, input=json.dumps(to_json(asked)), capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)
    broken = [promise["detail"] for promise in verdict["promises"] if promise["outcome"] == "broken"]
    assert broken == ["line 1 is 'tea', the original's 'café'"]
    assert (tmp_path / "train.py").read_bytes().endswith(b"'caf\xe9')\n")


def test_nothing_heavy_is_loaded_to_refuse(tmp_path: Path) -> None:
    code = (
        "import sys; from torchlift.runtime.verify.__main__ import main; assert main(['a.py']) == 3; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, stderr=subprocess.DEVNULL)
