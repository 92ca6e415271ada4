"""
Use the same seed for what must be equal on all processes, and different seeds for what must differ.

Random splits and samplers must choose the same rows on all processes: with seeds that differ by rank, or without a
seed, rows of the training set of one process are in the validation set of another. Batches that each process draws for
itself must differ: with the same seed N processes train on the same batch.

    -train, val = random_split(data, [0.9, 0.1])
    +train, val = random_split(data, [0.9, 0.1], generator=torch.Generator().manual_seed(0))

    -torch.manual_seed(1337)                       # and then torch.randint(...) chooses the rows of a batch
    +torch.manual_seed(1337 + rank)
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name, outside_name
from ..analysis.dataflow.values import CallRecord, Unit
from ..analysis.syntax.nodes import keyword
from ..facts.torch_api import process_calls, randomness
from ..findings import Finding, Severity
from .program import AuditedProgram
from .rule import AuditRule, Found


def seeds_that_differ(program: AuditedProgram) -> Found:
    """Random decisions that must be equal on all processes, but are seeded by rank or not at all."""
    for record in program.records:
        name = outside_name(record)
        seed = keyword(record.node, "seed", 4)
        if (
            process_calls.is_distributed_sampler(name)
            and seed is not None
            and program.ranks.mentions(record.unit, seed)
        ):
            words = "the seed of this sampler differs between processes: their shards overlap"
            yield record.unit, _differs(record.node, words, "give every process the same seed")
        if (split := randomness.splits(name)) is not None and split.generator == "torch":
            generator = keyword(record.node, "generator", 2)
            if generator is not None and program.ranks.mentions(record.unit, generator):
                words = "the generator of this split differs between processes: they split the data differently"
                yield record.unit, _differs(record.node, words, "seed it alike on every process")
            elif generator is None and (words := _loose(program, record)):
                yield record.unit, _differs(record.node, words, "give it a generator that is seeded alike everywhere")


def _loose(program: AuditedProgram, split: CallRecord) -> str:
    """Why a split without a generator differs between processes; empty if it does not."""
    if program.ranks.mentions(split.unit, split.node):
        return ""
    for record in _seeding(program):
        if (randomness.seeds(outside_name(record)) or "torch") != "torch":
            continue
        if record.node.args and _by_rank(program, record):
            return "this random split follows a seed that differs between processes: they split the data differently"
        return ""
    return "nothing seeds this random split: each process draws its own, and they split the data differently"


def _by_rank(program: AuditedProgram, record: CallRecord) -> bool:
    return any(program.ranks.mentions(record.unit, arg.value) for arg in record.node.args)


def _seeding(program: AuditedProgram) -> Iterator[CallRecord]:
    """The reached calls that seed something."""
    for record in program.records:
        if randomness.seeds(outside_name(record)) or (
            "seed" in method_name(record.node).lower() and not program.reach.called(record.node)
        ):
            yield record


def _differs(node: cst.CSTNode, words: str, remedy: str) -> Finding:
    return Finding("seed-differs", node, words, remedy, Severity.ERROR)


def seeds_that_agree(program: AuditedProgram) -> Found:
    """Batches drawn by each process, with the same seed on all of them."""
    if not program.by_hand or program.unfollowed is not None or program.training.train_loops:
        return
    seeded: dict[str, CallRecord] = {}
    for record in _seeding(program):
        generator = randomness.seeds(outside_name(record))
        if _by_rank(program, record) or not generator:
            return
        seeded.setdefault(generator, record)
    for unit, call, kind in _drawn(program):
        if kind in seeded and not program.ranks.mentions(unit, call):
            words = "the rows of each batch are drawn with the same seed on every process: all train on the same batch"
            remedy = "add the rank to the seed: torch.manual_seed(seed + rank)"
            yield unit, Finding("seed-agrees", call, words, remedy, Severity.ERROR)
            return


def _drawn(program: AuditedProgram) -> Iterator[tuple[Unit, cst.Call, str]]:
    """The random draws in the loops of the backward passes."""
    for record in program.training.backwards:
        loops = [n for n in program.reach.loops(record.node, record.unit) if isinstance(n, (cst.For, cst.While))]
        for node in program.reach.runs(loops[-1].body, record.unit) if loops else ():
            drawn = program.state.calls.get(node) if isinstance(node, cst.Call) else None
            kind = randomness.draws(outside_name(drawn)) if drawn is not None else None
            if drawn is not None and kind is not None and kind.draws != "noise":
                if keyword(drawn.node, "generator") is None:
                    yield drawn.unit, drawn.node, kind.generator


DIFFERS = AuditRule("seed-differs", __doc__, seeds_that_differ)
AGREES = AuditRule("seed-agrees", __doc__, seeds_that_agree)
