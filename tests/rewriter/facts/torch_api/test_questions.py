"""What the analysis asks of names, where the rows decide differently for names that look alike."""

from __future__ import annotations

import pytest

from torchlift.rewriter.facts.roles import Role
from torchlift.rewriter.facts.torch_api import questions, tensor_parts


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


@pytest.mark.parametrize(
    ("name", "passes"), [("rich.progress.track", True), ("mine.log_every", True), ("mine.f", False)]
)
def test_what_loaders_go_through(name: str, passes: bool) -> None:
    assert questions.passes(name) is passes


def test_chains_join_and_do_not_iterate_one() -> None:
    assert questions.passes("itertools.chain")
    assert not questions.iterates("chain")
    assert questions.iterates("tqdm")


@pytest.mark.parametrize("name", ["view", "reshape", "zeros", "randn", "normal", "new_full", "FloatTensor", "arange"])
def test_what_is_given_a_shape(name: str) -> None:
    assert questions.takes_shape(name)


@pytest.mark.parametrize("name", ["tensor", "squeeze", "flatten", "relu", "zero_", "Linear"])
def test_what_is_given_none(name: str) -> None:
    assert not questions.takes_shape(name)


@pytest.mark.parametrize("name", ["shape", "ndim", "dtype", "device", "is_cuda", "size", "numel", "dim", "stride"])
def test_what_says_how_a_tensor_is_made(name: str) -> None:
    assert tensor_parts.asks_how(name)
    assert tensor_parts.counts(name) is (name in ("size", "numel"))


@pytest.mark.parametrize("name", ["data", "grad", "T", "item", "sum", "to"])
def test_what_says_something_of_its_values(name: str) -> None:
    assert not tensor_parts.asks_how(name)


@pytest.mark.parametrize(
    ("method", "reads", "ends"),
    [
        ("item", True, True),
        ("numpy", True, True),
        ("detach", False, True),
        ("cpu", False, False),
        ("sum", False, False),
        ("backward", False, False),
    ],
)
def test_methods_whose_result_has_no_gradient(method: str, reads: bool, ends: bool) -> None:
    assert (questions.reads_values(method), questions.ends_gradient(method)) == (reads, ends)
