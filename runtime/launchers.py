"""Names that scripts import from here."""

from .launch.notebook import debug_launcher as debug_launcher
from .launch.notebook import notebook_launcher as notebook_launcher
