"""The rule `prepare`: one call, behind everything that it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, Target
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

NOOP_PROGRAMS = {
    "a model that is not trained": """
        import torch
        model = torch.nn.Linear(2, 2)
        print(model(torch.ones(1, 2)))
        """,
    "a loader without a model": """
        from torch.utils.data import DataLoader
        for x in DataLoader(data, batch_size=2):
            print(x)
        """,
    "an optimizer that never steps": """
        import torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """,
    "names that only sound like it": """
        model = "T"
        optimizer = plan(model)
        loader = Crane()
        for crate in loader:
            optimizer.step(crate)
        """,
    "a function that is defined and not run": """
        def describe(model, optimizer, loader):
            return len(loader)
        """,
}


@pytest.mark.unchanged
@pytest.mark.parametrize("text", NOOP_PROGRAMS.values(), ids=NOOP_PROGRAMS)
def test_left_alone(text: str, check_noop: Callable[..., None]) -> None:
    check_noop(text)


CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "a loader that nothing trains or tests on": ({}, "model, optimizer, loader = accelerator.prepare("),
    "the loader of an evaluation": (
        {"end": "for x, y in test_loader:\n    scores = model(x)\n    right = (scores.argmax(1) == y).sum().item()"},
        "model, optimizer, loader, test_loader = accelerator.prepare(",
    ),
    "two models": (
        {
            "built": "head = torch.nn.Linear(2, 2)\nsecond = torch.optim.SGD(head.parameters(), lr=0.1)",
            "step": "torch.nn.functional.cross_entropy(head(model(x)), y).backward()\nsecond.step()",
        },
        "model, head, optimizer, second, loader = accelerator.prepare(",
    ),
}


@pytest.mark.hazard("P2")
@pytest.mark.parametrize(("parts", "call"), CALLS.values(), ids=CALLS)
def test_takes(parts: dict[str, Any], call: str, after: Callable[..., str]) -> None:
    assert call in after(**parts).splitlines()


@pytest.mark.parametrize("place", ["step", "epoch", "end"])
def test_a_loader_without_a_name_is_prepared_where_it_is_made(place: str, after: Callable[..., str]) -> None:
    lines = after(**{place: "for z in DataLoader(data, batch_size=4):\n    seen = model(z).sum().item()"}).splitlines()
    assert "model, optimizer, loader = accelerator.prepare(" in lines
    assert any("accelerator.prepare(DataLoader(data, batch_size=4))" in line for line in lines)


def test_a_loader_in_a_dict_is_prepared_where_it_is_made_if_it_is_iterated(migrated: Callable[[str], str]) -> None:
    text = migrated("""\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loaders = {"train": DataLoader(a), "test": DataLoader(b)}
for x, y in loaders["train"]:
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
""")
    assert '{"train": accelerator.prepare(DataLoader(a)), "test": DataLoader(b)}' in text
    assert "model, optimizer = accelerator.prepare(" in text


FACTORY = """\
import torch
from torch.utils.data import DataLoader

def batches(rows, shuffle):
    made = DataLoader(rows, batch_size=4, shuffle=shuffle)
    return made

def run(loader, model, optimizer, device):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

def check(loader, model, device):
    return [torch.nn.functional.mse_loss(model(x.to(device)), y.to(device)).item() for x, y in loader]

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(2, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train_loader = batches(rows, True)
test_loader = batches(others, False)
run(train_loader, model, optimizer, device)
"""


@pytest.mark.hazard("U6", "U20")
def test_a_function_that_makes_loaders_makes_another_one_at_each_call(migrated: Callable[[str], str]) -> None:
    text = migrated(f"{FACTORY}run(test_loader, model, None, device)\n")
    assert "model, optimizer, train_loader, test_loader = accelerator.prepare(" in text
    assert ".to(accelerator.device)" not in text
    text = migrated(f"{FACTORY}check(test_loader, model, device)\n")
    assert "model, optimizer, train_loader = accelerator.prepare(" in text, "nobody knows what is done with the others"
    run, _, check = text.partition("def check(")
    assert ".to(" not in run and "model(x.to(accelerator.device)), y.to(accelerator.device))" in check


UNPACKED = """\
import torch
from torch.utils.data import DataLoader

def loaders(train=True, test=True):
    made = []
    if train:
        made.append(DataLoader(rows, batch_size=4, shuffle=True))
    if test:
        made.append(DataLoader(others, batch_size=4))
    return made

class Run:
    def __init__(self):
        {of}model = torch.nn.Linear(2, 2)
        {of}optimizer = torch.optim.SGD({of}model.parameters(), lr=0.1)
        {of}train, {of}test = loaders()
        {inside}
{body}
Run()
"""
BODY = """\
for x, y in {of}train:
    loss = torch.nn.functional.mse_loss({of}model(x), y)
    {of}optimizer.zero_grad()
    loss.backward()
    {of}optimizer.step()
total = 0.0
for x, y in {of}test:
    scores = {of}model(x)
    total += (scores - y).abs().sum().item()
"""


@pytest.mark.parametrize("of", ["", "self."])
def test_what_a_list_of_unknown_places_is_unpacked_into_is_all_prepared(
    of: str, migrated: Callable[[str], str]
) -> None:
    """One of them alone would leave the other unprepared, and its gathered rows would count once a process."""
    body = BODY.format(of=of)
    method = f"    def both(self):\n{indent(body, ' ' * 8)}" if of else ""
    inside = "self.both()" if of else indent(body, " " * 8).lstrip()
    text = migrated(UNPACKED.format(of=of, inside=inside, body=method))
    names = ", ".join(f"{of}{name}" for name in ("model", "optimizer", "train", "test"))
    assert f"{names} = self.accelerator.prepare(" in text


SPLITS = """\
import torch
from torch.utils.data import DataLoader
{made}
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in {train}:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right, seen = 0, 0.0
for x, y in {test}:
    {odd}
    scores = model(x)
    right += (scores.argmax(1) == y).sum().item()
print(right)
"""
MADE = "loaders = {}\nfor split in ('train', 'val'):\n    loaders[split] = DataLoader(data[split], batch_size=16)\n"
PLACES = {
    "in a loop": MADE,
    "in a comprehension": "loaders = {split: DataLoader(data[split], batch_size=16) for split in ('train', 'val')}\n",
}
LOOKED_UP = {
    "one after the other": ("held = loaders['val']\nloader = loaders['train']", "loader", "held", "held, loader"),
    "in one statement": ("loader, held = loaders['train'], loaders['val']", "loader", "held", "loader, held"),
    "all of them": ("loader, held = loaders.values()", "loader", "held", "loader, held"),
    "one of them": ("loader = loaders['train']", "loader", "loaders['val']", ""),
    "where it is read": ("", "loaders['train']", "loaders['val']", ""),
}


@pytest.mark.parametrize("made", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize(("names", "train", "test", "prepared"), LOOKED_UP.values(), ids=LOOKED_UP)
def test_loaders_that_one_place_makes_are_all_prepared(
    names: str, train: str, test: str, prepared: str, made: str, migrated: Callable[[str], str]
) -> None:
    text = migrated(SPLITS.format(made=made + names, train=train, test=test, odd="pass"))
    assert "gather_for_metrics((scores, y))" in text
    things = f"model, optimizer, {prepared}".removesuffix(", ")
    assert f"{things} = accelerator.prepare(" in text
    assert ("accelerator.prepare(DataLoader(" in text) == (not prepared)


@pytest.mark.parametrize("made", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize(("names", "train", "test", "prepared"), LOOKED_UP.values(), ids=LOOKED_UP)
def test_of_several_loaders_one_stays_whole_if_its_evaluation_is_not_understood(
    names: str, train: str, test: str, prepared: str, made: str
) -> None:
    """The one that the training reads by a name is prepared; without a name nobody can tell."""
    text = SPLITS.format(made=made + names, train=train, test=test, odd="seen += 1.0 if x.sum() > 0 else 0.0")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.blocked == (train != "loader")
    if not file.blocked:
        assert "model, optimizer, loader = accelerator.prepare(" in file.after.decode()
        assert "gather" not in file.after.decode()


def test_a_model_that_a_function_declares_global_is_prepared_there(migrated: Callable[[str], str]) -> None:
    text = migrated("""\
import torch
from torch.utils.data import DataLoader

def main():
    global model
    loader = DataLoader(rows, batch_size=4)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        step(x, y, optimizer)

def step(x, y, optimizer):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

main()
""")
    assert "    model, optimizer, loader = accelerator.prepare(\n" in text


GLOBALS = """\
import torch
from torch.utils.data import DataLoader

net = None

def load():
    {outer} loader
    loader = DataLoader(rows, batch_size=4)

def build():
    {outer} net
    net = torch.nn.Linear(2, 2)

load()
build()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("inside", [False, True], ids=["of the module", "of a function around"])
def test_what_other_functions_than_the_one_with_the_optimizer_give_their_variables_is_prepared_in_them(
    inside: bool, migrated: Callable[[str], str]
) -> None:
    before = GLOBALS.format(outer="nonlocal" if inside else "global")
    if inside:
        head, _, tail = before.partition("net = None")
        before = f"{head}def main():\n" + indent(f"net = loader = None{tail}", "    ") + "main()\n"
    text = migrated(before).replace("\n\n", "\n")
    if inside:
        text = dedent(text.partition("def main():\n")[2].removesuffix("main()\n"))
    assert "    loader = DataLoader(rows, batch_size=4)\n    loader = accelerator.prepare(loader)\n" in text
    assert "    net = torch.nn.Linear(2, 2)\n    net = accelerator.prepare(net)\n" in text
    assert "\noptimizer = accelerator.prepare(optimizer)\n" in text
    assert text.index("accelerator = Accelerator()\n") < text.index("\nload()\n")


STANDS = {
    "behind a checkpoint that is loaded": "model.load_state_dict(torch.load('start.pt', map_location='cpu'))",
    "behind an optimizer's state that is loaded": "optimizer.load_state_dict(torch.load('o.pt', map_location='cpu'))",
}


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("built", STANDS.values(), ids=STANDS)
def test_stands(built: str, after: Callable[..., str]) -> None:
    lines = after(built=built).splitlines()
    assert lines.index("model, optimizer, loader = accelerator.prepare(") > lines.index(built)


def test_a_training_function_gets_the_accelerator(check_transformed: Callable[..., None]) -> None:
    check_transformed(
        """
        import torch
        from torch.utils.data import DataLoader


        def train(model, loader, optimizer):
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()


        def main():
            model = torch.nn.Linear(8, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(data, batch_size=32)
            train(model, loader, optimizer)


        main()
        """,
        """
        import torch
        from torch.utils.data import DataLoader
        from torchlift.runtime import Accelerator


        def train(model, loader, optimizer, accelerator):
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()


        def main():
            model = torch.nn.Linear(8, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(data, batch_size=32)
            accelerator = Accelerator()
            model, optimizer, loader = accelerator.prepare(
                model, optimizer, loader
            )
            train(model, loader, optimizer, accelerator)


        main()
        """,
    )


@pytest.mark.hazard("X5")
def test_a_function_that_builds_the_optimizer_prepares_what_it_is_given(migrated: Callable[[str], str]) -> None:
    text = migrated("""\
import torch
from torch.utils.data import DataLoader

def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

train(torch.nn.Linear(2, 2), DataLoader(data))
""")
    assert "        model, optimizer, loader\n    )\n    for x, y in loader:\n" in text
    assert text.count("prepare(") == 1


CAPTURED = """\
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        {first}

    def endless(self, loader):
        while True:
            for x, y in loader:
                yield x, y

    def train(self):
        for x, y in self.loader:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trainer = Trainer(model, optimizer, loader)
trainer.train()
"""


def _migrated(first: str) -> FileResult:
    source = decode(CAPTURED.format(first=first).encode(), Path("train.py"))
    return migrate([source], CATALOGUE, Config()).files[0]


def test_what_an_object_keeps_is_prepared_before_the_object_is_made() -> None:
    after = _migrated("self.batches = self.endless(loader)").after.decode()
    assert after.index("accelerator.prepare(") < after.index("trainer = Trainer(")


def test_an_object_that_keeps_a_loader_and_reads_it_first_is_refused() -> None:
    """Prepared behind, the object would have the loader as it was; in front, it would look at one process's share."""
    file = _migrated("self.mean = sum(x.mean() for x, y in loader)")
    assert not file.changed
    assert "for the training (an object, a dictionary) also reads it before the training" in file.diagnoses[0].message


@pytest.mark.parametrize(
    "shown",
    [
        'print(f"loaders: {train_loader, test_loader}")',
        'print([("train", train_loader), ("test", test_loader)])',
        'print("loaders: {}".format((train_loader, test_loader)))',
        'print("%s and %s" % (train_loader, test_loader))',
        "train_loader, test_loader",
    ],
)
def test_a_loader_that_is_only_shown_is_kept_by_nobody(shown: str, migrated: Callable[[str], str]) -> None:
    """A first look at a batch stays one at the loader as the script made it."""
    after = migrated(f"""\
import torch
from torch.utils.data import DataLoader, TensorDataset
x, y = torch.randn(64, 8), torch.randn(64, 1)
train_loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(x, y), batch_size=8)
{shown}
first, _ = next(iter(train_loader))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for a, b in train_loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(a), b).backward()
    optimizer.step()
""")
    assert after.index("next(iter(train_loader))") < after.index("accelerator.prepare(")


def test_what_is_made_in_one_branch_is_prepared_there(migrated: Callable[[str], str]) -> None:
    """U7: the name is not there where the branch is not taken."""
    before = """\
import argparse
import torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--critic", action="store_true")
parser.add_argument("--check", default=None)
args = parser.parse_args()
if args.check is not None:
    check_loader = DataLoader(torch.load(args.check, map_location="cpu"), batch_size=8)
net = torch.nn.Linear(8, 2)
if args.critic:
    critic = torch.nn.Linear(2, 1)
    critic_optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in (loader := DataLoader(data, batch_size=8)):
    out = net(x)
    loss = torch.nn.functional.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if args.critic:
        critic_loss = critic(out.detach()).mean()
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
if args.check is not None:
    hits = 0
    for x, y in check_loader:
        hits += (net(x).argmax(1) == y).sum().item()
    print(hits)
"""
    after = migrated(before)
    assert "\n    check_loader = accelerator.prepare(check_loader)\nnet = " in after
    assert (
        "\n    critic, critic_optimizer = accelerator.prepare(\n        critic, critic_optimizer\n    )\noptimizer = "
        in after
    )
    assert "check_loader" not in after.partition("\nnet, optimizer")[2].partition("for x, y")[0]


@pytest.mark.parametrize(
    "choice",
    [
        "if fast:\n    loader = DataLoader(data, batch_size=64)\nelse:\n    loader = DataLoader(data, batch_size=8)",
        "if fast:\n    loader = DataLoader(data, 64)\nelif slow:\n    loader = DataLoader(data, batch_size=8)",
    ],
    ids=["on both sides", "used without a condition"],
)
def test_what_is_there_in_any_case_is_prepared_once(choice: str, migrated: Callable[[str], str]) -> None:
    before = f"""\
import torch
from torch.utils.data import DataLoader
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{choice}
for x, y in loader:
    loss = torch.nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    assert "\nnet, optimizer, loader = accelerator.prepare(" in migrated(before)


def test_an_attribute_that_one_branch_sets_is_prepared_there(migrated: Callable[[str], str]) -> None:
    text = migrated("""\
import torch
from torch.utils.data import DataLoader
class Study:
    def __init__(self):
        self.model = torch.nn.Linear(8, 2)
    def load(self, what):
        if what == "train":
            self.loader = DataLoader(data, batch_size=8)
        elif what == "test":
            self.held_out = DataLoader(test_data, batch_size=8)
    def fit(self):
        self.load("train")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in self.loader:
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
    def test(self):
        self.load("test")
        hits = 0
        with torch.no_grad():
            for x, y in self.held_out:
                hits += (self.model(x).argmax(1) == y).sum().item()
        print(hits)
study = Study()
study.fit()
study.test()
""")
    made = "            self.held_out = DataLoader(test_data, batch_size=8)\n"
    assert f"{made}            self.held_out = accelerator.prepare(self.held_out)\n" in text


def test_the_accelerator_is_made_on_all_paths_where_a_branch_loads_the_model(migrated: Callable[[str], str]) -> None:
    """It was made in the branch that comes first, and the training was refused as built without one."""
    text = migrated("""\
import os
import torch
from torch.utils.data import DataLoader
class Study:
    def __init__(self):
        self.model = torch.nn.Linear(8, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(data, batch_size=8)
        if os.path.exists("last.pt"):
            self.model.load_state_dict(torch.load("last.pt")["model"])
        self.best = 1.0
    def fit(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
Study().fit()
""")
    assert '        self.accelerator = Accelerator()\n        if os.path.exists("last.pt"):\n' in text


def test_a_guard_around_all_of_the_training_is_no_branch(migrated: Callable[[str], str]) -> None:
    """The wrapper of several GPUs is a branch inside of it; model and optimizer stay together."""
    before = """\
import torch
from torch.utils.data import DataLoader
if __name__ == "__main__":
    net = torch.nn.Linear(8, 2)
    if torch.cuda.device_count() > 1:
        net = torch.nn.DataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=8):
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    assert "    net, optimizer = accelerator.prepare(\n" in migrated(before)


TWO_MODELS = """\
import torch
from torch.utils.data import DataLoader

def train(model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return model

loader = DataLoader(rows, batch_size=4)
first = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
first = train(first, optimizer, loader)
second = torch.nn.Linear(2, 3)
second.bias.requires_grad = False
other = torch.optim.SGD(second.parameters(), lr=0.1)
second = train(second, other, loader)
"""


@pytest.mark.hazard("U1")
def test_a_second_model_is_prepared_where_it_is_built_before_its_training(migrated: Callable[[str], str]) -> None:
    lines = migrated(TWO_MODELS).splitlines()
    first = lines.index("first, optimizer, loader = accelerator.prepare(")
    second = lines.index("second, other = accelerator.prepare(")
    assert first < lines.index("first = train(first, optimizer, loader)") < second
    assert second < lines.index("second = train(second, other, loader)")


@pytest.mark.hazard("U1")
def test_what_a_factory_that_is_called_twice_gives_is_prepared_twice() -> None:
    """The second model would drift apart on every process."""
    made = "model, optimizer = made()\n"
    text = TWO_MODELS.partition("first =")[0]
    text += "def made():\n    model = torch.nn.Linear(2, 2)\n"
    text += "    return model, torch.optim.SGD(model.parameters(), lr=0.1)\n\n"
    text += f"{made}train(model, optimizer, loader)\n{made}train(model, optimizer, loader)\n"
    file = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files[0]
    first, second = file.after.decode().split(made)[1:]
    assert "\nmodel, optimizer, loader = accelerator.prepare(" in first
    assert second.startswith("model, optimizer = accelerator.prepare(")


@pytest.mark.hazard("U1")
def test_models_that_two_calls_of_a_function_make_are_prepared_each(migrated: Callable[[str], str]) -> None:
    build = "def build(width):\n    net = torch.nn.Linear(2, width)\n    return net, width\n\n"
    text = TWO_MODELS.replace("loader = DataLoader", f"{build}loader = DataLoader")
    text = text.replace("first = torch.nn.Linear(2, 2)", "first, width = build(2)")
    lines = migrated(text.replace("second = torch.nn.Linear(2, 3)", "second, _ = build(3)")).splitlines()
    first = lines.index("first, optimizer, loader = accelerator.prepare(")
    second = lines.index("second, other = accelerator.prepare(")
    assert first < lines.index("first = train(first, optimizer, loader)") < second


def test_a_teacher_that_the_function_of_the_student_makes_is_prepared_too(migrated: Callable[[str], str]) -> None:
    """Its own move to the device goes with that of the student."""
    text = migrated("""\
import torch
from torch.utils.data import DataLoader

def build(teacher=False):
    model = torch.nn.Linear(2, 2)
    return model.cuda()

student = build()
teacher = build(teacher=True)
loader = DataLoader(rows, batch_size=4)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(student(x.cuda()), teacher(x.cuda()).detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")
    assert "student, teacher, optimizer, loader = accelerator.prepare(" in text and "cuda" not in text


def test_a_loader_that_a_bar_shows_is_prepared_by_the_name_that_training_reads(migrated: Callable[[str], str]) -> None:
    text = migrated("""\
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

class Trainer:
    def __init__(self):
        loader = DataLoader(rows, batch_size=4)
        self.loader = loader
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in tqdm(self.loader):
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

Trainer()
""")
    assert "self.model, self.optimizer, self.loader = self.accelerator.prepare(" in text


PACKED = """\
import torch
from torch.utils.data import DataLoader

def build(width):
    head = torch.nn.Linear(width, 1)
    solver = torch.optim.SGD(head.parameters(), lr=0.1)
    parts = {"head": (head, solver)}
    return parts

def fit(parts, loader):
    head, solver = parts["head"]
    for x in loader:
        solver.zero_grad()
        head(x).mean().backward()
        solver.step()

def keep(parts):
    for name, part in parts.items():
        net, rule = part
        torch.save(net.state_dict(), name)

loader = DataLoader(torch.ones(64, 8), batch_size=32)
parts = build(8)
fit(parts, loader)
"""
LOOP_BELOW = 'for name, part in parts.items():\n    net, rule = part\n    torch.save(net.state_dict(), "head.pt")\n'


@pytest.mark.parametrize("end", ["keep(parts)\n", LOOP_BELOW, LOOP_BELOW.replace("net, rule = part", "net = part[0]")])
def test_what_is_packed_into_a_container_is_prepared_where_it_is_made(end: str, migrated: Callable[[str], str]) -> None:
    """Where a loop unpacked it after the training, it was prepared there."""
    text = " ".join(migrated(PACKED + end).split())
    assert 'lr=0.1) head, solver = accelerator.prepare( head, solver ) parts = {"head": (head, solver)}' in text
    assert text.count("accelerator.prepare(") == 2


TWO_OF_ONE = """\
import torch
from torch.utils.data import DataLoader

def net(width):
    made = torch.nn.Linear(8, width)
    return made

def wide():
    return net(2)

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(torch.ones(64, 8), batch_size=32)
guide = wide()MOVED
pupil = net(2)MOVED
optimizer = torch.optim.SGD(pupil.parameters(), lr=0.1)
for x in loader:
    x = x.to(device)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(pupil(x), guide(x).detach()).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("moved", ["", ".to(device)", ".train().to(device)"])
def test_models_of_one_factory_are_both_prepared(moved: str, migrated: Callable[[str], str]) -> None:
    """Moved to a device, the second was forgotten, and the check of the output stopped the migration."""
    text = " ".join(migrated(TWO_OF_ONE.replace("MOVED", moved)).split())
    assert "guide, pupil, optimizer, loader = accelerator.prepare( guide, pupil, optimizer, loader )" in text


SOLVER = """
import torch
from torch.utils.data import DataLoader, TensorDataset


class Solver:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


model = torch.nn.Linear(8, 1)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8)
Solver(model, loader).train()
print(model(torch.ones(1, 8)))
"""


def test_what_an_object_trains_is_prepared_by_the_name_that_it_trains_it_by(result: Callable[..., FileResult]) -> None:
    """A runtime that wraps models returns another object: the one that was kept before would train alone."""
    after = (result(SOLVER, target=Target.ACCELERATE).after or b"").decode()
    assert "self.model, self.optimizer = accelerator.prepare(" in after


ANEW = """\
import argparse
import sys
import torch
import torch.optim as optim
from torch import nn
from torch.utils.data import DataLoader

try:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda:0")
    args = parser.parse_args()
    device = torch.device(args.device if torch.cuda.is_available() else "cpu")
    model = nn.Linear(4, 1).to(device)
    optim = optim.Adam(model.parameters(), lr=0.1)
    left = iter(DataLoader(held, batch_size=4))
    for epoch in range(2):
        loader = DataLoader(rows, batch_size=4, shuffle=True)
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optim.zero_grad()
            loss.backward()
            optim.step()
            if i == len(loader) - 1:
                break
            try:
                x, y = next(left)
            except StopIteration:
                left = iter(DataLoader(held, batch_size=4))
                x, y = next(left)
            print(nn.functional.mse_loss(model(x.to(device)), y.to(device)).item())
    loader = DataLoader(held, batch_size=4)
    total = 0
    with torch.no_grad():
        for x, y in loader:
            total += nn.functional.mse_loss(model(x.to(device)), y.to(device), reduction="sum").item()
    print(total)
except Exception:
    sys.stderr.flush()
    raise
"""


def test_what_is_made_below_a_try_and_anew_in_a_handler() -> None:
    """An optimizer by the name of its module was prepared where that is imported; the accelerator was made before what
    it reads; a loader that is made anew at the end of an iterator was taken for one of some processes; and a loader
    that is prepared was called early, because another of its name is below."""
    (file,) = migrate([decode(ANEW.encode(), Path("a.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert not file.blocked
    assert '    args = parser.parse_args()\n    accelerator = Accelerator(cpu=args.device == "cpu")\n' in after
    assert "    model, optim = accelerator.prepare(\n" in after and after.count("optim = accelerator.prepare") == 1
    assert after.count("iter(accelerator.prepare(DataLoader(held, batch_size=4)))") == 2
    assert [trait.kind for trait in file.traits if trait.name == "len(loader)"] == []


AGAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rows = TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(rows, batch_size=8)
left = iter(loader)
for step in range(30):
    try:
        x, y = next(left)
    except{caught}:
        loader = DataLoader(rows, batch_size=8)
        left = iter(loader)
        x, y = next(left)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("caught", "told"), [(" StopIteration", []), ("", ["local-decision"])])
def test_a_loader_that_is_made_anew_in_a_handler_is_prepared_there(caught: str, told: list[str]) -> None:
    """It was prepared after the loop, which the check of the output called a fault of ours. Only the end of the data is
    caught: a bare `except` is told, as an error of one process would lead it there alone."""
    (file,) = migrate([decode(AGAIN.format(caught=caught).encode(), Path("a.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert "        loader = DataLoader(rows, batch_size=8)\n        loader = accelerator.prepare(loader)\n" in after
    assert [d.id for d in file.diagnoses if d.id != "cpu-only"] == told
