"""
The classes that Accelerate wraps optimizers and schedulers in, as questions.

`prepare` returns the script's own objects here. `isinstance(x, AcceleratedOptimizer)` is true for those that were
prepared.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import NotAvailableYet
from .optimizer import gate_of
from .scheduler import is_prepared


class _PreparedOptimizers(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return gate_of(instance) is not None


class _PreparedSchedulers(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return is_prepared(instance)


class AcceleratedOptimizer(metaclass=_PreparedOptimizers):
    """
    What prepared optimizers are instances of.

    Raises:
        NotAvailableYet: it is called; optimizers are prepared by an accelerator.
    """

    def __new__(cls, *_: Any, **__: Any) -> NoReturn:
        raise NotAvailableYet("AcceleratedOptimizer(...)", "Use accelerator.prepare(optimizer).")


class AcceleratedScheduler(metaclass=_PreparedSchedulers):
    """
    What prepared schedulers are instances of.

    Raises:
        NotAvailableYet: it is called; schedulers are prepared by an accelerator.
    """

    def __new__(cls, *_: Any, **__: Any) -> NoReturn:
        raise NotAvailableYet("AcceleratedScheduler(...)", "Use accelerator.prepare(scheduler).")
