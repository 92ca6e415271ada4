"""Settings of layers that multiply in eight bits: fp8 and int8, by torchao."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ..available import need
from ..errors import MixedUseError, NotAvailableYet, UnknownWordError
from ..types import FP8BackendType, PrecisionType
from .environment import Variables
from .handlers import KwargsHandler

if TYPE_CHECKING:
    from torch import nn

EIGHT_BITS = frozenset({PrecisionType.FP8, PrecisionType.INT8})
log = logging.getLogger(__name__)
_PREFIX = "ACCELERATE_FP8_"
_INSTEAD = 'Use AORecipeKwargs(), which computes in fp8 by torchao: pip install "torchlift[fp8]".'
_OTHERS = {
    FP8BackendType.TE: NotAvailableYet("fp8 by Transformer Engine", _INSTEAD),
    FP8BackendType.MSAMP: NotAvailableYet("fp8 by MS-AMP", _INSTEAD),
}


@dataclass
class AORecipeKwargs(KwargsHandler):
    """
    How linear layers multiply in eight bits, for `mixed_precision="fp8"` (and "int8").

    Raises:
        MissingPackageError: torchao is not installed; an ImportError.
        MixedUseError: settings of `config` are given beside it.
    """

    config: Any = None
    """A `Float8LinearConfig` of torchao, or an `Int8MixedPrecisionTrainingConfig`; torchao's defaults when None."""
    module_filter_func: Callable[[nn.Module, str], bool] | None = None
    """Gets a linear layer and its name, and says whether it is converted. None: those whose sizes are multiples of 16
    are, except for the first and the last one of the model."""
    pad_inner_dim: bool | None = None
    """fp8: pad the inner dimension of products to a multiple of 16. None: True."""
    enable_fsdp_float8_all_gather: bool | None = None
    """Accepted; sharded weights travel in bf16 here, in twice as many bytes. True is warned of."""

    def __post_init__(self) -> None:
        need("torchao", "AORecipeKwargs", "fp8")
        more = [name for name in ("pad_inner_dim", "enable_fsdp_float8_all_gather") if getattr(self, name) is not None]
        if self.config is not None and more:
            raise MixedUseError(f"AORecipeKwargs was given a config, and {' and '.join(more)} beside it. Set it there.")
        says = Variables(_PREFIX)
        if self.config is None and self.pad_inner_dim is None:
            self.pad_inner_dim = says.switch("PAD_INNER_DIM")
        if self.config is None and self.enable_fsdp_float8_all_gather is None:
            self.enable_fsdp_float8_all_gather = says.switch("ENABLE_FSDP_FLOAT8_ALL_GATHER")
        if self.enable_fsdp_float8_all_gather or getattr(self.config, "enable_fsdp_float8_all_gather", False):
            log.warning(
                "enable_fsdp_float8_all_gather is not used: sharded weights travel in bf16, in twice the bytes."
            )


class _Others:
    """
    Settings of a package that does not compute here.

    Raises:
        NotAvailableYet: it is made.
    """

    backend = FP8BackendType.TE

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise _OTHERS[cls.backend]


class TERecipeKwargs(_Others):
    """Settings of fp8 by Transformer Engine."""


class MSAMPRecipeKwargs(_Others):
    """Settings of fp8 by MS-AMP."""

    backend = FP8BackendType.MSAMP


class FP8RecipeKwargs(_Others):
    """Settings of fp8 by Transformer Engine or MS-AMP, under an older name."""


def recipe_of(precision: PrecisionType, handlers: Mapping[type, KwargsHandler]) -> AORecipeKwargs | None:
    """
    How layers are converted; None where none are.

    Raises:
        MissingPackageError: torchao is not installed; an ImportError.
        MixedUseError: a recipe is given, and no precision of eight bits.
        NotAvailableYet: the environment asks for another package.
        UnknownWordError: it asks for one that nobody knows.
    """
    given = next((one for one in handlers.values() if isinstance(one, AORecipeKwargs)), None)
    if precision not in EIGHT_BITS:
        if given is not None:
            raise MixedUseError(
                f'AORecipeKwargs needs mixed_precision="fp8" (or "int8"), and this Accelerator has "{precision}".'
            )
        return None
    if given is not None:
        return given
    word = (Variables(_PREFIX).word("BACKEND") or str(FP8BackendType.AO)).upper()
    if word not in FP8BackendType.list():
        raise UnknownWordError(f"the environment variable {_PREFIX}BACKEND", word, [str(FP8BackendType.AO)])
    if word in _OTHERS:
        raise _OTHERS[FP8BackendType(word)]
    need("torchao", f'mixed_precision="{precision}"', "fp8")
    return AORecipeKwargs()
