"""Where a wrong figure comes from: the line that makes it of the rows of one process, and what is missing there."""

from __future__ import annotations

import pytest

from torchlift.runtime.verify.compare.origins import origin_of

SCRIPT = """\
def evaluate(model, loader):
    total, correct, meter = 0.0, 0, Meter()
    for n, batch in enumerate(loader):
        x, y = batch
        out = model(x)
        loss = criterion(out, y)
        total += loss.item() * len(x)
        correct += (out.argmax(1) == y).sum().item() + n
        meter.update(loss.item(), x.size(0))
    return total / len(loader.dataset), correct / len(loader.dataset), meter.avg


def right(model, loader):
    hits = seen = 0
    for x, y in loader:
        out = model(x)
        out, y = accelerator.gather_for_metrics((out, y))
        best = out.argmax(1)
        hits += (best == y).sum().item()
        seen += accelerator.reduce(len(x)).item()
    return hits / seen


accelerator = Accelerator()
train_loader = accelerator.prepare(given)
for epoch in range(3):
    for x, y in train_loader:
        loss = step(x, y)
        accelerator.backward(loss)
    loss, accuracy, mean = evaluate(model, test_loader)
    good = right(model, test_loader)
    print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"epoch {epoch}: accuracy {good:.3f} {100 * accuracy:.1f} %")
    accelerator.print("shown by it", accuracy)
    print(mean)
    accelerator.print(1 / len(train_loader), 100 - accuracy)
    print(good)
    print(epoch, seen_elsewhere)
"""
MEAN = 'write `accelerator.reduce(loss.detach(), reduction="mean")` for `loss` in line '
GATHER = "add `out, y = accelerator.gather_for_metrics((out, y))` before line 8"


@pytest.mark.parametrize(
    ("shown", "name", "missing"),
    [
        ("loss {loss", "total", f"{MEAN}7"),
        ("100 * accuracy", "correct", GATHER),
        ("shown by it", "correct", GATHER),
        ("print(mean)", "meter", f"{MEAN}9"),
        ("100 - accuracy", "correct", GATHER),
        ("print(good)", "", ""),
        ("seen_elsewhere", "", ""),
        ("no such line", "", ""),
    ],
)
def test_a_figure_is_followed_to_the_line_that_adds_it_up(shown: str, name: str, missing: str) -> None:
    line = next((number for number, text in enumerate(SCRIPT.splitlines(), 1) if shown in text), 99)
    found = origin_of(SCRIPT, line)
    assert (found.name, found.missing) == (name, missing) if found is not None else not name


def test_text_that_is_not_python_has_none() -> None:
    assert origin_of("%matplotlib inline\nprint(x)\n", 2) is None


def test_what_calls_itself_is_not_followed_for_ever() -> None:
    assert origin_of("def f():\n    return f()\n\nx = f()\ny = x\nx = y\nprint(x)\n", 7) is None


def test_a_figure_that_is_shown_by_the_line_that_calls_for_it() -> None:
    text = (
        "def score(model, loader):\n    hits = 0\n    for x, y in loader:\n        out = model(x)\n"
        "        hits += (out == y).sum().item()\n    return hits\n\n\nprint('hits', score(model, loader))\n"
    )
    found = origin_of(text, 9)
    assert found is not None and (found.name, found.line, found.parts) == ("hits", 5, ("out", "y"))
