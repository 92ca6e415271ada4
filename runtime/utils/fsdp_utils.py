"""Names that scripts import from here."""

from ..compat.checkpoint import merge_fsdp_weights as merge_fsdp_weights
from ..compat.unsupported import absent as __getattr__  # noqa: F401
from ..config.variables import disable_fsdp_ram_efficient_loading as disable_fsdp_ram_efficient_loading
from ..config.variables import enable_fsdp_ram_efficient_loading as enable_fsdp_ram_efficient_loading
