"""
Write the pages and pictures of the documentation that are made from the code.

Run by `make docs`: `docs/rules.md` from the docstrings of the rules, `docs/findings.md` from the page that lies in the
package, and three pictures in `docs/images`: the preview and the findings at a terminal (`preview.svg`,
`findings.svg`) and the page of `--html` (`page.png`, where a Chromium is installed).
"""

from __future__ import annotations

import importlib.util
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.explaining import PAGE
from torchlift.rewriter.report.html import page
from torchlift.rewriter.report.rows import hunks_of
from torchlift.rewriter.report.summary import summary
from torchlift.rewriter.report.terminal import print_hunk
from torchlift.rewriter.result import FileResult, Result
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
_PLAIN = "24292f b3261e 1a7f37 8a5a00 0b62c9 823ca0 146e7d 6e7781"
_BRIGHT = "57606a b3261e 1a7f37 8a5a00 0b62c9 823ca0 146e7d 8c959f"


def _colour(text: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(text)
    return red, green, blue


THEME = TerminalTheme(
    _colour("ffffff"), _colour("24292f"), [*map(_colour, _PLAIN.split())], [*map(_colour, _BRIGHT.split())]
)


def rules_page() -> str:
    """The text of `docs/rules.md`."""
    rules = [entry.load() for entry in CATALOGUE]
    contents = "\n".join(f"- [{rule.id}](#{rule.id}): {rule.summary.replace('``', '`')}" for rule in rules)
    return f"{HEAD}\n{contents}\n" + "".join(f"\n## {rule.id}\n\n{_body(rule)}\n" for rule in rules)


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


def migrated(name: str) -> FileResult:
    """A fixture, under the name that a user's script would have."""
    data = (ROOT / "fixtures" / name / "before.py").read_bytes()
    (file,) = migrate([decode(data, Path("train.py"))], CATALOGUE, Config()).files
    return file


def terminal(file: FileResult) -> str:
    """The preview at a terminal, as SVG: the hunks that show most."""
    console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True, highlight=False)
    hunks = hunks_of(file, context=1)
    chosen = [hunk for hunk in hunks if any(c.rule in ("backward", "prepare") for c in hunk.changes)]
    for hunk in chosen:
        print_hunk(file, hunk, console)
    return console.export_svg(title="migrate train.py", theme=THEME, unique_id="preview")


TOLD = {
    "train.py": """\
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
""",
    "losses.py": """\
import focal


def score(out, y):
    return focal.loss(out, y)
""",
}
"""A program of which something is told."""


def findings() -> str:
    """What is said of a program at a terminal, as SVG."""
    sources = [decode(text.encode(), Path(name)) for name, text in TOLD.items()]
    told = summary(migrate(sources, CATALOGUE, Config()), (), width=100, wraps=True, color=True)
    console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True, highlight=False)
    console.print(Text.from_ansi(told))
    return console.export_svg(title="migrate train.py", theme=THEME, unique_id="findings")


def browser() -> Any:
    """The tests' way to drive a Chromium."""
    spec = importlib.util.spec_from_file_location("browser", ROOT / "tests" / "rewriter" / "report" / "browser.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("tests/rewriter/report/browser.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def screenshot(file: FileResult, target: Path) -> bool:
    """The page of `--html` as a picture; False where there is no browser."""
    chromium = browser()
    if chromium.found() is None:
        return False
    rules = {entry.id: entry.load().summary for entry in CATALOGUE}
    with tempfile.TemporaryDirectory(prefix="torchlift-") as folder:
        html = Path(folder, "page.html")
        html.write_text(page(Result((file,), 1, {"batch": "process"}), (), rules=rules), encoding="utf-8")
        window = chromium.Browser(Path(folder, "profile"))
        window.size(1120, 640)
        window.colours("light")
        window.open(html)
        window.run(
            "document.querySelector('[data-rules~=backward]').scrollIntoView({block: 'center', behavior: 'instant'})"
        )
        window.run("document.querySelector('[data-rules~=backward] details').open = true")
        window.picture(target)
        window.close()
    return True


def main() -> int:
    """Write everything."""
    IMAGES.mkdir(exist_ok=True)
    RULES.write_text(rules_page(), encoding="utf-8")
    FINDINGS.write_bytes(PAGE.read_bytes())
    file = migrated("mnist_functions")
    (IMAGES / "preview.svg").write_text(terminal(file) + "\n", encoding="utf-8")
    (IMAGES / "findings.svg").write_text(findings() + "\n", encoding="utf-8")
    if not screenshot(file, IMAGES / "page.png"):
        sys.stderr.write("no picture of the page: install a Chromium (apt-get install chromium)\n")
    sys.stdout.write(f"written: {RULES.relative_to(ROOT)}, {FINDINGS.relative_to(ROOT)}, {IMAGES.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
