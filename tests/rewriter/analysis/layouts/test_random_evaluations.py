"""Evaluations that every process runs on the whole set, with random numbers of its own, and what is decided on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

HEAD = """\
import torch
import torch.nn as nn
from torch.distributions import Normal
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms

class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return ROW

class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        mean = self.inner(x)
        return CODE

train_loader = DataLoader(Rows(), batch_size=8)
model = Coder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
"""
TRAIN = """\
for epoch in range(4):
    for x in train_loader:
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
LIST = """\
def validate(loader):
    return [(model(x) - x).square().mean().item() for x in loader]

"""
LOOP = """\
def validate(loader):
    model.eval()
    total = 0.0
    for x in loader:
        for part in x.split(2):
            guess = model(part)
        total += (guess - x[-2:]).square().mean().item()
    return total / len(loader)

"""
VALID = "valid_loader = DataLoader(Rows(), batch_size=4)\n"
NOISE = "Normal(mean, 1.0).rsample()"
PLATEAU = "    plateau.step(validate(valid_loader))\n"


def _migrated(text: str, *, code: str = NOISE, row: str = "torch.ones(8)") -> FileResult:
    text = text.replace("CODE", code).replace("ROW", row)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    if file.changed:
        (again,) = migrate([decode(file.after, Path("train.py"))], CATALOGUE, Config()).files
        assert again.after == file.after, "a second run changes something"
    return file


def _text(text: str, **parts: str) -> str:
    return _migrated(text, **parts).after.decode()


@pytest.mark.parametrize("code", [NOISE, "Normal(mean, 1.0).sample()", "mean + torch.randn_like(mean)"])
def test_a_schedule_follows_the_main_process(code: str) -> None:
    """Each process evaluates with noise of its own, so that each would set another learning rate."""
    text = _text(HEAD + LOOP + VALID + TRAIN + PLATEAU, code=code)
    assert "\n    total = broadcast_object_list([total])[0]\n    return total / len(loader)\n" in text
    assert "from torchlift.runtime.utils import broadcast_object_list, send_to_device\n" in text


def test_a_list_is_received_where_it_is_made() -> None:
    """A comprehension has no statement of its own."""
    text = _text(HEAD + LIST + VALID + TRAIN + "    plateau.step(sum(validate(valid_loader)))\n")
    received = "return broadcast_object_list([[(model(x) - x).square().mean().item() for x in loader]])[0]\n"
    assert received in text


def test_what_a_generator_gives_is_received() -> None:
    """A generator cannot be sent: its sum can."""
    summed = LIST.replace("[(", "sum((").replace("loader]", "loader)")
    text = _text(HEAD + summed + VALID + TRAIN + PLATEAU)
    assert "return broadcast_object_list([sum((model(x) - x).square().mean().item() for x in loader)])[0]\n" in text


def test_an_object_that_stops_the_training() -> None:
    """The decision is in a class, and the figure comes from somewhere else."""
    stopper = """\
class Stopper:
    def __init__(self):
        self.best = None

    def __call__(self, value):
        if self.best is None or value < self.best:
            self.best = value
            return False
        return True

stopper = Stopper()
"""
    text = _text(HEAD + LOOP + stopper + VALID + TRAIN + "    if stopper(validate(valid_loader)):\n        break\n")
    assert "    total = broadcast_object_list([total])[0]\n" in text


def test_rows_that_the_data_set_draws() -> None:
    """The model has no noise; what it is given has."""
    text = _text(HEAD + LOOP + VALID + TRAIN + PLATEAU, code="mean", row="torch.bernoulli(torch.full((8,), 0.5))")
    assert "    total = broadcast_object_list([total])[0]\n" in text


CROPS = """\
crop = transforms.Compose([transforms.RandomCrop(8), transforms.ToTensor()])
valid_loader = DataLoader(datasets.FakeData(transform=crop), batch_size=4)
"""


def test_random_crops() -> None:
    """A transform of an outside data set."""
    text = _text(HEAD + LOOP + CROPS + TRAIN + PLATEAU, code="mean")
    assert "    total = broadcast_object_list([total])[0]\n" in text


@pytest.mark.parametrize(("workers", "received"), [("", False), (", num_workers=2", True), (", num_workers=0", False)])
def test_the_generators_of_workers(workers: str, received: bool) -> None:
    """Python's generator is kept equal on all processes, and in the workers of a loader it is not."""
    valid = VALID.replace("=4", f"=4{workers}")
    script = "import random\n" + HEAD + LOOP + valid + TRAIN + PLATEAU
    text = _text(script, code="mean", row="torch.ones(8) * random.random()")
    assert ("broadcast_object_list" in text) is received


@pytest.mark.parametrize(
    "code",
    [
        "mean",
        "mean + torch.randn_like(mean) if self.training else mean",
        "nn.functional.dropout(mean, 0.5, training=self.training)",
        "mean + torch.randn(8, generator=torch.Generator())",
    ],
)
def test_nothing_random_in_an_evaluation(code: str) -> None:
    """Without noise of the process's own, all processes have one figure."""
    file = _migrated(HEAD + LOOP + VALID + TRAIN + PLATEAU, code=code)
    assert "broadcast" not in file.after.decode() and "local-decision" not in [d.id for d in file.diagnoses]


def test_a_model_that_returns_before_it_draws() -> None:
    """An early return in evaluation mode."""
    returns = "        if not self.training:\n            return mean\n        return CODE"
    early = HEAD.replace("        return CODE", returns)
    assert "broadcast" not in _text(early + LOOP + VALID + TRAIN + PLATEAU)


@pytest.mark.parametrize(
    ("given", "received"),
    [("False", False), ("True", True), ("epoch > 2", True), ("", False), ("NOISY", False), ("not NOISY", True)],
)
def test_noise_that_the_evaluation_switches_off(given: str, received: bool) -> None:
    """A parameter that is `False` in all calls, by whatever constant, or left at its default."""
    head = HEAD.replace(
        "    def forward",
        "    def guess(self, x, noisy=False):\n        if noisy:\n            x = x + torch.rand(8)"
        "\n        return self.inner(x)\n\n    def forward",
    )
    loop = LOOP.replace("model(part)", f"model.guess(part{', noisy=' * bool(given)}{given})")
    text = _text(head + "NOISY = False\n" + loop + VALID + TRAIN + PLATEAU, code="mean")
    assert ("broadcast_object_list" in text) is received


def test_nothing_is_decided() -> None:
    """A figure that is only printed is that of the process that prints it."""
    assert "broadcast" not in _text(HEAD + LOOP + VALID + TRAIN + "    print(validate(valid_loader))\n")


def test_tensors_are_not_sent() -> None:
    """On a GPU the others would receive a tensor of another GPU: a person decides."""
    tensors = LOOP.replace(".mean().item()", ".mean()")
    file = _migrated(HEAD + tensors + VALID + TRAIN + PLATEAU)
    (found,) = [d for d in file.diagnoses if d.id == "local-decision"]
    assert not file.changed
    assert found.message == (
        "the learning rate depends on `validate(valid_loader)`, and each process evaluates the whole set with random "
        "numbers of its own (`Normal(mean, 1.0).rsample`)"
    )


def test_a_figure_that_an_object_keeps() -> None:
    """An attribute is not sent where the evaluation sets it; what is decided on it is."""
    kept = LOOP.replace("total = 0.0", "model.total = 0.0").replace("    total +=", "    model.total +=")
    kept = kept.replace("return total", "return model.total")
    text = _text(HEAD + kept + VALID + TRAIN + PLATEAU)
    assert "    plateau.step(broadcast_object_list([validate(valid_loader)])[0])\n" in text


PARTS = """\
def validate(loader):
    rows = [(model(x) - x).square().mean(1) for x in loader]

    def upto(k):
        return sum(row[:k].cpu().numpy().mean() for row in rows) / len(rows)

    return GIVEN

"""
PAIR = "    score, other = validate(valid_loader)\n"


@pytest.mark.parametrize(
    "given",
    [
        "map(upto, [4, 8])",
        "[upto(k) for k in (4, 8)]",
        "map(lambda k: upto(k) + 1, [4, 8])",
        "upto(4), upto(8)",
    ],
)
def test_figures_that_a_closure_computes(given: str) -> None:
    """Tensors are collected, which are not sent; a function is handed on that computes the figures from them."""
    decided = PAIR + "    plateau.step(score)\n    print(other)\n"
    text = _text(HEAD + PARTS.replace("GIVEN", given) + VALID + TRAIN + decided)
    assert PAIR + "    score = broadcast_object_list([score])[0]\n    plateau.step(score)\n" in text


def test_a_method_that_is_handed_on() -> None:
    """`map(self.upto, ...)`: what the method returns depends on what the object has collected."""
    judge = """\
class Judge:
    def collect(self, loader):
        self.rows = [(model(x) - x).square().mean(1) for x in loader]

    def upto(self, k):
        return sum(row[:k].sum().item() for row in self.rows)

    def figures(self, loader):
        self.collect(loader)
        return map(self.upto, [4, 8])

judge = Judge()
"""
    pair = PAIR.replace("validate", "judge.figures")
    text = _text(HEAD + judge + VALID + TRAIN + pair + "    plateau.step(score)\n")
    assert pair + "    score = broadcast_object_list([score])[0]\n    plateau.step(score)\n" in text


def test_an_iterator_is_not_sent() -> None:
    """`map` gives what can be read once and not be sent: what is computed from it is."""
    decided = "    scores = validate(valid_loader)\n    plateau.step(sum(scores))\n"
    text = _text(HEAD + PARTS.replace("GIVEN", "map(upto, [4, 8])") + VALID + TRAIN + decided)
    assert "    plateau.step(broadcast_object_list([sum(scores)])[0])\n" in text


YIELDED = """\
def validate(loader):
    for x in loader:
        yield (model(x) - x).square().mean().item()

"""


@pytest.mark.parametrize(
    ("decided", "received"),
    [
        ("scores = validate(valid_loader)\n    plateau.step(sum(scores))", "plateau.step({0}([sum(scores)])[0])"),
        (
            "score = sum(validate(valid_loader))\n    plateau.step(score)",
            "score = {0}([score])[0]\n    plateau.step(score)",
        ),
    ],
)
def test_an_evaluation_that_yields(decided: str, received: str) -> None:
    """Its loop ends where the values are consumed."""
    text = _text(HEAD + YIELDED + VALID + TRAIN + f"    {decided}\n")
    assert f"    {received.format('broadcast_object_list')}\n" in text


def test_a_count_of_bad_epochs() -> None:
    """The count differs between the processes, and they stop together."""
    stop = """\
    score, other = validate(valid_loader)
    if score < best:
        best, bad = score, 0
    else:
        bad += 1
    if bad > 3:
        break
"""
    script = HEAD + PARTS.replace("GIVEN", "map(upto, [4, 8])") + VALID + "best, bad = 9.0, 0\n" + TRAIN + stop
    assert "    if broadcast_object_list([bad > 3])[0]:\n        break\n" in _text(script)


def test_the_best_is_saved() -> None:
    """All processes come to the saving, or none."""
    save = "    if score < best:\n        best = score\n        torch.save(model.state_dict(), 'best.pt')\n"
    script = HEAD + PARTS.replace("GIVEN", "map(upto, [4, 8])") + VALID + "best = 9.0\n" + TRAIN + PAIR + save
    assert "    if broadcast_object_list([score < best])[0]:\n        best = score\n" in _text(script)


DROPPED = HEAD.replace("self.inner = nn.Linear(8, 8)", "self.inner = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))")
LEFT_ON = LOOP.replace("    model.eval()\n", "")


@pytest.mark.parametrize(
    ("mode", "before", "received"),
    [
        ("", "", True),
        ("    model.train()\n", "", True),
        ("    model.eval()\n", "", False),
        ("    model.train(False)\n", "", False),
        ("", "    model.eval()\n", False),
        ("", "    rest(model)\n", False),
    ],
)
def test_dropout_that_is_left_on(mode: str, before: str, received: bool) -> None:
    """No `model.eval()` on the way to the loop."""
    loop = LEFT_ON.replace("    total = 0.0\n", f"{mode}    total = 0.0\n", 1)
    rest = "def rest(net):\n    net.eval()\n\n"
    text = _text(DROPPED + rest + loop + VALID + TRAIN + before + PLATEAU, code="mean")
    assert "accelerator.backward(loss)" in text
    assert ("    total = broadcast_object_list([total])[0]\n" in text) is received


@pytest.mark.parametrize("code", ["nn.functional.dropout(mean, training=self.training)", "mean"])
def test_what_draws_in_training_mode_alone(code: str) -> None:
    """A function that asks the mode; a model without noise has none in training mode either."""
    text = _text(HEAD + LEFT_ON + VALID + TRAIN + PLATEAU, code=code)
    assert "accelerator.backward(loss)" in text
    assert ("broadcast_object_list" in text) is ("dropout" in code)


def test_what_is_received_settles_what_is_made_of_it() -> None:
    """Another variable that holds the figure needs no exchange of its own."""
    decided = """\
    if score < 0.5:
        torch.save(model.state_dict(), "best.pt")
    given = {"metrics": score} if epoch else {}
    plateau.step(**given)
"""
    parts = PARTS.replace("GIVEN", "map(upto, [4, 8])")
    text = _text(HEAD + parts + VALID + TRAIN + PAIR + decided)
    assert text.count("broadcast_object_list(") == 1
    assert "    score = broadcast_object_list([score])[0]\n    if score < 0.5:\n" in text


HELD = """\
class Noise:
    def __call__(self, x):
        return self.add(x)

    def add(self, x):
        return x + NOISE

class Blur(nn.Module):
    def forward(self, x):
        return x * NOISE

class Changed(Dataset):
    def __init__(self, transform=None):
        self.rows, self.transform = [torch.ones(8)] * 64, transform

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return self.transform(self.rows[i]) if self.transform else self.rows[i]

def noisy(rows):
    return torch.stack([row + NOISE for row in rows])

class Taker:
    def together(self, rows):
        return noisy(rows)

"""


@pytest.mark.parametrize(
    "loader",
    [
        "Changed(Noise()), batch_size=4",
        "Changed(transforms.Compose([transforms.ToTensor(), Noise()])), batch_size=4",
        "Changed(Blur()), batch_size=4",
        "Changed(lambda x: Noise()(x)), batch_size=4",
        "datasets.FakeData(transform=Noise()), batch_size=4",
        "Changed(), batch_size=4, collate_fn=noisy",
        "Changed(), batch_size=4, collate_fn=lambda rows: noisy(rows)",
        "Changed(), batch_size=4, collate_fn=Taker().together",
    ],
)
@pytest.mark.parametrize(
    ("noise", "received"),
    [
        ("torch.rand(8)", True),
        ("torch.zeros(8)", False),
        ("torch.rand(8, generator=torch.Generator().manual_seed(3))", False),
    ],
)
def test_what_the_data_set_holds_draws(loader: str, noise: str, received: bool) -> None:
    """An object that changes the rows, a function that puts them together."""
    valid = f"valid_loader = DataLoader({loader})\n"
    text = _text(HEAD + HELD.replace("NOISE", noise) + LOOP + valid + TRAIN + PLATEAU, code="mean")
    assert ("    total = broadcast_object_list([total])[0]\n" in text) is received


COUNTER = """\
class Patience:
    def __init__(self):
        self.best, self.bad, self.over, self.seen = None, 0, False, []

    def __call__(self, value):
        self.look(value)

    def look(self, value):
        LOOK

patience = Patience()
"""


@pytest.mark.parametrize(
    ("look", "received"),
    [
        ("self.over = self.best is not None and value > self.best", True),
        ("self.seen.append(value)", True),
        ("print(value)", False),
    ],
)
@pytest.mark.parametrize("name", ["patience", "keeper.patience"])
def test_an_object_that_is_called_with_a_figure(look: str, received: bool, name: str) -> None:
    """What it keeps is asked for afterwards."""
    keeper = "class Keeper:\n    def __init__(self):\n        self.patience = Patience()\n\nkeeper = Keeper()\n"
    stop = f"    {name}(validate(valid_loader))\n    if {name}.over or len({name}.seen) > 3:\n        break\n"
    text = _text(HEAD + LOOP + COUNTER.replace("LOOK", look) + keeper + VALID + TRAIN + stop)
    assert ("    total = broadcast_object_list([total])[0]\n" in text) is received


KEEPS = """\
class Patience:
    def __init__(self, limit):
        self.best, self.over = None, False

    def __call__(self, value):
        self.over = self.best is not None and value > self.best

patience = Patience(3)
"""
SCORED = """\
    outs = []
    for x in valid_loader:
        for part in x.split(2):
            guess = model(part)
        outs.append(guess - x[-2:])
    patience(torch.cat(outs).mean().item())
    if patience.over:
        break
"""


def test_what_an_object_says_is_received_and_not_the_object() -> None:
    """It is made before it has seen a figure, and may keep what cannot be sent."""
    text = _text(HEAD + LOOP + KEEPS + VALID + TRAIN + SCORED)
    assert "broadcast_object_list([patience])" not in text
    assert "    if broadcast_object_list([patience.over])[0]:\n" in text


CHECKS = """\
import torch
from torch.utils.data import DataLoader

def worse(model, rows, limit):
    total = 0.0
    for x in DataLoader(rows, batch_size=4):
        noise = torch.randn(8).to(x.device)
        for part in x.split(2):
            total += (model(part + noise) - part).square().mean().item()
    return total > limit
"""
STOPS = """\
import torch
from torch.utils.data import DataLoader
from checks import worse

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for x in DataLoader(rows, batch_size=4):
        x = x.to(device)
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if worse(model, held, 9.0):
        break
"""


def test_a_function_that_was_imported_is_not_sent_but_what_it_gives(tmp_path: Path) -> None:
    """Another script calls it, too: so the decision is that of the main process where it is read."""
    (tmp_path / "checks.py").write_text(CHECKS)
    (tmp_path / "train.py").write_text(STOPS)
    (tmp_path / "show.py").write_text(
        "import torch\nfrom checks import worse\nprint(worse(torch.nn.Linear(8, 8), [], 1))\n"
    )
    files = Surveyor(CATALOGUE, RawConfig()).look([tmp_path / "train.py"]).files
    train = next(file for file in files if file.source.path.name == "train.py")
    assert b"    if broadcast_object_list([worse(model, held, 9.0)])[0]:\n" in train.after
    assert "local-decision" not in [found.id for found in train.diagnoses]
