"""
What Accelerate has and this version has not: other engines.

Scripts can import the names; using one says that it is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ..errors import NotAvailableYet

_ARGUMENTS = ("deepspeed_plugin torch_tp_plugin megatron_lm_plugin deepspeed_plugins").split()


class Later:
    """
    A class that is not there yet.

    Raises:
        NotAvailableYet: it is called.
    """

    instead = "Leave it out: models are replicated on all processes."
    """What to do."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotAvailableYet(f"{cls.__name__}(...)", cls.instead)


class DeepSpeedPlugin(Later):
    """Settings of DeepSpeed."""


class DeepSpeedSequenceParallelConfig(Later):
    """Settings of sequences that are shared out by DeepSpeed."""


class MegatronLMPlugin(Later):
    """Settings of Megatron-LM."""


class TorchTensorParallelPlugin(Later):
    """Settings of tensors that are shared out."""


class BnbQuantizationConfig(Later):
    """Settings of weights in few bits."""


def refuse_arguments(arguments: dict[str, Any]) -> None:
    """
    Look for arguments of an accelerator that ask for what is not there.

    Raises:
        NotAvailableYet: one of them does.
    """
    for name in _ARGUMENTS:
        if arguments[name]:
            raise NotAvailableYet(f"Accelerator({name}=...)", "Leave it out.")


class ComesLater:
    """Methods of `Accelerator` for other engines and for meshes."""

    @contextmanager
    def maybe_context_parallel(
        self, buffers: Any = None, buffer_seq_dims: Any = None, no_restore_buffers: Any = None
    ) -> Iterator[None]:
        """Share out sequences where a mesh says so. There are no meshes yet: the body runs as it is."""
        yield

    def lomo_backward(self, loss: Any, learning_rate: float) -> NoReturn:
        """Not there yet: raises NotAvailableYet."""
        raise NotAvailableYet("lomo_backward", "Use accelerator.backward and another optimizer.")

    def deepspeed_ulysses_dl_adapter(self, dl: Any, model: Any) -> NoReturn:
        """Not there yet: raises NotAvailableYet."""
        raise NotAvailableYet("deepspeed_ulysses_dl_adapter", "Leave it out.")

    @property
    def tensor_parallel_rank(self) -> int:
        """The place of this process in a mesh: there is none, and it raises NotAvailableYet (a RuntimeError)."""
        raise _no_mesh("tensor_parallel_rank")

    @property
    def data_parallel_rank(self) -> int:
        """The place of this process in a mesh: there is none, and it raises NotAvailableYet (a RuntimeError)."""
        raise _no_mesh("data_parallel_rank")

    @property
    def data_parallel_shard_rank(self) -> int:
        """The place of this process in a mesh: there is none, and it raises NotAvailableYet (a RuntimeError)."""
        raise _no_mesh("data_parallel_shard_rank")

    @property
    def pipeline_parallel_rank(self) -> int:
        """The place of this process in a mesh: there is none, and it raises NotAvailableYet (a RuntimeError)."""
        raise _no_mesh("pipeline_parallel_rank")

    @property
    def context_parallel_rank(self) -> int:
        """The place of this process in a mesh: there is none, and it raises NotAvailableYet (a RuntimeError)."""
        raise _no_mesh("context_parallel_rank")


def _no_mesh(name: str) -> NotAvailableYet:
    return NotAvailableYet(f"a mesh, and with it Accelerator.{name},", "Ask for process_index.")
