"""Errors and rare cases of training a prepared model, each with a plain backward and the accelerator's."""

import copy
import sys
import time

import torch
from torch import nn

from torchlift.runtime import Accelerator, DistributedDataParallelKwargs, MixedUseError
from torchlift.runtime.strategies import during
from torchlift.runtime.utils import DDPCommunicationHookType

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


# ---------------------------------------------------------------- errors


HASTY = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=1)])


class Wide(Net):
    """With `HASTY`: what its middle and head collect fills a bucket, which is on its way while the body computes."""

    def __init__(self):
        super().__init__()
        self.body, self.middle, self.head = nn.Linear(3, 400), nn.Linear(400, 400), nn.Linear(400, 1)
        self.double()


def a_pass_that_has_failed_and_is_tried_again(backward):
    def fail(_gradient):
        raise torch.OutOfMemoryError("on purpose")

    backward = plain if backward is plain else HASTY.backward
    for late in (0, 1):
        for where in ("body", "middle", "head" if rank else "body"):
            net = HASTY.prepare(Wide())  # another one: after a failed pass a model has no reducer any more
            slow = net.body.weight.register_hook(lambda _: time.sleep(0.2 if late == rank else 0))  # noqa: B023
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
            slow.remove()
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


# ---------------------------------------------------------------- parameters that change after prepare


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


def the_first_gradients_leave_before_a_bucket_of_25_mb_is_full(_backward):
    net = accelerator.prepare(nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)]))  # a MiB each
    engine = accelerator._prepared.engines[id(net)]
    if during.SMALL_BYTES < 0:
        sizes = [bucket.buffer().nbytes >> 20 for bucket in during.empty_buckets(engine._during._ddp.reducer)]
        assert len(sizes) == 2 and min(sizes) == 1, sizes


def a_swap_of_parameters_is_refused_by_torch(backward):
    """With `set_swap_module_params_on_conversion` torch swaps what tensors hold: their hooks would be lost."""
    net = accelerator.prepare(Net())
    compare(net, lambda m, x: m(x).square().mean(), backward)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.load_state_dict({name: value.clone() for name, value in net.state_dict().items()})
    except RuntimeError as error:
        assert "swap" in str(error)  # as with raw DDP
    else:
        raise AssertionError("parameters were swapped")
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    compare(net, lambda m, x: m(x).square().mean(), backward)


def a_new_head_of_layers_that_are_called_by_themselves(backward):
    net = accelerator.prepare(Net())
    net.head = nn.Linear(4, 1).double()  # of other values on each process
    backward(net.head(torch.tanh(net.body(rows()))).square().mean())
    same_everywhere([net.body.weight.grad, net.head.weight, net.head.weight.grad])


def a_hook_that_runs_another_pass_is_right_or_refused(backward):
    net = accelerator.prepare(Net())

    def loss_of(model, x):
        out, other = model(x), (model(x) - 1).square().mean()  # of another graph: its own hook would run for ever
        other = other if model is net else other / size
        out.register_hook(lambda _: other.backward())
        return out.square().mean()

    try:
        compare(net, loss_of, backward, times=1)
    except MixedUseError as error:
        assert "ran another backward pass" in str(error) and backward is not plain and during.SMALL_BYTES < 0


def sparse_gradients_stay_sparse(backward):
    table = accelerator.prepare(nn.Sequential(nn.EmbeddingBag(7, 4, mode="sum", sparse=True)).double())
    optimizer = accelerator.prepare(torch.optim.SparseAdam(table.parameters()))
    for first in range(3):
        optimizer.zero_grad()
        twin = copy.deepcopy(table)
        for r in range(size):
            (twin(torch.tensor([[first + r, 6]])).square().sum() / size).backward()
        backward(table(torch.tensor([[first + rank, 6]])).square().sum())
        found, wanted = table[0].weight.grad, twin[0].weight.grad
        assert found.is_sparse and torch.allclose(found.to_dense(), wanted.to_dense())
        optimizer.step()
        same_everywhere(table.parameters())


class Same(torch.autograd.Function):
    """A function of the script: what its backward pass does, nothing tells beforehand."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def each_process_may_choose_its_own_way(backward):
    """What keeps the reducer from being used may be so on one process alone: it makes the calls of the others."""
    net = accelerator.prepare(Net())

    def loss_of(model, x):
        out = model(x)
        return (Same.apply(out) if rank == 0 else out).square().mean()

    compare(net, loss_of, backward)
    handle = net.body.weight.register_post_accumulate_grad_hook(lambda _: None) if rank == 0 else None
    compare(net, lambda m, x: m(x).square().mean(), backward)
    if handle is not None:
        handle.remove()
        net.head.register_full_backward_hook(lambda *_: None)
        with accelerator.no_sync(net):
            backward(net(rows()).sum())
        net.zero_grad()
    compare(net, lambda m, x: m(x).square().mean(), backward)
    mine = plain if rank else accelerator.backward
    compare(net, lambda m, x: m(x).square().mean(), mine)
    compare(net, lambda m, x: torch.tanh(m.body(x)).mean(), mine)


class Parts(nn.Module):
    """Four parameters; a row of numbers says which of them its loss reaches."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList([torch.ones(300 + n) * (n + 1 + rank) for n in range(4)])  # those of rank 0 count
        self.double()

    def forward(self, x):
        return sum(part.square().mean() * weight for part, weight in zip(self.parts, x.tolist(), strict=True) if weight)


def every_process_reaches_other_parameters(_backward):
    """Gradients that somebody has are means; what nobody reaches keeps what it had, a gradient or none."""
    reached = [
        [(1, 2, 3, 4), (1, 2, 3, 4)],
        [(1, 2, 3, 4), (0, 0, 3, 0)],
        [(0, 2, 3, 0), (1, 2, 3, 4)],
        [(1, 2, 0, 0), (0, 0, 3, 4)],
        [(1, 0, 0, 0), (0, 0, 3, 0)],
        [(0, 0, 3, 0), (0, 0, 3, 0)],
    ]
    views, halves = DistributedDataParallelKwargs(gradient_as_bucket_view=True), DDPCommunicationHookType.FP16
    ways = [
        None,
        views,
        DistributedDataParallelKwargs(bucket_cap_mb=1),
        DistributedDataParallelKwargs(comm_hook=halves),
    ]
    for options in ways:
        mine = Accelerator(kwargs_handlers=[options] if options else None)
        net = mine.prepare(Parts())
        for frozen in (False, True):
            net.parts[1].requires_grad_(not frozen)
            for kept in (False, True):
                for weights in reached:
                    for n, part in enumerate(net.parts):
                        part.grad = torch.full_like(part, n + 0.1) if kept and n % 2 else None
                    wanted = []
                    for n, part in enumerate(net.parts):
                        before = None if part.grad is None else part.grad.clone()
                        weight = sum(one[n] for one in weights) / size
                        added = 2 * part.detach() / part.numel() * weight if part.requires_grad and weight else None
                        wanted.append(before if added is None else added + (0 if before is None else before))
                    mine.backward(net(torch.tensor(weights[rank])))
                    for n, (part, want) in enumerate(zip(net.parts, wanted, strict=True)):
                        assert (part.grad is None) == (want is None), (n, weights, part.grad, want)
                        near = 2e-3 if options is ways[-1] else 1e-12
                        assert want is None or torch.allclose(part.grad, want, rtol=near, atol=near), (
                            n,
                            weights,
                            part.grad,
                            want,
                        )
        mine.free_memory()


def a_failed_pass_leaves_no_gradients_of_what_it_does_not_reach(backward):
    net = accelerator.prepare(Parts())
    hook = net.parts[1].register_hook(lambda _: 1 / 0)
    try:
        backward(net(torch.tensor((1, 2, 0, 0))))
    except ZeroDivisionError:
        hook.remove()
    assert net.parts[2].grad is None and net.parts[3].grad is None
    net.zero_grad()
    backward(net(torch.tensor((1, 2, 3, 0))))
    assert [part.grad is None for part in net.parts] == [False, False, False, True]
    same_everywhere([part.grad for part in net.parts[:3]])


def a_hook_hears_nothing_of_parameters_that_a_pass_does_not_reach(backward):
    net, heard = accelerator.prepare(Parts()), []
    net.parts[2].register_hook(heard.append)
    backward(net(torch.tensor((1, 2, 0, 4) if rank else (1, 2, 3, 4))))
    assert len(heard) == (rank == 0)
    same_everywhere([part.grad for part in net.parts])


def two_models_in_one_loss_of_which_one_process_reaches_a_part(backward):
    """During the pass their exchanges would come in another order on that process."""
    hasty = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=1)])
    first, second = hasty.prepare(Wide(), Wide())
    own = backward if backward is plain else hasty.backward

    def loss_of(models, x, r):
        hidden = models[0](x) if r == 0 else models[0].head.weight.sum() * x[:, :1]
        return models[1](hidden.expand(-1, 3)).square().mean()

    for _ in range(2):
        first.zero_grad()
        second.zero_grad()
        twins = [copy.deepcopy(first), copy.deepcopy(second)]
        for r in range(size):
            (loss_of(twins, rows(r), r) / size).backward()
        own(loss_of((first, second), rows(), rank))
        for model, twin in zip((first, second), twins, strict=True):
            check(model, [part.grad for part in twin.parameters()])


def a_part_is_frozen_and_one_process_fails(_backward):
    """A reducer that is made anew makes the calls of the others."""
    net = HASTY.prepare(Wide())
    for frozen in (False, True):
        net.middle.requires_grad_(not frozen)
        handle = net.body.weight.register_hook(lambda _: 1 / 0) if rank == 0 and frozen else None
        try:
            HASTY.backward(net(rows()).square().mean())
        except ZeroDivisionError:
            assert handle is not None
            handle.remove()
    compare(net, lambda m, x: m(x).square().mean(), HASTY.backward)


def a_table_of_sparse_gradients_beside_a_part_that_one_process_does_not_reach(backward):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head, self.side = nn.Embedding(7, 4, sparse=True), nn.Linear(4, 1), nn.Linear(4, 1)
            self.double()

    def loss_of(model, x):
        found = model.table(torch.arange(3))
        side = model.side(found).sum() if x[0, 0] > 0 else 0  # of the rows of some processes
        return model.head(found).square().sum() + side

    net = accelerator.prepare(Both())
    wanted = expected(net, loss_of)
    backward(loss_of(net, rows()))
    for part, want in zip(net.parameters(), wanted, strict=True):
        assert (part.grad is None) == (want is None)
        assert want is None or torch.allclose(part.grad.to_dense(), want.to_dense(), atol=1e-9)


def a_collective_of_the_script_in_a_hook(_backward):
    """It keeps its place among the exchanges, also where a process does not reach what travels first."""
    net, sums = HASTY.prepare(Wide()), []

    def added(_gradient):
        one = torch.ones(400, dtype=torch.float64)
        torch.distributed.all_reduce(one)
        sums.append(one.mean().item())

    def loss_of(model, x, r):
        hidden = torch.tanh(model.middle(torch.tanh(model.body(x))))
        output = model.head(hidden) if r == 0 else hidden
        if model is net:
            output.register_hook(added)
        return output.square().mean()

    twin = copy.deepcopy(net)
    for r in range(size):
        (loss_of(twin, rows(r), r) / size).backward()
    HASTY.backward(loss_of(net, rows(), rank))
    check(net, [part.grad for part in twin.parameters()])
    assert sums == [size]


def weights_that_thaw_are_exchanged_at_once(backward):
    """Also where no forward pass of the model in training mode comes by, and in the middle of a window."""
    for mode in (True, False):
        frozen = Net().train(mode)
        other = nn.Linear(3, 3).double()
        frozen.requires_grad_(False)
        frozen, other = accelerator.prepare(frozen, other)
        parameters = [*frozen.parameters(), *other.parameters()]
        optimizer = accelerator.prepare(torch.optim.SGD(parameters, lr=0.1))
        for step in range(3):
            if step == 1:
                other.requires_grad_(False)
                frozen.requires_grad_(True)
            optimizer.zero_grad()
            backward(frozen(other(rows(10 * step + rank))).square().mean())
            optimizer.step()
            same_everywhere(frozen.parameters())
    net = accelerator.prepare(Net())
    net.body.requires_grad_(False)
    backward(net(rows()).mean())
    net.zero_grad()
    net.body.requires_grad_(True)
    with accelerator.no_sync(net):
        backward(net(rows(rank + 7)).square().mean())
    backward(net(rows()).square().mean())
    same_everywhere([p.grad for p in net.parameters()])


def nodes_of_gradients_that_torch_has_made_anew(backward):
    """A change of type and back, and a parametrization: hooks that a reducer has at the old nodes hear nothing."""
    net = accelerator.prepare(Net().float())
    optimizer = accelerator.prepare(torch.optim.SGD(net.parameters(), lr=0.01))
    for step in range(6):
        if step == 2:
            net.half().float()
        if step == 4:
            torch.manual_seed(1)
            torch.nn.utils.parametrizations.spectral_norm(net.middle)
        optimizer.zero_grad()
        backward((net(rows(10 * step + rank).float()) - 1).square().mean())
        optimizer.step()
        same_everywhere(net.parameters())


def a_frozen_model_that_one_process_calls(backward):
    net, frozen = accelerator.prepare(Net(), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).double())
    frozen.requires_grad_(False)
    if rank == 0:
        with torch.no_grad():
            frozen(rows())
    compare(net, lambda m, x: m(x).square().mean(), backward)
    same_everywhere(frozen.buffers())


def a_model_that_is_empty_when_it_is_prepared(backward):
    heads = accelerator.prepare(nn.ModuleDict())
    heads["a"] = nn.Linear(3, 2).double()  # of other values on each process
    optimizer = accelerator.prepare(torch.optim.SGD(heads.parameters(), lr=0.1))
    for _ in range(2):
        optimizer.zero_grad()
        backward(heads["a"](rows()).square().mean())
        optimizer.step()
        same_everywhere(heads.parameters())


def two_accelerators_with_one_model(backward):
    net = Accelerator().prepare(accelerator.prepare(Net()))
    compare(net, lambda m, x: m(x).square().mean(), backward)
    try:
        Accelerator(mixed_precision="bf16").prepare(net)
    except MixedUseError as error:
        assert "another mixed_precision" in str(error)
    else:
        raise AssertionError("it would run in the precision of the first one")


def different_changes_are_refused(backward):
    net = accelerator.prepare(Net())
    net.head = nn.Linear(4, 1 + rank).double()
    try:
        net(rows())
    except MixedUseError as error:
        assert "have changed a prepared model in different ways" in str(error)
    else:
        raise AssertionError("different changes were accepted")


HELPERS = ("plain", "rows", "compare", "expected", "check", "same_everywhere")
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
