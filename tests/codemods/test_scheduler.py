"""The rule `scheduler`: which ones are prepared, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

EPOCH = "s = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)"
COSINE = "s = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)"

NOOPS: dict[str, dict[str, Any]] = {
    "stepped once an epoch": {"built": EPOCH, "epoch": "s.step()"},
    "stepped at the end": {"built": EPOCH, "end": "s.step()"},
    "never stepped": {"built": EPOCH},
    "a profiler that steps": {
        "imports": "from torch.profiler import profile",
        "built": "p = profile()",
        "step": "p.step()",
    },
    "an environment that steps": {"built": "env = make()", "step": "env.step(1)"},
    "a counter of one's own that steps": {
        "top": "class Count:\n    def step(self):\n        return 1\n\ncount = Count()",
        "step": "count.step()",
    },
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_not_prepared(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


READS_LATER: dict[str, dict[str, Any]] = {
    "a lambda": {
        "built": "s = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (9 * len(loader)))",
        "step": "s.step()",
    },
    "a function": {
        "built": "def poly(step):\n    total = 9 * len(loader)\n    return (1 - step / total) ** 0.9\n"
        "s = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=poly)",
        "step": "s.step()",
    },
}


@pytest.mark.parametrize("parts", READS_LATER.values(), ids=READS_LATER)
def test_what_reads_the_length_of_the_loader_at_each_step_is_not_prepared(parts: dict[str, Any], lines: Lines) -> None:
    """Prepared, it would go N steps at a time through a schedule of 1/N of the length."""
    out, come, findings = lines(**parts)
    assert (out, findings) == ([], [])
    assert not prepared(come)


COUNTED = """
import sys

import torch
from torch.utils.data import DataLoader

def train(model, loader, optimizer, s, total):
    taken = 0
    {around}
        for i, (x, y) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            s.step()
            taken += 1
            {left}

words = len(open("words.txt").read())
model = torch.nn.Linear(words, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = {total}
s = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max={horizon})
train(model, loader, optimizer, s, total)
"""
EPOCHS, NUMBER = "for epoch in range(9):", "int(sys.argv[1])"

ENDS_AT_A_NUMBER_OF_STEPS = {
    "left at a count": (EPOCHS, "if taken >= total: break", NUMBER, "total"),
    "left at a count, written the other way round": (EPOCHS, "if total <= taken: return", NUMBER, "total"),
    "left at the number of the batch": (EPOCHS, "if i == total: break", NUMBER, "9 * total"),
    "left at a count, or before": (EPOCHS, "if loss < 1e-3 or taken == total: break", NUMBER, "total"),
    "a while around it": ("while taken < total:", "", NUMBER, "total"),
    "a while to a number made of its length": ("while taken < total:", "", "9 * len(loader)", "total"),
    "one that is made of it at times": ("while taken < total:", "", "len(loader) if sys.argv[1:] else 500", "total"),
    "with a horizon of its own": ("while taken < total:", "", NUMBER, "500"),
}
ENDS_WITH_THE_LOADER = {
    "the number is made of its length": (EPOCHS, "if taken >= total: break", "9 * len(loader)", "total"),
    "only the horizon is": (EPOCHS, "if taken >= total: break", NUMBER, "9 * len(loader)"),
    "left at a count if it is asked for": (EPOCHS, "if total > 0 and taken >= total: break", NUMBER, "total"),
    "left on a value": (EPOCHS, "if loss < total: break", NUMBER, "total"),
    "a while over epochs": ("while epoch < 9:", "epoch = 1", NUMBER, "total"),
    "the break of another loop": (EPOCHS, "for j in range(9):\n                if taken == total: break", NUMBER, "9"),
}


@pytest.mark.parametrize("way", ENDS_AT_A_NUMBER_OF_STEPS.values(), ids=ENDS_AT_A_NUMBER_OF_STEPS)
def test_of_a_training_that_ends_at_a_number_of_steps_it_is_not_prepared(
    way: tuple[str, ...], migrated: Callable[[str], str]
) -> None:
    """Prepared, it would be at its end after 1/N of the training."""
    assert "= accelerator.prepare( model, optimizer, loader )" in " ".join(migrated(_counted(way)).split())


@pytest.mark.parametrize("way", ENDS_WITH_THE_LOADER.values(), ids=ENDS_WITH_THE_LOADER)
def test_of_a_training_that_ends_with_its_loader_it_is_prepared(
    way: tuple[str, ...], migrated: Callable[[str], str]
) -> None:
    assert "= accelerator.prepare( model, optimizer, loader, s )" in " ".join(migrated(_counted(way)).split())


IN_METHODS = """
import sys

import torch
from torch.utils.data import DataLoader

class Run:
    def __init__(self, model, optimizer, s):
        self.model, self.optimizer, self.s = model, optimizer, s
        self.taken = 0

    def turn(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.s.step()
        {called}

    def epoch(self, loader, taken=0):
        for x, y in loader:
            self.turn(x, y)
            {each}
        return taken

    def train(self, loader, total):
        epoch = taken = 0
        {around}

total = int(sys.argv[1])
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
s = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
Run(model, optimizer, s).train(loader, total)
"""
LEFT = "for epoch in range(9):\n            self.epoch(loader)\n            if self.taken >= total: break"


@pytest.mark.parametrize(
    ("called", "each", "around", "is_prepared"),
    [
        ("pass", "self.taken += 1", "while self.taken < total:\n            self.epoch(loader)", False),
        ("self.taken += 1", "pass", "while self.taken < total:\n            self.epoch(loader)", False),
        ("pass", "taken += 1", "while taken < total:\n            taken = self.epoch(loader, taken)", False),
        ("pass", "self.taken = self.taken + 1", LEFT, False),
        ("if self.s.last_epoch % 2: self.taken += 1", "pass", LEFT, True),
        ("pass", "pass", "while epoch < total:\n            self.epoch(loader)\n            epoch += 1", True),
    ],
    ids=["in a method", "in a method it calls", "handed back", "left after a method", "now and then", "epochs"],
)
def test_the_number_of_steps_at_which_a_training_ends_may_be_counted_in_another_function(
    called: str, each: str, around: str, is_prepared: bool, migrated: Callable[[str], str]
) -> None:
    """The learning rate would be at its end after 1/N of the training, and climb again."""
    text = " ".join(migrated(IN_METHODS.format(called=called, each=each, around=around)).split())
    given = "model, optimizer, loader, s" if is_prepared else "model, optimizer, loader"
    assert f"= accelerator.prepare( {given} )" in text


@pytest.mark.parametrize("names", ["model, optimizer, loader", "model, optimizer, loader, s"])
def test_a_script_on_accelerate_decides_for_itself(names: str, migrated: Callable[[str], str]) -> None:
    """Accelerate steps a scheduler that its author left out once a step, and so does the runtime."""
    text = _counted((EPOCHS, "", NUMBER, "total")).replace("loss.backward()", "accelerator.backward(loss)")
    text = text.replace("train(model,", "train(accelerator, model,").strip()
    made = f"accelerator = Accelerator()\n{names} = accelerator.prepare({names})\ntrain(accelerator,"
    text = "from accelerate import Accelerator\n" + text.replace("\ntrain(accelerator,", f"\n{made}") + "\n"
    assert migrated(text) == text.replace("from accelerate ", "from torchlift.runtime ")


def _counted(way: tuple[str, ...]) -> str:
    return COUNTED.format(**dict(zip(("around", "left", "total", "horizon"), way, strict=True)))


def prepared(come: list[str]) -> bool:
    return any(", s = accelerator.prepare(" in line for line in come)


PER_STEP: dict[str, dict[str, Any]] = {
    "stepped once an optimizer step": {"built": COSINE, "step": "s.step()"},
    "a lambda of the step": {
        "built": "s = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))",
        "step": "s.step()",
    },
    "made by a function of the script": {
        "top": "def make(optimizer):\n    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)",
        "built": "s = make(optimizer)",
        "step": "s.step()",
    },
    "with a horizon read from the loader in front of prepare": {
        "built": "s = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=3, steps_per_epoch=len(loader))",
        "step": "s.step()",
    },
    "imported by its name": {
        "imports": "from torch.optim.lr_scheduler import OneCycleLR",
        "built": "s = OneCycleLR(optimizer, 0.1, total_steps=100)",
        "step": "s.step()",
    },
}


@pytest.mark.parametrize("parts", PER_STEP.values(), ids=PER_STEP)
def test_prepared_and_said(parts: dict[str, Any], lines: Lines) -> None:
    gone, come, findings = lines(**parts)
    assert gone == []
    assert prepared(come)
    assert findings == ["scheduler"]


def test_stepped_both_ways_is_refused(lines: Lines) -> None:
    gone, come, findings = lines(built=COSINE, step="s.step()", epoch="s.step()")
    assert (gone, come) == ([], [])
    assert set(findings) == {"scheduler"}


def test_stepped_on_a_metric_it_is_not_prepared_and_follows_all_processes(lines: Lines) -> None:
    gone, come, findings = lines(
        built="s = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)", epoch="s.step(loss)"
    )
    assert gone == ["    s.step(loss)"]
    assert come == ['    s.step(accelerator.reduce(loss.detach(), reduction="mean"))']
    assert findings == []


WARM = """
class Warm(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, rounds, later):
        self.rounds, self.later = rounds, later
        super().__init__(optimizer)

    def get_lr(self):
        return self.later.get_last_lr()

    def step(self):
        if self.last_epoch > self.rounds:
            self.later.step()
        super().step()
"""
WARMED = f"{COSINE.replace('s =', 'later =')}\ns = Warm(optimizer, 100, later)"


def test_what_a_prepared_scheduler_steps_is_not_prepared(lines: Lines) -> None:
    """It stepped N times in each of the N steps of the other."""
    _, come, findings = lines(top=WARM, built=WARMED, step="s.step()")
    assert prepared(come) and not any("later" in line for line in come)
    assert findings == ["scheduler"]


def test_what_a_scheduler_of_each_epoch_steps_is_left(lines: Lines) -> None:
    _, come, findings = lines(top=WARM, built=WARMED, epoch="s.step()")
    assert not prepared(come) and not any("later" in line for line in come)
    assert findings == []


def test_a_scheduler_that_is_stepped_by_another_too_is_refused(lines: Lines) -> None:
    gone, come, findings = lines(top=WARM, built=WARMED, step="s.step()\nlater.step()")
    assert (gone, come) == ([], [])
    assert set(findings) == {"scheduler"}


BUILT_LATE = """
import torch
from torch.utils.data import DataLoader

def schedule(optimizer, batches):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(batches))

model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
steps = len(loader)
for phase in range(3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    s = HORIZON
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        s.step()
"""


@pytest.mark.parametrize(
    ("horizon", "alone"),
    [
        ("torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(loader))", True),
        ("schedule(optimizer, loader)", True),
        ("torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)", True),
        ("torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(data) // 32)", False),
        ("torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)", False),
    ],
    ids=["the length", "of a function", "by a name", "of the data", "a number"],
)
def test_with_the_length_of_a_prepared_loader_it_is_not_prepared(
    horizon: str, alone: bool, migrated: Callable[[str], str]
) -> None:
    """Prepared, it would go N steps at a time through a schedule of 1/N of the length."""
    text = " ".join(migrated(BUILT_LATE.replace("HORIZON", horizon)).split())
    assert ("optimizer = accelerator.prepare(optimizer)" in text) is alone
    assert ("optimizer, s = accelerator.prepare( optimizer, s )" in text) is not alone


METHODS = """
class Runner:
    def load(self):
        self.loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)

    def build(self):
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.s = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=2 * self.count)

    def run(self):
        CALLS
        for epoch in range(2):
            for x, y in self.loader:
                loss = torch.nn.functional.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.s.step()


Runner().run()
"""


@pytest.mark.parametrize(
    ("calls", "taken"),
    [
        ("self.load()\n        self.count = len(self.loader)\n        self.build()", False),
        ("self.count = 8\n        self.load()\n        self.build()", True),
    ],
    ids=["the length of the loader that another method has prepared", "a number that no loader goes into"],
)
def test_the_length_may_be_asked_for_in_another_method_than_that_which_prepares_the_loader(
    calls: str, taken: bool, migrated: Callable[[str], str]
) -> None:
    imports = "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
    new = migrated(imports + METHODS.replace("CALLS", calls))
    assert "self.loader = self.accelerator.prepare(self.loader)" in new
    assert ("self.model, self.optimizer, self.s = self.accelerator.prepare(" in new) is taken
    assert ("self.model, self.optimizer = self.accelerator.prepare(" in new) is not taken
