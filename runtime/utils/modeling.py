"""Names that scripts import from here."""

from ..absent import absent as __getattr__  # noqa: F401
from ..checkpoint.shards import convert_file_size_to_int as convert_file_size_to_int
from ..checkpoint.weights import load_checkpoint_in_model as load_checkpoint_in_model
from ..checkpoint.weights import load_state_dict as load_state_dict
from ..device.empty import init_empty_weights as init_empty_weights
from ..figures import compute_module_sizes as compute_module_sizes
from ..figures import dtype_byte_size as dtype_byte_size
from ..figures import find_tied_parameters as find_tied_parameters
from ..figures import has_offloaded_params as has_offloaded_params
from ..figures import id_tensor_storage as id_tensor_storage
from ..figures import is_peft_model as is_peft_model
