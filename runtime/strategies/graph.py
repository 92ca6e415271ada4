"""What a backward pass will do, as far as its graph tells."""

from __future__ import annotations

import torch
from torch.autograd.function import BackwardCFunction

_KNOWN = "CompiledFunctionBackward"
"""What torch.compile makes; it starts no backward pass of its own."""


class Graph:
    """
    The graph of a loss.

    Args:
        loss: whose backward pass is about to begin.
    """

    def __init__(self, loss: torch.Tensor) -> None:
        self.leaves: dict[int, object] = {}
        """The nodes at which gradients will be added, by the identities of the parameters; not of those that only
        nested passes reach."""
        self.plain = True
        """No function of a script is in it: such a one may run a backward pass of its own (checkpoints, reversible
        layers), and nothing tells beforehand what that will reach."""
        if loss.grad_fn is None:
            self.leaves[id(loss)] = None
        waiting = [loss.grad_fn]
        seen: set[object] = set()
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            after = node.next_functions
            if not after:
                self.leaves[id(getattr(node, "variable", None))] = node
            elif isinstance(node, BackwardCFunction) and node.name() != _KNOWN:
                self.plain = False
            waiting.extend([one for one, _ in after])
