"""Names that scripts import from here."""

from .absent import absent as __getattr__  # noqa: F401
from .data.compatible import BatchSamplerShard as BatchSamplerShard
from .data.compatible import DataLoaderDispatcher as DataLoaderDispatcher
from .data.compatible import DataLoaderShard as DataLoaderShard
from .data.compatible import DataLoaderStateMixin as DataLoaderStateMixin
from .data.compatible import IterableDatasetShard as IterableDatasetShard
from .data.compatible import SkipBatchSampler as SkipBatchSampler
from .data.compatible import SkipDataLoader as SkipDataLoader
from .data.compatible import get_sampler as get_sampler
from .data.compatible import prepare_data_loader as prepare_data_loader
from .data.epochs import SeedableRandomSampler as SeedableRandomSampler
from .data.loader import skip_first_batches as skip_first_batches
