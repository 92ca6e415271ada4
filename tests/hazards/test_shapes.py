"""Shapes of scripts: what is no training, what cannot be distributed, what draws its own batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Migrated = Callable[..., str]
Findings = Callable[..., list[str]]

DEMONSTRATIONS = {
    "a derivative": "x = torch.tensor(1.0, requires_grad=True)\ny = 3 * x\ny.backward()\nprint(x.grad)",
    "a layer's": "layer = nn.Linear(2, 1)\nlayer(torch.ones(1, 2)).sum().backward()\nprint(layer.weight.grad)",
}


@pytest.mark.hazard("S12")
@pytest.mark.unchanged
@pytest.mark.parametrize("text", DEMONSTRATIONS.values(), ids=DEMONSTRATIONS)
def test_a_demonstration_of_autograd_is_left_alone(text: str, unchanged: Findings) -> None:
    assert unchanged(text) == []


LOOP = """
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    {batch}
    STEP
"""
WITHOUT = {
    "a graph, all of it every step": "x, y = data.x, data.y",
    "an environment": "x = torch.from_numpy(environment.step(action))\n    y = policy(x)",
}


@pytest.mark.hazard("S11")
@pytest.mark.parametrize("batch", WITHOUT.values(), ids=WITHOUT)
def test_nothing_to_distribute(batch: str, migrated: Migrated, findings: Findings, script: Migrated) -> None:
    text = "import random\nimport numpy as np\n" + LOOP.format(batch=batch)
    assert migrated(text) == script(text)
    assert findings(text) == ["no-data-parallel-axis"]


@pytest.mark.hazard("R2")
@pytest.mark.parametrize(
    "batch",
    [
        "i = torch.randint(90, (16,))\n    x, y = data.x[i], data.y[i]",
        "i = np.random.randint(0, 90, 16)\n    x, y = data.x[i], data.y[i]",
        "i = random.sample(range(90), 16)\n    x, y = data.x[i], data.y[i]",
        "x, y = draw()",
    ],
    ids=["torch", "numpy", "python", "in a function"],
)
def test_batches_that_are_drawn(batch: str, migrated: Migrated, findings: Findings) -> None:
    function = """
def draw():
    starts = torch.randint(90, (16,))
    return torch.stack([data.x[i : i + 8] for i in starts]).to("cuda"), data.y[starts].to("cuda")
"""
    text = "import random\nimport numpy as np\n" + function + LOOP.format(batch=batch)
    new = migrated(text)
    assert new.count("accelerator.shard_batch(") == 1
    assert "model, optimizer = accelerator.prepare(\n    model, optimizer\n)" in new
    assert new.count(".to(accelerator.device)") == (2 if "draw()" in batch else 0)
    assert "sharded-batch" in findings(text)


def test_batches_that_torch_draws_after_a_single_step(findings: Findings) -> None:
    loop = LOOP.format(batch="i = torch.randint(90, (16,))\n    x, y = data.x[i], data.y[i]")
    first = "F.cross_entropy(model(data.x[:1]), data.y[:1]).backward()\noptimizer.step()\n"
    assert "sharded-batch" in findings(loop.replace("for step", f"{first}for step"))


def test_noise_alone_is_no_batch(findings: Findings) -> None:
    assert findings(LOOP.format(batch="x, y = data.x + torch.randn(90, 8), data.y")) == ["no-data-parallel-axis"]


HOGWILD = """
import {module} as mp
def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data):
        STEP
model = nn.Linear(8, 2)
process = mp.Process(target=train, args=(model,))
process.start()
"""


@pytest.mark.hazard("S9")
@pytest.mark.parametrize("module", ["multiprocessing", "torch.multiprocessing"])
def test_processes_of_its_own(module: str, findings: Findings) -> None:
    assert findings(HOGWILD.format(module=module)) == ["already-distributed"]


def test_a_process_that_does_not_train_is_no_matter(findings: Findings) -> None:
    text = "import multiprocessing\ndef f():\n    print(1)\nmultiprocessing.Process(target=f).start()\n"
    assert findings(text + TRAINING) == []


TRAINING = """
model = nn.Linear(8, 2)
loader = DataLoader(data, batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    STEP
"""


@pytest.mark.hazard("S7")
def test_statements_on_one_line(migrated: Migrated) -> None:
    text = TRAINING.replace(
        "STEP", "l = F.cross_entropy(model(x), y); optimizer.zero_grad(); l.backward(); optimizer.step()"
    )
    assert "optimizer.zero_grad(); accelerator.backward(l); optimizer.step()" in migrated(text)
    moved = text.replace("l = F", "x = x.to('cuda'); y = y.cuda(); l = F")
    assert "    l = F.cross_entropy(model(x), y); optimizer.zero_grad();" in migrated(moved)


def test_a_loader_that_is_defined_nowhere(result: Callable[..., object]) -> None:
    (found,) = result(TRAINING.replace("loader = ", "other = ")).diagnoses  # type: ignore[attr-defined]
    assert found.id == "unknown-loader" and "not defined anywhere" in found.message


# GPUs by number -------------------------------------------------------------------------------------------------------

NUMBERED = {
    "an item": 'os.environ["CUDA_VISIBLE_DEVICES"] = "0"',
    "an item, from arguments": 'os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu',
    "a default": 'os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1")',
    "the current device": "torch.cuda.set_device(args.gpu)",
}


@pytest.mark.hazard("D11", "X37")
@pytest.mark.parametrize("line", NUMBERED.values(), ids=NUMBERED)
def test_gpus_by_number_are_the_launchers(line: str, migrated: Migrated, findings: Findings) -> None:
    text = f"import os\nfrom settings import args\n{line}\n{TRAINING}"
    assert line not in migrated(text)
    assert findings(text) == ["launcher"]


@pytest.mark.parametrize("line", ['os.environ["CUDA_VISIBLE_DEVICES"] = "-1"', 'os.environ["OMP_NUM_THREADS"] = "1"'])
def test_no_gpu_at_all_and_other_settings_stay(line: str, migrated: Migrated, findings: Findings) -> None:
    assert line in migrated(f"import os\n{line}\n{TRAINING}")
    assert findings(f"import os\n{line}\n{TRAINING}") == []


PARALLEL = """
from torch.distributed.{module} import {name}
model = {name}(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x, y = torch.rand(4, 8), torch.rand(4, 2)
    STEP
"""


@pytest.mark.hazard("S10")
@pytest.mark.parametrize(
    ("module", "name"),
    [("fsdp", "FullyShardedDataParallel"), ("fsdp", "fully_shard"), ("tensor.parallel", "parallelize_module")],
)
def test_models_that_are_split_by_hand(module: str, name: str, findings: Findings) -> None:
    assert set(findings(PARALLEL.format(module=module, name=name))) == {"already-distributed"}


PARTS = {
    "a parameter": "[model.bias]",
    "groups of parameters": '[{"params": [model.weight]}, {"params": [model.bias], "lr": 0.2}]',
    "parameters by name": '[p for name, p in model.named_parameters() if "bias" in name]',
    "a list that grows": "chosen",
}
TRAINS = """
model = nn.Linear(8, 2)
chosen = []
for name, parameter in model.named_parameters():
    if "bias" in name:
        chosen.append(parameter)
loader = DataLoader(data)
optimizer = torch.optim.SGD({parts}, lr=0.1)
for x, y in loader:
    STEP
"""


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_an_optimizer_of_some_parameters(parts: str, migrated: Migrated) -> None:
    new = migrated(TRAINS.format(parts=parts))
    assert "accelerator.prepare(\n    model, optimizer, loader\n)" in new


def test_an_optimizer_of_a_loose_parameter(findings: Findings) -> None:
    assert "loose-parameters" in findings(TRAINS.format(parts="[model.bias, nn.Parameter(torch.zeros(2))]"))


SEEDS = ["seed = random.randint(0, 99)", "opt.seed = random.randint(0, 99)"]


@pytest.mark.parametrize("line", SEEDS)
def test_a_random_seed_is_drawn_behind_the_accelerator(line: str, migrated: Migrated) -> None:
    name = line.partition(" =")[0]
    top = f"import random\n{line}\ntorch.manual_seed({name})\nrandom.seed({name})\n"
    text = top + TRAINS.format(parts="model.parameters()")
    new = migrated(text)
    assert new.index("accelerator = Accelerator()") < new.index(line)


@pytest.mark.parametrize("end", ["", "    ", "\n  ", "\n\t"])
def test_blanks_at_the_end_stay(end: str, script: Migrated) -> None:
    text = script(TRAINS.format(parts="model.parameters()")) + end
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed and file.after.decode().endswith("optimizer.step()\n" + end)


GPUS = ["model.to(0)", "model = model.to(gpu_id)", "model.cuda(1)"]


@pytest.mark.hazard("D11")
@pytest.mark.parametrize("line", GPUS)
def test_a_gpu_by_its_number(line: str, migrated: Migrated) -> None:
    text = TRAINS.format(parts="model.parameters()").replace("chosen = []", f"gpu_id = 3\n{line}\nchosen = []")
    new = migrated(text.replace("    STEP", "    x, y = x.to(gpu_id), y.to(gpu_id)\n    STEP"))
    assert line not in new and "x.to(" not in new


def test_not_a_gpu_by_its_number(migrated: Migrated) -> None:
    line = "model = model.to(dtype)"
    text = TRAINS.format(parts="model.parameters()").replace("chosen = []", f"dtype = torch.half\n{line}\nchosen = []")
    assert line in migrated(text)


SEARCHES = {
    "Optuna's": "import optuna\nrate = optuna.trial.FixedTrial({}).suggest_float('rate', 0, 1)",
    "a trial of somebody's": "import search\nrate = search.trial.suggest_int('rate', 0, 1)",
    "Ray Tune's": "from ray import tune\ntune.Tuner(tune.with_resources(work, {'cpu': 2})).fit()",
    "Ray Tune's older": "import ray.tune as tune\ntune.run(work, num_samples=2)",
    "Hyperopt's": "import hyperopt\nhyperopt.fmin(score, space)",
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_search_for_settings_is_refused(search: str, findings: Findings) -> None:
    assert "hyperparameter-search" in findings(f"{search}\n" + TRAINS.format(parts="model.parameters()"))


@pytest.mark.parametrize(
    "optimizer", ["torch.optim.SGD(", "getattr(torch.optim, trial.suggest_categorical('name', ['SGD', 'Adam']))("]
)
def test_an_objective_that_a_search_calls(optimizer: str, findings: Findings) -> None:
    text = """\
import optuna
def objective(trial):
    model = nn.Linear(8, trial.suggest_int('classes', 2, 4))
    optimizer = OPTIMIZER(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=32):
        STEP
    return 1.0
if __name__ == '__main__':
    study = optuna.create_study(direction='maximize')
    study.optimize(objective, n_trials=10)
"""
    assert findings(text.replace("OPTIMIZER(", optimizer)) == ["hyperparameter-search"]


def test_a_suggestion_of_ones_own_is_no_search(findings: Findings) -> None:
    own = "def suggest_float(name):\n    return 0.1\nrate = suggest_float('rate')\n"
    assert findings(own + TRAINS.format(parts="model.parameters()")) == []


ONE_NUMBER = [
    "F.cross_entropy(model(x), y).sum()",
    "torch.sum(F.cross_entropy(model(x), y))",
    "nn.MSELoss()(model(x), y).mean()",
]


@pytest.mark.parametrize("loss", ONE_NUMBER)
def test_the_sum_of_one_number_is_no_sum_over_the_batch(loss: str, migrated: Migrated) -> None:
    text = TRAINS.format(parts="model.parameters()").replace(
        "STEP", f"loss = {loss}\n    loss.backward()\n    optimizer.step()"
    )
    assert "accelerator.backward(loss)" in migrated(text)


@pytest.mark.parametrize("loss", ["(d_target * out.sum() + torch.log(out.exp().sum()))", "(out.sum() * d_target)"])
def test_a_sum_that_is_weighted_by_the_rows_is_a_mean(loss: str, migrated: Migrated) -> None:
    step = (
        f"d_target = 1 / x.shape[0]\n    out = model(x)\n    loss = {loss}\n    loss.backward()\n    optimizer.step()"
    )
    assert "accelerator.backward(loss)" in migrated(TRAINS.format(parts="model.parameters()").replace("STEP", step))


IN_A_METHOD = """
class Trainer:
    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader = model, optimizer, loader

    def run(self, x, y, train={default}):
        with torch.set_grad_enabled(train):
            loss = F.cross_entropy(self.model(x), y)
        if train:
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def epoch(self):
        for x, y in self.loader:
            {call}

model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Trainer(model, optimizer, DataLoader(data, batch_size=16)).epoch()
"""
TRAINING_CALLS = [("True", "self.run(x, y)"), ("True", "self.run(x, y, True)"), ("None", "self.run(x, y, train=True)")]


@pytest.mark.parametrize(("default", "call"), TRAINING_CALLS)
def test_a_method_that_trains_by_its_argument(default: str, call: str, migrated: Migrated) -> None:
    assert "accelerator.backward(loss)" in migrated(IN_A_METHOD.format(default=default, call=call))


def test_a_method_that_is_not_told_to_train(findings: Findings) -> None:
    text = IN_A_METHOD.format(default="None", call="self.run(x, y)")
    assert findings(text) == ["no-data-parallel-axis"]


SCORES = """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def update(x, y):
    output = model(x)
    loss = nn.functional.mse_loss(output, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), output.max().item()


def run(rows):
    scores = []
    for x, y in DataLoader(rows, batch_size=4, drop_last=True):
        loss, score = update(x.to(device), y.to(device))
        scores.append(score)
    return GIVEN


for epoch in range(3):
    score = run(rows)
    if score < 0.1:
        break
"""


@pytest.mark.hazard("X26")
def test_epochs_that_are_left_on_a_score_that_a_function_gives(findings: Findings) -> None:
    """The scores are those of one process, also where no name in front of the decision says so."""
    assert "local-decision" in findings(SCORES.replace("GIVEN", "max(scores)"))
    assert findings(SCORES.replace("GIVEN", "0.5")) == []


OTHERS = """
import {module}
{start}
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data):
    STEP
"""


@pytest.mark.hazard("U25")
@pytest.mark.parametrize(
    ("module", "start"),
    [
        ("horovod.torch as hvd", "hvd.init()"),
        ("mpi4py.MPI as MPI", "comm = MPI.COMM_WORLD\nrank = comm.Get_rank()"),
        ("mpi4py", "size = mpi4py.MPI.COMM_WORLD.Get_size()"),
        ("deepspeed", "model, optimizer, _, _ = deepspeed.initialize(model=nn.Linear(8, 2))"),
    ],
)
def test_distributed_by_another_library(module: str, start: str, findings: Findings) -> None:
    assert set(findings(OTHERS.format(module=module, start=start))) == {"already-distributed"}
