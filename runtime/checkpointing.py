"""Names that scripts import from here."""

from .absent import absent as __getattr__  # noqa: F401
