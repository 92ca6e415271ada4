"""Processes for functions."""

from __future__ import annotations

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
