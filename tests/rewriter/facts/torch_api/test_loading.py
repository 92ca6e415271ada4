"""Rows on demand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torchlift.rewriter.facts.torch_api.kinds.outside import Write
from torchlift.rewriter.facts.torch_api.kinds.tensors import Reduce
from torchlift.rewriter.facts.torch_api.kinds.training import Criterion, ModuleInPlace, Optimizer
from torchlift.rewriter.facts.torch_api.loading import methods, named, row, transfer


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("torch.sum", "torch.sum"),
        ("torch.optim.adam.Adam", "torch.optim.*"),
        ("torch.optim.lr_scheduler.NewLR", "torch.optim.lr_scheduler.*"),
        ("torch.optim.functional", None),
        ("torch.nn.NewLayer", "torch.nn.*"),
        ("torch.nn.NewLoss", "torch.nn.*Loss"),
        ("torch.nn.functional.new_loss", None),
        ("anything.tqdm", "*.tqdm"),
        ("tqdm.tqdm", "tqdm.tqdm"),
        ("transformers.AutoModel.from_pretrained", "transformers.*Model*.from_pretrained"),
        ("transformers.AutoTokenizer.from_pretrained", None),
        ("transformers.get_linear_schedule_with_warmup", "transformers.get_*schedule*"),
        ("mine.function", None),
        ("torch.nn.*", None),
        ("torch", None),
        ("", None),
    ],
)
def test_a_name_has_the_row_that_says_most(name: str, key: str | None) -> None:
    found = row(name)
    assert (found.name if found else None) == key


def test_a_row_is_typed_and_frozen() -> None:
    found = transfer("torch.sum", Reduce)
    assert found == Reduce(op="sum", dim=1)
    assert found is transfer("torch.sum", Reduce), "built once"
    with pytest.raises(AttributeError):
        found.op = "mean"  # type: ignore[misc,union-attr]


def test_a_row_of_another_kind_is_none() -> None:
    assert transfer("torch.sum", Optimizer) is None
    assert transfer("torch.nn.MSELoss", Criterion) == Criterion(reduction=2, average=0)


def test_all_of_a_kind() -> None:
    assert named(Write)["torch.save"] == Write(path=1, data=0)
    assert "torch.load" not in named(Write)
    assert {"to", "train", "xpu"} < methods("torch.nn.Module", ModuleInPlace)
    assert "parameters" not in methods("torch.nn.Module", ModuleInPlace)


@pytest.mark.parametrize("module", ["rewriter.cli.main", "rewriter.gate.cache", "rewriter.pipeline"])
def test_no_table_is_loaded_before_a_name_is_asked_for(module: str) -> None:
    code = f"import sys, torchlift.{module}; print([m for m in sys.modules if 'torch_api.tables' in m])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
