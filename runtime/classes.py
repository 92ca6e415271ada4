"""
Extending the class of one object.

The object stays what it was: `isinstance`, attributes, name and pickles are those of its own class.
A small class before it changes what a few methods do.
"""

from __future__ import annotations

import types
from typing import Any

MARK = "_is_accelerate_prepared"
"""The attribute by which users of Accelerate ask whether a model is prepared."""


class Front:
    """
    The base of classes that come before another one.

    It keeps the hook of the class after it quiet: a registry of subclasses must not see classes that are no subclasses
    to the script.
    """

    _torchlift_class: type

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Nothing, on purpose."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles are of the script's class."""
        return _as_original(super().__reduce_ex__(protocol), type(self), self._torchlift_class)


# Pickle makes an empty object of a class only if the object says that it is of that class. So `__class__` gives the
# script's, and a file has what it would have without us: `torch.load` refuses any other way to make an object.
_CLASS = property(lambda self: self._torchlift_class, object.__dict__["__class__"].__set__)


def in_front(front: type[Front], cls: type, *behind: type, **attributes: Any) -> type:
    """
    A class that is `front` first and `cls` after it, and looks like `cls`. `behind` come after `cls`.

    Raises:
        TypeError: `cls` cannot be a base.
    """
    body = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "_torchlift_class": cls,
        "__class__": _CLASS,
        **attributes,
    }
    bases = behind if any(issubclass(base, cls) for base in behind) else (cls, *behind)
    return types.new_class(cls.__name__, (front, *bases), exec_body=lambda namespace: namespace.update(body))


def _as_original(reduced: Any, extended: type, original: type) -> Any:
    """What `__reduce_ex__` gave, with the script's class in the place of the extended one."""
    if not isinstance(reduced, tuple):
        return reduced
    function, arguments, *rest = reduced
    arguments = tuple(original if argument is extended else argument for argument in arguments)
    return (original if function is extended else function, arguments, *rest)
