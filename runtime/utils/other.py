"""Names that scripts import from here."""

from ..absent import absent as __getattr__  # noqa: F401
from ..checkpoint.anywhere import load as load
from ..checkpoint.anywhere import save as save
from ..figures import convert_bytes as convert_bytes
from ..figures import get_pretty_name as get_pretty_name
from ..figures import id_tensor_storage as id_tensor_storage
from ..figures import merge_dicts as merge_dicts
from ..figures import recursive_getattr as recursive_getattr
from ..launch.configure import write_basic_config as write_basic_config
from ..process.group import wait_for_everyone as wait_for_everyone
from ..process.system import check_os_kernel as check_os_kernel
from ..process.system import get_free_port as get_free_port
from ..process.system import is_port_in_use as is_port_in_use
from ..strategies.unwrap import extract_model_from_parallel as extract_model_from_parallel
from ..strategies.unwrap import is_compiled_module as is_compiled_module
