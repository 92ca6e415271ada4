"""How weights are sharded: the settings of `Accelerator(fsdp_plugin=...)`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(kw_only=True)
class FullyShardedDataParallelPlugin:
    """Every process keeps a part of each weight, of its gradient and of the optimizer's state."""

    fsdp_version: int = 2
    """2: torch's `fully_shard`."""
    reshard_after_forward: bool | int = True
    """Give weights back between forward and backward."""
    mixed_precision_policy: Any = None
    """A `torch.distributed.fsdp.MixedPrecisionPolicy`; None: what `mixed_precision` says, gradients added in fp32."""
    auto_wrap_policy: Any = None
    """Unused here."""
    transformer_cls_names_to_wrap: list[str] | None = None
    """The classes of the modules whose weights are gathered together."""
    min_num_params: int | None = None
    """Modules of so many parameters are gathered together."""
    cpu_offload: bool | Any = False
    """Keep weights, gradients and the optimizer's state on the CPU."""
    activation_checkpointing: bool = False
    """Compute activations again in the backward pass."""
    cpu_ram_efficient_loading: bool = False
    """Only rank 0 has weights when a model is prepared."""
    state_dict_type: str = "FULL_STATE_DICT"
    """How `save_state` writes weights."""
    ignored_modules: Iterable[nn.Module] | None = None
    """Modules whose weights every process keeps whole."""

    def units(self, model: nn.Module) -> list[nn.Module]:
        """The modules whose weights are gathered together, innermost first."""
        names = set(self.transformer_cls_names_to_wrap or getattr(model, "_no_split_modules", None) or ())
        found = [part for part in model.modules() if part is not model and type(part).__name__ in names]
        if not names and self.min_num_params:
            least = self.min_num_params
            found = [
                part
                for part in model.modules()
                if part is not model and sum(one.numel() for one in part.parameters()) >= least
            ]
        return found[::-1]
