"""The fixtures: every promise of every migration is held, and a script computes what it computes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
MIGRATED: dict[str, tuple[str, ...]] = {
    "mnist_functions": ("--epochs", "2", "--save-model"),
    "module_level": (),
    "gan": ("--n_epochs", "2"),
    "legacy_gan": ("--n_epochs", "2", "--sample_interval", "7"),
    "text_windows": (),
    "bf16_autocast": ("--epochs", "2"),
    "fp16_scaler": ("--epochs", "2", "--fp16"),
    "grad_accumulation": ("--epochs", "2"),
    "resume_checkpoint": ("--epochs", "2"),
    "best_model": ("--epochs", "12"),
    "scheduler_per_step": ("--epochs", "2"),
}
WITHOUT_LOADER = {"text_windows"}
DAILY = {"module_level", "gan", "legacy_gan", "grad_accumulation"}
ALONE: dict[str, tuple[str, ...]] = {
    "already_distributed": ("--epochs", "1"),
    "inference_only": ("--count", "100"),
    "no_entry_point": (),
}


def _copy(name: str, where: Path) -> Path:
    return Path(shutil.copytree(ROOT / "fixtures" / name, where / name))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DAILY else pytest.mark.slow) for name in MIGRATED]
)
@pytest.mark.parametrize("options", [(), pytest.param(("--double",), marks=pytest.mark.slow)], ids=["exact", "double"])
def test_every_promise_is_held(name: str, options: tuple[str, ...], tmp_path: Path, verify: Callable[..., Any]) -> None:
    folder = _copy(name, tmp_path)
    seen = verify(folder / "before.py", folder / "after.py", *MIGRATED[name], options=options)
    assert seen.broken() == {}, seen.errors
    assert seen.status == 0
    assert seen.untestable() == ({"samples"} if name in WITHOUT_LOADER else set())
    assert [seen.of("weights", n)["outcome"] for n in (1, 2)] == ["held", "held"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "gan" else pytest.mark.slow) for name in MIGRATED]
)
def test_every_promise_is_held_with_sharded_weights(name: str, tmp_path: Path, verify: Callable[..., Any]) -> None:
    folder = _copy(name, tmp_path)
    seen = verify(folder / "before.py", folder / "after.py", *MIGRATED[name], options=("--strategy", "fsdp"))
    assert seen.broken() == {}, seen.errors
    assert [seen.of("weights", n)["outcome"] for n in (1, 2)] == ["held", "held"]


def test_the_weights_really_are_sharded(tmp_path: Path, verify: Callable[..., Any]) -> None:
    folder = _copy("module_level", tmp_path)
    after = folder / "after.py"
    after.write_text(after.read_text() + "\nprint(type(next(model.parameters())).__name__)\n")
    seen = verify(folder / "before.py", after, options=("--strategy", "fsdp"))
    assert any("DTensor" in detail for detail in seen.broken().values()), seen.broken()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MIGRATED, *ALONE])
def test_a_script_computes_what_it_computes(name: str, tmp_path: Path, verify: Callable[..., Any]) -> None:
    folder = _copy(name, tmp_path)
    arguments = {**MIGRATED, **ALONE}[name]
    seen = verify(folder / "before.py", folder / "before.py", *arguments, options=("--procs", "1"))
    assert (seen.status, seen.broken()) == (0, {}), seen.errors


def test_another_seed_is_another_training(tmp_path: Path, verify: Callable[..., Any]) -> None:
    folder = _copy("module_level", tmp_path)
    other = folder / "other.py"
    other.write_text((folder / "before.py").read_text().replace("torch.manual_seed(7)", "torch.manual_seed(8)"))
    seen = verify(folder / "before.py", other, options=("--procs", "1"))
    assert seen.status == 1
    assert {"losses", "weights", "gradients"} <= set(seen.broken())
    assert seen.of("weights", 1)["step"] == 1
    assert seen.of("weights", 1)["figure"] == "fc1.weight"


@pytest.mark.slow
def test_as_is_shows_what_exact_mode_hides(tmp_path: Path, verify: Callable[..., Any]) -> None:
    folder = _copy("mnist_functions", tmp_path)
    arguments = ("--epochs", "1", "--dropout", "0.5")
    exact = verify(folder / "before.py", folder / "after.py", *arguments)
    assert "dropout off: 1 layers" in exact.verdict["notes"]
    assert exact.of("weights")["outcome"] == "held"
    plain = verify(folder / "before.py", folder / "after.py", *arguments, options=("--as-is",))
    assert plain.status == 0
    assert plain.of("weights", 1)["detail"] == "bit for bit"
    assert plain.of("weights")["outcome"] == "not testable"
    assert plain.of("weights")["detail"].startswith("as is: ")
    assert plain.of("ranks")["outcome"] == "held"
