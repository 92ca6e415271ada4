"""Processes for functions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_functions_run_on_processes_that_know_each_other(job, tmp_path):
    assert job("launchers.py", 1, tmp_path, OMP_NUM_THREADS="2") == [True]


def test_one_of_several_processes_starts_no_others(monkeypatch):
    from torchlift.runtime.launchers import notebook_launcher

    place = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    ran = []
    notebook_launcher(ran.append, ("here",), num_processes=3)
    notebook_launcher(ran.append, ("here",))
    assert ran == ["here", "here"]


class Devices:
    """A machine with GPUs, as torch.cuda tells of it."""

    def __init__(self, asked: bool) -> None:
        self.parent, self.asked, self.checks = os.getpid(), asked, []

    def is_available(self) -> bool:
        self.checks.append(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
        self.asked = self.asked or self.checks[-1] != "1"
        return True

    def _is_in_bad_fork(self) -> bool:
        return self.asked and os.getpid() != self.parent


@pytest.mark.parametrize("asked", [False, True])
def test_the_launcher_spoils_no_fork_and_names_what_has(asked, monkeypatch):
    """To ask whether there is a GPU begins with CUDA, and its forks cannot use one; the launcher itself asked."""
    from torchlift.runtime.device import kinds
    from torchlift.runtime.errors import LaunchError
    from torchlift.runtime.launch import notebook

    machine, kind = Devices(asked), kinds.DeviceKind("cuda")
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    monkeypatch.setattr(kinds.DeviceKind, "module", machine)
    monkeypatch.setattr(kinds.DeviceKind, "available", lambda self: machine.is_available())
    monkeypatch.setattr(kinds, "current", lambda: kind if kind.available() else None)
    if asked:
        with pytest.raises(LaunchError, match=r"import notebook_launcher first"):
            notebook._nothing_begun()
    else:
        notebook._nothing_begun()
    assert set(machine.checks) == {"1"} and "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ


def test_cells_after_the_import_may_ask_for_a_gpu():
    code = "import os, torchlift.runtime as r; r.notebook_launcher; print(os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "1\n"


CELLS = [
    "import torch\nfrom torchlift.runtime import Accelerator, notebook_launcher",
    """def train(offset):
    accelerator = Accelerator(cpu=True)
    total = accelerator.reduce(torch.tensor([accelerator.process_index + offset]))
    if accelerator.is_main_process:
        open("total", "w").write(str(total.item()))""",
    "notebook_launcher(train, (1,), num_processes=2)",
    "print(open('total').read())",
]


@pytest.mark.slow
def test_in_a_notebook(tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    nbclient.NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert notebook.cells[-1].outputs[0].text == "3\n"
