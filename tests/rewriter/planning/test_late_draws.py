"""What is drawn after prepare, where torch's generator differs between processes, is refused; before it is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Project = Callable[..., tuple[dict[str, str], list[str]]]

TRAINER = """\
import torch
from torch.utils.data import DataLoader, random_split
from data import data

def starting_values(net):
    for m in net.modules():
        if isinstance(m, torch.nn.Linear):
            torch.nn.init.normal_(m.weight)

class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(8, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        {built}

    def reset(self):
        for p in self.model.parameters():
            {drawn}

    def fit(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()

    def run(self):
        {before}
        loader = DataLoader(data, batch_size=32)
        self.fit(loader)

Trainer().run()
"""
UNIFORM = "p.data.uniform_(-0.1, 0.1)"


def found(project: Project, drawn: str = UNIFORM, built: str = "pass", before: str = "pass") -> list[str]:
    return project(train=TRAINER.format(built=built, drawn=drawn, before=before))[1]


@pytest.mark.parametrize("drawn", [UNIFORM, "torch.nn.init.uniform_(p)"])
def test_weights_that_are_reset_after_the_model_is_prepared(drawn: str, trained_project: Project) -> None:
    assert found(trained_project, drawn, before="self.reset()") == ["late-draw"]


def test_those_of_layers_that_are_named(trained_project: Project) -> None:
    assert found(trained_project, before="starting_values(self.model)") == ["late-draw"]


@pytest.mark.parametrize("built", ["self.reset()", "starting_values(self.model)"])
def test_weights_that_are_set_first_are_prepared_after_that(built: str, trained_project: Project) -> None:
    after, findings = trained_project(train=TRAINER.format(built=built, drawn=UNIFORM, before="pass"))
    assert findings == []
    assert after["train"].index(f"        {built}\n") < after["train"].index("accelerator.prepare(")


def test_constants_are_the_same_everywhere(trained_project: Project) -> None:
    assert found(trained_project, "torch.nn.init.zeros_(p)", before="self.reset()") == []


@pytest.mark.parametrize(
    ("split", "late"),
    [
        ("train, test = random_split(data, [8, 2])", ["late-draw"]),
        ("train, test = random_split(data, [8, 2], generator=torch.Generator().manual_seed(0))", []),
    ],
)
def test_a_split_after_prepare_needs_a_generator_of_its_own(
    split: str, late: list[str], trained_project: Project
) -> None:
    assert [f for f in found(trained_project, before=split) if f == "late-draw"] == late


TABLES = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def fit(loader):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

for task in range(3):
    {seed}
    table = torch.randn(64, 8{generator})
    print(torch.rand(1))
    fit(DataLoader(TensorDataset(table, table), batch_size=8))
"""


@pytest.mark.parametrize(
    ("seed", "generator", "late"),
    [
        ("pass", "", ["late-draw"]),
        ("torch.manual_seed(task)", "", []),
        ("own = torch.Generator().manual_seed(task)", ", generator=own", []),
    ],
)
def test_data_that_is_drawn_after_prepare(seed: str, generator: str, late: list[str], trained_project: Project) -> None:
    """The number that is printed beside it is no data."""
    assert trained_project(train=TABLES.format(seed=seed, generator=generator))[1] == late


IN_PLACE = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8):
    x = x + torch.randn_like(x)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
"""


def test_what_a_loop_goes_through_is_drawn_before_it(trained_project: Project) -> None:
    """The noise of each step may differ between processes, and the rows may not."""
    assert trained_project(train=IN_PLACE)[1] == ["late-draw"]


FOLDS = """\
import torch
from torch.utils.data import DataLoader, random_split
from data import data

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(0)
parts = random_split(data, [8, 8])
for part in parts:
    {reset}
    loader = DataLoader(part, batch_size=32)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


def test_a_split_before_the_training_is_drawn_before_prepare(trained_project: Project) -> None:
    after, findings = trained_project(train=FOLDS.format(reset="pass"))
    assert findings == []
    assert after["train"].index("random_split(data") < after["train"].index("model, optimizer = accelerator.prepare(")


BY_NAME = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{drawn}
loaders = {{name: DataLoader(rows, batch_size=8) for name in ("train", "valid")}}
for name in ("train", "valid"):
    part = loaders[name]
    for x, y in part:
        with torch.set_grad_enabled(name == "train"):
            loss = torch.nn.functional.mse_loss(model(x), y)
        if name == "train":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    "drawn",
    [
        "rows = TensorDataset(torch.randn(64, 8), torch.randn(64, 8))",
        "def draw():\n    x = torch.rand(64, 8)\n    return TensorDataset(x, x)\nrows = draw()",
    ],
)
def test_rows_that_loaders_of_a_table_read_are_drawn_before_prepare(drawn: str, trained_project: Project) -> None:
    """It was done after the optimizer alone, and a finding asked to draw them before."""
    after, findings = trained_project(train=BY_NAME.format(drawn=drawn))
    assert findings == []
    assert after["train"].index("\nrows = ") < after["train"].index("model, optimizer = accelerator.prepare(")


def test_weights_that_each_fold_resets(trained_project: Project) -> None:
    reset = "for p in model.parameters():\n        torch.nn.init.normal_(p)"
    assert trained_project(train=FOLDS.format(reset=reset))[1] == ["late-draw"]


ANEW = """\
import torch
from torch.utils.data import DataLoader
from data import data

def starting_values(m):
    if isinstance(m, torch.nn.Linear):
        torch.nn.init.normal_(m.weight)

def train(seed):
    model = torch.nn.Linear(8, 2)
    model.apply(starting_values)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

for seed in range(3):
    train(seed)
"""


def test_a_model_that_each_run_makes_anew_is_prepared_anew(trained_project: Project) -> None:
    assert trained_project(train=ANEW)[1] == []


GROWING = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import data

class Scaled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        nn.init.normal_(inner.weight)
        {kept}
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * self.factor

class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Scaled(nn.Linear(8, 8))])
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(x)

    def deepen(self):
        {deepen}

class Trainer:
    def __init__(self, device):
        self.device = device
        self.stack = Stack().to(device)
        self.optimizer = torch.optim.SGD(self.stack.parameters(), lr=0.1)

    def deepen(self):
        self.stack.deepen()
        {moves}

    def fit(self, loader):
        for stage in range(2):
            for x, y in loader:
                x, y = x.to(self.device), y.to(self.device)
                self.optimizer.zero_grad()
                torch.nn.functional.cross_entropy(self.stack(x), y).backward()
                self.optimizer.step()
            {calls}

Trainer(torch.device("cuda")).fit(DataLoader(data, batch_size=32))
"""
APPENDS = "self.blocks.append(Scaled(nn.Linear(8, 8)))"
BUILDS = "self.blocks = nn.ModuleList([*self.blocks, Scaled(nn.Linear(8, 8))])"
CONSTANT = "self.factor = 1.0"
MOVES = "self.stack.to(self.device)"


def grown(
    project: Project, deepen: str = APPENDS, kept: str = CONSTANT, moves: str = MOVES, calls: str = "self.deepen()"
) -> tuple[str, list[str]]:
    texts, findings = project(train=GROWING.format(kept=kept, deepen=deepen, moves=moves, calls=calls))
    return texts["train"], findings


@pytest.mark.parametrize("deepen", [APPENDS, BUILDS, "self.skip = nn.Linear(8, 8)", "self.w = nn.Parameter(f())"])
def test_a_move_that_brings_new_layers_to_the_device_stays(deepen: str, trained_project: Project) -> None:
    text, findings = grown(trained_project, deepen)
    assert f"        {MOVES}\n" in text and "Stack().to(" not in text and findings == []


def test_so_does_one_after_a_method_that_is_not_known(trained_project: Project) -> None:
    text, findings = grown(trained_project, "pass", moves=f"self.stack.enlarge()\n        {MOVES}")
    assert f"        {MOVES}\n" in text and findings == []


@pytest.mark.parametrize("deepen", ["self.level = 3", "self.last = self.last.eval()"])
def test_a_move_of_the_layers_that_prepare_has_placed_goes(deepen: str, trained_project: Project) -> None:
    text, findings = grown(trained_project, deepen)
    assert MOVES not in text and findings == []


def test_new_layers_that_nothing_moves_are_named(trained_project: Project) -> None:
    assert grown(trained_project, moves="pass")[1] == ["device_placement"]


@pytest.mark.parametrize(
    ("kept", "named"),
    [
        ("self.factor = inner.weight.data.std()", ["late-draw"]),
        ("self.factor = torch.rand(1)", ["late-draw"]),
        ("self.factor = nn.Parameter(torch.rand(1))", []),
        ("self.register_buffer('factor', torch.rand(1))", []),
    ],
)
def test_a_new_layer_that_keeps_what_each_process_draws(kept: str, named: list[str], trained_project: Project) -> None:
    assert grown(trained_project, kept=kept)[1] == named


NEXT = "net = Net(base)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)"
TWICE = """\
import torch
from data import data
from transformers import AutoModel

class Net(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.head = base, torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.base(x))

def fit(net, optimizer):
    for x, y in torch.utils.data.DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

base = AutoModel.from_pretrained("one")
{next}
fit(net, optimizer)
base = AutoModel.from_pretrained("two")
base.resize(8)
{then}
fit(net, optimizer)
"""


@pytest.mark.parametrize(
    ("then", "named"),
    [
        (NEXT, []),
        ("net.base = base", ["device_placement"]),
        (f"net.base = base\n{NEXT}", ["device_placement"]),
    ],
    ids=["of the next model", "of the model itself", "of both"],
)
def test_a_part_of_the_next_model_is_none_of_the_one_before(
    then: str, named: list[str], trained_project: Project
) -> None:
    """A variable of the script's top level has the parts of all its trainings: a review was untrue."""
    assert trained_project(train=TWICE.format(next=NEXT, then=then))[1] == named


def test_before_prepare_all_draw_the_same(trained_project: Project) -> None:
    first = "self.stack = Stack().to(device)\n        self.stack.deepen()"
    source = GROWING.replace("self.stack = Stack().to(device)", first)
    source = source.format(kept="self.factor = torch.rand(1)", deepen=APPENDS, moves="pass", calls="pass")
    assert trained_project(train=source)[1] == []


SUBSETS = """\
import torch
from torch.utils.data import DataLoader, Subset
from data import data

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    places = next(iter(DataLoader(range(64), batch_size=32{shuffled})))
    for x in DataLoader(Subset(data, {chosen}), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("shuffled", "chosen", "late"),
    [
        (", shuffle=True", "places.tolist()", ["late-draw"]),
        (", shuffle=True", "range(32)", []),
        ("", "places.tolist()", []),
        (", shuffle=True, generator=torch.Generator().manual_seed(0)", "places.tolist()", []),
    ],
    ids="shuffled not_chosen_by_it in_order its_own_generator".split(),
)
def test_rows_that_a_shuffled_loader_chooses(
    shuffled: str, chosen: str, late: list[str], trained_project: Project
) -> None:
    """The loader that chooses is not prepared: each process would shuffle it in its own way."""
    files = {"train": SUBSETS.format(shuffled=shuffled, chosen=chosen), "data": "data = [0.0] * 64\n"}
    assert [f for f in trained_project(**files)[1] if f == "late-draw"] == late


RESETS = """\
import torch
from torch.utils.data import DataLoader
from data import data, test

def fresh(net):
    for layer in net.children():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
for fold in range(4):
    {seed}
    {reset}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


@pytest.mark.parametrize("reset", ["model.apply(fresh)", "fresh(model)", "model[0].reset_parameters()"])
def test_layers_that_draw_their_weights_anew_in_each_fold(reset: str, trained_project: Project) -> None:
    assert trained_project(train=RESETS.format(seed="pass", reset=reset))[1] == ["late-draw"]


@pytest.mark.parametrize(("seed", "late"), [("torch.manual_seed(fold)", []), ("torch.seed()", ["late-draw"])])
def test_a_seed_before_that_makes_all_processes_draw_the_same(
    seed: str, late: list[str], trained_project: Project
) -> None:
    assert trained_project(train=RESETS.format(seed=seed, reset="model.apply(fresh)"))[1] == late


def test_a_layer_that_is_made_anew_draws_before_it_is_prepared(trained_project: Project) -> None:
    text = RESETS.replace("model = torch.nn.Seq", "first = torch.nn.Seq").format(seed="pass", reset="model = Net()")
    net = "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    net += "        self.out = torch.nn.Linear(8, 2)\n        self.out.reset_parameters()\n\n"
    net += "    def forward(self, x):\n        return self.out(x)\n\n"
    assert trained_project(train=text.replace("def fresh", net + "def fresh", 1))[1] == []


TEACHER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import data

{early}
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Guide(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Sequential(nn.Linear(8, 2), nn.Softmax(dim=1))

    def forward(self, x):
        return self.out(x)


def fit(loader):
    {late}
    for x, y in loader:
        with torch.no_grad():
            aim = guide(x)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), aim).backward()
        optimizer.step()


fit(DataLoader(data, batch_size=8))
"""
GUIDES = {
    "a layer": ("guide = nn.Linear(8, 2)", ["late-draw"]),
    "a class of the script": ("guide = Guide().eval()", ["late-draw"]),
    "one that is loaded": ("guide = Guide()\n    guide.load_state_dict(torch.load('guide.pt'))", []),
    "one that is given the weights": ("guide = nn.Linear(8, 2)\n    nn.init.ones_(guide.weight)", []),
    "one without weights": ("guide = nn.Softmax(dim=1)", []),
    "after a seed": ("torch.manual_seed(0)\n    guide = nn.Linear(8, 2)", []),
    "a copy": ("import copy\n    guide = copy.deepcopy(model)", []),
}


@pytest.mark.parametrize(("guide", "late"), GUIDES.values(), ids=GUIDES)
def test_a_model_that_is_not_trained_draws_its_weights(guide: str, late: list[str], trained_project: Project) -> None:
    """All processes must draw the same, or each would train towards answers of its own."""
    findings = trained_project(train=TEACHER.format(early="", late=guide))[1]
    assert [found for found in findings if found == "late-draw"] == late


def test_before_the_models_that_are_trained_it_draws_the_same(trained_project: Project) -> None:
    assert trained_project(train=TEACHER.format(early="guide = nn.Linear(8, 2)", late="pass"))[1] == []


INSIDE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import data


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for layer in [nn.PixelUnshuffle(1), nn.LayerNorm(8)]:
            x = layer(x)
        return self.out(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_layer_that_a_model_makes_as_it_runs_is_a_part_of_it(trained_project: Project) -> None:
    assert trained_project(train=INSIDE)[1] == []


IN_ROUNDS = """\
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

torch.manual_seed(0)
rows = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))

def fold(number):
    {seed}
    part = {part}
    loader = DataLoader(part, batch_size=8)
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()

{run}
"""
SPLIT = "random_split(rows, [48, 16])[0]"
LOOP = "for number in range(3):\n    fold(number)"


@pytest.mark.parametrize(
    ("part", "seed", "run", "told"),
    [
        (SPLIT, "pass", LOOP, ["late-draw"]),
        ("TensorDataset(torch.randn(64, 8), rows.tensors[1])", "pass", LOOP, ["late-draw"]),
        ("Subset(rows, torch.randperm(64)[:48])", "pass", LOOP, ["late-draw"]),
        (SPLIT, "torch.manual_seed(number)", LOOP, []),
        (SPLIT, "pass", "fold(0)", []),
        ("random_split(rows, [48, 16], generator=torch.Generator().manual_seed(number))[0]", "pass", LOOP, []),
    ],
)
def test_the_second_fold_is_drawn_after_the_first_was_prepared(
    part: str, seed: str, run: str, told: list[str], trained_project: Project
) -> None:
    """Each process trained on a split of its own from the second round on, without a word."""
    text = IN_ROUNDS.format(part=part, seed=seed, run=run)
    assert trained_project(train=text)[1] == told
    flat = text.replace("def fold(number):", "for number in range(3):").replace(run, "")
    if run is LOOP:
        assert trained_project(train=flat)[1] == told
