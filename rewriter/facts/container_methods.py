"""What the methods of Python's containers do: of lists, deques, sets and dicts, and of meters made like them."""

from __future__ import annotations

_ONE_IN_ORDER = frozenset("append appendleft insert".split())
_ALL_IN_ORDER = frozenset("extend extendleft".split())
_ONE = _ONE_IN_ORDER | {"add"}
_ADDING = _ONE | _ALL_IN_ORDER | frozenset("update setdefault symmetric_difference_update".split())
_TAKING_OUT = frozenset("pop popleft popitem clear remove discard".split()) | frozenset(
    f"{name}_update" for name in ("difference", "intersection", "symmetric_difference")
)
_OTHER_CHANGES = frozenset("sort reverse rotate __setitem__ __delitem__".split())


def adds(method: str) -> bool:
    """Whether a method puts something in: ``losses.append(loss)``, ``meter.update(loss)``."""
    return method in _ADDING


def adds_one(method: str) -> bool:
    """Whether what a method is given last becomes one element: ``losses.append(loss)``, ``seen.add(name)``."""
    return method in _ONE


def adds_elements(method: str) -> bool:
    """Whether what a method is given becomes one element or several, and no entry with a key."""
    return method in _ONE | _ALL_IN_ORDER


def adds_in_order(method: str) -> bool:
    """Whether a method puts something at a place of its own among the others: not into a set or a dict."""
    return method in _ONE_IN_ORDER | _ALL_IN_ORDER


def adds_one_in_order(method: str) -> bool:
    """Whether a method makes a list longer by one element."""
    return method in _ONE_IN_ORDER


def takes_out(method: str) -> bool:
    """Whether a method takes elements out."""
    return method in _TAKING_OUT


def changes(method: str) -> bool:
    """Whether a container has other elements, or another order, after a method."""
    return method in _ADDING | _TAKING_OUT | _OTHER_CHANGES
