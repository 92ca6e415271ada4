"""The machine that a process runs on."""

from __future__ import annotations

import logging
import os
import platform
import random
import socket
import sys
from collections import deque
from pathlib import Path

log = logging.getLogger(__name__)

_OLDEST = (5, 5)
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 20_000
_TRIES = 100
_KEPT = 64
_reserved: deque[int] = deque()
"""Open sockets whose names tell other processes of ours that a port is given away. They end with this process."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reserved.clear)  # a fork may have closed them, and use the numbers for files


def check_os_kernel() -> None:
    """Warn of kernels of Linux that are so old that processes may hang at their end."""
    system = platform.uname()
    numbers = tuple(int(part) for part in system.release.split("-")[0].split(".")[:2] if part.isdigit())
    if system.system == "Linux" and numbers < _OLDEST:
        log.warning(
            f"Detected kernel version {system.release}, which is below the recommended minimum of 5.5.0; this can "
            "cause the process to hang. It is recommended to upgrade the kernel to the minimum version or higher."
        )


def is_port_in_use(port: int | None = None) -> bool:
    """Somebody on this machine listens on the port (29500 when None)."""
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", 29500 if port is None else port)) == 0


def get_free_port() -> int:
    """
    A port that nobody listens on, of those that the system gives to nobody by itself.

    Rank 0 binds it seconds later, when it has imported torch. A port of the range from which outgoing connections and
    `bind(0)` are served may be taken by then. On Linux no other process that asks here is given the same one meanwhile.
    """
    ports = range(_FIRST_PORT, _first_ephemeral_port())
    for port in random.SystemRandom().sample(ports, min(len(ports), _TRIES)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            if _reserve(port):
                return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _reserve(port: int) -> bool:
    """Give the port to nobody else while this process lives, and has not been given many more; False: it is taken."""
    if not sys.platform.startswith("linux"):
        return True
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0torchlift/port/{port}")
    except OSError:
        name.close()
        return False
    _reserved.append(name.detach())
    if len(_reserved) > _KEPT:
        os.close(_reserved.popleft())
    return True


def _first_ephemeral_port() -> int:
    """Linux says it; elsewhere 32,768 or more is usual (macOS and Windows: 49,152)."""
    try:
        return int(_EPHEMERAL_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
