"""`migrate -i`: the answers, and the command at a pseudo-terminal; of scripts and notebooks."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import plan
from torchlift.rewriter.project.session import TRAINING, Session, problem_of
from torchlift.rewriter.project.three_way_merge import carried
from torchlift.rewriter.source import decode

TRAINS = b"""\
import torch
from torch import nn
from torch.utils.data import DataLoader

model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.ones(8, 1), batch_size=4)
print("start")
for x in loader:
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("end")
torch.save(model.state_dict(), "m.pt")
"""
SECONDS = 300

# ---------------------------------------------------------------- a change carried over


@pytest.mark.parametrize(
    ("base", "mine", "ours", "merged"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", "a\nb\nc\nd\n", "a\nB\nc\nd\n"),
        ("a\nb\nc\n", "a\nB\nc\n", "x\na\nb\nc\n", "x\na\nB\nc\n"),
        ("a\nb\nc\n", "a\nb\nc\nd\n", "x\nb\nc\n", "x\nb\nc\nd\n"),
        ("a\nb\nc\n", "a\nc\n", "a\nb\nc\nd\n", "a\nc\nd\n"),
        ("a\nb\nc\n", "a\nB\nc\n", "a\nX\nc\n", None),
        ("a\nb\nc\n", "a\nb\nc\n", "z\n", "z\n"),
    ],
    ids=["a line behind", "a line before", "an addition", "a removal", "the same line", "no change"],
)
def test_what_somebody_wrote_is_made_in_another_version(base: str, mine: str, ours: str, merged: str | None) -> None:
    assert carried(base, mine, ours) == merged


# ---------------------------------------------------------------- the answers


def _session(text: bytes = TRAINS) -> Session:
    return Session(plan([decode(text, Path("train.py"))], CATALOGUE, Config()))


def _text(session: Session) -> str:
    return session.result().files[0].after.decode()


def test_the_training_is_asked_about_first() -> None:
    groups = _session().groups
    assert groups[0] == TRAINING
    assert [group.partition(" ")[0] for group in groups[1:]] == ["main_process", "main_process", "files"]


CONSOLE = TRAINS.replace(b'print("start")', b'sys.stdout.write("start")').replace(
    b"import torch\n", b"import sys, torch\n", 1
)
LOADS = CONSOLE.replace(b"optimizer =", b'model.load_state_dict(torch.load("first.pt"))\noptimizer =', 1)


def test_what_no_other_edit_needs_is_a_step_of_its_own() -> None:
    """The console is read by nobody else, and where a file is loaded to is the loading process's own affair."""
    session = _session(LOADS)
    rules = [session.rules(group) for group in session.groups]
    assert rules[1:] == [["checkpoint_load"], ["main_process"], ["main_process"], ["checkpoint_save"]]
    session.accept(TRAINING)
    session.accept(session.groups[1])
    text = _text(session)
    assert 'torch.load("first.pt", map_location=accelerator.device)' in text
    assert '\nsys.stdout.write("start")\n' in text and "\ntorch.save(" in text


def test_nothing_is_offered_without_the_training() -> None:
    session = _session()
    assert [session.offered(group) is None for group in session.groups] == [False, True, True, True]
    assert _text(session) == TRAINS.decode()
    assert session.result().files[0].diagnoses == ()


def test_what_was_declined_is_a_finding() -> None:
    session = _session()
    session.accept(TRAINING)
    found = [d for d in session.result().files[0].diagnoses if d.id == "declined"]
    assert [(d.line, d.message.rpartition(": ")[2]) for d in found] == [
        (8, "every process would print this [main_process]"),
        (14, "every process would print this [main_process]"),
        (15, "every process would write the file; the file gets the state of the plain model [checkpoint_save]"),
    ]


def test_everything_accepted_is_what_write_writes() -> None:
    session = _session()
    assert session.whole.changed
    for group in session.groups:
        assert session.offered(group)
        session.accept(group)
    assert session.result() == session.whole


def test_what_the_user_wrote_stays_under_later_edits() -> None:
    session = _session()
    (source,) = session.files(TRAINING)
    text = session.text(TRAINING, source)
    session.write(TRAINING, {source: text.replace("Accelerator()", "Accelerator(cpu=True)")})
    for group in session.groups[1:]:
        session.accept(group)
    assert "Accelerator(cpu=True)" in _text(session)
    assert _text(session).count("accelerator.print(") == 2


def test_an_edit_of_lines_that_the_user_wrote_over_is_not_made() -> None:
    session = _session()
    (source,) = session.files(TRAINING)
    text = session.text(TRAINING, source)
    session.write(TRAINING, {source: text.replace('print("end")', 'print("the end")')})
    offered = [session.offered(group) is not None for group in session.groups[1:]]
    assert offered == [True, False, True]


def test_what_does_not_parse_is_refused() -> None:
    (source,) = _session().files(TRAINING)
    assert "line 1" in problem_of("def f(:\n", source)
    assert problem_of("x = 1\n", source) == ""


def test_the_training_of_a_program_is_one_group_over_its_files() -> None:
    train = TRAINS.replace(b"import torch\n", b"import torch\nfrom engine import step\n", 1)
    train = train.replace(b"    loss.backward()\n    optimizer.step()\n", b"    step(loss, optimizer)\n")
    engine = b"def step(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n"
    sources = [decode(train, Path("train.py")), decode(engine, Path("engine.py"))]
    session = Session(plan(sources, CATALOGUE, Config()))
    assert {source.path.name for source in session.files(TRAINING)} == {"train.py", "engine.py"}
    assert session.result().changed == ()
    session.accept(TRAINING)
    texts = {file.source.path.name: file.after.decode() for file in session.result().files}
    assert "accelerator.backward(loss)" in texts["engine.py"]
    assert "step(loss, optimizer, accelerator)" in texts["train.py"]


# ---------------------------------------------------------------- the terminal


class Terminal:
    """`migrate` at a pseudo-terminal: what it shows, and what is typed."""

    def __init__(self, folder: Path, *argv: str, **environment: str) -> None:
        self.shown = ""
        self.process, self.file = pty.fork()
        if not self.process:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background is started with Ctrl-C ignored
            os.chdir(folder)
            command = [sys.executable, "-m", "torchlift.codemods", *argv]
            os.execve(sys.executable, command, {**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment})

    def until(self, words: str) -> str:
        """Read until some words have come, and return what came with them."""
        end = time.monotonic() + SECONDS
        start = len(self.shown)
        while words not in self.shown[start:]:
            assert time.monotonic() < end, f"{words!r} does not come: {self.shown[start:]}"
            if select.select([self.file], [], [], 0.2)[0]:
                try:
                    data = os.read(self.file, 65536)
                except OSError:
                    data = b""
                assert data, f"ended without {words!r}: {self.shown[start:]}"
                self.shown += re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", data.decode(errors="replace"))
        return self.shown[start:]

    def type(self, text: str) -> None:
        os.write(self.file, text.encode())

    def last(self) -> str:
        """The last line that it has shown."""
        return self.shown.split("\r\n")[-2]

    def end(self, *, again: int = 0) -> int:
        """Read to the end and return the exit status; ``again``: a signal that is sent until the process ends."""
        end = time.monotonic() + SECONDS
        while True:
            left = max(end - time.monotonic(), 0.0)
            if not select.select([self.file], [], [], min(left, 5.0) if again else left)[0]:
                if again and left:
                    os.kill(self.process, again)
                    continue
                os.kill(self.process, signal.SIGKILL)
            try:
                data = os.read(self.file, 65536)
            except OSError:
                break
            if not data:
                break
            self.shown += data.decode(errors="replace")
        os.close(self.file)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_bytes(TRAINS)
    return tmp_path


def test_yes_no_and_help_at_a_terminal(folder: Path) -> None:
    terminal = Terminal(folder, "-i", "train.py")
    assert "accelerator.backward(loss)" in terminal.until(
        "(1/3) Make the training distributed, 4 edits [y,n,a,e,s,q,?]? "
    )
    assert '# "n" leaves the program as it is: the other 4 edits need these' in terminal.shown
    terminal.type("?\n")
    assert "leave these places unchanged" in terminal.until("distributed, 4 edits [y,n,a,e,s,q,?]? ")
    terminal.type("y\n")
    shown = terminal.until("(2/3) Make these 2 edits [y,n,a,i,s,q,?]? ")
    assert "13    -print(" in shown and "19    -print(" in shown, "each place is shown"
    assert shown.count("# main_process: every process would print this\r\n") == 1
    assert "backward" not in shown and '"n" leaves' not in shown
    terminal.type("i\n")
    shown = terminal.until("(2/3, 1 of 2) Make this edit [y,n,a,e,s,q,?]? ")
    assert "# main_process: every process would print this\r\n13    -print(" in shown
    terminal.type("n\n")
    terminal.until("(2/3, 2 of 2) Make this edit")
    terminal.type("y\n")
    shown = terminal.until("(3/3) Make these edits")
    assert "# These 2 edits need each other: declining leaves all of them out" in shown
    terminal.type("y\n")
    assert terminal.end() == 0
    text = (folder / "train.py").read_text()
    assert '\nprint("start")\n' in text
    assert '\naccelerator.print("end")\naccelerator.save(' in text
    assert "1 finding" in terminal.shown
    assert "1 file changed" in terminal.shown
    place = text.splitlines().index('print("start")') + 1
    assert terminal.last().startswith(
        "migrate: train.py written: 7 edits made, 1 declined. Left unchanged: every process would print this "
        f"(train.py:{place}). To be asked again: "
    )
    assert terminal.last().endswith(" -i train.py")
    terminal = Terminal(folder, "-i", "train.py")
    assert 'accelerator.print("start")' in terminal.until("(1/1) Make this edit")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert '\naccelerator.print("start")\n' in (folder / "train.py").read_text()
    assert terminal.last() == "migrate: train.py written: 1 edit made"


@pytest.mark.parametrize(("answer", "once"), [("y", 2), ("n", 0), ("a", 2)])
def test_one_answer_for_edits_that_are_alike(folder: Path, answer: str, once: int) -> None:
    terminal = Terminal(folder, "-i", "train.py")
    for question, key in (("(1/3)", "y\n"), ("(2/3) Make these 2 edits", f"{answer}\n"), ("(3/3)", "y\n")):
        terminal.until(question)
        terminal.type(key)
    assert terminal.end() == 0
    assert (folder / "train.py").read_text().count("accelerator.print(") == once
    assert ("train.py:8, train.py:14" in terminal.last()) is not once


FOUND = (
    TRAINS.replace(
        b"model = nn.Linear(1, 1)\n", b"model = nn.Linear(1, 1)\nscore = nn.CrossEntropyLoss(ignore_index=0)\n"
    )
    .replace(b"    loss = model(x).mean()\n", b"    loss = score(model(x), x)\n")
    .replace(b'print("start")\n', b'print("start", input())\n')
)


def test_what_was_found_is_known_before_the_first_answer_and_is_shown_with_its_edit(folder: Path) -> None:
    (folder / "train.py").write_bytes(FOUND)
    terminal = Terminal(folder, "-i", "train.py")
    shown = terminal.until("(1/4) ")
    listed, _, rest = shown.partition("── train.py")
    assert "2 findings (2 to review). You see each again at its line." in listed
    assert "train.py:6: review [weighted-mean] each process" in listed and "train.py:9: review [once] " in listed
    assert rest.count("| review [weighted-mean] each process") == 1 and rest.count("| help: ") == 1
    assert "[once]" not in rest, "it comes with the edit of its line"
    terminal.type("y\n")
    shown = terminal.until("(2/4) ")
    assert "^^^^^^^\r\n" in shown and "| review [once] every process asks for input" in shown
    assert "weighted-mean" not in shown
    terminal.type("q\n")
    assert terminal.end() == 0
    last = terminal.shown.rpartition("(2/4) ")[2]
    assert "2 of them shown above at their lines" in last and "train.py:7: " in last
    assert last.count("[declined]") == last.count("help: -i asks about it again") == 2


def test_no_to_the_training_leaves_everything(folder: Path) -> None:
    terminal = Terminal(folder, "-i", "train.py")
    terminal.until("(1/3)")
    terminal.type("n\n")
    assert terminal.end() == 0
    assert (folder / "train.py").read_bytes() == TRAINS
    assert "(2/3)" not in terminal.shown
    assert terminal.last() == "migrate: nothing was written: you declined all 8 edits"
    offered = re.findall(r"distributed, (\d+) edits|the other (\d+) edits", terminal.shown)
    assert sum(int(number) for pair in offered for number in pair if number) == 8, "with their imports"


def test_all_of_a_rule_and_then_quit(folder: Path) -> None:
    terminal = Terminal(folder, "-i", "train.py")
    for question, answer in (("(1/3)", "y\n"), ("(2/3)", "i\n"), ("(2/3, 1 of 2)", "a\n"), ("(3/3)", "q\n")):
        terminal.until(question)
        terminal.type(answer)
    assert terminal.end() == 0
    assert "(2/3, 2 of 2)" not in terminal.shown
    text = (folder / "train.py").read_text()
    assert text.count("accelerator.print(") == 2
    assert "torch.save(" in text


def test_the_editor_has_the_last_word(folder: Path) -> None:
    editor = folder / "edit.py"
    editor.write_text(
        "import pathlib, sys\nf = pathlib.Path(sys.argv[1])\n"
        "f.write_text(f.read_text().replace('Accelerator()', 'Accelerator(cpu=True)'))\n"
    )
    terminal = Terminal(folder, "-i", "train.py", VISUAL=f"{sys.executable} {editor}")
    terminal.until("(1/3)")
    terminal.type("e\n")
    terminal.until("(2/3)")
    terminal.type("q\n")
    assert terminal.end() == 0
    assert "accelerator = Accelerator(cpu=True)\n" in (folder / "train.py").read_text()


def test_an_editor_that_breaks_the_file_is_asked_again(folder: Path) -> None:
    """With the text that was typed: it was thrown away."""
    editor = folder / "edit.py"
    editor.write_text(
        "import pathlib, sys\nmine = pathlib.Path(sys.argv[1])\ntext = mine.read_text()\n"
        "mine.write_text(text.replace('(:', '():') if '(:' in text else text + 'def typed(:\\n    pass\\n')\n"
    )
    terminal = Terminal(folder, "-i", "train.py", VISUAL=f"{sys.executable} {editor}")
    terminal.until("(1/3)")
    terminal.type("e\n")
    assert "not valid Python: invalid syntax, line " in terminal.until("Your text was not used: e opens it again")
    terminal.type("e\n")
    terminal.until("(2/3)")
    terminal.type("q\n")
    assert terminal.end() == 0
    assert (folder / "train.py").read_text().endswith("def typed():\n    pass\n")


def test_skipping_a_file_goes_on_with_the_next_one(folder: Path) -> None:
    (folder / "train2.py").write_bytes(TRAINS)
    terminal = Terminal(folder, "-i", ".")
    terminal.until("(1/3)")
    terminal.type("y\n")
    terminal.until("(2/3)")
    terminal.type("s\n")
    assert "train2.py" in terminal.until("(1/3)")
    terminal.type("s\n")
    assert terminal.end() == 0
    text = (folder / "train.py").read_text()
    assert "accelerator.backward(loss)" in text
    assert "accelerator.print" not in text
    assert (folder / "train2.py").read_bytes() == TRAINS


def test_ctrl_c_writes_nothing(folder: Path) -> None:
    terminal = Terminal(folder, "-i", "train.py")
    terminal.until("(1/3)")
    terminal.type("y\n")
    terminal.until("(2/3)")
    os.kill(terminal.process, signal.SIGINT)
    # Python drops an interrupt that comes while an object is finalised: a person presses the keys again, too
    assert terminal.end(again=signal.SIGINT) == 130
    assert terminal.last() == "migrate: interrupted: nothing was written"
    assert (folder / "train.py").read_bytes() == TRAINS


def test_a_terminal_shows_the_preview_and_not_a_patch(folder: Path) -> None:
    terminal = Terminal(folder, "train.py")
    assert terminal.end() == 0
    assert "\x1b[1;33mbackward\x1b[0m" in terminal.shown
    assert "--- a/train.py" not in terminal.shown
    assert "What changes at run time" in terminal.shown


def test_many_files_have_a_bar_that_goes_away(tmp_path: Path) -> None:
    for number in range(24):
        (tmp_path / f"t{number:02}.py").write_bytes(TRAINS)
    terminal = Terminal(tmp_path, "--check", ".")
    assert terminal.end() == 1
    assert re.search(r"[#-]{30} \d+ of 24 programs, \d+ s", terminal.shown)
    assert (
        terminal.shown.rindex("of 24 programs")
        < terminal.shown.rindex("\r\x1b[K")
        < terminal.shown.rindex("24 files would")
    )
    assert terminal.shown.count("\r\n") < 40, "a line for each program"


def test_one_program_that_takes_long_has_a_word_of_progress(tmp_path: Path) -> None:
    steps = b"".join(TRAINS.replace(b"loss", b"loss%d" % number) for number in range(60))
    (tmp_path / "t.py").write_bytes(steps)
    terminal = Terminal(tmp_path, "--check", "t.py")
    assert terminal.end() in (1, 2)
    assert re.search(r"analysing, \d+ s", terminal.shown)
    assert terminal.shown.rindex("analysing, ") < terminal.shown.rindex("\r\x1b[K")


# ---------------------------------------------------------------- notebooks

UTILS = """\
def step(model, x, optimizer):
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
HEAD, BODY = TRAINS.decode().split("\n\n")
CELLS = (
    "%precision 4\n" + HEAD + "\nfrom utils import step",
    "!nproc",
    BODY.replace('print("start")\n', "").partition("    loss =")[0] + "    step(model, x, optimizer)",
    'print("end")',
    'torch.save(model.state_dict(), "m.pt")\n',
)


def _notebook(*cells: str) -> bytes:
    """Cells with outputs and metadata, written as nobody else does: nothing of it may change."""
    listed = [
        {"metadata": {"ü": [1e0]}, "source": text.splitlines(keepends=True), "cell_type": "code", "outputs": []}
        for text in cells
    ]
    document = {"nbformat": 4, "cells": listed, "nbformat_minor": 4, "metadata": {}}
    return json.dumps(document, indent=3).replace('"source"', '"source" ').encode() + b"\n\n"


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    (tmp_path / "nb.ipynb").write_bytes(_notebook(*CELLS))
    (tmp_path / "utils.py").write_text(UTILS)
    return tmp_path


def _cells_of(path: Path) -> list[str]:
    """The texts of the cells, where everything else is as it was."""
    data = path.read_bytes()
    texts = ["".join(cell["source"]) for cell in json.loads(data)["cells"]]
    assert data == _notebook(*texts)
    return texts


def test_a_notebook_and_its_module_are_asked_about_as_one(notebook: Path) -> None:
    terminal = Terminal(notebook, "-i", "nb.ipynb")
    shown = terminal.until("(1/3) Make the training distributed, 7 edits [y,n,a,e,s,q,?]? ")
    assert "notebook_launcher(training_function" in shown
    assert "accelerator.backward(loss)" in shown
    terminal.type("y\n")
    shown = terminal.until("(2/3) Make this edit [y,n,a,e,s,q,?]? ")
    assert "@@ cell 5, line 9 @@" in shown and "# main_process: every process" in shown
    terminal.type("n\n")
    terminal.until("(3/3) Make these edits")
    terminal.type("y\n")
    assert terminal.end() == 0
    first, second, third, fourth, fifth = _cells_of(notebook / "nb.ipynb")
    assert first == CELLS[0] + "\nfrom torchlift.runtime import Accelerator, notebook_launcher"
    assert (second, third) == ("!nproc", "# Moved into training_function() in cell 5.")
    assert fourth == "# Moved into training_function() in cell 5."
    assert '\n    print("end")\n\n    accelerator.save(' in fifth
    assert "accelerator.backward(loss)" in (notebook / "utils.py").read_text()
    assert "nb.ipynb:cell 4, line 1: " in terminal.shown
    assert "[declined]" in terminal.shown


@pytest.mark.parametrize("answer", ["n", "s", "q"])
def test_no_to_a_notebook_leaves_every_byte(notebook: Path, answer: str) -> None:
    terminal = Terminal(notebook, "-i", "nb.ipynb")
    terminal.until("(1/3)")
    terminal.type(f"{answer}\n")
    assert terminal.end() == 0
    assert (notebook / "nb.ipynb").read_bytes() == _notebook(*CELLS)
    assert (notebook / "utils.py").read_text() == UTILS


def test_all_of_a_rule_in_a_notebook(notebook: Path) -> None:
    (notebook / "nb.ipynb").write_bytes(_notebook(*CELLS[:3], CELLS[3] + "\nprint(len(loader))", CELLS[4]))
    terminal = Terminal(notebook, "-i", "nb.ipynb")
    for question, answer in (("(1/3)", "y\n"), ("(2/3) Make these 2 edits", "a\n"), ("(3/3)", "?\n"), ("(3/3)", "q\n")):
        terminal.until(question)
        terminal.type(answer)
    assert terminal.end() == 0
    text = _cells_of(notebook / "nb.ipynb")[4]
    assert text.count("accelerator.print(") == 2
    assert "torch.save(" in text


def test_the_editor_gets_the_cells_as_a_script(notebook: Path) -> None:
    editor = notebook / "edit.py"
    editor.write_text(
        "import pathlib, sys\nf = pathlib.Path(sys.argv[1])\ntext = f.read_text()\n"
        "if f.name == 'nb.py':\n    assert text.startswith('# cell 1\\n%precision 4\\n'), text\n"
        "f.write_text(text.replace('Accelerator()', 'Accelerator(cpu=True)').replace('!nproc', '!nproc --all'))\n"
    )
    terminal = Terminal(notebook, "-i", "nb.ipynb", VISUAL=f"{sys.executable} {editor}")
    terminal.until("(1/3)")
    terminal.type("e\n")
    terminal.until("(2/3)")
    terminal.type("y\n")
    terminal.until("(3/3)")
    terminal.type("q\n")
    assert terminal.end() == 0
    cells = _cells_of(notebook / "nb.ipynb")
    assert cells[1] == "!nproc --all"
    assert "    accelerator = Accelerator(cpu=True)\n" in cells[4]
    assert '    accelerator.print("end")\n' in cells[4]


def test_an_editor_that_loses_a_cell_is_asked_again(notebook: Path) -> None:
    editor = notebook / "edit.py"
    editor.write_text("import pathlib, sys\npathlib.Path(sys.argv[1]).write_text('x = 1\\n')\n")
    terminal = Terminal(notebook, "-i", "nb.ipynb", VISUAL=f"{sys.executable} {editor}")
    terminal.until("(1/3)")
    terminal.type("e\n")
    assert "keep the lines at which cells begin (# cell 1 and so on)" in terminal.until("(1/3)")
    terminal.type("n\n")
    assert terminal.end() == 0
    assert (notebook / "nb.ipynb").read_bytes() == _notebook(*CELLS)
