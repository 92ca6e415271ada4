"""
Training on a device that torch does not know: this file registers one.

Its tensors are a subclass that holds tensors of the CPU, and computes with them. So it is as fast as the CPU and as
strange as an accelerator can be: there is no memory that a pointer could name, no generator of its own, nothing to pin,
and a module that moves there gets new parameters.
"""

import copy
import json
import sys
import weakref
from pathlib import Path

import torch
from torch import nn
from torch.utils import backend_registration
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, set_seed
from torchlift.runtime.errors import DeviceError

NAME = "made"


class Made(torch.Tensor):
    """A tensor of the device."""

    @staticmethod
    def __new__(cls, held):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    def __init__(self, held):
        pass

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        goes_to = kwargs.get("device")
        if goes_to is not None:
            kwargs["device"] = torch.device("cpu")
        args, held = list(args), tree_map_only(cls, lambda one: one.held, (list(args), kwargs))
        outcome = func(*held[0], **held[1])
        if goes_to is not None and torch.device(goes_to).type == "cpu":
            return outcome
        if not func._schema.returns:
            return None
        if func._schema.is_mutable and func._schema.name.endswith("_"):
            return args[0]
        return tree_map_only(torch.Tensor, cls, outcome)

    def tolist(self):
        return self.held.tolist()

    def __repr__(self):
        return f"Made({self.held!r})"


class Functions(backend_registration._DummyBackendModule):
    """`torch.made`."""

    def device_count(self):
        return 2

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]

    drawn = torch.zeros(1, dtype=torch.uint8)
    """The state of a generator that draws nothing."""

    def get_rng_state(self, device):
        return self.drawn.clone()

    def set_rng_state(self, state, device):
        self.drawn.copy_(state)


def register():
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Functions())
    library = torch.library.Library("aten", "IMPL")

    def empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
        return Made(torch.empty(size, dtype=dtype))

    def empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
        return Made(torch.empty_strided(size, stride, dtype=dtype))

    def copy_from(source, target, non_blocking=False):
        of = [one.held if isinstance(one, Made) else one for one in (source, target)]
        of[1].copy_(of[0])
        return target

    library.impl("empty.memory_format", empty, "PrivateUse1")
    library.impl("empty_strided", empty_strided, "PrivateUse1")
    library.impl("_copy_from", copy_from, "PrivateUse1")
    return library


class Net(nn.Module):
    """Its first and last weights are one, and a buffer is trained along."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 6)
        self.head.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.first(x))))


def parts(kind=Net, dtype=torch.float32):
    set_seed(3)
    net = kind().to(dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    x = torch.randn(22, 6).to(dtype)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    return net, optimizer, DataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(1))


def train(net, optimizer, loader, backward):
    losses = []
    for _ in range(2):
        for x, y in loader:
            assert x.device == y.device == net.first.weight.device
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
            losses.append(loss.item())
    return losses


def refused(act, words):
    try:
        act()
    except DeviceError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


class Plain(nn.Module):
    """Large enough that a reducer exchanges gradients while they are computed, where there is one."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 64), nn.Linear(64, 6)

    def forward(self, x):
        return self.head(torch.tanh(self.first(x)))


def together(folder):
    """Two processes, which exchange what is on the device by a back end that is registered for it: gloo again."""
    import torch.distributed as dist

    kept = register()

    def create(store, rank, size, timeout):
        return dist.ProcessGroupGloo(store, rank, size, timeout)

    dist.Backend.register_backend(f"{NAME}_gloo", create, devices=[NAME])
    alone = parts(Plain, torch.float64)
    train(*alone, torch.Tensor.backward)
    accelerator = Accelerator(split_batches=True)
    rank = accelerator.process_index
    assert accelerator.device == torch.device(NAME, rank) and accelerator.distributed_type == "MULTI_ACCELERATOR"
    assert accelerator.state.backend == f"cpu:gloo,{NAME}:{NAME}_gloo"
    net, optimizer, loader = accelerator.prepare(*parts(Plain, torch.float64))
    train(net, optimizer, loader, accelerator.backward)
    rows = [accelerator.gather_for_metrics(y) for _, y in loader]
    assert sum(map(len, rows)) == 22 and rows[0].device.type == NAME
    total = accelerator.reduce(torch.ones(2, device=accelerator.device) * (rank + 1))
    assert total.tolist() == [3.0, 3.0]
    pairs = zip(net.state_dict().values(), alone[0].state_dict().values(), strict=True)
    distance = max(float((one.cpu() - other).abs().max()) for one, other in pairs)
    accelerator.save_state(folder / "state")
    with torch.no_grad():
        net.first.weight.zero_()
    accelerator.load_state(folder / "state")
    assert net.first.weight.abs().sum().item() > 0
    del kept
    print("RESULT", json.dumps(distance))


def main(folder):
    kept = register()
    alone = parts()
    expected = train(*alone, torch.Tensor.backward)
    accelerator = Accelerator()
    assert accelerator.device == torch.device(NAME, 0), accelerator.device
    net, optimizer, loader = parts()
    weight = net.first.weight
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    assert net.first.weight is net.head.weight is weight is optimizer.param_groups[0]["params"][0]
    assert {one.device.type for one in (*net.parameters(), *net.buffers())} == {NAME}
    assert train(net, optimizer, loader, accelerator.backward) == expected
    same = zip(net.state_dict().values(), alone[0].state_dict().values(), strict=True)
    assert all(torch.equal(one.cpu(), other) for one, other in same)

    accelerator.print(torch.ones(2, device=accelerator.device))
    loss = net(next(iter(loader))[0]).sum()
    assert accelerator.gather(loss.detach()).device.type == NAME
    assert accelerator.gather_for_metrics((loss.detach(), "a word"))[0].item() == loss.item()
    assert accelerator.to_device({"x": torch.ones(1)})["x"].device.type == NAME
    norm = accelerator.clip_grad_norm_(net.parameters(), 1.0)
    assert torch.isfinite(norm.cpu())

    weights = {name: one.cpu() for name, one in net.state_dict().items()}
    accelerator.save(accelerator.get_state_dict(net), folder / "weights.pt")
    accelerator.save({"optimizer": optimizer.state_dict()}, folder / "optimizer.pt")
    accelerator.save_model(net, folder / "model")
    accelerator.save_model(net, folder / "pickled", safe_serialization=False)
    Functions.drawn.fill_(7)
    accelerator.save_state(folder / "state")
    Functions.drawn.fill_(8)
    before = copy.deepcopy(optimizer.state_dict())
    with torch.no_grad():
        for one in net.parameters():
            one.zero_()
    accelerator.load_state(folder / "state")
    assert all(torch.equal(one.cpu(), weights[name]) for name, one in net.state_dict().items())
    assert Functions.drawn.item() == 7
    moment = optimizer.state_dict()["state"][0]["exp_avg"]
    assert moment.device.type == NAME and torch.equal(moment.cpu(), before["state"][0]["exp_avg"].cpu())
    accelerator.free_memory()
    refused(lambda: Accelerator(mixed_precision="fp16"), "made does not have: use one of: no, bf16")
    other = Net()
    held = weakref.ref(other.first.weight)
    refused(
        lambda: Accelerator().prepare(other), "the weights of the Net cannot become tensors of made in their places"
    )
    del kept, held
    print("RESULT", json.dumps(True))


if __name__ == "__main__":
    (together if len(sys.argv) > 2 else main)(Path(sys.argv[1]))
