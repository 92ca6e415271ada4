"""Names that scripts import from here."""

from ..compat.modules import get_current_device_type as get_current_device_type
from ..compat.unsupported import absent as __getattr__  # noqa: F401
from ..config.variables import clear_environment as clear_environment
from ..config.variables import convert_dict_to_env_variables as convert_dict_to_env_variables
from ..config.variables import get_int_from_env as get_int_from_env
from ..config.variables import parse_choice_from_env as parse_choice_from_env
from ..config.variables import parse_flag_from_env as parse_flag_from_env
from ..config.variables import patch_environment as patch_environment
from ..config.variables import purge_accelerate_environment as purge_accelerate_environment
from ..config.variables import str_to_bool as str_to_bool
