"""Names that scripts import from here."""

from .compat.data import BatchSamplerShard as BatchSamplerShard
from .compat.data import DataLoaderDispatcher as DataLoaderDispatcher
from .compat.data import DataLoaderShard as DataLoaderShard
from .compat.data import DataLoaderStateMixin as DataLoaderStateMixin
from .compat.data import IterableDatasetShard as IterableDatasetShard
from .compat.data import SkipBatchSampler as SkipBatchSampler
from .compat.data import SkipDataLoader as SkipDataLoader
from .compat.data import get_sampler as get_sampler
from .compat.data import prepare_data_loader as prepare_data_loader
from .compat.unsupported import absent as __getattr__  # noqa: F401
from .data.epochs import SeedableRandomSampler as SeedableRandomSampler
from .data.loader import skip_first_batches as skip_first_batches
