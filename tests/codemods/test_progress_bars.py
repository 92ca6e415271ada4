"""The rule `progress_bars`: one bar a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

TQDM = "from tqdm import tqdm, trange"

NOOPS: dict[str, dict[str, Any]] = {
    "imported, not used": {"imports": TQDM},
    "switched off by the script": {"imports": TQDM, "end": "for i in tqdm(range(3), disable=True):\n    pass"},
    "a function of that name of the script": {
        "top": "def tqdm(x):\n    return x",
        "end": "for i in tqdm([]):\n    pass",
    },
    "of another package": {"imports": "from mylib import tqdm", "end": "for i in tqdm([]):\n    pass"},
    "in a function that nothing calls": {"imports": TQDM, "end": "def f():\n    return tqdm([])"},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


def test_options_that_may_switch_it_off_are_reported(lines: Lines) -> None:
    end = "for i in tqdm(range(3), **options):\n    pass"
    assert lines(imports=TQDM, end=end) == ([], [], ["main_process"])


@pytest.mark.unchanged
def test_a_bar_that_asks_for_the_process_by_a_variable_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop("""
        import torch
        from torch.utils.data import DataLoader
        from torchlift.runtime import Accelerator
        from tqdm import tqdm

        accelerator = Accelerator()
        model = torch.nn.Linear(8, 1)
        loader = DataLoader(data, batch_size=32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        quiet = not accelerator.is_main_process
        for x, y in tqdm(loader, disable=quiet):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    """)


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop("import torch\nfrom tqdm import tqdm\nfor i in tqdm([1]):\n    pass\n")


REWRITES = {
    "around something": (
        TQDM,
        "bar = tqdm([1, 2])",
        "bar = tqdm([1, 2], disable=not accelerator.is_local_main_process)",
    ),
    "over a range": (TQDM, "bar = trange(9)", "bar = trange(9, disable=not accelerator.is_local_main_process)"),
    "without arguments": (TQDM, "bar = tqdm()", "bar = tqdm(disable=not accelerator.is_local_main_process)"),
    "with a trailing comma": (
        TQDM,
        "bar = tqdm([1], total=2,)",
        "bar = tqdm([1], total=2, disable=not accelerator.is_local_main_process,)",
    ),
    "through the module": (
        "import tqdm",
        "bar = tqdm.tqdm([1])",
        "bar = tqdm.tqdm([1], disable=not accelerator.is_local_main_process)",
    ),
    "of the module that defines it": (
        "from tqdm.std import tqdm",
        "bar = tqdm([1])",
        "bar = tqdm([1], disable=not accelerator.is_local_main_process)",
    ),
    "of a notebook": (
        "from tqdm.notebook import tqdm_notebook, tnrange",
        "bar = tqdm_notebook(tnrange(3, disable=True))",
        "bar = tqdm_notebook(tnrange(3, disable=True), disable=not accelerator.is_local_main_process)",
    ),
    "with a switch of the script": (
        TQDM,
        "bar = tqdm([1], disable=not verbose, desc='rows')",
        "bar = tqdm([1], disable=not accelerator.is_local_main_process or not verbose, desc='rows')",
    ),
    "with a switch that asks for the terminal": (
        TQDM,
        "bar = tqdm([1], disable=None)",
        "bar = tqdm([1], disable=not accelerator.is_local_main_process or None)",
    ),
    "with a switch of two answers": (
        "from rich.progress import track",
        "bar = track([1], disable=False if verbose else quiet)",
        "bar = track([1], disable=not accelerator.is_local_main_process or (False if verbose else quiet))",
    ),
    "never switched off": (
        TQDM,
        "bar = tqdm([1], disable=False)",
        "bar = tqdm([1], disable=not accelerator.is_local_main_process)",
    ),
    "of tqdm.auto, under another name": (
        "from tqdm.auto import tqdm as bars",
        "bar = bars([1])",
        "bar = bars([1], disable=not accelerator.is_local_main_process)",
    ),
}


@pytest.mark.parametrize(("imports", "before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewritten(imports: str, before: str, after: str, lines: Lines) -> None:
    assert lines(imports=imports, end=before) == ([before], [after], [])


def test_a_bar_that_no_option_turns_off_stays_and_is_named(lines: Lines) -> None:
    assert lines(imports="from progress.bar import Bar", end="bar = Bar('rows', max=9)") == ([], [], ["main_process"])


@pytest.mark.parametrize("bar", ["bar", "self.bar"])
def test_what_a_bar_writes_is_written_once(bar: str, lines: Lines) -> None:
    """A disabled bar shows nothing of itself, but `write` still prints."""
    top = "self = Namespace()" if "." in bar else ""
    _, come, _ = lines(
        imports="from tqdm import tqdm", top=top, built=f"{bar} = tqdm(total=9)", step=f"{bar}.write('{{}}')"
    )
    place = come.index("        if accelerator.is_local_main_process:")
    assert come[place + 1] == f"            {bar}.write('{{}}')"


def test_what_a_bar_of_a_with_block_writes_is_written_once(lines: Lines) -> None:
    end = "with trange(3) as bar:\n    for k in bar:\n        bar.write('done')"
    _, come, _ = lines(imports="from tqdm import trange", end=end)
    assert come[-2:] == ["        if accelerator.is_local_main_process:", "            bar.write('done')"]
