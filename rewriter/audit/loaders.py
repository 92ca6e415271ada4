"""
Give each process its own rows: use a sampler that shards the data, or prepare the loader.

Otherwise every process reads the whole data set, in the same order if the seeds are equal: N processes do the same
work, and the gradient is that of one batch.

    -loader = DataLoader(data, batch_size=32, shuffle=True)
    +sampler = DistributedSampler(data)
    +loader = DataLoader(data, batch_size=32, sampler=sampler)

With Accelerate or torchlift pass the loader to `prepare`, with Fabric to `setup_dataloaders`. Iterable data sets,
data sets that read the rank and samplers of other packages are not reported: they may shard by themselves.
"""

from __future__ import annotations

from ..findings import Finding, Severity
from ..validation.loaders import iterated, unprepared
from .program import AuditedProgram, Dialect
from .rule import AuditRule, Found


def unsharded_loaders(program: AuditedProgram) -> Found:
    """The loaders of training loops from which every process reads the same rows."""
    if program.by_hand and not (program.wraps or program.unfollowed is not None):
        return
    for loader, loops in program.iterated.items():
        unit, loop = program.unit_of(loader.node), loops[0]
        home = program.unit_of(loop)
        if unit is None or home is None or program.replaced(home, iterated(loop), loader):
            continue
        if program.is_sharded(loader) is False:
            yield (
                unit,
                Finding(
                    "unsharded-loader",
                    loader.node,
                    "a training loop reads this loader, and every process reads all of its rows",
                    _remedy(program),
                    Severity.ERROR,
                ),
            )
    for found in unprepared(program) if program.accelerated and not program.by_hand else ():
        if found.is_moved and found.loop not in program.training.train_loops:
            words = "this loop gathers batches that every process reads: each row counts once for each process"
            yield found.unit, Finding("unsharded-loader", iterated(found.loop), words, _remedy(program), Severity.ERROR)


def _remedy(program: AuditedProgram) -> str:
    if program.by_hand:
        return "give it sampler=DistributedSampler(dataset)"
    return f"hand it to `{'setup_dataloaders' if program.dialects == {Dialect.FABRIC} else 'prepare'}`"


RULE = AuditRule("unsharded-loader", __doc__, unsharded_loaders)
