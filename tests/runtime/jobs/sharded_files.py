"""Checkpoints of sharded models are those of the plain script, both ways."""

import copy
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from torchlift.runtime import Accelerator, CheckpointError, FullyShardedDataParallelPlugin


def in_blocks(module, recurse, nonwrapped_numel):
    """As torch's policies: every block is a unit. In models without blocks there is none."""
    return recurse or type(module).__name__ == "Block"


torch.set_default_dtype(torch.float64)
FOLDER = Path(sys.argv[1])
PLUGIN = FullyShardedDataParallelPlugin(auto_wrap_policy=in_blocks)
accelerator = Accelerator(fsdp_plugin=PLUGIN)
rank, size = accelerator.process_index, accelerator.num_processes


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


class Net(nn.Module):
    """Tied weights, a scalar, buffers of two types, and a length that two processes do not divide."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.BatchNorm1d(6)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens).mean(1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) * self.scale


def net():
    torch.manual_seed(3)
    return Net()


def batch(step):
    return torch.randint(7, (8, 4), generator=torch.Generator().manual_seed(step))


def step_of(model, optimizer, tokens, backward=torch.Tensor.backward):
    optimizer.zero_grad()
    backward(F.cross_entropy(model(tokens[:, :-1]), tokens[:, -1]))
    optimizer.step()


def trained(times=3, mine=accelerator):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    model, optimizer = mine.prepare(model, optimizer)
    for step in range(times):
        step_of(model, optimizer, batch(step), mine.backward)
    return model, optimizer


def plain_trained(times=3):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for step in range(times):
        step_of(model, optimizer, batch(step))
    return model, optimizer


def same(found, wanted, atol=1e-9):
    assert list(found) == list(wanted), (list(found), list(wanted))
    for name, value in wanted.items():
        assert type(found[name]) is torch.Tensor and found[name].device.type == "cpu", name
        torch.testing.assert_close(found[name], value, rtol=0, atol=atol)


def refused(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except CheckpointError as error:
        return str(error)
    raise AssertionError("nothing was said")


def whole(model):
    return {n: v.full_tensor() if hasattr(v, "full_tensor") else v for n, v in model.state_dict().items()}


def the_state_dict_is_that_of_the_plain_model_on_rank_0():
    model, _ = trained()
    state = accelerator.get_state_dict(model)
    if rank:
        assert state == {}
        return
    same(state, plain_trained()[0].state_dict())
    assert state["head.weight"] is state["embed.weight"]
    untrained = accelerator.get_state_dict(net())
    same(untrained, net().state_dict(), atol=0)


def a_file_of_the_script_goes_on_in_a_plain_one_and_back():
    model, optimizer = trained()
    file = FOLDER / "checkpoint.pt"
    weights = accelerator.get_state_dict(model)
    accelerator.save({"model": weights, "optimizer": optimizer.state_dict(), "epoch": 3}, file)
    accelerator.wait_for_everyone()
    checkpoint = torch.load(file, weights_only=True)  # on every rank
    plain = net()
    plain.load_state_dict(checkpoint["model"])
    plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=0.5)
    plain_optimizer.load_state_dict(copy.deepcopy(checkpoint["optimizer"]))
    reference, reference_optimizer = plain_trained()
    assert checkpoint["optimizer"]["param_groups"] == reference_optimizer.state_dict()["param_groups"]
    step_of(plain, plain_optimizer, batch(7))
    step_of(reference, reference_optimizer, batch(7))
    same(dict(plain.state_dict()), dict(reference.state_dict()))
    # and back: into another sharded model, whose optimizer was made before or after
    kept = copy.deepcopy(checkpoint)
    again = net()
    again_optimizer = torch.optim.AdamW(again.parameters(), lr=0.5)
    again, again_optimizer = accelerator.prepare(again, again_optimizer)
    again.load_state_dict(checkpoint["model"])
    again_optimizer.load_state_dict(checkpoint["optimizer"])
    assert all(type(value) is torch.Tensor for value in checkpoint["model"].values())
    same(checkpoint["model"], kept["model"], atol=0)
    step_of(again, again_optimizer, batch(7), accelerator.backward)
    same(whole(again), dict(reference.state_dict()))


def weights_of_rank_0_alone_are_loaded_everywhere():
    model, _ = trained()
    best = accelerator.get_state_dict(model)  # empty on other ranks
    before = {name: value.clone() for name, value in whole(model).items()}
    with torch.no_grad():
        for one in model.parameters():
            one.zero_()
    model.load_state_dict(best)
    same(whole(model), before, atol=0)
    model.blocks[0].load_state_dict(Block().state_dict())  # a part by itself
    try:
        model.load_state_dict({**before, "head.weight": torch.ones(3)})
    except RuntimeError as error:
        assert "size mismatch" in str(error)
    else:
        raise AssertionError("a wrong size was loaded")


def a_model_is_loaded_before_prepare_and_kept_in_memory():
    model, optimizer = trained(1)
    kept = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    before = {name: value.clone() for name, value in whole(model).items()}
    step_of(model, optimizer, batch(5), accelerator.backward)
    after = whole(model)
    model.load_state_dict(kept[0])
    optimizer.load_state_dict(kept[1])
    same(whole(model), before, atol=0)
    step_of(model, optimizer, batch(5), accelerator.backward)
    same(whole(model), after, atol=1e-15)


def safetensors_are_written_tensor_by_tensor():
    model, _ = trained()
    wanted = whole(model)
    for most, files in (("10GB", 1), ("400B", 4)):
        accelerator.save_model(model, FOLDER / f"weights {most}", max_shard_size=most)
        accelerator.wait_for_everyone()
        found = {}
        shards = sorted((FOLDER / f"weights {most}").glob("*.safetensors"))
        assert len(shards) >= files, shards
        for file in shards:
            found.update(load_file(file))
        missing = set(wanted) - set(found)
        assert missing == {"head.weight"}
        same({n: found[n] for n in wanted if n in found}, {n: v for n, v in wanted.items() if n in found}, atol=0)
        assert not list((FOLDER / f"weights {most}").glob(".weights*"))
        from torchlift.runtime import load_checkpoint_in_model

        plain = net()
        load_checkpoint_in_model(plain, FOLDER / f"weights {most}", strict=True)
        same(dict(plain.state_dict()), wanted, atol=0)
        again = accelerator.prepare(net())
        load_checkpoint_in_model(again, FOLDER / f"weights {most}")
        same(whole(again), wanted, atol=0)
    accelerator.save_model(model, FOLDER / "pickled", safe_serialization=False)
    accelerator.wait_for_everyone()
    same(torch.load(FOLDER / "pickled" / "pytorch_model.bin", weights_only=True), wanted, atol=0)


def a_model_that_saves_itself_saves_whole_weights():
    """As those of transformers do, under this name."""

    class Saved(Net):
        def save_pretrained(self, folder, state_dict=None):
            torch.save(self.state_dict() if state_dict is None else state_dict, folder / f"saved by {rank}.pt")

    torch.manual_seed(3)
    model = accelerator.prepare(Saved())
    model.save_pretrained(FOLDER)
    accelerator.wait_for_everyone()
    same(torch.load(FOLDER / "saved by 0.pt", weights_only=True), dict(net().state_dict()), atol=0)
    assert not (FOLDER / "saved by 1.pt").exists()


def a_folder_that_cannot_be_written_is_an_error_everywhere():
    model, _ = trained(1)
    file = FOLDER / "a file"
    file.write_text("")
    for safe in (True, False):
        assert "it is a file" in refused(accelerator.save_model, model, file, safe_serialization=safe)


def a_whole_job_is_saved_and_goes_on():
    """Sharded, and then whole on every process, and back."""
    model, optimizer = trained()
    accelerator.save_state(FOLDER / "state")
    step_of(model, optimizer, batch(4), accelerator.backward)
    wanted = whole(model)
    accelerator.free_memory()
    model, optimizer = trained(1)
    accelerator.load_state(FOLDER / "state")
    step_of(model, optimizer, batch(4), accelerator.backward)
    same(whole(model), wanted, atol=1e-15)
    replicated = Accelerator()
    model, optimizer = trained(1, replicated)
    replicated.load_state(FOLDER / "state")
    replicated.save_state(FOLDER / "state again")
    step_of(model, optimizer, batch(4), replicated.backward)
    same(dict(model.state_dict()), wanted)
    accelerator.free_memory()
    model, optimizer = trained(1)
    accelerator.load_state(FOLDER / "state again")
    step_of(model, optimizer, batch(4), accelerator.backward)
    same(whole(model), wanted, atol=1e-15)


HELPERS = "in_blocks net batch step_of trained plain_trained same refused whole load_file".split()
for name, claim in list(globals().items()):
    if isinstance(claim, type(net)) and claim.__module__ == "__main__" and name not in HELPERS:
        if name in (sys.argv[2:] or [name]):
            try:
                claim()
            except BaseException:
                print("FAILED", name, flush=True)
                raise
print("RESULT true", flush=True)
