"""What training is built from: models, losses, optimizers, loaders."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Loss(NamedTuple):
    """A loss as a function."""

    default: Literal["mean", "sum", "batchmean", "none"] = "mean"
    reduction: int | None = None
    """The position of ``reduction``; None if it is given by keyword only."""
    average: int | None = None
    """The position of ``size_average``, which asked for the mean before there were reductions."""
    weight: int | None = None
    """The position of ``weight``, where the mean is divided by the weights of the rows."""
    ignored: int | None = None
    """The position of ``ignore_index``, where the mean leaves out the rows of this class."""
    classes: bool = False
    """Targets are class numbers, or texts of them: they have another shape than what is compared with them."""


class Criterion(NamedTuple):
    """A loss as a class. The positions are those of its constructor's arguments."""

    default: Literal["mean", "sum", "batchmean", "none"] = "mean"
    reduction: int | None = None
    """As in `Loss`."""
    average: int | None = None
    """As in `Loss`."""
    weight: int | None = None
    """As in `Loss`."""
    ignored: int | None = None
    """As in `Loss`."""
    classes: bool = False
    """As in `Loss`."""


class ModelClass(NamedTuple):
    """A class or a function that creates a model or a part of one."""

    mixes_rows: bool | None = False
    """In training, rows of a batch influence one another; None where that depends on what is asked for."""
    family: str = ""
    """The package where models have the names that its first argument may have: ``create_model("resnet50")``."""
    random: bool = False
    dropout: float | None = None
    """What its argument ``dropout`` is where none is given."""
    gives: Literal["tensor", "output and state", "fields", "modules"] = "tensor"
    """``fields``: an object with a tensor of rows in each field, but for the model's own loss."""
    own_loss: Literal["", "rows", "labels"] = ""
    """Of a model that gives fields: what its own loss is the mean of; ``labels``: of those that are not -100."""
    rows: Literal["first", "all but the last", "any", "along", "sequence", "named", "unknown"] = "first"
    """The dimensions in which the rows of a batch can be, and stay; ``along``: all but the one that ``dim`` names;
    ``sequence``: the first or the second, as ``batch_first`` says; ``named``: a text names them, see `Axes`."""
    weights: str = ""
    """The keywords that ask for pretrained weights, which are downloaded without a lock; ``always`` if no keyword is
    needed."""
    bare: bool = False
    """It has no parameters, whatever it is built with."""
    constant: bool = False
    """Its weights begin as ones and zeros: nothing draws them."""
    batch_first: int | None = None
    """Of a ``sequence``: the position of ``batch_first``; None if it is given by keyword only."""
    repeats: bool = False
    """It is a stack of its first argument, another layer, which says where the rows are."""
    parts: str = ""
    """Attributes that its constructor sets to layers that take and give what it does itself, with blanks between."""


class ModuleInPlace(NamedTuple):
    """A method of a model that returns the model itself."""

    moves: bool = False
    """It moves the model to another device."""


class ModulePart(NamedTuple):
    """A method of a model that looks at it or registers something, and does not run it."""

    gives: Literal["", "parameters", "state"] = ""


class Parameter(NamedTuple):
    """A tensor that a model owns."""


class Wrapper(NamedTuple):
    """A model around a model: the same model, looked through."""

    distributes: Literal["", "threads", "processes"] = ""
    own: str = ""
    """Attributes of the wrapper that the model inside does not have, ``module`` apart, with blanks between them."""


class AppliedModel(NamedTuple):
    """One call of a model on several devices of a process: what the model gives for its input."""


class Optimizer(NamedTuple):
    """A class of optimizers, or a function that creates one."""

    whole: bool = False
    """A step needs each weight as a whole: torch has no form of it for sharded ones."""


class Scheduler(NamedTuple):
    """A class of learning rate schedules, or a function that creates one."""

    metric: bool = False
    """``step`` takes a measured value, such as a validation loss."""


class GradientScaler(NamedTuple):
    """A scaler of gradients for float16."""


class Loader(NamedTuple):
    """A loader of batches."""


class Dataset(NamedTuple):
    """A class of datasets, or what belongs to one."""

    download: str = ""
    """The keyword that asks for a download; ``always`` if no keyword is needed."""
    even: bool = False
    """All rows have one shape."""


class Sampler(NamedTuple):
    """What decides which rows come next."""

    distributed: bool = False
    random: bool = False


class FlatWeights(NamedTuple):
    """Joins parameters in one vector, or writes them from one."""


class WeightAverage(NamedTuple):
    """Keeps a moving average of parameters: it has a ``step`` or an ``update``, and is no optimizer."""


class Split(NamedTuple):
    """Divides rows at random, with the generator of this process unless another is given."""

    generator: Literal["torch", "numpy"] = "torch"
    seed: str = "generator"
    """The keyword that makes it equal on all processes."""
    shuffles: Literal["always", "asked"] = "always"


class Collate(NamedTuple):
    """Makes a batch from rows."""

    pads: str = ""
    """The keys that it pads to the longest row of the batch; ``unknown`` where any can be."""
    leaves_out: bool = False
    """It gives targets of the class that losses leave out where they are not told another (-100)."""


class Metric(NamedTuple):
    """A metric with a state that is kept from batch to batch."""

    joins: bool = False
    """It combines the values of all processes by itself."""


class Checkpoint(NamedTuple):
    """Reads what was saved: weights, states."""

    download: bool = False


class Backward(NamedTuple):
    """Computes gradients."""


class Clip(NamedTuple):
    """Limits gradients."""


class Context(NamedTuple):
    """A context manager or decorator around what is computed."""

    of: Literal["no gradient", "gradient", "autocast", "anomaly", "profile"] = "no gradient"


class Seed(NamedTuple):
    """Sets the state of a random generator."""

    generator: Literal["torch", "cuda", "numpy", "python"] = "torch"
