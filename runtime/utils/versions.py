"""Names that scripts import from here."""

from ..compat.packages import compare_versions as compare_versions
from ..compat.packages import is_torch_version as is_torch_version
