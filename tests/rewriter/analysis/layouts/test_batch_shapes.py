"""Which tensor a count of rows is about, and which shapes are tied to the size of a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]
SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{top}
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
{built}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{end}
"""


def test_rows_are_counted_by_the_smaller_tensor(trained: Trained) -> None:
    """A count needs the rows and nothing of what is in them: labels are gathered, and no images."""
    step = "seen += x.size(0)\ntotal += loss.item() * x.size(0)"
    text, findings = trained(built="seen = 0", step=step, epoch="print(total / seen)")
    assert "y = accelerator.gather_for_metrics(y)" in text
    assert "seen += y.size(0)" in text
    assert 'total += accelerator.reduce(loss.detach(), reduction="mean").item() * y.size(0)' in text
    assert findings == ["filled-batch"]


def test_the_labels_are_those_of_the_model_s_own_output(trained: Trained) -> None:
    """Another criterion comes first: what it compares need not have a row for each of the inputs."""
    loss = (
        "extra = torch.nn.functional.mse_loss(prior, w)\nloss = torch.nn.functional.cross_entropy(model(x), y) + extra"
    )
    text, findings = trained(
        top="prior = torch.zeros(8)",
        built="seen = 0",
        batch="x, y, w",
        loss=loss,
        step="seen += x.size(0)\ntotal += loss.item() * x.size(0)",
        epoch="print(total / seen)",
    )
    assert "        y = accelerator.gather_for_metrics(y)\n        seen += y.size(0)\n" in text
    assert findings == ["cpu-only", "filled-batch"]  # the prior is made on the CPU


BUILT = """\
import argparse
settings = argparse.Namespace(rows=8)
def serve(rows, size):
    return DataLoader(rows, batch_size=size)"""
EVALUATION = """\
held = serve(other, settings.rows)
miss = 0
for x, y in held:
    out = model(x)
    {read}
print(miss)"""


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (
            "grid = out.view(settings.rows, 1, 2)\n    miss += (grid[:, 0] - y).abs().sum().item()",
            "gives values a shape",
        ),
        ("grid = out.reshape(8, 1, 2)\n    miss += (grid[:, 0] - y).abs().sum().item()", "gives values a shape"),
        ("grid = torch.zeros(settings.rows, 2)\n    miss += (grid - y).abs().sum().item()", "gives values a shape"),
        ("miss += (out - y).abs().sum().item() / settings.rows", "divides"),
        ("grid = out.view(-1, 1, 2)\n    miss += (grid[:, 0] - y).abs().sum().item()", ""),
        ("miss += (out - y).abs().sum().item() / 2", ""),
    ],
    ids=["the option", "a number", "zeros beside rows", "a divisor", "any number of rows", "another divisor"],
)
def test_a_batch_size_that_a_call_hands_to_the_loader_ties_what_is_read(read: str, reason: str) -> None:
    """Gathered batches have more rows than the shape has room for."""
    script = SCRIPT.format(top=BUILT, built="", end=EVALUATION.format(read=read))
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert "accelerator.backward(" in text
    assert ("out, y = accelerator.gather_for_metrics((out, y))" in text) is (not reason)
    left = [found.message for found in file.diagnoses if found.id == "prepare"]
    assert len(left) == bool(reason) and all(f"it {reason}" in message for message in left)


def test_a_shape_that_is_written_out_is_not_given_to_the_joined_rows_of_a_step(trained: Trained) -> None:
    step = "scores = model(x)\ntotal += (scores{shape} - y).abs().sum().item()"
    text, _ = trained(step=step.format(shape=".view(32, 2)"), epoch="print(total)")
    assert "gather_for_metrics" not in text
    text, _ = trained(step=step.format(shape=".view(-1, 2)"), epoch="print(total)")
    assert "scores, y = accelerator.gather_for_metrics((scores, y))\n" in text


def test_a_batch_size_that_a_call_hands_to_the_loader_ties_the_step_where_batches_are_cut() -> None:
    built = "loader = serve(data, settings.rows)\nstart = torch.zeros(8, 2)"
    script = SCRIPT.format(top=BUILT, built=built, end="").replace("model(x)", "model(x).view(settings.rows, 2)")
    for keep in (True, False):
        given = [decode(script.encode(), Path("train.py"))]
        (file,) = migrate(given, CATALOGUE, Config(keep_global_batch=keep)).files
        assert [found.id for found in file.diagnoses] == (["batch-size-shape"] if keep else [])


NOISE = """\
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
{top}
size = 16
loader = DataLoader(data, {batches})
maker, judge = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(maker.parameters(), lr=0.1)
second = torch.optim.SGD(judge.parameters(), lr=0.1)
for (x,) in loader:
    drawn = {noise}
    fake = maker(drawn)
    gap = judge(fake.detach()).mean() - judge(x).mean()
    second.zero_grad()
    gap.backward()
    second.step()
    loss = -judge(fake).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
PRIOR = """\
class Prior:
    def __init__(self, rows):
        self.rows = rows
    def of(self, rows):
        return torch.randn(rows, 4)
    def fixed(self):
        return torch.randn(self.rows, 4)
"""
BUCKETS = """\
class Buckets:
    def __init__(self, count, batch):
        self.count, self.batch = count, batch
    def __iter__(self):
        for start in range(0, self.count, self.batch):
            yield list(range(start, min(start + self.batch, self.count)))
"""
SAMPLER = "batch_sampler=BatchSampler(RandomSampler(data), size, False)"


@pytest.mark.parametrize(
    ("noise", "top", "batches", "refused"),
    [
        ("torch.randn(size, 4)", "", "batch_size=size", True),
        ("torch.randn(16, 4)", "", "batch_size=size", True),
        ("torch.randn((16, 4))", "", "batch_size=16", True),
        ("torch.randn(2 * size, 4)", "", "batch_size=size", True),
        ("Prior(size).of(size)", PRIOR, "batch_size=size", True),
        ("Prior(size).fixed()", PRIOR, "batch_size=size", True),
        ("torch.from_numpy(numpy.random.normal(0, 1, (size, 4)))", "import numpy", "batch_size=size", True),
        ("torch.randn(size, 4)", "", SAMPLER, True),
        ("torch.randn(size, 4)", BUCKETS, "batch_sampler=Buckets(70, size)", True),
        ("torch.randn(x.size(0), 4)", "", "batch_size=size", False),
        ("Prior(size).of(len(x))", PRIOR, "batch_size=size", False),
        ("torch.randn(len(x), 16)[:, :4]", "", "batch_size=16", False),
    ],
)
def test_noise_of_so_many_rows_as_the_whole_batch(noise: str, top: str, batches: str, refused: bool) -> None:
    """Each process would draw as much noise as one process does, beside its shard of the rows."""
    script = NOISE.format(noise=noise, top=top, batches=batches)
    config = Config(keep_global_batch=True)
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, config).files
    assert ("batch-size-shape" in [found.id for found in file.diagnoses]) is refused
    assert file.changed is not refused


def test_noise_of_another_module_is_named_where_the_step_draws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "priors.py").write_text("import torch\n" + PRIOR)
    script = NOISE.format(noise="Prior(size).of(size)", top="from priors import Prior", batches="batch_size=size")
    (tmp_path / "train.py").write_text(script)
    survey = Surveyor(CATALOGUE, RawConfig(keep_global_batch=True)).look([Path("train.py")])
    (found,) = [found for file in survey.files for found in file.diagnoses if found.id == "batch-size-shape"]
    assert script.splitlines()[found.line - 1] == "    drawn = Prior(size).of(size)"
