"""Names that scripts import from here."""

from ..checkpoint.shards import convert_file_size_to_int as convert_file_size_to_int
from ..checkpoint.weights import load_checkpoint_in_model as load_checkpoint_in_model
from ..checkpoint.weights import load_state_dict as load_state_dict
