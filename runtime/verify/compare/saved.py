"""Files: which there are, who writes them, and what checkpoints hold."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any

from ..traces import RankTrace, RunTrace
from ..verdict import Promise
from . import contents
from .printed import agree
from .tolerances import About, apart

_DIGITS = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{6,}|\d+")
"""What varies in a name by its nature: a UUID, a hash, a number."""
_DRAWN = re.compile(r"(?<![^/\\])tmp[a-z0-9_]{8}(?![^/\\.])")
"""The name that `tempfile` gives to a folder or a file."""


def files(about: About) -> Promise:
    """The same files, each written by one process; short texts with the same numbers."""
    wanted, found = about.original.files, about.migrated.files
    shaky, before = about.unstable.files, writers(about.original)
    for name, ranks in sorted(writers(about.migrated).items()):
        if len(ranks) > 1 and name in found and ranks != before.get(name):
            text = f"{name} is written by processes {', '.join(map(str, sorted(ranks)))}"
            return about.broken("files", text, figure=name, at=_written_at(about.migrated, name))
    if about.original.cut or about.migrated.cut:
        return about.untestable("files", "a run was ended before the script finished")
    missing = sorted(set(wanted) - set(found) - about.unstable.names)
    varying, problem = _varying(set(wanted), set(found), about)
    added = sorted(set(found) - set(wanted) - varying)
    if problem:
        return about.broken("files", problem, figure="files")
    if missing:
        at = _written_at(about.original, missing[0])
        return about.broken("files", f"{missing[0]} is not written", figure=missing[0], at=at, side="original")
    if added:
        text = f"{added[0]} is written, which the original does not do"
        return about.broken("files", text, figure=added[0], at=_written_at(about.migrated, added[0]))
    for name in sorted(set(wanted) & set(found)):
        again = about.unstable.texts.get(name, ())
        different = contents.differ(name, wanted[name], found[name], about, again) if again or name not in shaky else ""
        if different:
            nature = about.by_nature()
            if nature:
                return about.untestable("files", nature)
            at = _written_at(about.migrated, name)
            return about.broken("files", f"{name}: {different}", figure=name, at=at)
    names = ", ".join(sorted(found)[:4]) + (", ..." if len(found) > 4 else "")
    return about.held("files", names or "no file is written", absent=not names)


def writers(trace: RunTrace) -> dict[str, set[int]]:
    """Which processes have written each file, by path relative to the script's folder."""
    found: dict[str, set[int]] = {}
    for rank in trace.ranks:
        for event in rank.events:
            if event["e"] in ("write", "rename"):
                found.setdefault(event["to"] if event["e"] == "rename" else event["f"], set()).add(rank.rank)
    return found


def _written_at(trace: RunTrace, name: str) -> str:
    """The line that writes a file, the last one of the first process that does."""
    for rank in trace.ranks:
        for event in reversed(rank.events):
            if event["e"] in ("save", "write") and name in (event["f"], _lasting(event["f"])) and event.get("at"):
                return str(event["at"])
    return ""


def _varying(wanted: set[str], found: set[str], about: About) -> tuple[set[str], str]:
    """Of the names that are new, those that vary by themselves; and what is wrong with their number, in words."""
    varying = set[str]()
    for home, spread in about.unstable.homes.items():
        first, second = ({name for name in names if _stands_in(name, home)} for names in (wanted, found))
        varying |= second - wanted
        if len(second) > len(first) + spread:
            where = f" in {home[0]}" if home[0] != "." else ""
            return varying, f"{len(second)} files{where}, the original writes {len(first)}"
    return varying, ""


def _stands_in(name: str, home: tuple[str, str]) -> bool:
    return homes_of(name, {home[0]}) == home


def homes_of(name: str, folders: set[str]) -> tuple[str, str]:
    """The nearest known folder above a file, and the shape of the name that follows in it."""
    path = PurePath(name)
    above = next((str(one) for one in path.parents if str(one) in folders), ".")
    first = path.relative_to(above).parts[0] if above != "." else path.parts[0]
    return above, _DIGITS.sub("#", first) if above == "." else ""


def checkpoints(about: About) -> Promise:
    """What was saved last under each name: the same keys, classes, shapes and types; the same values."""
    wanted, found = map(_saves, (about.original, about.migrated))
    if not wanted:
        return about.untestable("checkpoints", "the original saves nothing through torch or safetensors", absent=True)
    for name, items in wanted.items():
        if name not in found:
            if about.original.cut or about.migrated.cut or name in about.unstable.names:
                continue
            at = _written_at(about.original, name)
            return about.broken("checkpoints", f"{name} is not saved", figure=name, at=at, side="original")
        problem = _form(items, found[name]) or _values(items, found[name], about)
        if problem:
            key, text = problem
            if key and about.by_nature() and "differs" in text:
                return about.untestable("checkpoints", about.by_nature())
            at = _written_at(about.migrated, name)
            return about.broken("checkpoints", f"{name}: {text}", figure=key, at=at)
    tensors = sum(len(item) == 6 for items in wanted.values() for item in items)
    return about.held("checkpoints", f"{', '.join(sorted(wanted)[:3])}: {tensors} tensors")


def _saves(trace: RunTrace) -> dict[str, list[list[Any]]]:
    """What was saved last under each name; of several processes' the first one's."""
    found: dict[str, list[list[Any]]] = {}
    for rank in reversed(trace.ranks):
        found.update(_saved_by(rank))
    return found


def _saved_by(rank: RankTrace) -> dict[str, list[list[Any]]]:
    saves: dict[str, list[list[Any]]] = {}
    for event in rank.events:
        if event["e"] == "save":
            saves[_lasting(event["f"]) or "(memory)"] = event["items"]
        elif event["e"] == "rename" and _lasting(event["f"]) in saves:
            saves[_lasting(event["to"])] = saves.pop(_lasting(event["f"]))
    return saves


def _lasting(name: str | None) -> str:
    """A name without what the system draws for a temporary folder or file; empty for what is saved in memory."""
    return _DRAWN.sub("tmp#", name or "")


def _form(wanted: list[list[Any]], found: list[list[Any]]) -> tuple[str, str] | None:
    """Keys, classes, shapes and types."""
    first, second = ({item[0]: item for item in items} for items in (wanted, found))
    missing = [key for key in first if key not in second]
    added = [key for key in second if key not in first]
    if missing or added:
        key = (added or missing)[0]
        text = f"the key {added[0]!r} is new" if added else ""
        text += f"{' and ' if added and missing else ''}the key {missing[0]!r} is missing" if missing else ""
        for prefix in ("module.", "_orig_mod."):
            if added and prefix in added[0]:
                text += f": a wrapper was saved ({prefix[:-1]!r} begins every key), so the plain model cannot load it"
        return key, text
    for key, item in first.items():
        other = second[key]
        if len(item) != len(other):
            return key, f"{key} is of another kind"
        if len(item) == 6 and (item[2] != other[2] or item[3] != other[3]):
            return key, f"{key} is {other[3]} {other[2]}, the original's {item[3]} {item[2]}"
        if item[1].partition(".")[0] != other[1].partition(".")[0] and item[1] != other[1]:
            return key, f"{key} is of class {other[1]}, the original's {item[1]}"
    return None


def _values(wanted: list[list[Any]], found: list[list[Any]], about: About) -> tuple[str, str] | None:
    others = {item[0]: item for item in found}
    if about.unstable.weights:
        return None
    for item in wanted:
        other = others[item[0]]
        if len(item) == 6:
            if item[5] != other[5] and (about.alone or apart(item[4], other[4], 1e-3) > 10 * about.tolerance):
                return item[0], f"{item[0]} differs (norm {other[4]:.6g}, the original's {item[4]:.6g})"
        elif len(item) == 3 and item[2] != other[2] and not agree(_number(item[2]), _number(other[2]), about.tolerance):
            return item[0], f"{item[0]} differs: {other[2]!r}, the original's {item[2]!r}"
    return None


def _number(value: Any) -> str:
    return json.dumps(value)
