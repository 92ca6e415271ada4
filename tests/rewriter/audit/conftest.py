"""What the audit says of the text of a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.rewriter.audit.audit import audit
from torchlift.rewriter.config import Config
from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.source import decode


@pytest.fixture
def found() -> Callable[[str], set[str]]:
    """Tells the ids of what is wrong, or to be reviewed, in a script."""

    def tell(text: str) -> set[str]:
        result = audit([decode(text.encode(), Path("train.py"))], Config(), ModulePaths({ENTRY: Place(ENTRY)}))
        assert result is not None, "the script is not taken for a distributed one"
        return {d.id for file in result.files for d in file.diagnoses if d.severity is not Severity.NOTE}

    return tell
