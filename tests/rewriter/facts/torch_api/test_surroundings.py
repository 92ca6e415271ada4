"""What is asked about files and paths."""

from __future__ import annotations

import pytest

from torchlift.rewriter.facts.torch_api import surroundings


@pytest.mark.parametrize(("name", "keeps"), [("os.path.join", True), ("builtins.str", True), ("builtins.len", False)])
def test_what_keeps_a_path(name: str, keeps: bool) -> None:
    assert surroundings.keeps_path(name) is keeps
