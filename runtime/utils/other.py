"""Names that scripts import from here."""

from ..checkpoint.anywhere import load as load
from ..checkpoint.anywhere import save as save
from ..launch.configure import write_basic_config as write_basic_config
from ..process.group import wait_for_everyone as wait_for_everyone
from ..process.system import check_os_kernel as check_os_kernel
from ..process.system import get_free_port as get_free_port
from ..process.system import is_port_in_use as is_port_in_use
from ..strategies.unwrap import extract_model_from_parallel as extract_model_from_parallel
from ..strategies.unwrap import is_compiled_module as is_compiled_module
