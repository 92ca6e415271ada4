"""The words for what does not work with sharded weights."""

from __future__ import annotations

from ..facts.reasons.sharding import OfShardedWeights, OnShards
from ..findings import Finding, Severity
from .registry import worded


@worded.register(OfShardedWeights)
def _of_sharded_weights(found: OfShardedWeights) -> Finding:
    message, remedy = _WORDS[found.what]
    told = message.format(text=found.text, other=found.other)
    return Finding("sharded-weights", found.node, told, remedy, Severity.REVIEW)


_STATE = "take it from accelerator.get_state_dict(model), on all processes: the main process then has the whole weight"
_WORDS = {
    OnShards.JOINED_WEIGHTS: (
        "`{text}` joins weights in one vector: with sharded weights this raises an error, unless the first "
        "dimension of each is a multiple of the number of processes",
        "work on the parameters one by one, or do this before accelerator.prepare",
    ),
    OnShards.COPIED_MODEL: (
        "`{text}` copies a model after it is prepared, which raises an error with sharded weights",
        "copy the model before accelerator.prepare, and prepare the copy, too; for a copy of its weights alone "
        "use accelerator.get_state_dict(model)",
    ),
    OnShards.SAVED_OBJECT: (
        "`{text}` is saved as an object, which raises an error with sharded weights: each process has a part of them",
        "save its state dict: accelerator.save(accelerator.get_state_dict(model), path)",
    ),
    OnShards.FOLLOWED_MODEL: (
        "`{text}` follows a model, or stores it as an object, which raises an error with sharded weights",
        "do this before accelerator.prepare, or with a plain model that loads accelerator.get_state_dict(model)",
    ),
    OnShards.PYTHON_NUMBERS: (
        "`{text}` raises an error with sharded weights",
        _STATE,
    ),
    OnShards.HANDED_WEIGHT: (
        "`{text}` is handed the weight `{other}`, and reads its numbers: with sharded weights this raises an error",
        _STATE,
    ),
    OnShards.WHOLE_TENSOR: (
        "`{text}` copies a tensor that each process has whole into a sharded weight, which raises an error",
        "set weights with model.load_state_dict(...), or before accelerator.prepare",
    ),
    OnShards.CALLED_PART: (
        "`{text}` is a part of a model, called by itself: sharded weights are gathered by calls of the model, and "
        "of the modules that FSDP has as units of their own. Any other part raises an error",
        "call it from a method of the model, or name its class: --fsdp-transformer-layer-cls-to-wrap",
    ),
    OnShards.WHOLE_WEIGHTS: (
        "{text} needs each weight as a whole, and does not work with sharded weights",
        "use another optimizer, such as torch.optim.AdamW",
    ),
    OnShards.OWN_OPTIMIZER: (
        "`{text}` is an optimizer of this program: with sharded weights its step sees tensors of which each "
        "process has a part. Arithmetic element by element is right; reshaping, indexing and states that are made "
        "from a shape alone can raise errors",
        "make states with torch.zeros_like(p), and compare the losses of a few steps with those of one process",
    ),
    OnShards.MIXED_WEIGHTS: (
        "`{text}` are whole on each process, and the weights beside them are sharded: arithmetic between the two "
        "raises an error",
        "prepare that model, too, right after the other: model = accelerator.prepare(model) shards both alike",
    ),
    OnShards.WRITTEN_PART: (
        "`{text}` writes to a part of a weight, which raises an error with sharded weights",
        "do this in the forward pass of the model, or before accelerator.prepare",
    ),
    OnShards.READ_PART: (
        "`{text}` reads a part of a weight: with sharded weights all processes must come here, and the result "
        "cannot be combined with plain tensors",
        _STATE,
    ),
    OnShards.SHARED_PARAMETER: (
        "`{text}` becomes the same parameter as `{other}` after the model is prepared, which raises an error with "
        "sharded weights",
        "share the parameter before accelerator.prepare",
    ),
    OnShards.WEIGHT_PENALTY: (
        "this loss has a term of the weights themselves. With sharded weights it cannot be added to the loss of "
        "the batch: the backward pass raises an error",
        "for a squared norm use the optimizer's weight_decay; any other term can be a loss of its own, with a "
        "backward pass of its own",
    ),
}
