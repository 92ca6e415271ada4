"""Experiment trackers, and what else has one writer: what starts one, or writes to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..loading import Table

ROWS: Table = {
    # made inert by an argument
    "wandb.init": ("tracker", {"off": 'mode="disabled"'}),
    "swanlab.init": ("tracker", {"off": 'mode="disabled"'}),
    "comet_ml.Experiment": ("tracker", {"off": "disabled=True"}),
    "comet_ml.OfflineExperiment": ("tracker", {"off": "disabled=True"}),
    "comet_ml.ExistingExperiment": ("tracker", {"off": "disabled=True"}),
    # the whole call gives way on the other processes
    "tensorboardX.SummaryWriter": ("tracker", {"folder": True}),
    "tensorboardX.writer.SummaryWriter": ("tracker", {"folder": True}),
    "*.SummaryWriter": ("tracker", {"folder": True}),  # of whatever package: all of them have it from TensorBoard
    "tensorboard_logger.Logger": ("tracker", {}),
    "tensorflow.summary.FileWriter": ("tracker", {"folder": True}),
    "tensorflow.compat.v1.summary.FileWriter": ("tracker", {"folder": True}),
    "tensorflow.summary.create_file_writer": ("tracker", {"folder": True}),
    "neptune.init": ("tracker", {}),
    "neptune.init_run": ("tracker", {}),
    "neptune.new.init": ("tracker", {}),
    "neptune.new.init_run": ("tracker", {}),
    "aim.Run": ("tracker", {}),
    "clearml.Task.init": ("tracker", {}),
    "visdom.Visdom": ("tracker", {}),
    "dvclive.Live": ("tracker", {}),
    "comet_ml.start": ("tracker", {}),
    "mlflow.start_run": ("tracker", {}),
    "trackio.init": ("tracker", {}),
    # what writes a film, frame by frame
    "cv2.VideoWriter": ("tracker", {"file": True}),
    "imageio.get_writer": ("tracker", {"file": True}),
    "imageio.v2.get_writer": ("tracker", {"file": True}),
    "skvideo.io.FFmpegWriter": ("tracker", {"file": True}),
    # calls that write by themselves
    "wandb.login": ("write", {"how": "settings"}),
    "tensorboard_logger.configure": ("write", {}),
    "tensorboard_logger.log_value": ("write", {}),
    "mlflow.*log_*": ("write", {}),
    "mlflow.*autolog": ("write", {"how": "settings"}),
    "mlflow.set_tag*": ("write", {}),
    "mlflow.set_experiment": ("write", {"how": "settings"}),
    "mlflow.end_run": ("write", {}),
    "mlflow.register_model": ("write", {}),
    "wandb.watch": ("opaque", {"why": "it looks at a model"}),
}
