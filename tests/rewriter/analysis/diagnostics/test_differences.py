"""What a training step draws from numpy: the same numbers on all processes, which is told at each place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]

DRAWS = "noise = np.random.rand(3)"
MIGRATED = """\
import numpy as np
import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    if accelerator.is_main_process:
        noise = np.random.rand(3)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
"""


def test_draws_of_a_training_step_are_told(trained: Trained) -> None:
    assert trained(top="import numpy as np", step=DRAWS)[1] == ["same-noise"]


@pytest.mark.parametrize(
    ("drawn", "found"),
    [
        ("np.random.uniform(0, 1)", 0),
        ("np.random.rand()", 0),
        ("np.random.randint(0, 2)", 0),
        ("np.random.choice(9)", 0),
        ("np.random.rand(1)", 0),
        ("np.random.uniform(0, 1, size=1)", 0),
        ("np.random.uniform(0, 1, 4)[0]", 1),
        ("np.random.rand(2)[0]", 1),
        ("np.random.choice(9, size=2)[0]", 1),
    ],
)
def test_one_number_for_a_whole_batch_is_alike(drawn: str, found: int, trained: Trained) -> None:
    """A coin that decides what the step does is thrown once for the batch of all, as on one process."""
    step = f"if {drawn} < 0.5:\n    model.zero_grad()"
    assert trained(top="import numpy as np", step=step)[1] == ["same-noise"] * found


@pytest.mark.parametrize(
    ("top", "step"),
    [
        ("", "for row in range(len(x)):\n    x[row] += np.random.uniform(0, 1)"),
        ("", "x = torch.stack([row * np.random.uniform(0, 1) for row in x])"),
        ("def shaken(row):\n    return row + np.random.uniform(0, 1)", "x = torch.stack([shaken(row) for row in x])"),
    ],
    ids=["a loop", "a comprehension", "a function"],
)
def test_a_number_for_each_row_is_told(top: str, step: str, trained: Trained) -> None:
    """Row by row, all processes would draw the same for other rows."""
    assert trained(top=f"import numpy as np\n{top}", step=step)[1] == ["same-noise"]


@pytest.mark.parametrize(
    ("turn", "found"),
    [
        ("steps[:, i] + np.random.normal(0, 1)", 0),
        ("steps[:, i, :].unsqueeze(1) + np.random.normal(0, 1)", 0),
        ("steps[:, i] + np.random.normal(0, 1, 4)", 1),
        ("steps[i] + np.random.normal(0, 1)", 1),
        ("steps[:2, i] + np.random.normal(0, 1)", 1),
        ("steps[:, i] + steps[i] * np.random.normal(0, 1)", 1),
    ],
)
def test_one_number_for_a_column_is_for_all_rows(turn: str, found: int, trained: Trained) -> None:
    """A noise of the teacher, drawn once a time step: the rows of the batch share it, as on one process."""
    step = f"steps = x.clone()\nfor i in range(x.shape[1]):\n    steps = {turn}"
    assert trained(top="import numpy as np", step=step)[1] == ["same-noise"] * found


@pytest.mark.parametrize(
    ("collate", "found"),
    [
        ("DataCollatorForLanguageModeling(tokenizer=words, mlm=False)", ["weighted-mean"]),
        ("DataCollatorForTokenClassification(words)", ["weighted-mean"]),
        ("DataCollatorWithPadding(words)", []),
        ("default_data_collator", []),
    ],
)
def test_a_collate_function_gives_targets_that_a_loss_leaves_out(
    collate: str, found: list[str], trained: Trained
) -> None:
    """The padding of a label is no token: each process averages over the tokens of its own rows."""
    top = f"import transformers\nfrom words import words\ncollate = transformers.{collate}"
    loss = "loss = torch.nn.functional.cross_entropy(model(x), y)"
    assert trained(top=top, step="y = y.clone()", loss=loss)[1] == found


PAIRS = """\
import random
import numpy as np

class Pairs(torch.utils.data.Dataset):
    def __getitem__(self, index):
        first = {first}
        return self.rows[{second}]"""


@pytest.mark.parametrize(
    ("first", "second", "findings"),
    [
        ("random.randint(0, 9)", "first", ["same-noise"]),
        ("index", "np.random.randint(len(self.rows))", ["same-noise"]),
        ("random.random()", "index", []),
        ("torch.randint(0, 9, (1,)).item()", "first", []),
    ],
    ids=["by a name", "in the brackets", "an augmentation", "of torch"],
)
def test_rows_that_a_data_set_chooses_itself(first: str, second: str, findings: list[str], trained: Trained) -> None:
    assert trained(top=PAIRS.format(first=first, second=second))[1] == findings


DRAWN_ROWS = """\
import random
import time
import numpy as np

class Blocks(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return self.rows[np.random.randint(9)]

def seed(worker):
    SEED"""
ALIKE = "seeds that (`{}`) by nothing that differs between processes"
WORKERS = "without loader workers all processes choose the same rows"


@pytest.mark.parametrize(
    ("seed", "workers", "told"),
    [
        ("pass", "", WORKERS),
        ("pass", ", num_workers=count", WORKERS),
        ("pass", ", num_workers=2", None),
        ("pass", ", num_workers=2, worker_init_fn=seed", None),
        ("np.random.seed(worker)", ", num_workers=2, worker_init_fn=seed", ALIKE.format("np.random.seed")),
        (
            "np.random.seed(worker + int(time.time()))",
            ", num_workers=2, worker_init_fn=lambda n: seed(n)",
            ALIKE.format("np.random.seed"),
        ),
        ("np.random.seed(torch.initial_seed() % 2**32)", ", num_workers=2, worker_init_fn=seed", None),
        ("np.random.seed(np.random.get_state()[1][0] + worker)", ", num_workers=2, worker_init_fn=seed", None),
        ("random.seed(7 + worker)", ", num_workers=2, worker_init_fn=seed", None),
    ],
)
def test_how_workers_are_seeded(seed: str, workers: str, told: str | None) -> None:
    """Workers of a loader draw different numbers on each process, unless the script seeds them alike."""
    top = DRAWN_ROWS.replace("SEED", seed)
    text = f"import torch\nfrom torch.utils.data import DataLoader\n{top}\n{_SCRIPT.replace('LOADER', workers)}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    messages = [d.message for d in file.diagnoses if d.id == "same-noise"]
    assert [told in message for message in messages if told is not None] == [True] * (told is not None)
    assert told is not None or messages == []


def test_workers_are_seeded_alike_where_the_generator_is_that_of_the_rows() -> None:
    """`random.seed` says nothing of what NumPy draws, nor the other way round."""
    top = DRAWN_ROWS.replace("np.random.randint", "random.randrange")
    for seed, told in (("random.seed(7 + worker)", 1), ("np.random.seed(worker)", 0)):
        script = _SCRIPT.replace("LOADER", ", num_workers=2, worker_init_fn=seed")
        text = f"import torch\nfrom torch.utils.data import DataLoader\n{top.replace('SEED', seed)}\n{script}"
        (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
        assert [d.id for d in file.diagnoses if d.id == "same-noise"] == ["same-noise"] * told


@pytest.mark.parametrize(("workers", "told"), [("2", []), ("0", ["same-noise"])])
def test_the_workers_are_those_of_the_loader_that_joins_data_sets(workers: str, told: list[str]) -> None:
    """The data sets are in a list, which a data set of torch is made of."""
    text = (
        "import torch\nfrom torch.utils.data import ConcatDataset, DataLoader\n"
        + DRAWN_ROWS.replace("SEED", "pass")
        + f"""
parts = []
for name in ("a", "b"):
    parts.append(Blocks())
loader = DataLoader(ConcatDataset(parts), batch_size=8, num_workers={workers})
other = DataLoader(more, batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward" in file.after
    assert [d.id for d in file.diagnoses if d.id == "same-noise"] == told


@pytest.mark.parametrize(("usual", "severity"), [("4", "note"), ("0", "review")])
def test_workers_that_a_script_has_by_default(usual: str, severity: str) -> None:
    """Only a run with an option of its own has none of them."""
    options = "import argparse\nparser = argparse.ArgumentParser()\n"
    options += f'parser.add_argument("--workers", type=int, default={usual})\nargs = parser.parse_args()\n'
    script = _SCRIPT.replace("LOADER", ", num_workers=args.workers")
    text = f"import torch\nfrom torch.utils.data import DataLoader\n{options}{DRAWN_ROWS}\n{script}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [d for d in file.diagnoses if d.id == "same-noise"]
    assert found.severity.value == severity and WORKERS in found.message


@pytest.mark.parametrize(("mixed", "findings"), [("MIXED = False", []), ("MIXED = bool(data)", ["same-noise"])])
def test_a_choice_that_no_run_makes(mixed: str, findings: list[str], trained: Trained) -> None:
    chosen = PAIRS.format(first="index", second="first").replace(
        "        first = index",
        "        first = index\n        if MIXED:\n            return self.rows[random.randint(0, 9)]",
    )
    assert trained(top=f"{chosen}\n{mixed}")[1] == findings


TURNED = """\
import random

class Turned(torch.utils.data.Dataset):
    def __getitem__(self, index):
        {rows}
        return row * {drawn}

def loader_of(workers={default}):
    return DataLoader(Turned(), batch_size=8, num_workers=workers)
"""
ROWS = "`Turned` chooses its rows by "
TURNS = "`Turned` chooses from `self.turns` by "


@pytest.mark.parametrize(
    ("rows", "drawn", "told"),
    [
        ("row = self.rows[index]", "self.turns[random.randint(0, 3)]", TURNS),
        ("row = self.read(index)", "self.turns[random.randint(0, 3)]", TURNS),
        ("half = index // 2; row = self.rows[half]", "self.turns[random.randint(0, 3)]", TURNS),
        ("row = self.rows[index]", "self.rows[random.randint(0, 3)]", ROWS),
        ("half = index // 2; row = self.rows[half]", "self.rows[random.randint(0, 3)]", ROWS),
        ("row = self.rows[index]", "self[random.randint(0, 3)]", ROWS),
        ("row = 1", "self.turns[random.randint(0, 3)]", ROWS),
    ],
)
def test_what_a_data_set_chooses_is_said(rows: str, drawn: str, told: str) -> None:
    assert [told in message for message in _same_noise(rows, drawn, "0", "loader_of()")] == [True]


@pytest.mark.parametrize(
    ("default", "made", "alike"),
    [("2", "loader_of()", False), ("0", "loader_of(4)", False), ("0", "loader_of(workers=4)", False),
     ("0", "loader_of()", True), ("2", "loader_of(count)", True), ("2", "loader_of(0)", True)],
)  # fmt: skip
def test_workers_whose_number_a_function_is_given(default: str, made: str, alike: bool) -> None:
    assert bool(_same_noise("row = self.rows[index]", "self.rows[random.randint(0, 3)]", default, made)) is alike


def _same_noise(rows: str, drawn: str, default: str, made: str) -> list[str]:
    """What is said of the random numbers of a data set, in a script that trains with it."""
    top = TURNED.format(rows=rows, drawn=drawn, default=default)
    script = _SCRIPT.replace("DataLoader(Blocks(), batch_size=8LOADER)", made)
    text = f"import torch\nfrom torch.utils.data import DataLoader\n{top}\n{script}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    return [d.message for d in file.diagnoses if d.id == "same-noise"]


_SCRIPT = """\
count = len(data)
loader = DataLoader(Blocks(), batch_size=8LOADER)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
"""
CROSS = "torch.nn.functional.cross_entropy"
PACKED = """\
out, _ = torch.nn.utils.rnn.pack_padded_sequence(model(x), [3, 2], batch_first=True)
words, _ = torch.nn.utils.rnn.pack_padded_sequence(y, [3, 2], batch_first=True)
loss = {cross}(out, words{more})"""
PACKED_DATA = """\
out = torch.nn.utils.rnn.pack_padded_sequence(model(x), [3, 2], batch_first=True).data
loss = {cross}(out, y{more})"""
MASKED = """\
known = y != 0
out = model(x)[known]
loss = {cross}(out, y[known]{more})"""


@pytest.mark.hazard("X19")
@pytest.mark.parametrize("loss", [PACKED, PACKED_DATA, MASKED], ids=["packed", "packed, its data", "by a mask"])
def test_a_mean_over_as_many_as_a_process_has(loss: str, trained: Trained) -> None:
    assert trained(loss=loss.format(cross=CROSS, more=""))[1] == ["weighted-mean"]
    text, found = trained(loss=loss.format(cross=CROSS, more=', reduction="sum"'))
    assert 'accelerator.backward(loss, reduction="sum")' in text
    assert found == []


@pytest.mark.hazard("X19")
@pytest.mark.parametrize(("more", "findings"), [("", ["weighted-mean"]), (", reduction='sum'", [])])
@pytest.mark.parametrize("by", ["weight=rare", "ignore_index=0"])
def test_a_sum_is_not_divided_by_its_weights(by: str, more: str, findings: list[str], trained: Trained) -> None:
    loss = f"loss = torch.nn.functional.cross_entropy(model(x), y, {by}{more})"
    assert _weighted(trained(loss=loss)[1]) == findings
    built = f"criterion = torch.nn.CrossEntropyLoss({by}{more})"
    assert _weighted(trained(built=built, loss="loss = criterion(model(x), y)")[1]) == findings


def _weighted(found: list[str]) -> list[str]:
    return [one for one in found if one == "weighted-mean"]


OPTIONAL = """\
class Loss(torch.nn.Module):
    def forward(self, out, y, weight=None):
        {}

def measure(out, y, weight=None):
    return criterion(out, y, weight)

criterion = Loss()
rare = torch.ones(2)"""
RETURNS = [
    "return torch.nn.functional.cross_entropy(out, y, weight=weight)",
    "total = torch.nn.functional.cross_entropy(out, y, weight=weight)\n        return total",
]


@pytest.mark.parametrize("returned", RETURNS, ids=["returned at once", "by a name"])
@pytest.mark.parametrize(
    ("loss", "findings"),
    [
        ("criterion(model(x), y)", []),
        ("criterion(model(x), y, None)", []),
        ("criterion(model(x), y, rare)", ["weighted-mean"]),
        ("criterion(model(x), y, weight=rare)", ["weighted-mean"]),
        ("measure(model(x), y)", []),
        ("measure(model(x), y, rare)", ["weighted-mean"]),
    ],
)
def test_weights_that_nobody_gives(loss: str, findings: list[str], returned: str, trained: Trained) -> None:
    """A parameter for weights is no weight where every call leaves it at None."""
    assert _weighted(trained(top=OPTIONAL.format(returned), loss=f"loss = {loss}")[1]) == findings


def test_rows_at_places_that_are_known_are_as_many_everywhere(trained: Trained) -> None:
    assert trained(loss=f"out = model(x)[:, 0]\nloss = {CROSS}(out, y)")[1] == []


def test_draws_outside_of_it_are_not(trained: Trained) -> None:
    assert trained(top="import numpy as np", epoch=DRAWS)[1] == []


def test_draws_of_the_main_process_alone_are_not() -> None:
    assert _told(MIGRATED) == []
    assert _told(MIGRATED.replace("accelerator.is_main_process", "len(x) > 3")) == ["same-noise"]


def _told(text: str) -> list[str]:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return [found.id for found in file.diagnoses]


def test_a_loss_that_the_model_computes_by_itself_is_looked_at(trained: Trained) -> None:
    top = (
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.out = torch.nn.Linear(8, 2)\n\n    def forward(self, x, y):\n        scores = self.out(x)\n"
        "        loss = torch.nn.functional.cross_entropy(scores, y, ignore_index=-1)\n        return scores, loss\n"
    )
    _, found = trained(top=top, built="net = Net().to(device)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)",
                       loss="scores, loss = net(x, y)")  # fmt: skip
    assert "weighted-mean" in found


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("torch.nn.CrossEntropyLoss(share)", True),
        ("torch.nn.CrossEntropyLoss(weight=share)", True),
        ("torch.nn.CrossEntropyLoss(**{'weight': share})", True),
        ("torch.nn.NLLLoss(None, None, 0)", True),
        ("torch.nn.CrossEntropyLoss(None)", False),
        ("torch.nn.BCELoss(share)", False),  # the mean is over all rows, whatever they weigh
    ],
)
def test_what_a_mean_is_divided_by_is_found_by_its_position(
    loss: str, said: bool, trained: Callable[..., tuple[str, list[str]]]
) -> None:
    top = f"share = torch.tensor([0.2, 0.8])\ncriterion = {loss}"
    _, found = trained(top=top, loss="loss = criterion(model(x), y)")
    assert ("weighted-mean" in found) is said


COMPILED = """\
import numba
import numpy as np

@{decorator}
def jitter():
    return np.random.rand(3)
"""


@pytest.mark.parametrize(
    ("decorator", "found"),
    [("numba.njit", []), ("numba.jit(nopython=True)", []), ("torch.no_grad()", ["same-noise"])],
)
def test_numpy_in_what_numba_compiles_has_a_generator_of_its_own(
    decorator: str, found: list[str], trained: Trained
) -> None:
    assert trained(top=COMPILED.format(decorator=decorator), step="noise = jitter()")[1] == found


def test_a_draw_with_a_bound_of_ones_own_is_not_the_same(trained: Trained) -> None:
    """As many rows all processes have; what is in the rows differs."""
    bounds = {"len(x), size=8": ["same-noise"], "9, size=(len(x), 8)": ["same-noise"], "int(y.sum()), size=8": []}
    for bound, told in bounds.items():
        assert trained(top="import numpy as np", step=f"x = x + np.random.randint({bound})")[1] == told


@pytest.mark.parametrize(
    ("marked", "found"),
    [
        ("y[y == 0] = -100", ["weighted-mean"]),
        ("y = torch.where(y == 0, -100, y)", ["weighted-mean"]),
        ("y[y == 0] = -1", []),
    ],
)
def test_targets_that_a_loss_leaves_out_without_being_told_to(marked: str, found: list[str], trained: Trained) -> None:
    assert trained(step=marked, loss="loss = torch.nn.functional.cross_entropy(model(x), y)")[1] == found
