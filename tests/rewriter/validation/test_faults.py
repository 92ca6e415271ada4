"""
Faults, put mechanically into the emitted fixtures at every place that fits: how many of them the check finds.

What survives is listed in `SURVIVORS`, each with the reason.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import libcst as cst
import pytest

from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.validation.check import ModuleTexts, check

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("fault_operators", ROOT / "tests" / "fault_operators.py")
assert SPEC is not None and SPEC.loader is not None
operators = importlib.util.module_from_spec(SPEC)
sys.modules.setdefault("fault_operators", operators)
SPEC.loader.exec_module(operators)

FIXTURES = ROOT / "fixtures"
MIGRATED = sorted(folder.parent.name for folder in FIXTURES.glob("*/after.py"))
SHOWN = "mnist_functions"
"""The fixture that is tried every day."""
SURVIVORS: dict[tuple[str, str], str] = {}
"""Fixture and operator -> why the check does not find it."""


@cache
def parsed(name: str, which: str) -> cst.Module:
    return cst.parse_module((FIXTURES / name / f"{which}.py").read_text())


def is_found(name: str, mutant: cst.Module) -> bool:
    text = ModuleTexts(ENTRY, parsed(name, "before"), mutant)
    return bool(check([text], (), ModulePaths({ENTRY: Place(ENTRY)})).violations)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == SHOWN else pytest.mark.slow) for n in MIGRATED])
def test_faults_are_found(name: str) -> None:
    faults = list(operators.mutants(parsed(name, "after")))
    assert len({operator for operator, _, _ in faults}) >= 10, "hardly a fault fits: the operators are out of date"
    survived = {operator for operator, _, mutant in faults if not is_found(name, mutant)}
    assert survived == {operator for fixture, operator in SURVIVORS if fixture == name}


def test_there_are_many_operators() -> None:
    assert len(operators.OPERATORS) >= 20


@pytest.mark.parametrize("name", MIGRATED)
def test_nothing_is_found_without_a_fault(name: str) -> None:
    assert not is_found(name, cst.parse_module(parsed(name, "after").code))
