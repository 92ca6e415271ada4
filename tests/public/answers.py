"""What the tool answers on a program: the outcome, the emitted texts, what `--verify` says. Kept between runs."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .checkouts import LeftOutError, lay_out, make_data
from .ledger import Entry, Verification

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 400
"""A migration that takes longer has failed."""
_VERIFY_SECONDS = 1200
_MIGRATE = str(Path(sys.executable).with_name("migrate"))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer of the tool on one program."""

    key: str
    """Of the program and of the tool, as they were."""
    outcome: str
    """One of `ledger.OUTCOMES`, "failed" or "left out"."""
    why: str = ""
    """Why it failed or was left out."""
    findings: tuple[str, ...] = ()
    hash: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    """The files that changed, by path, as they were emitted."""
    diff: str = ""
    """Of the original and the emitted texts."""
    said: tuple[str, ...] = ()
    """The findings in words."""
    seconds: float = 0.0
    verify: Verification | None = None


@dataclass(frozen=True)
class Kept:
    """Answers on disk: `folder` is ours, ignored by git, and may be deleted at any time."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("answers", "texts", "checkouts"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def checkouts(self) -> Path:
        """Where exported checkouts are kept."""
        return self.folder / "checkouts"

    def last(self, entry: Entry) -> Answer | None:
        """The last answer on a program, whatever the tool was then."""
        try:
            data = json.loads(self._path(entry).read_text(encoding="utf-8"))
            verify = data.pop("verify")
            return Answer(**data, verify=Verification(**verify) if verify else None)
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, entry: Entry, answer: Answer) -> None:
        """Keep an answer, and its texts under their hash."""
        beside = self._path(entry).with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(asdict(answer)), encoding="utf-8")
        beside.replace(self._path(entry))
        if answer.hash:
            (self.folder / "texts" / answer.hash).write_text(json.dumps(dict(answer.texts)), encoding="utf-8")

    def texts(self, hash: str) -> Mapping[str, str] | None:
        """The emitted texts of an earlier answer, where a run on this machine has seen it."""
        try:
            found: dict[str, str] = json.loads((self.folder / "texts" / hash).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found

    def _path(self, entry: Entry) -> Path:
        return self.folder / "answers" / f"{entry.name.replace('/', '+')}.json"


def key_of(entry: Entry) -> str:
    """What an answer depends on: the program and the tool's own text."""
    return f"{entry.inputs()}-{_tool()}"


def _tool(known: list[str] = []) -> str:  # noqa: B006 - computed once a process
    if not known:
        digest = hashlib.sha256(sys.version.encode())
        for wing in ("rewriter", "codemods", "runtime"):
            for file in sorted((ROOT / wing).rglob("*.py")):
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
        known.append(digest.hexdigest()[:16])
    return known[0]


def ask(entry: Entry, folder: Path, kept: Kept, python: Path | None) -> Answer:
    """
    Ask the tool about a program.

    Args:
        entry: the program.
        folder: where the checkouts are.
        kept: where exports are kept.
        python: an interpreter that has what public programs import: `--verify` is run with it; None for the text alone.
    """
    scratch = Path(tempfile.mkdtemp(prefix="public-"))
    try:
        original = lay_out(entry, folder, kept.checkouts, scratch / "original")
        answer = _migrated(entry, original, lay_out(entry, folder, kept.checkouts, scratch / "migrated"))
        if python is not None and answer.outcome == "migrates" and is_verified(entry, answer):
            make_data(entry, original, python)
            answer = replace(answer, verify=_verified(entry, original, python))
    except LeftOutError as error:
        return Answer(key=key_of(entry), outcome="left out", why=str(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return answer


def recorded(entry: Entry) -> Answer:
    """The answer that the ledger records, as far as it does."""
    return Answer(key="", outcome=entry.outcome, findings=entry.findings, hash=entry.hash, verify=entry.verify)


def is_verified(entry: Entry, answer: Answer) -> bool:
    """Whether a run verifies the program: not where the ledger says of this answer that nothing can be tested."""
    return not (entry.verify and entry.verify.result == "not testable" and answer.hash == entry.hash)


def _migrated(entry: Entry, original: Path, place: Path) -> Answer:
    """Migrate the program in `place`, and compare it with the one in `original`."""
    script = os.path.relpath(entry.script, entry.place)
    begun = time.monotonic()
    command = [
        _MIGRATE,
        "--write",
        "--no-cache",
        "--output-format",
        "json",
        *entry.migrate,
        script,
    ]
    try:
        ended = subprocess.run(command, cwd=place, capture_output=True, timeout=_SECONDS, check=False)
        report = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        return Answer(key=key_of(entry), outcome="failed", why=f"still at work after {_SECONDS} seconds")
    except ValueError:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Answer(key=key_of(entry), outcome="failed", why=f"exit status {ended.returncode}, no report: {last}")
    unread = [error for error in report["errors"] if "not valid Python" in error["message"]]
    if report["status"] == 3 and not unread:
        return Answer(key=key_of(entry), outcome="failed", why=str(report["errors"][:1]))
    found = [(file["path"], finding) for file in report["files"] for finding in file["findings"]]
    blocked = {finding["id"] for _, finding in found if finding["severity"] == "blocked"}
    review = {finding["id"] for _, finding in found if finding["severity"] == "review"}
    texts = {file["path"]: _read(place / file["path"]) for file in report["files"] if file["changed"] and not blocked}
    blocked.update(f"not valid Python: {error['path']}" for error in unread)  # by this one: that of a newer one may be
    outcome = "refused" if blocked else "migrates" if texts else "nothing"
    findings = tuple(sorted(blocked or review))
    return Answer(
        key=key_of(entry),
        outcome=outcome,
        findings=findings,
        hash=_hash(outcome, findings, texts),
        texts=texts,
        diff=difference({path: _read(original / path) for path in texts}, texts),
        seconds=round(time.monotonic() - begun, 1),
        said=tuple(f"{path}:{one['line']}: {one['severity']} {one['id']}: {one['message']}" for path, one in found),
    )


def _hash(outcome: str, findings: tuple[str, ...], texts: Mapping[str, str]) -> str:
    """The hash of an answer: a text from which a finding has gone is another answer, too."""
    return hashlib.sha256(json.dumps([outcome, findings, sorted(texts.items())]).encode()).hexdigest()[:16]


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="backslashreplace")


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """A unified diff of two sets of texts."""
    out: list[str] = []
    for path in sorted({*old, *new}):
        before, after = (texts.get(path, "").splitlines(keepends=True) for texts in (old, new))
        out += difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
    return "".join(out)


def _verified(entry: Entry, place: Path, python: Path) -> Verification:
    script = os.path.relpath(entry.script, entry.place)
    options = ["--verify", "--python", str(python), "--output-format", "json", *entry.migrate, *entry.verify_options]
    command = [_MIGRATE, script, *options, "--", *entry.arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, timeout=_VERIFY_SECONDS, check=False
        )
        found = json.loads(ended.stdout).get("verification")
    except subprocess.TimeoutExpired:
        return Verification(result="not testable", why=f"still at work after {_VERIFY_SECONDS} seconds")
    except ValueError:
        found = None
    if not found:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Verification(result="not testable", why=f"no verdict: {last}")
    return in_short(found)


def in_short(found: Mapping[str, Any]) -> Verification:
    """A verdict of `--verify` in one word, with the reason where it is not *held*."""
    promises = found["promises"]
    if broken := [promise for promise in promises if promise["outcome"] == "broken"]:
        told = "; ".join(f"{one['promise']} ({one['processes']}): {one['detail']}" for one in broken[:3])
        return Verification(result="broken", why=told[:300])
    if error := found.get("original_error"):
        return Verification(result="not testable", why=f"the original does not run: {error['error']}"[:300])
    if any(one["id"] == "weights" and one["processes"] > 1 and one["outcome"] == "held" for one in promises):
        return Verification(result="held")
    why = next((one["detail"] for one in promises if one["outcome"] == "not testable"), "nothing was compared")
    return Verification(result="not testable", why=why[:300])
