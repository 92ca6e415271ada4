"""
`import accelerate` means `torchlift.runtime` where the parent of this folder is on PYTHONPATH: for this process, and
for all that it starts.

A submodule (`accelerate.utils`) is the module of the runtime itself, not a copy, so a test that patches a name there
patches ours. `accelerate.test_utils` is the exception: helpers and scripts of Accelerate's own tests, read from the
checkout that ACCELERATES_CHECKOUT names. What the runtime has no module for cannot be imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_OURS = "torchlift.runtime"
# Not ACCELERATE_...: Accelerate's tests remove all variables that begin like that.
_CHECKOUT = Path(os.environ["ACCELERATES_CHECKOUT"]) / "src" / "accelerate"


class _Alias(Loader):
    """Hands out a module of the runtime under a second name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has just written the second name there


class _Finder(MetaPathFinder):
    """Finds `accelerate.X` in the runtime, and `accelerate.test_utils` in the checkout."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != __name__ or not rest:
            return None
        if rest == "test_utils":
            return PathFinder.find_spec(fullname, [str(_CHECKOUT)])
        if rest.startswith("test_utils."):
            return None  # found as every module of a package is
        ours = f"{_OURS}.{rest}"
        return importlib.util.spec_from_loader(fullname, _Alias(ours)) if importlib.util.find_spec(ours) else None


# transformers asks for a version and takes this one for too old: it does not use us from inside.
__version__ = "0"


def __getattr__(name: str) -> object:
    return getattr(importlib.import_module(_OURS), name)


sys.meta_path.insert(0, _Finder())
# Tests look for scripts beside the package's file.
__file__ = str(_CHECKOUT / "__init__.py")
