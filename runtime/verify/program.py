"""What a program is made of: its text, the modules of its own that it imports, and how it is started."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from .request import Script

_MOST_FILES = 300
_MAGIC = re.compile(r"^(\s*)(?:[%!]\w|\?).*")
_CELL = re.compile(r":cell \d+$")
_PLACE = re.compile(r"(.+?)(?::cell (\d+), line |:)(\d+)")
_KEPT_CELLS = ("%%time", "%%timeit", "%%capture")
"""Magic words above a cell that python code follows."""


def text_of(program: Script, path: Path | None = None) -> bytes:
    """What a file of the program holds; by default the script. Nothing when there is no such file."""
    wanted = path or program.script
    name = os.path.relpath(wanted, program.folder)
    if name in program.texts:
        return program.texts[name]
    try:
        return wanted.read_bytes()
    except OSError:
        return b""


def place_of(name: str, line: int) -> str:
    """A line of a file, or of a cell that `cell_name` has named: "train.py:12", "train.ipynb:cell 3, line 12"."""
    return f"{name}{', line ' if _CELL.search(name) else ':'}{line}"


def cell_name(path: str, number: int) -> str:
    """The name of a cell's code: its number counts all cells, as the reports of a migration do."""
    return f"{path}:cell {number}"


def lines_of(program: Script, place: str) -> tuple[list[str], int]:
    """The lines of the file, or of the cell, that a place is in, and its number there; (none, 0) where there is no such
    place."""
    found = _PLACE.fullmatch(place)
    if found is None:
        return [], 0
    data = text_of(program, program.folder / found[1])
    text = dict(numbered_cells(data)).get(int(found[2]), "") if found[2] else data.decode(errors="replace")
    return text.splitlines(), int(found[3])


def line_of(program: Script, place: str) -> str:
    """What the line of a place says; empty where there is none."""
    lines, number = lines_of(program, place)
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def own_files(program: Script) -> dict[Path, bytes]:
    """The script and the modules beside and below it that it imports, directly or not, with their contents."""
    roots = list(dict.fromkeys((program.script.parent, root_of(program)[0], program.folder)))
    found: dict[Path, bytes] = {}
    waiting = [program.script]
    while waiting and len(found) < _MOST_FILES:
        path = waiting.pop()
        if path not in found:
            found[path] = text_of(program, path)
            waiting += [module for module in _imported(program, path, found[path], roots) if module not in found]
    return found


def imported_names(data: bytes) -> list[str]:
    """Dotted names of all that a text imports; relative ones begin with dots."""
    try:
        tree = ast.parse(source_of(data))
    except (SyntaxError, ValueError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found += [base, *(f"{base}{'' if base.endswith('.') else '.'}{alias.name}" for alias in node.names)]
    return found


def _imported(program: Script, path: Path, data: bytes, roots: list[Path]) -> Iterator[Path]:
    for name in imported_names(data):
        bare = name.lstrip(".")
        level = len(name) - len(bare)
        places = [path.parents[min(level, len(path.parents)) - 1]] if level else roots
        parts = [part for part in bare.split(".") if part]
        for place in places:
            for candidate in (place.joinpath(*parts, "__init__.py"), place.joinpath(*parts).with_suffix(".py")):
                if parts and (os.path.relpath(candidate, program.folder) in program.texts or candidate.is_file()):
                    yield candidate


def root_of(program: Script) -> tuple[Path, str | None]:
    """
    The folder that imports begin at, and the module's dotted name if the script is started as one.

    A script that imports relatively, or by the name of the package that it is in, runs only as
    `python -m package.module` from the folder above the package.
    """
    script = program.script
    names = imported_names(text_of(program))
    levels = [len(name) - len(name.lstrip(".")) for name in names if name.startswith(".")]
    top = script.parent
    if levels:
        top = script.parents[min(max(levels), len(script.parents)) - 1]
        while (top.parent / "__init__.py").is_file() and (top / "__init__.py").is_file():
            top = top.parent
    else:
        wanted = {name.partition(".")[0] for name in names}
        beside = {entry for entry in wanted if _stands_in(script.parent, entry)}
        packages = [
            folder
            for folder in script.parents[:-1]
            if folder.name in wanted - beside and (program.folder in folder.parents or folder == program.folder)
        ]
        if not packages:
            return script.parent, None
        top = packages[-1]
    parts = script.relative_to(top.parent).with_suffix("").parts
    if not all(part.isidentifier() for part in parts):
        return script.parent, None
    return top.parent, ".".join(parts)


def _stands_in(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").exists() or (folder / name).is_dir()


def source_of(data: bytes) -> bytes | str:
    """Python text: of a notebook, that of its code cells."""
    if data.lstrip().startswith(b"{") and b'"cells"' in data:
        return "\n".join(cells_of(data))
    return data


def cells_of(data: bytes) -> list[str]:
    """The code cells of a notebook, in order; see `numbered_cells`."""
    return [text for _, text in numbered_cells(data)]


def numbered_cells(data: bytes) -> list[tuple[int, str]]:
    """
    The code cells of a notebook, each with its number among all cells; lines that only a notebook understands do
    nothing.

    Raises:
        ValueError: it is no notebook.
    """
    found = json.loads(data)
    if not isinstance(found, dict) or not isinstance(found.get("cells"), list):
        raise ValueError("this is not a notebook")
    return [
        (number, _plain("".join(cell.get("source", ""))))
        for number, cell in enumerate(found["cells"], 1)
        if cell.get("cell_type") == "code"
    ]


def _plain(text: str) -> str:
    """A cell as python reads it: what it cannot read because it is meant for the notebook does nothing."""
    try:
        ast.parse(text)
    except SyntaxError:
        head, _, rest = text.lstrip().partition("\n")
        if head.startswith("%%"):
            return f"pass\n{_plain(rest)}" if head.split()[0] in _KEPT_CELLS else "pass\n"
        return "\n".join(_MAGIC.sub(r"\1pass", line) for line in text.split("\n")) + "\n"
    return text
