"""
Random scripts composed of the pieces that real ones are made of.

Whatever the composition: the migrated text is Python, a second run changes nothing, a refusal changes nothing, and on
one process the script prints what it printed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

HEAD = """\
import copy, os
import numpy as np
import torch
from torch import nn, optim
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
inputs = torch.randn(50, 6)
labels = (inputs.sum(1) > 0).long()
train_set, test_set = TensorDataset(inputs[:37], labels[:37]), TensorDataset(inputs[37:], labels[37:])
"""
DEVICES = {
    "none": ("", "{x}"),
    "ternary": ("device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')", "{x}.to(device)"),
    "word": ("device = 'cuda' if torch.cuda.is_available() else 'cpu'", "{x}.to(device)"),
    "branches": (
        "if torch.cuda.is_available():\n    device = torch.device('cuda')\nelse:\n    device = torch.device('cpu')",
        "{x}.to(device, non_blocking=True)",
    ),
    "inline": ("", "{x}.to(torch.device('cuda' if torch.cuda.is_available() else 'cpu'))"),
}
MODELS = {
    "sequential": "model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))",
    "class": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body = nn.Linear(6, 2)\n"
        "    def forward(self, x):\n        return self.body(x)\nmodel = Net()"
    ),
    "made by a function": "def build():\n    net = nn.Linear(6, 2)\n    return net\nmodel = build()",
}
MOVES = {"assigned": "model = {moved}", "method": "{moved}", "not at all": "pass"}
LOADERS = {
    "plain": "loader = DataLoader(train_set, batch_size=8, shuffle=True)\ntests = DataLoader(test_set, batch_size=5)",
    "keywords": "kw = {'batch_size': 8}\nkw.update({'shuffle': True})\nloader = DataLoader(train_set, **kw)\n"
    "tests = DataLoader(test_set, batch_size=5)",
    "returned": "def loaders():\n    return DataLoader(train_set, batch_size=8), DataLoader(test_set, batch_size=5)\n"
    "loader, tests = loaders()",
    "in a dict": "both = {'train': DataLoader(train_set, batch_size=8), 'test': DataLoader(test_set, batch_size=5)}\n"
    "loader, tests = both['train'], both['test']",
}
LOSSES = {
    "function": ("", "F.cross_entropy({out}, y)"),
    "module": ("criterion = nn.CrossEntropyLoss()", "criterion({out}, y)"),
    "sum": ("", "F.cross_entropy({out}, y, reduction='sum')"),
    "by hand": ("", "-F.log_softmax({out}, dim=1)[range(len(y)), y].mean()"),
}
LOOPS = {
    "plain": "for x, y in loader:",
    "enumerate": "for i, (x, y) in enumerate(loader):",
    "batch": "for batch in loader:\n    x, y = batch",
    "zip": "for (x, y), _ in zip(loader, range(99)):",
}
COLLECTS = {
    "nothing": ("", "", ""),
    "loss": ("total = 0.0", "total += loss.item()", "print('epoch loss %.5f' % (total / len(loader)))"),
    "weighted": ("total = 0.0", "total += loss.item() * x.size(0)", "print('epoch loss %.5f' % (total / 37))"),
    "hits": ("hits = 0", "hits += (out.argmax(1) == y).sum().item()", "print('train hits', hits)"),
    "list": ("history = []", "history.append(loss.item())", "print('mean %.5f' % np.mean(history))"),
}
TESTS = {
    "none": "",
    "counts": "hits = total = 0\nwith torch.no_grad():\n    for x, y in tests:\n        {moves}\n"
    "        out = model(x)\n"
    "        hits += (out.argmax(1) == y).sum().item()\n        total += y.size(0)\nprint('test', hits, total)",
    "inline": "good = 0\nfor x, y in tests:\n    {moves}\n    good += (model(x).argmax(1) == y).float().sum().item()\n"
    "print('good', good)",
    "collected": "found = []\nmodel.eval()\nwith torch.no_grad():\n    for x, y in tests:\n        {moves}\n"
    "        found.extend(model(x).argmax(1).cpu().tolist())\nprint(found)",
}
ENDS = {
    "nothing": "",
    "state dict": "torch.save(model.state_dict(), 'model.pt')\nprint(sorted(torch.load('model.pt')))",
    "checkpoint": "torch.save({'model': model.state_dict(), 'epoch': 2}, 'last.pt')\nprint('saved')",
    "array": "np.save('weights.npy', next(model.parameters()).detach().cpu().numpy())",
    "text": "with open('log.txt', 'w') as log:\n    log.write('done')",
}


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """A whole script, that runs."""

    def pick(table: dict[str, object]) -> object:
        return table[draw(st.sampled_from(sorted(table)))]

    device, move = pick(DEVICES)  # type: ignore[misc]
    made, loss = pick(LOSSES)  # type: ignore[misc]
    before, collect, after = pick(COLLECTS)  # type: ignore[misc]
    moves = f"x, y = {move.format(x='x')}, {move.format(x='y')}" if move != "{x}" else "pass"
    moving = str(pick(MOVES)).format(moved=move.format(x="model"))
    scheduler = draw(st.booleans())
    in_main = draw(st.booleans())
    parts = [device, str(pick(MODELS)), moving, str(pick(LOADERS)), made]
    parts.append(
        draw(st.sampled_from(["opt = optim.SGD(model.parameters(), lr=0.1)", "opt = optim.Adam(model.parameters())"]))
    )
    parts.append("scheduler = optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)" if scheduler else "")
    step = [moves, "opt.zero_grad()", "out = model(x)", f"loss = {loss.format(out='out')}", "loss.backward()"]
    step += [draw(st.sampled_from(["", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"])), "opt.step()", collect]
    epoch = [before, str(pick(LOOPS)), textwrap.indent(_joined(step), "    "), after]
    epoch.append("scheduler.step()" if scheduler else "")
    epoch.append(str(pick(TESTS)).format(moves=moves))
    parts += ["for epoch in range(2):", textwrap.indent(_joined(epoch), "    "), "print('end')", str(pick(ENDS))]
    body = _joined(parts)
    if in_main:
        return f"{HEAD}\ndef main():\n{textwrap.indent(body, '    ')}\n\nif __name__ == '__main__':\n    main()\n"
    return f"{HEAD}\n{body}\n"


def _joined(lines: list[str]) -> str:
    return "\n".join(line for line in lines if line.strip())


def migrated(text: str) -> tuple[str, bool]:
    """The text after one run, and whether the script was refused."""
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file.after.decode(), file.blocked


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts())
def test_the_text_is_python_and_a_second_run_changes_nothing(text: str) -> None:
    after, blocked = migrated(text)
    ast.parse(after)
    assert blocked == (after == text)
    assert not blocked, "every one of these can be migrated"
    again, still = migrated(after)
    assert again == after
    assert not still


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(scripts(), min_size=8, max_size=8))
def test_on_one_process_it_prints_what_it_printed(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    for number, text in enumerate(texts):
        after = migrated(text)[0]
        assert after != text
        (folder / f"{number}_before.py").write_text(text)
        (folder / f"{number}_after.py").write_text(after)
    command = [sys.executable, __file__, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def _run_pairs(folder: Path) -> None:
    """Run every pair in this process, which has torch imported once, and compare what they print and leave behind."""
    os.chdir(folder)
    for before in sorted(folder.glob("*_before.py")):
        printed, left = [], []
        for path in (before, before.with_name(before.name.replace("before", "after"))):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(path.read_text(), path.name, "exec"), {"__name__": "__main__"})
            printed.append(out.getvalue())
            written = [f for f in folder.iterdir() if f.suffix not in (".py",)]
            left.append(sorted(f.name for f in written))
            for file in written:
                file.unlink()
        assert printed[0] == printed[1], f"{before.read_text()}\n{printed[0]}\n{printed[1]}"
        assert left[0] == left[1], f"{before.read_text()}\n{left}"


if __name__ == "__main__":
    _run_pairs(Path(sys.argv[1]))
