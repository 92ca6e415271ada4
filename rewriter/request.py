"""What the command line asks for: the options of ``migrate``, as click reads them. Nothing heavy is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import click

from .config import PRECISIONS, RawConfig, Target, assumption
from .usage import HELP
from .verify_options import Asked, asked, verify_options

FORMATS = ("text", "json", "sarif", "github")


class Request(NamedTuple):
    """What the command line asks for."""

    paths: tuple[str, ...]
    options: RawConfig
    write: bool
    check: bool
    rules: bool
    explain: str | None
    roles: bool
    format: str
    """One of ``FORMATS``."""
    color: bool
    interactive: bool = False
    side_by_side: bool = False
    html: str | None = None
    follow: bool = True
    """Migrate programs, with the modules that scripts import; else each file by itself."""
    hook: bool = False
    """The paths are changed files: the programs that reach them are meant."""
    verify: Asked | None = None


def parse(argv: list[str]) -> Any:
    """Cut the arguments at the first ``--``, which is not click's, and let click read what stands before."""
    cut = argv.index("--") if "--" in argv else len(argv)
    argv, rest = argv[:cut], argv[cut + 1 :]
    try:
        with command.make_context("migrate", argv) as context:
            request = command.invoke(context)
    except click.exceptions.Exit as done:  # --help and --version have printed what they know
        return done.exit_code
    if isinstance(request, Request) and request.verify is not None:
        return request._replace(verify=request.verify._replace(arguments=tuple(rest)))
    if rest:
        cause = f"what stands behind -- ({' '.join(rest)}) is for --verify, which is not there"
        raise click.UsageError(f"{cause}; write ./-name for a file whose name begins with a dash")
    return request


def _show_version(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"migrate (torchlift) {version('torchlift')}")
        context.exit()


def _words(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


@click.command("migrate", help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("-w", "--write", is_flag=True, help="Write the files: all of them, or none.")
@click.option("-i", "--interactive", is_flag=True, help="Ask for each group of edits, then write.")
@click.option("--check", is_flag=True, help="Show no diff; exit status 1 if a file would change.")
@click.option("--partial", is_flag=True, help="Apply the safe edits of a blocked file too.")
@click.option("--select", multiple=True, callback=_words, metavar="IDS", help="Run only these rules (comma-separated).")
@click.option("--ignore", multiple=True, callback=_words, metavar="IDS", help="Do not run these rules.")
@click.option("--no-follow", is_flag=True, help="Take each file by itself; do not follow its imports.")
@click.option("--hook", is_flag=True, help="PATHs are changed files: migrate the programs that reach them.")
@click.option("--rules", is_flag=True, help="List the rules.")
@click.option("--explain", metavar="ID", help="Show what a rule does, with an example.")
@click.option("--roles", is_flag=True, help="Show what each name was taken for, and why; no diff.")
@click.option("--assume", multiple=True, metavar="ROLE=NAME", help="Vouch for what a name is, e.g. loss=err.")
@click.option("--target", type=click.Choice([t.value for t in Target]), help="Whose runtime the new code calls.")
@click.option("--mixed-precision", type=click.Choice(PRECISIONS), help="Precision that the new code asks for.")
@click.option("--keep-global-batch", is_flag=True, help="Split the script's batches over the processes.")
@verify_options
@click.option("--output-format", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--html", metavar="FILE", help="Write a page with the diff, the reasons, the findings and the verdict.")
@click.option("--side-by-side", is_flag=True, help="Show before and after in two columns.")
@click.option("--no-color", is_flag=True, help="No colours (as NO_COLOR=1).")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show it.")
def command(**given: Any) -> Request:
    """Make a request of the options."""
    _exclusive(given, "write", "check", "interactive")
    _exclusive(given, "interactive", "roles", "verify")
    _exclusive(given, "interactive", "html")
    _exclusive(given, "hook", "no_follow", "verify")
    if given["interactive"] and given["output_format"] != "text":
        raise click.UsageError("--interactive and --output-format exclude each other")
    if not given["paths"] and not given["rules"] and given["explain"] is None:
        raise click.UsageError("Name a script or a folder, or - for stdin")
    if "" in given["paths"]:
        raise click.UsageError("A path is empty: name a script or a folder, or - for stdin")
    if "-" in given["paths"] and (len(given["paths"]) > 1 or given["interactive"]):
        raise click.UsageError("- (stdin) goes alone")
    options = RawConfig(
        select=given["select"] or None,
        ignore=given["ignore"],
        assume=tuple(assumption("--assume", text) for text in given["assume"]),
        target=Target(given["target"]) if given["target"] else None,
        mixed_precision=given["mixed_precision"],
        keep_global_batch=given["keep_global_batch"] or None,
        partial=given["partial"],
    )
    names = ("paths", "write", "check", "rules", "explain", "roles", "html", "interactive", "side_by_side", "hook")
    kept = {name: given[name] for name in names} | {"follow": not given["no_follow"]}
    color = not given["no_color"] and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    verify = asked(given)
    named = given["paths"]
    if verify is not None and (len(named) != 1 or named[0] == "-" or Path(named[0]).is_dir()):
        raise click.UsageError("--verify runs one script: name its file, and only that")
    return Request(**kept, options=options, format=given["output_format"], color=color, verify=verify)


def _exclusive(given: dict[str, Any], *names: str) -> None:
    asked_for = [name for name in names if given[name]]
    if len(asked_for) > 1:
        one, other = (name.replace("_", "-") for name in asked_for[:2])
        raise click.UsageError(f"--{one} and --{other} exclude each other")


def complete(variable: str, instruction: str) -> int:
    """Answer a shell that wants the completion script, or a word completed."""
    from click.shell_completion import shell_complete

    return shell_complete(command, {}, "migrate", variable, instruction)
