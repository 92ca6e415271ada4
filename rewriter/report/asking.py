"""The questions of ``migrate -i``: each group of edits is shown, and the user accepts or declines it."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ..project.session import TRAINING, Session, problem_of
from ..source import Source
from .diff import shown
from .rows import reasons
from .terminal import print_diff
from .text import at_lines, counted, visible

_KEYS = "ynaesq?"
_HELP = """\
  y  make these edits
  n  leave these places unchanged
  a  make them, and all others by the same rules, without asking
  e  make them, and open the file in your editor ($VISUAL, $EDITOR):
     the text that you save is used
  s  skip the rest of this file, and continue with the next one
  q  stop asking: accepted edits are written, the others are not made
  ?  show this list
Edits that need each other are one group, so no answer leaves a program
half migrated. Ctrl-C writes nothing.
"""


class Quit(Exception):
    """The user wants no more questions."""


class Asking:
    """Asks about the groups of each program in turn."""

    def __init__(self, console: Console, answer: Callable[[], str], *, side_by_side: bool = False) -> None:
        """``answer`` returns the line that the user types, and an empty string at the end of the input."""
        self.console = console
        self.answer = answer
        self.side_by_side = side_by_side
        self.without_asking: set[str] = set()
        """Rules whose edits are accepted from now on without a question."""

    def about(self, sessions: Iterable[Session]) -> None:
        """Ask about everything; the sessions hold the answers afterwards."""
        try:
            for session in sessions:
                self._program(session)
        except Quit:
            return

    def _program(self, session: Session) -> None:
        left: set[Path] = set()
        for number, group in enumerate(session.groups, 1):
            files = session.files(group)
            if any(source.path in left for source in files):
                continue
            offered = session.offered(group)
            if offered is None:
                if group != TRAINING and TRAINING in session.accepted:
                    self._say(f"Skipped, because you edited these lines: {self._title(session, group)}")
                continue
            if self.without_asking.issuperset(session.rules(group)):
                session.accept(group)
                continue
            self.console.print()
            if group != TRAINING:
                self._reasons(session, group)
            print_diff(offered, self.console, side_by_side=self.side_by_side)
            if cost := self._cost(session, group):
                self._say(f"# {cost}")
            if self._asked(session, group, f"({number}/{len(session.groups)}) ") == "s":
                left.update(source.path for source in files)

    def _asked(self, session: Session, group: str, count: str) -> str:
        """Ask until there is a valid answer, and carry it out."""
        while True:
            question = f"{count}{self._question(session, group)} [{','.join(_KEYS)}]? "
            self.console.print(Text(question, "bold blue"), end="", soft_wrap=True)
            line = self.answer()
            key = line.strip().lower()[:1]
            if not line or key == "q":
                raise Quit
            if key == "e" and not self._edited(session, group):
                continue
            if key in ("y", "a"):
                session.accept(group)
            if key == "a":
                self.without_asking.update(session.rules(group))
            if key in ("y", "n", "a", "e", "s"):
                return key
            self.console.print(Text(_HELP, "cyan"), end="")

    def _question(self, session: Session, group: str) -> str:
        if group == TRAINING:
            return f"Make the training distributed, {counted(len(session.changes[group]), 'edit')}"
        return f"Make {'this edit' if len(session.changes[group]) == 1 else 'these edits'}"

    def _cost(self, session: Session, group: str) -> str:
        """What else "no" leaves as it is; empty if nothing."""
        if needing := session.needing(group):
            rules = dict.fromkeys(rule for other in needing for rule in session.rules(other))
            verb = "needs" if len(needing) == 1 else "need"
            return f"Declining this also declines {counted(len(needing), 'group')} that {verb} it: {', '.join(rules)}"
        changes = session.changes[group]
        if len(changes) == 1 or group == TRAINING:
            return ""
        return f"These {len(changes)} edits need each other: declining leaves all of them out"

    def _title(self, session: Session, group: str) -> str:
        (file, change), *_ = session.changes[group]
        return f"{shown(file.source.path)}{file.at(change.line)} {change.rule}"

    def _reasons(self, session: Session, group: str) -> None:
        for source in session.files(group):
            mine = [change for file, change in session.changes[group] if file.source == source]
            for rule, reason, lines in reasons(mine):
                place = at_lines(lines, source.notebook)
                self.console.print(Text(f"# {rule}{f', {place}' if place else ''}: {visible(reason)}", "yellow"))

    def _say(self, text: str) -> None:
        self.console.print(Text(text, "yellow"), soft_wrap=True)

    def _edited(self, session: Session, group: str) -> bool:
        """Open each file of a group in the user's editor, as it would be with the group. Return whether all were
        accepted."""
        texts: dict[Source, str] = {}
        for source in session.files(group):
            name = source.path.name if source.notebook is None else f"{source.path.stem}.py"
            mine = self._from_editor(session.text(group, source), name, source.encoding)
            if mine is None:
                return False
            if problem := problem_of(mine, source):
                self._say(f"{shown(source.path)}: {problem}. Your text was not used")
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
