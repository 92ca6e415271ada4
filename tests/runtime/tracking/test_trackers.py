"""Trackers: ours, foreign ones through stand-ins, and those of users."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from torchlift.runtime import Accelerator, ProjectConfiguration
from torchlift.runtime.errors import MissingPackageError, TrackerError, UnknownWordError
from torchlift.runtime.tracking import (
    LOGGER_TYPE_TO_CLASS,
    GeneralTracker,
    JSONLinesTracker,
    on_main_process,
    register_tracker_class,
)
from torchlift.runtime.types import LoggerType

CONFIG = {"lr": 0.1, "name": "a"}
VALUES = {"loss": torch.tensor(0.5), "note": "good"}


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    before = dict(LOGGER_TYPE_TO_CLASS)
    yield
    LOGGER_TYPE_TO_CLASS.clear()
    LOGGER_TYPE_TO_CLASS.update(before)


@pytest.fixture
def stand_in(monkeypatch):
    """Puts a stand-in for a package where imports find it."""

    def put(package, *inner):
        module = MagicMock(name=package)
        monkeypatch.setitem(sys.modules, package, module)
        for name in inner:
            monkeypatch.setitem(sys.modules, f"{package}.{name}", getattr(module, name))
        return module

    return put


def run(name, folder, **init):
    accelerator = Accelerator(log_with=name, project_dir=folder)
    accelerator.init_trackers("project", CONFIG, {name: init})
    accelerator.log(VALUES, step=3)
    tracker = accelerator.get_tracker(name)
    accelerator.end_training()
    return tracker


def test_json_lines(tmp_path):
    accelerator = Accelerator(log_with=LoggerType.JSONL, project_config=ProjectConfiguration(logging_dir=tmp_path))
    accelerator.init_trackers("project", {"lr": 0.1, "where": tmp_path})
    accelerator.log(VALUES, step=1)
    accelerator.log({"matrix": torch.eye(2)}, log_kwargs={"jsonl": {"split": "test"}})
    file = accelerator.get_tracker("jsonl", unwrap=True)
    assert file == tmp_path / "project" / "metrics.jsonl"
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["step"], first["loss"], first["note"]) == (1, 0.5, "good")
    assert (second["step"], second["matrix"], second["split"]) == (None, [[1, 0], [0, 1]], "test")
    assert json.loads((tmp_path / "project" / "config.json").read_text()) == {"lr": 0.1, "where": str(tmp_path)}
    accelerator.end_training()
    run("jsonl", tmp_path)
    assert len(file.read_text().splitlines()) == 3, "a run that goes on keeps what was there"


def test_tensorboard(stand_in, monkeypatch, tmp_path):
    stand_in("tensorboard")
    writers = stand_in("torch.utils.tensorboard")
    tracker = run("tensorboard", tmp_path, flush_secs=5)
    writers.SummaryWriter.assert_called_once_with(str(tmp_path / "project"), flush_secs=5)
    writer = tracker.tracker
    writer.add_hparams.assert_called_once_with(CONFIG, metric_dict={})
    writer.add_scalar.assert_called_once_with("loss", 0.5, global_step=3)
    writer.add_text.assert_called_once_with("note", "good", global_step=3)
    writer.close.assert_called_once()
    assert (next((tmp_path / "project").glob("*/hparams.yml"))).read_text() == "lr: 0.1\nname: a\n"
    tracker.log_images({"x": "images"}, step=1)
    writer.add_images.assert_called_once_with("x", "images", global_step=1)


@pytest.mark.parametrize("name", ["wandb", "trackio", "swanlab"])
def test_trackers_with_runs(stand_in, tmp_path, name):
    module = stand_in(name)
    tracker = run(name, tmp_path, tags=["x"])
    module.init.assert_called_once_with(project="project", tags=["x"])
    more = {} if name == "trackio" else {"allow_val_change": True}
    module.config.update.assert_called_once_with(CONFIG, **more)
    tracker.tracker.log.assert_called_once_with({"loss": 0.5, "note": "good"}, step=3)
    tracker.tracker.finish.assert_called_once()


def test_wandb_images_and_tables(stand_in, tmp_path):
    module = stand_in("wandb")
    tracker = run("wandb", tmp_path)
    tracker.log_images({"x": ["one"]}, step=1)
    tracker.log_table("t", columns=["a"], data=[[1]])
    module.Image.assert_called_once_with("one")
    module.Table.assert_called_once_with(columns=["a"], data=[[1]], dataframe=None)


def test_comet(stand_in, tmp_path):
    module = stand_in("comet_ml")
    run("comet_ml", tmp_path, online=False)
    module.start.assert_called_once_with(project_name="project", online=False)
    writer = module.start.return_value
    writer.log_parameters.assert_called_once_with(CONFIG)
    writer.set_step.assert_called_once_with(3)
    writer.log_metric.assert_called_once_with("loss", 0.5, step=3)
    writer.log_other.assert_called_once_with("note", "good")
    writer.end.assert_called_once()


def test_aim(stand_in, tmp_path):
    module = stand_in("aim")
    tracker = run("aim", tmp_path)
    module.Run.assert_called_once_with(repo=tmp_path)
    writer = module.Run.return_value
    writer.track.assert_any_call(0.5, name="loss", step=3)
    writer.__setitem__.assert_called_once_with("hparams", CONFIG)
    tracker.log_images({"x": ("picture", "words")})
    module.Image.assert_called_once_with("picture", caption="words")


def test_mlflow(stand_in, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_TAGS", '{"a": 1}')
    module = stand_in("mlflow")
    module.search_experiments.return_value = []
    module.utils.validation.MAX_PARAM_VAL_LENGTH = 3
    module.utils.validation.MAX_PARAMS_TAGS_PER_BATCH = 1
    accelerator = Accelerator(log_with="mlflow")
    config = {"lr": 0.1, "long": "abcd", "n": 1}
    accelerator.init_trackers("project", config)
    accelerator.log(VALUES, step=3, log_kwargs={"mlflow": {"synchronous": True}})
    accelerator.end_training()
    module.create_experiment.assert_called_once_with(name="project", artifact_location=None, tags={"a": 1})
    assert [call.args[0] for call in module.log_params.call_args_list] == [{"lr": 0.1}, {"n": 1}]
    assert config == {"lr": 0.1, "long": "abcd", "n": 1}
    module.log_metrics.assert_called_once_with({"loss": 0.5}, step=3, synchronous=True)
    assert "['note']" in caplog.text
    module.end_run.assert_called_once()


def test_clearml(stand_in, tmp_path):
    module = stand_in("clearml")
    module.Task.current_task.return_value = None
    accelerator = Accelerator(log_with="clearml")
    accelerator.init_trackers("project", CONFIG)
    accelerator.log({"eval_loss": 1.0, "x": 2}, step=1)
    accelerator.log({"best": 3})
    accelerator.end_training()
    module.Task.init.assert_called_once_with(project_name="project", task_name="project")
    logger = module.Task.init.return_value.get_logger.return_value
    logger.report_scalar.assert_any_call(title="loss", series="eval", value=1.0, iteration=1)
    logger.report_scalar.assert_any_call(title="x", series="train", value=2, iteration=1)
    logger.report_single_value.assert_called_once_with(name="best", value=3)
    module.Task.init.return_value.close.assert_called_once()


def test_a_task_of_the_script_stays_open(stand_in, tmp_path):
    module = stand_in("clearml")
    run("clearml", tmp_path)
    module.Task.init.assert_not_called()
    module.Task.current_task.return_value.close.assert_not_called()


def test_dvclive(stand_in, tmp_path):
    module = stand_in("dvclive", "plots")
    module.plots.Metric.could_log.side_effect = lambda value: isinstance(value, float)
    run("dvclive", tmp_path, dir="d")
    module.Live.assert_called_once_with(dir="d")
    live = module.Live.return_value
    assert live.step == 3
    live.log_metric.assert_called_once_with("loss", 0.5)
    live.next_step.assert_called_once()
    live.end.assert_called_once()


@pytest.mark.parametrize("name", sorted({*LOGGER_TYPE_TO_CLASS} - {"jsonl"}))
def test_a_missing_package_names_the_extra(monkeypatch, tmp_path, name):
    monkeypatch.setattr("torchlift.runtime.available._found", lambda package: False)
    for package in ("tensorboardX", LOGGER_TYPE_TO_CLASS[name].package):
        monkeypatch.delitem(sys.modules, package, raising=False)
    extra = "comet" if name == "comet_ml" else name
    with pytest.raises(MissingPackageError, match=rf'pip install "torchlift\[{extra}\]"'):
        Accelerator(log_with=name, project_dir=tmp_path)
    assert Accelerator(log_with="all", project_dir=tmp_path).log_with == ["jsonl"]
    assert Accelerator(log_with="all").log_with == []


def test_making_a_tracker_imports_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(builtins, "__import__", lambda name, *_: pytest.fail(f"imported {name}"))
    for cls in LOGGER_TYPE_TO_CLASS.values():
        cls("project", tmp_path) if cls.requires_logging_directory else cls("project")


def test_every_extra_is_declared():
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    for cls in LOGGER_TYPE_TO_CLASS.values():
        assert cls.extra is None or f'\n{cls.extra} = ["torchlift[runtime]", ' in project


class Own(GeneralTracker):
    name = "own"
    requires_logging_directory = False

    def __init__(self, run_name="given"):
        super().__init__()
        self.calls = [run_name]

    @property
    def tracker(self):
        return self.calls

    def start(self):
        self.calls.append("start")

    def store_init_configuration(self, values):
        self.calls.append(values)

    def log(self, values, step=None):
        self.calls.append((values, step))

    def finish(self):
        self.calls.append("finish")


def test_a_tracker_of_the_user_as_an_object():
    own = Own()
    accelerator = Accelerator(log_with=[own, own])
    accelerator.init_trackers("project", CONFIG, init_kwargs=None)
    accelerator.log({"a": 1}, step=0, log_kwargs=None)
    assert accelerator.trackers == [own]
    accelerator.end_training()
    assert own.calls == ["given", "start", CONFIG, ({"a": 1}, 0), "finish"]


def test_a_tracker_of_the_user_by_name():
    register_tracker_class(Own)
    with pytest.warns(UserWarning, match="'own' is replaced"):
        register_tracker_class(Own)
    accelerator = Accelerator(log_with="own")
    accelerator.init_trackers("project")
    assert accelerator.get_tracker("own", unwrap=True) == ["project", "start"]


class NoName(GeneralTracker):
    requires_logging_directory = False


class NoFlag(GeneralTracker):
    name = "no_flag"


@pytest.mark.parametrize("bad", [dict, NoName, NoFlag, Own()])
def test_what_is_no_tracker_is_refused(bad):
    with pytest.raises(ValueError):
        register_tracker_class(bad)


def test_what_a_tracker_needs():
    with pytest.raises(NotImplementedError, match="`name`, `tracker`"):
        NoName()
    with pytest.raises(TrackerError, match="Logging with `jsonl` requires a `logging_dir`"):
        Accelerator(log_with="jsonl")
    with pytest.raises(UnknownWordError, match="log_with is 'paper'"):
        Accelerator(log_with="paper")
    accelerator = Accelerator(log_with=Own())
    assert accelerator.get_tracker("own").anything(1) is None, "there is none before init_trackers"
    accelerator.init_trackers("project")
    with pytest.raises(ValueError, match="it has own"):
        accelerator.get_tracker("other")


class Everywhere(Own):
    name = "everywhere"
    main_process_only = False


def test_trackers_run_once_a_job(job_text, tmp_path):
    source = f"""
import json
from torchlift.runtime import Accelerator
from torchlift.runtime.tracking import GeneralTracker, on_main_process

class Everywhere(GeneralTracker):
    name, requires_logging_directory, main_process_only, tracker = "everywhere", False, False, None
    lines = 0
    def log(self, values, step=None): self.lines += 1
    @on_main_process
    def here(self): return True

class Main(Everywhere):
    main_process_only = True

accelerator = Accelerator(log_with=["jsonl", Everywhere()], project_dir={str(tmp_path)!r})
accelerator.init_trackers("project", {{"a": 1}})
accelerator.log({{"rank": accelerator.process_index}}, step=0)
jsonl = accelerator.get_tracker("jsonl")
jsonl.log({{"x": 1}})
jsonl.log_images({{}}) if not accelerator.is_main_process else None
lines = accelerator.get_tracker("everywhere").lines
names = [tracker.name for tracker in accelerator.trackers]
print("RESULT", json.dumps([names, lines, Everywhere().here(), Main().here()]))
accelerator.end_training()
"""
    main, other = job_text(source, 2)
    assert main == [["jsonl", "everywhere"], 1, True, True]
    assert other == [["everywhere"], 1, True, None]
    lines = (tmp_path / "project" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line).get("rank") for line in lines] == [0, None]


def test_a_decorated_method_asks_when_it_is_called():
    class Plain:
        @on_main_process
        def method(self):
            """Kept."""
            return 5

    assert Plain().method() == 5 and Plain.method.__doc__ == "Kept."
    assert JSONLinesTracker("x", ".")._file is None
