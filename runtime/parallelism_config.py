"""Names that scripts import from here."""

from .compat.plugins import ParallelismConfig as ParallelismConfig
