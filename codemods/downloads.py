"""
Download on one process, and let the others read the files.

     import torch
     from torch.utils.data import DataLoader
     from torchvision import datasets
    +from torchlift.runtime import Accelerator

    +accelerator = Accelerator()
    -data = datasets.MNIST("data", download=True)
    +with accelerator.main_process_first():
    +    data = datasets.MNIST("data", download=True)
     model = torch.nn.Linear(784, 10)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
         loss = torch.nn.functional.cross_entropy(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()

Several processes that write the same files at the same time leave broken files. The other processes wait before the
block, and then run it themselves: the data set object is created on every process. A download that does not check
whether the files exist (`urlretrieve`, `extractall`) runs on the main process only, and the others wait for it. A
file that is created if it is missing (a vocabulary, a cache) is created by the first process in the same way,
before the others look for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import Edit, EditGroup, Made, Replace
from ..rewriter.facts.effects import Effect, EffectKind
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "downloads"


@rule(ID, doc=__doc__)
def downloads(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Put downloads under ``main_process_first``, or download on the main process while the others wait."""
    for effect in facts.effects:
        if effect.kind is EffectKind.DOWNLOAD:
            turn = partial(_in_turn, facts)
            yield Replace(ID, effect.node, turn, reason=effect.because, unit=EditGroup.ALONE, joins=True)
        elif effect.kind is EffectKind.FETCH:
            made = partial(_fetched, facts, effect)
            yield Replace(ID, effect.node, made, reason=effect.because, unit=EditGroup.ALONE)
            if effect.survived:
                yield _unnoticed(effect)


def _in_turn(facts: ModuleFacts, node: cst.CSTNode) -> cst.CSTNode:
    lines = getattr(node, "leading_lines", ())
    first = cst.Call(cst.Attribute(cst.Name(facts.accelerator), cst.Name("main_process_first")))
    return cst.With([cst.WithItem(first)], cst.IndentedBlock([_inner(node)]), leading_lines=lines)


def _fetched(facts: ModuleFacts, effect: Effect, node: cst.CSTNode) -> Made:
    lines = getattr(node, "leading_lines", ())
    accelerator = cst.Name(facts.accelerator)
    test = cst.Attribute(accelerator, cst.Name("is_main_process"))
    wait = cst.Expr(cst.Call(cst.Attribute(accelerator, cst.Name("wait_for_everyone"))))
    once, waits = cst.If(test, cst.IndentedBlock([_inner(node)])), cst.SimpleStatementLine([wait])
    if effect.survived:  # the others wait for a main process that fails, too
        always = cst.Finally(cst.IndentedBlock([waits]))
        return cst.Try(cst.IndentedBlock([once]), finalbody=always, leading_lines=lines)
    return [once.with_changes(leading_lines=lines), waits]


def _unnoticed(effect: Effect) -> Finding:
    return Finding(
        ID,
        effect.node,
        f"only the main process downloads this, and `{effect.survived}` goes on after an error: where the download "
        "fails, the other processes have no error here: they go on without the file, and not as the main process does",
        "raise the error again, so that the launcher ends all processes",
        case="swallowed",
    )


def _inner(node: cst.CSTNode) -> cst.BaseStatement:
    inner = node.with_changes(leading_lines=())
    assert isinstance(inner, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
    return inner
