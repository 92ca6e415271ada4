"""Names that scripts import from here."""

from .accelerator.state import AcceleratorState as AcceleratorState
from .accelerator.state import GradientState as GradientState
from .process.state import PartialState as PartialState
from .types import DistributedType as DistributedType
