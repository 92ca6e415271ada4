"""Progress bars, and whatever yields the elements that it iterates, by the last name alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..loading import Table

ROWS: Table = {
    # by the last name, wherever it comes from: scripts have helpers of these names, and so have many packages
    "*.tqdm": ("passes", {"iterates": True}),
    "*.trange": ("passes", {"iterates": True}),
    "*.tqdm_notebook": ("passes", {"iterates": True}),
    "*.track": ("passes", {"iterates": True}),
    "*.progress": ("passes", {"iterates": True}),
    "*.islice": ("passes", {"iterates": True, "limits": True}),
    "*.list": ("passes", {"iterates": True}),
    "*.iter": ("passes", {"iterates": True}),
    "*.cycle": ("passes", {"iterates": True}),
    "*.log_every": ("passes", {"iterates": True}),
    "*.progress_bar": ("passes", {"iterates": True}),
    "*.reversed": ("passes", {"iterates": True}),
    "*.auto": ("passes", {"iterates": True}),
    "*.ProgressBar": ("passes", {"iterates": True}),
    "*.chain": ("passes", {}),
    "*.zip_longest": ("passes", {}),
    "*.filter": ("passes", {"leaves_out": True}),
    "*.filterfalse": ("passes", {"leaves_out": True}),
    "*.takewhile": ("passes", {"leaves_out": True}),
    "*.dropwhile": ("passes", {"leaves_out": True}),
    "*.compress": ("passes", {"leaves_out": True}),
    "*.compile": ("passes", {}),
    "*.DataParallel": ("passes", {}),
    # bars that are made inert
    "rich.progress.track": ("bar", {}),
    "rich.progress.Progress": ("bar", {}),
    "alive_progress.alive_bar": ("bar", {}),
    "alive_progress.alive_it": ("bar", {}),
    "progress.bar.*": ("bar", {"stays": True}),
    "progress.counter.*": ("bar", {"stays": True}),
    "progress.spinner.*": ("bar", {"stays": True}),
    "tqdm.tqdm": ("bar", {"off": "disable=True"}),
    "tqdm.trange": ("bar", {"off": "disable=True"}),
    "tqdm.tqdm_notebook": ("bar", {"off": "disable=True"}),
    "tqdm.tnrange": ("bar", {"off": "disable=True"}),
    "tqdm.auto.tqdm": ("bar", {"off": "disable=True"}),
    "tqdm.auto.trange": ("bar", {"off": "disable=True"}),
    "tqdm.notebook.tqdm": ("bar", {"off": "disable=True"}),
    "tqdm.notebook.trange": ("bar", {"off": "disable=True"}),
    "tqdm.*.tqdm": ("bar", {"off": "disable=True"}),
    "tqdm.*.trange": ("bar", {"off": "disable=True"}),
    "tqdm.*.tqdm_notebook": ("bar", {"off": "disable=True"}),
    "tqdm.*.tnrange": ("bar", {"off": "disable=True"}),
    # a line beside the bar
    "tqdm.tqdm.write": ("console", {}),
    "tqdm.*.write": ("console", {}),
}
