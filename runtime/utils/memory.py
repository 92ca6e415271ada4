"""Names that scripts import from here."""

from ..device.memory import clear_device_cache as clear_device_cache
from ..device.memory import find_executable_batch_size as find_executable_batch_size
from ..device.memory import release_memory as release_memory
from ..device.memory import should_reduce_batch_size as should_reduce_batch_size
