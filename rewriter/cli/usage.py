"""How ``migrate`` is used: the text of ``--help`` above the options, and the error for wrong usage."""

from __future__ import annotations

FORMATS = ("text", "json", "sarif", "github")
"""The values of ``--output-format``; the first is the default."""
EVERYTHING = "list"
"""What ``--explain`` explains where no id is given: all of them, in a line each."""


class UsageError(Exception):
    """Invalid arguments. The message is a sentence without its full stop."""


HELP = """
Turn single-device PyTorch training scripts into distributed ones.

Without --write none of your files change: the diff goes to stdout, as a valid patch, and the reasons, the findings and
what changes at run time go to stderr. A PATH is a script, which is migrated together with the modules that it imports,
or a folder, in which all training scripts are found, or - for stdin.

\b
Examples:
  migrate train.py                   show the proposed changes and the reasons
  migrate train.py | git apply       apply them with git
  migrate --write train.py           apply them: all files of the run, or none
  migrate -i train.py                ask about each group of edits, then write
  migrate --check src                exit status 1 if a file would change
  migrate --roles train.py           which names are the model, the loss, ...
  migrate --assume loss=err train.py say what could not be inferred
  migrate --explain backward         show what a rule does, with an example
  migrate --explain local-decision   show what a finding means, and what to do
  migrate --explain train.py:143     show all that is said about one line
  migrate --audit train_ddp.py       what a distributed script does wrong
  migrate - < train.py               read stdin, show the patch
  migrate train.py --verify -- --epochs 1
                                     run both scripts and compare the results

\b
Exit status (if several apply, the highest):
  0  no change needed, or changes shown or written
  1  a file would change (--check), a promise is broken (--verify),
     or something is wrong (--audit)
  2  a file is blocked: it needs a manual change first;
     or the original script fails (--verify)
  3  wrong usage (also --assume with a name that is not there), a file that
     cannot be read or written, or an internal error
  130  interrupted with Ctrl-C: nothing was written

\b
Settings are read from [tool.torchlift] in the nearest pyproject.toml:
  select, ignore, per-file-ignores, exclude, assume, target,
  strategy, device, mixed-precision, keep-global-batch

Scripts that need no change are remembered in .torchlift_cache, at the root of the project.
"""
