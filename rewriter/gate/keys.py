"""
What a verdict depends on, as a digest: whatever is not in here may change without the cache noticing.

That is who judges (the code of the rewriter and of every rule, the tables of operations that other packages add, the
versions of libcst and of Python) and what is judged: the files of a program as they were found today, how they find
each other and who else uses them, and their settings. Which files there are is found out anew on each run, so a module
that appears, goes or moves is seen.
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
    """What judges cannot be told apart from another version of it, so that nothing may be remembered."""


def digest(value: object) -> str:
    """The digest of a value that is made of tuples, texts, bytes, numbers and None."""
    return blake2b(ascii(value).encode(), digest_size=20).hexdigest()


def judge(catalogue: Sequence[Entry]) -> str:
    """The digest of all that gives a verdict. Raises ``UnknownVersion``."""
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
    """The digest of a program and its settings; ``notebook`` is the file of the cells that its first source has."""
    files = tuple((os.fspath(source.path), source.data, _settings(settings[source.path])) for source in sources)
    places = tuple((name, *_place(place)) for name, place in layout.places.items())
    return digest((files, places, tuple(sorted(layout.aliases.items())), notebook))


def _settings(config: Config) -> tuple[object, ...]:
    values = config._asdict().values()
    return tuple(sorted(value) if isinstance(value, frozenset) else value for value in values)


def _place(place: Place) -> tuple[object, ...]:
    return place.name, place.package, tuple(sorted(place.shared.items()))


def _package(module: str) -> str:
    """The package that a rule comes with: of ours the wing, of anybody else's everything."""
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "torchlift" else 1])


def _code(package: str) -> Iterator[tuple[str, str]]:
    """Each file of code in a package, or the one of a module, with the digest of its bytes."""
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
    """Importing it would cost 110 ms, asking the metadata of the distribution 40."""
    spec = find_spec("libcst")
    if spec is None or spec.origin is None:
        raise UnknownVersion("libcst is not installed as files")
    return Path(spec.origin).with_name("_version.py").read_bytes()
