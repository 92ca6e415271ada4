"""
What people read says what it means: no private words in findings, errors, help texts and pages.

The list below is what readers stumbled over. Texts are found in the syntax trees of the product: every string of three
words or more that is no docstring (messages are put together in variables and helpers, so that the arguments of
``Finding``, ``raise`` and ``help=`` alone would miss most of them), and the docstrings of the rules, which are pages.
Docstrings and comments are read as well: the next person who works on the product reads them first.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.xdist_group("words")  # one worker reads the product

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("rewriter", "codemods", "runtime")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
)
WORDS = 3
"""Shorter strings are names, not sentences."""

NOT_BUT = {
    r"left for you\b": "No action needed; 2 findings",
    r"\bwhat I (?:would do|did)\b": "Proposed changes; Changes",
    # Both are places and times in turn ("behind prepare(...)", "behind a flag"): after and before leave no doubt.
    r"\bbehind\b": "after",
    r"\bin front of\b": "before",
    # What stands out, or stands for something, is said so in any English.
    r"\bstands?\b(?! out\b| for\b|-)": "is",
    r"\bhang(?:s|ing)? on\b(?! (?:exit|the)\b)": "depends on",
    r"\bis (?:told|minded)\b": "is reported; is honoured",
    r"\bin vain\b": "for nothing; hangs",
    r"\bwithout a hand\b|\byour hand\b": "needs a manual change first",
    r"\bmakes of (?:it|the|X)\b": "the result on",
    r"\bdraws? this for itself\b": "this random split runs before seeds are synchronised",
    r"\bthat (?:is|are) there\b(?! (?:already|yet))": "name what it is",
    r"\bonce is meant\b|\bone is meant\b": "runs on every process but should run once",
    r"\b(?:have|has|had) parted\b|\bcollective number\b|\bthey part\b": "collective mismatch at call 7",
    r"\b(?:a|its|the|their|own|process's|no|one|short|of|uneven|each|this|whole) shares?\b": "shard",
    r"\bmay be quicker\b": "another process may create it first",
    r"\bmade of it\b": "computed from it",
    r"\bShow it\.": "Show the version and exit.",
}
"""What a text must not say, and what it says in its place."""
FOUND = {re.compile(pattern, re.IGNORECASE): better for pattern, better in NOT_BUT.items()}


class Words(NamedTuple):
    """A text that people read, and where it is."""

    place: str
    text: str


def complaints(words: Words) -> list[str]:
    """What to say instead, for each private word of a text."""
    flat = " ".join(words.text.split())
    return [
        f"{words.place}: {flat[max(0, match.start() - 40) : match.end() + 30]!r} - say: {better}"
        for pattern, better in FOUND.items()
        for match in pattern.finditer(flat)
    ]


def strings(path: Path) -> Iterator[Words]:
    """The sentences of a file of the product: strings that are no docstrings; of an f-string what is written out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = path.relative_to(ROOT).as_posix()
    inner: set[ast.AST] = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            inner.update(part for part in ast.walk(node) if part is not node)
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
            text = node.value
        if isinstance(node, ast.expr) and len(text.split()) >= WORDS and node not in inner:
            yield Words(f"{name}:{node.lineno}", text)


def notes(path: Path) -> Iterator[Words]:
    """The docstrings (also those below a field or a constant) and comments of a file, without the code in them."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.append((node.lineno, node.value.value))
    # The lines of one comment are read as one text: a phrase may go on in the next line.
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, words = token.start[0], token.string.lstrip("#")
            alone = token.line.lstrip().startswith("#")
            if alone and last == line - 1:
                start, before = found.pop()
                found.append((start, f"{before} {words}"))
            else:
                found.append((line, words))
            last = line if alone else 0
    for line, words in found:
        yield Words(f"{name}:{line}", re.sub(r"``.+?``|`[^`]+`", "`...`", words, flags=re.DOTALL))


def rules() -> Iterator[Words]:
    """The docstrings of the rules, without the programs in them."""
    for path in sorted((ROOT / "codemods").glob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        prose = "\n".join(line for line in doc.split("\n") if not line.startswith("    "))
        yield Words(f"codemods/{path.name}", prose)


def pages() -> Iterator[Words]:
    """The paragraphs of the pages, without code; of the changelog what is not released yet."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        if page == "CHANGELOG.md":
            text = text.split("## [Unreleased]")[1].split("\n## ")[0]
        text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        for paragraph in re.split(r"\n\s*\n", re.sub(r"`[^`\n]*`", "`...`", text)):
            yield Words(page, paragraph)


@functools.cache
def product() -> list[Words]:
    """All sentences of the product."""
    paths = (path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py")))
    return [words for path in paths for words in strings(path)]


def test_what_the_commands_and_the_runtime_say() -> None:
    found = [line for words in product() for line in complaints(words)]
    assert not found, "\n".join(found)


def test_what_docstrings_and_comments_say() -> None:
    paths = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [line for path in paths for words in notes(path) for line in complaints(words)]
    assert not found, "\n".join(found)


def test_what_the_rules_say_of_themselves() -> None:
    found = [line for words in rules() for line in complaints(words)]
    assert not found, "\n".join(found)


def test_what_the_pages_say() -> None:
    found = [line for words in pages() for line in complaints(words)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "Nothing is left for you",
        "2 things left for you",
        "What I would do",
        "computed behind prepare(...)",
        "in front of all code that needs it",
        "the verdict stands above",
        "control flow may hang on it",
        "a decision that hangs on a value",
        "what is told is not minded",
        "processes that wait in vain",
        "the script would be wrong without a hand",
        "What it makes of the classic MNIST example",
        "every process draws this for itself",
        "on a GPU it would meet batches and weights that are there",
        "done by every process, where once is meant",
        "follows a value of one process's own share of the data",
        "the processes have parted at their collective number 7",
        "Each process has its share of the batch",
        "another process may be quicker",
        "horizons that are made of it follow",
        "Show it.",
    ],
)
def test_a_private_word_is_found(sentence: str) -> None:
    assert complaints(Words("here", sentence)), sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "the words that differ stand out",
        "a stand-in for the package",
        "programs that share a file",
        "guard it by hand",
        "the processes would hang",
        "each rank would see its own val_score",
        "this random split runs before seeds are synchronised: ranks would split differently",
    ],
)
def test_plain_words_are_not(sentence: str) -> None:
    assert not complaints(Words("here", sentence))


def test_docstrings_and_comments_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of modules, functions and fields, beside code and on several lines; code in them and strings are left out."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(
        '"""Of the module, ``behind`` it."""\n'
        "x = 1  # beside code\n"
        '"""Of the constant."""\n'
        "y = 2  # beside more code\n"
        "# in one line,\n"
        "# and the next\n"
        "def f() -> str:\n"
        '    """Of the function,\n    in two lines."""\n'
        '    return "# no comment at all"\n'
    )
    assert {(words.place, " ".join(words.text.split())) for words in notes(path)} == {
        ("module.py:1", "Of the module, `...` it."),
        ("module.py:2", "beside code"),
        ("module.py:3", "Of the constant."),
        ("module.py:4", "beside more code"),
        ("module.py:5", "in one line, and the next"),
        ("module.py:8", "Of the function, in two lines."),
    }


def test_the_texts_are_found() -> None:
    """A finding, an error, a help text, a reason of an edit, and a text that is put together."""
    texts = " | ".join(" ".join(words.text.split()) for words in product())
    for sentence in (
        "runs before seeds are synchronised: every rank draws other numbers",
        "there is no Accelerator yet: create one first.",
        "Show the version and exit.",
        "another process may create the folder first",
        "collective mismatch at call ...: rank 0 is in",
        "which each process computes from its own shard of the data",
    ):
        assert sentence in texts, sentence
    assert len(list(rules())) > 20
    assert {words.place for words in pages()} == set(PAGES)
