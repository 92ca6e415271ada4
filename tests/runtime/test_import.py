"""Importing costs little, and needs no torch until a name does."""

from __future__ import annotations

import subprocess
import sys

import pytest

import torchlift.runtime

WITHOUT_TORCH = """
import sys
class Hide:
    def find_spec(self, name, *rest):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Hide())
"""


def python(source):
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)


def test_the_import_needs_no_torch_and_a_name_says_what_to_install():
    done = python(WITHOUT_TORCH + "import torchlift.runtime as r; print(dir(r)); r.Accelerator")
    assert "'Accelerator'" in done.stdout
    assert 'pip install "torchlift[runtime]"' in done.stderr


def test_words_and_errors_need_no_torch():
    done = python(
        WITHOUT_TORCH + "from torchlift.runtime import DistributedType, TorchliftError; print(DistributedType.NO)"
    )
    assert done.stdout == "NO\n", done.stderr


def test_the_command_needs_no_torch():
    source = WITHOUT_TORCH + (
        "from torchlift.runtime.launch.command import main\n"
        "try: main(['launch', '--help'])\n"
        "finally: print('torch' in sys.modules)"
    )
    done = python(source)
    assert "--num-processes" in done.stdout
    assert done.stdout.endswith("False\n")


def test_nothing_heavy_comes_along():
    source = (
        "import torch, sys; before = set(sys.modules); import torchlift.runtime as r; r.Accelerator;"
        "new = {m.split('.')[0] for m in set(sys.modules) - before};"
        "print(sorted(new & {'numpy', 'click', 'rich', 'yaml', 'libcst', 'accelerate', 'safetensors', 'sympy'}))"
    )
    assert python(source).stdout == "[]\n"


@pytest.mark.parametrize("name", torchlift.runtime.__all__)
def test_every_public_name_is_there_and_explained(name):
    assert getattr(torchlift.runtime, name).__doc__


def test_every_public_method_is_explained():
    facade = torchlift.runtime.Accelerator
    public = [name for name in dir(facade) if not name.startswith("_")]
    missing = [name for name in public if not getattr(facade, name).__doc__]
    assert missing == []
