"""
What the command line asks for.

Paths and switches, all that hooks use, are read here; click reads everything else. Both go through the same checks.
Click takes 21 ms of CPU to import and to read the same words. With it, a file with nothing to do costs 63 ms instead of
42 (best of 60 runs in turn, Python 3.11); the limit is 60.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..config import RawConfig, Strategy, Target, assumption
from ..verify.options import Asked
from .usage import FORMATS, UsageError

_SWITCHES = frozenset({
    "--write", "--check", "--partial", "--no-follow", "--hook", "--roles", "--keep-global-batch", "--side-by-side",
    "--no-color", "--no-cache", "--verbose", "--audit", "--details",
})  # fmt: skip
"""Options without a value."""
_UNSAID: dict[str, Any] = {
    **dict.fromkeys(
        ("write", "interactive", "check", "partial", "no_follow", "hook", "rules", "roles", "audit"), False
    ),
    **dict.fromkeys(
        ("keep_global_batch", "verify", "side_by_side", "no_color", "no_cache", "verbose", "details"), False
    ),
    **dict.fromkeys(("paths", "select", "ignore", "assume"), ()),
    **dict.fromkeys(("explain", "target", "strategy", "mixed_precision", "html", "device")),
    **{name: value for name, value in Asked()._asdict().items() if name not in ("arguments", "device")},
    "output_format": FORMATS[0],
}
"""The default of each option."""

_PAGE = b"<!doctype html"
"""How a page begins."""


class Request(NamedTuple):
    """What the command line asks for."""

    paths: tuple[str, ...]
    options: RawConfig
    write: bool
    check: bool
    rules: bool
    explain: str | None
    roles: bool
    format: str
    """One of ``FORMATS``."""
    color: bool
    interactive: bool = False
    side_by_side: bool = False
    html: str | None = None
    follow: bool = True
    """Migrate programs, with the modules that scripts import; otherwise each file separately."""
    hook: bool = False
    """The paths are changed files: migrate the programs that reach them."""
    verify: Asked | None = None
    cache: bool = True
    """Read and write the cache of verdicts."""
    verbose: bool = False
    details: bool = False
    """Show each diff and finding, also of many programs."""
    audit: bool = False
    """Report what is wrong with scripts that are distributed already, and change nothing."""


def parse(argv: Sequence[str]) -> Request | int:
    """
    Read the arguments. Those after the first ``--`` are for the script that ``--verify`` runs.

    Return an exit status if the arguments only ask for the help or the version, which have then been shown.
    Raises ``UsageError`` and ``ConfigError``.
    """
    cut = argv.index("--") if "--" in argv else len(argv)
    argv, rest = list(argv[:cut]), tuple(argv[cut + 1 :])
    given = plain(argv)
    if given is None:
        from .options import read

        answer = read(argv)
        if isinstance(answer, int):
            return answer
        given = answer
    request = _request(given)
    if request.verify is not None:
        return request._replace(verify=request.verify._replace(arguments=rest))
    if rest:
        cause = f"the arguments after -- ({' '.join(rest)}) are for --verify, which is missing"
        raise UsageError(f"{cause}; if a file name begins with a dash, write ./-name")
    return request


def plain(argv: Sequence[str]) -> dict[str, Any] | None:
    """The value of each option, as click would return it; None if there is more than paths and switches."""
    given, paths = dict(_UNSAID), []
    for word in argv:
        if word in _SWITCHES:
            given[word[2:].replace("-", "_")] = True
        elif word.startswith("-") and word != "-":
            return None
        else:
            paths.append(word)
    return given | {"paths": tuple(paths)}


def _request(given: Mapping[str, Any]) -> Request:
    """Create a request from the options; ``UsageError`` if they contradict each other."""
    _exclusive(given, "write", "check", "interactive")
    for other in ("write", "check"):
        _exclusive(given, "roles", other)
    _exclusive(given, "interactive", "roles", "verify")
    _exclusive(given, "interactive", "html")
    if given["html"] is not None:
        _check_page(given["html"])
    _exclusive(given, "hook", "no_follow", "verify")
    for other in ("write", "check", "interactive", "roles", "verify", "partial", "side_by_side"):
        _exclusive(given, "audit", other)
    if given["interactive"] and given["output_format"] != "text":
        raise UsageError("--interactive and --output-format cannot be used together")
    if not given["paths"] and not given["rules"] and given["explain"] is None:
        raise UsageError("Name a script or a folder, or - for stdin")
    if "" in given["paths"]:
        raise UsageError("A path is empty: name a script or a folder, or - for stdin")
    if "-" in given["paths"] and (len(given["paths"]) > 1 or given["interactive"]):
        raise UsageError("- (stdin) cannot be combined with other paths")
    options = RawConfig(
        tells=given["roles"],
        select=given["select"] or None,
        ignore=given["ignore"],
        assume=tuple(assumption("--assume", text) for text in given["assume"]),
        target=Target(given["target"]) if given["target"] else None,
        strategy=Strategy(given["strategy"]) if given["strategy"] else None,
        device=given["device"] or "",
        mixed_precision=given["mixed_precision"],
        keep_global_batch=given["keep_global_batch"] or None,
        partial=given["partial"],
    )
    names = "paths write check rules explain roles html interactive side_by_side hook verbose details audit".split()
    kept = {name: given[name] for name in names} | {"follow": not given["no_follow"], "cache": not given["no_cache"]}
    color = not given["no_color"] and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Request(**kept, options=options, format=given["output_format"], color=color, verify=_asked(given))


def _asked(given: Mapping[str, Any]) -> Asked | None:
    """The options of the verification; None without ``--verify``."""
    unsaid = Asked()._asdict()
    if not given["verify"]:
        for name in ("procs", "steps", "as_is", "double", "keep"):
            if given[name] != unsaid[name]:
                raise UsageError(f"--{name.replace('_', '-')} needs --verify")
        return None
    if given["double"] and given["as_is"]:
        raise UsageError("--double and --as-is cannot be used together")
    named = given["paths"]
    if len(named) != 1 or named[0] == "-" or Path(named[0]).is_dir():
        raise UsageError("--verify runs one script: name only its file")
    asked = {name: given[name] for name in unsaid if name not in ("arguments", "device")}
    return Asked(**asked, device="xla" if given["device"] else "")


def _check_page(name: str) -> None:
    """``UsageError`` if the page would take the place of something that is no page: ``--html train.py``."""
    path = Path(name)
    if path.suffix in (".py", ".ipynb"):
        raise UsageError(f"--html takes the name of the page: --html report.html {name}")
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(_PAGE)).lower() != _PAGE:
                raise UsageError(f"--html would replace {name}, which is no page: name another file")


def _exclusive(given: Mapping[str, Any], *names: str) -> None:
    asked_for = [name for name in names if given[name]]
    if len(asked_for) > 1:
        one, other = (name.replace("_", "-") for name in asked_for[:2])
        raise UsageError(f"--{one} and --{other} cannot be used together")
