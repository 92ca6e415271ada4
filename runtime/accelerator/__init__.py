"""The accelerator: its facade, what `prepare` does, and its state under the names of Accelerate."""

from .facade import Accelerator

__all__ = ["Accelerator"]
