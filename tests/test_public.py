"""The ledger of public programs: what a run says of its entries, how a verdict gets in. The programs here are ours."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
READ = "the whole difference was read"
TRAINS = (ROOT / "fixtures/mnist_functions/before.py").read_text()
REFUSED = (ROOT / "fixtures/no_entry_point/before.py").read_text()


class Place:
    """A folder of checkouts with one repository, a ledger, and the command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "ledger.yaml"
        self.repository = folder / "checkouts/somebody/thing"
        self.repository.mkdir(parents=True)
        self.git("init", "-q")
        self.commit = self.commits({"train.py": TRAINS, "part.py": REFUSED, "readme.py": "print('hello')\n"})

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        ended = subprocess.run(["git", *who, *words], cwd=self.repository, capture_output=True, text=True, check=True)
        return ended.stdout.strip()

    def commits(self, files: dict[str, str]) -> str:
        for name, text in files.items():
            (self.repository / name).write_text(text)
        self.git("add", ".")
        self.git("commit", "-qm", "x")
        return self.git("rev-parse", "HEAD")

    def enter(self, name: str, script: str = "", **more: Any) -> None:
        """Put an entry into the ledger, or change it."""
        entries = yaml.safe_load(self.ledger.read_text()) if self.ledger.exists() else {}
        base = {"repository": "somebody/thing", "commit": self.commit, "script": "train.py"}
        entries[name] = {**base, **entries.get(name, {}), **more, **({"script": script} if script else {})}
        self.ledger.write_text(yaml.safe_dump(entries))

    def entry(self, name: str) -> Any:
        return yaml.safe_load(self.ledger.read_text())[name]

    def run(self, *words: str, status: int, checkouts: str = "checkouts") -> str:
        """Run the command; what it prints."""
        ours = ["--ledger", str(self.ledger), "--kept", str(self.folder / "kept")]
        command = [sys.executable, "-m", "tests.public", str(self.folder / checkouts), *ours, *words]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert ended.returncode == status, ended.stdout + ended.stderr
        return ended.stdout + (ended.stderr if status == 3 else "")

    def judge(self, entry: str, verdict: str, why: str = READ, status: int = 0) -> str:
        return self.run("--entry", entry, "--verdict", verdict, "--why", why, "--by", "me", status=status)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_answer_is_unjudged_until_somebody_has_read_it(place: Place) -> None:
    place.enter("trains")
    shown = place.run("--quick", status=1)
    assert "unjudged: trains: nobody has read it" in shown
    assert "+        accelerator.backward(loss)" in shown
    place.judge("trains", "right")
    entry = place.entry("trains")
    assert (entry["outcome"], entry["verdict"]["by"], entry["first"]["verdict"]) == ("migrates", "me", "right")
    assert entry["verdict"]["hash"] == entry["hash"]
    assert "of the edited ones right: 1 of 1 (100 %)" in place.run("--quick", status=0)


def test_a_verdict_belongs_to_one_answer(place: Place) -> None:
    place.enter("trains")
    place.run("--quick", status=1)
    place.judge("trains", "right")
    place.enter("trains", commit=place.commits({"train.py": TRAINS.replace("epoch", "turn")}))
    shown = place.run("--quick", status=1)
    assert "unjudged: trains: the verdict ('right') belongs to another answer" in shown
    assert "turn" in shown
    assert "of the edited ones right: 0 of 1" in shown
    place.judge("trains", "wrong loud")
    assert place.entry("trains")["first"]["verdict"] == "right"  # the first try stays what it was


def test_a_program_that_is_no_longer_migrated_became_worse(place: Place) -> None:
    place.enter("trains")
    place.run("--quick", status=1)
    place.judge("trains", "right")
    place.enter("trains", script="part.py")
    shown = place.run("--quick", status=1)
    assert "worse: trains: it was migrated rightly, and is refused now: no-entry-point" in shown
    assert shown.index("worse: trains") < shown.index("1 worse, 0 unjudged")


def test_a_refusal_and_a_file_without_training_are_answers(place: Place) -> None:
    place.enter("refused", "part.py")
    place.enter("nothing", "readme.py")
    place.run("--quick", status=1)
    place.judge("refused", "rightly refused")
    place.judge("nothing", "right")
    assert place.entry("refused")["findings"] == ["no-entry-point"]
    assert "right or rightly refused: 2 of 2 (100 %)" in place.run("--quick", status=0)


def test_what_is_not_there_is_named_and_counts_nowhere(place: Place) -> None:
    place.enter("gone", repository="nobody/nothing")
    place.enter("another commit", commit="0" * 40)
    place.enter("moved", "old/train.py")
    place.enter("mended", mends=[{"file": "train.py", "line": 1, "was": "0" * 16, "now": "import os"}])
    shown = place.run("--quick", status=0)
    assert "left out: gone: no checkout" in shown
    assert "left out: another commit: " in shown
    assert f"has no commit 000000000000; it stands at {place.commit[:7]}" in shown
    assert "left out: moved: old/train.py is not in commit" in shown
    assert "left out: mended: train.py:1: the line to mend is another one" in shown
    assert "right or rightly refused: 0 of 0" in shown


def test_old_lines_are_mended_by_their_hash(place: Place) -> None:
    commit = place.commits({"train.py": TRAINS.replace("import torch\n", "import tosh\n", 1)})
    line = TRAINS.replace("import torch\n", "import tosh\n", 1).splitlines().index("import tosh") + 1
    was = hashlib.sha256(b"import tosh").hexdigest()[:16]
    mend = {"file": "train.py", "line": line, "was": was, "now": "import torch"}
    place.enter("mended", commit=commit, mends=[mend])
    place.enter("plain")
    place.run("--quick", status=1)
    answers = [json.loads((place.folder / f"kept/answers/{name}.json").read_text()) for name in ("mended", "plain")]
    assert answers[0]["hash"] == answers[1]["hash"] != ""


def test_a_run_goes_on_where_it_was_stopped(place: Place) -> None:
    place.enter("trains")
    place.run("--quick", status=1)
    kept = place.folder / "kept/answers/trains.json"
    kept.write_text(kept.read_text().replace('"outcome": "migrates"', '"outcome": "nothing"'))
    assert "   nothing  " in place.run("--quick", status=1)  # asked of what is kept
    kept.write_text(kept.read_text()[:40])  # half written
    assert "  migrates  " in place.run("--quick", status=1)


def test_shards_are_parts_of_the_whole(place: Place) -> None:
    for number in range(5):
        place.enter(f"gone {number}", repository="nobody/nothing")
    shards = [place.run("--quick", "--shard", f"{part}/2", status=0) for part in (1, 2)]
    assert [shard.count("left out: gone") for shard in shards] == [3, 2]


@pytest.mark.parametrize(
    "verdict, why, said",
    [
        ("splendid", READ, "VERDICT is one of right, wrong loud"),
        ("rightly refused", READ, "is no verdict on a program that migrates"),
        ("right", "ok", "must say in a sentence what was read"),
    ],
)
def test_a_verdict_that_says_nothing_is_refused(place: Place, verdict: str, why: str, said: str) -> None:
    place.enter("trains")
    place.run("--quick", status=1)
    before = place.ledger.read_bytes()
    assert said in place.judge("trains", verdict, why, status=3)
    assert place.ledger.read_bytes() == before


def test_what_no_run_has_shown_cannot_be_judged(place: Place) -> None:
    place.enter("trains")
    assert "no run has shown" in place.judge("trains", "right", status=3)
    assert "no entry 'train'; is it trains?" in place.judge("train", "right", status=3)
    place.run("--quick", status=1)
    place.enter("trains", arguments=["--epochs", "2"])  # another program than the one that was read
    assert "no run has shown" in place.judge("trains", "right", status=3)


def test_wrong_usage_says_what_to_do(place: Place) -> None:
    place.enter("trains")
    assert "say make public PUBLIC=FOLDER" in place.run("--quick", status=3, checkouts="elsewhere")
    assert "SHARD is K/N" in place.run("--quick", "--shard", "5/4", status=3)
    assert "make public creates it" in place.run("--python", "/nowhere/python", status=3)
    place.enter("trains", comit="x")
    assert "trains: unknown field comit" in place.run("--quick", status=3)


@pytest.mark.slow
def test_verify_is_recorded_with_the_verdict(place: Place) -> None:
    place.enter("trains", arguments=["--epochs", "1"])
    place.run("--python", sys.executable, status=1)
    place.judge("trains", "right")
    assert place.entry("trains")["verify"]["result"] == "held"


def test_every_answer_in_our_ledger_has_been_read() -> None:
    command = [sys.executable, "-m", "tests.public", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
