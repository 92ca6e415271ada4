"""Gradients of gradients through sharded models: the training of one process, or an error that names the way."""

import copy

import torch
from claims import run
from torch import nn
from torch.nn import functional as F

from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin, MixedUseError, ShardedTensorError
from torchlift.runtime.torch_sharding import sharded_parts, whole_of, whole_parameter


def in_blocks(module, recurse, nonwrapped_numel):
    """As torch's policies: every block is a unit."""
    return recurse or type(module).__name__ == "Block"


torch.set_default_dtype(torch.float64)
PLUGINS = [
    FullyShardedDataParallelPlugin(auto_wrap_policy=in_blocks),
    FullyShardedDataParallelPlugin(auto_wrap_policy=in_blocks, reshard_after_forward=False),
    FullyShardedDataParallelPlugin(),
]
accelerator = Accelerator(fsdp_plugin=PLUGINS[0])
rank, size = accelerator.process_index, accelerator.num_processes


class Block(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.act = act

    def forward(self, x):
        return x + self.act(self.inner(x))


class Net(nn.Module):
    """With a weight that nothing uses, and a scalar, which stays whole."""

    def __init__(self, act=torch.tanh):
        super().__init__()
        self.body = nn.Linear(3, 6)
        self.blocks = nn.Sequential(Block(act), Block(act))
        self.head = nn.Linear(6, 1)
        self.unused = nn.Parameter(torch.ones(4))
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        return self.head(self.blocks(self.body(x))) * self.scale


class Forces(Net):
    """Takes gradients of its own inputs in its forward pass, and goes on."""

    def forward(self, x):
        x = x.clone().requires_grad_(True)
        energy = self.blocks(self.body(x))
        (force,) = torch.autograd.grad(energy.square().sum(), x, create_graph=True)
        return self.head(energy) * self.scale + force.sum(1, keepdim=True)


def rows(step, r=None):
    generator = torch.Generator().manual_seed(1000 * step + (rank if r is None else r))
    return torch.randn(4, 3, generator=generator)


def penalty(net, x):
    x = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return 10 * (gradient.norm(dim=1) - 1).square().mean()


def trained_alike(loss_of, make=Net, mine=accelerator, steps=4, plain_backward=False, passes=1):
    """`loss_of` gives one loss, or several that are handed to backward one after another."""
    torch.manual_seed(1)
    model = make()
    plain = copy.deepcopy(model)
    optimizer, other = (torch.optim.AdamW(one.parameters(), lr=0.01, weight_decay=0.1) for one in (model, plain))
    model, optimizer = mine.prepare(model, optimizer)
    for step in range(steps):
        for number in range(passes):
            with mine.accumulate(model):
                losses = loss_of(model, rows(step + 50 * number))
                for loss in losses if isinstance(losses, tuple) else (losses,):
                    loss.backward() if plain_backward else mine.backward(loss)
                norm = mine.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            for r in range(size):
                losses = loss_of(plain, rows(step + 50 * number, r))
                for loss in losses if isinstance(losses, tuple) else (losses,):
                    (loss / size / passes).backward()
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(plain.parameters(), 1.0), rtol=0, atol=1e-9)
        other.step()
        other.zero_grad()
    for (name, found), wanted in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(whole_of(found), wanted, rtol=0, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
    return model


def refused(kinds, call, *arguments):
    try:
        call(*arguments)
    except kinds as error:
        return str(error)
    raise AssertionError(f"{kinds} was not raised")


def a_gradient_penalty():
    for plugin in PLUGINS:
        for plain in (False, True):
            mine = Accelerator(fsdp_plugin=plugin)
            trained_alike(lambda net, x: net(x).mean() + penalty(net, 2 * x), mine=mine, plain_backward=plain)


def a_penalty_that_comes_by_no_output():
    """That of a piecewise linear model: its graph never comes to where torch would exchange gradients."""
    for plain in (False, True):
        trained_alike(penalty, make=lambda: Net(torch.relu), plain_backward=plain)


def losses_by_themselves_in_any_order():
    def first(net, x):
        extra = penalty(net, x)
        return net(x).mean(), -net(2 * x).mean(), extra

    trained_alike(first)
    trained_alike(lambda net, x: (net(x).mean(), penalty(net, x)), plain_backward=True)


def second_derivatives():
    """As for a differential equation: each pass but the last makes a graph."""

    def loss_of(net, x):
        x = x.clone().requires_grad_(True)
        out = net(x)
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        return (second.sum(1, keepdim=True) + first[:, :1] * out).square().mean()

    for plugin in PLUGINS:
        trained_alike(loss_of, mine=Accelerator(fsdp_plugin=plugin))


def gradients_inside_of_a_forward_pass():
    for plugin in PLUGINS:
        trained_alike(lambda net, x: net(x).square().mean(), make=Forces, mine=Accelerator(fsdp_plugin=plugin))


def windows():
    mine = Accelerator(fsdp_plugin=PLUGINS[0], gradient_accumulation_steps=2)
    trained_alike(lambda net, x: net(x).mean() + penalty(net, x), mine=mine, passes=2)


def a_generator_through_its_critic():
    """The critic is trained with a penalty; the generator through it, without."""
    torch.manual_seed(2)
    models = nn.Linear(3, 3), Net(F.leaky_relu)
    twins = copy.deepcopy(models)
    optimizers = [torch.optim.Adam(one.parameters(), lr=0.01) for one in models]
    others = [torch.optim.Adam(one.parameters(), lr=0.01) for one in twins]
    g, d, *optimizers = accelerator.prepare(*models, *optimizers)

    def play(g, d, optimizers, xs, backward):
        for _ in range(2):
            optimizers[1].zero_grad()
            for x in xs:
                fake = g(x).detach()
                real, made = d(x).mean(), d(fake).mean()
                backward(made - real + penalty(d, (x + fake) / 2))
            optimizers[1].step()
        optimizers[0].zero_grad()
        for x in xs:
            backward(-d(g(x)).mean())
        optimizers[0].step()

    for step in range(3):
        play(*twins, others, [rows(step, r) for r in range(size)], lambda loss: (loss / size).backward())
        play(g, d, optimizers, [rows(step)], accelerator.backward)
    for model, twin in ((g, twins[0]), (d, twins[1])):
        for found, wanted in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
            torch.testing.assert_close(whole_of(found), wanted, rtol=0, atol=1e-9)


def what_is_gathered_is_given_up_after_the_step():
    model = trained_alike(lambda net, x: net(x).mean() + penalty(net, x))
    held = [whole_parameter(part).untyped_storage().size() for part in sharded_parts(model)]
    assert all(held), held
    with torch.no_grad():
        model(rows(0))
    held = [whole_parameter(part).untyped_storage().size() for part in sharded_parts(model)]
    assert not any(held), held


def gradients_of_weights_have_no_graph():
    model = accelerator.prepare(Net())
    loss = model(rows(0)).mean()
    assert "create_graph=True" in refused(MixedUseError, lambda: accelerator.backward(loss, create_graph=True))
    trained_alike(lambda net, x: net(x).mean() + penalty(net, x))  # nothing is left of it
    loss = model(rows(0)).mean()
    assert "Take gradients of inputs alone" in refused(MixedUseError, lambda: loss.backward(create_graph=True))
    model.zero_grad()
    accelerator.backward(model(rows(0)).mean())


def a_pass_with_a_graph_that_fails():
    model = accelerator.prepare(Net())
    x = rows(0).requires_grad_(True)
    out = model(x)
    out.register_hook(lambda _: 1 / 0)
    refused(ZeroDivisionError, lambda: torch.autograd.grad(out.sum(), x, create_graph=True))
    accelerator.backward(model(rows(0)).mean() + penalty(model, rows(0)))
    twin = Net()
    twin.load_state_dict({name: whole_of(one).clone() for name, one in model.state_dict().items()})
    for r in range(size):
        ((twin(rows(0, r)).mean() + penalty(twin, rows(0, r))) / size).backward()
    for found, wanted in zip(model.parameters(), twin.parameters(), strict=True):
        if wanted.grad is None:
            assert found.grad is None
        else:
            torch.testing.assert_close(whole_of(found.grad), wanted.grad, rtol=0, atol=1e-9)


def a_term_of_the_weights_in_the_loss():
    """Not in one sum with the loss of the batch; by itself it is right."""
    for backward in (accelerator.backward, torch.Tensor.backward):
        model = accelerator.prepare(Net())
        loss = model(rows(0)).square().mean() + sum(p.pow(2).sum() for p in model.parameters())
        text = refused(ShardedTensorError, backward if backward is accelerator.backward else type(loss).backward, loss)
        assert "weight_decay" in text and "a backward pass of its own" in text

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, x):
            return self.layer(x)

    def losses(net, x):
        return net(x).square().mean(), 0.1 * sum(p.pow(2).sum() for p in net.parameters())

    trained_alike(losses, make=Wide)


def close(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(whole_of(one), other, rtol=0, atol=1e-9)


def gradients_that_are_asked_for():
    """Those of this process's rows, whole, as without sharding; nothing is exchanged, and no weight gets one."""
    for plugin in PLUGINS:
        mine = Accelerator(fsdp_plugin=plugin)
        torch.manual_seed(1)
        model = Net()
        plain, before = copy.deepcopy(model), list(model.parameters())
        model = mine.prepare(model)
        for listed in (before, list(model.parameters())):
            losses = [one(rows(0)).square().mean() for one in (model, plain)]
            more = {"allow_unused": True, "retain_graph": True}
            found = torch.autograd.grad(losses[0], listed, **more)
            wanted = torch.autograd.grad(losses[1], list(plain.parameters()), **more)
            close(found, wanted)
            assert type(found[3]) is torch.Tensor and any(one is None for one in found)
            assert all(one.grad is None for one in model.parameters())
            mine.backward(losses[0] / found[3].norm())
            for r in range(size):
                other = plain(rows(0, r)).square().mean()
                (bias,) = torch.autograd.grad(other, [plain.body.bias], retain_graph=True)
                (other / bias.norm() / size).backward()
            close([one.grad for one in model.parameters()], [one.grad for one in plain.parameters()])
            model.zero_grad()
            plain.zero_grad()


def gradients_of_some_weights():
    model = accelerator.prepare(Net())
    plain = Net()
    plain.load_state_dict({name: whole_of(value).clone() for name, value in model.state_dict().items()})
    for backward in (accelerator.backward, torch.Tensor.backward):
        some = [model.body.weight, model.head.bias]
        backward(model(rows(0)).square().mean(), inputs=some)
        for r in range(size):
            (plain(rows(0, r)).square().mean() / size).backward(inputs=[plain.body.weight, plain.head.bias])
        close([one.grad for one in model.parameters()], [one.grad for one in plain.parameters()])
        model.zero_grad()
        plain.zero_grad()


def rows_that_are_changed_by_their_gradient():
    """A weight that nothing uses has no gradient afterwards, and AdamW leaves it as it is."""

    def loss_of(net, x):
        x = x.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(net(x).square().mean(), x)
        return net((x + 0.1 * slope.sign()).detach()).square().mean()

    trained_alike(loss_of)
    trained_alike(loss_of, plain_backward=True)


def a_penalty_on_gradients_of_weights():
    def loss_of(net, x):
        gradients = torch.autograd.grad(net(x).square().mean(), [net.body.weight, net.head.weight], create_graph=True)
        return net(x).square().mean() + sum(one.square().sum() for one in gradients)

    trained_alike(loss_of)


run(globals(), "close in_blocks rows penalty trained_alike refused", after=accelerator.free_memory)
