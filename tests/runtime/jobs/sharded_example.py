"""A language model on a mesh, as examples of Accelerate train one: with what they call, on generated texts."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from torchlift.runtime import Accelerator
from torchlift.runtime.parallelism_config import ParallelismConfig
from torchlift.runtime.utils import FullyShardedDataParallelPlugin, set_seed

WORDS, LENGTH = 17, 12


class SmallDecoderLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.mix(self.norm(x).cumsum(1)))


class SmallForCausalLM(nn.Module):
    def __init__(self, width=16, layers=2):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(SmallDecoderLayer(width) for _ in range(layers))
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, input_ids, labels, shift_labels, position_ids):
        x = self.embed(input_ids) + self.places(position_ids)
        for layer in self.layers:
            x = layer(x)
        return {"loss": F.cross_entropy(self.head(x).flatten(0, 1).float(), shift_labels.flatten())}

    def save_pretrained(self, folder, state_dict=None):
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict() if state_dict is None else state_dict, folder / "model.pt")


def texts(count):
    """Each counts upwards from where it begins."""
    return [(torch.arange(LENGTH + 1) + start) % WORDS for start in range(count)]


def collate(rows):
    rows = torch.stack(rows)
    return {"input_ids": rows[:, :-1], "labels": rows[:, :-1], "shift_labels": rows[:, 1:]}


folder, replicas = Path(sys.argv[1]), int(sys.argv[2])
set_seed(42)
mesh = ParallelismConfig(dp_replicate_size=replicas, dp_shard_size=2)
plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2,
    auto_wrap_policy="transformer_based_wrap",
    transformer_cls_names_to_wrap=["SmallDecoderLayer"],
    state_dict_type="SHARDED_STATE_DICT",
)
accelerator = Accelerator(
    log_with=["jsonl"], project_dir=folder, mixed_precision="bf16", parallelism_config=mesh, fsdp_plugin=plugin
)
accelerator.init_trackers("small")
model = SmallForCausalLM()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
loader = DataLoader(texts(128), batch_size=2, collate_fn=collate)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for step, batch in enumerate(loader):
    batch["position_ids"] = torch.arange(LENGTH, device=batch["input_ids"].device).unsqueeze(0)
    buffers = list(batch.values())
    with accelerator.maybe_context_parallel(
        buffers=buffers, buffer_seq_dims=[1] * len(buffers), no_restore_buffers=set(buffers)
    ):
        group = accelerator.torch_device_mesh["dp_cp"].get_group() if mesh.dp_cp_dim_names else None
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        dist.all_reduce(loss, op=dist.ReduceOp.SUM, group=group)
    losses.append(loss.item() / accelerator.num_processes)
    accelerator.log({"loss": losses[-1]})
    if step == 4 and mesh.dp_shard_enabled:
        accelerator.save_state(folder / f"checkpoint-{step}")
model.save_pretrained(folder / "model")
assert len(set(accelerator.gather(torch.tensor([losses[-1]])).tolist())) == 1
accelerator.end_training()
assert losses[-1] < 0.7 * losses[0], losses
if accelerator.is_main_process:
    plain = SmallForCausalLM()
    plain.load_state_dict(torch.load(folder / "model" / "model.pt", weights_only=True))
    assert plain(**collate(texts(8)), position_ids=torch.arange(LENGTH)[None])["loss"] < 0.7 * losses[0]
    assert (folder / "checkpoint-4" / "model.safetensors").exists()
print("RESULT true")
