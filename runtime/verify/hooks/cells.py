"""
The cells of a notebook, as its kernel runs them: the value of a last line is shown, and what is around the launched
function is done by one process.

N processes of the run go through all cells, and `notebook_launcher` runs its function right there. So what another
process than the first does outside that function is no doing of the notebook, and is not recorded.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from .recorder import Recorder

LAUNCHER = "notebook_launcher"
_SHOWN = (str, int, float, complex, torch.Tensor, torch.Size, torch.device, torch.dtype, torch.nn.Module)


def run(cells: Iterable[tuple[str, str]], main: ModuleType, recorder: Recorder) -> None:
    """Run cells, each with its name for places in it."""
    cells = list(cells)
    recorder.muted |= recorder.rank > 0 and any(LAUNCHER in text for _, text in cells)
    main.__dict__.update(display=print, get_ipython=lambda: None)
    sys.displayhook = _show
    for name, text in cells:
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        body = ast.parse(text, name)
        last = body.body.pop() if _displays(body, text) else None
        exec(compile(body, name, "exec", dont_inherit=True), main.__dict__)
        if last is not None:
            exec(compile(ast.Interactive([last]), name, "single", dont_inherit=True), main.__dict__)


def records_launches(module: Any, recorder: Recorder) -> None:
    """Record again what a launched function does."""
    launch = getattr(module, LAUNCHER)

    @functools.wraps(launch)
    def launcher(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        @functools.wraps(function)
        def launched(*given: Any) -> Any:
            muted, recorder.muted = recorder.muted, False
            try:
                return function(*given)
            finally:
                recorder.muted = muted

        return launch(launched, *args, **named)

    setattr(module, LAUNCHER, launcher)


def _displays(body: ast.Module, text: str) -> bool:
    """Whether a cell shows the value of its last line: a semicolon after it says no."""
    last = body.body[-1] if body.body else None
    if not isinstance(last, ast.Expr) or isinstance(last.value, ast.Constant):
        return False
    rest = text.encode().split(b"\n")[(last.end_lineno or 1) - 1][last.end_col_offset :]
    return not rest.lstrip().startswith(b";")


def _show(value: object) -> None:
    """Print what a notebook shows as text, as the migrated notebook prints it; a picture or a table is none."""
    if _is_text(value):
        sys.stdout.write(f"{value}\n")


def _is_text(value: object) -> bool:
    if isinstance(value, (list, tuple, set)):
        return all(map(_is_text, value))
    if isinstance(value, dict):
        return all(map(_is_text, value.values()))
    numpy = sys.modules.get("numpy")
    return isinstance(value, _SHOWN) or (numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)))
