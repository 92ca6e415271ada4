"""Names that scripts import from here."""

from ..packages import compare_versions as compare_versions
from ..packages import is_torch_version as is_torch_version
