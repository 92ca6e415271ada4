"""The invariants, one by one: a text before and after, and what the check says of it."""

from __future__ import annotations

from textwrap import dedent

import libcst as cst
import pytest

from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.validation.check import Checked, ModuleTexts, check

HEAD = """\
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from datasets import data, test_data
"""
BEFORE = (
    HEAD
    + """\
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(data, 8)
for x, y in loader:
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""
)
AFTER = (
    HEAD
    + """\
from torchlift.runtime import Accelerator
accelerator = Accelerator()
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(data, 8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    loss = F.cross_entropy(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
accelerator.save(accelerator.get_state_dict(model), "model.pt")
"""
)
PREPARE = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
BACKWARD = "    accelerator.backward(loss)\n"


def checked(after: str, before: str = BEFORE) -> Checked:
    layout = ModulePaths({ENTRY: Place(ENTRY)})
    return check([ModuleTexts(ENTRY, cst.parse_module(before), cst.parse_module(after))], (), layout)


def broken(after: str, before: str = BEFORE) -> set[str]:
    return {violation.invariant for violation in checked(after, before).violations}


def with_(old: str, new: str) -> str:
    assert old in AFTER
    return AFTER.replace(old, new)


def test_what_an_expert_writes_breaks_nothing() -> None:
    assert checked(AFTER) == Checked()


@pytest.mark.parametrize(
    ("old", "new", "invariant"),
    [
        (PREPARE, "optimizer, loader = accelerator.prepare(optimizer, loader)\n", "model-prepared"),
        (PREPARE, "model, loader = accelerator.prepare(model, loader)\n", "optimizer-prepared"),
        (PREPARE, "model, optimizer = accelerator.prepare(model, optimizer)\n", "loader-prepared"),
        (PREPARE, "model, optimizer, loader = accelerator.prepare(optimizer, model, loader)\n", "prepare-order"),
        (PREPARE, "model, optimizer = accelerator.prepare(model, optimizer, loader)\n", "prepare-order"),
        (BACKWARD, "    loss.backward()\n", "backward"),
        (BACKWARD, "    loss = accelerator.gather(loss).mean()\n" + BACKWARD, "gradient-gathered"),
        (BACKWARD, "    accelerator.backward(loss.detach())\n", "gradient-cut"),
        (BACKWARD, "    if accelerator.is_main_process:\n    " + BACKWARD, "collective-apart"),
        (BACKWARD, "    if not accelerator.is_main_process:\n        continue\n" + BACKWARD, "collective-apart"),
        ("accelerator = A", "if torch.cuda.is_available():\n    accelerator = A", "name-bound"),
        ("accelerator = Accelerator()", "accelerator = Accelerator(cpu=arguments.cpu)", "name-bound"),
        ("accelerator.save(", "torch.save(", "effect-once"),
    ],
)
def test_a_fault_is_found(old: str, new: str, invariant: str) -> None:
    assert invariant in broken(with_(old, new))


def test_what_is_prepared_behind_its_training_is_late() -> None:
    assert broken(with_(PREPARE, "").replace("accelerator.save(acc", PREPARE + "accelerator.save(acc")) >= {
        "prepared-late"
    }


def test_a_model_made_anew_must_be_prepared_anew() -> None:
    again = """\
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    PREPARE
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
    """
    text = dedent(again)
    prepared = "model, optimizer = accelerator.prepare(model, optimizer)"
    assert broken(AFTER + text.replace("PREPARE", prepared)) == set()
    assert broken(AFTER + text.replace("PREPARE", "optimizer = accelerator.prepare(optimizer)")) == {"model-prepared"}


def test_batches_that_are_moved_need_no_prepared_loader() -> None:
    after = with_(PREPARE, "model, optimizer = accelerator.prepare(model, optimizer)\n")
    assert (
        broken(after.replace("loader:\n", "loader:\n    x, y = x.to(accelerator.device), y.to(accelerator.device)\n"))
        == set()
    )


def test_a_name_bound_under_a_condition_is_bound_wherever_the_condition_stands_again() -> None:
    after = with_("accelerator = A", "if os.name:\n    accelerator = A")
    assert "name-bound" in broken(after)
    rest = after[after.index(PREPARE) :]
    inside = "if os.name:\n" + "".join(f"    {line}\n" for line in rest.splitlines())
    assert broken(after.replace(rest, inside)) == set()


def test_a_call_that_was_not_changed_with_its_function() -> None:
    before = HEAD + "def train(model, loader):\n    pass\n" + BEFORE[len(HEAD) :] + "train(model, loader)\n"
    after = AFTER.replace("model = nn", "def train(model, accelerator, loader):\n    pass\nmodel = nn", 1)
    assert broken(after + "train(model, accelerator, loader)\n", before) == set()
    assert broken(after + "train(model, loader)\n", before) == {"call-fits"}
    assert broken(after + "train(model, loader, device=None)\n", before) == {"call-fits"}


def test_a_call_that_never_fitted_is_not_held_against_the_migration() -> None:
    before = HEAD + "def sized(model, shape):\n    pass\n" + BEFORE[len(HEAD) :] + "sized((8, 2))\n"
    after = AFTER.replace("model = nn", "def sized(model, shape, accelerator):\n    pass\nmodel = nn", 1)
    assert broken(after + "sized((8, 2), accelerator=accelerator)\n", before) == set()
    assert broken(after + "sized((8, 2))\n", before) == set()
    assert broken(after + "sized((8, 2), accelerator)\n", before) == {"call-fits"}


def test_a_function_that_one_process_calls_alone_holds_no_collective() -> None:
    helper = "def wait():\n    accelerator.wait_for_everyone()\n"
    assert broken(AFTER + helper + "wait()\n") == set()
    assert broken(AFTER + helper + "if accelerator.is_main_process:\n    wait()\n") == {"collective-apart"}


def test_what_the_original_lacks_too_is_not_ours() -> None:
    assert broken(AFTER + "print(nobody)\n", BEFORE + "print(nobody)\n") == set()
    assert broken(AFTER + "print(nobody)\n") == {"name-bound"}


def test_a_number_of_the_loss_in_other_words_is_no_cut() -> None:
    weighed = BEFORE.replace("loss.backward()", "(loss * loss.item()).backward()")
    reduced = "accelerator.backward(loss * accelerator.reduce(loss.detach()).item())"
    assert broken(with_("accelerator.backward(loss)", reduced), weighed) == set()


def test_a_backward_pass_without_a_step_is_a_gap_and_no_fault() -> None:
    found = checked(with_("    optimizer.step()\n", ""))
    assert [gap.invariant for gap in found.gaps] == ["coverage"]


def test_nothing_is_said_where_nothing_is_prepared() -> None:
    assert checked(BEFORE) == Checked()


def test_a_turn_in_a_turn_meets() -> None:
    inner = "    with accelerator.main_process_first():\n        os.listdir('.')\n"
    assert "collective-apart" not in broken(f"{AFTER}with accelerator.main_process_first():\n{inner}")
    assert "collective-apart" in broken(f"{AFTER}if accelerator.is_main_process:\n{inner}")
    gathered = "    accelerator.gather(x)\n"
    assert "collective-apart" in broken(f"{AFTER}with accelerator.main_process_first():\n{gathered}")


STEP = "    optimizer.step()\n"
RANK = "if accelerator.process_index == 1:"
PARTED = {
    "leaves the loop after the collective": (STEP, f"{STEP}    {RANK}\n        break\n", True),
    "leaves it in a block of its own": (STEP, f"{STEP}    with open('a'):\n        {RANK}\n            break\n", True),
    "leaves a loop of its own": (STEP, f"{STEP}    for _ in range(3):\n        {RANK}\n            break\n", False),
    "leaves the loop in the other case": (
        STEP, f"{STEP}    {RANK}\n        print(1)\n    else:\n        break\n", True,
    ),
    "goes on with the next turn": (STEP, f"{STEP}    {RANK}\n        continue\n", False),
    "only prints": (STEP, f"{STEP}    {RANK}\n        print(1)\n", False),
    "breaks in a function of its own": (
        STEP, f"{STEP}    def f():\n        for _ in []:\n            {RANK}\n                return\n", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "wrong"), PARTED.values(), ids=PARTED)
def test_a_loop_that_one_process_leaves(old: str, new: str, wrong: bool) -> None:
    assert broken(with_(old, new)) == ({"collective-apart"} if wrong else set())


def test_a_function_that_one_process_leaves_out_of_a_loop() -> None:
    late = "        accelerator.wait_for_everyone()\n"
    helper = f"def look():\n    for n in range(3):\n        {RANK}\n            return\n    if True:\n{late}look()\n"
    assert broken(AFTER + helper) == {"collective-apart"}
    assert broken(AFTER + helper.replace("            return", "            break")) == set()


def test_a_block_that_makes_the_file_that_it_asks_for() -> None:
    """The first process makes it; whoever asks later goes by, and the first one waits."""
    block = "if not os.path.exists('a'):\n    {make}\n    accelerator.wait_for_everyone()\n"
    assert broken(AFTER + block.format(make="torch.save({}, 'a')")) >= {"collective-apart"}
    assert "collective-apart" not in broken(AFTER + block.format(make="print('a')"))
