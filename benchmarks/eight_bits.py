"""Layers that multiply in fp8 and int8 by torchao, beside raw torchao: one process, emulated where there is no GPU."""

from __future__ import annotations

import json
import time
from typing import Any

from .measure import Row, missing, processes
from .together import Call
from .training import ratio

TITLE = "fp8 and int8 by torchao, beside raw torchao (one process; on the CPU fp8 is emulated)"
PAIRS, ROUNDS = 160, 8
LIMIT = 1.05
"""Of the time of raw torchao, by the clock or, where that is too noisy to tell, by CPU time."""
WHO = ("torchlift", "raw torch")
KINDS = ("fp8", "int8")


def model_of(width: int = 512, layers: int = 8) -> Any:
    """Equal layers (two million parameters in all of them), all of which but the first and the last are converted."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(*[one for _ in range(layers) for one in (nn.Linear(width, width), nn.ReLU())])


def step_of(who: str, kind: str, width: int = 512, rows: int = 64, compiled: bool = False) -> Call:
    """One step; `kind` may be bf16, which is no kind of eight bits, for what is gained."""
    import torch
    from torch import nn

    from torchlift.runtime import Accelerator

    accelerator = Accelerator(mixed_precision=kind, dynamo_backend="inductor" if compiled else None)
    device = accelerator.device
    model = model_of(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    backward: Any = accelerator.backward
    if who == "torchlift":
        model, optimizer = accelerator.prepare(model, optimizer)
        forward = model
    else:
        model.to(device)
        if kind in KINDS:
            _convert(model, kind, emulate=device.type == "cpu")
        net = torch.compile(model) if compiled else model
        backward = torch.Tensor.backward

        def forward(x: Any) -> Any:
            with torch.autocast(device.type, torch.bfloat16):
                out = net(x)
            return out.float()

    x = torch.randn(rows, width, device=device)

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(forward(x), x)
        backward(loss)
        optimizer.step()
        loss.item()

    return step


def _convert(model: Any, kind: str, emulate: bool) -> None:
    from torch import nn

    names = [name for name, one in model.named_modules() if isinstance(one, nn.Linear)][1:-1]
    if kind == "fp8":
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig(pad_inner_dim=True, emulate=emulate)
        convert_to_float8_training(model, module_filter_fn=lambda _, name: name in names, config=config)
    else:
        from torchao.prototype.quantized_training import Int8MixedPrecisionTrainingConfig
        from torchao.quantization import quantize_

        quantize_(model, Int8MixedPrecisionTrainingConfig(module_swap=True), filter_fn=lambda _, name: name in names)
        for name in names:
            _take_part_in_autocast(model.get_submodule(name))


def _take_part_in_autocast(layer: Any) -> None:
    """With a bias of fp32, torchao's layer fails under autocast on a GPU; by hand one would write this."""
    from torchao.prototype.quantized_training.int8_mixed_precision import _Int8MixedPrecisionTrainingLinearFunction

    def forward(x: Any) -> Any:
        x = x.bfloat16()
        product = _Int8MixedPrecisionTrainingLinearFunction.apply(x, layer.weight, None, layer.config)
        return product + layer.bias.to(product.dtype)

    layer.forward = forward


def steps(kind: str, turn: int) -> None:
    """One process: time steps in turn."""
    import torch

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    calls = {who: step_of(who, kind) for who in WHO[turn % 2 :] + WHO[: turn % 2]}
    order = list(calls)
    wall: dict[str, list[float]] = {who: [] for who in WHO}
    cpu: dict[str, list[float]] = {who: [] for who in WHO}
    for number in range(PAIRS // ROUNDS + 2):
        for who in order:
            start, used = time.perf_counter(), time.process_time()
            calls[who]()
            if number >= 2:
                cpu[who].append(time.process_time() - used)
                wall[who].append(time.perf_counter() - start)
        order.reverse()
    print(json.dumps({"wall": wall, "cpu": cpu}))


def _row(kind: str) -> Row:
    found = [processes(f"eight_bits.steps({kind!r}, {turn})", 1, cpu=False) for turn in range(ROUNDS)]
    wall = {who: [one["wall"][who] for one in found] for who in WHO}
    cpu = {who: [one["cpu"][who] for one in found] for who in WHO}
    low, middle, high = ratio(wall["torchlift"], wall["raw torch"])
    least, used, most = ratio(cpu["torchlift"], cpu["raw torch"])
    seconds = {who: sorted(s for times in wall[who] for s in times)[PAIRS // 2] for who in WHO}
    return Row(
        f"{kind}: a step of eight layers of 512",
        f"{seconds['torchlift'] * 1e3:.1f} ms; {middle:.3f} x raw torchao ({low:.3f} to {high:.3f}); "
        f"CPU time {used:.3f} x ({least:.3f} to {most:.3f})",
        f"<= {LIMIT:g} x raw torchao, by the clock or by CPU time",
        high <= LIMIT or most <= LIMIT,
        seconds,
    )


def rows() -> list[Row]:
    """Nothing where torchao is not installed."""
    return [] if missing("torchao") else [_row(kind) for kind in KINDS]
