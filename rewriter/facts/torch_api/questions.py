"""What the analysis asks about names outside the program, answered from the rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

from ..roles import Role
from .kinds import outside, processes, tensors, training
from .loading import methods, named, packages, row, transfer
from .randomness import draws

_CONSTRUCTED: dict[type[tuple[object, ...]], Role] = {
    processes.AcceleratorClass: Role.ACCELERATOR,
    processes.Device: Role.DEVICE,
    training.Loader: Role.LOADER,
    training.Scheduler: Role.SCHEDULER,
    training.Optimizer: Role.OPTIMIZER,
    training.GradientScaler: Role.SCALER,
    training.Loss: Role.LOSS,
    training.Criterion: Role.CRITERION,
    training.ModelClass: Role.MODEL,
    training.Checkpoint: Role.CHECKPOINT,
}
_INHERITED: dict[type[tuple[object, ...]], Role] = {
    training.ModelClass: Role.MODEL,
    training.Wrapper: Role.MODEL,
    training.Criterion: Role.CRITERION,
    training.Loader: Role.LOADER,
    training.Scheduler: Role.SCHEDULER,
    training.Optimizer: Role.OPTIMIZER,
    training.Dataset: Role.DATASET,
    training.Sampler: Role.DATASET,
}


def constructed(name: str) -> Role | None:
    """The role of the result of a call of an outside name, if the name alone decides it."""
    found = row(name)
    return _CONSTRUCTED.get(type(found.transfer)) if found is not None else None


def base_role(name: str) -> Role | None:
    """The role of an instance of a user's class with this outside base class."""
    found = row(name)
    return _INHERITED.get(type(found.transfer)) if found is not None else None


def tracker(name: str) -> outside.Tracker | None:
    """What is known of an experiment tracker that a call starts; None if it starts none."""
    return transfer(name, outside.Tracker)


def weights_words(name: str) -> Sequence[str]:
    """The keywords that ask a call for pretrained weights, which every process would download; ``always`` for none."""
    found = transfer(name, training.ModelClass)
    return found.weights.split() if found is not None else ()


def parts(name: str) -> Sequence[str]:
    """The attributes that the constructor of a class sets to layers."""
    found = transfer(name, training.ModelClass)
    return found.parts.split() if found is not None else ()


def averages_weights(name: str) -> bool:
    """Whether a call makes what keeps a moving average of parameters."""
    return transfer(name, training.WeightAverage) is not None


def needs_whole_weights(name: str) -> bool:
    """Whether an optimizer cannot work on sharded weights."""
    found = transfer(name, training.Optimizer)
    return found is not None and found.whole


def joins_weights(name: str) -> bool:
    """Whether a call joins parameters in one vector, or writes them from one."""
    return transfer(name, training.FlatWeights) is not None


def copies(name: str) -> bool:
    """Whether a call returns a copy of its argument."""
    found = transfer(name, tensors.Same)
    return found is not None and found.copy


@cache
def as_python() -> frozenset[str]:
    """Methods of a tensor that give a list or an array."""
    known = named(tensors.ToHost).items()
    return frozenset(name.rpartition(".")[2] for name, each in known if each.gives in ("list", "array"))


def reads_values(method: str) -> bool:
    """Whether a method of a tensor gives its values to Python: as a number, a list or an array."""
    found = transfer(_TENSOR + method, tensors.ToHost)
    return found is not None and found.gives != "tensor"


def ends_gradient(method: str) -> bool:
    """Whether what a method of a tensor gives has no gradient: ``item``, ``detach``."""
    return reads_values(method) or transfer(_TENSOR + method, tensors.Detach) is not None


def keeps_module() -> frozenset[str]:
    """Methods of a module that return the module itself."""
    return methods("torch.nn.Module", training.ModuleInPlace)


@cache
def of_modules() -> frozenset[str]:
    """Methods of a module that do not run it."""
    names = [*named(training.ModuleInPlace), *named(training.ModulePart)]
    return frozenset(name.rpartition(".")[2] for name in names)


def mixes_rows(name: str) -> bool | None:
    """Whether rows of a batch influence one another in a model that an outside name builds; None if that is unknown."""
    found = transfer(name, training.ModelClass)
    return found.mixes_rows if found is not None else None


def family(name: str) -> str:
    """The package that has, under its own name, each model that a function builds by name; empty for none."""
    found = transfer(name, training.ModelClass)
    return found.family if found is not None else ""


def is_bare(name: str) -> bool:
    """Whether a class of modules has no parameters of its own: a loss, an activation, a container."""
    found = transfer(name, training.ModelClass)
    return transfer(name, training.Criterion) is not None or (found is not None and (found.bare or _contains(found)))


def begins_constant(name: str) -> bool:
    """Whether nothing draws the weights of a class of modules: it has none, or they begin as ones and zeros."""
    found = transfer(name, training.ModelClass)
    return is_bare(name) or (found is not None and found.constant)


def contains_modules(name: str) -> bool:
    """Whether a class of modules contains others, and has no parameters but theirs."""
    found = transfer(name, training.ModelClass)
    return found is not None and _contains(found)


def _contains(found: training.ModelClass) -> bool:
    return found.gives == "modules"


def is_parameter(name: str) -> bool:
    """Whether a call makes a parameter, or a buffer, of a module."""
    return transfer(name, training.Parameter) is not None


def clips(name: str) -> bool:
    """Whether a call limits gradients."""
    return transfer(name, training.Clip) is not None


@cache
def gradient_contexts(of: Literal["gradient", "no gradient"]) -> frozenset[str]:
    """The last names of contexts in which gradients are switched: by an argument, or off."""
    return frozenset(name.rpartition(".")[2] for name, each in named(training.Context).items() if each.of == of)


def is_autocast(name: str) -> bool:
    """Whether a context computes in lower precision."""
    found = transfer(name, training.Context)
    return found is not None and found.of == "autocast"


# ---------------------------------------------------------------- tensors, and what goes through a call


def leaves_device() -> frozenset[str]:
    """Methods of a tensor whose result is no longer a tensor on the batch's device."""
    return methods("torch.Tensor", tensors.ToHost)


def passes(name: str) -> bool:
    """Whether loaders and models pass through a call: it iterates, joins or wraps its arguments."""
    found = row(name)
    return found is not None and isinstance(found.transfer, (tensors.Passes, outside.Bar))


def chooses(name: str) -> bool:
    """Whether a call draws some of the elements that it is given."""
    found = transfer(name, tensors.Random)
    return found is not None and found.draws == "choice"


def places(name: str) -> bool:
    """Whether a call puts the tensors of a whole batch on a device, and returns it."""
    found = transfer(name, tensors.Same)
    return found is not None and found.places


def joins_tensors(name: str) -> bool:
    """Whether a call of any package puts tensors together to one, on their device: a grid of pictures."""
    return transfer(name, tensors.Concat) is not None


def iterates(last: str) -> bool:
    """Whether a callable with this last name, from any package, yields the elements that it iterates."""
    found = transfer(f"any.{last}", tensors.Passes)
    return found is not None and found.iterates


def limits(last: str) -> bool:
    """Whether a callable with this last name ends after as many elements as its other arguments say."""
    found = transfer(f"any.{last}", tensors.Passes)
    return found is not None and found.limits


def leaves_out(name: str) -> bool:
    """Whether a call yields some of the elements that it iterates, chosen by what is in them."""
    found = transfer(name, tensors.Passes)
    return found is not None and found.leaves_out


def host_builtin(name: str) -> bool:
    """Whether a builtin makes a Python value from a tensor, or passes a Python value on."""
    found = row(name)
    text = found.transfer if found is not None and isinstance(found.transfer, outside.TextOf) else None
    return transfer(name, tensors.ToHost) is not None or (text is not None and text.host)


# ---------------------------------------------------------------- rows and shapes

_TENSOR = "torch.Tensor."


@cache
def takes_shape(last: str) -> bool:
    """Whether a method of tensors, or a function of that name, is given a shape: ``view``, ``zeros``, ``randn``."""
    return any(_takes_shape(prefix + last) for prefix in ("torch.", _TENSOR))


@cache
def changes_shape(method: str) -> bool:
    """Whether a method of tensors can give another number of rows, the values being the same: ``view``, ``flatten``."""
    shape = transfer(_TENSOR + method, tensors.Reshape)
    return shape is not None and shape.how not in ("squeeze", "unsqueeze")


def is_tensor_type(name: str) -> bool:
    """Whether a type makes tensors of values, or of sizes: ``torch.FloatTensor(rows, columns)``."""
    return transfer(name, tensors.Convert) is not None and name.rpartition(".")[2][:1].isupper()


def creates(name: str) -> bool:
    """Whether a call makes a tensor of values that are known."""
    return transfer(name, tensors.Create) is not None


def asks_shape_alone(name: str) -> bool:
    """Whether a call asks one of its arguments for its shape or its type alone: ``mask.expand_as(rows)``."""
    found = transfer(name, tensors.Reshape) or transfer(name, tensors.Pointwise)
    return found is not None and bool(found.shape_only)


def _takes_shape(name: str) -> bool:
    shape = transfer(name, tensors.Reshape)
    if shape is not None:
        return shape.how in ("view", "expand", "repeat", "interleave")
    if transfer(name, tensors.Convert) is not None:
        return is_tensor_type(name)
    return creates(name) or draws(name) is not None


def creates_steps(name: str) -> bool:
    """Whether a call makes a value for each place: ``torch.arange``."""
    found = transfer(name, tensors.Create)
    return found is not None and found.steps


def cut_along(name: str) -> int | None:
    """The position of the dimension that a call cuts into parts, or turns round; None for any other call."""
    found = transfer(name, tensors.Reshape)
    return found.dim if found is not None and found.how in ("split", "flip") else None


def gives_chosen(name: str) -> bool:
    """Whether how many rows a call gives depends on values: ``torch.nonzero``, ``torch.unique``."""
    opaque, reduces = transfer(name, tensors.Opaque), transfer(name, tensors.Reduce)
    sized = (opaque is not None and opaque.why.startswith("the size")) or (reduces is not None and bool(reduces.sized))
    return transfer(name, tensors.Choose) is not None or sized


def makes_values(name: str) -> bool:
    """Whether a call computes values of tensors: ``torch.isnan``, ``torch.Tensor.any``."""
    return any(transfer(name, kind) is not None for kind in (tensors.Pointwise, tensors.Reduce))


def gives_tensor(name: str) -> bool:
    """Whether a call of torch makes a tensor, or is a method of one that was made: ``torch.randint.long``."""
    while name.startswith("torch."):
        if creates(name) or draws(name) is not None or makes_values(name):
            return True
        name = name.rpartition(".")[0]
    return False


def downloads_always(name: str) -> bool:
    """Whether whatever makes such a data set downloads it, or processes it, where that was not done before."""
    found = transfer(name, training.Dataset)
    return found is not None and found.download == "always"


def rows_have_one_shape(name: str) -> bool:
    """Whether all rows of such a data set have one shape."""
    found = transfer(name, training.Dataset)
    return found is not None and found.even


def collates(name: str) -> bool:
    """Whether a call makes a batch from rows."""
    return transfer(name, training.Collate) is not None


def asks_shape(name: str) -> bool:
    """Whether what a call gives depends on the type or the shape of its argument, and not on the values in it."""
    return transfer(name, tensors.Structural) is not None


def asks_type(name: str) -> bool:
    """Whether what a call gives depends on the type of its argument alone."""
    found = transfer(name, tensors.Structural)
    return found is not None and found.of_type


# ---------------------------------------------------------------- packages


def framework(module: str) -> str:
    """The title of the package that runs the training loop, for a module of it; empty if it does not run the loop."""
    return trainer(f"{module}.")


def trainer(name: str) -> str:
    """The title of a class whose objects run the training loop, in a package that otherwise leaves it to the script."""
    found = transfer(name, processes.Framework)
    return found.title if found is not None else ""


def leaves_the_loop(name: str) -> bool:
    """Whether a function of such a package leaves the loop to the script."""
    return transfer(name, processes.FrameworkPart) is not None


def is_described(package: str) -> bool:
    """Whether anything is known of a package, by its first name."""
    return package in packages()


def is_unknown(name: str) -> bool:
    """Whether nothing is known of an outside callable."""
    return row(name) is None


def asks_only(name: str) -> bool:
    """Whether a call says something of the accelerator, or seeds its generator, and puts nothing on it."""
    found = row(name)
    return found is not None and isinstance(found.transfer, (processes.Available, outside.PerProcess, training.Seed))


def plays(name: str) -> bool:
    """Whether a call makes an environment that is played."""
    return transfer(name, processes.PlayedEnvironment) is not None


def searches(name: str) -> bool:
    """Whether a call searches hyperparameters."""
    return transfer(name, processes.Search) is not None


_QUANTIZATION = re.compile(r"torch\.(ao\.)?quantization\.(quantize_fx\.|quantize\.)?prepare\w*$")


def observes(name: str) -> bool:
    """Whether a function puts observers into a model, which collect the ranges of all that passes by: before it is
    quantized."""
    return _QUANTIZATION.match(name) is not None
