"""The words for what prevents a migration."""

from __future__ import annotations

from ..facts.reasons.refusals import (
    ComputedImport,
    ConflictingRoles,
    ForeignFeed,
    FrameworkLoop,
    HyperparameterSearch,
    NoBatches,
    NoEntries,
    NothingStarts,
    OwnList,
    OwnProcesses,
    RemovedNext,
    TrainerLoop,
    TrainsInTest,
    UnclearFeed,
    UncutBatches,
    UndefinedFeed,
)
from ..findings import Cause, Finding, Severity
from .registry import worded


@worded.register(ComputedImport)
def _computed_import(found: ComputedImport) -> Finding:
    return Finding(
        "computed-import",
        found.node,
        f"this file trains, and is imported by a name that the script computes (`{found.pattern}`): it "
        "is not known which of its functions the script calls, so nothing was changed",
        f"import `{found.module}` and what you call of it by their names there, then migrate",
        case="not-called",
    )


@worded.register(TrainsInTest)
def _trains_in_test(found: TrainsInTest) -> Finding:
    return Finding(
        "no-entry-point",
        found.node,
        "this file is a test: a test runner starts its training, in one process",
        "leave it as it is, and migrate the script whose code it tests",
        Severity.BLOCKED,
        case="test",
    )


@worded.register(NothingStarts)
def _nothing_starts(found: NothingStarts) -> Finding:
    return Finding(
        "no-entry-point",
        found.node,
        "this file trains, but nothing in it starts the training",
        "migrate the script that calls it: both files are then edited together. If an installed command calls it, let "
        "this file start it too: if __name__ == '__main__': ...",
        Severity.BLOCKED,
        case="library",
    )


@worded.register(FrameworkLoop)
def _framework_loop(found: FrameworkLoop) -> Finding:
    return Finding(
        "framework-owns-loop",
        found.node,
        f"{found.framework} runs the training loop of this script",
        f"distribute it with {found.framework}'s own settings",
        Severity.BLOCKED,
    )


@worded.register(TrainerLoop)
def _trainer_loop(found: TrainerLoop) -> Finding:
    return Finding(
        "framework-owns-loop",
        found.node,
        f"{found.trainer} runs the training loop of this script",
        "launch it with torchrun: the Trainer is already distributed",
        Severity.BLOCKED,
    )


@worded.register(HyperparameterSearch)
def _hyperparameter_search(found: HyperparameterSearch) -> Finding:
    return Finding(
        "hyperparameter-search",
        found.node,
        "a hyperparameter search chooses the settings of this training, and every process would run its own search: "
        "the processes would build different models and hang",
        "search on one device, and migrate the training in a script of its own, with the settings that were found",
        Severity.BLOCKED,
    )


@worded.register(OwnProcesses)
def _own_processes(found: OwnProcesses) -> Finding:
    return Finding(
        "already-distributed",
        found.node,
        "the script trains in processes that it starts itself",
        "migrate a version that trains in one process: torchlift launch starts the others",
        Severity.BLOCKED,
        case="workers",
    )


@worded.register(RemovedNext)
def _removed_next(found: RemovedNext) -> Finding:
    return Finding(
        "unknown-loader" if found.feeds else "outdated",
        found.node,
        f"`{found.iterator}.next()` fails, on one device too: the iterators of loaders have no method `next` any more",
        f"write next({found.iterator})",
        Severity.BLOCKED if found.feeds else Severity.REVIEW,
        case="next-method",
    )


@worded.register(NoEntries)
def _no_entries(found: NoEntries) -> Finding:
    return Finding(
        "outdated",
        found.node,
        f"`{found.text}` fails, on one device too, if `{found.loss}` is one number, as losses are since PyTorch 0.5",
        f"write {found.loss}.item()",
        Severity.REVIEW,
        case="loss-entry",
    )


@worded.register(UndefinedFeed)
def _undefined_feed(found: UndefinedFeed) -> Finding:
    return Finding(
        "unknown-loader",
        found.node,
        f"`{found.name}`, which feeds this training, is not defined anywhere: the script fails here as it is",
        "fix the script first and run it on one device, then migrate it",
        Severity.BLOCKED,
        case="undefined",
    )


@worded.register(NoBatches)
def _no_batches(found: NoBatches) -> Finding:
    return Finding(
        "no-data-parallel-axis",
        found.node,
        "no data loader feeds this training, and nothing is seen to be a batch that could be cut into shards: every "
        "process would train on all of it",
        _FEED,
        Severity.BLOCKED,
        case="no-batches",
    )


@worded.register(OwnList)
def _own_list(found: OwnList) -> Finding:
    return Finding(
        "no-data-parallel-axis",
        found.node,
        f"no data loader feeds this training, but `{found.name}`, which the script fills by itself: every process "
        "would go through all of it",
        _FEED,
        Severity.BLOCKED,
        case="own-list",
    )


@worded.register(UnclearFeed)
def _unclear_feed(found: UnclearFeed) -> Finding:
    label = "it is filled here" if found.origin is not None and found.origin.filled else "it is made here"
    return Finding(
        "unknown-loader",
        found.node,
        f"cannot tell whether `{found.name}`, which feeds this training, is a data loader",
        f"pass --assume loader={found.name} if it is a torch.utils.data.DataLoader; otherwise feed the training from "
        f"one: of a list of rows DataLoader({found.name}, batch_size=...), of an iterator of whole batches "
        "(BucketIterator of torchtext) a DataLoader of its data set",
        Severity.BLOCKED,
        found.source,
        Cause(found.origin.node, label) if found.origin is not None else None,
        case="unclear",
    )


@worded.register(ForeignFeed)
def _foreign_feed(found: ForeignFeed) -> Finding:
    own = found.variable or "loader"
    vouch = f"pass --assume loader={own} if it is a torch.utils.data.DataLoader"
    return Finding(
        "unknown-loader",
        found.node,
        f"cannot tell whether `{found.text}`, which feeds this training, is a data loader: what `{found.giver}` gives "
        "is not known",
        vouch if own == found.text else f"give it a name, as in {own} = {found.text}, and {vouch}",
        Severity.BLOCKED,
        case="package",
    )


@worded.register(UncutBatches)
def _uncut_batches(found: UncutBatches) -> Finding:
    reason, remedy = found.reason, found.remedy or _FEED
    if found.maker:
        reason += f". `{found.called}` is made by {found.maker}, and its class cannot be told"
        remedy = "make it by the name of its class, as in model = Net(...), then migrate"
    return Finding(
        "no-data-parallel-axis",
        found.node,
        f"no data loader feeds this training, and its batches cannot be cut into shards: {reason}",
        remedy,
        Severity.BLOCKED,
        cause=Cause(found.training, "this is the training") if found.training is not None else None,
        case="environment" if found.plays else "not-cut",
    )


@worded.register(ConflictingRoles)
def _conflicting_roles(found: ConflictingRoles) -> Finding:
    told = " and ".join(f"{role} ({because})" for role, because in found.roles)
    vouch = "" if found.in_turn else f", or say which one it is: --assume {found.roles[0][0]}={found.name}"
    return Finding(
        "conflicting-roles",
        found.node,
        f"`{found.name}` is used for two things: {told}",
        f"use two different names{vouch}",
        Severity.BLOCKED,
    )


_FEED = (
    "feed it from a torch.utils.data.DataLoader, such as DataLoader(TensorDataset(x, y), batch_size=32), or keep it on "
    "one device"
)
