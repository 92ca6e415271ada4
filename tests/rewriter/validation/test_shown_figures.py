"""What leaves the process and is computed from its own rows is found in the emitted program, whoever computes it."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.validation.check import ModuleTexts, check

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    @property
    def mean(self):
        return self.total / self.count


def share(output, target):
    hits = [int(guess == wanted) for guess, wanted in zip(output.argmax(1).tolist(), target.tolist())]
    return {"share": sum(hits) / len(hits)}


accelerator = Accelerator()
rows = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader, valid = DataLoader(rows, batch_size=8), DataLoader(rows, batch_size=8)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader, valid = accelerator.prepare(model, optimizer, loader, valid)
seen, other, found = Meter(), Meter(), {}
for step, (x, y) in enumerate(loader):
    output = model(x)
    loss = nn.functional.cross_entropy(output, y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""

PLACES = {
    "a loss of a step": ("    accelerator.print(step, loss.item())\n", ["loss"]),
    "a mean in an object": (
        "    seen.update(loss.item(), len(x))\n    other.update(1.0)\naccelerator.print(seen.mean, other.mean)\n",
        ["seen.mean"],
    ),
    "what another function makes of rows, kept under a name": (
        "    for name, value in share(output, y).items():\n        found.setdefault(name, []).append(value)\n"
        "for name, values in found.items():\n    accelerator.print(name, sum(values) / len(values))\n",
        ["values", "values"],
    ),
    "what is put into a list in a table": (
        "    found.setdefault('losses', []).append(loss.item())\naccelerator.print(max(found['losses']))\n",
        ["found"],
    ),
    "one entry of a table": (
        "    found.setdefault('all', 0.0)\n    found['own'], found['all'] = loss.item(), 1.0\n"
        "accelerator.print(found['all'], found['own'])\n",
        ["found"],
    ),
    "the other entry of a table": (
        "    found['own'] = loss.item()\n    found['all'] = accelerator.gather(loss).mean().item()\n"
        "def last():\n    return found['all']\naccelerator.print(found['all'], last())\n",
        [],
    ),
    "a table as a whole": (
        "    found['own'] = loss.item()\n    found['all'] = 1.0\naccelerator.print(found)\n",
        ["found"],
    ),
    "an entry by a name": (
        "    found['own'] = loss.item()\nkey = 'own'\naccelerator.print(found[key])\n",
        ["found"],
    ),
    "rows that are added up": ("    found['rows'] += x.size(0)\naccelerator.print(found['rows'])\n", ["found"]),
    "a count that a condition decides": (
        "    for guess, wanted in zip(output.argmax(1), y):\n        if guess == wanted:\n"
        "            found['hits'] = found.get('hits', 0) + 1\naccelerator.print(found)\n",
        ["found"],
    ),
    "what a model makes of fresh noise": (
        "    noise = torch.randn(x.size(0), 4)\n    made = model(noise)\n    accelerator.print(made.mean().item())\n",
        ["made"],
    ),
    "what is drawn by hand": (
        "    pass\nbatches = iter(loader)\nfor _ in range(3):\n    x, y = next(batches)\n"
        "    accelerator.print(model(x).mean())\n",
        ["x"],
    ),
    "what a function shows for its callers": (
        "    hits = (output.argmax(1) == y).sum().item()\n    worst = loss.item()\n"
        "def tell(text):\n    accelerator.print(text)\n"
        "def say(text, *more):\n    tell(text % more)\n"
        "tell('begun %d' % len(rows))\ntell('hits %d' % hits)\nsay('worst %f', worst)\n",
        ["worst", "hits"],
    ),
    "one of the values that a function returns": (
        "    def parts(out, at):\n        return out.mean(), min(1, at / 9)\n"
        "    mean, weight = parts(output, step)\n    accelerator.print(mean, weight)\n",
        ["mean"],
    ),
    "a value of a function that returns in two ways": (
        "    def parts(out, at):\n        if at:\n            return out.mean(), at\n        return both(out)\n"
        "    mean, weight = parts(output, step)\n    accelerator.print(mean, weight)\n",
        ["mean", "weight"],
    ),
    "what a logger of the script writes to its file": (
        "    class Log:\n        def __init__(self):\n            self.file = open('log.txt', 'a')\n"
        "        def put(self, name, value):\n            self.file.write(f'{name} {value}')\n"
        "    log = Log()\n    log.put('step', step)\n    log.put('loss', loss.item())\n"
        "    for name, value in {'worst': output.max().item()}.items():\n        log.put(name, value)\n",
        ["loss", "value"],
    ),
    "what is written to an open file": (
        "    import csv\n    with open('log.txt', mode=mode) as file:\n        print(loss, file=file)\n"
        "        csv.writer(file).writerow([step, output.mean()])\n",
        ["loss", "output"],
    ),
    "what a tracker is given in another way": (
        "    import tensorflow as tf\n    board = tf.summary.FileWriter('runs')\n"
        "    def put(name, value):\n"
        "        board.add_summary(tf.Summary(value=[tf.Summary.Value(name, value)]), step)\n"
        "    put('loss', loss.item())\n"
        "    for name, value in model.named_parameters():\n        put(name, value.detach())\n",
        ["loss"],
    ),
    "what a function returns": (
        "    pass\ndef evaluate():\n    worst = []\n    for x, y in valid:\n"
        "        worst.append((model(x).argmax(1) != y).float().mean().item())\n    return max(worst)\n"
        "result = evaluate()\naccelerator.print(result)\n",
        ["result"],
    ),
    "what is drawn into a picture, and what a function draws": (
        "    x = x\nimport matplotlib.pyplot as plt\nimport seaborn as sns\n"
        "def draw(values):\n    fig, axes = plt.subplots(1, 2)\n    axes[0].hist(values)\n    fig.savefig('a.png')\n"
        "plt.imshow(output.detach().numpy())\nplt.savefig('b.png')\nsns.heatmap(loss.detach())\ndraw(y.tolist())\n",
        ["y", "output", "loss"],
    ),
    "the worst row of a batch that the script cut by itself": (
        "worst = 0.0\nfor start in range(0, 64, 8):\n    x, y = accelerator.shard_batch(rows[start : start + 8])\n"
        "    each = nn.functional.cross_entropy(model(x), y, reduction='none')\n    accelerator.backward(each.mean())\n"
        "    worst = max(worst, each.max().item())\naccelerator.print(worst)\n",
        ["worst"],
    ),
    "a figure of which the reduction may be passed by": (
        "last = 0.0\nfor x, y in valid:\n    last = nn.functional.cross_entropy(model(x), y)\n"
        "    if found:\n        continue\n    last = accelerator.reduce(last.detach(), reduction='mean')\n"
        "accelerator.print(last)\n",
        ["last"],
    ),
}
WHOLE = {
    "a forward pass with noise, over rows that every process has": (
        "    pass\nclass Noisy(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.inner = nn.Linear(4, 2)\n    def forward(self, x):\n"
        "        return self.inner(x + torch.randn(4))\nnoisy = Noisy()\n"
        "noisy, optimizer = accelerator.prepare(noisy, torch.optim.SGD(noisy.parameters(), lr=0.1))\n"
        "for x, y in loader:\n    accelerator.backward(nn.functional.cross_entropy(noisy(x), y))\n"
        "    optimizer.step()\nright, whole = 0, DataLoader(rows, batch_size=8)\nfor x, y in whole:\n"
        "    right += noisy(x).argmax(1).eq(y).sum().item()\naccelerator.print(right)\n"
    ),
    "what figures are called": (
        "    found['loss'] = loss.item()\nfor name in sorted(found.keys()):\n    accelerator.print(name)\n"
    ),
    "the last batch, which each step joins": (
        "for x, wanted in loader:\n    scores = model(x)\n"
        "    accelerator.backward(nn.functional.cross_entropy(scores, wanted))\n"
        "    scores, wanted = accelerator.gather_for_metrics((scores, wanted))\n"
        "accelerator.print(wanted.tolist(), scores.argmax(1).tolist())\n"
    ),
    "rows of a batch that the script cut by itself, joined": (
        "for start in range(0, 64, 8):\n    x, y = accelerator.shard_batch(rows[start : start + 8])\n"
        "    output = model(x)\n    accelerator.backward(nn.functional.cross_entropy(output, y))\n"
        "    output = accelerator.gather_for_metrics(output)\n    accelerator.print(output.argmax(1).tolist())\n"
    ),
    "what is reduced under its own name, and read after the loop": (
        "last = 0.0\nfor x, y in valid:\n    last = nn.functional.cross_entropy(model(x), y)\n"
        "    last = accelerator.reduce(last.detach(), reduction='mean')\naccelerator.print(last)\n"
    ),
    "what is reduced": "    loss = accelerator.reduce(loss.detach(), reduction='mean')\n    accelerator.print(loss)\n",
    "a name that is bound anew to the rows of all": (
        "    output, y = accelerator.gather_for_metrics((output, y))\n    found.update(share(output, y))\n"
        "accelerator.print(found)\n"
    ),
    "what is computed from rows that are joined": (
        "right = 0\nfor x, y in valid:\n    output = model(x)\n"
        "    output, y = accelerator.gather_for_metrics((output, y))\n"
        "    right += output.argmax(1).eq(y.view(-1)).sum().item()\naccelerator.print(right / len(rows))\n"
    ),
    "a name that held a batch and is set anew": (
        "    x[0] = 0.0\nx = [len(rows)]\nx.append(1)\naccelerator.print(x)\n"
    ),
    "how many entries an array of totals has": (
        "    totals = output.sum(0).detach().numpy()\n    accelerator.print(totals.size)\n"
    ),
    "counts of steps, shapes, weights": (
        "    many = len(x)\n    accelerator.print(step, x.shape, many, x.dtype, model.weight.norm())\n"
    ),
    "weights that are drawn": (
        "    x = x\nimport matplotlib.pyplot as plt\nplt.imshow(model.weight.detach().numpy())\nplt.title(len(rows))\n"
    ),
    "how many entries an array has": (
        "    found['means'] = output.detach().mean(0).numpy()\ntable = found['means']\naccelerator.print(table.size)\n"
    ),
    "what is read from a file, or given to one": (
        "    pass\nimport json\nfile = open('seen.json')\nheld = json.load(file)\nheld.update(len(rows))\n"
        "accelerator.print(held, file.read())\nopen('log.txt', 'w').write(str(len(rows)))\n"
    ),
    "what a package gives beside own rows": (
        "    both = torch.eye(2).unsqueeze(0).expand_as(output)\nweights = torch.ones(3)\n"
        "whole = torch.cat([model(x) for x in rows.tensors[0].split(8)]).mean()\naccelerator.print(weights, whole)\n"
    ),
    "noise that is drawn once, or by a generator of its own": (
        "    pass\nfixed, own = torch.randn(4, 4), torch.Generator().manual_seed(0)\nfor x, y in loader:\n"
        "    accelerator.backward(nn.functional.cross_entropy(model(x), y))\n    optimizer.step()\n"
        "    again = torch.randn(4, 4, generator=own)\n"
        "    accelerator.print(model(fixed).mean(), model(again).mean())\n"
    ),
    "what an object computes from joined rows by what it calls": (
        "class App:\n    def __init__(self):\n        self.model, self.criterion = model, nn.CrossEntropyLoss()\n"
        "    def step(self, x, y):\n        accelerator.backward(self.criterion(self.model(x), y))\n"
        "    def evaluate(self):\n        total = 0.0\n        for x, y in valid:\n"
        "            output, y = accelerator.gather_for_metrics((self.model(x), y))\n"
        "            total += self.criterion(output, y).item()\n        return total\n"
        "app = App()\nfor x, y in loader:\n    app.step(x, y)\n    app_loss = app.evaluate()\n"
        "    accelerator.print(app_loss)\n"
    ),
    "what is reduced in an object": (
        "    seen.update(accelerator.reduce(loss.detach(), reduction='mean').item())\naccelerator.print(seen.mean)\n"
    ),
}

EARLY = {
    "a loop over it, which ends at once": (
        "batches = iter(loader)\nfor x in enumerate(batches):\n    print(x)\n    break\n"
    ),
    "one batch that is drawn": "x, y = next(iter(loader))\nprint(x)\n",
    "one batch of a loader that a function makes": (
        "def batches():\n    return DataLoader(rows, batch_size=8)\nloader = batches()\n"
        "x, y = next(iter(loader))\nprint(x)\n"
    ),
    "each of several that are made": (
        "for fold in range(2):\n    loader = DataLoader(rows, batch_size=8)\n    for x in loader:\n        print(x)\n"
        "    loader = accelerator.prepare(loader)\n"
    ),
}
LATE = {
    "a loop that comes back to it": (
        "for fold in range(2):\n    for x in loader:\n        print(x)\n    loader = accelerator.prepare(loader)\n"
    ),
    "a function that makes one more": (
        "def batches():\n    return DataLoader(rows, batch_size=8)\nloader = batches()\n"
        "loader = accelerator.prepare(loader)\nx, y = next(iter(loader))\nprint(x)\nloader = batches()\n"
    ),
    "a function that is called later": "def look():\n    for x in loader:\n        print(x)\n",
}


def shown(body: str) -> list[str]:
    tree = cst.parse_module(HEAD + body)
    text = ModuleTexts(ENTRY, tree, tree)
    figures = check([text], (), ModulePaths({ENTRY: Place(ENTRY)})).figures
    return [figure.words for figure in figures]


@pytest.mark.parametrize("what", PLACES)
def test_figures_of_own_rows_are_found(what: str) -> None:
    body, wanted = PLACES[what]
    assert list(dict.fromkeys(shown(body))) == list(dict.fromkeys(wanted))


@pytest.mark.parametrize(("early", "words"), [*((e, []) for e in EARLY.values()), *((e, ["x"]) for e in LATE.values())])
def test_the_rows_of_a_loader_that_is_not_prepared_yet_are_those_of_all(early: str, words: list[str]) -> None:
    prepare = "model, optimizer, loader, valid = accelerator.prepare(model, optimizer, loader, valid)"
    head = HEAD.replace(prepare, "" if "prepare(loader)" in early else early + prepare)
    head = head.replace("seen, other", f"{early}seen, other" if "prepare(loader)" in early else "seen, other")
    tree = cst.parse_module(f"{head}look()\n" if "look" in early else head)
    text = ModuleTexts(ENTRY, tree, tree)
    assert [f.words for f in check([text], (), ModulePaths({ENTRY: Place(ENTRY)})).figures] == words


COUNTS = {
    "one more than the last number": ("accelerator.print('%d done' % (i + 1))\n", ["i"]),
    "put into a text": ("accelerator.print('{} done, {}'.format(i + 1, str(i)))\n", ["i"]),
    "under a name": ("many = i + 1\naccelerator.print(f'{many} done')\n", ["many"]),
    "counted on": ("i = i + 1\ni = i + 1\naccelerator.print(i)\n", []),
    "in the loop": ("    accelerator.print(i)\n", []),
    "of the training": ("accelerator.print(step + 1)\n", []),
    "what is divided by it": ("accelerator.print(right / (i + 1))\n", []),
    "of another loop after it": ("for i in range(3):\n    right += 1\naccelerator.print(i)\n", []),
}


@pytest.mark.parametrize("what", COUNTS)
def test_the_number_of_batches_that_one_process_evaluates_is_a_figure(what: str) -> None:
    """`for i, ... in enumerate(loader)` ends at the batches of this process."""
    loop = (
        "right = 0\nfor i, (x, y) in enumerate(valid):\n"
        "    hits = accelerator.gather_for_metrics(model(x).argmax(1).eq(y))\n    right += hits.sum().item()\n"
    )
    body, wanted = COUNTS[what]
    assert shown(loop + body) == wanted


@pytest.mark.parametrize("what", WHOLE)
def test_what_is_equal_on_all_processes_is_not_named(what: str) -> None:
    assert shown(WHOLE[what]) == []


def test_figures_of_training_and_of_an_evaluation_are_told_apart() -> None:
    body = PLACES["what a function returns"][0] + PLACES["a loss of a step"][0].replace("    ", "", 1)
    tree = cst.parse_module(HEAD + body)
    found = check([ModuleTexts(ENTRY, tree, tree)], (), ModulePaths({ENTRY: Place(ENTRY)})).figures
    assert {figure.words: figure.invariant for figure in found} == {
        "result": "evaluation-figures",
        "loss": "training-figures",
    }
