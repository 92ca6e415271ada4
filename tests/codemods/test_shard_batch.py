"""The rule `shard_batch`: batches that no loader yields are cut where they are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, Target
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

SCRIPT = """\
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
{top}
{model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{loop}
"""
MODEL = "model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)).to(device)"
STEP = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DATA = "x = torch.randn(100, 8, device=device)\ny = torch.randint(2, (100,), device=device)\n"
Migrated = Callable[[str], str]


def test_a_second_run_reduces_no_figure_that_the_first_left(migrated: Migrated) -> None:
    """`migrated` makes that run: it has not cut the batches, and knows less of them."""
    loop = (
        "order = torch.randperm(100)\nshown = 0\nfor k in range(0, 100, 16):\n    i = order[k : k + 16]\n"
        "    a, b = x[i], y[i]\n    loss = F.cross_entropy(model(a), b, reduction='sum')\n"
        "    shown += loss.item() * a.size(0)"
    )
    text = migrated(script(loop) + "print(shown)\n")
    assert "    shown += loss.item() * a.size(0)\n" in text


def test_a_scaled_loss_is_what_it_was(migrated: Migrated) -> None:
    loop = (
        "scaler = torch.amp.GradScaler()\nfor k in range(0, 100, 16):\n    optimizer.zero_grad()\n"
        "    with torch.autocast('cuda'):\n        loss = F.cross_entropy(model(x[k : k + 16]), y[k : k + 16])\n"
        "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n"
    )
    text = migrated(SCRIPT.format(top=DATA, model=MODEL, loop=loop))
    assert "model(accelerator.shard_batch(x[k : k + 16])), accelerator.shard_batch(y[k : k + 16])" in text


def script(loop: str, top: str = DATA, model: str = MODEL) -> str:
    return SCRIPT.format(top=top, model=model, loop=loop + STEP)


CUT = {
    "a draw by torch": (
        "for step in range(9):\n    i = torch.randint(100, (16,))\n    loss = F.cross_entropy(model(x[i]), y[i])",
        "i = accelerator.shard_batch(torch.randint(100, (16,)))",
    ),
    "slices of a permutation": (
        "order = torch.randperm(100)\nfor k in range(0, 100, 16):\n    i = order[k : k + 16]\n"
        "    loss = F.cross_entropy(model(x[i]), y[i])",
        "i = accelerator.shard_batch(order[k : k + 16])",
    ),
    "slices with a tail of their own": (
        "for k in range(0, 100, 16):\n    if k + 16 > 100:\n        a, b = x[k:], y[k:]\n    else:\n"
        "        a, b = x[k : k + 16], y[k : k + 16]\n    loss = F.cross_entropy(model(a), b)",
        "a, b = accelerator.shard_batch(x[k:]), accelerator.shard_batch(y[k:])",
    ),
    "a part of the data, the same in each step": (
        "for step in range(9):\n    a, b = x[:80], y[:80]\n    loss = F.cross_entropy(model(a), b)",
        "a, b = accelerator.shard_batch(x[:80]), accelerator.shard_batch(y[:80])",
    ),
    "a part of what is computed of the data": (
        "z = (x[:, :1] + x[:, 1:2] > 0).float()\nfor step in range(9):\n    a, b = x[:80], z[:80]\n"
        "    loss = torch.clamp(1 - model(a) * (2 * b - 1), min=0).mean()",
        "a, b = accelerator.shard_batch(x[:80]), accelerator.shard_batch(z[:80])",
    ),
    "what a split leaves of the whole data": (
        "from sklearn.model_selection import train_test_split\n"
        "a, held, b, wanted = train_test_split(x, y, test_size=0.2, random_state=1)\n"
        "for step in range(9):\n    loss = F.cross_entropy(model(a), b)",
        "a, b = accelerator.shard_batch((a, b))\nfor step in range(9):",
    ),
    "the whole data": (
        "for step in range(9):\n    loss = F.cross_entropy(model(x), y)",
        "x, y = accelerator.shard_batch((x, y))\nfor step in range(9):",
    ),
}


@pytest.mark.parametrize(("loop", "line"), CUT.values(), ids=CUT)
def test_where_a_batch_is_cut(loop: str, line: str, migrated: Migrated) -> None:
    new = migrated(script(loop))
    assert line in new
    assert "accelerator.backward(loss)" in new
    assert migrated(new) == new


BESIDE = """\
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(100, 8), torch.randint(2, (100,)))


def pretrain(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for a, _ in loader:
        loss = (model(a.to(device) + 0.1 * torch.randn_like(a)) - model(a.to(device))).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def probe(x, y):
    head = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for epoch in range(3):
        order = torch.randperm(len(x))
        for k in range(0, len(x), 16):
            i = order[k : k + 16]
            loss = F.cross_entropy(head(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


model = nn.Linear(8, 4).to(device)
pretrain(model, DataLoader(data, batch_size=16, shuffle=True))
with torch.no_grad():
    features = model(data.tensors[0].to(device))
probe(features, data.tensors[1].to(device))
"""


def test_a_training_by_hand_beside_one_with_a_loader_is_cut(result: Callable[..., FileResult]) -> None:
    """Each process drew an order of its own, and trained the head on all rows; nothing was said."""
    file = result(BESIDE)
    assert b"i = accelerator.shard_batch(order[k : k + 16])\n" in file.after
    assert [d.case for d in file.diagnoses if d.id == "sharded-batch"] == ["beside-loaders"]
    batches = [trait.name for trait in file.traits if trait.kind == "batch"]
    assert batches == ["process"], "the other training has another global batch"


def test_a_training_by_hand_beside_one_with_a_loader_that_is_not_cut_is_left(migrated: Migrated) -> None:
    text = migrated(BESIDE.replace("head(x[i])", "head(x[i] - x[i[0]])"))
    assert "shard_batch" not in text and text.count("accelerator.backward(loss)") == 2


VECTORS = """\
def vectors(path):
    return nn.Embedding.from_pretrained(torch.load(path), freeze=False)

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = {table}
        self.out = nn.Linear(8, 2)

    def forward(self, words):
        return self.out(self.table(words).mean(1))

model = Words().to(device)
"""


@pytest.mark.parametrize(
    "table", ["nn.Embedding.from_pretrained(torch.randn(50, 8))", "vectors('vectors.pt')"], ids=["here", "a function"]
)
def test_an_embedding_of_known_vectors_takes_rows_as_another(table: str, migrated: Migrated) -> None:
    top = "x, y = torch.randint(50, (100, 5), device=device), torch.randint(2, (100,), device=device)\n"
    loop = "for k in range(0, 100, 16):\n    loss = F.cross_entropy(model(x[k : k + 16]), y[k : k + 16])"
    new = migrated(script(loop, top=top, model=VECTORS.format(table=table)))
    assert "model(accelerator.shard_batch(x[k : k + 16]))" in new


def test_what_is_read_elsewhere_stays_whole(migrated: Migrated) -> None:
    loop = "for step in range(9):\n    scores = model(x)\n    loss = F.cross_entropy(scores, y)"
    new = migrated(script(loop) + "print((model(x).argmax(1) == y).float().mean(), scores.shape)\n")
    assert "x_shard, y_shard = accelerator.shard_batch((x, y))\nfor step" in new
    assert "    scores = model(x_shard)\n    loss = F.cross_entropy(scores, y_shard)\n" in new
    assert "scores = accelerator.gather_for_metrics(scores)\n" in new


SCORE = """\
def score(model, a, b):
    with torch.no_grad():
        found = model(a)
        return F.cross_entropy(found, b).item(), (found.argmax(1) == b).float().mean().item()

@torch.no_grad()
def soft(model, a):
    return model(a).softmax(-1)

"""


def test_a_function_that_evaluates_the_whole_data_between_the_steps_gets_all_of_it(
    result: Callable[..., FileResult],
) -> None:
    """What a teacher gives for each row is of the shard, like that of the model that learns from it."""
    file = result(
        script(
            "for step in range(9):\n    wanted = soft(teacher, x)\n"
            "    loss = F.cross_entropy(model(x), y) + (model(x) - wanted).pow(2).mean()",
            SCORE + DATA + "teacher = nn.Linear(8, 2)\n",
        )
        + "    gap, hits = score(model, x, y)\n    print(step, gap, hits)\n"
    )
    new = file.after.decode()
    assert "x_shard, y_shard = accelerator.shard_batch((x, y))\nfor step" in new
    assert "wanted = soft(teacher, x_shard)" in new and "(model(x_shard) - wanted)" in new
    assert "gap, hits = score(model, x, y)\n    accelerator.print(step, gap, hits)" in new
    assert not [trait for trait in file.traits if trait.kind == "figure"], "they are figures of all rows"


def test_a_function_that_an_evaluation_calls_too_is_cut_where_the_training_calls_it(migrated: Migrated) -> None:
    top = (
        DATA + "def draw():\n    i = torch.randint(len(x), (16,))\n    return x[i], y[i]\n\n"
        "def estimate():\n    a, b = draw()\n    with torch.no_grad():\n        return F.cross_entropy(model(a), b)\n"
    )
    new = migrated(script("for step in range(9):\n    print(estimate())\n    a, b = draw()\n"
                          "    loss = F.cross_entropy(model(a), b)", top))  # fmt: skip
    assert "    a, b = accelerator.shard_batch(draw())\n    loss" in new
    assert new.count("shard_batch") == 1


def test_a_batch_that_is_drawn_ahead_is_cut_before_the_loop_too(migrated: Migrated) -> None:
    top = DATA + "def draw():\n    i = torch.randint(len(x), (16,))\n    return torch.stack([x[j] for j in i]), y[i]\n"
    loop = (
        "a, b = draw()\nfor step in range(9):\n    optimizer.zero_grad()\n    loss = F.cross_entropy(model(a), b)\n"
        "    a, b = draw()\n    loss.backward()\n    optimizer.step()\n"
    )
    new = migrated(SCRIPT.format(top=top, model=MODEL, loop=loop))
    assert "\na, b = accelerator.shard_batch(draw())\nfor step" in new
    assert "    a, b = accelerator.shard_batch(draw())\n    accelerator.backward(loss)" in new


STATES = """\
class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList([nn.GRUCell(8, 8) for _ in range(2)])

    def forward(self, x):
        memory = [torch.zeros(x.size(0), 8), torch.zeros(x.size(0), 8)]
        for _ in range(4):
            fresh = []
            for depth, step in enumerate(self.steps):
                x = step(x, memory[depth])
                fresh.append(x)
            memory = torch.stack(fresh, 0)
        return x

model = Stack()
"""


def test_states_of_layers_in_a_list_and_then_in_one_tensor(migrated: Migrated) -> None:
    """A layer's state is taken out of a list at first, and of the stacked tensor later."""
    loop = "for k in range(0, 100, 16):\n    loss = F.mse_loss(model(x[k : k + 16]), x[k : k + 16])"
    new = migrated(script(loop, model=STATES))
    assert "model(accelerator.shard_batch(x[k : k + 16]))" in new
    assert "accelerator.backward(loss)" in new


LANGUAGE = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(50, 8), nn.LSTM(8, 8), nn.Linear(8, 50)

    def forward(self, words, state):
        found, state = self.rnn(self.embed(words), state)
        return self.out(found.view(found.size(0) * found.size(1), -1)), state

    def start(self, rows):
        return torch.zeros(1, rows, 8), torch.zeros(1, rows, 8)

model = Model()
"""


OF_SEVERAL_KINDS = """\
import argparse
options = argparse.ArgumentParser()
options.add_argument("--kind", default="LSTM")
options.add_argument("--adam", action="store_true")
options = options.parse_args()

class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)
        if kind in ["LSTM", "GRU"]:
            self.rnn = getattr(nn, kind)(8, 8)
        else:
            self.rnn = nn.RNN(8, 8, nonlinearity="tanh")

    def forward(self, words, state):
        found, state = self.rnn(self.embed(words), state)
        return self.out(found).view(-1, 50), state

    def start(self, rows):
        weight = next(self.parameters())
        if self.kind == "LSTM":
            return weight.new_zeros(1, rows, 8), weight.new_zeros(1, rows, 8)
        return weight.new_zeros(1, rows, 8)

class Attentive(nn.Transformer):
    def __init__(self):
        super().__init__(d_model=8, nhead=2, num_encoder_layers=1)
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)

    def forward(self, words):
        return F.log_softmax(self.out(self.encoder(self.embed(words))), dim=-1)

if options.kind == "Transformer":
    model = Attentive()
else:
    model = Recurrent(options.kind)
"""
ONE_EPOCH = """\
if options.adam:
    optimizer = torch.optim.Adam(model.parameters())

def cut_off(state):
    if isinstance(state, torch.Tensor):
        return state.detach()
    return tuple(cut_off(one) for one in state)

def epoch():
    if options.kind != "Transformer":
        state = model.start(batch_size)
    for i in range(0, text.size(0) - 6, 5):
        words, following = window(text, i)
        model.zero_grad()
        if options.kind == "Transformer":
            scores = model(words)
            scores = scores.view(-1, 50)
        else:
            state = cut_off(state)
            scores, state = model(words, state)
        loss = F.cross_entropy(scores, following)
        loss.backward()
        if options.adam:
            optimizer.step()
        else:
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-0.1)

for _ in range(3):
    epoch()
"""
COLUMNS = """\
batch_size = 20
def columns(data, n):
    return data[: len(data) // n * n].view(n, -1).t().contiguous()

text = columns(torch.randint(50, (1000,)), batch_size)
def window(source, i):
    return source[i : i + 5], source[i + 1 : i + 6].view(-1)

"""


def test_a_language_model_of_several_kinds_with_an_optimizer_that_an_option_asks_for(migrated: Migrated) -> None:
    head = SCRIPT.partition("device = ")[0]
    new = migrated(head + COLUMNS + OF_SEVERAL_KINDS + ONE_EPOCH)
    assert "    text_shard = accelerator.shard_batch(text, dim=1)\n    if options.kind" in new
    assert "        state = model.start(text_shard.size(1))\n" in new
    assert "        words, following = window(text_shard, i)\n" in new
    prepared = "    optimizer = torch.optim.Adam(model.parameters())\n    optimizer = accelerator.prepare(optimizer)\n"
    assert prepared + "model = accelerator.prepare(model)\n" in new


def test_columns_of_a_text_and_a_state_that_has_as_many_rows(migrated: Migrated) -> None:
    top = (
        "batch_size = 20\ndef columns(data, n):\n    return data[: len(data) // n * n].view(n, -1).t().contiguous()\n\n"
        "text = columns(torch.randint(50, (1000,)), batch_size)\n"
        "def window(source, i):\n    return source[i : i + 5], source[i + 1 : i + 6].view(-1)\n"
    )
    loop = (
        "state = model.start(batch_size)\nfor i in range(0, text.size(0) - 6, 5):\n"
        "    words, following = window(text, i)\n    state = tuple(one.detach() for one in state)\n"
        "    scores, state = model(words, state)\n    loss = F.cross_entropy(scores, following)"
    )
    new = migrated(script(loop, top, LANGUAGE))
    assert "text_shard = accelerator.shard_batch(text, dim=1)\nstate = model.start(text_shard.size(1))\nfor i" in new
    assert "words, following = window(text_shard, i)" in new


CELLS = """\
class Layers(nn.Module):
    def __init__(self, kind, depth):
        super().__init__()
        self.depth, self.cells = depth, nn.ModuleList([kind(8, 8) for _ in range(depth)])
        self.out = nn.Linear(8, 50)

    def forward(self, x, state):
        h, c = state
        new_h, new_c = [], []
        for place, cell in enumerate(self.cells):
            own_h, own_c = cell(x, (h[place], c[place]))
            x = x + own_h
            new_h += [own_h]
            new_c += [own_c]
        return self.out(x), (torch.stack(new_h), torch.stack(new_c))

    def begin(self, rows):
        return torch.zeros(self.depth, rows, 8), torch.zeros(self.depth, rows, 8)

embed = nn.Embedding(50, 8)
model = Layers(nn.LSTMCell, 2)
"""


def test_windows_of_a_text_by_narrow_and_a_state_of_several_layers_that_is_moved(migrated: Migrated) -> None:
    """The number of columns has two names."""
    top = (
        "import argparse\noptions = argparse.ArgumentParser().parse_args()\n"
        "rows = options.rows\n"
        "def columns(data, n):\n    return data.narrow(0, 0, len(data) // n * n).view(n, -1).t().contiguous()\n\n"
        "text = columns(torch.randint(50, (1000,)), rows)\n"
    )
    loop = (
        "state = model.begin(options.rows)\nif options.cuda:\n    state = tuple(one.cuda() for one in state)\n"
        "for i in range(text.size(0) // 5 - 1):\n    window = text.narrow(0, i * 5, 6)\n"
        "    state, loss = tuple(one.detach() for one in state), 0\n    for t in range(5):\n"
        "        scores, state = model(embed(window[t]), state)\n        loss += F.cross_entropy(scores, window[t + 1])"
    )
    new = migrated(script(loop, top, CELLS))
    assert "text_shard = accelerator.shard_batch(text, dim=1)\nstate = model.begin(text_shard.size(1))\n" in new
    assert "    window = text_shard.narrow(0, i * 5, 6)\n" in new


def test_a_table_that_a_method_makes_and_two_states_for_its_rows(migrated: Migrated) -> None:
    text = migrated(
        dedent("""
        import torch
        import torch.nn as nn

        rows, steps = 8, 5

        class Corpus:
            def load(self, path, rows):
                ids = torch.LongTensor([int(word) for word in open(path).read().split()])
                return ids[: len(ids) // rows * rows].view(rows, -1)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.lstm, self.head = nn.Embedding(9, 4), nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 9)

            def forward(self, x, state):
                out, (h, c) = self.lstm(self.embed(x), state)
                return self.head(out.reshape(out.size(0) * out.size(1), out.size(2))), (h, c)

        ids = Corpus().load("words.txt", rows)
        device = torch.device("cuda")
        model = Net().to(device)
        optimizer = torch.optim.Adam(model.parameters())
        for epoch in range(2):
            state = (torch.zeros(1, rows, 6).to(device), torch.zeros(1, rows, 6).to(device))
            for i in range(0, ids.size(1) - steps, steps):
                x, y = ids[:, i : i + steps].to(device), ids[:, i + 1 : i + 1 + steps].to(device)
                state = [part.detach() for part in state]
                scores, state = model(x, state)
                loss = nn.functional.cross_entropy(scores, y.reshape(-1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """)
    )
    assert "ids = accelerator.shard_batch(ids)\n" in text
    assert text.count("torch.zeros(1, ids.size(0), 6)") == 2


def test_noise_and_what_a_function_makes(migrated: Migrated) -> None:
    top = "rows = 16\ndef paintings():\n    return torch.randn(rows, 8) * 2\n"
    loop = (
        "for step in range(9):\n    real = paintings()\n    noise = torch.randn(rows, 8)\n"
        "    loss = torch.log(model(real).sigmoid()).mean() - torch.log(model(noise).sigmoid()).mean()"
    )
    new = migrated(script(loop, top))
    assert "real = accelerator.shard_batch(paintings())" in new
    assert "noise = accelerator.shard_batch(torch.randn(rows, 8))" in new


def test_a_sum_over_the_rows_and_what_is_printed_of_it(migrated: Migrated) -> None:
    new = migrated(script('for step in range(9):\n    loss = (model(x) - 1).pow(2).sum()\n    print(f"{loss.item()}")'))
    assert 'accelerator.backward(loss, reduction="sum")' in new
    assert 'accelerator.print(f"{accelerator.reduce(loss.detach()).item()}")' in new


def test_a_decision_on_the_loss_is_made_together(migrated: Migrated) -> None:
    loop = "for step in range(9):\n    loss = F.cross_entropy(model(x), y)\n    if loss.item() < 0.1:\n        break"
    assert 'if accelerator.reduce(loss.detach(), reduction="mean").item() < 0.1:' in migrated(script(loop))


def test_weights_that_the_script_updates_by_itself(migrated: Migrated) -> None:
    loop = (
        "for step in range(9):\n    loss = F.cross_entropy(model(x), y)\n    model.zero_grad()\n    loss.backward()\n"
        "    for weight in model.parameters():\n        weight.data -= 0.1 * weight.grad\n"
    )
    text = SCRIPT.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")
    new = migrated(text.format(top=DATA, model=MODEL, loop=loop))
    assert "model = accelerator.prepare(model)\n" in new
    assert "accelerator.backward(loss)" in new


def test_what_a_plot_in_the_training_shows(result: Callable[..., FileResult]) -> None:
    loop = "for step in range(9):\n    scores = model(x)\n    plot(scores)\n    loss = F.cross_entropy(scores, y)"
    found = result(script(loop, "from drawing import plot\n" + DATA)).diagnoses
    assert [one.id for one in found] == ["sharded-batch", "one-share", "once"]


TOTAL = """\
order = torch.randperm(100)
right = rows = 0
for k in range(0, 100, 8):
    {batch}
    out = model(a)
    loss = F.cross_entropy(out, b)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {total}
print(right, rows)
"""
WHOLE = {
    "hits and rows": (
        "i = order[k : k + 8]\n    a, b = x[i], y[i]",
        "right += (out.argmax(1) == b).sum().item()\n    rows += a.shape[0]",
        "out, b = accelerator.gather_for_metrics((out, b))\n"
        "    right += (out.argmax(1) == b).sum().item()\n    rows += b.shape[0]\n",
    ),
    "slices of the data": (
        "a, b = x[k : k + 8], y[k : k + 8]",
        "right += out.max(1)[1].eq(b).sum().item()\n    rows += len(b)",
        "out, b = accelerator.gather_for_metrics((out, b))\n"
        "    right += out.max(1)[1].eq(b).sum().item()\n    rows += len(b)\n",
    ),
    "a loss, weighed": (
        "a, b = x[k : k + 8], y[k : k + 8]",
        "right += loss.item() * len(b)",
        'b = accelerator.gather_for_metrics(b)\n'
        '    right += accelerator.reduce(loss.detach(), reduction="mean").item() * len(b)\n',
    ),
    "what a function counts": (
        "a, b = x[k : k + 8], y[k : k + 8]",
        "right += hits(out, b)",
        "out, b = accelerator.gather_for_metrics((out, b))\n    right += hits(out, b)\n",
    ),
}  # fmt: skip
HITS = "def hits(scores, wanted):\n    return (scores.argmax(1) == wanted).sum().item()\n"


@pytest.mark.parametrize(("batch", "total", "after"), WHOLE.values(), ids=WHOLE)
def test_what_is_totalled_over_such_batches_is_of_all_rows(
    batch: str, total: str, after: str, result: Callable[..., FileResult]
) -> None:
    text = SCRIPT.format(top=HITS + DATA, model=MODEL, loop=TOTAL.format(batch=batch, total=total))
    file = result(text)
    assert f"optimizer.step()\n    {after}accelerator.print(right, rows)" in file.after.decode()
    assert "filled-batch" not in [found.id for found in file.diagnoses], "no row of such a batch is repeated"


def test_names_that_an_evaluation_uses_again_are_of_rows_in_the_training(result: Callable[..., FileResult]) -> None:
    batch, total, after = WHOLE["hits and rows"]
    again = (
        "    for k in range(0, 100, 16):\n        a, b = x[k : k + 16], y[k : k + 16]\n        out = model(a).mean(0)\n"
    )
    training = TOTAL.format(batch=batch, total=total).replace("\n", "\n    ").removesuffix("    ")
    text = SCRIPT.format(top=DATA, model=MODEL, loop=f"for epoch in range(2):\n    {training}{again}")
    assert f"    {after}accelerator.print".replace("\n", "\n    ") in result(text).after.decode()


TEST = "right += (model(a).argmax(1) == b).sum().item()"
EVALUATED = {
    "slices": f"for k in range(0, 100, 16):\n        a, b = x[k : k + 16], y[k : k + 16]\n        {TEST}",
    "slices, without a gradient": (
        "with torch.no_grad():\n        for k in range(0, 100, 16):\n            a, b = x[k : k + 16], y[k : k + 16]\n"
        f"            {TEST}"
    ),
    "draws": f"for k in range(5):\n        i = torch.randint(100, (16,))\n        a, b = x[i], y[i]\n        {TEST}",
    "draws of a function": f"for k in range(5):\n        a, b = draw()\n        {TEST}",
}
EPOCH = """\
def draw():
    i = torch.randint(100, (16,))
    return x[i], y[i]
for epoch in range(3):
    for k in range(0, 100, 16):
        a, b = {batch}
        loss = F.cross_entropy(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = 0
    {evaluation}
    print(right)
"""


@pytest.mark.parametrize("evaluation", EVALUATED)
def test_an_evaluation_beside_the_steps_is_of_whole_batches(evaluation: str, result: Callable[..., FileResult]) -> None:
    """Of one process's rows alone, the count that is printed would be too small."""
    text = EVALUATED[evaluation]
    drawn = "draw()" if "draw()" in text else "x[k : k + 16], y[k : k + 16]"
    if "randint" in text:
        drawn = "x[i := torch.randint(100, (16,))], y[i]"
    loop = EPOCH.format(batch=drawn, evaluation=text)
    after = result(SCRIPT.format(top=DATA, model=MODEL, loop=loop)).after.decode()
    trained, _, evaluated = after.partition("    right = 0\n")
    assert "shard_batch(" in trained
    assert evaluated == f"    {text}\n    accelerator.print(right)\n\n"


REFUSED = {
    "a graph": ("adjacency = torch.rand(100, 100)", "loss = F.cross_entropy(model(torch.mm(adjacency, x)), y)"),
    "pairs of rows": ("", "z = model(x)\n    loss = (z @ z.t()).mean()"),
    "a mean of the batch": ("", "z = model(x)\n    loss = (z - z.mean(0)).pow(2).mean()"),
    "an order of the rows": ("", "loss = F.cross_entropy(model(x).softmax(0), y)"),
    "a root of a mean": ("", "loss = F.mse_loss(model(x)[:, 0], y.float()).sqrt()"),
    "rows by their place": ("", "loss = F.cross_entropy(model(x)[:50], y[:50])"),
    "a sum of rows that are nobody knows where": (
        "",
        "i = torch.randint(100, (16,))\n    w = y[i].float()\n"
        "    each = w.repeat(model(x[i]).size(1), 1).transpose(0, 1)\n"
        "    loss = (model(x[i]) * each).sum() / w.sum()",
    ),
    "something that no table knows": ("from losses import triplets", "loss = triplets(model(x), y)"),
    "a dimension that is not written": ("d = pick()", "loss = F.mse_loss(model(x).sum(dim=d), y.float())"),
    "an environment of gymnasium": (
        "import gymnasium\nenvironment = gymnasium.make('CartPole-v1')",
        "loss = F.cross_entropy(model(x), y)",
    ),
    "an environment of gym": ("import gym\nenvironment = gym.make('CartPole-v1')", "loss = model(x).mean()"),
    "features taken for columns": ("", "loss = F.mse_loss(model(x[step]).sum(), y[step].float())"),
    "each row with each": ("", "loss = F.mse_loss(model(x)[:, 0].view(-1), y.float().unsqueeze(1).view(-1, 1))"),
}


@pytest.mark.parametrize(("top", "step"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_rows_is_refused(top: str, step: str, check_noop: Callable[..., None]) -> None:
    check_noop(script(f"for step in range(9):\n    {step}", f"{top}\n{DATA}"), "no-data-parallel-axis")


MASKS = {
    "a list of truths": "torch.tensor([False] * 100)",
    "a type": "torch.arange(100).to(torch.bool)",
    "a comparison": "torch.arange(100) < 80",
    "a comparison, as an array": "torch.from_numpy(np.array([k < 80 for k in range(100)]))",
    "a type of arrays": "torch.from_numpy(np.zeros(100, dtype=np.bool_))",
    "bytes": "torch.ByteTensor([1] * 80 + [0] * 20)",
    "all but another": "~(torch.arange(100) > 80) & torch.ones(100).bool()",
}
GRAPH = """\
from graphs import load
graph = load()
chosen = {made}
"""


@pytest.mark.parametrize("made", MASKS.values(), ids=MASKS)
def test_a_mask_over_all_rows_of_a_graph_is_no_batch(
    made: str, result: Callable[..., FileResult], migrated: Migrated
) -> None:
    """What the graph gives has all rows, and a shard of the mask fewer. By their places a share can be chosen."""
    loop = "for step in range(9):\n    out = model(graph)\n    loss = F.cross_entropy(out[chosen], graph.y[chosen])"
    top = GRAPH.format(made=made)
    (found,) = [one for one in result(script(loop, top)).diagnoses if one.severity.value == "blocked"]
    assert found.id == "no-data-parallel-axis" and "`chosen` is a mask" in found.message, found.message
    assert "chosen = chosen.nonzero().squeeze(1)" in found.remedy
    followed = migrated(script(loop, f"{top}chosen = chosen.nonzero().squeeze(1)\n"))
    assert "chosen = accelerator.shard_batch(chosen)\nfor step" in followed


@pytest.mark.parametrize("asked", ["set(chosen)", "set(chosen.tolist())", "frozenset(chosen.cpu().numpy())"])
def test_what_is_no_row_of_the_batch_is_asked_of_all_rows(asked: str, migrated: Migrated) -> None:
    """The rest of the rows was another one on each process, and the figure of the run that of other rows."""
    loop = "for step in range(9):\n    out = model(graph)\n    loss = F.cross_entropy(out[chosen], graph.y[chosen])"
    new = migrated(script(f"{loop}\n    rest = set(range(100)) - {asked}", GRAPH.format(made="torch.arange(80)")))
    assert "chosen_shard = accelerator.shard_batch(chosen)\nfor step" in new
    assert "F.cross_entropy(out[chosen_shard], graph.y[chosen_shard])" in new
    assert f"rest = set(range(100)) - {asked}\n" in new


OWN = """\
import sys

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, rows):
        return self.layer(rows)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Own() if "own" in sys.argv else {other}
        self.head = nn.Linear(8, 2)

    def forward(self, rows):
        return self.head(self.body(rows))

model = Net().to(device)"""


@pytest.mark.parametrize(
    ("other", "cut"),
    [
        ("nn.Linear(8, 8)", True),
        ("nn.Sequential(Own(), torch.nn.utils.weight_norm(nn.Linear(8, 8)))", True),
        ("nn.Softmax(dim=0)", False),
    ],
)
def test_a_layer_by_option_is_followed_beside_one_of_the_program(
    other: str, cut: bool, result: Callable[..., FileResult]
) -> None:
    """The class of the program alone was followed: a layer that mixes the rows was cut."""
    file = result(
        script("for step in range(9):\n    loss = F.cross_entropy(model(x), y)", model=OWN.format(other=other))
    )
    assert file.blocked != cut
    assert cut or "Softmax works along the dimension" in file.diagnoses[0].message


def test_a_dimension_that_only_a_run_knows_is_named(result: Callable[..., FileResult]) -> None:
    """The reason was "along which dimension is not written": of what, nobody could tell."""
    top = "def centred(rows):\n    dim = 0 if rows.ndim == 2 else (0, 1)\n    return rows - rows.mean(dim)\n"
    step = "loss = F.mse_loss(model(centred(x[i])), y[i].float().unsqueeze(1))"
    loop = f"for step in range(9):\n    i = torch.randint(100, (16,))\n    {step}"
    (found,) = [each for each in result(script(loop, f"{top}{DATA}")).diagnoses if each.id == "no-data-parallel-axis"]
    assert "along which dimension `rows.mean(...)` goes (`dim`), perhaps over the rows" in found.message


def test_accelerate_has_no_method_for_it(check_noop: Callable[..., None]) -> None:
    check_noop(script(CUT["the whole data"][0]), "no-data-parallel-axis", target=Target.ACCELERATE)


FOLDS = """\
import numpy as np
import torch
from sklearn.model_selection import KFold
from data import X, Y

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
out = np.zeros(len(X))
for fold, (train, test) in enumerate(KFold(3).split(X.numpy())):
    model = torch.nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = X[train].to(device), Y[train].to(device)
    for epoch in range(2):
        order = torch.randperm(len(train))
        for start in range(0, len(train), 16):
            rows = order[start : start + 16]
            loss = torch.nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        out[test] = model(X[test].to(device)).squeeze(1).cpu().numpy()
print(out.mean())
"""


def test_folds_are_no_loader_and_an_evaluation_of_whole_rows_is_no_obstacle(result: Callable[..., FileResult]) -> None:
    """Every process evaluates all rows of a fold, and trains on its share of a batch."""
    file = result(FOLDS)
    assert "rows = accelerator.shard_batch(order[start : start + 16])" in file.after.decode()
    assert [found.id for found in file.diagnoses] == ["sharded-batch"]


WITHOUT_GRADIENT = """\
from torch.utils.data import DataLoader, TensorDataset
valid = DataLoader(TensorDataset(x, y), 16)
for step in range(9):
    with {off}:
        for a, b in valid:
            loss = F.cross_entropy(model(a), b)
            print(loss.item())
    i = torch.randint(100, (16,))
    loss = F.cross_entropy(model(x[i]), y[i])"""


@pytest.mark.parametrize(
    "off", ["open('log')", "torch.no_grad()", "torch.set_grad_enabled(False)", "torch.inference_mode()"]
)
def test_an_evaluation_beside_the_steps_is_no_part_of_the_training(off: str, migrated: Migrated) -> None:
    text = migrated(script(WITHOUT_GRADIENT.format(off=off)))
    assert "i = accelerator.shard_batch(torch.randint(100, (16,)))" in text


CHOSEN = """\
import sys
def measure(out, y):
    if sys.argv[1] == "first":
        return {first}
    return {second}
for step in range(9):
    i = torch.randint(100, (16,))
    loss = measure(model(x[i]), y[i])"""
ROOT = "torch.sqrt(F.cross_entropy(out, y))"


def test_a_loss_that_may_be_chosen_and_is_no_mean_is_named(result: Callable[..., FileResult]) -> None:
    """The option that is given may be the mean, which is cut as ever: it is refused for the other one no more than with
    a loader."""
    file = result(script(CHOSEN.format(first="F.cross_entropy(out, y)", second=ROOT)))
    assert "i = accelerator.shard_batch(torch.randint(100, (16,)))" in file.after.decode()
    told = {found.id: found for found in file.diagnoses}
    assert told.keys() == {"weighted-mean", "sharded-batch"}
    assert "if another loss is chosen" in told["weighted-mean"].remedy
    assert "what one process computes, but for the loss that another finding names" in told["sharded-batch"].message


@pytest.mark.parametrize("first", [ROOT, "F.cross_entropy(out, y, reduction='sum')"], ids=["no other", "or a sum"])
def test_a_loss_that_is_no_mean_whatever_is_chosen_is_refused(first: str, check_noop: Callable[..., None]) -> None:
    check_noop(script(CHOSEN.format(first=first, second=ROOT)), "no-data-parallel-axis")


def test_the_last_batch_is_gathered_once(migrated: Migrated) -> None:
    """Each step joins it for the totals: joined again after the training, all rows came twice."""
    loop = (
        "for epoch in range(3):\n    right = 0\n    for k in range(0, 100, 16):\n"
        "        a, b = x[k : k + 16], y[k : k + 16]\n        output = model(a)\n"
        "        loss = F.cross_entropy(output, b)\n        optimizer.zero_grad()\n        loss.backward()\n"
        "        optimizer.step()\n        right += (output.argmax(1) == b).sum().item()\n    print(right / 100)\n"
        "print(len(b), (output.argmax(1) == b).sum().item())\n"
    )
    text = migrated(SCRIPT.format(top=DATA, model=MODEL, loop=loop))
    assert text.count("gather_for_metrics") == 1
    assert "        output, b = accelerator.gather_for_metrics((output, b))\n        right +=" in text


def test_a_step_that_gives_a_table_of_a_loss_and_numbers(migrated: Migrated) -> None:
    """Its loss was a mean beside a sum, and no mean: it was refused."""
    top = DATA + (
        "def step(a, b):\n    out = model(a)\n    hits = (out.argmax(1) == b).sum().item()\n"
        "    return {'loss': F.cross_entropy(out, b), 'hits': hits, 'n': len(b)}\n"
    )
    loop = (
        "for epoch in range(3):\n    hits = seen = 0\n    for k in range(0, 100, 16):\n"
        "        result = step(x[k : k + 16], y[k : k + 16])\n        optimizer.zero_grad()\n"
        "        result['loss'].backward()\n        optimizer.step()\n        hits += result['hits']\n"
        "        seen += result['n']\n    print(hits / seen)\n"
    )
    text = migrated(SCRIPT.format(top=top, model=MODEL, loop=loop))
    assert "accelerator.backward(result['loss'])" in text
    for key in ("hits", "n"):
        assert f"+= accelerator.reduce(torch.tensor(result['{key}'], device=accelerator.device), reduction=" in text


BY_COLUMNS = """\
import torch
from torch import nn

torch.manual_seed(0)
tokens = torch.randint(0, 50, (20, 400))


def columns(rows):
    return rows.t().contiguous()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.rnn = nn.LSTM(8, 8)
        self.head = nn.Linear(8, 50)

    def forward(self, x):
        out, _ = self.rnn(self.words(x))
        return self.head(out).view(-1, 50)


def batch(source, i):
    return source[i : i + 8], source[i + 1 : i + 9].reshape(-1)


train_data = columns(tokens)
model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    total = 0.0
    for step, i in enumerate(range(0, train_data.size(0) - 9, 8)):
        x, y = batch(train_data, i)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 5 == 0 and step > 0:
            mean = total / 5
            print(step, len(train_data) // 8, mean)
            total = 0


train()
"""


def test_a_length_beside_a_figure_keeps_it_from_nothing(migrated: Migrated) -> None:
    """The rows of the data were taken for something that nobody can join, and the printed loss stayed one process's."""
    text = migrated(BY_COLUMNS)
    assert 'total += accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert "accelerator.print(step, len(train_data_shard) // 8, mean)" in text


ARRAYS = """\
import numpy as np
import torch
images, labels = np.random.rand(100, 8, 8, 3), np.random.randint(0, 2, 100)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def as_tensor(rows):
    return torch.from_numpy({turned}).float()
for step in range(50):
    chosen = np.random.randint(len(images), size=16)
    x, y = as_tensor(images[chosen]), torch.from_numpy(labels[chosen])
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("turned", "shared"),
    [
        ("rows.transpose((0, 3, 1, 2))", True),
        ("rows.transpose(0, 3, 1, 2)", True),
        ("np.transpose(rows, (0, 3, 1, 2))", True),
        ("rows.transpose((3, 1, 2, 0))", False),
        ("rows.transpose(order)", False),
    ],
)
def test_the_dimensions_of_an_array_may_be_ordered_anew(turned: str, shared: bool) -> None:
    """Pictures with their channels last: the script was refused, though the rows stay first."""
    script = ARRAYS.format(turned=turned)
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("accelerator.shard_batch(" in file.after.decode()) is shared and file.blocked is not shared
