"""The modules of a program: their full names, and who uses them besides this program."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

ENTRY = "__main__"
"""The name of the entry script."""


class Place(NamedTuple):
    """One module's place in its program."""

    name: str
    """Its full name; ``__main__`` for the entry script."""
    package: str = ""
    """The package that its relative imports start from."""
    shared: Mapping[str, str] = MappingProxyType({})
    """Names that files outside the program use, each with one of those files; ``*`` for a module that must not
    change."""
    elsewhere: bool = False
    """Any other file imports it: another program of the same run, a test."""


def resolved(package: str, module: str) -> str | None:
    """The full name that a module spelled with leading dots means in a package; None where it leaves the package."""
    name = module.lstrip(".")
    dots = len(module) - len(name)
    if not dots:
        return module
    parts = package.split(".") if package else []
    if dots > max(len(parts), 1):
        return None
    return ".".join([*parts[: len(parts) - dots + 1], *([name] if name else [])])


class ModulePaths(NamedTuple):
    """How the modules of a program find each other."""

    places: Mapping[str, Place] = MappingProxyType({})
    """By full name; nothing else uses a module that is missing here."""
    aliases: Mapping[str, str] = MappingProxyType({})
    """Further full names of modules: a file that can be imported by two names is still one module."""
    families: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The modules that a computed name can mean, by what is written out of it: ``models.*``."""
    started: frozenset[str] = frozenset()
    """Functions of the entry script that count as run, though nothing calls them: another experiment."""

    def place(self, name: str) -> Place:
        """The place of a module."""
        return self.places.get(name) or Place(name)
