"""Which optional packages are installed, without importing them."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec

from .errors import MissingPackageError


def is_available(package: str) -> bool:
    """A package of this name could be imported (or has been)."""
    return sys.modules.get(package) is not None or _found(package)


@cache
def _found(package: str) -> bool:
    return find_spec(package) is not None


def need(package: str, what: str, extra: str) -> None:
    """
    Make sure that a package is there.

    Args:
        package: the name that is imported.
        what: what needs it, for the message.
        extra: of torchlift, which brings it.

    Raises:
        MissingPackageError: it is not installed; an ImportError.
    """
    if not is_available(package):
        raise MissingPackageError(what, package, extra)
