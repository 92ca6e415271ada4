"""How scripts spell devices, the number of a GPU and their own names, which have no name in an API."""

from __future__ import annotations

DEVICE_WORDS = frozenset({"cpu", "cuda", "mps", "xpu", "npu", "hpu"})

GPU_NUMBERS = frozenset(
    "gpu gpu_id gpuid gpu_idx gpu_num gpu_number cuda_id cuda_idx cuda_device cuda_num device_id device_idx device_num "
    "device dev local_rank".split()
)
"""How scripts call the number of a GPU."""

WITHOUT_CUDA = frozenset(
    "is_available device_count is_initialized is_bf16_supported manual_seed manual_seed_all empty_cache".split()
)
"""Functions of `torch.cuda` that answer, or do nothing, where there is no CUDA."""

OWN_NAMES = frozenset({"globals", "locals", "vars"})
"""Builtins that, called without an argument, give the names of a file or a function with what they hold."""
