"""Programs of several files: migrated as one, right for all who use their modules, found from what is given."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import RawConfig, Target
from torchlift.rewriter.project.import_graph import Library
from torchlift.rewriter.project.reconcile import _kept
from torchlift.rewriter.project.scan import Survey, Surveyor
from torchlift.rewriter.report.expect import expectations
from torchlift.rewriter.report.groups import groups
from torchlift.rewriter.result import FileResult, Result
from torchlift.rewriter.source import decode

DATA = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def loader():
    return DataLoader(TensorDataset(torch.zeros(8, 4), torch.zeros(8).long()), 4)
"""
ENGINE = """\
import torch


def train(model, loader, optimizer, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


def evaluate(model, loader, device):
    correct = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        correct += (out.argmax(1) == y).sum().item()
    return correct
"""
TRAIN = """\
import torch
from data import loader
from engine import evaluate, train

device = torch.device("cuda")
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train_loader = loader()
train(model, train_loader, optimizer, device)
print(evaluate(model, loader(), device))
"""
RISKY = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.ones(64, 4), batch_size=8)
"""
PROGRAM = {"train.py": TRAIN, "engine.py": ENGINE, "data.py": DATA}
Look = Callable[..., Survey]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """`look(files, *paths, follows=..., hook=...)` writes a project and looks at some paths of it."""

    def run(files: dict[str, str], *paths: str, **options: bool) -> Survey:
        for name, text in {"pyproject.toml": "", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        monkeypatch.chdir(tmp_path)
        return Surveyor(CATALOGUE, RawConfig()).look([Path(p) for p in paths or ("train.py",)], **options)

    return run


def changed(survey: Survey) -> dict[str, str]:
    return {os.path.relpath(f.source.path): f.after.decode() for f in survey.files if f.changed}


def findings(survey: Survey) -> list[tuple[str, str]]:
    return [(os.path.relpath(f.source.path), d.id) for f in survey.files for d in f.diagnoses]


@pytest.mark.hazard("X5")
def test_a_program_is_migrated_as_one(look: Look) -> None:
    survey = look(PROGRAM)
    after = changed(survey)
    assert list(after) == ["train.py", "engine.py"], "data.py needs nothing"
    assert "train(model, train_loader, optimizer, accelerator)" in after["train.py"]
    assert "def train(model, loader, optimizer, accelerator):" in after["engine.py"]
    assert "accelerator.backward(loss)" in after["engine.py"]
    assert "out, y = accelerator.gather_for_metrics((out, y))" in after["engine.py"]
    assert ".to(" not in after["engine.py"]
    assert findings(survey) == []


def test_a_second_run_finds_it_done(look: Look) -> None:
    after = changed(look(PROGRAM))
    assert set(after) == {"train.py", "engine.py"}
    again = look({**PROGRAM, **after})
    assert not again.files
    assert str(again) == "3 files checked, 2 migrated already, 1 without training by torch"


IMPORTS = {
    "a module": ("import engine", "engine."),
    "a module by another name": ("import engine as e", "e."),
    "names by other names": ("from engine import evaluate as ev, train as tr", None),
    "a star": ("from engine import *", ""),
    "a package that hands them on": ("from tools import evaluate, train", ""),
    "a package that hands them on by a star": ("from stars import evaluate, train", ""),
    "by literal name": ("import importlib\nengine = importlib.import_module('engine')", "engine."),
    "guarded": ("try:\n    from engine import evaluate, train\nexcept ImportError:\n    raise", ""),
}


@pytest.mark.hazard("S5")
@pytest.mark.parametrize("case", IMPORTS)
def test_roles_flow_through(case: str, look: Look) -> None:
    line, prefix = IMPORTS[case]
    text = TRAIN.replace("from engine import evaluate, train\n", line + "\n")
    calls = {"\ntrain(": "\ntr(", "evaluate(": "ev("} if prefix is None else {}
    if prefix:
        calls = {"\ntrain(": f"\n{prefix}train(", "(evaluate(": f"({prefix}evaluate("}
    for old, new in calls.items():
        text = text.replace(old, new)
    others = {"tools/__init__.py": "from engine import evaluate, train", "stars/__init__.py": "from .all import *"}
    after = changed(look({**PROGRAM, **others, "stars/all.py": "from engine import *", "train.py": text}))
    assert "accelerator.backward(loss)" in after["engine.py"]
    assert "optimizer, device)" not in after["train.py"]


def test_inside_a_package(look: Look) -> None:
    inner = {f"pkg/{name}": text for name, text in PROGRAM.items()}
    inner["pkg/train.py"] = TRAIN.replace("from data", "from .data").replace("from engine", "from .engine")
    survey = look({**inner, "pkg/__init__.py": ""}, "pkg/train.py")
    assert list(changed(survey)) == ["pkg/train.py", "pkg/engine.py"]


def test_base_classes_of_other_modules(look: Look) -> None:
    nets = "import torch.nn as nn\nclass Base(nn.Module): pass\n"
    mine = "from nets import Base\nclass Net(Base):\n    def forward(self, x): return x\n"
    text = TRAIN.replace("torch.nn.Linear(4, 2)", "Net()").replace(
        "import torch\n", "import torch\nfrom mine import Net\n"
    )
    after = changed(look({**PROGRAM, "train.py": text, "nets.py": nets, "mine.py": mine}))
    assert "model = Net()\n" in after["train.py"]


# ------------------------------------------------------------ who else uses a module

PREDICT = "from data import loader\nfrom engine import evaluate\nprint(evaluate(m, loader(), 'cpu'))\n"
TUNE = TRAIN.replace("print(evaluate(model, loader(), device))\n", "").replace("evaluate, ", "")


def test_what_another_program_calls_stays_right_for_both(look: Look) -> None:
    survey = look({**PROGRAM, "predict.py": PREDICT})
    after = changed(survey)
    given = "evaluate(model, accelerator.prepare(loader()), accelerator.device, accelerator=accelerator)"
    assert given in after["train.py"]
    evaluate = after["engine.py"].partition("def evaluate")[2]
    assert evaluate.startswith("(model, loader, device, accelerator=None):\n    if accelerator is None:\n")
    assert "x, y = x.to(device), y.to(device)\n" in evaluate, "the other program's batches are not moved by a loader"
    assert findings(survey) == []


KEEP = "import torch\ndef keep(model, path):\n    print('saving', path)\n    torch.save(model.state_dict(), path)\n"
KEPT = TRAIN.replace("from data", "from keep import keep\nfrom data") + "keep(model, 'weights.pt')\n"
EXPORT = "import torch\nfrom keep import keep\nkeep(torch.nn.Linear(4, 2), 'fresh.pt')\n"


@pytest.mark.hazard("U33")
def test_a_helper_that_a_sibling_calls_keeps_its_signature(look: Look) -> None:
    survey = look({**PROGRAM, "train.py": KEPT, "keep.py": KEEP, "export.py": EXPORT})
    after = changed(survey)
    assert "def keep(model, path):\n" in after["keep.py"]
    assert "PartialState().print('saving', path)" in after["keep.py"]
    assert "keep(model, 'weights.pt')\n" in after["train.py"]
    assert findings(survey) == []


def test_what_another_program_trains_with_makes_an_accelerator_for_it(look: Look) -> None:
    """That program is migrated later, with the same function: it hands over its own."""
    files = {**PROGRAM, "tune.py": TUNE}
    after = changed(look(files))
    assert "train(model, train_loader, optimizer, accelerator.device, accelerator=accelerator)" in after["train.py"]
    head = "def train(model, loader, optimizer, device, accelerator=None):\n"
    assert f"{head}    if accelerator is None:\n        accelerator = Accelerator()\n" in after["engine.py"]
    assert "x, y = x.to(device), y.to(device)\n" in after["engine.py"].partition("def evaluate")[0]
    assert "accelerator.backward(loss)" in after["engine.py"]
    assert set(after) == {"train.py", "engine.py"}
    later = changed(look({**files, **after}, "tune.py"))
    assert set(later) == {"tune.py"}
    assert "train(model, train_loader, optimizer, accelerator.device, accelerator=accelerator)" in later["tune.py"]
    assert "model, optimizer, train_loader = accelerator.prepare(" in later["tune.py"]


SCALED = ENGINE.replace(
    "def train(model, loader, optimizer, device)", "def train(model, loader, optimizer, device, scaler)"
)
SCALED = SCALED.replace("loss.backward()", "scaler.scale(loss).backward()").replace(
    "optimizer.step()", "scaler.step(optimizer)\n        scaler.update()"
)


def test_what_another_program_trains_with_keeps_what_it_says_of_precision(look: Look) -> None:
    """The accelerator that the function makes for the other program has none of this one's settings."""
    engine = SCALED.replace(
        "        loss = torch.nn", "        with torch.autocast('cuda'):\n            loss = torch.nn", 1
    )
    scales = {
        "optimizer, device)\n": "optimizer, device, scaler)\n",
        "device = ": "scaler = torch.amp.GradScaler()\ndevice = ",
    }
    texts = {"train.py": TRAIN, "tune.py": TUNE}
    for name, text in texts.items():
        for old, new in scales.items():
            text = text.replace(old, new, 1)
        texts[name] = text
    after = changed(look({**PROGRAM, **texts, "engine.py": engine}))
    assert "with torch.autocast('cuda'):" in after["engine.py"]
    assert "accelerator.backward(scaler.scale(loss))" in after["engine.py"]
    assert "scaler.step(optimizer)" in after["engine.py"] and "mixed_precision" not in after["train.py"]


def test_options_for_a_test_are_no_test(look: Look) -> None:
    """`test_options.py` has a class `TestOptions`, and nothing that pytest runs: who reads it uses what it imports."""
    files = {
        "options.py": "import torch\n\n\nclass Options:\n    def parse(self):\n        torch.cuda.set_device(1)\n",
        "test_options.py": "from options import Options\n\n\nclass TestOptions(Options):\n    rate = 0\n",
        "test.py": "from test_options import TestOptions\nTestOptions().parse()\n",
        "train.py": TRAIN.replace("device =", "Options().parse()\ndevice =").replace(
            "import torch\n", "import torch\nfrom options import Options\n"
        ),
    }
    after = changed(look({**PROGRAM, **files}))
    assert set(after) == {"train.py", "engine.py"}, "test.py goes on with the GPU that it asks for"


NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, path, width=2):
        super().__init__()
        self.scale = torch.load(path)
        self.out = nn.Linear(4, width)

    def forward(self, x):
        return self.out(x * self.scale)
"""
USES_NET = """\
import torch
from data import loader
from nets import *

model = Net("scale.pt").cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = loader()
for x, y in batches:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""
APART = {"nets/net.py": NET, "data.py": DATA, "train/a/train.py": USES_NET}
"""Scripts in folders of their own, which are started from the folder above them."""


@pytest.mark.parametrize("package", ["from .net import *\n", "from .net import Net\n"])
@pytest.mark.parametrize("user", ["train/b/train.py", "show.py"])
@pytest.mark.parametrize("marked", [True, False])
def test_the_signature_stays_where_a_script_of_another_folder_constructs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, user: str, marked: bool
) -> None:
    shows = "from nets import *\nNet('scale.pt').eval()\n"
    for name, text in {**APART, "nets/__init__.py": package, user: shows}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if marked:
        (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    survey = Surveyor(CATALOGUE, RawConfig()).look([Path("train/a/train.py")])
    assert list(changed(survey)) == ["train/a/train.py"]
    (tmp_path / user).unlink()
    survey = Surveyor(CATALOGUE, RawConfig()).look([Path("train/a/train.py")])
    assert "def __init__(self, path, width=2, *, accelerator):" in changed(survey)["nets/net.py"], "nobody else"


def test_a_folder_that_the_program_imports_from_may_be_on_the_path_of_others(look: Look) -> None:
    """`PYTHONPATH=lib`: the other script does not say where its module is."""
    train = "import sys\nsys.path.append('lib')\n" + USES_NET
    files = {"lib/nets.py": NET, "lib/data.py": DATA, "train.py": train, "show/show.py": "import nets\nnets.Net('a')\n"}
    assert list(changed(look(files))) == ["train.py"]


PAINT = """\
from PIL import Image


def colored(mask):
    return Image.fromarray(mask).convert("P")
"""


@pytest.mark.parametrize("package", ["", "from . import paint\n", "from data import loader\nfrom . import paint\n"])
def test_a_package_that_imports_its_own_module(look: Look, package: str) -> None:
    """`from . import paint` in the package binds the module, which is not known by the package's variable."""
    train = f"from tools import paint\n{TRAIN}paint.colored(m).save('a.png')\n"
    after = changed(look({**PROGRAM, "train.py": train, "tools/__init__.py": package, "tools/paint.py": PAINT}))
    assert "if accelerator.is_main_process:\n    paint.colored(m).save('a.png')\n" in after["train.py"]


def test_a_name_that_a_module_does_not_hand_on_is_another(look: Look) -> None:
    """`tools` imports from the package, but not what the other script calls by the same name."""
    more = {"nets/__init__.py": "", "tools.py": "from nets.net import nn\n", "data.py": DATA, "nets/net.py": NET}
    train = USES_NET.replace("from nets import *", "import tools\nfrom nets.net import Net")
    other = "import tools\nfrom elsewhere import Net\nNet('a')\nprint(tools.nn)\n"
    assert "nets/net.py" in changed(look({**more, "train.py": train, "other.py": other}))


@pytest.mark.parametrize("paths", [("train.py", "tune.py"), (".",)], ids=["named", "found in a folder"])
def test_two_programs_that_train_are_migrated_together(paths: tuple[str, ...], look: Look) -> None:
    survey = look({**PROGRAM, "tune.py": TUNE}, *paths)
    after = changed(survey)
    assert set(after) == {"train.py", "tune.py", "engine.py"}
    assert "train(model, train_loader, optimizer, accelerator)" in after["tune.py"]
    assert "gather_for_metrics" in after["engine.py"], "only train.py runs it"
    assert findings(survey) == []


def test_what_changes_at_run_time_is_that_of_all_programs_that_share_a_file(look: Look) -> None:
    """Only that of the first was said: `migrate .` told less than `migrate train.py`."""
    shows = {**PROGRAM, "engine.py": ENGINE.replace("    return correct", "    print(len(loader))\n    return correct")}
    alone = look(shows, "train.py").files
    both = look({**shows, "tune.py": TUNE}, "tune.py", "train.py").files
    one, other = ({t for f in files if f.source.path.name == "engine.py" for t in f.traits} for files in (alone, both))
    assert one and one <= other


STARTED_ITSELF = """\
import torch
from torch.utils.data import DataLoader
from rows import rows


class Trainer:
    def __init__(self, net, device):
        self.net, self.device = net.to(device), device
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def fit(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            loss = self.net(x.to(self.device)).pow(2).mean()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    Trainer(torch.nn.Linear(4, 1), device).fit(DataLoader(rows, batch_size=4))
"""
STARTS_IT = """\
import torch
from torch.utils.data import DataLoader
from fitting import Trainer
from rows import rows

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Trainer(torch.nn.Linear(4, 2), device).fit(DataLoader(rows, batch_size=8))
"""


@pytest.mark.parametrize("named", [("train.py",), ("train.py", "fitting.py")], ids=len)
def test_a_script_and_a_module_that_is_a_script_too_are_migrated_together(look: Look, named: tuple[str, ...]) -> None:
    """Whether it is named or not: its functions change for the script, so what it starts has to."""
    survey = look({"fitting.py": STARTED_ITSELF, "train.py": STARTS_IT, "rows.py": "rows = []\n"}, *named)
    assert findings(survey) == []
    after = changed(survey)
    assert "accelerator = Accelerator()\nTrainer(torch.nn.Linear(4, 2), accelerator)" in after["train.py"]
    assert "def __init__(self, net, accelerator):" in after["fitting.py"]
    own = "    accelerator = Accelerator()\n    Trainer(torch.nn.Linear(4, 1), accelerator)"
    assert own in after["fitting.py"]


MOVED = """\
import torch


class Moved:
    def __init__(self, net, optimizer, device):
        self.device, self.optimizer = device, optimizer
        self.net = net.to(device)

    def fit(self, batches):
        for x in batches:
            self.optimizer.zero_grad()
            self.net(x.to(self.device)).square().mean().backward()
            self.optimizer.step()
"""
MOVES = """\
import torch
from torch.utils.data import DataLoader
from rows import rows
{}

def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = torch.nn.Linear(8, 2)
    Moved(net, torch.optim.SGD(net.parameters(), lr=0.1), device).fit(DataLoader(rows, batch_size=4))


if __name__ == "__main__":
    main()
"""


def test_a_class_that_its_own_file_makes_when_it_is_started_is_migrated_with_that(look: Look) -> None:
    """Who makes its objects gives them a device, and calls a method of theirs: both are changed along."""
    start = MOVES.partition("def main():\n")[2].partition("if __name__")[0]
    own = MOVED.replace(
        "import torch\n", "import torch\nfrom torch.utils.data import DataLoader\nfrom rows import rows\n"
    )
    files = {
        "train.py": MOVES.format("from moved import Moved\n"),
        "moved.py": f"{own}\n\nif __name__ == '__main__':\n{start.rstrip()}\n",
        "rows.py": "rows = []\n",
    }
    after = changed(look(files, "train.py"))
    assert set(after) == {"train.py", "moved.py"}
    for text in after.values():
        assert "lr=0.1)" in text and ", accelerator).fit(" in text


LOOP = """\
import torch

SIZE = 4


class Loop:
    def run(self, net, optimizer, batches):
        for x, y in batches:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()


def quick(batches):
    net = torch.nn.Linear(SIZE, 1)
    Loop().run(net, torch.optim.SGD(net.parameters(), lr=0.1), batches)
"""
RUNS = """\
import torch
from torch.utils.data import DataLoader
from loop import Loop
from rows import rows
from shapes import Net

net = Net(4, 1)
Loop().run(net, torch.optim.SGD(net.parameters(), lr=0.1), DataLoader(rows, batch_size=8))
"""
SIZED = "import torch\nfrom loop import *\nclass Net(torch.nn.Linear):\n    width = SIZE\n"


def test_who_shares_a_method_is_not_who_calls_another_of_its_name(look: Look) -> None:
    files = {
        "train.py": RUNS,
        "loop.py": LOOP,
        "shapes.py": SIZED,
        "rows.py": "rows = []\n",
        "made.py": "from loop import quick\nquick([])\n",
        "show.py": "from shapes import Net\nimport app\napp.start(Net(4, 1)).run()\n",
    }
    told = {d.message for file in look(files, "train.py").files for d in file.diagnoses if d.id == "shared-module"}
    assert told and all("is also used by made.py" in message for message in told)


def test_two_programs_that_need_different_texts_are_refused(look: Look) -> None:
    other = TUNE.replace("from data import loader", "").replace("= loader()", "= mystery()")
    survey = look({**PROGRAM, "tune.py": other}, "train.py", "tune.py")
    assert not changed(survey)
    assert findings(survey) == [("engine.py", "shared-module")]
    (told,) = (found for file in survey.files for found in file.diagnoses)
    assert ENGINE.split("\n")[told.line - 1].strip() == "x, y = x.to(device), y.to(device)"
    assert told.message.endswith(
        "a different text: for train.py it goes, for tune.py it becomes `x, y = accelerator.shard_batch((x, y))`"
    )
    assert told.remedy == "give each of train.py and tune.py a function of its own here"


def test_findings_of_programs_that_share_nothing_are_not_one(look: Look) -> None:
    """A folder run said what to do about two scripts in one finding, at the first of them."""
    step = "    except RuntimeError:\n        continue\n"
    body = "    try:\n        optimizer.zero_grad()\n        model(x).mean().backward()\n        optimizer.step()\n"
    text = f"{RISKY}for x in loader:\n{body}{step}"
    survey = look({"a.py": text, "b.py": text}, ".")
    found = groups(survey.result())
    assert len(found) > 1 and all(len({path.partition(":")[0] for path in each.places()}) == 1 for each in found)


def test_a_file_of_a_folder_that_is_not_python_is_named(look: Look) -> None:
    bad = {"bad.py": "x = (\n", "worse.py": "import os\ndef f(:\n"}
    survey = look({**PROGRAM, **bad}, ".")
    assert changed(survey) and not survey.refused
    assert survey.unread() == "2 that are not valid Python (bad.py:1, worse.py:2)"
    assert "2 that are not valid Python (bad.py:1, worse.py:2)" in str(survey)
    assert not look({**PROGRAM, **bad}, "bad.py", "train.py", hook=True).unparsed


@pytest.mark.hazard("U39")
def test_a_clash_of_two_programs_is_nobody_elses(look: Look) -> None:
    """U39: a run over many repositories migrates those that have nothing to do with the clash."""
    other = TUNE.replace("from data import loader", "").replace("= loader()", "= mystery()")
    elsewhere = {f"second/{name}": text for name, text in PROGRAM.items()}
    survey = look({**PROGRAM, "tune.py": other, **elsewhere}, ".")
    assert {name for name in changed(survey) if not name.startswith("second/")} == set()
    assert {name for name in changed(survey) if name.startswith("second/")} == {"second/train.py", "second/engine.py"}
    assert {name for name, id in findings(survey) if id == "shared-module"} == {"engine.py"}


def test_a_third_program_names_the_file_of_the_clash_as_it_is_named_elsewhere() -> None:
    file = FileResult(decode(b"a = 1\n", Path("third.py")), b"a = 2\n")
    (found,) = _kept(file, None, Path.cwd() / "lib" / "engine.py", True).diagnoses
    assert found.message.endswith("because of lib/engine.py")


def test_what_a_file_does_when_it_is_started_stays_right(look: Look) -> None:
    demo = 'if __name__ == "__main__":\n    print(evaluate(model, [], "cpu"))\n'
    after = changed(look({**PROGRAM, "engine.py": ENGINE + demo}))
    assert "def evaluate(model, loader, device, accelerator=None):" in after["engine.py"]
    assert after["engine.py"].endswith(demo)


def test_tests_are_no_program_but_are_named(look: Look) -> None:
    survey = look({**PROGRAM, "tests/test_engine.py": "from engine import evaluate\n"})
    assert set(changed(survey)) == {"train.py", "engine.py"}
    assert findings(survey) == [("engine.py", "tested-module")]
    (told,) = [d.message for file in survey.files for d in file.diagnoses]
    assert told.endswith("it now has `evaluate(model, loader, accelerator)`")


@pytest.mark.parametrize(
    "test",
    ["from engine import rows\n", "import engine\n\n\ndef test_it():\n    assert engine.rows() == []\n"],
    ids=["imports another function", "calls another function"],
)
def test_a_test_whose_calls_still_fit_is_not_named(test: str, look: Look) -> None:
    rows = ENGINE + "\n\ndef rows():\n    return []\n"
    survey = look({**PROGRAM, "engine.py": rows, "tests/test_engine.py": test})
    assert set(changed(survey)) == {"train.py", "engine.py"} and findings(survey) == []


ALL_IN_ONE = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        print((model(x).argmax(1) == y).sum().item())


def main():
    device = torch.device("cuda")
    loader = DataLoader(TensorDataset(torch.zeros(8, 4), torch.zeros(8).long()), 4)
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    evaluate(model, loader, device)


if __name__ == "__main__":
    main()
"""


def test_what_another_script_takes_from_the_entry_script_keeps_its_signature(look: Look) -> None:
    alone = changed(look({"train.py": ALL_IN_ONE}))
    assert "def evaluate(model, loader, accelerator):" in alone["train.py"]
    infer = "import torch\nfrom train import evaluate\n\nevaluate(torch.nn.Linear(4, 2), [], torch.device('cpu'))\n"
    assert "def evaluate(model, loader, accelerator" not in changed(look({"infer.py": infer})).get("train.py", "")


def test_a_function_of_the_same_name_in_another_script_is_another_one(look: Look) -> None:
    other = "from train import main as run\n\n\ndef evaluate(x):\n    return x\n\n\nevaluate(1)\nrun()\nx.evaluate()\n"
    after = changed(look({"train.py": ALL_IN_ONE, "other.py": other}))
    assert "def evaluate(model, loader, accelerator):" in after["train.py"]


def test_a_script_that_is_called_like_a_test_is_a_program(look: Look) -> None:
    survey = look({"engine.py": ENGINE, "data.py": DATA, "train_test.py": TRAIN}, ".")
    assert set(changed(survey)) == {"train_test.py", "engine.py"}
    assert findings(survey) == []


def test_a_program_that_tests_a_model_is_no_test(look: Look) -> None:
    """It has a function `test`, and is started to measure how good the model is."""
    script = (
        "from engine import evaluate\n\n\ndef test(model):\n    evaluate(model, [], 'cpu')\n\n\n"
        "def test_all(models):\n    for model in models:\n        test(model)\n\n\n"
        "if __name__ == '__main__':\n    test_all([])\n"
    )
    assert "tested-module" not in [id for _, id in findings(look({**PROGRAM, "test_engine.py": script}))]


def test_a_test_that_can_be_started(look: Look) -> None:
    """It is a test all the same."""
    script = (
        "import unittest\nfrom engine import evaluate\n\n\nclass TestIt(unittest.TestCase):\n"
        "    def test_it(self):\n        assert evaluate\n\n\nif __name__ == '__main__':\n    unittest.main()\n"
    )
    assert findings(look({**PROGRAM, "test_engine.py": script})) == [("engine.py", "tested-module")]


def test_a_test_beside_the_script_is_no_program(look: Look) -> None:
    tests = {**PROGRAM, "engine_test.py": "from engine import evaluate\n\n\ndef test_it():\n    assert evaluate\n"}
    assert findings(look(tests)) == [("engine.py", "tested-module")]


def test_what_is_excluded_is_read_and_not_touched(look: Look) -> None:
    files = {**PROGRAM, "pyproject.toml": '[tool.torchlift]\nexclude = ["engine.py"]\n'}
    survey = look(files)
    assert not changed(survey)
    assert ("engine.py", "shared-module") in findings(survey)


def test_an_import_that_another_module_takes_from_here_stays(look: Look) -> None:
    text = TRAIN.replace("import torch\n", "import helper\nimport torch\n")
    text = text.replace('torch.device("cuda")', "helper.device()")
    files = {"helper.py": "import torch\n\ndef device():\n    return torch.device('cuda')\n", "train.py": text}
    assert set(changed(look({**PROGRAM, **files}))) == {"train.py", "engine.py"}


# ------------------------------------------------------------ what is found


def test_a_library_alone_is_blocked(look: Look) -> None:
    assert findings(look(PROGRAM, "engine.py")) == [("engine.py", "no-entry-point")]


def test_a_folder_is_searched_for_what_is_started(look: Look) -> None:
    guarded = {**PROGRAM, "sweep.py": "import train\n"}
    assert set(changed(look(guarded, "."))) == {"train.py", "engine.py"}


def test_a_script_that_trains_nothing_needs_nothing(look: Look) -> None:
    files = {**PROGRAM, "predict.py": PREDICT}
    assert not look(files, "predict.py").files
    assert set(changed(look(files, "train.py"))) == {"train.py", "engine.py"}


COMMANDS = {
    "a library": "import runner\nfrom engine import train\n\n\n@runner.task()\ndef main():\n    train(*build())\n",
    "console script": '"""A command."""\nfrom engine import train\nNAME = 1\ndef main():\n    train(*build())\n',
}


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("given", ["cli.py", "."])
def test_a_command_that_something_else_starts_is_no_silence(given: str, text: str, look: Look) -> None:
    """What trains below it is told: nothing to do would read as praise. A hook says nothing of it."""
    files = {"cli.py": text, "engine.py": ENGINE, "data.py": DATA}
    assert findings(look(files, given)) == [("engine.py", "no-entry-point")]
    assert not look(files, given, hook=True).files


def test_by_itself(look: Look) -> None:
    survey = look({**PROGRAM, "train.py": TRAIN.replace("engine", "data")}, "train.py", "engine.py", follows=False)
    assert findings(survey) == [("engine.py", "no-entry-point")]


@pytest.mark.parametrize("given", ["engine.py", "data.py", "train.py"])
def test_a_hook_migrates_the_programs_that_reach_a_changed_file(given: str, look: Look) -> None:
    assert set(changed(look(PROGRAM, given, hook=True))) == {"train.py", "engine.py"}


@pytest.mark.parametrize("start", [".", "lib", "lib/deep", "/"])
@pytest.mark.parametrize("given", ["lib/engine.py", "lib/deep/data.py"])
def test_a_hook_finds_the_script_above_where_nothing_marks_a_project(
    given: str, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without git or a pyproject.toml, a changed module in a sub-folder was nobody's: the hook had nothing to do."""
    train = TRAIN.replace("from engine", "from lib.engine").replace("from data", "from lib.deep.data")
    files = {"train.py": train, "lib/engine.py": ENGINE, "lib/deep/data.py": DATA}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path / start)
    survey = Surveyor(CATALOGUE, RawConfig()).look([Path(os.path.relpath(tmp_path / given))], hook=True)
    assert {os.path.relpath(file.source.path, tmp_path) for file in survey.files} == {"train.py", "lib/engine.py"}


def test_a_folder_of_all_kinds_of_projects_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "own/lib").mkdir(parents=True)
    (tmp_path / "stray.py").write_text("import own.lib.a\n")
    (tmp_path / "own/b.py").write_text("import lib.a\n")
    (tmp_path / "own/lib/a.py").write_text("")
    for start in (tmp_path, tmp_path / "own/lib"):
        monkeypatch.chdir(start)
        assert Library().extent(tmp_path / "own/lib/a.py") == tmp_path / "own"


@pytest.mark.parametrize("given", ["alone.py", "lib.py"], ids=["no torch", "a library that nobody starts"])
def test_a_hook_says_nothing_of_files_that_no_program_reaches(given: str, look: Look) -> None:
    files = {**PROGRAM, "alone.py": "x = 1\n", "lib.py": ENGINE}
    survey = look(files, given, hook=True)
    assert not survey.files
    assert not survey.refused
    assert set(changed(look(files, given, "train.py", hook=True))) == {"train.py", "engine.py"}


# ------------------------------------------------------------ bad input


def test_a_missing_module_blocks_the_program(look: Look) -> None:
    files = {f"pkg/{name}": text for name, text in PROGRAM.items()} | {"pkg/__init__.py": ""}
    text = TRAIN.replace("from data", "from .data").replace("from engine", "from .engine")
    files["pkg/train.py"] = "from .gone import x\n" + text
    survey = look(files, "pkg/train.py")
    assert not changed(survey)
    assert findings(survey) == [("pkg/train.py", "missing-module")]


@pytest.mark.parametrize("built", ["gone.c", "gone.pyx", "gone.cpython-312-x86_64-linux-gnu.so", "gone.pyi"])
def test_an_extension_is_not_missing(built: str, look: Look) -> None:
    files = {f"pkg/{name}": text for name, text in PROGRAM.items()} | {"pkg/__init__.py": "", f"pkg/{built}": ""}
    text = TRAIN.replace("from data", "from .data").replace("from engine", "from .engine")
    files["pkg/train.py"] = "from .gone import x\n" + text
    assert changed(look(files, "pkg/train.py"))


def test_a_circle_of_imports(look: Look) -> None:
    survey = look({**PROGRAM, "engine.py": "import train\n" + ENGINE})
    assert set(changed(survey)) == {"train.py", "engine.py"}


def test_two_modules_of_one_name(look: Look) -> None:
    survey = look({**{f"a/{n}": t for n, t in PROGRAM.items()}, "data.py": ""}, "a/train.py")
    assert findings(survey) == [("a/train.py", "ambiguous-module")]
    assert set(changed(survey)) == {"a/train.py", "a/engine.py"}


def test_a_module_that_is_no_python_keeps_the_program_from_being_written(look: Look) -> None:
    survey = look({**PROGRAM, "data.py": "def f(:\n"})
    assert not survey.files
    assert [f"{e.path.name}:{e.line}" for e in survey.refused] == ["data.py:1"]


def test_one_blocked_file_keeps_the_whole_program_unchanged(look: Look) -> None:
    survey = look({**PROGRAM, "engine.py": "import pytorch_lightning\n" + ENGINE})
    assert findings(survey) == [("engine.py", "framework-owns-loop")]
    assert not changed(survey)


def test_one_remark_a_program_speaks_of_its_layers_of_batch_norm(look: Look) -> None:
    layer = "from torch import nn\ndef layer():\n    return nn.BatchNorm1d(2)\n"
    script = "import one, two, three\n" + TRAIN + "one.layer(), two.layer(), three.layer()\n"
    modules = dict.fromkeys(("one.py", "two.py", "three.py"), layer)
    survey = look({**PROGRAM, **modules, "train.py": script})
    told = [d.message for file in survey.files for d in file.diagnoses if d.id == "batch-norm"]
    assert len(told) == 1
    assert told[0].startswith("BatchNorm (and more in 2 other modules): ")


NOISY = """\
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.drop(x))
"""


def test_noise_in_a_module_that_stays_as_it_is_is_named(look: Look) -> None:
    use = "import net\nnet.Net()\n"
    survey = look({**PROGRAM, "net.py": NOISY, "train.py": use + TRAIN})
    assert set(changed(survey)) == {"train.py", "engine.py"}
    assert "Dropout: each process draws its own noise for its own rows." in list(
        expectations(Result(tuple(survey.files)))
    )


def test_noise_in_a_class_that_nothing_builds_is_not(look: Look) -> None:
    survey = look({**PROGRAM, "net.py": NOISY, "train.py": "import net\n" + TRAIN})
    assert not any("noise" in told for told in expectations(Result(tuple(survey.files))))


def test_noise_of_a_program_that_stays_as_it_is_is_no_matter(look: Look) -> None:
    survey = look({"net.py": NOISY, "show.py": "import net\nprint(net.Net())\n"}, "show.py")
    assert not any("noise" in told for told in expectations(Result(tuple(survey.files))))


def test_layers_of_batch_norm_are_not_counted(look: Look) -> None:
    """How often a loop makes them is not known."""
    layers = "from torch import nn\nnorms = [nn.BatchNorm1d(2) for _ in range(9)]\n"
    survey = look({**PROGRAM, "train.py": layers + TRAIN})
    told = [d.message for file in survey.files for d in file.diagnoses if d.id == "batch-norm"]
    assert [message.partition(":")[0] for message in told] == ["BatchNorm"]


TRAINER = """\
import torch


class Trainer:
    def __init__(self, options):
        self.gpu = options.gpu
        self.net = torch.nn.Linear(4, 1)
        if self.gpu:
            self.net.cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=options.lr)

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.net(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def save(self, path):
        torch.save(self.net.state_dict(), path)
"""
TRAINS = """\
import argparse
import torch
from torch.utils.data import DataLoader
from rows import rows
from trainer import Trainer

parser = argparse.ArgumentParser()
parser.add_argument("--cpu", dest="gpu", action="store_false")
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
loader = DataLoader(rows, batch_size=4)
trainer = Trainer(args)
for epoch in range(2):
    for x in loader:
        x = x.cuda() if args.gpu else x
        trainer.step(x)
trainer.save("net.pt")
"""
USERS = {
    "another script": {"predict.py": "import torch\nfrom trainer import Trainer\nprint(Trainer(None).net)\n"},
    "the file itself, when it is started": {
        "trainer.py": TRAINER + '\n\nif __name__ == "__main__":\n    print(Trainer(None).net)\n'
    },
}


@pytest.mark.parametrize("others", USERS.values(), ids=USERS)
def test_a_trainer_that_others_construct_makes_an_accelerator_for_them(look: Look, others: dict[str, str]) -> None:
    after = changed(look({"train.py": TRAINS, "trainer.py": TRAINER, "rows.py": "rows = []\n", **others}, "train.py"))
    assert "trainer = Trainer(args, accelerator)" in after["train.py"].replace("accelerator=accelerator", "accelerator")
    assert set(after) == {"train.py", "trainer.py"}
    made = "        if accelerator is None:\n            accelerator = Accelerator(cpu=not options.gpu)\n"
    head = "    def __init__(self, options, accelerator=None):\n"
    assert f"{head}{made}        self.accelerator = accelerator\n" in after["trainer.py"]
    assert "self.net, self.optimizer = accelerator.prepare(\n" in after["trainer.py"]
    assert "self.accelerator.backward(loss)" in after["trainer.py"]


SET_UP = TRAINER.replace("def __init__", "def set_up").replace(
    "        if self.gpu:\n            self.net.cuda()\n", ""
)
SETS_UP = TRAINS.replace("trainer = Trainer(args)", "trainer = Trainer()\ntrainer.set_up(args)").replace(
    "        x = x.cuda() if args.gpu else x\n", ""
)
SHOWS = "import torch\nfrom trainer import Trainer\nt = Trainer()\nt.set_up(None)\nprint(t.net(torch.ones(8)))\n"


def test_a_method_that_builds_objects_is_handed_it_as_a_constructor_is(look: Look) -> None:
    files = {"train.py": SETS_UP, "trainer.py": SET_UP, "rows.py": "rows = []\n", "show.py": SHOWS}
    survey = look(files, "train.py")
    assert not [found for found in findings(survey) if found[1] == "shared-module"]
    after = changed(survey)
    assert "trainer.set_up(args, accelerator=accelerator)\n" in after["train.py"]
    assert "trainer.step(x)" in after["train.py"]
    head = "    def set_up(self, options, accelerator=None):\n        if accelerator is None:\n"
    made = "            accelerator = Accelerator(device_placement=False)\n        self.accelerator = accelerator\n"
    assert head + made in after["trainer.py"], "what another script builds stays where that has it"
    assert "self.accelerator.backward(loss)" in after["trainer.py"]
    assert not look({**files, **after}, "train.py").files


SHOWS_STEP = SHOWS + "t.step(torch.ones(8))\n"


def test_a_method_that_is_called_in_each_turn_builds_nothing(look: Look) -> None:
    trains = SETS_UP.replace("trainer.set_up(args)\n", "").replace(
        "    for x in loader", "    trainer.set_up(args)\n    for x in loader"
    )
    files = {"train.py": trains, "trainer.py": SET_UP, "rows.py": "rows = []\n", "show.py": SHOWS_STEP}
    survey = look(files, "train.py")
    assert changed(survey) == {}
    assert ("trainer.py", "shared-module") in findings(survey)


def test_a_method_that_does_not_run_in_any_case_before_builds_nothing(look: Look) -> None:
    step = "self.optimizer.zero_grad()\n        loss = self.net(x)"
    trainer = SET_UP.replace(step, "net = self.net if self.lit else None\n        loss = net(x)")
    trainer = trainer.replace("        self.optimizer.step()\n", "").replace(
        "class Trainer:", "class Trainer:\n    lit = 0"
    )
    files = {"train.py": SETS_UP, "trainer.py": trainer, "rows.py": "rows = []\n", "show.py": SHOWS_STEP}
    assert changed(look(files, "train.py")) == {}


FITTING = """\
import torch


class Fitting(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(8, width){place}
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)

    def forward(self, x):
        return self.layer(x)

    def fit(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            self(x{place}).square().mean().backward()
            self.optimizer.step()
"""
BUILDS = "from fitting import Fitting\n\n\ndef build():\n    return Fitting(2)\n"
FITS = """\
from torch.utils.data import DataLoader
from builds import build
from rows import rows

net = build(){place}
net.fit(DataLoader(rows, batch_size=4))
"""
OTHERS = {
    "it builds one": ("import torch\nfrom fitting import Fitting\nprint(Fitting(2)(torch.ones(8)))\n", "", "", True),
    "the class places it": ("from fitting import Fitting\nprint(Fitting(2))\n", ".cuda()", "", True),
    "it trains one": ("from fitting import Fitting\nfrom rows import rows\nFitting(2).fit(rows)\n", "", "", False),
    "the script places it": ("from fitting import Fitting\nprint(Fitting(2))\n", "", ".cuda()", True),
}


@pytest.mark.parametrize(("other", "inside", "outside", "given"), OTHERS.values(), ids=OTHERS)
def test_a_module_that_trains_itself_and_that_another_script_builds(
    other: str, inside: str, outside: str, given: bool, look: Look
) -> None:
    files = {"fitting.py": FITTING.format(place=inside), "builds.py": BUILDS, "rows.py": "rows = []\n"}
    survey = look({**files, "train.py": FITS.format(place=outside), "other.py": other}, "train.py")
    after = changed(survey)
    assert bool(after) == given
    if given:
        device = "" if inside else "device_placement=False"
        made = f"        if accelerator is None:\n            accelerator = Accelerator({device})\n"
        assert f"def __init__(self, width, accelerator=None):\n{made}" in after["fitting.py"]
        assert "accelerator.backward(" in after["fitting.py"]
        assert "Fitting(2, accelerator=accelerator)" in after["builds.py"]


def test_one_whose_device_the_others_choose_makes_none(look: Look) -> None:
    """An accelerator that it made itself would be on another device than what they hand to it."""
    trainer = TRAINER.replace("options", "lr, device").replace("options.gpu", "True")
    trainer = trainer.replace("self.gpu = lr, device.gpu\n", "self.device = device\n").replace(
        "lr=lr, device.lr", "lr=lr"
    )
    trainer = trainer.replace("        if self.gpu:\n            self.net.cuda()\n", "        self.net.to(device)\n")
    trains = TRAINS.replace("Trainer(args)", 'Trainer(args.lr, torch.device("cuda" if args.gpu else "cpu"))')
    other = 'import torch\nfrom trainer import Trainer\nprint(Trainer(0.1, torch.device("cpu")).net)\n'
    survey = look({"train.py": trains, "trainer.py": trainer, "rows.py": "rows = []\n", "other.py": other}, "train.py")
    assert changed(survey) == {}


HOLDER = """\
import torch


class Reader:
    def __init__(self, net):
        self.net = net


class Holder:
    def __init__(self, width, device):
        self.place = device
        self.net = torch.nn.Linear(width, 1).to(device)
        self.reader = Reader(self.net)

    def loss(self, rows):
        return self.net(rows).square().mean()
"""
HOLDS = """\
import torch
from torch.utils.data import DataLoader
from holder import Holder
from rows import rows


def weights(held):
    return held.net.parameters()


device = torch.device("cuda")
holder = Holder(4, device)
optimizer = torch.optim.SGD(holder.net.parameters(), lr=0.1)
for batch in DataLoader(rows, batch_size=8):
    optimizer.zero_grad()
    holder.loss(batch.to(device)).backward()
    optimizer.step()
"""
BY_HAND = """\
import torch
import torch.distributed
from holder import Holder

torch.distributed.init_process_group("gloo")
held = Holder(4, torch.device("cuda", torch.distributed.get_rank()))
held.net = torch.nn.parallel.DistributedDataParallel(held.net)
"""


@pytest.mark.parametrize("asked", ["holder.net.parameters()", "weights(holder)"])
def test_what_others_build_on_their_own_device_is_prepared_where_it_is_built(asked: str, look: Look) -> None:
    """The class stays as it is: a file that joins its processes by hand has its own device, and wraps the model."""
    train = HOLDS.replace("holder.net.parameters()", asked)
    files = {"train.py": train, "holder.py": HOLDER, "rows.py": "rows = []\n", "by_hand.py": BY_HAND}
    after = changed(look(files, "train.py"))
    assert set(after) == {"train.py"}
    assert "holder = Holder(4, accelerator.device)\n" in after["train.py"]
    assert "holder.net, optimizer" in after["train.py"] and "accelerator.prepare(\n" in after["train.py"]


def test_without_others_the_class_itself_prepares_what_it_builds(look: Look) -> None:
    train = HOLDS.replace("holder.net.parameters()", "weights(holder)")
    after = changed(look({"train.py": train, "holder.py": HOLDER, "rows.py": "rows = []\n"}, "train.py"))
    assert set(after) == {"train.py", "holder.py"}
    assert "self.net = accelerator.prepare(self.net)\n" in after["holder.py"]


BOTH = HOLDER.replace(
    "        self.reader = Reader(self.net)\n",
    "        self.reader = Reader(self.net)\n        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)\n",
)
STEPS = (
    HOLDS.replace("optimizer = torch.optim.SGD(holder.net.parameters(), lr=0.1)\n", "")
    .replace("    optimizer", "    holder.optimizer")
    .replace("(rows, batch", "(rows, shuffle=True, batch")
)


def test_the_optimizer_of_such_a_class_is_prepared_there_too(look: Look) -> None:
    files = {"train.py": STEPS, "holder.py": BOTH, "rows.py": "rows = []\n", "by_hand.py": BY_HAND}
    after = changed(look(files, "train.py"))
    assert set(after) == {"train.py"}
    assert (
        "holder.net, holder.optimizer = accelerator.prepare(\n    holder.net, holder.optimizer\n)" in after["train.py"]
    )


def test_an_optimizer_that_another_object_keeps_is_not(look: Look) -> None:
    kept = BOTH.replace("lr=0.1)\n", "lr=0.1)\n        self.steps = Steps(self.optimizer)\n")
    kept += "\n\nclass Steps:\n    def __init__(self, optimizer):\n        self.optimizer = optimizer\n"
    train = STEPS.replace("holder.optimizer.step()", "holder.steps.optimizer.step()")
    survey = look({"train.py": train, "holder.py": kept, "rows.py": "rows = []\n", "by_hand.py": BY_HAND}, "train.py")
    assert changed(survey) == {} and "shared-module" in [id for _, id in findings(survey)]


FACTORY = """\
import torch
def create(gpus):
    model = torch.nn.Linear(8, 2).cuda()
    if len(gpus) > 1:
        model = torch.nn.DataParallel(model)
    return model
"""
ENTRY_OF_FACTORY = """\
import torch
from torch.utils.data import DataLoader
from factory import create
model = create("0,1")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""


def test_who_else_takes_a_wrapped_model_from_shared_code_is_named(look: Look) -> None:
    other = ENTRY_OF_FACTORY + "torch.save(model.module.state_dict(), 'other.pt')\n"
    files = {"train.py": ENTRY_OF_FACTORY, "other.py": other, "factory.py": FACTORY}
    (told,) = [d for f in look(files).files for d in f.diagnoses if d.severity.value == "review"]
    assert told.id == "data_parallel"
    assert told.message.startswith("other.py also runs this: without nn.DataParallel its model is on one GPU, ")
    both = look(files, "train.py", "other.py")
    assert "accelerator.get_state_dict(model)" in changed(both)["other.py"]
    assert not [d for f in both.files for d in f.diagnoses if "also runs this" in d.message]


NEWER = """\
import torch


def fit(net, rows):
    for x in rows:
        loss = net(x).mean()
        loss.backward()
    print(f"{rows["last"]!x}")
"""


@pytest.mark.parametrize("named", ["train.py", "."])
def test_a_module_that_trains_and_cannot_be_read_is_no_reason_for_nothing_to_do(look: Look, named: str) -> None:
    """The script itself trains nothing; a newer Python may read the module."""
    survey = look({"train.py": "from fitting import fit\nfit(None, [])\n", "fitting.py": NEWER}, named)
    (error,) = [error for error in survey.refused if error.path.name == "fitting.py"]
    assert error.line == 8 and "run migrate with that Python" in error.remedy


def test_a_training_that_a_script_is_not_seen_to_start_is_counted_by_name(look: Look) -> None:
    """A class that only the run finds: it was said that no file trains."""
    train = "import warnings\nimport fitting\n\nwarnings.filterwarnings('ignore')\nmake(fitting).fit(None, [])\n"
    fitting = "import torch\n\n\ndef fit(net, rows):\n    for x in rows:\n        net(x).mean().backward()\n"
    survey = look({"train.py": train, "fitting.py": fitting})
    assert str(survey) == (
        "2 files checked, 1 with training that nothing here is seen to start (fitting.py), 1 without training by torch"
    )


ON_ACCELERATE = """\
from accelerate import Accelerator
import torch

class Trainer:
    def __init__(self, model, loader):
        self.accelerator = Accelerator()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, self.optimizer, loader)

    def train(self):
        for x, y in self.loader:
            self.accelerator.backward(torch.nn.functional.cross_entropy(self.model(x), y))
            self.optimizer.step()
            self.optimizer.zero_grad()
"""


@pytest.mark.parametrize("target", [None, Target.ACCELERATE])
def test_a_training_on_accelerate_that_nothing_starts_is_not_migrated_already(
    target: Target | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import is swapped by who starts it; for Accelerate nothing is to be done."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trainer.py").write_text(ON_ACCELERATE)
    survey = Surveyor(CATALOGUE, RawConfig(target=target)).look([Path("trainer.py")])
    left = "1 migrated already" if target else "1 with training that nothing here is seen to start (trainer.py)"
    assert str(survey) == f"1 file checked, {left}"
