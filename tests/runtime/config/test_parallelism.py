"""The mesh of a job: sizes, axes, and what fits the number of processes."""

from __future__ import annotations

import json
import os

import pytest

from torchlift.runtime import ParallelismConfig, utils
from torchlift.runtime.errors import ConfigError, MixedUseError, NotAvailableYet, UnknownWordError, WrongKindError
from torchlift.runtime.parallelism_config import ParallelismConfig as SameConfig


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith("PARALLELISM_CONFIG_"):
            monkeypatch.delenv(name)


def sizes(replicate=1, shard=1, tp=1, cp=1):
    return ParallelismConfig(dp_replicate_size=replicate, dp_shard_size=shard, tp_size=tp, cp_size=cp)


def test_names():
    assert SameConfig is ParallelismConfig is utils.ParallelismConfig


@pytest.mark.parametrize(
    ("given", "axes", "shape"),
    [
        ((), (), ()),
        ((8,), ("dp_replicate",), (8,)),
        ((1, 8), ("dp_shard",), (8,)),
        ((2, 4), ("dp_replicate", "dp_shard"), (2, 4)),
        ((1, 4, 2), ("dp_shard", "tp"), (4, 2)),
        ((2, 2, 2, 2), ("dp_replicate", "dp_shard", "cp", "tp"), (2, 2, 2, 2)),
    ],
)
def test_axes(given, axes, shape):
    found = sizes(*given)
    assert found._get_mesh() == ((axes, shape) if axes else ())
    assert set(found.active_mesh_dims) == set(axes)


def test_joint_axes():
    found = sizes(2, 3, cp=5)
    assert (found.total_size, found.data_parallel_size, found.non_data_parallel_size) == (30, 6, 5)
    assert found.dp_dim_names == ["dp_replicate", "dp_shard"] and found.non_dp_dim_names == ["cp"]
    assert found.dp_shard_cp_dim_names == ["dp_shard", "cp"]
    assert found.dp_cp_dim_names == ["dp_replicate", "dp_shard", "cp"]
    assert found.fsdp_dim_names == ["dp_replicate", "dp_shard_cp"]
    assert repr(sizes(2, 3)).startswith("ParallelismConfig(dp_replicate_size=2, dp_shard_size=3")
    assert json.loads(json.dumps(found.to_json()))["cp_handler"] == {"cp_comm_strategy": "allgather"}


def test_sizes_of_the_environment(monkeypatch):
    monkeypatch.setenv("PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "2")
    monkeypatch.setenv("PARALLELISM_CONFIG_DP_SHARD_SIZE", "4")
    found = ParallelismConfig()
    assert (found.dp_replicate_size, found.dp_shard_size, found.tp_size) == (2, 4, 1)
    assert ParallelismConfig(dp_shard_size=3).dp_shard_size == 3
    monkeypatch.setenv("PARALLELISM_CONFIG_DP_SHARD_SIZE", "many")
    with pytest.raises(ConfigError, match="PARALLELISM_CONFIG_DP_SHARD_SIZE is 'many'"):
        ParallelismConfig()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"dp_shard_size": 0}, ConfigError, "dp_shard_size must be at least 1, but got 0"),
        ({"tp_size": 1.5}, ConfigError, "tp_size must be at least 1, but got 1.5"),
        ({"cp_backend": "other"}, UnknownWordError, "torch"),
        ({"cp_size": 2, "sp_size": 2}, MixedUseError, "exclude each other"),
        ({"tp_size": 2, "dp_replicate_size": 2}, MixedUseError, "set dp_shard_size"),
        ({"cp_size": 2, "cp_handler": object()}, WrongKindError, "TorchContextParallelConfig"),
    ],
)
def test_what_cannot_be(given, error, words):
    with pytest.raises(error, match=words):
        ParallelismConfig(**given)


def test_how_sequences_are_exchanged(monkeypatch):
    assert utils.TorchContextParallelConfig().cp_comm_strategy == "allgather"
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_COMM_STRATEGY", "alltoall")
    assert ParallelismConfig(cp_size=2).cp_handler.cp_comm_strategy == "alltoall"
    with pytest.raises(ValueError, match="Invalid cp_comm_strategy: ring"):
        utils.TorchContextParallelConfig(cp_comm_strategy="ring")


@pytest.mark.parametrize(
    ("given", "processes", "error", "words"),
    [
        ((2, 2), 6, MixedUseError, r"4 processes .*but the job has 6. Set dp_shard_size=3"),
        ((2, 2), 5, MixedUseError, "dp_replicate_size=2 does not divide it"),
        ((1, 2), 4, MixedUseError, "Set dp_shard_size=4"),
        ((1, 2, 2), 4, NotAvailableYet, r"tensor parallelism \(tp_size=2\)"),
        ((1, 2, 1, 2), 4, NotAvailableYet, "context parallelism"),
    ],
)
def test_what_a_job_cannot_have(given, processes, error, words):
    with pytest.raises(error, match=words):
        sizes(*given).check(processes)


@pytest.mark.parametrize(("given", "processes"), [((), 4), ((2, 2), 4), ((1, 3), 3), ((4,), 4)])
def test_what_a_job_can_have(given, processes):
    sizes(*given).check(processes)


def test_one_process_has_no_mesh():
    assert ParallelismConfig().build_device_mesh("cpu") is None
    with pytest.raises(MixedUseError, match="get_device_mesh"):
        ParallelismConfig().get_device_mesh()


def test_a_mesh_of_four_processes(job_text):
    source = """
import json
import torch.distributed as dist
from torchlift.runtime import ParallelismConfig
from torchlift.runtime.errors import MixedUseError
dist.init_process_group("gloo")
config = ParallelismConfig(dp_replicate_size=2, dp_shard_size=2)
mesh = config.get_device_mesh("cpu")
assert config.get_device_mesh() is mesh
try:
    config.get_device_mesh("cuda")
except MixedUseError as error:
    assert "built for 'cpu'" in str(error)
pair = mesh[tuple(config.fsdp_dim_names)]
print("RESULT", json.dumps([list(mesh.mesh_dim_names), list(mesh.shape), mesh["dp"].size(), list(pair.shape),
      mesh.get_local_rank("dp_replicate"), mesh.get_local_rank("dp_shard")]))
dist.barrier()
dist.destroy_process_group()
"""
    found = job_text(source, 4)
    axes = [["dp_replicate", "dp_shard"], [2, 2], 4, [2, 2]]
    assert found == [[*axes, replica, shard] for replica in (0, 1) for shard in (0, 1)]
