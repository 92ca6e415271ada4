"""Roles: what a value is for, and the evidence for that decision."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import libcst as cst


class Role(str, Enum):
    """What a value is for in a training program."""

    MODEL = "model"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    LOADER = "loader"
    DATASET = "dataset"
    CRITERION = "criterion"
    SCALER = "scaler"
    DEVICE = "device"
    PARAMETERS = "parameters"
    """What ``model.parameters()`` gives, also inside lists, chains and parameter groups."""
    STATE = "state"
    """A state dict of a model, an optimizer or a scheduler."""
    CHECKPOINT = "checkpoint"
    """What ``torch.load`` returned."""
    BATCH = "batch"
    """A tensor of one batch of a loader, or one computed from it by torch on the batch's device."""
    OUTPUT = "output"
    """What a model's forward returned, or a tensor computed from it."""
    LOSS = "loss"
    LOCAL = "local"
    """A Python or NumPy value computed from one process's shard of the data."""
    ACCELERATOR = "accelerator"
    PLACE = "place"
    """The number of a process, or how many there are: ``dist.get_rank()``, ``os.environ["WORLD_SIZE"]``."""


TENSORS = frozenset({Role.BATCH, Role.OUTPUT, Role.LOSS})
"""Roles of tensors that hold one process's shard of the data."""

SHARES = TENSORS | {Role.LOCAL}
"""Roles of everything that may differ from process to process."""


@dataclass(frozen=True, eq=False)
class Origin:
    """One thing that the program creates, at one place. Two names that hold the same origin hold the same thing."""

    role: Role
    node: cst.CSTNode
    """The expression that creates it, or the parameter through which it arrives."""
    because: str
    """The evidence, as a phrase: ``constructed by torch.optim.SGD``."""
    qualified: str = ""
    """The full name of what constructed it, if that is known."""
    source: Origin | None = None
    """For a batch its loader, for an output its model, for a local value the tensor that it was computed from."""
    site: cst.CSTNode | None = None
    """The call of the function that creates it, where the program has several such calls: each gives another one."""

    @property
    def place(self) -> cst.CSTNode:
        """Where the program gets it: the expression that creates it, or the call of the function around that."""
        return self.site or self.node
