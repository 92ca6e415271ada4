"""Numbers of processes that have no rows of the batch in hand."""

from __future__ import annotations

import pytest

SHORT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator
accelerator = Accelerator(split_batches=True)
loader = accelerator.prepare(DataLoader(TensorDataset(torch.ones(5)), batch_size=4))
rank = accelerator.process_index
words = ("min", "max", "product", "sum", "mean")
for number, batch in enumerate(loader):
    own = torch.tensor(5.0 + rank)
    found = {word: accelerator.reduce(own, word).item() for word in words}
    wanted = {"min": 5, "max": 6, "product": 30, "sum": 11, "mean": 5.5}
    assert found == (dict.fromkeys(wanted, 5.0) if number else wanted), found
    assert accelerator.reduce(-own, "max").item() == -5
    # of any shape and type, in trees; and what stands for a row may be anything
    counts = {"right": torch.tensor([5 + rank, 1]), "more": [torch.tensor(5 + rank), torch.tensor([True, not rank])]}
    for word in ("min", "max", "product", "sum"):
        got = accelerator.reduce({"right": counts["right"], "more": counts["more"][:1]}, word)
        first = 5 if number else wanted[word]
        assert got["right"].tolist() == [first, 2 if word == "sum" and not number else 1], (word, got)
        assert got["more"][0].item() == first
    assert accelerator.reduce(counts, "max")["more"][1].tolist() == [True, True]
    assert accelerator.reduce(counts, "min")["more"][1].tolist() == [True, bool(number)]
    assert accelerator.reduce(torch.full((2,), 5.0 + rank), "mean").tolist() == ([5.0] * 2 if number else [5.5] * 2)
    for word in words:
        nothing = torch.tensor([float("nan") if number and rank else 2.0])
        assert accelerator.reduce(nothing, word).isfinite().all(), word
    assert not torch.is_grad_enabled() or accelerator.reduce(own.requires_grad_(), "sum").grad_fn is None
assert number == 1
assert accelerator.reduce(torch.tensor(5.0 + rank), "sum").item() == 11, "after the loop all processes count"
for batch in loader:
    break
assert accelerator.reduce(torch.tensor(5.0 + rank), "mean").item() == 5.5, "after a loop that was left, too"
print("RESULT true")
"""


def test_a_process_without_rows_says_nothing(job_text):
    assert job_text(SHORT, 2) == [True, True]


MEANS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator
from torchlift.runtime.errors import CollectiveError
from torchlift.runtime.utils import DataLoaderConfiguration
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches={split}, dispatch_batches={dispatch}))
data = TensorDataset(torch.arange(10.0))
script = [batch.mean().item() for batch, in DataLoader(data, batch_size=2)]
total, together = 0.0, []
for batch, in accelerator.prepare(DataLoader(data, batch_size=2)):
    total += accelerator.reduce(batch.mean(), "sum_of_means").item()
    together.append(accelerator.reduce({{"a": batch.mean(), "b": batch.mean().repeat(2)}}, "sum_of_means")["b"][1])
assert total == sum(script) == sum(together), (total, sum(script))
try:
    accelerator.reduce(torch.tensor(3), "sum_of_means")
except CollectiveError as error:
    assert "Reduce tensor.float()" in str(error)
else:
    raise AssertionError("whole numbers")
rows = accelerator.shard_batch(torch.arange(5.0))
assert abs(accelerator.reduce(rows.mean(), "sum_of_means").item() - 2.0) < 1e-6, "one batch, cut"
print("RESULT true")
"""


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_the_means_of_the_batches_add_up_as_in_the_script(split, dispatch, job_text):
    """Also where the last round is completed with repeated rows, and where the batches are split."""
    assert job_text(MEANS.format(split=split, dispatch=dispatch), 2) == [True, True]
