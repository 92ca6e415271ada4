"""The options of ``--verify``, as click reads them. Nothing heavy is imported: they are part of every start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class VerifyError(Exception):
    """A verification could not be carried out. The message says what to do."""


class Asked(NamedTuple):
    """What a verification is to do."""

    procs: tuple[int, ...] = (1, 2)
    steps: int = 20
    as_is: bool = False
    double: bool = False
    keep: bool = False
    limit: float = 120.0
    """Seconds that one run may take."""
    python: str | None = None
    """The interpreter that imports torch."""
    arguments: tuple[str, ...] = ()
    """What stands behind ``--``: the script's own."""


def _procs(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) for word in words) or len(set(words)) != len(words):
        raise click.BadParameter(f"{text!r} is no list of different numbers of processes, such as 1,2")
    return tuple(map(int, words))


_OPTIONS = (
    click.option("--verify", is_flag=True, help="Run both scripts, and show that they compute the same."),
    click.option("--procs", default="1,2", show_default=True, callback=_procs, help="... on so many processes."),
    click.option(
        "--steps", type=click.IntRange(min=1), default=20, show_default=True, help="... for so many batches a pass."
    ),
    click.option("--as-is", is_flag=True, help="... as they are: only seeded, with the batch per process."),
    click.option("--double", is_flag=True, help="... in float64, compared to 1e-9."),
    click.option(
        "--limit", type=click.FloatRange(min=1), default=120.0, show_default=True, help="... in so many seconds a run."
    ),
    click.option("--keep", is_flag=True, help="... and leave the scratch folders."),
    click.option("--python", metavar="EXE", help="... with this interpreter, which must import torch."),
)


def verify_options(command: Command) -> Command:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def asked(given: Mapping[str, Any]) -> Asked | None:
    """What the options ask for; None without ``--verify``."""
    if not given["verify"]:
        for name, default in (("procs", (1, 2)), ("steps", 20), ("as_is", False), ("double", False), ("keep", False)):
            if given[name] != default:
                raise click.UsageError(f"--{name.replace('_', '-')} goes with --verify")
        return None
    if given["double"] and given["as_is"]:
        raise click.UsageError("--double and --as-is exclude each other")
    names = ("procs", "steps", "as_is", "double", "keep", "limit", "python")
    return Asked(**{name: given[name] for name in names})
