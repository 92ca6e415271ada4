"""What is learned: data, a model, and how a loss and its figures are written for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Task:
    """One kind of problem; ``ROWS`` rows are for training, the others for validation."""

    data: str
    """Makes ``inputs`` and ``targets``, with a row for each sample."""
    models: Mapping[str, str]
    """Definitions of a class ``Net``, or of a function of that name."""
    losses: Mapping[str, tuple[str, str]]
    """A statement before the training, and the statements that make ``loss`` of ``out`` and ``y``."""
    correct: str = ""
    """How many rows of a batch are right, as a tensor; empty where that means nothing."""
    predicted: str = "out"
    """A prediction for each row."""
    forward: str = "out = model(x)"
    evaluated: str = ""
    """How the loss of an evaluation is written, where it is not that of the training."""
    figures: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    """Further figures of an evaluation: before the loop, in it, after it."""


_MLP = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, {out}))

    def forward(self, x):
        return self.body(x)
"""
_SEQUENTIAL = """
def Net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, {out}))
"""
_LAYERS = """
class Net(nn.Module):
    def __init__(self, hidden=7):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(6, hidden)
        self.norm = nn.{norm}
        self.drop = nn.Dropout(0.1)
        self.fc2 = nn.Linear(hidden, {out})

    def forward(self, x):
        x = F.relu(self.norm(self.fc1(x)))
        return self.fc2(self.drop(x))
"""


def _plain(out: int) -> dict[str, str]:
    return {
        "class": _MLP.format(out=out),
        "sequential": _SEQUENTIAL.format(out=out),
        "layer norm": _LAYERS.format(out=out, norm="LayerNorm(hidden)"),
        "batch norm": _LAYERS.format(out=out, norm="BatchNorm1d(hidden)"),
    }


_CROSS = {
    "criterion": ("criterion = nn.CrossEntropyLoss()", "loss = criterion(out, y)"),
    "function": ("", "loss = F.cross_entropy(out, y)"),
    "sum": ("criterion = nn.CrossEntropyLoss(reduction='sum')", "loss = criterion(out, y)"),
    "sum by rows": ("", "loss = F.cross_entropy(out, y, reduction='sum') / x.size(0)"),
    "sum by len": ("", "loss = F.cross_entropy(out, y, reduction='sum') / len(y)"),
    "none, mean": ("criterion = nn.CrossEntropyLoss(reduction='none')", "loss = criterion(out, y).mean()"),
    "none, sum": ("", "loss = F.cross_entropy(out, y, reduction='none').sum()"),
    "smoothed": ("criterion = nn.CrossEntropyLoss(label_smoothing=0.1)", "loss = criterion(out, y)"),
    "nll": ("criterion = nn.NLLLoss()", "loss = criterion(F.log_softmax(out, dim=1), y)"),
    "gathered": ("", "loss = -F.log_softmax(out, 1).gather(1, y.unsqueeze(1)).mean()"),
    "indexed": ("", "loss = -torch.log_softmax(out, -1)[torch.arange(len(y)), y].mean()"),
    "own function": (
        "def criterion(out, y):\n    rows = F.cross_entropy(out, y, reduction='none')\n    return rows.mean()",
        "loss = criterion(out, y)",
    ),
    "own module": (
        "class Focal(nn.Module):\n    def __init__(self, gamma=2.0):\n        super().__init__()\n"
        "        self.gamma = gamma\n\n    def forward(self, out, y):\n"
        "        ce = F.cross_entropy(out, y, reduction='none')\n        return ((1 - torch.exp(-ce)) ** self.gamma * ce).mean()\n"
        "criterion = Focal()",
        "loss = criterion(out, y)",
    ),
    "with weight decay": (
        "criterion = nn.CrossEntropyLoss()",
        "loss = criterion(out, y)\nloss = loss + 1e-3 * sum(p.pow(2).sum() for p in model.parameters())",
    ),
    "two terms": (
        "criterion = nn.CrossEntropyLoss()",
        "main_loss = criterion(out, y)\npenalty = out.pow(2).mean()\nloss = main_loss + 0.01 * penalty",
    ),
    "by partial": (
        "from functools import partial\ncriterion = partial(F.cross_entropy, reduction='mean')",
        "loss = criterion(out, y)",
    ),
    "distilled": (
        "teacher = copy.deepcopy(model)\nteacher.eval()",
        "with torch.no_grad():\n    soft = teacher(x)\nloss = F.cross_entropy(out, y) + F.kl_div(\n"
        "    F.log_softmax(out, 1), F.softmax(soft, 1), reduction='batchmean')",
    ),
    "by options": ("options = {'reduction': 'sum'}", "loss = F.cross_entropy(out, y, **options)"),
}
_SQUARED = {
    "criterion": ("criterion = nn.MSELoss()", "loss = criterion(out, y)"),
    "by hand": ("", "loss = ((out - y) ** 2).mean()"),
    "sum": ("criterion = nn.MSELoss(reduction='sum')", "loss = criterion(out, y)"),
    "sum by hand": ("", "loss = (out - y).pow(2).sum()"),
    "sum by rows": ("", "loss = torch.sum((out - y) ** 2) / x.shape[0]"),
    "square": ("", "loss = torch.mean(torch.square(out - y))"),
    "l1": ("criterion = nn.L1Loss()", "loss = criterion(out, y)"),
    "smooth": ("", "loss = F.smooth_l1_loss(out, y)"),
    "per row": ("", "loss = F.mse_loss(out, y, reduction='none').sum(1).mean()"),
    "per row, dim": ("", "loss = ((out - y) ** 2).mean(dim=1).mean(dim=0)"),
    "norm": ("", "loss = torch.norm(out - y, dim=1).mean()"),
    "half": ("criterion = nn.MSELoss()", "loss = 0.5 * criterion(out, y)"),
    "einsum": ("", "loss = torch.einsum('ij,ij->', out - y, out - y) / out.size(0)"),
    "root": ("criterion = nn.MSELoss()", "loss = torch.sqrt(criterion(out, y))"),
}

CLASSES = Task(
    data="inputs = torch.randn(ROWS + 23, 6)\ntargets = (inputs.sum(1) > 0).long() + (inputs[:, 0] > 1).long()",
    models=_plain(3),
    losses=_CROSS,
    correct="(out.argmax(dim=1) == y).sum()",
    predicted="out.argmax(1)",
    figures={
        "max": (
            "hits, seen = 0, 0",
            "_, predicted = torch.max(out.data, 1)\nseen += y.size(0)\nhits += (predicted == y).sum().item()",
            "print('accuracy: %.4f' % (100 * hits / seen))",
        ),
        "top k": (
            "top2, rows = 0.0, 0",
            "_, ranked = out.topk(2, dim=1)\ntop2 += ranked.eq(y.view(-1, 1)).float().sum().item()\nrows += y.shape[0]",
            "print(f'top 2: {top2 / rows:.4f}')",
        ),
        "per class": (
            "right, total = [0] * 3, [0] * 3",
            "predicted = out.argmax(1)\nfor label, guess in zip(y, predicted):\n    total[label.item()] += 1\n"
            "    if label == guess:\n        right[label.item()] += 1",
            "for c in range(3):\n    print('class', c, right[c], total[c])",
        ),
        "confusion": (
            "matrix = torch.zeros(3, 3)",
            "for t, p in zip(y.view(-1), out.argmax(1).view(-1)):\n    matrix[t.long(), p.long()] += 1",
            "print(matrix.diag().sum() / matrix.sum())",
        ),
        "lists": (
            "truth, guesses = [], []",
            "truth.extend(y.cpu().numpy())\nguesses.extend(out.argmax(1).cpu().numpy())",
            "print('agree %.5f of %d' % (np.mean(np.array(truth) == np.array(guesses)), len(truth)))",
        ),
        "appended": (
            "truth, guesses = [], []",
            "truth.append(y.cpu())\nguesses.append(F.softmax(out, dim=1).cpu())",
            "truth, guesses = torch.cat(truth), torch.cat(guesses)\n"
            "print('sure', guesses.max(1)[0].mean().item(), (guesses.argmax(1) == truth).float().mean().item())",
        ),
        "mean of batches": (
            "accuracies = []",
            "accuracies.append((out.argmax(1) == y).float().mean().item())",
            "print('mean accuracy', round(sum(accuracies) / len(accuracies), 5))",
        ),
        "scikit-learn": (
            "y_true, y_pred = [], []",
            "y_true += y.tolist()\ny_pred += out.argmax(dim=1).tolist()",
            "from sklearn.metrics import f1_score\nprint('f1', f1_score(y_true, y_pred, average='macro'))",
        ),
    },
)
REGRESSION = Task(
    data="inputs = torch.randn(ROWS + 23, 6)\ntargets = inputs[:, :1] * 2 + inputs[:, 1:2].abs()",
    models=_plain(1),
    losses=_SQUARED,
    figures={
        "absolute": (
            "error, rows = 0.0, 0",
            "error += (out - y).abs().sum().item()\nrows += len(x)",
            "print('MAE', round(error / rows, 5))",
        ),
        "root": (
            "squares = 0",
            "squares += F.mse_loss(out, y, reduction='sum').item()",
            "print('RMSE %.5f' % (squares / len(valid_loader.dataset)) ** 0.5)",
        ),
        "collected": (
            "outs, ys = [], []",
            "outs.append(out.detach().cpu().numpy())\nys.append(y.cpu().numpy())",
            "outs, ys = np.concatenate(outs), np.vstack(ys)\n"
            "print('r2', 1 - ((outs - ys) ** 2).sum() / ((ys - ys.mean()) ** 2).sum())",
        ),
        "worst": (
            "worst = 0.0",
            "worst = max(worst, (out - y).abs().max().item())",
            "print('worst', round(worst, 5))",
        ),
        "tensor": (
            "total = torch.zeros(1)",
            "total += ((out - y) ** 2).sum().cpu()",
            "print('squares', total.item())",
        ),
    },
)
SQUEEZED = Task(
    data="inputs = torch.randn(ROWS + 23, 6)\ntargets = inputs[:, 0] - inputs[:, 1]",
    models=_plain(1),
    forward="out = model(x).squeeze(1)",
    losses={
        "criterion": ("criterion = nn.MSELoss()", "loss = criterion(out, y)"),
        "view": ("criterion = nn.L1Loss()", "loss = criterion(out.view(-1), y.view(-1))"),
        "sum": ("", "loss = (out - y).abs().sum()"),
        "sum by rows": ("", "loss = (out - y).pow(2).sum() / y.numel()"),
        "huber": ("criterion = nn.HuberLoss(reduction='sum')", "loss = criterion(out, y) / BATCH"),
        "dot": ("", "loss = torch.dot(out - y, out - y) / len(y)"),
        "logcosh": ("", "loss = torch.log(torch.cosh(out - y + 1e-12)).mean()"),
    },
    figures={
        "numpy": (
            "outs, ys = np.array([]), np.array([])",
            "outs = np.append(outs, out.detach().cpu().numpy())\nys = np.append(ys, y.cpu().numpy())",
            "print('corr', np.corrcoef(outs, ys)[0, 1].round(5))",
        ),
        "absolute": (
            "errors = []",
            "errors.extend((out - y).abs().tolist())",
            "print('MAE', sum(errors) / len(errors), 'median', sorted(errors)[len(errors) // 2])",
        ),
    },
)
BINARY = Task(
    data="inputs = torch.randn(ROWS + 23, 6)\ntargets = (inputs[:, :1] + inputs[:, 1:2] > 0).float()",
    models=_plain(1),
    losses={
        "with logits": ("criterion = nn.BCEWithLogitsLoss()", "loss = criterion(out, y)"),
        "sigmoid": ("criterion = nn.BCELoss()", "loss = criterion(torch.sigmoid(out), y)"),
        "function, sum": ("", "loss = F.binary_cross_entropy_with_logits(out, y, reduction='sum')"),
        "weighted rows": (
            "criterion = nn.BCEWithLogitsLoss(reduction='none')",
            "weights = torch.where(y > 0, 2.0, 1.0)\nloss = (weights * criterion(out, y)).mean()",
        ),
        "positive weight": (
            "criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0]))",
            "loss = criterion(out, y)",
        ),
        "softplus": ("", "loss = F.softplus(-out * (2 * y - 1)).mean()"),
        "hinge": ("", "loss = torch.clamp(1 - out * (2 * y - 1), min=0).mean()"),
    },
    correct="((out > 0).float() == y).sum()",
    predicted="torch.sigmoid(out)",
    figures={
        "rounded": (
            "right, rows = 0, 0",
            "guess = torch.round(torch.sigmoid(out))\nright += guess.eq(y).sum().item()\nrows += y.size(0)",
            "print(f'accuracy {right}/{rows}')",
        ),
        "counts": (
            "tp = fp = fn = 0",
            "guess = (torch.sigmoid(out) > 0.5).float()\ntp += (guess * y).sum().item()\n"
            "fp += (guess * (1 - y)).sum().item()\nfn += ((1 - guess) * y).sum().item()",
            "print('f1', round(2 * tp / (2 * tp + fp + fn + 1e-8), 5))",
        ),
        "area": (
            "scores, labels = [], []",
            "scores.append(torch.sigmoid(out).detach().cpu())\nlabels.append(y.detach().cpu())",
            "from sklearn.metrics import roc_auc_score\n"
            "print('auc', roc_auc_score(torch.cat(labels).numpy().ravel(), torch.cat(scores).numpy().ravel()))",
        ),
    },
)
_CODER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 4)
        self.decoder = nn.Linear(4, 6)

    def encode(self, x):
        return torch.tanh(self.encoder(x))

    def decode(self, z):
        return self.decoder(z)

    def forward(self, x):
        return self.decode(self.encode(x))
"""
AUTOENCODER = Task(
    data="inputs = torch.rand(ROWS + 23, 6)\ntargets = torch.zeros(ROWS + 23)",
    models={"coder": _CODER},
    losses={
        "criterion": ("criterion = nn.MSELoss()", "loss = criterion(out, x)"),
        "sum": ("criterion = nn.MSELoss(reduction='sum')", "loss = criterion(out, x)"),
        "sum by rows": ("", "loss = F.mse_loss(out, x, reduction='sum') / x.size(0)"),
        "cross entropy": ("", "loss = F.binary_cross_entropy_with_logits(out, x)"),
    },
    figures={
        "hidden": (
            "codes = []",
            "codes.append(model.encode(x).cpu())",
            "codes = torch.cat(codes, dim=0)\nprint(codes.shape[0], codes.mean().item())",
        ),
    },
)
VARIATIONAL = Task(
    data="inputs = torch.rand(ROWS + 23, 6)\ntargets = torch.zeros(ROWS + 23)",
    models={
        "class": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 5)
        self.mean, self.spread = nn.Linear(5, 2), nn.Linear(5, 2)
        self.out = nn.Linear(2, 6)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def forward(self, x):
        h = F.relu(self.fc(x))
        mu, logvar = self.mean(h), self.spread(h)
        return self.out(self.reparameterize(mu, logvar)), mu, logvar
"""
    },
    forward="out, mu, logvar = model(x)",
    losses={
        "sums": (
            "",
            "bce = F.binary_cross_entropy_with_logits(out, x, reduction='sum')\n"
            "kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())\nloss = bce + kld",
        ),
        "means": (
            "",
            "recon = F.mse_loss(out, x)\n"
            "kld = torch.mean(-0.5 * torch.sum(1 + logvar - mu ** 2 - logvar.exp(), dim=1), dim=0)\nloss = recon + 0.1 * kld",
        ),
        "function": (
            "def criterion(out, x, mu, logvar):\n    recon = F.mse_loss(out, x, reduction='sum')\n"
            "    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())\n    return (recon + kld) / x.size(0)",
            "loss = criterion(out, x, mu, logvar)",
        ),
    },
)
_RECURRENT = """
class Net(nn.Module):
    def __init__(self, words=11, size=6):
        super().__init__()
        self.embedding = nn.Embedding(words, size)
        self.rnn = nn.{cell}(size, size, batch_first=True)
        self.out = nn.Linear(size, words)

    def forward(self, x):
        {state}
        return self.out(h)
"""
LANGUAGE = Task(
    data="tokens = torch.randint(1, 11, (ROWS + 23, 8))\ninputs, targets = tokens[:, :-1], tokens[:, 1:]",
    models={
        "gru": _RECURRENT.format(cell="GRU", state="h, _ = self.rnn(self.embedding(x))"),
        "lstm": _RECURRENT.format(
            cell="LSTM",
            state="state = (torch.zeros(1, x.size(0), 6, device=x.device), torch.zeros(1, x.size(0), 6, device=x.device))\n"
            "        h, _ = self.rnn(self.embedding(x), state)",
        ),
    },
    losses={
        "view": ("criterion = nn.CrossEntropyLoss()", "loss = criterion(out.view(-1, 11), y.reshape(-1))"),
        "transposed": ("", "loss = F.cross_entropy(out.transpose(1, 2), y)"),
        "sum": (
            "criterion = nn.CrossEntropyLoss(reduction='sum')",
            "loss = criterion(out.reshape(-1, 11), y.flatten())",
        ),
        "padding": ("criterion = nn.CrossEntropyLoss(ignore_index=0)", "loss = criterion(out.permute(0, 2, 1), y)"),
        "steps": ("", "loss = sum(F.cross_entropy(out[:, t], y[:, t]) for t in range(y.size(1))) / y.size(1)"),
    },
    correct="(out.argmax(-1) == y).sum() / y.size(1)",
    predicted="out.argmax(-1)",
    figures={
        "words": (
            "right, words = 0, 0",
            "right += (out.argmax(2) == y).sum().item()\nwords += y.numel()",
            "print('words', right / words)",
        ),
        "sentences": (
            "sentences = []",
            "for row in out.argmax(-1):\n    sentences.append(' '.join(str(int(w)) for w in row))",
            "print(len(sentences), sentences[0], sentences[-1])",
        ),
    },
)
HEADS = Task(
    data="inputs = torch.randn(ROWS + 23, 6)\ntargets = torch.stack([inputs.sum(1), inputs[:, 0]], 1)",
    models={
        "tuple": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x):
        h = torch.relu(self.trunk(x))
        return self.first(h), self.second(h)
"""
    },
    forward="first, second = model(x)\nout = torch.cat([first, second], dim=1)",
    losses={
        "weighted": (
            "criterion = nn.MSELoss()",
            "loss1 = criterion(first.squeeze(-1), y[:, 0])\nloss2 = criterion(second.squeeze(-1), y[:, 1])\nloss = loss1 + 0.5 * loss2",
        ),
        "list": (
            "criterion = nn.MSELoss()",
            "parts = [criterion(head[:, 0], y[:, i]) for i, head in enumerate((first, second))]\nloss = sum(parts)",
        ),
        "stacked": (
            "",
            "parts = torch.stack([F.mse_loss(out[:, i], y[:, i]) for i in range(2)])\nloss = parts.mean()",
        ),
    },
    figures={
        "both": (
            "errors = np.zeros(2)\nrows = 0",
            "errors += ((out - y) ** 2).sum(0).cpu().numpy()\nrows += y.size(0)",
            "print('both', (errors / rows).round(5))",
        ),
    },
)
PAIRS = Task(
    data="inputs = torch.randn(ROWS + 23, 2, 6)\ntargets = (inputs[:, 0, 0] * inputs[:, 1, 0] > 0).float()",
    models=_plain(3),
    forward="first, second = model(x[:, 0]), model(x[:, 1])\nout = F.pairwise_distance(first, second)",
    losses={
        "contrastive": (
            "",
            "loss = torch.mean((1 - y) * out.pow(2) + y * torch.clamp(2.0 - out, min=0.0).pow(2))",
        ),
        "module": (
            "criterion = nn.CosineEmbeddingLoss()",
            "loss = criterion(first, second, 2 * y - 1)",
        ),
        "half sum": ("", "loss = (0.5 * y * out.pow(2) + 0.5 * (1 - y) * F.relu(1.0 - out).pow(2)).sum()"),
    },
    correct="((out < 0.5) == (y < 0.5)).sum()",
    figures={
        "distances": (
            "near, far = [], []",
            "near.extend(out[y == 0].tolist())\nfar.extend(out[y == 1].tolist())",
            "print('near %.4f far %.4f' % (np.mean(near), np.mean(far)), len(near))",
        ),
    },
)
_CONV = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        return self.conv2(F.relu(self.conv1(x)))
"""
MASKS = Task(
    data="inputs = torch.randn(ROWS + 23, 1, 5, 5)\ntargets = (inputs > 0.3).float()",
    models={"convolutions": _CONV},
    losses={
        "criterion": ("criterion = nn.BCEWithLogitsLoss()", "loss = criterion(out, y)"),
        "dice by row": (
            "",
            "p = torch.sigmoid(out)\noverlap = (p * y).sum(dim=(1, 2, 3))\n"
            "dice = (2 * overlap + 1) / (p.sum(dim=(1, 2, 3)) + y.sum(dim=(1, 2, 3)) + 1)\nloss = 1 - dice.mean()",
        ),
        "dice of the batch": (
            "",
            "p = torch.sigmoid(out)\noverlap = (p * y).sum()\nloss = 1 - (2 * overlap + 1) / (p.sum() + y.sum() + 1)",
        ),
        "flattened": ("", "loss = F.binary_cross_entropy_with_logits(out.view(x.size(0), -1), y.view(x.size(0), -1))"),
    },
    correct="((out > 0).float() == y).float().mean(dim=(1, 2, 3)).sum()",
    predicted="(out > 0).float()",
    figures={
        "pixels": (
            "right, pixels = 0, 0",
            "right += ((torch.sigmoid(out) > 0.5) == y.bool()).sum().item()\npixels += torch.numel(y)",
            "print(f'{right} of {pixels} pixels: {100.0 * right / pixels:.3f}')",
        ),
        "dice by batch": (
            "score = 0",
            "p = (out > 0).float()\nscore += (2 * (p * y).sum()) / ((p + y).sum() + 1e-8)",
            "print(f'dice {score / len(valid_loader)}')",
        ),
        "union": (
            "ious = []",
            "p = out > 0\ninter = (p & y.bool()).flatten(1).sum(1).float()\n"
            "union = (p | y.bool()).flatten(1).sum(1).float()\nious.append(((inter + 1e-6) / (union + 1e-6)).cpu())",
            "print('iou', torch.cat(ious).mean().item())",
        ),
    },
)
TASKS: dict[str, Task] = {
    "classes": CLASSES,
    "regression": REGRESSION,
    "squeezed": SQUEEZED,
    "binary": BINARY,
    "autoencoder": AUTOENCODER,
    "variational": VARIATIONAL,
    "language": LANGUAGE,
    "heads": HEADS,
    "pairs": PAIRS,
    "masks": MASKS,
}
