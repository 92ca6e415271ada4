"""
Trains the shapes of `shapes.py`, in cells of the matrix, and compares: `matrix.py CELLS [NAME ...]`.

With one process that plays all of them in turn, or where numbers depend on the process, with torch's
DistributedDataParallel on these processes. Prints, for every cell that is too far away, how far.
"""

import contextlib
import dataclasses
import gc
import json
import sys
import time

import torch
import torch.distributed as dist
from cells import pairwise, whole
from shapes import AGAINST_DDP, COARSER, EXACT_ONLY, SHAPES, SLOW
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FACTORS = {
    "shape": list(SHAPES),
    "precision": ["float64", "float32", "bf16"],
    "processes": [2, 3],
    "way": ["after", "during"],
    "backward": ["plain", "accelerator"],
}
LIMITS = {"float64": 1e-9, "float32": 1e-5, "bf16": 3e-2}
ROWS = 12


@dataclasses.dataclass
class Rows:
    """What one process gets of the batch of a step."""

    number: int
    rank: int
    x: torch.Tensor
    z: torch.Tensor
    t: torch.Tensor
    tokens: torch.Tensor
    pictures: torch.Tensor

    def to(self, dtype):
        return dataclasses.replace(self, x=self.x.to(dtype), t=self.t.to(dtype))


def rows_of(number, rank, size):
    generator = torch.Generator().manual_seed(number)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(torch.get_default_dtype())

    x, z, t, pictures = draw(ROWS, 4), draw(ROWS, 2), draw(ROWS, 1), draw(ROWS, 1, 2, 2)
    tokens = torch.randint(7, (ROWS, 3), generator=generator)
    own = slice(ROWS // size * rank, ROWS // size * (rank + 1))
    return Rows(number, rank, x[own], z[own], t[own], tokens[own], pictures[own])


class Run:
    """What all runs have in common."""

    different = 0

    def __init__(self, size, precision):
        self.size = size
        self.dtype = torch.float64 if precision == "float64" else torch.float32
        self.autocast = Mixed() if precision == "bf16" else None
        self._number = 0

    def _at(self, at):
        self._number += 1
        return self._number if at is None else at

    def part_noise(self):
        torch.manual_seed(50 + self.different)

    def prepare(self, *things):
        done = [self.prepare_one(one) for one in things]
        return done[0] if len(done) == 1 else done


class Mixed:
    """Forward passes in bf16, as on one process of a script that was migrated."""

    def __call__(self, model):
        from torchlift.runtime.device.precision import Precision
        from torchlift.runtime.strategies.extend import extend
        from torchlift.runtime.strategies.strategy import PrecisionEngine
        from torchlift.runtime.types import PrecisionType

        extend(model, PrecisionEngine(Precision(PrecisionType("bf16"), "cpu")))


class Prepared(Run):
    """The real thing, on this process."""

    def __init__(self, accelerator, precision, backward):
        super().__init__(accelerator.num_processes, precision)
        self._accelerator = accelerator
        self._plain = backward == "plain"
        self.different = accelerator.process_index

    def prepare_one(self, thing):
        assert self._accelerator.prepare(thing) is thing
        return thing

    def step(self, body, at=None, divisor=1):
        def backward(loss, **kwargs):
            if self._plain:
                (loss / divisor).backward(**kwargs)
            else:
                self._accelerator.backward(loss, **kwargs)

        return body(rows_of(self._at(at), self.different, self.size), backward)

    def window(self, net, optimizer, count, loss_of):
        self._accelerator.gradient_accumulation_steps = count
        for _ in range(count):
            with self._accelerator.accumulate(net):
                self.step(lambda rows, backward: backward(loss_of(rows)), divisor=count)
                optimizer.step()
                optimizer.zero_grad()
        self._accelerator.gradient_accumulation_steps = 1

    def no_sync(self, net):
        return self._accelerator.no_sync(net)

    def clip(self, parameters, norm):
        return self._accelerator.clip_grad_norm_(parameters, norm)


class Alone(Run):
    """One process that plays all of them, one after the other, and takes the mean of what each has added."""

    def __init__(self, size, precision):
        super().__init__(size, precision)
        self._models = []

    def prepare_one(self, thing):
        if isinstance(thing, nn.Module):
            self._models.append(thing)
            if self.autocast is not None:
                self.autocast(thing)
        return thing

    def step(self, body, at=None, divisor=1):
        number = self._at(at)
        parameters = list(dict.fromkeys(p for model in self._models for p in model.parameters()))
        total = [p.grad for p in parameters]
        results = []
        for rank in range(self.size):
            for p in parameters:
                p.grad = None
            results.append(body(rows_of(number, rank, self.size), lambda loss, **kw: (loss / divisor).backward(**kw)))
            for i, p in enumerate(parameters):
                if p.grad is not None:
                    mean = p.grad.to_dense() / self.size if p.grad.is_sparse else p.grad / self.size
                    total[i] = mean if total[i] is None else total[i] + mean
        for p, gradient in zip(parameters, total, strict=True):
            p.grad = gradient
        return None if results[0] is None else torch.stack(results).mean()

    def window(self, net, optimizer, count, loss_of):
        for _ in range(count):
            self.step(lambda rows, backward: backward(loss_of(rows)), divisor=count)
        optimizer.step()
        optimizer.zero_grad()

    def no_sync(self, net):
        return contextlib.nullcontext()

    def clip(self, parameters, norm):
        return nn.utils.clip_grad_norm_(parameters, norm)


class Foreign(Run):
    """torch's DistributedDataParallel, on this process."""

    def __init__(self, rank, size, precision):
        super().__init__(size, precision)
        self.different = rank

    def prepare_one(self, thing):
        if not isinstance(thing, nn.Module):
            return thing
        if self.autocast is not None:
            self.autocast(thing)
        return DistributedDataParallel(thing)

    def step(self, body, at=None):
        return body(rows_of(self._at(at), self.different, self.size), torch.Tensor.backward)


def numbers(results):
    """What was trained, as one vector; which gradients there are; and these, as another one."""
    state = [t for one in results for t in (one.state_dict().values() if isinstance(one, nn.Module) else [one])]
    models = [one for one in results if isinstance(one, nn.Module)]
    gradients = [p.grad for model in models for p in model.parameters()]
    return flat(state), [g is None for g in gradients], flat([g for g in gradients if g is not None])


def flat(tensors):
    real = [torch.view_as_real(t) if t.is_complex() else t for t in (t.detach() for t in tensors)]
    return torch.cat([torch.zeros(0, dtype=torch.float64), *(t.to_dense().double().reshape(-1) for t in real)])


def play(shape, run):
    torch.set_default_dtype(run.dtype)
    torch.manual_seed(7 + run.different)
    try:
        return numbers(SHAPES[shape](run))
    finally:
        torch.set_default_dtype(torch.float32)


def distance(one, other):
    return float((one - other).norm() / other.norm()) if len(other) else 0.0


def main():
    from torchlift.runtime import Accelerator
    from torchlift.runtime.strategies import during

    accelerators = {"no": Accelerator(), "bf16": Accelerator(mixed_precision="bf16")}
    rank, size = accelerators["no"].process_index, accelerators["no"].num_processes
    torch.optim.SGD([torch.zeros(1)])  # imports more
    gc.freeze()  # what the imports have made stays; models are collected after every cell
    began, wanted = [], {}
    begin = during.DuringPass.begin
    during.DuringPass.begin = lambda self, *rest: (began.append(1), begin(self, *rest))[1]

    def expected(shape, precision):
        if (shape, precision) not in wanted:
            with accelerators["no"].unsynchronized():
                foreign = shape in AGAINST_DDP
                found = play(shape, Foreign(rank, size, precision) if foreign else Alone(size, precision))
            dist.broadcast(found[0], 0)  # buffers of other ranks are those before the next forward pass of DDP
            wanted[shape, precision] = found
        return wanted[shape, precision]

    def check(shape, precision, way, backward):
        accelerator = accelerators["bf16" if precision == "bf16" else "no"]
        state, missing, gradients = expected(shape, precision)
        during.SMALL_BYTES = {"after": float("inf"), "during": -1}[way]
        began.clear()
        try:
            ours = play(shape, Prepared(accelerator, precision, backward))
            assert all(torch.equal(row, ours[0]) for row in accelerator.gather(ours[0][None])), "processes differ"
        finally:
            accelerator.free_memory()
        limit = max(LIMITS[precision], COARSER.get(shape, 0))
        off = {"weights": distance(ours[0], state), "gradients": distance(ours[2], gradients)}
        said = {what: far for what, far in off.items() if not far <= limit}
        if ours[1] != missing:
            said["missing"] = ours[1], missing
        if shape == "plain_layers" and bool(began) != (way == "during" and backward == "accelerator"):
            said["during the pass"] = len(began)
        return said

    quick = {**FACTORS, "shape": [name for name in SHAPES if name not in SLOW]}
    cells = whole(FACTORS) if sys.argv[1] == "whole" else pairwise(quick)
    found, count = {}, 0
    for cell in cells:
        if cell["processes"] != size or (sys.argv[2:] and cell["shape"] not in sys.argv[2:]):
            continue
        if cell["shape"] in EXACT_ONLY and cell["precision"] != "float64":
            continue
        count += 1
        start = time.perf_counter()
        one = [cell[name] for name in ("shape", "precision", "way", "backward")]
        try:
            said = check(*one)
        except BaseException:
            print("FAILED", one, flush=True)
            raise
        if said:
            found[" ".join(one)] = said
        print(f"{time.perf_counter() - start:.3f}", *one, flush=True)
    print("RESULT " + json.dumps([count, found]), flush=True)


if __name__ == "__main__":
    main()
