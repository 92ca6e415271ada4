"""Modules without weights in an evaluation loop: they go on with what the model has given."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]
SOFTENED = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
losses, hits = [], 0
with torch.no_grad():
    for x, y in held:
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, y, reduction="sum")
        losses.append(loss.item())
        out = {softened}
        hits += (out.argmax(1) == y).sum().item()
print(sum(losses), hits)"""


@pytest.mark.parametrize("softened", ["torch.nn.Softmax(dim=1)(out)", "soft(out)"])
def test_a_module_that_goes_on_with_the_model_s_output_is_no_forward_pass(softened: str, trained: Trained) -> None:
    """The loop does not collect its losses "before its forward pass"."""
    text, findings = trained(top="soft = torch.nn.Softmax(dim=1)", end=SOFTENED.format(softened=softened))
    assert "        out = model(x)\n        out, y = accelerator.gather_for_metrics((out, y))\n" in text
    assert findings == []


def test_a_head_with_weights_is_one(trained: Trained) -> None:
    text, findings = trained(top="head = torch.nn.Linear(2, 2)", end=SOFTENED.format(softened="head(out)"))
    assert "gather_for_metrics" not in text and findings == ["prepare"]
