"""Names that scripts import from here."""

from ..absent import absent as __getattr__  # noqa: F401
from ..collectives.anywhere import CannotPadNestedTensorWarning as CannotPadNestedTensorWarning
from ..collectives.anywhere import broadcast as broadcast
from ..collectives.anywhere import broadcast_object_list as broadcast_object_list
from ..collectives.anywhere import copy_tensor_to_devices as copy_tensor_to_devices
from ..collectives.anywhere import gather as gather
from ..collectives.anywhere import gather_object as gather_object
from ..collectives.anywhere import pad_across_processes as pad_across_processes
from ..collectives.anywhere import reduce as reduce
from ..collectives.leaves import TensorInformation as TensorInformation
from ..collectives.leaves import concatenate as concatenate
from ..collectives.leaves import convert_outputs_to_fp32 as convert_outputs_to_fp32
from ..collectives.leaves import convert_to_fp32 as convert_to_fp32
from ..collectives.leaves import find_batch_size as find_batch_size
from ..collectives.leaves import find_device as find_device
from ..collectives.leaves import get_data_structure as get_data_structure
from ..collectives.leaves import get_shape as get_shape
from ..collectives.leaves import honor_type as honor_type
from ..collectives.leaves import ignorant_find_batch_size as ignorant_find_batch_size
from ..collectives.leaves import initialize_tensors as initialize_tensors
from ..collectives.leaves import is_namedtuple as is_namedtuple
from ..collectives.leaves import is_tensor_information as is_tensor_information
from ..collectives.leaves import is_torch_tensor as is_torch_tensor
from ..collectives.leaves import listify as listify
from ..collectives.leaves import pad_input_tensors as pad_input_tensors
from ..collectives.leaves import recursively_apply as recursively_apply
from ..collectives.leaves import send_to_device as send_to_device
from ..collectives.leaves import slice_tensors as slice_tensors
from ..errors import CollectiveError as DistributedOperationException  # noqa: F401
