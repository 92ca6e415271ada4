"""Sources: no byte is lost on the way in or out, and files are written all together or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter import source as module
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import Source, SourceError, decode, discover, encode, read, write_all


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="an empty file"),
        pytest.param(b"x = 1", id="no newline at the end"),
        pytest.param(b"x = 1\r\ny = 2\r\n", id="carriage returns"),
        pytest.param(b"x = 1\r\ny = 2\nz = 3\r", id="mixed newlines"),
        pytest.param(b"if x:\n\ty = 1\n", id="tabs"),
        pytest.param(b"x = 1\n\x0c\ny = '\x1c'\n", id="form feed and other controls"),
        pytest.param("x = '\u2028 \x85'\n".encode(), id="U+2028 and NEL"),
        pytest.param(b"\xef\xbb\xbfx = 1\n", id="a byte order mark"),
        pytest.param(b"\xef\xbb\xbf# coding: utf-8\nx = 1\n", id="a byte order mark and the cookie that agrees"),
        pytest.param(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", id="latin-1"),
        pytest.param(b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = '\x80'\n", id="a cookie in line 2"),
        pytest.param(b"# coding: utf-8-unix\nx = '\xc3\xa9'\n", id="a name as Emacs writes it"),
        pytest.param(b"x = 1\n# coding: latin-1\ny = '\xc3\xa9'\n", id="no cookie behind a line of code"),
        pytest.param("# coding: shift_jis\nx = 'ア'\n".encode("shift_jis"), id="a codec of several bytes"),
        pytest.param("# -*- coding: gbk -*-\nx = '训练'\n".encode("gbk"), id="gbk"),
    ],
)
def test_text_encodes_to_the_same_bytes(data: bytes) -> None:
    source = decode(data, Path("x.py"))
    assert encode(source, source.text) == data


TRAINING = b"""\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()"""


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"\n        ", id="a line of blanks"),
        pytest.param(b"\n\n    \n", id="a line of blanks below an empty one"),
        pytest.param(b"\r\n\r\n \t\r\n  ", id="the same with carriage returns"),
        pytest.param(b"\n\n\x0c\n", id="a form feed"),
        pytest.param(b"\n\n\n  # done\n\n      ", id="a comment that is indented"),
        pytest.param(b"\n# done\n\n\t# done\n", id="comments"),
        pytest.param(b"\r", id="a lone carriage return"),
        pytest.param(b"  ", id="blanks in the last line"),
    ],
)
def test_what_follows_the_code_is_kept(tail: bytes) -> None:
    """LibCST alone loses a byte of most of them."""
    (plain,) = migrate([decode(TRAINING, Path("x.py"))], CATALOGUE, Config()).files
    (file,) = migrate([decode(TRAINING + tail, Path("x.py"))], CATALOGUE, Config()).files
    assert not file.blocked
    assert b"accelerator.backward(loss)" in file.after
    assert file.after == plain.after + tail


def test_the_mark_is_kept_beside_the_text() -> None:
    source = decode(b"\xef\xbb\xbfx = 1\n", Path("x.py"))
    assert (source.bom, source.text, encode(source, "y\n")) == (True, "x = 1\n", b"\xef\xbb\xbfy\n")


@pytest.mark.parametrize(
    ("data", "line", "cause"),
    [
        pytest.param(b"# coding: klingon\n", 1, "unknown encoding klingon", id="unknown encoding"),
        pytest.param(b"#\n# coding: hex\n00", 2, "unknown encoding hex", id="a codec that is not for text"),
        pytest.param(
            b"a\nb\nc = '\xe9'\n", 3, "not utf-8 text, so that Python cannot read this file", id="undecodable bytes"
        ),
        pytest.param(b"\xef\xbb\xbf# coding: latin-1\n", 1, "byte order mark says UTF-8", id="mark against cookie"),
        pytest.param(
            b"# coding: utf-7\nx = '+AGE-'\n", 1, "would change its bytes", id="no way back to the same bytes"
        ),
    ],
)
def test_a_text_that_cannot_be_decoded_is_named_with_its_line(data: bytes, line: int, cause: str) -> None:
    with pytest.raises(SourceError) as caught:
        decode(data, Path("x.py"))
    assert (caught.value.line, caught.value.path) == (line, Path("x.py"))
    assert cause in str(caught.value)
    assert str(caught.value).startswith(f"x.py:{line}: ")
    assert caught.value.remedy


def test_a_character_that_the_codec_cannot_hold_is_named() -> None:
    source = decode(b"# coding: latin-1\n", Path("x.py"))
    with pytest.raises(SourceError, match=r"x.py:2: the migrated text needs '→', which latin-1 cannot hold"):
        encode(source, "# coding: latin-1\n# →\n")


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(b"a\n\0")
    with pytest.raises(SourceError, match=r"x.py:2: a binary file"):
        read(tmp_path / "x.py")


@pytest.mark.parametrize("name", ["missing.py", "folder"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceError, match=r"there is no such file|cannot be read|not a regular file"):
        read(tmp_path / name)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "b.py",
        "a.py",
        "notes.txt",
        "script",
        ".hidden.py",
        "pkg/z.py",
        "pkg/deep/y.py",
        ".git/x.py",
        "__pycache__/x.py",
        "node_modules/x.py",
        "env/pyvenv.cfg",
        "env/x.py",
        "build/x.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    return tmp_path


def _names(root: Path, *paths: str) -> list[str]:
    found, refused = discover([root / path for path in paths])
    assert not refused
    return [file.relative_to(root).as_posix() for file in found]


def test_a_folder_gives_its_python_files_in_order(tree: Path) -> None:
    assert _names(tree, ".") == ["a.py", "b.py", "pkg/deep/y.py", "pkg/z.py"]


def test_a_file_that_is_named_is_always_taken(tree: Path) -> None:
    assert _names(tree, "script", "build/x.py", "env/x.py") == ["script", "build/x.py", "env/x.py"]


def test_a_folder_that_is_named_is_walked_whatever_it_is_called(tree: Path) -> None:
    assert _names(tree, "build") == ["build/x.py"]


def test_no_file_comes_twice(tree: Path) -> None:
    (tree / "link.py").symlink_to("a.py")
    assert _names(tree, "b.py", ".", "link.py", "pkg") == ["b.py", "a.py", "pkg/deep/y.py", "pkg/z.py"]


def test_links_to_folders_do_not_make_a_circle(tree: Path) -> None:
    (tree / "pkg" / "up").symlink_to(tree, target_is_directory=True)
    assert _names(tree, "pkg") == ["pkg/deep/y.py", "pkg/z.py"]


def test_a_dangling_link_is_no_file(tree: Path) -> None:
    (tree / "pkg" / "gone.py").symlink_to("nowhere")
    assert _names(tree, "pkg") == ["pkg/deep/y.py", "pkg/z.py"]


def test_what_is_excluded_is_left_out_even_if_named(tree: Path) -> None:
    found, _ = discover([tree / "a.py", tree / "b.py"], lambda path: path.name == "a.py")
    assert found == [tree / "b.py"]


def test_paths_without_python_are_refused_and_the_others_kept(tree: Path) -> None:
    (tree / "empty").mkdir()
    found, refused = discover([tree / "empty", tree / "missing", tree / "a.py"])
    assert found == [tree / "a.py"]
    assert [error.cause for error in refused] == [
        "there is no Python file in this folder",
        "there is no such file or folder",
    ]


@pytest.fixture
def pair(tmp_path: Path) -> list[tuple[Source, bytes]]:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_bytes(b"old\n")
    return [(read(tmp_path / name), b"new\r\n") for name in ("a.py", "b.py")]


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_file_that_does_not_change_is_not_written(tmp_path: Path, pair: list[tuple[Source, bytes]]) -> None:
    before = (tmp_path / "a.py").stat()
    write_all([(source, source.data) for source, _ in pair])
    assert (tmp_path / "a.py").stat().st_ino == before.st_ino


def test_all_files_are_written_and_nothing_else_is_left(tmp_path: Path, pair: list[tuple[Source, bytes]]) -> None:
    write_all(pair)
    assert _contents(tmp_path) == {"a.py": b"new\r\n", "b.py": b"new\r\n"}


@pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
@pytest.mark.parametrize("mode", [0o755, 0o640])
def test_the_mode_is_kept(tmp_path: Path, pair: list[tuple[Source, bytes]], mode: int) -> None:
    (tmp_path / "a.py").chmod(mode)
    write_all(pair)
    assert stat.S_IMODE((tmp_path / "a.py").stat().st_mode) == mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.py").write_bytes(b"old\n")
    (tmp_path / "link.py").symlink_to("real/a.py")
    write_all([(read(tmp_path / "link.py"), b"new\n")])
    assert (tmp_path / "link.py").is_symlink()
    assert _contents(tmp_path / "real") == {"a.py": b"new\n"}


def test_a_file_that_changed_meanwhile_keeps_all_from_being_written(
    tmp_path: Path, pair: list[tuple[Source, bytes]]
) -> None:
    (tmp_path / "b.py").write_bytes(b"mine\n")
    with pytest.raises(SourceError, match=r"b.py: the file changed during the run"):
        write_all(pair)
    assert _contents(tmp_path) == {"a.py": b"old\n", "b.py": b"mine\n"}


def test_a_file_that_changes_during_the_writing_takes_the_others_back(
    tmp_path: Path, pair: list[tuple[Source, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = module._stage

    def slow(target: module._Target, data: bytes) -> Path:
        temporary = stage(target, data)
        if target.path.name == "b.py":
            target.path.write_bytes(b"mine, longer\n")
        return temporary

    monkeypatch.setattr(module, "_stage", slow)
    with pytest.raises(SourceError, match="changed during the run"):
        write_all(pair)
    assert _contents(tmp_path) == {"a.py": b"old\n", "b.py": b"mine, longer\n"}


def test_a_read_only_target_keeps_all_from_being_written(tmp_path: Path, pair: list[tuple[Source, bytes]]) -> None:
    (tmp_path / "b.py").chmod(0o444)
    with pytest.raises(SourceError, match=r"b.py: cannot be written: it is read-only"):
        write_all(pair)
    assert _contents(tmp_path) == {"a.py": b"old\n", "b.py": b"old\n"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["disk", "Ctrl-C"])
def test_an_error_midway_restores_what_was_renamed(
    tmp_path: Path, pair: list[tuple[Source, bytes]], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    replace = Path.replace

    def fails_once(self: Path, target: Path) -> Path:
        if target.name == "b.py":
            raise error
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails_once)
    with pytest.raises((SourceError, KeyboardInterrupt)):
        write_all(pair)
    assert _contents(tmp_path) == {"a.py": b"old\n", "b.py": b"old\n"}


def test_an_error_while_staging_leaves_no_temporary(
    tmp_path: Path, pair: list[tuple[Source, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SourceError, match=r"a.py: cannot be written \(No space left on device\)"):
        write_all(pair)
    assert _contents(tmp_path) == {"a.py": b"old\n", "b.py": b"old\n"}


def test_a_rescue_that_fails_says_so(
    tmp_path: Path, pair: list[tuple[Source, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, calls = Path.replace, []

    def only_the_first(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) > 1:
            raise OSError(5, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", only_the_first)
    with pytest.raises(SourceError, match=r"the old text could not be restored: .*a.py"):
        write_all(pair)


def test_files_are_in_the_order_of_the_numbers_in_their_names(tmp_path: Path) -> None:
    for name in ("a10.py", "a2.py", "a1.py", "b.py", "10.py", "9.py", "a.py"):
        (tmp_path / name).write_text("x = 1\n")
    found, _ = discover([tmp_path])
    assert [path.name for path in found] == ["9.py", "10.py", "a.py", "a1.py", "a2.py", "a10.py", "b.py"]
