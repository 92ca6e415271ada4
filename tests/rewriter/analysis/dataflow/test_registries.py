"""Registries: what `MODELS.build(cfg)` gives is told by the registry, or by its use; each builder call by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.result import Result
from torchlift.rewriter.source import decode

REGISTRY = """\
class Registry:
    def __init__(self):
        self._classes = {}

    def register_module(self, name=None):
        def wrap(cls):
            self._classes[name or cls.__name__] = cls
            return cls

        return wrap

    def register(self, cls):
        self._classes[cls.__name__] = cls
        return cls

    def get(self, name):
        return self._classes[name]

    def build(self, cfg, **more):
        cfg = dict(cfg)
        cls = self.get(cfg.pop("type"))
        return cls(**cfg, **more)


def build_from_cfg(cfg, registry, defaults=None):
    cfg = {**(defaults or {}), **cfg}
    kind = cfg.pop("type")
    if isinstance(kind, str):
        made = registry.get(kind)
    else:
        made = kind
    return made(**cfg)


MODELS, DATASETS, OPTIMIZERS = Registry(), Registry(), Registry()
"""
PARTS = """\
import torch
from registry import DATASETS, MODELS, OPTIMIZERS


@MODELS.register_module()
class Small(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = torch.nn.Linear(4, width)

    def forward(self, x):
        print("small")
        return self.fc(x)


@MODELS.register_module(name="big")
class Big(torch.nn.Module):
    def forward(self, x):
        print("big")
        return x


@DATASETS.register
class Toy(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return torch.ones(4), torch.ones(1)


for name in ("SGD", "Adam"):
    OPTIMIZERS.register(getattr(torch.optim, name))
"""
HEAD = """\
import sys

import torch
from torch.utils.data import DataLoader

import parts
from registry import DATASETS, MODELS, OPTIMIZERS, build_from_cfg

cfg = parts.read(sys.argv[1])
"""
LOOP = """\
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
PREPARED = "model, optimizer, loader = accelerator.prepare(\n    model, optimizer, loader\n)\n"


def _migrated(script: str, *assume: tuple[str, str], **modules: str) -> Result:
    texts = {"train": script, **modules}
    sources = [decode(text.encode(), Path(f"{name}.py")) for name, text in texts.items()]
    return migrate(sources, CATALOGUE, Config(assume=assume))


def _program(build: str, parts: str = PARTS) -> Result:
    return _migrated(HEAD + build + LOOP, registry=REGISTRY, parts=parts)


def _refused(result: Result) -> list[str]:
    return [d.id for file in result.files for d in file.diagnoses if d.severity.value == "blocked"]


BUILT = """\
loader = DataLoader({data}, batch_size=8)
model = {model}
optimizer = {optimizer}
"""


@pytest.mark.parametrize("data", ["DATASETS.build(cfg.data)", "build_from_cfg(cfg.data, registry=DATASETS)"])
@pytest.mark.parametrize("model", ["MODELS.build(cfg.model)", "build_from_cfg(cfg.model, MODELS, {'width': 3})"])
@pytest.mark.parametrize(
    "optimizer",
    [
        "OPTIMIZERS.build(cfg.optimizer, params=model.parameters())",
        "build_from_cfg(cfg.optimizer, OPTIMIZERS, {'params': model.parameters()})",
        "torch.optim.SGD(model.parameters(), lr=0.1)",
    ],
    ids=["built", "from the configuration", "named"],
)
def test_each_registry_gives_what_it_has(data: str, model: str, optimizer: str) -> None:
    result = _program(BUILT.format(data=data, model=model, optimizer=optimizer))
    if "'params'" in optimizer:  # whose parameters they are stands in a dict
        assert _refused(result) == ["unknown-parameters"] and not result.changed
        return
    assert _refused(result) == []
    text = result.files[0].after.decode()
    assert PREPARED in text
    assert "accelerator.backward(loss)" in text


@pytest.mark.parametrize(
    "model", ["MODELS.build({})", "build_from_cfg({}, MODELS)", "build_from_cfg({}, registry=MODELS)"]
)
def test_every_class_of_a_registry_is_looked_at(model: str) -> None:
    found = _program(
        BUILT.format(data="DATASETS.build({})", model=model, optimizer="torch.optim.SGD(model.parameters())")
    )
    text = found.files[2].after.decode()
    assert 'PartialState().print("small")' in text
    assert 'PartialState().print("big")' in text


@pytest.mark.parametrize(
    "made",
    [
        "build_model(cfg.model)",
        "MODELS.get(cfg.name)(cfg.width)",
        "MODELS._classes[cfg.name](cfg.width)",
        "kind(cfg.width)",
    ],
    ids=["a function around it", "got and called", "from its table", "a variable"],
)
def test_other_ways_to_the_registry(made: str) -> None:
    build = "def build_model(cfg):\n    model = MODELS.build(cfg)\n    return model\n\n\nkind = MODELS.get(cfg.name)\n"
    build += BUILT.format(
        data="DATASETS.build(cfg.data)", model=made, optimizer="torch.optim.SGD(model.parameters(), lr=0.1)"
    )
    result = _program(build)
    assert _refused(result) == []
    assert PREPARED in result.files[0].after.decode()


ELSEWHERE = """\
import torch
from torch.utils.data import DataLoader
{imports}

loader = DataLoader(torch.ones(8, 4), batch_size=8)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("imports", "model"),
    [
        ("from mmengine import Registry\n\nMODELS = Registry('models')", "MODELS.build(dict(type='Net'))"),
        ("from mmcv import build_from_cfg\nfrom zoo import MODELS", "build_from_cfg({'type': 'Net'}, MODELS)"),
        ("TABLE = {}\n\n\ndef create(name, **cfg):\n    return TABLE[name](**cfg)\n", "create('net', width=3)"),
        ("TABLE = {}\n\n\ndef create(name):\n    made = TABLE.get(name)\n    return made()\n", "create('net')"),
    ],
    ids=["a library's registry", "a library's function", "a table of functions", "a variable in between"],
)
def test_the_use_tells_what_nobody_has_registered(imports: str, model: str) -> None:
    result = _migrated(ELSEWHERE.format(imports=imports, model=model))
    assert _refused(result) == []
    assert PREPARED in result.files[0].after.decode()


# ---------------------------------------------------------------- what is left alone


def test_what_is_looked_up_where_nothing_is_registered_stays_known() -> None:
    table = (
        "class Zoo:\n    def __init__(self):\n        self.nets = {'a': torch.nn.Linear, 'b': torch.nn.Bilinear}\n\n"
        "    def make(self, name):\n        return self.nets[name](4, 1)\n"
    )
    (file,) = _migrated(ELSEWHERE.format(imports=table, model="Zoo().make('a')")).files
    found = {role.because for role in file.roles if role.name == "model"}
    assert found == {"constructed by torch.nn.Linear", "constructed by torch.nn.Bilinear"}


@pytest.mark.parametrize(
    "line",
    ["METRICS['f1'](x, x)", "hooks.get('end')(model)", "_apply(x)"],
    ids=["a table of metrics", "a hook", "a function around one"],
)
def test_calls_of_what_is_looked_up_are_no_models(line: str) -> None:
    imports = "from somewhere import METRICS, hooks\n\n\ndef _apply(x):\n    return METRICS['f1'](x)\n"
    plain = ELSEWHERE.format(imports=imports, model="torch.nn.Linear(4, 1)")
    text = f"{plain}{line}\n"
    before, after = (_migrated(each).files[0].after.decode() for each in (plain, text))
    assert PREPARED in before
    assert after == f"{before}{line}\n"


def test_one_registry_of_everything_is_no_guess() -> None:
    parts = PARTS.replace("DATASETS.register", "MODELS.register").replace("OPTIMIZERS.register", "MODELS.register")
    build = BUILT.format(
        data="MODELS.build(cfg.data)", model="MODELS.build(cfg.model)",
        optimizer="torch.optim.SGD(model.parameters(), lr=0.1)",
    )  # fmt: skip
    result = _program(build, parts)
    assert "conflicting-roles" in _refused(result)
    assert not result.changed


# ---------------------------------------------------------------- remedies that are printed work

NET = "net = torch.nn.Linear(4, 1)\n"
SGD = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
STEPS = (
    "for x in loader:\n    err = net(x).mean()\n    optimizer.zero_grad()\n    err.backward()\n    optimizer.step()\n"
)
TOP = "import torch\nimport lib\nfrom torch.utils.data import DataLoader\n\nloader = DataLoader(torch.ones(8, 4), 4)\n"
ENDLESS = "def endless(source):\n    while True:\n        yield from source\n\n\n"
ASKING = STEPS.replace("for x in loader:", "for _ in range(9):\n    x = next(feed).rows.float()")
TRAINER = """\
class Trainer:
    def __init__(self, net, batches):
        self.net = net
        self.batches = batches
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def fit(self):
        for x in self.batches:
            err = self.net(x).mean()
            self.optimizer.zero_grad()
            err.backward()
            self.optimizer.step()


Trainer(torch.nn.Linear(4, 1), lib.LOADERS["train"]).fit()
"""


@pytest.mark.parametrize(
    ("script", "finding", "remedy", "assume", "prepared"),
    [
        (
            TOP + NET + "optimizer = torch.optim.SGD(lib.groups(net), lr=0.1)\n" + STEPS,
            "unknown-parameters", "--assume model=NAME", ("model", "net"), "net, optimizer, loader",
        ),
        (
            TOP + "net = lib.NETS['a']\noptimizer = torch.optim.SGD(net.groups(), lr=0.1)\n" + STEPS,
            "unknown-parameters", "--assume model=NAME", ("model", "net"), "net, optimizer, loader",
        ),
        (
            TOP + NET + "thing = torch.optim.SGD(net.parameters()) if lib.flag else net\nnet = thing\n" + SGD + STEPS,
            "conflicting-roles", "--assume model=net", ("model", "net"), "net, optimizer, loader",
        ),
        (
            TOP + "batches = lib.LOADERS['a']\n" + NET + SGD + STEPS.replace("loader", "batches"),
            "sharded-batch", "--assume loader=batches", ("loader", "batches"), "net, optimizer, batches",
        ),
        (
            TOP + TRAINER,
            "sharded-batch", "--assume loader=self.batches", ("loader", "self.batches"),
            "self.net, self.optimizer, self.batches",
        ),
        (
            TOP + TRAINER,
            "sharded-batch", "--assume loader=self.batches", ("loader", "batches"),
            "self.net, self.optimizer, self.batches",
        ),
        (
            TOP + NET + SGD + STEPS.replace("net(x).mean()", "lib.LOSSES['a']"),
            "backward", "--assume loss=NAME", ("loss", "err"), "net, optimizer, loader",
        ),
        (
            TOP + NET + SGD + STEPS.replace("net(x).mean()", "lib.LOSSES['a']").replace("err.b", "err['all'].b"),
            "backward", "--assume loss=NAME", ("loss", "err"), "net, optimizer, loader",
        ),
        (
            TOP + ENDLESS + NET + SGD + "batches = lib.make(4)['a']\nfeed = endless(batches)\n" + ASKING,
            "unknown-loader", "pass --assume loader=batches if", ("loader", "batches"), "net, optimizer, batches",
        ),
    ],
    ids=[
        "groups", "a net by name", "two roles", "a loader", "an attribute", "its parameter", "a loss", "in a dict",
        "asked for its next batch",
    ],
)  # fmt: skip
def test_the_assumption_that_a_finding_asks_for_is_enough(
    script: str, finding: str, remedy: str, assume: tuple[str, str], prepared: str
) -> None:
    (file,) = _migrated(script).files
    assert (finding in _refused(Result((file,)))) == (finding != "sharded-batch")
    assert remedy in next(d.remedy for d in file.diagnoses if d.id == finding)
    (file,) = _migrated(script, assume).files
    assert _refused(Result((file,))) == []
    assert f"{prepared} = " in file.after.decode()
    assert "accelerator.backward(err" in file.after.decode()


def test_what_feeds_a_training_from_a_package_that_is_not_known_is_named() -> None:
    text = TOP + ENDLESS + "feed = endless(lib.make(4)['a'])\n" + NET + SGD + ASKING
    (file,) = _migrated(text).files
    (found,) = [d for d in file.diagnoses if d.severity == "blocked"]
    assert found.message == (
        "cannot tell whether `lib.make(4)['a']`, which feeds this training, is a data loader: "
        "what `lib.make` gives is not known"
    )
    assert "give it a name, as in loader = lib.make(4)['a'], and pass --assume loader=loader" in found.remedy


@pytest.mark.parametrize(
    ("script", "refusal", "before", "after"),
    [
        (
            TOP + NET + "optimizer = torch.optim.SGD(lib.groups(net), lr=0.1)\n" + STEPS,
            "unknown-parameters", "lib.groups(net)", "net.parameters()",
        ),
        (
            TOP + NET + "thing = torch.optim.SGD(net.parameters()) if lib.flag else net\nnet = thing\n" + SGD + STEPS,
            "conflicting-roles", " if lib.flag else net\nnet = thing\n", "\n",
        ),
        (
            TOP + NET + SGD + STEPS.replace("for x in loader", "for x in range(9)"),
            "no-data-parallel-axis", "for x in range(9)", "for x in loader",
        ),
    ],
    ids=["parameters", "two names", "a loader"],
)  # fmt: skip
def test_what_a_refusal_asks_to_be_written_is_enough(script: str, refusal: str, before: str, after: str) -> None:
    assert refusal in _refused(_migrated(script))
    (file,) = _migrated(script.replace(before, after)).files
    assert refusal not in [d.id for d in file.diagnoses]


def test_an_assumption_about_a_known_name_changes_nothing() -> None:
    script = TOP + NET + SGD + STEPS
    plain = _migrated(script)
    assert plain.changed
    assert _migrated(script, ("model", "net")).files[0].after == plain.files[0].after


def test_an_assumption_reaches_functions_through_their_calls() -> None:
    script = TOP + (
        "def step(net, x, optimizer):\n    err = net(x).mean()\n    optimizer.zero_grad()\n    err.backward()\n"
        "    optimizer.step()\n\n\n"
        "net = lib.NETS['a']\noptimizer = torch.optim.SGD(net.groups(), lr=0.1)\n"
        "for x in loader:\n    step(net, x, optimizer)\n"
    )
    (file,) = _migrated(script, ("model", "net")).files
    assert _refused(Result((file,))) == []
    assert {role.scope for role in file.roles if "assumed" in role.because} == {"step", "<module>"}
    assert file.after.decode().count(".prepare(") == 1


TRAINERS = """\
import torch


class {name}:
    def __init__(self, net, sgd, rows):
        self.net, self.sgd, self.rows = net, sgd, rows

    def train(self):
        for x in self.rows:
            self.sgd.zero_grad()
            self.net(x).square().mean().backward()
            self.sgd.step()
"""
ASKS = """\
import json
import torch
from torch.utils.data import DataLoader
import trainers

config = json.load(open("config.json"))
net = torch.nn.Linear(4, 1)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
made = getattr(trainers, config["trainer"])(net, sgd, DataLoader(torch.ones(8, 4), 4))
made.train()
"""


@pytest.mark.parametrize(
    "package", ["from .plain import *\nfrom .other import *\n", "from .plain import Plain\nfrom .other import Other\n"]
)
def test_what_a_package_hands_on_is_looked_up_in_it(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script trains by a class that the configuration names, of a package that defines none itself."""
    files = {"__init__": package, "plain": TRAINERS.format(name="Plain"), "other": TRAINERS.format(name="Other")}
    (tmp_path / "trainers").mkdir()
    for name, text in files.items():
        (tmp_path / "trainers" / f"{name}.py").write_text(text)
    (tmp_path / "train.py").write_text(ASKS)
    monkeypatch.chdir(tmp_path)
    survey = Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")])
    changed = {file.source.path.name for file in survey.files if file.changed}
    assert changed == {"train.py", "plain.py", "other.py"}
