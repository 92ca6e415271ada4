"""The rule `directories`: made by whoever comes first, and named by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchlift.rewriter.config import Target

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

IMPORTS = """\
import argparse
import glob
import os
import random
import time
import uuid
from datetime import datetime
from pathlib import Path"""

NOOPS: dict[str, dict[str, Any]] = {
    "a folder that may be there": {"top": "os.makedirs('out', exist_ok=True)"},
    "of pathlib": {"top": "Path('out').mkdir(parents=True, exist_ok=True)"},
    "the error is caught": {"top": "try:\n    os.makedirs('out')\nexcept FileExistsError:\n    pass"},
    "whatever the error": {"top": "try:\n    os.mkdir('out')\nexcept OSError:\n    pass"},
    "time that is measured": {"top": "start = time.time()", "end": "took = time.time() - start"},
    "a time that is kept": {"top": "notes = {'at': datetime.now().strftime('%Y')}"},
    "a random number": {"top": "seed = random.randint(0, 9)"},
    "files that are counted": {"top": "count = len(glob.glob('data/*.png'))"},
    "files that are listed": {"top": "names = [os.path.join('data', n) for n in os.listdir('data')]"},
    "a file name of the main process": {"end": "torch.save(1, f'last-{time.time()}.pt') if False else None"},
    "a loop that looks for a file that is there": {
        "top": "def find(name):\n    for i in range(9):\n        path = os.path.join(f'part{i}', name)\n"
        "        if os.path.exists(path):\n            return path\n    return None\n\npath = find('a.png')"
    },
    "a loop that waits": {"top": "while not os.path.exists('ready'):\n    time.sleep(1)"},
    "a function that nothing calls": {"end": "def new():\n    os.makedirs(f'run-{time.time()}')"},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    out, new, findings = lines(imports=IMPORTS, **parts)
    if "last-" in str(parts):  # the save is another rule's
        assert not any("broadcast" in line for line in new)
    else:
        assert (out, new, findings) == ([], [], [])


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop("import os\nimport time\nimport torch\nos.makedirs('out-' + time.strftime('%Y'))\n")


FOLDERS: dict[str, tuple[str, str]] = {
    "asked first": ("    os.makedirs(out)", "    os.makedirs(out, exist_ok=True)"),
    "one level": ("    os.mkdir(out)", "    os.makedirs(out, exist_ok=True)"),
    "of pathlib": ("    Path(out).mkdir(parents=True)", "    Path(out).mkdir(parents=True, exist_ok=True)"),
}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize(("before", "after"), FOLDERS.values(), ids=FOLDERS)
@pytest.mark.parametrize("question", ["if not os.path.exists(out):", "if not Path(out).is_dir():"])
def test_asking_first_does_not_help(question: str, before: str, after: str, lines: Lines) -> None:
    assert lines(imports=IMPORTS, top=f"out = 'out'\n{question}\n{before}") == ([before], [after], [])


@pytest.mark.hazard("G4")
@pytest.mark.parametrize("leaves", ["sys.exit(1)", "raise"])
def test_an_error_that_ends_the_process_that_lost_the_race(leaves: str, lines: Lines) -> None:
    body = "    if not os.path.exists('out'):\n        os.makedirs('out')"
    top = f"import sys\ntry:\n{body}\nexcept OSError as error:\n    {leaves}"
    before, after = "        os.makedirs('out')", "        os.makedirs('out', exist_ok=True)"
    assert lines(imports=IMPORTS, top=top) == ([before], [after], [])


@pytest.mark.hazard("G4")
@pytest.mark.parametrize(
    "leaves", ["print('no folder')\n    raise", "sys.exit('no folder')", "raise RuntimeError('out')"]
)
def test_an_error_that_ends_the_process_although_nothing_was_asked(leaves: str, lines: Lines) -> None:
    """The folder must be new: the second process ended the job, because the first had made it."""
    top = f"import sys\ntry:\n    os.makedirs('out')\nexcept OSError:\n    {leaves}"
    out, new, findings = lines(imports=IMPORTS, top=top)
    assert "    os.makedirs('out')" in out and findings == []
    assert [line.strip() for line in new[:2]] == ["if accelerator.is_main_process:", "os.makedirs('out')"]


def test_an_error_after_which_the_function_returns(lines: Lines) -> None:
    top = "def new():\n    try:\n        os.mkdir('out')\n    except FileExistsError:\n        return\n\nnew()"
    assert lines(imports=IMPORTS, top=top) == ([], [], [])


@pytest.mark.parametrize("inner", ["os.path.join(out, 'a')", "os.path.join(out, 'a', 'b')", "Path(out) / 'a'"])
def test_all_wait_for_a_new_folder_before_they_make_one_in_it(inner: str, lines: Lines) -> None:
    """Another process made it on the way to the inner one, and the main process found that it is there."""
    top = f"out = 'runs'\nos.makedirs(out)\ninner = {inner}\nif not os.path.exists(inner):\n    os.mkdir(inner)"
    new = lines(imports=IMPORTS, top=top)[1]
    wait = new.index("accelerator.wait_for_everyone()")
    assert new.index("    os.makedirs(out)") < wait < new.index("    os.makedirs(inner, exist_ok=True)")


MUST_BE_NEW = ["os.makedirs('out')", "os.mkdir('out')", "Path('out').mkdir()", "os.makedirs('out', exist_ok=again)"]


@pytest.mark.parametrize("call", MUST_BE_NEW)
def test_a_folder_that_must_be_new_is_made_by_one(call: str, lines: Lines) -> None:
    """On one process an old folder is an error, as before; and so it is on several, of the main process."""
    assert lines(imports=IMPORTS, end=call) == ([call], ["if accelerator.is_main_process:", f"    {call}"], [])


HANDED = "from torchlift.runtime.utils import broadcast_object_list"

NAMES: dict[str, tuple[str, str]] = {
    "a time": ("out = time.strftime('%Y')", "out = broadcast_object_list([time.strftime('%Y')])[0]"),
    "a date": (
        "out = datetime.now().strftime('%Y')",
        "out = broadcast_object_list([datetime.now().strftime('%Y')])[0]",
    ),
    "in a text": ("out = f'runs/{datetime.now():%Y}'", "out = broadcast_object_list([f'runs/{datetime.now():%Y}'])[0]"),
    "joined": (
        "out = os.path.join('runs', str(int(time.time())))",
        "out = broadcast_object_list([os.path.join('runs', str(int(time.time())))])[0]",
    ),
    "a path": (
        "out = Path('runs') / time.strftime('%H')",
        "out = broadcast_object_list([Path('runs') / time.strftime('%H')])[0]",
    ),
    "by a format": (
        "out = 'runs/{}'.format(uuid.uuid4().hex)",
        "out = broadcast_object_list(['runs/{}'.format(uuid.uuid4().hex)])[0]",
    ),
    "by an old format": (
        "out = 'runs/%d' % random.randint(0, 99)",
        "out = broadcast_object_list(['runs/%d' % random.randint(0, 99)])[0]",
    ),
    "a count": (
        "out = 'runs/' + str(len(os.listdir('runs')))",
        "out = broadcast_object_list(['runs/' + str(len(os.listdir('runs')))])[0]",
    ),
}


@pytest.mark.hazard("G4")
@pytest.mark.parametrize(("before", "after"), NAMES.values(), ids=NAMES)
def test_the_main_process_makes_the_name(before: str, after: str, lines: Lines) -> None:
    out, new, findings = lines(imports=IMPORTS, top=f"{before}\nos.makedirs(out, exist_ok=True)")
    assert (out, new, findings) == ([before], [HANDED, after], [])


LISTED = """\
def following(place):
    numbers = []
    for name in [entry.name for entry in Path(place).glob('*/')]:
        try:
            numbers.append(int(name))
        except ValueError:
            pass
    {end}

def first_free(place):
    found = [int(name) for name in os.listdir(place)]
    return max(found) + 1
"""
HIGHEST = {
    "in a branch of its own": ("if len(numbers) == 0:\n        return 0\n    return max(numbers) + 1", "following"),
    "or nothing there": ("return max(numbers) + 1 if numbers else 0", "following"),
    "a count after a return": ("if not numbers:\n        return 0\n    return len(numbers)", "following"),
}


@pytest.mark.parametrize(("end", "asked"), HIGHEST.values(), ids=HIGHEST)
def test_one_more_than_the_highest_number_is_that_of_the_main_process(end: str, asked: str, lines: Lines) -> None:
    """The second process found the folder that the first had made, and took the next number. Not all come to the line
    that finds it: the name is handed out where all ask."""
    named = f"f'{{{asked}(Path(\"runs\")):03d}}'"
    top = LISTED.format(end=end) + f"\nout = Path('runs') / {named}\nout.mkdir(exist_ok=True)"
    _, new, findings = lines(imports=IMPORTS, top=top)
    assert (new, findings) == ([HANDED, f"out = broadcast_object_list([Path('runs') / {named}])[0]"], [])


def test_the_highest_number_that_all_ask_for_is_handed_out_where_it_is_found(lines: Lines) -> None:
    top = LISTED.format(end="return 0") + "\nos.makedirs(f'runs/{first_free(\"runs\")}', exist_ok=True)"
    _, new, findings = lines(imports=IMPORTS, top=top)
    assert (new, findings) == ([HANDED, "    return broadcast_object_list([max(found) + 1])[0]"], [])


@pytest.mark.parametrize("end", ["max(found) + 1 if found else 0", "0 if not found else max(found) + 1"])
def test_a_search_in_a_branch_that_the_entries_choose_is_reported(end: str, lines: Lines) -> None:
    top = (
        f"found = [int(n) for n in os.listdir('runs')]\nnumber = {end}\nos.makedirs(f'runs/{{number}}', exist_ok=True)"
    )
    _, new, findings = lines(imports=IMPORTS, top=top)
    assert (new, findings) == ([], ["directories"])


def test_what_is_done_with_the_entries_of_a_folder_is_left(lines: Lines) -> None:
    top = "rows = [int(n) for n in os.listdir('data')]\nnet = torch.nn.Linear(4, max(rows))\nprint(len(rows))"
    assert not any("broadcast" in line for line in lines(imports=IMPORTS, top=top)[1])


def test_the_name_is_followed_to_the_folder(lines: Lines) -> None:
    """Through variables, attributes, texts and functions; it is handed out where it is made."""
    top = """
        def folder(args):
            return os.path.join("runs", args.name)

        args = argparse.Namespace()
        args.name = time.strftime("%H%M")
        out = folder(args)
        Path(out).mkdir(parents=True, exist_ok=True)
        """
    out, new, findings = lines(imports=IMPORTS, top=top)
    assert (out, findings) == (['args.name = time.strftime("%H%M")'], [])
    assert new == [HANDED, 'args.name = broadcast_object_list([time.strftime("%H%M")])[0]']


QUESTIONS: dict[str, tuple[str, list[str]]] = {
    "while it is taken": (
        "while os.path.isdir(out):\n    out = time.strftime('%S')",
        [
            "while broadcast_object_list([os.path.isdir(out)])[0]:",
            "    out = broadcast_object_list([time.strftime('%S')])[0]",
        ],
    ),
    "if it is taken": (
        "if Path(out).exists() and again:\n    out = f'{out}-{time.time()}'",
        [
            "if broadcast_object_list([Path(out).exists()])[0] and again:",
            "    out = broadcast_object_list([f'{out}-{time.time()}'])[0]",
        ],
    ),
    "in an expression": (
        "out = time.strftime('%S') if os.path.exists(out) else out",
        [
            "out = broadcast_object_list([time.strftime('%S')])[0] "
            "if broadcast_object_list([os.path.exists(out)])[0] else out"
        ],
    ),
    "by a variable": (
        "taken = os.path.exists(out)\nif not taken:\n    pass\nelse:\n    out = time.strftime('%S')",
        [
            "taken = broadcast_object_list([os.path.exists(out)])[0]",
            "    out = broadcast_object_list([time.strftime('%S')])[0]",
        ],
    ),
}


@pytest.mark.parametrize(("choice", "new"), QUESTIONS.values(), ids=QUESTIONS)
def test_the_main_process_answers_whether_a_name_is_chosen(choice: str, new: list[str], lines: Lines) -> None:
    """It makes the folder afterwards: a process that asks later would find it, and go another way."""
    top = f"out, again = 'runs', True\n{choice}\nos.makedirs(out, exist_ok=True)"
    _, emitted, findings = lines(imports=IMPORTS, top=top)
    assert (emitted, findings) == ([HANDED, *new], [])


def test_on_accelerate_the_same(lines: Lines) -> None:
    top = "out = time.strftime('%Y')\nos.makedirs(out, exist_ok=True)"
    _, new, findings = lines(imports=IMPORTS, top=top, options={"target": Target.ACCELERATE})
    assert findings == []
    assert "from accelerate.utils import broadcast_object_list" in new


COUNTS: dict[str, tuple[str, list[str]]] = {
    "by a number": (
        "i = 0\nwhile os.path.exists(f'exp{i}'):\n    i += 1\nos.makedirs(f'exp{i}', exist_ok=True)",
        ["i = broadcast_object_list([i])[0]"],
    ),
    "by a name and a number": (
        "i, out = 0, 'exp'\nwhile Path(out).exists():\n    i += 1\n    out = f'exp{i}'\nmodel.n = i\nmodel.out = out",
        ["i, out = broadcast_object_list([i, out])"],
    ),
    "until one is free": (
        "for i in range(99):\n    out = f'exp{i}'\n    if not os.path.exists(out):\n        break\nmodel.out = out",
        ["out = broadcast_object_list([out])[0]"],
    ),
    "left in the other branch": (
        "i = 0\nwhile True:\n    if os.path.isdir(f'exp{i}'):\n        i += 1\n    else:\n        break\nmodel.n = i",
        ["i = broadcast_object_list([i])[0]"],
    ),
    "gone past where it is taken": (
        "for i in range(99):\n    if os.path.exists(f'exp{i}'):\n        continue\n    break\nmodel.n = i",
        ["i = broadcast_object_list([i])[0]"],
    ),
    "until a variable says so": (
        "i, free = 0, False\nwhile not free:\n    i += 1\n    if not os.path.exists(f'exp{i}'):\n        free = True\n"
        "model.n = i",
        ["i = broadcast_object_list([i])[0]"],
    ),
    "asked for in a variable": (
        "i = 0\nwhile True:\n    i += 1\n    taken = os.path.exists(f'exp{i}')\n    if not taken:\n        break\n"
        "model.n = i",
        ["i = broadcast_object_list([i])[0]"],
    ),
    "kept in an object": (
        "i = 0\nwhile True:\n    if os.path.isdir(f'exp{i}'):\n        i += 1\n    else:\n"
        "        model.out = f'exp{i}'\n        break",
        ["model.out = broadcast_object_list([model.out])[0]"],
    ),
    "kept in a dictionary": (
        "at = {}\nfor i in range(99):\n    if not os.path.exists(f'exp{i}'):\n        at['out'] = i\n        break",
        ["at['out'] = broadcast_object_list([at['out']])[0]"],
    ),
    "kept for each part": (
        "at = {}\nfor i in range(99):\n    at[i] = f'exp{i}'\n    if not os.path.exists(at[i]):\n        break",
        ["at = broadcast_object_list([at])[0]"],
    ),
}


def test_a_loop_that_counts_what_is_there_looks_for_no_name(lines: Lines) -> None:
    built = (
        "n = 0\nfor i in range(9):\n    if not os.path.exists(f'part{i}'):\n        continue\n    n += 1\nmodel.n = n"
    )
    assert lines(imports=IMPORTS, built=built) == ([], [], [])


@pytest.mark.parametrize(("built", "new"), COUNTS.values(), ids=COUNTS)
def test_a_name_that_is_free_is_handed_out(built: str, new: list[str], lines: Lines) -> None:
    assert lines(imports=IMPORTS, built=built) == ([], [HANDED, *new], [])


def test_a_function_that_returns_a_free_name_is_reported(lines: Lines) -> None:
    top = """
        def free(path):
            for i in range(99):
                if not os.path.exists(f"{path}{i}"):
                    return f"{path}{i}"

        out = free("exp")
        """
    assert lines(imports=IMPORTS, top=top) == ([], [], ["directories"])


TEMPORARY = """
with tempfile.TemporaryDirectory() as folder:
    best = os.path.join(folder, "best.pt")
    torch.save(model.state_dict(), best)
    model.load_state_dict(torch.load(best))
"""


@pytest.mark.hazard("U18")
def test_a_temporary_folder_of_the_main_process_serves_all(lines: Lines) -> None:
    """It is removed when the main process leaves the block: the others have read by then."""
    _, new, findings = lines(imports=IMPORTS + "\nimport tempfile", end=TEMPORARY)
    assert "from torchlift.runtime.utils import broadcast_object_list, wait_for_everyone" in new
    assert "    folder = broadcast_object_list([folder])[0]" in new
    assert new[-1] == "    wait_for_everyone()"
    assert findings == []


KEPT = TEMPORARY.replace(
    "with tempfile.TemporaryDirectory() as folder:", "if True:\n    folder = tempfile.TemporaryDirectory().name"
)
LEFT = """
def main():
    with tempfile.TemporaryDirectory() as folder:
        best = os.path.join(folder, "best.pt")
        torch.save(model.state_dict(), best)
        if not os.path.getsize(best):
            return
        model.load_state_dict(torch.load(best))

main()
"""
LINE = "with tempfile.TemporaryDirectory() as d: torch.save(1, d + '/a'); torch.load(d + '/a')"


@pytest.mark.hazard("U18")
@pytest.mark.parametrize("end", [KEPT, LEFT, LINE], ids=["kept in a variable", "left early", "in one line"])
def test_a_temporary_folder_that_cannot_be_shared_is_reported(end: str, lines: Lines) -> None:
    _, new, findings = lines(imports=IMPORTS + "\nimport tempfile", end=end)
    assert not [line for line in new if "broadcast_object_list" in line]
    assert findings == ["directories"]
