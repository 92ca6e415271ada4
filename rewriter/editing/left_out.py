"""What ``--select`` and ``--ignore`` leave out that other edits need: as with ``-i``, no program is half migrated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..config import Config
from ..findings import Finding, Severity
from .edits import AddImport, Edit, EditGroup

_NEEDED = ("accelerator_setup", "prepare", "backward")
"""Without them what the others emit does not run, or the processes train apart."""
_BY_THEMSELVES = frozenset({"accelerate_imports", "directories", "legacy_tensors"})
"""Their edits need no accelerator."""


class RuleEdits(NamedTuple):
    """The edits of one file: those that are made, and those whose rules are not to run."""

    made: Sequence[Edit]
    not_made: Sequence[Edit]


def left_out(files: Mapping[int, RuleEdits], config: Config) -> dict[int, list[Finding]]:
    """The findings for the files of a program, by the keys of ``files``."""
    made = [edit.rule for file in files.values() for edit in file.made if edit.rule not in _BY_THEMSELVES]
    if not made:
        return {}
    left = {key: _trained(file.not_made) for key, file in files.items()}
    needed = [rule for rule in _NEEDED if any(edit.rule == rule for edits in left.values() for edit in edits)]
    option = "--select" if config.select is not None else "--ignore"
    found: dict[int, list[Finding]] = {}
    for key, edits in left.items():
        for edit in edits:
            if edit.rule in needed:
                continue
            why = f"{option} leaves out {edit.rule}, which changes this for several processes"
            help = f"check that it is correct as it is, or let {edit.rule} change it"
            found.setdefault(key, []).append(Finding("skipped", edit.node, why, help, case="left-out"))
    if needed:
        key, first = next((key, edit) for key, edits in left.items() for edit in edits if edit.rule in needed)
        rules, ids = " and ".join([", ".join(needed[:-1]), needed[-1]] if needed[1:] else needed), ",".join(needed)
        why = f"{option} leaves out {rules}: without {'them' if needed[1:] else 'it'} the other edits "
        why += "do not run" if needed[0] == "accelerator_setup" else "would train each process apart"
        selects = config.select is not None and config.ignore.isdisjoint(needed)
        help = f"add {ids} to --select" if selects else f"take {ids} out of --ignore"
        help = f"{help}; `migrate -i` asks about each group of edits that can be made without the others"
        found.setdefault(key, []).append(Finding("skipped", first.node, why, help, Severity.BLOCKED, case="left-out"))
    return found


def _trained(edits: Iterable[Edit]) -> list[Edit]:
    return [edit for edit in edits if edit.unit is EditGroup.TRAINING and not isinstance(edit, AddImport)]
