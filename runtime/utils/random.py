"""Names that scripts import from here."""

from ..compat.operations import synchronize_rng_state as synchronize_rng_state
from ..compat.operations import synchronize_rng_states as synchronize_rng_states
from ..process.rng import set_seed as set_seed
