"""
Fields that only removed code read: ``self.device = device``, ``self.use_cuda = torch.cuda.is_available()``.

What an object has is not known here, so a name counts as read wherever any object is asked for it, or a string says it;
and where a class derives from one of another library, or fields are gone through, all stay.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache

import libcst as cst

from ..analysis.syntax.names import Names
from ..analysis.syntax.nodes import dotted
from ..analysis.syntax.walk import children, descendants, nodes_in

_PLAIN = frozenset({"object", "nn.Module", "torch.nn.Module", "Module", "Dataset", "data.Dataset", "ABC"})
"""Base classes that read no fields of the script's."""
_GOES_THROUGH = frozenset({"__dict__", "vars", "__slots__", "__getattr__", "__getattribute__", "getmembers", "setattr"})
_OURS = re.compile(r"(?:.*\.)?(?:torchlift_)?accelerator(?:_\d+)?")


def unread_fields(before: Names, now: Names, others: Iterable[cst.Module]) -> Iterator[cst.Assign]:
    """The assignments to fields that the original module reads, and that nothing of the program reads now."""
    read = set(_loads(before.module))
    lost = {name for name, _ in read} - {name for name, _ in _loads(now.module)}
    others = list(others)
    classes = list(now.every(cst.ClassDef)) if lost else []
    trees = [now.module, *others]
    if not classes or any(map(_goes_through_fields, trees)):
        return
    lost -= {name for tree in others for name, _ in _loads(tree)}.union(*map(_strings, trees))
    own = {klass.name.value for klass in classes}
    readers: dict[str, set[str]] = {}
    for name, around in read:
        readers.setdefault(around, set()).add(name)
    of_kin: dict[str, set[str]] = {}
    for kin in _kin(classes):
        of_kin.update(dict.fromkeys(kin, lost & set[str]().union(*(readers.get(one, ()) for one in ("", *kin)))))
    for klass in classes:
        stores = list(_stores(now, klass)) if lost and _is_plain(klass, own) else []
        plain = Counter(name for name, assign in stores if assign is not None)
        several = Counter(name for name, _ in stores)
        declared = {name.value for part in klass.body.body for name in _bound(part)}
        mine = of_kin[klass.name.value] - declared
        for name, assign in stores:
            if name in mine and assign is not None and plain[name] == several[name]:
                yield assign


def _loads(tree: cst.Module) -> Iterator[tuple[str, str]]:
    """The attributes that are read of objects, but for the accelerator, each with the class that reads its own; an
    empty string for what is read of another object."""
    targets: set[cst.CSTNode] = set()
    modules: set[str] = set()
    pending: list[tuple[cst.CSTNode, str]] = [(tree, "")]
    while pending:  # from the outside in, and from the top down
        node, around = pending.pop()
        if isinstance(node, cst.ClassDef):
            around = node.name.value
        elif isinstance(node, cst.AssignTarget):
            targets.add(node.target)
        elif isinstance(node, cst.Import):
            names = (alias.evaluated_alias or alias.evaluated_name.partition(".")[0] for alias in node.names)
            modules.update(names)
        elif isinstance(node, cst.Attribute) and node not in targets:
            base = dotted(node.value)
            if base.partition(".")[0] not in modules and not ("accelerator" in base and _OURS.fullmatch(base)):
                yield node.attr.value, around if base == "self" else ""
        pending += [(child, around) for child in children(node)[::-1]]


def _kin(classes: Iterable[cst.ClassDef]) -> Iterator[set[str]]:
    """The families of classes: those of a module that derive from each other."""
    beside: dict[str, set[str]] = {klass.name.value: set() for klass in classes}
    for name, bases in {each.name.value: {dotted(base.value) for base in each.bases} for each in classes}.items():
        for base in bases & beside.keys():
            beside[name].add(base)
            beside[base].add(name)
    while beside:
        found, pending = set[str](), [next(iter(beside))]
        while pending:
            name = pending.pop()
            found.add(name)
            pending += beside.pop(name, set()) - found
        yield found


def _strings(tree: cst.CSTNode) -> Iterator[str]:
    return (str(node.raw_value) for node in nodes_in(tree, cst.SimpleString))


@lru_cache(maxsize=512)  # the files beside one that changes are the same for the next one
def _goes_through_fields(tree: cst.CSTNode) -> bool:
    """Whether code asks objects for what they have, or for a field whose name it computes."""
    for node in descendants(tree):
        if isinstance(node, cst.Name) and node.value in _GOES_THROUGH:
            return True
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in ("getattr", "hasattr"):
            known = len(node.args) > 1 and isinstance(node.args[1].value, cst.SimpleString)
            if not known and (not node.args or dotted(node.args[0].value).split(".")[0] in ("", "self")):
                return True
    return False


def _is_plain(klass: cst.ClassDef, own: Container[str]) -> bool:
    """Whether a class derives from nothing that may read its fields, and nothing changes it; ``own``: the classes of
    its module."""
    bases = [dotted(base.value) for base in klass.bases]
    return not klass.decorators and not klass.keywords and all(base in _PLAIN or base in own for base in bases)


def _bound(part: cst.CSTNode) -> Iterator[cst.Name]:
    """The names that a line of a class itself sets."""
    if isinstance(part, cst.FunctionDef):
        yield part.name
    elif isinstance(part, cst.SimpleStatementLine):
        yield from nodes_in(part, cst.Name)


def _stores(names: Names, klass: cst.ClassDef) -> Iterator[tuple[str, cst.Assign | None]]:
    """The fields of ``self`` that a class sets, each with a plain assignment, or None for another way."""
    for node in nodes_in(klass, cst.Attribute):
        parent = names.parents.get(node)
        if isinstance(node.value, cst.Name) and node.value.value == "self":
            assign = names.parents.get(parent) if isinstance(parent, cst.AssignTarget) else None
            if isinstance(assign, cst.Assign):
                yield node.attr.value, assign if len(assign.targets) == 1 else None
            elif isinstance(parent, (cst.AugAssign, cst.AnnAssign, cst.Element, cst.Del)):
                yield node.attr.value, None
