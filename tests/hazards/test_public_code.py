"""What files of public code showed: roles told by use, counters, schedules of a fixed number of steps, helpers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.result import FileResult

Migrated = Callable[..., str]
Findings = Callable[..., list[str]]

TOP = """
model = nn.Linear(8, 2)
loader = DataLoader(data, batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
PLAIN = "for x, y in loader:\n    STEP\n"


@pytest.mark.parametrize(
    ("imported", "made"),
    [
        ("from schedules import WarmupCosine", "WarmupCosine(optimizer, total=100)"),
        ("import schedules", "schedules.Warmup(optimizer=optimizer)"),
    ],
)
def test_a_schedule_of_unknown_origin_may_save_its_state(imported: str, made: str, migrated: Migrated) -> None:
    text = migrated(
        f"{imported}\n{TOP}\ns = {made}\nfor x, y in loader:\n    STEP\n    s.step()\n"
        "torch.save({'s': s.state_dict(), 'm': model.state_dict()}, 'f.pt')"
    )
    assert "model, optimizer, loader, s = accelerator.prepare(" in text
    assert "'s': s.state_dict()" in text


@pytest.mark.parametrize("zeroed", ["net.zero_grad()", "net.train()\n    net.zero_grad()"])
def test_a_model_of_unknown_origin_may_zero_its_gradients(zeroed: str, migrated: Migrated) -> None:
    text = migrated(
        "from nets import Net\nnet = Net()\nloader = DataLoader(data, batch_size=8)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        f"for x, y in loader:\n    {zeroed}\n    F.mse_loss(net(x), y).backward()\n    optimizer.step()"
    )
    assert "net, optimizer, loader = accelerator.prepare(" in text


def test_an_optimizer_of_unknown_origin_is_still_told_by_zero_grad(findings: Findings) -> None:
    assert "unknown-parameters" in findings(f"from opts import made\n{TOP}\noptimizer = made()\n{PLAIN}")


def test_an_optimizer_of_unknown_origin_that_is_saved_holds_the_weights_of_the_model_it_was_made_for(
    migrated: Migrated,
) -> None:
    text = migrated(
        "from opts import made, plan\n"
        + TOP.replace("torch.optim.SGD(model.parameters(), lr=0.1)", "made(model, args)")
        + f"later = plan(optimizer)\n{PLAIN}later.step()\n"
        "torch.save({'o': optimizer.state_dict(), 'l': later.state_dict()}, 'f.pt')"
    )
    assert "model, optimizer, loader = accelerator.prepare(" in text
    assert "'o': optimizer.state_dict(), 'l': later.state_dict()" in text


SEARCHED = {
    "globals": "globals()[args.arch]()",
    "locals": "locals()[args.arch](8)",
    "vars": "vars()[args.arch]()",
    "eval": "eval(args.arch)()",
    "the module itself": "getattr(sys.modules[__name__], args.arch)()",
}
NET = """
class Net(nn.Module):
    def forward(self, x):
        return x
"""


@pytest.mark.parametrize("classes", [NET, "from nets import *"], ids=["here", "by a star"])
@pytest.mark.parametrize("made", SEARCHED.values(), ids=SEARCHED)
def test_a_model_by_a_name_of_its_own_module(made: str, classes: str, migrated: Migrated) -> None:
    text = migrated(f"import sys\nfrom options import args\n{classes}\n{TOP.replace('nn.Linear(8, 2)', made)}\n{PLAIN}")
    assert "model, optimizer, loader = accelerator.prepare(" in text


@pytest.mark.parametrize("value", ["eval('len')(data)", "globals()['data']", "locals()[name]"])
def test_a_name_of_its_own_module_is_no_model_without_use(value: str, migrated: Migrated) -> None:
    text = migrated(f"{TOP}\nname = 'x'\nother = {value}\n{PLAIN}")
    assert "model, optimizer, loader = accelerator.prepare(\n    model, optimizer, loader\n)" in text


@pytest.mark.parametrize("header", ["tqdm(enumerate(loader))", "list(enumerate(loader))", "enumerate(tqdm(loader))"])
def test_the_number_of_a_batch_is_no_row_of_it(header: str, migrated: Migrated) -> None:
    text = migrated(
        f"from tqdm import tqdm\n{TOP}\n{PLAIN}\nshown = []\nwith torch.no_grad():\n"
        f"    for i, (x, y) in {header}:\n        out = model(x)\n        if i < 8:\n            print(i)\n"
        "        shown.append(F.mse_loss(out, y).item())\nprint(sum(shown) / len(shown))"
    )
    assert "out, y = accelerator.gather_for_metrics((out, y))" in text


ENDLESS = "def endless(loader):\n    while True:\n        yield from loader\n"
SCHEDULE = (
    "\nsteps = 3 * len(loader)\nn = len(loader)\ns = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)\n"
)
FIXED = {
    "drawn": "it = endless(loader)\nfor i in range(100):\n    x, y = next(it)\n    STEP\n    s.step()",
    "drawn, as often in every epoch": (
        "often = 100\nfor epoch in range(3):\n    it = endless(loader)\n    for i in range(often):\n"
        "        x, y = next(it)\n        STEP\n        s.step()"
    ),
    "drawn, as long as all epochs": (
        "it = endless(loader)\nfor i in range(steps):\n    x, y = next(it)\n    STEP\n    s.step()"
    ),
    "drawn while": (
        "it = iter(cycle(loader))\ni = 0\nwhile i < 100:\n    x, y = next(it)\n    STEP\n    s.step()\n    i += 1"
    ),
    "zip with a cycle": "for i, (x, y) in zip(range(100), cycle(loader)):\n    STEP\n    s.step()",
    "a generator that never ends": (
        "for i, (x, y) in enumerate(endless(loader)):\n    STEP\n    s.step()\n    if i > 99:\n        break"
    ),
}


@pytest.mark.parametrize("loop", FIXED.values(), ids=FIXED)
def test_a_schedule_of_a_fixed_number_of_steps_stays(loop: str, migrated: Migrated) -> None:
    """Prepared, it would reach its end in an N-th of the steps, and a cosine would climb back."""
    text = migrated(f"from itertools import cycle\n{TOP}\n{ENDLESS}\n{SCHEDULE}\n{loop}")
    assert "model, optimizer, loader = accelerator.prepare(\n    model, optimizer, loader\n)" in text


EPOCHS = {
    "for": "for x, y in loader:\n        STEP\n        s.step()",
    "drawn, as often as asked there": (
        "it = iter(loader)\n    for i in range(len(loader)):\n        x, y = next(it)\n        STEP\n        s.step()"
    ),
    "drawn, as often as asked before": (
        "it = iter(loader)\n    for i in range(n):\n        x, y = next(it)\n        STEP\n        s.step()"
    ),
    "drawn to the end": (
        "it = iter(loader)\n    while True:\n        try:\n            x, y = next(it)\n        except StopIteration:\n"
        "            break\n        STEP\n        s.step()"
    ),
}


@pytest.mark.parametrize("loop", EPOCHS.values(), ids=EPOCHS)
def test_a_schedule_of_batches_is_prepared(loop: str, migrated: Migrated) -> None:
    text = migrated(f"{TOP}\n{SCHEDULE}\nfor epoch in range(3):\n    {loop}")
    assert "model, optimizer, loader, s = accelerator.prepare(" in text


@pytest.mark.parametrize(
    "used",
    [
        "from ignite.metrics import MaximumMeanDiscrepancy",
        "import ignite.metrics",
        "from pytorch_lightning import seed_everything",
        "from fastai.text.models import AWD_LSTM, LinearDecoder",
        "from fastai.vision.models.unet import DynamicUnet",
        "from fastai.losses import FocalLoss",
        "from catalyst.contrib.nn import Lookahead",
    ],
)
def test_helpers_of_a_framework_leave_the_loop_to_the_script(used: str, findings: Findings) -> None:
    assert findings(f"{used}\n{TOP}\n{PLAIN}") == []


@pytest.mark.parametrize(
    "used",
    [
        "from ignite.engine import Engine",
        "import flwr as fl",
        "from pytorch_lightning import Trainer",
        "from fastai.text.learner import language_model_learner",
        "import fastai.vision.all as fv",
    ],
)
def test_frameworks_own_the_loop(used: str, findings: Findings) -> None:
    assert "framework-owns-loop" in findings(f"{used}\n{TOP}\n{PLAIN}")


@pytest.mark.parametrize("bar", ["tqdm(range(200), desc='epochs')", "tqdm(iterable=1, total=2)"])
def test_a_bar_over_rounds_is_no_unknown_loader(bar: str, findings: Findings) -> None:
    ids = findings(
        f"from tqdm import tqdm\nX = data\nmodel = nn.Linear(8, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"bar = {bar}\nfor epoch in bar:\n    optimizer.zero_grad()\n    F.mse_loss(model(X), X).backward()\n"
        "    optimizer.step()"
    )
    assert ids == (["no-data-parallel-axis"] if "range" in bar else ["unknown-loader"])


SEVERAL = """
class Losses(nn.Module):
    def forward(self, out, y):
        far = F.mse_loss(out, y)
        near = F.l1_loss(out, y, reduction="sum")
        return far, near

def losses(out, y):
    return F.mse_loss(out, y), F.l1_loss(out, y, reduction="sum")

criterion = Losses()
"""
ONE_OF_TWO = {
    "a sum, by a module": ("far, near = criterion(model(x), y)\n    near.backward()", 'near, reduction="sum")'),
    "a sum, by a function": ("far, near = losses(model(x), y)\n    near.backward()", 'near, reduction="sum")'),
    "a sum, by its place": ("near = losses(model(x), y)[1]\n    near.backward()", 'near, reduction="sum")'),
    "a mean, by a module": ("far, near = criterion(model(x), y)\n    far.backward()", "accelerator.backward(far)"),
    "a mean, by its place": ("far = losses(model(x), y)[0]\n    far.backward()", "accelerator.backward(far)"),
}


@pytest.mark.parametrize(("step", "expected"), ONE_OF_TWO.values(), ids=ONE_OF_TWO)
def test_one_of_several_losses_is_a_sum_or_a_mean(step: str, expected: str, migrated: Migrated) -> None:
    text = migrated(
        f"{TOP}\n{SEVERAL}\nfor x, y in loader:\n    optimizer.zero_grad()\n    {step}\n    optimizer.step()"
    )
    assert expected in text


@pytest.mark.parametrize("made", ["criterion(model(x), y)", "losses(model(x), y)"])
def test_a_sum_and_a_mean_of_several_losses_do_not_meet(made: str, findings: Findings) -> None:
    step = f"optimizer.zero_grad()\n    far, near = {made}\n    loss = far + near\n    loss.backward()"
    assert "backward" in findings(f"{TOP}\n{SEVERAL}\nfor x, y in loader:\n    {step}\n    optimizer.step()")


EPOCH = """
def run(model, loader, train):
    total, worst = 0.0, 0.0
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y)
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
        worst = max(worst, x.abs().max().item())
        mean = total / (i + 1)
    return {returned}

best = 9.0
for epoch in range(3):
    {got} = run(model, loader, True)
    if {asked} < best:
        best = {asked}
        run(model, loader, False)
"""


@pytest.mark.parametrize("returned", ["mean, worst", "total / len(loader), worst"])
def test_a_decision_on_one_of_several_results(returned: str, migrated: Migrated, findings: Findings) -> None:
    text = TOP + EPOCH.format(returned=returned, got="loss, extreme", asked="loss")
    assert "local-decision" not in findings(text)
    assert 'total += accelerator.reduce(loss.detach(), reduction="mean").item()' in migrated(text)


@pytest.mark.parametrize(
    ("got", "asked"), [("loss, extreme", "extreme"), ("both", "both[1]"), ("loss, *rest", "loss + rest[0]")]
)
def test_a_decision_on_the_other_result_is_refused(got: str, asked: str, findings: Findings) -> None:
    assert "local-decision" in findings(TOP + EPOCH.format(returned="mean, worst", got=got, asked=asked))


@pytest.mark.parametrize("read", ["print(mean)", "history.append(mean)"])
def test_a_mean_that_is_computed_at_each_step_is_read_behind_the_loop(read: str, migrated: Migrated) -> None:
    step = "STEP\n    total += loss.item()\n    mean = total / (i + 1)"
    text = migrated(f"{TOP}\nhistory, total = [], 0.0\nfor i, (x, y) in enumerate(loader):\n    {step}\n{read}")
    assert 'total += accelerator.reduce(loss.detach(), reduction="mean").item()' in text


def test_a_mean_that_is_only_shown_stays(migrated: Migrated) -> None:
    step = "STEP\n    total += loss.item()\n    mean = total / (i + 1)\n    print(mean)"
    assert "reduce(" not in migrated(f"{TOP}\ntotal = 0.0\nfor i, (x, y) in enumerate(loader):\n    {step}")


LOW = """
for x, y in loader:
    with REGION:
        loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BF16 = "dtype=torch.bfloat16"


@pytest.mark.parametrize("region", [f"torch.autocast('cuda', {BF16})", f"torch.cuda.amp.autocast({BF16})"])
def test_autocast_that_is_off_without_cuda_is_told(region: str, result: Callable[..., FileResult]) -> None:
    file = result(TOP + LOW.replace("REGION", region))
    assert b'Accelerator(mixed_precision="bf16")' in file.after
    assert ("precision", "bf16") in [(t.kind, t.name) for t in file.traits]


@pytest.mark.parametrize(
    "region", [f"torch.autocast('cpu', {BF16})", f"torch.autocast('cuda', {BF16}, enabled=torch.cuda.is_available())"]
)
def test_autocast_of_any_device_is_not(region: str, result: Callable[..., FileResult]) -> None:
    assert "precision" not in [t.kind for t in result(TOP + LOW.replace("REGION", region)).traits]


MINIBATCH = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 2)
    def forward(self, x):
        x = self.body(x)
        n = torch.arange(4)
        MIX
        return x + mixed
"""
PAIRS = {
    "spread": "mixed = (x.unsqueeze(1) - x.unsqueeze(0)).abs().sum(1)",
    "spread before": (
        "a = x.unsqueeze(2)\n        b = x.permute(1, 0).unsqueeze(0)\n        mixed = (a - b).abs().sum(2)"
    ),
    "None": "mixed = (x[:, None] - x[None]).abs().sum(1)",
    "None, the other way round": "mixed = (x[None] - x[:, None]).abs().sum(1)",
    "None behind a call": "mixed = (x.float()[:, None] - x.float()[None]).abs().sum(1)",
    "cdist": "mixed = torch.cdist(x, x).sum(1, keepdim=True)",
    "two variables": "y = x * 2\n        mixed = (x[:, None] - y[None]).sum()",
}
APART = {
    "within a row": "mixed = (x.unsqueeze(1) - x.unsqueeze(2)).sum(1)",
    "positions": "mixed = (n[:, None] - n[None, :]).sum()",
}


@pytest.mark.parametrize("mix", PAIRS.values(), ids=PAIRS)
def test_differences_of_all_rows_are_told(mix: str, findings: Findings) -> None:
    top = TOP.replace("nn.Linear(8, 2)", "Net()")
    assert "in-batch-pairs" in findings(f"{MINIBATCH.replace('MIX', mix)}\n{top}\n{PLAIN}")


@pytest.mark.parametrize("mix", APART.values(), ids=APART)
def test_other_differences_are_not(mix: str, findings: Findings) -> None:
    top = TOP.replace("nn.Linear(8, 2)", "Net()")
    assert findings(f"{MINIBATCH.replace('MIX', mix)}\n{top}\n{PLAIN}") == ["cpu-only"]


EVALUATION = """
hits = []
with torch.no_grad():
    for x, y in DataLoader(test_data, batch_size=16):
        COUNT
        out = model(x)
        SHAPE
        hits.append((out.argmax(1) == y).float())
print(torch.cat(hits).mean())
"""
ROWS = {
    "size": ("n = x.size(0)", "out = out.view(n, -1)"),
    "shape": ("n = y.shape[0]", "out = out.reshape(n * 1, 2)"),
    "len": ("n = len(x)", "out = out + torch.zeros(n, 2)"),
    "unpacked": ("n, c = x.shape", "out = out.view(n, c // 4)"),
}
OTHER_SIZES = {
    "the width": ("n, c = x.shape", "out = out.view(-1, c // 4)"),
    "counted behind": ("n = 1", "n = out.size(0)\n        out = out.view(n, -1)"),
}


@pytest.mark.parametrize(("count", "shape"), ROWS.values(), ids=ROWS)
def test_an_evaluation_that_shapes_by_its_rows_is_not_shared(count: str, shape: str, migrated: Migrated) -> None:
    text = migrated(f"{TOP}\n{PLAIN}\n{EVALUATION.replace('COUNT', count).replace('SHAPE', shape)}")
    assert "gather" not in text
    assert "for x, y in DataLoader(test_data, batch_size=16):" in text


@pytest.mark.parametrize(("count", "shape"), OTHER_SIZES.values(), ids=OTHER_SIZES)
def test_an_evaluation_that_shapes_by_other_sizes_is(count: str, shape: str, migrated: Migrated) -> None:
    text = migrated(f"{TOP}\n{PLAIN}\n{EVALUATION.replace('COUNT', count).replace('SHAPE', shape)}")
    assert "out, y = accelerator.gather_for_metrics((out, y))" in text


COPIED = {
    "numpy": ("kept = y.numpy()", "hits.append((out.argmax(1).numpy() == kept).mean())"),
    "a list": ("kept = y.tolist()", "hits += [a == b for a, b in zip(out.argmax(1).tolist(), kept)]"),
}


@pytest.mark.parametrize(("copy", "use"), COPIED.values(), ids=COPIED)
def test_an_evaluation_that_reads_copies_made_in_front_is_not_shared(copy: str, use: str, migrated: Migrated) -> None:
    loop = (
        EVALUATION.replace("COUNT", copy).replace("SHAPE", use).replace("        hits.append((out.argmax(1) == y", "#")
    )
    assert "gather" not in migrated(f"{TOP}\n{PLAIN}\n{loop.replace('print(torch.cat(hits).mean())', 'print(hits)')}")


def test_a_number_of_rows_may_be_counted_in_front(migrated: Migrated) -> None:
    loop = EVALUATION.replace("COUNT", "n = y.size(0)").replace("SHAPE", "total = n")
    assert "gather_for_metrics(" in migrated(f"{TOP}\n{PLAIN}\n{loop}")


@pytest.mark.parametrize(
    ("imported", "made", "expected"),
    [
        ("from os import mkdir", 'mkdir("out")', 'makedirs("out", exist_ok=True)'),
        ("from os import path, mkdir as make", 'make("out")', 'makedirs("out", exist_ok=True)'),
    ],
)
def test_a_folder_by_a_bare_name(imported: str, made: str, expected: str, migrated: Migrated) -> None:
    text = migrated(f"import os\n{imported}\n{TOP}\nif not os.path.exists('out'):\n    {made}\n{PLAIN}")
    assert expected in text
    assert "from os import" in text


def test_a_folder_by_a_bare_name_that_must_be_new(migrated: Migrated) -> None:
    text = migrated(f"from os import mkdir\n{TOP}\nmkdir('out')\n{PLAIN}")
    assert "makedirs" not in text


CHOSEN = """
def chosen(optimizer, policy):
    if policy == "plateau":
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    return torch.optim.lr_scheduler.StepLR(optimizer, 10)

s = chosen(optimizer, "step")
for epoch in range(3):
    for x, y in loader:
        STEP
        IN
    s.step()
"""


def test_schedules_of_two_kinds_once_an_epoch_are_no_contradiction(findings: Findings) -> None:
    assert findings(TOP + CHOSEN.replace("        IN\n", "")) == []


def test_schedules_once_a_batch_and_once_an_epoch_are(findings: Findings) -> None:
    assert "scheduler" in findings(TOP + CHOSEN.replace("IN", "s.step()"))
