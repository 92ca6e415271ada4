"""Names that scripts import from here."""

from .checkpoint.weights import load_checkpoint_in_model as load_checkpoint_in_model
from .compat.unsupported import absent as __getattr__  # noqa: F401
from .device.empty import init_empty_weights as init_empty_weights
from .device.empty import init_on_device as init_on_device
