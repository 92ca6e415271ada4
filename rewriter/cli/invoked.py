"""How the user called the command, so that the next one can be copied: with its name there, its options and paths."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import which

from ..config import RawConfig
from ..facts.command_line import PARSERS, WORDS

_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(.+?)(?:[ \t]+import\b.*)?$", re.MULTILINE)
_NEEDED = re.compile(
    r"add_argument\(\s*['\"][^-'\"]|add_argument\([^'\"]|\brequired\s*=\s*(?!False)|\badd_subparsers\b"
)
"""An argument that has no default: by its place, with a name that is not known here, or required."""
_WORD = re.compile(r"\w+")
_MOST = 20
"""A command that is offered names at most so many paths."""


def invoked() -> str:
    """
    The command by which the user can call ``migrate`` again.

    A name alone only where the user's shell finds that program: a hook runs with another path than the user, so there
    the program is named in full.
    """
    package = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "parent", "") or ""
    if package.startswith("torchlift."):
        return f"{_found(Path(sys.executable))} -m {package}"
    program = Path(sys.argv[0])
    if program.stem != "migrate":
        return "migrate"  # not the command: a program that calls it
    return _found(program, program.stem)


def takes_arguments(texts: Iterable[str]) -> bool:
    """Whether a program may need arguments on its command line, as far as the texts of its files tell: with argparse it
    says which ones it needs."""
    for text in texts:
        imported = {
            word.split(".")[0].split(" as ")[0].strip() for line in _IMPORT.findall(text) for word in line.split(",")
        }
        if not PARSERS.isdisjoint(imported - {"argparse"}) or ("argparse" in imported and _NEEDED.search(text)):
            return True
        if not WORDS.isdisjoint(_WORD.findall(text)):
            return True
    return False


def launcher(options: Mapping[str, str]) -> str:
    """The command that starts a migrated script on several processes, beside the one that was called."""
    if options.get("target") == "accelerate":
        return "accelerate launch"
    called = invoked()
    if " -m " in called:
        return f"{called.partition(' -m ')[0]} -m torchlift.runtime.launch.command launch"
    return f"{called.removesuffix('migrate')}torchlift launch" if called.endswith("migrate") else "torchlift launch"


def _found(program: Path, name: str = "") -> str:
    """The name of a program if the user's path leads to it, else its whole path."""
    name = name or program.name
    found = None if os.environ.get("PRE_COMMIT") else which(name)
    same = found is not None and program.exists() and Path(found).exists() and _alike(Path(found), program)
    return name if same or not program.is_absolute() else shlex.quote(str(program))


def _alike(found: Path, program: Path) -> bool:
    """Whether two paths lead to one program. The `python` of an environment is a link to the one that it was made of,
    and what makes it another Python, with other packages, is the folder of the link."""
    return found.samefile(program) and (program.stem == "migrate" or found.parent.samefile(program.parent))


def chosen(options: RawConfig) -> Iterator[str]:
    """The options of a command line that change what is migrated, as they are written there."""
    for name in ("select", "ignore"):
        if words := getattr(options, name):
            yield f"--{name} {','.join(words)}"
    for role, name in options.assume:
        yield f"--assume {shlex.quote(f'{role}={name}')}"
    if options.target is not None:
        yield f"--target {options.target.value}"
    if options.strategy is not None:
        yield f"--strategy {options.strategy.value}"
    if options.device:
        yield f"--device {options.device}"
    if options.mixed_precision is not None:
        yield f"--mixed-precision {options.mixed_precision}"
    if options.keep_global_batch:
        yield "--keep-global-batch"
    if options.partial:
        yield "--partial"


def some(paths: Sequence[str], noun: str = "files") -> tuple[str, str]:
    """Paths for one command that can be copied, and before them which of all those are, where they are too many."""
    if len(paths) <= _MOST:
        return "", quoted(paths)
    return f" the first {_MOST} of {len(paths)} {noun}", quoted(paths[:_MOST])


def details(command: str, paths: Sequence[str]) -> str:
    """The hint that shows the whole of what was said in a line for each program."""
    first, named = some(paths)
    return f"Details{f' of{first}: ' if first else ':   '}{command} --details {named}  # or name one of the scripts"


def quoted(paths: Sequence[str]) -> str:
    """Paths as a shell reads them."""
    return " ".join(map(shlex.quote, paths))
