"""Names that scripts import from here."""

from .gradients.named import AcceleratedScheduler as AcceleratedScheduler
