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
        root = loss.grad_fn
        if root is None:
            self.leaves[id(loss)] = None
            return
        waiting, seen = [root], {root}
        while waiting:  # short on purpose: it is run at every step, for hundreds of nodes
            node = waiting.pop()
            after = node.next_functions
            if not after:
                self.leaves[id(getattr(node, "variable", None))] = node
            elif isinstance(node, BackwardCFunction) and node.name() != _KNOWN:
                self.plain = False
            for one, _ in after:
                if one is not None and one not in seen:
                    seen.add(one)
                    waiting.append(one)
