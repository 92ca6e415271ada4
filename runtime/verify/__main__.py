"""
`python -m torchlift.runtime.verify`: verify a migration.

With `--request FILE` (or `-` for stdin) a request is read as JSON and the verdict is written as JSON: the contract with
the rewriter. Otherwise the arguments are ORIGINAL MIGRATED [options] -- ARGUMENTS OF THE SCRIPT.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from .request import RequestError, VerifyRequest, from_json, program_at
from .verdict import HELD, USAGE

_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_READY = "TORCHLIFT_VERIFY_READY"


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify, and return the exit status: 0 held, 1 broken, 2 the original does not run, 3 wrong usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, script = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    options = _parser().parse_args(own)
    if not hasattr(os, "fork"):
        return _fail("verifying needs a system that can fork processes (Linux or macOS)")
    try:
        request = _read(options.request) if options.request else _request(options, script)
        from .conductor import Server
        from .overview import as_json
        from .progress import RunProgress
        from .run_processes import end_on_signals

        end_on_signals()
        verdict = Server(request, RunProgress(sys.stderr)).verify()
    except (RequestError, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 128 + 2
    if options.request or options.output_format == "json":
        sys.stdout.write(json.dumps(as_json(verdict), indent=1, allow_nan=False) + "\n")
    else:
        from shutil import get_terminal_size

        from .text import as_text

        sys.stdout.write(as_text(verdict, get_terminal_size((120, 24)).columns))
        sys.stdout.write(f"\n{_next(options, script, verdict.status)}\n")
    sys.stdout.flush()
    return verdict.status


def _next(options: argparse.Namespace, script: list[str], status: int) -> str:
    """The command to run next."""
    arguments = shlex.join(script)
    if status == HELD:
        return f"To run:    torchlift launch --num-processes 2 {shlex.join([options.migrated])} {arguments}".rstrip()
    again = f"To verify: torchlift verify {shlex.join([options.original, options.migrated])}"
    return f"{again} -- {arguments}" if arguments else again


def _fail(message: str) -> int:
    sys.stderr.write(f"verify: {message}\n")
    return USAGE


class _Parser(argparse.ArgumentParser):
    def exit(self, status: int = 0, message: str | None = None) -> None:  # type: ignore[override]
        """Wrong usage is status 3, as in all our commands."""
        super().exit(USAGE if status == 2 else status, message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="torchlift verify", description="Run a script and its migrated version, and compare what they compute."
    )
    parser.add_argument("original", nargs="?", help="the original script")
    parser.add_argument("migrated", nargs="?", help="the migrated script")
    parser.add_argument("--request", metavar="FILE", help="read a request as JSON (- for stdin), write JSON")
    parser.add_argument("--procs", default="1,2", help="numbers of processes to run it on (default: 1,2)")
    parser.add_argument("--steps", type=int, default=20, help="the most batches per pass (default: 20)")
    parser.add_argument(
        "--as-is", action="store_true", help="only seed; keep shuffling, dropout and the batch per process"
    )
    parser.add_argument("--double", action="store_true", help="compute in float64 and compare to 1e-9")
    parser.add_argument("--keep", action="store_true", help="keep the scratch folders and print their paths")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one run may take (default: 120)")
    parser.add_argument("--wait", type=float, default=20.0, help="seconds that a process may wait (default: 20)")
    parser.add_argument("--cpu", action="store_true", help="stay on the CPU")
    parser.add_argument(
        "--device", choices=["xla"], default="", help="xla: on virtual devices of torch_xla; --procs counts these"
    )
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp", help="fsdp: with sharded weights")
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="the original is distributed by hand: run the same number of its processes",
    )
    parser.add_argument("--output-format", choices=["text", "json"], default="text")
    return parser


def _read(name: str) -> VerifyRequest:
    text = sys.stdin.read() if name == "-" else Path(name).read_text()
    try:
        return from_json(json.loads(text))
    except json.JSONDecodeError as error:
        raise RequestError(f"the request is not JSON ({error})") from error


def _request(options: argparse.Namespace, script: list[str]) -> VerifyRequest:
    if options.original is None or options.migrated is None:
        raise RequestError("name two scripts: torchlift verify ORIGINAL MIGRATED -- ARGUMENTS OF THE SCRIPT")
    for name in (options.original, options.migrated):
        if not Path(name).is_file():
            raise RequestError(f"there is no script {name!r}. Check the path")
    try:
        procs = tuple(int(word) for word in options.procs.split(","))
    except ValueError:
        raise RequestError(f"--procs is {options.procs!r}; give numbers, as in --procs 1,2") from None
    return VerifyRequest(
        original=program_at(Path(options.original), Path.cwd()),
        migrated=program_at(Path(options.migrated), Path.cwd()),
        arguments=tuple(script),
        procs=procs,
        steps=options.steps,
        exact=not options.as_is,
        double=options.double,
        keep=options.keep,
        seconds=options.limit,
        wait=options.wait,
        cpu=options.cpu,
        sharded=options.strategy == "fsdp",
        device=options.device,
        distributed=options.distributed,
    )


def _single_threaded() -> None:
    """Start anew with one thread and a fixed hash seed: runs are forked, and must be alike."""
    if os.environ.get(_READY) == "1":
        return
    settings = {**dict.fromkeys(_ONE_THREAD, "1"), "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1", _READY: "1"}
    os.execve(
        sys.executable, [sys.executable, "-m", "torchlift.runtime.verify", *sys.argv[1:]], {**os.environ, **settings}
    )


if __name__ == "__main__":
    _single_threaded()
    sys.exit(main())
