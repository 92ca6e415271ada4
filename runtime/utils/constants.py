"""Names that scripts import from here."""

from ..checkpoint.names import MODEL_NAME as MODEL_NAME
from ..checkpoint.names import OPTIMIZER_NAME as OPTIMIZER_NAME
from ..checkpoint.names import PROFILE_PATTERN_NAME as PROFILE_PATTERN_NAME
from ..checkpoint.names import RNG_STATE_NAME as RNG_STATE_NAME
from ..checkpoint.names import SAFE_MODEL_NAME as SAFE_MODEL_NAME
from ..checkpoint.names import SAFE_WEIGHTS_INDEX_NAME as SAFE_WEIGHTS_INDEX_NAME
from ..checkpoint.names import SAFE_WEIGHTS_NAME as SAFE_WEIGHTS_NAME
from ..checkpoint.names import SAFE_WEIGHTS_PATTERN_NAME as SAFE_WEIGHTS_PATTERN_NAME
from ..checkpoint.names import SAMPLER_NAME as SAMPLER_NAME
from ..checkpoint.names import SCALER_NAME as SCALER_NAME
from ..checkpoint.names import SCHEDULER_NAME as SCHEDULER_NAME
from ..checkpoint.names import TORCH_DYNAMO_MODES as TORCH_DYNAMO_MODES
from ..checkpoint.names import WEIGHTS_INDEX_NAME as WEIGHTS_INDEX_NAME
from ..checkpoint.names import WEIGHTS_NAME as WEIGHTS_NAME
from ..checkpoint.names import WEIGHTS_PATTERN_NAME as WEIGHTS_PATTERN_NAME
