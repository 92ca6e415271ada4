"""
Clocks that are far ahead, and run on with every look.

What a script makes of a clock then differs from a run with the true one: a date, an hour in the name of a folder, a
duration that two quick runs would round to the same figure. So such figures are told from results without their words.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

_AHEAD = datetime.timedelta(days=401, hours=7, minutes=13, seconds=17)
_LOOK = 0.71
"""Seconds that go by with every look."""


def install() -> None:
    """Put the clocks of `time` and `datetime` ahead, for all that looks at them from now on."""
    looks = [0]

    def ahead(clock: Callable[..., Any], unit: float) -> Callable[..., Any]:
        def look(*given: Any) -> Any:
            if given:
                return clock(*given)
            looks[0] += 1
            return clock() + type(clock())((_AHEAD.total_seconds() + _LOOK * looks[0]) * unit)

        return look

    def of_now(make: Callable[..., Any], position: int) -> Callable[..., Any]:
        """A function that takes a time, and the present one where none is given."""

        def made(*given: Any) -> Any:
            if len(given) > position and given[position] is not None:
                return make(*given)
            now = time.time() if make is not strftime else time.localtime()
            return make(*given[:position], now)

        return made

    strftime = time.strftime
    for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time"):
        for suffix, unit in (("", 1.0), ("_ns", 1e9)):
            setattr(time, name + suffix, ahead(getattr(time, name + suffix), unit))
    for name, position in (("localtime", 0), ("gmtime", 0), ("ctime", 0), ("strftime", 1)):
        setattr(time, name, of_now(getattr(time, name), position))
    datetime.date = _ahead(datetime.date, today=_today)  # type: ignore[misc]
    datetime.datetime = _ahead(datetime.datetime, now=_now, utcnow=_utcnow, today=_today)  # type: ignore[misc]


def _ahead(real: Any, **made: Any) -> Any:
    """A class that stands for one of `datetime`, under its name, so that its objects can be pickled."""

    class Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    methods: dict[str, Any] = {name: classmethod(method) for name, method in made.items()}
    return Meta(real.__name__, (real,), {**methods, "__module__": real.__module__, "__qualname__": real.__qualname__})


def _now(cls: Any, tz: Any = None) -> Any:
    return cls.fromtimestamp(time.time(), tz)


def _utcnow(cls: Any) -> Any:
    return _now(cls, datetime.timezone.utc).replace(tzinfo=None)


def _today(cls: Any) -> Any:
    return cls.fromtimestamp(time.time())
