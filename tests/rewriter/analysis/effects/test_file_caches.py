"""Files that are made where they are missing: each process would ask for them by itself."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent

import pytest

Trained = Callable[..., tuple[str, list[str]]]

MAKES = """\
import os
import json


def make(path):
    with open(path, "w") as file:
        json.dump([1.0], file)
    return read(path)


def read(path):
    with open(path) as file:
        return json.load(file)
"""
IN_TURN = "with accelerator.main_process_first():\n"
CHAIN = """\
if fresh:
    weights = make("w.json")
elif not os.path.exists("w.json"):
    weights = make("w.json")
else:
    weights = read("w.json")"""
OTHERWISE = """\
if fresh:
    weights = make("w.json")
elif os.path.exists("w.json"):
    weights = read("w.json")
else:
    weights = make("w.json")"""
DIRECT = """\
if fresh:
    weights = []
elif not os.path.isfile("w.json"):
    with open("w.json", "w") as file:
        json.dump([1.0], file)
    weights = read("w.json")"""
GUARDED = 'if PartialState().is_main_process:\n        with open(path, "w") as file:\n'


@pytest.mark.hazard("U17")
@pytest.mark.parametrize("chain", [CHAIN, OTHERWISE, DIRECT], ids=["missing", "there", "written in the branch"])
def test_a_question_that_comes_after_another_one_is_asked_in_turn(chain: str, trained: Trained) -> None:
    """The whole chain of `elif` goes into the turn, and nobody waits in it."""
    text, findings = trained(top=MAKES, built=f"fresh = False\n{chain}")
    first = chain.partition("\n")[0]
    assert IN_TURN + indent(first, "    ") in text and findings == []
    assert "wait_for_everyone" not in text and "accelerator.is_main_process:" in text


@pytest.mark.hazard("U17")
def test_a_file_that_another_module_makes(trained_project: Callable[..., tuple[dict[str, str], list[str]]]) -> None:
    train = (
        "import os\nimport torch\nfrom torch.utils.data import DataLoader\nfrom rows import make\n"
        'if not os.path.exists("w.json"):\n    make("w.json")\nmodel = torch.nn.Linear(4, 2)\n'
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in DataLoader(data, batch_size=4):\n"
        "    optimizer.zero_grad()\n    loss = torch.nn.functional.cross_entropy(model(x), y)\n    loss.backward()\n"
        "    optimizer.step()\n"
    )
    texts, findings = trained_project(train=train, rows=MAKES)
    assert IN_TURN + '    if not os.path.exists("w.json"):\n' in texts["train"]
    assert GUARDED in texts["rows"] and "wait_for_everyone" not in texts["rows"]
    assert findings == []


@pytest.mark.hazard("U17")
def test_a_wait_that_each_process_comes_to_by_its_own_question_is_refused(trained: Trained) -> None:
    """The function is called outside the question, too, where all would have to wait in it."""
    built = 'weights = make("w.json")\nif not os.path.exists("w.json"):\n    weights = make("w.json")'
    _, findings = trained(top=MAKES, built=built)
    assert findings == ["read-back"]


def test_a_chain_with_the_training_in_it_is_not_run_in_turn(trained: Trained) -> None:
    end = (
        "if data:\n    for x, y in loader:\n        optimizer.zero_grad()\n"
        "        torch.nn.functional.cross_entropy(model(x), y).backward()\n        optimizer.step()\n"
        'elif not os.path.exists("w.json"):\n    make("w.json")'
    )
    text, findings = trained(top=MAKES, end=end)
    assert "main_process_first" not in text and "read-back" in findings
