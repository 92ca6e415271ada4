"""The rule `backward`: which `.backward()` is that of a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

CROSS_ENTROPY = "torch.nn.functional.cross_entropy(model(x), y)"

NOOPS = {
    "a function of that name": {"end": "def backward():\n    pass\n\nbackward()"},
    "a method of that name on an object of a class of the script": {
        "top": "class Tape:\n    def backward(self):\n        return 0\n\ntape = Tape()",
        "step": "tape.backward()",
    },
    "the attribute, not called": {"end": "hook = loss.backward"},
    "the name in a string": {"end": "note = 'loss.backward()'"},
    "the name in a comment": {"end": "done = True  # loss.backward() was called"},
    "a walk backwards in a file": {"imports": "import vim", "end": "moved = vim.cursor.backward(3)"},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


def test_a_receiver_that_nothing_is_known_of_is_left_and_reported(lines: Lines) -> None:
    assert lines(step="mystery.backward()") == ([], [], ["backward"])


INVERSES = """\
class Shift(torch.nn.Module):
    def forward(self, x):
        return x + 1

    def backward(self, z):
        return z - 1

class Chain(torch.nn.Module):
    def __init__(self, links):
        super().__init__()
        self.links = torch.nn.ModuleList(links)

    def backward(self, z):
        for link in self.links[::-1]:
            z = link.backward(z)
        return z

    def sample(self):
        return self.backward(torch.zeros(2))

class Flow(torch.nn.Module):
    def __init__(self, links):
        super().__init__()
        self.chain = Chain(links)

    def backward(self, z):
        return self.chain.backward(z)
"""


def test_the_inverse_of_a_layer_is_no_backward_pass(lines: Lines) -> None:
    """Also where nothing of the program calls the method around it, and the accelerator could not come there."""
    end = "shifted = Flow([Shift() for _ in range(2)]).chain.sample()"
    assert lines(top=INVERSES, end=end) == ([], [], [])


@pytest.mark.unchanged
def test_a_program_without_data_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop(
        """
        import torch

        x = torch.ones(3, requires_grad=True)
        (x * x).sum().backward()
        print(x.grad)
        """
    )


REWRITES = {
    "keyword arguments travel along": (
        "loss.backward(retain_graph=True)",
        "accelerator.backward(loss, retain_graph=True)",
    ),
    "what torch takes by position is named": (
        "loss.backward(None, True)",
        "accelerator.backward(loss, gradient=None, retain_graph=True)",
    ),
    "a sum of losses loses its parentheses": (
        "(loss + 0.1 * model.weight.norm()).backward()",
        "accelerator.backward(loss + 0.1 * model.weight.norm())",
    ),
    "the function of torch.autograd": (
        "torch.autograd.backward(loss, retain_graph=True)",
        "accelerator.backward(loss, retain_graph=True)",
    ),
    "a loss that was not given a name": (
        f"{CROSS_ENTROPY}.backward(retain_graph=True)",
        f"accelerator.backward({CROSS_ENTROPY}, retain_graph=True)",
    ),
    "a loss divided by hand": ("(loss / 4).backward()", "accelerator.backward(loss / 4)"),
    "a comment behind it stays": ("loss.backward()  # all of it", "accelerator.backward(loss)  # all of it"),
    "the argument of mean": ("loss.mean().backward()", "accelerator.backward(loss.mean())"),
}


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewritten(before: str, after: str, lines: Lines) -> None:
    assert lines(backward=before) == ([f"        {before}"], [f"        {after}"], [])


SUMS = {
    "reduction='sum'": ("torch.nn.functional.cross_entropy(model(x), y, reduction='sum')", True),
    "the method sum": ("(model(x) - y).pow(2).sum()", True),
    "torch.sum": ("torch.sum((model(x) - y) ** 2)", True),
    "divided by the number of rows": ("(model(x) - y).pow(2).sum() / len(x)", False),
    "divided by the size of the batch": ("(model(x) - y).pow(2).sum() / x.size(0)", False),
    "summed over features, averaged over rows": ("(model(x) - y).pow(2).sum(1).mean()", False),
}


@pytest.mark.parametrize(("loss", "summed"), SUMS.values(), ids=SUMS)
def test_a_loss_that_is_summed_over_the_batch_says_so(loss: str, summed: bool, lines: Lines) -> None:
    gone, come, findings = lines(loss=loss)
    assert come == (['        accelerator.backward(loss, reduction="sum")'] if summed else [])
    assert (gone, findings) == ([], [])


BOTH = "(loss + torch.nn.functional.mse_loss(model(x), y, reduction='sum')).backward()"


def test_a_sum_and_a_mean_in_one_loss_are_averaged_and_told(lines: Lines) -> None:
    """Each process takes a batch of the script, in which the sum weighs against the mean as it did: once refused."""
    gone, come, findings = lines(backward=BOTH)
    assert gone == [f"        {BOTH}"]
    assert come == [f"        accelerator.backward({BOTH[1 : -len(').backward()')]})"]
    assert findings == ["backward"]


def test_a_sum_and_a_mean_in_one_loss_of_split_batches_are_refused(lines: Lines) -> None:
    """A part of the script's batch gives a part of the sum, and a whole mean."""
    gone, _, findings = lines({"keep_global_batch": True}, backward=BOTH)
    assert f"        {BOTH}" not in gone
    assert "backward" in findings


def test_what_the_user_vouches_for_is_believed(lines: Lines) -> None:
    parts: dict[str, Any] = {"loss": "mystery(model(x), y)", "options": {"assume": (("loss", "loss"),)}}
    assert lines(**parts) == ([], [], ["loss-reduction"]), "a loss it is; whether a mean or a sum, nobody said"


@pytest.mark.parametrize("base", ["torch.nn.Module", "_Loss", "_WeightedLoss"])
def test_a_loss_of_a_class_is_one_whatever_it_is_derived_from(base: str, lines: Lines) -> None:
    """What torch derives its own losses from gives them no more than a module has."""
    top = (
        f"class Overlap({base}):\n    def forward(self, guess, target):\n        both = (guess * target).sum(1)\n"
        "        return (1 - both / (guess.sum(1) + target.sum(1))).mean()\n"
    )
    imports = "from torch.nn.modules.loss import _Loss, _WeightedLoss\n"
    built, loss = "criterion = Overlap()", "criterion(torch.sigmoid(model(x)), y)"
    assert lines(imports=imports, top=top, built=built, loss=loss) == ([], [], [])
