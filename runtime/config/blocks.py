"""Which modules of a model are sharded as a unit of their own: gathered before they run, and given up after."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Any

from torch import nn

from ..errors import ConfigError, WrongKindError

Policy = Callable[..., bool]
"""As torch calls it: `policy(module=..., recurse=..., nonwrapped_numel=...)`."""

_ONE_PIECE = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""They read the weights of their children without calling these: a child that is a unit would not be gathered."""


def classes_of(model: nn.Module, names: Iterable[str], others: Iterable[nn.Module] = ()) -> set[type[nn.Module]]:
    """
    The classes of these names in a model.

    Args:
        model: whose modules may be of them.
        names: without modules, as in a `repr`.
        others: further models of the program: a name that one of these has need not be in `model`.

    Raises:
        ConfigError: no model has such a class; the nearest one is named. Or it is one that is never called.
    """
    here = _classes(model)
    elsewhere = {name for other in others for name in _classes(other)}
    found = set()
    for name in names:
        if name in here:
            found.add(_that_runs(here[name]))
        elif name not in elsewhere:
            raise ConfigError(_missing(name, model))
    return found


def _classes(model: nn.Module) -> dict[str, type[nn.Module]]:
    lines = (cls for module in model.modules() for cls in type(module).__mro__)
    return {cls.__name__: cls for cls in lines if issubclass(cls, nn.Module) and cls is not nn.Module}


def _missing(name: str, model: nn.Module) -> str:
    known = sorted({type(module).__name__ for module in model.modules()})
    # a slip of the hand in lower case counts as near, too
    folded = {one.casefold(): one for one in known}
    near = [folded[one] for one in get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)]
    hint = f"Did you mean {near[0]}?" if near else f"Its classes are: {', '.join(known)}."
    return f"Could not find the transformer layer class {name} in the model {type(model).__name__}. {hint}"


def _that_runs(cls: type[nn.Module]) -> type[nn.Module]:
    if cls.forward is nn.Module.forward:
        raise ConfigError(
            f"{cls.__name__} only holds modules and is never called, so it cannot be sharded as a unit. Name the class "
            "of the modules in it."
        )
    return cls


def of_classes(classes: Collection[type[nn.Module]]) -> Policy:
    """Modules of these classes are units."""
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    return partial(transformer_auto_wrap_policy, transformer_layer_cls=set(classes))


def declared(model: nn.Module) -> list[str]:
    """
    The classes that a model has and names itself as those that are not to be split (`_no_split_modules`).

    A family of models shares that list, so that one of them need not have all.
    """
    named = getattr(model, "_no_split_modules", None) or ()
    here = _classes(model)
    return [name for name in named if name in here]


def checked_ignored(ignored: Iterable[nn.Module] | str) -> list[nn.Module] | str:
    """
    What says which modules stay whole on every process: modules, or an expression for their whole names.

    Raises:
        ConfigError: no valid expression.
        WrongKindError: an element is no module.
    """
    if isinstance(ignored, str):
        try:
            re.compile(ignored)
        except re.error as error:
            raise ConfigError(f"ignored_modules is {ignored!r}, which is not a regular expression: {error}.") from error
        return ignored
    chosen = list(ignored)
    for one in chosen:
        if not isinstance(one, nn.Module):
            raise WrongKindError(
                f"ignored_modules holds a {type(one).__name__}; it takes modules, or one regular expression for "
                "the names of modules."
            )
    return chosen


def ignored_in(model: nn.Module, ignored: Iterable[nn.Module] | str | None) -> list[nn.Module]:
    """Those modules of a model that stay whole on every process."""
    if isinstance(ignored, str):
        return [module for name, module in model.named_modules() if re.fullmatch(ignored, name)]
    inside = {id(module) for module in model.modules()}
    return [one for one in ignored or () if id(one) in inside]


def blocks(model: nn.Module, policy: Policy, ignored: Collection[nn.Module] = ()) -> list[nn.Module]:
    """
    The modules inside a model that a policy of torch chooses, innermost first.

    Left out are modules that cannot be a unit: containers that are never called, what has no parameters, and what
    shares a parameter with modules outside of it, which would keep the whole parameter.
    """
    kept_whole = {id(module) for one in ignored for module in one.modules()}
    weights = {id(p) for one in ignored for p in one.parameters()}
    holders = _holders(model)
    seen: set[int] = set()
    found: list[nn.Module] = []

    def taken(module: nn.Module) -> int:
        """How many numbers are in units from here down."""
        if id(module) in seen or id(module) in kept_whole:
            return 0
        seen.add(id(module))
        numbers = sum(p.numel() for p in module.parameters() if id(p) not in weights)
        if not policy(module=module, recurse=True, nonwrapped_numel=numbers):
            return 0
        inside = 0 if isinstance(module, _ONE_PIECE) else sum(taken(child) for child in module.children())
        fits = numbers and module is not model and _runs(module) and _alone(module, holders)
        if fits and policy(module=module, recurse=False, nonwrapped_numel=numbers - inside):
            found.append(module)
            return numbers
        return inside

    taken(model)
    return found


def _runs(module: nn.Module) -> bool:
    return type(module).forward is not nn.Module.forward or "forward" in vars(module)


def _holders(model: nn.Module) -> dict[int, set[int]]:
    """For each parameter the modules that have it as an attribute."""
    found: dict[int, set[int]] = {}
    for module in model.modules():
        for one in _own(module):
            found.setdefault(id(one), set()).add(id(module))
    return found


def _own(module: nn.Module) -> Iterator[Any]:
    return (one for one in vars(module)["_parameters"].values() if one is not None)


def _alone(module: nn.Module, holders: dict[int, set[int]]) -> bool:
    inside = {id(one) for one in module.modules()}
    return all(holders[id(one)] <= inside for one in module.parameters())
