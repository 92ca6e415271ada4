"""Names that scripts import from here."""

from ..compat.packages import torchao_required as torchao_required
from ..compat.unsupported import absent as __getattr__  # noqa: F401
from ..strategies.eight_bits import convert_model_to_fp8_ao as convert_model_to_fp8_ao
from ..strategies.eight_bits import filter_first_and_last_linear_layers as filter_first_and_last_linear_layers
from ..strategies.eight_bits import filter_linear_layers as filter_linear_layers
from ..strategies.eight_bits import find_first_last_linear_layers as find_first_last_linear_layers
from ..strategies.eight_bits import has_ao_layers as has_ao_layers
