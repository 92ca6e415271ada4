"""An accelerator in a pickle is a handle that finds itself again."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import torch
from torch import nn

from torchlift.runtime import Accelerator

READING = """
import pickle, sys
from torchlift.runtime import Accelerator, TorchliftError
held = pickle.loads(bytes.fromhex(sys.argv[1]))
try:
    held["accelerator"].device
except TorchliftError as error:
    print(error)
accelerator = Accelerator(cpu=True)
print(held["accelerator"].num_processes, pickle.loads(pickle.dumps(held))["accelerator"] is accelerator)
"""


class Holding(nn.Module):
    def __init__(self, accelerator):
        super().__init__()
        self.accelerator = accelerator
        self.layer = nn.Linear(2, 2)


def test_it_finds_itself_again():
    first, second = Accelerator(cpu=True), Accelerator(cpu=True)
    for one in (first, second):
        model = one.prepare(Holding(one))
        data = pickle.dumps(model)
        assert pickle.loads(data).accelerator is one
        assert copy.copy(one) is one
        assert copy.deepcopy(model).accelerator is one


def test_nothing_of_it_is_in_a_file(tmp_path):
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Linear(300, 300))
    data = pickle.dumps(accelerator)
    assert len(data) < 200
    torch.save(Holding(accelerator), tmp_path / "model.pt")
    assert torch.load(tmp_path / "model.pt", weights_only=False).accelerator is accelerator


def test_another_process_finds_its_own():
    data = pickle.dumps({"accelerator": Accelerator(cpu=True)}).hex()
    done = subprocess.run([sys.executable, "-c", READING, data], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["there is no Accelerator yet: create one first.", "1 True"], done.stderr
