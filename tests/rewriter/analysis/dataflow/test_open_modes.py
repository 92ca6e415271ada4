"""A file that is opened to write is seen, however its mode is spelled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

LOG = """\
class Log:
    def __init__(self, path):
        self.path, self.new = path, True

    def add(self, row):
        {mode}
        with {opened} as file:
            file.write(row)


log = Log(Path("log.csv"))"""
MODES = {
    "one of two": ("pass", 'self.path.open("w" if self.new else "a", newline="")'),
    "one of two, by open": ("pass", 'open(self.path, "w" if self.new else "a")'),
    "a variable": ('how = "a"', "open(self.path, how)"),
    "a variable, one of two": ('how = "w" if self.new else "a"', "open(self.path, mode=how)"),
    "a variable, of a path": ('how = "w" if self.new else "a"', "self.path.open(how)"),
}


@pytest.mark.hazard("G2")
@pytest.mark.parametrize(("mode", "opened"), MODES.values(), ids=MODES)
def test_a_file_is_opened_once(mode: str, opened: str, trained: Trained) -> None:
    """Every process wrote its line, and nothing was said."""
    top = "from pathlib import Path\n\n" + LOG.format(mode=mode, opened=opened)
    text, findings = trained(top=top, epoch='log.add("row")')
    assert f"is_main_process:\n            with {opened} as file:" in text and findings == []


@pytest.mark.parametrize("mode", ['"r"', '"rb" if log.new else "r"'])
def test_a_file_that_is_read_is_not_guarded(mode: str, trained: Trained) -> None:
    top = "class Log:\n    new = True\n\n\nlog = Log()"
    text, findings = trained(top=top, epoch=f'with open("rows.csv", {mode}) as file:\n    seen = file.read()')
    assert "is_main_process" not in text and findings == []
