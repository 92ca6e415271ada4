"""
The rows of the map of hazards that are about training, in several spellings each, and what is left alone beside them.

Each file of `rows/` holds cases: `=== name`, then parts for the places of `rows/script.txt`, then what is expected: the
lines that come beside the usual ones (prints apart), and the ids of the findings. `--- swap` and `--- naive` replace a
piece of the script, or of the migrated text, by another: `old`, a line `=>`, `new`. A case with `--- silent` is run on
two processes and compared with the original, and its naive rewrite must be caught: the `daily` ones each time, the
others with the slow tests.

`python tests/snapshots.py NAME` shows what of a case came out differently, and with `--write` takes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import unified_diff
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

ROWS = Path(__file__).parent / "rows"
STEP = """\
optimizer.zero_grad()
output = model(x)
loss = criterion(output, y)
loss.backward()
optimizer.step()"""
USUAL = {
    "forward": "return self.head(torch.relu(self.body(x)))",
    "optimizer": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "step": STEP,
}
USUAL_IN = {
    "from torchlift.runtime import Accelerator",
    "accelerator = Accelerator()",
    "model = Net()",
    "model, optimizer, loader = accelerator.prepare(",
    "model, optimizer, loader",
    "model, optimizer, loader, test_loader = accelerator.prepare(",
    "model, optimizer, loader, test_loader",
    ")",
    "accelerator.backward(loss)",
}
EXPECTED = ("come", "findings")


@dataclass(frozen=True)
class Case:
    """One spelling of one row."""

    name: str
    file: str
    parts: dict[str, str]

    @property
    def script(self) -> str:
        """The whole script."""
        step = self.parts.get("step", USUAL["step"])
        given = {**USUAL, **self.parts, "step": "\n".join(filter(None, (step, self.parts.get("more"))))}
        lines = []
        for line in (ROWS / "script.txt").read_text().splitlines():
            place = line.strip()[1:-1] if line.strip().startswith("{") and line.strip().endswith("}") else None
            if place is None:
                lines.append(line)
            else:
                lines += indent(given.get(place, ""), line[: len(line) - len(line.lstrip())]).splitlines()
        text = "\n".join(line for line in lines if line.strip()) + "\n"
        for old, new in swaps(self.parts.get("swap", "")):
            assert old in text, f"{self.name}: the script has no {old!r}"
            text = text.replace(old, new)
        return text


def swaps(text: str) -> list[tuple[str, str]]:
    """The replacements of a `swap` or `naive` section."""
    pairs = (piece.strip("\n").partition("\n=>") for piece in text.split("\n\n") if "\n=>" in piece)
    return [(old, new.strip("\n")) for old, _, new in pairs]


def cases(file: Path) -> list[Case]:
    """The cases of one file."""
    found = []
    for block in file.read_text().split("=== ")[1:]:
        name, _, rest = block.partition("\n")
        sections = [piece.partition("\n") for piece in f"\n{rest}".split("\n--- ")[1:]]
        found.append(Case(name, file.stem, {key: text.strip("\n") for key, _, text in sections}))
    return found


def written(cases: list[Case]) -> str:
    """The text of a file with some cases."""
    blocks = []
    for case in cases:
        sections = (f"--- {key}\n{text}\n" if text else f"--- {key}\n" for key, text in case.parts.items())
        blocks.append(f"=== {case.name}\n" + "".join(sections))
    return "\n".join(blocks)


def record(case: Case) -> None:
    """Expect of one case, in its file, what comes out today."""
    file = ROWS / f"{case.file}.txt"
    parts = {key: text for key, text in case.parts.items() if key not in EXPECTED}
    parts.update({key: text for key, text in expected(case).items() if text and key in EXPECTED})
    file.write_text(written([replace(one, parts=parts) if one.name == case.name else one for one in cases(file)]))


FILES = sorted(path for path in ROWS.glob("*.txt") if path.name != "script.txt")
ALL = [case for file in FILES for case in cases(file)]
SILENT = [case for case in ALL if "silent" in case.parts]


def migrated(text: str) -> FileResult:
    """What the catalogue makes of a script."""
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


def come(before: str, after: str) -> list[str]:
    """The lines that came, without those that every migrated script has, and without prints."""
    new = [line[1:].strip() for line in unified_diff(before.splitlines(), after.splitlines(), n=0) if line[:1] == "+"]
    return [line for line in new if line and line not in USUAL_IN and not line.startswith(("++", "accelerator.print("))]


def expected(case: Case) -> dict[str, str]:
    """What becomes of a case, as the sections of its file."""
    text = case.script
    file = migrated(text)
    return {
        "come": "\n".join(come(text, file.after.decode())),
        "findings": "\n".join(f"{found.severity.value} {found.id}" for found in file.diagnoses),
        "again": again(file),
    }


def again(once: FileResult) -> str:
    """What a second run does: nothing."""
    if not once.changed:
        return ""
    twice = migrated(once.after.decode())
    return "changes" if twice.after != once.after else "is blocked" if twice.blocked else ""


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=pytest.mark.hazard(case.name.partition(":")[0])) for case in ALL]
)
def test_row(case: Case, usual_edits: Callable[[FileResult], None]) -> None:
    usual_edits(migrated(case.script))
    assert expected(case) == {**{key: case.parts.get(key, "") for key in EXPECTED}, "again": ""}


# ---------------------------------------------------------------- two processes

BATCH = """
import json, os, sys
from pathlib import Path
from torchlift.runtime.verify.request import VerifyRequest, program_at
from torchlift.runtime.verify.conductor import Server
from torchlift.runtime.verify.overview import as_json
for before, after in json.loads(sys.stdin.read()):
    before, after = Path(before), Path(after)
    request = VerifyRequest(
        original=program_at(before, before.parent), migrated=program_at(after, before.parent), arguments=(), procs=(2,),
        steps=5, exact=True, double=False, keep=False, seconds=120.0, wait=20.0, cpu=True,
    )
    sys.stdout.flush()
    child = os.fork()
    if not child:
        verdict = as_json(Server(request).verify())
        broken = {p["id"]: p["detail"] for p in verdict["promises"] if p["outcome"] == "broken"}
        print(json.dumps([verdict["status"], broken]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case, str], tuple[int, dict[str, str]]]:
    """`verdicts(case, kind)`: the status of a verification and the broken promises; all of a pace in one process."""

    @cache
    def batch(daily: bool) -> dict[tuple[str, str], tuple[int, dict[str, str]]]:
        return verify([case for case in SILENT if (case.parts["silent"] == "daily") is daily], tmp_path_factory)

    return lambda case, kind: batch(case.parts["silent"] == "daily")[case.name, kind]


def verify(chosen: list[Case], temporary: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[int, dict[str, str]]]:
    """Verify the right and the naive texts of some cases."""
    folder = temporary.mktemp("silent")
    pairs, keys = [], []
    for number, case in enumerate(chosen):
        place = folder / str(number)
        place.mkdir()
        (place / "train.py").write_text(case.script)
        text = migrated(case.script).after.decode()
        assert text != case.script, f"{case.name}: there is nothing to compare"
        for kind, after in (("right", text), ("naive", naive(case, text))):
            if after is not None:
                (place / f"{kind}.py").write_text(after)
                pairs.append((str(place / "train.py"), str(place / f"{kind}.py")))
                keys.append((case.name, kind))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-c", BATCH], input=json.dumps(pairs), env={**os.environ, **threads, "PYTHONHASHSEED": "0"},
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(lines) == len(keys), done.stderr
    return dict(zip(keys, ((status, broken) for status, broken in lines), strict=True))


def naive(case: Case, text: str) -> str | None:
    """The migrated text as a careless hand would have written it."""
    for old, new in swaps(case.parts.get("naive", "")):
        assert old in text, f"{case.name}: the migrated text has no {old!r}\n{text}"
        text = text.replace(old, new)
    return text if "naive" in case.parts else None


def silent(chosen: list[Case]) -> list[Any]:
    """The cases as parameters; those of a pace stay on one worker, where they are run once."""
    pace = {case.name: "daily" if case.parts["silent"] == "daily" else "slow" for case in chosen}
    group = {name: pytest.mark.xdist_group(f"silent rows, {word}") for name, word in pace.items()}
    slow = {name: [pytest.mark.slow] if word == "slow" else [] for name, word in pace.items()}
    return [pytest.param(case, id=case.name, marks=[group[case.name], *slow[case.name]]) for case in chosen]


@pytest.mark.parametrize("case", silent(SILENT))
def test_two_processes_compute_the_same(case: Case, verdicts: Callable[[Case, str], Any]) -> None:
    assert verdicts(case, "right") == (0, {})


@pytest.mark.parametrize("case", silent([case for case in SILENT if "naive" in case.parts]))
def test_the_naive_rewrite_is_caught(case: Case, verdicts: Callable[[Case, str], Any]) -> None:
    status, broken = verdicts(case, "naive")
    assert status == 1 and broken
