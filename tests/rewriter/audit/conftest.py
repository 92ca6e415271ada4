"""What the audit says of the text of a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.rewriter.audit.audit import audit
from torchlift.rewriter.config import Config
from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.result import Diagnosis
from torchlift.rewriter.source import decode


def _diagnoses(text: str) -> list[Diagnosis]:
    result = audit([decode(text.encode(), Path("train.py"))], Config(), ModulePaths({ENTRY: Place(ENTRY)}))
    assert result is not None, "the script is not taken for a distributed one"
    return [d for file in result.files for d in file.diagnoses]


@pytest.fixture
def told() -> Callable[[str], dict[str, Severity]]:
    """Tells the ids of what is reported of a script, each with its severity; the worst of several."""
    order = (Severity.NOTE, Severity.REVIEW, Severity.ERROR)

    def tell(text: str) -> dict[str, Severity]:
        return {d.id: d.severity for d in sorted(_diagnoses(text), key=lambda d: order.index(d.severity))}

    return tell


@pytest.fixture
def words() -> Callable[[str], list[str]]:
    """Tells the messages for a script."""
    return lambda text: [d.message for d in _diagnoses(text)]


@pytest.fixture
def found(told: Callable[[str], dict[str, Severity]]) -> Callable[[str], set[str]]:
    """Tells the ids of what is wrong, or to be reviewed, in a script."""
    return lambda text: {id for id, severity in told(text).items() if severity is not Severity.NOTE}
