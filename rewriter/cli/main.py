"""The ``migrate`` command: arguments, output, written files, and the exit status."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import ConfigError
from ..rule import Entry
from ..source import SourceError
from ..verify.options import VerifyError
from .output import fail, for_machines, in_short, listed, out, say, summarise, write_bytes, write_page
from .progress import ProgressBar
from .request import Request, parse
from .usage import UsageError

if TYPE_CHECKING:
    from ..project.scan import Survey
    from ..result import Diagnosis, FileResult, Result
    from ..verify.handover import SeenVerdict

_COMPLETE = "_MIGRATE_COMPLETE"
"""The environment variable that the shell's completion script sets."""

_FEW = 5
"""A hint names at most this many scripts to read."""

_SAYS = re.compile(r"--assume \w+=[\w.]*\w")
"""What the remedy of a finding lets the user say of a name."""

NOTHING, WOULD_CHANGE, BLOCKED, FAILED = range(4)


def run(catalogue: Sequence[Entry], argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit status; it raises no exception."""
    try:
        status = _run(catalogue, list(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output closed the pipe: print nothing, and flush nothing into the broken pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt:
        return 128 + 2
    except Exception as error:  # the outermost boundary: a bug of ours must not look like the user's
        if os.environ.get("TORCHLIFT_DEBUG") == "1":
            raise
        cause = f"internal error ({type(error).__name__}: {error})".replace("\n", " ")
        fail(f"{cause}. Please report it, with the traceback that TORCHLIFT_DEBUG=1 shows.")
        return FAILED
    return status


def _run(catalogue: Sequence[Entry], argv: list[str]) -> int:
    if shell := os.environ.get(_COMPLETE):
        from .options import complete

        return complete(_COMPLETE, shell, [entry.id for entry in catalogue])
    try:
        request = parse(argv)
        if isinstance(request, int):
            return request
        if request.rules:
            return _list_rules(catalogue, audits=request.audit)
        if request.explain is not None:
            _explain(catalogue, request, [request.explain, *request.paths])
            return NOTHING
        if request.audit:
            from .auditing import run_audit

            return run_audit(catalogue, request)
        return _migrate(catalogue, request)
    except UsageError as error:
        message = str(error).rstrip(".")
        fail(f"{message}{'' if message.endswith('?') else '.'} `migrate --help` shows how it is used.")
    except (ConfigError, SourceError, VerifyError) as error:
        fail(str(error))
    return FAILED


def _explain(catalogue: Sequence[Entry], request: Request, words: Sequence[str]) -> None:
    """Explain ids, or a line of a file."""
    if any(":" in word for word in words):
        from .at_line import explain_line, place_of

        place = place_of(words)
        if place is not None:
            explain_line(catalogue, request, place)
            return
    from .explain import explain

    explain(catalogue, words, color=request.color and sys.stdout.isatty())


def _list_rules(catalogue: Sequence[Entry], *, audits: bool) -> int:
    from ..audit.catalogue import RULES

    rows = [(rule.id, rule.summary) for rule in RULES] if audits else [(e.id, e.load().summary) for e in catalogue]
    out(listed([(id, text.replace("``", "`")) for id, text in rows]))
    return NOTHING


def _sentences(catalogue: Sequence[Entry]) -> dict[str, str]:
    return {entry.id: entry.load().summary for entry in catalogue}


def _documents(catalogue: Sequence[Entry]) -> dict[str, str]:
    return {entry.id: entry.load().doc for entry in catalogue}


def _migrate(catalogue: Sequence[Entry], request: Request) -> int:
    """Analyse every file, write on request if nothing is blocked, and report."""
    from ..project.scan import Surveyor

    shown = {"every": request.roles, "notes": not request.check}
    surveyor = Surveyor(catalogue, request.options, **shown, cached=request.cache)
    data = sys.stdin.buffer.read() if request.paths == ("-",) else None
    if data is None:
        with ProgressBar(sys.stderr) as progress:
            paths = [Path(path) for path in request.paths]
            survey = surveyor.look(paths, progress, follows=request.follow, hook=request.hook)
    else:
        survey = surveyor.look_at(data, "<stdin>")
    for note in surveyor.migrations.notes() if request.verbose else ():
        say(f"cache: {note}")
    if request.options.assume:
        from .assumed import unmatched

        texts = (source.text for program in survey.programs for source in program.sources)
        if idle := list(unmatched(request.options.assume, texts)):
            for line in idle:
                fail(line)
            return FAILED
    if not survey.files and not survey.refused and request.format == "text":
        if request.write and data is not None:
            write_bytes(data)
        sys.stderr.write(f"Nothing to do: {survey}.\n")
        return NOTHING

    result = survey.result()
    if request.interactive:
        return _ask(catalogue, request, result, survey)
    status = _status(result, survey.refused, request.check)
    verdict = _verify(result, survey, request)
    status = max(status, verdict.status if verdict else 0)
    may_write = not survey.refused and (request.options.partial or not result.blocked) and status != FAILED
    may_write = may_write and (verdict is None or verdict.status == 0)
    writes = request.write and may_write
    if writes and data is None and result.changed:
        from ..source import write_all

        write_all([(file.source, file.after) for file in result.changed])

    if request.html is not None:
        hints = list(_hints(result, survey, request, writes, verdict))
        write_page(request, result, survey, verdict, _sentences(catalogue), hints)
    if request.format != "text":
        rules = partial(_documents, catalogue)
        out(for_machines(request.format, result, survey, status, writes, verdict, rules))
        return status
    drawn: Sequence[FileResult] = ()
    if request.roles:
        from ..report.roles import roles_table

        out(roles_table(result))
    elif request.write and data is not None and not survey.refused:
        write_bytes(result.changed[0].after if writes and result.changed else data)
    elif not request.write and not request.check and not (sys.stdout.isatty() and _is_shorter(result, survey, request)):
        drawn = _show(result, request)
    if not request.roles or survey.refused:
        _summarise(result, survey, request, writes, verdict, drawn)
    return status


def _is_shorter(result: Result, survey: Survey, request: Request) -> bool:
    """Whether a terminal shows no diff: each program has one line, or the verdict is what is asked for."""
    return bool(in_short(result, survey, request)) or request.verify is not None


def _ask(catalogue: Sequence[Entry], request: Request, result: Result, survey: Survey) -> int:
    """Ask about each group of edits of the programs that are not blocked, and write what was accepted."""
    from .interactive import ask

    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise UsageError("--interactive needs a terminal for your answers")
    try:
        answers = ask(catalogue, survey, result, color=request.color, side_by_side=request.side_by_side)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        say("interrupted: nothing was written")
        raise
    result = answers.result
    status = _status(result, survey.refused, False)
    writes = not survey.refused and any(file.changed and not file.blocked for file in result.files)
    if writes:
        from ..source import write_all

        write_all([(file.source, file.after) for file in result.changed])
    if writes or survey.refused or result.blocked:
        _summarise(result, survey, request, writes, drawn=answers.shown if sys.stderr.isatty() else ())
    from .invoked import chosen, invoked, some

    _, named = some(request.paths)
    again = " ".join([invoked(), *([] if request.follow else ["--no-follow"]), *chosen(request.options), "-i", named])
    say(answers.told([file.source for file in result.changed] if writes else (), again))
    return status


def _verify(result: Result, survey: Survey, request: Request) -> SeenVerdict | None:
    """Run both scripts and compare, if there is something to compare."""
    if request.verify is None or not result.changed or survey.refused:
        return None
    if result.blocked and not request.options.partial:
        say("not verified, because the file is blocked")
        return None
    from ..verify.handover import verify

    say(
        f"verifying: some {2 + len(request.verify.procs)} runs of the original and the migrated script, of up to "
        f"{request.verify.steps} steps each, in copies of their folder; where they differ, two more ..."
    )
    return verify(result.changed, Path(request.paths[0]), request.verify, result.options.get("strategy") == "fsdp")


def _status(result: Result, refused: Sequence[SourceError], check: bool) -> int:
    if refused:
        return FAILED
    if result.blocked:
        return BLOCKED
    return WOULD_CHANGE if check and result.changed else NOTHING


def _show(result: Result, request: Request) -> Sequence[FileResult]:
    """Show the diffs: in colour at a terminal, with the findings at their lines; as a patch anywhere else. Return the
    files that are above the summary, on the same terminal."""
    files = [file for file in result.changed if request.options.partial or not file.blocked]
    if not files:
        return ()
    if sys.stdout.isatty() or request.side_by_side:
        from ..report.groups import groups, placed
        from ..report.terminal import console, print_diff

        told = [file for file in result.files if file in files or (file.diagnoses and not file.blocked)]
        found = placed(groups(result), told)
        print_diff(told, console(color=request.color), side_by_side=request.side_by_side, found=found)
        out("\n" if sys.stdout.isatty() else "")
        return told if sys.stdout.isatty() and sys.stderr.isatty() else ()
    from ..report.diff import base_of, patch

    base = base_of([file.source.path for file in files])
    for file in files:
        write_bytes(patch(file.source.path, file.source.data, file.after, base))
    return ()


def _summarise(
    result: Result,
    survey: Survey,
    request: Request,
    writes: bool,
    verdict: SeenVerdict | None = None,
    drawn: Sequence[FileResult] = (),
) -> None:
    """Say what was done and why, and what to run next; in short where it was drawn above."""
    if writes and request.paths != ("-",):
        from ..report.written import as_written

        result = as_written(result)
    hints = list(_hints(result, survey, request, writes, verdict))
    verb = "changed" if writes else "would change"
    if verdict is not None:  # what was asked for comes first
        from shutil import get_terminal_size

        from ..report.verdict import verdict_text

        color, width = request.color and sys.stderr.isatty(), get_terminal_size((120, 24)).columns
        sys.stderr.write(verdict_text(verdict, color=color, width=width) + "\n")
    summarise(result, survey, request, verb=verb, hints=hints, drawn=drawn)


def _hints(
    result: Result, survey: Survey, request: Request, writes: bool, verdict: SeenVerdict | None
) -> Iterator[str]:
    """What was not done and why, and the commands to run next, each on its own line."""
    from .invoked import chosen, details, invoked, launcher, quoted, some, takes_arguments

    hook = request.hook
    way = ["--hook"] if hook else [] if request.follow else ["--no-follow"]
    command = " ".join([invoked(), *way, *chosen(request.options)])
    paths = _free(result, survey) if hook else request.paths
    first, named = some(paths)
    script = len(request.paths) == 1 and request.paths != ("-",) and not Path(request.paths[0]).is_dir()
    if survey.unparsed:
        yield f"Not read:  {survey.unread()}"
    if request.write and not writes and result.changed:
        if survey.refused or result.blocked:
            yield f"Nothing was written: a file is {'in error' if survey.refused else 'blocked'}."
        else:
            yield "Nothing was written: not every promise is held."
            if verdict is not None:
                yield from _after_verdict(command, request, result, verdict)
    elif result.changed and not (request.write or request.interactive or survey.refused or result.blocked):
        if verdict is not None and verdict.status:
            yield from _after_verdict(command, request, result, verdict)
        elif request.paths != ("-",):
            yield f"To apply{first}:{'' if first else ' '} {command} --write {named}"
            if request.verify is None and script and not hook:
                arguments = " -- ARGUMENTS" if takes_arguments(_texts(survey, Path(request.paths[0]))) else ""
                yield f"To verify: {command} {named} --verify{arguments}"
    read = _to_read(survey, changed=False) if hook and not writes else []
    if scripts := read or (_to_read(survey, changed=True) if hook and not writes else []):
        what = "read the findings" if read else "see the changes"
        yield f"To {what}: {' '.join([invoked(), *chosen(request.options)])} {quoted(scripts)}"
    if hook and writes and result.changed:
        yield "Next:      look at it with git diff, then git add it, and commit again"
    free = paths if hook else _free_scripts(result, survey)
    if result.blocked and free and not survey.refused and not writes:
        which, open_ = some(free, f"{'files' if hook else 'programs'} that are not blocked")
        yield f"To apply{which or ' what is not blocked'}: {command} --write {open_}"
    if writes and result.changed and script and named.endswith(".py") and not hook:
        yield f"To run:    {launcher(result.options)} --num-processes 2 {named}"
    if result.changed and (writes or not hook) and verdict is None:  # a verification has it
        package = "accelerate" if result.options.get("target") == "accelerate" else "torchlift[runtime]"
        yield f"It needs:  pip install '{package}'  # where the script runs"
    if in_short(result, survey, request) and not hook:
        yield details(command, request.paths)
    if result.blocked and not request.options.partial:
        told = [(f, d) for f in result.files for d in f.diagnoses if d.severity.value == "blocked"]
        yield _explained(*told[0], " ".join([invoked(), *chosen(request.options)]))
        yield from _assumptions(told, command, request, survey)
        if hook or request.check:
            yield from _left_out(result)
        free_files = set(_free(result, survey))
        held = [path for path in map(_name, result.changed) if path not in free_files]
        if held and not request.write:
            which, rest = some(held) if hook else (first, named)
            rest_of = f"{which} of the rest" if which else " the rest"
            yield f"To apply{rest_of}, blocked files in part: {command} --partial --write {rest}"


def _assumptions(
    told: Sequence[tuple[FileResult, Diagnosis]], command: str, request: Request, survey: Survey
) -> Iterator[str]:
    """What the user may say of a name, so that a program is not blocked: of the underlined one, where it names none."""
    from .invoked import quoted

    where: dict[str, list[str]] = {}
    for file, found in told:
        for said in _SAYS.findall(found.remedy):
            line = file.texts[0].split("\n")[found.line - 1] if found.line else ""
            name = line[found.column - 1 : found.end - 1].strip()
            if said.endswith("=NAME"):
                said = said.removesuffix("NAME") + name if name.replace(".", "").isidentifier() else ""
            if said:
                own = [_name(file)] if request.hook else _scripts(file, survey)  # a hook finds their programs
                where.setdefault(said, []).extend(own)
    for said, paths in where.items():
        role, _, name = said.removeprefix("--assume ").partition("=")
        yield f"If `{name}` is a {role}: {command} {said} {quoted(list(dict.fromkeys(paths)))}"


def _scripts(file: FileResult, survey: Survey) -> list[str]:
    """The scripts of the programs that a file belongs to; the file itself where none is known."""
    from ..report.diff import shown

    programs = [[source.path for source in program.sources] for program in survey.programs]
    return [shown(paths[0]) for paths in programs if file.source.path in paths] or [_name(file)]


def _texts(survey: Survey, script: Path) -> Iterator[str]:
    """The texts of the program that a script begins."""
    programs = [program.sources for program in survey.programs]
    return (s.text for sources in programs if any(s.path == script for s in sources) for s in sources)


def _explained(file: FileResult, found: Diagnosis, command: str) -> str:
    """The command that says more of a finding: at its line, where a file has one."""
    from ..report.diff import shown
    from .invoked import invoked, quoted

    at = f"{shown(file.source.path)}{file.at(found.line)}"
    what = quoted([at]) if found.line and file.source.path.exists() else ""
    return f"To learn more: {command} --explain {what}" if what else f"To learn more: {invoked()} --explain {found.id}"


def _left_out(result: Result) -> Iterator[str]:
    """How files that are blocked are left out from now on, so that they do not fail each run."""
    from ..report.diff import shown

    files = [file for file in result.files if file.blocked]
    named = ", ".join(f'"{shown(file.source.path)}"' for file in files)
    yield f"To leave {'it' if len(files) == 1 else 'them'} out: exclude = [{named}] in [tool.torchlift], pyproject.toml"
    stop = next(d for d in files[0].diagnoses if d.severity.value == "blocked")
    if stop.line and len(files) == 1 and files[0].source.notebook is None:
        place = f"{shown(files[0].source.path)}{files[0].at(stop.line)}"
        yield f"If a finding is mistaken: # migrate: skip[{stop.id}] at the end of {place}"


def _after_verdict(command: str, request: Request, result: Result, verdict: SeenVerdict) -> Iterator[str]:
    """What to run next where a promise is broken, or nothing could be compared."""
    from .invoked import launcher, quoted

    arguments = quoted(request.verify.arguments) if request.verify is not None else ""
    script, ours = Path(request.paths[0]), f" -- {arguments}" if arguments else ""
    name, kept = quoted([str(script)]), quoted([str(script.with_stem(f"{script.stem}_original"))])
    if verdict.status != 1:
        yield f"To verify: {command} {name} --verify{ours}"
        return
    alone = len(result.changed) == 1 and script.suffix == ".py"
    yield f"To mend:   {f'cp {name} {kept}; ' if alone else ''}{command} --write {name}"
    yield "           then edit the lines that the verdict points to"
    if alone:
        started = launcher({}).removesuffix("launch")
        yield f"To verify: {started}verify {kept} {name}{ours}"


def _to_read(survey: Survey, *, changed: bool) -> list[str]:
    """The scripts of the programs whose previews show what a hook only counts: findings, or what is ``changed``."""
    from ..findings import Severity
    from ..report.diff import shown

    told = {f.source.path for f in survey.files if any(d.severity is Severity.REVIEW for d in f.diagnoses)}
    told |= {f.source.path for f in survey.files if changed and f.changed}
    programs = [[source.path for source in program.sources] for program in survey.programs] + survey.audited
    return [shown(paths[0]) for paths in programs if not told.isdisjoint(paths)][:_FEW]


def _free(result: Result, survey: Survey) -> list[str]:
    """The files that would change, of programs in which nothing is blocked: those that can be written."""
    stopped = {file.source.path for file in result.files if file.blocked}
    programs = [{source.path for source in program.sources} for program in survey.programs]
    held = {path for paths in programs if not stopped.isdisjoint(paths) for path in paths}
    return [_name(file) for file in result.changed if file.source.path not in held | stopped]


def _free_scripts(result: Result, survey: Survey) -> list[str]:
    """The scripts of the programs that would change, and in which nothing is blocked."""
    from ..report.diff import shown

    free, changed = set(_free(result, survey)), {file.source.path for file in result.changed}
    programs = [[source.path for source in program.sources] for program in survey.programs]
    whole = [paths for paths in programs if changed.intersection(paths)]
    return [shown(paths[0]) for paths in whole if free.issuperset(shown(path) for path in changed.intersection(paths))]


def _name(file: FileResult) -> str:
    from ..report.diff import shown

    return shown(file.source.path)
