"""
Ways of training, each for 50 steps in float64 with the global batch kept; prints the weights as exact numbers.

Every way is a function of an accelerator. `Plain` stands in for one, so that the same code runs as a plain script.
"""

import copy
import io
import itertools
import json
import pickle
import sys

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

STEPS = 50
WAYS = {}


class Plain:
    """What a script on one device does without an accelerator."""

    num_processes, process_index = 1, 0

    def __init__(self, **_):
        self.sync_gradients = True

    def prepare(self, *things):
        return things[0] if len(things) == 1 else things

    def backward(self, loss, reduction="mean", **kwargs):
        loss.backward(**kwargs)

    def clip_grad_norm_(self, parameters, norm):
        return nn.utils.clip_grad_norm_(parameters, norm)

    def unwrap_model(self, model):
        return model


def way(function):
    WAYS[function.__name__] = function
    return function


def batches(accelerator, rows=23, batch=5, width=4):
    """A pass after the other, for as many steps as are asked for; the last batch of each is short."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, width, generator=generator).double()
    z = torch.randn(rows, 2, generator=generator).double()
    data = TensorDataset(x, z, torch.rand(rows, 1, generator=generator).double())
    loader = accelerator.prepare(DataLoader(data, batch_size=batch, shuffle=True))
    while True:
        yield from loader


def steps(accelerator, count=STEPS, **more):
    yield from (batch for batch, _ in zip(batches(accelerator, **more), range(count), strict=False))


def mlp(*widths):
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())))[:-1].double()


def sgd(model, lr=0.05):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def minimise(accelerator, optimizer, loss):
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()


@way
def adversaries(accelerator, penalty=False):
    """A generator and a discriminator; one is frozen while the other trains, or is not."""
    g, d = mlp(2, 8, 4), mlp(4, 8, 1)
    opt_g, opt_d = torch.optim.Adam(g.parameters(), 2e-3), torch.optim.Adam(d.parameters(), 2e-3)
    g, d, opt_g, opt_d = accelerator.prepare(g, d, opt_g, opt_d)
    for number, (x, z, t) in enumerate(steps(accelerator)):
        opt_d.zero_grad()
        fake = g(z)
        if penalty:
            between = (t * x + (1 - t) * fake.detach()).requires_grad_(True)
            (slope,) = torch.autograd.grad(d(between).sum(), between, create_graph=True)
            wanted = d(fake.detach()).mean() - d(x).mean()
            accelerator.backward(wanted + 10 * (slope.norm(dim=1) - 1).square().mean())
        else:
            accelerator.backward(nn.functional.softplus(-d(x)).mean())
            accelerator.backward(nn.functional.softplus(d(fake.detach())).mean())
        opt_d.step()
        if number % 2 == 0:
            d.requires_grad_(number % 4 == 0)
            minimise(accelerator, opt_g, nn.functional.softplus(-d(fake)).mean())
            d.requires_grad_(True)
    return g, d


@way
def adversaries_with_a_gradient_penalty(accelerator):
    return adversaries(accelerator, penalty=True)


@way
def parts_that_are_frozen_for_a_time(accelerator):
    net = mlp(4, 8, 8, 1)
    optimizer = sgd(net)
    net[0].requires_grad_(False)
    net, optimizer = accelerator.prepare(net, optimizer)
    for number, (x, _, t) in enumerate(steps(accelerator)):
        if number == 15:
            net[0].requires_grad_(True)
        if number == 35:
            net[2].requires_grad_(False)
        minimise(accelerator, optimizer, (net(x) - t).square().mean())
    return [net]


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.never = mlp(4, 8), mlp(2, 2)
        self.heads = nn.ModuleList([mlp(8, 1), mlp(8, 1), mlp(8, 1)])

    def forward(self, x, number):
        return self.heads[number](self.body(x))

    def loss(self, x, t):
        """Every row chooses its head: a process may have none for one of them."""
        hidden, chosen = self.body(x), x[:, 0] > 0
        errors = hidden.new_zeros(len(x), 1)
        for head, rows in zip(self.heads, (chosen, ~chosen), strict=False):
            if rows.any():
                errors[rows] = (head(hidden[rows]) - t[rows]).square()
        return errors.mean()


@way
def heads_in_turn(accelerator):
    net = Heads()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    net, optimizer = accelerator.prepare(net, optimizer)
    for number, (x, _, t) in enumerate(steps(accelerator)):
        minimise(accelerator, optimizer, (net(x, number % 3) - t).square().mean())
    return [net]


@way
def heads_that_rows_choose_in_a_method(accelerator):
    net = Heads()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    net, optimizer = accelerator.prepare(net, optimizer)
    for x, _, t in steps(accelerator):
        minimise(accelerator, optimizer, net.loss(x, t))
    return [net]


class Positions(nn.Module):
    """Buffers that are views, and one whose elements share memory."""

    def __init__(self):
        super().__init__()
        self.body = mlp(4, 8, 1)
        self.register_buffer("table", torch.arange(8.0).double().view(2, 4).unsqueeze(0).transpose(0, 1))
        self.register_buffer("scale", torch.full((1,), 0.5).double().expand(4))

    def forward(self, x):
        return self.body((x + self.table[0]) * self.scale)


@way
def buffers_without_strides(accelerator):
    net = Positions()
    net, optimizer = accelerator.prepare(net, sgd(net, 0.01))
    for x, _, t in steps(accelerator):
        minimise(accelerator, optimizer, (net(x) - t).square().mean())
    return [net]


@way
def copies_on_the_way(accelerator):
    """A prepared model is copied, pickled and saved whole; each copy goes on training."""
    net = mlp(4, 8, 1)
    net, optimizer = accelerator.prepare(net, sgd(net))
    for number, (x, _, t) in enumerate(steps(accelerator)):
        if number % 15 == 14:
            if number < 20:
                net = copy.deepcopy(net)
            elif number < 40:
                net = pickle.loads(pickle.dumps(net))
            else:
                file = io.BytesIO()
                torch.save(net, file)
                file.seek(0)
                net = torch.load(file, weights_only=False)
            net, optimizer = accelerator.prepare(net, sgd(net))
        minimise(accelerator, optimizer, (net(x) - t).square().mean())
    return [net]


@way
def averages_of_weights(accelerator):
    net = mlp(4, 8, 1)
    ours = copy.deepcopy(net)
    net, optimizer = accelerator.prepare(net, sgd(net))
    theirs = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for x, _, t in steps(accelerator):
        minimise(accelerator, optimizer, (net(x) - t).square().mean())
        theirs.update_parameters(net)
        with torch.no_grad():
            for mean, new in zip(ours.parameters(), accelerator.unwrap_model(net).parameters(), strict=True):
                mean.lerp_(new, 0.1)
    return net, ours, theirs


@way
def a_model_in_two_others(accelerator):
    """Parts are prepared by themselves, one belongs to two models, and the loss goes through a holder."""
    shared = mlp(4, 8)
    one, two = nn.Sequential(shared, mlp(8, 1)), nn.Sequential(shared, mlp(8, 2))
    optimizer = torch.optim.Adam(dict.fromkeys([*one.parameters(), *two.parameters()]), 1e-2)
    one, two, optimizer = accelerator.prepare(one, two, optimizer)
    for x, z, t in steps(accelerator):
        minimise(accelerator, optimizer, (one(x) - t).square().mean() + (two(x) - z).square().mean())
    return one, two


@way
def clipping_in_windows(accelerator):
    """Windows of three batches by hand, with `no_sync` where there is one; the norm is that of whole gradients."""
    net = mlp(4, 8, 1)
    net, optimizer = accelerator.prepare(net, sgd(net))
    norms = []
    for number, (x, _, t) in enumerate(steps(accelerator, rows=20)):
        whole = number % 3 == 2
        loss = (net(x) - t).square().mean() / 3
        if whole or isinstance(accelerator, Plain):
            accelerator.backward(loss)
        else:
            with accelerator.no_sync(net):
                accelerator.backward(loss)
        if whole:
            norms.append(accelerator.clip_grad_norm_(net.parameters(), 0.05))
            optimizer.step()
            optimizer.zero_grad()
    return net, torch.stack(norms)


@way
def second_looks(accelerator):
    """Sharpness-aware steps: two backward passes of one batch, the second from other weights."""
    net = mlp(4, 8, 1)
    net, optimizer = accelerator.prepare(net, sgd(net))
    for x, _, t in steps(accelerator):
        optimizer.zero_grad()
        accelerator.backward((net(x) - t).square().mean())
        moves = [0.05 * p.grad / (p.grad.norm() + 1e-9) for p in net.parameters()]
        with torch.no_grad():
            for p, move in zip(net.parameters(), moves, strict=True):
                p.add_(move)
        optimizer.zero_grad()
        accelerator.backward((net(x) - t).square().mean())
        with torch.no_grad():
            for p, move in zip(net.parameters(), moves, strict=True):
                p.sub_(move)
        optimizer.step()
    return [net]


@way
def closures_with_a_line_search(accelerator):
    net = mlp(4, 8, 1)
    search = {"line_search_fn": "strong_wolfe", "max_iter": 4}
    net, optimizer = accelerator.prepare(net, torch.optim.LBFGS(net.parameters(), lr=0.5, **search))
    for x, _, t in steps(accelerator, 8):

        def again(x=x, t=t):
            optimizer.zero_grad()
            loss = (net(x) - t).square().mean()
            accelerator.backward(loss)
            return loss

        optimizer.step(again)
    return [net]


@way
def rows_of_tables(accelerator):
    """Sparse gradients."""
    table, net = nn.EmbeddingBag(7, 4, mode="sum", sparse=True).double(), mlp(4, 8, 1)
    opt_table, opt_net = torch.optim.SparseAdam(list(table.parameters()), 1e-2), sgd(net)
    table, net, opt_table, opt_net = accelerator.prepare(table, net, opt_table, opt_net)
    for x, _, t in steps(accelerator):
        opt_table.zero_grad()
        rows = (x.abs() * 3).long().clamp(max=6)
        minimise(accelerator, opt_net, (net(table(rows)) - t).square().mean())
        opt_table.step()
    return table, net


class Again(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.last = mlp(4, 8), mlp(8, 8), mlp(8, 1)
        self.reentrant = reentrant

    def forward(self, x):
        return self.last(checkpoint(self.second, self.first(x), use_reentrant=self.reentrant))


@way
def layers_that_are_computed_again(accelerator):
    nets = [Again(False), Again(True)]
    for net in nets:
        net, optimizer = accelerator.prepare(net, sgd(net))
        for x, _, t in steps(accelerator, 25):
            minimise(accelerator, optimizer, (net(x) - t).square().mean())
    return nets


@way
def weights_from_outside(accelerator):
    """A functional call with the model's own weights, and a loss with a weight of its own."""
    net, scale = mlp(4, 8, 1), nn.Linear(1, 1).double()
    optimizer = torch.optim.Adam([*net.parameters(), *scale.parameters()], 1e-2)
    net, scale, optimizer = accelerator.prepare(net, scale, optimizer)
    for x, _, t in steps(accelerator):
        output = torch.func.functional_call(net, dict(net.named_parameters()), (x,))
        minimise(accelerator, optimizer, (scale(output) - t).square().mean())
    return net, scale


@way
def plain_backwards(accelerator):
    """`loss.backward()` after a forward pass, as in a helper of the script that nobody has rewritten."""
    net = mlp(4, 8, 1)
    net, optimizer = accelerator.prepare(net, sgd(net))
    for x, _, t in steps(accelerator, rows=18, batch=6):
        optimizer.zero_grad()
        (net(x) - t).square().mean().backward()
        optimizer.step()
    return [net]


@way
def compiled(accelerator):
    net, inner = torch.compile(mlp(4, 8, 1), backend="aot_eager"), mlp(4, 8, 1)
    inner.compile(backend="eager")
    optimizer = sgd(nn.ModuleList([net, inner]))
    net, inner, optimizer = accelerator.prepare(net, inner, optimizer)
    for x, _, t in steps(accelerator):
        minimise(accelerator, optimizer, (net(x) + inner(x) - t).square().mean())
    return accelerator.unwrap_model(net), inner


def large(accelerator):
    """More than fits in one bucket of an exchange."""
    net = mlp(4, 300, 300, 300, 1)
    net, optimizer = accelerator.prepare(net, sgd(net, 0.01))
    for x, _, t in steps(accelerator, 12):
        minimise(accelerator, optimizer, (net(x) - t).square().mean())
    return [net]


WAYS["large"] = large
QUICK = (
    "heads_that_rows_choose_in_a_method",
    "buffers_without_strides",
    "copies_on_the_way",
    "averages_of_weights",
    "clipping_in_windows",
    "closures_with_a_line_search",
)
"""The others are shapes of the matrix, too, with even shards there."""


def numbers(parts):
    """The weights of what a way has trained; of many, a thousand from everywhere."""
    found = []
    for part in parts:
        found += [part] if isinstance(part, torch.Tensor) else [p.detach() for p in part.parameters()]
    flat = torch.cat([one.reshape(-1) for one in found])
    return flat[:: len(flat) // 1000 + 1]


def run(names, make):
    """The weights after each way; `make` gives an accelerator."""
    results = {}
    for name in names:
        torch.manual_seed(7)
        results[name] = numbers(WAYS[name](make()))
    return results


def main():
    from torchlift.runtime import Accelerator
    from torchlift.runtime.config.handlers import DistributedDataParallelKwargs

    options = json.loads(sys.argv[1])
    handlers = [DistributedDataParallelKwargs(**options)] if options else None
    accelerator = Accelerator(split_batches=True, kwargs_handlers=handlers)

    def make():
        accelerator.free_memory()
        return accelerator

    answer = {}
    for name, flat in run(sys.argv[2:], make).items():
        everywhere = accelerator.gather(flat[None])
        assert all(torch.equal(row, flat) for row in everywhere), f"{name}: the processes hold different weights"
        answer[name] = flat.tolist()
    print("RESULT " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
