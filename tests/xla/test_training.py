"""Migrated programs on 1, 2 and 8 virtual devices train as the script that they come from does on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

Recorded = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Program:
    """A fixture, and how much of it is run."""

    name: str
    arguments: tuple[str, ...]
    window: int
    """Backward passes until all optimizers have stepped once."""
    passes: int
    """Of an epoch."""
    whole: bool = True
    """It comes to its end."""
    files: tuple[str, ...] = ()
    """Weights that it writes."""


PROGRAMS = [
    Program(
        "mnist_functions",
        ("--epochs", "2", "--dropout", "0", "--lr", "0.5", "--save-model"),
        1,
        24,
        files=("digits_cnn.pt",),
    ),
    Program("gan", ("--n_epochs", "2"), 2, 72, files=("gan_out/generator.pth", "gan_out/discriminator.pth")),
    Program("text_windows", (), 1, 20, whole=False),
    Program("grad_accumulation", ("--epochs", "2"), 4, 95, files=("pixel_gru.bin",)),
    Program("resume_checkpoint", ("--epochs", "2"), 1, 45, files=("checkpoint.pth.tar",)),
]
EACH = pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
DEVICES = pytest.mark.parametrize("devices", [1, 2, 8])


def ran(recorded: Recorded, program: Program, devices: int, **variables: str) -> dict[str, Any]:
    passes = 0 if program.whole else 60
    return recorded(program.name, devices, passes, *program.arguments, **variables)


@DEVICES
@EACH
def test_losses_are_those_of_one_cpu_process(recorded: Recorded, program: Program, devices: int) -> None:
    plain, laid_out = ran(recorded, program, 0), ran(recorded, program, devices)
    assert len(plain["losses"]) >= 48
    assert laid_out["losses"] == pytest.approx(plain["losses"], abs=1e-5, rel=0)


@DEVICES
@EACH
def test_nothing_is_compiled_after_the_second_step(recorded: Recorded, program: Program, devices: int) -> None:
    counts, settled = ran(recorded, program, devices)["compilations"], 2 * program.window
    last = program.passes - program.window  # the last batch of an epoch has fewer rows: another graph
    assert len(set(counts[settled : last + 1])) == 1
    assert len(set(counts[program.passes + settled : 2 * program.passes])) == 1, "the second epoch has new graphs"


@DEVICES
@EACH
def test_files_are_those_of_the_script(recorded: Recorded, program: Program, devices: int) -> None:
    plain, laid_out = ran(recorded, program, 0), ran(recorded, program, devices)
    for name in program.files:
        expected, found = (torch.load(Path(run["folder"], name), weights_only=True) for run in (plain, laid_out))
        assert same(expected, found) is None


def same(expected: Any, found: Any, path: str = "") -> str | None:
    """Where two trees differ; None if they do not."""
    if isinstance(expected, torch.Tensor):
        fits = found.device.type == "cpu" and torch.allclose(expected, found, atol=2e-4, rtol=1e-3)
        return None if fits else path
    if isinstance(expected, dict):
        if list(expected) != list(found):
            return f"{path}: {list(found)}"
        return first(same(one, found[key], f"{path}/{key}") for key, one in expected.items())
    if isinstance(expected, (list, tuple)):
        return first(same(a, b, f"{path}/{i}") for i, (a, b) in enumerate(zip(expected, found, strict=True)))
    if expected is None or isinstance(expected, (str, bool)):
        return None if found == expected else f"{path}: {found!r}, not {expected!r}"
    return None if expected == pytest.approx(found, rel=1e-3) else f"{path}: {found!r}, not {expected!r}"


def first(differences: Iterable[str | None]) -> str | None:
    return next((where for where in differences if where), None)
