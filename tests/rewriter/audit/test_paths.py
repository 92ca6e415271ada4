"""Where some processes leave, and where an error ends the whole job: each program beside one that differs in a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.rewriter.findings import Severity

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


STATE = (Path(__file__).parent / "fixtures" / "accelerate_state.py").read_text()
SAVE = '            accelerator.save_state("best")\n'
MAIN = "accelerator.is_main_process"
SHARDED = "accelerator.distributed_type == DistributedType.FSDP"


def saving(condition: str, above: str = "", method: str = 'save_state("best")') -> str:
    assert SAVE in STATE
    text = STATE.replace(SAVE, f"            {above}if {condition}:\n                accelerator.{method}\n")
    return "from accelerate import DistributedType\n" + text


ADMITTED = {
    "a comparison": (f"{MAIN} or {SHARDED}", ""),
    "a variable": (f"is_sharded or {MAIN}", f"is_sharded = {SHARDED}\n            "),
    "a variable for both": ("comes", f"comes = {MAIN} or {SHARDED}\n            "),
    "one of several": (f"epoch and ({MAIN} or {SHARDED})", ""),
    "a plug-in": (f"{MAIN} or accelerator.state.deepspeed_plugin is not None", ""),
}


@pytest.mark.parametrize("name", ADMITTED)
def test_all_processes_save_where_the_model_is_sharded(name: str, found: Callable[[str], set[str]]) -> None:
    condition, above = ADMITTED[name]
    assert found(saving(condition, above)) == set()
    assert found(saving(condition, above, "wait_for_everyone()")) == {"collective-apart"}, "this one always waits"


def test_the_main_process_alone_saves_the_state(told: Callable[[str], dict[str, Severity]]) -> None:
    assert told(saving(MAIN)) == {"collective-apart": Severity.REVIEW}
    assert told(saving(f"{MAIN} and {SHARDED}")) == {"collective-apart": Severity.REVIEW}
    settings = "project_config=ProjectConfiguration(automatic_checkpoint_naming=True)"
    numbered = saving(MAIN).replace('project_dir="logs"', settings)
    assert told(numbered) == {"collective-apart": Severity.ERROR}
    ours = saving(MAIN).replace("from accelerate.utils ", "from torchlift.runtime ")
    ours = ours.replace("from accelerate ", "from torchlift.runtime ")
    assert told(ours) == {"collective-apart": Severity.ERROR}
