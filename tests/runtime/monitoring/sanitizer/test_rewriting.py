"""A rewritten script computes what it did, and says what it compares, logs and saves."""

from __future__ import annotations

import ast

import pytest

from torchlift.runtime.monitoring.sanitizer import rewriting
from torchlift.runtime.monitoring.sanitizer.rewriting import COMPARED, LOGGED, LOSS, SAVED, SITES, TESTED, rewritten


@pytest.fixture
def seen():
    """`seen(source)` runs a source in its rewritten form; gives its names, and what was seen: (kind, expression)."""
    import operator

    operations = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    found: list[tuple[str, str]] = []

    def note(kind):
        def function(number, value):
            found.append((kind, SITES[number].text))
            return value

        return function

    def compared(number, word, left, right):
        found.append(("time" if SITES[number].time else "compared", SITES[number].text))
        return operations[word](left, right)

    def loss(value):
        found.append(("loss", str(value)))
        return value

    functions = {COMPARED: compared, TESTED: note("tested"), LOGGED: note("logged"), SAVED: note("saved"), LOSS: loss}

    def run(source: str):
        found.clear()
        names = {"print": lambda *args, **more: None, "__file__": __file__, **functions}
        exec(compile(rewritten(ast.parse(source), "script.py"), "script.py", "exec"), names)
        return names, list(found)

    return run


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("a = 1.0\nif a < 2: b = 1", [("compared", "a < 2")]),
        ("a = 1.0\nbest = a >= 2 or a <= 1", [("compared", "a >= 2"), ("compared", "a <= 1")]),
        ("a = 1.0\nif a == 1 or 0 < a < 2 or a in [1] or a is a: pass", []),
        ("rank = 1\nif rank < 2: pass\nis_first = rank < 1\nif is_first: pass", []),
        ("import time\nsince = time.time()\nif time.time() - since > 9: pass", [("time", "time.time() - since > 9")]),
        ("import os\nclass A: pass\na = A()\na.me = os.getpid()\nif a.me > 1: pass", []),
        ("for row in [1.0]:\n    if row > 2: pass", []),
        ("loss = 1.0\nfor epoch in range(1):\n    if loss > epoch: pass", [("compared", "loss > epoch")]),
        (
            "loss = 1.0\nfor i, row in enumerate([2]):\n    if loss > i: pass\n    if row > i: pass",
            [("compared", "loss > i")],
        ),
        ("a = [x for x in [1.0] if x > 2]\nassert 1.0 > 0.5", []),
        ("a = 1\nif a and not a: pass", [("tested", "a"), ("tested", "a")]),
        ("a = 1.0\nprint(a, 'a', f'{a:.3f} {a + 1}')", [("logged", "a"), ("logged", "a"), ("logged", "a + 1")]),
        ("a = 1.0\nprint('%s %s' % (a, 2) + str(a))", [("logged", "a"), ("logged", "a")]),
        ("a = 1.0\nprint('{} {b}'.format(a, b=a))", [("logged", "a"), ("logged", "a")]),
        ("rank = 1\nprint(f'[{rank}] {2.0 * 3}')", []),
        ("elapsed = 1.0\nb = 2\nprint(f'{elapsed} {b}')", [("logged", "b")]),
        ("dt = elapsed = 1.0\nspeed = 1 / dt\nmessage = f'{speed}'\nprint(message, speed)", []),
        ("import math\nprint(math.log(2.0))", [("logged", "math.log(2.0)")]),
        ("import math\nmath.log(2.0)", []),
        (
            "class A:\n    log = save = staticmethod(lambda *a, **k: None)\na = A()\nb = 1\n"
            "a.log({'b': b, 'time': b}, step=b)\na.save({'b': b}, 'path')",
            [("logged", "b"), ("logged", "b"), ("saved", "{'b': b}")],
        ),
        (
            "class A:\n    def backward(self, *a): pass\na = A()\na.backward(6 / 2)\na.backward(5)",
            [("loss", "6"), ("loss", "5")],
        ),
    ],
)
def test_what_is_seen(seen, source, wanted):
    assert seen(source)[1] == wanted


def test_it_computes_the_same(seen):
    source = '''
"""Doc."""
from __future__ import annotations
import functools

def order(a, b, *, way=lambda x: x > 1):
    if a < b and way(b):
        return "less"
    while a > b:
        a -= 1
    else:
        return a, b
    return None

class Score:
    """Own."""
    limit = 1 < 2
    def __lt__(self, other):
        return [other]

found = [order(1, 2), order(3, 1), Score() < 3, Score.limit, Score.__doc__, 3 > 2 > 1]
with open(__file__) as first, open(__file__) as second:
    pass
'''
    names: dict[str, object] = {"__file__": __file__}
    exec(source, names)
    own, _ = seen(source)
    assert own["found"] == names["found"] == ["less", (1, 1), [3], True, "Own.", True]
    assert own["__doc__"] == "Doc."


def test_lines_are_those_of_the_script(seen):
    with pytest.raises(ZeroDivisionError) as failed:
        seen("a = 1.0\n\nif a < 2:\n    print(f'{a}',\n        1 / 0)")
    assert [entry.lineno + 1 for entry in failed.traceback][-1] == 5


def test_long_expressions_are_cut(seen):
    seen("a = 1.0\nb = a < 2 + " + " + ".join(["1"] * 40))
    assert rewriting.SITES[-1].text.endswith("...")
