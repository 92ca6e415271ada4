"""Models that save themselves, where nobody sees how."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

CHOSEN = "model = settings['net'](8)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
OWN = """\
class Net(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = torch.nn.Linear(size, 2)
    def forward(self, x):
        return self.fc(x)
    def save(self, path):
        torch.save(self.state_dict(), path)
settings = {"net": Net}"""


@pytest.mark.hazard("U15")
@pytest.mark.parametrize(
    ("top", "end", "findings"),
    [
        ("from other import settings", "model.save('a.pt')", ["once"]),
        ("from other import settings", "model.save_weights('a.pt')", ["once"]),
        ("from other import settings", "saved = model.save", []),
        (OWN, "model.save('a.pt')", []),
    ],
    ids=["a class of elsewhere", "under another name", "not called", "its own class"],
)
def test_a_model_that_saves_itself(top: str, end: str, findings: list[str], trained: Trained) -> None:
    assert trained(top=top, built=CHOSEN, end=end)[1] == findings
