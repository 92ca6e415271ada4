"""What the notebook makes before the training and keeps: the training gets what it binds anew as arguments."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from .closures import Definition
from .document import Cell
from .shown import only_chooses_devices
from .uses import NotGathered, Use, defines, made, run, use


def begun(texts: Sequence[str], chosen: Collection[int]) -> int:
    """The first cell of the training that does more than choose a device: those before it stay where they are."""
    return min((n for n in chosen if not only_chooses_devices(texts[n])), default=len(texts))


def loading_cells(
    texts: Sequence[str], needing: Collection[int], changed: Collection[int], loaders: frozenset[str]
) -> frozenset[int]:
    """The cells before the training that it needs only because they make loaders that it prepares."""
    only = {n for n in needing if n not in changed and loaders & use(texts[n]).binds}
    first = begun(texts, set(needing) - only)
    return frozenset(n for n in only if n < first)


def check_loading(
    cells: Sequence[Cell],
    texts: Sequence[str],
    uses: Sequence[Use],
    chosen: Collection[int],
    loading: Collection[int],
    first: int,
) -> None:
    """
    Refuse to leave loaders in the notebook that need something of the training, or that would bring the notebook to
    use a GPU before the launcher starts.
    """
    for n in loading:
        if n in chosen or n > first:
            made = uses[n].reads.intersection(*([frozenset().union(*(uses[m].binds for m in chosen))]))
            what = ", ".join(sorted(made)) or "what the training makes"
            raise NotGathered(
                cells[n].number, f"it needs {what} of the training", "Make it without", made, case="start"
            )
    pinned = {name for n in loading for name in _pinned(texts[n])}
    for n in range(first):
        if n not in loading and n not in chosen and uses[n].reads & pinned:
            raise NotGathered(
                cells[n].number, "a loader with pin_memory uses a GPU", "Set pin_memory=False", pinned, case="start"
            )


def _pinned(text: str) -> Iterator[str]:
    """The names of objects that may be made with ``pin_memory``."""
    for statement in run(text):
        for node in ast.walk(statement):
            if isinstance(node, ast.keyword) and node.arg in ("pin_memory", None):
                if node.arg is None or not (isinstance(node.value, ast.Constant) and not node.value.value):
                    yield from use(ast.unparse(statement)).binds


def arguments(
    texts: Sequence[str],
    uses: Sequence[Use],
    chosen: Sequence[int],
    loading: Collection[int],
    prepared: Collection[str],
    among: Sequence[Definition],
) -> list[str]:
    """The names that the training reads before it binds them, and earlier cells have bound; and the loaders that it
    prepares. In the order of the cells."""
    first = begun(texts, chosen) if loading else chosen[0]
    values = {name: n for n in reversed(range(first)) if n not in chosen for name in _values(texts[n])}
    inside = frozenset[str]().union(*(uses[n].binds for n in chosen)) & values.keys()
    later = frozenset[str]().union(*(one.later for one in among)) if loading else frozenset[str]()
    given = {name for name in inside if name in later or read_first([uses[n] for n in chosen], name)}
    given.update(name for n in loading for name in uses[n].binds if name in prepared)
    return sorted(given, key=lambda name: (values[name], name))


def _values(text: str) -> frozenset[str]:
    """What a cell binds that is no function, class or module."""
    return frozenset[str]().union(*(use(ast.unparse(s)).binds for s in ast.parse(text).body if not defines(s)))


def read_first(uses: Sequence[Use], name: str) -> bool:
    """Whether a name may be read before the function binds it."""
    for found in uses:
        if name in found.reads:
            return True
        if name in found.binds:
            return False
    return False


def looking_at(uses: Sequence[Use], chosen: Collection[int], loading: Collection[int], first: int) -> frozenset[int]:
    """The cells before the training that only look at what its loaders give: no other reads what they bind."""
    loaders = frozenset[str]().union(*(uses[n].binds for n in loading))
    return frozenset(
        n
        for n in range(first)
        if n not in loading
        and n not in chosen
        and uses[n].reads & loaders
        and not any(uses[n].binds & one.reads for m, one in enumerate(uses) if m != n)
    )


def made_before(uses: Sequence[Use], chosen: Collection[int], position: int) -> frozenset[str]:
    """What the cells of the training make before a cell."""
    return made(uses, [n for n in chosen if n < position])
