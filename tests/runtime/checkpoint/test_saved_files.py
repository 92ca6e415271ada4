"""What lies in the files of checkpoints and weights, on one process."""

from __future__ import annotations

import json
import logging
import random
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from torchlift.runtime import (
    Accelerator,
    CheckpointError,
    DataLoaderConfiguration,
    NotAvailableYet,
    ProjectConfiguration,
)
from torchlift.runtime.checkpoint import folders
from torchlift.runtime.checkpoint.shards import convert_file_size_to_int, split
from torchlift.runtime.checkpoint.weights import load_checkpoint_in_model


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight


@pytest.fixture
def tied():
    torch.manual_seed(1)
    return Tied()


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    return Accelerator()


# ---------------------------------------------------------------- weights


def test_one_file_when_it_fits(accelerator, tied, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        accelerator.save_model(accelerator.prepare(tied), tmp_path / "new" / "folder")
    assert "Removed shared tensor ['head.weight']" in caplog.text
    (file,) = (tmp_path / "new" / "folder").iterdir()
    assert file.name == "model.safetensors"
    assert sorted(load_file(file)) == ["body.bias", "body.weight", "embed.weight"]


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("size", ["10GB", "100B", 1])
def test_shards_are_loaded_again(accelerator, tied, tmp_path, size, safe):
    accelerator.save_model(tied, tmp_path, max_shard_size=size, safe_serialization=safe)
    torch.manual_seed(2)
    other = Tied()
    load_checkpoint_in_model(other, tmp_path, strict=True)
    assert equal(tied, other)
    assert other.head.weight is other.embed.weight


def test_the_index_says_where_weights_are_and_old_shards_go(accelerator, tied, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    accelerator.save_model(tied, tmp_path, max_shard_size=1)
    assert (tmp_path / "model-00003-of-00003.safetensors").exists()
    accelerator.save_model(tied, tmp_path, max_shard_size="120B")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * (7 * 4 + 4 * 4 + 4)
    assert set(index["weight_map"]) == {"embed.weight", "body.weight", "body.bias"}
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    accelerator.save_model(tied, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_weights_that_cannot_be_saved(accelerator, tied, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="it is a file"):
        accelerator.save_model(tied, tmp_path / "file")
    with torch.device("meta"):
        empty = Tied()
    with pytest.raises(CheckpointError, match="meta device"):
        accelerator.save_model(empty, tmp_path / "x")
    with pytest.raises(ValueError, match="max_shard_size is 'many'"):
        accelerator.save_model(tied, tmp_path, max_shard_size="many")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("size", "count"), [("10GB", 10**10), ("2GiB", 2**31), ("1.5kb", 1500), (7, 7), ("3 MB", 3 * 10**6)]
)
def test_sizes(size, count):
    assert convert_file_size_to_int(size) == count


def test_a_large_tensor_has_a_shard_of_its_own():
    tensors = {name: torch.zeros(n, dtype=torch.uint8) for name, n in (("a", 3), ("b", 9), ("c", 2), ("d", 3))}
    assert split(tensors, 5) == [["a"], ["b"], ["c", "d"]]


def test_views_of_one_memory_are_written_apart(accelerator, tmp_path):
    whole = torch.arange(6.0)
    accelerator.save({"low": whole[:4], "high": whole[2:], "t": whole.view(2, 3).t()}, tmp_path / "x.safetensors", True)
    found = load_file(tmp_path / "x.safetensors")
    assert found["low"].tolist() == [0, 1, 2, 3] and found["high"].tolist() == [2, 3, 4, 5]
    assert found["t"].tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("bad", [[1], {"a": 1}], ids=["no dict", "no tensor"])
def test_safetensors_hold_tensors_only(accelerator, tmp_path, bad):
    with pytest.raises(CheckpointError, match="tensors"):
        accelerator.save(bad, tmp_path / "x", safe_serialization=True)
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_data_is_filled_by_a_device_map(accelerator, tied, tmp_path):
    accelerator.save_model(tied, tmp_path)
    with torch.device("meta"):
        other = Tied()
    load_checkpoint_in_model(other, tmp_path, device_map={"": "cpu"}, dtype="float64")
    assert torch.equal(other.body.weight, tied.body.weight.double())
    assert other.head.weight is other.embed.weight
    with pytest.raises(NotAvailableYet, match="disk"):
        load_checkpoint_in_model(other, tmp_path, device_map={"body": "disk", "": "cpu"})
    with pytest.raises(NotAvailableYet, match="offloading"):
        load_checkpoint_in_model(other, tmp_path, offload_folder=tmp_path)


def test_names_that_do_not_fit(accelerator, tied, tmp_path, caplog):
    torch.save({**tied.state_dict(), "more": torch.ones(1)}, tmp_path / "x.bin")
    load_checkpoint_in_model(Tied(), tmp_path / "x.bin")
    assert "were not used" in caplog.text and "more" in caplog.text
    with pytest.raises(RuntimeError, match="more"):
        load_checkpoint_in_model(Tied(), tmp_path / "x.bin", strict=True)
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "x.index.json").write_text('{"body": ["x"]}')
    with pytest.raises(CheckpointError, match="is not an index of shards"):
        load_checkpoint_in_model(Tied(), tmp_path / "y")
    with pytest.raises(ValueError, match="no file or folder"):
        load_checkpoint_in_model(Tied(), tmp_path / "none")
    with pytest.raises(ValueError, match=r"holds no model\.safetensors"):
        load_checkpoint_in_model(Tied(), tmp_path)


# ---------------------------------------------------------------- checkpoints


def automatic(folder, **more):
    return Accelerator(
        project_config=ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=True, **more)
    )


@pytest.fixture
def job_parts(tied):
    def prepare(accelerator):
        optimizer = torch.optim.AdamW(tied.parameters())
        accelerator.prepare(tied, optimizer)
        accelerator.backward(tied.head(tied.body(tied.embed(torch.arange(7)))).sum())
        optimizer.step()
        return optimizer

    return prepare


@pytest.mark.parametrize("safe", [True, False])
def test_everything_comes_back(job_parts, tied, tmp_path, safe):
    accelerator = automatic(tmp_path)
    optimizer = job_parts(accelerator)
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    folder = accelerator.save_state(safe_serialization=safe)
    assert folder == tmp_path / "checkpoints" / "checkpoint_0"
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    weights, moments = tied.body.weight.clone(), optimizer.state[tied.body.weight]["exp_avg"].clone()
    with torch.no_grad():
        tied.body.weight.zero_()
        optimizer.state[tied.body.weight]["exp_avg"].zero_()
    accelerator.load_state(folder)
    assert torch.equal(tied.body.weight, weights)
    assert torch.equal(optimizer.state[tied.body.weight]["exp_avg"], moments)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == drawn
    assert tied.head.weight is tied.embed.weight


def test_a_failing_save_costs_no_old_checkpoint(job_parts, tmp_path, monkeypatch):
    accelerator = automatic(tmp_path, total_limit=1)
    job_parts(accelerator)
    accelerator.save_state()
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        accelerator.save_state()
    monkeypatch.undo()
    accelerator.load_state()
    assert accelerator.save_iteration == 1
    accelerator.save_state()
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["checkpoint_1"], "nothing else is left either"


def test_the_next_one_is_named_after_the_one_that_was_loaded(job_parts, tmp_path):
    accelerator = automatic(tmp_path)
    job_parts(accelerator)
    for _ in range(3):
        accelerator.save_state()
    again = automatic(tmp_path)
    job_parts(again)
    with pytest.raises(ValueError, match="save_iteration = 3"):
        again.save_state()
    again.load_state()
    assert again.save_state().name == "checkpoint_3"
    again.save_iteration = 9
    assert again.save_state().name == "checkpoint_9"


def test_the_numbers_are_numbers(tmp_path, job_parts):
    accelerator = automatic(tmp_path, total_limit=2)
    job_parts(accelerator)
    for _ in range(12):
        accelerator.save_state()
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["checkpoint_10", "checkpoint_11"]


def test_a_folder_that_is_saved_to_again(job_parts, accelerator, tmp_path):
    job_parts(accelerator)
    for _ in range(2):
        accelerator.save_state(tmp_path / "pure")
    assert not folders.problems(tmp_path / "pure")
    (tmp_path / "pure" / "notes.txt").write_text("the user's own")
    accelerator.register_for_checkpointing(torch.optim.SGD([torch.ones(1)]))
    accelerator.save_state(tmp_path / "pure")
    assert (tmp_path / "pure" / "notes.txt").exists()
    assert (tmp_path / "pure" / "custom_checkpoint_0.pkl").exists()
    assert not folders.problems(tmp_path / "pure")
    assert [p.name for p in tmp_path.iterdir()] == ["pure"]
    accelerator.load_state(tmp_path / "pure")


def test_a_crash_between_two_renames_loses_nothing(job_parts, accelerator, tmp_path):
    job_parts(accelerator)
    accelerator.save_state(tmp_path / "x")
    (tmp_path / "x").rename(tmp_path / ".x.old")
    accelerator.load_state(tmp_path / "x")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "optimizer.bin").write_bytes(b"x"), "optimizer.bin has 1 bytes"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda folder: flip(folder / "model.safetensors"), "another checksum"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json is missing or damaged"),
        (shutil.rmtree, "there is no folder"),
    ],
    ids=["cut", "gone", "flipped", "manifest", "folder"],
)
def test_damage_is_found_before_anything_is_loaded(job_parts, tied, accelerator, tmp_path, damage, words):
    job_parts(accelerator)
    accelerator.save_state(tmp_path / "x")
    damage(tmp_path / "x")
    before = tied.body.weight.clone()
    with pytest.raises(CheckpointError, match=words):
        accelerator.load_state(tmp_path / "x")
    assert torch.equal(before, tied.body.weight)


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


class Custom:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_registered_objects(accelerator, tmp_path):
    one = Custom({"array": np.arange(3.0), "scalar": np.float64(2.5), "text": "ä"})
    accelerator.register_for_checkpointing(one)
    accelerator.save_state(tmp_path / "x")
    one.state = None
    accelerator.load_state(tmp_path / "x")
    assert one.state["array"].tolist() == [0, 1, 2] and one.state["scalar"] == 2.5
    accelerator.register_for_checkpointing(Custom({}))
    with pytest.raises(CheckpointError, match="states of 1 registered objects, but 2 are registered now"):
        accelerator.load_state(tmp_path / "x")
    with pytest.raises(ValueError, match="Item at index 1, a int"):
        accelerator.register_for_checkpointing(one, 3)


def test_what_could_not_be_loaded_again_is_not_saved(accelerator, tmp_path):
    accelerator.register_for_checkpointing(Custom({"path": tmp_path}))
    with pytest.raises(
        CheckpointError, match="the state of Custom could be saved, but could not be loaded again safely"
    ):
        accelerator.save_state(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_pickle_runs_no_code(accelerator, tied, tmp_path):
    accelerator.prepare(tied)
    torch.save({"x": print}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="cannot be loaded safely"):
        accelerator.load_state(tmp_path)
    accelerator.save_state(tmp_path / "good", safe_serialization=False)
    optimizer = torch.optim.SGD(tied.parameters(), 0.1)
    accelerator.prepare(optimizer)
    accelerator.save_state(tmp_path / "good")
    with pytest.raises(ValueError, match="weights_only=True only"):
        accelerator.load_state(tmp_path / "good", load_kwargs={"weights_only": False})


def test_a_folder_of_accelerate_is_loaded(accelerator, tied, tmp_path):
    """Its layout: no manifest, names of a wrapper, and numpy's state as it is."""
    accelerator.prepare(tied)
    state = {f"module.{name}": torch.full_like(value, 2.0) for name, value in tied.state_dict().items()}
    torch.save(state, tmp_path / "pytorch_model.bin")
    random.seed(4), np.random.seed(5)
    numbers = {"step": 3, "random_state": random.getstate(), "numpy_random_seed": np.random.get_state()}
    torch.save({**numbers, "torch_manual_seed": torch.get_rng_state()}, tmp_path / "random_states_0.pkl")
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    accelerator.load_state(tmp_path)
    assert set(tied.body.weight.flatten().tolist()) == {2.0}
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == drawn


def test_bad_use(accelerator, tmp_path):
    with pytest.raises(TypeError, match="Unsupported optimizer map location"):
        accelerator.load_state(tmp_path, map_location="moon")
    with pytest.raises(ValueError, match="automatic_checkpoint_naming=True"):
        accelerator.save_state()
    with pytest.raises(ValueError, match="automatic_checkpoint_naming=True"):
        accelerator.load_state()
    with pytest.raises(ValueError, match="no complete checkpoint"):
        automatic(tmp_path).load_state()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="it is a file"):
        accelerator.save_state(tmp_path / "file")
    with pytest.raises(ValueError, match="total_limit is 0"):
        ProjectConfiguration(total_limit=0)


def test_hooks_take_over(accelerator, tied, tmp_path):
    accelerator.prepare(tied)
    calls = []

    def saving(models, weights, folder):
        calls.append((len(models), len(weights)))
        weights.pop()

    handles = [accelerator.register_save_state_pre_hook(saving)]
    handles.append(accelerator.register_load_state_pre_hook(lambda models, folder: models.pop()))
    accelerator.save_state(tmp_path / "x")
    accelerator.load_state(tmp_path / "x")
    assert calls == [(1, 1)] and not (tmp_path / "x" / "model.safetensors").exists()
    for handle in handles:
        handle.remove()
    accelerator.save_state(tmp_path / "x")
    assert (tmp_path / "x" / "model.safetensors").exists()


def test_project_folders(tmp_path):
    assert Accelerator(project_dir=tmp_path).logging_dir == tmp_path
    both = Accelerator(project_dir=tmp_path, project_config=ProjectConfiguration(logging_dir="logs"))
    assert (both.project_dir, both.logging_dir) == (tmp_path, "logs")


def numbers(loader):
    return [int(x) for (batch,) in loader for x in batch]


def shuffled(folder, seed=None):
    accelerator = Accelerator(
        project_config=ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=True),
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=seed is not None, data_seed=seed),
    )
    data = torch.utils.data.TensorDataset(torch.arange(8))
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)
    return accelerator, accelerator.prepare(loader)


@pytest.mark.parametrize("seed", [None, 5], ids=["plain", "by epochs"])
def test_the_next_epoch_after_loading_is_the_next_one(tmp_path, seed):
    accelerator, loader = shuffled(tmp_path, seed)
    first = numbers(loader)
    folder = accelerator.save_state()
    second = numbers(loader)
    assert second != first
    torch.manual_seed(99)
    again, loader = shuffled(tmp_path, seed)
    again.load_state(folder)
    assert numbers(loader) == second
    assert loader.iteration == 2


def test_the_position_is_noted(tmp_path):
    accelerator, loader = shuffled(tmp_path)
    for _ in loader:
        folder = accelerator.save_state()
        break
    assert torch.load(folder / "sampler.bin")["pass"]["position"] == 1
    numbers(loader)
    assert torch.load(accelerator.save_state() / "sampler.bin")["pass"]["position"] == 0


def test_accumulation_begins_anew(tied, tmp_path):
    accelerator = Accelerator(gradient_accumulation_steps=3)
    tied = accelerator.prepare(tied)
    with accelerator.accumulate(tied):
        accelerator.backward(tied.body(torch.ones(1, 4)).sum())
    assert torch.load(accelerator.save_state(tmp_path / "x") / "random_states_0.pkl")["step"] == 1
    accelerator.load_state(tmp_path / "x")
    for sync in (False, False, True):
        with accelerator.accumulate(tied):
            assert accelerator.sync_gradients is sync


class Positions(torch.utils.data.DataLoader):
    """A loader class of a user that keeps its own state."""

    place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


def test_what_a_loader_class_keeps_by_itself(accelerator, tmp_path):
    loader = accelerator.prepare(Positions(torch.utils.data.TensorDataset(torch.arange(4))))
    loader.place = 3
    accelerator.save_state(tmp_path / "x")
    assert torch.load(tmp_path / "x" / "dl_state_dict.bin") == {"ranks": [{"place": 3}]}
    loader.place = 0
    accelerator.load_state(tmp_path / "x")
    assert loader.place == 3
