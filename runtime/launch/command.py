"""The `torchlift` command."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..config.cluster import DYNAMO_MODES
from ..errors import TorchliftError
from ..process.system import get_free_port
from .logs import Logs, logs_of
from .options import PRECISION_WORDS, Options, check_option, job_of
from .plan import Job, plan
from .sanitizing import FOUND, asked_for, attempt_folder, latest, new_folder
from .sharding import sharding_options, taken_out
from .spawn import run


class _Launch(click.Command):
    """Takes hyphens and underscores in its own options for the same; leaves what belongs to the script alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        own: list[str] = []
        rest = list(args)
        while rest and rest[0].startswith("-") and rest[0] != "--":
            name, equals, value = rest.pop(0).partition("=")
            name = name.replace("_", "-") if name.startswith("--") else name
            if not any(name in option.opts for option in self.params):
                _known(name)
            own.append(name + equals + value)
            if name in takes_value and not equals and rest:
                own.append(rest.pop(0))
        if rest and rest[0] == "--":
            rest.pop(0)
        return super().parse_args(ctx, [*own, "--", *rest])


def _known(name: str) -> None:
    try:
        check_option(name)
    except TorchliftError as error:
        _fail(str(error))


def _show_version(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"torchlift {version('torchlift')}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Run a migrated training script on many processes."""


@main.command(cls=_Launch)
@click.option(
    "--config-file",
    type=click.Path(),
    help="A file from `torchlift config`; options on the command line take precedence.",
)
@click.option("--num-processes", type=click.IntRange(min=1), help="How many processes, on all machines.  [default: 1]")
@click.option("--cpu", is_flag=True, default=None, help="Stay on the CPU.")
@click.option("--multi-gpu", is_flag=True, help="Accepted: the processes use the available GPUs.")
@click.option("--tpu", is_flag=True, help="One process that drives all devices of torch_xla: TPUs, as a rule.")
@click.option("--gpu-ids", help="Numbers of the GPUs to use, separated by commas; the default is one process per GPU.")
@click.option("--num-machines", type=click.IntRange(min=1), help="How many machines.  [default: 1]")
@click.option("--machine-rank", type=click.IntRange(min=0), help="The number of this machine.  [default: 0]")
@click.option("--main-process-ip", help="The address of process 0.  [default: 127.0.0.1]")
@click.option(
    "--main-process-port",
    type=click.IntRange(0, 65535),
    help="The port of process 0; 0 means a free port.  [default: 0]",
)
@click.option("--mixed-precision", type=click.Choice(PRECISION_WORDS), help="The precision of forward passes.")
@click.option("--fp8-backend", help="What multiplies with --mixed-precision fp8: AO (torchao).  [default: AO]")
@click.option(
    "--tf32/--no-tf32",
    default=None,
    help="Round the operands of fp32 matrix products to TF32 on GPUs that can.  [default: as torch does]",
)
@click.option(
    "--split-batches",
    is_flag=True,
    default=None,
    help="Keep the global batch size: split every batch over the processes.",
)
@click.option("--gradient-accumulation-steps", type=click.IntRange(min=1), help="Batches per optimizer step.")
@click.option("--dynamo-backend", help="Compile models with this backend of torch.compile.")
@click.option("--dynamo-mode", type=click.Choice(DYNAMO_MODES), help="For torch.compile.")
@click.option(
    "--dynamo-use-fullgraph", is_flag=True, default=None, help="Fail if a model is not compiled as a whole graph."
)
@click.option("--dynamo-use-dynamic", is_flag=True, default=None, help="Compile for all shapes at once.")
@click.option("--dynamo-use-regional-compilation", is_flag=True, default=None, help="Compile repeated blocks only.")
@sharding_options
@click.option("--num-cpu-threads-per-process", type=click.IntRange(min=1), help="Threads of each process on the CPU.")
@click.option("--max-restarts", type=click.IntRange(min=0), default=0, help="Restart all processes when one fails.")
@click.option("--rdzv-backend", type=click.Choice(["static", "c10d"]), help="Accepted, without effect.")
@click.option("--rdzv-conf", help="Accepted, without effect.")
@click.option("--role", help="Accepted, without effect.")
@click.option(
    "--monitor-interval", type=float, help="Accepted, without effect: the end of a process is noticed at once."
)
@click.option("--main-training-function", help="Accepted, without effect.")
@click.option("--same-network", is_flag=True, help="Accepted, without effect.")
@click.option("--debug", is_flag=True, help="Accepted, without effect: collective calls are always checked.")
@click.option("--log-dir", type=click.Path(), help="Write what each process prints to files in this folder.")
@click.option(
    "-r", "--redirects", help="Streams that go only to files: 1 stdout, 2 stderr, 3 both; 0:3 for process 0 only."
)
@click.option("-t", "--tee", help="Streams that go to files and to the terminal, in the same form.")
@click.option("-q", "--quiet", is_flag=True, help="Do not report processes that fail.")
@click.option(
    "--sanitize",
    is_flag=True,
    help="Run under the sanitizer, which is slower: it reports what the ranks do differently, or several times, with "
    "file and line. TORCHLIFT_SANITIZE=1 is the same.",
)
@click.option(
    "--sanitize-dir",
    type=click.Path(file_okay=False),
    help="Where the sanitizer keeps its records and the trace of collective calls.  [default: a temporary folder]",
)
@click.option(
    "--sanitize-status",
    type=click.IntRange(0, 255),
    default=FOUND,
    show_default=True,
    help="The exit status when the script succeeds and the sanitizer reports something.",
)
@click.option("--no-python", is_flag=True, help="SCRIPT is an executable program, not a Python script.")
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as for `python -m`.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    script: str,
    arguments: tuple[str, ...],
    quiet: bool,
    max_restarts: int,
    log_dir: str | None,
    redirects: str | None,
    tee: str | None,
    sanitize: bool,
    sanitize_dir: str | None,
    sanitize_status: int,
    **given: Any,
) -> None:
    """Start SCRIPT on this machine as processes that know each other. What follows SCRIPT is the script's own."""
    options = Options(sharding=taken_out(given), **given)
    plain = not options.module and not options.no_python
    if plain and not os.path.exists(script):  # noqa: PTH110  (no need to load pathlib for this)
        _fail(f"there is no script {script!r}. Check the path; for a module, put -m before it.")
    try:
        job = job_of(options, (script, *arguments), os.environ)
        logs = logs_of(log_dir, redirects, tee)
        if logs is not None and not quiet:
            click.echo(f"torchlift: what the processes print is in {logs.folder}", err=True)
        if sanitize or sanitize_dir is not None or asked_for(os.environ):
            status = _sanitized(job, sanitize_dir, sanitize_status, max_restarts, quiet, logs)
        else:
            status = _run(job, max_restarts, quiet, logs)
    except (TorchliftError, OSError) as error:
        _fail(str(error))
    sys.exit(status)


def _sanitized(job: Job, folder: str | None, found: int, *how: Any) -> int:
    """Run a job under the sanitizer, and show what that reports of the last attempt."""
    from ..monitoring.sanitizer.report import report  # not needed by most

    job = replace(job, sanitize=new_folder(folder))
    status = _run(job, *how)
    outcome = report(latest(job.sanitize or ""))
    click.echo(outcome.text, err=True, nl=False)
    return status or (found if outcome.reports else 0)


def _run(job: Job, max_restarts: int, quiet: bool, logs: Logs | None = None) -> int:
    """Run a job, and again while it fails and may be started again; a signal to the launcher ends it for good."""
    status = 0
    for restart in range(max_restarts + 1):
        attempt = replace(job, restart=restart, sanitize=job.sanitize and attempt_folder(job.sanitize, restart))
        if attempt.port == 0 and attempt.num_machines == 1:
            attempt = replace(attempt, port=get_free_port())
        status = run(plan(attempt, os.environ), quiet, logs, restart)
        if status in (0, 130, 143):
            break
    return status


class _Verbatim(click.Command):
    """Passes all arguments on to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--", *args])


@main.command(cls=_Verbatim, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def verify(arguments: tuple[str, ...]) -> None:
    """Show that a migrated script computes what the original does: ORIGINAL MIGRATED [options] -- ARGUMENTS."""
    os.execv(sys.executable, [sys.executable, "-m", "torchlift.runtime.verify", *arguments])


class _Underscores(click.Group):
    """Takes `--config_file` for `--config-file`, also before a sub-command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _hyphens(args))


class _Simple(click.Command):
    """Takes hyphens and underscores in options for the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _hyphens(args))


def _hyphens(args: list[str]) -> list[str]:
    split = [arg.partition("=") for arg in args]
    return [(name.replace("_", "-") if name.startswith("--") else name) + sep + value for name, sep, value in split]


@main.command(name="merge-weights", cls=_Simple)
@click.argument("folder", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--part", help='The entry of the checkpoint that has the weights, e.g. "model".')
@click.option("--unsafe-serialization", is_flag=True, help="Write pytorch_model.bin instead of model.safetensors.")
@click.option("--remove-checkpoint-dir", is_flag=True, help="Remove FOLDER in the end.")
def merge_weights(
    folder: str, out: str, part: str | None, unsafe_serialization: bool, remove_checkpoint_dir: bool
) -> None:
    """
    Join the weights of a sharded checkpoint in FOLDER into one file.

    FOLDER is what torch.distributed.checkpoint has written. OUT is a folder, or a file that ends with .safetensors or
    .bin. The file is there whole, or not at all.
    """
    from ..checkpoint.merge import merge

    try:
        written = merge(Path(folder), Path(out), not unsafe_serialization, part, remove_checkpoint_dir)
    except (TorchliftError, OSError) as error:
        _fail(str(error))
    click.echo(f"written to {written}")


@main.command(name="estimate-memory", cls=_Simple)
@click.argument("target")
@click.option(
    "--precision", "precisions", default="fp32,bf16-mixed,bf16", show_default=True, help="Separated by commas."
)
@click.option("--optimizer", default="AdamW", show_default=True, help='Of torch.optim; "SGD(momentum=0.9)".')
@click.option("--shards", default="1,2,4,8", show_default=True, help="Among how many processes weights are sharded.")
@click.option("--block", help="Classes of the modules that are gathered by themselves, separated by commas.")
@click.option("--min-num-params", type=click.IntRange(min=1), help="How many parameters such a module has at least.")
def estimate_memory(
    target: str, precisions: str, optimizer: str, shards: str, block: str | None, min_num_params: int | None
) -> None:
    """
    Say how much memory weights, gradients and optimizer states of a model take.

    TARGET is MODULE:FACTORY (models.py:Net, or package.models:build(layers=2)), or a folder of safetensors files.
    Nothing is downloaded, and no weight takes memory.
    """
    from ..memory_plan.table import lines

    counts = shards.split(",")
    if not all(one.strip().isdigit() and int(one) > 0 for one in counts):
        _fail(f"--shards is {shards!r}; it must be numbers from 1 on, separated by commas.")
    words = [word.strip() for word in precisions.split(",")]
    _guarded(lines, target, words, optimizer, [int(one) for one in counts], block, min_num_params)


@main.group(cls=_Underscores, invoke_without_command=True)
@click.option("--config-file", type=click.Path(), help="Where to write; the default is the file that `launch` reads.")
@click.pass_context
def config(ctx: click.Context, config_file: str | None) -> None:
    """Answer some questions, and keep the answers for `torchlift launch`."""
    from . import configure

    ctx.obj = configure.place(config_file, os.environ)
    if ctx.invoked_subcommand is None:
        _guarded(configure.ask, ctx.obj)


@config.command(cls=_Simple)
@click.option("--mixed-precision", type=click.Choice(PRECISION_WORDS), default="no", show_default=True)
@click.option("--config-file", type=click.Path(), help="Where to write.")
@click.pass_obj
def default(obj: Any, mixed_precision: str, config_file: str | None) -> None:
    """Write a file for this machine without questions; an existing one stays."""
    from . import configure

    _guarded(configure.basic, configure.place(config_file, os.environ) if config_file else obj, mixed_precision)


@main.command(cls=_Simple)
@click.option("--config-file", type=click.Path(), help="A different file from the one that `launch` reads.")
def env(config_file: str | None) -> None:
    """Say what is installed and how this machine is set up, for a report."""
    from . import about

    _guarded(about.show, config_file, os.environ)


@main.command(cls=_Simple)
@click.option("--config-file", type=click.Path(), help="A file from `torchlift config`.")
@click.option("--num-processes", type=click.IntRange(min=1), help="How many processes.  [default: 2]")
@click.option("--cpu", is_flag=True, help="Stay on the CPU.")
def test(config_file: str | None, num_processes: int | None, cpu: bool) -> None:
    """Train on several processes of this machine, and compare with one."""
    options = Options(config_file=config_file, num_processes=num_processes, cpu=cpu or None, module=True)
    try:
        job = job_of(options, ("torchlift.runtime.selftest",), os.environ, default_processes=2)
        status = _run(job, 0, False)
    except (TorchliftError, OSError) as error:
        _fail(str(error))
    sys.exit(status)


def _guarded(function: Any, *arguments: Any) -> None:
    try:
        for line in function(*arguments):
            click.echo(line)
    except (TorchliftError, OSError) as error:
        _fail(str(error))


def _fail(message: str) -> None:
    click.echo(f"torchlift: {message}", err=True)
    sys.exit(3)


if __name__ == "__main__":
    main()
