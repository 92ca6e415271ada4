"""Code that is not given the accelerator: it asks ``PartialState()``, where that chooses no other device."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import RawConfig
from torchlift.rewriter.project.scan import Survey, Surveyor

Run = Callable[..., tuple[dict[str, str], list[str]]]
CONFIG = """\
from datetime import datetime
from pathlib import Path


class Config:
    def __init__(self, name, run=None):
        if run is None:
            run = datetime.now().strftime("%m%d_%H%M%S")
        self._folder = Path("runs") / name / run
        fresh = run == ""
        self.folder.mkdir(parents=True, exist_ok=fresh)
        print("writes to", self.folder)

    @classmethod
    def of(cls, name):
        return cls(name)

    @property
    def folder(self):
        return self._folder
"""
TRAIN = """\
import torch
from settings import Config
from torch.utils.data import DataLoader


def main(config):
    model = torch.nn.Linear(4, 2)
    loader = DataLoader(data, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), config.folder / "net.pt")


if __name__ == "__main__":
    config = Config.of("digits")
    main(config)
"""
PREDICT = "from settings import Config\n\nprint(Config.of('digits').folder)\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(train, config=..., others=...)`: what changes, and the findings. A second run must change nothing."""
    monkeypatch.chdir(tmp_path)

    def look(files: dict[str, str]) -> Survey:
        for name, text in files.items():
            (tmp_path / name).write_text(dedent(text))
        return Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")])

    def migrate(train: str = TRAIN, settings: str = CONFIG, **others: str) -> tuple[dict[str, str], list[str]]:
        files = {"train": train, "settings": settings, **others}
        survey = look({"pyproject.toml": "", **{f"{name}.py": text for name, text in files.items()}})
        after = {os.path.relpath(f.source.path): f.after.decode() for f in survey.files if f.changed}
        assert not [f for f in look(after).files if f.changed], "a second run changes something"
        return after, [d.id for f in survey.files for d in f.diagnoses]

    return migrate


def test_a_run_folder_made_before_the_training_has_one_name(run: Run) -> None:
    """The accelerator is made in front of what names the folder, through a class method and a property."""
    after, findings = run()
    assert '    accelerator = Accelerator()\n    config = Config.of("digits")' in after["train.py"]
    settings = after["settings.py"]
    assert "def __init__(self, name, run=None):" in settings and "return cls(name)" in settings
    assert 'run = broadcast_object_list([datetime.now().strftime("%m%d_%H%M%S")])[0]' in settings
    assert 'PartialState().print("writes to", self.folder)' in settings
    assert findings == []


HELPERS = """\
import os
import torch


def report(text, prefix="train"):
    print(prefix, text)


def keep(state, best, folder="runs"):
    path = os.path.join(folder, "last.pt")
    torch.save(state, path)
    if best:
        torch.save(state, os.path.join(folder, "best.pt"))


class Rows(torch.utils.data.Dataset):
    def __init__(self, root, limit=None):
        self.rows = torch.randn(16, 4)
        print("found", len(self.rows), "in", root)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], index % 2


class Net(torch.nn.Module):
    def __init__(self, width, start=None):
        super().__init__()
        self.layer = torch.nn.Linear(4, width)
        if start is not None:
            self.load_state_dict(torch.hub.load_state_dict_from_url(start))

    def forward(self, x):
        return self.layer(x)


def shrink(path, target=None):
    state = torch.load(path, map_location="cpu")
    torch.save({name: value.half() for name, value in state.items()}, target or path + ".half")


def weigh(model, width, rest=1.0):
    weight = torch.ones(width).to("cuda:0")
    return weight * rest
"""
HELPED = """\
import torch
from settings import Net, Rows, keep, report, shrink, weigh
from torch.utils.data import DataLoader


def main(epochs):
    loader = DataLoader(Rows("data", limit=3), 4)
    model = Net(2, "file:net.pt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        report(epoch, "epoch")
        keep({"net": model.state_dict()}, epoch > 1)
    shrink("runs/last.pt", target="small.pt")


if __name__ == "__main__":
    main(3)
"""


def test_a_guard_alone_changes_no_signature(run: Run) -> None:
    """A print, a download, a file that is written: who asks for the main process needs no accelerator for it."""
    after, findings = run(HELPED, HELPERS)
    settings, train = after["settings.py"], after["train.py"]
    assert [line for line in settings.splitlines() if "def " in line] == [
        line for line in HELPERS.splitlines() if "def " in line
    ]
    assert "PartialState().print(prefix, text)" in settings
    assert "    if PartialState().is_main_process:\n        torch.save(state, path)" in settings
    assert 'PartialState().print("found", len(self.rows), "in", root)' in settings
    assert "with PartialState().main_process_first():" in settings
    assert "    PartialState().wait_for_everyone()\n    state = torch.load(path" in settings
    assert '    accelerator = Accelerator()\n    loader = DataLoader(Rows("data", limit=3), 4)' in train
    assert 'keep({"net": accelerator.get_state_dict(model)}, epoch > 1)' in train
    assert findings == []


def test_what_places_or_gathers_is_given_it(run: Run) -> None:
    train = HELPED.replace("model(x), y)", "model(x), y, weigh(model, 2, rest=0.5))")
    after, _ = run(train, HELPERS.replace("    weight =", '    print("weights")\n    weight ='))
    assert "weigh(model, 2, rest=0.5, accelerator=accelerator)" in after["train.py"]
    assert "torch.ones(width).to(accelerator.device)" in after["settings.py"]
    assert 'accelerator.print("weights")' in after["settings.py"]
    assert "def weigh(model, width, rest=1.0, *, accelerator):" in after["settings.py"]


READS_BY_NAME = {
    "getattr": "import settings\nprint(getattr(settings, input())(2))\n",
    "of an alias": "import sys\nimport settings as s\nprint(getattr(s, sys.argv[1])(2))\n",
    "the name as text": 'import settings\nprint(getattr(settings, "weigh")(None, 2))\n',
    "the names of a module": "import settings\nprint(settings.__dict__[input()](2))\n",
    "vars": "import settings\nprint(vars(settings)[input()](2))\n",
    "all of them": "from settings import *\nprint(globals()[input()](2))\n",
    "eval": "from settings import weigh\nprint(eval(input())(2))\n",
    "a module by its name": (
        'from importlib import import_module\nfound = import_module("settings")\nprint(getattr(found, input())(2))\n'
    ),
}


@pytest.mark.parametrize("other", READS_BY_NAME.values(), ids=READS_BY_NAME)
def test_a_program_that_reads_a_function_by_its_name_goes_on_working(other: str, run: Run) -> None:
    """Its call is not seen, and nobody would hand it an accelerator."""
    train = HELPED.replace("model(x), y)", "model(x), y, weigh(model, 2, rest=0.5))")
    after, _ = run(train, HELPERS, other=other)
    assert "def weigh(model, width, rest=1.0):" in after["settings.py"]
    assert "weigh(model, 2, rest=0.5)" in after["train.py"]


@pytest.mark.parametrize(
    "call",
    [
        "globals()[sys.argv[1]](None, 2)",
        "eval(sys.argv[1])(None, 2)",
        "eval(sys.argv[1] + '(None, 2)')",
        "getattr(settings, sys.argv[1])(None, 2)",
        "settings.__dict__[sys.argv[1]](None, 2)",
    ],
)
def test_a_call_by_a_computed_name_in_the_program_itself_goes_on_working(call: str, run: Run) -> None:
    train = HELPED.replace("model(x), y)", "model(x), y, weigh(model, 2, rest=0.5))")
    train = "import sys\nimport settings\n" + train.replace("    main(3)", f"    print({call})\n    main(3)")
    after, _ = run(train, HELPERS)
    assert "def weigh(model, width, rest=1.0):" in after["settings.py"]
    assert 'torch.ones(width).to("cuda")' in after["settings.py"] and "weigh(model, 2, rest=0.5)" in after["train.py"]


@pytest.mark.parametrize(
    "named",
    [
        '{name: getattr(self, name).state_dict() for name in ("line", "rest")}',
        "[getattr(self, name).state_dict() for name in PARTS]",
        "getattr(self, 'line%d' % 1), getattr(self, 'rest{}'.format(2))",
    ],
    ids=["a list there", "a list of the module", "templates"],
)
def test_computed_names_that_are_written_out_are_no_calls_of_other_methods(named: str, run: Run) -> None:
    """A class that saves its parts by their names trains in a method: that was refused, as if a name might be its."""
    learner = LEARNER + f"\n    def state(self):\n        return {named}\n"
    learner = learner.replace("import torch\n", 'import torch\n\nPARTS = ("line", "rest")\n', 1)
    after, findings = run(LEARNS, learner)
    assert "def learn(self, batches, optimizer, turns=1, *, accelerator):" in after["settings.py"] and findings == []


def test_a_computed_name_that_begins_otherwise_is_no_call_of_a_method(run: Run) -> None:
    learner = LEARNER.replace("return self.line(x)", "return getattr(self, f'li{END}')(x)")
    learner = learner.replace("import torch\n", "import torch\n\nEND = 'ne'\n", 1)
    after, findings = run(LEARNS, learner)
    assert "def learn(self, batches, optimizer, turns=1, *, accelerator):" in after["settings.py"] and findings == []


def test_a_program_that_reads_something_else_by_its_name_is_no_user(run: Run) -> None:
    train = HELPED.replace("model(x), y)", "model(x), y, weigh(model, 2, rest=0.5))")
    other = "import torch\nfrom settings import report\nreport(getattr(torch, input()))\n"
    other += "options = read()\nreport(getattr(options, 'weigh'))\n"
    after, _ = run(train, HELPERS, other=other)
    assert "weigh(model, 2, rest=0.5, accelerator=accelerator)" in after["train.py"]


def test_a_class_that_another_program_uses_is_not_given_it(run: Run) -> None:
    after, findings = run(predict=PREDICT)
    assert '    accelerator = Accelerator()\n    config = Config.of("digits")\n' in after["train.py"]
    settings = after["settings.py"]
    assert "def __init__(self, name, run=None):" in settings and "accelerator" not in settings
    assert 'run = broadcast_object_list([datetime.now().strftime("%m%d_%H%M%S")])[0]' in settings
    assert (
        "        if PartialState().is_main_process:\n            self.folder.mkdir(parents=True, exist_ok=fresh)"
        in settings
    )
    assert 'PartialState().print("writes to", self.folder)' in settings
    assert "from torchlift.runtime import PartialState" in settings
    assert findings == []


GREET = 'def greet():\n    print("hello")\n'
GREETED = TRAIN.replace("import Config", "import greet").replace("def main", "greet()\n\n\ndef main")


def test_what_runs_before_and_after_the_training_asks(run: Run) -> None:
    train = GREETED.replace('config = Config.of("digits")', "config = data") + '    print("bye")\n'
    after, findings = run(train, GREET)
    assert '    PartialState().print("hello")\n' in after["settings.py"] and findings == []
    assert after["train.py"].endswith('    main(config)\n    PartialState().print("bye")\n')


def test_what_runs_before_an_accelerator_that_may_stay_on_the_cpu_asks_the_environment(run: Run) -> None:
    """Its device is not chosen by then, and whoever asked ``PartialState`` first would choose it."""
    train = GREETED.replace('config = Config.of("digits")', "config = settings()")
    train = train.replace("    loader =", "    if not config.cpu:\n        model = model.cuda()\n    loader =")
    after, findings = run(train, GREET, predict="from settings import greet\n\ngreet()\n")
    assert "Accelerator(cpu=config.cpu)" in after["train.py"] and "EarlyState().print(" in after["settings.py"]
    assert findings == []


def test_what_a_module_does_when_it_is_imported_asks_the_environment(run: Run) -> None:
    """A worker that loads data imports it, too."""
    train = GREETED.replace('config = Config.of("digits")', "config = data")
    after, findings = run(train, GREET + "\n\nprint('imported')\n")
    assert "EarlyState().print('imported')" in after["settings.py"].splitlines() and findings == []


def test_what_workers_run_asks_nobody(run: Run) -> None:
    """A process that loads data has no place among the others."""
    settings = """\
        from torch.utils.data import Dataset


        def read(index):
            print("reads", index)
            return index


        class Rows(Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return read(index), 0
        """
    train = TRAIN.replace("import Config", "import Rows").replace("DataLoader(data, 4)", "DataLoader(Rows(), 4)")
    train = train.replace('config = Config.of("digits")', "config = folder")
    after, findings = run(train, settings)
    assert list(after) == ["train.py"] and findings == []  # each process says what there is to say of its rows


def test_an_object_of_the_module_asks_where_it_is_called(run: Run) -> None:
    settings = """\
        class Logger:
            def __init__(self, path):
                self.path = path

            def __call__(self, *what):
                print(*what)
                with open(self.path, "a") as file:
                    file.write(str(what))


        log = Logger("log.txt")
        """
    train = TRAIN.replace("import Config", "import log").replace('config = Config.of("digits")', "config = folder")
    train = train.replace("        optimizer.step()\n", "        optimizer.step()\n        log(loss.item())\n")
    after, findings = run(train, settings)
    assert "        PartialState().print(*what)\n        if PartialState().is_main_process:\n" in after["settings.py"]
    assert findings == []


def test_gpus_that_are_chosen_for_another_program_too_stay(run: Run) -> None:
    settings = """\
        import os


        def choose(gpu):
            os.environ["CUDA_VISIBLE_DEVICES"] = gpu
        """
    train = TRAIN.replace("import Config", "import choose").replace('config = Config.of("digits")', "config = folder")
    train = train.replace("def main(config):\n", "def main(config):\n    choose('1')\n")
    after, findings = run(train, settings)
    assert "os.environ" not in after["settings.py"] and findings == ["launcher"]
    after, findings = run(train, settings, predict="from settings import choose\n\nchoose('1')\n")
    assert "settings.py" not in after and findings == ["launcher"]


SAVES = """\
import torch


def save(model, path):
    print("saves", path)
    torch.save({"model": model.state_dict()}, path)
"""


def test_a_checkpoint_helper_that_another_program_uses_keeps_its_signature(run: Run) -> None:
    """The guard asks `PartialState()`, which knows of one process where the other program runs alone."""
    train = TRAIN.replace("import Config", "import save").replace('config = Config.of("digits")', "config = folder")
    train = train.replace('torch.save(model.state_dict(), config.folder / "net.pt")', 'save(model, config / "net.pt")')
    after, findings = run(train, SAVES, predict="from settings import save\n\nsave(net, 'a.pt')\n")
    assert 'save(model, config / "net.pt")' in after["train.py"]
    assert after["settings.py"].endswith(
        'def save(model, path):\n    PartialState().print("saves", path)\n    if PartialState().is_main_process:\n'
        '        torch.save({"model": model.state_dict()}, path)\n'
    )
    assert findings == []


def test_a_checkpoint_that_an_open_file_takes_is_guarded_once(run: Run) -> None:
    train = TRAIN.replace("import Config", "import save").replace('config = Config.of("digits")', "config = folder")
    train = train.replace('torch.save(model.state_dict(), config.folder / "net.pt")', 'save(model, config / "net.pt")')
    line = '    torch.save({"model": model.state_dict()}, path)\n'
    saves = SAVES.replace(line, '    with open(path, "wb") as file:\n        torch.save(model.state_dict(), file)\n')
    after, findings = run(train, saves, predict="from settings import save\n\nsave(net, 'a.pt')\n")
    assert after["settings.py"].endswith(
        '    if PartialState().is_main_process:\n        with open(path, "wb") as file:\n'
        "            torch.save(model.state_dict(), file)\n"
    )
    assert findings == []


SAVES_AND_READS = SAVES + "    return torch.load(path, map_location='cpu')\n"


def test_such_a_helper_waits_where_it_reads_what_it_has_written(run: Run) -> None:
    train = TRAIN.replace("import Config", "import save").replace('config = Config.of("digits")', "config = folder")
    train = train.replace('torch.save(model.state_dict(), config.folder / "net.pt")', 'save(model, config / "net.pt")')
    after, findings = run(train, SAVES_AND_READS, predict="from settings import save\n\nsave(net, 'a.pt')\n")
    lines = [line.strip() for line in after["settings.py"].splitlines()]
    reads = next(at for at, line in enumerate(lines) if line.startswith("return torch.load(path"))
    assert lines[reads - 1] == "PartialState().wait_for_everyone()" and findings == []


@pytest.mark.parametrize("line", ["return torch.save(model, path)", "print(path); torch.save(model, path)"])
def test_a_save_that_is_a_part_of_a_statement_there_is_refused(line: str, run: Run) -> None:
    train = TRAIN.replace("import Config", "import save").replace('config = Config.of("digits")', "config = folder")
    train = train.replace("torch.save(model.state_dict(), config", "save(model, config")
    after, findings = run(
        train,
        f"import torch\n\n\ndef save(model, path):\n    {line}\n",
        predict="from settings import save\n\nsave(1, 2)\n",
    )
    assert not after and "checkpoint_save" in findings


LEARNER = """\
import torch


class Learner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.line(x)

    def learn(self, batches, optimizer, turns=1):
        for turn in range(turns):
            for x, y in batches:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self(x), y)
                loss.backward()
                optimizer.step()
            self.judge(batches)

    def judge(self, batches):
        hits = 0
        with torch.no_grad():
            for x, y in batches:
                out = self(x)
                hits += (out.argmax(1) == y).sum().item()
        print(hits)
"""
LEARNS = """\
import torch
from settings import Learner
from torch.utils.data import DataLoader

learner = Learner()
batches = DataLoader(data, 4)
optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
learner.learn(batches, optimizer, turns=2)
"""


def test_a_method_of_a_module_is_handed_it(run: Run) -> None:
    """The module cannot keep it: torch copies, saves and moves its attributes."""
    after, findings = run(LEARNS, LEARNER)
    assert "learner.learn(batches, optimizer, turns=2, accelerator=accelerator)\n" in after["train.py"]
    assert "def learn(self, batches, optimizer, turns=1, *, accelerator):" in after["settings.py"]
    assert "self.judge(batches, accelerator)\n" in after["settings.py"]
    assert "def judge(self, batches, accelerator):" in after["settings.py"]
    assert findings == []


@pytest.mark.parametrize(
    "line",
    [
        "Learner.learn(learner, batches, optimizer)",
        "run = learner.learn\nrun(batches, optimizer)",
        "learner.learn(batches, optimizer)\nhook = learner.learn",
        "import sys\nlearner.learn(batches, optimizer)\ngetattr(learner, sys.argv[1])(batches, optimizer)",
        "import sys\nlearner.learn(batches, optimizer)\nrun = getattr(learner, f'le{end()}')\nrun(batches, optimizer)",
    ],
)
def test_a_method_of_a_module_that_is_used_in_another_way_is_left(run: Run, line: str) -> None:
    after, findings = run(LEARNS.replace("learner.learn(batches, optimizer, turns=2)", line), LEARNER)
    assert not after and "accelerator-out-of-reach" in findings


JUDGE = """\
import torch


def right(model, batches, verbose=True):
    '''How many rows the model gets right.'''
    return hits(model, batches, print if verbose else None)


def hits(model, batches, told):
    found = 0
    for x, y in batches:
        x, y = x.to("cuda"), y.to("cuda")
        with torch.no_grad():
            out = model(x)
        found += (out.argmax(1) == y).sum().item()
    return found
"""
JUDGES = """\
import torch
from settings import right
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 2).to("cuda")
batches = DataLoader(data, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.to("cuda")), y.to("cuda"))
        loss.backward()
        optimizer.step()
    print(right(model, batches))
"""
JUDGED_BY = "from settings import right\n\nprint(right(net, DataLoader(data, 4), False))\n"


def test_an_evaluation_that_another_program_runs_makes_its_own_there(run: Run) -> None:
    """It reads the loader of the training, and was refused: now nobody else has to give it the accelerator."""
    after, findings = run(JUDGES, JUDGE, predict=JUDGED_BY)
    settings = after["settings.py"]
    assert "accelerator.print(right(model, batches, accelerator=accelerator))" in after["train.py"]
    assert (
        "def right(model, batches, verbose=True, accelerator=None):\n    '''How many rows the model gets right.'''\n"
        "    if accelerator is None:\n        accelerator = Accelerator()\n    return hits("
    ) in settings
    assert "out, y = accelerator.gather_for_metrics((out, y))" in settings
    assert "def hits(model, batches, told, accelerator):\n" in settings, "nobody else calls it"
    assert "        x, y = x.to(accelerator.device), y.to(accelerator.device)\n" in settings, (
        "the other's is not prepared"
    )
    assert findings == []


def test_an_evaluation_in_a_class_that_another_program_uses_is_left(run: Run) -> None:
    inside = "class Judge:\n" + "".join(f"    {line}\n" for line in JUDGE.split("\n")[3:] if line)
    inside = inside.replace("def right(model", "def right(self, model").replace(
        "def hits(model", "def hits(self, model"
    )
    inside = "import torch\n\n" + inside.replace("return hits(", "return self.hits(")
    train = JUDGES.replace("import right", "import Judge").replace("right(model", "Judge().right(model")
    after, findings = run(train, inside, predict="from settings import Judge\n\nJudge().right(net, rows)\n")
    assert not after and findings == ["prepare"]


FITTER = """\
import torch
import schedules


def made_of(place, part, config, *given):
    return getattr(place, config[part]["kind"])(*given, **config[part]["with"])


class Fitter:
    def __init__(self, net, rows, config):
        self.net = net
        self.rows = rows
        weights = filter(lambda w: w.requires_grad, self.net.parameters())
        self.optimizer = made_of(torch.optim, "optimizer", config, weights)
        self.schedule = getattr(schedules, config["schedule"])(self.optimizer)

    def fit(self):
        for x, y in self.rows:
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.net(x), y).backward()
            self.optimizer.step()
        self.schedule.step()
        torch.save({"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}, "last.pt")
"""
NETS = """\
import torch


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.inner(x)
"""
SCHEDULES = """\
from torch.optim.lr_scheduler import LRScheduler


class Halves(LRScheduler):
    def __init__(self, optimizer, last_epoch=-1):
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [rate * 0.5**self.last_epoch for rate in self.base_lrs]
"""
FITS = """\
import json
import nets
from settings import Fitter
from torch.utils.data import DataLoader


def made_of(place, part, config, *given):
    return getattr(place, config[part]["kind"])(*given, **config[part]["with"])


def main(config):
    rows = DataLoader(data, 4)
    net = made_of(nets, "net", config)
    Fitter(net, rows, config).fit()


if __name__ == "__main__":
    main(json.load(open("config.json")))
"""


def test_what_a_function_makes_of_each_module_is_told_by_the_call(run: Run) -> None:
    """One file makes the model by it, another one the optimizer; each has one call of its own function."""
    after, findings = run(FITS, FITTER, nets=NETS, schedules=SCHEDULES)
    settings = after["settings.py"]
    assert "self.net, self.optimizer = accelerator.prepare(\n            self.net, self.optimizer\n" in settings
    assert "self.accelerator.backward(torch.nn.functional.mse_loss(self.net(x), y))" in settings
    assert findings == []


READS = """\
import argparse
import time
from pathlib import Path
import torch
from torch.utils.data import DataLoader


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", action="store_true")
    return parser.parse_args()


def others():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name")
    return parser.parse_args()


def main(args):
    run = Path(time.strftime("%H%M%S"))
    run.mkdir(exist_ok=True)
    args = options()
    model = torch.nn.Linear(4, 2)
    if not args.cpu:
        model = model.cuda()
    loader = DataLoader(data, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        if not args.cpu:
            x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), run / "net.pt")


if __name__ == "__main__":
    main(options())
"""


def test_options_that_are_read_again_are_known_before(run: Run) -> None:
    after, findings = run(READS)
    made = "def main(args):\n    accelerator = Accelerator(cpu=args.cpu)\n    run = broadcast_object_list("
    assert made in after["train.py"] and findings == []


def test_options_of_another_parser_are_not_known_before(run: Run) -> None:
    after, findings = run(READS.replace("main(options())", "main(others())"))
    assert "    args = options()\n    accelerator = Accelerator(cpu=args.cpu)\n" in after["train.py"]
    assert findings == ["directories"]


def test_the_accelerator_is_made_before_what_is_printed_above_the_choice_of_the_device(run: Run) -> None:
    first, second = READS.index("    run ="), READS.index("    model =")
    train = READS[:first] + '    print("with", args)\n    PICK\n' + READS[second:]
    pick = "if torch.cuda.is_available():\n        args.device = torch.device('cuda')\n"
    pick += "    else:\n        args.device = torch.device('cpu')"
    train = train.replace("PICK", pick).replace(
        "if not args.cpu:\n        model = model.cuda()", "model.to(args.device)"
    )
    train = train.replace("if not args.cpu:\n            x, y = x.cuda()", "x, y = x.to(args.device)")
    train = train.replace("y.cuda()", "y.to(args.device)").replace("run / ", "")
    after, findings = run(train)
    assert '    accelerator = Accelerator()\n    accelerator.print("with", args)\n' in after["train.py"]
    assert findings == ["unread-option"]  # `--cpu`


PICKS = """\
import torch


def pick(seed):
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print("picked", place)
    return place
"""
PICKED = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from settings import pick


def fit():
    place = pick(3)
    net = torch.nn.Linear(4, 1).to(place)
    rows = DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), 4)
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in rows:
        sgd.zero_grad()
        torch.nn.functional.mse_loss(net(x.to(place)), y.to(place)).backward()
        sgd.step()


fit()
place = pick(4)  # for the rest
print(torch.ones(2).to(place))
"""


def test_a_call_that_chose_the_device_is_made_with_the_accelerator(run: Run) -> None:
    """The line is gone but for the call, which prints."""
    after, findings = run(PICKED, PICKS)
    assert findings == []
    assert 'accelerator.print("picked", accelerator.device)' in after["settings.py"]
    assert "\npick(4, accelerator)  # for the rest\naccelerator.print(torch.ones" in after["train.py"]


CLOSES = """\
import torch
from torch.utils.data import DataLoader


def fit(net, rows, optimizer):
    for x, y in rows:
        {step}


def main():
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    fit(net, DataLoader(torch.load("rows.pt", map_location="cpu"), 8), optimizer)


if __name__ == "__main__":
    main()
"""
HANDED_ON = {
    "a closure": """\
def again():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    return loss

optimizer.step(again)
""",
    "a closure in a closure": """\
def again():
    def gradients():
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        return loss

    optimizer.zero_grad()
    return {"of": gradients}["of"]()

optimizer.step(again)
""",
    "a function that a table holds": """\
def again():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()

{"again": again}["again"]()
optimizer.step()
""",
}


@pytest.mark.parametrize("step", HANDED_ON.values(), ids=HANDED_ON)
def test_a_function_inside_another_one_reads_what_that_is_handed(step: str, run: Run) -> None:
    text = CLOSES.format(step=step.replace("\n", "\n        ").strip())
    after, findings = run(text)
    assert not findings
    assert "def fit(net, rows, optimizer, accelerator):" in after["train.py"]
    assert "accelerator.backward(" in after["train.py"]


BASE = """\
import torch


class Base:
    def __init__(self, rows):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.rows = rows
        self.net = None

    def keep(self):
        torch.save(self.net.state_dict(), "net.pt")


class Other(Base):
    def __init__(self, rows):
        super().__init__(rows)
        self.net = torch.nn.Linear(4, 1).to(self.device)

    def train(self):
        return [self.net(x.to(self.device)).mean().item() for x in self.rows]
"""
DERIVED = """\
import torch
from settings import Base


class Trainer(Base):
    def __init__(self, rows, net):
        super().__init__(rows)
        self.net = net.to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)

    def train(self):
        for x in self.rows:
            self.optimizer.zero_grad()
            with torch.amp.autocast(self.device.type):
                loss = self.net(x.to(self.device)).square().mean()
            loss.backward()
            self.optimizer.step()
"""
DERIVES = """\
import torch
from torch.utils.data import DataLoader
from trainer import Trainer


def main():
    torch.manual_seed(0)
    rows = DataLoader(torch.ones(8, 4), 4)
    trainer = Trainer(rows, torch.nn.Linear(4, 1))
    trainer.train()


if __name__ == "__main__":
    main()
"""


def test_a_device_that_a_base_class_chooses_becomes_the_accelerators_in_the_object(run: Run) -> None:
    """The model and the loader are built above the constructor, so the accelerator is made there."""
    after, findings = run(DERIVES, BASE, trainer=DERIVED)
    assert findings == [] and set(after) == {"train.py", "trainer.py"}
    assert "    accelerator = Accelerator()\n    rows = " in after["train.py"]
    assert "    def __init__(self, rows, net, accelerator):\n        super().__init__(rows)\n" in after["trainer.py"]
    assert "        self.device = accelerator.device\n        self.optimizer = " in after["trainer.py"]
    assert "with torch.amp.autocast(self.device.type):" in after["trainer.py"]


def test_a_method_of_another_class_only_shares_its_name_with_what_others_call(run: Run) -> None:
    other = "from settings import Other\n\nother = Other([])\nother.train()\n"
    after, findings = run(DERIVES, BASE, trainer=DERIVED, other=other)
    assert findings == [] and set(after) == {"train.py", "trainer.py"}


def test_what_a_base_class_does_stays_for_the_objects_of_others(run: Run) -> None:
    """`Other` has no accelerator: a `keep` that reads one would fail there."""
    other = "from settings import Other\n\nother = Other([])\nother.train()\nother.keep()\n"
    train = DERIVES.replace("trainer.train()\n", "trainer.train()\n    trainer.keep()\n")
    after, findings = run(train, BASE, trainer=DERIVED, other=other)
    assert findings == [] and "self.accelerator" not in after["settings.py"]
    assert "        if PartialState().is_main_process:\n            torch.save(" in after["settings.py"]


TRAINER = """\
import torch


class Trainer(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.net = torch.nn.Linear(4, 1).cuda()
        self.judge = torch.nn.Linear(1, 1).cuda()
        self.steps = torch.optim.Adam(self.net.parameters(), lr=rate)
        self.judged = torch.optim.Adam(self.judge.parameters(), lr=rate)

    def forward(self, x):
        guess = self.net(x)
        return guess, self.judge(guess + self.noise(guess))

    def noise(self, like):
        return torch.rand(like.shape[0], 1).cuda()

    def save(self, path):
        torch.save(self.net.state_dict(), path)
"""
TRAINS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer import Trainer


def main():
    loader = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4)
    trainer = Trainer(0.1)
    for epoch in range(2):
        for (x,) in loader:
            guess, judged = trainer(x.cuda())
            trainer.steps.zero_grad()
            trainer.judged.zero_grad()
            (guess.pow(2).mean() + judged.mean()).backward()
            trainer.steps.step()
            trainer.judged.step()
        trainer.save("net.pt")


if __name__ == "__main__":
    main()
"""
TRIES = "import torch\nfrom trainer import Trainer\nt = Trainer(0.1)\nprint(t(torch.ones(1, 4).cuda()), t.noise)\n"


def test_a_module_that_builds_its_optimizers_is_prepared_where_it_is_made(run: Run) -> None:
    """None of its methods needs the accelerator: a move to the GPU that is current needs none, and a file is written by
    the main process."""
    after, findings = run(TRAINS, trainer=TRAINER, tries=TRIES)
    assert "    trainer, trainer.steps, trainer.judged, loader = accelerator.prepare(\n" in after["train.py"]
    assert "accelerator.backward(guess.pow(2).mean() + judged.mean())" in after["train.py"]
    trainer = after["trainer.py"]
    assert "    def __init__(self, rate):\n" in trainer
    assert "        return torch.rand(like.shape[0], 1).cuda()\n" in trainer
    assert (
        "        if PartialState().is_main_process:\n            torch.save(self.net.state_dict(), path)\n" in trainer
    )
    assert findings == []
