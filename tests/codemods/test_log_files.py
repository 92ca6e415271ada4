"""The rule `log_files`: open files and loggers of the other processes lead nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchlift.rewriter.config import Target

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

NOOPS: dict[str, dict[str, Any]] = {
    "a file that is read": {"top": "names = open('names.txt')"},
    "in a mode that says so": {"top": "names = open('names.txt', mode='rb')"},
    "an open of one's own": {"top": "def open(path, mode):\n    return path\n\nlog = open('a', 'w')"},
    "a logger": {"imports": "import logging", "top": "logger = logging.getLogger(__name__)"},
    "lines that are logged": {"imports": "import logging", "epoch": "logging.info('epoch %d', epoch)"},
    "warnings are wanted from all": {"imports": "import logging", "top": "logging.basicConfig(level=logging.WARNING)"},
    "a format alone": {"imports": "import logging", "top": "logging.basicConfig(format='%(message)s')"},
    "a library is hushed": {"imports": "import logging", "top": "logging.getLogger('PIL').setLevel(logging.ERROR)"},
    "a level of something else": {"top": "class Game:\n    def setLevel(self, n):\n        pass\n\nGame().setLevel(3)"},
}  # fmt: skip


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop("import logging\nimport torch\nlogging.basicConfig(level=logging.INFO)\nlog = open('a', 'w')\n")


FILES: dict[str, tuple[str, str]] = {
    "written": ("log = open('a.csv', 'w')", "log = open('a.csv' if accelerator.is_main_process else os.devnull, 'w')"),
    "appended to": (
        "log = open(path, 'a', buffering=1)",
        "log = open(path if accelerator.is_main_process else os.devnull, 'a', buffering=1)",
    ),
    "by keywords": (
        "log = open(file='a', mode='wt')",
        "log = open(file='a' if accelerator.is_main_process else os.devnull, mode='wt')",
    ),
    "handed to a writer": (
        "table = csv.writer(open('a.csv', 'w'))",
        "table = csv.writer(open('a.csv' if accelerator.is_main_process else os.devnull, 'w'))",
    ),
    "a path that is chosen": (
        "log = open(a if a else b, 'w')",
        "log = open((a if a else b) if accelerator.is_main_process else os.devnull, 'w')",
    ),
}


@pytest.mark.parametrize(("before", "after"), FILES.values(), ids=FILES)
@pytest.mark.parametrize("target", [Target.TORCHLIFT, Target.ACCELERATE])
def test_a_file_that_stays_open(before: str, after: str, target: Target, lines: Lines) -> None:
    out, new, findings = lines(imports="import csv\nimport os", built=before, options={"target": target})
    assert (out, [n for n in new if "accelerate" not in n], findings) == ([before], [after], [])


def test_the_name_of_nowhere_is_imported_where_os_is_not(lines: Lines) -> None:
    new = ["from os import devnull", "", "log = open('a' if accelerator.is_main_process else devnull, 'w')"]
    assert lines(built="log = open('a', 'w')")[1] == new


def test_what_is_written_to_such_a_file_stays(lines: Lines) -> None:
    step = "log.write('a')\nprint('b', file=log)\njson.dump({'c': 1}, log)"
    out, new, findings = lines(imports="import json\nimport os", built="log = open('a', 'w')", step=step)
    assert (len(out), len(new), findings) == (1, 1, [])


def test_a_print_to_the_error_stream_is_a_print(lines: Lines) -> None:
    assert lines(imports="import sys", epoch="print('a', file=sys.stderr)")[1] == [
        "    accelerator.print('a', file=sys.stderr)"
    ]


def test_a_file_that_is_open_during_the_training(lines: Lines) -> None:
    """A guard would enclose what all must do together: the file is made to lead nowhere."""
    end = "with open('a', 'w') as log:\n    for x, y in test_loader:\n        log.write(str(model(x)))"
    out, new, findings = lines(imports="import os", end=end)
    assert findings == []
    assert "with open('a', 'w') as log:" in out
    assert "with open('a' if accelerator.is_main_process else os.devnull, 'w') as log:" in new


@pytest.mark.parametrize("settled", ["log.truncate(0)", "os.fsync(log.fileno())", "os.fsync(log)"])
def test_the_null_device_is_not_cut_off_and_not_settled(settled: str, lines: Lines) -> None:
    """It was, on all processes but the main one, which ended them: an OSError."""
    _, new, findings = lines(imports="import os", built="log = open('a', 'a')", epoch=settled)
    assert new[-2:] == ["    if accelerator.is_main_process:", f"        {settled}"] and findings == []


def test_a_text_that_is_cut_off_is_no_file(lines: Lines) -> None:
    out, new, _ = lines(imports="import pandas as pd", end="table = pd.Series([1, 2])\ntable.truncate(after=1)")
    assert (out, new) == ([], [])


READ = ["log.seek(0)\nprint(log.read())", "rows = json.load(log)", "other = log", "for line in log:\n    print(line)"]


@pytest.mark.parametrize("use", READ)
def test_a_file_that_is_read_again_is_left_and_reported(use: str, lines: Lines) -> None:
    *_, findings = lines(imports="import json", built="log = open('a', 'w+')", end=use)
    assert findings == ["main_process"]


@pytest.mark.parametrize("mode", ["w+", "a+", "r+"])
def test_a_file_that_could_be_read_and_is_only_written(mode: str, lines: Lines) -> None:
    """It was left, and each process wrote to it."""
    end = "log.write('x')\nlog.close()"
    _, new, findings = lines(imports="import os", built=f"log = open('a', '{mode}')", end=end)
    assert new == [f"log = open('a' if accelerator.is_main_process else os.devnull, '{mode}')"] and findings == []


def test_a_plus_in_the_path_says_nothing_of_the_mode(lines: Lines) -> None:
    made = "log = open('a+b', 'w')"
    assert lines(imports="import os", built=made, end="rows = json.dump([], log)")[2] == []


LOGGING: dict[str, tuple[str, str]] = {
    "the level of all": (
        "logging.basicConfig(level=logging.INFO)",
        "logging.basicConfig(level=logging.INFO if accelerator.is_local_main_process else logging.ERROR)",
    ),
    "a level from the command line": (
        "logging.basicConfig(format='a', level=args.level)",
        "logging.basicConfig(format='a', level=args.level if accelerator.is_local_main_process else logging.ERROR)",
    ),
    "into a file": (
        "logging.basicConfig(filename='a.log', level=logging.INFO)",
        "logging.basicConfig(filename='a.log' if accelerator.is_main_process else os.devnull, level=logging.INFO)",
    ),
    "of one logger": (
        "logger.setLevel(logging.DEBUG)",
        "logger.setLevel(logging.DEBUG if accelerator.is_local_main_process else logging.ERROR)",
    ),
    "of the console": (
        "console = logging.StreamHandler(); console.setLevel(logging.INFO)",
        "console = logging.StreamHandler(); console.setLevel(logging.INFO if accelerator.is_local_main_process else "
        "logging.ERROR)",
    ),
    "a level that another module names": (
        "logger.setLevel(options.LEVEL)",
        "logger.setLevel(options.LEVEL if accelerator.is_local_main_process else logging.ERROR)",
    ),
    "by another name of the module": (
        "logger.setLevel(log.INFO)",
        "logger.setLevel(log.INFO if accelerator.is_local_main_process else log.ERROR)",
    ),
    "a handler for a file": (
        "logger.addHandler(logging.FileHandler('a.log'))",
        "logger.addHandler(logging.FileHandler('a.log') if accelerator.is_main_process else logging.NullHandler())",
    ),
    "one that turns files over": (
        "handler = RotatingFileHandler('a.log')",
        "handler = RotatingFileHandler('a.log') if accelerator.is_main_process else logging.NullHandler()",
    ),
}


@pytest.mark.hazard("G8")
@pytest.mark.parametrize(("before", "after"), LOGGING.values(), ids=LOGGING)
def test_logged_once(before: str, after: str, lines: Lines) -> None:
    imports = "import logging\nimport logging as log\nimport options\nimport os"
    imports += "\nfrom logging.handlers import RotatingFileHandler"
    out, new, findings = lines(imports=imports, top="logger = logging.getLogger()", built=before)
    assert (out, new, findings) == ([before], [after], [])


def test_a_configuration_of_its_own_is_that_of_the_main_process(lines: Lines) -> None:
    built = "logging.config.dictConfig(settings)"
    guarded = ["if accelerator.is_main_process:", "    " + built]
    assert lines(imports="import logging.config", built=built) == ([built], guarded, [])


LEFT = {
    "options behind stars": "logging.basicConfig(**options)",
    "another library": "loguru.logger.add('a.log')",
}


@pytest.mark.parametrize("built", LEFT.values(), ids=LEFT)
def test_left_and_reported(built: str, lines: Lines) -> None:
    assert lines(imports="import logging\nimport logging.config\nimport loguru", built=built) == ([], [], ["once"])
