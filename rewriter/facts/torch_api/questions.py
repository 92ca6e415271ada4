"""What the analysis asks about names outside the program, answered from the rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Literal

from ..roles import Role
from ..spellings import WITHOUT_CUDA
from .kinds import outside, processes, tensors, training
from .loading import methods, named, packages, row, transfer

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


def only_says_which(name: str) -> bool:
    """Whether a class only says which process this is, and distributes nothing: ``PartialState``."""
    found = transfer(name, processes.AcceleratorClass)
    return found is not None and found.state


def base_role(name: str) -> Role | None:
    """The role of an instance of a user's class with this outside base class."""
    found = row(name)
    return _INHERITED.get(type(found.transfer)) if found is not None else None


def tracker(name: str) -> outside.Tracker | None:
    """What is known of an experiment tracker that a call starts; None if it starts none."""
    return transfer(name, outside.Tracker)


# ---------------------------------------------------------------- models


@cache
def wrappers(distributes: Literal["threads", "processes"]) -> frozenset[str]:
    """Wrappers of a model that use several devices: by threads, or by processes."""
    return frozenset(name for name, each in named(training.Wrapper).items() if each.distributes == distributes)


def is_wrapper(name: str) -> bool:
    """Whether a call wraps a model in one that uses several devices."""
    found = transfer(name, training.Wrapper)
    return found is not None and found.distributes != ""


def wrapper_attributes(name: str) -> list[str]:
    """The attributes of a wrapper that the model inside does not have."""
    found = transfer(name, training.Wrapper)
    return found.own.split() if found is not None else []


def same_model(name: str) -> bool:
    """Whether a call returns the model that it gets, possibly wrapped."""
    return transfer(name, training.Wrapper) is not None


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


def keeps_module() -> frozenset[str]:
    """Methods of a module that return the module itself."""
    return methods("torch.nn.Module", training.ModuleInPlace)


@cache
def of_modules() -> frozenset[str]:
    """Methods of a module that do not run it."""
    names = [*named(training.ModuleInPlace), *named(training.ModulePart)]
    return frozenset(name.rpartition(".")[2] for name in names)


def joins_processes(name: str) -> bool:
    """Whether a metric combines the values of all processes by itself."""
    found = transfer(name, training.Metric)
    return found is not None and found.joins


# ---------------------------------------------------------------- tensors, and what goes through a call


def leaves_device() -> frozenset[str]:
    """Methods of a tensor whose result is no longer a tensor on the batch's device."""
    return methods("torch.Tensor", tensors.ToHost)


def passes(name: str) -> bool:
    """Whether loaders and models pass through a call: it iterates, joins or wraps its arguments."""
    found = row(name)
    return found is not None and isinstance(found.transfer, (tensors.Passes, outside.Bar))


def asks_only(name: str) -> bool:
    """Whether a call says something of the accelerator, or seeds its generator, and puts nothing on it."""
    found = row(name)
    return found is not None and isinstance(found.transfer, (processes.Available, outside.PerProcess, training.Seed))


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


# ---------------------------------------------------------------- processes and devices


def spawns(name: str) -> bool:
    """Whether a call starts processes that run a function of the script."""
    found = transfer(name, processes.ProcessStart)
    return found is not None and found.spawns


def is_distributed_sampler(name: str) -> bool:
    """Whether a sampler gives each process its own rows."""
    found = transfer(name, training.Sampler)
    return found is not None and found.distributed


def distributes(name: str) -> bool:
    """Whether a program that calls this distributes itself by hand."""
    by_processes = name in wrappers("processes") or is_distributed_sampler(name)
    number = transfer(name, processes.RankNumber)
    joined = number is not None and number.starts
    return by_processes or joined or transfer(name, processes.ProcessStart) is not None


def rank_number(name: str) -> str:
    """Which number of a process a call gives: ``rank``, ``local rank``, ``world size``; empty for other calls."""
    found = transfer(name, processes.RankNumber)
    return found.of if found is not None else ""


def pins(name: str) -> bool:
    """Whether a call chooses the device of this process."""
    return transfer(name, processes.Pin) is not None


def asks_availability(name: str) -> bool:
    """Whether a call asks if there is an accelerator, or how many."""
    return transfer(name, processes.Available) is not None


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


def _takes_shape(name: str) -> bool:
    shape = transfer(name, tensors.Reshape)
    if shape is not None:
        return shape.how in ("view", "expand", "repeat", "interleave")
    if transfer(name, tensors.Convert) is not None:
        return is_tensor_type(name)
    return creates(name) or draws(name) is not None


# ---------------------------------------------------------------- what all processes do together

_RUNTIME = "torchlift.runtime."
_ACCELERATOR = f"{_RUNTIME}Accelerator"
_GROUP = "torch.distributed."
_JOINING = ("reduce", "gather", "broadcast")


def collective(name: str) -> processes.Collective | None:
    """What processes that are connected by hand do together in a call of torch; None for other calls."""
    return transfer(_GROUP + name.rpartition(".")[2], processes.Collective) if name.startswith(_GROUP) else None


def asks_group(name: str) -> bool:
    """Whether a call of torch asks about the group of processes."""
    return name.startswith(_GROUP) and transfer(_GROUP + name.rpartition(".")[2], processes.GroupState) is not None


@cache
def together() -> frozenset[str]:
    """The methods of the accelerator that all processes must call together."""
    return methods(_ACCELERATOR, processes.Collective)


def saves_by_one(name: str) -> bool:
    """Whether all processes call a method of a package's trainer, in which one of them writes."""
    found = transfer(name, processes.Collective)
    return found is not None and found.op == "save"


@cache
def turns() -> frozenset[str]:
    """Those of them that let one process go before the others."""
    return _methods_of("turns")


@cache
def joining() -> frozenset[str]:
    """Those whose result is made from the values of all processes, and is the same on all."""
    return _methods_of(*_JOINING)


def joins_values(name: str) -> bool:
    """Whether a function of the runtime gives all processes the same."""
    found = transfer(name, processes.Collective) if name.startswith(_RUNTIME) else None
    return found is not None and found.op in _JOINING


@cache
def exchanging() -> frozenset[str]:
    """Those whose result holds values of other processes, or is padded to their sizes."""
    return _methods_of(*_JOINING, "pad")


@cache
def joining_names() -> frozenset[str]:
    """The last names of all calls that join the values of all processes: of the accelerator, and of torch."""
    rows = named(processes.Collective).items()
    return frozenset(name.rpartition(".")[2] for name, found in rows if found.op in _JOINING)


def _methods_of(*ops: str) -> frozenset[str]:
    return frozenset(n for n in together() if named(processes.Collective)[f"{_ACCELERATOR}.{n}"].op in ops)


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


def contains_modules(name: str) -> bool:
    """Whether a class of modules contains others, and has no parameters but theirs."""
    found = transfer(name, training.ModelClass)
    return found is not None and _contains(found)


def _contains(found: training.ModelClass) -> bool:
    return found.gives == "modules"


def is_parameter(name: str) -> bool:
    """Whether a call makes a parameter, or a buffer, of a module."""
    return transfer(name, training.Parameter) is not None


def creates_steps(name: str) -> bool:
    """Whether a call makes a value for each place: ``torch.arange``."""
    found = transfer(name, tensors.Create)
    return found is not None and found.steps


def cut_along(name: str) -> int | None:
    """The position of the dimension that a call cuts into parts, or turns round; None for any other call."""
    found = transfer(name, tensors.Reshape)
    return found.dim if found is not None and found.how in ("split", "flip") else None


def clips(name: str) -> bool:
    """Whether a call limits gradients."""
    return transfer(name, training.Clip) is not None


# ---------------------------------------------------------------- what differs from process to process


def stamps(name: str) -> bool:
    """Whether a call returns what scripts use in names, and what differs although every process runs the same code."""
    found = row(name)
    return (
        found is not None and isinstance(found.transfer, (outside.PerProcess, tensors.Random)) and found.transfer.stamp
    )


def is_per_process(name: str) -> bool:
    """Whether a call returns what differs between processes and is not random: the clock, the number of a process."""
    return transfer(name, outside.PerProcess) is not None


def interrupts(name: str) -> bool:
    """Whether a call has a function run when something happens to one process alone: a signal."""
    return transfer(name, outside.Interrupt) is not None


def makes_generator(name: str) -> bool:
    """Whether a call makes a generator of random numbers that, given no seed, is seeded by the system."""
    found = transfer(name, tensors.Opaque)
    return found is not None and found.generator != ""


def divides_by(maker: str, method: str) -> bool:
    """Whether a method of a generator that a call makes chooses or orders elements."""
    found = transfer(maker, tensors.Opaque)
    module = {"numpy": "numpy.random", "python": "random"}.get(found.generator if found is not None else "", "")
    drawn = draws(f"{module}.{method}") if module else None
    return drawn is not None and drawn.draws in ("order", "choice")


def gives_chosen(name: str) -> bool:
    """Whether how many rows a call gives depends on values: ``torch.nonzero``, ``torch.unique``."""
    opaque = transfer(name, tensors.Opaque)
    return transfer(name, tensors.Choose) is not None or (opaque is not None and opaque.why.startswith("the size"))


def makes_values(name: str) -> bool:
    """Whether a call computes values of tensors: ``torch.isnan``, ``torch.Tensor.any``."""
    return any(transfer(name, kind) is not None for kind in (tensors.Pointwise, tensors.Reduce))


def needs_cuda(name: str) -> bool:
    """Whether a function of `torch.cuda` has no answer where there is no CUDA."""
    module, _, last = name.rpartition(".")
    return module == "torch.cuda" and last not in WITHOUT_CUDA


def unique(name: str) -> bool:
    """Whether a call returns what no other process gets: a temporary folder, a random id."""
    found = transfer(name, outside.PerProcess)
    return found is not None and found.unique


def makes_text(name: str) -> bool:
    """Whether a call makes a text, a number or a path from its arguments, and does nothing else."""
    return transfer(name, outside.TextOf) is not None


def may_find_nothing(name: str) -> bool:
    """Whether a call gives None where it finds nothing, and a value otherwise."""
    found = transfer(name, outside.TextOf)
    return found is not None and found.finds


def draws_alike(name: str) -> bool:
    """Whether a call draws from a generator that is kept equal on all processes: Python's or NumPy's."""
    found = transfer(name, tensors.Random)
    return found is not None and found.generator in ("python", "numpy")


def draws(name: str) -> tensors.Random | None:
    """What a call draws, and from which generator; None if it draws nothing."""
    return transfer(name, tensors.Random)


def splits(name: str) -> training.Split | None:
    """How a call divides rows at random; None if it does not."""
    return transfer(name, training.Split)


def is_noisy(name: str) -> bool:
    """Whether a call makes a layer that draws random numbers in training mode."""
    found = transfer(name, training.ModelClass)
    return found is not None and found.random


def dropout_of(name: str) -> float | None:
    """How much a layer drops in training mode that is given no ``dropout``; None for one that has no such argument."""
    found = transfer(name, training.ModelClass)
    return found.dropout if found is not None else None


def seeds(name: str) -> str:
    """The generator that a call seeds: ``torch``, ``cuda``, ``numpy`` or ``python``; empty if it seeds none."""
    found = transfer(name, training.Seed)
    return found.generator if found is not None else ""


def reads(name: str) -> bool:
    """Whether a call reads a file whose path it is given."""
    found = row(name)
    read = found.transfer if found is not None else None
    return isinstance(read, training.Checkpoint) or (isinstance(read, outside.Read) and read.what == "content")


def opens(name: str) -> bool:
    """Whether a call opens a file; its mode says what for."""
    return transfer(name, outside.Open) is not None


def asks_existence(name: str) -> bool:
    """Whether a call asks if there is a file or a folder."""
    found = transfer(name, outside.Read)
    return found is not None and found.what == "existence"


def asks_state(name: str) -> bool:
    """Whether a call asks for what a file that is not there does not have: its size, its time."""
    found = transfer(name, outside.Read)
    return found is not None and found.what == "state"


@cache
def path_methods(*whats: str) -> frozenset[str]:
    """The methods by which a path reads its file, or asks about it."""
    return frozenset(
        n for n in methods("pathlib.Path", outside.Read) if named(outside.Read)[f"pathlib.Path.{n}"].what in whats
    )


def may_touch(name: str) -> bool:
    """Whether a call that is given the path of a file may look at the file: by its row, or because nothing is known of
    it, as of another package's function that sends it somewhere."""
    found = row(name)
    if found is None:
        package, _, inner = name.partition(".")
        return bool(inner) and package not in sys.stdlib_module_names
    return isinstance(
        found.transfer, (outside.Read, outside.Open, outside.Command, training.Dataset, training.ModelClass)
    )


def runs_command(name: str) -> bool:
    """Whether a call runs another program."""
    return transfer(name, outside.Command) is not None


def lists(name: str) -> bool:
    """Whether a call lists a folder."""
    found = transfer(name, outside.Read)
    return found is not None and found.what == "listing"


def downloads_always(name: str) -> bool:
    """Whether whatever makes such a data set downloads it, or processes it, where that was not done before."""
    found = transfer(name, training.Dataset)
    return found is not None and found.download == "always"


def rows_have_one_shape(name: str) -> bool:
    """Whether all rows of such a data set have one shape."""
    found = transfer(name, training.Dataset)
    return found is not None and found.even


def is_described(package: str) -> bool:
    """Whether anything is known of a package, by its first name."""
    return package in packages()


def is_unknown(name: str) -> bool:
    """Whether nothing is known of an outside callable."""
    return row(name) is None


def keeps_path(name: str) -> bool:
    """Whether an outside callable makes a path or a text from its arguments."""
    found = row(name)
    return asks_existence(name) or (
        found is not None and isinstance(found.transfer, (outside.TextOf, outside.PerProcess, tensors.Same))
    )


# ---------------------------------------------------------------- what is written, fetched, searched


def pictures(name: str) -> bool:
    """Whether a call draws what it is given into a picture."""
    return transfer(name, outside.Picture) is not None


def fetches(name: str) -> bool:
    """Whether a call fetches something and leaves it in a folder, or unpacks it there."""
    return transfer(name, outside.Download) is not None


def finds_fetched(name: str) -> bool:
    """Whether such a call uses what is there already: whoever comes later finds it."""
    found = transfer(name, outside.Download)
    return found is not None and found.keeps


def writes(name: str) -> bool:
    """Whether a call changes something outside the process: a file, a window, the settings of a package."""
    return transfer(name, outside.Write) is not None


def takes_away(name: str) -> bool:
    """Whether a call removes or renames a file or a folder: a second process does not find it any more."""
    found = transfer(name, outside.Write)
    return found is not None and found.how in ("moves", "removes")


def moves(name: str) -> bool:
    """Whether a call renames or moves a file: what it is given first is gone, and second is new."""
    found = transfer(name, outside.Write)
    return found is not None and found.how == "moves"


@cache
def writing_methods() -> frozenset[str]:
    """Methods that do so, by their last names, on whatever object: ``to_csv``, ``write_text``."""
    return frozenset(name.rpartition(".")[2] for name in named(outside.Write) if _is_method(name))


@cache
def text_methods() -> dict[str, str]:
    """Those that write nothing and give the text back where they get no path, with the keyword of the path."""
    found = {name: transfer(name, outside.Write) for name in named(outside.Write) if _is_method(name)}
    return {
        name.rpartition(".")[2]: kind.optional for name, kind in found.items() if kind is not None and kind.optional
    }


def _is_method(name: str) -> bool:
    """Whether a name is that of a method of a class."""
    return name.rpartition(".")[0].rpartition(".")[2][:1].isupper()


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


def prints_lines(name: str) -> bool:
    """Whether a call writes to the console."""
    return transfer(name, outside.Console) is not None


def shows_model(name: str) -> bool:
    """Whether a call writes a table of a model to the console, for which it may run the model."""
    found = transfer(name, outside.Console)
    return found is not None and found.model


def silenced_by(name: str) -> str:
    """The keyword by which a call that writes to the console writes nothing; empty if it has none."""
    found = transfer(name, outside.Console)
    return found.silent if found is not None else ""


def shows_bar(name: str) -> bool:
    """Whether a call makes a progress bar."""
    return transfer(name, outside.Bar) is not None


def writes_log(name: str) -> bool:
    """Whether a handler of ``logging`` writes a file."""
    return transfer(name, outside.LogFile) is not None


def written_path(name: str) -> int | None:
    """The position of the path or the open file that a call writes; None if that is not known."""
    found = transfer(name, outside.Write)
    return found.path if found is not None else None


def written_data(name: str) -> int | None:
    """The position of what a call writes as it is, with all that is in it: ``pickle.dump``."""
    found = transfer(name, outside.Write)
    return found.data if found is not None else None


def in_memory(name: str) -> bool:
    """Whether a call makes a buffer in memory that is written like a file."""
    return transfer(name, outside.InMemory) is not None


def locks(name: str) -> bool:
    """Whether a call makes a lock that one process at a time holds."""
    return transfer(name, outside.Lock) is not None


def ends_process(name: str) -> bool:
    """Whether a call ends the process."""
    return transfer(name, outside.Exit) is not None


def raised_alike(name: str) -> bool:
    """Whether all processes meet an exception at the same place, or none of them."""
    found = transfer(name, outside.Raised)
    return found is not None and found.alike


def starts_commands(name: str) -> bool:
    """Whether a decorator, or a function that returns one, makes functions into commands of the command line."""
    return transfer(name, processes.CommandLine) is not None


def offers_module(name: str) -> bool:
    """Whether a call without an argument offers all functions of its file to the command line."""
    found = transfer(name, processes.CommandLine)
    return found is not None and found.module


def plays(name: str) -> bool:
    """Whether a call makes an environment that is played."""
    return transfer(name, processes.PlayedEnvironment) is not None


def searches(name: str) -> bool:
    """Whether a call searches hyperparameters."""
    return transfer(name, processes.Search) is not None


@cache
def gradient_contexts(of: Literal["gradient", "no gradient"]) -> frozenset[str]:
    """The last names of contexts in which gradients are switched: by an argument, or off."""
    return frozenset(name.rpartition(".")[2] for name, each in named(training.Context).items() if each.of == of)


def is_autocast(name: str) -> bool:
    """Whether a context computes in lower precision."""
    found = transfer(name, training.Context)
    return found is not None and found.of == "autocast"
