"""What is nested deep, or written by a program, is followed to its end: no crash, and no guess."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.result import FileResult

FLAGS = "".join("    " * n + f"if FLAG > {n}:\n" for n in range(40))
FUNCTIONS = (
    "".join("    " * n + f"def part{n}(rows):\n" for n in range(40))
    + "    " * 40 + "return rows\n"
    + "".join("    " * n + f"return part{n}(rows)\n" for n in range(39, 0, -1))
)  # fmt: skip
TRAINING = """\
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=16)
for x, y in loader:
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
EACH = 'F.cross_entropy(model(x), y, reduction="none")'
DEEP = {
    "blocks": (f"FLAG = 1\n{FLAGS}{'    ' * 40}seen = 1\n", f"{EACH}.sum()"),
    "functions": (FUNCTIONS, f"part0({EACH}).sum()"),
    "parentheses": ("", "(" * 60 + f"{EACH}.sum()" + " + 0)" * 60),
    "a chain of calls": ("", EACH + ".mul(1.0)" * 60 + ".sum()"),
    "statements of a program": ("\n".join(f"row{n} = {n}" for n in range(500)) + "\n", f"({EACH} * row499).sum()"),
    "a function that calls itself": (
        "def down(rows, n):\n    return rows if n == 0 else down(rows, n - 1)\n", f"down({EACH}, 3).sum()"
    ),
    "functions that call each other": (
        "def even(rows, n):\n    return rows if n == 0 else odd(rows, n - 1)\n"
        "def odd(rows, n):\n    return rows if n == 0 else even(rows, n - 1)\n",
        f"even({EACH}, 3).sum()",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("top", "loss"), DEEP.values(), ids=DEEP)
def test_a_sum_is_found_however_deep_it_is(
    top: str, loss: str, migrated: Callable[[str], str], findings: Callable[[str], list[str]]
) -> None:
    text = top + TRAINING.format(loss=loss)
    assert 'accelerator.backward(loss, reduction="sum")' in migrated(text)
    assert findings(text) == []


def test_what_is_too_deep_is_said_to_be(result: Callable[[str], FileResult]) -> None:
    """Of calls in calls in calls nobody says that a function calls itself."""
    loss = "(lambda rows: " * 40 + "rows.sum()" + ")(rows)" * 39 + f")({EACH})"
    (told,) = result(TRAINING.format(loss=loss)).diagnoses
    assert "a function is called inside more than 16 other calls, so what it gives is not known" in told.message
