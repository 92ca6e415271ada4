"""Which variables are handed to prepare."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_the_variable_that_held_the_wrapper(trained: Trained) -> None:
    loss = "loss = torch.nn.functional.cross_entropy(wrapped(x), y)"
    text, findings = trained(built="wrapped = torch.nn.DataParallel(model)", loss=loss)
    assert "wrapped = model\n" in text
    assert "wrapped, optimizer, loader = accelerator.prepare(\n    wrapped, optimizer, loader" in text
    assert findings == ["data_parallel"]


TWICE = """\
def score(m, l):
    hits = 0
    for x, y in l:
        hits += sorted(m(x).tolist())[0]
        pred = m(x)
        yield pred, hits
for q in score(model, test_loader):
    print(q)
with torch.no_grad():
    for x, y in test_loader:
        out = model(x)
        print((out.argmax(1) == y).sum().item())
"""


def test_a_loader_of_an_evaluation_that_is_not_understood_stays_whole(trained: Trained) -> None:
    """Another evaluation of it, which is understood, does not change that."""
    text, findings = trained(epoch=TWICE)
    assert "    model, optimizer, loader\n)" in text
    assert findings == ["prepare", "prepare"]


def test_rows_of_a_loader_that_stays_whole_are_not_gathered(trained: Trained) -> None:
    """Every process reads them all: each would count once a process."""
    text, _ = trained(epoch=TWICE)
    assert "gather_for_metrics" not in text
