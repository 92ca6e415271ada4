"""What the analysis asks of names, where the rows decide differently for names that look alike."""

from __future__ import annotations

import pytest

from torchlift.rewriter.facts.roles import Role
from torchlift.rewriter.facts.torch_api import questions


@pytest.mark.parametrize(
    ("name", "made", "inherited"),
    [
        ("torch.nn.Linear", Role.MODEL, Role.MODEL),
        ("torch.nn.modules.linear.Linear", Role.MODEL, Role.MODEL),
        ("torch.nn.MSELoss", Role.CRITERION, Role.CRITERION),
        ("torch.nn.Parameter", None, None),
        ("torch.nn.DataParallel", None, Role.MODEL),
        ("torch.nn.utils.rnn.PackedSequence", None, None),
        ("torch.nn.functional.relu", None, None),
        ("torch.nn.functional.mse_loss", Role.LOSS, None),
        ("torch.optim.SGD", Role.OPTIMIZER, Role.OPTIMIZER),
        ("torch.optim.lr_scheduler.StepLR", Role.SCHEDULER, Role.SCHEDULER),
        ("torch.optim.lr_scheduler._LRScheduler", Role.SCHEDULER, Role.SCHEDULER),
        ("torch.optim.swa_utils.SWALR", Role.SCHEDULER, Role.SCHEDULER),
        ("torch.optim.swa_utils.AveragedModel", None, None),
        ("torch.utils.data.DataLoader", Role.LOADER, Role.LOADER),
        ("torch.utils.data.Sampler", None, Role.DATASET),
        ("torch.load", Role.CHECKPOINT, None),
        ("mine.Linear", None, None),
    ],
)
def test_what_a_name_makes_and_gives_to_its_subclasses(name: str, made: Role | None, inherited: Role | None) -> None:
    assert (questions.constructed(name), questions.base_role(name)) == (made, inherited)


@pytest.mark.parametrize(
    ("module", "title"),
    [
        ("ignite", "ignite"),
        ("ignite.engine", "ignite"),
        ("ignite.metrics", ""),
        ("lightning.fabric.loggers", ""),
        ("lightning_utilities", ""),
        ("pytorch_lightning.core", "Lightning"),
    ],
)
def test_frameworks_that_run_the_loop(module: str, title: str) -> None:
    assert questions.framework(module) == title


def test_what_leaves_the_loop_to_the_script() -> None:
    assert questions.leaves_the_loop("pytorch_lightning.seed_everything")
    assert questions.leaves_the_loop("lightning.pytorch.seed_everything")
    assert not questions.leaves_the_loop("pytorch_lightning.Trainer")


def test_who_distributes_by_hand() -> None:
    names = (
        "torch.distributed.init_process_group",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.DataParallel",
    )
    assert [questions.distributes(name) for name in names] == [True, True, False]
    assert questions.wrappers("threads") == {"torch.nn.DataParallel", "torch.nn.parallel.DataParallel"}


@pytest.mark.parametrize(
    ("name", "passes"), [("rich.progress.track", True), ("mine.log_every", True), ("mine.f", False)]
)
def test_what_loaders_go_through(name: str, passes: bool) -> None:
    assert questions.passes(name) is passes


def test_chains_join_and_do_not_iterate_one() -> None:
    assert questions.passes("itertools.chain")
    assert not questions.iterates("chain")
    assert questions.iterates("tqdm")


@pytest.mark.parametrize(("name", "keeps"), [("os.path.join", True), ("builtins.str", True), ("builtins.len", False)])
def test_what_keeps_a_path(name: str, keeps: bool) -> None:
    assert questions.keeps_path(name) is keeps


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
    assert (questions.collective(name) is not None) is found


def test_asking_about_the_group_waits_for_nobody() -> None:
    assert questions.asks_group("torch.distributed.is_initialized")
    assert not questions.asks_group("torch.distributed.barrier")
    assert not questions.asks_group("mine.is_initialized")


def test_what_all_processes_call_on_the_accelerator() -> None:
    together, joining = questions.together(), questions.joining()
    assert {"prepare", "backward", "gather", "clip_grad_value_", "main_process_first"} <= together
    assert joining == {"reduce", "gather", "gather_for_metrics", "broadcast", "broadcast_object_list"}
    assert questions.exchanging() - joining == {"pad_across_processes"}
    assert questions.turns() == {"main_process_first", "local_main_process_first"}
    assert {"all_reduce", "gather_for_metrics"} <= questions.joining_names()
    assert not {"send", "barrier", "scatter", "pad_across_processes"} & questions.joining_names()


@pytest.mark.parametrize("name", ["view", "reshape", "zeros", "randn", "normal", "new_full", "FloatTensor", "arange"])
def test_what_is_given_a_shape(name: str) -> None:
    assert questions.takes_shape(name)


@pytest.mark.parametrize("name", ["tensor", "squeeze", "flatten", "relu", "zero_", "Linear"])
def test_what_is_given_none(name: str) -> None:
    assert not questions.takes_shape(name)
