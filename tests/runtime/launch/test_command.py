"""The `torchlift launch` command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from torchlift.runtime.errors import LaunchError
from torchlift.runtime.launch.command import main
from torchlift.runtime.launch.plan import Job, plan

COMMAND = [sys.executable, "-m", "torchlift.runtime.launch.command", "launch"]


def launch(*arguments, **more):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=400, **more)


@pytest.fixture
def script(tmp_path):
    def write(source):
        path = tmp_path / "script.py"
        path.write_text("import os, sys, time\nrank = int(os.environ['RANK'])\n" + source)
        return path

    return write


def test_the_version_is_shown() -> None:
    done = CliRunner().invoke(main, ["--version"])
    assert done.exit_code == 0
    assert re.fullmatch(r"torchlift \d+\.\d+\S*\n", done.output)


def test_processes_know_each_other(script):
    path = script("""
from torchlift.runtime import Accelerator
accelerator = Accelerator(cpu=True)
import torch
sys.stdout.write(f"{accelerator.gather(torch.tensor([rank])).tolist()} {accelerator.num_processes}\\n")
accelerator.wait_for_everyone()
accelerator.print("once", accelerator.split_batches, accelerator.mixed_precision)
""")
    done = launch("--num_processes", 2, "--split-batches", "--mixed-precision=bf16", "--cpu", path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0, 1] 2", "[0, 1] 2", "once True bf16"]
    assert done.stderr == ""


SPEAKS = "print('out', rank); sys.stderr.write(f'err {rank}\\n'); sys.stdout.write('no end')"


@pytest.mark.parametrize(
    ("arguments", "shown", "said", "written"),
    [
        (["--log-dir"], ["[rank0]: no end", "[rank0]: out 0", "[rank1]: no end", "[rank1]: out 1"], 2, 4),
        (["--tee", "1", "--log-dir"], ["[rank0]: no end", "[rank0]: out 0", "[rank1]: no end", "[rank1]: out 1"], 2, 2),
        (["--redirects=3", "-t", "0:1", "--log_dir"], ["[rank0]: no end", "[rank0]: out 0"], 0, 4),
        (["-r", "1:3", "--log-dir"], ["no endout 0"], 1, 2),
    ],
    ids=["both everywhere", "stdout to both", "all to files, and stdout of one to the terminal", "one process only"],
)
def test_what_processes_print_goes_to_files(script, tmp_path, arguments, shown, said, written):
    done = launch("--num-processes", 2, *arguments, tmp_path / "logs", script(SPEAKS))
    assert done.returncode == 0, done.stderr
    where, *errors = done.stderr.splitlines()
    (folder,) = (tmp_path / "logs").iterdir()
    assert where.endswith(str(folder)) and len(errors) == said
    if shown != ["no endout 0"]:
        assert sorted(done.stdout.replace("no end", "no end\n").split("\n"))[-len(shown) :] == shown
    files = sorted(folder.rglob("*.log"))
    assert len(files) == written
    for file in files:
        rank = file.parent.name
        assert file.read_text() == (f"out {rank}\nno end" if file.stem == "stdout" else f"err {rank}\n")


def test_files_for_what_is_printed_are_of_every_attempt(script, tmp_path):
    path = script("print('attempt', os.environ.get('TORCHELASTIC_RESTART_COUNT')); sys.exit(1)")
    assert launch("--max-restarts", 1, "-r", "3", "--log-dir", tmp_path / "logs", path).returncode == 1
    found = {file.parent.parent.name: file.read_text() for file in (tmp_path / "logs").rglob("stdout.log")}
    assert found == {"attempt_0": "attempt None\n", "attempt_1": "attempt 1\n"}
    wrong = launch("--tee", "4", path)
    assert wrong.returncode and "--tee is '4': give 1 for stdout" in wrong.stderr


def test_torchrun_starts_the_same_script(script):
    path = script("""
from torchlift.runtime import Accelerator
accelerator = Accelerator(cpu=True)
accelerator.print(accelerator.num_processes, accelerator.distributed_type)
""")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.stdout == "2 MULTI_CPU\n", done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--n", "5"],
        ["--help"],
        ["--num_processes", "7"],
        ["--", "-x"],
        ["a b", "--k=v w", "", "-m"],
        ["--cpu", "launch"],
    ],
)
def test_what_follows_the_script_is_the_scripts(script, arguments):
    path = script("print(sys.argv[1:])")
    assert launch("--num-processes", 1, path, *arguments).stdout == f"{arguments}\n"
    assert launch("--num-processes=1", "--", path, *arguments).stdout == f"{arguments}\n"


def test_a_module_is_run_as_python_does(script):
    path = script("print(__name__, sys.argv[1:])")
    done = launch("-m", "script", "--flag", cwd=path.parent)
    assert done.stdout == "__main__ ['--flag']\n", done.stderr


def test_the_first_failure_ends_the_job(script):
    path = script("if rank == 1: sys.exit(7)\ntime.sleep(600)")
    begin = time.monotonic()
    done = launch("--num-processes", 3, path)
    assert done.returncode == 7
    assert "process 1 failed with exit status 7" in done.stderr
    assert time.monotonic() - begin < 300


@pytest.mark.slow
def test_a_traceback_is_shown_and_a_stubborn_process_is_ended(script):
    path = script("""
import signal
if rank == 1: time.sleep(0.3); raise ValueError("on purpose")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
""")
    done = launch("--num-processes", 2, path)
    assert done.returncode == 1
    assert "ValueError: on purpose" in done.stderr


def test_a_signal_is_an_exit_status_as_in_a_shell(script):
    path = script("os.kill(os.getpid(), 9)")
    done = launch(path)
    assert done.returncode == 137
    assert "signal 9" in done.stderr


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().split()[2] != "Z"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_behind(script, tmp_path, number):
    path = script("open(f'{sys.argv[1]}/{os.getpid()}', 'w').close()\ntime.sleep(600)")
    ready = tmp_path / "ready"
    ready.mkdir()
    with subprocess.Popen([*COMMAND, "--num-processes", "2", path, ready], stderr=subprocess.PIPE) as launcher:
        until = time.monotonic() + 300
        while len(list(ready.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        launcher.send_signal(number)
        launcher.wait(300)
    assert launcher.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    children = [int(p.name) for p in ready.iterdir()]
    assert len(children) == 2
    while any(map(alive, children)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, children))


SAVES = """
import signal, subprocess
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
open(f"{sys.argv[1]}/{rank}", "w").close()
while not asked:
    time.sleep(0.01)
time.sleep(0.5)
with open(f"{sys.argv[1]}/{rank}", "w") as saved:
    saved.write(f"{worker.poll()} {len(asked)}")
"""


def test_a_job_that_is_asked_to_end_may_save_with_its_workers(script, tmp_path):
    ready = tmp_path / "ready"
    ready.mkdir()
    with subprocess.Popen([*COMMAND, "--num-processes", "2", script(SAVES), ready]) as launcher:
        until = time.monotonic() + 300
        while len(list(ready.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        launcher.send_signal(signal.SIGTERM)
        launcher.wait(300)
    assert launcher.returncode == 128 + signal.SIGTERM
    assert [(ready / str(rank)).read_text() for rank in range(2)] == ["None 1"] * 2, "the worker lives; asked once"


def test_bad_usage_is_one_clear_line(tmp_path):
    for arguments, words in (
        ([tmp_path / "none.py"], "there is no script"),
        (["--num-processes", "0", __file__], "0 is not in the range"),
        (["--frobnicate", __file__], "--frobnicate"),
        (["--num-processes", "2"], "SCRIPT"),
    ):
        done = launch(*arguments)
        assert done.returncode in (2, 3)
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_help():
    done = CliRunner().invoke(main, ["--help"])
    assert done.exit_code == 0
    assert "launch" in done.output


def test_the_plan_is_pure():
    job = Job(num_processes=2, command=("x.py", "--n"), port=1234, cpu=True)
    first, second = plan(job, {"HOME": "/h"}, cores=8)
    assert first.command == (sys.executable, "-u", "x.py", "--n")
    assert (first.environment["RANK"], second.environment["LOCAL_RANK"]) == ("0", "1")
    assert first.environment["OMP_NUM_THREADS"] == "4"
    assert plan(job, {"OMP_NUM_THREADS": "3"}, cores=8)[0].environment["OMP_NUM_THREADS"] == "3"
    alone = plan(Job(num_processes=1, command=("x.py",), port=1), {}, cores=8)
    assert "OMP_NUM_THREADS" not in alone[0].environment, "one process has the machine to itself"
    assert first.environment["PYTHONHASHSEED"] == second.environment["PYTHONHASHSEED"] == "0"
    assert plan(job, {"PYTHONHASHSEED": "7"}, cores=8)[0].environment["PYTHONHASHSEED"] == "7"
    assert "PYTHONHASHSEED" not in alone[0].environment, "one process orders its sets as Python does"
    with pytest.raises(LaunchError):
        plan(Job(num_processes=0, command=("x",), port=1), {})
