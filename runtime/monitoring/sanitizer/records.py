"""Reads what the ranks of a job have recorded. Needs the standard library alone: the launcher has no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = "dict[str, Any]"


@dataclass
class RankRecord:
    """What one rank has recorded."""

    rank: int
    size: int
    started: str
    folder: str
    """In which the script ran."""
    events: list[Event]
    ended: bool = False
    """It came to its end in order."""
    full: list[str] = field(default_factory=list)
    cut: bool = False
    """There was more than it could record."""

    def of(self, *kinds: str) -> Iterator[Event]:
        """Its events of some kinds."""
        return (event for event in self.events if event["e"] in kinds)


def read_records(folder: Path) -> list[RankRecord]:
    """What all ranks of this machine have recorded, in order of their ranks."""
    found = [record for path in folder.glob("rank*.jsonl") if (record := _read(path)) is not None]
    return sorted(found, key=lambda record: record.rank)


def _read(path: Path) -> RankRecord | None:
    events = [json.loads(line) for line in path.read_bytes().split(b"\n") if line.endswith(b"}")]
    if not events or events[0]["e"] != "begin":
        return None
    first, last = events[0], events[-1]
    record = RankRecord(first["rank"], first["size"], first["started"], first["folder"], events[1:])
    if last["e"] == "end":
        record.ended, record.full, record.cut = True, last["full"], last["cut"]
    return record
