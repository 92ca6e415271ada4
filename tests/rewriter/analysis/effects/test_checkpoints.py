"""Checkpoints that are saved where an exception leads to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

INTERRUPTED = """\
try:
    work(model)
{place}
    torch.save({saved}, "cut.pt")"""


@pytest.mark.parametrize(
    "place", ["except KeyboardInterrupt:", "except (OSError, KeyboardInterrupt) as error:", "finally:"]
)
@pytest.mark.parametrize("saved", ["model.state_dict()", '{"net": model.state_dict(), "epoch": epoch}'])
def test_who_comes_by_an_exception_waits_for_nobody(place: str, saved: str, trained: Trained) -> None:
    """The others may not come there: the main process saves its own weights, which are those of all."""
    text, findings = trained(end=INTERRUPTED.format(place=place, saved=saved))
    assert f'    accelerator.save({saved}, "cut.pt")' in text and findings == ["checkpoint_save"]


def test_what_may_raise_is_done_together(trained: Trained) -> None:
    end = 'try:\n    torch.save(model.state_dict(), "last.pt")\nexcept OSError:\n    work(model)'
    text, findings = trained(end=end)
    assert 'accelerator.save(accelerator.get_state_dict(model), "last.pt")' in text and findings == []
