"""Which device a process computes on, and what is said where there is no such one."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchlift.runtime.device.choice import choose_device
from torchlift.runtime.device.kinds import DeviceKind, accelerators, current, kind_of
from torchlift.runtime.errors import DeviceError, MixedUseError, UnknownWordError

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
HAS_ONE = pytest.mark.skipif(torch.accelerator.is_available(), reason="about a machine without an accelerator")

MAY_NAME_DEVICES = {
    "device/kinds.py": "the one file",
    "types.py": "the words of RNGType, which are Accelerate's",
    "compat/packages.py": "is_xpu_available and the like: the names of Accelerate's questions",
    "verify/exact/pretended.py": "simulates such a device where there is none",
    "verify/request.py": "the word of --device",
    "verify/__main__.py": "the same, on the command line",
    "verify/exact/double.py": "the functions of torch that it patches, by the modules that have them",
    "torch_spmd.py": "torch_xla, which is no device of torch.accelerator",
    "launch/plan.py": "the variable that stands for --tpu",
    "launch/command.py": "the option --tpu",
    "launch/options.py": "options of Accelerate's launcher",
}
"""Files with the name of a kind of device in their code, and why."""


def literals(file):
    """Names of kinds of devices in the code of a file: as strings (docstrings aside), and as attributes."""
    tree = ast.parse(file.read_text())
    kinds = "|".join(accelerators())
    bodies = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documents = set()
    for node in ast.walk(tree):
        body = node.body if isinstance(node, bodies) else []
        documents |= {id(one.value) for one in body if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        text = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
        if isinstance(text, str) and id(node) not in documents and re.search(rf"\b({kinds})\b", text):
            yield f"{node.lineno}: {text}"


def test_no_file_but_one_names_a_kind_of_device():
    found = {}
    for file in sorted(RUNTIME.rglob("*.py")):
        name = file.relative_to(RUNTIME).as_posix()
        if name not in MAY_NAME_DEVICES and (here := list(literals(file))):
            found[name] = here
    assert found == {}


@pytest.mark.parametrize("name", MAY_NAME_DEVICES)
def test_each_exception_is_one(name):
    assert list(literals(RUNTIME / name))


@HAS_ONE
@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("asked", [None, "cpu", "cpu:0", "cpu:64"])
def test_without_an_accelerator_it_is_the_cpu(cpu, asked):
    assert choose_device(1, cpu, asked) == torch.device(asked or "cpu")


@HAS_ONE
@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ("gpu", UnknownWordError, "TORCHLIFT_DEVICE .*is 'gpu'; it must be one of: cpu."),
        ("cuda:1", DeviceError, "is 'cuda:1', but torch finds none here. Install a build of torch for it, or leave"),
        ("mps", DeviceError, "is 'mps', but torch finds none here"),
        ("tpu", DeviceError, "is 'tpu', but torch finds none here. Install the package torch_tpu, or leave"),
        ("npu:0", DeviceError, "is 'npu:0', but torch finds none here. Install the package torch_npu"),
        ("meta", DeviceError, "is 'meta', but it is no device that computes here"),
    ],
)
def test_a_device_that_is_not_here(asked, error, words):
    with pytest.raises(error, match=words):
        choose_device(0, False, asked)


@pytest.mark.parametrize(
    ("asked", "said"), [("gpu", "UnknownWordError"), ("CPU:0", "cpu:0")], ids=["no word for one", "one of them"]
)
def test_the_environment_is_read_by_the_accelerator(asked, said):
    """In a process of its own: the first accelerator of a process chooses for all."""
    code = "from torchlift.runtime import Accelerator; print(Accelerator().device)"
    environment = {**os.environ, "ACCELERATE_TORCH_DEVICE": asked}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    last = (done.stdout + done.stderr).splitlines()[-1]
    assert said in last and ("ACCELERATE_TORCH_DEVICE" in last or not done.returncode)


class Three:
    """Stands in for `torch.accelerator` with three devices of a type."""

    def __init__(self, monkeypatch, name):
        self.chosen = []
        for attribute, answer in {
            "is_available": lambda: True,
            "current_accelerator": lambda: torch.device(name),
            "device_count": lambda: 3,
            "set_device_index": self.chosen.append,
        }.items():
            monkeypatch.setattr(torch.accelerator, attribute, answer)


@pytest.mark.parametrize("name", ["cuda", "xpu", "mtia"])
@pytest.mark.parametrize(
    ("local_rank", "asked", "index"),
    [(0, None, 0), (2, None, 2), (4, None, 1), (2, "{}", 2), (2, "{}:1", 1)],
    ids=["first", "third", "more processes than devices", "by type", "by number"],
)
def test_every_process_has_the_device_with_its_number(monkeypatch, name, local_rank, asked, index):
    three = Three(monkeypatch, name)
    assert choose_device(local_rank, False, asked and asked.format(name)) == torch.device(name, index)
    assert three.chosen == [index]


def test_the_cpu_may_be_asked_for_where_there_is_an_accelerator(monkeypatch):
    three = Three(monkeypatch, "cuda")
    assert choose_device(0, True) == choose_device(0, False, "cpu") == torch.device("cpu")
    assert three.chosen == []
    with pytest.raises(MixedUseError, match="is 'cuda', and the CPU is asked for as well"):
        choose_device(0, True, "cuda")
    with pytest.raises(DeviceError, match="is 'cuda:3', but this process sees 3 of them: the last one is cuda:2"):
        choose_device(0, False, "cuda:3")
    with pytest.raises(DeviceError, match=r"is 'xpu', but torch finds none here \(torch uses cuda\)"):
        choose_device(0, False, "xpu")


def test_a_device_without_numbers(monkeypatch):
    three = Three(monkeypatch, "mps")
    assert choose_device(2, False) == torch.device("mps")
    assert three.chosen == []


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_what_processes_exchange_tensors_by(monkeypatch, name):
    own = {"cuda": "nccl", "xpu": "xccl"}[name]
    monkeypatch.setattr(torch.distributed, "is_backend_available", lambda name: name == "gloo")
    with pytest.raises(DeviceError, match=f"need the back end {own}, which this build of torch does not have"):
        kind_of(name).backend()
    monkeypatch.setattr(torch.distributed, "is_backend_available", lambda _: True)
    assert kind_of(name).backend() == f"cpu:gloo,{name}:{own}"
    assert kind_of("cpu").backend() == "gloo"
    with pytest.raises(DeviceError, match="cannot exchange tensors on meta: those have no back end"):
        kind_of("meta").backend()


def test_a_kind_that_nobody_has_described_has_the_answers_of_torch():
    kind = kind_of("mtia")
    assert type(kind) is DeviceKind and not kind.available() and kind.count() == 0
    assert kind.type_of(torch.float64) is torch.float64


@HAS_ONE
def test_a_machine_without_an_accelerator():
    assert current().is_cpu and current().about() == "none" and not current().begun() and not current().pins()
    assert current().random_states() == [] and current().autocasts() == (torch.bfloat16, torch.float16)
