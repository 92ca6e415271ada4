"""Roles: what flows where, on what evidence, and what is left without a role."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlift.rewriter.analysis.dataflow.program_flow import solve
from torchlift.rewriter.analysis.dataflow.solver import Solver, TooComplex
from torchlift.rewriter.analysis.dataflow.values import State, origins
from torchlift.rewriter.facts.roles import Role

HEAD = """\
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
import torch.nn.functional as F
"""


def state_of(text: str, **modules: str) -> State:
    """The solved program of one script, and modules that it may import."""
    named = [("__main__", text), *modules.items()]
    return solve([(name, cst.parse_module(source)) for name, source in named])


def roles(text: str, name: str, scope: str = "<module>", **modules: str) -> set[str]:
    """The roles of a variable of the script."""
    state = state_of(HEAD + text, **modules)
    for found in state.units["__main__"].names.scopes.values():
        if found.qualname == scope and name in found.bindings:
            return {origin.role.value for origin in origins(state.binding(found.bindings[name]))}
    raise AssertionError(f"no variable {name} in {scope}")


@pytest.mark.hazard("S6")
@pytest.mark.parametrize(
    "text",
    [
        "x = 1",
        "x = []",
        "x = open('f')",
        "class SGD: pass\nx = SGD()",  # a user's class named like torch's
        "def f(optim):\n    return optim.SGD(p)\nx = f(something())",  # the name is not torch's here
        "model = 'resnet18'\nx = model",
        "scheduler = noise_levels()\nx = scheduler",
        "def f(x): return x\nx = f(1)",
    ],
    ids=[
        "number",
        "list",
        "file",
        "own class",
        "shadowed name",
        "model name",
        "noise schedule",
        "identity of a number",
    ],
)
def test_no_role(text: str) -> None:
    assert roles(text, "x") == set()


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("x = optim.SGD(p, lr=1)", "optimizer"),
        ("x = torch.optim.AdamW(p)", "optimizer"),
        ("from torch.optim import Adam as A\nx = A(p)", "optimizer"),
        ("make = optim.SGD\nx = make(p)", "optimizer"),
        ("class Mine(torch.optim.Optimizer): pass\nx = Mine(p)", "optimizer"),
        ("from lion import Lion\nx = Lion(nn.Linear(1, 1).parameters())", "optimizer"),
        ("x = optim.lr_scheduler.StepLR(optim.SGD(p, lr=1), 1)", "scheduler"),
        ("x = DataLoader(d)", "loader"),
        ("class Mine(DataLoader): pass\nx = Mine(d)", "loader"),
        ("x = nn.Linear(1, 1)", "model"),
        ("class Net(nn.Module): pass\nx = Net()", "model"),
        ("class Base(nn.Module): pass\nclass Net(Base): pass\nx = Net().to(d).train()", "model"),
        ("import torchvision\nx = torchvision.models.resnet18()", "model"),
        ("from zoo import build\nx = build()\nx.parameters()", "model"),
        ("x = nn.CrossEntropyLoss()", "criterion"),
        ("x = F.mse_loss(a, b)", "loss"),
        ("x = torch.device('cuda' if torch.cuda.is_available() else 'cpu')", "device"),
        ("x = 'cuda:0' if torch.cuda.is_available() else 'cpu'", "device"),
        ("x = torch.accelerator.current_accelerator()", "device"),
        ("from torch_geometric.loader import DenseDataLoader\nx = DenseDataLoader(graphs, 8)", "loader"),
        ("from monai.data import DataLoader as Batches\nx = Batches(scans, batch_size=2)", "loader"),
        ("from monai.networks.nets import UNet\nx = UNet(3, 1, 1)", "model"),
        ("import monai\nx = monai.losses.DiceLoss(sigmoid=True)", "criterion"),
        ("x = torch.load('f')", "checkpoint"),
        ("x = nn.Linear(1, 1).state_dict()", "state"),
        ("from torchlift.runtime import Accelerator\nx = Accelerator()", "accelerator"),
    ],
)
def test_construction(text: str, role: str) -> None:
    assert roles(text, "x") == {role}


@pytest.mark.parametrize(
    "text",
    [
        "m = nn.Linear(1, 1)\nx = m",
        "x, y = nn.Linear(1, 1), 2",
        "a, (b, x) = 1, (2, nn.Linear(1, 1))",
        "d = {'m': nn.Linear(1, 1)}\nx = d['m']",
        "x = dict({'m': nn.Linear(1, 1)})['m']",
        "d = dict\nms = [nn.Linear(1, 1)]\nx = ms[0]",
        "ms = []\nms.append(nn.Linear(1, 1))\nfor x in ms: pass",
        "def make():\n    return nn.Linear(1, 1), 3\nx, _ = make()",
        "def make(f): return f(1, 1)\nx = make(nn.Linear)",
        "class Box:\n    def __init__(self, m): self.m = m\nx = Box(nn.Linear(1, 1)).m",
        "class Box:\n    m = nn.Linear(1, 1)\nx = Box().m",
        "class Box:\n    def __init__(self): self.m = nn.Linear(1, 1)\n    def g(self): return self.m\nx = Box().g()",
        "import argparse\nargs = argparse.ArgumentParser().parse_args()\nargs.m = nn.Linear(1, 1)\nx = args.m",
        "import copy\nx = copy.deepcopy(nn.Linear(1, 1))",
        "x = nn.Linear(1, 1) if c else nn.Linear(2, 2)",
        "if c:\n    x = nn.Linear(1, 1)\nelse:\n    x = nn.Linear(2, 2)",
        "(x := nn.Linear(1, 1))",
        "def f(m=nn.Linear(1, 1)):\n    global x\n    x = m\nx = None\nf()",
        "def f(**kw):\n    return kw\ndef g(m): return m\nx = g(**{'m': nn.Linear(1, 1)})",
        "f = lambda m: m\nx = f(nn.Linear(1, 1))",
        "def gen():\n    yield nn.Linear(1, 1)\nx = next(gen())",
    ],
    ids=lambda text: text.split("\n")[0][:40],
)
def test_a_model_travels(text: str) -> None:
    assert roles(text, "x") == {"model"}


@pytest.mark.parametrize(
    "header",
    [
        "for x in loader:",
        "for x, _ in loader:",
        "for i, x in enumerate(loader):",
        "for i, (x, _) in enumerate(loader, 1):",
        "for (x, _), other in zip(loader, others):",
        "for x in tqdm(loader):",
        "bar = tqdm(enumerate(loader), total=9)\nfor i, (x, _) in bar:",
        "for x in islice(cycle(loader), 10):",
        "it = iter(loader)\nwhile True:\n    x = next(it)\nfor y in []:",
        "for phase in ['a', 'b']:\n  for x, _ in {'a': loader, 'b': loader}[phase]:",
    ],
)
def test_a_batch_is_seen_through(header: str) -> None:
    text = f"from tqdm import tqdm\nfrom itertools import cycle, islice\nloader = DataLoader(d)\n{header}\n    pass\n"
    assert roles(text, "x") == {"batch"}


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("x.to(d)", {"batch"}),
        ("x.view(len(x), -1).float()", {"batch"}),
        ("x[0]", {"batch"}),
        ("x['input_ids']", {"batch"}),
        ("torch.cat([x, x])", {"batch"}),
        ("model(x)", {"output"}),
        ("model(x).argmax(1)", {"output"}),
        ("model(x)[0].logits", {"output"}),
        ("F.cross_entropy(model(x), x)", {"loss"}),
        ("criterion(model(x), x)", {"loss"}),
        ("criterion(model(x), x) + 0.1 * F.mse_loss(x, x)", {"loss"}),
        ("sum([criterion(model(x), x)])", {"loss"}),
        ("criterion(model(x), x).item()", {"local"}),
        ("float(criterion(model(x), x))", {"local"}),
        ("x.size(0)", {"local"}),
        ("x.shape[0]", {"local"}),
        ("len(x)", {"local"}),
        ("x.cpu().numpy()", {"local"}),
        ("np.mean(x.cpu().numpy())", {"local"}),
        ("x.device", {"device"}),
        ("torch.zeros(3)", set()),
    ],
)
def test_what_is_computed_from_a_batch(expression: str, found: set[str]) -> None:
    text = "import numpy as np\nmodel = nn.Linear(1, 1)\ncriterion = nn.MSELoss()\nfor x in DataLoader(d):\n    y = "
    assert roles(f"{text}{expression}\n", "y") == found


def test_arguments_and_returns_of_functions() -> None:
    text = "def run(model, loader):\n    for x in loader:\n        out = model(x)\n    return out\n"
    text += "y = run(nn.Linear(1, 1), loader=DataLoader(d))\n"
    assert roles(text, "model", "run") == {"model"}
    assert roles(text, "x", "run") == {"batch"}
    assert roles(text, "y") == {"output"}


def test_a_function_that_nobody_calls_gives_its_parameters_no_role() -> None:
    assert roles("def run(model, loader):\n    for x in loader: pass\n", "x", "run") == set()


def test_names_from_a_module_of_the_program() -> None:
    zoo = "from torch import nn\nclass Net(nn.Module): pass\ndef build():\n    return Net()\nmodel = build()\n"
    assert roles("from zoo import build\nx = build()", "x", zoo=zoo) == {"model"}
    assert roles("import zoo\nx = zoo.model", "x", zoo=zoo) == {"model"}
    assert roles("from zoo import *\nx = build()", "x", zoo=zoo) == {"model"}


def test_the_same_thing_under_two_names_is_one_thing() -> None:
    state = state_of(HEAD + "a = nn.Linear(1, 1)\nb = a.to(d)\nc = nn.Linear(1, 1)\n")
    scope = state.units["__main__"].names.scope
    a, b, c = (origins(state.binding(scope.bindings[name])) for name in "abc")
    assert a == b
    assert a != c


def test_an_optimizer_knows_its_models_parameters() -> None:
    state = state_of(HEAD + "m = nn.Linear(1, 1)\no = optim.SGD([{'params': m.parameters()}, {'params': []}], lr=1)\n")
    (optimizer,) = origins(state.binding(state.units["__main__"].names.scope.bindings["o"]))
    (parameters,) = origins(state.related[optimizer], Role.PARAMETERS)
    assert parameters.source is not None
    assert parameters.source.role is Role.MODEL


def test_recursion_and_mutual_calls_come_to_an_end() -> None:
    text = "def f(m, n):\n    return g(m.x.y, n) if n else m\ndef g(m, n):\n    return f(m.z(), n - 1)\n"
    text += "x = f(nn.Linear(1, 1), 3)\n"
    assert "model" in roles(text, "x")


def test_names_without_end_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Solver, "LIMIT", 20_000)
    words = "first", "second", "third"
    steps = "".join(f"    if kind.{word}:\n        kind = kind.{word}\n" for word in words)
    text = f"import outside\nkind = outside.kind\nfor word in range(9):\n{steps}    kind = getattr(kind, word)\n"
    assert state_of(HEAD + text + "m = nn.Linear(1, 1)\n").units


def test_a_program_that_moves_too_much_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Solver, "LIMIT", 10)
    with pytest.raises(TooComplex):
        state_of(HEAD + "m = nn.Linear(1, 1)\nx = y = z = m\n")


COPIES = {
    "in a loop": "for _ in range(3):\n    net = copy.deepcopy(net)\n",
    "there and back": "for _ in range(3):\n    best = copy.deepcopy(net)\n    net = copy.deepcopy(best)\n",
    "by a function": "def twin(m):\n    return copy.deepcopy(m)\nnet = twin(net)\nnet = twin(net)\n",
}


@pytest.mark.parametrize("text", COPIES.values(), ids=COPIES)
def test_a_copy_that_is_copied_again_comes_to_an_end(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Solver, "LIMIT", 2_000)
    state = state_of(HEAD + "import copy\nnet = nn.Linear(1, 1)\n" + text)
    held = origins(state.binding(state.units["__main__"].names.scope.bindings["net"]))
    assert {origin.because for origin in held} == {"constructed by torch.nn.Linear", "a copy of a model"}


MAKER = """\
class Config:
    def init_obj(self, name, module, *args, **kwargs):
        return getattr(module, self[name])(*args, **kwargs)

    @classmethod
    def load(cls, path):
        return cls()

def make(name, module, *args):
    kind = getattr(module, name)
    return kind(*args)

config = Config.load("c.json")
"""
NETS = "from torch import nn\nclass A(nn.Module):\n    pass\nclass Note:\n    pass\ndef helper():\n    pass\n"
CONFIGURED = {
    "a model by a method": ("x = config.init_obj('arch', nets)", "model"),
    "a model by a function": ("x = make(name, nets)", "model"),
    "a model by getattr": ("x = getattr(nets, config['arch'])()", "model"),
    "a model by keyword": ("x = config.init_obj('arch', module=nets)", "model"),
    "an optimizer": ("x = config.init_obj('o', optim, make(name, nets).parameters())", "optimizer"),
    "a schedule": (
        "x = config.init_obj('s', optim.lr_scheduler, config.init_obj('o', optim, make(n, nets).parameters()))",
        "scheduler",
    ),
    "a model of a module's table": ("x = nets.__dict__[config['arch']]()", "model"),
    "a model by vars": ("x = vars(nets)[config['arch']]()", "model"),
    "a model of a table by its word": ("x = nets.__dict__['A']()", "model"),
    "an optimizer of torch's table": ("x = optim.__dict__[name](make(name, nets).parameters())", "optimizer"),
    "an optimizer of a table": ("OPTIMIZERS = {'sgd': optim.SGD}\nx = OPTIMIZERS[name](p)", "optimizer"),
}


@pytest.mark.parametrize(("text", "role"), CONFIGURED.values(), ids=CONFIGURED)
def test_what_configuration_names_is_told_by_the_module_that_is_searched(text: str, role: str) -> None:
    """Each call of the same maker gives what that call's module holds, and nothing of the others'."""
    others = "\nm = config.init_obj('arch', nets)\no = config.init_obj('o', optim, m.parameters())\n"
    assert roles(f"import nets\n{MAKER}{text}{others}", "x", nets=NETS) == {role}


def test_a_maker_that_is_handed_something_unknown_gives_nothing() -> None:
    assert roles(f"import nets\n{MAKER}x = config.init_obj('a', unknown)\ny = make(n, nets)", "x", nets=NETS) == set()


def test_the_optimizer_of_a_maker_knows_its_parameters() -> None:
    state = state_of(f"{HEAD}import nets\n{MAKER}m = make(n, nets)\no = make(n, optim, m.parameters())", nets=NETS)
    held = state.units["__main__"].names.scope.bindings
    (optimizer,) = origins(state.binding(held["o"]), Role.OPTIMIZER)
    (model,) = origins(state.binding(held["m"]), Role.MODEL)
    assert [p.source for p in origins(state.related[optimizer], Role.PARAMETERS)] == [model]


PREPARED = """\
from torchlift.runtime import Accelerator
from somewhere import build

accelerator = Accelerator()
x = build()
y = accelerator.prepare(x)
"""


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        pytest.param("for batch in y: pass", {"loader"}, id="prepared and iterated"),
        pytest.param("for i, batch in enumerate(y): pass", {"loader"}, id="counted"),
        pytest.param("y(1)", set(), id="prepared and called"),
        pytest.param("for batch in y.parts: pass", set(), id="a part of it is iterated"),
    ],
)
def test_what_an_accelerator_prepares_and_a_loop_iterates_is_a_loader(loop: str, expected: set[str]) -> None:
    assert roles(PREPARED + loop, "x") == expected
    assert roles(PREPARED.replace("accelerator.prepare", "prepare") + loop, "x") == set()


LOADED = "model, other = nn.Linear(1, 1), None\nloader = DataLoader(d)\n"
KEPT_APART = {
    "what follows a starred argument has no known place": (
        "def note(x, y): pass\nfor batch in loader:\n    note(*batch, model)", "note", {"batch"},
    ),
    "a place that a tuple does not have": ("pair = loader, model\nx = pair[7]", "<module>", set()),
    "a number that a layer has": ("def note(x): pass\nnote(model.in_features)", "note", set()),
    "a setting of the script's own model": (
        "class Net(nn.Module):\n    def __init__(self):\n        self.weight_decay = 0.1\n"
        "def note(x): pass\nnote(Net().weight_decay)", "note", set(),
    ),
    "what another method of an optimizer gives": (
        "x = optim.lr_scheduler.StepLR(optim.SGD(model.parameters()), 1).get_last_lr()", "<module>", set(),
    ),
    "an answer to a question about the rank": ("x = input('RANK')", "<module>", set()),
}  # fmt: skip


@pytest.mark.parametrize(("text", "scope", "expected"), KEPT_APART.values(), ids=KEPT_APART)
def test_what_a_thing_has_or_gives_is_told_from_the_thing(text: str, scope: str, expected: set[str]) -> None:
    assert roles(LOADED + text, "x", scope) == expected


NESTED = """
class Outer:
    class Inner(nn.Module):
        def forward(self, x):
            return x

    kind = nn.Linear

    def run(self):
        made = {made}

Outer().run()
"""


@pytest.mark.parametrize("made", ["self.Inner()", "Outer.Inner()", "self.kind(2, 2)", "Outer.kind(2, 2)"])
def test_a_class_that_a_class_keeps_makes_a_model(made: str) -> None:
    assert roles(NESTED.replace("{made}", made), "made", "Outer.run") == {"model"}


def test_a_weight_of_a_layer_is_a_parameter() -> None:
    assert roles(LOADED + "def note(x): pass\nnote(model.weight)", "x", "note") == {"parameters"}


def test_what_an_accelerator_prepares_together_keeps_its_order() -> None:
    text = "from torchlift.runtime import Accelerator\n" + LOADED + "x, y = Accelerator().prepare(model, loader)\n"
    assert (roles(text, "x"), roles(text, "y")) == ({"model"}, {"loader"})


def test_a_base_class_that_a_star_brings_from_outside() -> None:
    layers = "from torch.nn import *\n"
    assert roles("from layers import Module\nclass Net(Module): pass\nx = Net()", "x", layers=layers) == {"model"}


def test_the_number_of_the_process_in_its_group() -> None:
    assert roles("import torch.distributed as dist\nx = dist.get_rank(None)", "x") == {"place"}


def test_keywords_of_a_maker_may_come_in_any_order() -> None:
    assert roles(f"import nets\n{MAKER}x = make(module=nets, name=name)", "x", nets=NETS) == {"model"}


@pytest.mark.parametrize(
    ("name", "kept"), [("lib.a.b.a", "lib.a"), ("lib.a.b.c.b", "lib.a.b"), ("lib.a.a", "lib.a.a"), ("a.b.a", "a.b.a")]
)
def test_a_word_that_comes_again_leads_back_to_where_it_came_first(name: str, kept: str) -> None:
    assert state_of("").external(name).qualified == kept


def test_the_rows_of_an_enumeration_begin_with_a_number_and_those_of_a_zip_do_not() -> None:
    assert roles(LOADED + "for x, b in enumerate(loader): pass", "x") == set()
    assert roles(LOADED + "for x, b in zip(loader, loader): pass", "x") == {"batch"}


@pytest.mark.parametrize("called", ["criterion", "criterion.forward", "criterion.__call__"])
def test_a_criterion_gives_a_loss_however_it_is_called(called: str) -> None:
    text = "criterion = nn.CrossEntropyLoss()\nmodel = nn.Linear(8, 2)\n"
    assert roles(text + f"for x, y in DataLoader(rows):\n    loss = {called}(model(x), y)\n", "loss") == {"loss"}


@pytest.mark.parametrize("method", ["forward", "rate"])
def test_a_method_of_a_criterion_runs_no_model(method: str) -> None:
    text = """\
class Gap(nn.CrossEntropyLoss):
    def rate(self, out, y):
        return self.forward(out, y)

criterion = Gap()
model = nn.Linear(8, 2)
for x, y in DataLoader(rows):
    out = model(x)
    figure = criterion.METHOD(out, y)
"""
    state = state_of(HEAD + text.replace("METHOD", method))
    models = {model.qualified for found in state.forwards.values() for model in found}
    assert models == {"torch.nn.Linear"}
