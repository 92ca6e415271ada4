"""Checkpoints written on virtual devices: training goes on from them, and they load without torch_xla."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).with_name("checkpoint.py")


def said(folder: Path, what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{what}.json").read_text())
    return found


def numbers(told: dict[str, Any]) -> list[float]:
    return list(chain(*told["losses"]))


@pytest.fixture(scope="module", params=[(2, ()), (8, ()), (8, ("sharded",))], ids=["2", "8", "8 sharded"])
def trained(
    request: pytest.FixtureRequest, run_python: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with what the plain CPU, the devices, and the devices after a resume have written."""
    devices, sharded = request.param
    folder = tmp_path_factory.mktemp("checkpoints")
    for what in ("plain", "train", "resume"):
        done = run_python(folder, 0 if what == "plain" else devices, SCRIPT, what, folder, *sharded)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_losses_and_norms_are_those_of_the_cpu(trained: Path) -> None:
    assert numbers(said(trained, "train")) == pytest.approx(numbers(said(trained, "plain")), abs=1e-5)
    assert said(trained, "train")["type"] == "XLA"


def test_it_goes_on_as_without_a_break(trained: Path) -> None:
    resumed, whole = said(trained, "resume"), said(trained, "train")
    assert numbers(resumed) == pytest.approx(numbers(whole)[len(numbers(whole)) // 2 :], abs=1e-5)
    assert resumed["noise"] == whole["noise"]


def test_files_load_without_torch_xla(trained: Path) -> None:
    model, plain = (torch.load(trained / f"{what}.pt", weights_only=True) for what in ("train", "plain"))
    assert list(model) == list(plain)
    assert model["table.weight"].data_ptr() == model["out.weight"].data_ptr(), "the tie is lost"
    assert all(one.device.type == "cpu" for one in model.values())
    torch.testing.assert_close(model, plain, atol=1e-4, rtol=1e-4)
    torch.load(trained / "train-optimizer.pt", weights_only=True)
    assert (trained / "train-model" / "model.safetensors").is_file()


def test_layouts(trained: Path, request: pytest.FixtureRequest) -> None:
    found = said(trained, "resume")["layouts"]
    if "sharded" in request.node.callspec.id:
        assert all(layout.startswith("{devices=") for layout in found.values())
    else:
        assert set(found.values()) == {"{replicated}"}
