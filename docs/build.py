"""
Write the pages and pictures of the documentation that are made from the code.

Run by `make docs`: `docs/rules.md` from the docstrings of the rules, `docs/findings.md` from the page that lies in the
package, and the pictures in `docs/images`, light and dark: what the command says at a terminal of 80 and of 140
columns, a verdict of `--verify`, and the page of `--html`, wide and narrow (where a Chromium is installed).
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.explaining import PAGE, address, one_sentence
from torchlift.rewriter.report.html import page
from torchlift.rewriter.result import Result
from torchlift.rewriter.rule import Rule
from torchlift.rewriter.source import decode

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "docs" / "rules.md"
FINDINGS = ROOT / "docs" / "findings.md"
IMAGES = ROOT / "docs" / "images"
HEAD = """\
# The rules

What each rule of `migrate` does and why, with an example. The examples are tests: the first form goes in, the second
comes out, and a second run changes nothing. `migrate --explain ID` shows the same in a terminal, `--select` and
`--ignore` choose rules.

This page is made by `make docs` from the docstrings in `codemods/`.
"""
CONTENTS, _END = "<!-- contents: made by `make docs` -->", "<!-- end of the contents -->"
"""The list of contents of the page of findings is between these lines."""
WIDTHS = (80, 140)
SIZES = {"wide": (1000, 600), "narrow": (360, 640)}
"""The pictures of the page: columns and rows of pixels."""
_PLAIN = {
    "light": "24292f b3261e 1a7f37 8a5a00 0b62c9 823ca0 146e7d 6e7781",
    "dark": "8b949e ff7b72 56d27c e3b341 6cb0ff d2a8ff 76d9e6 e6edf3",
}
_GROUNDS = {"light": ("ffffff", "24292f"), "dark": ("0d1117", "e6edf3")}
DONE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

from data import Digits

device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(Digits(), batch_size=64, shuffle=True)
model = nn.Linear(784, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.CrossEntropyLoss(weight=torch.ones(10).to(device))

for epoch in range(10):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
torch.save(model.state_dict(), "digits.pt")
"""
"""A program that is migrated, and of which something is to be reviewed."""
STOPPED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

from data import Digits
from losses import score

model = nn.Linear(784, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Digits(), batch_size=64, shuffle=True)
for epoch in range(10):
    for x, y in loader:
        loss = score(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (y == 3).sum() > 20:
            break
"""
"""A program that is refused."""
BESIDE = {
    "losses.py": """\
import focal


def score(out, y):
    return focal.loss(out, y)
""",
    "data.py": """\
from torchvision.datasets import MNIST


class Digits(MNIST):
    pass
""",
}
"""The other files of both."""
MEASURED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = torch.randn(400, 20)
answers = (rows[:, :4].sum(1) > 0).long()
train_loader = DataLoader(TensorDataset(rows[:300], answers[:300]), batch_size=32, shuffle=True)
test_loader = DataLoader(TensorDataset(rows[300:], answers[300:]), batch_size=50)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    hits = 0
    with torch.no_grad():
        for x, y in test_loader:
            hits += (model(x).argmax(1) == y).sum().item()
    print(f"epoch {epoch}: accuracy {hits / 100:.3f}")
torch.save(model.state_dict(), "model.pt")
"""
"""A program with a figure that is wrong on two processes if nobody gathers it."""
TERMINALS: dict[str, tuple[str, tuple[int, ...], tuple[str, ...]]] = {
    "preview": (DONE, WIDTHS, ()),
    "findings": (STOPPED, WIDTHS, ()),
    "verdict": (MEASURED, (110,), ("--ignore", "metrics_gather", "--verify")),
}
"""The pictures of a terminal: the script, the columns, and the options."""
_VERDICT = "BROKEN ("
_SUMMARY = "1 file would change"
"""Begins what is shown of a verification."""


def theme(scheme: str) -> TerminalTheme:
    """The colours of a light or a dark terminal."""
    ground, text = _GROUNDS[scheme]
    colours = [*map(_colour, _PLAIN[scheme].split())]
    return TerminalTheme(_colour(ground), _colour(text), colours, colours)


def _colour(text: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(text)
    return red, green, blue


def rules_page() -> str:
    """The text of `docs/rules.md`."""
    rules = [entry.load() for entry in CATALOGUE]
    contents = "\n".join(f"- [{rule.id}](#{rule.id}): {rule.summary.replace('``', '`')}" for rule in rules)
    return f"{HEAD}\n{contents}\n" + "".join(f"\n## {rule.id}\n\n{_body(rule)}\n" for rule in rules)


def findings_page() -> str:
    """The page of findings, with its list of contents."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(CONTENTS)
    if not rest:
        before, _, rest = text.partition("\n## ")
        rest = f"{_END}\n\n## {rest}"
    return f"{before.rstrip()}\n\n{CONTENTS}\n\n{_contents(text)}\n\n{_END}{rest.partition(_END)[2]}"


def _contents(text: str) -> str:
    """A line for each id, those of the audit under a heading of their own."""
    lines: list[str] = []
    for chapter in re.split(r"^# ", text, flags=re.MULTILINE)[1:]:
        lines += ["", "With `--audit`:", ""] if lines else []
        for heading in re.findall(r"^## (.+)$", chapter, re.MULTILINE):
            id = heading.split(", ")[0]
            link = address("findings", id).partition("#")[2]
            lines.append(f"- [{heading}](#{link}): {one_sentence(id)}")
    return "\n".join(lines)


def _body(rule: Rule) -> str:
    """A docstring as Markdown: indented blocks are diffs, backticks are single."""
    text = rule.doc.strip().expandtabs(4)
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        indented = line.startswith("    ")
        if indented and not inside:
            lines.append("```diff")
        if inside and line and not indented:
            while lines[-1] == "":
                lines.pop()
            lines += ["```", ""]
        inside = indented or (inside and not line)
        lines.append(line[4:] if indented else line.replace("``", "`"))
    if inside:
        lines.append("```")
    return "\n".join(lines)


def said(folder: Path, width: int, *options: str) -> str:
    """What `migrate train.py` says at a terminal that is so wide, with its colours."""
    own = Path(sys.executable).parent
    path = os.pathsep.join([str(own), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "TERM": "xterm-256color", "COLUMNS": str(width)}
    environment.pop("NO_COLOR", None)
    reader, writer = os.openpty()
    process = subprocess.Popen(
        ["migrate", "--no-cache", "train.py", *options],
        cwd=folder,
        env=environment,
        stdin=writer,
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)
    data = b""
    with contextlib.suppress(OSError):  # Linux says so when nobody writes any more
        while some := os.read(reader, 1 << 16):
            data += some
    os.close(reader)
    process.wait()
    lines = data.decode().replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\r")[2].removeprefix("\x1b[K") for line in lines).strip("\n")


def terminals() -> Iterator[tuple[str, str]]:
    """The pictures of a terminal: name and SVG."""
    for name, (script, widths, options) in TERMINALS.items():
        with tempfile.TemporaryDirectory(prefix="torchlift-") as folder:
            for file, text in {**BESIDE, "train.py": script}.items():
                Path(folder, file).write_text(text, encoding="utf-8")
            for width in widths:
                text = said(Path(folder), width, *options)
                if options:
                    start = text.index(_VERDICT)
                    text = text[text.rindex("\n", 0, start) + 1 :].partition(_SUMMARY)[0]
                    text = text.rpartition("\n")[0].rstrip("\n")  # without the colour that begins the summary
                for scheme in _PLAIN:
                    console = Console(
                        file=io.StringIO(), record=True, width=width, force_terminal=True, highlight=False
                    )
                    for line in text.split("\n"):
                        styled = Text.from_ansi(line)
                        for row in styled.divide(range(width, len(styled), width)) if line else [styled]:
                            console.print(row, soft_wrap=True)
                    id = f"{name}-{width}-{scheme}"
                    yield (
                        id,
                        console.export_svg(
                            title=" ".join(["migrate train.py", *options]), theme=theme(scheme), unique_id=id
                        ),
                    )


def browser() -> Any:
    """The tests' way to drive a Chromium."""
    spec = importlib.util.spec_from_file_location("browser", ROOT / "tests" / "rewriter" / "report" / "browser.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("tests/rewriter/report/browser.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def screenshots(target: Path) -> bool:
    """The page of `--html` as pictures; False where there is no browser."""
    chromium = browser()
    if chromium.found() is None:
        return False
    data = (ROOT / "fixtures" / "mnist_functions" / "before.py").read_bytes()
    result = migrate([decode(data, Path("train.py"))], CATALOGUE, Config())
    stopped = migrate([decode(STOPPED.encode(), Path("probe.py"))], CATALOGUE, Config())
    both = Result((*result.files, *stopped.files), 2, {"batch": "process"})
    rules = {entry.id: entry.load().summary for entry in CATALOGUE}
    line = stopped.files[0].diagnoses[0].line
    hints = ["To apply:  migrate --write train.py", f"To learn more: migrate --explain probe.py:{line}"]
    with tempfile.TemporaryDirectory(prefix="torchlift-") as folder:
        html = Path(folder, "page.html")
        html.write_text(page(both, (), rules=rules, hints=hints), encoding="utf-8")
        window = chromium.Browser(Path(folder, "profile"))
        for scheme in _PLAIN:
            for name, size in SIZES.items():
                window.size(*size)
                window.colours(scheme)
                window.open(html)
                window.picture(target / f"page-{name}-{scheme}.png")
        window.close()
    return True


def main() -> int:
    """Write everything."""
    IMAGES.mkdir(exist_ok=True)
    RULES.write_text(rules_page(), encoding="utf-8")
    PAGE.write_text(findings_page(), encoding="utf-8")
    FINDINGS.write_bytes(PAGE.read_bytes())
    for name, svg in terminals():
        (IMAGES / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")
    if not screenshots(IMAGES):
        sys.stderr.write("no pictures of the page: install a Chromium (apt-get install chromium)\n")
    sys.stdout.write(f"written: {RULES.relative_to(ROOT)}, {FINDINGS.relative_to(ROOT)}, {IMAGES.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
