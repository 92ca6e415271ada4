"""Names that scripts import from here."""

from ..memory import clear_device_cache as clear_device_cache
from ..memory import find_executable_batch_size as find_executable_batch_size
from ..memory import release_memory as release_memory
from ..memory import should_reduce_batch_size as should_reduce_batch_size
