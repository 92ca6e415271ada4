"""What a data set prints and writes for a row: each process does it for its own rows, and waits for nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]
ROWS = """\
import os, numpy, torch

class Rows(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 40

    def place(self, number):
        return os.path.join(self.folder, f"{{number}}.bin")

    def __getitem__(self, number):
        place = self.place(number)
{row}
        return torch.ones(8), torch.tensor(1)

data = Rows("rows")
{more}"""
SAVED = """\
        if not os.path.exists(place):
            torch.save(torch.ones(8), place)
        return torch.load(place), torch.tensor(1)"""


def _rows(row: str, trained: Trained, more: str = "") -> tuple[str, list[str], bool]:
    top = ROWS.format(row=row, more=more)
    text, findings = trained(top=top)
    return text, findings, row in text


@pytest.mark.parametrize(
    "row",
    [
        "        if number == 3:\n            print('odd row', number)",
        "        numpy.save(place, numpy.ones(8))",
        "        if not os.path.exists(place):\n            numpy.save(place, numpy.ones(8))",
        "        with open(place, 'wb') as file:\n            file.write(bytes(8))",
        "        with open(f'{number}.txt', 'w') as file:\n            print(number, file=file)",
    ],
    ids=["a line", "a file", "a file that is missing", "an open file", "a line in a file"],
)
def test_what_belongs_to_a_row_is_done_by_the_process_that_has_it(row: str, trained: Trained) -> None:
    """With a guard the rows of the other processes would get no file and no line; a wait in a row would never end."""
    text, findings, kept = _rows(row, trained)
    assert kept and findings == []
    assert "wait_for_everyone" not in text and "main_process_first" not in text


def test_a_row_that_was_saved_is_loaded_without_a_wait(trained: Trained) -> None:
    text, findings, _ = _rows(SAVED, trained, "place = 'a.pt'\ntorch.save(data[0], place)")
    assert "            torch.save(torch.ones(8), place)\n        return torch.load(place" in text
    assert "wait_for_everyone" not in text.partition("data = ")[0] and findings == []


@pytest.mark.parametrize(
    "row",
    [
        "        with open('odd.txt', 'a') as file:\n            file.write(str(number))",
        "        place = os.path.join(self.folder, 'odd.txt')\n        torch.save(number, place)",
    ],
    ids=["a constant", "a path of the object"],
)
def test_one_file_for_all_rows_is_named(row: str, trained: Trained) -> None:
    _, findings, kept = _rows(row, trained)
    assert kept and findings == ["once"]


def test_a_helper_that_other_code_calls_too_prints_once(trained: Trained) -> None:
    top = "def say(text):\n    print(text)\n\nsay('start')\n" + ROWS.format(row="        say(place)", more="")
    assert "    accelerator.print(text)\n" in trained(top=top)[0] or "if PartialState()" in trained(top=top)[0]


HELPER = """\
import os, numpy, torch

def bring(number):
    place = f"{number}.npy"
    if not os.path.exists(place):
        WRITE
    return torch.from_numpy(numpy.load(place)).float()

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, number):
        return bring(number), torch.tensor(1)

data = Rows()
first = bring(0)
"""


@pytest.mark.parametrize("write", ["numpy.save(place, numpy.ones(8))", "torch.save(torch.ones(8), place)"])
def test_a_helper_that_rows_share_with_other_code_waits_for_nobody(write: str, trained: Trained) -> None:
    """In a loader's worker the wait would never end; so the processes may meet at one file, which is said."""
    top = HELPER.replace("WRITE", write)
    text, findings = trained(top=top)
    assert f"    if not os.path.exists(place):\n        {write}\n    return" in text
    assert findings == ["once"]
