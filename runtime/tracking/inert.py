"""What replaces a tracker's handle on processes that do not track."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Inert:
    """
    An object on which whatever is done has no effect: for the processes that have no tracker, no bar, no writer.

        writer = SummaryWriter("runs") if accelerator.is_main_process else Inert()

    Every attribute, call, item and `with` gives the object itself; attributes and items that are set are forgotten;
    iterating it gives nothing. It is true, so that `if writer:` goes the same way on all processes. It is no path and
    no number: where a script computes with what a handle tells (its folder, say), there is an error and no wrong value.
    """

    def __getattr__(self, name: str) -> Inert:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        pass

    def __delattr__(self, name: str) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Inert:
        return self

    def __getitem__(self, key: Any) -> Inert:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __delitem__(self, key: Any) -> None:
        pass

    def __contains__(self, key: Any) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Inert:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def __repr__(self) -> str:
        return "Inert()"
