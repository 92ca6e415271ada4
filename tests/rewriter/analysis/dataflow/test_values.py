"""Methods are looked up through the bases of a class."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


TOP = """\
class Root(torch.nn.Module):
    def save(self):
        torch.save(self.state_dict(), "a.pt")
class Base(Root):
    def loss_of(self, x, y):
        return torch.nn.functional.cross_entropy(self(x), y)
class Net(Base):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.fc(x)
"""


def test_methods_of_the_bases_are_run(trained: Trained) -> None:
    built = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text, _ = trained(top=TOP, built=built, loss="loss = model.loss_of(x, y)", step="model.save()")
    assert 'accelerator.save(accelerator.get_state_dict(self), "a.pt")' in text
