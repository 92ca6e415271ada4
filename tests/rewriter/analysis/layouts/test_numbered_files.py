"""Files of an evaluation that are named by the number of the batch and its size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]
PICTURES = """\
held = torch.utils.data.DataLoader(other, batch_size=size)
hits = 0
with torch.no_grad():
    for i, (x, y) in enumerate(held):
        out = model(x)
        hits += (out.argmax(1) == y).sum().item()
        for k in range(len(y)):
            name = f"row_{PLACE}.pt"
            torch.save(out[k], name)
print(hits)"""


@pytest.mark.parametrize("place", ["i * size + k", "i * held.batch_size + k + 1", "k + 1 + size * i"])
def test_an_evaluation_that_numbers_its_files_by_the_batch_size_is_left_whole(place: str, trained: Trained) -> None:
    """Row 9 of two joined batches of eight would get the name of row 1 of the next ones, and one file would be lost."""
    text, findings = trained(top="size = 8", end=PICTURES.replace("PLACE", place))
    assert "gather_for_metrics" not in text and f'name = f"row_{{{place}}}.pt"' in text
    assert findings == ["prepare"]


def test_by_the_rows_that_the_batch_has_they_are_numbered_as_before(trained: Trained) -> None:
    text, findings = trained(top="size = 8", end=PICTURES.replace("PLACE", "i * len(y) + k"))
    assert "gather_for_metrics((out, y))" in text and findings == []


def test_a_number_that_is_only_shown_names_no_file(trained: Trained) -> None:
    shown = PICTURES.replace("PLACE", "k").replace(
        "            torch.save", "            print(i * size)\n            torch.save"
    )
    text, findings = trained(top="size = 8", end=shown)
    assert "gather_for_metrics((out, y))" in text and findings == []
