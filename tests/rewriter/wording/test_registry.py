"""Every kind of reason has words of its own, and the analysis has none."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import libcst as cst
import pytest

from torchlift.rewriter import wording
from torchlift.rewriter.facts import reasons
from torchlift.rewriter.facts.reasons.effects import SharedDownload
from torchlift.rewriter.findings import Finding
from torchlift.rewriter.wording import worded


def kinds() -> Iterator[type]:
    """The classes of reasons: those that have a place and are made by the analysis."""
    for module in pkgutil.iter_modules(reasons.__path__, f"{reasons.__name__}."):
        for one in vars(import_module(module.name)).values():
            if inspect.isclass(one) and one.__module__ == module.name and "node" in getattr(one, "_fields", ()):
                yield one


PARTS = {"FeedOrigin"}
"""What other reasons are made of."""


def rooms() -> set[str]:
    """The names of the rooms of words."""
    return {module.name for module in pkgutil.iter_modules(wording.__path__)} - {"registry"}


@pytest.fixture(autouse=True, scope="module")
def _all_words() -> None:
    for room in rooms():
        import_module(f"{wording.__name__}.{room}")


def test_every_kind_of_reason_has_words() -> None:
    found = {kind for kind in kinds() if kind.__name__ not in PARTS}
    assert len(found) > 60
    assert {kind.__name__ for kind in found - worded.registry.keys()} == set()


def test_words_are_for_reasons_that_exist() -> None:
    assert worded.registry.keys() - set(kinds()) == {object, Finding}


def test_a_reason_becomes_a_finding_at_its_place() -> None:
    call = cst.Call(cst.Name("download"))
    told = worded(SharedDownload(call))
    assert (told.id, told.case, told.node) == ("downloads", "same-time", call)
    assert worded(told) is told


def test_what_has_no_words_is_an_error() -> None:
    class Wordless:
        node = None

    with pytest.raises(TypeError, match="no words for Wordless"):
        worded(Wordless())


def test_each_room_of_words_is_called_as_the_reasons_in_it() -> None:
    """So the words are found by the module of a reason."""
    assert rooms() == {module.name for module in pkgutil.iter_modules(reasons.__path__)}
    assert {room for room in rooms() for kind in worded.registry if _is_elsewhere(room, kind)} == set()


def _is_elsewhere(room: str, kind: type) -> bool:
    """Whether the words for reasons of another module are in a room."""
    of_reasons = kind.__module__.startswith(f"{reasons.__name__}.")
    return of_reasons and (
        worded.registry[kind].__module__.endswith(f".{room}") != kind.__module__.endswith(f".{room}")
    )


def test_words_are_loaded_where_they_are_needed() -> None:
    """A reason alone loads its room, and no other."""
    program = (
        "import sys, libcst\n"
        "from torchlift.rewriter.wording import worded\n"
        "from torchlift.rewriter.facts.reasons.effects import SharedDownload\n"
        "worded(SharedDownload(libcst.Call(libcst.Name('download'))))\n"
        "print(*(name.rpartition('.')[2] for name in sys.modules if name.startswith('torchlift.rewriter.wording.')))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(ended.stdout.split()) == {"registry", "effects"}
