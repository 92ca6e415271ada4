"""One file of weights from a checkpoint of `torch.distributed.checkpoint`: the whole of it, or none."""

from __future__ import annotations

import pickle
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from click.testing import CliRunner
from safetensors.torch import load_file
from torch import nn

from torchlift.runtime import utils
from torchlift.runtime.checkpoint.merge import merge
from torchlift.runtime.errors import CheckpointError, CheckpointPathError
from torchlift.runtime.launch.command import main

SHARDED = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 3, bias=False).bfloat16())
if dist.get_rank() == 0:
    torch.save(model.state_dict(), sys.argv[1] + "/plain.bin")
mesh = init_device_mesh("cpu", (2,))
for one in model:
    fully_shard(one, mesh=mesh)
dcp.save({"model": model.state_dict()}, checkpoint_id=sys.argv[1] + "/sharded")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


@pytest.fixture
def saved(tmp_path):
    """`saved(state)` is a folder with that state dict, written by one process."""

    def save(state):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(state, checkpoint_id=tmp_path / "sharded", no_dist=True)
        return tmp_path / "sharded"

    return save


def same(found, wanted):
    assert sorted(found) == sorted(wanted)
    assert all(found[name].dtype == wanted[name].dtype and found[name].equal(wanted[name]) for name in wanted)


def test_what_two_processes_have_written(job_text, tmp_path):
    job_text(SHARDED, 2, tmp_path)
    plain = torch.load(tmp_path / "plain.bin", weights_only=True)
    file = merge(tmp_path / "sharded", tmp_path / "out" / "of it")
    assert file == tmp_path / "out" / "of it" / "model.safetensors"
    same(load_file(file), plain)
    same(torch.load(merge(tmp_path / "sharded", tmp_path, safe_serialization=False), weights_only=True), plain)
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix == ".bin") == ["plain.bin", "pytorch_model.bin"]


def test_a_part_of_a_checkpoint(model, saved, tmp_path):
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    folder = saved({"app": {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "epoch": 3})
    with pytest.raises(CheckpointError, match=r"more in it than weights: app, epoch\. Name the entry"):
        merge(folder, tmp_path)
    with pytest.raises(CheckpointError, match="model, optimizer"):
        merge(folder, tmp_path, part="app")
    with pytest.raises(CheckpointError, match="has no part 'net'; it has app"):
        merge(folder, tmp_path, part="net")
    with pytest.raises(CheckpointError, match="more in it than weights: param_groups, state"):
        merge(folder, tmp_path, part="app.optimizer")
    same(torch.load(merge(folder, tmp_path / "w.pt", part="app.model"), weights_only=True), model.state_dict())


def test_a_plain_state_dict(model, saved, tmp_path):
    same(load_file(merge(saved(model.state_dict()), tmp_path / "w.safetensors")), model.state_dict())


def test_entries_that_are_no_tensors(model, saved, tmp_path):
    folder = saved({**model.state_dict(), "names": ["a"]})
    with pytest.raises(CheckpointError, match=r"more in it than weights|no tensors: names"):
        merge(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def damage_nothing(folder):
    (folder / ".metadata").unlink()


def damage_file(folder):
    next(folder.glob("*.distcp")).unlink()


def cut_file(folder):
    file = next(folder.glob("*.distcp"))
    file.write_bytes(file.read_bytes()[:300])


def cut_listing(folder):
    (folder / ".metadata").write_bytes((folder / ".metadata").read_bytes()[:50])


def lose_chunk(folder):
    listing = dcp.FileSystemReader(folder).read_metadata()
    listing.state_dict_metadata["0.weight"].chunks.clear()
    (folder / ".metadata").write_bytes(pickle.dumps(listing))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_nothing, "no checkpoint of torch.distributed.checkpoint"),
        (damage_file, "is damaged: .*No such file"),
        (cut_file, "is damaged"),
        (cut_listing, r"\.metadata cannot be read"),
        (lose_chunk, r"is incomplete: it lacks parts of 0\.weight"),
    ],
)
def test_a_damaged_checkpoint_leaves_no_file(model, saved, tmp_path, damage, words):
    folder = saved(model.state_dict())
    damage(folder)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.safetensors").write_bytes(b"before")
    with pytest.raises(CheckpointError, match=words):
        merge(folder, tmp_path / "out", remove=True)
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["model.safetensors"] and folder.exists()
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == b"before"


def test_places_that_cannot_be(model, saved, tmp_path):
    folder = saved(model.state_dict())
    with pytest.raises(CheckpointPathError, match="there is no folder"):
        merge(tmp_path / "absent", tmp_path)
    with pytest.raises(CheckpointPathError, match=r"These folders in it are: sharded\. Name one of them"):
        merge(tmp_path, tmp_path)
    with pytest.raises(CheckpointPathError, match="that is to be removed"):
        merge(folder, folder, remove=True)
    (tmp_path / "note").write_text("x")
    with pytest.raises(CheckpointPathError, match="neither a folder nor a file"):
        merge(folder, tmp_path / "note")


def test_the_command_and_the_function(model, saved, tmp_path):
    folder = saved(model.state_dict())
    done = CliRunner().invoke(main, ["merge-weights", str(folder), str(tmp_path / "out"), "--unsafe_serialization"])
    assert done.exit_code == 0 and done.output == f"written to {tmp_path / 'out' / 'pytorch_model.bin'}\n"
    same(torch.load(tmp_path / "out" / "pytorch_model.bin", weights_only=True), model.state_dict())
    utils.merge_fsdp_weights(folder, tmp_path / "out", remove_checkpoint_dir=True)
    same(load_file(tmp_path / "out" / "model.safetensors"), model.state_dict())
    assert not folder.exists()
    done = CliRunner().invoke(main, ["merge-weights", str(folder), str(tmp_path / "out")])
    assert done.exit_code == 3 and "there is no folder" in done.output
