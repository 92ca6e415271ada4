"""A tensor that outlives a step, is changed by its outputs, and enters the loss of later ones, is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

KEEPER = """\
class Keeper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(32, 2))
        self.register_buffer("counts", torch.zeros(2))
        self.at = 0

    def forward(self, out, y):
        with torch.no_grad():
            {change}
        return {loss}

keeper = Keeper()
"""
USED = "torch.nn.functional.cross_entropy(out @ self.kept[:2].t(), y)"
STEP = "loss = keeper(model(x), y)"


def found(trained: Trained, change: str, loss: str = USED) -> bool:
    return "process-memory" in trained(top=KEEPER.format(change=change, loss=loss), loss=STEP)[1]


@pytest.mark.hazard("X25")
@pytest.mark.parametrize(
    "change",
    [
        "self.kept[self.at : self.at + len(out)] = out.detach()",
        "self.kept.data[y] = out",
        "self.kept.mul_(0.9).add_(out.mean(0), alpha=0.1)",
        "self.kept.index_copy_(0, y, out.detach())",
        "self.kept = 0.9 * self.kept + 0.1 * out.mean(0)",
        "self.kept[0] += out.sum(0)",
        "self.counts.mul_(0.9).add_(out.sum(0)); self.kept.copy_(self.kept / self.counts)",
    ],
    ids=["a queue", "by an index", "a mean that moves", "a bank", "spelled out", "added to", "by another tensor"],
)
def test_what_a_module_keeps_of_earlier_steps(change: str, trained: Trained) -> None:
    assert found(trained, change)


CENTRED = """\
class Centred(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, 2))

    def forward(self, student, teacher):
        total = 0.0
        for i, view in enumerate((teacher - self.center).detach().chunk(2)):
            total = total - (view * student.chunk(2)[1 - i]).sum(-1).mean()
        self.move(teacher)
        return total

    @torch.no_grad()
    def move(self, teacher):
        self.center = self.center * 0.9 + teacher.mean(0, keepdim=True) * 0.1

centred = Centred()
"""


@pytest.mark.hazard("X25")
def test_a_centre_that_views_of_a_teacher_are_compared_with(trained: Trained) -> None:
    """The loss goes through the numbered parts of what the centre was taken from."""
    assert "process-memory" in trained(top=CENTRED, loss="loss = centred(model(x), model(x))")[1]


@pytest.mark.parametrize(
    ("change", "loss"),
    [
        ("self.kept.copy_(out)", USED),
        ("self.kept.mul_(0.9)", USED),
        ("self.counts.add_(out.sum(0))", "torch.nn.functional.cross_entropy(out, y)"),
        ("self.kept = out.detach()", USED),
        ("self.kept.add_(out.mean(0))", "torch.nn.functional.cross_entropy(out if self.training else self.kept, y)"),
    ],
    ids=["made anew", "nothing of the rows", "never in a loss", "only of this step", "running statistics"],
)
def test_what_is_no_memory_of_rows(change: str, loss: str, trained: Trained) -> None:
    assert not found(trained, change, loss)


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        ("mean = 0.9 * mean + 0.1 * out.detach().mean(0)", True),
        ("mean = 0.9 * mean + 0.1 * accelerator.gather(out.detach()).mean(0)", False),
        ("mean[y.cpu()] = out.detach().cpu()", True),
        ("mean = out.detach().mean(0)", False),
        ("total = 0.9 * total + out.detach().sum()", False),
    ],
    ids=["a mean that moves", "of all rows", "rows on the CPU", "of this step", "never in a loss"],
)
def test_a_variable_that_is_there_before_the_loop(step: str, kept: bool, trained: Trained) -> None:
    loss = "out = model(x)\nloss = (torch.nn.functional.cross_entropy(out - mean, y))"
    built = "mean, total = torch.zeros(2), 0.0"
    built += "\nfrom torchlift.runtime import Accelerator\naccelerator = Accelerator()" if "gather" in step else ""
    assert ("process-memory" in trained(built=built, loss=loss, step=step)[1]) == kept


RECENT = """\
class Recent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = None

    def restart(self):
        self.seen = None

    def forward(self, out):
        if self.seen is None:
            self.seen = torch.zeros(4, 2)
        self.seen[0] = out.detach().mean(0)
        return out + self.seen.mean(0)

class Net(torch.nn.Module):
    def __init__(self, restarts=True):
        super().__init__()
        self.layer, self.recent = torch.nn.Linear(8, 2), Recent()
        self.restarts, self.steps = restarts, 0

    def forward(self, x):
        self.steps += 1
        {restart}
        out = self.layer(x)
        for _ in range(3):
            out = self.recent(out)
        return out

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("restart", "told"),
    [
        ("self.recent.restart()", False),
        ("if self.restarts:\n            self.recent.restart()", False),
        ("if self.steps % 100 == 0:\n            self.recent.restart()", True),
        ("pass", True),
    ],
    ids=["always", "by a setting", "now and then", "never"],
)
def test_what_each_step_takes_away_first_is_no_memory(restart: str, told: bool, trained: Trained) -> None:
    """It holds what the same step has put there."""
    assert ("process-memory" in trained(built=RECENT.format(restart=restart))[1]) is told
