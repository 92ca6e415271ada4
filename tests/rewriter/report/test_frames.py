"""Code frames: the line with its part underlined, the cause, and what a terminal can and cannot show."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.notebooks.document import masked
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.report.frames import cells, frame, views
from torchlift.rewriter.report.groups import groups
from torchlift.rewriter.report.summary import summary
from torchlift.rewriter.result import CausePlace, Diagnosis, FileResult, Result
from torchlift.rewriter.source import decode

LOSSES = """\
import mystery


def score(out, y):
    return mystery.loss(out, y)
"""
SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:  # every batch
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step(){then}
"""


def file_of(line: str, column: int = 0, end: int = 0) -> tuple[FileResult, Diagnosis]:
    """A file of one line, and a finding in it."""
    told = Diagnosis("once", Severity.REVIEW, "said", "do it", 1, column, end)
    source = decode(line.encode(), Path("train.py"))
    return FileResult(source, source.data, diagnoses=(told,)), told


def drawn(file: FileResult, told: Diagnosis, width: int = 80, encoding: str = "utf-8") -> list[str]:
    return list(frame(list(views(file, told)), width=width, paint=lambda text, _: text, encoding=encoding))


@pytest.mark.parametrize(
    ("line", "place", "shown"),
    [
        ("    x = f(y)\n", {"column": 9, "end": 13}, ["1 |     x = f(y)", "  |         ^^^^"]),
        ("    x = f(y)\n", {}, ["1 |     x = f(y)", "  |     ^^^^^^^^"]),
        ("x = f(y)\r\n", {"column": 5, "end": 9}, ["1 | x = f(y)", "  |     ^^^^"]),
        ("\tx =\tf(y)\n", {"column": 6, "end": 10}, ["1 |     x = f(y)", "  |         ^^^^"]),
        ("s, x = '🎉漢', f(y)\n", {"column": 14, "end": 18}, ["1 | s, x = '🎉漢', f(y)", "  |                ^^^^"]),
        ("x = 'שלום' + y\n", {"column": 14, "end": 15}, ["1 | x = 'שלום' + y", "  |              ^"]),
        ("x = '\u202e' + y\n", {"column": 11, "end": 12}, ["1 | x = '\\u202e' + y", "  |                ^"]),
        ("x = 1\n", {"column": 40, "end": 50}, ["1 | x = 1", "  | ^^^^^"]),
    ],
    ids=["a part", "a line", "CRLF", "tabs", "emoji", "right to left", "a control character", "past the end"],
)
def test_the_part_is_underlined(line: str, place: dict[str, int], shown: list[str]) -> None:
    assert drawn(*file_of(line, **place)) == shown


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize(
    "text", ["x = 1", "x" * 3000, "漢" * 200, "    " * 30 + "step(figures)", "\U0001f389" * 90 + " = y"]
)
@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
def test_a_line_is_cut_so_that_its_part_is_seen(width: int, text: str, at: float) -> None:
    first = int(at * (len(text) - 1)) + 1
    lines = drawn(*file_of(text + "\n", column=first, end=first + 1), width=width)
    assert max(map(cells, lines)) <= width
    assert lines[1].count("^") in (1, 2, 4), "one character, which may take two columns, or a line as a whole"
    assert lines[1].index("^") < width


def test_what_the_terminal_cannot_spell_is_a_question_mark() -> None:
    assert drawn(*file_of("x = '漢字' + y\n", column=12, end=13), encoding="ascii") == [
        "1 | x = '??' + y",
        "  |            ^",
    ]


def test_the_cause_is_the_second_place() -> None:
    file, told = file_of("stop(x)\n", column=6, end=7)
    cause = CausePlace("it comes from here", 120, 5, 9, "for x in rows:\r", "lib/data.py")
    assert drawn(file, told._replace(cause=cause)) == [
        "  1 | stop(x)",
        "    |      ^",
        "   --> lib/data.py:120",
        "120 | for x in rows:",
        "    |     ---- it comes from here",
    ]


def test_a_long_label_is_on_lines_of_its_own() -> None:
    file, told = file_of("stop(x)\n", column=6, end=7)
    cause = CausePlace("each process goes through its own shard", 2, 1, 4, "for x in rows:")
    lines = drawn(file, told._replace(cause=cause), width=30)
    assert lines[-3:] == ["  | ---", "  | each process goes through", "  | its own shard"]


def test_a_finding_of_a_whole_file_has_no_frame() -> None:
    file, told = file_of("x = 1\n")
    assert drawn(file, told._replace(line=0)) == []


# What the analysis knows of the places -------------------------------------------------------------------------------


def found(text: str, *modules: tuple[str, str]) -> list[Diagnosis]:
    sources = [decode(text.encode(), Path("train.py")), *(decode(t.encode(), Path(name)) for name, t in modules)]
    return [told for file in migrate(sources, CATALOGUE, Config()).files for told in file.diagnoses]


def underlined(text: str, told: Diagnosis) -> str:
    return text.split("\n")[told.line - 1][told.column - 1 : told.end - 1]


def test_a_loss_that_is_not_known_is_underlined_and_the_call_that_hides_it() -> None:
    text = SCRIPT.format(imports="from losses import score", loss="score(model(x), y)", then="")
    (told,) = found(text, ("losses.py", LOSSES))
    assert told.id == "loss-reduction" and underlined(text, told) == "loss"
    assert told.cause is not None and (told.cause.path, told.cause.line) == ("losses.py", 5)
    assert told.cause.text[told.cause.column - 1 : told.cause.end - 1] == "mystery.loss(out, y)"
    assert "what `mystery.loss` does" in told.cause.label


def test_a_decision_shows_its_value_and_where_each_process_has_its_own() -> None:
    then = "\n    if (x > 3).max() > 2:\n        break"
    text = SCRIPT.format(imports="", loss="(model(x) - y).pow(2).mean()", then=then)
    (told,) = found(text)
    assert told.id == "local-decision" and underlined(text, told) == "(x > 3).max() > 2"
    assert told.cause is not None and told.cause.path == ""
    assert told.cause.text[told.cause.column - 1 : told.cause.end - 1] == "for x, y in loader:", "without its comment"


def test_an_evaluation_that_is_not_understood_shows_why() -> None:
    evaluation = """
model.eval()
hits = 0
with torch.no_grad():
    for x, y in loader:
        for part in x.split(2):
            hits += int((model(part) > 0).sum())
print(hits)
"""
    text = SCRIPT.format(imports="", loss="(model(x) - y).pow(2).mean()", then="") + evaluation
    told = next(one for one in found(text) if one.id == "prepare")
    assert underlined(text, told) == "for x, y in loader:"
    assert told.cause is not None and told.cause.label in told.message
    assert told.cause.text.strip() == "for part in x.split(2):"


def test_a_cause_in_a_notebook_has_the_line_of_its_cell(tmp_path: Path) -> None:
    then = "\n    if (x > 3).max() > 2:\n        break"
    text = SCRIPT.format(imports="", loss="(model(x) - y).pow(2).mean()", then=then)
    head, loop = text.split("for x, y", 1)
    code: list[dict[str, object]] = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": t}
        for t in (head, "for x, y" + loop)
    ]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    survey = Surveyor(CATALOGUE, RawConfig(), cached=False).look([path])
    said = summary(Result(tuple(survey.files), survey.checked), [])
    assert "n.ipynb:cell 2, line 6: blocked [local-decision]" in said
    assert "n.ipynb:cell 2, line 1\n" in said
    assert "6 |     if (x > 3).max() > 2:\n      |        ^^^^^^^^^^^^^^^^^\n" in said


def test_a_magic_is_shown_as_its_cell_has_it() -> None:
    text = masked("%store model")
    file, told = file_of(f"{text}\n", column=1, end=5)
    cause = CausePlace("it is read here", 120, 1, 5, masked("!ls"), "lib/data.py")
    assert "%" not in text.partition("#")[0] and drawn(file, told._replace(cause=cause)) == [
        "  1 | %store model",
        "    | ^^^^^^^^^^^^",
        "   --> lib/data.py:120",
        "120 | !ls",
        "    | --- it is read here",
    ]


# Many findings, bad terminals ----------------------------------------------------------------------------------------


def test_findings_of_one_cause_are_one() -> None:
    source = decode(b"a = f(x)\nb = g(x)\n", Path("train.py"))
    cause = CausePlace("it comes from here", 1, 9, 10, "run(data)", "lib.py")
    one = Diagnosis("once", Severity.REVIEW, "`a` differs", "do it", 1, 1, 2, cause)
    other = one._replace(message="`b` differs", line=2)
    text = summary(Result((FileResult(source, source.data, diagnoses=(one, other)),), 1), [])
    assert "1 finding\n  train.py:1: review [once] `a` differs\n" in text
    assert "    2 | b = g(x)\n      | ^ `b` differs\n" in text
    assert text.count("lib.py:1") == 1


def test_thousands_of_findings_are_counted() -> None:
    text = "".join(f"x{n} = 1\n" for n in range(5000))
    source = decode(text.encode(), Path("train.py"))
    told = tuple(Diagnosis("once", Severity.REVIEW, f"`x{n}` differs", "do it", n + 1, 1, 3) for n in range(5000))
    said = summary(Result((FileResult(source, source.data, diagnoses=told),), 1), [])
    assert "5000 findings" in said and len(said.splitlines()) < 300
    assert "and 4950 other findings: 4950 [once]. All of them: --output-format json" in said


@pytest.mark.parametrize("environment", [{}, {"PYTHONIOENCODING": "ascii"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("columns", [20, 80])
def test_a_terminal_of_any_kind_shows_them(tmp_path: Path, environment: dict[str, str], columns: int) -> None:
    then = "\n    if (x > 3).max() > 2 or '漢🎉שלום' == y:\n        break"
    text = SCRIPT.format(imports="", loss="(model(x) - y).pow(2).mean()", then=then)
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "torchlift.codemods", "--no-cache", "train.py"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | environment | {"COLUMNS": str(columns)},
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    said = shown.decode("utf-8", "replace")
    assert run.wait() == 2, said
    assert "Traceback" not in said and "internal error" not in said
    assert "^^^" in said and "help:" in said
    assert ("\x1b[1m" in said) is (environment.keys() <= {"PYTHONIOENCODING"})


def test_what_is_shown_is_what_was_read(tmp_path: Path) -> None:
    """A file that changes while it is shown: the code is that of the analysis, wherever its lines are by now."""
    then = "\n    if (x > 3).max() > 2:\n        break"
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(imports="", loss="(model(x) - y).pow(2).mean()", then=then))
    survey = Surveyor(CATALOGUE, RawConfig(), cached=False).look([path])
    path.write_text("# gone\n")
    said = summary(Result(tuple(survey.files), survey.checked), [])
    assert "if (x > 3).max() > 2:\n" in said and "for x, y in loader:  # every batch\n" in said


def test_findings_with_one_remedy_are_one_and_each_says_its_own() -> None:
    """Six draws of a data set had six findings with the same help."""
    text = "a = draw(1)\nb = draw(2)\n"
    told = [
        Diagnosis(
            "unseeded", Severity.REVIEW, f"`draw({n})` is another one on each process", "seed", n, 5, 12, case="draw"
        )
        for n in (1, 2)
    ]
    file = FileResult(decode(text.encode(), Path("x.py")), text.encode(), diagnoses=tuple(told))
    (group,) = groups(Result((file,), 1))
    assert group.places() == ["x.py:1", "x.py:2"]
    assert [view.label for view in group.shown()] == ["", ""], "what is underlined need not be repeated"
    more = told[1]._replace(message="`b` is drawn here, another one on each process")
    (group,) = groups(Result((file._replace(diagnoses=(told[0], more)),), 1))
    assert [view.label for view in group.shown()] == ["", "`b` is drawn here"]
    shaped = [
        found._replace(message=f"`view({n}, -1)` shapes a batch by `{n} * rows` that each process has")
        for n, found in enumerate(told)
    ]
    (group,) = groups(Result((file._replace(diagnoses=tuple(shaped)),), 1))
    assert group.shown()[1].label == "`view(1, -1)` shapes a batch by `1 * rows`", "no code is cut in the middle"
    others = groups(Result((file._replace(diagnoses=(told[0], told[1]._replace(remedy="seed that"))),), 1))
    assert len(others) == 2


def test_a_line_that_is_cut_keeps_its_beginning() -> None:
    """What is assigned there is the name that the reader looks for."""
    text = "    optimizer = AdamW(net.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)\n"
    start = text.index("options.weight_decay") + 1
    told = Diagnosis("once", Severity.REVIEW, "look", "do it", 1, start, start + 20)
    file = FileResult(decode(text.encode(), Path("x.py")), text.encode())
    lines = list(frame(list(views(file, told)), width=76, paint=lambda text, _: text))
    assert lines[0].startswith("1 | optimizer = Adam...") and lines[0].endswith("options.weight_decay)")
    assert lines[1].index("^") == lines[0].index("options.weight") and max(map(len, lines)) <= 76


def test_a_line_of_which_one_cause_is_said_twice_is_shown_once() -> None:
    """Whether a rate changes, and what it is computed from, depend on the same value of the same line."""
    text = "if score > best:\n    rate = rate / 2\n"
    cause = CausePlace("each process has its own here", 2, 5, 9, "    rate = rate / 2")
    told = [
        Diagnosis("local-decision", Severity.BLOCKED, words, "decide", 1, 4, 16, cause) for words in ("whether", "from")
    ]
    file = FileResult(decode(text.encode(), Path("x.py")), text.encode(), diagnoses=tuple(told))
    (group,) = groups(Result((file,), 1))
    assert [view.number for view in group.shown()] == [1, 2]
