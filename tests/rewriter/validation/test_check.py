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


def test_a_number_that_is_taken_where_no_gradient_is_cuts_none() -> None:
    """The table of a script goes with its targets into the next round, beside a mean of the losses: their `item()` was
    called a cut, and the script was refused."""
    soft = "    {0}\n        soft = loss.item()\n    accelerator.backward(loss / soft)\n"
    assert "gradient-cut" not in broken(with_(BACKWARD, soft.format("with torch.no_grad():")))
    assert "gradient-cut" in broken(with_(BACKWARD, soft.format("if loss > 0:")))


def test_what_is_prepared_behind_its_training_is_late() -> None:
    assert broken(with_(PREPARE, "").replace("accelerator.save(acc", PREPARE + "accelerator.save(acc")) >= {
        "prepared-late"
    }


KEEPS = """\
class Fit:
    def __init__(self, model, rows, optimizer):
        self.model, self.rows, self.optimizer = model, rows, optimizer
    def turn(self, rows):
        for x, y in rows:
            loss = F.cross_entropy(self.model(x), y)
            BACKWARD
            self.optimizer.step()
    def turns(self):
        self.turn(self.rows)
model = nn.Linear(2, 2)
ACCELERATOR
fit = Fit(model, ROWS, OPTIMIZER)
LAST
"""


def _kept(last: str, rows: str = "DataLoader(data, 8)") -> set[str]:
    """What is said of a loader that an object keeps; ``last``: what the script does with the object."""
    optimizer = "torch.optim.SGD(model.parameters(), 0.1)"
    text = HEAD + KEEPS
    given = {"ACCELERATOR": "", "ROWS": "DataLoader(data, 8)", "OPTIMIZER": optimizer, "BACKWARD": "loss.backward()"}
    before, after = text.replace("LAST", "fit.turns()"), text.replace("LAST", last)
    for word, value in given.items():
        before = before.replace(word, value)
    setup = "from torchlift.runtime import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare(model)"
    given = {"ACCELERATOR": setup, "ROWS": rows, "OPTIMIZER": f"accelerator.prepare({optimizer})"}
    for word, value in {**given, "BACKWARD": "accelerator.backward(loss)"}.items():
        after = after.replace(word, value)
    return broken(after, before)


@pytest.mark.parametrize("use", ["fit.turn(fit.rows)", "fit.turns()", "for epoch in range(2):\n    fit.turns()"])
def test_a_loader_is_prepared_before_any_loop_reads_it(use: str) -> None:
    prepare = "fit.rows = accelerator.prepare(fit.rows)"
    assert _kept(f"{use}\n{prepare}") == {"prepared-late"}
    assert _kept(f"{prepare}\n{use}") == set()
    assert _kept(use, "accelerator.prepare(DataLoader(data, 8))") == set()


def test_another_loader_that_was_read_before_is_not_meant() -> None:
    first = "first = accelerator.prepare(DataLoader(test_data, 8))\nfit.turn(first)\n"
    assert _kept(f"{first}fit.rows = accelerator.prepare(fit.rows)\nfit.turns()") == set()


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


@pytest.mark.parametrize("bar", ["bar = tqdm(loader)", "def show(rows):\n    return tqdm(rows)\nbar = show(loader)"])
def test_a_bar_around_a_loader_is_no_loader_to_prepare(bar: str) -> None:
    before = BEFORE.replace("for x, y in loader", f"from tqdm import tqdm\n{bar}\nfor x, y in bar")
    after = AFTER.replace("for x, y in loader", f"from tqdm import tqdm\n{bar}\nfor x, y in bar")
    assert broken(after, before) == set()
    of_the_bar = after.replace(PREPARE, "model, optimizer = accelerator.prepare(model, optimizer)\n")
    of_the_bar = of_the_bar.replace("for x, y in bar", "bar = accelerator.prepare(bar)\nfor x, y in bar")
    assert broken(of_the_bar, before) == {"loader-prepared"}


@pytest.mark.parametrize("base", ["", "(nn.Module)"])
def test_an_object_that_reads_a_loader_is_given_the_prepared_one(base: str) -> None:
    keeper = f"""
class Runner{base}:
    def __init__(self, model, rows):
        super().__init__()
        self.model = model
        self.rows = rows
    def run(self):
        for x, y in self.rows:
            loss = F.cross_entropy(self.model(x), y)
            BACKWARD
            optimizer.step()
"""
    start = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nloader = DataLoader(data, 8)\n"
    head = HEAD + "model = nn.Linear(2, 2)\n" + start + keeper
    before = head.replace("BACKWARD", "loss.backward()") + "runner = Runner(model, loader)\nrunner.run()\n"
    made = "from torchlift.runtime import Accelerator\naccelerator = Accelerator()\n"
    after = head.replace("BACKWARD", "accelerator.backward(loss)") + made
    assert broken(f"{after}{PREPARE}runner = Runner(model, loader)\nrunner.run()\n", before) == set()
    assert broken(f"{after}runner = Runner(model, loader)\n{PREPARE}runner.run()\n", before) == {"prepared-late"}


@pytest.mark.parametrize(
    ("taking", "source"),
    [
        ("rows = {'a': loader}", "rows['a']"),
        ("rows = dict(a=loader)", "rows['a']"),
        ("rows = [loader]", "rows[0]"),
        ("rows = []\nrows.append(loader)", "rows[0]"),
        ("rows = {}\nrows['a'] = loader", "rows['a']"),
        ("rows = loader", "rows"),
        ("from tqdm import tqdm\nrows = tqdm(loader)", "rows"),
    ],
)
def test_a_container_that_a_loop_reads_is_given_the_prepared_loader(taking: str, source: str) -> None:
    before = BEFORE.replace("for x, y in loader", f"{taking}\nfor x, y in {source}")
    after = AFTER.replace("for x, y in loader", f"for x, y in {source}")
    assert broken(after.replace(PREPARE, f"{PREPARE}{taking}\n"), before) == set()
    assert broken(after.replace(PREPARE, f"{taking}\n{PREPARE}"), before) == {"prepared-late"}
    unread = AFTER.replace(PREPARE, f"{taking}\n{PREPARE}")
    assert broken(unread, BEFORE.replace("for x, y in loader", f"{taking}\nfor x, y in loader")) == set()


def test_a_loader_that_is_trained_on_is_prepared_also_where_its_batches_are_moved() -> None:
    after = with_(PREPARE, "model, optimizer = accelerator.prepare(model, optimizer)\n")
    moved = "loader:\n    x, y = x.to(accelerator.device), y.to(accelerator.device)\n"
    assert broken(after.replace("loader:\n", moved)) == {"loader-prepared"}
    cut = moved + "    x, y = accelerator.shard_batch((x, y))\n"
    assert broken(after.replace("loader:\n", cut)) == set()


def test_a_name_bound_under_a_condition_is_bound_wherever_the_condition_stands_again() -> None:
    after = with_("accelerator = A", "if os.name:\n    accelerator = A")
    assert "name-bound" in broken(after)
    rest = after[after.index(PREPARE) :]
    inside = "if os.name:\n" + "".join(f"    {line}\n" for line in rest.splitlines())
    assert broken(after.replace(rest, inside)) == set()


def test_a_variable_that_a_function_binds_has_its_value_from_its_call_on() -> None:
    build = "def build():\n    global model\n    model = nn.Linear(2, 2)\nbuild()\n"
    before, after = (text.replace("model = nn.Linear(2, 2)\n", build) for text in (BEFORE, AFTER))
    assert broken(after, before) == set()
    early = after.replace("def build", "model = accelerator.prepare(model)\ndef build")
    assert "name-bound" in broken(early, before)


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
    guarded = "    if accelerator.is_main_process:\n        torch.save({}, 'a')\n    accelerator.wait_for_everyone()\n"
    called = f"def make():\n{guarded}"
    asked = "if data:\n    make()\nelif not os.path.exists('a'):\n    make()\n"
    assert broken(AFTER + called + asked) == {"collective-apart"}
    assert "collective-apart" not in broken(AFTER + called + "if not data:\n    make()\n")


MADE = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"


def test_an_optimizer_that_a_function_makes_or_a_list_holds_is_prepared() -> None:
    function = f"def build(model):\n    {MADE}    return optimizer\n"
    made = AFTER.replace(MADE, "optimizer = build(model)\n").replace("model = nn", function + "model = nn", 1)
    assert broken(made) == set()
    assert broken(made.replace(PREPARE, PREPARE.replace("optimizer, ", ""))) == {"optimizer-prepared"}
    listed = AFTER.replace("    optimizer.step()", "    for one in [optimizer]:\n        one.step()")
    assert broken(listed) == set()
    assert broken(listed.replace(PREPARE, PREPARE.replace("optimizer, ", ""))) == {"optimizer-prepared"}


def test_two_models_of_one_function_are_told_apart_by_their_variables() -> None:
    function = "def build():\n    net = nn.Linear(2, 2)\n    return net, 2\n"
    first = AFTER.replace("model = nn.Linear(2, 2)", f"{function}model, _ = build()", 1)
    second = """\
    other, _ = build()
    second = torch.optim.SGD(other.parameters(), 0.1)
    other, second = accelerator.prepare(other, second)
    for x, y in loader:
        loss = F.cross_entropy(other(x), y)
        accelerator.backward(loss)
        second.step()
    """
    assert broken(first + dedent(second)) == set()
    left_out = dedent(second).replace(
        "other, second = accelerator.prepare(other, second)", "second = accelerator.prepare(second)"
    )
    assert "model-prepared" in broken(first + left_out)


def test_a_model_that_a_method_of_its_own_gives_back_is_the_same_one() -> None:
    """Two variables for one model are told apart by the calls that make one."""
    after = with_(
        "model = nn.Linear(2, 2)\n", "model = nn.Linear(2, 2)\nnet = model.train()\nif len(data):\n    net = model\n"
    )
    after = after.replace("model, optimizer, loader = acc", "net, optimizer, loader = acc").replace(
        "prepare(model,", "prepare(net,"
    )
    assert broken(after.replace("cross_entropy(model(x)", "cross_entropy(net(x)")) == set()


def test_a_model_that_the_script_updates_without_an_optimizer_is_prepared() -> None:
    loop = """\
    for _ in range(9):
        loss = F.mse_loss(model(torch.ones(4, 2)), torch.ones(4, 2))
        BACKWARD
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.1 * weight.grad
                weight.grad = None
    """
    before = HEAD + "model = nn.Linear(2, 2)\n" + dedent(loop).replace("BACKWARD", "loss.backward()")
    made = HEAD + "from torchlift.runtime import Accelerator\naccelerator = Accelerator()\nmodel = nn.Linear(2, 2)\n"
    after = made + "PREPARE" + dedent(loop).replace("BACKWARD", "accelerator.backward(loss)")
    assert broken(after.replace("PREPARE", "model = accelerator.prepare(model)\n"), before) == set()
    assert broken(after.replace("PREPARE", ""), before) == {"model-prepared"}


def test_an_evaluation_that_gathers_reads_a_prepared_loader() -> None:
    shown = """\
    tests = DataLoader(test_data, 8)
    PREPARE
    right = 0
    for x, y in tests:
        x, y = x.to(accelerator.device), y.to(accelerator.device)
        guesses = model(x).argmax(1)
        GATHER
        right += (guesses == y).sum()
    """
    gather = "guesses, y = accelerator.gather_for_metrics((guesses, y))"
    text = AFTER + dedent(shown)
    assert broken(text.replace("PREPARE", "tests = accelerator.prepare(tests)").replace("GATHER", gather)) == set()
    assert broken(text.replace("PREPARE\n", "").replace("GATHER", "pass")) == set()
    assert broken(text.replace("PREPARE\n", "").replace("GATHER", gather)) == {"loader-prepared"}


NET = """\
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
        def forward(self, x):
            return self.layer(x)
"""


def test_a_model_that_only_evaluates_is_on_the_device_of_its_batches() -> None:
    shown = (
        NET
        + """\
    loaded = Net()
    PREPARE
    tests = accelerator.prepare(DataLoader(test_data, 8))
    for x, y in tests:
        print(loaded(x).argmax(1))
    """
    )
    text = AFTER + dedent(shown)
    assert broken(text.replace("PREPARE", "loaded = accelerator.prepare(loaded)")) == set()
    assert broken(text.replace("PREPARE", "loaded = loaded.to(accelerator.device)")) == set()
    assert broken(text.replace("PREPARE\n", "")) == {"model-placed"}


LAYERLESS = """
class Smooth(torch.nn.Module):
    def forward(self, x):
        return (x[:, 1:] - x[:, :-1]).abs().mean()

class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.smooth = Smooth()PART

    def forward(self, x, y):
        return (x - y).pow(2).mean() + self.smooth(x)
"""


def test_a_loss_made_of_modules_without_layers_needs_no_device() -> None:
    shown = """\
    both = Both()
    tests = accelerator.prepare(DataLoader(test_data, 8))
    for x, y in tests:
        print(both(x, y))
    """
    text = AFTER + LAYERLESS + dedent(shown)
    assert broken(text.replace("PART", "")) == set()
    assert broken(text.replace("PART", "\n        self.fc = torch.nn.Linear(2, 2)")) == {"model-placed"}


def test_an_optimizer_is_prepared_before_it_steps_and_anew_where_a_loop_makes_it_anew() -> None:
    step = "    optimizer.step()\n"
    late = AFTER.replace(PREPARE, PREPARE.replace("optimizer, ", ""))
    assert broken(late.replace(step, step + "    optimizer = accelerator.prepare(optimizer)\n")) == {"prepared-late"}
    anew = f"    if loss < 1:\n        {MADE}        optimizer = accelerator.prepare(optimizer)\n"
    whole = AFTER.replace("    optimizer.step()\n", "    optimizer.step()\n" + anew)
    before = BEFORE.replace("    optimizer.step()\n", f"    optimizer.step()\n    if loss < 1:\n        {MADE}")
    assert broken(whole, before) == set()
    assert broken(whole.replace("        optimizer = accelerator.prepare(optimizer)\n", ""), before) == {
        "each-definition",
        "optimizer-prepared",
    }


def test_a_star_import_binds_no_name_that_only_the_edits_read() -> None:
    star = "from helpers import *\n"
    before, after = star + BEFORE, star + AFTER
    assert broken(after + "show(model)\n", before + "show(model)\n") == set()
    assert broken(after.replace("accelerator.prepare", "the_accelerator.prepare"), before) >= {"name-bound"}


def test_a_name_of_the_module_that_functions_read_is_bound_on_all_its_paths() -> None:
    function = "def told(text):\n    print(text)\n"
    before = BEFORE.replace("model = nn", function + "model = nn", 1) + 'told("done")\n'
    guarded = function.replace("print(text)", "if accelerator.is_main_process:\n        print(text)")
    after = AFTER.replace("model = nn", guarded + "model = nn", 1) + 'told("done")\n'
    assert broken(after, before) == set()
    on_one_path = after.replace("accelerator = A", "if torch.cuda.is_available():\n    accelerator = A")
    assert "name-bound" in broken(on_one_path, before)
    lines = after[len(HEAD) :].replace(guarded, "").splitlines()
    main = 'if __name__ == "__main__":\n' + "".join(f"    {line}\n" for line in lines if "import" not in line)
    runtime = "from torchlift.runtime import Accelerator\n"
    assert broken(HEAD + runtime + guarded + main, before) == set()


def test_a_parameter_that_is_an_accelerator_is_given_one() -> None:
    before = HEAD + "def shown(step, text=None):\n    print(step, text)\n" + BEFORE[len(HEAD) :] + 'shown(1, "done")\n'
    function = (
        "def shown(step, accelerator, text=None):\n    if accelerator.is_main_process:\n        print(step, text)\n"
    )
    after = AFTER.replace("model = nn", function + "model = nn", 1)
    assert broken(after + 'shown(1, accelerator, "done")\n', before) == set()
    assert broken(after + 'shown(1, "done")\n', before) == {"call-fits"}


def test_a_comment_above_a_statement_is_no_part_of_its_place() -> None:
    fetched = 'data = fetch_set("./", download=True)\n'
    launched = "import torch.distributed as dist\ndist.init_process_group()\n"
    before = launched + BEFORE + "# one\n" + fetched
    assert broken(launched + AFTER + "# another\n" + fetched, before) == set()


@pytest.mark.parametrize(
    "around",
    [
        "try:\n    model(x)\nfinally:\n    CALL",
        "for _ in range(accelerator.process_index, 4):\n    CALL",
        "mine = [1, 2, 3][accelerator.process_index :: accelerator.num_processes]\nfor _ in mine:\n    CALL",
        "with accelerator.split_between_processes([1, 2, 3]) as mine:\n    for _ in mine:\n        CALL",
    ],
    ids=["finally", "by its number", "a slice", "a part"],
)
def test_a_collective_where_an_exception_or_an_own_part_leads_to(around: str) -> None:
    assert broken(f"{AFTER}{around.replace('CALL', 'accelerator.wait_for_everyone()')}\n") == {"collective-apart"}
    assert broken(f"{AFTER}{around.replace('CALL', 'accelerator.print(1)')}\n") == set()
    assert broken(AFTER + "for _ in range(accelerator.num_processes):\n    accelerator.wait_for_everyone()\n") == set()


def test_a_model_that_the_original_never_moves_is_not_held_against_the_migration() -> None:
    shown = (
        NET
        + """\
    loaded = Net()
    tests = LOADER
    for x, y in tests:
        MOVED
        print(loaded(x).argmax(1))
    """
    )
    text = dedent(shown)
    after = AFTER + text.replace("LOADER", "accelerator.prepare(DataLoader(test_data, 8))").replace("    MOVED\n", "")
    before = BEFORE + text.replace("LOADER", "DataLoader(test_data, 8)")
    assert broken(after, before.replace("MOVED", "x, y = x.cuda(), y.cuda()")) == set()
    assert broken(after, before.replace("    MOVED\n", "")) == {"model-placed"}


FOREVER = "def forever(batches):\n    while True:\n        yield from batches\n"


@pytest.mark.parametrize(("late", "found"), [(True, {"prepared-late"}), (False, set())])
def test_a_generator_that_goes_on_with_the_unprepared_loader(late: bool, found: set[str]) -> None:
    order = ["stream = forever(loader)\n", PREPARE]
    text = with_(PREPARE, "".join(order if late else reversed(order)))
    text = text.replace("for x, y in loader:\n", "for step in range(100):\n    x, y = next(stream)\n")
    assert broken(text.replace(HEAD, HEAD + FOREVER), BEFORE) == found


def test_an_error_of_the_main_process_ends_the_job() -> None:
    """The others do not wait for it, and what follows it runs on all of them."""
    error = "if accelerator.is_main_process and os.path.exists('a'):\n    raise RuntimeError('a is there')\n"
    assert broken(f"{AFTER}{error}accelerator.wait_for_everyone()\n") == set()
    assert broken(f"{AFTER}{error}torch.save({{}}, 'a')\n") == {"effect-once"}
    left = error.replace("raise RuntimeError('a is there')", "raise SystemExit(0)")
    assert broken(f"{AFTER}{left}accelerator.wait_for_everyone()\n") == {"collective-apart"}


KEPT = """\
class Run:
    def __init__(self):
        self.model = nn.Linear(2, 2)
    def show(self, text):
        self.accelerator.print(text)
    def train(self, loader):
        FIRST
        self.accelerator = Accelerator()
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.model, optimizer, loader = self.accelerator.prepare(self.model, optimizer, loader)
        for x, y in loader:
            self.accelerator.backward(F.cross_entropy(self.model(x), y))
            optimizer.step()
        self.show("done")
run = Run()
"""


@pytest.mark.parametrize(
    ("first", "calls", "wrong"),
    [
        ("pass", "run.train(DataLoader(data, 8))", False),
        ("pass", "run.train(DataLoader(data, 8))\nrun.show('all')", False),
        ("pass", "if data:\n    run.train(DataLoader(data, 8))\nrun.show('all')", True),
        ("print(self.accelerator.device)", "run.train(DataLoader(data, 8))", True),
    ],
)
def test_an_accelerator_that_a_method_keeps_is_there_where_others_read_it(first: str, calls: str, wrong: bool) -> None:
    after = HEAD + "from torchlift.runtime import Accelerator\n" + KEPT.replace("FIRST", first) + calls + "\n"
    before = after.replace("        self.accelerator = Accelerator()\n", "").replace("self.accelerator.print", "print")
    before = before.replace("self.accelerator.device", "0").replace("self.accelerator.backward(", "(")
    line = "        self.model, optimizer, loader = self.accelerator.prepare(self.model, optimizer, loader)\n"
    assert line in before
    before = before.replace(line, "").replace(", y))", ", y)).backward()")
    assert broken(after, before) == ({"attribute-bound"} if wrong else set())


FIXED = """\
from collections import namedtuple
from dataclasses import dataclass
Pair = namedtuple("Pair", "device count")
@dataclass(frozen=True)
class Config:
    device: str
@dataclass
class Open:
    device: str
class Keeper:
    __slots__ = ("count",)
class Asked:
    @property
    def device(self):
        return "cpu"
"""


@pytest.mark.parametrize(
    ("made", "fixed"),
    [
        ('Config("cuda")', True),
        ('Pair("cuda", 1)', True),
        ("Keeper()", True),
        ("Asked()", True),
        ('Open("cuda")', False),
        ("settings()", False),
    ],
)
def test_what_an_edit_sets_can_be_set(made: str, fixed: bool) -> None:
    """What the script itself sets there is its author's affair."""
    start = BEFORE.replace(HEAD, f"{HEAD}{FIXED}config = {made}\n")
    emitted = AFTER.replace(HEAD, f"{HEAD}{FIXED}config = {made}\n")
    line = "config.device = accelerator.device\n"
    assert broken(emitted.replace(PREPARE, line + PREPARE), start) == ({"attribute-fixed"} if fixed else set())
    own = "config.device = 0\n"
    loop = "for x, y in loader:\n"
    assert broken(emitted.replace(loop, own + loop), start.replace(loop, own + loop)) == set()


def test_a_star_import_binds_no_name_that_the_script_bound_itself() -> None:
    star = "from helpers import *\n"
    on = 'on = torch.device("cuda")\n'
    made = "accelerator = Accelerator()"
    before = BEFORE.replace(HEAD, HEAD + star + on).replace("nn.Linear(2, 2)", "nn.Linear(2, 2).to(on)")
    after = AFTER.replace(HEAD, HEAD + star)
    assert broken(after, before) == set()
    assert broken(after.replace(made, 'accelerator = Accelerator(cpu=on == "cpu")'), before) == {"name-bound"}
    assert broken(after.replace(made, "accelerator = Accelerator(cpu=CPU)"), before + "print(CPU)\n") == set()


def test_what_is_prepared_is_an_attribute_of_every_class_that_its_object_may_have() -> None:
    classes = """\
class One(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(2, 2)
    def forward(self, x):
        return self.left(x)
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.right = nn.Linear(2, 2)
    def forward(self, x):
        return self.right(x)
"""
    head, made = HEAD + classes, "model = One() if data else Two()\n"
    before = BEFORE.replace(HEAD, head).replace("model = nn.Linear(2, 2)\n", made)
    after = AFTER.replace(HEAD, head).replace("model = nn.Linear(2, 2)\n", made)
    assert broken(after, before) == set()
    prepared = "model.left, model, optimizer, loader = accelerator.prepare(model.left, model, optimizer, loader)\n"
    assert broken(after.replace(PREPARE, prepared), before) == {"attribute-bound"}
    other = after.replace(PREPARE, prepared).replace("        self.right = ", "        self.left = self.right = ")
    assert broken(other, before) == set()
