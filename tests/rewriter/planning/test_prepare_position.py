"""Where prepare stands: behind what looks at a loader as a whole."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_figures_of_the_data_are_taken_before_it_and_what_counts_batches_behind_it(trained: Trained) -> None:
    built = "for x, y in loader:\n    print(x.mean())\nscale = len(loader)"
    text, _ = trained(built=built)
    head, _, tail = text.partition("model, optimizer, loader = accelerator.prepare(")
    assert "    accelerator.print(x.mean())\n" in head
    assert "scale = len(loader)\n" in tail
