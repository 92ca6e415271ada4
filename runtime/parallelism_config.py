"""Names that scripts import from here."""

from .later import ParallelismConfig as ParallelismConfig
