"""Which mutants are tried: drawn by a fixed seed, spread over the files by size, no two at one place."""

from __future__ import annotations

import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Iterator

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.work_item import MutationSpec, WorkItem

from .sources import ROOT, spread, unevaluated

FOLDERS = ("rewriter/analysis", "rewriter/planning", "runtime/gradients", "runtime/collectives", "runtime/data")
SEED = 12
NUMBER = 306

# `is` and `==` mean the same where the values are None, members of an enumeration, small numbers or words.
_SAME = re.compile(r"ReplaceComparisonOperator_(Is_Eq|Eq_Is|IsNot_NotEq|NotEq_IsNot)$")
_SYMBOLS = frozenset(("+", "-", "*", "/", "//", "%", "**", ">>", "<<", "|", "&", "^"))


def sample(number: int = NUMBER, seed: int = SEED) -> list[WorkItem]:
    """The mutants, in an order that is drawn as well: whoever stops early has seen a bit of everything."""
    texts = {file: (ROOT / file).read_text() for file in files()}
    counts = spread({file: len(text.splitlines()) for file, text in texts.items()}, number)
    items = [item for file, count in counts.items() for item in _draw(file, texts[file], count, seed)]
    random.Random(seed).shuffle(items)
    return items


def files() -> list[str]:
    """The files that mutants are made of."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py"]


def _draw(file: str, text: str, count: int, seed: int) -> Iterator[WorkItem]:
    """Draw places first, then for each what is done there: `==` can be replaced in seven ways and `not` in one."""
    places = defaultdict(list)
    if count:
        unseen = unevaluated(text)
        for one in candidates(file, text):
            if one.start_pos not in unseen:
                places[one.start_pos].append(one)
    chance = random.Random(f"{seed} {file}")
    order = sorted(places)
    chance.shuffle(order)
    version = hashlib.sha256(text.encode()).hexdigest()[:12]
    for place in order:
        one = chance.choice(places[place])
        if count and _compiles(mutant(text, one)):
            yield WorkItem.single(f"{file}:{version}:{one.operator_name}:{one.occurrence}", one)
            count -= 1


def candidates(file: str, text: str) -> Iterator[MutationSpec]:
    """Everything that Cosmic Ray can do to a file, but for what cannot make a difference."""
    nodes = list(ast_nodes(get_ast(text)))
    comparisons = [node for node in nodes if node.type == "comparison"]
    symbols = [node for node in nodes if node.type == "operator" and node.value in _SYMBOLS]
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if kind.arguments() or _SAME.search(name):
            continue
        # most operators replace one symbol with another: asking all of them about all nodes takes minutes
        of_interest = comparisons if "ComparisonOperator" in name else symbols if "BinaryOperator" in name else nodes
        operator = kind()
        positions = (position for node in of_interest for position in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(positions):
            yield MutationSpec(file, name, occurrence, start, end)


def mutant(text: str, one: MutationSpec) -> str:
    """The text of a file with one mutation."""
    changed: str | None = mutate_code(text, get_operator(one.operator_name)(), one.occurrence)
    assert changed is not None, f"{one} cannot be applied"
    return changed


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
