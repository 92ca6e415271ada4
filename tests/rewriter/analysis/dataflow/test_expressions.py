"""What is put into what: models that are parts of others."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


TOP = """\
backbone, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)
class Net(torch.nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.a = a
        self.b = b
    def forward(self, x):
        return self.b(self.a(x))
"""


def test_the_whole_is_prepared_where_a_part_alone_is_trained(trained: Trained) -> None:
    built = "model = Net(backbone, head)\noptimizer = torch.optim.SGD(head.parameters(), lr=0.1)"
    text, findings = trained(top=TOP, built=built)
    assert "    model, optimizer, loader" in text and "head, optimizer" not in text
    assert findings == []
