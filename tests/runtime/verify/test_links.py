"""Links of a mirror: a write stays in the mirror, and nobody who reads meanwhile misses a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchlift.runtime.verify import links


def test_files_stay_readable_while_their_folder_becomes_one_of_the_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, top = tmp_path / "data", tmp_path / "top"
    data.mkdir()
    top.mkdir()
    for number in range(5):
        (data / f"{number}.txt").write_text(str(number))
    (top / "data").symlink_to(data)
    made = []
    real = os.symlink

    def watched(source: str, place: str) -> None:
        real(source, place)
        made.append([(top / "data" / f"{number}.txt").read_text() for number in range(5)])

    monkeypatch.setattr(os, "symlink", watched)
    links.own(str(top), str(top / "data" / "new.txt"))
    monkeypatch.undo()
    assert made == [list("01234")] * 5
    (top / "data" / "new.txt").write_text("mine")
    assert sorted(os.listdir(data)) == [f"{number}.txt" for number in range(5)]
    assert sorted(os.listdir(top / "data")) == [*(f"{number}.txt" for number in range(5)), "new.txt"]
    assert sorted(os.listdir(top)) == [".links", "data"]
