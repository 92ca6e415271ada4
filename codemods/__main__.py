"""The ``migrate`` command: passes the catalogue to the rewriter. The one place where the two packages meet."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path


def main() -> None:
    """Run ``migrate`` on the command line's arguments and end the process with its status."""
    from ..rewriter.cli.main import run
    from .catalogue import CATALOGUE

    gc.set_threshold(1_000_000, 5, 10)  # syntax trees are many long-lived objects: collecting rarely saves time
    status = run(CATALOGUE, sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)  # everything is written: skip freeing the trees node by node


if __name__ == "__main__":
    if sys.path[:1] == [str(Path.cwd())]:  # `python -m` puts it there: a `rich.py` of the project would be run as ours
        del sys.path[0]
    main()
