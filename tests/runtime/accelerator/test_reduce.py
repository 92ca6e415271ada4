"""Numbers of processes that have no rows of the batch in hand."""

from __future__ import annotations

SHORT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator
accelerator = Accelerator(split_batches=True)
loader = accelerator.prepare(DataLoader(TensorDataset(torch.ones(5)), batch_size=4))
for number, batch in enumerate(loader):
    own = torch.tensor(5.0 + accelerator.process_index)
    found = {word: accelerator.reduce(own, word).item() for word in ("min", "max", "product", "sum", "mean")}
    wanted = {"min": 5, "max": 6, "product": 30, "sum": 11, "mean": 5.5}
    assert found == (dict.fromkeys(wanted, 5.0) if number else wanted), found
    assert accelerator.reduce(-own, "max").item() == -5
assert number == 1
print("RESULT true")
"""


def test_a_process_without_rows_says_nothing(job_text):
    assert job_text(SHORT, 2) == [True, True]
