"""
A process that has imported torch and forks others: most of what a test of the runtime waits for is that import.

`python tests/forks.py [MODULE...]` imports these modules, too. It reads requests from its input, one JSON object in a
line: `argv` (a script, or `-m` and a module, and the arguments), `cwd`, `env`, and the files `out` and `err`. It
answers with the number of the new process, and later with the status of each that has ended. What is forked runs as
`__main__` and ends as every interpreter does.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import sys
import types
from pathlib import Path
from typing import Any


def main() -> None:
    import torch
    import torch._dynamo  # the first step of every optimizer imports it
    import torch.distributed
    import torch.utils.data

    del torch
    for name in sys.argv[1:]:
        importlib.import_module(name)
    # A fork that collects garbage goes through all that was imported, and copies it: three quarters of its time.
    gc.collect()
    gc.freeze()
    request = serve()
    if request is not None:
        become(request)


def serve() -> dict[str, Any] | None:
    """Fork for every request. In a fork: what it is to be. In the server: None, when nobody is there any more."""
    alive: set[int] = set()
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], 0.01 if alive else None)
        if ready:
            line = sys.stdin.readline()
            if not line:
                break
            pid = os.fork()
            if not pid:
                return dict(json.loads(line))
            alive.add(pid)
            say({"started": pid})
        for pid in list(alive):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                alive.remove(pid)
                say({"ended": pid, "status": os.waitstatus_to_exitcode(status)})
    for pid in alive:
        os.killpg(pid, signal.SIGKILL)
    return None


def say(answer: dict[str, int]) -> None:
    print(json.dumps(answer), flush=True)


def become(request: dict[str, Any]) -> None:
    """Run what was asked for, in a session, a folder and an environment of its own."""
    os.setsid()
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for number, name in enumerate((os.devnull, request["out"], request["err"])):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # every process begins with another state
    argv = request["argv"]
    main_module = sys.modules["__main__"] = types.ModuleType("__main__")
    main_module.__dict__["__builtins__"] = __builtins__
    # As python does it: the names live until the interpreter ends. `runpy.run_path` and `run_module` free them at the
    # end of the script, in the middle of what the threads of a process group still do, and wait for these.
    if argv[0] == "-m":
        sys.argv = argv[1:]
        runpy._run_module_as_main(argv[1])
    else:
        sys.argv = argv
        sys.path.insert(0, str(Path(argv[0]).resolve().parent))
        main_module.__dict__["__file__"] = argv[0]
        exec(compile(Path(argv[0]).read_bytes(), argv[0], "exec"), main_module.__dict__)


if __name__ == "__main__":
    main()
