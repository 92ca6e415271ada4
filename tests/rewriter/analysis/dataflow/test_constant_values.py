"""What an expression may be by constants: `probe(...)` of each small program. Not to know is an answer, too."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlift.rewriter.analysis.dataflow.constant_values import constants_of
from torchlift.rewriter.analysis.dataflow.constants import Text, Value
from torchlift.rewriter.analysis.dataflow.program_flow import solve
from torchlift.rewriter.facts.module_paths import ModulePaths

OTHER = "SIZE = 4\nWORDS = {'how': 'sum'}\n"


def asked(text: str, usual: bool = False) -> frozenset[Value] | None:
    """What the first argument of the one call of `probe` may be; texts as they are."""
    modules = [("__main__", cst.parse_module(text)), ("config", cst.parse_module(OTHER))]
    state = solve(modules, (), ModulePaths())
    (record,) = [r for c, r in state.calls.items() if isinstance(c.func, cst.Name) and c.func.value == "probe"]
    found = constants_of(state, usual).of(record.unit, record.node.args[0].value)
    return None if found is None else frozenset(v.end if isinstance(v, Text) and v.whole else v for v in found)


KEEPS = """\
class Keeps:
    how = "none"
    def __init__(self, how="mean", size=1):
        self.how = how
        self.size = size
    def ask(self):
        probe(self.{word})
"""
DATA = "from dataclasses import dataclass\n@dataclass\nclass Options:\n    size: int = 1\n    how: str = 'mean'\n"
PARSER = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--size', default=3)\nargs = p.parse_args()\n"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x = 'sum'\nprobe(x)", {"sum"}),
        ("a, b = 1, 2\nprobe(b)", {2}),
        ("x = 1\nif flag:\n    x = 2\nprobe(x)", {1, 2}),
        ("x = 1\nx = 2\nprobe(x)", {2}),
        ("for x in (1, 2):\n    probe(x)", None),
        ("x = 1\nx += 1\nprobe(x)", None),
        ("x = True\nwhile True:\n    x = not x\n    probe(x)", None),
        ("probe(2 if True else 3)", {2}),
        ("def f(x):\n    probe(x)\nOFF = False\nOFF and f(2)\nf(1)", {1}),
        ("def f(x):\n    probe(x)\nOFF = False\nOFF or f(2)\nf(1)", {1, 2}),
        ("probe(2 if flag else 3)", {2, 3}),
        ("import config\nprobe(config.SIZE)", {4}),
        ("from config import SIZE\nprobe(SIZE)", {4}),
        ("from config import WORDS\nprobe(WORDS['how'])", {"sum"}),
        ("d = {'a': 1}\nprobe(d['a'])", {1}),
        ("d = {'a': 1}\nd['a'] = 2\nprobe(d['a'])", {1, 2}),
        ("d = {'a': 1}\nd.update(b=2)\nprobe(d['a'])", {1}),
        ("d = {'a': 1}\nd.update(made())\nprobe(d['a'])", None),
        ("d = {'a': 1}\nd[key] = 2\nprobe(d['a'])", None),
        ("d = {'a': 1, **{'b': 2}}\nprobe(d['b'])", {2}),
        ("def change(d):\n    d['a'] = 3\nd = {'a': 1}\nchange(d)\nprobe(d['a'])", None),
        ("d = (1, 2)\nprobe(d[1])", {2}),
        (KEEPS.format(word="how") + "Keeps().ask()", {"mean"}),
        (KEEPS.format(word="how") + "Keeps('sum').ask()", {"sum"}),
        (KEEPS.format(word="size") + "Keeps(size=2).ask()\nKeeps('sum').ask()", {1, 2}),
        (KEEPS.format(word="how") + "k = Keeps()\nk.how = 'sum'\nk.ask()", {"mean", "sum"}),
        (KEEPS.format(word="how") + "k = Keeps(made())\nk.ask()", None),
        (DATA + "probe(Options(size=2).size)", {2}),
        (DATA + "probe(Options(2).how)", {"mean"}),
        ("def f(x, y=5):\n    probe(y)\nf(1)\nf(2, 6)", {5, 6}),
        (PARSER + "probe(args.size)", None),
        ("probe(made())", None),
    ],
)
def test_what_an_expression_may_be(text: str, values: set[Value] | None) -> None:
    assert asked(text) == (None if values is None else frozenset(values))


def test_options_have_their_defaults_in_a_usual_run() -> None:
    assert asked(PARSER + "probe(args.size)", usual=True) == {3}
    assert asked(PARSER + "probe(args.other)", usual=True) is None


@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("made(drop=True)", {True}),
        ("made(1, True)", {True}),
        ("made(**{'drop': True})", {True}),
        ("made(**dict(drop=True))", {True}),
        ("made(**({'drop': True} if flag else {'drop': False}))", None),
        ("made(**({'drop': True} if flag else {}))", None),
        ("made(1)", set()),
        ("made(**{})", set()),
        ("made(**given())", None),
        ("made(*rows)", None),
    ],
)
def test_what_a_call_of_something_outside_gives(call: str, values: set[Value] | None) -> None:
    state = solve([("__main__", cst.parse_module(f"from lib import made\nx = {call}\n"))], (), ModulePaths())
    record = next(r for c, r in state.calls.items() if isinstance(c.func, cst.Name) and c.func.value == "made")
    found = constants_of(state).argument(record.unit, record.node, "drop", 1)
    assert found == (None if values is None else frozenset(values))
