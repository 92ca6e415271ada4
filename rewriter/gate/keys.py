"""
What a verdict depends on, as a digest. The cache does not notice changes of anything that is not included here.

Included are the code that judges (the rewriter and every rule, the tables of operations that other packages add, the
versions of libcst and of Python) and what is judged (the files of a program as they are now, how they import each
other, who else uses them, and their settings). The files are searched again on each run, so a module that appears,
disappears or moves is noticed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from ..config import Config
from ..facts.module_paths import ModulePaths, Place
from ..facts.torch_api.installed import installed_tables
from ..rule import Entry
from ..source import Source

_CODE = (".py", ".so", ".pyd")
_REWRITER = "torchlift.rewriter"


class UnknownVersion(Exception):
    """The version of a judging package cannot be determined, so no verdict may be kept."""


def digest(value: object) -> str:
    """The digest of a value that consists of tuples, strings, bytes, numbers and None."""
    return blake2b(ascii(value).encode(), digest_size=20).hexdigest()


def judge(catalogue: Sequence[Entry]) -> str:
    """The digest of all code that affects a verdict. Raises ``UnknownVersion``."""
    tables = installed_tables()
    modules = (*(entry.module for entry in catalogue), *(table.module for table in tables))
    packages = {_REWRITER, *map(_package, modules)}
    rules = tuple((entry.id, entry.module) for entry in catalogue)
    try:
        code = tuple((name, tuple(_code(name))) for name in sorted(packages))
        return digest((sys.version, _version_of_libcst(), rules, tuple(map(tuple, tables)), code))
    except OSError as error:
        raise UnknownVersion(f"{error.filename} cannot be read ({error.strerror})") from error


def subject(
    sources: Sequence[Source], layout: ModulePaths, settings: Mapping[Path, Config], notebook: bytes | None = None
) -> str:
    """The digest of a program and its settings; ``notebook`` is the notebook's file if its first source is made from
    cells."""
    files = tuple((os.fspath(source.path), source.data, _settings(settings[source.path])) for source in sources)
    places = tuple((name, *_place(place)) for name, place in layout.places.items())
    names = tuple(sorted(layout.aliases.items())), tuple(sorted(layout.families.items()))
    return digest((files, places, names, notebook))


def _settings(config: Config) -> tuple[object, ...]:
    values = config._asdict().values()
    return tuple(sorted(value) if isinstance(value, frozenset) else value for value in values)


def _place(place: Place) -> tuple[object, ...]:
    return place.name, place.package, tuple(sorted(place.shared.items()))


def _package(module: str) -> str:
    """The package that contains a rule: for our rules ``codemods``, for others the whole package."""
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "torchlift" else 1])


def _code(package: str) -> Iterator[tuple[str, str]]:
    """Each code file of a package, or the file of a module, with the digest of its bytes."""
    spec = find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if spec is None or not (folders or spec.has_location):
        raise UnknownVersion(f"{package} is not installed as files")
    for folder in folders:
        for path in sorted(_files(folder)):
            yield os.path.relpath(path, folder), _of(path)
    if not folders and spec.origin is not None:
        yield "", _of(spec.origin)


def _files(folder: str) -> Iterable[str]:
    for inside, _, names in os.walk(folder, onerror=_raised):
        yield from (os.path.join(inside, name) for name in names if name.endswith(_CODE))  # noqa: PTH118


def _raised(error: OSError) -> None:
    raise error


def _of(path: str) -> str:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (two hundred files on each run)
        return blake2b(file.read(), digest_size=20).hexdigest()


def _version_of_libcst() -> bytes:
    """The bytes of libcst's version file: importing libcst costs 110 ms, and reading its metadata 40."""
    spec = find_spec("libcst")
    if spec is None or spec.origin is None:
        raise UnknownVersion("libcst is not installed as files")
    return Path(spec.origin).with_name("_version.py").read_bytes()
