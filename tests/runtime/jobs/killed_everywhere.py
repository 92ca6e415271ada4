"""Saves that are killed before every single change of the file system; what is left must be whole, every time."""

import os
import shutil
import signal
import sys
import traceback
from itertools import count
from pathlib import Path

import torch

from torchlift.runtime import Accelerator, CheckpointError, ProjectConfiguration
from torchlift.runtime.checkpoint.folders import files_of, problems

folder = Path(sys.argv[1])
START, WORK, LEFT = folder / "start", folder / "work", folder / "left"
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}
NOTES = "notes.txt"
os.fsync = lambda _: None  # a killed process, not a machine without power: what was written is there


def changes(event, arguments):
    if event != "open":
        return event in CHANGES
    path, _, flags = arguments
    return str(path).startswith(str(folder)) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def killed_at(number, action):
    """Run `action` in a fork that is killed right before its change `number`; False when it makes fewer."""
    pid = os.fork()
    if pid == 0:
        made = 0

        def hook(event, arguments):
            nonlocal made
            if changes(event, arguments):
                if made == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                made += 1

        sys.addaudithook(hook)
        try:
            action()
            os._exit(0)
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL), f"it has failed by itself at change {number}"
    return status != 0


def project(limit=2):
    return ProjectConfiguration(project_dir=WORK, automatic_checkpoint_naming=True, total_limit=limit)


def save(value, target, safe=True):
    """Save weights that all have one value; `target` None: as the next numbered checkpoint."""
    accelerator = Accelerator(project_config=project())
    accelerator.prepare(torch.nn.ParameterList([torch.full((300,), float(value)) for _ in range(2)]))
    if target is None:
        accelerator.save_iteration = value
    accelerator.save_state(target, safe_serialization=safe)


def load(target):
    """The value in the checkpoint that is loaded; None where there is none."""
    accelerator = Accelerator(project_config=project())
    weights = accelerator.prepare(torch.nn.ParameterList([torch.zeros(300) for _ in range(2)]))
    try:
        accelerator.load_state(target)
    except CheckpointError:
        return None
    (value,) = {float(v) for one in weights for v in one.detach().unique()}
    return value


def numbered():
    for value in range(2):
        save(value, None)


def first():
    """Nothing yet."""


def over():
    save(1, WORK / "state", safe=False)  # weights under another name: the next one has to remove them


def over_and_beside_other_things():
    over()
    (WORK / "state" / NOTES).write_text("mine")


def check(before, target):
    visible = list((WORK / "checkpoints").glob("[!.]*")) if target is None else []
    assert all(not problems(path) for path in visible), [problems(path) for path in visible]
    assert len(visible) <= 3
    value = load(target)
    assert value in ((2.0, None) if before is first else (1.0, 2.0)), value
    if before is over_and_beside_other_things:
        assert (target / NOTES).read_text() == "mine"
    return value


def check_clean(target, found):
    """After one more save nothing is left of what was cut off."""
    number = 0 if found is None else int(found) + 1
    save(number, target)
    assert load(target) == number
    newest = target or WORK / "checkpoints" / f"checkpoint_{number}"
    files = {str(path.relative_to(newest)) for path in newest.rglob("*")} - {NOTES, "manifest.json"}
    assert files == set(files_of(newest)), files
    around = {path.name for path in newest.parent.iterdir()}
    assert around == ({newest.name, f"checkpoint_{number - 1}"} if target is None else {newest.name}), around


def fresh(source):
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(source, WORK) if source.exists() else WORK.mkdir()


def run(before, target):
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    before()
    shutil.rmtree(START, ignore_errors=True)
    WORK.rename(START)
    found = []
    for number in count():
        fresh(START)
        if not killed_at(number, lambda: save(2, target)):
            break
        shutil.rmtree(LEFT, ignore_errors=True)
        shutil.copytree(WORK, LEFT)
        for again in count():  # what is cut off a second time, while it is brought to its end
            fresh(LEFT)
            if not killed_at(again, lambda: load(target)):
                break
            check(before, target)
        fresh(LEFT)
        found.append(check(before, target))
        check_clean(target, found[-1])
    assert number >= 3, "nothing was killed"
    assert found == sorted(found, key=lambda value: value or 0), "a save that was there is gone"
    return number


numbers = {
    one.__name__: run(one, None if one is numbered else WORK / "state")
    for one in (numbered, first, over, over_and_beside_other_things)
}
print(numbers)
print("RESULT true", flush=True)
