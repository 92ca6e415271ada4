"""
Save checkpoints once, with the keys of the plain model.

``accelerator.save`` writes on the main process; ``accelerator.get_state_dict`` returns the state dict of the plain
model. Other programs read these files: the other entries of a checkpoint dict are left unchanged. Accelerate wraps
models: with this target, other code that reads, loads or exports a state gets the model without its wrapper.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +accelerator = Accelerator()
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
         loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
    -torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "n": 3}, "last")
    +accelerator.save({"model": accelerator.get_state_dict(model), "optimizer": optimizer.state_dict(), "n": 3}, "last")
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import Edit, EditGroup, Replace
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "checkpoint_save"
_PLAIN = "the file gets the model, not its wrapper"


@rule(ID, doc=__doc__)
def checkpoint_save(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Rewrite ``torch.save`` and the state dicts of models that it saves."""
    for state in facts.state_dicts:
        reason = "the file gets the state of the plain model"
        yield Replace(ID, state.call, partial(_state, facts), reason=reason, unit=EditGroup.FILES)
    for save in facts.saves:
        extra = [a for a in save.call.args if a.keyword is not None and a.keyword.value not in ("obj", "f")]
        if extra or len(save.call.args) > 2:
            yield Finding(
                ID,
                save.call,
                "this torch.save has options that accelerator.save does not take, so every process writes the file",
                f"guard it by hand: if {facts.accelerator}.is_main_process: torch.save(...)",
                case="options",
            )
            continue
        yield Replace(
            ID, save.call.func, lambda _: _method(facts, "save"), reason=save.because, whole=True, unit=EditGroup.FILES
        )
        if save.whole and not facts.abilities.transparent_models:
            model, reason = save.call.args[0].value, _PLAIN
            yield Replace(ID, model, partial(_unwrapped, facts), reason=reason, unit=EditGroup.FILES)
    for model in facts.plain_models:
        yield Replace(
            ID,
            model,
            partial(_unwrapped, facts),
            reason=_PLAIN,
            unit=EditGroup.FILES,
        )


def _state(facts: ModuleFacts, node: cst.CSTNode) -> cst.CSTNode:
    """``accelerator.get_state_dict(model)`` for ``model.state_dict()``."""
    assert isinstance(node, cst.Call)
    assert isinstance(node.func, cst.Attribute)
    return cst.Call(_method(facts, "get_state_dict"), [cst.Arg(node.func.value)])


def _unwrapped(facts: ModuleFacts, node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.BaseExpression)
    return cst.Call(_method(facts, "unwrap_model"), [cst.Arg(node)])


def _method(facts: ModuleFacts, name: str) -> cst.Attribute:
    return cst.Attribute(cst.Name(facts.accelerator), cst.Name(name))
