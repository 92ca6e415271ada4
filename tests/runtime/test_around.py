"""What stands around training: sharing out, loggers, progress, memory, traces, local SGD."""

from __future__ import annotations

import logging
import sys
import warnings
from unittest.mock import MagicMock

import pytest
import torch

from torchlift.runtime import Accelerator, MixedUseError, UnknownWordError
from torchlift.runtime.device.memory import find_executable_batch_size, release_memory, should_reduce_batch_size
from torchlift.runtime.errors import MissingPackageError
from torchlift.runtime.local_sgd import LocalSGD
from torchlift.runtime.logging import get_logger
from torchlift.runtime.process.progress_bar import tqdm
from torchlift.runtime.process.splitting import split
from torchlift.runtime.tracking.profiling import ProfileKwargs


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    return Accelerator()


def test_on_two_processes(job, tmp_path):
    assert job("around.py", 2, tmp_path) == [True, True]


@pytest.mark.parametrize("length", range(8))
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_parts_make_up_the_whole(length, size):
    whole = list(range(length))
    parts = [split(whole, rank, size) for rank in range(size)]
    assert [item for part in parts for item in part] == whole
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    if length:
        padded = [split(torch.tensor(whole), rank, size, pad=True).tolist() for rank in range(size)]
        assert {len(part) for part in padded} == {-(-length // size)}
        assert sorted({item for part in padded for item in part}) == whole
        assert padded == [split(whole, rank, size, pad=True) for rank in range(size)]


def test_alone_everything_is_handed_over(accelerator):
    inputs = object()
    with accelerator.split_between_processes(inputs) as mine:
        assert mine is inputs
    assert accelerator.on_process(lambda: 1, process_index=7)() == 1
    assert accelerator.on_local_process(local_process_index=7)(lambda: 2)() == 2


def test_an_empty_list_divides_evenly():
    assert split([], 0, 2, pad=True) == split([], 1, 2) == []


def fails_above(most, words="CUDA out of memory. Tried"):
    def train(batch_size):
        sizes.append(batch_size)
        if batch_size > most:
            raise RuntimeError(words)
        return batch_size

    sizes: list[int] = []
    return train, sizes


def test_the_batch_size_that_fits():
    train, sizes = fails_above(100)
    found = find_executable_batch_size(train, starting_batch_size=128)
    assert found() == 92 and sizes == [128, 115, 103, 92]
    assert found() == 92 and len(sizes) == 5, "what was found is kept"


def test_another_way_to_reduce():
    train, sizes = fails_above(10)
    halves = iter([8, 4])
    assert find_executable_batch_size(starting_batch_size=16, reduce_batch_size_fn=lambda: next(halves))(train)() == 8
    assert sizes == [16, 8]


def test_nothing_fits_and_other_errors():
    train, _ = fails_above(0)
    for start in (0, 4):
        with pytest.raises(RuntimeError, match="No executable batch size found"):
            find_executable_batch_size(train, start)()
    train, sizes = fails_above(0, "something else")
    with pytest.raises(RuntimeError, match="something else"):
        find_executable_batch_size(train)()
    assert len(sizes) == 1
    with pytest.raises(TypeError, match=r"`train\(\)`"):
        find_executable_batch_size(train)(128)


def test_signs_of_short_memory():
    assert should_reduce_batch_size(RuntimeError("XPU out of memory. Tried"))
    assert should_reduce_batch_size(torch.OutOfMemoryError("whatever"))
    assert not should_reduce_batch_size(ValueError("CUDA out of memory."))
    assert release_memory(torch.ones(1), [2]) == [None, None]


def test_a_logger(accelerator, caplog, monkeypatch):
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "error")
    logger = get_logger("torchlift.test.a")
    logger.warning("below the level")
    logger.error("%s", "above")
    assert [record.getMessage() for record in caplog.records] == ["[RANK 0] above"]
    assert caplog.records[0].funcName == "test_a_logger"
    logging.getLogger().setLevel(logging.WARNING)


def test_progress(monkeypatch):
    bars = MagicMock()
    monkeypatch.setitem(sys.modules, "tqdm", bars)
    monkeypatch.setitem(sys.modules, "tqdm.auto", bars.auto)
    tqdm([1], total=3)
    bars.auto.tqdm.assert_called_with([1], total=3, disable=False)
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    tqdm([1])
    bars.auto.tqdm.assert_called_with([1], disable=True)
    tqdm([1], main_process_only=False)
    bars.auto.tqdm.assert_called_with([1], disable=False)
    with pytest.raises(ValueError, match="main_process_only"):
        tqdm(True, [1])
    monkeypatch.delitem(sys.modules, "tqdm")
    monkeypatch.setattr("torchlift.runtime.available._found", lambda package: False)
    with pytest.raises(MissingPackageError, match=r"torchlift\[progress\]"):
        tqdm([1])


def test_profiles(accelerator, tmp_path):
    ready = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = ProfileKwargs(
            activities=["cpu"], schedule_option={"wait": 1, "warmup": 0, "active": 1}, on_trace_ready=ready.append
        )
        with accelerator.profile(settings) as profiler:
            for _ in range(4):
                torch.ones(1) + 1
                profiler.step()
    assert len(ready) == 2
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UnknownWordError, match="'moon'"), accelerator.profile(ProfileKwargs(activities=["moon"])):
        pass
    with Accelerator(kwargs_handlers=[ProfileKwargs(activities=["cpu"], record_shapes=True)]).profile() as profiler:
        pass
    assert profiler.record_shapes
    assert ProfileKwargs(with_flops=True).to_kwargs() == {"with_flops": True}


def test_local_sgd_needs_steps(accelerator):
    with pytest.raises(MixedUseError, match="local_sgd_steps is 0"):
        LocalSGD(accelerator, torch.nn.Linear(1, 1), local_sgd_steps=0)
    with LocalSGD(accelerator, torch.nn.Linear(1, 1), 2) as local:
        local.step()
    assert not local.enabled
