"""The names of files, in the words that scripts import."""

from .loaders import SAMPLER
from .parts import SCALER
from .shards import PICKLED, SAFE

MODEL_NAME = PICKLED.stem
"""Of the files of weights, without what follows."""
SAFE_MODEL_NAME = SAFE.stem
WEIGHTS_NAME = f"{MODEL_NAME}.bin"
SAFE_WEIGHTS_NAME = f"{SAFE_MODEL_NAME}.safetensors"
WEIGHTS_INDEX_NAME = f"{WEIGHTS_NAME}.index.json"
SAFE_WEIGHTS_INDEX_NAME = f"{SAFE_WEIGHTS_NAME}.index.json"
WEIGHTS_PATTERN_NAME = "pytorch_model{suffix}.bin"
SAFE_WEIGHTS_PATTERN_NAME = "model{suffix}.safetensors"
OPTIMIZER_NAME = "optimizer"
SCHEDULER_NAME = "scheduler"
SAMPLER_NAME = SAMPLER.partition(".")[0]
SCALER_NAME = SCALER
RNG_STATE_NAME = "random_states"
PROFILE_PATTERN_NAME = "profile_{suffix}.json"
TORCH_DYNAMO_MODES = ["default", "reduce-overhead", "max-autotune"]
