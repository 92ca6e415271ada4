"""The words for what several processes change in a program."""

from __future__ import annotations

from ..facts.reasons.diagnostics import (
    ApexAmp,
    ApexDdp,
    ComparedRows,
    ComparedWithBatch,
    HashOfText,
    KeptForLoss,
    KeptOutputs,
    KeptTensors,
    NotLinear,
    Observers,
    OutsideSaver,
    OwnBatchNorm,
    OwnStream,
    RankedRows,
    ReplacedMethod,
    SameNoise,
    SameRows,
    SetByName,
    SetOrder,
    UnknownSaver,
    UnseenLayers,
    UnsteppedScaler,
)
from ..findings import Cause, Finding, Severity
from .registry import worded


@worded.register(SameNoise)
def _same_noise(found: SameNoise) -> Finding:
    return Finding(
        "same-noise",
        found.node,
        "NumPy's generator is kept equal on all processes because control flow may depend on it, so every "
        "process draws the same numbers here",
        "draw them with a function of torch (torch.rand, torch.randn, torch.randint), whose generators differ "
        "between processes, with device=accelerator.device",
        Severity.REVIEW,
        case="step",
    )


@worded.register(KeptOutputs)
def _kept_outputs(found: KeptOutputs) -> Finding:
    return Finding(
        "process-memory",
        found.node,
        "outputs of the model are kept from step to step: each process keeps only its own shard, and a "
        "checkpoint holds the shard of process 0",
        "gather the rows before storing them: accelerator.gather(...)",
    )


@worded.register(KeptTensors)
def _kept_tensors(found: KeptTensors) -> Finding:
    return Finding(
        "process-memory",
        found.node,
        f"`{found.name}` keeps tensors of earlier steps, and later steps use them: each process keeps only those of "
        "its own shard",
        "no action needed if a memory of each process is good enough; for one memory, gather the rows before "
        "storing them: accelerator.gather(...)",
    )


@worded.register(Observers)
def _observers(found: Observers) -> Finding:
    return Finding(
        "process-memory",
        found.node,
        f"`{found.caller}` puts observers into the model: on N processes they collect the ranges of "
        "one process's shard, so that each process quantizes differently, and a file gets the ranges of "
        "process 0",
        "no action needed if the ranges of one shard are good enough; for those of all rows, calibrate "
        "with a DataLoader that is not prepared",
    )


@worded.register(ComparedRows)
def _compared_rows(found: ComparedRows) -> Finding:
    return Finding(
        "in-batch-pairs",
        found.node,
        "this loss compares rows within a batch: on N processes each row is compared only with the rows of its "
        "own shard, not with the whole batch",
        "increase the batch size, or gather the other side with its gradient, and its labels with it; a label that is "
        "a place in the batch is then shifted by accelerator.process_index * len(batch)",
        case="pairs",
    )


@worded.register(ComparedWithBatch)
def _compared_with_batch(found: ComparedWithBatch) -> Finding:
    return Finding(
        "in-batch-pairs",
        found.node,
        f"this loss is computed from `{found.text}`, which compares each row with a figure of its whole batch, "
        "such as a mean: on N processes that is a figure of the rows of one process",
        "increase the batch size, or compute the figure from all rows: accelerator.reduce(...) gives their mean where "
        "no gradient flows through it"
        if found.split
        else "no action needed: each process takes a batch of the script's size, unless --keep-global-batch is given",
        Severity.REVIEW if found.split else Severity.NOTE,
        case="figure",
    )


@worded.register(RankedRows)
def _ranked_rows(found: RankedRows) -> Finding:
    return Finding(
        "in-batch-pairs",
        found.node,
        f"this loss takes rows by how large they are among those of their batch (`{found.text}`): on N processes each "
        "takes them from its own rows",
        "take a part of the rows, such as len(losses) // 4, and no fixed number; for the rows that one process would "
        "take, do not use --keep-global-batch"
        if found.split
        else "no action needed: each process takes them from a batch of the script's size, unless --keep-global-batch "
        "is given",
        Severity.REVIEW if found.split else Severity.NOTE,
        case="chosen",
    )


@worded.register(ApexAmp)
def _apex_amp(found: ApexAmp) -> Finding:
    return Finding(
        "apex",
        found.node,
        "apex patches the model and the optimizer and scales the loss itself: its effect on a prepared model "
        "and optimizer is not known",
        "use torch.autocast and torch.amp.GradScaler instead; they are migrated",
        Severity.BLOCKED,
        case="amp",
    )


@worded.register(ApexDdp)
def _apex_ddp(found: ApexDdp) -> Finding:
    return Finding(
        "apex",
        found.node,
        "this wrapper of apex averages the gradients, and the accelerator would average them as well",
        "use torch.nn.parallel.DistributedDataParallel instead; it is migrated",
        Severity.BLOCKED,
        case="ddp",
    )


@worded.register(UnsteppedScaler)
def _unstepped_scaler(found: UnsteppedScaler) -> Finding:
    return Finding(
        "unstepped-scaler",
        found.node,
        "the loss is scaled, but no scaler.step(optimizer) removes the scale again; the migrated script keeps this "
        "behaviour of the original",
        "step with the scaler: scaler.step(optimizer), scaler.update()",
    )


@worded.register(OutsideSaver)
def _outside_saver(found: OutsideSaver) -> Finding:
    return Finding(
        "once",
        found.node,
        f"{found.name} is defined outside this program: if it saves the model, every process writes the file",
        "migrate the module that defines it as well, or call it on the main process and broadcast its result",
        case="outside-code",
    )


@worded.register(UnknownSaver)
def _unknown_saver(found: UnknownSaver) -> Finding:
    why = f"nothing that was found in this program defines this {found.method}"
    if found.classes:
        named = ", ".join(f"`{name}`" for name in found.classes)
        why = f"it is not seen whether this {found.method} is that of {named}"
    return Finding(
        "once",
        found.node,
        f"{why}: if it writes a file, every process writes it",
        "call it on the main process: if accelerator.is_main_process",
        case="outside-code",
    )


@worded.register(ReplacedMethod)
def _replaced_method(found: ReplacedMethod) -> Finding:
    known = "function that its module" if found.of_module else "method that its class"
    return Finding(
        "replaced-code",
        found.node,
        f"`{found.method}` is replaced here. This answer was made with the {known} has",
        "no action needed if the new one gives rows for rows, or a loss of the same kind, as the old one "
        "does; otherwise put its code into the class, then migrate",
        case="method",
    )


@worded.register(SetByName)
def _set_by_name(found: SetByName) -> Finding:
    what = f"the variable `{found.name}` is" if found.name else "variables of this file are"
    return Finding(
        "replaced-code",
        found.node,
        f"{what} set here by name, which is not followed: this answer was made without the new values",
        "no action needed if they are settings, such as numbers and paths; otherwise assign them to variables "
        "that are written out, then migrate",
        case="names",
    )


@worded.register(HashOfText)
def _hash_of_text(found: HashOfText) -> Finding:
    return Finding(
        "set-order",
        found.node,
        f"`{found.text}` differs between processes where it is that of a string, because Python hashes strings anew "
        "in each process",
        f"use a hash that is the same everywhere, such as zlib.crc32(text.encode()), or {_ONE_ORDER}",
        case="hash",
    )


@worded.register(SetOrder)
def _set_order(found: SetOrder) -> Finding:
    where = "strings" if found.certain else "its elements, if they are strings,"
    return Finding(
        "set-order",
        found.node,
        f"`{found.followed}` follows the order of the set `{found.name}`, and the order of {where} differs between "
        "processes",
        f"give all processes one order: sorted({found.name}), or {_ONE_ORDER}",
        cause=Cause(found.made, "the set is made here") if found.made is not None else None,
        case="set",
    )


_ONE_ORDER = (
    "start all processes with one hash seed: `torchlift launch` does, other launchers need PYTHONHASHSEED=0 in the "
    "environment"
)


@worded.register(KeptForLoss)
def _kept_for_loss(found: KeptForLoss) -> Finding:
    *others, last = (f"`{name}`" for name in found.names)
    names = " and ".join(filter(None, (", ".join(others), last)))
    several = len(found.names) > 1
    return Finding(
        "process-memory",
        found.node,
        f"{names} {'keep' if several else 'keeps'} outputs of earlier steps, and the loss of later steps uses "
        f"{'them' if several else 'it'}: on N processes {'they hold' if several else 'it holds'} those of one "
        "process's shard",
        "no action needed if a memory of one shard is good enough; for one of all rows, gather what is stored: "
        "accelerator.gather(...)",
    )


@worded.register(OwnStream)
def _own_stream(found: OwnStream) -> Finding:
    what = (
        f"it reads on with `{found.text}`, and" if found.certain else f"if `{found.text}` gives another row each time,"
    )
    return Finding(
        "own-stream",
        found.node,
        f"`{found.dataset}.__getitem__` does not use `{found.position}`: {what} each process reads the same rows from "
        "the start",
        f"read all rows in __init__ and return the one that `{found.position}` names, or make {found.dataset} an "
        "IterableDataset, whose rows the processes share out",
        Severity.BLOCKED if found.certain else Severity.REVIEW,
    )


@worded.register(SameRows)
def _same_rows(found: SameRows) -> Finding:
    what, chosen = (f"from `{found.container}`", "elements") if found.container else ("its rows", "rows")
    why = f"which is kept equal on all processes: without loader workers all processes choose the same {chosen}"
    remedy = (
        "use workers, whose generators differ between processes (num_workers=1), or a generator of the process's own"
    )
    by_option = found.workers and not found.seed
    if by_option:
        remedy = (
            "no action needed with workers, which the script has unless an option says otherwise: their generators "
            "differ between processes"
        )
    if found.seed:
        why = (
            f"and `worker_init_fn` seeds that (`{found.seed}`) by nothing that differs between processes: the workers "
            f"of all processes choose the same {chosen}"
        )
        remedy = "let the seed differ between processes: np.random.seed(torch.initial_seed() % 2**32)"
    message = f"`{found.dataset}` chooses {what} by Python's or NumPy's generator, {why}"
    weight = Severity.NOTE if by_option else Severity.REVIEW
    return Finding("same-noise", found.node, message, remedy, weight, case="rows")


@worded.register(OwnBatchNorm)
def _own_batch_norm(found: OwnBatchNorm) -> Finding:
    chosen = f", where `{found.maker}` makes one" if found.maker else f" of `{found.model}`" if found.model else ""
    more = f" (and more in {found.others} other modules)" if found.others > 1 else " (and more in another module)"
    return Finding(
        "batch-norm",
        found.node,
        f"BatchNorm{more if found.others else ''}{chosen}: each process normalises over its own batch, {_CLOSE[0]}",
        f"no action needed {_CLOSE[1]}",
        Severity.NOTE,
        case="layer",
    )


@worded.register(UnseenLayers)
def _unseen_layers(found: UnseenLayers) -> Finding:
    return Finding(
        "batch-norm",
        found.node,
        f"`{found.maker}` builds layers that cannot be seen here: if there is BatchNorm or dropout among them, each "
        f"process normalises over its own batch and draws noise of its own, {_CLOSE[0]}",
        f"no action needed if there is none, or {_CLOSE[1]}",
        Severity.NOTE,
        case="not-seen",
    )


_CLOSE = (
    "so training on N processes is close to the original but not equal to it, even with the global batch kept",
    "if batches stay large; on GPUs you can use nn.SyncBatchNorm.convert_sync_batchnorm(model)",
)


@worded.register(NotLinear)
def _not_linear(found: NotLinear) -> Finding:
    chosen = "if another loss is chosen, or " if found.otherwise else ""
    return Finding(
        "weighted-mean",
        found.node,
        "this loss takes a logarithm, a root or another function that is not linear of a sum or mean over the batch: "
        "each process uses its own shard, so the result is close to the original's but not equal to it",
        f"no action needed {chosen}if close is good enough; otherwise keep this script on one device",
        cause=Cause(found.source, found.reason),
        case="not-linear",
    )
