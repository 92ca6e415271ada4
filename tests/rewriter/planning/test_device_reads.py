"""What is read of a device that the accelerator takes over."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_a_word_stays_a_word(trained: Trained) -> None:
    text, _ = trained(
        top='device = "cuda" if torch.cuda.is_available() else "cpu"',
        built='model = model.to(device)\nif device == "cuda":\n    print(1)\n\nprint(device)',
        loss="x, y = x.to(device), y.to(device)\nloss = torch.nn.functional.cross_entropy(model(x), y)",
    )
    assert 'if accelerator.device.type == "cuda":' in text
    assert "accelerator.print(accelerator.device.type)" in text
