"""Where all processes wait for a file: between its writing and its reading, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]
WAIT = "accelerator.wait_for_everyone()"

REPORT = """\
import json
with open("{read}") as file:
    seen = json.load(file)
with open("{written}", "w") as file:
    json.dump(len(seen), file)"""


def test_two_files_that_are_opened_under_one_name_are_two_files(trained: Trained) -> None:
    text, findings = trained(end=REPORT.format(read="words.json", written="report.json"))
    assert WAIT not in text and "if accelerator.is_main_process:\n    with open(" in text and findings == []


def test_a_file_that_is_read_and_then_written_anew_needs_a_wait(trained: Trained) -> None:
    text, _ = trained(end=REPORT.format(read="words.json", written="words.json"))
    assert f"{WAIT}\nif accelerator.is_main_process:\n    with open(" in text


KEPT = """\
import json
def keep(numbers, path="history.json"):
    with open(path, "w") as file:
        json.dump(numbers, file)"""


@pytest.mark.parametrize(
    "call", ["keep([1.0], 'first.json')", "keep(path='first.json', numbers=[1.0])"], ids=["by place", "by name"]
)
def test_a_default_that_each_call_overrides_names_no_file(call: str, trained: Trained) -> None:
    text, _ = trained(top=KEPT, end=f"{call}\nwith open('history.json') as file:\n    before = json.load(file)")
    assert WAIT not in text


@pytest.mark.parametrize("call", ["keep([1.0])", "keep(*[[1.0]])", "keep([1.0], 'a.json')\nkeep([2.0])"])
def test_a_default_that_a_call_may_take_names_the_file(call: str, trained: Trained) -> None:
    text, _ = trained(top=KEPT, end=f"{call}\nwith open('history.json') as file:\n    before = json.load(file)")
    assert f"{WAIT}\nwith open('history.json')" in text
