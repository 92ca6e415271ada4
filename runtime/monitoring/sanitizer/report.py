"""The table at the end of a run under the sanitizer, and the trace of its collectives."""

from __future__ import annotations

import json
import os
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from .judging import Report, judge, short
from .records import RankRecord, read_records

TRACE = "collectives.json"
_WIDTH = 100
_UNSEEN = (
    "It cannot see: values that one rank alone compares, prints or saves; values in libraries, forward passes and data "
    "sets, in texts that are built before they are printed, and in tensors of several elements; whole numbers that are "
    "compared, unless the ranks take different branches at <, <=, > or >=; flags; exchanges in "
    "DistributedDataParallel; buffers and sharded weights; child processes, such as workers of loaders."
)
_LATE = (
    "The script was not started by `torchlift launch --sanitize`: what happened before its first Accelerator was not "
    "recorded, and no value that it compares, logs or saves."
)


class RunReport(NamedTuple):
    """What the sanitizer has found in a run."""

    reports: list[Report]
    text: str
    """What the user is shown."""


def report(folder: Path) -> RunReport:
    """Compare what the ranks have recorded in a folder; write the trace of collectives beside it."""
    records = read_records(folder)
    if not records:
        return RunReport([], "torchlift: the sanitizer has recorded nothing: no Python script was started.\n")
    reports, natural = judge(records)
    base = records[0].folder
    count = f"{len(reports)} report{'' if len(reports) == 1 else 's'}" if reports else "nothing found"
    ranks = f"{len(records)} rank{'' if len(records) == 1 else 's'}"
    lines = [f"torchlift: sanitizer: {count} ({ranks})"]
    lines += _table(reports, base)
    lines += [""] if reports else []
    if natural:
        listed = ", ".join(_relative(at, base) for at in natural)
        lines += _paragraph(f"Not reported, because each rank trains on its own rows: values at {listed}.")
    lines += [line for text in _limits(records) for line in _paragraph(text)]
    trace, calls = _write_trace(records, folder)
    lines += _paragraph(f"Collective calls: {calls}, with their lines, in {trace} (for Perfetto).")
    return RunReport(reports, "\n".join(lines) + "\n")


def _table(reports: list[Report], base: str) -> list[str]:
    inside = base.rstrip(os.sep) + os.sep
    rows = [(one.kind, _relative(one.at, base), str(one.times), one.text.replace(inside, "")) for one in reports]
    if not rows:
        return []
    heads = ("what", "where", "times", "details")
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(3)]
    room = max(40, _WIDTH - sum(widths) - 8)
    lines = [""]
    for row in [heads, *rows]:
        details = wrap(row[3], room, break_long_words=False, break_on_hyphens=False)
        for number, detail in enumerate(details):
            cells = row[:3] if number == 0 else ("", "", "")
            lines.append(
                "  " + "  ".join([cell.ljust(width) for cell, width in zip(cells, widths, strict=True)] + [detail])
            )
    return lines


def _paragraph(text: str) -> list[str]:
    return wrap(
        text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _relative(at: str, base: str) -> str:
    inside = at.startswith(base.rstrip(os.sep) + os.sep)
    return at[len(base.rstrip(os.sep)) + 1 :] if inside else at or "(no line of the script)"


def _limits(records: list[RankRecord]) -> list[str]:
    """What these ranks could not see."""
    if records[0].size == 1:
        return ["There is one rank: nothing to compare. Use --num-processes 2."]
    said = [_UNSEEN]
    if any(record.started == "accelerator" for record in records):
        said.append(_LATE)
    if len(records) < records[0].size:
        missing = f"{records[0].size - len(records)} of {records[0].size} ranks"
        said.append(f"{missing} left no record here (other machines?): they were not compared.")
    unended = [record.rank for record in records if not record.ended]
    if unended:
        said.append(
            f"Did not end normally: rank {', '.join(map(str, unended))}. What was recorded until then is compared."
        )
    full = sorted({short(place.rpartition(":")[0]) for record in records for place in record.full})
    if full:
        said.append(f"Only the first 2,000 values were recorded at {', '.join(full)}.")
    if any(record.cut for record in records):
        said.append("There were more than 200,000 events on a rank: what came after them was not recorded.")
    return said


def _write_trace(records: list[RankRecord], folder: Path) -> tuple[Path, int]:
    """The collectives of all ranks, as a trace that viewers know; and how many the rank with most of them has made."""
    start = min((event["t"] for record in records for event in record.events), default=0)
    entries: list[dict[str, Any]] = []
    most = 0
    for record in records:
        entries.append({"ph": "M", "name": "process_name", "pid": record.rank, "args": {"name": f"rank {record.rank}"}})
        calls = _calls(record, start)
        most = max(most, len(calls))
        entries += calls
    path = folder / TRACE
    path.write_text(json.dumps({"traceEvents": entries, "displayTimeUnit": "ms"}) + "\n")
    return path, most


def _calls(record: RankRecord, start: int) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for event in record.of("collective", "done"):
        if event["e"] == "collective":
            place = {"pid": record.rank, "tid": 0, "ts": event["t"] - start, "dur": 0}
            calls.append(
                {"ph": "X", "name": event["op"], **place, "args": {"line": event["at"], "number": len(calls) + 1}}
            )
        elif calls:
            calls[-1]["dur"] = event["t"] - start - calls[-1]["ts"]
    return calls
