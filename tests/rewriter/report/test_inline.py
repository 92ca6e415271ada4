"""Findings in the diff: each is said at its line, once; the summary after the diff is short."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from torchlift.rewriter.findings import Severity
from torchlift.rewriter.notebooks.document import read_notebook
from torchlift.rewriter.report.groups import FRAMED, groups, placed
from torchlift.rewriter.report.html import page
from torchlift.rewriter.report.html_diff import sheet
from torchlift.rewriter.report.roles import roles_table
from torchlift.rewriter.report.summary import summary
from torchlift.rewriter.report.terminal import print_diff
from torchlift.rewriter.result import CausePlace, Change, Diagnosis, FileResult, Result, RoleReport
from torchlift.rewriter.source import Source, decode

TEXT = "".join(f"line_{n} = f({n})\n" for n in range(1, 41))
HERE = Diagnosis("once", Severity.REVIEW, "`line_3` differs", "do it by hand", 3, 10, 14)
FAR = HERE._replace(message="`line_30` differs", line=30, column=11, end=16)


def file_of(*told: Diagnosis, text: str = TEXT, old: str = "f(3)", new: str = "g(3)", name: str = "x.py") -> FileResult:
    source = decode(text.encode(), Path(name))
    changes = (Change("backward", 3, 1, "it is g now"),) if old in text else ()
    return FileResult(source, text.replace(old, new, 1).encode(), changes, told)


def drawn(*files: FileResult, width: int = 80, side_by_side: bool = False) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, highlight=False, width=width, color_system=None)
    print_diff(files, console, side_by_side=side_by_side, found=groups(Result(files)))
    return stream.getvalue().split("\n")


def test_a_finding_in_a_changed_line_is_said_below_its_first_text() -> None:
    lines = drawn(file_of(HERE))
    at = lines.index("3   -line_3 = f(3)")
    assert lines[at + 1 : at + 5] == [
        "              ^^^^",
        "     | review [once] `line_3` differs",
        "     | help: do it by hand",
        "  3 +line_3 = g(3)",
    ]


def test_a_line_of_which_something_is_said_is_shown_where_nothing_changes() -> None:
    lines = drawn(file_of(FAR))
    at = lines.index("30 30  line_30 = f(30)")
    assert lines[at - 4] == "@@ line 27 @@" and lines[at + 4].startswith("31 31  ")
    assert lines[at + 1 : at + 4] == [
        "                 ^^^^^",
        "       | review [once] `line_30` differs",
        "       | help: do it by hand",
    ]
    assert sum(line.startswith("@@") for line in lines) == 2


@pytest.mark.parametrize("side_by_side", [False, True])
def test_lines_are_counted_as_they_are_on_disk(side_by_side: bool) -> None:
    """An answer of `-i` has put lines above these, which nobody finds in the file yet."""
    file = file_of(text=f"accelerator = Accelerator()\nx = 0\n{TEXT}", old="f(30)", new="g(30)")
    file = file._replace(source=file.source._replace(on_disk=TEXT))
    lines = drawn(file, width=100, side_by_side=side_by_side)
    assert "@@ line 27 @@" in lines
    (at,) = (line for line in lines if "line_30 = f(30)" in line)
    assert at.startswith("30 ")
    ours = file_of(text=f"accelerator = Accelerator()\n{TEXT}", old="f(1)", new="g(1)")
    lines = drawn(ours._replace(source=ours.source._replace(on_disk=TEXT)), width=100, side_by_side=side_by_side)
    assert any("accelerator = Accelerator()" in line and not line[:2].strip() for line in lines)


def test_the_place_of_such_a_line_names_its_function() -> None:
    text = "def train(x):\n" + "".join(f"    a{n} = f({n})\n" for n in range(2, 30))
    lines = drawn(file_of(HERE._replace(line=20, column=5, end=0), text=text, old="nothing"))
    assert lines[1] == "@@ line 17, in def train @@"


def test_a_finding_of_a_whole_file_is_below_its_name() -> None:
    lines = drawn(file_of(HERE._replace(line=0), old="nothing"))
    assert lines[0].startswith("── x.py ─") and lines[1:3] == [
        "| review [once] `line_3` differs",
        "| help: do it by hand",
    ]
    assert len(lines) == 4


def test_the_cause_and_other_places_are_said_with_it() -> None:
    cause = CausePlace("it comes from here", 1, 9, 10, "run(data)", "lib.py")
    one, same = HERE._replace(cause=cause), HERE._replace(cause=cause, line=30, column=11, end=16)
    lines = drawn(file_of(one, same))
    at = lines.index("3   -line_3 = f(3)")
    assert lines[at + 2] == "     | review [once] `line_3` differs (also x.py:30)"
    assert [line[7:] for line in lines[at + 3 : at + 6]] == [
        " --> lib.py:1",
        "1 | run(data)",
        "  |         - it comes from here",
    ]
    assert sum("differs" in line for line in lines) == 1


def test_a_wrapped_line_has_its_mark_below_the_part_that_is_meant() -> None:
    text = f"a = 1\nvalue = first({'x' * 30}) + second({'y' * 30})\n"
    start = text.split("\n")[1].index("second") + 1
    told = HERE._replace(line=2, column=start, end=start + 6)
    lines = drawn(file_of(told, text=text, old="a = 1", new="a = 2"), width=50)
    (at,) = (n for n, line in enumerate(lines) if "second(" in line)
    assert lines[at + 1] == " " * lines[at].index("second") + "^" * 6
    assert not any("^" in line for line in lines[:at])


def test_two_columns_show_the_line_with_what_is_said() -> None:
    lines = drawn(file_of(HERE), width=100, side_by_side=True)
    (at,) = (n for n, line in enumerate(lines) if "review [once]" in line)
    assert lines[at + 1].strip().startswith("| 3 | line_3 = f(3)") and "^^^^" in lines[at + 2]


def test_nothing_is_said_twice_at_full_length() -> None:
    long = HERE._replace(message="`line_3` differs, " + "and this goes on " * 12)
    file = file_of(long, FAR)
    result = Result((file,), 1)
    above = "\n".join(drawn(file, width=100))
    said = summary(result, (), width=100, wraps=True, drawn=[file])
    assert above.count("help: do it by hand") == 2 and "help:" not in said
    assert "\n2 findings, shown above at their lines\n  x.py:3: review [once] `line_3` differs, and" in said
    assert "\n  x.py:30: review [once] `line_30` differs\n" in said
    assert "  x.py: 1 edit (backward 1)\n" in said and "it is g now" in above and "it is g now" not in said
    assert all(len(line) <= 100 for line in said.split("\n"))
    full = summary(result, (), width=100, wraps=True)
    assert full.count("help: do it by hand") == 2 and "backward (1): it is g now (line 3)" in full


def test_what_the_diff_does_not_show_is_said_in_full() -> None:
    shown, other = file_of(HERE), file_of(FAR._replace(severity=Severity.BLOCKED), name="y.py")
    said = summary(Result((shown, other), 2), (), width=100, wraps=True, drawn=[shown])
    assert "2 findings, 1 of them shown above at its line\n  y.py:30: blocked [once]" in said
    assert said.count("help: do it by hand") == 1


def test_a_short_finding_keeps_its_place_and_its_id_at_any_width() -> None:
    file = file_of(HERE, name=f"{'folder/' * 20}x.py")
    said = summary(Result((file,), 1), (), width=60, wraps=True, drawn=[file])
    assert "/x.py:3:\n      review [once] `line_3` differs\n" in said
    file = file_of(HERE)
    said = summary(Result((file,), 1), (), width=20, wraps=True, drawn=[file])
    assert "\n  x.py:3: review\n      [once]" in said


def notebook_file(*told: Diagnosis) -> FileResult:
    """A notebook of two cells; the first one gets a line."""
    cells = ["import torch\na = f(1)", "b = 2\nc = f(3)\nd = g(4)"]
    document = {
        "cells": [
            {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell}
            for cell in cells
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    notebook = read_notebook(json.dumps(document).encode(), Path("n.ipynb"))
    source = Source(notebook.path, notebook.data, notebook.read(notebook.data), "utf-8", notebook=notebook)
    return FileResult(source, notebook.with_texts([f"{cells[0]}\na = 2", cells[1]]), diagnoses=told)


def test_a_notebook_counts_the_lines_of_each_cell() -> None:
    lines = drawn(notebook_file(HERE._replace(line=6, column=5, end=9)))
    assert lines[1:] == [
        "@@ cell 1, line 1 @@",
        "     cell 1",
        "1 1  import torch",
        "2 2  a = f(1)",
        "  3 +a = 2",
        "     cell 2",
        "1 1  b = 2",
        "2 2  c = f(3)",
        "         ^^^^",
        "     | review [once] `line_3` differs",
        "     | help: do it by hand",
        "3 3  d = g(4)",
        "",
    ]


def test_other_places_of_a_notebook_do_not_repeat_its_name() -> None:
    told = [HERE._replace(line=line, column=5, end=9) for line in (3, 6, 7)]
    (group,) = groups(Result((notebook_file(*told),), 1))
    assert group.places()[0] == "n.ipynb:cell 1, line 2"
    assert group.also() == "also cell 2, line 2; cell 2, line 3"


def test_the_page_and_the_table_of_roles_count_them_in_cells_too() -> None:
    file = notebook_file()
    role = RoleReport("c", "<module>", "loss", "given by f", 6)
    change = Change("backward", 6, 1, "it is more")
    file = file._replace(roles=(role,), changes=(change,))
    shown = sheet(0, file, {})
    assert "<td colspan='4'>cell 1, line 1</td>" in shown
    assert re.findall(r"class='new n[^']*'>(\d*)<", shown) == ["", "1", "2", "3", "", "1", "2"]
    assert "<dt>backward <span class='dim'>cell 2, line 2</span></dt>" in shown
    assert "  cell 2, line 2  <module>  c     loss  given by f\n" in roles_table(Result((file,), 1))
    assert "<td>cell 2, line 2</td><td>&lt;module&gt;</td><td>c</td>" in page(Result((file,), 1, {}), ())


@pytest.mark.parametrize("width", [20, 40, 80, 140])
def test_right_to_left_text_and_wide_characters_are_marked_and_not_let_loose(width: int) -> None:
    text = "a = 1\nשלום = '漢字🎉' + \"\u202e\"\n"
    told = HERE._replace(line=2, column=8, end=13, message="`שלום` differs 漢字漢字漢字漢字漢字漢字")
    lines = drawn(file_of(told, text=text, old="a = 1", new="a = 2"), width=width)
    assert "\u202e" not in "".join(lines) and "\\u202e" in "".join(lines)
    marks = [line for line in lines if line.strip() and not line.strip(" ^")]
    assert "".join(map(str.strip, marks)) == "^" * 8 and (width == 20 or marks[0].index("^") == 12)


def test_thousands_of_findings_have_fifty_frames() -> None:
    text = "".join(f"x{n} = 1\n" for n in range(5000))
    told = [Diagnosis("once", Severity.REVIEW, f"`x{n}` differs", "do it", n + 1, 1, 3) for n in range(5000)]
    file = file_of(*told, text=text, old="x0 = 1", new="x0 = 2")
    found = groups(Result((file,), 1))
    assert len(placed(found, [file])) == FRAMED == 50 and placed(found, []) == []
    said = summary(Result((file,), 1), (), drawn=[file])
    assert len(said.splitlines()) < 70 and "and 4950 other findings: 4950 [once]" in said


SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss(ignore_index=0)  # '漢🎉שלום'
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""


def terminal(folder: Path, environment: dict[str, str], *argv: str, apart: bool = False) -> tuple[str, str]:
    """What the command shows at a terminal, and what it writes to stderr if that is kept ``apart``."""
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "torchlift.codemods", "--no-cache", *argv, "train.py"],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=(folder / "stderr").open("wb") if apart else theirs,
        env=os.environ | environment,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert run.wait() == 0, shown
    errors = (folder / "stderr").read_text(encoding="utf-8") if apart else ""
    return shown.decode("utf-8", "replace"), errors


@pytest.mark.parametrize("environment", [{}, {"PYTHONIOENCODING": "ascii"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("columns", ["20", "80"])
def test_a_terminal_of_any_kind_shows_them(tmp_path: Path, environment: dict[str, str], columns: str) -> None:
    said, _ = terminal(tmp_path, environment | {"COLUMNS": columns})
    assert "Traceback" not in said and "internal error" not in said
    assert "^^^" in said and said.count("help:") == 1 and said.count("[weighted-mean]") == 2
    assert "1 finding, shown above at its line" in " ".join(re.sub(r"\x1b\[\d*m", "", said).split())
    assert ("\x1b[" in said.partition("\n")[2]) is (environment.keys() <= {"PYTHONIOENCODING"})


def test_each_of_two_places_is_complete(tmp_path: Path) -> None:
    said, errors = terminal(tmp_path, {"COLUMNS": "100"}, apart=True)
    assert said.count("help:") == 1 and "[weighted-mean]" in said
    assert "help:" in errors and "1 finding\n  train.py:8: review [weighted-mean]" in errors


def test_what_blocks_is_named_at_the_end_of_a_long_list() -> None:
    stop = HERE._replace(id="clip", severity=Severity.BLOCKED)
    said = summary(Result((file_of(stop, FAR),), 1), (), hint="To learn more: migrate --explain clip")
    assert said.endswith("\n\nBlocked by: x.py:3 [clip]\n\nTo learn more: migrate --explain clip\n")
    assert "Blocked by" not in summary(Result((file_of(stop),), 1), ()), "it is not far away"
    assert "Blocked by" not in summary(Result((file_of(HERE, FAR),), 1), ())
    many = [stop._replace(message=f"{n}", line=n + 1) for n in range(9)]
    assert ", x.py:6 [clip], 3 more\n" in summary(Result((file_of(*many),), 1), ())


# ---------------------------------------------------------------- moved cells


def moved_cells() -> FileResult:
    """A notebook whose data and model go into the function of its last cell; one line of it becomes another one."""
    cells = [
        "import torch",
        "data = load()\nmodel = build(data)",
        "for x in data:\n    loss = model(x)\n    step(loss)\n",
    ]
    document = {
        "cells": [
            {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": n + 7, "source": cell}
            for n, cell in enumerate(cells)
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    notebook = read_notebook(json.dumps(document).encode(), Path("n.ipynb"))
    body = (
        "    data = load()\n    model = build(data)\n    model = prepare(model)\n\n"
        "    for x in data:\n        loss = model(x)\n        backward(loss)"
    )
    after = [cells[0], "# Moved into train() in cell 3.", f"def train():\n{body}\n\n\nlaunch(train)"]
    source = Source(notebook.path, notebook.data, notebook.read(notebook.data), "utf-8", notebook=notebook)
    changes = (Change("prepare", 5, 1, "it is built here", offset=1), Change("backward", 9, 5, "a loss"))
    return FileResult(source, notebook.with_texts(after), changes)


def test_a_moved_cell_is_shown_once_where_it_goes() -> None:
    told = Diagnosis("once", Severity.REVIEW, "it differs", "", 5, 9, 20)
    lines = drawn(moved_cells()._replace(diagnoses=(told,)))
    assert [line.rstrip() for line in lines[1:]] == [
        "@@ cell 1 In[7], line 1 @@",
        "       cell 1 In[7]",
        " 1  1  import torch",
        "       cell 2 In[8]",
        "    1 +# Moved into train() in cell 3.",
        "       cell 3 In[9]",
        "    1 +def train():",
        "       from cell 2 In[8]",
        " 1  2      data = load()",
        " 2  3      model = build(data)",
        "                   ^^^^^^^^^^^",
        "       | review [once] it differs",
        "       # prepare: it is built here",
        "    4 +    model = prepare(model)",
        "    5 +",
        "       cell 3 In[9], its own lines",
        " 1  6      for x in data:",
        " 2  7          loss = model(x)",
        "       # backward: a loss",
        " 3    -        step(loss)",
        "    8 +        backward(loss)",
        " 4  9",
        "   10 +",
        "   11 +launch(train)",
        "",
    ]


def test_the_page_shows_the_lines_of_a_moved_cell_beside_each_other() -> None:
    shown = re.sub(r"<(?!/?td)[^>]*>", "", sheet(0, moved_cells(), {}))
    row = re.search(r"<td class='old n'>2</td><td[^>]*>(.*?)</td><td[^>]*>3</td><td[^>]*>(.*?)</td>", shown)
    assert row is not None and row.groups() == ("model = build(data)", "    model = build(data)")
