"""Originals that are distributed by hand: N processes of theirs are what N of the migrated script are compared with."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchlift.runtime.process.system import get_free_port
from torchlift.runtime.verify import by_hand
from torchlift.runtime.verify.traces import RankTrace, RunTrace

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
TWO = ("--distributed", "--procs", "2", "--steps", "4")


def _torchrun(where: Path) -> tuple[Path, Path]:
    folder = Path(shutil.copytree(FIXTURES / "torchrun_ddp", where / "torchrun"))
    return folder / "before.py", folder / "after.py"


def _spawn(where: Path) -> tuple[Path, Path]:
    folder = Path(shutil.copytree(FIXTURES / "program_spawn", where / "spawn"))
    return folder / "before" / "train.py", folder / "after" / "train.py"


def _edited(path: Path, before: str, after: str) -> Path:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    return path


@pytest.mark.parametrize("pair", [_torchrun, _spawn], ids=["torchrun", "mp.spawn"])
def test_two_processes_of_both(pair: Any, tmp_path: Path, verify: Callable[..., Any]) -> None:
    seen = verify(*pair(tmp_path), "--epochs", "1", options=TWO)
    assert (seen.status, seen.broken(), seen.untestable()) == (0, {}, set()), seen.errors
    assert seen.of("weights")["detail"].startswith("to ")
    assert [run["processes"] for run in seen.verdict["runs"]] == [2, 2]
    assert any("N of the original" in note for note in seen.verdict["notes"])


def test_a_wrong_migration_is_broken(tmp_path: Path, verify: Callable[..., Any]) -> None:
    before, after = _torchrun(tmp_path)
    _edited(after, "rank=accelerator.process_index\n    )\n    train_loader", "rank=0\n    )\n    train_loader")
    _edited(after, "if accelerator.is_main_process:\n            print", "if True:\n            print")
    _edited(after, "if accelerator.is_main_process:\n        torch.save", "if True:\n        torch.save")
    seen = verify(before, after, "--epochs", "1", options=TWO)
    assert seen.status == 1
    assert {"samples", "losses", "weights", "lines", "files"} <= set(seen.broken())
    assert seen.of("lines")["detail"].startswith("process 1 also prints it: 'epoch 0")


def test_a_line_before_the_processes_is_the_first_ones_alone(tmp_path: Path, verify: Callable[..., Any]) -> None:
    before, after = _spawn(tmp_path)
    for path in (before, after):
        _edited(path, "args = parser.parse_args()", "args = parser.parse_args()\n    print('starts')")
        _edited(path, "    torch.manual_seed(args", "    print('seeds')\n    torch.manual_seed(args")
    seen = verify(before, after, "--epochs", "1", options=TWO)
    assert seen.broken() == {"lines": "process 1 also prints it: 'starts'"}, seen.errors


def test_another_number_of_processes_is_nothing_to_compare_with(tmp_path: Path, verify: Callable[..., Any]) -> None:
    before, after = _spawn(tmp_path)
    seen = verify(before, after, "--epochs", "1", options=("--distributed", "--procs", "1", "--steps", "2"))
    assert (seen.status, seen.broken()) == (2, {})
    assert {p["outcome"] for p in seen.verdict["promises"]} == {"not testable"}
    assert seen.of("weights", 1)["detail"] == "the original starts 2 processes here instead of 1"


@pytest.mark.slow
def test_what_needs_accelerators_is_not_blamed_on_the_migration(tmp_path: Path, verify: Callable[..., Any]) -> None:
    before, after = _torchrun(tmp_path)
    _edited(before, '"nccl" if use_cuda else "gloo"', '"nccl"')
    seen = verify(before, after, options=TWO)
    assert (seen.status, seen.verdict["promises"]) == (2, [])
    assert "NCCL" in seen.verdict["original_error"]["error"]
    _edited(before, '"nccl"', '"nccl" if int(os.environ["WORLD_SIZE"]) > 1 else "gloo"')
    seen = verify(before, after, "--epochs", "1", options=("--distributed", "--steps", "2"))
    assert (seen.status, seen.broken()) == (0, {})
    assert seen.of("weights", 1)["outcome"] == "held"
    assert seen.of("weights")["outcome"] == "not testable"
    assert seen.of("weights")["detail"].startswith("the original does not run on 2 processes: ")


HANGS = {
    "in the script, without a group": ("dist.destroy_process_group()", "dist.destroy_process_group()\n    {hang}"),
    "after the script": (
        "    main()\n",
        "    main()\n    import threading\n    threading.Thread(target=lambda: {hang}).start()\n",
    ),
}


@pytest.mark.parametrize(
    "where", [pytest.param(name, marks=pytest.mark.slow if "without" in name else ()) for name in HANGS]
)
@pytest.mark.slow
def test_a_process_that_does_not_end_has_trained(where: str, tmp_path: Path, verify: Callable[..., Any]) -> None:
    before, after = _torchrun(tmp_path)
    text, more = HANGS[where]
    _edited(before, text, more.replace("{hang}", "__import__('time').sleep(int(os.environ['RANK']) * 999)"))
    seen = verify(before, after, "--epochs", "1", options=(*TWO, "--wait", "10"))
    assert (seen.status, seen.broken()) == (0, {}), seen.errors
    assert seen.of("weights")["outcome"] == seen.of("losses")["outcome"] == "held"
    assert [run["ended"] for run in seen.verdict["runs"]] == ["leaving", "end"]
    assert any("original on 2: a process did not end after the training" in x for x in seen.verdict["notes"])


@pytest.mark.slow
def test_a_migrated_script_that_does_not_end_is_broken(tmp_path: Path, verify: Callable[..., Any]) -> None:
    before, after = _torchrun(tmp_path)
    hang = (
        "import threading, time\n    threading.Thread(target=time.sleep, args=(999 * int(os.environ['RANK']),)).start()"
    )
    _edited(after, "    main()\n", f"    main()\n    import os\n    {hang}\n")
    seen = verify(before, after, "--epochs", "1", options=(*TWO, "--wait", "10"))
    assert (seen.status, set(seen.broken())) == (1, {"runs"}), seen.broken()
    assert seen.of("runs")["detail"].startswith("it was ended: its training is over, but its processes do not end")


@pytest.mark.slow
def test_a_port_that_something_else_holds_is_not_asked_for(tmp_path: Path, verify: Callable[..., Any]) -> None:
    before, after = _torchrun(tmp_path)
    with socket.socket() as holds:
        holds.bind(("", 0))
        holds.listen()
        port = holds.getsockname()[1]
        own = f"os.environ['MASTER_PORT'] = '{port}'\n    dist.init_process_group("
        _edited(before, "dist.init_process_group(", own)
        seen = verify(before, after, "--epochs", "1", options=TWO)
        assert (seen.status, seen.broken(), seen.untestable()) == (0, {}, set()), seen.errors
        meet = f"dist.init_process_group(init_method='tcp://127.0.0.1:{port}', "
        meet += "rank=int(os.environ['RANK']), world_size=int(os.environ['WORLD_SIZE']), "
        _edited(before, own, meet)
        seen = verify(before, after, "--epochs", "1", options=TWO)
        assert (seen.status, seen.broken(), seen.untestable()) == (0, {}, set()), seen.errors


@pytest.mark.slow
def test_a_port_in_use_is_waited_for(identity: Callable[..., Any]) -> None:
    """Here it is the other run that holds it: both go on at the same time."""
    listens = "import socket\nown = socket.socket()\nown.bind(('127.0.0.1', {port}))\nown.listen()\ntime.sleep(2)\n"
    seen = identity(listens.replace("{port}", str(get_free_port())))
    assert (seen.status, seen.broken()) == (0, {}), seen.verdict


def test_a_group_lives_as_long_as_its_process(identity: Callable[..., Any]) -> None:
    """What ends it beside python, the reducer of a wrapped model, may wait for a thread that waits for python."""
    seen = identity(
        "import gc, weakref\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "wrapped = torch.nn.parallel.DistributedDataParallel(model)\n"
        "group = weakref.ref(dist.group.WORLD)\n"
        "dist.destroy_process_group()\n"
        "del wrapped\ngc.collect()\n"
        "assert group() is not None\n"
    )
    assert seen.status == 0, seen.verdict["original_error"]


def traced(*ranks: list[dict[str, Any]], ended: str = "", status: int = 0) -> RunTrace:
    processes = [RankTrace(n, [{"t": 0.0, **event} for event in events], status) for n, events in enumerate(ranks)]
    return RunTrace("original", processes, ended=ended)


GROUP = {"e": "group", "size": 2}
GONE = {"e": "ungroup"}
ERROR = {"e": "error", "kind": "RuntimeError", "message": "no GPUs found\nx", "at": "a.py:1"}


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (traced([GROUP], [GROUP]), ""),
        (traced([GROUP], []), "do not connect: no process group of 2"),
        (traced([], []), "do not connect: no process group of 2"),
        (traced([]), "opens no process group and makes no optimizer step"),
        (traced([{"e": "step"}]), ""),
        (
            traced([{"e": "spawned", "n": 0}], [{"e": "spawned", "n": 0}]),
            "starts 0 processes here instead of 2",
        ),
        (traced([{"e": "spawned", "n": -1}], [GROUP]), "in a way in which they cannot be watched"),
        (traced([GROUP, ERROR], [GROUP], status=1), "does not run on 2 processes: RuntimeError: no GPUs found"),
        (traced([GROUP], [GROUP], status=3), "does not run on 2 processes: process 0 ends with status 3"),
        (traced([GROUP, GONE], [GROUP, GONE], ended="leaving"), ""),
        (traced([GROUP], [GROUP], ended="wait"), "does not run on 2 processes: process 0 is at"),
    ],
)
def test_what_stands_in_the_way(trace: RunTrace, words: str) -> None:
    found = by_hand.obstacle(trace)
    assert found.endswith("no GPUs found") if "no GPUs" in words else bool(found) == bool(words)
    assert words in found


LINE, LEFT = {"e": "line"}, {"e": "left"}
CALL, DONE = {"e": "coll", "op": "barrier", "at": "a.py:1"}, {"e": "done"}


@pytest.mark.parametrize(
    ("events", "leaving"),
    [
        ([], False),
        ([GROUP, CALL, DONE], False),
        ([GROUP, CALL, DONE, GONE], True),
        ([GROUP, GONE, LINE], True),
        ([GROUP, GONE, GROUP, LINE], False),
        ([GROUP, LEFT], True),
        ([GROUP, CALL, LEFT], False),
        ([GROUP, GONE, ERROR, LEFT], False),
    ],
)
def test_whose_training_is_over(events: list[dict[str, Any]], leaving: bool) -> None:
    assert RankTrace(0, events, None).leaving is leaving


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (b"import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)", True),
        (b"from torch.multiprocessing import start_processes\nstart_processes (main)", True),
        (b"import torch.multiprocessing as mp\nmp.set_start_method('spawn')", False),
        (b"import numpy\nseeds = sequence.spawn(4)", False),
    ],
)
def test_who_starts_processes(text: bytes, answer: bool) -> None:
    assert by_hand.spawns([b"", text]) is answer
