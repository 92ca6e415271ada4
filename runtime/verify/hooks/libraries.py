"""Hooks into libraries that the script imports later: safetensors, numpy, and Accelerate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from .cells import records_launches
from .data import Loaders
from .files import Note, watch_safetensors
from .recorder import Recorder


def install(recorder: Recorder, loaders: Loaders, note: Note, split: bool) -> None:
    """
    Hook into libraries once they are imported.

    Args:
        recorder: of the trace.
        loaders: that are watched.
        note: hears of files before they are written.
        split: Accelerate shares every batch of the script among the processes.
    """
    after = {
        "safetensors.torch": lambda module: watch_safetensors(recorder, note),
        "torchlift.runtime.launch.notebook": lambda module: records_launches(module, recorder),
        "accelerate.launchers": lambda module: records_launches(module, recorder),
        "accelerate.data_loader": lambda module: _accelerate_loaders(module, loaders),
        "accelerate.accelerator": lambda module: _accelerate_batches(module) if split else None,
    }
    for name in [name for name in after if name in sys.modules]:
        after.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, _After(after))


class _After(MetaPathFinder):
    """Calls a function when a module has been imported."""

    def __init__(self, after: dict[str, Callable[[Any], None]]) -> None:
        self._after = after

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The module's own spec, with a loader that calls the function."""
        then = self._after.pop(name, None)
        if then is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, then)
        return spec


class _Then(Loader):
    def __init__(self, loader: Any, then: Callable[[Any], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _accelerate_loaders(module: Any, loaders: Loaders) -> None:
    """Its loaders fetch one batch ahead: what counts is what they hand out."""
    for name in ("DataLoaderShard", "DataLoaderDispatcher"):
        cls = getattr(module, name, None)
        if cls is not None and "__iter__" in cls.__dict__:
            loaders.watch_class(cls)


def _accelerate_batches(module: Any) -> None:
    """The script's batches are those of all processes together, unless it has said otherwise."""
    original = module.Accelerator.__init__

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        configuration = kwargs.get("dataloader_config")
        if configuration is None:
            configuration = module.DataLoaderConfiguration()
        configuration.split_batches = True
        kwargs["dataloader_config"] = configuration
        original(self, *args, **kwargs)

    module.Accelerator.__init__ = begin
