"""The rule `tracking`: the trackers of the other processes do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchlift.rewriter.config import Target

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

BOARD = "from torch.utils.tensorboard import SummaryWriter"

NOOPS: dict[str, dict[str, Any]] = {
    "a class of one's own with that name": {"top": "class SummaryWriter:\n    pass\n\nwriter = SummaryWriter()"},
    "an init of something else": {"top": "torch.nn.init.zeros_(torch.ones(2))"},
    "the class, not called": {"imports": BOARD, "top": "kind = SummaryWriter"},
    "the uses of a tracker that is handed in": {"top": "def note(writer):\n    writer.add_scalar('a', 1)"},
    "a function that nothing calls": {"imports": BOARD, "end": "def new():\n    return SummaryWriter()"},
    "the word in a string": {"top": "note = 'wandb.init()'"},
    "a value that is logged": {"imports": "import wandb", "epoch": "wandb.log({'loss': 1.0})"},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop("import torch\nfrom torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter('runs')\n")


ELSE = "if accelerator.is_main_process else Inert()"
MODE = 'mode=None if accelerator.is_main_process else "disabled"'

HANDLES: dict[str, tuple[str, str, str]] = {
    "a writer of events": (BOARD, "writer = SummaryWriter('runs')", f"writer = SummaryWriter('runs') {ELSE}"),
    "of tensorboardX": (
        "import tensorboardX",
        "writer = tensorboardX.SummaryWriter()",
        f"writer = tensorboardX.SummaryWriter() {ELSE}",
    ),
    "of another package": (
        "from tensorboard import SummaryWriter",
        "writer = SummaryWriter('runs')",
        f"writer = SummaryWriter('runs') {ELSE}",
    ),
    "of a module that is not there": (
        "from logger import SummaryWriter",
        "writer = SummaryWriter('runs')",
        f"writer = SummaryWriter('runs') {ELSE}",
    ),
    "with its type": (BOARD, "w: SummaryWriter = SummaryWriter()", f"w: SummaryWriter = SummaryWriter() {ELSE}"),
    "in a dict": (
        BOARD,
        "state = {'writer': SummaryWriter('runs'), 'step': 0}",
        f"state = {{'writer': SummaryWriter('runs') {ELSE}, 'step': 0}}",
    ),
    "an attribute": (BOARD, "loader.writer = SummaryWriter()", f"loader.writer = SummaryWriter() {ELSE}"),
    "an argument": (BOARD, "names = vars(SummaryWriter())", f"names = vars(SummaryWriter() {ELSE})"),
    "a film": (
        "import cv2",
        "film = cv2.VideoWriter('a.mp4', 0, 25, (64, 64))",
        f"film = cv2.VideoWriter('a.mp4', 0, 25, (64, 64)) {ELSE}",
    ),
    "moving pictures": (
        "import imageio",
        "gif = imageio.get_writer('a.gif')",
        f"gif = imageio.get_writer('a.gif') {ELSE}",
    ),
    "visdom": ("from visdom import Visdom", "vis = Visdom(port=1)", f"vis = Visdom(port=1) {ELSE}"),
    "neptune": ("import neptune", "run = neptune.init_run('p')", f"run = neptune.init_run('p') {ELSE}"),
    "clearml": ("from clearml import Task", "task = Task.init('p')", f"task = Task.init('p') {ELSE}"),
    "tensorflow 1": (
        "import tensorflow as tf",
        "writer = tf.summary.FileWriter('runs')",
        f"writer = tf.summary.FileWriter('runs') {ELSE}",
    ),
    "tensorflow 1 in tensorflow 2": (
        "import tensorflow.compat.v1 as tf",
        "writer = tf.summary.FileWriter('runs')",
        f"writer = tf.summary.FileWriter('runs') {ELSE}",
    ),
    "tensorflow 2": (
        "import tensorflow as tf",
        "writer = tf.summary.create_file_writer('runs')",
        f"writer = tf.summary.create_file_writer('runs') {ELSE}",
    ),
    "a module by its name": (
        "import importlib",
        "name = 'tensorboardX'\nwriter = importlib.import_module(name).SummaryWriter('runs')",
        f"writer = importlib.import_module(name).SummaryWriter('runs') {ELSE}",
    ),
    "the first module that is there": (
        "import importlib",
        "for name in ['torch.utils.tensorboard', 'tensorboardX']:\n"
        "    writer = importlib.import_module(name).SummaryWriter('runs')",
        f"    writer = importlib.import_module(name).SummaryWriter('runs') {ELSE}",
    ),
    "aim": ("import aim", "run = aim.Run(repo='.')", f"run = aim.Run(repo='.') {ELSE}"),
}


@pytest.mark.hazard("G7", "X11")
@pytest.mark.parametrize(("imports", "before", "after"), HANDLES.values(), ids=HANDLES)
def test_the_others_have_an_inert_one(imports: str, before: str, after: str, lines: Lines) -> None:
    out, new, findings = lines(imports=imports, built=before, epoch="pass")
    assert (out, findings) == ([before.splitlines()[-1]], [])
    assert new == ["from torchlift.runtime import Accelerator, Inert", after]


SWITCHES: dict[str, tuple[str, str, str]] = {
    "wandb": ("import wandb", "wandb.init(project='p')", f"wandb.init(project='p', {MODE})"),
    "its run": ("import wandb", "run = wandb.init()", f"run = wandb.init({MODE})"),
    "by another name": ("import wandb as wb", "wb.init(project='p')", f"wb.init(project='p', {MODE})"),
    "with a mode of its own": (
        "import wandb",
        "wandb.init(mode=mode, project='p')",
        "wandb.init(mode=mode if accelerator.is_main_process else \"disabled\", project='p')",
    ),
    "with a mode that is chosen": (
        "import wandb",
        "wandb.init(mode='online' if on else 'offline')",
        "wandb.init(mode=('online' if on else 'offline') if accelerator.is_main_process else \"disabled\")",
    ),
    "swanlab": ("import swanlab", "swanlab.init(project='p')", f"swanlab.init(project='p', {MODE})"),
    "comet": (
        "from comet_ml import Experiment",
        "experiment = Experiment('key')",
        "experiment = Experiment('key', disabled=not accelerator.is_main_process)",
    ),
}


@pytest.mark.parametrize(("imports", "before", "after"), SWITCHES.values(), ids=SWITCHES)
@pytest.mark.parametrize("target", [Target.TORCHLIFT, Target.ACCELERATE])
def test_switched_off_by_its_own_setting(imports: str, before: str, after: str, target: Target, lines: Lines) -> None:
    out, new, findings = lines(imports=imports, built=before, options={"target": target})
    kept = [line for line in new if "accelerate import" not in line]
    assert (out, kept, findings) == ([before], [after], [])


def test_a_call_on_several_lines_gets_one_more(lines: Lines) -> None:
    before = "wandb.init(\n    project='p',\n    config=vars(args),\n)"
    assert lines(imports="import wandb", built=before) == ([], [f"    {MODE},"], [])


def test_a_tracker_in_a_with_block(lines: Lines) -> None:
    out, new, findings = lines(imports=BOARD, end="with SummaryWriter() as writer:\n    writer.add_text('a', 'b')")
    assert findings == []
    assert out == ["with SummaryWriter() as writer:"]
    assert new[1] == f"with SummaryWriter() {ELSE} as writer:"


def test_one_of_two_packages_that_are_tried(migrated: Callable[[str], str]) -> None:
    text = migrated(
        """
import torch
from torch.utils.data import DataLoader
try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    from tensorboardX import SummaryWriter
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = SummaryWriter()
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    assert f"writer = SummaryWriter() {ELSE}" in text


def test_mlflow_is_a_module_of_calls_each_of_which_stands_alone(lines: Lines) -> None:
    out, new, findings = lines(
        imports="import mlflow", top="mlflow.set_experiment('e')", end="mlflow.log_metric('a', 1)"
    )
    assert (out, findings) == (["mlflow.set_experiment('e')", "mlflow.log_metric('a', 1)"], [])
    assert new == [
        "if accelerator.is_main_process:", "    mlflow.set_experiment('e')",
        "if accelerator.is_main_process:", "    mlflow.log_metric('a', 1)",
    ]  # fmt: skip


OF_MLFLOW = [
    "mlflow.pytorch.log_model(model, 'm')",
    "mlflow.set_tags({'a': 'b'})",
    "mlflow.end_run()",
    "mlflow.register_model('a', 'b')",
    "mlflow.pytorch.autolog()",
]


@pytest.mark.parametrize("call", OF_MLFLOW)
def test_what_mlflow_writes_is_written_once(call: str, lines: Lines) -> None:
    new = ["if accelerator.is_main_process:", f"    {call}"]
    assert lines(imports="import mlflow.pytorch", end=call) == ([call], new, [])


def test_a_run_of_mlflow_that_begins_in_a_statement_is_of_the_main_process(lines: Lines) -> None:
    """What is logged to it is, and its end: the others would keep an empty run each."""
    out, new, findings = lines(imports="import mlflow", top="mlflow.start_run(run_name='a')", end="mlflow.end_run()")
    assert (out, findings) == (["mlflow.start_run(run_name='a')", "mlflow.end_run()"], [])
    assert "    mlflow.start_run(run_name='a')" in new


@pytest.mark.parametrize("asked", ["print(mlflow.active_run().info.run_id)", "folder = mlflow.get_artifact_uri()"])
def test_a_run_of_mlflow_that_all_ask_for_is_left_and_reported(asked: str, lines: Lines) -> None:
    assert lines(imports="import mlflow", top="mlflow.start_run()", end=asked)[2] == ["once"]


def test_a_run_of_mlflow_around_the_training(lines: Lines) -> None:
    end = "with mlflow.start_run():\n    for x, y in loader:\n        model(x)"
    assert f"with mlflow.start_run() {ELSE}:" in lines(imports="import mlflow", end=end)[1]


SAVED = "torch.save(model.state_dict(), {})"
KNOWN_TO_ONE = {
    "its folder": SAVED.format("writer.log_dir + '/last.pt'"),
    "what a method of a part of it gives": SAVED.format("os.path.join(writer.file_writer.get_logdir(), 'last.pt')"),
    "a variable": "folder = writer.get_logdir()\n" + SAVED.format("f'{folder}/last.pt'"),
    "what a function gives": "def folder():\n    return writer.log_dir\n" + SAVED.format("folder() + '/last.pt'"),
    "a condition": "if writer.purge_step:\n    model.eval()",
    "a number": "scale = writer.max_queue\nmodel.weight.data.mul_(scale)",
}


@pytest.mark.parametrize("end", KNOWN_TO_ONE.values(), ids=KNOWN_TO_ONE)
def test_what_the_handle_tells_is_known_to_one_process_alone(end: str, lines: Lines) -> None:
    """A path made from the writer's folder would be an error on the others: the writer is left, and reported."""
    _, new, findings = lines(imports=f"{BOARD}\nimport os", built="writer = SummaryWriter()", end=end)
    assert findings == ["once"]
    assert not any("Inert" in line for line in new)


TOLD = {
    "printed": "print(writer.log_dir)",
    "a variable that is printed": "folder = writer.file_writer.get_logdir()\nprint(f'see {folder}')",
    "given to itself": "writer.add_text('folder', writer.get_logdir())",
    "used by itself": "board = writer.file_writer.event_writer\nboard.flush()",
    "given back to nobody": "def close():\n    return writer.close()\nclose()",
    "in a write of the main process": "np.save(writer.log_dir + '/a.npy', [1])",
}


@pytest.mark.parametrize("end", TOLD.values(), ids=TOLD)
def test_what_only_the_main_process_reads_it_may_read(end: str, lines: Lines) -> None:
    _, new, findings = lines(imports=f"{BOARD}\nimport numpy as np", built="writer = SummaryWriter()", end=end)
    assert findings == []
    assert f"writer = SummaryWriter() {ELSE}" in new


LEFT = {
    "options behind stars": ("import wandb", "wandb.init(**options)"),
    "used at once": (BOARD, "SummaryWriter().add_text('a', 'b')"),
    "a sweep": ("import wandb", "wandb.agent('id', function=print)"),
}


@pytest.mark.parametrize(("imports", "built"), LEFT.values(), ids=LEFT)
def test_left_and_reported(imports: str, built: str, lines: Lines) -> None:
    assert lines(imports=imports, built=built) == ([], [], ["once"])


def test_accelerate_has_no_inert_handle(lines: Lines) -> None:
    _, new, findings = lines(imports=BOARD, built="writer = SummaryWriter()", options={"target": Target.ACCELERATE})
    assert findings == ["once"]
    assert not any("SummaryWriter" in line for line in new)


OWN = """
class Board(SummaryWriter):
    def __init__(self, folder):
        super().__init__(folder)
        self.scale = {scale}

    def note(self, value, step):
        self.add_scalar('value', value, step)
        return value

class Wide(Board):
    pass

board = {made}
"""


def of_own(lines: Lines, made: str = "Board('runs')", scale: str = "2.0", **parts: Any) -> tuple[list[str], list[str]]:
    _, new, findings = lines(imports=BOARD, top=OWN.format(made=made, scale=scale), **parts)
    return [line for line in new if "Inert()" in line], findings


@pytest.mark.hazard("G7")
@pytest.mark.parametrize("made", ["Board('runs')", "Wide('runs')"])
def test_a_tracker_of_a_class_of_ones_own(made: str, lines: Lines) -> None:
    assert of_own(lines, made, step="        board.note(loss.item(), epoch)") == ([f"board = {made} {ELSE}"], [])


OF_A_DATA_CLASS = """
from dataclasses import dataclass

@dataclass
class Board:
    folder: str

    def __post_init__(self):
        self.writer = SummaryWriter(self.folder)

    def note(self, value, step):
        self.writer.add_scalar('value', value, step)

board = Board('runs')
"""


def test_a_tracker_that_a_data_class_makes(lines: Lines) -> None:
    """What runs after its own constructor runs on every process as that does."""
    step = "        board.note(loss.item(), epoch)"
    _, new, findings = lines(imports=BOARD, top=OF_A_DATA_CLASS, step=step)
    assert "        self.writer = SummaryWriter(self.folder) if accelerator.is_main_process else Inert()" in new
    assert findings == []


OF_ALL: dict[str, dict[str, str]] = {
    "what it gives back is used": {"end": "if board.note(1.0, 1) > 0.5:\n    model.eval()"},
    "what it keeps is used": {"end": "weight = model.weight * board.scale"},
    "it draws numbers": {"scale": "torch.rand(1)"},
}


@pytest.mark.parametrize("parts", OF_ALL.values(), ids=OF_ALL)
def test_one_of_ones_own_that_all_processes_need_is_named(parts: dict[str, str], lines: Lines) -> None:
    assert of_own(lines, **parts) == ([], ["once"])


def test_one_of_ones_own_that_runs_the_model_is_named(lines: Lines) -> None:
    scale = "2.0\n\n    def show(self, model, x):\n        self.add_image('x', model(x))"
    assert of_own(lines, scale=scale, epoch="    board.show(model, x)") == ([], ["once"])


OWN_CLASSES: dict[str, tuple[str, str, str]] = {
    "a log file": (
        "import logging",
        "class Lines(logging.FileHandler):\n    pass\n\nlines = Lines('a.log')",
        "lines = Lines('a.log') if accelerator.is_main_process else logging.NullHandler()",
    ),
    "a table": (
        "import pandas as pd",
        "class Table(pd.DataFrame):\n    pass\n\ntable = Table([1])\ntable.to_pickle('a.pkl')",
        "    table.to_pickle('a.pkl')",
    ),
    "a bar": (
        "from tqdm import tqdm",
        "class Bar(tqdm):\n    pass\n\nbar = Bar(range(3))",
        "bar = Bar(range(3), disable=not accelerator.is_local_main_process)",
    ),
}


@pytest.mark.parametrize(("imports", "top", "expected"), OWN_CLASSES.values(), ids=OWN_CLASSES)
def test_a_class_of_ones_own_is_what_its_base_is(imports: str, top: str, expected: str, lines: Lines) -> None:
    _, new, findings = lines(imports=imports, top=top)
    assert expected in new and findings == []
