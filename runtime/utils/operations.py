"""Names that scripts import from here."""

from ..compat.operations import CannotPadNestedTensorWarning as CannotPadNestedTensorWarning
from ..compat.operations import broadcast as broadcast
from ..compat.operations import broadcast_object_list as broadcast_object_list
from ..compat.operations import copy_tensor_to_devices as copy_tensor_to_devices
from ..compat.operations import gather as gather
from ..compat.operations import gather_object as gather_object
from ..compat.operations import pad_across_processes as pad_across_processes
from ..compat.operations import reduce as reduce
from ..compat.tree_operations import TensorInformation as TensorInformation
from ..compat.tree_operations import concatenate as concatenate
from ..compat.tree_operations import convert_outputs_to_fp32 as convert_outputs_to_fp32
from ..compat.tree_operations import convert_to_fp32 as convert_to_fp32
from ..compat.tree_operations import find_batch_size as find_batch_size
from ..compat.tree_operations import find_device as find_device
from ..compat.tree_operations import get_data_structure as get_data_structure
from ..compat.tree_operations import get_shape as get_shape
from ..compat.tree_operations import honor_type as honor_type
from ..compat.tree_operations import ignorant_find_batch_size as ignorant_find_batch_size
from ..compat.tree_operations import initialize_tensors as initialize_tensors
from ..compat.tree_operations import is_namedtuple as is_namedtuple
from ..compat.tree_operations import is_tensor_information as is_tensor_information
from ..compat.tree_operations import is_torch_tensor as is_torch_tensor
from ..compat.tree_operations import listify as listify
from ..compat.tree_operations import pad_input_tensors as pad_input_tensors
from ..compat.tree_operations import recursively_apply as recursively_apply
from ..compat.tree_operations import send_to_device as send_to_device
from ..compat.tree_operations import slice_tensors as slice_tensors
from ..compat.unsupported import absent as __getattr__  # noqa: F401
from ..errors import CollectiveError as DistributedOperationException  # noqa: F401
