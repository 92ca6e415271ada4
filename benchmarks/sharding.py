"""Sharded weights on two CPU processes: a step, memory, and the whole state dict, beside plain `fully_shard`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from .held import Held
from .measure import Row, processes
from .together import Call
from .training import ratio

TITLE = "Sharded weights (FSDP 2) of 25 million parameters in eight blocks, two processes on the CPU"
PAIRS, ROUNDS, STEPS = 40, 8, 4
LIMIT = 1.05
"""Of the time, and of the memory, of plain `fully_shard` with the same units."""
LARGE = 1 << 30
"""Bytes of the model whose state dict is asked for."""
WHO = ("torchlift", "raw torch")


def model_of(layers: int = 8, width: int = 512, words: int = 1024) -> Any:
    """Equal layers between a table and a head: with the numbers that are given, 26 million parameters."""
    from torch import nn

    class Texts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0) for _ in range(layers)
            )
            self.head = nn.Linear(width, words)

        def forward(self, x: Any) -> Any:
            x = self.table(x)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    return Texts()


def tiny() -> Any:
    """What has been imported and set up for it is no memory of training."""
    return model_of(1, 8, 64)


def sharded(who: str, model: Any) -> tuple[Any, Any, Callable[[Any], Any], Callable[[Any], Any]]:
    """The model and AdamW, sharded with a unit for each layer; what starts a backward pass, and gives a state dict."""
    import torch
    import torch.distributed as dist

    if who == "raw torch":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        if not dist.is_initialized():
            dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        return model, optimizer, torch.Tensor.backward, lambda model: get_model_state_dict(model, options=options)
    from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(transformer_cls_names_to_wrap=["TransformerEncoderLayer"])
    accelerator = Accelerator(fsdp_plugin=plugin)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4))
    return model, optimizer, accelerator.backward, accelerator.get_state_dict


def step_with(model: Any, optimizer: Any, backward: Callable[[Any], Any]) -> Call:
    """One step on two texts of 32 words."""
    import torch

    x = torch.arange(64).view(2, 32)

    def step() -> None:
        optimizer.zero_grad()
        backward(model(x).square().mean())
        optimizer.step()

    return step


def steps(turn: int) -> None:
    """One of the processes: time steps in turn, as `training.child` does."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    calls = {}
    for who in WHO[turn % 2 :] + WHO[: turn % 2]:
        torch.manual_seed(0)
        calls[who] = step_with(*sharded(who, model_of())[:3])
    order = list(calls)
    wall: dict[str, list[float]] = {who: [] for who in WHO}
    cpu: dict[str, list[float]] = {who: [] for who in WHO}
    for number in range(PAIRS // ROUNDS + 2):
        for who in order:
            dist.barrier()
            start, used = time.perf_counter(), time.process_time()
            calls[who]()
            if number >= 2:
                cpu[who].append(time.process_time() - used)
                wall[who].append(time.perf_counter() - start)
        order.reverse()
    if dist.get_rank() == 0:
        print(json.dumps({"wall": wall, "cpu": cpu}))


def memory(who: str) -> None:
    """One of the processes: what training holds at most, and what is left between steps."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    kept = sharded(who, tiny())
    step_with(*kept[:3])()
    torch.manual_seed(0)
    with Held() as held:
        model, optimizer, backward, _ = sharded(who, model_of())
        step = step_with(model, optimizer, backward)
        for _ in range(STEPS):
            step()
    tensors = [one for p in model.parameters() for one in (p, p.grad, *optimizer.state[p].values())]
    rest = sum(one.to_local().nbytes for one in tensors if hasattr(one, "to_local"))
    whole = sum(4 * p.numel() * p.element_size() for p in model.parameters())
    if dist.get_rank() == 0:
        print(json.dumps({"peak": held.peak, "rest": rest, "whole": whole}))
    del kept


def state(who: str) -> None:
    """One of the processes: what the whole state dict of a large model takes at most, beside the model."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    small, *_, full_state = sharded(who, tiny())
    full_state(small)
    model, *_, full_state = sharded(who, model_of(LARGE // (4 * 12 * 1024 * 1024), 1024))
    start = time.perf_counter()
    with Held() as held:
        full = full_state(model)
    taken = time.perf_counter() - start
    more = [torch.zeros(1, dtype=torch.float64) for _ in range(2)]
    dist.all_gather(more, torch.tensor([held.peak], dtype=torch.float64))
    if dist.get_rank() == 0:
        size = sum(value.nbytes for value in full.values())
        largest = max(value.nbytes for value in full.values())
        found = {"size": size, "largest": largest, "first": more[0].item(), "other": more[1].item(), "seconds": taken}
        print(json.dumps(found))


def large_steps(layers: int = 20, width: int = 2048, words: int = 32_000, length: int = 512, count: int = 12) -> None:
    """One of the processes: steps of a large model in bf16, with activations computed again; one text for each."""
    import torch
    import torch.distributed as dist

    from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(
        transformer_cls_names_to_wrap=["TransformerEncoderLayer"], activation_checkpointing=True
    )
    accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin)
    found: dict[str, dict[str, float]] = {}
    on_gpu = accelerator.device.type == "cuda"
    for who in WHO:
        model = model_of(layers, width, words)
        if who == "raw torch":
            model = _as_by_hand(model.to(accelerator.device), accelerator.torch_device_mesh)
            backward: Any = torch.Tensor.backward
            optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-5)
        else:
            backward = accelerator.backward
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
            model, optimizer = accelerator.prepare(model, optimizer)
        x = torch.arange(length, device=accelerator.device)[None] % words
        times = []
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        for _ in range(count):
            dist.barrier()
            start = time.perf_counter()
            optimizer.zero_grad()
            backward(model(x).float().square().mean())
            optimizer.step()
            if on_gpu:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        peak = torch.cuda.max_memory_allocated() if on_gpu else 0
        found[who] = {"seconds": sorted(times)[count // 2], "peak": peak}
        del model, optimizer, backward
        accelerator.free_memory()
    if dist.get_rank() == 0:
        print(json.dumps(found))


def _as_by_hand(model: Any, mesh: Any) -> Any:
    import torch
    from torch.distributed import _composable
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        _composable.checkpoint(layer)  # type: ignore[attr-defined]
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def rows_of_gpus() -> list[Row]:
    """A model of 1.1 billion parameters on all GPUs of this machine; nothing where there are not several."""
    import torch

    count = torch.cuda.device_count()
    if count < 2:
        return []
    found = processes("sharding.large_steps()", count, cpu=False)
    mine, other = (found[who] for who in WHO)
    return [
        Row(
            f"sharded: a step of 1.1 billion parameters in bf16, {count} GPUs",
            f"{mine['seconds'] * 1e3:.0f} ms; {mine['seconds'] / other['seconds']:.3f} x plain fully_shard; "
            f"{mine['peak'] / 2**30:.2f} GiB; {mine['peak'] / other['peak']:.3f} x",
            f"<= {LIMIT:g} x plain fully_shard, both",
            mine["seconds"] <= LIMIT * other["seconds"] and mine["peak"] <= LIMIT * other["peak"],
            {who: found[who]["seconds"] for who in WHO},
        )
    ]


def row_of_steps(rounds: list[Mapping[str, Any]]) -> Row:
    """Within its budget where the ratio is; where the clock is too noisy to tell, that of the CPU time."""
    wall = {who: [found["wall"][who] for found in rounds] for who in WHO}
    cpu = {who: [found["cpu"][who] for found in rounds] for who in WHO}
    low, middle, high = ratio(wall["torchlift"], wall["raw torch"])
    least, used, most = ratio(cpu["torchlift"], cpu["raw torch"])
    seconds = {who: sorted(s for times in wall[who] for s in times)[PAIRS // 2] for who in WHO}
    return Row(
        "sharded: a step, 2 processes",
        f"{seconds['torchlift'] * 1e3:.1f} ms; {middle:.3f} x plain fully_shard ({low:.3f} to {high:.3f}); "
        f"CPU time {used:.3f} x ({least:.3f} to {most:.3f})",
        f"<= {LIMIT:g} x plain fully_shard, by the clock or by CPU time",
        high <= LIMIT or most <= LIMIT,
        seconds,
    )


def rows_of_memory(found: Mapping[str, Mapping[str, int]]) -> list[Row]:
    """The peak beside plain `fully_shard`, and what is left between steps beside the half."""
    mine, other = (found[who]["peak"] for who in WHO)
    rest, half = found["torchlift"]["rest"], found["torchlift"]["whole"] / 2
    return [
        Row(
            "sharded: the most memory that building, preparing and training hold, 2 processes",
            f"{mine / 2**20:.0f} MiB; {mine / other:.3f} x plain fully_shard",
            f"<= {LIMIT:g} x plain fully_shard",
            mine <= other * LIMIT,
            {who: found[who]["peak"] for who in WHO},
        ),
        Row(
            "sharded: parameters, gradients and AdamW's states of a process, at rest",
            f"{rest / 2**20:.0f} MiB; {rest / half:.3f} x the half of all",
            "<= 1.01 x the half",
            rest <= 1.01 * half,
        ),
    ]


def row_of_state(found: Mapping[str, Mapping[str, float]]) -> Row:
    """What it takes beside the model: on process 0 the size and 15 %, on the other one the largest tensors."""
    mine, other = (found[who] for who in WHO)
    size, largest = mine["size"], mine["largest"]
    shown = [
        f"{one['first'] / 2**20:.0f} MiB on process 0, {one['other'] / 2**20:.0f} MiB on the other"
        f" ({one['seconds']:.2f} s)"
        for one in (mine, other)
    ]
    return Row(
        f"sharded: get_state_dict of {size / 2**20:.0f} MiB",
        "; torch's own: ".join(shown),
        f"<= {1.15 * size / 2**20:.0f} MiB, and a few tensors of {largest / 2**20:.0f} MiB on the other",
        mine["first"] <= 1.15 * size and mine["other"] <= 8 * largest,
    )


def rows() -> list[Row]:
    """Measure in turn; Accelerate shards on accelerators alone, so it is not beside."""
    rounds = [processes(f"sharding.steps({turn})", 2) for turn in range(ROUNDS)]
    held = {who: processes(f"sharding.memory({who!r})", 2) for who in WHO}
    states = {who: processes(f"sharding.state({who!r})", 2) for who in WHO}
    return [row_of_steps(rounds), *rows_of_memory(held), row_of_state(states), *rows_of_gpus()]
