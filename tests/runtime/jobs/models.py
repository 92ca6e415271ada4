"""What `prepare` does to a model, on several processes. Every check is a function; all run in one job."""

import copy
import io
import pickle
import sys
import warnings
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torchlift.runtime import Accelerator, DistributedDataParallelKwargs, MixedUseError
from torchlift.runtime.strategies import during

warnings.simplefilter("error", FutureWarning)
warnings.filterwarnings("ignore", "`torch.jit", FutureWarning)  # that it is deprecated, from torch 2.14 on
during.SMALL_BYTES = float(sys.argv[1])  # what is exchanged during the pass: everything, or nothing
accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes
torch.manual_seed(100 + rank)  # weights differ before prepare


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)
        self.unused = nn.Linear(4, 1)
        self.cfg = {"width": 4}

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))

    def encode(self, x):
        return self.body(x).sum()

    def __len__(self):
        return 17


def rows(r=None):
    generator = torch.Generator().manual_seed(rank if r is None else r)
    return torch.randn(5, 3, generator=generator)


def same_everywhere(model):
    flat = torch.cat([t.detach().double().reshape(-1) for t in model.state_dict().values()])
    assert all(torch.equal(row, flat) for row in accelerator.gather(flat[None])), "processes differ"


def expected_gradient(model, loss_of):
    plain = copy.deepcopy(model)
    plain.zero_grad()
    for r in range(size):
        (loss_of(plain, rows(r)) / size).backward()
    return [None if p.grad is None else p.grad.clone() for p in plain.parameters()]


def check_gradient(model, wanted):
    for (name, p), want in zip(model.named_parameters(), wanted, strict=True):
        assert (p.grad is None) == (want is None), name
        assert want is None or torch.allclose(p.grad, want, atol=1e-6), name


def the_model_stays_the_object_it_was():
    net = Net()
    alias, keys, parameters = net, list(net.state_dict()), list(net.parameters())
    assert accelerator.prepare(net) is net is alias
    assert accelerator.prepare(net) is net
    assert isinstance(net, Net) and type(net).__name__ == "Net" and len(net) == 17 and net.cfg == {"width": 4}
    assert list(net.state_dict()) == keys
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert net.module is net and accelerator.unwrap_model(net) is net
    same_everywhere(net)


def who_looks_for_the_module_of_a_model_finds_none():
    """Models of transformers unwrap themselves as long as there is one, when they are saved; so do scripts."""

    def unwrapped(one):
        for _ in range(3):
            if not hasattr(one, "module"):
                return one
            one = one.module
        raise RecursionError

    class Saved(Net):
        def save_pretrained(self):
            return unwrapped(self)

    net = accelerator.prepare(Saved())
    assert net.save_pretrained() is unwrapped(net) is net
    assert (net.module if hasattr(net, "module") else net) is getattr(net, "module", net) is net
    assert net.module.state_dict().keys() == net.state_dict().keys() and net.module.module is net

    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.module = inner

        def forward(self, x):
            return self.module(x)

    net = Net()
    wrapped = accelerator.prepare(Wrapper(net))
    assert wrapped.module is unwrapped(wrapped) is net


def copies_and_pickles_are_of_the_plain_class():
    net = accelerator.prepare(Net())
    accelerator.backward(net(rows()).sum())
    twin = copy.deepcopy(net)
    assert type(twin) is Net and type(net) is not Net
    twin(rows()).sum().backward()
    data = pickle.dumps(net)
    assert b"torchlift" not in data
    assert type(pickle.loads(data)) is Net
    buffer = io.BytesIO()
    torch.save(net, buffer)
    assert b"torchlift" not in buffer.getvalue()
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    assert type(again) is Net and torch.equal(again.body.weight, net.body.weight)
    assert type(copy.copy(net)) is Net


def gradients_are_averaged_by_every_path():
    net = accelerator.prepare(Net())
    paths = {
        "forward": lambda m, x: m(x).mean(),
        "method": lambda m, x: m.encode(x),
        "two forwards": lambda m, x: m(x).mean() + m(2 * x).square().mean(),
        "forward and method": lambda m, x: m(x).mean() + m.encode(x),
        "head by itself": lambda m, x: m.head(torch.ones(2, 4)).sum() * x.sum(),
    }
    for name, path in paths.items():
        net.zero_grad()
        wanted = expected_gradient(net, path)
        accelerator.backward(path(net, rows()))
        check_gradient(net, wanted)
        assert net.unused.weight.grad is None, name


def a_plain_backward_after_forward_is_exchanged_too():
    net = accelerator.prepare(Net())
    wanted = expected_gradient(net, lambda m, x: m(x).mean())
    net(rows()).mean().backward()
    check_gradient(net, wanted)


def a_gradient_that_one_process_asks_for_by_itself_is_its_own():
    net = accelerator.prepare(Net())
    wanted = expected_gradient(net, lambda m, x: m(x).mean())
    output = net(rows()).mean()
    if rank == 0:
        torch.autograd.grad(output, list(net.head.parameters()), retain_graph=True)
        torch.func.grad(lambda x: net(x).sum())(rows())
    output.backward()
    check_gradient(net, wanted)


def a_plain_backward_that_has_failed_does_not_spoil_the_next():
    net = accelerator.prepare(Net())
    wanted = expected_gradient(net, lambda m, x: m(x).mean())

    def fail(_gradient):
        raise ArithmeticError("on purpose")

    net.head.weight.register_hook(fail)
    try:
        net(rows()).mean().backward()
    except ArithmeticError:
        net.head.weight._backward_hooks.clear()
    else:
        raise AssertionError("the error was swallowed")
    net.zero_grad()
    net(rows()).mean().backward()
    check_gradient(net, wanted)


class Kinds(nn.Module):
    """Weights of several types; which of them are used, the process decides."""

    def __init__(self):
        super().__init__()
        self.short = nn.Linear(3, 4, dtype=torch.bfloat16)
        self.waves = nn.Parameter(torch.complex(torch.ones(4), torch.arange(4.0)))
        self.wide = nn.Linear(4, 1).double()
        self.picture = nn.Conv2d(1, 2, 3).to(memory_format=torch.channels_last)

    def forward(self, x, everything):
        hidden = self.short(x.bfloat16()).float() * (self.waves.abs() if everything else 1)
        return self.wide(hidden.double()).mean() + self.picture(torch.ones(1, 1, 3, 3)).mean()


def weights_of_any_type_are_exchanged_also_where_some_processes_use_none():
    net = accelerator.prepare(Kinds())
    for everywhere in (True, False):
        net.zero_grad()
        plain = copy.deepcopy(net)
        for r in range(size):
            (plain(rows(r), everywhere or r == 0) / size).backward()
        accelerator.backward(net(rows(), everywhere or rank == 0))
        for (name, p), want in zip(net.named_parameters(), plain.parameters(), strict=True):
            assert p.grad.dtype is p.dtype and torch.allclose(p.grad, want.grad, rtol=2e-2, atol=1e-3), name


def retained_graphs_and_several_backwards_add_up():
    net = accelerator.prepare(Net())
    wanted = expected_gradient(net, lambda m, x: 3 * m(x).mean() + m.encode(x))
    loss = net(rows()).mean()
    accelerator.backward(loss, retain_graph=True)
    accelerator.backward(2 * loss)
    accelerator.backward(net.encode(rows()))
    check_gradient(net, wanted)


def no_sync_adds_up_locally():
    net = accelerator.prepare(Net())
    wanted = expected_gradient(net, lambda m, x: m(x).mean() * 2)
    for inside in (net, None):
        net.zero_grad()
        with accelerator.no_sync(inside):
            accelerator.backward(net(rows()).mean())
        accelerator.backward(net(rows()).mean())
        check_gradient(net, wanted)
    other, wrapper = nn.Linear(1, 1), nn.Sequential(net)
    for named, syncs in ((other, True), (wrapper, False), (net.body, False)):
        net.zero_grad()
        with accelerator.no_sync(named):
            accelerator.backward(net(rows()).mean())
        gradients = accelerator.gather(net.body.weight.grad[None])
        assert torch.equal(gradients[0], gradients[-1]) == syncs, "what is named decides, and what it belongs to"
    net.zero_grad()
    loss = net(rows()).mean()  # forward outside, backward inside
    with accelerator.no_sync(net):
        accelerator.backward(loss)
    local = net.head.bias.grad.clone()
    assert torch.equal(local, torch.ones(1))
    accelerator.backward(net(rows()).mean())
    check_gradient(net, wanted)


def layers_that_a_forward_pass_makes_are_those_of_rank_0_in_it():
    """The first loss of each process was that of weights of its own, and their gradients were averaged."""

    class Growing(Net):
        def forward(self, x):
            x = torch.tanh(self.body(x))
            if self.head is None:
                self.head = nn.Linear(x.shape[1], 1)
                self.scale = nn.Parameter(torch.randn(1))
            return self.head(x) * self.scale

    growing, lazy = Growing(), Net()
    growing.head, lazy.head = None, nn.LazyLinear(1)
    for net in (growing, lazy):
        net = accelerator.prepare(net)
        optimizer = accelerator.prepare(torch.optim.SGD(net.parameters(), lr=0.1))
        for _ in range(2):
            outputs = accelerator.gather(net(torch.ones(1, 3)).detach())
            assert (outputs == outputs[0]).all(), outputs
            optimizer.zero_grad()
            accelerator.backward(net(rows()).sum())
            optimizer.step()
        same_everywhere(net)


def frozen_parts_that_thaw_are_exchanged():
    net = Net()
    net.body.requires_grad_(False)
    accelerator.prepare(net)
    accelerator.backward(net(rows()).mean())
    assert net.body.weight.grad is None
    net.body.requires_grad_(True)
    net.zero_grad()
    wanted = expected_gradient(net, lambda m, x: m(x).mean())
    accelerator.backward(net(rows()).mean())
    check_gradient(net, wanted)
    net.head.requires_grad_(False)
    net.zero_grad()
    wanted = expected_gradient(net, lambda m, x: m(x).mean())
    accelerator.backward(net(rows()).mean())
    check_gradient(net, wanted)
    teacher = Net().requires_grad_(False)
    accelerator.prepare(teacher)
    same_everywhere(teacher)
    teacher.requires_grad_(True)
    wanted = expected_gradient(teacher, lambda m, x: m(x).mean())
    accelerator.backward(teacher(rows()).mean())
    check_gradient(teacher, wanted)


def gan(freeze):
    torch.manual_seed(5)
    d, g = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), nn.Linear(2, 3)
    opt_d, opt_g = torch.optim.Adam(d.parameters(), 0.01), torch.optim.Adam(g.parameters(), 0.01)
    d, g, opt_d, opt_g = accelerator.prepare(d, g, opt_d, opt_g)
    generator = torch.Generator().manual_seed(50 + rank)
    for _ in range(5):
        if freeze:
            d.requires_grad_(True)
        opt_d.zero_grad()
        accelerator.backward(d(torch.randn(4, 3, generator=generator)).mean())
        fake = g(torch.randn(4, 2, generator=generator))
        accelerator.backward(-d(fake.detach()).mean())
        opt_d.step()
        if freeze:
            d.requires_grad_(False)
        opt_g.zero_grad()
        accelerator.backward(d(fake).square().mean())
        opt_g.step()
        same_everywhere(d)
        same_everywhere(g)


def gans_stay_equal():
    gan(False)
    gan(True)


def buffers_follow_rank_0_and_strange_ones_do_no_harm():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    net.register_buffer("wide", torch.full((1,), float(rank)).expand(6))
    net.register_buffer("view", torch.arange(6.0).view(2, 3).t()[1:] + rank)
    net.register_buffer("count", torch.tensor(rank))
    net.register_buffer("empty", torch.zeros(0))
    accelerator.prepare(net)
    same_everywhere(net)
    for _ in range(2):
        accelerator.backward(net(rows()).square().mean())
        same_everywhere(net)
    assert net[1].running_mean.abs().sum() > 0


def things_without_gradients_are_only_placed():
    loss, frozen = nn.CrossEntropyLoss(), nn.Linear(2, 2).requires_grad_(False)
    got = accelerator.prepare(None, loss, [frozen, "text"], {"a": 1}, 7)
    assert got[0] is None and got[1] is loss and got[2][0] is frozen and got[3] == {"a": 1} and got[4] == 7
    frozen(torch.ones(1, 2))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(3, 3) for _ in range(4))
        self.reentrant = reentrant

    def forward(self, x):
        return self.c(checkpoint(self.b, self.a(x), use_reentrant=self.reentrant))


def checkpointed_layers_are_exchanged():
    for reentrant in (False, True):
        net = accelerator.prepare(Checkpointed(reentrant))
        for _ in range(3):
            net.zero_grad()
            wanted = expected_gradient(net, lambda m, x: 3 * m(x).mean())
            accelerator.backward(net(rows()).mean())
            with accelerator.no_sync(net):
                accelerator.backward(net(rows()).mean())
            accelerator.backward(net(rows()).mean())
            check_gradient(net, wanted)


def a_loss_of_another_model_does_not_spoil_no_sync():
    net, other = accelerator.prepare(Net()), nn.Linear(3, 1)
    wanted = expected_gradient(net, lambda m, x: 2 * m(x).mean())
    for sync in (False, True):
        accelerator.backward(other(rows()).mean())  # reaches nothing of the prepared model
        with nullcontext() if sync else accelerator.no_sync(net):
            accelerator.backward(net(rows()).mean())
    check_gradient(net, wanted)


def compiled_and_traced_models_are_exchanged():
    net = torch.compile(Net(), backend="eager")
    assert accelerator.prepare(net) is net
    plain = accelerator.unwrap_model(net)
    wanted = expected_gradient(plain, lambda m, x: m(x).mean())
    accelerator.backward(net(rows()).mean())
    check_gradient(plain, wanted)
    traced = accelerator.prepare(torch.jit.trace(nn.Linear(3, 1), torch.ones(1, 3)))
    accelerator.backward(traced(rows()).mean())
    assert all(torch.equal(p.grad, row) for p in traced.parameters() for row in accelerator.gather(p.grad[None]))


def different_models_are_refused():
    try:
        accelerator.prepare(nn.Linear(1, 1 + rank))
    except MixedUseError as error:
        assert "same order" in str(error)
    else:
        raise AssertionError("models of different shapes were accepted")


def tied_weights_are_exchanged_once():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    accelerator.prepare(net)
    wanted = expected_gradient(net, lambda m, x: m(x).mean())
    accelerator.backward(net(rows()).mean())
    check_gradient(net, wanted)


def a_failed_backward_does_not_spoil_the_next():
    net = accelerator.prepare(Net())
    wanted = expected_gradient(net, lambda m, x: m(x).mean())

    def fail(_gradient):
        raise ArithmeticError("on purpose")

    hidden = net.body(rows())
    hidden.register_hook(fail)
    try:
        accelerator.backward(net.head(hidden).sum())
    except ArithmeticError:
        pass
    else:
        raise AssertionError("the error was swallowed")
    net.zero_grad()
    accelerator.backward(net(rows()).mean())
    check_gradient(net, wanted)


def compressed_gradients_are_means_to_rounding():
    for word, more in {"fp16": {}, "bf16": {}, "power_sgd": {"start_powerSGD_iter": 2}}.items():
        handler = DistributedDataParallelKwargs(comm_hook=word, comm_state_option=more)
        compressing = Accelerator(kwargs_handlers=[handler])
        net = compressing.prepare(Net())
        wanted = expected_gradient(net, lambda m, x: m(x).mean())
        compressing.backward(net(rows()).mean())
        pairs = [(p.grad, w) for p, w in zip(net.parameters(), wanted, strict=True) if w is not None]
        off = max(float((gradient - want).abs().max()) for gradient, want in pairs)
        assert off < 2e-2 and (word == "power_sgd" or off > 0), (word, off)
        flat = torch.cat([gradient.reshape(-1) for gradient, _ in pairs])
        assert all(torch.equal(row, flat) for row in accelerator.gather(flat[None])), "processes differ"
        foreign = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
        handler.register_comm_hook(foreign)
        foreign(rows()).sum().backward()
        try:
            handler.register_comm_hook(net)
        except ValueError as error:
            assert "Pass this handler to Accelerator" in str(error)
        else:
            raise AssertionError("nothing was compressed, and nothing said so")


def memory_is_let_go():
    net = accelerator.prepare(Net())
    assert accelerator.free_memory(net, 1) == [None, None]
    assert type(net) is Net
    net(rows()).sum().backward()


for name, check in list(globals().items()):
    if callable(check) and getattr(check, "__module__", "") == "__main__" and name not in (
        "Net", "rows", "same_everywhere", "expected_gradient", "check_gradient", "gan", "Checkpointed", "Kinds",
        "checkpoint",
    ):  # fmt: skip
        try:
            check()
        except BaseException:
            print("FAILED", name, flush=True)
            raise
print("RESULT true", flush=True)
