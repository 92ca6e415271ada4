"""Names that scripts import from here."""

from .process.state import PartialState as PartialState
from .types import DistributedType as DistributedType
from .views import AcceleratorState as AcceleratorState
from .views import GradientState as GradientState
