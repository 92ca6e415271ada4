"""Devices that a module keeps for everybody: they stay where they are, and are right on every process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import RawConfig
from torchlift.rewriter.project.scan import Survey, Surveyor

MODEL = """\
import torch
from config import DEVICE


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x) + torch.zeros(2, device=DEVICE)
"""
TRAIN = """\
import torch
from config import DEVICE
from model import Net
from torch.utils.data import DataLoader


def train(model, loader, optimizer):
    for x, y in loader:
        x, y = x.to(DEVICE), y.to(DEVICE)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


def main():
    model = Net().to(DEVICE)
    loader = DataLoader(data, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, loader, optimizer)


main()
"""
CHOICE = 'DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
Run = Callable[..., tuple[dict[str, str], list[str]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(definition, train=..., model=...)`: what changes, and the findings. A second run must change nothing."""
    monkeypatch.chdir(tmp_path)

    def look(files: dict[str, str]) -> Survey:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        return Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")])

    def migrate(definition: str, **others: str) -> tuple[dict[str, str], list[str]]:
        files = {"config": "import torch\n\n" + definition, "model": MODEL, "train": TRAIN, **others}
        survey = look({"pyproject.toml": "", **{f"{name}.py": text for name, text in files.items()}})
        after = {os.path.relpath(f.source.path): f.after.decode() for f in survey.files if f.changed}
        again = look(after)
        assert not [f for f in again.files if f.changed], "a second run changes something"
        return after, [d.id for f in survey.files for d in f.diagnoses]

    return migrate


def test_a_constant_stays_and_the_accelerator_is_told_where_it_says_the_cpu(run: Run) -> None:
    after, findings = run(CHOICE)
    assert list(after) == ["train.py"], "the modules that read it need nothing"
    assert 'accelerator = Accelerator(cpu=DEVICE.type == "cpu")' in after["train.py"]
    assert ".to(" not in after["train.py"] and findings == []


def test_what_nobody_reads_any_more_is_no_matter(run: Run) -> None:
    after, findings = run(CHOICE, model=MODEL.replace(" + torch.zeros(2, device=DEVICE)", ""))
    assert "accelerator = Accelerator()" in after["train.py"]
    assert "DEVICE" not in after["train.py"] and findings == []


def test_given_to_a_function_it_gives_its_place_to_the_accelerator(run: Run) -> None:
    train = TRAIN.replace("to(DEVICE), y.to(DEVICE)", "to(device), y.to(device)")
    train = train.replace("model, loader, optimizer)", "model, loader, optimizer, device)", 1)
    train = train.replace("    train(model, loader, optimizer)", "    train(model, loader, optimizer, DEVICE)")
    after, _ = run(CHOICE, train=train, model=MODEL.replace(" + torch.zeros(2, device=DEVICE)", ""))
    assert "    train(model, loader, optimizer, accelerator)\n" in after["train.py"]
    assert "accelerator = Accelerator()" in after["train.py"]


READS = {
    "the module": ("import config", "config.DEVICE"),
    "the module by another name": ("import config as c", "c.DEVICE"),
    "by another name": ("from config import DEVICE as dev", "dev"),
    "a star": ("from config import *", "DEVICE"),
}


@pytest.mark.parametrize("case", READS)
def test_it_is_known_through(case: str, run: Run) -> None:
    line, spelled = READS[case]
    texts = [t.replace("from config import DEVICE", line).replace("DEVICE", spelled) for t in (TRAIN, MODEL)]
    train, model = (t.replace("import dev as dev", "import DEVICE as dev") for t in texts)
    after, findings = run(CHOICE, train=train, model=model)
    assert f'Accelerator(cpu={spelled}.type == "cpu")' in after["train.py"]
    assert list(after) == ["train.py"] and findings == []


def test_moves_of_other_tensors_follow_it(run: Run) -> None:
    noise = "x = x + torch.randn(4, 4).to(DEVICE)"
    train = TRAIN.replace("        optimizer.zero", f"        {noise}\n        optimizer.zero")
    after, findings = run(CHOICE, train=train)
    assert noise in after["train.py"] and findings == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('torch.device("cuda:0" if torch.cuda.is_available() else "cpu")', '"cuda" if'),
        ("'cuda:1' if torch.cuda.is_available() else 'cpu'", "'cuda' if"),
        ('torch.device("cuda:" + str(GPU) if torch.cuda.is_available() else "cpu")', '"cuda" if'),
        ("torch.device(f'cuda:{GPU}' if torch.cuda.is_available() else 'cpu')", "'cuda' if"),
    ],
)
def test_a_gpu_by_number_loses_the_number(before: str, after: str, run: Run) -> None:
    texts, findings = run(f"GPU = 0\nDEVICE = {before}\n")
    assert after in texts["config.py"] and ":0" not in texts["config.py"] and "GPU}" not in texts["config.py"]
    assert findings == (["launcher"] if "GPU" in before else [])


def test_a_number_that_nobody_reads_any_more_stays(run: Run) -> None:
    after, _ = run(CHOICE.replace("cuda", "cuda:0", 1), model=MODEL.replace(" + torch.zeros(2, device=DEVICE)", ""))
    assert list(after) == ["train.py"]


@pytest.mark.parametrize("definition", ['DEVICE = "cpu"\n', 'DEVICE = torch.device("cpu")\n'])
def test_what_says_the_cpu_alone_keeps_the_training_there(definition: str, run: Run) -> None:
    after, _ = run(definition)
    assert "accelerator = Accelerator(cpu=True)" in after["train.py"]


def test_a_word_is_compared_as_one(run: Run) -> None:
    after, _ = run('DEVICE = "cuda" if torch.cuda.is_available() else "cpu"\n')
    assert 'Accelerator(cpu=DEVICE == "cpu")' in after["train.py"]


def test_a_flag_in_the_other_module_keeps_its_meaning(run: Run) -> None:
    model = MODEL.replace(" + torch.zeros(2, device=DEVICE)", "")
    definition = 'CPU = False\nDEVICE = torch.device("cuda" if torch.cuda.is_available() and not CPU else "cpu")\n'
    after, _ = run(definition, model=model)
    assert 'Accelerator(cpu=DEVICE.type == "cpu")' in after["train.py"]


def test_a_device_for_something_else_says_nothing_of_the_training(run: Run) -> None:
    train = TRAIN.replace("DEVICE", "device").replace("from config import device", "from config import HOST")
    train = train.replace("def main():\n", 'def main():\n    start = torch.load("s.pt", map_location=HOST)\n')
    train = train.replace("\n\n\ndef train", '\n\ndevice = torch.device("cuda")\n\n\ndef train', 1)
    after, _ = run('HOST = torch.device("cpu")\n', train=train, model=MODEL.replace("DEVICE", "HOST"))
    assert "Accelerator()" in after["train.py"]


def test_one_that_may_be_any_gpu_is_for_review(run: Run) -> None:
    _, findings = run("DEVICE = torch.device(choose())\n")
    assert findings == ["device-constant"]


def test_another_name_for_one_is_settled_where_that_is(run: Run) -> None:
    model = MODEL.replace("from config import DEVICE\n", "import config\n\nhere = config.DEVICE\n").replace(
        "=DEVICE", "=here"
    )
    after, findings = run('DEVICE = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")\n', model=model)
    assert 'torch.device("cuda" if' in after["config.py"] and findings == []
    _, findings = run("DEVICE = torch.device(options.device)\n", model=model)
    assert findings == ["device-constant"]


def test_a_tensor_made_while_a_module_is_imported_is_refused(run: Run) -> None:
    after, findings = run(CHOICE + "WEIGHTS = torch.ones(2).to(DEVICE)\nTOTAL = WEIGHTS.sum()\n")
    assert findings == ["device-constant"] and not after
    after, findings = run(CHOICE + "TEACHER = torch.nn.Linear(4, 2).to(DEVICE)\n")
    assert findings == [] and after, "a model is moved by prepare"


def test_a_tensor_that_the_program_does_not_read_is_a_note(run: Run) -> None:
    made = CHOICE + "WEIGHTS = torch.ones(2).to(DEVICE)\n\ndef weighed(x):\n    return x * WEIGHTS\n"
    after, findings = run(made)
    assert findings == ["device-constant"] and "accelerator.prepare" in after["train.py"]
    model = MODEL.replace("import DEVICE", "import DEVICE, weighed").replace("self.fc(x)", "weighed(self.fc(x))")
    after, findings = run(made, model=model)
    assert findings == ["device-constant"] and not after
    after, findings = run(made, model=MODEL.replace("self.fc(x)", "self.fc(x) * config.WEIGHTS"))
    assert findings == ["device-constant"] and not after


def test_a_device_taken_by_another_module_is_still_there(run: Run) -> None:
    """The module that trains defines it, and the script imports it from there."""
    engine = TRAIN.replace("from config import DEVICE\n", "").replace("\n\nmain()\n", "")
    engine = engine.replace("\n\n\ndef train", "\n\n" + CHOICE.strip() + "\n\n\ndef train", 1)
    train = "from engine import DEVICE, main\n\nmain()\nprint(DEVICE)\n"
    after, _ = run(CHOICE, train=train, engine=engine, model=MODEL.replace("config", "engine"))
    assert "accelerator = Accelerator()\nDEVICE = accelerator.device\n" in after["engine.py"]


CLASS = 'class Config:\n    DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n'


def test_a_class_of_constants_is_given_the_accelerators_device(run: Run) -> None:
    train, model = (
        t.replace("import DEVICE", "import Config").replace("DEVICE", "Config.DEVICE") for t in (TRAIN, MODEL)
    )
    after, findings = run(CLASS, train=train, model=model)
    assert (
        'accelerator = Accelerator(cpu=Config.DEVICE.type == "cpu")\n    Config.DEVICE = accelerator.device'
        in (after["train.py"])
    )
    assert list(after) == ["train.py"] and findings == []


def test_a_number_goes_where_only_an_object_has_the_device(run: Run) -> None:
    """A loss keeps what its constructor's default says: on the second process its tensors would be on the first GPU."""
    loss = """\
import torch
HERE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class Loss(torch.nn.Module):
    def __init__(self, device=HERE):
        super().__init__()
        self.device = device

    def forward(self, out, y):
        truth = torch.zeros(len(y), 2).to(self.device)
        truth[torch.arange(len(y)), y] = 1
        return -(truth * out.log_softmax(1)).sum(1).mean()
"""
    train = TRAIN.replace("from config import DEVICE", f"from loss import Loss\n{CHOICE}").replace(
        "torch.nn.functional.cross_entropy(model(x), y)", "Loss()(model(x), y)"
    )
    model = MODEL.replace("from config import DEVICE\n", "").replace(" + torch.zeros(2, device=DEVICE)", "")
    after, _ = run("DEVICE = None\n", train=train, model=model, loss=loss)
    assert 'HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n' in after["loss.py"]
