"""Where some processes leave, and where an error ends the whole job: each program beside one that differs in a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parent / "fixtures" / "ddp_torchrun.py").read_text()
DATA = "    data = TensorDataset"
EXISTS = 'os.path.exists("run")'


def before_data(lines: str) -> str:
    """The script with other lines before it makes its data."""
    assert DATA in SCRIPT
    return SCRIPT.replace(DATA, "".join(f"    {line}\n" for line in lines.split("\n")) + DATA)


ENDS_THE_JOB = {
    "an error of the first process": f"if rank == 0:\n    if {EXISTS}:\n        raise RuntimeError('there')",
    "an error of the others": "if torch.cuda.device_count() == 1 and rank != 0:\n    raise ValueError('one GPU')",
    "an exit with a status": f"if rank == 0 and {EXISTS}:\n    sys.exit(1)",
    "an exit with a text": f"if rank == 0 and {EXISTS}:\n    sys.exit('the folder is there')",
    "an error that is caught at once": (
        "if rank == 0:\n    try:\n        raise OSError\n    except OSError:\n        print('no folder')"
    ),
    "an error that is raised again": (
        f"try:\n    if rank == 0 and {EXISTS}:\n        raise OSError\n    dist.barrier()\n"
        "except OSError:\n    print('no')\n    raise"
    ),
}
LEAVES = {
    "a return": f"if rank == 0 and {EXISTS}:\n    return",
    "an exit": f"if rank == 0 and {EXISTS}:\n    sys.exit()",
    "an exit with success": f"if rank == 0 and {EXISTS}:\n    sys.exit(0)",
    "an exit by its exception": f"if rank == 0 and {EXISTS}:\n    raise SystemExit",
    "an error that is caught later": (
        f"try:\n    if rank == 0 and {EXISTS}:\n        raise OSError\n    dist.barrier()\n"
        "except OSError:\n    print('no')"
    ),
}


@pytest.mark.parametrize("name", ENDS_THE_JOB)
def test_an_error_of_one_process_ends_the_job(name: str, found: Callable[[str], set[str]]) -> None:
    assert found("import sys\n" + before_data(ENDS_THE_JOB[name])) == set()


@pytest.mark.parametrize("name", LEAVES)
def test_a_process_that_leaves_is_waited_for(name: str, found: Callable[[str], set[str]]) -> None:
    assert found("import sys\n" + before_data(LEAVES[name])) == {"collective-apart"}


def test_an_error_of_the_first_process_guards_nothing(found: Callable[[str], set[str]]) -> None:
    """What follows it runs on every process."""
    write = "json.dump({}, open('settings.json', 'w'))"
    error = before_data(f"if rank == 0 and {EXISTS}:\n    raise RuntimeError('the folder is there')\n{write}")
    assert found("import json\n" + error) == {"unguarded-write"}
