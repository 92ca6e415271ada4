"""Changing environment variables for a while."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

_YES = frozenset({"y", "yes", "t", "true", "on", "1"})
_NO = frozenset({"n", "no", "f", "false", "off", "0"})
_OURS = ("ACCELERATE_", "TORCHLIFT_")
_FORBIDDEN = frozenset(";\n<> ")
_PURGED = "_torchlift_purged"

T = TypeVar("T")
log = logging.getLogger(__name__)


@contextmanager
def set_for_a_while(variables: Mapping[str, str]) -> Iterator[None]:
    """In the body, these variables are set; afterwards they are what they were, also when it raises."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def set_where_unset(variables: Mapping[str, str]) -> None:
    """Set variables that the user has not set."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


@contextmanager
def patch_environment(**kwargs: Any) -> Iterator[None]:
    """In the body, variables of these names, in capitals, have these values."""
    with set_for_a_while({name.upper(): str(value) for name, value in kwargs.items()}):
        yield


@contextmanager
def clear_environment() -> Iterator[None]:
    """In the body there are no variables at all; afterwards they are what they were."""
    before = dict(os.environ)
    os.environ.clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def str_to_bool(value: str, to_bool: bool = False) -> int | bool:
    """
    1 for a word that means yes, 0 for one that means no; with `to_bool`, True and False.

    Raises:
        ValueError: neither.
    """
    word = value.lower()
    if word not in _YES | _NO:
        raise ValueError(f"invalid truth value {word}")
    return word in _YES if to_bool else int(word in _YES)


def parse_flag_from_env(key: str, default: bool = False) -> bool:
    """A variable as yes or no."""
    return bool(str_to_bool(os.environ.get(key, str(default))))


def parse_choice_from_env(key: str, default: str = "no") -> str:
    """A variable as it is, or the default."""
    return os.environ.get(key, default)


def get_int_from_env(env_keys: list[str], default: int) -> int:
    """The first of these variables that holds a number that is not negative."""
    for key in env_keys:
        value = int(os.environ.get(key, -1))
        if value >= 0:
            return value
    return default


def convert_dict_to_env_variables(current_env: Mapping[str, str]) -> list[str]:
    """Lines for a file of variables; what such a file cannot hold is left out, with a warning."""
    lines = []
    for name, value in current_env.items():
        if name and value and not _FORBIDDEN & set(name + value):
            lines.append(f"{name}={value}\n")
        else:
            log.warning("left out %s=%s: it is empty, or holds a blank or one of ; < >", name, value)
    return lines


def purge_accelerate_environment(func_or_cls: T) -> T:
    """
    Decorator for tests: variables of the runtime (ACCELERATE_*, TORCHLIFT_*) are afterwards what they were before.

    Args:
        func_or_cls: a function, or a class whose methods named `test...` are meant; those of its subclasses, too.
    """
    if not isinstance(func_or_cls, type):
        return _purging(func_or_cls)  # type: ignore[arg-type,return-value]
    _purge_tests(func_or_cls)
    func_or_cls.__init_subclass__ = classmethod(lambda cls, **more: _purge_tests(cls))  # type: ignore[assignment]
    return func_or_cls


def _purge_tests(cls: type) -> None:
    for name in dir(cls):
        method = getattr(cls, name)
        if name.startswith("test") and callable(method) and not hasattr(method, _PURGED):
            setattr(cls, name, _purging(method))


def _purging(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def purged(*args: Any, **kwargs: Any) -> Any:
        before = {name: value for name, value in os.environ.items() if name.startswith(_OURS)}
        try:
            return function(*args, **kwargs)
        finally:
            for name in [name for name in os.environ if name.startswith(_OURS)]:
                del os.environ[name]
            os.environ.update(before)

    setattr(purged, _PURGED, True)
    return purged


def ram_efficient_loading(on: bool) -> None:
    """
    Tell transformers whether process 0 alone reads the weights of a model.

    `from_pretrained` reads these variables and nothing else, so that they stay.
    """
    if on:
        os.environ["ACCELERATE_USE_FSDP"] = os.environ.get("ACCELERATE_USE_FSDP") or "true"
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = str(on)


def enable_fsdp_ram_efficient_loading() -> None:
    """From now on process 0 alone reads the weights of a model of transformers."""
    ram_efficient_loading(True)


def disable_fsdp_ram_efficient_loading() -> None:
    """From now on every process reads the weights of a model of transformers."""
    ram_efficient_loading(False)
