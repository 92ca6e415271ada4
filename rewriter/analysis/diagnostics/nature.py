"""What a script does that several processes do differently by nature: statistics of a batch, noise, lengths."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

import libcst as cst

from ...facts.module import ModuleFacts
from ...facts.roles import Role
from ..syntax.names import Names
from ..syntax.nodes import dotted
from ..syntax.walk import nodes_in
from ..training.draws import random_transform

_STATISTICS = re.compile(r"(Lazy)?BatchNorm([123]d)?$")
_NETWORKS = re.compile(
    r"(resnet\d|resnext|wide_resnet|densenet|mobilenet|efficientnet|shufflenet|mnasnet|googlenet|inception|regnet|vgg\d+_bn)"
)
_NOISE = re.compile(r"((Feature)?(Alpha)?Dropout([123]d)?|(feature_)?(alpha_)?dropout([123]d)?|DropPath)$")
_ROWS = re.compile(r"\blen\(|(num|n)_(samples|examples|train\w*|rows|data)\b|dataset_size")


_OTHER_DEVICE = {"cuda or cpu": "mac", "mps or cpu": "cuda", "cpu": "gpu"}
"""What is said of the device, by those that the script ran on."""
_WRITTEN_DEVICE = re.compile(r'(?:str\()?([\w.]+(?:\[[^]]+\])?)\)?(?:\.type)? == "cpu"')
"""The condition of an accelerator where the script takes its device as it is written: it may name a GPU by number."""


def nature(
    names: Names, facts: ModuleFacts, whole: Container[cst.CSTNode] = (), unbuilt: Container[cst.CSTNode] = ()
) -> Iterator[tuple[cst.CSTNode, str, str]]:
    """
    Yield the place, the kind and how the script calls it. Kinds: ``statistics``, ``noise``, ``anew``, ``transforms``,
    ``length``, ``early-length``, ``steps``, ``cadence``, ``long-cadence``, ``interval``, ``limit``, ``rate``, ``bar``,
    ``rows-done``, ``running``, ``figure``, ``alike``, ``reseeded``, ``mac``, ``gpu``, ``cuda``,
    ``numbered``, ``precision``;
    ``by-hand`` where the script was distributed before, so that statistics and lengths stay as they were.
    ``whole``: where the length of a loader is asked for that stays as it is; ``unbuilt``: the calls of ``by_nature``
    and the quotients that the program never makes.
    """
    by_hand = bool(facts.by_hand or facts.unwrapped)
    if by_hand:
        first = facts.unwrapped[0].node if facts.unwrapped else facts.by_hand[0].node
        yield first, "by-hand", "distributed before"
    yield from facts.counts
    if facts.home is not None and facts.home.ran_on and dict(facts.home.arguments).get("cpu") != "True":
        cpu = dict(facts.home.arguments).get("cpu", "")
        yield facts.home.node, _OTHER_DEVICE[facts.home.ran_on], cpu
    if facts.home is not None and (asked := _WRITTEN_DEVICE.fullmatch(dict(facts.home.arguments).get("cpu", ""))):
        yield facts.home.node, "numbered", asked[1]
    yield from _cuda_only(facts)
    loaders = {fact.name for fact in facts.roles if fact.role is Role.LOADER}
    prepared = {name for prepare in facts.prepares for name in prepare.names}
    layers = set(_layers(names))
    for call in names.calls:
        written = dotted(call.func)
        last = written.rpartition(".")[2]
        if (kind := by_nature(call)) is not None:
            if written in layers:
                continue  # where it is made it is named
            if call not in unbuilt and not (by_hand and kind == "statistics"):
                yield call, kind, last
        elif written == "len" and len(call.args) == 1:
            loader = dotted(call.args[0].value)
            if not by_hand and call not in whole and loader and loader in loaders | prepared:
                if not _counts_what_is_added(names, call, loader):
                    yield call, "length", loader
    steps = () if by_hand else _steps(names, loaders | prepared)
    yield from (found for found in steps if found[0] not in unbuilt)


def _layers(names: Names) -> Iterator[str]:
    """What is given such a layer: ``self.dropout`` of ``self.dropout = nn.Dropout(0.5)``."""
    for assign in names.every(cst.Assign):
        if isinstance(assign.value, cst.Call) and by_nature(assign.value) is not None:
            yield from (dotted(target.target) for target in assign.targets)


def _counts_what_is_added(names: Names, call: cst.Call, loader: str) -> bool:
    """Whether a length divides what a loop over the same loader adds up: both are of the batches of one process."""
    quotient = names.parents.get(call)
    if not isinstance(quotient, cst.BinaryOperation) or not isinstance(quotient.operator, cst.Divide):
        return False
    total = quotient.left
    binding = names.binding(total) if isinstance(total, cst.Name) and quotient.right is call else None
    added = (names.parents.get(d) for d in (binding.definitions if binding is not None else ()))
    loops = (
        around
        for statement in added
        if isinstance(statement, cst.AugAssign)
        for around in names.enclosing(statement, cst.For)
        if isinstance(around, cst.For)
    )
    return any(loader == dotted(part) for loop in loops for part in nodes_in(loop.iter, cst.Name, cst.Attribute))


def by_nature(call: cst.Call) -> str | None:
    """The kind of a call that makes something which is different on each process; None for any other."""
    written = dotted(call.func)
    last = written.rpartition(".")[2]
    if _STATISTICS.match(last) or ("models." in written and _NETWORKS.match(last)):
        return "statistics"
    if _NOISE.match(last):
        return "noise"
    return "transforms" if random_transform(last) else None


def _steps(names: Names, loaders: set[str]) -> Iterator[tuple[cst.CSTNode, str, str]]:
    """``len(data) // batch_size``: the steps of an epoch, counted as on one process."""
    for node in names.every(cst.BinaryOperation):
        if not isinstance(node.operator, (cst.Divide, cst.FloorDivide)):
            continue
        if "batch" not in dotted(node.right).lower().rpartition(".")[2]:
            continue
        text = names.module.code_for_node(node)
        rows = names.module.code_for_node(node.left)
        if _ROWS.search(rows) and not any(f"len({loader})" in rows for loader in loaders):
            yield node, "steps", " ".join(text.split())


def _cuda_only(facts: ModuleFacts) -> Iterator[tuple[cst.CSTNode, str, str]]:
    """Regions of low precision that were off where there is no CUDA; as the accelerator's setting they are not."""
    setting = facts.mixed_precision or ""
    if "available" in setting or "cuda" in setting:
        return
    word = "fp16" if "fp16" in setting else "bf16"
    for node in (*facts.precision.regions, *facts.precision.makers, *facts.precision.made_early):
        if "cuda" in facts.module.code_for_node(node):
            yield node, "precision", word
            return
