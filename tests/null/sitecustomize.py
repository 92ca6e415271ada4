"""
A rewriter that changes nothing and finds nothing, in this process and in those that it starts.

`make test-null` puts this folder on `PYTHONPATH`, so that every interpreter imports this file when it starts. As soon
as the pipeline is imported, its `plan` is replaced. Each call adds a byte to the file that the environment variable
`CALLS` names: that is how `null_rewriter.py` knows whether a test has asked the rewriter at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PIPELINE = "torchlift.rewriter.pipeline"
CALLS = "TORCHLIFT_TESTS_NULL_CALLS"


class NullRewriter(MetaPathFinder):
    """Replaces the rewriter when it is imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the pipeline as usual, and change it once it is executed."""
        spec = PathFinder.find_spec(name, path, target) if name == PIPELINE else None
        if spec is None:
            return None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            replace(module)

        spec.loader.exec_module = execute_and_replace  # type: ignore[method-assign]
        return spec


def replace(pipeline: Any) -> None:
    """Let `plan` answer every program with no edit and no finding."""

    def plan(sources: Sequence[Any], catalogue: Any, config: Any, *_: Any, **__: Any) -> Any:
        with open(os.environ[CALLS], "a") as calls:
            calls.write(".")
        return pipeline.Plan(tuple(pipeline.FileResult(source, source.data) for source in sources), config)

    pipeline.plan = plan


sys.meta_path.insert(0, NullRewriter())
