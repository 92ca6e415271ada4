"""One program, migrated, checked and run: do the three verdicts agree?"""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..forking import Forks

if TYPE_CHECKING:
    from torchlift.rewriter.result import FileResult

HELD, TOLD, REFUSED = "held", "told", "refused"
SILENT, UNFORESEEN, ALARM, SECOND, CRASH, BROKEN_GRAMMAR = (
    "silent", "unforeseen", "false alarm", "second run", "crash", "does not run",
)  # fmt: skip
DEFECTS = (SILENT, UNFORESEEN, ALARM, SECOND, CRASH, BROKEN_GRAMMAR)
_SECONDS = 240.0
_NAMED = ("figure", "running", "shown", "filled", "interval", "steps")
"""Kinds of traits: the summary names a figure, and says that it is not that of all rows."""
_NEVER_TOLD = ("runs", "waits", "devices", "ranks", "lines")
"""Promises that no word of a finding excuses."""


class Judged(NamedTuple):
    """The verdict on one program."""

    kind: str
    signature: str = ""
    """What is wrong, in words that do not depend on the program: programs with equal ones are one defect."""
    detail: str = ""

    @property
    def is_defect(self) -> bool:
        """The program is to be shrunk and looked at."""
        return self.kind in DEFECTS


class Judge:
    """
    Migrates a program, migrates the result again, runs original and result, and compares the verdicts.

    Args:
        procs: on how many processes the result runs.
        planted: a text, and what takes its place in what is emitted: the judge must find such faults.
    """

    def __init__(self, procs: tuple[int, ...] = (1, 2), planted: tuple[str, str] | None = None) -> None:
        self._procs, self._planted = procs, planted
        self._forks = Forks("torchlift.runtime.verify.conductor")

    def __call__(self, text: str) -> Judged:
        """The verdict on a program."""
        with tempfile.TemporaryDirectory(prefix="fuzz-programs-") as scratch:
            # two folders above the script's are mirrored for each run: they hold nothing else
            script = Path(scratch) / "programs" / "one" / "train.py"
            script.parent.mkdir(parents=True)
            script.write_text(text, encoding="utf-8")
            try:
                file = _migrated(script)
                if stopped := _stopped(file):
                    return stopped
                script.write_bytes(file.after)
                again = _migrated(script)
            except Exception as error:  # noqa: BLE001  whatever it is, it is a defect
                return Judged(CRASH, type(error).__name__, traceback.format_exc())
            if again.after != file.after:
                return Judged(SECOND, "the second run changes the text", again.after.decode())
            if self._planted is not None:
                file = file._replace(after=file.after.replace(self._planted[0].encode(), self._planted[1].encode()))
            script.write_text(text, encoding="utf-8")
            return _compared(file, _verdict(file, script, self._forks, self._procs))


def _migrated(script: Path) -> FileResult:
    from torchlift.codemods.catalogue import CATALOGUE
    from torchlift.rewriter.config import Config
    from torchlift.rewriter.pipeline import migrate
    from torchlift.rewriter.source import decode

    (file,) = migrate([decode(script.read_bytes(), script)], CATALOGUE, Config()).files
    return file


def _stopped(file: FileResult) -> Judged | None:
    """The verdict on a program that is not changed."""
    found = [d for d in file.diagnoses if d.severity.value == "blocked"]
    said = "\n".join(f"{d.line}: {d.id}: {d.message}; {d.remedy}" for d in found)
    if any(d.id == "output-check" for d in found):
        return Judged(ALARM, f"output-check: {_head(found[0].message)}", said)
    if file.blocked or not file.changed:
        return Judged(REFUSED, f"{found[0].id}: {_head(found[0].message)}" if found else "nothing to do", said)
    return None


def _verdict(file: FileResult, script: Path, forks: Forks, procs: tuple[int, ...]) -> dict[str, Any]:
    from torchlift.rewriter.verify.handover import request
    from torchlift.rewriter.verify.options import Asked

    asked = request([file], script, Asked(procs=procs, double=True, limit=_SECONDS), script.parent)
    path = script.parent.parent.parent / "request.json"
    path.write_text(json.dumps(asked), encoding="utf-8")
    environment = {**os.environ, "TORCHLIFT_VERIFY_READY": "1"}
    command = ["-m", "torchlift.runtime.verify", "--request", str(path)]
    fork = forks.start(command, script.parent, environment, apart=True)
    fork.wait(6 * _SECONDS)
    out, errors = fork.output()
    try:
        return dict(json.loads(out))
    except ValueError:
        return {"status": 3, "promises": [], "original_error": {"traceback": errors[-3000:]}}


def _compared(file: FileResult, verdict: dict[str, Any]) -> Judged:
    if verdict["status"] not in (0, 1):
        return Judged(BROKEN_GRAMMAR, "the original fails", (verdict["original_error"] or {}).get("traceback", ""))
    from torchlift.rewriter.validation.foreseen import FORESEEN

    broken = [promise for promise in verdict["promises"] if promise["outcome"] == "broken"]
    reviews = sorted({d.id for d in file.diagnoses if d.severity.value == "review"})
    named = sorted({trait.kind for trait in file.traits if trait.kind in _NAMED})
    if not broken:
        skipped = sorted(
            {p["id"] for p in verdict["promises"] if p["outcome"] == "not testable" and p["processes"] > 1}
        )
        return Judged(HELD, ", ".join(skipped))
    ids = sorted({f"{p['id']} on {p['processes']}" for p in broken})
    detail = "\n".join(f"{p['id']} on {p['processes']}: {p['detail']} ({p['figure']})" for p in broken)
    told = bool(reviews or named)
    detail += f"\nreviews: {reviews}, named: {named}"
    if told and not any(p["id"] in _NEVER_TOLD or p["processes"] == 1 for p in broken):
        return Judged(TOLD, ", ".join([*reviews, *named]), detail)
    kind = UNFORESEEN if any(FORESEEN.get(p["id"]) for p in broken) else SILENT
    return Judged(kind, ", ".join(ids), detail)


def _head(message: str) -> str:
    """The words of a message without the names of this program."""
    return "".join(part if place % 2 == 0 else "`_`" for place, part in enumerate(message.split("`")))[:120]
