"""What places things on a device that the script chose."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


@pytest.mark.parametrize("pin", ["torch.cuda.set_device(1)", "torch.cuda.set_device('cuda:0')"])
def test_a_process_is_not_pinned_to_one_gpu(pin: str, trained: Trained) -> None:
    text, findings = trained(built=f"{pin}\nmodel.cuda()")
    assert "set_device" not in text and findings == []


@pytest.mark.parametrize("flags", ["fast or other", "fast == 1"])
def test_a_flag_of_several_parts_is_negated_as_a_whole(flags: str, trained: Trained) -> None:
    top = f"fast = other = 1\ndevice = torch.device('cuda' if {flags} else 'cpu')"
    text, _ = trained(top=top, built="model.to(device)")
    assert f"Accelerator(cpu=not ({flags}))" in text


KEPT = {
    "copies of its parameters": "for name, p in net.named_parameters():\n            self.kept[name] = p.data.clone()",
    "a list of them": "self.kept = [p.detach() for p in net.parameters()]",
    "its state": "self.kept = list(net.state_dict().values())",
}
OF_ITSELF = {
    "the model": "self.kept = net",
    "its parameters": "self.kept = list(net.parameters())",
    "their number": "self.kept = sum(p.numel() for p in net.parameters())",
}
BUILT = """
model = torch.nn.Linear(8, 2).cuda()
average = Average(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
AVERAGE = """
class Average:
    def __init__(self, net):
        self.kept = {{}}
        {keeps}

"""


@pytest.mark.parametrize("keeps", KEPT.values(), ids=KEPT)
def test_a_model_whose_tensors_are_kept_before_prepare_is_moved_before_that(keeps: str, trained: Trained) -> None:
    """`prepare` would move the model, and what was kept would stay on the CPU."""
    text, _ = trained(top=AVERAGE.format(keeps=keeps), built=BUILT)
    assert "Linear(8, 2).to(accelerator.device)\naverage = Average(model)" in text


@pytest.mark.parametrize("keeps", OF_ITSELF.values(), ids=OF_ITSELF)
def test_what_follows_the_model_does_not_need_it(keeps: str, trained: Trained) -> None:
    text, _ = trained(top=AVERAGE.format(keeps=keeps), built=BUILT)
    assert ".to(accelerator.device)" not in text and "cuda" not in text


TRAIN = """\
import torch
from torch.utils.data import DataLoader
from data import data, other
from checks import check

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
check(model, DataLoader(other, batch_size=32))
"""
CHECKS = """\
import torch

def check(net, batches):
    device = {device}
    for x, y in batches:
        net(x.to(device))
"""


@pytest.mark.parametrize(
    ("device", "emitted"),
    [
        ('"cuda:0" if torch.cuda.is_available() else "cpu"', '"cuda" if torch.cuda.is_available() else "cpu"'),
        ('torch.device("cuda:1")', 'torch.device("cuda")'),
    ],
)
def test_a_gpu_that_code_without_the_accelerator_names_loses_its_number(
    device: str, emitted: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    """A script beside it calls `check`, too: it stays as it is, and its device is the GPU of each process."""
    checks = CHECKS.format(device=device)
    after, _ = trained_project(train=TRAIN, checks=checks, other="from checks import check\ncheck(print, [])\n")
    assert after["checks"] == checks.replace(device, emitted)


CPU, CUDA = 'opt.dev = torch.device("cpu")', 'opt.dev = torch.device("cuda")'
CHOICES = {
    "a flag for the CPU": (f"if opt.cpu:\n    {CPU}\nelse:\n    {CUDA}", "opt.cpu"),
    "a flag for the GPU": (f"if opt.gpu:\n    {CUDA}\nelse:\n    {CPU}", "not opt.gpu"),
    "a name": (f"if opt.name is None:\n    {CUDA}\nelse:\n    opt.dev = torch.device(opt.name)", 'opt.name == "cpu"'),
    "three ways": (f'if opt.cpu:\n    {CPU}\nelif opt.mps:\n    opt.dev = "mps"\nelse:\n    {CUDA}', "opt.cpu"),
    "the CPU last": (
        f'if opt.gpu:\n    {CUDA}\nelif torch.backends.mps.is_available():\n    opt.dev = "mps"\nelse:\n    {CPU}',
        "not opt.gpu",
    ),
    "anew in one branch": (f"{CUDA}\nif opt.cpu:\n    {CPU}", "opt.cpu"),
}


@pytest.mark.parametrize(("choice", "condition"), CHOICES.values(), ids=CHOICES)
def test_the_flag_of_branches_that_choose_an_attribute_keeps_its_meaning(
    choice: str, condition: str, trained: Trained
) -> None:
    """What chooses the CPU there chooses it for the accelerator, and nothing else does."""
    top = f"opt = parse()\n{choice}"
    text, _ = trained(top=top, built="model.to(opt.dev)")
    assert f"Accelerator(cpu={condition})" in text
