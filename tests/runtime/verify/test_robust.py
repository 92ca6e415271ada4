"""Scripts that never end, ask, fork, exit, shout and write everywhere. Nothing of the user's changes."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Identity = Callable[..., Any]


def ended(seen: Any) -> str:
    return str(seen.verdict["runs"][0]["ended"])


def test_endless_training_is_ended_after_enough_steps(identity: Identity) -> None:
    seen = identity("while True:\n    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()\n")
    assert (seen.status, ended(seen)) == (0, "steps")
    assert "original: ended early, so later parts of the script were not compared" in seen.verdict["notes"]
    assert "files" in seen.untestable()


@pytest.mark.slow
def test_a_script_that_sleeps_is_ended_in_time(identity: Identity) -> None:
    seen = identity("while True: time.sleep(1)\n", options=("--limit", "10"))
    assert (seen.status, ended(seen)) == (0, "time")


def test_endless_output_is_ended(identity: Identity) -> None:
    assert ended(identity("while True: print('x' * 200_000)\n")) == "output"


def test_a_sampler_for_billions_of_rows_is_not_read_to_its_end(identity: Identity) -> None:
    """What counts steps asks a sampler for more rows than it will ever take."""
    seen = identity(
        "from torch.utils.data import DataLoader, RandomSampler\n"
        "rows = torch.ones(8, 4)\n"
        "many = RandomSampler(rows, replacement=True, num_samples=int(1e10))\n"
        "batches = iter(DataLoader(rows, 4, sampler=many))\n"
        "for _ in range(60):\n"
        "    optimizer.zero_grad(); model(next(batches)).sum().backward(); optimizer.step()\n",
        options=("--limit", "120"),
    )
    assert (seen.status, ended(seen)) == (0, "end")


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ("class Stream(IterableDataset):\n    def __iter__(self):\n        return repeat(torch.ones(4))\n", 0),
        ("def Stream():\n    return torch.ones(800, 4)\n", 0),
        ("def Stream():\n    return torch.ones(8, 4)\n", 2),
    ],
    ids=["an endless stream", "more rows than a shortened pass reads", "the script reads more than there is"],
)
def test_batches_that_are_taken_one_by_one_end_a_shortened_run(rows: str, status: int, identity: Identity) -> None:
    """A script that counts steps and takes `next(batches)` does not ask whether they are over: "the original fails"."""
    seen = identity(
        f"from itertools import repeat\nfrom torch.utils.data import DataLoader, IterableDataset\n{rows}"
        "batches = iter(DataLoader(Stream(), 4))\n"
        "for _ in range(60):\n"
        "    optimizer.zero_grad(); model(next(batches)).sum().backward(); optimizer.step()\n"
    )
    assert seen.status == status
    assert status or ended(seen) == "steps"


def test_a_script_that_asks_is_told_apart_from_its_migration(identity: Identity) -> None:
    seen = identity("input('how many epochs? ')\n")
    assert seen.status == 2
    assert seen.verdict["promises"] == []
    failure = seen.verdict["original_error"]
    assert failure["error"].startswith("EOFError")
    assert failure["at"] == "train.py:18"
    assert "input('how many epochs? ')" in failure["traceback"]
    assert "torchlift" not in failure["traceback"]


def test_wrong_arguments_of_the_script_are_the_scripts(identity: Identity) -> None:
    seen = identity("import argparse; argparse.ArgumentParser().parse_args()\n", "--no-such-thing", trains=False)
    assert seen.status == 2
    assert "unrecognized arguments: --no-such-thing" in seen.verdict["original_error"]["traceback"]


@pytest.mark.parametrize("source", ["sys.exit()\n", "sys.exit(0)\n", "raise SystemExit\n"])
def test_exit_is_an_end(identity: Identity, source: str) -> None:
    seen = identity(source)
    assert (seen.status, ended(seen)) == (0, "end")


def test_workers_and_stray_children_are_ended(identity: Identity) -> None:
    mark = f"9{secrets.randbelow(10**8):08}"
    source = f"""
for batch in DataLoader(TensorDataset(x), batch_size=8, num_workers=2):
    pass
os.system("sleep {mark} &")
if os.fork() == 0:
    os.setsid()
    time.sleep({mark})
"""
    assert identity(source).status == 0
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _read(p)]
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_nothing_of_the_users_changes(identity: Identity, tmp_path: Path) -> None:
    code, data = tmp_path / "project" / "code", tmp_path / "project" / "data"
    code.mkdir(parents=True)
    data.mkdir()
    (code / "notes.txt").write_text("mine\n")
    (code / "large.bin").write_bytes(b"0" * 1_500_000)
    for name in ("old.txt", "gone.txt", "moved.txt"):
        (data / name).write_text(f"{name}\n")
    identity("pass\n")  # writes the script
    source = """
open("notes.txt", "a").write("more\\n")
open("large.bin", "r+b").write(b"zz")
assert open("large.bin", "rb").read(3) == b"zz0"
open("../data/new.txt", "w").write("1")
open("../data/old.txt", "a").write("2")
assert open("../data/old.txt").read() == "old.txt\\n2"
os.makedirs("../data/deep/er")
os.chdir("../data")
os.remove("gone.txt"); os.rename("moved.txt", "there.txt")
torch.save(model.state_dict(), "weights.pt")
"""
    before = _state(tmp_path)
    seen = identity(source)
    assert seen.status == 0, seen.verdict
    after = _state(tmp_path)
    del before["project/code/train.py"], after["project/code/train.py"]
    assert after == before
    assert seen.of("files", 1)["detail"].startswith("../data/new.txt, ../data/old.txt, ../data/there.txt")
    assert "../data/weights.pt" in seen.of("checkpoints", 1)["detail"]


def test_folders_that_are_linked_are_never_emptied(identity: Identity, tmp_path: Path) -> None:
    code, data = tmp_path / "project" / "code", tmp_path / "project" / "data"
    code.mkdir(parents=True)
    for name in ("cache/deep", "old", "there", "empty"):
        (data / name).mkdir(parents=True)
        if name != "empty":
            (data / name / "mine.txt").write_text("mine")
    (code / "latest.txt").symlink_to(data / "missing.txt")
    identity("pass\n")
    before = _state(tmp_path)
    seen = identity("""
import shutil
os.chdir("../data/there")
open("new.txt", "w").write("1")
shutil.rmtree("../cache")
assert not os.path.exists("../cache")
os.rmdir("../empty")
os.chmod("../old", 0o700)
fd = os.open("../old", os.O_RDONLY)
os.unlink("mine.txt", dir_fd=fd)
assert os.listdir("../old") == []
open("../../code/latest.txt", "w").write("2")
""")
    assert seen.status == 0, seen.verdict["original_error"]
    after = _state(tmp_path)
    del before["project/code/train.py"], after["project/code/train.py"]
    assert after == before
    assert (data / "empty").is_dir()
    assert (data / "old").stat().st_mode & 0o777 != 0o700


def test_windows_stay_closed_and_much_output_is_borne(identity: Identity, tmp_path: Path) -> None:
    package = tmp_path / "project" / "code" / "matplotlib"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "pyplot.py").write_text(
        "import os\n"
        "def show():\n"
        "    assert os.environ['MPLBACKEND'] == 'Agg' and 'DISPLAY' not in os.environ, 'a window would open'\n"
    )
    seen = identity(
        "import matplotlib.pyplot as plt\nplt.show()\nfor n in range(6000): print(n, 'x' * 500)\n", DISPLAY=":0"
    )
    assert (seen.status, ended(seen)) == (0, "end"), seen.verdict["original_error"]


def _state(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_write_into_the_users_folder_is_refused(identity: Identity, tmp_path: Path) -> None:
    target = tmp_path / "project" / "code" / "absolute.txt"
    seen = identity(f"open({str(target)!r}, 'w')\n")
    assert seen.status == 2
    assert "by its absolute path" in seen.verdict["original_error"]["error"]
    assert not target.exists()


def test_a_write_elsewhere_is_reported(identity: Identity, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.txt"
    seen = identity(f"open({str(target)!r}, 'w').write('1')\n")
    assert seen.status == 0
    assert seen.verdict["runs"][0]["writes_elsewhere"] == [str(target)]
    assert any(note.endswith(f"for example {target}") for note in seen.verdict["notes"])


def test_keep_leaves_the_scratch_and_says_where(identity: Identity) -> None:
    import shutil

    seen = identity("open('result.txt', 'w').write('1')\n", options=("--keep",))
    folders = [Path(run["scratch"]) for run in seen.verdict["runs"]]
    try:
        assert [(folder / "result.txt").read_text() for folder in folders] == ["1", "1"]
    finally:
        for folder in folders:
            top = next(p for p in folder.parents if p.name.startswith("torchlift-verify-"))
            shutil.rmtree(top, ignore_errors=True)


def test_what_varies_by_itself_is_not_blamed(identity: Identity) -> None:
    seen = identity("import uuid\nprint('now %.9f' % time.time())\nopen(f'{uuid.uuid4()}.txt', 'w').write('1')\n")
    assert seen.status == 0, seen.broken()
    assert "two runs of the original differ in 1 line" in seen.of("numbers", 1)["detail"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_asked_to_end_it_cleans_up(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "train.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(900)\n")
    command = [sys.executable, "-m", "torchlift.runtime.verify", "train.py", "train.py", "--procs", "1", "--cpu"]
    place = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    running = subprocess.Popen(command, cwd=tmp_path, env=place, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while not list(tmp_path.glob("scratch/*/*/**/begun")) and time.monotonic() < until:
        time.sleep(0.1)
    running.send_signal(number)
    assert running.wait(300) == 130
    assert list((tmp_path / "scratch").glob("torchlift-verify-*")) == []


def test_windows_stay_closed(identity: Identity) -> None:
    assert (
        identity("assert os.environ['MPLBACKEND'] == 'Agg' and 'DISPLAY' not in os.environ\n", DISPLAY=":0").status == 0
    )


def test_an_error_of_the_migrated_script_is_its_own(tmp_path: Path, verify: Callable[..., Any]) -> None:
    (tmp_path / "before.py").write_text("print(1)\n")
    (tmp_path / "after.py").write_text("print(1)\n\nraise KeyError('lost')\n")
    seen = verify(tmp_path / "before.py", tmp_path / "after.py", options=("--procs", "1"))
    assert seen.status == 1
    assert seen.broken() == {"runs": "process 0 ends with KeyError at after.py:3: 'lost'"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.py", "after.py"), "there is no script 'nowhere.py'. Check the path"),
        (("after.py", "after.py", "--procs", "0"), "give different numbers of processes"),
        (("after.py", "after.py", "--procs", "x"), "--procs is 'x'"),
        (("after.py", "after.py", "--double", "--as-is"), "double needs exact mode"),
        (("after.py",), "name two scripts"),
    ],
)
def test_wrong_usage_is_status_3(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    (tmp_path / "after.py").touch()
    command = [sys.executable, "-m", "torchlift.runtime.verify", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, words in done.stderr) == (3, True), done.stderr
