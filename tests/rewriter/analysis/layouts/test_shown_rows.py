"""Files that show rows of a batch as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


@pytest.mark.parametrize(
    ("step", "after", "findings"),
    [
        ("out = model(x)\ntable[len(table)] = out[0, 0].item()", "frame.to_csv('a.csv')", ["one-share"]),
        ("table[len(table)]['x'] = y[0].item()", "frame.to_csv('a.csv')", ["one-share"]),
        ("table[len(table)] = loss.item()", "frame.to_csv('a.csv')", []),
        ("table[len(table)] = 1.0", "frame.to_csv('a.csv')", []),
        ("table[len(table)] = y[0].item()", "print(len(frame))", []),
    ],
    ids=["an output", "an entry of an entry", "a loss", "a number", "not written"],
)
def test_a_table_of_rows_that_are_read_one_by_one(step: str, after: str, findings: list[str], trained: Trained) -> None:
    built = "import pandas as pd\ntable = {}"
    assert trained(built=built, step=step, epoch=f"frame = pd.DataFrame(table)\n{after}")[1] == findings


@pytest.mark.parametrize(
    ("drawn", "findings"), [("built", []), ("epoch", ["one-share"])], ids=["before it is prepared", "after it"]
)
def test_a_batch_that_is_drawn_before_the_loader_is_prepared(drawn: str, findings: list[str], trained: Trained) -> None:
    """It has the rows that the script asked for, on every process."""
    parts = {drawn: "x, y = next(iter(loader))\nsave_image(x, 'real.png')"}
    parts["built"] = f"from torchvision.utils import save_image\n{parts.get('built', '')}"
    assert trained(**parts)[1] == findings


@pytest.mark.parametrize(("shown", "findings"), [("x", ["one-share"]), ("picture", ["one-share"]), ("noise", [])])
def test_a_picture_of_what_is_no_batch(shown: str, findings: list[str], trained: Trained) -> None:
    built = "from torchvision.utils import make_grid, save_image\nnoise = torch.randn(4, 8)\npicture = make_grid(noise)"
    step = f"picture = make_grid(x)\npicture = make_grid({shown})\nsave_image(picture, 'a.png')"
    assert trained(built=built, step=step)[1] == findings
