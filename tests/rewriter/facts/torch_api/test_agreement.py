"""The rows against the libraries: names exist, positions are right, and what is said of the rows of a batch is so."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import get_testing_overrides

from torchlift.rewriter.facts.torch_api.kinds.tensors import Pointwise, Reduce
from torchlift.rewriter.facts.torch_api.loading import BUILT_IN, ApiRow, row

PACKAGES = ("torch", "numpy", "torchlift")
NOT_INSTALLED = ("torch.utils.tensorboard.",)
"""Parts of them that need a package which the tests do without."""
OVERRIDES = get_testing_overrides()
POSITIONS = {
    "dim": "dim axis dims axes dim0 axis0 axis1 shape size sizes source start_dim new_shape reps repeats".split(),
    "reduction": ["reduction"],
    "average": ["size_average"],
    "like": ["input", "a", "prototype"],
    "path": ["f", "file", "fname", "fid"],
}
"""How torch and numpy call the parameter that a column gives the position of."""
CALLED_BELOW = {"max", "min", "argmax", "argmin", "prod", "logsumexp", "count_nonzero"}
"""Reductions whose signature, as torch gives it, is that of another overload."""


def rows() -> Iterator[ApiRow]:
    for table in BUILT_IN:
        for name in import_module(f"torchlift.rewriter.facts.torch_api.tables.{table}").ROWS:
            if "*" not in name and name.startswith(tuple(f"{package}." for package in PACKAGES)):
                found = row(name)
                assert found is not None
                if not name.startswith(NOT_INSTALLED):
                    yield found


def thing(name: str) -> Any:
    """What a full name means in this environment; None where there is nothing of that name."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:i]))
        except ImportError:
            continue
        for part in parts[i:]:
            found = getattr(found, part, None)
        return found
    return None


def at_least(name: str, version: str) -> bool:
    here = import_module(name.partition(".")[0]).__version__
    return [int(part) for part in here.split("+")[0].split(".")[:2]] >= [int(part) for part in version.split(".")[:2]]


def disagreement(row: ApiRow) -> str:
    """What a row says of a name that is not so, empty where it is."""
    until, since = row.columns.until, row.columns.since
    there = not (until and at_least(row.name, until)) and not (since and not at_least(row.name, since))
    found = thing(row.name)
    if there != (found is not None):
        return f"{row.name} does not exist" if there else f"{row.name} exists"
    if found is None:
        return ""
    for column, allowed in POSITIONS.items():
        position = getattr(row.transfer, column, None)
        if type(position) is int and row.name.rpartition(".")[2] not in CALLED_BELOW:
            names = parameters(row.name, found)
            if position >= len(names) or names[position] not in allowed:
                return f"{row.name}: {column} is not at {position} of {names}"
    return ""


def parameters(name: str, function: Any) -> list[str]:
    """The parameters, without the object of a method."""
    if name == "torch.repeat_interleave" or name == "torch.Tensor.repeat_interleave":
        return ["input", "repeats", "dim"][name.count(".") - 1 :]  # torch's own list of signatures leaves `repeats` out
    try:
        names = list(inspect.signature(OVERRIDES.get(function, function)).parameters)
    except ValueError:
        pytest.fail(f"{name} has no signature")
    return names[1:] if name.startswith(("torch.Tensor.", "numpy.ndarray.")) else names


def test_every_row_agrees() -> None:
    assert [text for row in rows() if (text := disagreement(row))] == []


@pytest.mark.parametrize(
    ("name", "columns", "text"),
    [
        ("torch.summ", {}, "torch.summ does not exist"),
        ("torch.Tensor.summ", {}, "torch.Tensor.summ does not exist"),
        ("torch.sum", {"until": "2.0"}, "torch.sum exists"),
        ("torch.sum", {"since": "99.0"}, "torch.sum exists"),
        ("torch.topk", {"dim": 1}, "torch.topk: dim is not at 1 of"),
        ("torch.Tensor.topk", {"dim": 2}, "torch.Tensor.topk: dim is not at 2 of"),
    ],
)
def test_a_row_that_is_wrong_is_noticed(name: str, columns: dict[str, Any], text: str) -> None:
    known = row("torch.sum")
    assert known is not None
    dim = Reduce(dim=columns.pop("dim", None))
    assert disagreement(ApiRow(name, "reduce", dim, known.columns._replace(**columns))).startswith(text)


# ---------------------------------------------------------------- by calling them

X = torch.tensor([[0.2, 0.9, 0.4], [0.7, 0.1, 0.6], [0.3, 0.8, 0.5], [0.05, 0.35, 0.65]])
FILLED = {
    "kthvalue": (1,),
    "norm": (2,),
    "quantile": (0.5,),
    "nanquantile": (0.5,),
    "percentile": (50,),
    "vector_norm": (2,),
}
"""Arguments between the tensor and the dimension."""
NO_TENSOR_OF_FLOATS = {
    "bitwise_not": torch.int64, "bitwise_and": torch.int64, "bitwise_or": torch.int64, "bitwise_xor": torch.int64,
}  # fmt: skip
NOT_CALLED = """
numpy.where torch.where torch.Tensor.where torch.masked_fill torch.bucketize torch.Tensor.masked_fill
torch.Tensor.masked_fill_ torch.lerp torch.Tensor.lerp torch.Tensor.lerp_ torch.Tensor.fill_ torch.nn.functional.prelu
""".split()
"""Pointwise rows that need arguments of a special shape or type."""


def dims() -> list[ApiRow]:
    owners = ("torch", "torch.Tensor", "torch.linalg", "numpy", "numpy.ndarray")
    found = [each for each in rows() if isinstance(each.transfer, Reduce) and each.transfer.dim is not None]
    return [each for each in found if each.name.rpartition(".")[0] in owners]


def test_a_reduction_takes_its_dimension_at_the_position_and_by_the_keyword() -> None:
    called = 0
    for each in dims():
        assert isinstance(each.transfer, Reduce) and each.transfer.dim is not None
        owner, _, last = each.name.rpartition(".")
        method, x = owner.endswith(("Tensor", "ndarray")), X.numpy() if each.name.startswith("numpy") else X
        filled = FILLED.get(last, (2,) if owner.endswith("linalg") else ())
        given = filled if method else (x, *filled)
        function: Callable[..., Any] = getattr(x, last) if method else thing(each.name)
        x = x > 0.5 if last in ("all", "any") else x
        assert len(given) == each.transfer.dim, each.name
        assert same(function(*given, 0), function(*given, **{each.transfer.keyword: 0})), each.name
        parts = function(*given, 0)
        assert (isinstance(parts, tuple) and hasattr(parts, "indices")) == (each.transfer.gives == "value and index")
        called += 1
    assert called > 60


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor) and one.dtype is torch.bfloat16:
        return torch.equal(one, other)
    return bool(np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True))


def test_a_pointwise_operation_gives_the_same_for_half_the_rows() -> None:
    """What makes a shard a shard: rows of the result are computed from the same rows of the arguments."""
    called, unknown = 0, []
    for each in rows():
        owner, _, last = each.name.rpartition(".")
        if isinstance(each.transfer, Pointwise) and owner in ("torch", "torch.Tensor", "torch.special", "numpy"):
            outcome = halves(each.name, last, NO_TENSOR_OF_FLOATS.get(last, torch.float32))
            called += outcome is not None
            if outcome is None:
                unknown.append(each.name)
            assert outcome is not False or each.name in NOT_CALLED, (
                f"{each.name}: rows have an influence on one another"
            )
    assert called > 200
    assert set(unknown) <= set(NOT_CALLED), "say in NOT_CALLED what is not called"


def halves(name: str, last: str, dtype: torch.dtype) -> bool | None:
    """Whether the first two rows of a result are those of the first two rows alone; None where no call succeeds."""
    whole = (X * 10).to(dtype) if dtype is torch.int64 else X
    for count in (1, 2, 3):
        try:
            one, other = (call(name, last, part, count) for part in (whole, whole[:2]))
        except (TypeError, RuntimeError, ValueError):
            continue
        return same(one[:2], other)
    return None


def call(name: str, last: str, x: torch.Tensor, count: int) -> Any:
    if name.startswith("numpy."):
        return thing(name)(*[x.numpy()] * count)
    if name.startswith("torch.Tensor."):
        return getattr(x.clone(), last)(*[x] * (count - 1))
    return thing(name)(*[x] * count)
