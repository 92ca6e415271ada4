"""The pieces of a training script that every task can have, each in the ways in which real scripts write it."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """Statements before a loop over batches, in each pass, and after it."""

    before: str = ""
    inside: str = ""
    after: str = ""


class Head(NamedTuple):
    """How a loop goes over batches."""

    opening: str
    """The statements up to the one that opens the loop, ``for ...:``."""
    unpacked: str
    """The statements that make ``x`` and ``y``."""
    batches: str = "len(LOADER)"
    rows: str = "len(LOADER.dataset)"
    counter: str = ""
    """The name of the number of the pass, from 0."""


DEVICES = {
    "none": "",
    "choice": "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
    "word": "device = 'cuda:0' if torch.cuda.is_available() else 'cpu'",
    "branches": "if torch.cuda.is_available():\n    device = torch.device('cuda')\nelse:\n    device = torch.device('cpu')",
    "flag": "use_cuda = torch.cuda.is_available()",
    "cpu": "device = torch.device('cpu')",
}
MOVES = {
    "assigned": "{x} = {x}.to(device)",
    "not blocking": "{x} = {x}.to(device, non_blocking=True)",
    "by keyword": "{x} = {x}.to(device=device)",
}
"""How a tensor is moved, where there is a ``device``; the model, where it is not assigned, too."""

DATA_SETS = {
    "tensors": (
        "",
        "train_set = TensorDataset(inputs[:ROWS], targets[:ROWS])\nvalid_set = TensorDataset(inputs[ROWS:], targets[ROWS:])",
    ),
    "class": (
        "class Rows(Dataset):\n    def __init__(self, inputs, targets):\n        self.inputs, self.targets = inputs, targets\n\n"
        "    def __len__(self):\n        return len(self.inputs)\n\n"
        "    def __getitem__(self, index):\n        return self.inputs[index], self.targets[index]\n",
        "train_set = Rows(inputs[:ROWS], targets[:ROWS])\nvalid_set = Rows(inputs[ROWS:], targets[ROWS:])",
    ),
    "list": (
        "",
        "train_set = list(zip(inputs[:ROWS], targets[:ROWS]))\nvalid_set = list(zip(inputs[ROWS:], targets[ROWS:]))",
    ),
    "split": (
        "",
        "data = TensorDataset(inputs, targets)\ntrain_set, valid_set = random_split(data, [ROWS, len(data) - ROWS])",
    ),
    "subsets": (
        "",
        "data = TensorDataset(inputs, targets)\norder = np.random.permutation(len(data))\n"
        "train_set = Subset(data, order[:ROWS])\nvalid_set = Subset(data, order[ROWS:])",
    ),
    "arrays": (
        "class Rows(Dataset):\n    def __init__(self, inputs, targets, train=True):\n"
        "        self.inputs = inputs[:ROWS] if train else inputs[ROWS:]\n"
        "        self.targets = targets[:ROWS] if train else targets[ROWS:]\n\n"
        "    def __len__(self):\n        return self.inputs.shape[0]\n\n"
        "    def __getitem__(self, index):\n        x = torch.from_numpy(self.inputs[index])\n"
        "        return x, torch.as_tensor(self.targets[index])\n",
        "train_set = Rows(inputs.numpy(), targets.numpy())\nvalid_set = Rows(inputs.numpy(), targets.numpy(), train=False)",
    ),
}
BY_NAME = (
    "class Rows(Dataset):\n    def __init__(self, inputs, targets):\n        self.rows = list(zip(inputs, targets))\n\n"
    "    def __len__(self):\n        return len(self.rows)\n\n"
    "    def __getitem__(self, index):\n        x, y = self.rows[index]\n        return {'input': x, 'target': y}\n",
    "train_set = Rows(inputs[:ROWS], targets[:ROWS])\nvalid_set = Rows(inputs[ROWS:], targets[ROWS:])",
)
"""The data set whose rows are dictionaries."""

LOADERS = {
    "shuffled": ("", "shuffle=True"),
    "in order": ("", ""),
    "full batches": ("", "shuffle=True, drop_last=True"),
    "random sampler": ("", "sampler=RandomSampler(train_set)"),
    "seeded": ("generator = torch.Generator().manual_seed(5)", "shuffle=True, generator=generator"),
    "weighted sampler": (
        "sampler = WeightedRandomSampler([1.0 + i % 3 for i in range(len(train_set))], len(train_set))",
        "sampler=sampler",
    ),
}
COLLATE = (
    "def collate(rows):\n    return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])\n",
    "collate_fn=collate",
)
VALID_LOADERS = {
    "in order": "batch_size=BATCH",
    "explicit": "batch_size=BATCH, shuffle=False, drop_last=False",
    "twice the size": "batch_size=2 * BATCH",
    "row by row": "batch_size=1",
    "shuffled": "batch_size=BATCH, shuffle=True",
}

HEADS = {
    "pairs": Head("for x, y in LOADER:", ""),
    "numbered": Head("for i, (x, y) in enumerate(LOADER):", "", counter="i"),
    "batch": Head("for batch in LOADER:", "x, y = batch"),
    "numbered batch": Head("for step, data in enumerate(LOADER, 0):", "x = data[0]\ny = data[1]", counter="step"),
    "bar": Head("for x, y in tqdm(LOADER):", ""),
    "named bar": Head("bar = tqdm(enumerate(LOADER), total=len(LOADER))\nfor n, (x, y) in bar:", "", counter="n"),
    "iterator": Head("batches = iter(LOADER)\nfor k in range(len(LOADER)):", "x, y = next(batches)", counter="k"),
    "parentheses": Head("for (x, y) in iter(LOADER):", ""),
}
NAMED = Head("for batch in LOADER:", "x, y = batch['input'], batch['target']")
"""The head for rows that are dictionaries."""
HAND_MADE = {
    "permutation": Head(
        "order = torch.randperm(ROWS)\nfor start in range(0, ROWS, BATCH):",
        "rows = order[start:start + BATCH]\nx, y = inputs[rows], targets[rows]",
        batches="(ROWS + BATCH - 1) // BATCH",
        rows="ROWS",
    ),
    "slices": Head(
        "for start in range(0, ROWS, BATCH):",
        "x = inputs[start:min(start + BATCH, ROWS)]\ny = targets[start:min(start + BATCH, ROWS)]",
        batches="(ROWS + BATCH - 1) // BATCH",
        rows="ROWS",
    ),
    "draws": Head(
        "for step in range(5):",
        "chosen = torch.randint(0, ROWS, (BATCH,))\nx, y = inputs[chosen], targets[chosen]",
        batches="5",
        rows="(5 * BATCH)",
        counter="step",
    ),
    "whole": Head("for step in range(2):", "x, y = inputs[:ROWS], targets[:ROWS]", "2", "ROWS", "step"),
}

STEPS = {
    "zero first": "optimizer.zero_grad()\nFORWARD\nLOSS\nloss.backward()\nAFTER\noptimizer.step()",
    "zero before backward": "FORWARD\nLOSS\noptimizer.zero_grad()\nloss.backward()\nAFTER\noptimizer.step()",
    "zero last": "FORWARD\nLOSS\nloss.backward()\nAFTER\noptimizer.step()\noptimizer.zero_grad()",
    "closure": (
        "def closure():\n    optimizer.zero_grad()\n    FORWARD\n    LOSS\n    loss.backward()\n    return loss\n"
        "loss = optimizer.step(closure)\nwith torch.no_grad():\n    FORWARD"
    ),
    "scaler": (
        "optimizer.zero_grad()\nwith torch.autocast('cuda', enabled=torch.cuda.is_available()):\n    FORWARD\n    LOSS\n"
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"
    ),
    "model zero": "model.zero_grad()\nFORWARD\nLOSS\nloss.backward()\nAFTER\noptimizer.step()",
}
"""One step of the training."""
SCALER = "scaler = torch.amp.GradScaler('cuda', enabled=torch.cuda.is_available())"
AFTER_STEP = {
    "nothing": ("", ""),
    "average of the weights": (
        "average = copy.deepcopy(model)",
        "with torch.no_grad():\n    for kept, p in zip(average.parameters(), model.parameters()):\n"
        "        kept.mul_(0.9).add_(p, alpha=0.1)",
    ),
    "count": ("steps = 0", "steps += 1"),
    "clipped weights": ("", "for p in model.parameters():\n    p.data.clamp_(-2.0, 2.0)"),
}
"""What follows a step that is taken with every batch: before the training, and there."""
NUMBERED_STEPS = {
    "two micro-steps": (
        "FORWARD\nLOSS\nloss = loss / 2\nloss.backward()\nif (COUNTER + 1) % 2 == 0:\n    AFTER\n"
        "    optimizer.step()\n    optimizer.zero_grad()"
    ),
    "flushed micro-steps": (
        "FORWARD\nLOSS\n(loss / 3).backward()\nif (COUNTER + 1) % 3 == 0 or COUNTER + 1 == BATCHES:\n    AFTER\n"
        "    optimizer.step()\n    optimizer.zero_grad()"
    ),
}
"""Steps that need the number of the pass."""
AFTER_BACKWARD = {
    "nothing": "pass",
    "norm": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "value": "nn.utils.clip_grad_value_(model.parameters(), 0.5)",
    "own norm": "grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=2.0)",
    "by hand": "for p in model.parameters():\n    p.grad.data.clamp_(-0.5, 0.5)",
}
OPTIMIZERS = {
    "sgd": "optimizer = optim.SGD(model.parameters(), lr=LR, momentum=0.9)",
    "adam": "optimizer = torch.optim.Adam(model.parameters(), lr=LR)",
    "decay": "optimizer = optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)",
    "groups": (
        "named = list(model.named_parameters())\noptimizer = optim.SGD([\n"
        "    {'params': [p for n, p in named if n.endswith('bias')], 'weight_decay': 0.0},\n"
        "    {'params': [p for n, p in named if not n.endswith('bias')], 'weight_decay': 0.01}], lr=LR)"
    ),
    "trainable": "optimizer = optim.RMSprop(filter(lambda p: p.requires_grad, model.parameters()), lr=LR)",
}
SCHEDULERS = {
    "none": ("", "", ""),
    "epochs": ("scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)", "", "scheduler.step()"),
    "cosine": (
        "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)",
        "",
        "scheduler.step()\nprint('lr', scheduler.get_last_lr()[0])",
    ),
    "steps": (
        "scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 10))",
        "scheduler.step()",
        "print('lr %.6f' % optimizer.param_groups[0]['lr'])",
    ),
    "one cycle": (
        "scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=EPOCHS * BATCHES)",
        "scheduler.step()",
        "",
    ),
    "by hand": ("", "", "for group in optimizer.param_groups:\n    group['lr'] = LR * 0.7 ** (epoch + 1)"),
    "by a function": (
        "def adjust(optimizer, epoch):\n    rate = LR * (0.5 ** epoch)\n    for group in optimizer.param_groups:\n"
        "        group['lr'] = rate\n    return rate",
        "",
        "adjust(optimizer, epoch + 1)",
    ),
}
"""Before the training, after each step, after each epoch."""
PLATEAU = (
    "scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)",
    "",
    "scheduler.step(valid_loss)",
)

TRAINING_FIGURES = {
    "none": Figure(),
    "mean of batches": Figure(
        "running_loss = 0.0", "running_loss += loss.item()", "print(f'epoch {epoch} loss {running_loss / BATCHES:.5f}')"
    ),
    "weighted": Figure(
        "epoch_loss = 0", "epoch_loss += loss.item() * x.size(0)", "epoch_loss /= ROWS_READ\nprint(epoch, epoch_loss)"
    ),
    "seen": Figure(
        "total, seen = 0.0, 0",
        "total += loss.item() * len(x)\nseen += len(x)",
        "print('train', round(total / seen, 5))",
    ),
    "list": Figure(
        "losses = []", "losses.append(loss.item())", "print('epoch %d: %.5f' % (epoch, sum(losses) / len(losses)))"
    ),
    "numpy": Figure("losses = []", "losses.append(loss.data.cpu().numpy())", "print('train', np.mean(losses))"),
    "tensor": Figure(
        "total = torch.tensor(0.0)", "total = total + loss.detach().cpu()", "print('train', (total / BATCHES).item())"
    ),
    "meter": Figure("meter = Meter()", "meter.update(loss.item(), x.size(0))", "print(f'train {meter.average:.6f}')"),
    "smoothed": Figure(
        "smooth = None",
        "smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()",
        "print('smoothed', smooth)",
    ),
    "last": Figure("", "", "print('last loss', loss.item())"),
    "kept": Figure("", "history.append(loss.item())", ""),
    "kept by epoch": Figure("running = 0.0", "running += loss.item()", "history.append(running / BATCHES)"),
}
NUMBERED_FIGURES = {
    "every few": Figure(
        "", "if COUNTER % 3 == 0:\n    print(f'epoch {epoch} step {COUNTER} loss {loss.item():.5f}')", ""
    ),
    "reset": Figure(
        "running = 0.0",
        "running += loss.item()\nif COUNTER % 2 == 1:\n    print('[%d, %d] %.4f' % (epoch, COUNTER + 1, running / 2))\n    running = 0.0",
        "",
    ),
    "running mean": Figure(
        "mean = 0.0", "mean += (loss.item() - mean) / (COUNTER + 1)", "print('mean', round(mean, 5))"
    ),
}
CORRECT_FIGURES = {
    "accuracy": Figure(
        "right, count = 0, 0",
        "right += (CORRECT).item()\ncount += x.shape[0]",
        "print(f'train accuracy {100.0 * right / count:.3f}')",
    ),
    "accuracy of the set": Figure("right = 0.0", "right += (CORRECT)", "print('train', float(right) / ROWS_READ)"),
}
METER = """
class Meter:
    def __init__(self):
        self.total, self.count, self.average = 0.0, 0, 0.0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n
        self.average = self.total / self.count
"""

VALID_LOSSES = {
    "mean of batches": Figure("valid_loss = 0.0", "valid_loss += loss.item()", "valid_loss /= BATCHES"),
    "weighted": Figure(
        "valid_loss = 0", "valid_loss += loss.item() * x.size(0)", "valid_loss = valid_loss / len(valid_set)"
    ),
    "list": Figure("losses = []", "losses.append(loss.item())", "valid_loss = np.mean(losses)"),
    "tensor": Figure("total = 0", "total += loss", "valid_loss = (total / BATCHES).item()"),
    "stacked": Figure("losses = []", "losses.append(loss.detach())", "valid_loss = torch.stack(losses).mean().item()"),
    "meter": Figure("meter = Meter()", "meter.update(loss.item(), y.size(0))", "valid_loss = meter.average"),
}
NO_GRADIENT = {
    "no_grad": "with torch.no_grad():",
    "inference": "with torch.inference_mode():",
    "switched off": "with torch.set_grad_enabled(False):",
    "nothing": "if True:",
}
RESUMES = {
    "no": "",
    "weights": "if os.path.exists('last.pt'):\n    model.load_state_dict(torch.load('last.pt')['model'])",
    "asked": (
        "checkpoint = None\nif os.path.isfile('last.pt'):\n    print('resuming')\n"
        "    checkpoint = torch.load('last.pt', map_location='cpu')\n    model.load_state_dict(checkpoint['model'])"
    ),
}
"""How a script goes on where it ended."""
WRAPPED = {
    "no": "",
    "if several": "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)",
}
DECISIONS = {
    "none": ("", ""),
    "best": (
        "best = float('inf')",
        "if valid_loss < best:\n    best = valid_loss\n    torch.save(model.state_dict(), 'best.pt')",
    ),
    "best and last": (
        "best = None",
        "is_best = best is None or valid_loss <= best\nif is_best:\n    best = valid_loss\n"
        "torch.save({'epoch': epoch, 'model': model.state_dict(), 'best': best}, 'last.pt')\n"
        "if is_best:\n    shutil.copyfile('last.pt', 'best.pt')",
    ),
    "patience": (
        "best, waited = 1e9, 0",
        "if valid_loss < best - 1e-4:\n    best, waited = valid_loss, 0\nelse:\n    waited += 1\n    if waited >= 2:\n"
        "        print('stopping early at', epoch)\n        break",
    ),
    "kept weights": (
        "best, best_weights = np.inf, None",
        "if valid_loss < best:\n    best = valid_loss\n    best_weights = copy.deepcopy(model.state_dict())",
    ),
}
AFTER_EPOCH = {
    "nothing": "",
    "checkpoint": (
        "torch.save({'epoch': epoch + 1, 'state_dict': model.state_dict(), 'optimizer': optimizer.state_dict()}, "
        "f'checkpoint_{epoch}.pt')"
    ),
    "line": "with open('log.txt', 'a') as log:\n    log.write('epoch %d done\\n' % epoch)",
    "folder": (
        "os.makedirs('runs', exist_ok=True)\ntorch.save(model.state_dict(), os.path.join('runs', 'model_%d.pt' % epoch))"
    ),
    "table": "with open('table.csv', 'a', newline='') as f:\n    csv.writer(f).writerow([epoch, EPOCHS])",
    "log": "logging.info('epoch %d of %d', epoch, EPOCHS)",
    "every second": "if epoch % 2 == 0 and not os.path.exists('snapshots'):\n    os.mkdir('snapshots')",
}
PHASES = {
    "usual": (
        "running_loss, running_right = 0.0, 0",
        "running_loss += loss.item() * x.size(0)\nrunning_right += torch.sum(CORRECT)",
        "epoch_loss = running_loss / sizes[phase]\nepoch_accuracy = running_right.double() / sizes[phase]\n"
        "print('{} loss: {:.4f} accuracy: {:.4f}'.format(phase, epoch_loss, epoch_accuracy))",
    ),
    "loss alone": (
        "running_loss = 0.0",
        "running_loss += loss.item()",
        "epoch_loss = running_loss / len(loaders[phase])\nprint(f'{phase} {epoch_loss:.5f}')",
    ),
    "rows counted": (
        "running_loss, rows = 0.0, 0",
        "running_loss += loss.item() * len(y)\nrows += len(y)",
        "epoch_loss = running_loss / rows\nprint(phase, epoch_loss)",
    ),
}
"""The figures of a loop that trains in one phase and evaluates in the other."""
PHASE = """
for phase in ['train', 'val']:
    if phase == 'train':
        model.train()
    else:
        model.eval()
    BEFORE
    for x, y in loaders[phase]:
        MOVES
        optimizer.zero_grad()
        with torch.set_grad_enabled(phase == 'train'):
            FORWARD
            LOSS
            if phase == 'train':
                loss.backward()
                optimizer.step()
        INSIDE
    BEHIND
    if phase == 'val':
        valid_loss = epoch_loss
"""
ENDS = {
    "nothing": "",
    "weights": "torch.save(model.state_dict(), 'model.pt')",
    "whole model": "print('saving')\ntorch.save(model.cpu().state_dict(), 'final.pth')",
    "read back": (
        "torch.save(model.state_dict(), 'model.pt')\nmodel.load_state_dict(torch.load('model.pt'))\nmodel.eval()\n"
        "print('restored', sum(p.numel() for p in model.parameters()))"
    ),
    "json": "with open('result.json', 'w') as f:\n    json.dump({'epochs': EPOCHS, 'rows': len(inputs)}, f)",
    "array": "np.save('weights.npy', next(model.parameters()).detach().cpu().numpy())",
    "prediction": (
        "model.eval()\nwith torch.no_grad():\n    x = inputs[ROWS:ROWS + 4]\n    MOVE_X\n    FORWARD\n"
        "print('first', [round(v, 4) for v in out.flatten().tolist()[:3]])"
    ),
}
