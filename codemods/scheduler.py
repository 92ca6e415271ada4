"""
Keep each learning-rate scheduler in step with what it counts.

A scheduler that is stepped once per optimizer step is prepared, so that it reaches its last step, counted in the
script's batches, when training ends. A scheduler that is stepped once per epoch, or on a metric, is left unchanged:
the number of epochs is the same on any number of processes, and a prepared scheduler would step N times. The same
is true for a scheduler that counts the iterations of a loop of fixed length that draws its batches with
`next(...)`, or of a loop that is left at a number of steps (`if step >= total: break`, where no `len(loader)` goes
into `total`): N processes make the same number of iterations. A function that reads `len(loader)` at each step
(`LambdaLR(optimizer, lambda step: 1 - step / (epochs * len(loader)))`) reads that of the prepared loader, and so counts
the steps of its own process; so does a scheduler that is built with `len(loader)` after the loader is prepared. A
scheduler that another one steps is left to that one.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     warmup = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=100)
     decay = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
    +accelerator = Accelerator()
    +model, optimizer, loader, warmup = accelerator.prepare(
    +    model, optimizer, loader, warmup
    +)
     for epoch in range(30):
         for x, y in loader:
             loss = torch.nn.functional.mse_loss(model(x), y)
             optimizer.zero_grad()
    -        loss.backward()
    +        accelerator.backward(loss)
             optimizer.step()
             warmup.step()
         decay.step()
"""

from __future__ import annotations

from collections.abc import Iterator

from ..rewriter.editing.edits import Edit
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding, Severity
from ..rewriter.rule import rule

ID = "scheduler"


@rule(ID, doc=__doc__)
def scheduler(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Report what each scheduler counts; the ``prepare`` rule writes the call that prepares the per-step ones."""
    seen: dict[str, set[str]] = {}
    for schedule in facts.schedules:
        seen.setdefault(schedule.name, set()).add(schedule.unit)
    for schedule in facts.schedules:
        if len(seen[schedule.name]) > 1 and "optimizer step" in seen[schedule.name]:
            yield Finding(
                ID,
                schedule.node,
                f"{schedule.name} is stepped once per batch and once per epoch",
                "step it in one place",
                Severity.BLOCKED,
                case="twice",
            )
        elif schedule.prepared:
            yield Finding(
                ID,
                schedule.node,
                f"`{schedule.name}` is stepped with the optimizer, so it is prepared: the total number of steps it is "
                "built with must be that of a single process",
                "no action needed if that number is computed before prepare(...); after it, len(loader) is N times "
                "smaller",
                Severity.NOTE,
                case="total",
            )
