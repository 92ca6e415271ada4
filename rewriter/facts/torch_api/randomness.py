"""What the analysis asks about random numbers: what a call draws, from which generator, and what seeds it."""

from __future__ import annotations

from .kinds import tensors, training
from .loading import transfer


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
