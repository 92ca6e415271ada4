"""Names that scripts import from here."""

from ..checkpoint.shards import convert_file_size_to_int as convert_file_size_to_int
from ..checkpoint.weights import load_checkpoint_in_model as load_checkpoint_in_model
from ..checkpoint.weights import load_state_dict as load_state_dict
from ..compat.modules import compute_module_sizes as compute_module_sizes
from ..compat.modules import dtype_byte_size as dtype_byte_size
from ..compat.modules import find_tied_parameters as find_tied_parameters
from ..compat.modules import has_offloaded_params as has_offloaded_params
from ..compat.modules import id_tensor_storage as id_tensor_storage
from ..compat.modules import is_peft_model as is_peft_model
from ..compat.unsupported import absent as __getattr__  # noqa: F401
from ..device.empty import init_empty_weights as init_empty_weights
