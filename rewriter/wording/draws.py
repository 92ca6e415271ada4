"""The words for random numbers that differ where they should not: before seeds are equal, and after `prepare`."""

from __future__ import annotations

from ..facts.reasons.draws import (
    GrownLayers,
    LateSplit,
    MadeRows,
    OrderedRows,
    OwnSeedDrawn,
    RedrawnWeights,
    RestingLayers,
    ShakenWeights,
    UnlikeModel,
    Unseeded,
)
from ..findings import Finding, Severity
from .registry import worded


@worded.register(RedrawnWeights)
def _redrawn_weights(found: RedrawnWeights) -> Finding:
    return Finding(
        "late-draw",
        found.node,
        "weights are drawn here after prepare(...), from where on each process draws other numbers: ranks would train "
        "different weights",
        "draw them before the model is prepared; in a loop over folds, build the model and its optimizer in each "
        "round, or let all processes draw the same: torch.manual_seed(fold) before this line",
        Severity.BLOCKED,
        case="weights",
    )


@worded.register(UnlikeModel)
def _unlike_model(found: UnlikeModel) -> Finding:
    return Finding(
        "late-draw",
        found.node,
        f"`{found.text}` draws its weights after prepare(...), from where on each process draws other numbers, and it "
        "is not prepared itself: ranks would compute with different weights",
        "build it before the models that are trained; or let all processes draw the same: torch.manual_seed(0) before "
        "this line",
        Severity.BLOCKED,
        case="model",
    )


@worded.register(ShakenWeights)
def _shaken_weights(found: ShakenWeights) -> Finding:
    what = "gradients" if found.gradients else "weights"
    return Finding(
        "late-draw",
        found.node,
        f"`{found.text}` changes {what} after prepare(...), from where on each process draws other "
        "numbers: ranks would train different weights",
        "let all processes draw the same: make generator = torch.Generator(accelerator.device).manual_seed(0) once, "
        "and draw with torch.randn(p.shape, generator=generator, device=accelerator.device)",
        Severity.BLOCKED,
        case="noise",
    )


@worded.register(MadeRows)
def _made_rows(found: MadeRows) -> Finding:
    return Finding(
        "late-draw",
        found.node,
        f"`{found.text}` makes rows of the data after prepare(...), from where on each process draws other numbers: "
        "ranks would make different data, and each read a part of its own",
        "draw it before the model is prepared, or by a generator that is the same everywhere: "
        "torch.Generator().manual_seed(0)",
        Severity.REVIEW,
        case="rows",
    )


@worded.register(OrderedRows)
def _ordered_rows(found: OrderedRows) -> Finding:
    return Finding(
        "late-draw",
        found.node,
        f"`{found.text}` is shuffled after prepare(...), from where on each process draws another order, and rows of "
        "the data are chosen by it: ranks would choose different rows",
        "choose them before the model is prepared, or give the loader a generator that is the same everywhere: "
        "generator=torch.Generator().manual_seed(0)",
        Severity.REVIEW,
        case="order",
    )


@worded.register(RestingLayers)
def _resting_layers(found: RestingLayers) -> Finding:
    return Finding(
        "device_placement",
        found.node,
        f"`{found.called}(...)` makes layers of the model on the CPU, after prepare(...) has placed the model: on a "
        "GPU this causes a device mismatch",
        "move the model after this line: model.to(accelerator.device)",
        Severity.REVIEW,
        case="late-layers",
    )


@worded.register(GrownLayers)
def _grown_layers(found: GrownLayers) -> Finding:
    return Finding(
        "late-draw",
        found.node,
        "layers of the model are made here after prepare(...), from where on each process draws other numbers: their "
        f"parameters follow rank 0, but `{found.kept}` of {found.klass} is a plain tensor of what the process itself "
        "drew: ranks would compute different functions",
        "let all processes draw the same here: put the line under `with torch.random.fork_rng():`, after "
        "torch.manual_seed(0) in that block",
        Severity.REVIEW,
        case="plain-tensor",
    )


@worded.register(LateSplit)
def _late_split(found: LateSplit) -> Finding:
    return Finding(
        "late-draw",
        found.node,
        "this random split is drawn after prepare(...), from where on each process draws other numbers: ranks would "
        "split differently, and train on rows that others test on",
        "draw it before the model is prepared, or give it a generator: generator=torch.Generator().manual_seed(0)",
        Severity.BLOCKED,
        case="split",
    )


@worded.register(OwnSeedDrawn)
def _own_seed_drawn(found: OwnSeedDrawn) -> Finding:
    effect, epochs = "makes other data on each: every rank would read a part of a data set of its own", ""
    if found.divides:
        effect = "chooses or orders the data differently on each: some rows would be read by several ranks, and others "
        effect, epochs = f"{effect}by none", ", with the epoch added where each epoch needs another order"
    return Finding(
        "unseeded",
        found.node,
        f"`{found.seed}` {'seeds' if found.sure else 'may seed'} every rank differently, so that `{found.draw}` "
        f"{effect}",
        f"use a number that is the same on all ranks{epochs}",
        Severity.REVIEW,
        case="seed",
    )


@worded.register(Unseeded)
def _unseeded(found: Unseeded) -> Finding:
    return Finding(
        "unseeded",
        found.node,
        f"`{found.text}` runs before seeds are synchronised: every rank draws other numbers, so that ranks "
        f"{found.effect}",
        "seed the script at the top (torch.manual_seed, np.random.seed, random.seed), or create the accelerator first",
        Severity.REVIEW,
        case="draw",
    )
