"""Evaluations whose figures depend on how a batch is read: by branches, by groups, by the loader of the training."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.result import FileResult

Migrated = Callable[..., str]
Findings = Callable[..., list[str]]

TRAINED = """
device = torch.device("cuda")
model = nn.Linear(8, 2).to(device)
loader = DataLoader(data, batch_size=16, shuffle=True)
test_loader = DataLoader(test_data, batch_size=100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    STEP
"""
BRANCHES = """
model.eval()
losses = []
with torch.no_grad():
    for x, y in test_loader:
        x, y = x.to(device), y.to(device)
        if {test}:
            with torch.autocast("cuda", enabled=False):
                scores = model(x)
        {other}
        losses.append(F.cross_entropy(scores, y).item())
print(sum(losses) / len(losses))
"""


def test_a_forward_pass_in_every_branch_is_gathered_after_them(migrated: Migrated) -> None:
    other = "elif model.training:\n            raise RuntimeError\n        else:\n            scores = model(x)[0]"
    for tail in ("else:\n            scores = model(x)[0]", other):
        text = migrated(TRAINED + BRANCHES.format(test="optimizer.defaults", other=tail))
        gathered = "        scores, y = accelerator.gather_for_metrics((scores, y))\n        losses.append("
        assert (gathered in text) is (tail is not other), "a branch without a forward pass leaves the loop alone"


@pytest.mark.parametrize(
    ("test", "other"),
    [
        ("x.sum() > 0", "else:\n            scores = model(x) * 2"),
        ("optimizer.defaults", "scores = torch.zeros(len(x), 2)"),
    ],
    ids=["it depends on the batch", "one branch alone"],
)
def test_branches_that_differ_are_left_whole(test: str, other: str, migrated: Migrated) -> None:
    text = migrated(TRAINED + BRANCHES.format(test=test, other=other))
    assert "gather" not in text


GROUPS = """
hits = []
for users, items, labels in test_loader:
    scores = model(users)
    best = torch.topk(scores, 10).indices
    {picked}
    hits.append(wanted in torch.take(items, best).tolist())
print(sum(hits) / len(hits))
"""


def test_what_an_evaluation_gathers_is_said_of_no_step_of_the_training(result: Callable[..., FileResult]) -> None:
    trained = TRAINED.replace("    STEP\n", "    STEP\n    print(loss.item())\n")
    same = BRANCHES.format(test="optimizer.defaults", other="else:\n            scores = model(x)[0]")
    for script in (trained, trained + same.replace("scores", "loss")):
        assert [(trait.kind, trait.name) for trait in result(script).traits if trait.kind == "figure"] == [
            ("figure", "loss")
        ]


def test_a_batch_that_is_a_group_is_never_joined_with_others(migrated: Migrated, findings: Findings) -> None:
    script = TRAINED + GROUPS.format(picked="wanted = items[0].item()")
    assert "gather" not in migrated(script)
    assert findings(script) == ["prepare"]


def test_hits_in_parts_of_the_batch_size_are_not_joined(migrated: Migrated) -> None:
    script = """
device = torch.device("cuda")
import argparse
args = argparse.Namespace(batch_size=16)
model = nn.Linear(8, 2).to(device)
loader = DataLoader(data, batch_size=args.batch_size)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for x, y in loader:
    x, y = x.to(device), y.to(device)
    STEP
    scores = model(x)
    hits = (scores.argmax(1) == y).sum()
    total += hits.item()
    print("rate", hits.item() / {size})
print(total / len(data))
"""
    assert "gather" not in migrated(script.format(size="args.batch_size"))
    assert "gather_for_metrics((scores, y))" in migrated(script.format(size="len(y)"))


FACTORIES = """
device = torch.device("cuda")

def provide(rows, size):
    kept = list(rows)
    return kept, DataLoader(kept, batch_size=size)

class Experiment:
    def __init__(self):
        self.model = nn.Linear(8, 2).to(device)

    def get(self, rows):
        kept, loader = provide(rows, 16)
        return kept, loader

    def test(self):
        kept, loader = self.get(test_data)
        right = []
        with torch.no_grad():
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                {look}
                right.append((self.model(x).argmax(1) == y).float().mean().item())
        return sum(right) / len(right)

    def train(self):
        kept, loader = self.get(data)
        model, optimizer = self.model, torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            STEP
        return self.test()

print(Experiment().train())
"""


def test_a_loader_that_two_functions_hand_on_is_another_one_for_each_call(
    findings: Findings, migrated: Migrated
) -> None:
    assert "gather_for_metrics" in migrated(FACTORIES.format(look="pass"))
    found = findings(FACTORIES.format(look="right.append(float(x.sum() > 0))"))
    assert found == ["prepare"], "the loader of the test is another one: it is left whole, and nothing is blocked"


SHARED = """
right = 0
for x, y in loader:
    x, y = x.to(device), y.to(device)
    right += 1.0 if x.sum() > 0 else 0.0
    scores = model(x)
    right += (scores.argmax(1) == y).sum().item()
print(right)
"""


def test_an_evaluation_of_the_training_rows_that_is_not_understood_is_refused(unchanged: Findings) -> None:
    assert "prepare" in unchanged(TRAINED.replace("DataLoader(data,", "DataLoader(list(data),") + SHARED)


def test_it_gets_a_loader_of_its_own_where_that_can_be_made(migrated: Migrated) -> None:
    text = migrated(TRAINED + SHARED)
    assert "whole_loader = DataLoader(data, batch_size=16, shuffle=True)" in text and "in whole_loader:" in text


def test_loaders_of_several_splits_are_not_one(migrated: Migrated) -> None:
    script = TRAINED.replace(
        "loader = DataLoader(data, batch_size=16, shuffle=True)\n",
        """loaders = {}
for split in ("train", "val"):
    loaders[split] = DataLoader(data[split], batch_size=16, shuffle=split == "train")
loader, held = loaders["train"], loaders["val"]
""",
    )
    text = migrated(script + SHARED.replace("in loader", "in held"))
    assert "model, optimizer, loader = accelerator.prepare(" in text and "gather" not in text


def test_the_number_of_dimensions_decides_nothing_locally(migrated: Migrated) -> None:
    text = migrated(TRAINED + "    if len(loss.shape) == 1:\n        loss = loss.mean()\n        loss.backward()\n")
    assert "reduce" not in text


def test_an_optimizer_in_the_arguments_of_a_warm_up_is_prepared_there(migrated: Migrated) -> None:
    text = migrated("""
class Warmup:
    def __init__(self, optimizer, steps):
        self.inner, self.steps, self.taken = optimizer, steps, 0

    def step(self):
        self.taken += 1
        for group in self.inner.param_groups:
            group["lr"] = 0.1 * min(1.0, self.taken / self.steps)
        self.inner.step()

    def zero_grad(self):
        self.inner.zero_grad()

device = torch.device("cuda")
model = nn.Linear(8, 2).to(device)
loader = DataLoader(data, batch_size=16, shuffle=True)
optimizer = Warmup(torch.optim.Adam(model.parameters()), 100)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    STEP
""")
    prepared = text.index("model, loader = accelerator.prepare(")
    assert prepared < text.index("Warmup(accelerator.prepare(torch.optim.Adam(model.parameters())), 100)")
