"""What a program has that reads the arguments of its command line."""

from __future__ import annotations

WORDS = frozenset({"argv", "HfArgumentParser"})
"""Names in its code: ``sys.argv``."""
PARSERS = frozenset(
    "absl argparse click configargparse cyclopts defopt docopt fire getopt gin hydra jsonargparse optparse plac sacred "
    "simple_parsing tap typer tyro".split()
)
"""Packages that it imports."""
