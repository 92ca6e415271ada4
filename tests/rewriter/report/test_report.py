"""The reports: a patch that git applies byte for byte, a summary to read, JSON with a version."""

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.diff import base_of, patch, shown
from torchlift.rewriter.report.explaining import address
from torchlift.rewriter.report.github import workflow_commands
from torchlift.rewriter.report.hook import hook_lines
from torchlift.rewriter.report.json_report import json_report
from torchlift.rewriter.report.roles import roles_table
from torchlift.rewriter.report.sarif import sarif
from torchlift.rewriter.report.summary import summary
from torchlift.rewriter.report.terminal import print_diff
from torchlift.rewriter.report.text import at_lines
from torchlift.rewriter.result import CausePlace, Change, Diagnosis, FileResult, Result, RoleReport, Trait
from torchlift.rewriter.source import Source, SourceError, decode

BEFORE = b"import torch\n\n\nloss = f()\nloss.backward()\n"
AFTER = b"import torch\n\n\nloss = f()\naccelerator.backward(loss)\n"


def _file(name: str = "train.py", before: bytes = BEFORE, after: bytes = AFTER, *found: Diagnosis) -> FileResult:
    change = Change("backward", 5, 1, "a loss: given by f")
    role = RoleReport("loss", "<module>", "loss", "backward is called on it", 4)
    changes = (change,) if before != after else ()
    return FileResult(decode(before, Path(name)), after, changes, found, (role,))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "sub" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _apply(text: bytes, folder: Path) -> None:
    command = ["git", "-c", "core.autocrlf=false", "apply", "-"]
    subprocess.run(command, input=text, cwd=folder, check=True, capture_output=True)


def test_no_patch_where_nothing_changes() -> None:
    assert patch(Path("x.py"), BEFORE, BEFORE) == b""


def test_the_patch_of_one_line() -> None:
    assert patch(Path("x.py"), b"a\nb\n", b"a\nc\n") == b"--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b"a\nb\n", b"a\nc\n", id="plain"),
        pytest.param(b"a\nb", b"a\nc", id="no newline at the end"),
        pytest.param(b"a\nb", b"c\nb", id="no newline at the end, which is context"),
        pytest.param(b"a\nb\n", b"a\nb", id="the last newline goes"),
        pytest.param(b"a\nb", b"a\nb\n", id="the last newline comes"),
        pytest.param(b"a\r\nb\r\n", b"a\r\nc\r\n", id="carriage returns"),
        pytest.param(b"a\rb\r\nc\nd\r", b"a\rb\r\nx\nd\r", id="mixed newlines"),
        pytest.param(b"a\x0c\n\x0b\nb\x1c\n", b"a\x0c\n\x0b\nc\x1c\n", id="form feeds and other controls"),
        pytest.param("a\u2028b\n\x85\n".encode(), "a\u2028c\n\x85\n".encode(), id="U+2028 and NEL"),
        pytest.param(b"# coding: latin-1\n\xe9\nb\n", b"# coding: latin-1\n\xe9\nc\n", id="latin-1"),
        pytest.param(b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n", id="a byte order mark"),
        pytest.param(b"a\n \t \nb  \n", b"x\n \t \nb  \n", id="blanks at the end of lines"),
        pytest.param(b"", b"a\n", id="from empty"),
        pytest.param(b"a\n", b"", id="to empty"),
        pytest.param(b"-- x\n++ y\n", b"-- z\n++ y\n", id="lines that look like headers"),
    ],
)
def test_git_applies_the_patch_byte_for_byte(repository: Path, before: bytes, after: bytes) -> None:
    (repository / "x.py").write_bytes(before)
    _apply(patch(Path("x.py"), before, after), repository)
    assert (repository / "x.py").read_bytes() == after


@pytest.mark.parametrize(
    "name", ["a b.py", "tab\there.py", 'quote".py', "back\\slash.py", "é.py", "a b\té.py", "pkg/x.py"]
)
def test_git_understands_the_name(repository: Path, name: str) -> None:
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_bytes(BEFORE)
    _apply(patch(Path(name), BEFORE, AFTER), repository)
    assert (repository / name).read_bytes() == AFTER


def test_a_name_with_spaces_ends_in_a_tab_as_git_writes_it() -> None:
    assert patch(Path("a b.py"), b"a\n", b"b\n").startswith(b"--- a/a b.py\t\n+++ b/a b.py\t\n")


@pytest.mark.parametrize(
    "names", [["x.py"], ["sub/x.py"], ["x.py", "sub/x.py"], ["sub/x.py", "x.py"], ["y/x.py", "x.py"]]
)
def test_a_patch_made_in_a_sub_folder_applies_there(
    repository: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    here = repository / "sub"
    (here / "y").mkdir()
    for name in ("x.py", "sub/x.py", "y/x.py"):
        (here / name).write_bytes(BEFORE)
    monkeypatch.chdir(here)
    paths = [Path(name) for name in names]
    _apply(b"".join(patch(path, BEFORE, AFTER, base_of(paths)) for path in paths), here)
    assert {name for name in ("x.py", "sub/x.py", "y/x.py") if (here / name).read_bytes() == AFTER} == set(names)


def test_an_absolute_path_is_shown_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "pkg" / "x.py") == "pkg/x.py"


def test_the_summary_of_nothing() -> None:
    assert summary(Result(checked=3), []) == "Nothing to change; 3 files checked.\n"


def test_errors_alone_are_one_line_each() -> None:
    error = SourceError("x.py", 3, "byte 0xe9 is not utf-8 text", "Save the file as UTF-8")
    assert summary(Result(checked=1), [error]) == (
        "error: x.py:3: byte 0xe9 is not utf-8 text. Save the file as UTF-8.\n"
    )


def test_a_file_that_cannot_be_read_comes_before_the_findings() -> None:
    """As long as it cannot be read, nothing is gained by what they advise."""
    error = SourceError("old.py", 2, "not valid Python: Missing parentheses", "Correct the syntax, then migrate")
    stop = Diagnosis("clip", Severity.BLOCKED, "not understood", "do it by hand", 5, 1)
    lines = summary(Result((_file("train.py", BEFORE, BEFORE, stop),), 1), [error]).splitlines()
    assert lines[0] == "1 file blocked, 1 file not read; 1 file checked. 1 finding (1 blocked)."
    assert lines[2].startswith("error: old.py:2: not valid Python") and lines[4] == "1 finding"


def test_the_summary_tells_edits_findings_and_what_changes_at_run_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    note = Diagnosis("dropout", Severity.NOTE, "noise differs per process", "", 2)
    stop = Diagnosis("clip", Severity.BLOCKED, "cannot tell which optimizer", "clip by hand", 4)
    file = _file("train.py", BEFORE, AFTER, note, stop)._replace(traits=(Trait("batch", "process", 0),))
    text = summary(Result((file,), 1), [], hint="To apply: migrate --write .")
    assert text == (
        "1 file blocked, 1 file would change in part; 1 file checked. 1 edit, 2 findings (1 blocked, 1 note).\n"
        "\n"
        "Proposed changes\n"
        "  train.py: 1 edit, the safe ones\n"
        "    backward (1): a loss: given by f (line 5)\n"
        "\n"
        "2 findings\n"
        "  train.py:4: blocked [clip] cannot tell which optimizer\n"
        "    4 | loss = f()\n"
        "      | ^^^^^^^^^^\n"
        "    help: clip by hand\n"
        "\n"
        "  train.py:2: note [dropout] noise differs per process\n"
        "\n"
        "What changes at run time\n"
        "  - On N processes the global batch is N times the script's: every process takes its own whole\n"
        "    batch. Scale the learning rate (often by N, with a warm-up), or keep the global batch:\n"
        "    --keep-global-batch.\n"
        "\n"
        "Blocked by: train.py:4 [clip]\n"
        "\n"
        "To apply: migrate --write .\n"
    )


def test_the_summary_says_once_what_is_said_of_several_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (Diagnosis("metrics_gather", Severity.REVIEW, f"{word} shard", "gather it", 0) for word in ("a", "b"))
    files = [
        _file("a.py", BEFORE, AFTER, one._replace(line=3), other._replace(line=4), one._replace(line=5, column=2)),
        _file("b.py", BEFORE, AFTER, one._replace(line=7)),
    ]
    text = summary(Result(tuple(files), 2), [])
    assert "2 findings\n  a.py:3: review [metrics_gather] a shard (also a.py:5, b.py:7)\n" in text
    assert text.count("    help: gather it\n") == 2
    assert "\n  a.py:4: review [metrics_gather] b shard\n" in text
    many = _file("a.py", BEFORE, AFTER, *(one._replace(line=line) for line in range(1, 11)))
    assert "(also a.py:2, a.py:3, a.py:4, a.py:5, a.py:6, a.py:7 and 3 other places)" in summary(Result((many,), 1), [])


@pytest.mark.hazard("U37")
def test_the_summary_says_when_nothing_is_found() -> None:
    assert "\nNo findings\n" in summary(Result((_file(),), 1), [])


def test_code_to_write_has_lines_of_its_own() -> None:
    """In a preview and a hook; for machines it is between backticks, on one line."""
    remedy = "decide as one:\n    if both():\nCreate it first:\n    import x\n    x.make()"
    result = Result((_file("train.py", BEFORE, AFTER, Diagnosis("clip", Severity.BLOCKED, "m", remedy, 4)),), 1)
    lines = ["help: decide as one:", "          if both():", "      Create it first:", "          import x"]
    assert "\n".join(f"    {line}" for line in lines) in summary(result, [])
    assert "\n".join(f"  {line}" for line in lines) in hook_lines(result, [])
    said = "decide as one: `if both():`. Create it first: `import x; x.make()`"
    found = json.loads(json_report(result, [], status=2, written=False))["files"][0]["findings"]
    assert found[0]["remedy"] == said and f"m%0Ahelp: {said}" in workflow_commands(result, [])


def test_of_many_lines_some_are_named() -> None:
    assert at_lines(range(1, 21)).endswith("19, 20")
    assert at_lines(range(1, 30)) == "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 19 more"


def test_the_summary_is_as_wide_as_the_terminal() -> None:
    stop = Diagnosis("clip", Severity.REVIEW, "a long message " * 10, "a remedy " * 10, 4)
    result = Result((_file("train.py", BEFORE, AFTER, stop),), 1)
    hint = f"To apply: {'x.py ' * 20}".rstrip()
    lines = summary(result, [], hint=hint, width=60, wraps=True).splitlines()
    assert all(len(line) <= 60 for line in lines[:-1]) and lines[-1] == hint, "a command is copied as one line"
    assert any(line.startswith("  train.py:4: review [clip] a long message") for line in lines)


def test_places_and_messages_stay_on_one_line_where_no_terminal_reads_them() -> None:
    stop = Diagnosis("clip", Severity.REVIEW, "a long message " * 10, "", 4)
    lines = summary(Result((_file("train.py", BEFORE, AFTER, stop),), 1), [], width=60).splitlines()
    assert all(len(line) <= 60 for line in lines if line.startswith(("    ", "  -")))
    assert any(line.startswith("  train.py:4: review [clip]") and len(line) > 150 for line in lines)


def test_the_summary_has_colours_only_where_they_are_wanted() -> None:
    stop = Diagnosis("clip", Severity.BLOCKED, "cannot tell", "", 4)
    result = Result((_file("train.py", BEFORE, AFTER, stop),), 1)
    assert "\x1b" not in summary(result, [])
    assert "\x1b[1;31mblocked\x1b[0m [clip]" in summary(result, [], color=True)


@pytest.mark.parametrize(
    ("traits", "said"),
    [
        (
            [Trait("statistics", "BatchNorm2d", 3), Trait("statistics", "BatchNorm2d", 5)],
            "BatchNorm2d (lines 3, 5): each",
        ),
        ([Trait("noise", "Dropout", 3)], "Dropout (line 3): each process draws its own noise"),
        ([Trait("transforms", "RandomCrop", 3)], "RandomCrop (line 3): each process draws its own random transforms"),
        ([Trait("length", "loader", 3)], "len(loader) (line 3): after prepare(...) this is the number of batches"),
        ([Trait("early-length", "steps", 3)], "steps (line 3): the number of batches on one process, asked for before"),
        (
            [Trait("steps", "len(rows) // batch", 3)],
            "len(rows) // batch (line 3): the number of steps of an epoch on one",
        ),
        (
            [Trait("long-cadence", "step % 9 == 0", 3)],
            "step % 9 == 0 (line 3): this counts the steps of one process th",
        ),
        ([Trait("cadence", "i % 9 == 0", 3)], "i % 9 == 0 (line 3): this counts the steps of one process"),
        ([Trait("interval", "i % 9 == 0", 3)], "runs about N times less often, and at least once an epoch"),
        ([Trait("limit", "i == 9", 3)], "i == 9 (line 3): this limit applies to each process"),
        ([Trait("rate", "step", 3)], "step (line 3): the learning rate follows this count of the steps of one process"),
        ([Trait("filled", "total", 3)], "total (line 3): collects a mean over the batches of all processes."),
        ([Trait("bar", "n_train", 3)], "total=n_train (line 3): this bar counts only the rows of one process"),
        ([Trait("rows-done", "i * len(x)", 3)], "i * len(x) (line 3): this counts the rows that one process has gone"),
        (
            [Trait("mac", "", 3)],
            "On a Mac: the GPU, where the script took the CPU. Accelerator(cpu=True) keeps the CPU",
        ),
        ([Trait("mac", "args.no_cuda", 3)], "On a Mac: the GPU, where the script took the CPU unless `args.no_cuda`. "),
        (
            [Trait("cuda", "device", 3)],
            "The script chose between MPS and the CPU, so it ran on the CPU on a machine with",
        ),
        ([Trait("gpu", "device", 3)], "The script names no device, so it ran on the CPU. Where there is a GPU"),
        ([Trait("numbered", "args.device", 3)], 'args.device (line 3): asked only whether it is "cpu". A GPU that it'),
        (
            [Trait("precision", "bf16", 3)],
            "bf16 (line 3): autocast asked for CUDA and had no effect on a machine without CUDA.",
        ),
    ],
    ids=[
        "statistics",
        "noise",
        "augmentation",
        "the length of a loader",
        "a length from before prepare",
        "steps of an epoch",
        "a cadence through all epochs",
        "a cadence",
        "an interval",
        "a limit",
        "a rate",
        "an average over batches",
        "a bar",
        "rows of an epoch",
        "a Mac",
        "a Mac, under an option",
        "a choice of MPS",
        "no device",
        "a device as it is written",
        "autocast for CUDA alone",
    ],
)
def test_the_summary_names_what_differs_by_nature(traits: list[Trait], said: str) -> None:
    file = _file()._replace(traits=tuple(traits))
    assert said in " ".join(summary(Result((file,), 1), []).split())
    assert said not in " ".join(summary(Result((_file(),), 1), []).split())


def test_in_a_program_of_several_files_each_place_is_named_with_its_file() -> None:
    one = _file("net.py")._replace(traits=(Trait("noise", "Dropout", 3), Trait("noise", "Dropout", 9)))
    other = _file("sub/train.py")._replace(traits=(Trait("noise", "Dropout", 4), Trait("limit", "i == 9", 7)))
    said = " ".join(summary(Result((one, other), 2), []).split())
    assert "Dropout (net.py:3, 9; sub/train.py:4): each process" in said
    assert "i == 9 (sub/train.py:7): this limit" in said
    many = one._replace(traits=tuple(Trait("noise", "Dropout", n) for n in range(1, 10)))
    said = " ".join(summary(Result((many, other), 2), []).split())
    assert "(net.py:1, 2, 3, 4, 5, 6 and 4 other places)" in said


LOADER = """\
import torch
from torch.utils.data import DataLoader
loader = DataLoader(rows, batch_size=8)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(len(loader))
"""
DRAWN = LOADER.replace("DataLoader(rows, batch_size=8)", "range(9)").replace(
    "for x, y in loader:", "for i in loader:\n    rows = torch.randint(64, (8,))\n    x, y = data[rows], target[rows]"
)
BLOCKED = LOADER.replace("for x, y in loader:", "for x, y in feed:").replace("rows,", "torch.nn.Dropout(), ")


def test_a_kept_batch_keeps_the_length_of_loaders() -> None:
    result = _run(LOADER, keep_global_batch=True)
    assert [trait.kind for trait in result.files[0].traits] == ["batch", "gpu"]
    assert "len(loader)" in summary(_run(LOADER), []) and "len(loader)" not in summary(result, [])


def test_each_program_has_its_own_batch_size() -> None:
    """One that draws its batches has them cut; what is said of it is not said of the script with a loader."""
    loader, drawn, blocked = _run(LOADER, "a.py"), _run(DRAWN, "b.py"), _run(BLOCKED, "c.py")
    assert not blocked.files[0].changed and not blocked.files[0].traits
    both = loader._replace(files=(*loader.files, *drawn.files, *blocked.files))
    text = " ".join(summary(both, [], width=110).split())
    assert "a.py: on N processes the global batch is N times the script's" in text
    assert "b.py: the script's batch size is the global batch size" in text
    assert (
        "len(loader)" in text
        and "c.py:" not in text.partition("What changes at run time")[2].partition("Blocked by")[0]
    )
    assert "The script's batch size is" in summary(drawn, []) and "N times" not in summary(drawn, [])


def _run(text: str, name: str = "train.py", **options: Any) -> Result:
    return migrate([decode(text.encode(), Path(name))], CATALOGUE, Config(**options))


def test_the_summary_follows_the_options() -> None:
    file = _file()._replace(traits=(Trait("batch", "global", 0),))
    text = summary(Result((file,), 1, {"target": "accelerate"}), [], verb="changed")
    assert "batch size is the global batch size" in text
    assert "N times" not in text
    assert text.startswith("1 file changed; 1 file checked. 1 edit.\n")


def test_json_has_a_version_and_everything_that_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    note = Diagnosis("dropout", Severity.NOTE, "noise", "", 2, 3)
    error = SourceError("bad.py", 1, "unknown encoding klingon", "Correct it")
    result = Result((_file("train.py", BEFORE, AFTER, note),), 2, {"target": "torchlift"})
    document = json.loads(json_report(result, [error], status=3, written=False))
    (file,) = document.pop("files")
    assert document == {
        "version": 1,
        "status": 3,
        "checked": 2,
        "options": {"target": "torchlift"},
        "errors": [{"path": "bad.py", "line": 1, "message": "unknown encoding klingon", "remedy": "Correct it"}],
    }
    assert file["path"] == "train.py"
    assert (file["changed"], file["blocked"], file["written"]) == (True, False, False)
    assert file["changes"] == [
        {"rule": "backward", "line": 5, "column": 1, "reason": "a loss: given by f", "severity": "note", "group": ""}
    ]
    assert file["findings"] == [
        {
            "id": "dropout",
            "case": "",
            "page": "",
            "severity": "note",
            "line": 2,
            "column": 3,
            "end_column": 0,
            "message": "noise",
            "remedy": "",
            "cause": None,
        }
    ]
    assert file["roles"][0]["because"] == "backward is called on it"
    assert file["diff"] == patch(Path("train.py"), BEFORE, AFTER).decode()


def test_the_table_of_roles_lines_up() -> None:
    assert roles_table(Result((_file(),), 1)) == (
        "train.py\n  line  scope     name  role  because\n  4     <module>  loss  loss  backward is called on it\n"
    )


def _terminal(file: FileResult, width: int = 100, *, color: bool = True, side_by_side: bool = False) -> str:
    stream = io.StringIO()
    system: Any = "standard" if color else None
    console = Console(file=stream, force_terminal=color, color_system=system, highlight=False, width=width)
    print_diff([file], console, side_by_side=side_by_side)
    return stream.getvalue()


def test_the_terminal_says_nothing_of_a_file_that_does_not_change() -> None:
    assert _terminal(_file("x.py", BEFORE, BEFORE)) == ""


def test_the_terminal_shows_colours_and_above_them_the_reason() -> None:
    text = _terminal(_file("x.py", b"a\n", b"b\n"))
    assert "\x1b[31m-\x1b[0m\x1b[31ma\x1b[0m" in text
    assert "\x1b[32m+\x1b[0m\x1b[32mb\x1b[0m" in text
    assert text.index("backward") < text.index("a loss: given by f") < text.index("\x1b[31m-")


def test_the_words_that_differ_stand_out() -> None:
    text = _terminal(_file("x.py", b"def f(model, device, x):\n", b"def f(model, accelerator, x):\n"))
    assert "\x1b[7;31mdevice\x1b[0m" in text
    assert "\x1b[7;32maccelerator\x1b[0m" in text
    assert "\x1b[31mdef f(model, \x1b[0m" in text


def test_without_colours_signs_and_reasons_are_left() -> None:
    text = _terminal(_file(), color=False)
    assert "\x1b" not in text
    assert "# backward: a loss: given by f\n5   -loss.backward()\n  5 +accelerator.backward(loss)\n" in text


def test_a_long_reason_is_wrapped_between_words() -> None:
    reason = "a long reason " * 10
    lines = _terminal(_file()._replace(changes=(Change("backward", 5, 1, reason),)), 60, color=False).splitlines()
    told = [line.strip(" #") for line in lines if "#" in line]
    assert len(told) > 1
    assert all(len(line) <= 60 for line in lines)
    assert " ".join(told).split() == ["backward:", *reason.split()]


def test_a_long_line_is_cut_where_the_terminal_ends_and_nothing_is_lost() -> None:
    words = " ".join(f"w{n}" for n in range(60))
    lines = _terminal(_file("x.py", b"x\n", words.encode() + b"\n"), 50, color=False).splitlines()
    assert all(len(line) <= 50 for line in lines)
    shown = " ".join(line.lstrip("1 +") for line in lines[2:] if "w" in line and "#" not in line)
    assert shown.split() == words.split()


def test_two_columns_stand_side_by_side() -> None:
    text = _terminal(_file(), 100, color=False, side_by_side=True)
    (line,) = [line for line in text.splitlines() if "-loss" in line]
    assert re.fullmatch(r"5 -loss\.backward\(\) +│ 5 \+accelerator\.backward\(loss\)", line)
    assert "│" not in _terminal(_file(), 60, color=False, side_by_side=True), "too narrow for two"


def test_an_edit_behind_a_long_statement_has_its_reason_where_it_shows() -> None:
    body = b"".join(b"    x%d\n" % n for n in range(20))
    before = b"for a in b:\n" + body + b"end\n"
    file = _file("x.py", before, before.replace(b"end", b"new\nend"))
    text = _terminal(file._replace(changes=(Change("prepare", 1, 1, "because"),)), color=False)
    assert text.index("prepare: because") < text.index("+new")


def test_the_terminal_says_in_which_function_a_change_stands() -> None:
    before = b"def train(model):\n    a = 1\n    b = 2\n    c = 3\n    loss.backward()\n"
    assert "in def train @@" in _terminal(_file("x.py", before, before.replace(b"loss.b", b"acc.b")))


@pytest.mark.parametrize(
    "text", [b"'\x1b[2J'\n", b"'\x9b2J'\n", "'\u202e'\n".encode(), b"a\rb\n"], ids=["escape", "c1", "bidi", "return"]
)
def test_a_file_cannot_steer_the_terminal(text: bytes) -> None:
    shown = _terminal(FileResult(Source(Path("x.py"), text, text.decode("latin-1"), "latin-1"), b"x\n"), color=False)
    assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(shown)


def test_markup_in_a_file_is_text() -> None:
    assert "x[red]y" in _terminal(_file("x.py", b"x\n", b"x[red]y\n"))


def _apply_fixes(log: dict[str, Any], text: str) -> str:
    """Make the fix of a SARIF log with one file, as a reader of the format would."""
    (result,) = [r for r in log["runs"][0]["results"] if "fixes" in r]
    offsets = [0, *(n + 1 for n, c in enumerate(text) if c == "\n")]
    (change,) = result["fixes"][0]["artifactChanges"]
    for replacement in reversed(change["replacements"]):
        region = replacement["deletedRegion"]
        start = offsets[region["startLine"] - 1] + region["startColumn"] - 1
        end = offsets[region["endLine"] - 1] + region["endColumn"] - 1
        text = text[:start] + replacement["insertedContent"]["text"] + text[end:]
    return text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\n", "a\nc\n"), ("a\nb", "a\nc"), ("a\n", "a\nb\n"), ("a\nb", "a\nb\n"), ("a\nb\n", "a\nb"),
        ("a\nb\n", "b\n"), ("a\nb\n", "a\n"), ("a\nb", "a"), ("a\r\nb\r\n", "a\r\nc\r\n"), ("", "a\n"),
        ("a\nb\nc\n", "x\nb\ny\nz\n"),
    ],
)  # fmt: skip
def test_the_fix_in_sarif_is_what_write_writes(before: str, after: str) -> None:
    log = json.loads(sarif(Result((_file("x.py", before.encode(), after.encode()),), 1), []))
    assert _apply_fixes(log, before) == after


def test_sarif_has_findings_errors_and_their_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stop = Diagnosis("clip", Severity.BLOCKED, "cannot tell", "do it by hand", 4, 2)
    error = SourceError("a b.py", 3, "is not utf-8 text", "Save it")
    log = json.loads(sarif(Result((_file("t.py", BEFORE, BEFORE, stop),), 2), [error], version="1.0"))
    assert (log["version"], log["$schema"]) == ("2.1.0", "https://json.schemastore.org/sarif-2.1.0.json")
    (run,) = log["runs"]
    own, unreadable = run["tool"]["driver"]["rules"]
    assert (own, unreadable["id"]) == ({"id": "clip"}, "unreadable")
    marks = [entry.pop("partialFingerprints")["torchlift/v1"] for entry in run["results"]]
    assert len(set(marks)) == 2 and all(mark.endswith(":1") for mark in marks)
    moved = sarif(Result((_file("t.py", BEFORE, BEFORE, stop._replace(line=5)),), 2), [error])
    again = json.loads(moved)["runs"][0]["results"]
    assert [entry["partialFingerprints"]["torchlift/v1"] for entry in again] == marks, "known on another line"
    assert run["results"] == [
        {
            "ruleId": "clip",
            "level": "error",
            "message": {"text": "cannot tell. Help: do it by hand"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": "t.py"},
                        "region": {"startLine": 4, "startColumn": 2},
                    }
                }
            ],
            "ruleIndex": 0,
        },
        {
            "ruleId": "unreadable",
            "level": "error",
            "message": {"text": "is not utf-8 text. Save it"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": "a%20b.py"}, "region": {"startLine": 3}}}],
            "ruleIndex": 1,
        },
    ]


def _object(required: str, **properties: Any) -> dict[str, Any]:
    """A JSON schema: these properties, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def _array(of: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": of, "minItems": least}


_POSITION = {"type": "integer", "minimum": 1}
_TEXT = {"type": "string", "minLength": 1}
_PLACE = _object("uri", uri={"type": "string", "format": "uri-reference"})
_REGION = _object("startLine", **dict.fromkeys(("startLine", "startColumn", "endLine", "endColumn"), _POSITION))
_MESSAGE = _object("text", text=_TEXT, markdown=_TEXT)
_REPLACEMENT = _object("deletedRegion", deletedRegion=_REGION, insertedContent=_object("text", text={"type": "string"}))
_FIX = _object(
    "artifactChanges",
    description=_MESSAGE,
    artifactChanges=_array(
        _object("artifactLocation replacements", artifactLocation=_PLACE, replacements=_array(_REPLACEMENT, 1)), 1
    ),
)
_LOCATION = _object(
    "physicalLocation",
    physicalLocation=_object("artifactLocation", artifactLocation=_PLACE, region=_REGION),
    message=_MESSAGE,
)
_RESULT = _object(
    "message ruleId ruleIndex level locations",
    ruleId=_TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=_MESSAGE,
    locations=_array(_LOCATION, 1),
    relatedLocations=_array(_LOCATION, 1),
    fixes=_array(_FIX),
    partialFingerprints={"type": "object", "additionalProperties": _TEXT},
)
_URI = {"type": "string", "format": "uri"}
_RULE = _object(
    "id shortDescription fullDescription defaultConfiguration help",
    id=_TEXT,
    shortDescription=_MESSAGE,
    fullDescription=_MESSAGE,
    defaultConfiguration=_object("level", level={"enum": ["note", "warning", "error"]}),
    help=_MESSAGE,
    helpUri=_URI,
)
_DRIVER = _object("name", name=_TEXT, version=_TEXT, informationUri=_URI, rules={**_array(_RULE), "uniqueItems": True})
SARIF = _object(
    "version runs",
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs=_array(
        _object(
            "tool",
            tool=_object("driver", driver=_DRIVER),
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            results=_array(_RESULT),
        )
    ),
)
"""What SARIF 2.1.0 says of the objects that we write. Stricter in that descriptions, help and places are required."""


def test_sarif_keeps_to_the_standard_and_describes_every_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cause = CausePlace("it is made here", 2, 1, 4, "made()", "my lib.py")
    noise = Diagnosis("same-noise", Severity.REVIEW, "look", "do it", 5, 3, 9, cause)
    found = [noise, Diagnosis("clip", Severity.NOTE, "n", "")]
    error = SourceError("a b.py", 0, "is not utf-8 text", "Save it")
    log = json.loads(
        sarif(
            Result((_file("t.py", BEFORE, AFTER, *found),), 2),
            [error],
            version="1.0",
            rules={"clip": "Clip what\nis long.\n\nThe reason."},
        )
    )
    jsonschema.validate(log, SARIF, format_checker=jsonschema.FormatChecker())
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["clip", "same-noise", "unreadable", "would-change"]
    assert [rules[entry["ruleIndex"]]["id"] for entry in run["results"]] == [e["ruleId"] for e in run["results"]]
    assert rules[0]["shortDescription"] == {"text": "Clip what is long."}
    assert "`migrate --write PATH` makes them" in rules[3]["help"]["markdown"]
    assert ["fixes" in entry for entry in run["results"]] == [False, True, False, False], "the most serious ones first"
    assert [entry["level"] for entry in run["results"]] == ["error", "warning", "warning", "note"]
    assert [rule["defaultConfiguration"]["level"] for rule in rules] == ["note", "warning", "error", "warning"]
    pages = [rule.get("helpUri", "").rpartition("/")[2] for rule in rules]
    assert pages == ["rules.md#clip", "findings.md#same-noise", "", ""]
    (marked,) = run["results"][2]["locations"]
    assert marked["physicalLocation"]["region"] == {"startLine": 5, "startColumn": 3, "endColumn": 9}
    (place,) = run["results"][2]["relatedLocations"]
    assert place["message"] == {"text": "it is made here"}
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20lib.py"},
        "region": {"startLine": 2, "startColumn": 1, "endColumn": 4},
    }


def test_github_shows_findings_at_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = [
        Diagnosis("clip", Severity.BLOCKED, "50%, no\nmore", "", 4, 2),
        Diagnosis("note", Severity.NOTE, "good: to know", ""),
        Diagnosis("look", Severity.REVIEW, "look", "do it", 5),
        *(Diagnosis("look", Severity.REVIEW, "look", "do it", line) for line in range(7, 15)),
    ]
    error = SourceError("bad.py", 1, "broken", "Mend it")
    cause = CausePlace("from here", 1, 1, 4, "run(x)", "lib.py")
    one = Diagnosis("once", Severity.REVIEW, "`a` differs", "do it", 1, 1, 2, cause)
    both = _file("a.py", BEFORE, BEFORE, one, one._replace(message="`b` differs", line=2))
    assert workflow_commands(Result((both,), 1), []) == (
        "::warning file=a.py,line=1,col=1,endColumn=2,title=migrate [once]::`a` differs%0Ahelp: do it%0AAlso a.py:2"
        f"%0A{address('findings', 'once')}\n"
    ), "findings of one cause are one, as everywhere"
    assert workflow_commands(Result((_file("a,b.py", BEFORE, AFTER, *found),), 2), [error]) == (
        "::error file=bad.py,line=1,title=migrate::broken. Mend it\n"
        "::error file=a%2Cb.py,line=4,col=2,title=migrate [clip]::50%25, no%0Amore\n"
        "::warning file=a%2Cb.py,line=5,title=migrate::"
        "1 edit would make this file train on several processes: backward\n"
        "::warning file=a%2Cb.py,line=5,title=migrate [look]::look%0Ahelp: do it%0AAlso a,b.py:7, a,b.py:8, a,b.py:9, "
        "a,b.py:10, a,b.py:11, a,b.py:12 and 2 other places\n"
        "::notice file=a%2Cb.py,title=migrate [note]::good: to know\n"
    )


def test_what_is_wrapped_of_a_line_is_indented_further() -> None:
    """At the margin it looked like one more added line."""
    before = "if x:\n    value = call(first_argument, second_argument, third_argument)\n"
    file = _file("a.py", before.encode(), before.replace("call(", "another_call(").encode())
    out = Console(file=io.StringIO(), width=60, no_color=True, force_terminal=False)
    print_diff([file], out)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert (
        "+    value = another_call(first_argument,\n" in text and "+        second_argument, third_argument)\n" in text
    )
