"""Clocks are no figures: what a script makes of one breaks no promise, and what stands beside it is still compared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRAINS = """
import os, time
import torch
start = time.time()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.ones(8, 4)).mean()
    loss.backward()
    optimizer.step()
total = 5
print("loss", total, "time", round(time.time() - start))
with open("log.csv", "w") as log:
    print(total, (time.time() - start) // 3, sep=",", file=log)
os.makedirs(f"run-{int(time.time() - start) // 3}")
open(f"run-{int(time.time() - start) // 3}/notes.txt", "w").close()
"""
"""The original takes no second, whenever it runs: nothing about it looks like a clock."""


@pytest.mark.parametrize(
    ("total", "broken"),
    [
        (5, {}),
        (
            6,
            {
                "numbers": "6 in 'loss 6 time 3', the original prints 5",
                "files": "log.csv: line 1 is '6,1.0', the original's '5,0.0'",
            },
        ),
    ],
    ids=["slower", "slower and wrong"],
)
def test_a_migration_that_takes_longer_computes_the_same(
    total: int, broken: dict[str, str], tmp_path: Path, verify: Callable[..., Any]
) -> None:
    (tmp_path / "before.py").write_text(TRAINS)
    after = tmp_path / "after.py"
    after.write_text(TRAINS.replace("total = 5", f"time.sleep(3.1)\ntotal = {total}"))
    seen = verify(tmp_path / "before.py", after, options=("--procs", "1"))
    assert seen.broken() == broken
    assert "original with clocks ahead" in [run["name"] for run in seen.verdict["runs"]]
    if broken:
        number = seen.of("numbers", 1)
        assert (number["at"], number["side"]) == ("after.py:14", "migrated")
        assert number["code"].startswith('print("loss", total')


LATE = "max(time.time() - start for _ in range(200)) > 90"
"""Not in a quick run, but with clocks that run on with every look."""
BY_THE_CLOCK = {
    "trains": ("range(3):", f"range(3):\n    if {LATE} and step == 2: break"),
    "ends": ('print("loss"', f'assert not {LATE}\nprint("loss"'),
}


@pytest.mark.parametrize(("line", "by_the_clock"), BY_THE_CLOCK.values(), ids=BY_THE_CLOCK)
def test_what_trains_or_ends_by_the_clock_is_not_excused(
    line: str, by_the_clock: str, tmp_path: Path, verify: Callable[..., Any]
) -> None:
    """With clocks ahead it makes other steps, or fails: that run tells nothing."""
    text = TRAINS.replace(line, by_the_clock).replace("log.csv", "log.bin")
    (tmp_path / "before.py").write_text(text)
    (tmp_path / "after.py").write_text(text.replace("total = 5", "total = 6"))
    seen = verify(tmp_path / "before.py", tmp_path / "after.py", options=("--procs", "1"))
    assert seen.broken().keys() == {"numbers"}


AHEAD = """
import time, datetime, pickle
real, today = datetime.datetime, datetime.date.today()
before = time.time(), time.perf_counter(), time.monotonic_ns(), real.now(), time.strftime("%Y")
from torchlift.runtime.verify.hooks import clocks
clocks.install()
from datetime import datetime as later, date, timedelta, timezone
year = timedelta(days=365)
assert time.time() - before[0] > year.total_seconds()
assert time.perf_counter() - before[1] > year.total_seconds()
assert isinstance(time.monotonic_ns(), int) and (time.monotonic_ns() - before[2]) / 1e9 > year.total_seconds()
one, two = time.time(), time.time()
assert two - one > 0.5
assert later.now() - before[3] > year and later.now(timezone.utc).tzinfo is timezone.utc
assert abs(later.utcnow() - later.now(timezone.utc).replace(tzinfo=None)) < timedelta(minutes=1)
assert date.today() - today > year and type(later.today().date()) is not later
assert time.strftime("%Y") != before[4] and time.localtime().tm_year == time.gmtime().tm_year
assert time.strftime("%Y") == str(later.now().year) == time.ctime()[-4:]
assert time.strftime("%Y", time.localtime(9e5)) == "1970" == time.ctime(9e5)[-4:]
assert later.fromtimestamp(9e5).year == 1970
assert isinstance(real(2020, 1, 1), later) and isinstance(later(2020, 1, 1), real) and isinstance(later.now(), date)
assert pickle.loads(pickle.dumps(later.now())) < later.now() and later(2020, 1, 1) == real(2020, 1, 1)
print("checked")
"""


def test_all_clocks_are_ahead_and_their_classes_work(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", AHEAD], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "checked\n", done.stderr
