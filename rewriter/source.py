"""Find, read and write Python source without losing a byte: all files of a run are written, or none."""

from __future__ import annotations

import ast
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

BOM = b"\xef\xbb\xbf"
_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"[ \t\f]*(?:#.*)?\r?\n?\Z")
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


class SourceError(Exception):
    """A file that cannot be read, decoded or written: where, why, and what to do."""

    def __init__(self, path: Path | str, line: int, cause: str, remedy: str = "") -> None:
        """``line`` 0 means the file as a whole; ``cause`` and ``remedy`` are sentences without their full stop."""
        super().__init__(path, line, cause, remedy)
        self.path = Path(path)
        self.line = line
        self.cause = cause
        self.remedy = remedy
        self.code, self.column = "", 0
        """What the line says, and where in it the error is; empty where that is not known."""

    def __str__(self) -> str:
        """One line: ``path:line: cause. remedy``."""
        place = f"{self.path}:{self.line}" if self.line else f"{self.path}"
        ends = "" if self.cause.endswith("?") else "."
        return f"{place}: {self.cause}{ends} {self.remedy}{'.' if self.remedy else ''}".rstrip()


_OF_PYTHON_2 = ("Missing parentheses in call", "multiple exception types must be parenthesized", "leading zeros")
"""In the messages for what Python 2 has: ``print x``, ``except A, error:``, ``0777``."""
_OLD = re.compile(r"\basync\s*=|\bexec\s+[\w'\"]|<>|^\s*raise\s+\w+\s*,")
"""What was Python before 3.7, or 3.0: ``x.cuda(async=True)``."""


def invalid(path: Path | str, line: int, message: str, error: SyntaxError | None = None) -> SourceError:
    """The error for a file that the Python which runs ``migrate`` cannot parse."""
    version = ".".join(map(str, sys.version_info[:2]))
    old = any(sign in message for sign in _OF_PYTHON_2) or (error is not None and _OLD.search(error.text or ""))
    remedy = f"Correct the syntax; if that of a newer Python than {version} is meant, run migrate with that Python"
    if old:
        remedy = "This is the syntax of an older Python: bring the file up to date, then migrate"
    told = SourceError(path, line, f"not valid Python: {message}", remedy)
    if error is not None:
        told.code, told.column = (error.text or "").rstrip("\n"), error.offset or 0
    return told


def too_new(path: Path | str, line: int, message: str) -> SourceError:
    """The error for a file whose syntax is newer than the Python which runs ``migrate``."""
    version = ".".join(map(str, sys.version_info[:2]))
    cause = f"this file needs a newer Python than {version} to be parsed: {message}"
    return SourceError(path, line, cause, "Run migrate with the Python that runs the script")


class Rejection(NamedTuple):
    """What Python says of a text that it does not take."""

    error: SyntaxError
    parsed: bool
    """The parser takes it. The compiler minds more, such as a ``from __future__`` after code."""


def rejection(text: str) -> Rejection | None:
    """What Python says of a text, if it does not take it."""
    parsed = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = compile(
                text, "<text>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, dont_inherit=True
            )
            parsed = True
            compile(tree, "<text>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except SyntaxError as error:
            return Rejection(error, parsed)
    return None


class Cells(Protocol):
    """What the reports need from a notebook."""

    def place(self, line: int) -> tuple[int, int]:
        """Return the cell of a line of ``Source.text``, and the line in that cell; zeros for none."""

    def named(self, number: int) -> str:
        """Return how reports name a cell: its number, and when it last ran."""

    def line_of_file(self, line: int) -> int:
        """Return the line of the file that holds a line of ``Source.text``."""

    def heads(self) -> Sequence[str]:
        """Return the lines of the readable form at which the cells begin."""

    def read(self, data: bytes) -> str:
        """Return the script of another state of the file in readable form."""

    def written(self, text: str) -> bytes:
        """Return the bytes of the file for the text that `read` returns; ``ValueError`` if its cells cannot be told
        apart."""


class Source(NamedTuple):
    """One file as it was read. ``text`` leaves out the byte order mark and keeps every newline as it is."""

    path: Path
    data: bytes
    text: str
    encoding: str
    bom: bool = False
    notebook: Cells | None = None
    """The notebook whose cells ``text`` is made of; ``data`` is then its file."""
    on_disk: str = ""
    """What the file holds, where ``text`` has some edits already that are not written yet."""


def read(path: Path) -> Source:
    """Read one file as text that encodes to the same bytes again, or raise ``SourceError``."""
    return decode(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """Read one file that may be Python; ``SourceError`` if it cannot be read or is binary."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 (a pipe would be waited for)
            raise SourceError(path, 0, "not a regular file", "Name Python files, or - for stdin")
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (half the time of Path.open over a thousand files)
            data = file.read()
    except FileNotFoundError:
        raise SourceError(path, 0, "there is no such file", "Check the spelling of the path") from None
    except OSError as error:
        raise SourceError(path, 0, f"cannot be read ({error.strerror})", "Check its permissions") from error
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise SourceError(
            path, line, "a binary file, not Python source (it holds a NUL byte)", "Name Python files only"
        )
    return data


def decode(data: bytes, path: Path) -> Source:
    """Decode the bytes of a file as Python does (byte order mark, encoding cookie, else UTF-8)."""
    bom = data.startswith(BOM)
    body = data[len(BOM) :] if bom else data
    encoding, line = _declared(body)
    if bom and encoding and _normal(encoding) not in ("utf-8", "utf8"):
        cause = f"the byte order mark says UTF-8, the encoding comment says {encoding}"
        raise SourceError(path, line, cause, "Remove one of the two")
    codec = "utf-8" if bom else _normal(encoding) or "utf-8"
    try:
        text = body.decode(codec)
        again = text.encode(codec)
    except LookupError:
        raise SourceError(path, line, f"unknown encoding {codec}", "Correct the coding comment") from None
    except UnicodeDecodeError as error:
        bad = body.count(b"\n", 0, error.start) + 1
        cause = f"byte 0x{body[error.start]:02x} is not {codec} text, so that Python cannot read this file either"
        remedy = "Save the file as UTF-8, or state its encoding in the first line, as in # -*- coding: gbk -*-"
        raise SourceError(path, bad, cause, remedy) from None
    except UnicodeError as error:
        raise SourceError(path, line, f"is not {codec} text ({error})", "Save the file as UTF-8") from None
    if again != body:
        cause = f"reading it as {codec} and writing it again would change its bytes"
        raise SourceError(path, line, cause, "Save the file as UTF-8")
    return Source(path, data, text, codec, bom)


def encode(source: Source, text: str) -> bytes:
    """Encode new text of a file as the file was encoded, including the byte order mark; for a notebook ``text`` is an
    edited form of what its `read` returned."""
    if source.notebook is not None:
        return source.notebook.written(text)
    try:
        return (BOM if source.bom else b"") + text.encode(source.encoding)
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        cause = f"the migrated text needs {text[error.start]!r}, which {source.encoding} cannot hold"
        raise SourceError(source.path, line, cause, "Save the file as UTF-8") from None


def _declared(body: bytes) -> tuple[str, int]:
    """Return the encoding that a comment in the first two lines declares, and its line; ``("", 0)`` for none."""
    for number, line in enumerate(body.split(b"\n", 2)[:2], 1):
        if found := _COOKIE.match(line):
            return found[1].decode("ascii", "replace"), number
        if not _BLANK.match(line):
            break
    return "", 0


def _normal(encoding: str) -> str:
    """Return Python's codec for a declared encoding: Emacs writes ``utf-8-unix`` and ``latin-1-dos``."""
    name = encoding.lower().replace("_", "-")
    for codec in ("utf-8", "latin-1", "iso-8859-1", "iso-latin-1"):
        if name == codec or name.startswith(codec + "-"):
            return codec
    return encoding


def discover(
    paths: Sequence[Path], exclude: Callable[[Path], bool] = lambda path: False
) -> tuple[list[Path], list[SourceError]]:
    """
    List the files that ``paths`` name, each once, and the paths that name no file.

    A given file is always listed. A given folder lists its scripts and notebooks, in order, without hidden folders,
    virtual environments, installed packages and build output. Links to files are listed, links to folders are not
    followed. ``exclude`` decides last, for every file.
    """
    found: list[Path] = []
    refused: list[SourceError] = []
    seen: set[tuple[int, int]] = set()
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 (a thousand files on the command line)
            folder = status.st_mode & 0o170000 == 0o040000
            entries = list(_walk(os.fspath(path))) if folder else [(path, status)]
        except FileNotFoundError:
            refused.append(SourceError(path, 0, "there is no such file or folder", "Check the spelling of the path"))
            continue
        except OSError as error:
            refused.append(SourceError(path, 0, f"cannot be read ({error.strerror})", "Check its permissions"))
            continue
        if not entries:
            refused.append(
                SourceError(path, 0, "there is no Python file in this folder", "Name a script or its folder")
            )
        for file, status in entries:
            key = (status.st_dev, status.st_ino)
            if key not in seen and not exclude(file):
                seen.add(key)
                found.append(file)
    return found, refused


def _walk(folder: str) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the Python files below a folder, sorted by name, with their ``stat`` results."""
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    for entry in inside:
        name = entry.name
        if name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if name not in _SKIPPED and not os.path.lexists(os.path.join(entry.path, "pyvenv.cfg")):  # noqa: PTH118
                yield from _walk(entry.path)
        elif name.endswith((".py", ".ipynb")) and entry.is_file():
            yield Path(entry.path), entry.stat()


class _Target(NamedTuple):
    """A file about to be replaced: ``path`` has its links resolved, ``status`` is its state at the last comparison."""

    source: Source
    data: bytes
    path: Path
    status: os.stat_result


def write_all(outcomes: Sequence[tuple[Source, bytes]]) -> None:
    """
    Replace the content of files: all of them, or none.

    Every target is compared with what was read, then every new text is written beside its target, and only then is
    the first one renamed; an error restores what was renamed. Links stay links, modes are kept.
    Raises ``SourceError`` if a file changed meanwhile or may not be written.
    """
    targets = [_compared(source, data) for source, data in outcomes if data != source.data]
    staged: list[tuple[_Target, Path]] = []
    renamed: list[_Target] = []
    complete = False
    try:
        staged.extend((target, _stage(target, target.data)) for target in targets)
        for target, temporary in staged:
            _rename(temporary, target)
            renamed.append(target)
        complete = True
    finally:
        for _, temporary in staged[len(renamed) :]:
            temporary.unlink(missing_ok=True)
        if not complete:
            _restore(renamed)


def _compared(source: Source, data: bytes) -> _Target:
    """Check that a file is unchanged since it was read, and that it may be written."""
    path = Path(os.path.realpath(source.path))
    if read_bytes(path) != source.data:
        raise _changed(source)
    status = path.stat()
    writable = status.st_mode & 0o222 and os.access(path, os.W_OK)
    if not writable or not os.access(path.parent, os.W_OK):
        what = "its folder is" if writable else "it is"
        raise SourceError(
            source.path, 0, f"cannot be written: {what} read-only", "Make it writable; nothing was written"
        )
    return _Target(source, data, path, status)


def _changed(source: Source) -> SourceError:
    return SourceError(source.path, 0, "the file changed during the run", "Run the command again; nothing was written")


def _stage(target: _Target, data: bytes) -> Path:
    """Write the new bytes to a temporary file beside the target, synced to disk, with the target's mode and owner."""
    import tempfile

    try:
        handle, name = tempfile.mkstemp(prefix=".torchlift-", suffix=".tmp", dir=target.path.parent)
    except OSError as error:
        raise _unwritable(target, error) from error
    complete = False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            status, new = target.status, os.fstat(file.fileno())
            if hasattr(os, "fchown") and (new.st_uid, new.st_gid) != (status.st_uid, status.st_gid):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
        os.chmod(name, status.st_mode & 0o7777)  # noqa: PTH101
        complete = True
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        if not complete:
            Path(name).unlink(missing_ok=True)
    return Path(name)


def _rename(temporary: Path, target: _Target) -> None:
    """Replace the target with the temporary file, if the target is unchanged since the comparison."""
    try:
        now, then = target.path.stat(), target.status
        if (now.st_mtime_ns, now.st_size, now.st_ino) != (then.st_mtime_ns, then.st_size, then.st_ino):
            raise _changed(target.source)
        temporary.replace(target.path)
    except OSError as error:
        raise _unwritable(target, error) from error


def _restore(renamed: Sequence[_Target]) -> None:
    """Restore the old content of files. A file that cannot be restored is named, and the others are still restored."""
    lost = [str(target.source.path) for target in renamed if not _restored(target)]
    if lost:
        cause = f"an error stopped the writing, and the old text could not be restored: {', '.join(lost)}"
        raise SourceError(lost[0], 0, cause, "Restore it from your version control")


def _restored(target: _Target) -> bool:
    try:
        _stage(target, target.source.data).replace(target.path)
    except (OSError, SourceError):
        return False
    return True


def _unwritable(target: _Target, error: OSError) -> SourceError:
    cause = f"cannot be written ({error.strerror or error})"
    return SourceError(target.source.path, 0, cause, "Nothing was written; check permissions and free space")
