"""What a migration costs grows with the program, and not with its square: calls are counted, not seconds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{top}
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    total = 0.0
    for x, y in loader:
{step}
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total / len(loader))
"""


def _work(files: dict[str, str], inside: str = "") -> Counter[str]:
    """How often each function is called, of those in a folder of the rewriter, while a program is migrated."""
    sources = [decode(text.encode(), Path(name)) for name, text in files.items()]
    seen: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call") and f"rewriter/{inside}" in frame.f_code.co_filename:
            seen[frame.f_code.co_name] += 1

    threading.setprofile(note)  # migrate works in a thread with a large stack
    try:
        result = migrate(sources, CATALOGUE, Config())
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]  # as the documentation of Python says
    assert (result.files[0].changed or result.blocked) and seen
    return seen


def _branches(number: int) -> dict[str, str]:
    names = "".join(f"        v{n} = x * {n}\n" for n in range(number))
    choices = "".join(f"        if epoch > {n}:\n            v{n} = v{n} + 1\n" for n in range(number))
    return {"train.py": SCRIPT.format(top="", step=names + choices)}


def _modules(number: int) -> dict[str, str]:
    """Modules beside the script that have nothing to do with its training."""
    lines = "".join(f"    a{n} = self.b.module.c{n}\n    torch.save(a{n}, path)\n" for n in range(12))
    made = {f"part{n}.py": f"import torch\ndef work(self, path):\n{lines}" for n in range(number)}
    top = "".join(f"import part{n}\n" for n in range(number))
    return {"train.py": SCRIPT.format(top=top, step=""), **made}


def _findings(number: int) -> dict[str, str]:
    """Each shard may end the epoch by itself."""
    choices = "".join(f"        if (y == {n}).sum() > 3:\n            break\n" for n in range(number))
    return {"train.py": SCRIPT.format(top="", step=choices)}


def _conditions(number: int) -> dict[str, str]:
    """Conditions that bind something, and some that bind nothing."""
    lines = "".join(
        f"        if epoch > {n}:\n            w{n} = {n}\n        if epoch > {n}:\n            print(w{n})\n"
        for n in range(number)
    )
    return {"train.py": SCRIPT.format(top="", step=lines)}


def _choice(number: int) -> dict[str, str]:
    """One choice with many branches."""
    ways = "".join(f"elif way == {n}:\n    k = {n}\n" for n in range(number))
    top = f"import os\nway = int(os.environ['WAY'])\nif way < 0:\n    k = 0\n{ways}"
    return {"train.py": SCRIPT.format(top=top, step="")}


def _one_variable(number: int) -> dict[str, str]:
    """A variable that each line gives another value."""
    lines = "".join(f"        t = t * {n}\n" for n in range(number))
    return {"train.py": SCRIPT.format(top="", step=f"        t = x\n{lines}")}


def _totals(number: int) -> dict[str, str]:
    """Figures of an epoch, all of the same rows."""
    begun = "".join(f"m{n} = 0\n" for n in range(number))
    lines = "".join(f"        m{n} += (model(x).argmax(1) == y).sum().item()\n" for n in range(number))
    script = SCRIPT.format(top=begun, step=lines)
    return {"train.py": script + "".join(f"print(m{n} / len(data))\n" for n in range(number))}


def _family(number: int) -> dict[str, str]:
    """Classes that derive from one."""
    first = "class B0:\n    def go(self, x):\n        self.kept = x\n        return self.kept\n"
    more = "".join(f"class B{n + 1}(B0):\n    def go{n}(self, x):\n        return x\n" for n in range(number))
    return {"train.py": SCRIPT.format(top=first + more, step="        x = B0().go(x)\n")}


@pytest.mark.parametrize(
    ("program", "inside"),
    [
        (_branches, "analysis/layouts/engine"),
        (_modules, "analysis"),
        (_findings, ""),
        (_conditions, ""),
        (_choice, ""),
        (_one_variable, "analysis/syntax/names"),
        (_totals, ""),
        (_family, ""),
    ],
    ids=lambda given: given.__name__.strip("_") if callable(given) else "all" if not given else given.split("/")[-1],
)
def test_twice_the_program_is_twice_the_work(program: Callable[[int], dict[str, str]], inside: str) -> None:
    """Of each function; a few short ones may be called for each module and each other, while there are few."""
    once, twice = _work(program(16), inside), _work(program(32), inside)
    assert {name: (once[name], calls) for name, calls in twice.items() if calls > max(3_000, 2.6 * once[name])} == {}


def test_a_step_is_gone_through_once_for_all_that_ask() -> None:
    walks = _work({"train.py": SCRIPT.format(top="", step="")}, "analysis/layouts/engine")["turns"]
    assert walks == 1


def test_the_original_is_solved_once_and_so_is_what_is_emitted() -> None:
    assert _work({"train.py": SCRIPT.format(top="", step="")}, "analysis/dataflow/program_flow")["solve"] == 2


def test_functions_that_call_each_other_twice_are_gone_through_once() -> None:
    chain = "".join(f"def f{n}():\n    f{n + 1}()\n    f{n + 1}()\n" for n in range(12))
    top = f"import numpy as np\n{chain}def f12():\n    return np.random.permutation(8)\n"
    assert _work({"train.py": SCRIPT.format(top=top, step="        f0()")}, "analysis")["loops"] < 2_000


def _models(number: int) -> dict[str, str]:
    """Models with an optimizer each, all in one place."""
    made = "".join(
        f"n{n} = torch.nn.Linear(8, 2)\no{n} = torch.optim.SGD(n{n}.parameters(), lr=0.1)\n" for n in range(number)
    )
    steps = "".join(f"        F.cross_entropy(n{n}(x), y).backward()\n        o{n}.step()\n" for n in range(number))
    return {"train.py": SCRIPT.format(top=f"import torch.nn.functional as F\n{made}", step=steps)}


def test_a_model_is_looked_for_once_in_the_code_that_builds_optimizers() -> None:
    few, many = (_work(_models(number), "planning/prepared_names")["held_in"] for number in (4, 12))
    assert many <= 3.5 * few


def _trainings(number: int) -> dict[str, str]:
    """Models that are trained one after another, with figures of their own."""
    loop = SCRIPT[SCRIPT.index("optimizer =") :].format(step="")
    more = (loop.replace("total", f"total{n}").replace("model", f"model{n}") for n in range(number))
    made = "".join(f"model{n} = torch.nn.Linear(8, 2)\n" for n in range(number))
    return {"train.py": SCRIPT.format(top="", step="") + made + "".join(more)}


def test_a_figure_of_one_loop_is_not_looked_for_in_what_other_loops_give_its_variables() -> None:
    few, many = (_work(_trainings(number), "analysis/layouts/epoch_quotients")["at"] for number in (4, 8))
    assert many <= 5 * few  # each loop looks at each division


def _keeping(number: int) -> dict[str, str]:
    """Methods that call each other and keep the model."""
    ways = "".join(f"    def m{n}(self, m):\n        self.k{n} = m\n        self.m{n + 1}(m)\n" for n in range(number))
    kept = f"class Keeper:\n{ways}    def m{number}(self, m):\n        pass\n"
    return {"train.py": SCRIPT.format(top=kept, step="").replace("optimizer =", "Keeper().m0(model)\noptimizer =")}


def test_who_gives_an_object_what_it_keeps_is_looked_for_once() -> None:
    few, many = (_work(_keeping(number), "planning/program_uses")["_keeping"] for number in (8, 16))
    assert 0 < many <= 2.6 * few
