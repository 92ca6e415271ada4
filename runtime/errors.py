"""Errors of the runtime. Every message says what was found and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache


class TorchliftError(RuntimeError):
    """The root of all errors that the runtime raises by itself."""


class NotAvailableYet(TorchliftError, NotImplementedError):
    """Asked for an ability that this version does not have. Nothing was put in its place."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} is not available in this version of torchlift. {remedy}")


class UnknownWordError(TorchliftError, ValueError):
    """An argument or an environment variable holds a word that means nothing here."""

    def __init__(self, what: str, word: object, known: list[str]) -> None:
        super().__init__(f"{what} is {word!r}; it must be one of: {', '.join(known)}.")


class UnknownTorchError(TorchliftError, ImportError):
    """The installed version of torch lacks something that the runtime cannot do without."""


class WrongKindError(TorchliftError, TypeError):
    """Something of another kind was given."""


class TopologyError(TorchliftError):
    """The environment does not say clearly which process this is among how many."""


class DeviceError(TorchliftError, ValueError):
    """There is no such device here, or it cannot do what is asked of it."""


class MixedUseError(TorchliftError, ValueError):
    """Two settings contradict each other."""


class CollectiveError(TorchliftError):
    """The processes did not hand in tensors that can be joined."""


class CollectiveMismatch(CollectiveError):
    """The processes called different things together, or in a different order."""


class NotPreparedError(TorchliftError):
    """Several processes train weights that no prepared model holds, each its own."""


class DivergenceError(TorchliftError):
    """Weights that are to be equal on all processes differ."""


class UnclearBatchError(TorchliftError):
    """`backward` cannot tell which batch a loss was computed from, and so how much the loss of this process counts."""


class BatchShapeError(TorchliftError, ValueError):
    """A batch cannot be cut into the rows of the processes."""


class RemainderError(TorchliftError, ValueError):
    """`gather_for_metrics` cannot tell which rows are duplicates."""


class CheckpointError(TorchliftError):
    """A file could not be written or read as a checkpoint."""


class CheckpointPathError(CheckpointError, ValueError):
    """There is nothing to load at a path, or nothing can be saved there."""


class ShardedTensorError(CheckpointError):
    """What one process holds of a sharded tensor was about to be taken for the whole."""


class MissingPackageError(TorchliftError, ImportError):
    """An optional package is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f'{what} needs the package {package!r}, which is not installed. Run: pip install "torchlift[{extra}]"'
        )


class TrackerError(TorchliftError, ValueError):
    """A tracker cannot be made or found."""


class IncompleteTrackerError(TrackerError, NotImplementedError):
    """The class of a tracker lacks something."""


class ConfigError(TorchliftError, ValueError):
    """A configuration file cannot be read, or says what means nothing here."""


class LaunchError(TorchliftError, ValueError):
    """The processes of a job could not be started."""


def expect(what: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """
    Make sure that an argument is of one of some kinds.

    Args:
        what: the argument, for the message.
        value: what was given.
        kinds: what it may be an object of.
        wanted: these, in words, and what to do about it.

    Raises:
        WrongKindError: it is of none of them; a TypeError.
    """
    if not isinstance(value, kinds):
        given = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise WrongKindError(f"{what} was given {given}; it takes {wanted}.")


def missing(what: str, name: str, known: Iterable[str]) -> str:
    """
    What to say of a name that this version does not have: a known name that it is a typing error of, else that a newer
    `migrate` may have written it.

    Args:
        what: that it is not there, in words, without a full stop.
        name: the name that was asked for.
        known: the names that this version has.
    """
    from difflib import get_close_matches

    near = get_close_matches(name, [one for one in known if not one.startswith("_")], n=1, cutoff=0.8)
    return f"{what}. Did you mean {near[0]!r}?" if near else newer(what)


@cache
def newer(what: str) -> str:
    """
    What to say of a name that this version does not have: a newer `migrate` may have written it.

    Args:
        what: that it is not there, in words, without a full stop.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("torchlift")
    except PackageNotFoundError:
        return what
    return (
        f"{what}. If a newer `migrate` wrote this line, it needs a torchlift later than {installed}, which is "
        "installed: pip install --upgrade torchlift"
    )


def refuse_newer(what: str, arguments: Iterable[str], known: Iterable[str] = ()) -> None:
    """
    Refuse keyword arguments that this version does not have; ``known`` are those that it has.

    Raises:
        TypeError: there is one.
    """
    for name in arguments:
        raise TypeError(missing(f"{what}() got an unexpected keyword argument {name!r}", name, known))
