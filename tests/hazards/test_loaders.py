"""Loaders as values, and what stands between them and prepare."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.result import FileResult

Migrated = Callable[..., str]
Findings = Callable[..., list[str]]

TOP = """
device = torch.device("cuda")
model = nn.Linear(8, 2).to(device)
loader = DataLoader(data, batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
MOVED = "x, y = x.to(device), y.to(device)"
PREPARED = "model, optimizer, loader = accelerator.prepare(\n    model, optimizer, loader\n)\n"

AROUND = {
    "tqdm": ("from tqdm import tqdm", "for x, y in tqdm(loader, desc='train'):"),
    "tqdm, bound to a name first": ("from tqdm.auto import tqdm", "bar = tqdm(loader)\nfor x, y in bar:"),
    "tqdm around enumerate": ("from tqdm import tqdm", "for i, (x, y) in tqdm(enumerate(loader)):"),
    "enumerate around tqdm": ("import tqdm", "for i, (x, y) in enumerate(tqdm.tqdm(loader)):"),
    "enumerate": ("", "for i, (x, y) in enumerate(loader, 1):"),
    "islice": ("from itertools import islice", "for x, y in islice(loader, 10):"),
    "zip with a range": ("", "for i, (x, y) in zip(range(9), loader):"),
    "an alias": ("", "batches = loader\nfor x, y in batches:"),
    "cycle": ("from itertools import cycle", "for i, (x, y) in zip(range(9), cycle(loader)):"),
    "a generator of the script's, one by one": (
        "def forever(loader):\n    while True:\n        for batch in loader:\n            yield batch",
        "for i, (x, y) in zip(range(9), forever(loader)):",
    ),
    "an iterator": ("", "batches = iter(loader)\nfor i in range(9):\n    x, y = next(batches)"),
    "a generator of the script's": (
        "def forever(loader):\n    while True:\n        yield from loader",
        "for i, (x, y) in zip(range(9), forever(loader)):",
    ),
}


@pytest.mark.hazard("X8")
@pytest.mark.parametrize(("top", "loop"), AROUND.values(), ids=AROUND)
def test_a_loader_is_seen_through_what_is_around_it(top: str, loop: str, migrated: Migrated) -> None:
    text = migrated(f"{top}\n{TOP}\n{loop}\n    {MOVED}\n    STEP")
    assert PREPARED in text
    assert ".to(" not in text


@pytest.mark.hazard("U28")
def test_an_object_that_draws_from_a_loader_of_its_own_has_that_one_prepared(migrated: Migrated) -> None:
    text = migrated("""
class Batches:
    def __init__(self, rows, **options):
        self.loader = DataLoader(rows, **options)
        self.waiting = iter(self.loader)

    def next(self):
        try:
            return next(self.waiting)
        except StopIteration:
            self.waiting = iter(self.loader)
            return next(self.waiting)

device = torch.device("cuda")
model = nn.Linear(8, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = Batches(data, batch_size=16, shuffle=True)
step = 0
while step < 100:
    x, y = batches.next()
    x, y = x.to(device), y.to(device)
    STEP
    step += 1
""")
    made = "        self.loader = accelerator.prepare(DataLoader(rows, **options))\n"
    assert f"{made}        self.waiting = iter(self.loader)\n" in text
    assert "model, optimizer = accelerator.prepare(\n    model, optimizer\n)\n" in text
    assert ".to(" not in text


@pytest.mark.parametrize("loop", ["for x, y in rows:", "for x, y in zip(rows, rows):"])
def test_a_list_is_no_loader(loop: str, findings: Findings) -> None:
    assert findings(f"{TOP}\nrows = [(1, 2)]\n{loop}\n    STEP") == ["no-data-parallel-axis"]


VALUES = {
    "a dict": (
        'loaders = {"train": DataLoader(data, batch_size=8), "val": 1}',
        'for x, y in loaders["train"]:',
        'loaders = {"train": accelerator.prepare(DataLoader(data, batch_size=8)), "val": 1}',
    ),
    "in the loop's header": (
        "",
        "for x, y in DataLoader(data, batch_size=8):",
        "for x, y in accelerator.prepare(DataLoader(data, batch_size=8)):",
    ),
    "built anew in every epoch": (
        "",
        "for epoch in range(3):\n  batches = DataLoader(data, batch_size=8 * epoch)\n  for x, y in batches:",
        "(data, batch_size=8 * epoch)\n  batches = accelerator.prepare(batches)\n  for x, y in batches:",
    ),
}


@pytest.mark.hazard("P5")
@pytest.mark.parametrize(("top", "loop", "after"), VALUES.values(), ids=VALUES)
def test_a_loader_without_a_name_is_prepared_where_it_is_made(
    top: str, loop: str, after: str, migrated: Migrated
) -> None:
    text = migrated(f"{TOP}\n{top}\n{loop}\n    {MOVED}\n    STEP")
    assert after in text
    assert MOVED not in text


def test_all_loaders_of_a_zip_are_prepared(migrated: Migrated) -> None:
    text = f"{TOP}\nother = DataLoader(test_data, batch_size=8)\nfor (x, y), (u, v) in zip(loader, other):\n    STEP"
    assert "model, optimizer, loader, other = accelerator.prepare(" in migrated(text)


PASSES = {
    "figures of the data": "for x, y in loader:\n    mean += x.sum(0)",
    "one batch to look at": "x, y = next(iter(loader))",
    "figures, by a function": "def figures(batches):\n    return sum(len(x) for x, y in batches)\nfigures(loader)",
}


@pytest.mark.hazard("P1", "X39")
@pytest.mark.parametrize("line", PASSES.values(), ids=PASSES)
def test_prepare_stands_behind_passes_that_train_nothing(line: str, migrated: Migrated) -> None:
    text = migrated(f"mean = 0\n{TOP}\n{line}\nfor x, y in loader:\n    {MOVED}\n    STEP")
    last = line.splitlines()[-1]
    assert text.index(last) < text.index(".prepare(") < text.rindex("for x, y in loader")


def test_a_batch_that_is_drawn_before_keeps_its_move(migrated: Migrated) -> None:
    figures = "mean = 0\nfor x, y in loader:\n    mean += x.to(device).sum(0)"
    new = migrated(f"{TOP}\n{figures}\nfor x, y in loader:\n    {MOVED}\n    STEP")
    assert "mean += x.to(accelerator.device).sum(0)" in new and MOVED not in new


FOLDS = """
device = "cuda"
from sklearn.model_selection import KFold
for train, held_out in KFold(5, shuffle=True).split(data):
    model = nn.Linear(8, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.utils.data.Subset(data, train), batch_size=16)
    for x, y in loader:
        STEP
"""
RUNS = """
def run(lr):
    model = nn.Linear(8, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loader = DataLoader(data, batch_size=16)
    for x, y in loader:
        STEP
for lr in (0.1, 0.01):
    run(lr)
"""


@pytest.mark.hazard("X22")
@pytest.mark.parametrize("text", [FOLDS, RUNS], ids=["folds", "runs"])
def test_several_trainings_are_prepared_one_by_one_by_one_accelerator(text: str, migrated: Migrated) -> None:
    new = migrated(text)
    assert "    model, optimizer, loader = accelerator.prepare(\n        model, optimizer, loader\n    )\n" in new
    assert new.count("Accelerator()") == 1
    loop = "for train, held_out" if text is FOLDS else "for lr in"
    assert text is RUNS or new.index("Accelerator()") < new.index(loop), "folds are drawn behind it"


@pytest.mark.hazard("X27")
def test_names_mislead(migrated: Migrated, findings: Findings) -> None:
    text = """
    class Schedule:
        def step(self):
            pass
    class Manager:
        def get(self):
            return DataLoader(data, batch_size=16)
    scheduler, dataloader = Schedule(), Manager()
    train_set = dataloader.get()
    Model = nn.Linear(8, 2)
    optim = torch.optim.SGD(Model.parameters(), lr=0.1)
    for x, y in train_set:
        loss = F.cross_entropy(Model(x), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        scheduler.step()
    """
    assert "Model, optim, train_set = accelerator.prepare(" in migrated(text)
    assert findings(text) == []


@pytest.mark.hazard("X43")
def test_a_teacher_is_moved_and_not_prepared(migrated: Migrated) -> None:
    step = "with torch.no_grad():\n        t = teacher(x)\n    STEP"
    text = TOP + f"teacher = nn.Linear(8, 2).to(device)\nfor x, y in loader:\n    {step}"
    new = migrated(text)
    assert "teacher = nn.Linear(8, 2).to(accelerator.device)" in new and PREPARED in new


@pytest.mark.hazard("X42")
def test_a_forward_for_the_shapes_stays_before_prepare(migrated: Migrated) -> None:
    text = TOP.replace(".to(device)", "\nmodel(torch.ones(1, 8))\nmodel.to(device)") + "for x, y in loader:\n    STEP"
    new = migrated(text)
    assert new.index("model(torch.ones(1, 8))") < new.index(".prepare(")


# schedulers -----------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("P6")
@pytest.mark.parametrize(
    ("made", "inner", "outer", "prepared"),
    [
        ("StepLR(optimizer, 1)", "pass", "scheduler.step()", False),
        ("ReduceLROnPlateau(optimizer)", "pass", "scheduler.step(0.5)", False),
        ("OneCycleLR(optimizer, 0.1, total_steps=len(loader))", "scheduler.step()", "pass", True),
        ("CosineAnnealingWarmRestarts(optimizer, 1)", "scheduler.step(epoch + i / len(loader))", "pass", False),
    ],
    ids=["an epoch", "a metric", "a step", "told where it stands"],
)
def test_a_scheduler_is_prepared_when_it_counts_steps(
    made: str, inner: str, outer: str, prepared: bool, migrated: Migrated
) -> None:
    text = f"""
    {TOP.strip().replace(chr(10), chr(10) + "    ")}
    scheduler = torch.optim.lr_scheduler.{made}
    for epoch in range(3):
        for i, (x, y) in enumerate(loader):
            STEP
            {inner}
        {outer}
    """
    assert ("model, optimizer, loader, scheduler = " in migrated(text)) is prepared


# what chance decides --------------------------------------------------------------------------------------------------

SPLITS = {
    "a split": "train, rest = torch.utils.data.random_split(data, [70, 20])",
    "a shuffled list": "import random\nrows = list(range(9))\nrandom.shuffle(rows)",
    "by numpy": "import numpy as np\nrows = np.random.permutation(9)",
    "by sklearn": "from sklearn.model_selection import train_test_split\nrows, rest = train_test_split(data)",
}
SEEDED = "import random, numpy\ntorch.manual_seed(1)\nnumpy.random.seed(1)\nrandom.seed(1)\n"


@pytest.mark.hazard("R3", "X33")
@pytest.mark.parametrize("line", SPLITS.values(), ids=SPLITS)
def test_what_chance_decides_is_drawn_behind_the_accelerator(line: str, migrated: Migrated) -> None:
    text = f"{line}\n{TOP}\nfor x, y in loader:\n    STEP"
    drawn = line.splitlines()[-1]
    assert migrated(text).index("Accelerator()") < migrated(text).index(drawn)
    seeded = migrated(SEEDED + text)
    assert seeded.index(drawn) < seeded.index("Accelerator()"), "a script that seeds is right as it is"


def test_what_cannot_be_drawn_behind_it_is_reported(findings: Findings) -> None:
    flag = "import argparse\nargs = argparse.ArgumentParser().parse_args()"
    text = f"{SPLITS['a split']}\n{flag}\n{TOP.replace('torch.device(', 'torch.device(args.device or ')}"
    told = findings(f"{text}\nfor x, y in loader:\n    STEP".replace('args.device or "cuda"', "args.device"))
    assert told == ["unseeded"]


PHASES = """\
loaders = {{phase: DataLoader(d, batch_size=32) for phase, d in (("train", data), ("val", test_data))}}
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for phase in ["train", "val"]:
        train = phase == "train"
        running = 0.0
        for x, y in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                loss = F.cross_entropy(model(x), y)
                if {test}:
                    loss.backward()
                    optimizer.step()
            running += loss.item() * x.size(0)
        print(running / len(loaders[phase].dataset))
"""


@pytest.mark.parametrize("test", ['phase == "train"', "train", "model.training"])
def test_a_loop_that_also_evaluates_says_how_near_its_loss_is(test: str, findings: Callable[..., list[str]]) -> None:
    assert findings(PHASES.format(test=test)) == ["filled-batch"]
    assert findings(PHASES.format(test=test), keep_global_batch=True) == []


def test_a_loop_that_only_trains_speaks_of_its_own_average(result: Callable[..., FileResult]) -> None:
    (found,) = result(PHASES.format(test="epoch > 0")).diagnoses
    assert found.id == "filled-batch" and "evaluat" not in found.message


DRAWN = {
    "in front of a while": "batches = iter(loader)\nwhile True:\n    x, y = next(batches)",
    "anew at its end": (
        "batches = iter(loader)\nfor i in range(9):\n    try:\n        x, y = next(batches)\n"
        "    except StopIteration:\n        batches = iter(loader)\n        x, y = next(batches)"
    ),
    "handed on": "batches = iter(loader)\nrows = batches\nfor i in range(9):\n    x, y = next(rows)",
}


@pytest.mark.parametrize("loop", DRAWN.values(), ids=DRAWN)
def test_what_training_draws_from_is_made_of_the_prepared_loader(loop: str, migrated: Migrated) -> None:
    text = migrated(f"{TOP}\n{loop}\n    {MOVED}\n    STEP")
    assert PREPARED in text
    assert text.index("accelerator.prepare(") < text.index("iter(loader)")


@pytest.mark.parametrize("look", ["batches = iter(loader)\nx, y = next(batches)\nprint(x.shape)", "next(iter(loader))"])
def test_a_look_at_a_batch_stays_in_front_of_prepare(look: str, migrated: Migrated) -> None:
    text = migrated(f"{TOP}\n{look}\nfor x, y in loader:\n    {MOVED}\n    STEP")
    assert PREPARED in text
    assert text.index("iter(loader)") < text.index("accelerator.prepare(")
