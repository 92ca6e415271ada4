"""Which process this is, before there is an accelerator."""

from __future__ import annotations

import pytest
import torch

from torchlift.runtime import EarlyState, PartialState


def test_alone_it_is_the_main_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    here = EarlyState()
    assert (here.process_index, here.is_main_process, here.is_local_main_process) == (0, True, True)
    here.print("once", end="!")
    assert capsys.readouterr().out == "once!"


@pytest.mark.parametrize(
    ("rank", "local", "main", "first"),
    [("0", "0", True, True), ("2", "0", False, True), ("3", "1", False, False), ("1", None, False, False)],
)
def test_the_launcher_says_which_it_is(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
    local: str | None,
    main: bool,
    first: bool,
) -> None:
    """No address of the others is needed: nobody is waited for, and no group is joined."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("LOCAL_RANK", local) if local is not None else monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    known = dict(PartialState._shared_state)
    here = EarlyState()
    here.print("once")
    assert (here.is_main_process, here.is_local_main_process) == (main, first)
    assert capsys.readouterr().out == ("once\n" if first else "")
    assert PartialState._shared_state == known and not torch.distributed.is_initialized()
