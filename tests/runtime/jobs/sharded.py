"""Training with sharded weights is that of one process. Every claim is a function; all of a part run in one job."""

import copy
import sys
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin, GradientAccumulationPlugin, ParallelismConfig


def in_blocks(module, recurse, nonwrapped_numel):
    """As torch's policies: every block is a unit. In models without blocks there is none."""
    return recurse or type(module).__name__ == "Block"


torch.set_default_dtype(torch.float64)
MESH = tuple(map(int, sys.argv[1].split("x"))) if "x" in sys.argv[1] else None
BLOCKS = FullyShardedDataParallelPlugin(auto_wrap_policy=in_blocks)


def made(plugin=BLOCKS, **more):
    if MESH:
        more["parallelism_config"] = ParallelismConfig(dp_replicate_size=MESH[0], dp_shard_size=MESH[1])
    return Accelerator(fsdp_plugin=plugin, **more)


accelerator = made()
rank, size = accelerator.process_index, accelerator.num_processes


class Block(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


class Transformer(nn.Module):
    """Tied embeddings, a scalar, and a size that no number of processes divides."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.blocks = nn.ModuleList([Block(6), Block(6)])
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x) * self.scale


class Perceptron(nn.Module):
    def __init__(self, width=5, frozen=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, width), nn.Tanh())
        self.blocks = nn.Sequential(Block(4), Block(4)) if frozen else nn.Identity()
        self.neck = nn.Linear(width, 4)
        self.head = nn.Linear(4, 1)
        if frozen:
            self.body.requires_grad_(False)

    def forward(self, x):
        return self.head(self.blocks(torch.tanh(self.neck(self.body(x))[:, None]))[:, 0])


def seeded(make):
    torch.manual_seed(1)
    return make()


def rows(step, r=None, n=4):
    generator = torch.Generator().manual_seed(1000 * step + (rank if r is None else r))
    return torch.randn(n, 3, generator=generator)


def tokens(step, r=None):
    generator = torch.Generator().manual_seed(1000 * step + (rank if r is None else r))
    return torch.randint(11, (3, 5), generator=generator)


def square(model, x):
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def language(model, x):
    return F.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())


def whole(model):
    """The state dict of a sharded model, on all ranks."""
    return {n: v.full_tensor() if hasattr(v, "full_tensor") else v for n, v in model.state_dict().items()}


def check_same(model, plain, atol=1e-9):
    for name, value in whole(model).items():
        torch.testing.assert_close(
            value, plain.state_dict()[name], rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )


def trained_alike(make, loss_of, batch, optimizer_of, steps=20, clip=None, before=False, plain_backward=False, **more):
    """Train a plain twin on all rows, and the sharded model on those of each rank."""
    model, plain = seeded(make), seeded(make)
    plain_optimizer = optimizer_of(plain.parameters())
    if before:
        optimizer = optimizer_of(model.parameters())
        optimizer, model_again = accelerator.prepare(optimizer, model)
    else:
        model_again = accelerator.prepare(model)
        optimizer = accelerator.prepare(optimizer_of(model.parameters()))
    assert model_again is model and type(model).__name__ == type(plain).__name__
    assert isinstance(model, type(plain)) and list(model.state_dict()) == list(plain.state_dict())
    for step in range(steps):
        plain_optimizer.zero_grad()
        for r in range(size):
            (loss_of(plain, batch(step, r)) / size).backward()
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward() if plain_backward else accelerator.backward(loss)
        if clip is not None:
            wanted = nn.utils.clip_grad_norm_(plain.parameters(), clip)
            found = accelerator.clip_grad_norm_(model.parameters(), clip)
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
        plain_optimizer.step()
        optimizer.step()
    check_same(model, plain)
    return model, plain, optimizer, plain_optimizer


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


# ---------------------------------------------------------------- training


def a_perceptron():
    trained_alike(Perceptron, square, rows, adamw)


def a_perceptron_by_plain_backward_and_an_optimizer_of_before():
    trained_alike(Perceptron, square, rows, adamw, before=True, plain_backward=True)


def a_transformer_with_tied_embeddings_and_clipping():
    model, *_ = trained_alike(Transformer, language, tokens, adamw, before=True, clip=0.5)
    assert model.head.weight is model.embed.weight
    assert hasattr(model.blocks[0].qkv.weight, "full_tensor") and not hasattr(model.scale, "full_tensor")


def a_frozen_backbone():
    model, *_ = trained_alike(lambda: Perceptron(4, frozen=True), square, rows, momentum, clip=0.3)
    assert all(p.grad is None for p in model.body.parameters())


def two_models_of_a_gan():
    g, d = seeded(lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))), seeded(Perceptron)
    twins = copy.deepcopy(g), copy.deepcopy(d)
    optimizers = [adamw(g.parameters()), adamw(d.parameters())]
    plain = [adamw(one.parameters()) for one in twins]
    g, d, *optimizers = accelerator.prepare(g, d, *optimizers)

    def play(g, d, optimizers, xs, backward):
        optimizers[1].zero_grad()
        for x in xs:
            backward((F.softplus(-d(x)) + F.softplus(d(g(x).detach()))).mean())
        optimizers[1].step()
        optimizers[0].zero_grad()
        for x in xs:
            backward(F.softplus(-d(g(x))).mean())
        optimizers[0].step()

    for step in range(20):
        play(*twins, plain, [rows(step, r) for r in range(size)], lambda loss: (loss / size).backward())
        play(g, d, optimizers, [rows(step)], accelerator.backward)
    check_same(g, twins[0])
    check_same(d, twins[1])


def windows_with_a_ragged_tail():
    """Of a loader of 7 batches, windows of 3: the last one is short."""
    for exact in (False, True):
        for every in (False, True):
            plugin = GradientAccumulationPlugin(num_steps=3, exact_windows=exact, sync_each_batch=every)
            mine = made(gradient_accumulation_plugin=plugin)
            model, plain = seeded(Perceptron), seeded(Perceptron)
            data = [rows(0, r, 1)[0] for r in range(7 * size)]
            loader = torch.utils.data.DataLoader(data, batch_size=1)
            optimizer, plain_optimizer = momentum(model.parameters()), momentum(plain.parameters())
            model, optimizer, loader = mine.prepare(model, optimizer, loader)
            for _ in range(2):
                for x in loader:
                    with mine.accumulate(model):
                        mine.backward(square(model, x))
                        mine.clip_grad_norm_(model.parameters(), 0.5)
                        optimizer.step()
                        optimizer.zero_grad()
                for window in ([0, 1, 2], [3, 4, 5], [6]):
                    for number in window:
                        for x in data[number * size : (number + 1) * size]:
                            length = len(window) if exact else 3
                            (square(plain, x[None]) / size / length).backward()
                    nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
                    plain_optimizer.step()
                    plain_optimizer.zero_grad()
            check_same(model, plain)


def sums_and_uneven_shards():
    """Batches of 5, 5 and 2 rows over the processes, one of which has no row of the last one."""
    for reduction in ("mean", "sum"):
        mine = made(split_batches=True)
        model, plain = seeded(Perceptron), seeded(Perceptron)
        data = list(torch.randn(12, 3, generator=torch.Generator().manual_seed(5)))
        optimizer, plain_optimizer = adamw(model.parameters()), adamw(plain.parameters())
        loader = mine.prepare(torch.utils.data.DataLoader(data, batch_size=5))
        model, optimizer = mine.prepare(model, optimizer)
        for _ in range(3):
            for x, start in zip(loader, (0, 5, 10), strict=True):
                y = torch.stack(data[start : start + 5])
                for net, batch, one, backward in (
                    (plain, y, plain_optimizer, torch.Tensor.backward),
                    (model, x, optimizer, partial(mine.backward, reduction=reduction)),
                ):
                    loss = (net(batch) - batch.sum(1, keepdim=True)).square()
                    backward(loss.mean() if reduction == "mean" else loss.sum() / 9)
                    one.step()
                    one.zero_grad()
        check_same(model, plain)


def items_are_counted_over_a_window():
    mine = made(gradient_accumulation_steps=2)
    model, plain = seeded(Perceptron), seeded(Perceptron)
    optimizer, plain_optimizer = momentum(model.parameters()), momentum(plain.parameters())
    model, optimizer = mine.prepare(model, optimizer)
    for step in range(4):
        batches = [[rows(10 * step + i, r, 2 + r + i) for i in range(2)] for r in range(size)]
        total = sum(len(x) for row in batches for x in row)
        for x in batches[rank]:
            with mine.accumulate(model):
                mine.backward(square(model, x) * len(x), num_items=len(x))
                optimizer.step()
                optimizer.zero_grad()
        for row in batches:
            for x in row:
                (square(plain, x) * len(x) / total).backward()
        plain_optimizer.step()
        plain_optimizer.zero_grad()
    check_same(model, plain)


FEW = (a_perceptron_by_plain_backward_and_an_optimizer_of_before, a_transformer_with_tied_embeddings_and_clipping)
HELPERS = (in_blocks, made, seeded, rows, tokens, square, language, whole, check_same, trained_alike, adamw, momentum)
for claim in list(globals().values()):
    if isinstance(claim, type(made)) and claim.__module__ == "__main__" and claim not in HELPERS:
        if claim.__name__ in sys.argv[2:] or not sys.argv[2:] or (sys.argv[2:] == ["few"] and claim in FEW):
            try:
                claim()
            except BaseException:
                print("FAILED", claim.__name__, flush=True)
                raise
print("RESULT true", flush=True)
