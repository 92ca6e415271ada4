"""Optimizers of sharded weights: which cannot be, and what they remember."""

from __future__ import annotations

import logging

import torch

from ..errors import NotAvailableYet
from ..torch_sharding import as_sharded, is_sharded, is_uneven

log = logging.getLogger(__name__)

_WHOLE_TENSORS = {"Adafactor", "Rprop"}
"""Optimizers that need a whole tensor for a step: torch has no sharded form of what they compute."""
_FLAT = {"LBFGS"}
"""Optimizers that make one vector of all weights: torch can do so only where every process has as many rows."""
_OTHER_ROUNDING = {"Muon"}
"""Optimizers whose steps are right, but rounded in another way than on one process."""


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """
    Make sure that an optimizer can step sharded weights.

    Raises:
        NotAvailableYet: it cannot.
    """
    names = {cls.__name__ for cls in type(optimizer).__mro__}
    if names & _FLAT:
        uneven = [one for group in optimizer.param_groups for one in group["params"] if is_uneven(one)]
        if uneven:
            raise NotAvailableYet(
                f"{type(optimizer).__name__} with a sharded weight whose length ({len(uneven[0])}) the number of "
                "processes does not divide",
                "Use another optimizer (AdamW, SGD), or train without sharding.",
            )
    if names & _WHOLE_TENSORS:
        raise NotAvailableYet(
            f"{type(optimizer).__name__} with sharded weights",
            "It needs whole weights: use another optimizer (AdamW, SGD), or train without sharding.",
        )
    if names & _OTHER_ROUNDING:
        log.warning(
            "%s multiplies matrices in low precision: with sharded weights its steps differ slightly from those on one "
            "process (about 1e-3 of a step).",
            type(optimizer).__name__,
        )


def shard_state(optimizer: torch.optim.Optimizer) -> None:
    """
    What an optimizer has remembered of sharded parameters becomes sharded like them. Nothing is exchanged.

    Raises:
        NotAvailableYet: it remembers something that is not of the shape of a parameter.
    """
    for parameter, state in optimizer.state.items():
        if not is_sharded(parameter):
            continue
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() and not is_sharded(value):
                if value.shape != parameter.shape:
                    raise NotAvailableYet(
                        f"the state of {type(optimizer).__name__} under sharding ({key!r} has the shape "
                        f"{list(value.shape)}, its weight {list(parameter.shape)})",
                        "Load it before anything is sharded, or use another optimizer.",
                    )
                state[key] = as_sharded(value, parameter).clone()  # the whole one is given back
            elif isinstance(value, (list, dict)) and value:
                raise NotAvailableYet(
                    f"a state of {type(optimizer).__name__} from before under sharding ({key!r} is a "
                    f"{type(value).__name__})",
                    "Prepare the model before the first step.",
                )
