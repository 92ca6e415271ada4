"""`python -m torchlift.runtime.monitoring.sanitizer [-m] SCRIPT [arguments]` runs a script under the sanitizer."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from pathlib import Path
from types import TracebackType
from typing import Any

from .imports import ScriptCode
from .start import before_the_script


def main() -> None:
    """Run the script as `python` would run it."""
    arguments = sys.argv[1:]
    module = arguments[:1] == ["-m"]
    script = arguments[int(module)] if len(arguments) > module else None
    if script is None:
        sys.stderr.write("usage: python -m torchlift.runtime.monitoring.sanitizer [-m] SCRIPT [arguments]\n")
        sys.exit(3)
    sys.argv = arguments[int(module) :]
    names: dict[str, Any] = {"__builtins__": __builtins__}
    if module:
        path = sys.argv[0] = _found(script, names)
    else:
        path = os.path.abspath(script)  # noqa: PTH100  (a link stays one)
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = str(Path(script).resolve().parent)
    names["__file__"] = path
    code = before_the_script(path)
    run = types.ModuleType("__main__")
    run.__dict__.update(names)
    sys.modules["__main__"] = run
    _show_errors_of_the_script()
    code.run(Path(path).read_bytes(), path, run.__dict__)


def _found(name: str, names: dict[str, Any]) -> str:
    """The file of a module that is started, as `python -m` finds it."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or not spec.origin:
        sys.stderr.write(f"torchlift: there is no module {name!r} to run.\n")
        sys.exit(3)
    names.update(__spec__=spec, __package__=spec.parent)
    return spec.origin


def _show_errors_of_the_script() -> None:
    """Without the frames of the sanitizer, as Python shows them."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        own = trace
        while own is not None and own.tb_frame.f_code is not ScriptCode.run.__code__:
            own = own.tb_next
        trace = trace if own is None else own.tb_next
        previous(kind, error.with_traceback(trace), trace)

    sys.excepthook = hook


if __name__ == "__main__":
    main()
