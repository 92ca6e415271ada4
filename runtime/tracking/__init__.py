"""Trackers of experiments: what a run logs, once a job."""

from ..types import LoggerType as LoggerType
from .base import GeneralTracker as GeneralTracker
from .base import on_main_process as on_main_process
from .experiments import AimTracker as AimTracker
from .experiments import CometMLTracker as CometMLTracker
from .experiments import MLflowTracker as MLflowTracker
from .inert import Inert as Inert
from .json_lines import JSONLinesTracker as JSONLinesTracker
from .registry import LOGGER_TYPE_TO_CLASS as LOGGER_TYPE_TO_CLASS
from .registry import filter_trackers as filter_trackers
from .registry import get_available_trackers as get_available_trackers
from .registry import register_tracker_class as register_tracker_class
from .runs import SwanLabTracker as SwanLabTracker
from .runs import TrackioTracker as TrackioTracker
from .runs import WandBTracker as WandBTracker
from .tasks import ClearMLTracker as ClearMLTracker
from .tasks import DVCLiveTracker as DVCLiveTracker
from .tensorboard import TensorBoardTracker as TensorBoardTracker
