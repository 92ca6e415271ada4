"""
The accelerator: its facade, what `prepare` does, and its state under the names of Accelerate.

The settings are here as well because scripts import them from `accelerate.accelerator`.
"""

from ..config.handlers import GradientAccumulationPlugin
from ..config.settings import DataLoaderConfiguration
from .facade import Accelerator

__all__ = ["Accelerator", "DataLoaderConfiguration", "GradientAccumulationPlugin"]
