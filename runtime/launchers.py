"""Names that scripts import from here."""

from .compat.unsupported import absent as __getattr__  # noqa: F401
from .launch.notebook import debug_launcher as debug_launcher
from .launch.notebook import notebook_launcher as notebook_launcher
