"""Names that scripts import from here."""

from .config.parallelism import ParallelismConfig as ParallelismConfig
