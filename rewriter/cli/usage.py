"""How ``migrate`` is used: what ``--help`` says above the options, and what is wrong usage."""

from __future__ import annotations

FORMATS = ("text", "json", "sarif", "github")
"""Of ``--output-format``; the first is what is taken where nobody says it."""


class UsageError(Exception):
    """Arguments that mean nothing. The message is a sentence without its full stop."""


HELP = """
Turn single-device PyTorch training scripts into distributed ones.

Without --write no file of yours is touched: the diff goes to stdout, where it is a valid patch, and what was done,
why, and what is left for you to stderr. A PATH is a script, which is migrated together with the modules that it
imports, a folder, whose scripts are found, or - for stdin.

\b
Examples:
  migrate train.py                   show what would change, and why
  migrate train.py | git apply       apply it with git
  migrate --write train.py           apply it: all files of the run, or none
  migrate -i train.py                ask for each group of edits, then write
  migrate --check src                for CI: exit status 1 if a file would change
  migrate --roles train.py           what was taken for the model, the loss, ...
  migrate --assume loss=err train.py tell it what it could not infer
  migrate --explain backward         what a rule does, with an example
  migrate - < train.py               read stdin, show the patch
  migrate train.py --verify -- --epochs 1
                                     run both, and show that they compute the same

\b
Exit status, the highest wins:
  0  nothing to do, shown, or done
  1  a file would change (--check), or a promise is broken (--verify)
  2  a file is blocked: it needs your hand first; or the original does not run (--verify)
  3  wrong usage, a file that cannot be read or written, or an internal error

Settings are read from [tool.torchlift] in the nearest pyproject.toml: select, ignore, per-file-ignores, exclude,
assume, target, mixed-precision, keep-global-batch.

Scripts that need no change are remembered in .torchlift_cache, at the root of the project.
"""
