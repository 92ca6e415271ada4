"""
The shapes of models and of steps that the matrix trains. Each is a whole script, a function of a `run`.

A run prepares things, and `run.step(body)` calls `body(rows, backward)` with the rows of one process: once in a process
of a job, or for one process after the other where a single one plays all of them. What is returned is compared.
"""

import dataclasses
import itertools
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

SHAPES = {}
AGAINST_DDP = set()
"""Their numbers depend on the process that computes them: they are compared with torch's DistributedDataParallel."""
COARSER = {}
"""How close those come whose numbers are in a lower precision than what is asked for."""
SLOW = set()
"""Not in the part of the matrix that every change must pass."""
EXACT_ONLY = set()
"""They stop where numbers come close enough: rounding decides when."""


def shape(function, name=None):
    SHAPES[name or function.__name__] = function
    return function


def against_ddp(function):
    AGAINST_DDP.add(function.__name__)
    return shape(function)


def mlp(*widths):
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())))[:-1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.middle, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.middle(torch.tanh(self.body(x)))))


def sgd(run, *nets, lr=0.1):
    return run.prepare(torch.optim.SGD([p for net in nets for p in net.parameters()], lr=lr, momentum=0.9))


def minimise(run, optimizer, loss_of):
    optimizer.zero_grad()
    run.step(lambda rows, backward: backward(loss_of(rows)))
    optimizer.step()


def fit(net):
    return lambda rows: F.mse_loss(net(rows.x), rows.t)


def trained(run, net, loss_of=None, lr=0.1):
    """Three steps of a model."""
    net = run.prepare(net)
    optimizer = sgd(run, net, lr=lr)
    for _ in range(3):
        minimise(run, optimizer, fit(net) if loss_of is None else lambda rows: loss_of(net, rows))
    return [net]


# ---------------------------------------------------------------- weights


@shape
def plain_layers(run):
    return trained(run, Net())


@shape
def tied_weights(run):
    net = mlp(4, 4, 4, 1)
    net[2].weight = net[0].weight
    return trained(run, net)


@shape
def parts_frozen_and_thawed(run):
    net = Net()
    net.body.requires_grad_(False)
    net = run.prepare(net)
    optimizer = sgd(run, net)
    for number in range(4):
        net.body.requires_grad_(number >= 1)
        net.middle.requires_grad_(number != 2)
        minimise(run, optimizer, fit(net))
    return [net]


@shape
def parts_frozen_between_forward_and_backward(run):
    net = run.prepare(Net())
    optimizer = sgd(run, net)

    def body(rows, backward):
        loss = fit(net)(rows)
        net.middle.requires_grad_(rows.number % 2 == 0)
        backward(loss)
        net.middle.requires_grad_(True)

    for _ in range(3):
        optimizer.zero_grad()
        run.step(body)
        optimizer.step()
    return [net]


@shape
def a_model_that_is_frozen_for_a_step(run):
    nets = run.prepare(Net(), Net())
    optimizer = sgd(run, *nets)
    for number in range(3):
        nets[0].requires_grad_(number != 1)
        minimise(run, optimizer, lambda rows: F.mse_loss(nets[0](rows.x) + nets[1](rows.x), rows.t))
    return nets


@shape
def weights_of_several_kinds(run):
    class Kinds(nn.Module):
        def __init__(self):
            super().__init__()
            self.other = nn.Linear(4, 4, dtype=torch.float32 if run.dtype is torch.float64 else torch.float64)
            self.own = nn.Linear(4, 1)
            self.scale, self.nothing = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.zeros(0, 3))
            self.turned = nn.Parameter(torch.randn(4, 4).t())

        def forward(self, x):
            hidden = self.other(x.to(self.other.weight.dtype)).to(x.dtype) @ self.turned
            return self.own(hidden * self.scale) + self.nothing.sum()

    return trained(run, Kinds(), lr=0.03)


COARSER["weights_of_several_kinds"] = 1e-5


@shape
def complex_weights(run):
    class Waves(nn.Module):
        def __init__(self):
            super().__init__()
            self.waves = nn.Parameter(torch.randn(4, dtype=run.dtype.to_complex()))
            self.head = nn.Linear(4, 1)

        def forward(self, x):
            return self.head((x * self.waves).abs())

    return trained(run, Waves(), lr=0.02)


@shape
def parametrized_weights(run):
    return trained(run, nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 1)))


@shape
def a_list_of_parameters_made_in_forward(run):
    class Lists(Net):
        def forward(self, x):
            layers = nn.ParameterList([self.body.weight, self.middle.weight, self.head.weight])
            for weight in layers:
                x = torch.tanh(x @ weight.T)
            return x

    return trained(run, Lists())


@shape
def convolutions_in_another_memory_format(run):
    net = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(3, 1))
    return trained(run, net.to(memory_format=torch.channels_last), lambda m, r: F.mse_loss(m(r.pictures), r.t))


# ---------------------------------------------------------------- what a pass reaches


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(4, 5)
        self.heads = nn.ModuleList([nn.Linear(5, 1) for _ in range(4)])

    def forward(self, x, number):
        return self.heads[number](self.body(x))


@shape
def parts_unused_on_some_processes(run):
    return trained(run, Heads(), lambda m, r: F.mse_loss(m(r.x, 0) + (m(r.x, 1) if r.rank == 0 else 0), r.t))


@shape
def heads_in_turn_one_never(run):
    return trained(run, Heads(), lambda m, r: F.mse_loss(m(r.x, r.number % 3), r.t))


@shape
def experts_that_processes_and_rows_choose(run):
    def loss_of(net, rows):
        hidden, chosen = net.body(rows.x), (rows.x[:, 0] > 0) * 1 + rows.rank % 2
        outputs = [net.heads[n](hidden[chosen == n]) - rows.t[chosen == n] for n in range(3) if (chosen == n).any()]
        return torch.cat(outputs).square().mean()

    return trained(run, Heads(), loss_of)


@shape
def a_loss_that_some_processes_ignore(run):
    return trained(run, Heads(), lambda m, r: F.mse_loss(m(r.x, 0), r.t) * (r.rank == 0) + m(r.x, 1).sum() * 0)


@shape
def several_forwards_before_a_backward(run):
    return trained(run, Net(), lambda m, r: F.mse_loss(m(r.x) * m(2 * r.x) + m(r.x + 1), r.t))


@shape
def passes_one_after_another(run):
    """Two losses, each with a pass of its own, of two forward passes that came before."""
    net = run.prepare(Net())
    optimizer = sgd(run, net, lr=0.03)

    def both(rows, backward):
        one, two = F.mse_loss(net(rows.x), rows.t), net(3 * rows.x).square().mean()
        backward(two)
        backward(one)

    for _ in range(3):
        optimizer.zero_grad()
        run.step(both)
        optimizer.step()
    return [net]


@shape
def two_losses_of_a_retained_graph(run):
    net = run.prepare(Heads())
    optimizer = sgd(run, net)

    def both(rows, backward):
        hidden = net.body(rows.x)
        one, two = (F.mse_loss(net.heads[n](hidden), rows.t) for n in (0, 1))
        backward(one, retain_graph=True)
        backward(two)

    for _ in range(3):
        optimizer.zero_grad()
        run.step(both)
        optimizer.step()
    return [net]


def adversaries(run, freeze):
    g, d = run.prepare(mlp(2, 6, 4), mlp(4, 6, 1))
    opt_g, opt_d = sgd(run, g), sgd(run, d)
    for _ in range(3):
        fakes = {}

        def judge(rows, backward, fakes=fakes):
            fakes[rows.rank] = g(rows.z)
            backward(F.softplus(-d(rows.x)).mean())
            backward(F.softplus(d(fakes[rows.rank].detach())).mean())

        opt_d.zero_grad()
        run.step(judge)
        opt_d.step()
        d.requires_grad_(not freeze)
        opt_g.zero_grad()
        run.step(lambda rows, backward, fakes=fakes: backward(F.softplus(-d(fakes[rows.rank])).mean()))
        opt_g.step()
        d.requires_grad_(True)
    return g, d


@shape
def adversaries_that_are_frozen_in_turn(run):
    return adversaries(run, True)


@shape
def adversaries_that_collect_too_much(run):
    return adversaries(run, False)


@shape
def a_layer_of_two_models(run):
    shared = mlp(4, 5)
    one, two = run.prepare(nn.Sequential(shared, nn.Linear(5, 1)), nn.Sequential(shared, nn.Linear(5, 2)))
    optimizer = run.prepare(torch.optim.SGD(dict.fromkeys([*one.parameters(), *two.parameters()]), 0.1))
    for _ in range(3):
        minimise(run, optimizer, lambda rows: F.mse_loss(one(rows.x), rows.t) + F.mse_loss(two(rows.x), rows.z))
    return one, two


# ---------------------------------------------------------------- layers


class Again(Net):
    reentrant = None

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        if self.reentrant is None:
            return self.head(torch.tanh(self.middle(hidden)))
        for _ in range(2):  # one layer in two nested passes
            hidden = torch.tanh(checkpoint(self.middle, hidden, use_reentrant=self.reentrant))
        return self.head(hidden)


def computed_again(run, *reentrant):
    net = run.prepare(Again())
    optimizer = sgd(run, net)
    for net.reentrant in reentrant:
        minimise(run, optimizer, fit(net))
    return [net]


@shape
def checkpoints(run):
    return computed_again(run, False, False, False)


@shape
def reentrant_checkpoints(run):
    return computed_again(run, True, True, True)


@shape
def checkpoints_switched_on_and_off(run):
    return computed_again(run, None, True, False, None)


class Reversible(torch.autograd.Function):
    """Computes its inputs again, and runs a backward pass in the middle of one."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, layer):
        ctx.layer, ctx.x = layer, x.detach()
        return x + layer(x.detach()).detach()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.x.requires_grad_()
            output = ctx.layer(x)
            torch.autograd.backward(output, gradient.to(output.dtype))
        return gradient + x.grad, None


@shape
def reversible_layers(run):
    class WithReversible(Net):
        def forward(self, x):
            hidden = self.body(x)
            for _ in range(2):
                hidden = Reversible.apply(hidden, self.middle)
            return self.head(hidden)

    return trained(run, WithReversible(), lr=0.02)


class Rounded(torch.autograd.Function):
    """Passes gradients straight through."""

    @staticmethod
    def forward(ctx, x):
        return (4 * x).round() / 4

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@shape
def functions_of_the_script(run):
    class Straight(Net):
        def forward(self, x):
            return self.head(Rounded.apply(torch.tanh(self.body(Rounded.apply(x)))))

    return trained(run, Straight())


@shape
def recurrent_layers(run):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.layers, self.head = nn.Embedding(7, 3), nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1)

        def forward(self, tokens):
            return self.head(self.layers(self.table(tokens))[0][:, -1])

    return trained(run, Recurrent(), lambda m, r: F.mse_loss(m(r.tokens), r.t))


def tables(run, sparse):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.EmbeddingBag(7, 4, mode="sum", sparse=sparse), nn.Linear(4, 1)

        def forward(self, tokens):
            return self.head(self.table(tokens))

    net = run.prepare(Table())
    optimizer = run.prepare(torch.optim.SGD(net.parameters(), 0.05))
    for _ in range(3):
        minimise(run, optimizer, lambda rows: F.mse_loss(net(rows.tokens), rows.t))
    return [net]


@shape
def dense_tables(run):
    return tables(run, False)


@shape
def sparse_tables(run):
    return tables(run, True)


@shape
def attention(run):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 1)
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

        def forward(self, tokens):
            return self.head(self.layer(self.table(tokens)).mean(1))

    return trained(run, Encoder(), lambda m, r: F.mse_loss(m(r.tokens), r.t), lr=0.03)


@against_ddp
def batch_norm(run):
    return trained(run, nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1)))


@against_ddp
def batch_norm_of_a_part_that_alone_is_in_training(run):
    net = nn.Sequential(nn.Linear(4, 5), nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1))).eval()
    net[1].train()
    return trained(run, net)


@against_ddp
def batch_norm_in_evaluation_before_backward(run):
    net = run.prepare(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)))
    optimizer = sgd(run, net)

    def body(rows, backward):
        net.train()
        loss = fit(net)(rows)
        net.eval()
        backward(loss)

    for _ in range(3):
        optimizer.zero_grad()
        run.step(body)
        optimizer.step()
    return [net]


@against_ddp
def dropout(run):
    net = run.prepare(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = sgd(run, net)
    run.part_noise()
    for _ in range(3):
        minimise(run, optimizer, fit(net))
    return [net]


@against_ddp
def buffers_that_forward_writes(run):
    class Counting(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("rows", torch.tensor(0))

        def forward(self, x):
            if self.training:
                self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)  # another tensor in its place
                self.rows += len(x)
            return super().forward(x - self.mean)

    return trained(run, Counting())


# ---------------------------------------------------------------- what forward returns


@dataclasses.dataclass
class Inner:
    value: object


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


RETURNING = {
    "a_dict_in_an_object": (lambda out: SimpleNamespace(value={"a": out}), lambda net, got: got.value["a"]),
    "a_dataclass_in_a_dataclass": (lambda out: Inner(Inner(out)), lambda net, got: got.value.value),
    "slots": (lambda out: Slots([out]), lambda net, got: got.value[0]),
    "a_generator": (lambda out: (one for one in [out]), lambda net, got: next(got)),
    "a_closure": (lambda out: lambda: out, lambda net, got: got()),
    "nothing_but_stores": (lambda out: None, lambda net, got: net.stored[0]),
}


def returning(name):
    put, take = RETURNING[name]

    class Returning(Net):
        stored = ()

        def forward(self, x):
            self.stored = [super().forward(x)]
            return put(self.stored[0])

    def loss_of(net, rows):
        output = take(net, net(rows.x))
        net.stored = ()
        return F.mse_loss(output.to(rows.t.dtype), rows.t)

    return lambda run: trained(run, Returning(), loss_of)


for _name in RETURNING:
    shape(returning(_name), f"returns_{_name}")


# ---------------------------------------------------------------- functions of torch


@shape
def functional_calls(run):
    def loss_of(net, rows):
        return F.mse_loss(torch.func.functional_call(net, dict(net.named_parameters()), (rows.x,)), rows.t)

    return trained(run, Net(), loss_of)


@shape
def inner_steps(run):
    """Weights that are functions of the weights, and copies of them, are in their place for one call each."""

    def loss_of(net, rows):
        own = dict(net.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(net, own, (rows.x,)), rows.t)
        slopes = torch.autograd.grad(inner, list(own.values()), create_graph=True)
        fast = {name: p - 0.1 * slope for (name, p), slope in zip(own.items(), slopes, strict=True)}
        copies = {name: nn.Parameter(p.detach() + rows.rank) for name, p in own.items()}
        other = torch.func.functional_call(net, copies, (rows.x,)).detach()
        return F.mse_loss(torch.func.functional_call(net, fast, (rows.x,)), rows.t + 0.1 * other)

    return trained(run, Net(), loss_of)


@shape
def tangents(run):
    def loss_of(net, rows):
        value, slope = torch.func.jvp(net, (rows.x,), (torch.ones_like(rows.x),))
        return F.mse_loss(value + slope, rows.t)

    return trained(run, Net(), loss_of)


@shape
def mapped_over_rows(run):
    return trained(run, Net(), lambda m, r: F.mse_loss(torch.func.vmap(lambda x: m(x[None])[0])(r.x), r.t))


@shape
def a_penalty_on_slopes(run):
    def loss_of(net, rows):
        x = rows.x.clone().requires_grad_()
        value = net(x)
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        return F.mse_loss(value, rows.t) + (slope.norm(dim=1) - 1).square().mean()

    return trained(run, Net(), loss_of)


def compiled_by(run, backend):
    net = Net()
    net.compile(backend=backend)
    return trained(run, net)


@shape
def compiled(run):
    return compiled_by(run, "eager")


@shape
def compiled_with_its_backward_pass(run):
    return compiled_by(run, "aot_eager")


SLOW.add("compiled_with_its_backward_pass")


@shape
def tensors_kept_elsewhere(run):
    def loss_of(net, rows):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), torch.from_numpy):
            return F.mse_loss(net(rows.x), rows.t)

    return trained(run, Net(), loss_of if run.autocast is None else None)


@shape
def hooks_of_the_script(run):
    net, heard = run.prepare(Net()), []
    net.head.weight.register_hook(lambda gradient: 2 * gradient)
    net.body.weight.register_post_accumulate_grad_hook(lambda p: heard.append(p.grad is not None))
    net.middle.register_full_backward_hook(lambda module, into, out: (3 * into[0],))
    net.middle.register_forward_hook(lambda module, args, output: 0.5 * output)
    optimizer = sgd(run, net, lr=0.03)
    for _ in range(3):
        minimise(run, optimizer, fit(net))
    assert heard and all(heard)
    return [net]


# ---------------------------------------------------------------- a model that changes after prepare


@shape
def other_weights_in_their_place(run):
    net = run.prepare(Net())
    for number in range(2):
        if number:
            net.load_state_dict({k: 0.5 * v + run.different for k, v in net.state_dict().items()}, assign=True)
        optimizer = sgd(run, net)
        for _ in range(2):
            minimise(run, optimizer, fit(net))
    return [net]


@shape
def a_new_head(run):
    net = run.prepare(Net())
    minimise(run, sgd(run, net), fit(net))
    net.requires_grad_(False)
    torch.manual_seed(17 + run.different)
    net.head = nn.Linear(5, 1)
    optimizer = sgd(run, net.head)
    for _ in range(2):
        minimise(run, optimizer, fit(net))
    return [net]


class LoRA(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.a, self.b = nn.Parameter(torch.randn(2, base.in_features)), nn.Parameter(torch.randn(base.out_features, 2))

    def forward(self, x):
        return self.base(x) + 0.3 * x @ self.a.T @ self.b.T


@shape
def adapters(run):
    net = run.prepare(Net().requires_grad_(False))
    torch.manual_seed(17 + run.different)
    net.middle = LoRA(net.middle)
    optimizer = sgd(run, net.middle)
    for _ in range(3):
        minimise(run, optimizer, fit(net))
    return [net]


@shape
def another_type(run):
    net = run.prepare(Net().float())
    for turn in (nn.Module.float, nn.Module.double):
        turn(net)
        optimizer = sgd(run, net)
        for _ in range(2):
            minimise(run, optimizer, lambda rows: fit(net)(rows.to(next(net.parameters()).dtype)))
    return [net]


COARSER["another_type"] = 1e-5


@shape
def weights_turned_to_bf16(run):
    net = run.prepare(Net())
    for turn in (nn.Module.type, nn.Module.bfloat16):
        turn(net, *[run.dtype] * (turn is nn.Module.type))
        optimizer = sgd(run, net)
        minimise(run, optimizer, lambda rows: fit(net)(rows.to(next(net.parameters()).dtype)).float())
    return [net]


COARSER["weights_turned_to_bf16"] = 3e-2


@shape
def adapters_whose_first_pass_is_in_a_window(run):
    net = run.prepare(Net())
    minimise(run, sgd(run, net), fit(net))
    torch.manual_seed(17 + run.different)
    net.middle = LoRA(net.middle)
    optimizer = sgd(run, net)
    optimizer.zero_grad()
    with run.no_sync(net):
        run.step(lambda rows, backward: backward(fit(net)(rows)))
    run.step(lambda rows, backward: backward(net.head(torch.tanh(net.body(rows.x))).square().mean()))
    optimizer.step()
    return [net]


# ---------------------------------------------------------------- steps


@shape
def closures(run):
    net = run.prepare(Net())
    optimizer = run.prepare(torch.optim.LBFGS(net.parameters(), lr=0.3, max_iter=3))

    for number in range(2):

        def again(number=number):
            def body(rows, backward):
                loss = fit(net)(rows)
                backward(loss)
                return loss.detach()

            optimizer.zero_grad()
            return run.step(body, at=number)

        assert optimizer.step(again).item() > 0  # a tensor, as the closure returns
    return [net]


EXACT_ONLY.add("closures")


@shape
def windows_of_accumulate(run):
    net = run.prepare(Net())
    optimizer = sgd(run, net)
    for _ in range(3):
        run.window(net, optimizer, 3, fit(net))
    return [net]


@shape
def windows_by_hand(run):
    """The last pass of a window reaches less than those before it."""
    net = run.prepare(Heads())
    optimizer = sgd(run, net)
    for _ in range(3):
        with run.no_sync(net):
            run.step(lambda rows, backward: backward(F.mse_loss(net(rows.x, 1), rows.t)))
        run.step(lambda rows, backward: backward(F.mse_loss(net(rows.x, 0), rows.t)))
        optimizer.step()
        optimizer.zero_grad()
    return [net]


@shape
def clipped_gradients(run):
    net = run.prepare(Net())
    optimizer, norms = sgd(run, net), []
    for _ in range(3):
        optimizer.zero_grad()
        run.step(lambda rows, backward: backward(fit(net)(rows)))
        norms.append(run.clip(net.parameters(), 0.1))
        optimizer.step()
    return net, torch.stack(norms)


@shape
def second_looks(run):
    """Sharpness-aware: two passes of one batch, the second from other weights."""
    net = run.prepare(Net())
    optimizer = sgd(run, net)
    for number in range(3):
        optimizer.zero_grad()
        run.step(lambda rows, backward: backward(fit(net)(rows)), at=number)
        moves = [0.05 * p.grad for p in net.parameters()]
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_add_(list(net.parameters()), moves)
        run.step(lambda rows, backward: backward(fit(net)(rows)), at=number)
        with torch.no_grad():
            torch._foreach_sub_(list(net.parameters()), moves)
        optimizer.step()
    return [net]


@shape
def gradients_that_stay_between_steps(run):
    """Nothing is set to nothing: sums of all steps so far."""
    net = run.prepare(Heads())
    optimizer = sgd(run, net, lr=0.02)
    for _ in range(3):
        run.step(lambda rows, backward: backward(F.mse_loss(net(rows.x, rows.number % 2), rows.t)))
        optimizer.step()
    return [net]
