"""What the sanitizer reports of real processes: each fault with its line, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchlift.runtime.monitoring.sanitizer.report import report

JOBS = Path(__file__).resolve().parents[2] / "jobs"


def lines_of(script: str) -> dict[str, int]:
    """The lines of a script that end with a comment, by its text."""
    text = (JOBS / script).read_text().splitlines()
    return {line.partition("  # ")[2]: number for number, line in enumerate(text, 1) if "  # " in line}


def found_at(outcome, script: str) -> dict[str, list[str]]:
    """The kinds of reports, by the comment of their lines."""
    names = {str(number): name for name, number in lines_of(script).items()}
    found: dict[str, list[str]] = {}
    for one in outcome.reports:
        path, _, line = one.at.rpartition(":")
        assert path == str(JOBS / script)
        found.setdefault(names.get(line, line), []).append(one.kind)
    return found


def flat(outcome) -> str:
    """The text without its line breaks."""
    return " ".join(outcome.text.split())


@pytest.fixture(scope="module")
def faults(sanitized, tmp_path_factory):
    folder, out = tmp_path_factory.mktemp("records"), tmp_path_factory.mktemp("out")
    sanitized("sanitized.py", folder, out)
    return report(folder)


LOGGED, COMPARED = "logged value differs", "compared value differs"
FAULTS = {
    "a loop that one rank may leave": [COMPARED],
    "a decision": [COMPARED],
    "a decision about a tensor": [COMPARED],
    "a condition that is a tensor": [COMPARED],
    "a value that is printed": [LOGGED],
    "a value that a logger writes, and a line of all ranks": [LOGGED, "line printed by several ranks"],
    "a value for a tracker": [LOGGED],
    "a value among others": [LOGGED],
    "a value that is saved": ["saved value differs"],
    "a line of all ranks": ["line printed by several ranks"],
    "a file of all ranks": ["file written by several ranks"],
    "a file that torch writes": ["file written by several ranks"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported_with_its_line(faults, fault):
    assert found_at(faults, "sanitized.py").get(fault) == FAULTS[fault]


def test_nothing_else_is_reported(faults):
    assert {at: kinds for at, kinds in found_at(faults, "sanitized.py").items() if at not in FAULTS} == {}


def test_each_is_one_row_of_a_table_with_its_count(faults):
    line = lines_of("sanitized.py")["a line of all ranks"]
    (row,) = [row for row in faults.text.splitlines() if f"sanitized.py:{line} " in row]
    assert row.split() == [
        "line",
        "printed",
        "by",
        "several",
        "ranks",
        row.split()[5],
        "2",
        "'everybody',",
        "by",
        "ranks",
        "0",
        "and",
        "1",
    ]
    assert faults.text.startswith(f"torchlift: sanitizer: {len(faults.reports)} reports (2 ranks)\n")


def test_values_of_one_ranks_rows_are_listed_apart(faults):
    apart = flat(faults).partition("because each rank trains on its own rows: values at ")[2].partition(". ")[0]
    assert apart.count("sanitized.py:") == 2  # the loss of a step, and that of the last one


def test_it_says_what_it_cannot_see(faults):
    assert "It cannot see: values that one rank alone compares, prints or saves;" in flat(faults)


def test_collectives_are_a_trace_with_their_lines(faults):
    path = Path(flat(faults).partition("with their lines, in ")[2].partition(" (for")[0])
    trace = json.loads(path.read_text())["traceEvents"]
    names = {entry["pid"]: entry["args"]["name"] for entry in trace if entry["ph"] == "M"}
    assert names == {0: "rank 0", 1: "rank 1"}
    calls = [entry for entry in trace if entry["ph"] == "X" and entry["pid"] == 1]
    assert [entry["args"]["number"] for entry in calls] == list(range(1, len(calls) + 1))
    assert all(entry["dur"] >= 0 and entry["ts"] >= 0 for entry in calls)
    text = (JOBS / "sanitized.py").read_text().splitlines()
    said = {
        (entry["name"].partition(" of")[0], text[int(entry["args"]["line"].rpartition(":")[2]) - 1].strip())
        for entry in calls
    }
    assert ("reduce sum", 'return accelerator.reduce(wrong, "sum").item()') in said
    assert ("backward", "accelerator.backward(loss)") in said


def test_weights_are_compared_after_every_step(sanitized, tmp_path):
    sanitized("sanitized_weights.py", tmp_path)
    (one,) = report(tmp_path).reports
    assert (one.kind, one.at) == (
        "weights differ",
        f"{JOBS}/sanitized_weights.py:{lines_of('sanitized_weights.py')['weights']}",
    )
    assert one.text == "1 of 4 weights differ after step 4 of SGD between rank 0 and rank 1; the first is `1.weight`"
    assert one.times == 3


def test_shards_are_compared_with_those_of_the_other_replica(sanitized, tmp_path):
    found = {}
    for case in ("alike", "apart"):
        sanitized("sharded_replicas.py", tmp_path / case, case, ranks=4, TORCHLIFT_MONITOR="0")
        found[case] = [one for one in report(tmp_path / case).reports if "RESULT" not in one.text]
    assert found["alike"] == []
    (one,) = found["apart"]
    line = lines_of("sharded_replicas.py")["weights"]
    assert (one.kind, one.at) == ("weights differ", f"{JOBS}/sharded_replicas.py:{line}")
    assert one.text == "1 of 4 weights differ after step 2 of SGD between rank 1 and rank 3; the first is `body.weight`"


def test_scripts_that_know_nothing_of_us(sanitized, tmp_path):
    sanitized("sanitized_ddp.py", tmp_path)
    outcome = report(tmp_path)
    assert found_at(outcome, "sanitized_ddp.py") == {"a decision": [COMPARED]}
    trace = json.loads((tmp_path / "collectives.json").read_text())["traceEvents"]
    line = lines_of("sanitized_ddp.py")["a collective"]
    assert [entry["args"]["line"] for entry in trace if entry["name"] == "all_reduce of []"] == [
        f"{JOBS}/sanitized_ddp.py:{line}"
    ] * 2


def test_a_script_that_fails_is_compared_as_far_as_it_came(sanitized, tmp_path):
    statuses = [status for status, _ in sanitized("sanitized_ddp.py", tmp_path, "fails", fails=True)]
    assert statuses[0] == 7
    assert found_at(report(tmp_path), "sanitized_ddp.py") == {"a decision": [COMPARED]}


LATE = """
import torch
from torchlift.runtime import Accelerator
accelerator = Accelerator()
print("everybody")
if torch.ones(()).item() < accelerator.process_index + 1.5:
    pass
accelerator.wait_for_everyone()
"""


def test_without_our_launcher_rank_0_reports(job_text, tmp_path):
    (status, main), (other_status, other) = job_text(LATE, 2, fails=True, TORCHLIFT_SANITIZE="1", TMPDIR=str(tmp_path))
    assert (status, other_status, other) == (0, 0, "everybody\n")
    said = " ".join(main.split())
    assert "torchlift: sanitizer: 1 report (2 ranks)" in said
    assert "line printed by several ranks script.py:5 1 'everybody', by ranks 0 and 1" in said.replace(
        f"{tmp_path}/", ""
    )
    assert "no value that it compares, logs or saves" in said


FIXTURES = Path(__file__).resolve().parents[4] / "fixtures"
MIGRATED = {
    "best_model": "--epochs 3",
    "bf16_autocast": "--epochs 1",
    "fp16_scaler": "--epochs 1",
    "gan": "--n_epochs 1",
    "grad_accumulation": "--epochs 1",
    "mnist_functions": "--epochs 1 --save-model",
    "module_level": "",
    "phases": "",
    "resume_checkpoint": "--epochs 2",
    "run_folder": "",
    "scheduler_per_step": "--epochs 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MIGRATED)
def test_nothing_is_reported_of_a_migrated_script(sanitized, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    sanitized(str(FIXTURES / name / "after.py"), tmp_path / "records", *MIGRATED[name].split())
    found = report(tmp_path / "records")
    assert found.reports == []
    assert "(2 ranks)" in found.text
    assert "Collective calls: 0" not in found.text
