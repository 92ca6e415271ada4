"""A plugin of pytest: run only the tests that a file names, in its order, each with a time limit of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`MUTANTS_CHOSEN` is a JSON file: the seconds that each test may take, fastest first."""
    limits: dict[str, float] = json.loads(Path(os.environ["MUTANTS_CHOSEN"]).read_text())
    found = {item.nodeid: item for item in items}
    chosen = [found[name] for name in limits if name in found]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in limits])
    for item in chosen:
        item.add_marker(pytest.mark.timeout(limits[item.nodeid]))
    items[:] = chosen
