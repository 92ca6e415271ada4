"""The user's choices: ``[tool.torchlift]`` read raw, then made final and frozen for each file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, cast

PRECISIONS = ("no", "bf16", "fp16")


class Target(str, Enum):
    """Whose runtime the emitted code calls."""

    TORCHLIFT = "torchlift"
    ACCELERATE = "accelerate"


class Strategy(str, Enum):
    """How the processes of the job will keep the weights of models; findings say what would not work."""

    DDP = "ddp"
    FSDP = "fsdp"


DEVICES = ("tpu", "xla")
"""Whose steps are compiled: both name the same devices, by torch_xla."""


class Config(NamedTuple):
    """The settings for one file."""

    select: frozenset[str] | None = None
    """Rule ids to run; None means all."""
    ignore: frozenset[str] = frozenset()
    """Rule ids not to run."""
    target: Target = Target.TORCHLIFT
    mixed_precision: str | None = None
    """``no``, ``bf16`` or ``fp16`` as the emitted constructor's argument; None leaves it to the script."""
    keep_global_batch: bool = False
    """Emit ``split_batches=True``: the script's batch size is the global batch size."""
    assume: tuple[tuple[str, str], ...] = ()
    """(role, name) pairs that the user vouches for."""
    exclude: tuple[str, ...] = ()
    """Glob patterns of files that are never changed."""
    partial: bool = False
    """Apply the safe edits of a file although a finding blocks it."""
    tells: bool = False
    """Also report which values are equal on all processes, and what the processes do together."""
    strategy: Strategy = Strategy.DDP
    """With ``fsdp`` findings say what of the script does not work with sharded weights; the new code is the same."""
    device: str = ""
    """With ``tpu`` findings say what of each step makes a device wait, or compile anew, that compiles its steps."""
    launched: bool = False
    """One process starts the script, and the processes that train later: a notebook."""

    def enables(self, id: str) -> bool:
        """Whether a rule is to be run."""
        return id not in self.ignore and (self.select is None or id in self.select)


class ConfigError(Exception):
    """An invalid setting: where it is, what is wrong with it, and what would be right."""

    def __init__(self, where: str, cause: str, remedy: str = "") -> None:
        """``cause`` and ``remedy`` are sentences without their full stop."""
        super().__init__(where, cause, remedy)
        self.where = where
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        """One line: ``where: cause. remedy``."""
        return f"{self.where}: {self.cause}. {self.remedy}{'' if self.remedy[-1:] in '?' else '.'}".rstrip()


class RawConfig(NamedTuple):
    """Settings from one source, the project's file or the command line; None and empty mean not set."""

    file: Path | None = None
    """The ``pyproject.toml`` that holds the settings; its patterns are relative to its folder."""
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    assume: tuple[tuple[str, str], ...] = ()
    exclude: tuple[str, ...] = ()
    target: Target | None = None
    mixed_precision: str | None = None
    keep_global_batch: bool | None = None
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    partial: bool = False
    tells: bool = False
    strategy: Strategy | None = None
    device: str = ""

    def matches(self, pattern: str, path: Path) -> bool:
        """
        Whether a pattern names a file, or a folder above it.

        A pattern with a slash is relative to the folder of the configuration file, one without a slash matches a name
        at any depth. ``*`` crosses slashes.
        """
        root = self.file.parent if self.file else Path.cwd()
        relative = Path(os.path.relpath(os.path.abspath(path), root)).as_posix()  # noqa: PTH100 (links stay)
        parts = relative.split("/")
        if "/" not in pattern.strip("/"):
            return any(fnmatchcase(part, pattern.strip("/")) for part in parts)
        anchored = pattern.strip("/").removeprefix("./")
        return any(fnmatchcase("/".join(parts[:count]), anchored) for count in range(1, len(parts) + 1))

    def excludes(self, path: Path) -> bool:
        """Whether a file must never be changed."""
        return any(self.matches(pattern, path) for pattern in self.exclude)


def load(start: Path, seen: dict[str, RawConfig] | None = None) -> RawConfig:
    """
    Read ``[tool.torchlift]`` of the nearest ``pyproject.toml`` that has one, at or above the folder ``start``.

    ``seen`` remembers the answers for the folders on the way. Raises ``ConfigError`` for a file that is no TOML, an
    unknown key and a value of the wrong type.
    """
    seen = {} if seen is None else seen
    folder = os.path.abspath(start)  # noqa: PTH100 (once for each file of a run)
    way: list[str] = []
    raw = RawConfig()
    while folder not in seen:
        way.append(folder)
        if (found := _read(folder)) is not None:
            raw = found
            break
        folder, below = os.path.dirname(folder), folder  # noqa: PTH120
        if folder == below:
            break
    else:
        raw = seen[folder]
    seen.update(dict.fromkeys(way, raw))
    return raw


def final(raw: RawConfig, options: RawConfig, path: Path) -> Config:
    """Compute the settings of one file: the command line overrides the project, and lists of things to ignore are
    joined."""
    ignored = {id for pattern, ids in raw.per_file_ignores if raw.matches(pattern, path) for id in ids}
    select = raw.select if options.select is None else options.select
    keep = raw.keep_global_batch if options.keep_global_batch is None else options.keep_global_batch
    return Config(
        select=None if select is None else frozenset(select),
        ignore=frozenset((*raw.ignore, *options.ignore, *ignored)),
        target=options.target or raw.target or Target.TORCHLIFT,
        mixed_precision=options.mixed_precision or raw.mixed_precision,
        keep_global_batch=bool(keep),
        assume=(*raw.assume, *options.assume),
        exclude=(*raw.exclude, *options.exclude),
        partial=options.partial,
        tells=options.tells,
        strategy=options.strategy or raw.strategy or Strategy.DDP,
        device=options.device or raw.device,
    )


def check_rules(raw: RawConfig, known: Iterable[str]) -> None:
    """Raise ``ConfigError`` for a rule id that does not exist, with the nearest one that does."""
    choices = tuple(known)
    settings = {"select": raw.select or (), "ignore": raw.ignore}
    settings.update({f"per-file-ignores {pattern!r}": ids for pattern, ids in raw.per_file_ignores})
    for key, ids in settings.items():
        for id in ids:
            where = f"{raw.file}: [tool.torchlift] {key}" if raw.file else f"--{key}"
            check_word(where, "rule", id, choices, "`migrate --rules` lists the rules")


def check_word(where: str, kind: str, word: str, known: Iterable[str], otherwise: str) -> None:
    """Raise ``ConfigError`` for a word that is not known, with the nearest known one or else a general remedy."""
    choices = sorted(known)
    if word in choices:
        return
    from difflib import get_close_matches

    near = get_close_matches(word, choices, 1, 0.5) or get_close_matches(word.replace("-", "_"), choices, 1)
    raise ConfigError(where, f"there is no {kind} {word!r}", f"Did you mean {near[0]}?" if near else otherwise)


def assumption(where: str, text: str) -> tuple[str, str]:
    """Split ``ROLE=NAME``; ``ConfigError`` if it has another form."""
    role, equals, name = (part.strip() for part in text.partition("="))
    if not role or not equals or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(where, f"{text!r} is not ROLE=NAME", "Write for instance loss=err")
    return role, name


def _read(folder: str) -> RawConfig | None:
    """Read the table of one folder's ``pyproject.toml``; None if there is none."""
    file = os.path.join(folder, "pyproject.toml")  # noqa: PTH118
    try:
        with open(file, "rb") as stream:  # noqa: PTH123
            data = stream.read()
    except OSError:
        return None
    if b"torchlift" not in data:
        return None
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml  # type: ignore[import-not-found,unused-ignore]
    try:
        document = toml.loads(data.decode())
    except ValueError as error:
        raise ConfigError(file, f"is not TOML ({error})", "Correct it") from None
    table = document.get("tool", {}).get("torchlift")
    return None if table is None else _raw(Path(file), table)


def _raw(file: Path, table: Any) -> RawConfig:
    """Check the types of the table and convert it to settings."""
    check = _Check(file, table)
    precision, target = check.word("mixed-precision", PRECISIONS), check.word("target", [t.value for t in Target])
    strategy = check.word("strategy", [each.value for each in Strategy])
    device = check.word("device", DEVICES)
    ignores = cast("dict[str, Any]", check.value("per-file-ignores", dict, "a table of pattern = [rule ids]") or {})
    raw = RawConfig(
        file=file,
        select=check.words("select"),
        ignore=check.words("ignore") or (),
        assume=tuple(assumption(check.where("assume"), text) for text in check.words("assume") or ()),
        exclude=check.words("exclude") or (),
        target=None if target is None else Target(target),
        strategy=None if strategy is None else Strategy(strategy),
        device=device or "",
        mixed_precision=precision,
        keep_global_batch=cast("bool | None", check.value("keep-global-batch", bool, "true or false")),
        per_file_ignores=tuple((pattern, check.strings("per-file-ignores", ids)) for pattern, ids in ignores.items()),
    )
    for key in check.table:
        check_word(f"{file}: [tool.torchlift]", "setting", key, check.known, f"There are {', '.join(check.known)}")
    return raw


class _Check:
    """Reads one table, and remembers which keys are valid."""

    def __init__(self, file: Path, table: object) -> None:
        self.file = file
        self.known: list[str] = []
        if not isinstance(table, Mapping):
            raise ConfigError(f"{file}: tool.torchlift", "is not a table", "Write [tool.torchlift]")
        self.table = table

    def where(self, key: str) -> str:
        return f"{self.file}: [tool.torchlift] {key}"

    def value(self, key: str, kind: type, what: str) -> object:
        self.known.append(key)
        value = self.table.get(key)
        if value is not None and not isinstance(value, kind):
            raise ConfigError(self.where(key), f"{value!r} is not {what}", f"Make it {what}")
        return value

    def words(self, key: str) -> tuple[str, ...] | None:
        value = self.value(key, list, "a list of strings")
        return None if value is None else self.strings(key, value)

    def strings(self, key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(self.where(key), f"{value!r} is not a list of strings", "Make it a list of strings")
        return tuple(value)

    def word(self, key: str, choices: Iterable[str]) -> str | None:
        text = self.value(key, str, "a string")
        if text is not None:
            check_word(self.where(key), "choice", str(text), choices, f"There are {', '.join(choices)}")
        return None if text is None else str(text)
