"""Random numbers of scripts that seed nothing, something, or by rank."""

import random

import numpy
import torch
from torch.utils.data import TensorDataset, random_split

from torchlift.runtime import Accelerator, set_seed
from torchlift.runtime.collectives import unseeded


def numbers():
    return [random.random(), float(numpy.random.rand()), float(torch.rand(1)), int(random_split(data, [5, 4])[0][0][0])]


def everywhere(values):
    return [list(row) for row in zip(*accelerator.gather_for_metrics([values], use_gather_object=True), strict=True)]


def again():
    unseeded._Begun.group = None
    return Accelerator()


data = TensorDataset(torch.arange(9))
accelerator = Accelerator()
rank = accelerator.process_index

# nothing is seeded: splits and branches are those of rank 0
assert all(len(set(row)) == 1 for row in everywhere(numbers()))
# until prepare, behind which torch's noise is each process's own; python's and numpy's stays common
accelerator.prepare(torch.nn.Linear(1, 1))
python, numpys, torchs, _ = everywhere(numbers())
assert len(set(python)) == len(set(numpys)) == 1 and len(set(torchs)) == 2

# only torch is seeded
torch.manual_seed(7)
random.seed()
numpy.random.seed()
accelerator = again()
drawn = everywhere(numbers())
assert all(len(set(row)) == 1 for row in drawn)
torch.manual_seed(7)
assert float(torch.rand(1)) == drawn[2][0]

# seeds that only an accelerator tells apart: the CPU's generator makes nothing of their higher bits
set_seed(3)
torch.manual_seed(7 + rank * 2**62)
seeded, manual_seed = [], torch.manual_seed
torch.manual_seed = lambda seed: (seeded.append(seed), manual_seed(seed))
accelerator = again()
torch.manual_seed = manual_seed
assert seeded == [7]  # on rank 0 too: the generators of its GPU have seeds of their own
assert everywhere([torch.initial_seed()]) == [[7, 7]]

# everything is seeded: nothing changes
set_seed(3)
before = numbers()
set_seed(3)
accelerator = again()
assert numbers() == before

# seeded by rank, and meant so
set_seed(3 + rank)
accelerator = again()
assert all(len(set(row)) == 2 for row in everywhere(numbers()[:3]))
print("RESULT true", flush=True)
