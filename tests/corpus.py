"""
Run the engine over every Python file of large, foreign packages, and print the counts: `make corpus`.

With the gate switched off each file is parsed, analysed and asked all rules; then names are replaced and statements
inserted at random places. Nothing may crash, the output must be valid Python, and every byte outside the edited spans
must be as it was. With the gate on, no file without training may change.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import random
import sys
import sysconfig
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.analysis.syntax.names import Names
from torchlift.rewriter.analysis.syntax.resolving import resolve
from torchlift.rewriter.config import Config
from torchlift.rewriter.editing.apply import apply
from torchlift.rewriter.editing.edits import Edit, InsertAfter, InsertBefore, Replace
from torchlift.rewriter.editing.positions import start
from torchlift.rewriter.gate.prefilter import trains
from torchlift.rewriter.pipeline import Tree, migrate, parse
from torchlift.rewriter.source import Source, SourceError, read

PACKAGES = ("torch", "sklearn", "libcst")
NAMES_A_FILE = 5


def files(packages: list[str]) -> Iterator[Path]:
    """The Python files of installed packages, and of CPython's own test suite where it is installed."""
    for package in packages:
        found = importlib.util.find_spec(package)
        if found is not None and found.submodule_search_locations:
            for folder in found.submodule_search_locations:
                yield from sorted(Path(folder).rglob("*.py"))
    yield from sorted((Path(sysconfig.get_path("stdlib")) / "test").rglob("*.py"))


def outcome(path: Path, chance: random.Random) -> str:
    """What became of one file, as a word; an AssertionError where a promise does not hold."""
    try:
        source = read(path)
    except SourceError as error:
        return f"unreadable: {error.cause.split('(')[0].strip()}"
    works = trains(source.data)
    try:
        result = migrate([source], CATALOGUE, Config(partial=True))
        tree = parse(source)
    except SourceError:
        return "not valid Python"
    except RecursionError:
        return "nests too deeply"
    (file,) = result.files
    if not works:
        assert not file.changed, "a file without training was changed"
    if tree is None:
        assert any(d.id == "round-trip" for d in file.diagnoses)
        return "no round trip (a finding)"
    if any(d.id == "too-deep" for d in file.diagnoses):
        return "nests too deeply (a finding)"
    names = resolve(tree.module)
    _replace_names(source, tree, names, chance)
    _insert_statements(source, tree, names, chance)
    return "trains: " + ("changed" if file.changed else "left alone") if works else "edited by force"


def _replace_names(source: Source, tree: Tree, names: Names, chance: random.Random) -> None:
    """Replace single names; the text must be the original with just these characters exchanged."""
    found = [n for n in names.within if isinstance(n, cst.Name) and start(tree.starts, n) != (0, 0)]
    for node in chance.sample(found, min(NAMES_A_FILE, len(found))):
        edit = Replace("corpus", node, lambda n: n.with_changes(value="torchlift_here"), reason="")
        after, _, findings = apply(tree.module, names.parents, [edit])
        assert not findings
        expected = _exchanged(source.text, tree.starts[node], node, "torchlift_here")
        assert tree.written(after.code) == expected, (
            f"bytes outside the edited span changed, line {tree.starts[node][0]}"
        )


def _exchanged(text: str, place: tuple[int, int], node: cst.Name, new: str) -> str:
    lines = text.replace("\r\n", "\n\0").replace("\r", "\n\1").split("\n")
    offset = sum(len(line) + 1 for line in lines[: place[0] - 1])
    joined = "\n".join(lines)
    column = place[1] - 1
    if place[0] > 1 and lines[place[0] - 1][:1] in ("\0", "\1"):
        column += 1
    at = joined.index(node.value, offset + column)
    joined = joined[:at] + new + joined[at + len(node.value) :]
    return joined.replace("\n\0", "\r\n").replace("\n\1", "\r")


def _insert_statements(source: Source, tree: Tree, names: Names, chance: random.Random) -> None:
    """Insert statements before and behind others; the result must be valid Python with that many more."""
    lines = [n for n in names.parents if isinstance(n, cst.SimpleStatementLine)]
    chosen = [n for n in chance.sample(lines, min(NAMES_A_FILE, len(lines))) if not _is_header(n)]
    edits: list[Edit] = [InsertBefore("corpus", n, "torchlift_here = 1", reason="") for n in chosen]
    edits += [InsertAfter("corpus", n, "torchlift_here = f(\n    1\n)", reason="") for n in chosen]
    after, _, _ = apply(tree.module, names.parents, edits)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source.text)
    except (SyntaxError, ValueError):
        return  # LibCST reads more than this Python does
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(after.code)


def _is_header(node: cst.SimpleStatementLine) -> bool:
    """Whether a statement must come first: a ``from __future__`` import, or a docstring before one."""
    return any(isinstance(s, (cst.ImportFrom, cst.Expr)) for s in node.body)


def main() -> int:
    """Run over the corpus; exit status 1 where a promise did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", default=list(PACKAGES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="take every n-th file only")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    broken = 0
    began = time.time()
    for number, path in enumerate(files(arguments.packages)):
        if number % arguments.every:
            continue
        try:
            counts[outcome(path, random.Random(f"{arguments.seed}{path.name}"))] += 1
        except Exception:  # noqa: BLE001 (whatever escapes is what this program looks for)
            broken += 1
            print(f"\n{path}", file=sys.stderr)
            traceback.print_exc(limit=-3)
    print(f"{sum(counts.values()) + broken} files in {time.time() - began:.0f} s")
    for word, count in counts.most_common():
        print(f"{count:7}  {word}")
    print(f"{broken:7}  BROKEN")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
