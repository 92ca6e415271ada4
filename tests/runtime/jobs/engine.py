"""Ways to train a prepared model, against one process; each with a plain backward and with the accelerator's."""

import copy
import dataclasses
import sys
import time
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torchlift.runtime import Accelerator, MixedUseError
from torchlift.runtime.strategies import during

during.SMALL_BYTES = float(sys.argv[1])  # up to how many bytes a model is exchanged after a pass
accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes


def plain(loss):
    loss.backward()


BACKWARDS = {"plain": plain, "accelerator": accelerator.backward}


def rows(r=None):
    generator = torch.Generator().manual_seed(rank if r is None else r)
    return torch.randn(5, 3, generator=generator, dtype=torch.float64)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1 + rank)
        self.body = nn.Linear(3, 4)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)
        self.double()

    def forward(self, x):
        return self.head(torch.tanh(self.middle(torch.tanh(self.body(x)))))


def compare(net, loss_of, backward, times=2, reset=True):
    """Several passes of a loss, and the gradients of each."""
    for _ in range(times):
        if reset:
            net.zero_grad()
        wanted = expected(net, loss_of)
        backward(loss_of(net, rows()))
        check(net, wanted)


def expected(net, loss_of):
    twin = copy.deepcopy(net)
    twin.zero_grad()
    for r in range(size):
        (loss_of(twin, rows(r)) / size).backward()
    return [p.grad for p in twin.parameters()]


def check(net, wanted):
    for (name, p), want in zip(net.named_parameters(), wanted, strict=True):
        assert (p.grad is None) == (want is None), name
        assert want is None or torch.allclose(p.grad, want, rtol=0, atol=1e-9), (name, p.grad, want)


def same_everywhere(tensors):
    flat = torch.cat([t.detach().double().reshape(-1) for t in tensors])
    assert all(torch.equal(row, flat) for row in accelerator.gather(flat[None])), "processes differ"


# ---------------------------------------------------------------- what forward returns


@dataclasses.dataclass
class Inner:
    value: object


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


KEPT = []


class Returning(Net):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        out = super().forward(x)
        KEPT[:] = [out]
        return {
            "dict in an object": lambda: SimpleNamespace(value={"a": out}),
            "dataclass in a dataclass": lambda: Inner(Inner(out)),
            "slots": lambda: Slots(out),
            "generator": lambda: (one for one in [out]),
            "stored": lambda: None,
            "closure": lambda: lambda: out,
        }[self.how]()


TAKING = {
    "dict in an object": lambda net, x: net(x).value["a"],
    "dataclass in a dataclass": lambda net, x: net(x).value.value,
    "slots": lambda net, x: net(x).value,
    "generator": lambda net, x: next(net(x)),
    "stored": lambda net, x: (net(x), KEPT[0])[1],
    "closure": lambda net, x: net(x)(),
}


def whatever_forward_returns(backward):
    for how, take in TAKING.items():
        net = accelerator.prepare(Returning(how))
        compare(net, lambda m, x, take=take: take(m, x).square().mean(), backward)


def by_functions_of_torch_func(backward):
    net = accelerator.prepare(Net())

    def tangent(m, x):
        return torch.func.jvp(m, (x,), (torch.ones_like(x),))[1].square().mean()

    def functional(m, x):
        return torch.func.functional_call(m, dict(m.named_parameters()), (x,)).square().mean()

    def mapped(m, x):
        return torch.func.vmap(lambda row: m(row[None])[0])(x).square().mean()

    for loss_of in (tangent, functional, mapped):
        compare(net, loss_of, backward)


# ---------------------------------------------------------------- graphs


def several_forwards_before_a_backward(backward):
    net = accelerator.prepare(Net())
    compare(net, lambda m, x: (m(x) * m(2 * x) + m(x + 1)).mean(), backward)
    net.zero_grad()
    wanted = expected(net, lambda m, x: m(x).mean() + 2 * m(3 * x).mean())
    first, second = net(rows()).mean(), net(3 * rows()).mean()
    backward(first)
    backward(2 * second)
    check(net, wanted)


class Checkpointed(Net):
    reentrant: bool | None = None

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        if self.reentrant is None:
            return self.head(torch.tanh(self.middle(hidden)))
        return self.head(torch.tanh(checkpoint(self.middle, hidden, use_reentrant=self.reentrant)))


def checkpoints_also_when_they_are_switched_on_later(backward):
    for first in (None, True, False):
        net = accelerator.prepare(Checkpointed())
        for net.reentrant in (first, True, False, None):
            compare(net, lambda m, x: m(x).square().mean(), backward)
    net.reentrant = True
    compare(net, lambda m, x: (m(x) * m(x + 1)).mean(), backward)  # one layer in two nested passes


class Reversible(torch.autograd.Function):
    """Computes its inputs again, and runs a backward pass in the middle of one."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer, ctx.x = layer, x.detach()
        return x + layer(x.detach()).detach()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.x.requires_grad_()
            torch.autograd.backward(ctx.layer(x), gradient)
        return gradient + x.grad, None


class WithReversible(Net):
    def forward(self, x):
        hidden = self.body(x)
        for _ in range(2):
            hidden = Reversible.apply(hidden, self.middle)
        return self.head(hidden)


def reversible_layers(backward):
    compare(accelerator.prepare(WithReversible()), lambda m, x: m(x).square().mean(), backward)


def higher_order_gradients(backward):
    net = accelerator.prepare(Net())

    def penalty(m, x):
        x = x.clone().requires_grad_()
        (inner,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        return inner.square().mean() + m(x).mean()

    compare(net, penalty, backward)


def hooks_of_the_user(backward):
    net = accelerator.prepare(Net())
    heard = []
    net.head.weight.register_hook(lambda gradient: 2 * gradient)
    net.body.weight.register_post_accumulate_grad_hook(lambda p: heard.append(p.grad is not None))
    wanted = expected(net, lambda m, x: m(x).mean())
    wanted[-2] = 2 * wanted[-2]
    backward(net(rows()).mean())
    check(net, wanted)
    assert heard == [True]


def retained_graphs_add_up(backward):
    net = accelerator.prepare(Net())
    wanted = expected(net, lambda m, x: 3 * m(x).mean())
    loss = net(rows()).mean()
    loss.backward(retain_graph=True)
    backward(2 * loss)
    check(net, wanted)


def a_part_that_only_a_window_before_the_last_batch_has_reached(backward):
    net = accelerator.prepare(Net())
    for _ in range(2):
        net.zero_grad()
        wanted = expected(net, lambda m, x: m(x).mean() + m.body(x).square().mean())
        with accelerator.no_sync(net):
            backward(net(rows()).mean())
        backward(net.body(rows()).square().mean())
        check(net, wanted)


# ---------------------------------------------------------------- errors


class Wide(Net):
    """What its middle and head collect fills a bucket of the reducer: it is on its way while the body computes."""

    def __init__(self):
        super().__init__()
        self.body, self.middle, self.head = nn.Linear(3, 400), nn.Linear(400, 400), nn.Linear(400, 1)
        self.double()


def a_pass_that_has_failed_and_is_tried_again(backward):
    def fail(_gradient):
        raise torch.OutOfMemoryError("on purpose")

    for late in (None, 0, 1):
        net = accelerator.prepare(Wide())
        for where in ("body", "middle", "head"):
            if late == rank:
                net.body.weight.register_hook(lambda _: time.sleep(0.2))
            handle = getattr(net, where).weight.register_hook(fail)
            loss = net(rows()).square().mean()
            if late == rank:
                time.sleep(0.2)
            try:
                backward(loss)
            except torch.OutOfMemoryError:
                handle.remove()
            else:
                raise AssertionError("the error was swallowed")
            net.body.weight._backward_hooks.clear()
            compare(net, lambda m, x: (m(x[:3] + 1) - 3).square().mean(), backward)  # once more, with less


def a_gradient_that_is_used_up_before_the_exchange_is_an_error(backward):
    net = accelerator.prepare(Net())

    def step(parameter):
        parameter.grad = None

    net.body.weight.register_post_accumulate_grad_hook(step)
    try:
        backward(net(rows()).mean())
    except MixedUseError as error:
        assert "before the processes could exchange it" in str(error)
    else:
        raise AssertionError("every process was trained apart")


def a_loss_of_one_process_of_a_model_that_was_never_prepared(backward):
    net, other = accelerator.prepare(Net()), Net()
    output = net(rows())
    if rank == 0:
        backward(other(rows()).mean())
    assert (other.head.weight.grad is None) == (rank != 0)
    backward(output.mean())
    same_everywhere([p.grad for p in net.parameters()])


def a_regulariser_of_one_model_after_the_step_of_another(backward):
    d, g = accelerator.prepare(Net(), nn.Linear(3, 3).double())
    for _ in range(2):
        backward(d(g(rows()).detach()).mean())
        g.zero_grad()
        backward(g.weight.square().sum() * (1 + rank))
        want = 2 * g.weight.detach() * sum(range(1, size + 1)) / size
        assert torch.allclose(g.weight.grad, want, atol=1e-9)
        assert g.bias.grad is None


# ---------------------------------------------------------------- buffers


def statistics_follow_rank_0(backward):
    net = accelerator.prepare(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double())
    for _ in range(3):
        twin = copy.deepcopy(net)
        twin(rows(0))
        backward(net(rows()).square().mean())
        same_everywhere(net.buffers())
        assert torch.equal(net[1].running_mean, twin[1].running_mean)


# ---------------------------------------------------------------- parameters that change after prepare


def trains(net, parameters, backward):
    """Two steps; the weights stay equal."""
    optimizer = accelerator.prepare(torch.optim.SGD(parameters, lr=0.1))
    for _ in range(2):
        optimizer.zero_grad()
        before = [p.detach().clone() for p in parameters]
        backward(net(rows().to(next(net.parameters()).dtype)).square().mean())
        optimizer.step()
        same_everywhere(net.parameters())
        assert all(not torch.equal(a, b) for a, b in zip(before, parameters, strict=True))


def other_weights_in_their_place(backward):
    net = accelerator.prepare(Net())
    trains(net, list(net.parameters()), backward)
    net.load_state_dict({k: v + rank for k, v in net.state_dict().items()}, assign=True)
    trains(net, list(net.parameters()), backward)
    compare(net, lambda m, x: m(x).square().mean(), backward)


def a_new_head(backward):
    net = accelerator.prepare(Net())
    trains(net, list(net.parameters()), backward)
    net.requires_grad_(False)
    torch.manual_seed(rank)
    net.head = nn.Linear(4, 2).double()
    trains(net, list(net.head.parameters()), backward)
    compare(net, lambda m, x: m(x).square().mean(), backward)


class LoRA(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(2, base.in_features, dtype=torch.float64))
        self.b = nn.Parameter(torch.randn(base.out_features, 2, dtype=torch.float64))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


def adapters(backward):
    net = accelerator.prepare(Net().requires_grad_(False))
    torch.manual_seed(rank)
    net.middle = LoRA(net.middle)
    trains(net, [net.middle.a, net.middle.b], backward)
    compare(net, lambda m, x: m(x).square().mean(), backward)


def a_new_part_that_no_forward_pass_of_the_model_comes_by(backward):
    net = accelerator.prepare(Net())
    torch.manual_seed(rank)
    net.extra = nn.Linear(3, 1).double()
    optimizer = accelerator.prepare(torch.optim.SGD(net.extra.parameters(), lr=0.1))
    for _ in range(2):
        optimizer.zero_grad()
        backward(net.extra(rows()).square().mean())
        optimizer.step()
        same_everywhere(net.parameters())


def another_type(backward):
    for turn in (nn.Module.float, nn.Module.double, nn.Module.bfloat16):
        net = accelerator.prepare(Net())
        trains(net, list(net.parameters()), backward)
        turn(net)
        net.zero_grad()
        trains(net, list(net.parameters()), backward)


def thawed_parts(backward):
    net = Net()
    net.body.requires_grad_(False)
    accelerator.prepare(net)
    trains(net, [*net.middle.parameters(), *net.head.parameters()], backward)
    net.body.requires_grad_(True)
    compare(net, lambda m, x: m(x).square().mean(), backward)
    net.middle.requires_grad_(False)
    net.zero_grad()
    compare(net, lambda m, x: m(x).square().mean(), backward)


def different_changes_are_refused(backward):
    net = accelerator.prepare(Net())
    net.head = nn.Linear(4, 1 + rank).double()
    try:
        net(rows())
    except MixedUseError as error:
        assert "have changed a prepared model in different ways" in str(error)
    else:
        raise AssertionError("different changes were accepted")


# ---------------------------------------------------------------- optimizers


def a_closure_whose_loss_is_a_tensor(backward):
    net = Net()
    net, optimizer = accelerator.prepare(net, torch.optim.LBFGS(net.parameters(), max_iter=2))

    def closure():
        optimizer.zero_grad()
        loss = net(rows()).square().mean()
        backward(loss)
        return loss

    loss = optimizer.step(closure)
    assert isinstance(loss, torch.Tensor) and loss.item() > 0
    same_everywhere(net.parameters())


HELPERS = ("plain", "rows", "compare", "expected", "check", "same_everywhere", "trains")
ONLY = sys.argv[2:]
for name, case in list(globals().items()):
    if isinstance(case, type(plain)) and case.__module__ == "__main__" and name not in HELPERS:
        for how, backward in BACKWARDS.items():
            if not ONLY or name in ONLY:
                try:
                    case(backward)
                except BaseException:
                    print("FAILED", name, how, flush=True)
                    raise
print("RESULT true", flush=True)
