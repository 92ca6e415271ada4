"""Scopes and variables: which one an assignment changes, and what each scope is called."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlift.rewriter.analysis.syntax.resolving import resolve


def bound(text: str) -> dict[str, set[str]]:
    """The variables of each scope by the scope's name."""
    scopes = resolve(cst.parse_module(text)).scopes.values()
    return {scope.qualname: set(scope.bindings) for scope in scopes}


def test_scopes_are_called_as_python_calls_them() -> None:
    text = "class Net:\n    def forward(self): pass\ndef main():\n    class Inner:\n        def run(self): pass\n"
    assert set(bound(text)) == {"<module>", "Net", "Net.forward", "main", "main.Inner", "main.Inner.run"}


@pytest.mark.parametrize(
    ("declared", "changed"),
    [("nonlocal seen", "main"), ("global seen", "<module>"), ("pass", "main.Counter.step.once")],
)
def test_the_variable_that_an_assignment_changes(declared: str, changed: str) -> None:
    text = (
        "def main():\n    seen = 0\n    class Counter:\n        def step(self):\n            def once():\n"
        f"                {declared}\n                seen = 1\n"
    )
    holders = {name for name, names in bound(text).items() if "seen" in names}
    assert holders == {"main", changed}


def test_nonlocal_means_the_innermost_function_that_has_the_name() -> None:
    text = (
        "seen = 0\ndef main():\n    seen = 0\n    def outer():\n        seen = 0\n        def inner():\n"
        "            nonlocal seen\n            seen = 1\n"
    )
    scopes = {scope.qualname: scope for scope in resolve(cst.parse_module(text)).scopes.values()}
    counts = {
        name: len(scope.bindings["seen"].definitions) for name, scope in scopes.items() if "seen" in scope.bindings
    }
    assert counts == {"<module>": 1, "main": 1, "main.outer": 2}
