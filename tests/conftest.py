"""What every test needs: the installed package, never the folders of the checkout."""

from __future__ import annotations

import sys
from pathlib import Path

# `python -m pytest` puts the current folder on the path, where a wrong `import runtime` would find our wings.
_ROOT = str(Path(__file__).resolve().parent.parent)
sys.path[:] = [entry for entry in sys.path if entry not in ("", _ROOT)]
