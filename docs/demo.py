"""
Migrate a whole training script, run it on one and on two processes, and compare with the original.

Run by `make demo`. The script is `fixtures/mnist_functions/before.py`: the shape of the classic MNIST example, on
scikit-learn's digits. Everything is written to `.demo`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
ORIGINAL = ROOT / "fixtures" / "mnist_functions" / "before.py"
SCRATCH = ROOT / ".demo"
SCRIPT = SCRATCH / "train.py"
COMMANDS = Path(sys.executable).parent
ARGUMENTS = ["--epochs", "2", "--save-model", "--no-cuda"]
CHECKPOINT = "digits_cnn.pt"
SECONDS = 300
STEPS = 6

WEIGHTS_MAY_DIFFER = 1e-3
"""
Of the biggest weight. Two processes add up in another order; 48 steps of Adadelta, which divides by gradients that are
nearly zero, make about 1e-4 of a float32's last digits: as much as the original itself changes on two threads.
"""

console = Console(highlight=False, soft_wrap=True)


class Failed(Exception):
    """A step that did not do what it promises."""


@dataclass(frozen=True)
class Run:
    """One training run: what it said and what it left."""

    lines: list[str]
    weights: dict[str, Any]
    seconds: float


_step = 0


@contextmanager
def step(title: str, command: str) -> Iterator[None]:
    """Announce a step with the command that it runs; say which one failed."""
    global _step
    _step += 1
    console.print(f"\n[bold cyan]\\[{_step}/{STEPS}][/] [bold]{title}[/]")
    console.print(Text(f"      $ {command}", style="dim"))
    try:
        yield
    except Failed as failed:
        console.print(f"[bold red]failed[/] in step {_step} of {STEPS}, {title.lower()}")
        console.print(Text(str(failed)))
        sys.exit(1)


def call(command: list[str], folder: Path, **variables: str) -> str:
    """Run a command and return its stdout."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHLIFT_", "ACCELERATE_"))}
    # One thread each: the order of additions is then that of the original, whatever the number of cores.
    environment = {**kept, "OMP_NUM_THREADS": "1", **variables}
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {SECONDS} s: {shlex.join(command)}") from None
    if ended.returncode:
        raise Failed(f"exit status {ended.returncode}: {shlex.join(command)}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def preview() -> None:
    """Show what would change."""
    with step("Preview: nothing is touched", "migrate train.py"):
        diff = call([str(COMMANDS / "migrate"), "--no-color", SCRIPT.name], SCRATCH)
        if SCRIPT.read_bytes() != ORIGINAL.read_bytes():
            raise Failed("the preview changed the script")
        if not diff:
            raise Failed("there is nothing to change in the script")
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for line in diff.splitlines():
            header = line.startswith(("---", "+++"))
            console.print(Text(f"      {line}", style="bold" if header else styles.get(line[:1], "")))


def write() -> None:
    """Apply it, twice: the second time there is nothing to do."""
    with step("Write", "migrate --write train.py"):
        call([str(COMMANDS / "migrate"), "--write", SCRIPT.name], SCRATCH)
        once = SCRIPT.read_bytes()
        call([str(COMMANDS / "migrate"), "--write", SCRIPT.name], SCRATCH)
        if SCRIPT.read_bytes() != once:
            raise Failed("migrating a second time changed the script again")
        console.print("      [green]written[/]; a second run changes nothing")


def train(title: str, shown: str, command: list[str], name: str, **variables: str) -> Run:
    """Train once, in a folder of its own."""
    with step(title, shown):
        folder = SCRATCH / name
        folder.mkdir()
        start = time.perf_counter()
        with console.status("      training ..."):
            lines = call([*command, *ARGUMENTS], folder, **variables).splitlines()
        seconds = time.perf_counter() - start
        for line in metrics(lines):
            console.print(Text(f"      {line}"))
        console.print(f"      [green]done[/] in {seconds:.1f} s, {CHECKPOINT} written")
        return Run(lines, load(folder / CHECKPOINT), seconds)


def load(checkpoint: Path) -> dict[str, Any]:
    """Read a checkpoint and load it into the plain model of the original script."""
    import torch

    if not checkpoint.exists():
        raise Failed(f"the run wrote no {checkpoint.name}")
    weights: dict[str, Any] = torch.load(checkpoint, weights_only=True)
    spec = importlib.util.spec_from_file_location("original", ORIGINAL)
    if spec is None or spec.loader is None:
        raise Failed(f"cannot import {ORIGINAL}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Net(0.0)
    try:
        model.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        raise Failed(f"the checkpoint does not load into the plain model: {error}") from None
    if list(weights) != list(model.state_dict()):
        raise Failed(f"the checkpoint has other keys than the plain model: {list(weights)}")
    return weights


def metrics(lines: list[str]) -> list[str]:
    """The lines that speak of the whole test set."""
    return [line.removeprefix("Test set: ") for line in lines if line.startswith("Test set: ")]


def losses(lines: list[str]) -> list[str]:
    """The training losses, as printed."""
    return [line.rpartition(" ")[2] for line in lines if line.startswith("Train Epoch")]


def shape(lines: list[str]) -> list[str]:
    """The lines without their numbers: the same text is printed as often as before."""
    return [re.sub(r"[\d.]+", "#", line) for line in lines]


def apart(one: Run, other: Run) -> float:
    """The biggest difference of a weight, of the biggest weight; 0 means equal to the last bit."""
    biggest = max(float(w.abs().max()) for w in one.weights.values())
    return max(float((one.weights[k] - other.weights[k]).abs().max()) for k in one.weights) / biggest


def compare(original: Run, one: Run, two: Run) -> None:
    """Print the table, then say what does not agree."""
    with step("Compare", "test metrics, printed lines, weights, checkpoints"):
        table = Table(title="The same training", title_justify="left", header_style="bold")
        table.add_column("", no_wrap=True)
        for name in ("original\n1 process", "migrated\n1 process", "migrated\n2 processes"):
            table.add_column(name, justify="right", no_wrap=True)
        runs = (original, one, two)
        for epoch, row in enumerate(zip(*(losses_by_epoch(run.lines) for run in runs), strict=True), 1):
            table.add_row(f"training loss, epoch {epoch}", *row[:2], f"{row[2]} *")
        for epoch, row in enumerate(zip(*(metrics(run.lines) for run in runs), strict=True), 1):
            for part, cells in enumerate(zip(*(line.split(", ") for line in row), strict=True)):
                title = ("test loss", "test accuracy")[part]
                table.add_row(
                    f"{title}, epoch {epoch}", *(cell.rpartition(": ")[2].partition(" ")[0] for cell in cells)
                )
        table.add_row("lines printed", *(str(len([x for x in run.lines if x])) for run in runs))
        distances = (apart(original, one), apart(original, two))
        table.add_row("weights differ by", "", *("0 (every bit)" if d == 0 else f"{d:.0e}" for d in distances))
        table.add_row("loads in the plain model", "yes", "yes", "yes")
        table.add_row("seconds with start-up", *(f"{run.seconds:.1f}" for run in runs))
        console.print(table)
        console.print(
            "      * a loss printed inside a loop is that of the rows that the printing process had", style="dim"
        )
        faults = list(disagreements(original, one, two, *distances))
        if faults:
            raise Failed("\n".join(faults))


def losses_by_epoch(lines: list[str]) -> list[str]:
    """The last training loss that each epoch printed."""
    last: dict[str, str] = {}
    for line in lines:
        if line.startswith("Train Epoch: "):
            last[line.split()[2]] = line.rpartition(" ")[2]
    return list(last.values())


def disagreements(original: Run, one: Run, two: Run, weights_one: float, weights_two: float) -> Iterator[str]:
    """What does not hold of the promises."""
    if one.lines != original.lines:
        yield "one process prints something else than the original"
    if weights_one != 0:
        yield f"the weights of one process differ from the original's by {weights_one:.1e}"
    if metrics(two.lines) != metrics(original.lines):
        yield "the test metrics of two processes differ from the original's"
    if shape(two.lines) != shape(original.lines):
        yield "two processes do not print each line once"
    if weights_two > WEIGHTS_MAY_DIFFER:
        yield f"the weights of two processes differ from the original's by {weights_two:.1e}, more than rounding"


def main() -> None:
    """Run all steps."""
    start = time.perf_counter()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir()
    shutil.copy(ORIGINAL, SCRIPT)
    arguments = shlex.join(ARGUMENTS)
    console.print("[bold]torchlift[/]: a plain training script, made distributed, with the same numbers")
    console.print("A copy of fixtures/mnist_functions/before.py is .demo/train.py", style="dim")
    preview()
    write()
    python = [sys.executable]
    original = train(
        "Train the original, 1 process", f"python before.py {arguments}", [*python, str(ORIGINAL)], "original"
    )
    one = train("Train the migrated script, 1 process", f"python train.py {arguments}", [*python, str(SCRIPT)], "one")
    two = train(
        "Train the migrated script, 2 processes, same global batch",
        f"TORCHLIFT_SPLIT_BATCHES=1 torchlift launch --num-processes 2 train.py {arguments}",
        [str(COMMANDS / "torchlift"), "launch", "--num-processes", "2", str(SCRIPT)],
        "two",
        TORCHLIFT_SPLIT_BATCHES="1",
    )
    compare(original, one, two)
    seconds = time.perf_counter() - start
    console.print(f"\n[bold green]They agree.[/] {seconds:.0f} s; scripts and checkpoints are in .demo")


if __name__ == "__main__":
    main()
