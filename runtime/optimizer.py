"""Names that scripts import from here."""

from .gradients.named import AcceleratedOptimizer as AcceleratedOptimizer
