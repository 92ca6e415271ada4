"""
Run a script, and write what it trained with: ``python recorded.py SCRIPT RESULT PASSES [arguments of the script]``.

It ends after so many backward passes, before the next one; or by itself, with 0.

Random numbers that the script draws on a device of torch_xla are drawn on the CPU, so that two runs can be compared.
"""

from __future__ import annotations

import contextlib
import functools
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

RANDOM = ("randn", "rand", "randint", "randperm", "normal")


class Enough(Exception):
    """The script has trained enough."""


def drawn_on_the_cpu(draw: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(draw)
    def drawn(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        found = draw(*args, **kwargs)
        return found if device is None else found.to(device)

    return drawn


def compiled() -> int:
    """How many graphs were compiled so far."""
    metrics = sys.modules.get("torch_xla.debug.metrics")
    return int(metrics.counter_value("UncachedCompile") or 0) if metrics else 0


def main() -> None:
    script, result, passes, *arguments = sys.argv[1:]
    losses: list[torch.Tensor] = []
    compilations: list[int] = []
    for name in RANDOM:
        setattr(torch, name, drawn_on_the_cpu(getattr(torch, name)))
    backward: Any = torch.Tensor.backward

    def noted(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        losses.append(self.detach())
        compilations.append(compiled())
        backward(self, *args, **kwargs)

        if len(losses) == int(passes):
            raise Enough

    torch.Tensor.backward = noted  # type: ignore[method-assign]
    sys.argv = [script, *arguments]
    with contextlib.suppress(Enough):
        runpy.run_path(script, run_name="__main__")
    compilations.append(compiled())
    values = [float(loss.cpu()) for loss in losses]
    Path(result).write_text(json.dumps({"losses": values, "compilations": compilations}))


if __name__ == "__main__":
    main()
