"""
Load checkpoints to the device of the process, and only after they are written.

Without ``map_location`` every process would load to the device of the process that saved it. A data set stays on
the CPU: the loader moves its batches. So do weights that a function without the accelerator loads into a model: they
are copied to where the model is. If the same run wrote the file, all processes first wait for the writer. They
also wait for any other file that the main process writes before it is read or asked about (``np.save`` and ``np.load``,
``os.path.getsize``, another package's function that is given the path). The main process waits for them before it
removes, renames or writes anew what they have read.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +accelerator = Accelerator()
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
         loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
    -    torch.save(model.state_dict(), "best.pt")
    +    accelerator.save(accelerator.get_state_dict(model), "best.pt")
    +accelerator.wait_for_everyone()
    -model.load_state_dict(torch.load("best.pt"))
    +model.load_state_dict(torch.load("best.pt", map_location=accelerator.device))
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from torchlift.rewriter.facts.checkpoints import Load
from torchlift.rewriter.facts.module import ModuleFacts

from ..rewriter.editing.edits import Edit, EditGroup, InsertBefore, Replace, with_keyword
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "checkpoint_load"


@rule(ID, doc=__doc__)
def checkpoint_load(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Give ``torch.load`` a ``map_location``, and let all processes wait for the file."""
    for wait in facts.read_back:
        text = f"{facts.accelerator}.wait_for_everyone()"
        yield InsertBefore(ID, wait.node, text, reason=wait.because, unit=EditGroup.FILES)
    for load in facts.loads:
        if load.needs_map:
            make = partial(_mapped, facts, load)
            yield Replace(ID, load.call, make, reason=load.because, unit=EditGroup.ALONE)


def _mapped(facts: ModuleFacts, load: Load, node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    here = facts.abilities.loads_to_device and not load.on_host
    device = f"{facts.accelerator}.device" if here else '"cpu"'
    return with_keyword(node, "map_location", cst.parse_expression(device))
