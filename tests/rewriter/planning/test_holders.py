"""Training inside classes: the object keeps the accelerator, or the refusal says why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

BUILDS = """\
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, args):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = torch.nn.Linear(4, 2).to(self.device)
        self.loader = DataLoader(data, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        torch.save(self.model.state_dict(), "net.pt")


Trainer(args).train()
"""
HANDED = """\
import torch
from torch.utils.data import DataLoader


class Base:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def save(self):
        torch.save(self.model.state_dict(), "net.pt")


class Trainer(Base):
    def __init__(self, model, optimizer, loader, device):
        super().__init__(model, optimizer)
        self.loader = loader
        self.device = device

    def train(self):
        net = self.model
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            loss = torch.nn.functional.cross_entropy(net(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.save()


def main():
    device = torch.device("cuda")
    model = torch.nn.Linear(4, 2).to(device)
    loader = DataLoader(data, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, optimizer, loader, device)
    trainer.train()


main()
"""


def result(text: str) -> FileResult:
    (file,) = migrate([decode(dedent(text).encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


@pytest.fixture
def lines() -> Callable[[str], tuple[list[str], list[str]]]:
    """`lines(text)`: the stripped lines that came, and the findings. A second run must change nothing."""

    def run(text: str) -> tuple[list[str], list[str]]:
        file = result(text)
        after = file.after.decode()
        if file.changed:
            assert result(after).after == file.after, "a second run changes something"
        before = dedent(text).splitlines()
        return [line.strip() for line in after.splitlines() if line not in before], [d.id for d in file.diagnoses]

    return run


Lines = Callable[[str], tuple[list[str], list[str]]]


@pytest.mark.hazard("S4")
def test_an_object_that_builds_everything_makes_the_accelerator(lines: Lines) -> None:
    assert lines(BUILDS) == (
        [
            "from torchlift.runtime import Accelerator",
            "self.accelerator = Accelerator()",
            "self.model = torch.nn.Linear(4, 2)",
            "self.model, self.optimizer, self.loader = self.accelerator.prepare(",
            "self.model, self.optimizer, self.loader",
            ")",
            "self.accelerator.backward(loss)",
            'self.accelerator.save(self.accelerator.get_state_dict(self.model), "net.pt")',
        ],
        [],
    )


def test_an_object_that_is_handed_everything_is_handed_the_accelerator(lines: Lines) -> None:
    came, found = lines(HANDED)
    assert found == []
    assert came == [
        "from torchlift.runtime import Accelerator",
        'self.accelerator.save(self.accelerator.get_state_dict(self.model), "net.pt")',
        "def __init__(self, model, optimizer, loader, accelerator):",
        "self.accelerator = accelerator",
        "self.accelerator.backward(loss)",
        "accelerator = Accelerator()",
        "model = torch.nn.Linear(4, 2)",
        "model, optimizer, loader = accelerator.prepare(",
        "model, optimizer, loader",
        ")",
        "trainer = Trainer(model, optimizer, loader, accelerator)",
    ]


def test_the_accelerator_is_there_before_the_base_class_needs_it(lines: Lines) -> None:
    text = HANDED.replace(
        "        self.optimizer = optimizer\n", "        self.optimizer = optimizer\n        self.save()\n"
    )
    after = result(text).after.decode()
    assert after.index("self.accelerator = accelerator") < after.index("super().__init__")


def test_a_callback_is_handed_it_by_keyword(lines: Lines) -> None:
    callback = """
class Saver:
    def __init__(self, path, best=0.0):
        self.path = path

    def __call__(self, model):
        torch.save(model.state_dict(), self.path)


def main"""
    text = HANDED.replace("\ndef main", callback).replace("    trainer = ", '    saver = Saver("a.pt")\n    trainer = ')
    came, found = lines(text.replace("trainer.train()\n", "trainer.train()\n    saver(model)\n"))
    assert found == []
    assert 'saver = Saver("a.pt", accelerator=accelerator)' in came
    assert "def __init__(self, path, best=0.0, *, accelerator):" in came
    assert "self.accelerator.save(self.accelerator.get_state_dict(model), self.path)" in came


def test_a_device_word_stays_a_word(lines: Lines) -> None:
    text = BUILDS.replace('torch.device("cuda" if torch.cuda.is_available() else "cpu")', '"cuda"')
    text = text.replace("    def train(self):\n", "    def train(self):\n        assert self.device\n")
    assert "self.device = self.accelerator.device.type" in lines(text)[0]


def test_prints_alone_are_no_reason_to_hand_it_to_a_class(lines: Lines) -> None:
    meter = "class Meter:\n    def show(self):\n        print(1)\n\n\n"
    text = HANDED.replace("def main", meter + "def main").replace(
        "trainer.train()", "trainer.train()\n    Meter().show()"
    )
    came, found = lines(text)
    assert found == []
    assert not any("Meter" in line for line in came) and "PartialState().print(1)" in came


def test_a_class_that_is_chosen_where_it_is_constructed(lines: Lines) -> None:
    came, found = lines(HANDED.replace("trainer = Trainer(model", "trainer = (Trainer if x else Base)(model"))
    assert found == []
    assert "self.accelerator.backward(loss)" in came


WITHOUT = """\
import torch
from torch.utils.data import DataLoader


class Trainer:
    def train(self, model, loader, optimizer):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()


def main():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Trainer().train(model, DataLoader(data, 4), optimizer)


"""


def test_methods_of_a_class_without_a_constructor_read_a_global(lines: Lines) -> None:
    came, found = lines(WITHOUT + "main()\n")
    assert found == []
    assert came.index("accelerator.backward(loss)") < came.index("accelerator = Accelerator()")


def test_a_global_that_importers_would_miss_is_none(lines: Lines) -> None:
    """Without a constructor that could keep it, the accelerator goes to the method."""
    came, found = lines(WITHOUT + "if __name__ == '__main__':\n    main()\n")
    assert "def train(self, model, loader, optimizer, accelerator):" in came
    assert any(line.startswith("Trainer().train(model, ") and line.endswith("optimizer, accelerator)") for line in came)
    assert found == []


def test_a_method_that_is_handed_on_as_a_value_is_not_given_it(lines: Lines) -> None:
    handed = "import atexit\natexit.register(Trainer().train)\n"
    came, found = lines(WITHOUT + "if __name__ == '__main__':\n    main()\n    " + handed.replace("\n", "\n    "))
    assert came == []
    assert "accelerator-out-of-reach" in found


DEAD = """\
import torch
from torch.utils.data import DataLoader


def step(model, loader, optimizer, device):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()


def old():
    device = "cuda"
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data)
    step(model, loader, optimizer, device)


def new():
    device = "cuda"
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data)
    step(model, loader, optimizer, device)


if __name__ == "__main__":
    # old()
    new()
"""


def test_an_experiment_that_nothing_calls_is_migrated_too(tmp_path: Path) -> None:
    """People put their old experiments back by a comment sign: called so, it makes an accelerator of its own."""
    (file,) = migrate([decode(DEAD.encode(), tmp_path / "train.py")], CATALOGUE, Config()).files
    text = file.after.decode()
    made = "def old():\n    accelerator = Accelerator()\n    model ="
    assert made in text and file.diagnoses == ()
    assert text.count("model, optimizer, loader = accelerator.prepare(") == 2
    assert text.count("    step(model, loader, optimizer, accelerator)") == 2
    (again,) = migrate([decode(file.after, tmp_path / "train.py")], CATALOGUE, Config()).files
    assert not again.changed


def test_a_caller_that_nothing_calls_and_that_needs_an_argument_is_named(tmp_path: Path) -> None:
    text = DEAD.replace("def old()", "def old(size)").replace("Linear(4, 1)", "Linear(size, 1)", 1)
    (file,) = migrate([decode(text.encode(), tmp_path / "train.py")], CATALOGUE, Config()).files
    told = [d for d in file.diagnoses if d.line == 9]
    assert not file.changed and [d.id for d in told] == ["accelerator-out-of-reach"]
    assert "old, which nothing calls" in told[0].message and told[0].remedy.startswith("remove old")
    (file,) = migrate(
        [decode(text.replace("# old()", "old(4)").encode(), tmp_path / "train.py")], CATALOGUE, Config()
    ).files
    assert file.changed


CHOOSES = """\
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, args, model, loader):
        self.device = torch.device("cpu" if args.no_cuda else "cuda")
        self.net = model.to(self.device)
        self.loader = loader
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            loss = torch.nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            self.optimizer.step()


def main():
    options = parse()
    model = torch.nn.Linear(4, 2)
    trainer = Trainer(options, model, DataLoader(data, 4))
    trainer.train()
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
"""


def test_a_trainer_that_chooses_its_device_is_handed_the_accelerator(lines: Lines) -> None:
    """What is built and saved around it needs the accelerator as well; the training reads the model from the object."""
    came, found = lines(CHOOSES)
    assert found == []
    assert "accelerator = Accelerator(cpu=options.no_cuda)" in came
    assert "trainer = Trainer(options, model, accelerator.prepare(DataLoader(data, 4)), accelerator)" in came
    assert "self.device = accelerator.device" not in came  # nothing reads it any more
    assert "self.net, self.optimizer = accelerator.prepare(" in came
    assert 'accelerator.save(accelerator.get_state_dict(model), "model.pt")' in came


def test_a_script_without_main_hands_what_it_makes_under_its_guard(lines: Lines) -> None:
    """Whoever imports the class would miss a global that is there only when the file is run."""
    text = CHOOSES.replace("def main():\n    options", "if __name__ == '__main__':\n    options").split(
        '\n\nif __name__ == "'
    )[0]
    came, found = lines(text)
    assert found == []
    assert "self.accelerator.backward(loss)" in came
    assert "trainer = Trainer(options, model, accelerator.prepare(DataLoader(data, 4)), accelerator)" in came


@pytest.mark.parametrize(
    "change",
    [
        ("Trainer(options,", "Trainer(parse(),"),
        ("trainer = Trainer(", "Trainer(options, None, None)\n    trainer = Trainer("),
    ],
    ids=["the condition has no name there", "there are several"],
)
def test_a_condition_that_cannot_be_said_above_is_refused(change: tuple[str, str], lines: Lines) -> None:
    came, found = lines(CHOOSES.replace(*change))
    assert came == []
    assert "accelerator-out-of-reach" in found


def test_a_trainer_that_builds_everything_keeps_its_accelerator(lines: Lines) -> None:
    text = CHOOSES.replace("self.loader = loader", "self.loader = DataLoader(data, 4)").replace(
        ", DataLoader(data, 4))", ", None)"
    )
    came, found = lines(text.replace('    torch.save(model.state_dict(), "model.pt")\n', ""))
    assert found == []
    assert "self.accelerator = Accelerator(cpu=args.no_cuda)" in came


def test_a_constructor_that_takes_any_arguments(lines: Lines) -> None:
    came, found = lines(HANDED.replace("loader, device):", "loader, device, *more):"))
    assert "def __init__(self, model, optimizer, loader, accelerator, *more):" in came and found == []


def test_methods_of_a_script_without_main_read_the_global(lines: Lines) -> None:
    text = WITHOUT.replace("def main():\n", "if True:\n")
    assert "accelerator.backward(loss)" in lines(text)[0]


TWO_WAYS = """\
import argparse
import torch
from torch.utils.data import DataLoader


def rows(part):
    print(part)
    return DataLoader(data, batch_size=4, shuffle=part == "train")


class Base:
    def __init__(self, args):
        self.args = args
        {device}
        self.model = torch.nn.Linear(4, 2).to(self.device)

    def choose(self):
        if self.args.gpu:
            return torch.device("cuda:" + str(self.args.number))
        return torch.device("cpu")


class Run(Base):
    def rows(self, part):
        return rows(part)

    def train(self):
        loader = self.rows("train")
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            optimizer.step()

    def test(self):
        loader = self.rows("test")
        print(len(loader))


parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
parser.add_argument("--number", type=int, default=0)
parser.add_argument("--train", type=int, default=1)
args = parser.parse_args()
run = Run(args)
{calls}
"""
SKIPS = "if args.train:\n    run.train()\nrun.test()"


@pytest.mark.hazard("U22")
@pytest.mark.parametrize(
    ("device", "made"),
    [
        ('self.device = torch.device("cuda" if args.gpu else "cpu")', "cpu=not args.gpu"),
        ('device = "cuda" if args.gpu else "cpu"\n        self.device = torch.device(device)', "cpu=not args.gpu"),
        ("self.device = self.choose()", 'cpu=self.device.type == "cpu"'),
    ],
    ids=["chosen in it", "by a variable", "by a method"],
)
def test_the_constructor_that_keeps_the_device_makes_the_accelerator(device: str, made: str, lines: Lines) -> None:
    """Also a method that runs without the training finds it there."""
    text = TWO_WAYS.format(device=device, calls=SKIPS)
    came, _ = lines(text)
    after = result(text).after.decode()
    assert f"self.accelerator = Accelerator({made})" in came
    assert after.index("Accelerator(cpu") < after.index("class Run")
    assert "PartialState().print(part)" in came and "self.accelerator.print(len(loader))" in came


ALWAYS = """\
import torch
from torch.utils.data import DataLoader


class Run:
    def __init__(self):
        self.model = torch.nn.Linear(4, 2)

    def rows(self, part):
        print(part)
        return DataLoader(data, batch_size=4, shuffle=True)

    def train(self):
        loader = self.rows("train")
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in loader:
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            optimizer.step()

    def test(self):
        return len(self.rows("test"))


run = Run()
"""


@pytest.mark.hazard("U22")
@pytest.mark.parametrize(
    ("calls", "everywhere"),
    [
        ("run.train()\nrun.test()", True),
        ("if go:\n    run.train()\n    run.test()", True),
        ("if go:\n    run.train()\nrun.test()", False),
        ("run.test()\nrun.train()", False),
        ("run.train()\nrun = Run()\nrun.test()", False),
        ("other = Run()\nrun.train()\nother.test()", False),
        ("go and run.train()\nrun.test()", False),
    ],
)
def test_a_method_reads_the_accelerator_only_where_it_is_made_before(
    calls: str, everywhere: bool, lines: Lines
) -> None:
    """Where another method may come first, the script makes it for all of them."""
    came, found = lines(ALWAYS + calls + "\n")
    kept = "self." if everywhere else ""
    assert f"{kept}accelerator = Accelerator()" in came and f"{kept}accelerator.print(part)" in came
    assert "main_process" not in found and "output-check" not in found


KEEPS = """\
import torch
from torch.utils.data import DataLoader


class Base:
    def __init__(self, options):
        self.options = options
        {store}
        self.net = self.make().to(self.device)

    def pick(self):
        return torch.device("cuda:1" if self.options.gpu else "cpu")


class Study(Base):
    def make(self):
        return torch.nn.Linear(4, 2)

    def fit(self):
        loader = DataLoader(data, 4)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.net(x), y).backward()
            optimizer.step()

    def score(self):
        right = self.net(probe.to(self.device)).argmax(1).sum().item()
        {score}


study = Study(options)
if options.fits:
    study.fit()
study.score()
"""
WRITES = 'open("score.txt", "a").write(str(right))'


def test_the_accelerator_is_made_where_the_object_keeps_its_device() -> None:
    """A method that writes is called with the training and without: the object has the accelerator before both."""
    file = result(KEEPS.format(store="self.device = self.pick()", score=WRITES))
    after = file.after.decode()
    made = "        self.device = self.pick()\n"
    made += '        self.accelerator = Accelerator(cpu=self.device.type == "cpu")\n'
    assert f"{made}        self.device = self.accelerator.device\n" in after
    assert "        self.net = self.make().to(self.device)\n" in after, "it may be scored without a prepare"
    assert "if self.accelerator.is_main_process else devnull" in after
    assert [found.id for found in file.diagnoses] == []


def test_a_device_that_is_kept_in_branches_is_asked_where_the_object_trains() -> None:
    store = (
        "self.device = self.pick() if options.gpu else None\n        if options.cpu: self.device = torch.device('cpu')"
    )
    after = result(KEEPS.format(store=store, score=WRITES)).after.decode()
    assert after.index("def fit") < after.index("self.accelerator = Accelerator(")


SETTINGS = """\
import torch


class Settings:
    def __init__(self, name):
        self.name = name

    def clip(self, model):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def told(self):
        return TOLD
"""
TAKES_SETTINGS = """\
import json
import pickle
import torch
from torch.utils.data import DataLoader
from settings import Settings


def main(settings):
    READ
    model = torch.nn.Linear(4, 2)
    loader = DataLoader(data, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        settings.clip(model)
        optimizer.step()


main(Settings("run"))
"""


@pytest.mark.parametrize(
    ("read", "told", "kept"),
    [
        ("print(vars(settings))", "self.name", False),
        ("text = json.dumps(settings.__dict__)", "self.name", False),
        ("print(settings.told())", "self.__dict__", False),
        ("pickle.dump({'settings': settings}, open('s.pkl', 'wb'))", "self.name", False),
        ("settings.__dict__.update(name='other')", "self.name", True),
        ("print(settings.__dict__['name'])", "self.name", True),
        ("print(settings.told())", "self.name", True),
    ],
)
def test_what_shows_all_its_attributes_does_not_keep_the_accelerator(
    read: str, told: str, kept: bool, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    """It would be shown, or saved, with the settings."""
    texts, _ = trained_project(train=TAKES_SETTINGS.replace("READ", read), settings=SETTINGS.replace("TOLD", told))
    assert ("self.accelerator = accelerator" in texts["settings"]) is kept
    assert kept or "def clip(self, model, accelerator):" in texts["settings"]


NAMED_BACKWARD = """\
import torch
from torch.utils.data import DataLoader
from data import rows


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.Adam(self.parameters())

    def forward(self, x):
        return self.layer(x)

    def backward(self, x, y):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.forward(x), y)
        loss.backward()
        self.optimizer.step()


net = Net()
for x, y in DataLoader(rows, batch_size=4):
    net.backward(x, y)
"""


def test_a_method_of_a_module_may_be_called_backward() -> None:
    """It is no backward pass of a tensor, and `loss.backward` is no call of it."""
    (file,) = migrate([decode(NAMED_BACKWARD.encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert "    net.backward(x, y)\n" in text and "accelerator.backward(loss)" in text
    assert not file.diagnoses


OF_A_DATA_CLASS = """\
from dataclasses import dataclass
import torch
from torch.utils.data import DataLoader

@dataclass
class Runner:
    rate: float

    def __post_init__(self):
        self.net = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=self.rate)

    def fit(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.net(x), y)
            loss.backward()
            self.optimizer.step()

Runner(0.1).fit(DataLoader(rows, batch_size=8))
"""


def test_what_is_built_after_the_constructor_of_a_data_class_is_not_passed_over() -> None:
    """The loader was prepared, and the model that `__post_init__` builds was not."""
    source = decode(OF_A_DATA_CLASS.encode(), Path("train.py"))
    (file,) = migrate([source], CATALOGUE, Config()).files
    text = file.after.decode()
    assert "        self.net, self.optimizer = accelerator.prepare(\n" in text
    assert "accelerator.prepare(DataLoader(" in text and file.diagnoses == ()


BUILT_LATER = """\
import torch
from torch.utils.data import DataLoader

class Runner:
    rate = 0.1

    def build(self):
        self.net = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=self.rate)
        self.loader = DataLoader(rows, batch_size=8)

    def fit(self):
        {first}
        for epoch in range(3):
            self.epoch()
            torch.save(self.net.state_dict(), "net.pt")

    def epoch(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.net(x), y)
            loss.backward()
            self.optimizer.step()

{run}
"""
LATER = {
    "by the script": ("pass", "runner = Runner()\nrunner.build()\nrunner.fit()", "self.net, self.opt"),
    "by the method that trains": ("self.build()", "Runner().fit()", "self.build()\n"),
}


@pytest.mark.parametrize(("first", "run", "before"), LATER.values(), ids=LATER)
def test_an_object_without_a_constructor_makes_it_where_all_is_built(first: str, run: str, before: str) -> None:
    source = decode(BUILT_LATER.format(first=first, run=run).encode(), Path("train.py"))
    (file,) = migrate([source], CATALOGUE, Config()).files
    text = file.after.decode()
    assert (
        f"        self.accelerator = Accelerator()\n        {before}" in text and "self.accelerator = self" not in text
    )
    assert "self.accelerator.save(" in text and "self.accelerator.backward(loss)" in text
    assert file.diagnoses == ()
