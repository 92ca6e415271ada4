"""Names that scripts import from here."""

from ..compat.unsupported import absent as __getattr__  # noqa: F401
