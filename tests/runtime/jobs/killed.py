"""Processes that save, one checkpoint after the other, and are killed at any moment; what is left must be whole."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from torchlift.runtime import Accelerator, ProjectConfiguration
from torchlift.runtime.checkpoint.folders import problems
from torchlift.runtime.checkpoint.rotation import newest_whole

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
dice = random.Random(0)


def accelerator():
    project = ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=True, total_limit=2)
    return Accelerator(project_config=project)


def model():
    return torch.nn.ParameterList([torch.zeros(50_000) for _ in range(6)])


def number_in(weights):
    values = {int(v) for one in weights for v in one.detach().unique()}
    assert len(values) == 1, "a checkpoint with weights of two saves"
    return values.pop()


def save_for_ever(told):
    own, weights = accelerator(), model()
    weights = own.prepare(weights)
    if (folder / "checkpoints").is_dir():
        own.load_state()
    while True:
        for one in weights:
            one.data.fill_(own.save_iteration)
        own.save_state()
        os.write(told, b".")


def main():
    seen = []
    for _ in range(kills):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                save_for_ever(write)
            finally:
                os._exit(1)
        os.close(write)
        assert os.read(read, 1) == b".", "the saves have failed by themselves"
        time.sleep(dice.uniform(0, 0.1))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        visible = [path for path in (folder / "checkpoints").iterdir() if not path.name.startswith(".")]
        assert 1 <= len(visible) <= 3, visible
        assert all(not problems(path) for path in visible), [problems(path) for path in visible]
        own, weights = accelerator(), model()
        weights = own.prepare(weights)
        own.load_state()
        assert newest_whole(folder / "checkpoints")[0].name == f"checkpoint_{number_in(weights)}"
        seen.append(number_in(weights))
    assert seen == sorted(seen) and seen[-1] > kills - 2
    print("RESULT true", flush=True)


main()
