"""On a GPU, beside plain torch on the same. The tests of everything else compute on the CPU."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from torchlift.runtime.device.kinds import kind_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]


@pytest.fixture
def on_gpu(job):
    return lambda *rest, processes=1, **more: job("on_a_gpu.py", processes, *rest, TORCHLIFT_CPU="0", **more)


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_one_process_is_plain_torch_bit_by_bit(on_gpu, precision):
    assert on_gpu("alone", precision) == [True]


def test_a_step_in_fp16_that_overflows_is_left_out(on_gpu):
    assert on_gpu("overflow") == [True]


def test_what_is_continued_is_what_would_have_been(on_gpu, tmp_path):
    assert on_gpu("continued", tmp_path) == [True]


@pytest.mark.parametrize("case", ["together", "by_hand"])
def test_two_processes_that_share_it_are_one_with_the_whole_batch(on_gpu, case):
    assert max(on_gpu(case, processes=2)) < 1e-12


def test_a_compiled_model(on_gpu):
    assert on_gpu("compiled")[0] < 1e-5


def test_a_batch_that_does_not_fit_is_made_smaller(on_gpu):
    assert on_gpu("fits") == [True]


@pytest.mark.skipif(torch.cuda.device_count() != 1, reason="needs one GPU alone")
def test_two_processes_of_one_gpu_are_named(on_gpu):
    ended = on_gpu("named", processes=2, fails=True, seconds=60)
    words = "is that of another process, too, and nccl connects only processes that have one each"
    assert any(status == 1 and words in text and "--num-processes 1" in text for status, text in ended), ended


def test_it_is_described():
    said = subprocess.run(
        [sys.executable, "-m", "torchlift.runtime.launch.command", "env"],
        env={**os.environ, "TORCHLIFT_CPU": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert torch.cuda.get_device_name() in said.stdout


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_layers_of_eight_bits_are_near_those_of_sixteen(kind, caplog):
    """In the matrix units of the GPU, not emulated."""
    pytest.importorskip("torchao", reason="needs the extra fp8")
    if kind == "fp8" and not kind_of("cuda").multiplies_fp8():
        pytest.skip("needs a GPU with fp8")
    from torchlift.runtime.config.eight_bits import AORecipeKwargs
    from torchlift.runtime.strategies.eight_bits import convert
    from torchlift.runtime.types import PrecisionType

    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()
    x = torch.randn(64, 256, device="cuda", requires_grad=True)
    found = []
    for converted in (False, True):
        if converted:
            with caplog.at_level(logging.WARNING):
                done = convert(net, PrecisionType(kind), AORecipeKwargs(), torch.device("cuda", 0))
            assert len(done) == 2 and caplog.text == ""
        with torch.autocast("cuda", torch.bfloat16):
            out = net(x)
        grads = torch.autograd.grad(out.float().square().mean(), [x, *net.parameters()])
        found.append([out.float(), *grads])
    for one, other in zip(*found, strict=True):
        assert 0 < (one - other).norm() / one.norm() < 0.15
