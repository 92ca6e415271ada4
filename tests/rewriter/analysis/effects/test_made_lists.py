"""Lists of files that one process fills as it makes the files, and the others from the folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

PICTURES = """\
import os
import numpy as np
class Pictures(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.folder, self.names = folder, []
        if not os.path.exists(folder):
            self.make()
        else:
            for name in {listing}:
                self.names.append(os.path.join(folder, name))
        {after}
    def make(self):
        os.makedirs(self.folder)
        for number in range(8):
            name = os.path.join(self.folder, f"{{number}}.npy")
            np.save(name, np.zeros(3))
            {kept}.append(name)
    def __len__(self):
        return len(self.names)
    def __getitem__(self, row):
        return np.load(self.names[row])
pictures = Pictures("pictures")
"""
ORDERS = {
    "as they come": ("os.listdir(folder)", "pass", "self.names", ["read-back"]),
    "sorted there": ("sorted(os.listdir(folder))", "pass", "self.names", []),
    "sorted later": ("os.listdir(folder)", "self.names.sort()", "self.names", []),
    "of another list": ("os.listdir(folder)", "pass", "self.made", []),
}


@pytest.mark.parametrize(("listing", "after", "kept", "told"), ORDERS.values(), ids=ORDERS)
def test_the_process_that_makes_the_files_has_another_order(
    listing: str, after: str, kept: str, told: list[str], trained: Trained
) -> None:
    """One number was another file on each process, and nothing was said."""
    text, findings = trained(top=PICTURES.format(listing=listing, after=after, kept=kept))
    assert "main_process_first():" in text and findings == told
