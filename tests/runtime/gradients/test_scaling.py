"""fp16: the scale changes once for all optimizers of a pass, as in a script with one `scaler.update()` a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchlift.runtime import Accelerator, GradScalerKwargs

ROWS = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
SCALE = 1024.0


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHLIFT_CPU", "1")


def nets() -> tuple[list[nn.Module], list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    models: list[nn.Module] = [nn.Linear(4, 1), nn.Linear(4, 1)]
    return models, [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]


def mine() -> Any:
    return Accelerator(mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=SCALE)])


def loss_of(first: Any, second: Any, step: int, overflows: bool) -> Any:
    factor = 1e9 if overflows and step == 1 else 1.0
    return first.float().square().mean() * factor + second.float().square().mean()


def by_hand(clips: bool, overflows: bool) -> list[torch.Tensor]:
    models, optimizers = nets()
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            outputs = [model(ROWS) for model in models]
        scaler.scale(loss_of(*outputs, step, overflows)).backward()
        if clips:
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([p for model in models for p in model.parameters()], 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
    return [p.detach() for model in models for p in model.parameters()]


def through(accelerator: Any, clips: bool, overflows: bool) -> list[torch.Tensor]:
    models, optimizers = nets()
    accelerator.prepare(*models, *optimizers)
    skipped: list[bool] = []
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        accelerator.backward(loss_of(*(model(ROWS) for model in models), step, overflows))
        if clips:
            accelerator.clip_grad_norm_([p for model in models for p in model.parameters()], 1.0)
        for optimizer in optimizers:
            optimizer.step()
        skipped.append(accelerator.optimizer_step_was_skipped)
    assert skipped == [False, overflows, False, False]
    return [p.detach() for model in models for p in model.parameters()]


@pytest.mark.parametrize(("clips", "overflows"), [(False, False), (True, False), (False, True)])
def test_two_optimizers_of_one_pass(clips: bool, overflows: bool) -> None:
    wanted, found = by_hand(clips, overflows), through(mine(), clips, overflows)
    assert all(map(torch.equal, found, wanted)), (found, wanted)


def test_a_step_that_is_left_out_after_clipping() -> None:
    accelerator = mine()
    (model, _), (optimizer, _) = nets()
    accelerator.prepare(model, optimizer)
    twin = nn.Linear(4, 1)
    for step in range(4):
        optimizer.zero_grad()
        accelerator.backward(model(ROWS).square().mean())
        norm = accelerator.clip_grad_norm_(model.parameters(), 1e9)
        twin.load_state_dict(model.state_dict())
        twin.zero_grad()
        twin(ROWS).square().mean().backward()
        wanted = nn.utils.clip_grad_norm_(twin.parameters(), 1e9)
        assert torch.allclose(norm, wanted, rtol=1e-2), (step, norm, wanted)
        if step != 1:
            optimizer.step()


def test_the_scale_that_is_saved_is_that_of_the_next_step(tmp_path: Any) -> None:
    accelerator = mine()
    models, optimizers = nets()
    accelerator.prepare(*models, *optimizers)
    accelerator.backward(models[0](ROWS).float().mean() * 1e9)
    optimizers[0].step()
    accelerator.save_state(tmp_path / "a")
    assert accelerator.scaler.get_scale() == SCALE / 2
    accelerator.load_state(tmp_path / "a")
    accelerator.backward(models[0](ROWS).float().mean())
    assert accelerator.scaler.get_scale() == SCALE / 2
