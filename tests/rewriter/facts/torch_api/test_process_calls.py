"""What is asked about processes: who starts them, and what they do together."""

from __future__ import annotations

import pytest

from torchlift.rewriter.facts.torch_api import process_calls


def test_who_distributes_by_hand() -> None:
    names = (
        "torch.distributed.init_process_group",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.DataParallel",
    )
    assert [process_calls.distributes(name) for name in names] == [True, True, False]
    places = ("nn", "nn.parallel", "nn.parallel.data_parallel")
    assert process_calls.wrappers("threads") == {f"torch.{place}.DataParallel" for place in places}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("torch.distributed.all_reduce", True),
        ("torch.distributed.distributed_c10d.all_reduce", True),
        ("torch.distributed.send", True),
        ("torch.distributed.is_initialized", False),
        ("torch.distributed.get_rank", False),
        ("mine.all_reduce", False),
    ],
)
def test_what_connected_processes_do_together(name: str, found: bool) -> None:
    assert (process_calls.collective(name) is not None) is found


def test_asking_about_the_group_waits_for_nobody() -> None:
    assert process_calls.asks_group("torch.distributed.is_initialized")
    assert not process_calls.asks_group("torch.distributed.barrier")
    assert not process_calls.asks_group("mine.is_initialized")


def test_what_all_processes_call_on_the_accelerator() -> None:
    together, joining = process_calls.together(), process_calls.joining()
    assert {"prepare", "backward", "gather", "clip_grad_value_", "main_process_first"} <= together
    assert joining == {"reduce", "gather", "gather_for_metrics", "broadcast", "broadcast_object_list"}
    assert process_calls.exchanging() - joining == {"pad_across_processes"}
    assert process_calls.turns() == {"main_process_first", "local_main_process_first"}
    assert {"all_reduce", "gather_for_metrics"} <= process_calls.joining_names()
    assert not {"send", "barrier", "scatter", "pad_across_processes"} & process_calls.joining_names()
