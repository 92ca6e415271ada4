"""
What plain `fully_shard` does wrong without a word: here it is right, or an error.

Each trap is a function of two worlds. `plain` shards with torch alone, and shows what goes wrong there: if it no longer
does, that is news. `ours` is after `prepare`.
"""

import io
import json
import sys

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from torchlift.runtime import (
    Accelerator,
    CollectiveMismatch,
    FullyShardedDataParallelPlugin,
    MixedUseError,
    ShardedTensorError,
)

torch.set_default_dtype(torch.float64)
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
rank, size = accelerator.process_index, accelerator.num_processes
OURS = sys.argv[1] == "ours"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 5)
        self.norm = nn.BatchNorm1d(5)
        self.head = nn.Linear(5, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.body(x))))

    def encode(self, x):
        return self.body(x)

    def both(self, x):
        return self(x) + self.head(torch.tanh(self.encode(x)))


class Plain:
    """What the script calls, without us."""

    @staticmethod
    def prepare(*things):
        for one in things:
            if isinstance(one, nn.Module):
                fully_shard(one, mesh=MESH)
        return things[0] if len(things) == 1 else things

    backward = staticmethod(torch.Tensor.backward)
    no_sync = None


MESH = init_device_mesh("cpu", (size,), mesh_dim_names=("dp_shard",))
here = accelerator if OURS else Plain


def net(seed=1):
    torch.manual_seed(seed)
    return Net()


def rows(r=None, step=0):
    generator = torch.Generator().manual_seed(10 * step + (rank if r is None else r))
    return torch.randn(4, 3, generator=generator)


def gradients(model):
    return [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in model.parameters()]


def close(found, wanted):
    return all(torch.allclose(f, w, rtol=0, atol=1e-9) for f, w in zip(found, wanted, strict=True))


def of_one_process(loss_of, model, step=0):
    for r in range(size):
        (loss_of(model, rows(r, step)) / size).backward()
    return [p.grad for p in model.parameters()]


def square(model, x):
    return model(x).square().mean()


def no_norm():
    model = net()
    model.norm = nn.Identity()
    return model


def raises(kinds, function, *arguments):
    try:
        function(*arguments)
    except kinds as error:
        return str(error)
    return None


# ---------------------------------------------------------------- the traps: each says whether all is well


def half_a_checkpoint_from_the_state_dict():
    model = here.prepare(net())
    text = raises(ShardedTensorError, torch.save, model.state_dict(), io.BytesIO())
    return text is not None and "get_state_dict" in text


def half_an_optimizer_state():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    model = here.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters())
    here.backward(square(model, rows()))
    optimizer.step()
    return raises(ShardedTensorError, torch.save, {"optimizer": optimizer.state_dict()}, io.BytesIO()) is not None


def numbers_of_this_part_alone():
    model, twin = here.prepare(net()), net()
    wanted = [twin.body.weight.norm().item(), twin.body.weight.sum().item(), twin.head.bias.sum().item()]
    p, q = model.body.weight, model.head.bias
    found = [p.norm().item(), float(p.detach().sum()), q.sum().item()]
    return torch.allclose(torch.tensor(found), torch.tensor(wanted), atol=1e-12) and bool(p.norm() > wanted[0] - 1e-9)


def a_mean_that_pulls_weights_to_others():
    """A loss of its own, as `F.mse_loss(p, former)`: torch makes its gradient too large by the number of processes."""
    model, twin = here.prepare(no_norm()), no_norm()
    for net_ in (model, twin):
        for kind in (nn.functional.mse_loss, nn.functional.smooth_l1_loss, nn.functional.huber_loss):
            sum(kind(p, p.detach() * 3) for p in net_.parameters()).backward()
    return close(gradients(model), [p.grad for p in twin.parameters()])


def collectives_of_parts():
    """A sharded tensor is whole for a collective, as it is on each process without sharding."""
    model, twin = here.prepare(net()), net()
    weight, wanted = model.body.weight.detach(), twin.body.weight.detach()
    if not OURS:
        weight = weight.to_local()
    found = accelerator.reduce(weight.norm(), "mean")
    return torch.allclose(found, wanted.norm()) and torch.equal(accelerator.gather(weight), wanted.repeat(size, 1))


def data_that_is_set():
    model = here.prepare(net())
    model.body.weight.data = torch.full((5, 3), 2.0)
    return bool((model.body.weight.full_tensor() == 2).all())


def a_vector_that_becomes_parameters():
    model = here.prepare(no_norm())
    nn.utils.vector_to_parameters(torch.arange(26.0), model.parameters())
    return torch.equal(model.head.bias.full_tensor(), torch.tensor([25.0]))


def a_hook_of_a_parameter_set_before():
    return hooked(lambda model, hook: (model.body.weight.register_hook(hook), here.prepare(model))[0])


def a_hook_of_a_parameter_set_after():
    return hooked(lambda model, hook: here.prepare(model).body.weight.register_hook(hook))


def hooked(begin):
    """A hook changes gradients, and is taken off again."""
    model, twin = no_norm(), no_norm()
    mask = torch.arange(15.0).view(5, 3) % 2
    handle = begin(model, lambda g: g * mask)
    twin.body.weight.register_hook(lambda g: g * mask)
    here.backward(square(model, rows()))
    fine = close(gradients(model), of_one_process(square, twin))
    handle.remove()
    model.zero_grad()
    here.backward(square(model, rows()))
    return fine and bool(model.body.weight.grad.full_tensor()[0, 0])


def hooks_after_accumulation():
    """They are called with the gradients of all processes: an optimizer may step there."""
    model, twin = no_norm(), no_norm()

    def step(parameter):
        parameter.data.sub_(parameter.grad, alpha=0.5)
        parameter.grad = None

    model.body.weight.register_post_accumulate_grad_hook(step)
    model = here.prepare(model)
    model.head.weight.register_post_accumulate_grad_hook(step)
    here.backward(square(model, rows()))
    body, _, head, _ = of_one_process(square, twin)
    wanted = [twin.body.weight - 0.5 * body, twin.head.weight - 0.5 * head]
    return close([model.body.weight.full_tensor(), model.head.weight.full_tensor()], wanted)


def buffers_of_every_process():
    model = here.prepare(net())
    here.backward(square(model, rows()))
    mean = model.norm.running_mean[None]
    return bool((accelerator.gather(mean) == accelerator.gather(mean)[0]).all())


def buffers_after_a_plain_backward():
    model = here.prepare(net())
    square(model, rows()).backward()
    mean = model.norm.running_mean[None]
    return bool((accelerator.gather(mean) == accelerator.gather(mean)[0]).all())


def window(model, drop):
    """A backward pass of another loss is collected without an exchange, and dropped; then one is exchanged."""
    if OURS:
        with accelerator.no_sync(model):
            accelerator.backward(square(model, rows(step=3)) * 100)
    else:
        model.set_requires_gradient_sync(False)
        (square(model, rows(step=3)) * 100).backward()
        model.set_requires_gradient_sync(True)
    drop()
    here.backward(square(model, rows()))
    return close(gradients(model), of_one_process(square, no_norm()))


def zero_grad_of_a_model_in_a_window():
    model = here.prepare(no_norm())
    return window(model, model.zero_grad)


def zero_grad_of_an_optimizer_in_a_window():
    model = here.prepare(no_norm())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if OURS:
        optimizer = accelerator.prepare(optimizer)
    return window(model, optimizer.zero_grad)


def the_norm_in_a_window():
    model = here.prepare(no_norm())
    if OURS:
        with accelerator.no_sync(model):
            accelerator.backward(square(model, rows()))
            accelerator._windows.sync = False
            found = accelerator.clip_grad_norm_(model.parameters(), 1e-3)
            accelerator._windows.sync = True
    else:
        model.set_requires_gradient_sync(False)
        square(model, rows()).backward()
        found = nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    twin = no_norm()
    square(twin, rows()).backward()
    wanted = nn.utils.get_total_norm([p.grad for p in twin.parameters()])
    return torch.allclose(torch.as_tensor(float(found)), wanted)


def an_optimizer_made_between_forward_and_backward():
    model = here.prepare(no_norm())
    loss = square(model, rows())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    here.backward(loss)
    optimizer.step()
    twin = no_norm()
    of_one_process(square, twin)
    torch.optim.SGD(twin.parameters(), lr=0.5).step()
    found = [value.full_tensor() for value in model.state_dict().values()]
    return close(found, list(twin.state_dict().values()))


def references_from_before():
    model, twin = no_norm(), no_norm()
    kept, wanted = list(model.parameters()), list(twin.parameters())
    model = here.prepare(model)
    optimizer = torch.optim.SGD(kept, lr=0.5, momentum=0.9)
    other = torch.optim.SGD(wanted, lr=0.5, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        other.zero_grad()
        here.backward(square(model, rows(step=step)))
        of_one_process(square, twin, step)
        nn.utils.clip_grad_norm_(kept, 0.05)
        nn.utils.clip_grad_norm_(wanted, 0.05)
        with torch.no_grad():
            for one in (*kept, *wanted):
                one.mul_(0.99)
        optimizer.step()
        other.step()
    found = [value.full_tensor() for value in model.state_dict().values()]
    return close(found, list(twin.state_dict().values())) and repr(kept[0]).count("DTensor") == 1


def a_low_precision_output():
    low = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    model = no_norm().float()
    if OURS:
        mine = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(mixed_precision_policy=low))
        model = mine.prepare(model)
    else:
        fully_shard(model, mesh=MESH, mp_policy=low)
    return model(rows().float()).dtype == torch.float32


def weights_that_are_new_after_prepare():
    model = here.prepare(no_norm())
    torch.manual_seed(rank)
    model.head = nn.Linear(5, 1)
    if raises(MixedUseError, lambda: here.backward(square(model, rows()))) is not None:
        return True
    values = model.head.weight.grad
    return bool((accelerator.gather(values) == values).all())


def an_output_that_is_changed_in_place():
    """A layer returns a view for inputs of three dimensions: torch loses its hook there, and gathers no weights."""
    model, twin = here.prepare(no_norm()), no_norm()

    def loss_of(net, x):
        out = net(x[:, None].repeat(1, 2, 1))
        out *= 3
        return out.square().mean()

    here.backward(loss_of(model, rows()))
    return close(gradients(model), of_one_process(loss_of, twin))


class Experts(nn.Module):
    """Two parts of the same shape; one is unused."""

    def __init__(self, units):
        super().__init__()
        torch.manual_seed(2)
        kind = Expert if units else nn.Linear
        self.experts = nn.ModuleList([kind(3, 3) for _ in range(3)])

    def forward(self, x, number):
        return self.experts[number](x)


class Expert(nn.Linear):
    pass


def experts(units):
    model = Experts(units)
    if not OURS:
        for one in model.experts if units else ():
            fully_shard(one, mesh=MESH)
        fully_shard(model, mesh=MESH)
        return model
    plugin = FullyShardedDataParallelPlugin(transformer_cls_names_to_wrap=["Expert"])
    return (Accelerator(fsdp_plugin=plugin) if units else accelerator).prepare(model)


def another_branch_on_each_process():
    """The weights are those of one step by AdamW, which also decays weights whose gradients are zeros."""
    model, twin = experts(False), Experts(False)
    optimizer, other = (torch.optim.AdamW(one.parameters(), lr=0.1, weight_decay=0.5) for one in (model, twin))
    here.backward(model(rows(), rank).square().mean())
    for r in range(size):
        (twin(rows(r), r).square().mean() / size).backward()
    optimizer.step()
    other.step()
    return close([v.full_tensor() for v in model.state_dict().values()], list(twin.state_dict().values()))


def another_unit_on_each_process():
    """Torch would mix up the weights of two units of one shape: an error says so before a step is made."""
    model, twin = experts(True), Experts(True)
    found = []

    def run():
        found.append(model(rows(), rank))
        here.backward(found[0].square().mean())

    text = raises(CollectiveMismatch, run)
    return text is not None or torch.allclose(found[0], twin(rows(), rank))


TRAPS = [
    half_a_checkpoint_from_the_state_dict,
    half_an_optimizer_state,
    numbers_of_this_part_alone,
    a_mean_that_pulls_weights_to_others,
    collectives_of_parts,
    data_that_is_set,
    a_vector_that_becomes_parameters,
    a_hook_of_a_parameter_set_before,
    a_hook_of_a_parameter_set_after,
    hooks_after_accumulation,
    buffers_of_every_process,
    buffers_after_a_plain_backward,
    zero_grad_of_a_model_in_a_window,
    zero_grad_of_an_optimizer_in_a_window,
    the_norm_in_a_window,
    an_optimizer_made_between_forward_and_backward,
    references_from_before,
    a_low_precision_output,
    weights_that_are_new_after_prepare,
    another_branch_on_each_process,
    an_output_that_is_changed_in_place,
    another_unit_on_each_process,  # the last one: afterwards processes are apart
]
answers = {}
for trap in TRAPS:
    if sys.argv[2:] and trap.__name__ not in sys.argv[2:]:
        continue
    try:
        answers[trap.__name__] = bool(trap())
        accelerator.free_memory()
    except Exception as error:
        if OURS:
            print("FAILED", trap.__name__, flush=True)
            raise
        answers[trap.__name__] = f"{type(error).__name__}: {error}"[:200]
print("RESULT", json.dumps(answers), flush=True)
