"""Where some processes leave, and where an error ends the whole job: each program beside one that differs in a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.rewriter.audit.audit import audit
from torchlift.rewriter.config import Config
from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.source import decode

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
    "a plug-in that is looked up": (
        f"{MAIN} or is_sharded",
        "is_sharded = getattr(accelerator.state, 'fsdp_plugin', None) is not None\n            ",
    ),
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


ONE_PROCESS = {
    "an assertion": "assert dist.get_world_size() == 1",
    "an error": "if dist.get_world_size() != 1:\n    raise ValueError('one process only')",
    "no rank": "assert local_rank == -1, 'one process only'",
    "an error of a rank": "if local_rank != -1:\n    raise ValueError('one process only')",
    "an error of more": "size = dist.get_world_size()\nif size > 1:\n    raise ValueError('one process only')",
}
SEVERAL = {
    "an assertion of a rank": "assert local_rank != -1",
    "an assertion of another number": "assert epochs == -1",
    "an assertion of more": "assert dist.get_world_size() > 1",
    "an error of one": "if dist.get_world_size() == 1:\n    raise ValueError('one process is too few')",
    "another choice": "if dist.get_world_size() > 1:\n    print('several')",
}
WRITE = "    with open('a', 'w') as file:\n        file.write('1')\n"


@pytest.mark.parametrize("name", [*ONE_PROCESS, *SEVERAL])
def test_a_script_that_stops_if_there_are_several(name: str, found: Callable[[str], set[str]]) -> None:
    text = before_data({**ONE_PROCESS, **SEVERAL}[name]).replace(DATA, f"{WRITE}{DATA}")
    assert found(text) == (set() if name in ONE_PROCESS else {"unguarded-write"})
    early = before_data({**ONE_PROCESS, **SEVERAL}[name]).replace("    dist.init", f"{WRITE}    dist.init", 1)
    assert found(early) == {"unguarded-write"}, "the check comes after it"


def test_a_function_that_is_only_called_on_one_process(found: Callable[[str], set[str]]) -> None:
    helper = f"def write():\n{WRITE}\n\ndef main():"
    check = ONE_PROCESS["an assertion"]
    assert found(before_data(f"{check}\nwrite()").replace("def main():", helper)) == set()
    assert found(before_data(f"write()\n{check}\nwrite()").replace("def main():", helper)) == {"unguarded-write"}


FORBIDDEN = {
    "an assertion": "assert not search, 'one process only'",
    "an error": "if search:\n        raise ValueError('one process only')",
}
ALLOWED = {
    "another word": "assert not rank_table",
    "the opposite": "assert search",
    "a warning": "if search:\n        print('slow')",
}


@pytest.mark.parametrize("name", [*FORBIDDEN, *ALLOWED])
def test_a_way_that_several_processes_may_not_go(name: str, found: Callable[[str], set[str]]) -> None:
    check = {**FORBIDDEN, **ALLOWED}[name]
    lines = "search = 'SEARCH' in os.environ\nrank_table = None\nif TEST:\n    CHECK\n"
    lines += "if not search:\n    print('train')\nelse:\n"
    text = before_data(lines.replace("CHECK", check) + WRITE.rstrip("\n"))
    several = text.replace("TEST", "dist.get_world_size() > 1")
    assert found(several) == (set() if name in FORBIDDEN else {"unguarded-write"})
    assert found(text.replace("TEST", "epochs")) == {"unguarded-write"}, "it is not about several processes"


KEPT = """\
import functools


DECORATOR
def score(number):
    total = torch.tensor(float(number))
    dist.all_reduce(total)
    return total.item()


def main():"""


def test_a_result_that_is_kept(told: Callable[[str], dict[str, Severity]], words: Callable[[str], list[str]]) -> None:
    """Where all processes have asked for it, the first one finds it."""
    both = before_data("best = min(range(3), key=lambda n: score(n))\nif rank == 0:\n    print(score(best))")
    alone = before_data("if rank == 0:\n    print(score(1))")
    for decorator in ("@functools.cache", "@functools.lru_cache(maxsize=None)"):
        kept = KEPT.replace("DECORATOR", decorator)
        assert told(both.replace("def main():", kept)) == {"collective-apart": Severity.REVIEW}
        assert "`score` has its result by then" in words(both.replace("def main():", kept))[0]
        assert told(alone.replace("def main():", kept)) == {"collective-apart": Severity.ERROR}
    plain = KEPT.replace("DECORATOR\n", "")
    assert told(both.replace("def main():", plain)) == {"collective-apart": Severity.ERROR}


def test_fabric_on_one_device_is_not_distributed() -> None:
    text = (Path(__file__).parent / "fixtures" / "fabric_basic.py").read_text()
    made = next(line for line in text.split("\n") if "Fabric(" in line)
    layout = ModulePaths({ENTRY: Place(ENTRY)})
    for devices, distributed in {
        "devices=1": False,
        "devices=2": True,
        "devices=1, num_nodes=2": True,
        "": True,
    }.items():
        changed = text.replace(made, f"{made.partition('(')[0]}({devices})")
        assert (audit([decode(changed.encode(), Path("t.py"))], Config(), layout) is not None) is distributed, devices


LOOKED_FOR = """\
def joined(number):
    total = torch.ones(number)
    dist.all_reduce(total)
    return total


def table(path):
    if not os.path.exists(path):
        made = getattr(os, "made", None) if "KEEP" in os.environ else None
        if made is None:
            FIRST
            made = joined(3)
        if dist.get_rank() == 0:
            torch.save(made, path)
    else:
        made = torch.load(path)
    return made


def main():"""


def test_a_collective_before_the_file_is_made_that_is_looked_for(found: Callable[[str], set[str]]) -> None:
    """Who makes the file has met all the others by then."""
    text = before_data('table("table.pt")').replace("def main():", LOOKED_FOR)
    assert found(text.replace("FIRST", "print(path)")) == set()
    early = text.replace("FIRST", "torch.save([], path)")
    assert found(early) == {"collective-apart", "unguarded-write"}
    alone = text.replace("            FIRST\n", "").replace("if made is None:", "if dist.get_rank() == 0:")
    assert found(alone) == {"collective-apart"}
