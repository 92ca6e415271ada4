"""Code that a newer `migrate` wrote, on this runtime: the error says which version is installed, and what to do."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

import torchlift.runtime
from torchlift.runtime import Accelerator, PartialState

SAYS = rf"newer `migrate` .* needs a torchlift later than {version('torchlift')}, which is installed: pip install"


def imports(line: str) -> Callable[[], None]:
    return lambda: exec(line)


ASKED: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "a name of the package": (ImportError, "'Shoal'", imports("from torchlift.runtime import Accelerator, Shoal")),
    "a name of utils": (ImportError, "'swim'", imports("from torchlift.runtime.utils import swim")),
    "an attribute of the package": (AttributeError, "'Shoal'", lambda: torchlift.runtime.Shoal),
    "a method": (AttributeError, "'swim'", lambda: Accelerator(cpu=True).swim()),
    "a method of the state": (AttributeError, "'swim'", lambda: PartialState(cpu=True).swim()),
    "an argument": (TypeError, "keyword argument 'fins'", lambda: Accelerator(cpu=True, fins=2)),
    "an argument of backward": (
        TypeError,
        "keyword argument 'fins'",
        lambda: Accelerator(cpu=True).backward(torch.ones(1, requires_grad=True).sum(), fins=2),
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_the_error_names_the_version(case: str) -> None:
    error, name, asks = ASKED[case]
    with pytest.raises(error, match=f"(?s){name}.*{SAYS}"):
        asks()


TYPED: dict[str, tuple[str, Callable[[], Any]]] = {
    "a name of the package": ("Accelerator", imports("from torchlift.runtime import Acelerator")),
    "a method": ("gather_for_metrics", lambda: Accelerator(cpu=True).gather_for_metric(1)),
    "a method of the state": ("wait_for_everyone", lambda: PartialState(cpu=True).wait_for_everyon()),
    "an argument": ("split_batches", lambda: Accelerator(cpu=True, split_batch=True)),
    "an argument of backward": (
        "reduction",
        lambda: Accelerator(cpu=True).backward(torch.ones(1, requires_grad=True).sum(), reducton="sum"),
    ),
}


@pytest.mark.parametrize("case", TYPED)
def test_a_typing_error_is_answered_with_the_name_that_is_meant(case: str) -> None:
    name, asks = TYPED[case]
    with pytest.raises((ImportError, AttributeError, TypeError)) as caught:
        asks()
    assert str(caught.value).endswith(f"Did you mean {name!r}?")


def test_a_name_that_is_not_there_is_an_error_for_no_question() -> None:
    assert not hasattr(torchlift.runtime, "Shoal")
    assert not hasattr(Accelerator(cpu=True), "swim")
    assert getattr(torchlift.runtime, "Shoal", None) is None


def test_arguments_of_torch_and_of_a_loss_of_its_own_are_handed_on() -> None:
    class Loss(torch.Tensor):
        def backward(self, fins: int) -> None:
            fin.append(fins)

    fin: list[int] = []
    accelerator = Accelerator(cpu=True)
    weight = torch.ones(1, requires_grad=True)
    loss = weight.sum()
    accelerator.backward(loss, retain_graph=True)
    accelerator.backward(loss)
    assert weight.grad is not None and weight.grad.item() == 2
    accelerator.backward(weight.sum().as_subclass(Loss), fins=3)
    assert fin == [3]


def test_what_python_asks_for_by_itself_has_a_short_answer() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = Accelerator(cpu=True).__swim__
    assert "migrate" not in str(caught.value)
    assert copy.copy(Accelerator(cpu=True)) is not None


def test_a_submodule_is_still_imported_by_from(tmp_path: Path) -> None:
    code = "from torchlift.runtime import errors, data_loader; from torchlift.runtime.utils import operations"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
