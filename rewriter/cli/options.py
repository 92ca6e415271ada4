"""The options of ``migrate`` for click: their help, their checks, and their completion in a shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..config import DEVICES, PRECISIONS, Strategy, Target
from ..verify.options import Asked
from .usage import EVERYTHING, FORMATS, HELP, UsageError

_ASKED = Asked()


def read(argv: list[str]) -> dict[str, Any] | int:
    """Read arguments: the value of each option by its name, or the exit status after ``--help`` or ``--version``."""
    try:
        with command.make_context("migrate", argv) as context:
            given: dict[str, Any] = command.invoke(context)
            return given
    except click.exceptions.Exit as done:  # --help and --version have printed their text
        return done.exit_code
    except click.NoSuchOption as error:
        raise UsageError(_unknown(error.option_name)) from None
    except click.ClickException as error:
        raise UsageError(error.format_message()) from None


def _unknown(option: str) -> str:
    """What to say of an option that does not exist: the one that is most like it, where one is."""
    from difflib import get_close_matches

    if (format := option.lstrip("-")) in FORMATS:
        return f"No such option: {option}. Did you mean --output-format {format}?"
    known = [name[2:] for parameter in command.params for name in parameter.opts if name.startswith("--")]
    near = get_close_matches(option.lstrip("-"), known, 1, 0.7)
    return f"No such option: {option}{f'. Did you mean --{near[0]}?' if near else ''}"


def complete(variable: str, instruction: str, rules: Sequence[str]) -> int:
    """Answer a shell that asks for the completion script, or for the completion of a word; ``rules``: their ids."""
    from click.shell_completion import shell_complete

    return shell_complete(command, {"obj": tuple(rules)}, "migrate", variable, instruction)


def _show_version(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"migrate (torchlift) {version('torchlift')}")
        context.exit()


def _words(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def _procs(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) for word in words) or len(set(words)) != len(words):
        raise click.BadParameter(f"{text!r} is not a list of different numbers of processes, such as 1,2")
    return tuple(map(int, words))


def _ids(context: click.Context, option: click.Parameter, begun: str) -> Sequence[Any]:
    """What ``--explain`` explains: ids, and the lines of files, of which the shell completes the name."""
    from click.shell_completion import CompletionItem

    from ..report.explaining import of_one_case, sections

    ids = [id for id in dict.fromkeys((*(context.obj or ()), *sections())) if id.startswith(begun)]
    named = [id for id in sections() if begun.startswith(id)]  # the cases of one, once it is written out
    ids += [case for id in named for case in of_one_case(id) if case.startswith(begun)]
    return ids or [CompletionItem(begun, type="file")]


def _roles(context: click.Context, option: click.Parameter, begun: str) -> list[str]:
    """The roles that ``--assume`` gives to a name."""
    from ..facts.roles import Role

    return [f"{role.value}=" for role in Role if role.value.startswith(begun)]


def _rules(context: click.Context, option: click.Parameter, begun: str) -> list[str]:
    """Rules for a list with commas, of which the last is completed."""
    from ..audit.ids import IDS

    before, comma, last = begun.rpartition(",")
    return [f"{before}{comma}{id}" for id in (*(context.obj or ()), *IDS) if id.startswith(last)]


@click.command("migrate", help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path())
@click.option("-w", "--write", is_flag=True, help="Write the files: all of them, or none.")
@click.option("-i", "--interactive", is_flag=True, help="Ask about each group of edits, then write.")
@click.option(
    "--check",
    is_flag=True,
    help="Show no diff and no notes on migrated files; exit status 1 if a file would change.",
)
@click.option("--partial", is_flag=True, help="Also apply the safe edits of a blocked file.")
@click.option(
    "--select",
    multiple=True,
    callback=_words,
    metavar="IDS",
    shell_complete=_rules,
    help="Run only these rules (comma-separated).",
)
@click.option(
    "--ignore", multiple=True, callback=_words, metavar="IDS", shell_complete=_rules, help="Do not run these rules."
)
@click.option("--audit", is_flag=True, help="Check scripts that are distributed already; change nothing.")
@click.option("--no-follow", is_flag=True, help="Migrate each file alone; do not follow imports.")
@click.option("--hook", is_flag=True, help="PATHs are changed files: migrate the programs that import them.")
@click.option("--rules", is_flag=True, help="List the rules.")
@click.option(
    "--explain",
    metavar="[ID]",
    is_flag=False,
    flag_value=EVERYTHING,
    shell_complete=_ids,
    help="Show what a rule does, or what a finding means; without ID: list all.",
)
@click.option("--roles", is_flag=True, help="Show the role of each name and loop, and why; no diff.")
@click.option(
    "--assume",
    multiple=True,
    metavar="ROLE=NAME",
    shell_complete=_roles,
    help="Say what a name is, e.g. loss=err.",
)
@click.option("--target", type=click.Choice([t.value for t in Target]), help="The runtime that the new code calls.")
@click.option(
    "--strategy",
    type=click.Choice([s.value for s in Strategy]),
    help="fsdp: also report what does not work with sharded weights.",
)
@click.option("--mixed-precision", type=click.Choice(PRECISIONS), help="The precision that the new code uses.")
@click.option(
    "--keep-global-batch", is_flag=True, help="Keep the global batch size: split each batch over the processes."
)
@click.option("--verify", is_flag=True, help="Run both scripts and compare what they compute.")
@click.option(
    "--procs",
    default=",".join(map(str, _ASKED.procs)),
    show_default=True,
    callback=_procs,
    help="With --verify: the numbers of processes.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=_ASKED.steps,
    show_default=True,
    help="With --verify: the most batches per pass.",
)
@click.option("--as-is", is_flag=True, help="With --verify: only seed; do not keep the global batch.")
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="tpu: do without what is slow on TPUs, or report it. With --verify: run on virtual devices, by torch_xla.",
)
@click.option("--double", is_flag=True, help="With --verify: compute in float64 and compare to 1e-9.")
@click.option(
    "--limit",
    type=click.FloatRange(min=1),
    default=_ASKED.limit,
    show_default=True,
    help="With --verify: the most seconds per run.",
)
@click.option("--keep", is_flag=True, help="With --verify: keep the scratch folders.")
@click.option(
    "--python", metavar="EXE", type=click.Path(), help="With --verify: the Python interpreter that has torch."
)
@click.option("--output-format", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(),
    help="Write a page with the diff, the reasons, the findings and the verdict.",
)
@click.option("--side-by-side", is_flag=True, help="Show before and after in two columns.")
@click.option("--details", is_flag=True, help="Of many programs, show each diff and finding, not one line each.")
@click.option("--no-cache", is_flag=True, help="Do not read or write .torchlift_cache.")
@click.option("-v", "--verbose", is_flag=True, help="Report how the cache was used.")
@click.option("--no-color", is_flag=True, help="No colours (as NO_COLOR=1).")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def command(**given: Any) -> dict[str, Any]:
    """Return the values of the options."""
    return given
