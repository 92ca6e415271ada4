"""Saving and loading for scripts without an accelerator at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..checkpoint.merge import merge
from ..checkpoint.reading import read
from ..checkpoint.save import save_whole
from ..checkpoint.weights import load_state_dict
from ..process.state import PartialState


def save(obj: Any, f: Any, save_on_each_node: bool = False, safe_serialization: bool = False) -> None:
    """
    Save on the main process of the job (or of every machine); a path is there whole or not at all.

    Args:
        obj: what to save; a state dict for `safe_serialization`.
        f: a path, or an open binary file.
        save_on_each_node: on the first process of every machine.
        safe_serialization: as safetensors.
    """
    state = PartialState()
    if state.is_local_main_process if save_on_each_node else state.is_main_process:
        save_whole(obj, f, safe_serialization)


def merge_fsdp_weights(
    checkpoint_dir: str | Path,
    output_path: str | Path,
    safe_serialization: bool = True,
    remove_checkpoint_dir: bool = False,
) -> None:
    """
    Join the weights of a sharded checkpoint, on the main process; the others wait.

    Args:
        checkpoint_dir: the folder of `torch.distributed.checkpoint`.
        output_path: a folder, for `model.safetensors` or `pytorch_model.bin` in it.
        safe_serialization: write safetensors.
        remove_checkpoint_dir: remove the folder in the end.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
    """
    state = PartialState()
    try:
        if state.is_main_process:
            merge(Path(checkpoint_dir), Path(output_path), safe_serialization, remove=remove_checkpoint_dir)
    finally:
        state.wait_for_everyone()


def load(f: Any, map_location: Any = None, **kwargs: Any) -> Any:
    """
    Load what `save` has saved, without running any code that is in it.

    Raises:
        CheckpointError: it is damaged, or holds objects that only code could rebuild.
    """
    if isinstance(f, (str, Path)) and str(f).endswith(".safetensors"):
        return load_state_dict(f, {"": map_location or "cpu"})
    if isinstance(f, (str, Path)):
        return read(Path(f), map_location, **kwargs)
    return torch.load(f, map_location=map_location, weights_only=True, **kwargs)
