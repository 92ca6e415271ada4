"""The machine that a process runs on."""

from __future__ import annotations

import logging
import platform
import socket

log = logging.getLogger(__name__)

_OLDEST = (5, 5)


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
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
