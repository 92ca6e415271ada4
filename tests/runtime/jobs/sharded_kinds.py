"""Precision, checkpointing, offload, kinds of models, and what cannot be: with sharded weights."""

import copy
import logging
import os
from contextlib import contextmanager

import torch
from claims import run
from torch import nn

from torchlift.runtime import (
    Accelerator,
    FullyShardedDataParallelPlugin,
    GradScalerKwargs,
    MixedUseError,
    NotAvailableYet,
    ParallelismConfig,
)
from torchlift.runtime.torch_sharding import whole_of


def in_blocks(module, recurse, nonwrapped_numel):
    """As torch's policies: every block is a unit. In models without blocks there is none."""
    return recurse or type(module).__name__ == "Block"


torch.set_default_dtype(torch.float64)
BLOCKS = FullyShardedDataParallelPlugin(auto_wrap_policy=in_blocks)
accelerator = Accelerator(fsdp_plugin=BLOCKS)
rank, size = accelerator.process_index, accelerator.num_processes


class Block(nn.Module):
    def __init__(self, width=6, drop=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        return x + self.drop(torch.tanh(self.inner(self.norm(x))))


class Net(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.body = nn.Linear(3, 6)
        self.blocks = nn.Sequential(Block(drop=drop), Block(drop=drop))
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        return self.head(self.blocks(self.body(x)))

    def encode(self, x):
        return self.blocks(self.body(x))

    def loss(self, x):
        return self(x).square().mean() + self.head(self.encode(x)).mean()


def seeded(make):
    torch.manual_seed(1)
    return make()


def rows(step=0, r=None):
    generator = torch.Generator().manual_seed(1000 * step + (rank if r is None else r))
    return torch.randn(4, 3, generator=generator)


def square(model, x):
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def whole(model):
    return {n: v.full_tensor() if hasattr(v, "full_tensor") else v.clone() for n, v in model.state_dict().items()}


def close(found, wanted, atol=1e-9):
    assert list(found) == list(wanted)
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=0, atol=atol)


def refused(kinds, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except kinds as error:
        return str(error)
    raise AssertionError(f"{kinds} was not raised")


@contextmanager
def capture(logger):
    """What is logged in the body."""
    said, handler = [], logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger(logger).addHandler(handler)
    yield said
    logging.getLogger(logger).removeHandler(handler)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def trained(mine, make, steps=5, loss_of=square, optimizer_of=sgd, **more):
    """On the rows of this process; the weights afterwards."""
    model = seeded(make)
    optimizer = optimizer_of(model)
    model, optimizer = mine.prepare(model, optimizer)
    torch.manual_seed(50 + rank)
    for step in range(steps):
        optimizer.zero_grad()
        mine.backward(loss_of(model, rows(step)))
        optimizer.step()
    return whole(model)


def as_replicated(make, plugin=BLOCKS, atol=1e-9, **more):
    """The same as without sharding, on the same processes and with the same noise."""
    close(trained(Accelerator(fsdp_plugin=plugin), make, **more), trained(Accelerator(), make, **more), atol)


# ---------------------------------------------------------------- beside one another


def dropout_and_batch_norm():
    def make():
        return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 1))

    as_replicated(make)


def activations_that_are_computed_again_have_the_same_noise():
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy=in_blocks, activation_checkpointing=True)
    as_replicated(lambda: Net(0.4), plugin)


def weights_on_the_cpu():
    as_replicated(Net, FullyShardedDataParallelPlugin(auto_wrap_policy=in_blocks, cpu_offload=True))


def weights_that_stay_gathered_until_the_backward_pass():
    for keep in (False, 1):
        plugin = FullyShardedDataParallelPlugin(auto_wrap_policy=in_blocks, reshard_after_forward=keep)
        as_replicated(Net, plugin)


def convolutions_in_another_memory_format():
    def make():
        net = nn.Sequential(nn.Unflatten(1, (1, 1, 3)), nn.Conv2d(1, 5, (1, 2)), nn.Flatten(), nn.Linear(10, 1))
        return net.to(memory_format=torch.channels_last)

    as_replicated(make)


def tables_with_sparse_gradients_stay_whole():
    def make():
        return nn.ModuleDict({"table": nn.Embedding(7, 4, sparse=True), "head": nn.Linear(4, 1)})

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = make()

        def forward(self, x):
            return self.parts["head"](self.parts["table"](x))

    def loss_of(model, x):
        return model((x[:, 0].abs() * 3).long() % 7).square().mean()

    as_replicated(Model, loss_of=loss_of, optimizer_of=lambda m: torch.optim.SGD(m.parameters(), lr=0.1))


def weights_of_two_types():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.extra = nn.Parameter(torch.ones(3, dtype=torch.float32))

        def forward(self, x):
            return super().forward(x * self.extra)

    as_replicated(Model, atol=1e-7)


def a_list_of_models_and_a_single_weight():
    def make():
        return nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1, bias=False)})

    as_replicated(make, loss_of=lambda m, x: (m["a"](x) + m["b"](x)).square().mean())


def clipping_by_other_norms():
    for kind in (1.0, 2.0, float("inf")):
        model, plain = accelerator.prepare(seeded(Scaled)), seeded(Scaled)
        accelerator.backward(square(model, rows()))
        for r in range(size):
            (square(plain, rows(r=r)) / size).backward()
        wanted = nn.utils.clip_grad_norm_(plain.parameters(), 0.01, kind)
        found = accelerator.clip_grad_norm_(model.parameters(), 0.01, kind)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(whole_of(one.grad), other.grad, rtol=0, atol=1e-9)


def figures_and_terms_of_weights():
    """Torch adds up parts of norms, and joins them afterwards, in some versions."""
    figures = {
        "sum of norms": lambda *ps: torch.stack([p.norm() for p in ps]).sum(),
        "norms of columns": lambda p, _: p.norm(dim=0).sum(),
        "norms of rows": lambda p, _: p.norm(dim=1).mean(),
        "binary": lambda p, _: nn.functional.binary_cross_entropy_with_logits(p, p.detach().sigmoid()),
        "deviation": lambda p, q: p.std() + q.mean(),
    }
    for length in (4, 5):
        model, plain = (
            accelerator.prepare(seeded(lambda n=length: nn.Linear(3, n))),
            seeded(lambda n=length: nn.Linear(3, n)),
        )
        for name, figure in figures.items():
            found, wanted = (figure(one.weight, one.bias) for one in (model, plain))
            assert abs(found.item() - wanted.item()) < 1e-9, name
            found.backward()
            wanted.backward()
            torch.testing.assert_close(whole_of(model.weight.grad), plain.weight.grad, rtol=0, atol=1e-9)


def optimizers():
    for kind in ("Adam", "NAdam", "RMSprop", "Adagrad", "Adadelta", "RAdam"):
        as_replicated(Net, optimizer_of=lambda m, k=kind: getattr(torch.optim, k)(m.parameters()), atol=1e-8)


def a_closure_of_lbfgs():
    found = []
    narrow = accelerator.prepare(Net())
    text = refused(NotAvailableYet, accelerator.prepare, torch.optim.LBFGS(narrow.parameters()))
    assert "does not divide" in text
    for mine in (Accelerator(fsdp_plugin=BLOCKS), Accelerator()):
        model = seeded(lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)))
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")
        model, optimizer = mine.prepare(model, optimizer)

        def closure(mine=mine, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = square(model, rows())
            mine.backward(loss)
            return loss

        for _ in range(2):
            optimizer.step(closure)
        found.append(whole(model))
    close(*found, 1e-8)


def thawed_in_the_middle():
    def loss_of(model, x):
        model.calls = getattr(model, "calls", -1) + 1
        model.body.requires_grad_(model.calls >= 3)
        return square(model, x)

    as_replicated(Net, loss_of=loss_of)


def two_passes_before_one_backward():
    """A weight that nothing uses gets no gradient, and AdamW leaves it as it is."""

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.unused = nn.Parameter(torch.ones(4))

    for plugin in (BLOCKS, FullyShardedDataParallelPlugin()):
        as_replicated(
            Model,
            plugin,
            loss_of=lambda m, x: square(m, x) + square(m, (x * 2).requires_grad_()),
            optimizer_of=lambda m: torch.optim.AdamW(m.parameters(), weight_decay=0.1),
        )


def methods_beside_forward():
    as_replicated(Net, loss_of=lambda m, x: m.encode(x).square().mean())
    as_replicated(Net, loss_of=lambda m, x: m.loss(x))
    as_replicated(Net, loss_of=lambda m, x: m.blocks[0](x @ x.new_ones(3, 6)).square().mean())


def an_evaluation_first():
    model, plain = seeded(Net), seeded(Net)
    model = accelerator.prepare(model)
    optimizer, other = sgd(model), sgd(plain)
    model.eval()
    with torch.inference_mode():
        torch.testing.assert_close(model(rows()), plain(rows()))
        torch.testing.assert_close(model.encode(rows()), plain.encode(rows()))
    model.train()
    accelerator.backward(square(model, rows()))
    for r in range(size):
        (square(plain, rows(r=r)) / size).backward()
    optimizer.step()
    other.step()
    close(whole(model), dict(plain.state_dict()))


def an_error_in_forward_on_all_processes():
    model, plain = seeded(Net), seeded(Net)
    model = accelerator.prepare(model)
    assert "shape" in refused(RuntimeError, model, torch.ones(2, 7))
    accelerator.backward(square(model, rows()))
    for r in range(size):
        (square(plain, rows(r=r)) / size).backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad.full_tensor(), other.grad, rtol=0, atol=1e-9)
    bad = model(rows())
    bad.register_hook(lambda _: 1 / 0)
    refused(ZeroDivisionError, accelerator.backward, bad.sum())
    model.zero_grad()
    bad = model(rows())
    bad.register_hook(lambda _: 1 / 0)
    refused(ZeroDivisionError, bad.sum().backward)
    model.zero_grad()
    square(model, rows()).backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad.full_tensor(), other.grad, rtol=0, atol=1e-9)


def a_frozen_teacher_beside_its_student():
    teacher, student = seeded(lambda: Net().requires_grad_(False)), seeded(Net)
    plain, pupil = copy.deepcopy(teacher), copy.deepcopy(student)
    teacher, student = accelerator.prepare(teacher, student)
    accelerator.backward((teacher(rows()) - 2 * student(rows())).square().mean())
    for r in range(size):
        ((plain(rows(r=r)) - 2 * pupil(rows(r=r))).square().mean() / size).backward()
    for one, other in zip(student.parameters(), pupil.parameters(), strict=True):
        torch.testing.assert_close(one.grad.full_tensor(), other.grad, rtol=0, atol=1e-9)
    assert hasattr(teacher.body.weight, "full_tensor")
    assert not hasattr(accelerator.prepare_model(Net(), evaluation_mode=True).body.weight, "full_tensor")


class Scaled(Net):
    """With a scalar, which stays whole."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        return super().forward(x) * self.factor


def low_precision():
    for word, limit in (("bf16", 0.05), ("fp16", 0.02)):
        scaling = [GradScalerKwargs(init_scale=8.0)]
        mine = Accelerator(fsdp_plugin=BLOCKS, mixed_precision=word, kwargs_handlers=scaling)
        model, plain = seeded(lambda: Scaled().float()), seeded(lambda: Scaled().float())
        optimizer, other = sgd(model), sgd(plain)
        model, optimizer = mine.prepare(model, optimizer)
        for step in range(5):
            out = model(rows(step).float())
            assert out.dtype is torch.float32
            optimizer.zero_grad()
            other.zero_grad()
            mine.backward((out - rows(step).float().sum(1, keepdim=True)).square().mean())
            assert mine.clip_grad_norm_(model.parameters(), 100.0) < 100
            for r in range(size):
                (square(plain, rows(step, r).float()) / size).backward()
            optimizer.step()
            other.step()
        assert model.body.weight.dtype is model.body.weight.grad.dtype is torch.float32
        close(whole(model), dict(plain.state_dict()), limit)


def an_overflow_skips_the_step_everywhere():
    mine = Accelerator(fsdp_plugin=BLOCKS, mixed_precision="fp16")
    model = seeded(lambda: Net().float())
    optimizer = sgd(model)
    model, optimizer = mine.prepare(model, optimizer)
    before = whole(model)
    mine.backward(model(rows().float()).square().mean() * (1e38 if rank == 0 else 1.0))
    optimizer.step()
    assert mine.optimizer_step_was_skipped
    close(whole(model), before, 0)


def compiled_blocks():
    from torchlift.runtime import TorchDynamoPlugin

    dynamo = TorchDynamoPlugin(backend=os.environ.get("COMPILE_WITH", "eager"), use_regional_compilation=True)
    close(trained(Accelerator(fsdp_plugin=BLOCKS, dynamo_plugin=dynamo), Net), trained(Accelerator(), Net))


def weights_that_only_rank_0_has():
    """The others build their model on the meta device; ties, scalars and buffers are as they were."""

    class Tied(Net):
        def __init__(self):
            super().__init__()
            self.table = nn.Linear(6, 6, bias=False)
            self.blocks[0].inner.weight = self.table.weight
            self.scale = nn.Parameter(torch.tensor(0.5))
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("shift", torch.arange(3.0), persistent=False)

        def forward(self, x):
            return super().forward(self.norm(x) + self.shift) * self.scale + self.table(self.body(x)).sum(1, True)

    plain = seeded(Tied)
    if rank == 0:
        model = seeded(Tied)
    else:
        with torch.device("meta"):
            model = Tied()
    optimizer, other = sgd(model), sgd(plain)
    model, optimizer = accelerator.prepare(model, optimizer)
    close(whole(model), dict(plain.state_dict()), 0)
    assert model.blocks[0].inner.weight is model.table.weight
    plain.eval()
    model.eval()
    for step in range(3):
        optimizer.zero_grad()
        other.zero_grad()
        accelerator.backward(square(model, rows(step)))
        for r in range(size):
            (square(plain, rows(step, r)) / size).backward()
        optimizer.step()
        other.step()
    close(whole(model), dict(plain.state_dict()))


def a_model_of_one_small_layer():
    """It has fewer rows than there are processes."""
    as_replicated(lambda: nn.Linear(3, 1))
    as_replicated(lambda: nn.Linear(3, 1, bias=False), FullyShardedDataParallelPlugin(min_num_params=100))


def a_model_with_nothing_to_train():
    model, plain = seeded(lambda: Net().requires_grad_(False)), seeded(Net)
    model = accelerator.prepare(model)
    torch.testing.assert_close(model(rows()), plain(rows()))
    assert hasattr(model.body.weight, "full_tensor")
    close(whole(model), dict(plain.state_dict()), 0)
    x = rows().requires_grad_(True)
    accelerator.backward(model(x).square().mean())
    assert x.grad is not None and all(one.grad is None for one in model.parameters())


def a_policy_in_fp16_that_nothing_scales():
    low = FullyShardedDataParallelPlugin(mixed_precision_policy="fp16")
    with capture("torchlift.runtime.accelerator.sharded_models") as said:
        Accelerator(fsdp_plugin=low).prepare(Net().float())
    assert 'nothing scales its loss: small gradients become zeros. Use Accelerator(mixed_precision="fp16")' in said[0]
    with capture("torchlift.runtime.accelerator.sharded_models") as said:
        Accelerator(fsdp_plugin=low, mixed_precision="fp16").prepare(Net().float())
    assert said == []


# ---------------------------------------------------------------- what cannot be


def optimizers_that_need_whole_weights():
    model = accelerator.prepare(Net())
    for kind in (torch.optim.Adafactor, torch.optim.Rprop):
        text = refused(NotAvailableYet, accelerator.prepare, kind(model.parameters(), lr=0.1))
        assert kind.__name__ in text and "needs whole weights" in text


def settings_that_cannot_be():
    assert "the mesh of ParallelismConfig has" in refused(
        MixedUseError, Accelerator, parallelism_config=ParallelismConfig(dp_shard_size=size + 1)
    )
    config = ParallelismConfig(dp_replicate_size=size)
    assert "dp_shard_size=1" in refused(MixedUseError, Accelerator, fsdp_plugin=BLOCKS, parallelism_config=config)
    assert refused(TypeError, Accelerator, fsdp_plugin=True)
    refused(NotAvailableYet, Accelerator, fsdp_plugin=BLOCKS, deepspeed_plugin=True)


def what_is_not_available_says_so():
    model = accelerator.prepare(Net())
    with_uneven = accelerator.join_uneven_inputs
    assert "join_uneven_inputs" in refused(NotAvailableYet, lambda: with_uneven([model]).__enter__())
    with torch.device("meta"):
        away = Net()
    assert "on the meta device" in refused(NotAvailableYet, accelerator.prepare, away)
    assert "sharded already" in refused(MixedUseError, Accelerator(fsdp_plugin=BLOCKS).prepare, model)
    assert accelerator.prepare(model) is model
    refused((AssertionError, RuntimeError), copy.deepcopy, model)


def different_models_are_refused():
    assert "hand in different models" in refused(MixedUseError, accelerator.prepare, nn.Linear(3, 3 + rank))


run(
    globals(),
    "in_blocks seeded rows square whole close refused capture contextmanager sgd trained as_replicated",
    after=accelerator.free_memory,
)
