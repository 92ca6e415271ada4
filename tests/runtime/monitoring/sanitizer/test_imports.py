"""The files of a script, and no others, run in their rewritten form."""

from __future__ import annotations

import json
import os

import pytest

from torchlift.runtime.monitoring.sanitizer.imports import ScriptCode
from torchlift.runtime.monitoring.sanitizer.rewriting import LOSS


def test_a_file_without_calls_keeps_its_name_space():
    code = ScriptCode({LOSS: lambda value: value})
    names: dict[str, object] = {}
    code.run(b"rate = 0.1\n", "settings.py", names)
    assert set(names) == {"rate", "__builtins__"}
    code.run(b"def train(loss): loss.backward()\n", "train.py", names)
    assert LOSS in names


SCRIPT = """
import os
import sys
sys.path.insert(0, os.path.dirname(__file__))
import torch
import helper

@torch.jit.script
def scripted(x: float):
    return 1.0 if x > 2.0 else x

@torch.compile(backend="eager", fullgraph=True)
def compiled(x: torch.Tensor, limit: float):
    if limit > 2.0:
        return x * 2
    return x

print(sys.argv[1:], __name__, helper.at_least(3), scripted(2.5), compiled(torch.ones(1), 2.5).item())
raise ValueError("its own")
"""


@pytest.fixture(scope="module")
def ran(forks, tmp_path_factory):
    """What a script has printed that imports another file; its errors; and what was recorded."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "script.py").write_text(SCRIPT)
    (folder / "helper.py").write_text("def at_least(x):\n    return x >= 3.0\n")
    argv = ["-m", "torchlift.runtime.monitoring.sanitizer", "script.py", "--more"]
    place = {"TORCHLIFT_SANITIZE_FOLDER": str(folder / "records"), "OMP_NUM_THREADS": "1"}
    process = forks.start(argv, folder, {**os.environ, **place}, apart=True)
    assert process.wait(300) == 1
    printed, errors = process.output()
    events = [json.loads(line) for line in (folder / "records" / "rank0.jsonl").read_text().splitlines()]
    return printed, errors, events


def test_it_runs_as_python_runs_it(ran):
    assert ran[0] == "['--more'] __main__ True 1.0 2.0\n"


def test_its_errors_are_shown_without_our_frames(ran):
    shown = ran[1].splitlines()
    assert shown[-1] == "ValueError: its own"
    assert [line.partition(", in")[0].rpartition("/")[2] for line in shown if line.startswith("  File")] == [
        'script.py", line 19'
    ]


def test_files_that_it_imports_are_rewritten(ran):
    (compared,) = [event for event in ran[2] if event["e"] == "compared"]
    assert (compared["at"].rpartition("/")[2], compared["x"], compared["v"]) == ("helper.py:2", "x >= 3.0", [3, 3.0])


def test_what_was_not_launched_by_us_is_still_recorded_to_its_end(ran):
    assert ran[2][-1]["e"] == "end"
