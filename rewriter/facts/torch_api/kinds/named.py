"""The class for each name of a kind in a table."""

from __future__ import annotations

from typing import Literal, NamedTuple

from . import outside, processes, tensors, training


class Columns(NamedTuple):
    """The options that a row of any kind can have."""

    since: str = ""
    """The first version of its package that has this name, if that is newer than the oldest supported one."""
    until: str = ""
    """The first version of its package without this name: old scripts still use it."""
    only: Literal["", "classes"] = ""
    """For a name with a star: which names below it are meant."""


KINDS: dict[str, type[tuple[object, ...]]] = {
    "pointwise": tensors.Pointwise,
    "reduce": tensors.Reduce,
    "along": tensors.AlongDim,
    "reshape": tensors.Reshape,
    "concat": tensors.Concat,
    "product": tensors.Product,
    "einsum": tensors.Einsum,
    "axes": tensors.Axes,
    "create": tensors.Create,
    "convert": tensors.Convert,
    "random": tensors.Random,
    "to_host": tensors.ToHost,
    "structural": tensors.Structural,
    "same": tensors.Same,
    "passes": tensors.Passes,
    "detach": tensors.Detach,
    "row_gradient": tensors.RowGradient,
    "choose": tensors.Choose,
    "opaque": tensors.Opaque,
    "loss": training.Loss,
    "criterion": training.Criterion,
    "module": training.ModelClass,
    "module_in_place": training.ModuleInPlace,
    "module_part": training.ModulePart,
    "parameter": training.Parameter,
    "wrapper": training.Wrapper,
    "applied": training.AppliedModel,
    "optimizer": training.Optimizer,
    "scheduler": training.Scheduler,
    "scaler": training.GradientScaler,
    "loader": training.Loader,
    "dataset": training.Dataset,
    "sampler": training.Sampler,
    "weight_average": training.WeightAverage,
    "flat_weights": training.FlatWeights,
    "split": training.Split,
    "collate": training.Collate,
    "metric": training.Metric,
    "checkpoint": training.Checkpoint,
    "backward": training.Backward,
    "clip": training.Clip,
    "context": training.Context,
    "seed": training.Seed,
    "device": processes.Device,
    "available": processes.Available,
    "pin": processes.Pin,
    "rank": processes.RankNumber,
    "start": processes.ProcessStart,
    "collective": processes.Collective,
    "group": processes.GroupState,
    "accelerator": processes.AcceleratorClass,
    "framework": processes.Framework,
    "framework_part": processes.FrameworkPart,
    "search": processes.Search,
    "environment": processes.PlayedEnvironment,
    "command_line": processes.CommandLine,
    "per_process": outside.PerProcess,
    "write": outside.Write,
    "read": outside.Read,
    "open": outside.Open,
    "console": outside.Console,
    "picture": outside.Picture,
    "download": outside.Download,
    "tracker": outside.Tracker,
    "log_file": outside.LogFile,
    "bar": outside.Bar,
    "text": outside.TextOf,
    "lock": outside.Lock,
    "memory": outside.InMemory,
    "exit": outside.Exit,
    "command": outside.Command,
    "interrupt": outside.Interrupt,
    "raised": outside.Raised,
}
