"""What was once seen in our own output, each as a script of its own: the right rewrite, or the true reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

Migrated = Callable[..., str]
Findings = Callable[..., list[str]]

MADE = """
model = nn.Linear(8, 2)
loader = DataLoader(data, batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAINED = f"""{MADE}
for x, y in loader:
    STEP
"""
EVALUATED = f"""{MADE}
test_loader = DataLoader(test_data, batch_size=16)
for x, y in loader:
    STEP
model.eval()
"""
BACKWARD = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


class Seen(NamedTuple):
    """A script: what must be in its new text, what must not, and the ids of its findings."""

    text: str
    come: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


TRAINING = {
    "U2": Seen(
        f"""from terms import collect_terms
{MADE}
for x, y in loader:
    rec = F.cross_entropy(model(x), y)
    reg = collect_terms(model)
    loss = torch.add(rec, reg)
{BACKWARD}""",
        come=("loss = torch.add(rec, reg)", "reg = collect_terms(model)", "accelerator.backward(loss)"),
    ),
    "U3": Seen(
        f"""from losses import InfoNCE
criterion = InfoNCE()
history = []
{MADE}
for x, y in loader:
    loss = criterion(model(x), y)
{BACKWARD}
    history.append(loss.item())
print(sum(history) / len(history))
""",
        come=("loss = criterion(model(x), y)", "accelerator.backward(loss)"),
        gone=("gather",),
        findings=("loss-reduction", "metrics_gather"),
    ),
    "U5": Seen(
        f"""criterion = nn.CrossEntropyLoss(size_average=False)
{MADE}
for x, y in loader:
    loss = criterion(model(x), y)
    loss /= (y > 0).sum()
{BACKWARD}""",
        come=("accelerator.backward(loss)",),
        gone=("reduction=",),
        findings=("weighted-mean",),
    ),
    "U19": Seen(
        f"""criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))
{MADE}
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
{BACKWARD}
    print(out.detach().numpy().mean())
""",
        come=("Accelerator(cpu=True)",),
        findings=("weighted-mean", "cpu-only"),
    ),
    "U21": Seen(
        """
device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
model = nn.Linear(8, 2).to(device)
loader = DataLoader(data, batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    STEP
""",
        come=("accelerator = Accelerator()",),
        gone=("cpu=", "current_accelerator", ".to(device)"),
    ),
    "U29": Seen(
        f"""
def evaluate(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += F.cross_entropy(model(x), y).item()
    model.train()
    return total / len(loader)
{MADE}
test_loader = DataLoader(test_data, batch_size=16)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
for epoch in range(3):
    for x, y in loader:
        STEP
    scheduler.step(evaluate(model, test_loader))
""",
        come=("accelerator.gather_for_metrics(model(x))", "scheduler.step(evaluate(model, test_loader))"),
        findings=("mean-of-batches",),
    ),
    "U30": Seen(
        f"""
def train(model, x, y, extra=None):
    if extra is not None:
        x = x + extra
    if isinstance(y, tuple):
        y = y[0]
    if hasattr(y, "labels"):
        y = y.labels
    STEP
{MADE}
for x, y in loader:
    train(model, x, y)
""",
        come=("accelerator.backward(loss)",),
    ),
    "U35": Seen(
        """
from monai.data import DataLoader as Volumes
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("words")
class Trainer:
    def fit(self, model, loader, optimizer):
        for x, y in loader:
            STEP
model = nn.Linear(8, 2)
loader = Volumes(data, batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Trainer().fit(model, loader, optimizer)
""",
        come=("model, optimizer, loader = accelerator.prepare(", "accelerator.backward(loss)"),
    ),
    "U38": Seen(
        f"""from tqdm import tqdm
{MADE}
for epoch in range(3):
    bar = tqdm(loader)
    for x, y in bar:
        x, y = x.cuda(), y.cuda()
        STEP
        bar.set_description(f"{{loss.item():.3f}}")
        bar.set_postfix(epoch=epoch)
""",
        come=(
            "bar = tqdm(loader, disable=not accelerator.is_local_main_process)",
            "        bar.set_postfix(epoch=epoch)",
        ),
        gone=("if accelerator.is_local_main_process", "x, y = x, y"),
    ),
}
EVALUATION = {
    "U7": Seen(
        f"""import sys
valid = test_data if len(sys.argv) > 1 else None
{MADE}
if valid is not None:
    valid_loader = DataLoader(valid, batch_size=16)
for x, y in loader:
    STEP
if valid is not None:
    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in valid_loader:
            hits += (model(x).argmax(1) == y).sum().item()
    print(hits / len(valid))
""",
        come=("    valid_loader = accelerator.prepare(valid_loader)\n",),
    ),
    "U8": Seen(
        f"""{EVALUATED}
rows, names = [], []
with torch.no_grad():
    for x, y in test_loader:
        rows.append(model(torch.cat([x, x.flip(1)])))
        names.append(y)
print(torch.cat(rows).shape, torch.cat(names).shape)
""",
        come=("rows.append(accelerator.gather_for_metrics(model(torch.cat([x, x.flip(1)]))))",),
    ),
    "U9": Seen(
        f"""{EVALUATED}
found = []
with torch.no_grad():
    for x, y in test_loader:
        found.append(model(x).t())
print(torch.cat(found, dim=1).shape)
""",
        come=("found.append(accelerator.gather_for_metrics(model(x)).t())",),
    ),
    "U9, mixed": Seen(
        f"""{EVALUATED}
found = []
with torch.no_grad():
    for x, y in test_loader:
        found.append(model(x).sort(dim=0).values)
print(torch.cat(found).shape)
""",
        gone=("gather",),
        findings=("prepare",),
    ),
    "U10": Seen(
        f"""{EVALUATED}
scores, names = [], []
with torch.no_grad():
    for x, files in test_loader:
        scores.append(model(x).argmax(1))
        names.extend(files)
print(names, torch.cat(scores).tolist())
""",
        come=("files = accelerator.gather_for_metrics(files)", "accelerator.gather_for_metrics(model(x)).argmax(1)"),
    ),
    "U11": Seen(
        """
from torch_geometric.loader import DataLoader as Graphs
model = nn.Linear(8, 2)
loader = Graphs(data, batch_size=16, shuffle=True)
test_loader = Graphs(test_data, batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    loss = F.cross_entropy(model(batch.x), batch.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
hits = 0
model.eval()
with torch.no_grad():
    for batch in test_loader:
        hits += int((model(batch.x).argmax(1) == batch.y).sum())
print(hits / len(test_data))
""",
        gone=("gather", "prepare(\n    model, optimizer, loader, test_loader"),
        findings=("prepare",),
    ),
}
SAVED = {
    "U23": Seen(
        """
model = torch.compile(nn.Linear(8, 2))
loader = DataLoader(data, batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    STEP
torch.save(model.state_dict(), "weights.pt")
model.load_state_dict(torch.load("weights.pt"))
""",
        come=('accelerator.save(accelerator.get_state_dict(model), "weights.pt")', "accelerator.wait_for_everyone()"),
        gone=("unwrap",),
    ),
    "U24": Seen(
        """
class Settings:
    device = torch.device("cuda")
    def save(self, model):
        torch.save({"settings": self, "model": model.state_dict()}, "weights.pt")
settings = Settings()
model = nn.Linear(8, 2).to(settings.device)
loader = DataLoader(data, batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(settings.device), y.to(settings.device)
    STEP
settings.save(model)
""",
        come=('accelerator.save({"settings": self, "model": accelerator.get_state_dict(model)}',),
        gone=("self.accelerator", "settings.accelerator"),
    ),
    "U36": Seen(
        """
import timm
model = timm.create_model("resnet18")
loader = DataLoader(data, batch_size=16, shuffle=True)
steps = len(loader)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    STEP
print(steps)
torch.save(model.state_dict(), "weights.pt")
""",
        come=("accelerator.print(steps)",),
        findings=("batch-norm",),
    ),
}
ALL = {**TRAINING, **EVALUATION, **SAVED}


@pytest.mark.parametrize(
    "seen",
    [pytest.param(seen, id=name, marks=pytest.mark.hazard(name.partition(",")[0])) for name, seen in ALL.items()],
)
def test_a_script_comes_out_as_an_expert_would_write_it(seen: Seen, result: Callable[..., FileResult]) -> None:
    file = result(seen.text)
    new = file.after.decode()
    assert [line for line in seen.come if line not in new] == []
    assert [line for line in seen.gone if line in new] == []
    assert tuple(found.id for found in file.diagnoses) == seen.findings


@pytest.mark.hazard("U36")
def test_a_length_that_is_asked_for_early_is_told_to_be_that_of_one_process(result: Callable[..., FileResult]) -> None:
    kinds = {trait.kind for trait in result(SAVED["U36"].text).traits}
    assert "early-length" in kinds and "wrapped" not in kinds


# Threads that draw ahead ----------------------------------------------------------------------------------------------

AHEAD = f"""
import queue
import threading
class Ahead(threading.Thread):
    def __init__(self, batches):
        super().__init__(daemon=True)
        self.batches, self.waiting = batches, queue.Queue(2)
        self.start()
    def run(self):
        for batch in self.batches:
            self.waiting.put(batch)
        self.waiting.put(None)
    def __iter__(self):
        while (batch := self.waiting.get()) is not None:
            yield batch
{MADE}
for x, y in Ahead(loader):
    STEP
"""


@pytest.mark.hazard("U26")
@pytest.mark.parametrize("kept", [False, True])
def test_batches_that_a_thread_draws_ahead_are_weighted_by_their_own_rows(kept: bool, migrated: Migrated) -> None:
    """The loader behind the thread is not at the batch that trains: that one itself is cut."""
    new = migrated(AHEAD, keep_global_batch=kept)
    assert "x, y = accelerator.shard_batch((x, y))" in new
    assert "model, optimizer = accelerator.prepare(\n    model, optimizer\n)" in new


# Commands -------------------------------------------------------------------------------------------------------------

COMMANDS = {
    "click": ("import click", "@click.command()\n", "train()"),
    "fire": ("import fire", "", "fire.Fire()"),
    "a name": ("import sys", "", "globals()[sys.argv[1]]()"),
    "a name that is kept": ("import sys", "", "chosen = globals()[sys.argv[1]]\n    chosen()"),
    "a name, evaluated": ("import sys", "", "eval(sys.argv[1])(epochs=2)"),
    "a table": ("import sys", "", '{"train": train}[sys.argv[1]]()'),
}
COMMAND = """{imports}
{decorator}def train(epochs=1):
    model = nn.Linear(8, 2)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        STEP
if __name__ == "__main__":
    {call}
"""


@pytest.mark.hazard("U31")
@pytest.mark.parametrize(("imports", "decorator", "call"), COMMANDS.values(), ids=COMMANDS)
def test_what_a_command_line_starts_is_an_entry_point(
    imports: str, decorator: str, call: str, result: Callable[..., FileResult]
) -> None:
    file = result(COMMAND.format(imports=imports, decorator=decorator, call=call))
    assert "    accelerator = Accelerator()\n" in file.after.decode()
    assert "def train(epochs=1):" in file.after.decode()
    assert file.diagnoses == ()


@pytest.mark.hazard("U31")
def test_a_function_that_wants_more_than_a_computed_call_gives_is_not_started(unchanged: Findings) -> None:
    text = COMMAND.format(imports="import sys", decorator="", call="globals()[sys.argv[1]]()")
    assert unchanged(text.replace("epochs=1", "epochs")) == ["no-entry-point"]


# Candidates -----------------------------------------------------------------------------------------------------------

CANDIDATES = """
import sys
class Plain:
    def __init__(self):
        self.model = nn.Linear(8, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(data, batch_size=16, shuffle=True)
    def run(self):
        for x, y in self.loader:
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
class Other(Plain):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(8, 2, bias=False)
        self.optimizer = torch.optim.Adam(self.model.parameters())
"""
CHOICES = {
    "an option": "chosen = Plain if len(sys.argv) > 1 else Other\nchosen().run()",
    "a table": 'chosen = {"plain": Plain, "other": Other}[sys.argv[1]]\nchosen().run()',
    "one alone": "Other().run()",
}


@pytest.mark.hazard("U32", "U1")
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_every_candidate_is_migrated(choice: str, migrated: Migrated) -> None:
    """A class that builds the model of its base anew has both prepared, each with the optimizer beside it."""
    new = migrated(CANDIDATES + choice)
    assert new.count("self.model, self.optimizer, self.loader = ") == 1
    assert new.count("self.model, self.optimizer = ") == 1
    assert new.count(".backward(loss)") == 1 and "loss.backward()" not in new


# Who runs the training ------------------------------------------------------------------------------------------------

HYBRID = Path(__file__).parents[2] / "fixtures" / "torchrun_windows" / "before.py"


@pytest.mark.hazard("U27")
def test_the_plain_branch_of_a_hybrid_script_stays() -> None:
    (file,) = migrate([decode(HYBRID.read_bytes(), HYBRID)], CATALOGUE, Config()).files
    new = file.after.decode()
    assert "accelerator.no_sync(model)" in new and "plain = model\n" in new
    assert all(word not in new for word in ("DDP(", "require_backward_grad_sync", ".module", "init_process_group"))
    assert "first, offset, world_size = True, 0, 1" in new


FRAMEWORKS = {
    "its Trainer": ("from transformers import Trainer", "Trainer(model)"),
    "by another name": ("import transformers as tr", "tr.Seq2SeqTrainer(model)"),
    "a class of its own": ("from transformers import Trainer\nclass Mine(Trainer):\n    pass", "Mine(model)"),
    "another package's": ("from trl import SFTTrainer", "SFTTrainer(model)"),
}


@pytest.mark.hazard("U35")
@pytest.mark.parametrize(("imports", "made"), FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_a_trainer_of_a_package_owns_the_loop(imports: str, made: str, unchanged: Findings) -> None:
    assert unchanged(f"{imports}\nmodel = nn.Linear(8, 2)\n{made}.train()") == ["framework-owns-loop"]


# Depth ----------------------------------------------------------------------------------------------------------------

DEEP = {
    "a sum of a thousand terms": "total = " + " + ".join(["1"] * 1000),
    "a text of a thousand parts": "text = (" + "\n".join(['"a"'] * 1000) + ")",
    "a choice of three hundred": "if data == 0:\n    kind = 0\n"
    + "\n".join(f"elif data == {i}:\n    kind = {i}" for i in range(1, 300)),
    "a hundred and fifty brackets": "table = " + "[" * 150 + "]" * 150,
}


@pytest.mark.hazard("U40")
@pytest.mark.parametrize("code", DEEP.values(), ids=DEEP)
def test_no_depth_is_too_deep(code: str, result: Callable[..., FileResult]) -> None:
    file = result(f"{code}\n{TRAINED}")
    assert "accelerator.backward(loss)" in file.after.decode() and code in file.after.decode()
    assert file.diagnoses == ()
