"""
Options of the command line that nothing reads after the migration: `--backend`, if it chose the device.

They stay, because people's shell scripts pass them. A finding says that they no longer have an effect.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from ..findings import Severity
from ..result import Diagnosis, FileResult

_OF_GPUS = re.compile(r"gpus?\b|gpu[-_]?ids?\b|world[-_]size|n[-_]?gpu|device[-_]ids", re.IGNORECASE)
"""Options that say how many GPUs there are, or which ones."""


def with_unread_options(files: Sequence[FileResult]) -> tuple[FileResult, ...]:
    """The files of a program, with a finding at each option that the original reads and the new text does not."""
    if not _might_be(files):
        return tuple(files)
    before = [_parsed(file.source.data) for file in files]
    after = [_parsed(file.after) if file.changed else tree for file, tree in zip(files, before, strict=True)]
    lost = _reads(before) - _reads(after)
    found = []
    for file, tree in zip(files, before, strict=True):
        told = [_told(call, option) for call, option, name in _options(tree) if name in lost]
        diagnoses = sorted((*file.diagnoses, *told), key=lambda d: (d.line, d.column))
        found.append(file._replace(diagnoses=tuple(diagnoses)) if told else file)
    return tuple(found)


def _might_be(files: Sequence[FileResult]) -> bool:
    """Whether the words of the text leave the question open: a cheap check, as most migrations change no option."""
    if not any(file.changed for file in files) or not any(b"add_argument" in file.source.data for file in files):
        return False
    lost = _words(file.source.data for file in files) - _words(file.after for file in files)
    added = (
        text for file in files for text in re.findall(rb"add_argument\(([^)]*)|dest\s*=([^,)]*)", file.source.data)
    )
    named = {word for pair in added for part in pair for word in re.findall(rb"""["']-*([\w-]+)["']""", part)}
    return not lost.isdisjoint(word.replace(b"-", b"_") for word in named)


def _words(texts: Iterable[bytes]) -> set[bytes]:
    """The words after a dot that are not set there, and the words in quotes that do not name an option."""
    word = rb"""(?<!accelerator)\.\s*(\w+)\b(?!\s*=[^=])|(?<!dest=)(?<!dest= )["'](\w+)["']"""
    return {b"".join(found) for text in texts for found in re.findall(word, text)}


def _parsed(data: bytes) -> ast.Module:
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):  # reported elsewhere, if it is our fault
        return ast.Module([], [])


def _reads(trees: Sequence[ast.Module]) -> set[str]:
    """The names that may read an option: attributes that are read, and strings (``vars(args)["backend"]``)."""
    found = set()
    for tree in trees:
        named: set[int] = set()
        for node in ast.walk(tree):  # from the outside in: a call comes before its arguments
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                base = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
                if base != "accelerator":  # ``accelerator.device`` reads no ``--device``
                    found.add(node.attr)
            elif isinstance(node, ast.Call):
                named.update(id(k.value) for k in node.keywords if k.arg == "dest")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in named:
                found.add(node.value)
    return found


def _options(tree: ast.Module) -> Iterator[tuple[ast.Call, str, str]]:
    """The calls that add an option, each with the option and the attribute that holds its value."""
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        ):
            continue
        words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        given = [k.value.value for k in node.keywords if k.arg == "dest" and isinstance(k.value, ast.Constant)]
        if words:
            option = next((word for word in words if word.startswith("--")), words[0])
            yield node, option, str(given[0]) if given else option.lstrip("-").replace("-", "_")


def _told(call: ast.Call, option: str) -> Diagnosis:
    return Diagnosis(
        "unread-option",
        Severity.REVIEW,
        f"{option} is still accepted, but nothing reads it any more: the accelerator or the launcher now decides this",
        "remove it: torchlift launch --num-processes says how many GPUs there are, CUDA_VISIBLE_DEVICES which ones"
        if _OF_GPUS.search(option)
        else "pass it to the accelerator (cpu=..., mixed_precision=...) or to torchlift launch, or remove it",
        call.lineno,
        call.col_offset + 1,
    )
