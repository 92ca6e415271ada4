"""
A notebook as a script and back: only the `source` of cells that were edited changes, every other byte stays.

Cells are separated by marks, statements that do nothing, so that an edit at the edge of a cell stays in its cell. What
only a notebook understands (magics, shell lines, cells of other languages) becomes comments and is restored later.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

from ..source import BOM, Source, SourceError
from .masks import MASK, unmasked

_MARK = '"cell %s of the notebook"'
_MARKED = re.compile(r'^"cell (\d+(?:, continued)?) of the notebook"$')
_MAGIC = re.compile(r"^(\s*)([%!?].*|.*[^#\s?]\?{1,2})$")
_ASSIGNED = re.compile(r"^(\s*)[\w.,\s]+=\s*[%!]")
_SPACE = re.compile(r"[ \t\r\n]*")
_OTHER = re.compile(r"[^\s,\]}]+")
TIME = "%%time"
"""The magic that times a cell; it does not matter how often."""
_PYTHON_CELLS = frozenset({"%%time", "%%timeit", "%%capture", "%%prun"})


@dataclass(frozen=True)
class Cell:
    """One code cell: its number among all cells, from 1, its text, and where its source is in the file."""

    number: int
    text: str
    start: int
    end: int
    continued: bool = False
    """The second part of a cell that is looked at in two."""
    draws: bool = False
    """What the notebook shows: the second part of a cell that trains and then draws."""
    count: int | None = None
    """When it last ran, as Jupyter shows it beside the cell; None if it never did."""

    @property
    def name(self) -> str:
        """What tells it from the other cells."""
        return f"{self.number}, continued" if self.continued else str(self.number)

    @property
    def prompt(self) -> str:
        """What Jupyter shows beside the cell, to be added to its number: `` In[7]``; empty if it never ran."""
        return "" if self.count is None else f" In[{self.count}]"


@dataclass(frozen=True)
class Notebook:
    """A notebook: the text of its file, and its code cells."""

    path: Path
    data: bytes
    text: str
    cells: tuple[Cell, ...]

    def script(self, texts: Sequence[str] | None = None) -> str:
        """The cells as one script, with their own texts or with others."""
        texts = [masked(cell.text) for cell in self.cells] if texts is None else texts
        marks = (_MARK % cell.name for cell in self.cells)
        return "".join(f"{mark}\n{text}\n" for mark, text in zip(marks, texts, strict=True))

    def split(self, script: str) -> list[str]:
        """The texts of the cells in a script, still masked."""
        found: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in script.split("\n")[:-1]:
            if said := _MARKED.match(line):
                lines = found.setdefault(said[1], [])
            else:
                lines.append(line)
        return ["\n".join(found[cell.name]) for cell in self.cells]

    def parted(self, drawing: Mapping[int, Collection[int]], choosing: Mapping[int, Collection[int]]) -> Notebook:
        """The notebook with some cells in two parts: for their positions, the lines of the second part, from 1, which
        draws or which chooses the device. It serves to look at the parts, never to write the file."""
        cells: list[Cell] = []
        for n, cell in enumerate(self.cells):
            text = list(enumerate(cell.text.split("\n"), 1))
            draws = n in drawing
            second = drawing[n] if draws else choosing.get(n, ())
            cells.append(replace(cell, text="\n".join(line for at, line in text if at not in second)))
            if second:
                part = "\n".join(line for at, line in text if at in second)
                cells.append(replace(cell, text=part, continued=True, draws=draws))
        return replace(self, cells=tuple(cells))

    def joined(self, texts: Sequence[str]) -> list[str]:
        """The texts of whole cells, for those of their parts."""
        whole: list[str] = []
        for cell, text in zip(self.cells, texts, strict=True):
            if cell.continued:
                last = whole[-1].rpartition("\n")[2]
                whole[-1] = "\n".join(one for one in (whole[-1], "" if text == last else text) if one.strip())
            else:
                whole.append(text)
        return whole

    def place(self, line: int) -> tuple[int, int]:
        """The cell of a line of the script, and the line in that cell; (0, 0) for the notebook as a whole."""
        at = 1
        for cell in self.cells:
            length = cell.text.count("\n") + 1
            if at <= line <= at + length:
                return cell.number, max(1, line - at)
            at += length + 1
        return 0, 0

    def named(self, number: int) -> str:
        """A cell as reports name it: ``cell 3 In[7]``."""
        return f"cell {number}{next((cell.prompt for cell in self.cells if cell.number == number), '')}"

    def line_of_file(self, line: int) -> int:
        """The line of the notebook's file that holds a line of the script."""
        number, inside = self.place(line)
        cell = next((cell for cell in self.cells if cell.number == number), None)
        if cell is None:
            return 0
        listed = self.text[cell.start : cell.end].startswith(("[\n", "[\r\n"))
        return self.text.count("\n", 0, cell.start) + 1 + (inside if listed else 0)

    def read(self, data: bytes) -> str:
        """The script of another state of the file in readable form: a comment at each cell, and its magics."""
        other = read_notebook(data, self.path)
        return "".join(f"{self._head(cell)}\n{cell.text}\n" for cell in other.cells)

    def written(self, text: str) -> bytes:
        """
        The bytes of the file for the text that `read` returned, possibly edited by the user.

        Raises ``ValueError`` if the cells can no longer be told apart, or if one is not valid Python.
        """
        heads = self.heads()
        lines, texts = text.split("\n"), list[str]()
        at = [number for number, line in enumerate(lines) if line in heads]
        if [lines[number] for number in at] != heads or at[:1] != [0][: len(heads)] or lines[-1]:
            raise ValueError(f"keep the lines at which cells begin ({heads[0]} and so on), each once and in order")
        ends = [*at[1:], len(lines) - 1]
        for first, last in zip(at, ends[: len(at)], strict=True):
            texts.append("\n".join(lines[first + 1 : last]))
        for cell, new in zip(self.cells, texts, strict=True):
            if error := _error(masked(new)):
                raise ValueError(f"cell {cell.number}, line {error[0]}: not valid Python: {error[1]}")
        return self.with_texts(texts)

    def heads(self) -> list[str]:
        """The lines of the readable form at which the cells begin."""
        return [self._head(cell) for cell in self.cells]

    def _head(self, cell: Cell) -> str:
        """The comment line before a cell in the readable form; it is not part of the notebook."""
        taken = any(re.search(r"^# cell \d+( In\[\d+\])?$", other.text, re.MULTILINE) for other in self.cells)
        return f"# {'code ' if taken else ''}cell {cell.number}{cell.prompt}"

    def check(self) -> None:
        """Raise ``SourceError`` for a cell that is not valid Python."""
        for cell in self.cells:
            if error := _error(masked(cell.text)):
                line, message = error
                cause = f"cell {cell.number}, line {line}: not valid Python: {message}"
                raise SourceError(self.path, 0, cause, "Correct the cell, or make it a text cell, then migrate")

    def with_texts(self, texts: Sequence[str]) -> bytes:
        """The bytes of the file with other texts in its cells."""
        parts: list[str] = []
        at = 0
        for cell, text in zip(self.cells, texts, strict=True):
            new = _with_magic_first(unmasked(text), cell.text)
            if new != cell.text:
                parts += [self.text[at : cell.start], _written(self.text[cell.start : cell.end], new)]
                at = cell.end
        bom = BOM if self.data.startswith(BOM) else b""
        return bom + "".join([*parts, self.text[at:]]).encode()


def read_notebook(data: bytes, path: Path) -> Notebook:
    """Find the code cells of a notebook. Raises ``SourceError`` for a file that is no notebook."""
    try:
        text = data.removeprefix(BOM).decode()
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        raise SourceError(path, line, f"not a notebook: {error}", "Open it in Jupyter and save it again") from None
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        old = isinstance(document, dict) and "worksheets" in document
        cause = "a notebook of format 3, which is too old" if old else "not a notebook: it has no list of cells"
        raise SourceError(path, 0, cause, "Convert it: jupyter nbconvert --to notebook --nbformat 4" if old else "")
    kernel = document.get("metadata", {}).get("kernelspec", {})
    language = kernel.get("language", "python") if isinstance(kernel, dict) else "python"
    if str(language).lower() not in ("python", ""):
        raise SourceError(path, 0, f"a notebook in {language}, not in Python", "Name Python notebooks")
    spans = {where[1]: span for where, span in _spans(text) if len(where) == 3 and where[0::2] == ("cells", "source")}
    cells = []
    for index, cell in enumerate(document["cells"]):
        if isinstance(cell, dict) and cell.get("cell_type") == "code" and index in spans:
            source = cell["source"]
            if not all(isinstance(part, str) for part in source):
                cause = f"cell {index + 1}: its source is not text"
                raise SourceError(path, 0, cause, "Open it in Jupyter and save it again")
            count = cell.get("execution_count")
            count = count if type(count) is int else None
            cells.append(Cell(index + 1, "".join(source), *spans[index], count=count))
    return Notebook(path, data, text, tuple(cells))


def source_of(notebook: Notebook, script: str) -> Source:
    """A script of the notebook's cells as a ``Source``."""
    return Source(notebook.path, script.encode(), script, "utf-8")


def file_of(notebook: Notebook) -> Source:
    """The notebook's file as a ``Source`` for results; its text is the script of the cells."""
    return Source(notebook.path, notebook.data, notebook.script(), "utf-8", notebook=notebook)


def invalid(before: bytes, after: bytes) -> str:
    """The new error that nbformat reports for the written notebook; empty if there is none, or if nbformat is not
    installed."""
    try:
        import nbformat  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return ""

    def complaint(data: bytes) -> str:
        try:
            with warnings.catch_warnings():  # that ids are missing is said on stderr otherwise
                warnings.simplefilter("ignore")
                nbformat.validate(json.loads(data.removeprefix(BOM)))
        except nbformat.ValidationError as error:
            return str(error).partition("\n")[0]
        return ""

    return complaint(after) if not complaint(before) else ""


# Magics ---------------------------------------------------------------------------------------------------------------


def masked(text: str) -> str:
    """A cell as Python reads it."""
    if is_python(text):
        return text
    head = text.lstrip().split("\n", 1)[0].split(" ")[0]
    whole = head.startswith("%%") and head not in _PYTHON_CELLS
    lines = []
    for number, line in enumerate(text.split("\n")):
        special = whole or _ASSIGNED.match(line) or (_MAGIC.match(line) and not _in_string(text, number))
        indent = "" if whole else line[: len(line) - len(line.lstrip())]  # that of a shell script says nothing
        lines.append(f"{indent}pass{MASK}{line}" if special and (whole or line.strip()) else line)
    return "\n".join(lines)


def is_python(text: str) -> bool:
    return _error(text) is None


def _error(text: str) -> tuple[int, str] | None:
    """The line and the cause of a syntax error."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return getattr(error, "lineno", 0) or 0, getattr(error, "msg", str(error))
    return None


def _with_magic_first(new: str, old: str) -> str:
    """A cell's new text with the magic of the whole cell (``%%time``) on the first line, where alone it is one."""
    magic, lines = old.lstrip().partition("\n")[0], new.split("\n")
    magic = TIME if not magic.startswith("%%") and TIME in lines else magic
    if not magic.startswith("%%") or new.lstrip().startswith(magic) or magic not in lines:
        return new
    lines.remove(magic)
    return "\n".join([magic, *lines])


def _in_string(text: str, number: int) -> bool:
    """Whether a line is in a string of several lines, or continues a statement."""
    before = "\n".join(text.split("\n")[:number])
    return before.count('"""') % 2 == 1 or before.count("'''") % 2 == 1 or before.rstrip().endswith(("\\", "(", ","))


# JSON -----------------------------------------------------------------------------------------------------------------

Where = tuple[Any, ...]


def _spans(text: str) -> Iterator[tuple[Where, tuple[int, int]]]:
    """The position of each value three levels deep: the keys that lead to it, its start and its end. The text is valid
    JSON."""
    found: list[tuple[Where, tuple[int, int]]] = []

    def value(at: int, where: Where) -> int:
        at = _after_space(text, at)
        start = at
        if text[at] == '"':
            at = scanstring(text, at + 1)[1]
        elif text[at] in "[{":
            closing = "]" if text[at] == "[" else "}"
            at = _after_space(text, at + 1)
            index: Any = 0
            while text[at] != closing:
                key = index
                if closing == "}":
                    key, at = scanstring(text, at + 1)
                    at = _after_space(text, at) + 1
                at = _after_space(text, value(at, (*where, key)))
                if text[at] == ",":
                    at = _after_space(text, at + 1)
                index += 1
            at += 1
        else:
            said = _OTHER.match(text, at)
            assert said is not None
            at = said.end()
        if len(where) == 3:
            found.append((where, (start, at)))
        return at

    value(0, ())
    yield from found


def _after_space(text: str, at: int) -> int:
    said = _SPACE.match(text, at)
    return said.end() if said else at


def _written(old: str, new: str) -> str:
    """A new text in the format of the old one: a string or a list, with its indentation and escapes."""
    ascii_only = old.isascii()
    if old.startswith('"'):
        return json.dumps(new, ensure_ascii=ascii_only)
    strings = list(_strings(old))
    literals = {json.loads(old[start:end]): old[start:end] for start, end in strings}
    items = [literals.get(line) or json.dumps(line, ensure_ascii=ascii_only) for line in _at_feeds(new)]
    if not items:
        return "[]"
    opening, closing = (old[1 : strings[0][0]], old[strings[-1][1] : -1]) if strings else ("", "")
    between = old[strings[0][1] : strings[1][0]] if len(strings) > 1 else f",{opening}" if opening else ", "
    return f"[{opening}{between.join(items)}{closing}]"


def _at_feeds(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])


def _strings(old: str) -> Iterator[tuple[int, int]]:
    """The positions of the strings in a list."""
    at = old.find('"')
    while at >= 0:
        end = scanstring(old, at + 1)[1]
        yield at, end
        at = old.find('"', end)
