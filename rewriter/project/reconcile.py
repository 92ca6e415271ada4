"""Several programs, one result for each file: a shared file must get the same text in all of them, or is refused."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..findings import Severity
from ..gate.prefilter import parse
from ..result import Diagnosis, FileResult, Result, Trait, without_repeats
from .changed_calls import ChangedCall, changed_calls, mentioned
from .entry_points import Map
from .import_graph import Program, absolute
from .joined_users import with_joined_users

_NOBODY = frozenset({"no-entry-point", "computed-import"})
"""What is said of a file that nobody is seen to start."""


def idle(program: Program, result: Result, silent: bool) -> bool:
    """Whether a program needs no change: its script does not train, even if its modules could. ``silent``: a file that
    nobody starts needs no change either."""
    told = {(file.source.path, diagnosis.id) for file in result.files for diagnosis in file.diagnoses}
    if result.changed or any(id not in _NOBODY for _, id in told):
        return False
    if silent or not told:
        return True
    if any(id == "computed-import" for _, id in told):
        return False
    own = program.entry in {path for path, _ in told}
    return not own and (program.entry.suffix == ".ipynb" or _starts(program.files[0].data))


def _starts(data: bytes) -> bool:
    """Whether a file does something when it is run: more than imports, definitions and assignments."""
    try:
        body = parse(data).body
    except (SyntaxError, ValueError, RecursionError):
        return True
    named = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    texts = [node for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return any(not isinstance(node, named) for node in body if node not in texts)


def merged(results: Sequence[tuple[Program, Result]], map: Map, *, every: bool) -> list[FileResult]:
    """One result for each file. ``every``: also for files that stay unchanged and have no findings."""
    found: dict[Path, tuple[Program, FileResult]] = {}
    clashes: dict[Path, tuple[Program, Program]] = {}
    differing: dict[Path, Difference] = {}
    changing: set[Path] = set()
    for program, result in results:
        missing = _missing(program)
        for file in result.files:
            told = (*file.diagnoses, *(d for path, d in missing if path == file.source.path))
            blocked = any(d.severity is Severity.BLOCKED for _, d in missing)
            file = file._replace(diagnoses=told)
            if blocked:
                file = file._replace(after=file.source.data, changes=())
            key = absolute(file.source.path)
            if file.changed:
                changing.add(key)
            first, known = found.setdefault(key, (program, file))
            if known is file:
                continue
            both = together(known, file)
            if both is None:
                clashes[key] = (first, program)
                differing.setdefault(key, _differing(known, file))
            else:
                found[key] = (first, both)
    left = _left(results, clashes, changing)
    pair = {absolute(program.entry) for both in clashes.values() for program in both}
    entry = {absolute(program.entry) for program, _ in results} - pair
    files = [
        _kept(file, clashes.get(key), left.get(key), key in entry, differing.get(left.get(key, key)))
        for key, (_, file) in found.items()
    ]
    files = _tested(files, [(p, r) for p, r in results if absolute(p.entry) not in left], map)
    files = with_joined_users(files, {absolute(path) for program, _ in results for path in program.paths}, map)
    entries = {program.entry for program, _ in results}
    shown = [f for f in files if every or f.changed or f.diagnoses or f.source.path in entries]
    return _with_traits(shown, results)


def _with_traits(shown: list[FileResult], results: Sequence[tuple[Program, Result]]) -> list[FileResult]:
    """The files of which something is said, those that start a changed program with what the other files do differently
    on each process: a model in a module that stays as it is."""
    paths = {file.source.path: file for file in shown}
    more: dict[Path, dict[Trait, None]] = {}
    for program, result in results:
        silent = [file for file in result.files if file.source.path not in paths]
        if program.entry in paths and any(paths[f.source.path].changed for f in result.files if f not in silent):
            found = (trait._replace(line=0) for file in silent for trait in file.traits if trait.kind in _BY_NATURE)
            more.setdefault(program.entry, {}).update(dict.fromkeys(found))
    return [f._replace(traits=(*f.traits, *more[f.source.path])) if f.source.path in more else f for f in shown]


_BY_NATURE = ("statistics", "noise", "anew", "transforms", "alike", "reseeded")


def together(one: FileResult, other: FileResult) -> FileResult | None:
    """The result of two programs for a shared file; None if one changes code that the other runs unchanged."""
    diagnoses = without_repeats((*one.diagnoses, *other.diagnoses))
    changes = tuple(sorted(dict.fromkeys((*one.changes, *other.changes)), key=lambda c: (c.line, c.column)))
    idle = tuple(line for line in one.idle if line in other.idle)
    after = one.after if one.after == other.after else _united(one, other)
    if after is None:
        return None
    traits = tuple(sorted(dict.fromkeys((*one.traits, *other.traits)), key=lambda trait: trait.line))
    return one._replace(after=after, changes=changes, diagnoses=diagnoses, traits=traits, idle=idle)


_Hunk = tuple[int, int, tuple[bytes, ...]]
"""First line, end line, and the new lines between them."""


class Difference(NamedTuple):
    """Where two programs need different texts of a file."""

    line: int
    texts: tuple[str | None, str | None]
    """What the line becomes for each of them; None where it stays."""


def _differing(one: FileResult, other: FileResult) -> Difference:
    """The first line that two programs need to be different."""
    base = one.source.data.split(b"\n")
    own, foreign = (_hunks(base, file.after.split(b"\n")) for file in (one, other))
    imports = (b"from ", b"import ")
    apart = [hunk for hunk in {*own, *foreign} if not (hunk in own and hunk in foreign)]
    telling = [hunk for hunk in apart if not any(line.startswith(imports) for line in hunk[2])] or apart
    start, end, _ = min(telling, key=lambda hunk: hunk[:2])

    def text(hunks: Sequence[_Hunk]) -> str | None:
        lines = next((new for a, b, new in hunks if a == start or (a < end and start < b)), None)
        if lines is None:
            return None
        telling = [line.decode(errors="replace").strip() for line in lines if line.strip() and line not in base]
        return telling[0] if telling else ""

    line = start + 1
    while line < len(base) and not base[line - 1].strip():  # an insertion is before the next code
        line += 1
    return Difference(line, (text(own), text(foreign)))


def _united(one: FileResult, other: FileResult) -> bytes | None:
    """The text with the edits of two programs, if the edits of only one are in functions that the other never runs."""
    base = one.source.data.split(b"\n")
    hunks: dict[_Hunk, None] = {}
    for mine, yours in ((one, other), (other, one)):
        own, foreign = _hunks(base, mine.after.split(b"\n")), set(_hunks(base, yours.after.split(b"\n")))
        resting = _lines_of(base, yours)
        for hunk in own:
            lines = set(range(hunk[0] + 1, max(hunk[1], hunk[0] + 1) + 1))
            imports = hunk[0] == hunk[1] and all(line.startswith((b"from ", b"import ")) for line in hunk[2])
            if hunk not in foreign and not lines <= resting and not imports:
                return None
            hunks[hunk] = None
    text = list(base)
    for begin, end, lines_new in sorted(hunks, reverse=True):
        text[begin:end] = lines_new
    return b"\n".join(text)


def _hunks(base: list[bytes], after: list[bytes]) -> list[_Hunk]:
    from difflib import SequenceMatcher

    codes = SequenceMatcher(None, base, after, autojunk=False).get_opcodes()
    return [(a, b, tuple(after[c:d])) for tag, a, b, c, d in codes if tag != "equal"]


def _lines_of(base: list[bytes], file: FileResult) -> set[int]:
    """The lines of the functions, and of what starts a module, that a program does not run."""
    found: set[int] = set()
    for node in ast.walk(parse(b"\n".join(base))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.If)) and node.lineno in file.idle:
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _missing(program: Program) -> list[tuple[Path, Diagnosis]]:
    """Imports that could not be followed, or not for certain."""
    found = [
        (
            m.path,
            Diagnosis(
                "missing-module",
                Severity.BLOCKED,
                f"this file imports {m.module}, which does not exist",
                "restore it, or migrate this file alone: --no-follow",
                m.line,
                1,
            ),
        )
        for m in program.missing
    ]
    found += [
        (
            d.path,
            Diagnosis(
                "ambiguous-module",
                Severity.REVIEW,
                f"{d.module} may be {d.taken} or {d.other}; the first is used, as python {program.entry} does",
                "give the two files different names",
                d.line,
                1,
            ),
        )
        for d in program.doubled
    ]
    return found


def _left(
    results: Sequence[tuple[Program, Result]],
    clashes: dict[Path, tuple[Program, Program]],
    changing: set[Path],
) -> dict[Path, Path]:
    """
    The files of the programs that stay unchanged because of a conflict, each with the file that two programs need
    differently. A program that shares a changing file with one of them stays unchanged, too; all others are migrated.
    """
    held = {program.entry: path for path, pair in clashes.items() for program in pair}
    files = {program.entry: {absolute(file.source.path) for file in result.files} for program, result in results}
    pending = list(held)
    while pending:
        entry = pending.pop()
        for other, used in files.items():
            if other not in held and not changing.isdisjoint(used & files[entry]):
                held[other] = held[entry]
                pending.append(other)
    return {path: clash for entry, clash in held.items() for path in files[entry]}


def _kept(
    file: FileResult,
    clash: tuple[Program, Program] | None,
    cause: Path | None,
    drawn: bool,
    difference: Difference | None = None,
) -> FileResult:
    """
    The unchanged result of a file because two programs need different texts of ``cause``.

    ``drawn``: it starts a third program, which shares files with these two. ``difference``: what they need.
    """
    if cause is None:
        return file
    line = 0
    if clash is not None:
        one, other = (os.path.relpath(program.entry) for program in clash)
        message = f"{one} and {other} both use this file, and each needs a different text"
        remedy = f"give each of {one} and {other} a function of its own here"
        if difference is not None:
            line = difference.line
            parts = zip((one, other), difference.texts, strict=True)
            message += f": {', '.join(f'for {name} {_becomes(text)}' for name, text in parts)}"
    elif file.changed and drawn:
        where = f"{os.path.relpath(cause)}{f':{difference.line}' if difference is not None else ''}"
        message = f"this program shares files with one that is left unchanged because of {where}"
        remedy = f"mend {where} first"
    else:
        return file._replace(after=file.source.data, changes=())
    finding = Diagnosis("shared-module", Severity.BLOCKED, message, remedy, line, int(line > 0))
    return file._replace(after=file.source.data, changes=(), diagnoses=(*file.diagnoses, finding))


def _becomes(text: str | None) -> str:
    if text is None:
        return "this line stays"
    return f"it becomes `{text}`" if text else "it goes"


def _tested(files: list[FileResult], results: Iterable[tuple[Program, Result]], map: Map) -> list[FileResult]:
    """The files, with a finding for each whose functions a test calls in a way that no longer fits."""
    several = [program for program, _ in results if len(program.files) > 1]
    changed = {absolute(f.source.path): f for f in files if f.changed and f.source.notebook is None}
    calls = {path: changed_calls(file.source.data, file.after) for path, file in changed.items()} if several else {}
    calls = {path: found for path, found in calls.items() if found}
    if not calls:
        return files
    users: dict[Path, tuple[Path, list[ChangedCall]]] = {}
    for test, modules in map.testers(calls, several[0]).items():
        used = mentioned(map.library.data(test))
        for module in modules:
            told = [call for call in calls[module] if call.name in used]
            if told:
                users.setdefault(module, (test, told))
    return [_noted(file, *users.get(absolute(file.source.path), (None, []))) for file in files]


def _noted(file: FileResult, test: Path | None, calls: Sequence[ChangedCall]) -> FileResult:
    if test is None:
        return file
    now = [f"`{call.name}({call.now})`" if call.now else f"no `{call.name}` any more" for call in calls]
    finding = Diagnosis(
        "tested-module",
        Severity.REVIEW,
        f"{os.path.relpath(test)} uses what has changed in this file: it now has {', '.join(now)}",
        f"run {os.path.relpath(test)}, and update its calls",
    )
    return file._replace(diagnoses=(*file.diagnoses, finding))
