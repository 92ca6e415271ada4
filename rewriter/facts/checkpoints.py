"""What is known of saves and loads of weights."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst


class Save(NamedTuple):
    """A ``torch.save``."""

    call: cst.Call
    whole: bool
    """A model object is saved, not its state dict."""
    because: str


class StateDict(NamedTuple):
    """A ``model.state_dict()`` of a prepared model that ends up in a file."""

    call: cst.Call
    model: cst.BaseExpression


class Load(NamedTuple):
    """A ``torch.load`` of a file."""

    call: cst.Call
    needs_map: bool
    """It has no ``map_location``: every process would load to the device of the process that saved."""
    waits_before: cst.CSTNode | None
    """The statement before which all processes must wait, because this run wrote the file, or may have."""
    because: str
    on_host: bool = False
    """It is loaded to the CPU: a data set, whose batches are moved when a loader yields them, or weights that are
    copied to where the model is."""
    copied: bool = False
    """Only ``load_state_dict`` takes what is loaded, and copies it to where the model is."""
    written: bool = False
    """This run writes to the very same path; of another one only a run tells whether it is the same."""

    @property
    def needed(self) -> bool:
        """It cannot be written without the accelerator."""
        return self.waits_before is not None or (self.needs_map and not self.on_host)

    @property
    def brings(self) -> bool:
        """It is a reason to bring the accelerator: not for weights that are copied, which can come by the CPU."""
        return self.waits_before is not None or (self.needed and not self.copied)

    @property
    def only_waits(self) -> bool:
        """All that it needs is that the processes wait."""
        return self.waits_before is not None and not (self.needs_map and not self.on_host)


class Wait(NamedTuple):
    """Where all processes wait for each other."""

    node: cst.CSTNode
    """The statement before which they do."""
    because: str
