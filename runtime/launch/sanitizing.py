"""Where the sanitizer keeps its records, and whether it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..config.environment import read_environment
from ..errors import LaunchError

FOUND = 66
"""The exit status when something was reported, as that of thread sanitizers."""
_SWITCH = "TORCHLIFT_SANITIZE"


def asked_for(environment: Mapping[str, str]) -> bool:
    """
    The environment asks for the sanitizer.

    Raises:
        UnknownWordError: the variable is neither on nor off.
    """
    said = {name: value for name, value in environment.items() if name == _SWITCH}
    return bool(read_environment(said).sanitize)


def new_folder(wanted: str | None) -> str:
    """
    A folder for one run, in the one that is wanted, or among the temporary ones.

    Raises:
        LaunchError: it cannot be made.
    """
    import tempfile  # not needed by most

    try:
        if wanted is not None:
            Path(wanted).mkdir(parents=True, exist_ok=True)
        prefix = "run_" if wanted is not None else "torchlift_sanitizer_"
        return str(Path(tempfile.mkdtemp(prefix=prefix, dir=wanted)).resolve())
    except OSError as error:
        raise LaunchError(f"the sanitizer cannot write to {wanted}: {error}") from error


def attempt_folder(folder: str, restart: int) -> str:
    """The folder of one attempt of a job."""
    path = Path(folder) / f"attempt_{restart}"
    path.mkdir(exist_ok=True)
    return str(path)


def latest(folder: str) -> Path:
    """The folder of the last attempt."""
    return max(Path(folder).glob("attempt_*"), key=lambda path: int(path.name.partition("_")[2]))
