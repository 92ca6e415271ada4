"""Faults in the middle of what processes with sharded weights do together: an error on all, and no half of a file."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

DIES = """
import os, sys, torch
from torch import nn
from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin

def dies(where):
    if os.environ["RANK"] == "1" and sys.argv[1] == where:
        os._exit(9)  # the other one is about to gather the weights of the next block

class Block(nn.Linear):
    def forward(self, x):
        dies("forward")
        if x.requires_grad:
            x.register_hook(lambda gradient: dies("backward"))
        return super().forward(x)

accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(transformer_cls_names_to_wrap=["Block"]))
model = nn.Sequential(Block(64, 64), Block(64, 64), Block(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
loss = model(torch.ones(2, 64)).sum()
accelerator.backward(loss) if sys.argv[2] == "ours" else loss.backward()
optimizer.step()
print("RESULT true")
"""


@pytest.mark.parametrize(("where", "whose"), [("forward", "ours"), ("backward", "ours"), ("backward", "torch's")])
def test_a_process_that_dies_while_weights_are_gathered_ends_the_job(job_text, where, whose):
    (status, output), (other, _) = job_text(DIES, 2, where, whose, fails=True, seconds=60)
    assert (status, other) == (1, 9)
    last = output.strip().splitlines()[-1]
    assert "CollectiveError: rank 1 has ended, or left the job, while rank 0 waits for it in a collective" in last


def test_the_same_program_without_a_fault(job_text):
    assert job_text(DIES, 2, "nowhere", "ours") == [True, True]


SAVES = """
import os, sys, torch
from torch import nn
from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin

accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
model = accelerator.prepare(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
for value in (1.0, 2.0):
    with torch.no_grad():
        for one in model.parameters():
            one.fill_(value)
    if value == 2 and accelerator.is_main_process:
        before = [0]

        def hook(event, arguments):
            if event == "os.rename":
                before[0] += 1
                if before[0] > int(sys.argv[2]):
                    os._exit(9)

        sys.addaudithook(hook)
    accelerator.save_model(model, sys.argv[1], max_shard_size="300B")
    accelerator.wait_for_everyone()
print("RESULT true")
"""


@pytest.mark.parametrize("renames", [0, 1])
def test_weights_whose_saving_is_interrupted_are_not_taken_for_whole_ones(job_text, tmp_path, renames):
    from torchlift.runtime import CheckpointError, load_checkpoint_in_model

    folder = tmp_path / "weights"
    (status, _), _ = job_text(SAVES, 2, folder, renames, fails=True, seconds=60)
    assert status == 9
    assert len(list(folder.glob("*.safetensors"))) == 2
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    with pytest.raises(CheckpointError, match="instead of one index none"):
        load_checkpoint_in_model(model, folder, strict=True)
    for file in folder.glob("*.safetensors"):  # each is whole
        assert {float(v) for one in load_file(file).values() for v in one.flatten()} in ({1.0}, {2.0})
