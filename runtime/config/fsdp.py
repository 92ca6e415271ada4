"""How the weights of models are sharded: the settings of FSDP, in the names of its version 2."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import ConfigError, MixedUseError, NotAvailableYet, UnknownWordError, WrongKindError
from .blocks import Policy, blocks, checked_ignored, classes_of, declared, ignored_in, of_classes
from .environment import Variables
from .fsdp_objects import offload, precision_policy, state_dict_configs
from .fsdp_words import FSDP_AUTO_WRAP_POLICY, FSDP_BACKWARD_PREFETCH, keeps_no_copy, switch
from .variables import ram_efficient_loading

if TYPE_CHECKING:
    from torch.distributed.fsdp import MixedPrecisionPolicy, OffloadPolicy

log = logging.getLogger(__name__)

_VERSION = 2
_FIRST_VERSION_ONLY = ("limit_all_gathers", "use_orig_params", "sync_module_states", "backward_prefetch")
"""Fields of version 1 that change no result: version 2 has one way, and that is taken."""


@dataclass
class FullyShardedDataParallelPlugin:
    """
    Settings of sharded weights, by torch's `fully_shard` (version 2 of FSDP).

    What is None is what the environment says: the variables FSDP_VERSION, FSDP_RESHARD_AFTER_FORWARD,
    FSDP_AUTO_WRAP_POLICY, FSDP_TRANSFORMER_CLS_TO_WRAP, FSDP_MIN_NUM_PARAMS, FSDP_OFFLOAD_PARAMS,
    FSDP_STATE_DICT_TYPE, FSDP_CPU_RAM_EFFICIENT_LOADING, FSDP_ACTIVATION_CHECKPOINTING, FSDP_IGNORED_MODULES. Fields of
    version 1 are accepted where they mean the same.

    Raises:
        ConfigError, UnknownWordError, WrongKindError: a value means nothing here.
        NotAvailableYet: only version 1 of FSDP can do that.
        MixedUseError: two fields contradict each other.
    """

    fsdp_version: int | None = None
    """2. With 1 the settings are read as those of version 1, and are used with version 2."""
    sharding_strategy: Any = None
    """Of version 1: "FULL_SHARD" is `reshard_after_forward=True`, "SHARD_GRAD_OP" is False."""
    reshard_after_forward: bool | str | None = None
    """True: give up the gathered weights of a unit after its forward pass, and gather them again for backward. False:
    keep them until then, which needs more memory and fewer exchanges."""
    backward_prefetch: Any = None
    """Of version 1; accepted, without effect."""
    mixed_precision_policy: MixedPrecisionPolicy | dict[str, torch.dtype] | str | None = None
    """In which types units compute, and gradients are added: torch's object, its arguments as a dict, or "bf16",
    "fp16", "fp32". None: what `mixed_precision` of the accelerator says. Gradients are added in fp32, and outputs are
    in fp32, unless a type is given for that."""
    auto_wrap_policy: Callable[..., bool] | str | None = None
    """Which modules are units: "TRANSFORMER_BASED_WRAP" (those of some classes), "SIZE_BASED_WRAP", "NO_WRAP" (only the
    whole model), or a function that is called as torch's policies are. None: what the model itself names in
    `_no_split_modules`, else the whole model."""
    cpu_offload: OffloadPolicy | bool | None = None
    """Keep shards, gradients and optimizer states in the memory of the CPU."""
    ignored_modules: Iterable[nn.Module] | str | None = None
    """Modules that stay whole on every process, or a regular expression that matches their whole names."""
    state_dict_type: Any = None
    """"FULL_STATE_DICT" or "SHARDED_STATE_DICT": how `save_state` writes weights."""
    state_dict_config: Any = None
    """Of version 1; follows from `state_dict_type`."""
    optim_state_dict_config: Any = None
    """Of version 1; follows from `state_dict_type`."""
    limit_all_gathers: bool = True
    """Of version 1; accepted, without effect."""
    use_orig_params: bool | None = None
    """Of version 1; accepted, without effect: parameters keep their names and shapes."""
    param_init_fn: Any = None
    """Of version 1; not supported."""
    sync_module_states: bool | None = None
    """Of version 1; accepted, without effect: weights are those of process 0."""
    forward_prefetch: bool | None = None
    """Of version 1; True is not supported."""
    activation_checkpointing: bool | None = None
    """Compute the activations of a unit again in the backward pass instead of keeping them."""
    cpu_ram_efficient_loading: bool | None = None
    """Models of transformers are read by process 0 alone."""
    transformer_cls_names_to_wrap: list[str] | str | None = None
    """The classes of the units, without their modules, as a list or with commas between. None: `_no_split_modules`."""
    min_num_params: int | None = None
    """With "SIZE_BASED_WRAP": how many numbers a unit has at least; 0 makes none."""
    _whole: bool = field(default=False, init=False, repr=False, compare=False)
    """"NO_WRAP" was asked for."""

    def __post_init__(self) -> None:
        says = Variables("FSDP_")
        said = self._version(says)
        self.reshard_after_forward = self._resharding(says, said)
        self.sharding_strategy = None
        self.fsdp_version = _VERSION
        self._leave_out_the_first_version()
        if self.cpu_offload is None:
            self.cpu_offload = bool(says.switch("OFFLOAD_PARAMS"))
        self.set_cpu_offload()
        self._state_dicts(self.state_dict_type or says.word("STATE_DICT_TYPE"), said)
        self._wrapping(says)
        self.activation_checkpointing = self._on("activation_checkpointing", says, "ACTIVATION_CHECKPOINTING")
        given = self.cpu_ram_efficient_loading is not None
        self.cpu_ram_efficient_loading = self._on("cpu_ram_efficient_loading", says, "CPU_RAM_EFFICIENT_LOADING")
        if given:
            ram_efficient_loading(self.cpu_ram_efficient_loading)
        if self.ignored_modules is None:
            self.ignored_modules = says.word("IGNORED_MODULES")
        if self.ignored_modules is not None:
            self.ignored_modules = checked_ignored(self.ignored_modules)
        if self.mixed_precision_policy is not None:
            self.set_mixed_precision(self.mixed_precision_policy, override=True)

    # ---------------------------------------------------------------- what the engine asks

    def units(self, model: nn.Module, models: Iterable[nn.Module] = ()) -> list[nn.Module]:
        """
        The modules inside a model that are sharded with an exchange of their own, innermost first.

        The model itself comes after them, and is not among them: it takes what is in none.

        Args:
            model: the model.
            models: all models of the program: a class that one of them has need not be in each.

        Raises:
            ConfigError: no model has a class that was named.
        """
        policy = self._policy_for(model, models)
        return [] if policy is None else blocks(model, policy, ignored_in(model, self.ignored_modules))

    @property
    def offloads(self) -> bool:
        """Shards are kept in the memory of the CPU."""
        from torch.distributed.fsdp import CPUOffloadPolicy

        return isinstance(self.cpu_offload, CPUOffloadPolicy)

    def ignored_parameters(self, model: nn.Module) -> set[nn.Parameter]:
        """The parameters of a model that stay whole on every process, because their modules are to be ignored."""
        return {weight for one in ignored_in(model, self.ignored_modules) for weight in one.parameters()}

    # ---------------------------------------------------------------- what scripts call, under Accelerate's names

    def set_auto_wrap_policy(self, model: nn.Module) -> None:
        """
        Make `auto_wrap_policy` the policy of one model, as torch takes it. `units` needs no such call.

        Raises:
            ConfigError: the model has no class that was named.
        """
        if callable(self.auto_wrap_policy):
            self.auto_wrap_policy = self._policy_for(model, ())

    def set_mixed_precision(self, mixed_precision: Any, buffer_autocast: bool = False, override: bool = False) -> None:
        """
        Compute in another type.

        Args:
            mixed_precision: what `mixed_precision_policy` may be, or a type of torch.
            buffer_autocast: accepted; buffers keep their type.
            override: also where a policy is set already.
        """
        if override or self.mixed_precision_policy is None:
            self.mixed_precision_policy = precision_policy(mixed_precision)

    def set_state_dict_type(self, state_dict_type: Any = None) -> None:
        """Write weights in another way from now on."""
        if state_dict_type is not None:
            self.state_dict_config = self.optim_state_dict_config = None
        self._state_dicts(self.state_dict_type if state_dict_type is None else state_dict_type, _VERSION)

    def set_cpu_offload(self) -> None:
        """Make `cpu_offload` torch's object."""
        self.cpu_offload = offload(self.cpu_offload)

    # ---------------------------------------------------------------- from words to settings

    def _version(self, says: Variables) -> int | None:
        version = says.number("VERSION") if self.fsdp_version is None else self.fsdp_version
        if version not in (None, 1, 2):
            raise UnknownWordError("fsdp_version", version, ["1", "2"])
        if version == 1:
            log.info("settings of FSDP version 1 are used with version 2, where they mean the same")
        return version

    def _resharding(self, says: Variables, version: int | None) -> bool:
        strategy, reshard = self.sharding_strategy, self.reshard_after_forward
        if strategy is None and reshard is None:
            # `accelerate launch` always sets both; each version has its own
            strategy = None if version == _VERSION else says.word("SHARDING_STRATEGY")
            reshard = says.word("RESHARD_AFTER_FORWARD") if strategy is None else None
        found = [
            keeps_no_copy(name, value)
            for name, value in (("sharding_strategy", strategy), ("reshard_after_forward", reshard))
            if value is not None
        ]
        if len(set(found)) > 1:
            raise MixedUseError(
                f"sharding_strategy={strategy!r} contradicts reshard_after_forward={reshard!r}. Give the latter only."
            )
        return found[0] if found else True

    def _leave_out_the_first_version(self) -> None:
        if self.param_init_fn is not None:
            raise NotAvailableYet(
                "param_init_fn", "Leave it out: a model on the meta device gets its weights from process 0."
            )
        if self.forward_prefetch is not None and switch("forward_prefetch", self.forward_prefetch):
            raise NotAvailableYet("forward_prefetch=True", "Leave it out: FSDP 2 has no such option.")
        self.forward_prefetch = None
        word = getattr(self.backward_prefetch, "name", self.backward_prefetch)
        if isinstance(word, str) and word.upper() not in FSDP_BACKWARD_PREFETCH:
            raise UnknownWordError("backward_prefetch", word, FSDP_BACKWARD_PREFETCH)
        said = [name for name in _FIRST_VERSION_ONLY if getattr(self, name) not in (None, True)]
        if said:
            log.info("%s of FSDP version 1 has no effect: version 2 has one way of doing this", ", ".join(said))
        self.backward_prefetch = self.use_orig_params = self.sync_module_states = None

    def _state_dicts(self, word: Any, version: int | None) -> None:
        self.state_dict_type, weights, states = state_dict_configs(word, full=version == 1)
        self.state_dict_config = self.state_dict_config or weights
        self.optim_state_dict_config = self.optim_state_dict_config or states

    def _on(self, name: str, says: Variables, variable: str) -> bool:
        given = getattr(self, name)
        return bool(says.switch(variable)) if given is None else switch(name, given)

    def _wrapping(self, says: Variables) -> None:
        if isinstance(self.transformer_cls_names_to_wrap, str):
            self.transformer_cls_names_to_wrap = _names(self.transformer_cls_names_to_wrap)
        policy = self.auto_wrap_policy if self.auto_wrap_policy is not None else says.word("AUTO_WRAP_POLICY")
        if policy is None:  # classes or a size say by themselves which policy they are for
            names = self.transformer_cls_names_to_wrap or says.word("TRANSFORMER_CLS_TO_WRAP")
            size = self.min_num_params or says.number("MIN_NUM_PARAMS")
            policy = "TRANSFORMER_BASED_WRAP" if names else "SIZE_BASED_WRAP" if size else None
        _check_size(self.min_num_params)
        if policy is None or callable(policy):
            self.auto_wrap_policy = policy
            return
        word = str(policy).upper()
        if word not in FSDP_AUTO_WRAP_POLICY:
            raise UnknownWordError("auto_wrap_policy", policy, FSDP_AUTO_WRAP_POLICY)
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy

        self._whole = word == "NO_WRAP"
        self.auto_wrap_policy = None
        if word == "TRANSFORMER_BASED_WRAP":
            self.auto_wrap_policy = transformer_auto_wrap_policy
            if self.transformer_cls_names_to_wrap is None:
                self.transformer_cls_names_to_wrap = _names(says.word("TRANSFORMER_CLS_TO_WRAP") or "") or None
        elif word == "SIZE_BASED_WRAP":
            self.auto_wrap_policy = size_based_auto_wrap_policy
            if self.min_num_params is None:
                self.min_num_params = says.number("MIN_NUM_PARAMS") or 0
                _check_size(self.min_num_params)

    def _policy_for(self, model: nn.Module, models: Iterable[nn.Module]) -> Policy | None:
        """What says which modules of a model are units; None when only the model is one."""
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy

        chosen: Any = self.auto_wrap_policy
        if chosen is size_based_auto_wrap_policy:
            return partial(chosen, min_num_params=self.min_num_params) if self.min_num_params else None
        if chosen is None and self._whole:
            return None
        if chosen is not None and chosen is not transformer_auto_wrap_policy:
            return chosen  # type: ignore[no-any-return]
        names = self.transformer_cls_names_to_wrap
        classes = classes_of(model, declared(model) if names is None else names, models)
        if chosen is not None and not classes:
            log.warning(
                "%s is sharded as one unit: it does not name its blocks. Set transformer_cls_names_to_wrap.",
                type(model).__name__,
            )
        return of_classes(classes) if classes else None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _check_size(size: Any) -> None:
    if size is None:
        return
    if not isinstance(size, int) or isinstance(size, bool):
        raise WrongKindError(f"min_num_params is {size!r}; it must be a whole number.")
    if size < 0:
        raise ConfigError(f"min_num_params is {size}; it must be 0 or more.")
