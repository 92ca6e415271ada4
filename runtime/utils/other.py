"""Names that scripts import from here."""

from ..compat.checkpoint import load as load
from ..compat.checkpoint import save as save
from ..compat.modules import convert_bytes as convert_bytes
from ..compat.modules import get_pretty_name as get_pretty_name
from ..compat.modules import id_tensor_storage as id_tensor_storage
from ..compat.modules import merge_dicts as merge_dicts
from ..compat.modules import recursive_getattr as recursive_getattr
from ..compat.unsupported import absent as __getattr__  # noqa: F401
from ..launch.configure import write_basic_config as write_basic_config
from ..process.group import wait_for_everyone as wait_for_everyone
from ..process.system import check_os_kernel as check_os_kernel
from ..process.system import get_free_port as get_free_port
from ..process.system import is_port_in_use as is_port_in_use
from ..strategies.unwrap import extract_model_from_parallel as extract_model_from_parallel
from ..strategies.unwrap import is_compiled_module as is_compiled_module
