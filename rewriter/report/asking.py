"""The questions of ``migrate -i``: each group of edits is shown, and the user accepts or declines it."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ..project.session import TRAINING, Session, problem_of
from ..result import FileResult, Result
from ..source import Source
from .diff import shown
from .groups import FRAMED, FindingGroup, groups
from .inline import said, short
from .rows import alike, new_lines, reasons
from .table import words
from .terminal import print_diff
from .text import counted

_KEYS = {
    "y": "make these edits",
    "n": "leave these places unchanged",
    "a": "make them, and all others by the same rules, without asking",
    "i": "go through them one by one",
    "v": "view all of them",
    "e": """make them, and open the file in your editor ($VISUAL, $EDITOR):
     the text that you save is used""",
    "s": "skip the rest of this file, and continue with the next one",
    "q": "stop asking: accepted edits are written, the others are not made",
    "?": "show this list",
}
_HELP = """\
Edits that need each other are one group, so no answer leaves a program
half migrated. Each answer is a letter and Enter. Ctrl-C writes nothing.
"""
_ONE, _ALIKE = "ynaesq?", "ynaisq?"
"""The answers about a group, and about several that are alike."""
_SHOWN = 3
"""So many edits that are alike are shown before the question, and the others on request."""
_LAST = "skip the rest of this file: accepted edits are written"
"""The answer "s" in a run of one file."""


class Quit(Exception):
    """The user wants no more questions."""


class Asking:
    """Asks about the groups of each program in turn."""

    def __init__(
        self, console: Console, answer: Callable[[], str], result: Result, *, side_by_side: bool = False
    ) -> None:
        """``answer`` returns the line that the user types, and an empty string at the end of the input; ``result`` has
        what was found."""
        self.console = console
        self.answer = answer
        self.side_by_side = side_by_side
        self.found = groups(result)
        self.files = 0
        """How many files there are to ask about."""
        self.shown: set[Path] = set()
        """The files whose findings have been shown at their lines."""
        self._begun: dict[tuple[str, Path], str] = {}
        """What came from the editor and is not valid, by group and file: it is opened again."""
        self.without_asking: set[str] = set()
        """Rules whose edits are accepted from now on without a question."""

    def about(self, sessions: Iterable[Session]) -> None:
        """Ask about everything; the sessions hold the answers afterwards."""
        sessions = list(sessions)
        self.files = len({file.source.path for session in sessions for file in session.whole.changed})
        if self.found:
            self._before({file.source.path for session in sessions for file in session.whole.files})
        try:
            for session in sessions:
                self._program(session)
        except Quit:
            return

    def _program(self, session: Session) -> None:
        left: set[Path] = set()
        questions = self._questions(session)
        for number, asked in enumerate(questions, 1):
            count = f"{number}/{len(questions)}"
            groups = [group for group in asked if left.isdisjoint(source.path for source in session.files(group))]
            key = self._together(session, groups, count) if len(groups) > 1 else "i"
            if key == "s":
                left.update(source.path for source in session.files(*groups))
            for place, group in enumerate(groups if key == "i" else (), 1):
                files = [source.path for source in session.files(group)]
                told = f"({count}, {place} of {len(groups)}) " if len(groups) > 1 else f"({count}) "
                if left.isdisjoint(files) and self._alone(session, group, told) == "s":
                    left.update(files)

    def _questions(self, session: Session) -> list[list[str]]:
        """The groups, those together that one answer is for: their edits have one reason, and nothing was found of
        their lines."""
        asked: dict[object, list[str]] = {}
        for group in session.groups:
            told = {(c.rule, c.severity, alike(c.reason)) for _, c in session.changes[group] if c.line}
            single = session.placed(group) > 1 or len(told) != 1 or any(self._concerned(session, group))
            asked.setdefault(group if single else next(iter(told)), []).append(group)
        return list(asked.values())

    def _alone(self, session: Session, group: str, count: str) -> str:
        """Ask about one group; return the answer, or an empty string where it was not asked for."""
        offered = session.offered(group)
        if offered is None:
            if group != TRAINING and TRAINING in session.accepted:
                self._say(f"Skipped, because you edited these lines: {self._title(session, group)}")
            return ""
        if self.without_asking.issuperset(session.rules(group)):
            session.accept(group)
            return ""
        self.console.print()
        self._show(session, group, offered)
        if cost := self._cost(session, group):
            self._say(f"# {cost}")
        return self._asked(session, [group], count + self._question(session, group), _ONE)

    def _together(self, session: Session, groups: Sequence[str], count: str) -> str:
        """Ask about groups that are alike; an "i" where each must be asked about."""
        offered, rules = session.offered(*groups), session.rules(*groups)
        if offered is None:
            return "i"
        if self.without_asking.issuperset(rules):
            session.accept(*groups)
            return ""
        self.console.print()
        more = len(groups) - _SHOWN if len(groups) > _SHOWN + 1 else 0
        some = (session.offered(*groups[:_SHOWN]) if more else offered) or offered
        print_diff(some, self.console, side_by_side=self.side_by_side, context=0)
        if more:
            self._say(f'# and {more} more edits like these: "v" shows all')
        files = session.files(*groups)
        where = "" if len(files) == 1 else f" in {counted(len(files), 'file')}"
        told = reasons([change for group in groups for _, change in session.changes[group] if change.line])
        self._say("\n".join(f"# {rule}: {reason}" for rule, reason, _ in told))
        keys = _ALIKE if len(files) == 1 else _ALIKE.replace("s", "")
        keys = keys.replace("i", "iv") if more else keys
        return self._asked(session, groups, f"({count}) Make these {len(groups)} edits{where}", keys)

    def _asked(self, session: Session, groups: Sequence[str], question: str, keys: str) -> str:
        """Ask until there is a valid answer, and carry it out."""
        while True:
            self.console.print(Text(f"{question} [{','.join(keys)}]? ", "bold blue"), end="", soft_wrap=True)
            line = self.answer()
            key = line.strip().lower()[:1]
            if not line or key == "q":
                raise Quit
            if key == "e" and key in keys and not self._edited(session, groups[0]):
                continue
            if key == "v" and key in keys:
                print_diff(session.offered(*groups) or (), self.console, side_by_side=self.side_by_side, context=0)
                continue
            if key in ("y", "a"):
                session.accept(*groups)
            if key == "a":
                self.without_asking.update(session.rules(*groups))
            if key and key != "?" and key in keys:
                return key
            if key and key != "?":
                self._say(f"{line.strip()!r} is none of the answers:")
            told = _KEYS | ({"s": _LAST} if self.files == 1 else {})
            listed = "".join(f"  {key}  {told[key]}\n" for key in keys)
            self.console.print(Text(f"{listed}{_HELP}", "cyan"), end="")

    def _question(self, session: Session, group: str) -> str:
        if group == TRAINING:
            return f"Make the training distributed, {counted(session.number(group), 'edit')}"
        return f"Make {'this edit' if session.placed(group) == 1 else 'these edits'}"

    def _cost(self, session: Session, group: str) -> str:
        """What else "no" leaves as it is; empty if nothing."""
        if more := session.number(*session.needing(group)):
            return f'"n" leaves the program as it is: the other {counted(more, "edit")} {_need(more)} these'
        if session.placed(group) < 2 or group == TRAINING:
            return ""
        return f"These {session.number(group)} edits need each other: declining leaves all of them out"

    def _title(self, session: Session, group: str) -> str:
        file, change = session.first(group)
        return f"{shown(file.source.path)}{file.at(change.line)} {change.rule}"

    def _before(self, asked: set[Path]) -> None:
        """What was found, before the first question: in short what is shown at its line with the edits, and in full
        the rest."""
        self._say(f"{counted(len(self.found), 'finding')} ({words(self.found)}). You see each again at its line.")
        for group in self.found[:FRAMED]:
            for line in short(group, self.console.width):
                self.console.print(Text.from_ansi(line), soft_wrap=True)
            if group.file.source.path not in asked:
                for line in said(group, self.console.width - 4, self.console.encoding, code=True):
                    self.console.print(Text.assemble("    ", Text.from_ansi(line)), soft_wrap=True)

    def _show(self, session: Session, group: str, offered: Sequence[FileResult]) -> None:
        """The edits of a group with their reasons, and what was found at their lines; with the training everything
        that belongs to no other group."""
        files = {file.source.path: file for file in session.whole.files}
        shown = {file.source.path: _placed(files[file.source.path], file, group) for file in offered}
        found = list(self._concerned(session, group))
        if group == TRAINING:
            self.shown.update(files)
            for one in found:
                path = one.file.source.path
                shown.setdefault(path, files[path]._replace(after=files[path].source.data, changes=()))
        told = [_moved(one, files[one.file.source.path], shown[one.file.source.path]) for one in found]
        ordered = [shown[path] for path in files if path in shown]
        print_diff(ordered, self.console, side_by_side=self.side_by_side, found=told)

    def _concerned(self, session: Session, group: str) -> Iterator[FindingGroup]:
        """What was found in the lines that a group edits; a line that several groups edit belongs to the first of
        them that is not the training."""
        files = {file.source.path for file in session.whole.files}
        edits: dict[tuple[Path, int], str] = {}
        for other in reversed(session.groups):
            for file, change in session.changes[other]:
                if other != TRAINING and change.line:
                    edits[file.source.path, change.line] = other
        for told in self.found[:FRAMED]:
            path = told.file.source.path
            if path in files and edits.get((path, told.first.line), TRAINING) == group:
                yield told

    def _say(self, text: str) -> None:
        self.console.print(Text(text, "yellow"), soft_wrap=True)

    def _edited(self, session: Session, group: str) -> bool:
        """Open each file of a group in the user's editor, as it would be with the group. Return whether all were
        accepted."""
        texts: dict[Source, str] = {}
        for source in session.files(group):
            name = source.path.name if source.notebook is None else f"{source.path.stem}.py"
            begun = self._begun.pop((group, source.path), None)
            mine = self._from_editor(begun or session.text(group, source), name, source.encoding)
            if mine is None:
                return False
            if problem := problem_of(mine, source):
                self._begun[group, source.path] = mine
                self._say(f"{shown(source.path)}: {problem}. Your text was not used: e opens it again")
                return False
            texts[source] = mine
        session.write(group, texts)
        return True

    def _from_editor(self, text: str, name: str, encoding: str) -> str | None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        with tempfile.TemporaryDirectory(prefix="torchlift-") as folder:
            file = Path(folder, name)
            file.write_bytes(text.encode(encoding))
            try:
                status = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
                if status == 0:
                    return file.read_bytes().decode(encoding)
                cause = f"ended with status {status}"
            except (OSError, ValueError) as error:
                cause = str(error)
        self._say(f"The editor {editor!r} returned nothing ({cause}). Set EDITOR, or choose another answer")
        return None


def _need(number: int) -> str:
    return "needs" if number == 1 else "need"


def _placed(file: FileResult, offered: FileResult, group: str) -> FileResult:
    """A file as it is offered, with the edits of a group at the lines of the text that is shown."""
    line = new_lines(file.texts[0], offered.texts[0])
    mine = (change for change in file.changes if change.group == group)
    return offered._replace(changes=tuple(change._replace(line=line(change.line)) for change in mine))


def _moved(told: FindingGroup, file: FileResult, offered: FileResult) -> FindingGroup:
    """What was found, at its line in the text that is shown; if the line was changed, above the diff."""
    number = new_lines(file.texts[0], offered.texts[0])(told.first.line)
    lines, now = (one.texts[0].split("\n") for one in (file, offered))
    same = 0 < told.first.line <= len(lines) and number <= len(now) and lines[told.first.line - 1] == now[number - 1]
    return told._replace(first=told.first._replace(line=number if same else 0))
