"""What a verification is asked to do: one half of the versioned contract with whoever starts it."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..available import is_available

VERSION = 1
DEVICES = ("", "xla")


class RequestError(ValueError):
    """A request that cannot be understood or carried out. The message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script, where it is, and the texts that take the place of files on disk."""

    script: Path
    """Absolute path of the script."""
    folder: Path
    """The folder that it is run in; its surroundings are mirrored. An ancestor of `script`, or its own folder."""
    texts: Mapping[str, bytes] = field(default_factory=dict)
    """Contents by path relative to `folder`, instead of what the disk holds."""


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """One verification."""

    original: Script
    migrated: Script
    arguments: tuple[str, ...] = ()
    """For the script itself."""
    procs: tuple[int, ...] = (1, 2)
    """On how many processes the migrated script is run, one run for each."""
    steps: int = 20
    """Batches of the first pass over every loader, and optimizer steps after which passes are short."""
    exact: bool = True
    """Hold still what differs by nature; False only seeds."""
    double: bool = False
    """Compute in float64, and compare to 1e-9."""
    keep: bool = False
    """Leave the scratch folders."""
    seconds: float = 120.0
    """How long one run may take."""
    wait: float = 20.0
    """How long a process may wait for the others."""
    output_bytes: int = 20_000_000
    """How much one run may print."""
    disk_bytes: int = 2_000_000_000
    """How much one run may write."""
    cpu: bool = False
    """Stay on the CPU even where there are accelerators."""
    by_nature: str = ""
    """Why the training of several processes is close to the original's and not equal to it, where that is known."""
    sharded: bool = False
    """The migrated script runs with sharded weights where there are several processes."""
    device: str = ""
    """What the migrated script computes on, where that is not what it finds by itself: "xla" is the virtual devices of
    torch_xla, all driven by one process. `procs` counts these then; the original stays on the CPU."""
    distributed: bool = False
    """The original is distributed by hand: N processes of the migrated script are compared with N of the original."""

    def __post_init__(self) -> None:
        if not self.procs or min(self.procs) < 1 or len(set(self.procs)) != len(self.procs):
            raise RequestError(f"procs is {list(self.procs)}; give different numbers of processes, each 1 or more")
        if self.steps < 1:
            raise RequestError(f"steps is {self.steps}; it must be 1 or more")
        if self.seconds <= 0 or self.wait <= 0:
            raise RequestError("time limits must be above 0")
        if self.device not in DEVICES:
            raise RequestError(f"device is {self.device!r}; it must be one of: {', '.join(filter(None, DEVICES))}")
        if self.device and (self.distributed or self.double):
            raise RequestError("device xla goes with no script that is distributed by hand, and not with double")
        if self.device and not is_available("torch_xla"):
            raise RequestError(
                f"device xla needs torch_xla, which this Python ({sys.executable}) does not have: name one "
                "that does with --python"
            )
        if self.double and not self.exact:
            raise RequestError("double needs exact mode: leave out --as-is")


_PLAIN = tuple(
    "steps exact double keep seconds wait output_bytes disk_bytes cpu by_nature sharded device distributed".split()
)


def program_at(path: Path, cwd: Path, text: bytes | None = None) -> Script:
    """
    A script as a user would start it from `cwd`: in `cwd` when the script lies below it, else in its own folder.

    Args:
        path: of the script.
        cwd: where the user is.
        text: what to run instead of the file's contents.
    """
    script = path.absolute()
    folder = cwd.absolute() if cwd.absolute() in script.parents else script.parent
    texts = {} if text is None else {str(script.relative_to(folder)): text}
    return Script(script=script, folder=folder, texts=texts)


def to_json(request: VerifyRequest) -> dict[str, Any]:
    """The request as plain data."""
    return {
        "version": VERSION,
        "original": _program(request.original),
        "migrated": _program(request.migrated),
        "arguments": list(request.arguments),
        "procs": list(request.procs),
        **{name: getattr(request, name) for name in _PLAIN},
    }


def _program(program: Script) -> dict[str, Any]:
    texts = {name: base64.b64encode(data).decode("ascii") for name, data in program.texts.items()}
    return {"script": str(program.script), "folder": str(program.folder), "texts": texts}


def from_json(data: Any) -> VerifyRequest:
    """
    Read a request.

    Raises:
        RequestError: another version, or something that is no request.
    """
    if not isinstance(data, dict) or data.get("version") != VERSION:
        found = data.get("version") if isinstance(data, dict) else type(data).__name__
        raise RequestError(
            f"the request has version {found}, but this runtime reads version {VERSION}: install the same version of "
            "torchlift for the rewriter and for the runtime"
        )
    try:
        return VerifyRequest(
            original=_read_program(data["original"]),
            migrated=_read_program(data["migrated"]),
            arguments=tuple(map(str, data.get("arguments", ()))),
            procs=tuple(map(int, data.get("procs", (1, 2)))),
            **{name: data[name] for name in _PLAIN if name in data},
        )
    except (KeyError, TypeError, binascii.Error) as error:
        raise RequestError(f"the request cannot be read ({type(error).__name__}: {error})") from error


def _read_program(data: Mapping[str, Any]) -> Script:
    texts = {name: base64.b64decode(text) for name, text in data.get("texts", {}).items()}
    return Script(script=Path(data["script"]), folder=Path(data["folder"]), texts=texts)
