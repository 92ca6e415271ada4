"""The rule `shard_batch` where something else than a loader hands the batches out."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent

import pytest

from torchlift.rewriter.result import FileResult

Migrated = Callable[[str], str]
Result = Callable[[str], FileResult]

STEP = """\
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""
MODEL = """\
model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def script(top: str, loop: str, model: str = MODEL) -> str:
    """A training by hand: what hands its batches out, and the head of the loop with the loss of one turn."""
    head = "import numpy as np\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
    return head + dedent(top) + dedent(model) + dedent(loop).rstrip() + "\n" + indent(STEP, "    ")


GENERATOR = """
def batches(x, y, size):
    order = np.random.permutation(len(x))
    for start in range(0, len(x), size):
        rows = order[start:start + size]
        yield torch.from_numpy(x[rows]), torch.from_numpy(y[rows])

x, y = np.load("x.npy"), np.load("y.npy")
"""
CLASS = """
class Batches:
    def __init__(self, x, y, size):
        self.x, self.y, self.size, self.at = x, y, size, 0

    def pack(self, x, y):
        return (torch.FloatTensor(x), torch.LongTensor([len(row) for row in x])), torch.LongTensor(y)

    def __next__(self):
        if self.at >= len(self.x):
            self.at = 0
            raise StopIteration
        start, self.at = self.at, self.at + self.size
        return self.pack(self.x[start:self.at], self.y[start:self.at])

    def __iter__(self):
        return self

feed = Batches(np.load("x.npy"), np.load("y.npy"), 16)
"""
SEEN = """
def collect(rows):
    seen = torch.ones(len(rows), len(rows[0]))
    return torch.stack(rows), seen

def cut(rows):
    for start in range(0, len(rows), 16):
        yield rows[start:start + 16]

held = list(cut(list(torch.load("rows.pt"))))
"""
FILLED = """
def gather(rows, order, start, end):
    held = np.zeros((end - start, 8))
    for i in range(end - start):
        held[i, :] = rows[order[start + i]]
    return held

rows = torch.load("rows.pt")
order = np.random.permutation(len(rows))
"""
CRITERIA = """
def squared(null):
    return lambda scores, labels: ((scores - labels) ** 2).mean()

def rooted(null):
    return lambda scores, labels: torch.sqrt(squared(scores=scores, labels=labels, null=null))

def chosen(name):
    if name == "rooted":
        return rooted(0)
    return squared(0) if name == "squared" else nn.L1Loss()
"""
CUT = {
    "losses by option, of which one fails when it is called": (
        GENERATOR + CRITERIA + "import sys\ncriterion = chosen(sys.argv[1])\n",
        "for a, b in batches(x, y, 16):\n    loss = criterion(model(a), b)\n",
        "    a, b = accelerator.shard_batch((a, b))\n    loss",
    ),
    "a function that fills them, from the numbers of a turn": (
        FILLED,
        "for b in range(len(rows) // 16):\n    start, end = b * 16, min((b + 1) * 16, len(rows))\n"
        "    held = gather(rows, order, start, end)\n"
        "    a = torch.from_numpy(held).to(torch.get_default_dtype()) + torch.finfo(torch.float32).eps\n"
        "    loss = F.mse_loss(model(a)[:, 0], a[:, 0])\n",
        "a = accelerator.shard_batch(torch.from_numpy(held)).to(torch.get_default_dtype())",
    ),
    "a part that is made with its shape, and repeated": (
        SEEN,
        "for step in range(len(held)):\n    a, seen = collect(held[step])\n"
        "    wide = seen[:, 0].repeat(8, 1).transpose(0, 1)\n"
        "    loss = F.mse_loss(model(a * wide)[:, 0], a[:, 0])\n",
        "a, seen = accelerator.shard_batch(collect(held[step]))",
    ),
    "a generator": (
        GENERATOR,
        "for a, b in batches(x, y, 16):\n    loss = F.cross_entropy(model(a), b)\n",
        "    a, b = accelerator.shard_batch((a, b))\n    loss",
    ),
    "with a counter and a bar": (
        "from tqdm import tqdm\n" + GENERATOR,
        "for i, (a, b) in enumerate(tqdm(batches(x, y, 16))):\n    loss = F.cross_entropy(model(a), b)\n",
        "    a, b = accelerator.shard_batch((a, b))\n    loss",
    ),
    "asked for one by one": (
        GENERATOR + "feed = batches(x, y, 16)\n",
        "for step in range(9):\n    a, b = next(feed)\n    loss = F.cross_entropy(model(a), b)\n",
        "a, b = accelerator.shard_batch(next(feed))",
    ),
    "asked for again after the last one": (
        "import rows_of\nsource = rows_of.open('x')\nfeed = source.iter(16)\n",
        "for step in range(9):\n    try:\n        batch = next(feed)\n    except StopIteration:\n"
        "        feed = source.iter(16)\n        batch = next(feed)\n"
        "    loss = F.cross_entropy(model(torch.tensor([r.x for r in batch])), torch.tensor([r.y for r in batch]))\n",
        "        batch = next(feed)\n    batch = accelerator.shard_batch(batch)\n    loss",
    ),
    "a pair, asked for again after the last one": (
        GENERATOR + "feed = batches(x, y, 16)\n",
        "for step in range(9):\n    try:\n        a, b = next(feed)\n    except StopIteration:\n"
        "        feed = batches(x, y, 16)\n        a, b = next(feed)\n    loss = F.cross_entropy(model(a), b)\n",
        "        a, b = next(feed)\n    a, b = accelerator.shard_batch((a, b))\n    loss",
    ),
    "one of two feeds": (
        GENERATOR + "feed, other = batches(x, y, 16), batches(x, y, 16)\n",
        "for step in range(9):\n    if step % 2 == 0:\n        a, b = next(feed)\n    else:\n"
        "        a, b = next(other)\n    loss = F.cross_entropy(model(a), b)\n",
        "        a, b = next(other)\n    a, b = accelerator.shard_batch((a, b))\n    loss",
    ),
    "a feed that is started anew": (
        GENERATOR,
        "for step in range(9):\n    if step % 3 == 0:\n        feed = batches(x, y, 16)\n    a, b = next(feed)\n"
        "    loss = F.cross_entropy(model(a), b)\n",
        "a, b = accelerator.shard_batch(next(feed))",
    ),
    "an iterator class, a part of which is a tuple": (
        CLASS,
        "for inputs, b in feed:\n    loss = F.cross_entropy(model(inputs[0]), b)\n",
        "    inputs, b = accelerator.shard_batch((inputs, b))\n    loss",
    ),
    "rows that become arrays": (
        "from sampling import Sampler\nsampler = Sampler()\n",
        "for step in range(9):\n    a, b = sampler.next_batch()\n    a, b = np.array(a), np.array(b)\n"
        "    loss = F.cross_entropy(model(torch.from_numpy(a)), torch.from_numpy(b))\n",
        "a, b = accelerator.shard_batch((np.array(a), np.array(b)))",
    ),
    "rows that become tensors": (
        GENERATOR.replace("torch.from_numpy(x[rows])", "x[rows]").replace("torch.from_numpy(y[rows])", "y[rows]"),
        "for a, b in batches(x, y, 16):\n    u = torch.Tensor(a)\n    v = torch.LongTensor(b)\n"
        "    loss = F.cross_entropy(model(u), v)\n",
        "u = accelerator.shard_batch(torch.Tensor(a))\n    v = accelerator.shard_batch(torch.LongTensor(b))",
    ),
}


@pytest.mark.hazard("U28")
@pytest.mark.parametrize(("top", "loop", "line"), CUT.values(), ids=CUT)
def test_what_is_handed_out_is_cut(top: str, loop: str, line: str, migrated: Migrated) -> None:
    new = migrated(script(top, loop))
    assert line in new
    assert new.count("shard_batch") == line.count("shard_batch")
    assert "accelerator.backward(loss)" in new
    assert migrated(new) == new


REFUSED = {
    "a batch that another branch computes": (
        GENERATOR + "feed = batches(x, y, 16)\n",
        "for step in range(9):\n    try:\n        a, b = next(feed)\n    except StopIteration:\n"
        "        a, b = last_of(step)\n    c = a[0].t()\n    loss = F.cross_entropy(model(c), b[0])\n",
        MODEL,
    ),
    "an iterator over what a turn has made": (
        GENERATOR,
        "for step in range(9):\n    whole = model(torch.from_numpy(x))\n    feed = iter(whole.t())\n"
        "    a = next(feed)\n    loss = a.mean()\n",
        MODEL,
    ),
    "one sentence after the other": (
        'texts = [(["a", "b"], 0), (["b"], 1)]\nids = {"a": 0, "b": 1}\n',
        "for words, tag in texts:\n    x = torch.tensor([ids[w] for w in words]).float()\n"
        "    loss = F.mse_loss(x.sum() * model[0].weight.sum(), torch.tensor(float(tag)))\n",
        MODEL,
    ),
    "steps of a sequence in front": (
        GENERATOR,
        "for a, b in batches(x, y, 16):\n    out, _ = model(a)\n    loss = F.mse_loss(out, b)\n",
        "model = nn.LSTM(8, 8)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
    ),
    "one of two batches": (
        GENERATOR,
        "for a, b in zip(read(), batches(x, y, 16)):\n    rows = b[0].t().t()\n"
        "    loss = F.mse_loss(model(a), torch.ones(16, 2)) - model(rows).mean()\n",
        MODEL,
    ),
    "half of a comparison": (
        GENERATOR,
        "for a, b in batches(x, y, 16):\n    z = model(a)\n    loss = (z @ z.t()).mean()\n",
        MODEL,
    ),
}


@pytest.mark.parametrize(("top", "loop", "model"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_rows_in_front_is_refused(top: str, loop: str, model: str, result: Result) -> None:
    file = result(script(top, loop, model))
    assert not file.changed
    assert {one.id for one in file.diagnoses} <= {"no-data-parallel-axis", "unknown-loader"}


def test_why_the_batches_of_an_own_class_cannot_be_cut_is_told(result: Result) -> None:
    """It was said that nobody can tell whether an object of a class that is there is a loader."""
    model = "model = nn.LSTM(8, 8)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    loop = "for inputs, b in feed:\n    out, _ = model(inputs[0])\n    loss = F.cross_entropy(out, b)\n"
    (told,) = result(script(CLASS, loop, model)).diagnoses
    assert told.id == "no-data-parallel-axis" and "LSTM reads the dimension of the rows" in told.message


def test_a_mean_over_chosen_entries_is_told(result: Result) -> None:
    loop = "for a, b in batches(x, y, 16):\n    known = b != 0\n    loss = F.cross_entropy(model(a)[known], b[known])\n"
    assert {"weighted-mean", "sharded-batch"} <= {one.id for one in result(script(GENERATOR, loop)).diagnoses}


def test_a_mask_that_is_divided_by_its_mean_is_told(result: Result) -> None:
    loop = (
        "for a, b in batches(x, y, 16):\n    mask = (b != 0).float()\n    mask /= torch.mean(mask)\n"
        "    loss = torch.mean((model(a)[:, 0] - b).abs() * mask)\n"
    )
    assert "weighted-mean" in [one.id for one in result(script(GENERATOR, loop)).diagnoses]


def test_the_square_of_a_norm_is_a_sum(migrated: Migrated) -> None:
    loop = (
        "for a, b in batches(x, y, 16):\n    z = model(a)\n"
        "    loss = F.cross_entropy(z, b) + 0.01 * z.norm(2).pow(2) / float(len(a))\n"
    )
    assert "accelerator.backward(loss)\n" in migrated(script(GENERATOR, loop))


def test_what_may_be_a_loader_can_be_named(result: Result) -> None:
    loop = "for a, b in feed:\n    loss = F.cross_entropy(model(a), b)\n"
    found = {one.id: one.remedy for one in result(script("from data import feed\n", loop)).diagnoses}
    assert "--assume loader=feed" in found["sharded-batch"]


def test_nothing_is_cut_twice(migrated: Migrated) -> None:
    loop = (
        "for step in range(9):\n    a, b = sampler.next_batch()\n    a, b = np.array(a), np.array(b)\n"
        "    a = torch.from_numpy(a)\n    loss = F.cross_entropy(model(a), torch.from_numpy(b))\n"
    )
    new = migrated(script("from sampling import Sampler\nsampler = Sampler()\n", loop))
    assert new.count("shard_batch") == 1


LAYERS = {
    "put into a list of modules": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(2):
            layer = nn.Linear(8, 8)
            self.layers.append(layer)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for i in range(2):
            x = self.layers[i](x)
        return self.out(x)
""",
    "copies of a layer": """
import copy

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.layers = nn.ModuleList([copy.deepcopy(self.block) for _ in range(2)])
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)
""",
    "a product by letters": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.ones(8, 2))

    def forward(self, x):
        return torch.einsum("bi,ij->bj", x, self.mix)
""",
}


@pytest.mark.parametrize("net", LAYERS.values(), ids=LAYERS)
def test_layers_are_followed(net: str, migrated: Migrated) -> None:
    model = net + "\nmodel = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    loop = "for a, b in batches(x, y, 16):\n    loss = F.cross_entropy(model(a), b)\n"
    assert "a, b = accelerator.shard_batch((a, b))" in migrated(script(GENERATOR, loop, model))


PAIR = """\
data = source.read("digits")
rows, latent = 32, 10
G = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 16))
D = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
optimizer = torch.optim.Adam(list(D.parameters()) + list(G.parameters()))
"""


def test_what_code_that_is_not_there_hands_out_is_cut_beside_the_noise(migrated: Migrated) -> None:
    """The loss joins rows of both: 32 rows of one and 16 of the other crashed, and one row was broadcast silently."""
    loop = """\
    for _ in range(100):
        z = torch.randn(rows, latent)
        x, _ = data.train.next_batch(rows)
        real = torch.from_numpy(x)
        loss = -torch.mean(torch.log(D(real)) + torch.log(1 - D(G(z))))
    """
    text = migrated(script("import source\n", loop, PAIR))
    assert "    z = accelerator.shard_batch(torch.randn(rows, latent))\n" in text
    assert "    x, _ = accelerator.shard_batch(data.train.next_batch(rows))\n" in text
    assert "accelerator.backward(loss)" in text


def test_rows_that_meet_what_may_be_a_whole_batch_are_not_cut(result: Result) -> None:
    loop = """\
    for step in range(100):
        z = torch.randn(rows, latent)
        start = np.random.randint(0, 900)
        real = table[start:start + rows]
        loss = -torch.mean(torch.log(D(real)) + torch.log(1 - D(G(z))))
    """
    found = result(script("import source\ntable = source.table()\n", loop, PAIR))
    assert found.after == found.source.data
    assert [one.id for one in found.diagnoses] == ["no-data-parallel-axis"]


UNLIKE = """
def pairs(words, others, size):
    for start in range(0, len(words), size):
        near = [w for w in words[start:start + size]]
        centre = [words[start]] * len(near)
        far = PARTS
        yield torch.tensor(near), torch.tensor(centre), torch.LongTensor(far)
"""
PAIRED = """
words = np.load("words.npy").tolist()
net = nn.Embedding(50, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
PAIR_LOOP = """
for near, centre, far in pairs(words, 5, 10):
    loss = -F.logsigmoid((net(near) * net(centre)).sum(1)).sum() - F.logsigmoid(-net(far).sum(1)).sum()
"""


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("[w for w in near for _ in range(others)]", "`far` has others rows for each row of `near`"),
        ("[v for u in centre for v in draw(u)]", "`far` has draw(u) rows for each row of `near`"),
    ],
    ids=["repeated", "several for each"],
)
def test_parts_with_more_rows_than_others_are_not_cut_together(made: str, reason: str, result: Result) -> None:
    """On two processes `shard_batch` raised BatchShapeError at the first step."""
    file = result(script(UNLIKE.replace("PARTS", made), PAIR_LOOP, PAIRED))
    (found,) = (one for one in file.diagnoses if one.severity.value == "blocked")
    assert reason in found.message and found.id == "no-data-parallel-axis"


DRAWN = """
import random

def drawn(facts, size, negatives=4):
    chosen = [facts[i] for i in random.sample(range(len(facts)), size)]
    false = []
    FILLED
    false = torch.tensor(false)
    return torch.tensor(chosen), false
"""
DRAWN_LOOP = """
for step in range(100):
    near, far = drawn(words, 16)
    loss = F.relu(1 + net(near).sum(-1).mean(1).unsqueeze(1) - net(far).sum(-1).mean(1).view(-1, 4)).mean()
"""
LOOP_FILLED = {
    "for each": """for h, t in chosen:
        for _ in range(negatives):
            false.append((h, random.randrange(50)))""",
    "in one of two branches": """for h, t in chosen:
        for _ in range(negatives):
            if random.random() < 0.5:
                false.append((random.randrange(50), t))
            else:
                false.append((h, random.randrange(50)))""",
}


@pytest.mark.parametrize("filled", LOOP_FILLED.values(), ids=LOOP_FILLED)
def test_a_part_that_loops_fill_with_more_rows_is_not_cut_with_the_others(filled: str, result: Result) -> None:
    file = result(script(DRAWN.replace("FILLED", filled), DRAWN_LOOP, PAIRED))
    (found,) = (one for one in file.diagnoses if one.severity.value == "blocked")
    assert "`false` has negatives rows for each row of `chosen`" in found.message


@pytest.mark.parametrize(
    "filled",
    [
        "for h, t in chosen:\n        false.append((h, random.randrange(50)))",
        "for h, t in chosen:\n        for _ in range(negatives):\n            if _ == h:\n                continue\n"
        "            false.append((h, t))\n            break",
    ],
    ids=["as many", "not known"],
)
def test_a_part_that_loops_may_fill_with_as_many_rows_is_cut(filled: str, migrated: Migrated) -> None:
    loop = DRAWN_LOOP.replace(".view(-1, 4)", ".unsqueeze(1)")
    assert "accelerator.shard_batch(" in migrated(script(DRAWN.replace("FILLED", filled), loop, PAIRED))


@pytest.mark.parametrize("made", ["[w + 1 for w in near]", "[0] * len(centre)", "list(near)"])
def test_parts_with_as_many_rows_are_cut_together(made: str, migrated: Migrated) -> None:
    text = migrated(script(UNLIKE.replace("PARTS", made), PAIR_LOOP, PAIRED))
    assert "near, centre, far = accelerator.shard_batch((near, centre, far))" in text


TEXTS = """
from transformers import AutoModelForSequenceClassification, AutoTokenizer

texts, labels = open("texts.txt").read().split(), [0, 1] * 40
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
"""
BERT = """
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=2)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
"""
WORDS = """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(30522, 16), nn.Linear(16, 2)

    def forward(self, ids):
        return self.last(self.words(ids).mean(1))

model = Words()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
"""
ENCODED = """
for k in range(0, 80, 8):
    encoded = tokenizer(texts[k:k + 8], padding=True, return_tensors="pt")
    loss = {loss}
"""


@pytest.mark.parametrize(
    ("model", "loss", "padded"),
    [
        (BERT, "F.cross_entropy(model(**encoded).logits, torch.tensor(labels[k:k + 8]))", False),
        (
            BERT,
            'F.cross_entropy(model(encoded["input_ids"], attention_mask=encoded["attention_mask"]).logits, '
            "torch.tensor(labels[k:k + 8]))",
            False,
        ),
        (BERT, "F.cross_entropy(model(encoded.input_ids).logits, torch.tensor(labels[k:k + 8]))", True),
        (WORDS, "F.cross_entropy(model(encoded.input_ids), torch.tensor(labels[k:k + 8]))", True),
    ],
    ids=["a table", "with its mask", "without its mask", "own model"],
)
def test_texts_are_cut_before_they_are_encoded(model: str, loss: str, padded: bool, result: Result) -> None:
    """Each process fills its texts up to the longest of its own: it is told where nothing leaves that out."""
    file = result(script(TEXTS, ENCODED.format(loss=loss), model))
    text = (file.after or b"").decode()
    assert "tokenizer(accelerator.shard_batch(texts[k:k + 8]), padding=True" in text
    assert "torch.tensor(accelerator.shard_batch(labels[k:k + 8]))" in text
    told = [one.message for one in file.diagnoses if one.id == "weighted-mean"]
    assert (
        told
        == [
            "each process computes this loss from texts that are padded to the longest of its own shard: the "
            "gradient is close to the original's but not equal to it"
        ]
        * padded
    )


OWN_LOSS = ENCODED.format(loss="model(**tokenizer.batch_encode_plus(texts[k:k + 8]), labels=y).loss")


def test_how_the_own_loss_of_a_model_is_averaged_must_be_known(result: Result) -> None:
    text = script(TEXTS, OWN_LOSS, BERT).replace("AutoModelForSequenceClassification", "AutoModel")
    (found,) = (one for one in result(text).diagnoses if one.severity.value == "blocked")
    assert "how this model averages its own loss over the rows is not known" in found.message


@pytest.mark.parametrize(("kind", "told"), [("SequenceClassification", 0), ("CausalLM", 1)])
def test_the_own_loss_of_a_model_may_be_that_of_a_shard(kind: str, told: int, result: Result) -> None:
    file = result(script(TEXTS, OWN_LOSS, BERT).replace("SequenceClassification", kind))
    assert file.after is not None
    assert [one.id for one in file.diagnoses if one.id == "weighted-mean"] == ["weighted-mean"] * told


def test_a_batch_that_a_function_unpacks_by_calling_itself_is_cut(migrated: Migrated) -> None:
    top = """
    def as_tensors(value):
        if isinstance(value, (list, tuple)):
            return [as_tensors(part) for part in value]
        return torch.as_tensor(value)
    """
    loop = "for pair in batches(x, y, 16):\n    a, b = as_tensors(pair)\n    loss = F.cross_entropy(model(a), b)\n"
    assert "    pair = accelerator.shard_batch(pair)\n" in migrated(script(dedent(top) + GENERATOR, loop))


def test_rows_that_are_counted_by_the_shape_of_an_array_are_those_of_the_shard(migrated: Migrated) -> None:
    loop = """\
    for step in range(100):
        a = x[np.random.choice(100, 16)]
        a = torch.from_numpy(np.reshape(a, (np.shape(a)[0], -1)))
        loss = model(a).mean()
    """
    top = 'x = np.load("x.npy")\n'
    assert "a = x[accelerator.shard_batch(np.random.choice(100, 16))]" in migrated(script(top, loop))


LISTS = """
x, y = torch.randn(100, 8), torch.randint(0, 2, (100,))
parts, answers = [torch.randn(16, 8) for _ in range(9)], [torch.randint(0, 2, (16,)) for _ in range(9)]
pairs = []
for k in range(0, 100, 16):
    pairs.append((x[k:k + 16], y[k:k + 16]))
rows, wanted = [torch.randn(8) for _ in range(50)], [torch.randint(0, 2, (1,)) for _ in range(50)]
"""


@pytest.mark.parametrize("source", ["zip(parts, answers)", "pairs", "zip(x.split(16), y.split(16))"])
def test_lists_of_batches_that_are_made_beforehand_are_cut(source: str, migrated: Migrated) -> None:
    loop = f"for a, b in {source}:\n    loss = F.cross_entropy(model(a), b)\n"
    assert "    a, b = accelerator.shard_batch((a, b))\n" in migrated(script(LISTS, loop))


@pytest.mark.parametrize(
    ("source", "loss"),
    [
        ("zip(x, y)", "F.cross_entropy(model(a.unsqueeze(0)), b.unsqueeze(0))"),
        ("zip(rows, wanted)", "F.cross_entropy(model(a)[None], b)"),
        ("enumerate(x)", "model(b).mean()"),
    ],
)
def test_a_loop_over_single_rows_is_not_cut_through_them(source: str, loss: str, result: Result) -> None:
    """On two processes `shard_batch` took half of the columns, and the layer failed at the first step."""
    found = result(script(LISTS, f"for a, b in {source}:\n    loss = {loss}\n"))
    assert found.after == found.source.data
    assert [one.id for one in found.diagnoses] == ["no-data-parallel-axis"]


WINDOWS = """
def windows(rows, size, steps):
    table = rows.reshape(size, -1)
    for k in range(0, table.shape[1] - steps, steps):
        yield table[:, k:k + steps], table[:, k + 1:k + steps + 1]

batch_size, steps = 6, 5
text = np.random.randint(0, 20, 600)
"""
LETTERS = """
class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.last = nn.Embedding(20, 8), nn.Linear(16, 20)
        self.cells = nn.LSTM(8, 16, batch_first=True)

    def begin(self, bsz):
        weight = next(self.parameters()).data
        return weight.new_zeros(1, bsz, 16), weight.new(1, bsz, 16).zero_()

    def forward(self, x, state):
        found, state = self.cells(self.letters(x), state)
        return self.last(found), state

model = Letters()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_a_state_that_is_made_before_the_batches_is_cut_as_they_are(migrated: Migrated) -> None:
    """Its rows are not in the first dimension; what names the number of rows in a new shape follows the shard."""
    loop = """\
    for epoch in range(3):
        state = model.begin(batch_size)
        for x, y in windows(text, batch_size, steps):
            x, y = torch.from_numpy(x), torch.from_numpy(y)
            state = tuple(part.detach() for part in state)
            found, state = model(x, state)
            loss = F.cross_entropy(found.reshape(batch_size * steps, -1), y.reshape(batch_size * steps))
    """
    text = migrated(
        script(WINDOWS, loop, LETTERS)
        .replace("\n    optimizer", "\n        optimizer")
        .replace("\n    loss.backward", "\n        loss.backward")
    )
    assert "    state = accelerator.shard_batch(model.begin(batch_size), dim=1)\n" in text
    assert "        x, y = accelerator.shard_batch((x, y))\n" in text
    assert "F.cross_entropy(found.reshape(x.size(0) * steps, -1), y.reshape(x.size(0) * steps))" in text
