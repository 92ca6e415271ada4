"""
What is computed with tensors and arrays.

A position counts the arguments as they are written in a call, from 0; the object of a method is not counted.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Value = Literal["value", "value and index", "index"]


class Pointwise(NamedTuple):
    """Row by row: the rows of the result are computed from the same rows of the arguments."""

    shape_only: tuple[int, ...] = ()
    """Arguments of which only the shape, the type or the device matters."""
    chooses: bool = False
    """With one argument alone it gives the places of what is true, as a tuple."""


class Reduce(NamedTuple):
    """Many values become one: all of them, or those along a dimension."""

    op: Literal["sum", "mean", "max", "min", "all", "any", "non-linear", "count"] = "sum"
    dim: int | None = None
    """The position of the dimension; None if it is given by keyword only, or not at all."""
    keyword: str = "dim"
    gives: Value = "value"
    """What is returned if a dimension is given."""
    two: bool = False
    """The values are computed from two tensors, the first arguments, value by value."""
    sized: str = ""
    """The keyword that says how many values there are; without it that depends on all rows."""


class AlongDim(NamedTuple):
    """Values along one dimension, or several, are mixed; the shape of the other dimensions stays."""

    dim: int | None = None
    keyword: str = "dim"
    default: int | tuple[int, ...] | None = None
    """The default dimension, or those; None if the default is all dimensions, or if one must be given."""
    gives: Value = "value"
    ranks: bool = False
    """Values are put in the order of their size, or the largest are taken."""


class Reshape(NamedTuple):
    """The same values in another shape."""

    how: Literal[
        "view",
        "flatten",
        "squeeze",
        "unsqueeze",
        "transpose",
        "permute",
        "expand",
        "repeat",
        "interleave",
        "split",
        "select",
        "narrow",
        "flip",
    ] = "view"
    dim: int | None = None
    """The position of the dimension, of the first of several, or of the shape."""
    shape_only: tuple[int, ...] = ()


class Concat(NamedTuple):
    """Several tensors become one, along a dimension."""

    dim: int | None = None
    keyword: str = "dim"
    fixed: int | None = None
    """The dimension, if the name decides it."""
    new: bool = False
    """Along a new dimension that the parts do not have."""


class Product(NamedTuple):
    """Products summed along a dimension that both arguments have: of matrices, vectors, all pairs of rows."""

    batched: bool = False
    """The first dimension of both arguments counts rows, and stays."""
    vectors: bool = False
    """Both arguments are vectors, and the result is one number."""
    distances: bool = False
    """It is computed from each row of the first and each row of the second, or each other one of the first."""


class Einsum(NamedTuple):
    """Products of tensors, summed as the text in the first argument says."""


class Axes(NamedTuple):
    """The same values, or sums or means of them, in another order of dimensions: a text names them before and after."""


class Create(NamedTuple):
    """A new tensor with known values: zeros, ones, a range, a filled tensor."""

    like: int | None = None
    """The position of an argument that gives the shape, the type and the device."""
    steps: bool = False
    """Its arguments are bounds and a number of steps, and no sizes: it has one dimension."""


class Convert(NamedTuple):
    """The same values as another type: an array as a tensor, a list as an array."""

    device: Literal["host", "argument", "same"] = "same"
    """Where the result is: on the host, on the device that an argument names, or where the input was."""


class Random(NamedTuple):
    """Random numbers, drawn from a generator of this process."""

    generator: Literal["torch", "numpy", "python", "system"] = "torch"
    draws: Literal["noise", "numbers", "order", "choice"] = "numbers"
    """Noise: real numbers of a shape. Numbers: whole ones, or single ones. Order: a permutation. Choice: elements."""
    size: int | None = None
    """The position of the argument that says how many; without it a single number is drawn. None where that varies."""
    stamp: bool = False
    """Scripts use it in the names of files and runs."""


class ToHost(NamedTuple):
    """A tensor becomes something on the host: a number, a list, an array, a tensor on the CPU."""

    gives: Literal["number", "list", "array", "tensor"] = "number"


class Structural(NamedTuple):
    """The result depends on the type or the shape of a thing, not on its values."""

    rows: bool = False
    """The result can be the number of rows."""
    of_type: bool = False
    """It depends on the type alone, which is the same on all processes."""


class Same(NamedTuple):
    """Returns the argument itself (for a method: its object), or a copy of it."""

    argument: int = 0
    copy: bool = False
    places: bool = False
    """A whole batch, however nested: its tensors are put on a device."""


class Passes(NamedTuple):
    """The result iterates, joins or wraps the arguments: loaders, models, parameters and rows pass through it."""

    iterates: bool = False
    """It iterates its first argument."""
    leaves_out: bool = False
    """It leaves out elements by what is in them."""
    limits: bool = False
    """It ends after as many elements as its other arguments say."""


class Detach(NamedTuple):
    """The same values without a gradient."""


class Choose(NamedTuple):
    """Some of the rows, chosen by what is in them: how many is not known beforehand."""

    gives: Literal["values", "a tuple of values", "places", "a tuple of places"] = "values"


class RowGradient(NamedTuple):
    """Gradients with respect to the inputs, outside of ``backward``."""


class Opaque(NamedTuple):
    """What it does to its arguments cannot be described in a row."""

    why: str = ""
    generator: Literal["", "numpy", "python"] = ""
    """It makes a generator with the methods of this one, which the system seeds where no seed is given."""
    linear: bool = False
    """It takes entries by their place and changes none: what is a figure of all rows stays one."""
