"""Where the rows of a batch are, in each variable of a training step: the layouts that the engine finds."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
import pytest

from torchlift.rewriter.analysis.dataflow.call_graph import Reach
from torchlift.rewriter.analysis.dataflow.program_flow import solve
from torchlift.rewriter.analysis.layouts.engine.interpreter import Interpreter
from torchlift.rewriter.analysis.layouts.engine.layout import (
    NEUTRAL,
    REPLICATED,
    Each,
    Layout,
    Mixed,
    Partial,
    Replicated,
    Shard,
    ShardRow,
    ShardSize,
    Unclear,
    Whole,
    varies,
)
from torchlift.rewriter.analysis.layouts.engine.memory import Seeds
from torchlift.rewriter.analysis.layouts.loop_layouts import layouts_of

PROGRAM = """\
import torch
from torch import nn
from torch.nn import functional as F

{top}

for step in range(10):
    x = draw()
{step}
"""


def layouts(
    step: str,
    top: str = "",
    rows: Layout = Shard(0, rank=3),  # noqa: B008 (frozen)
    sizes: frozenset[str] = frozenset(),
) -> dict[str, Layout]:
    """The layouts of the variables after a step in which ``x`` is a shard. ``sizes``: spellings of the batch size."""
    text = PROGRAM.format(top=top, step="\n".join(f"    {line}" for line in step.splitlines()))
    state = solve([("train", cst.parse_module(text))])
    reach = Reach(state)
    (unit,) = reach.units
    loop = unit.names.module.body[-1]
    assert isinstance(loop, cst.For)
    drawn = next(call for call in unit.names.calls if isinstance(call.func, cst.Name) and call.func.value == "draw")
    held = Interpreter(state, reach, Seeds({drawn: rows}, sizes))
    held.turns(loop, unit)
    return {binding.name: layout for binding, layout in held.values.items()}


def reason(layout: Layout) -> str:
    assert isinstance(layout, Unclear), layout
    return layout.reason


ALONG_THE_LAST = "Linear works along the dimension in which the rows are"


@pytest.mark.parametrize(
    ("rows", "after"),
    [
        (Shard(0, rank=2), Shard(0, rank=2)),
        (Shard(1, rank=3), Shard(1, rank=3)),
        (Shard(1, rank=2), None),
        (Shard(2, rank=3), None),
        (Shard(1, rank=None), None),
    ],
)
def test_a_linear_layer_leaves_all_dimensions_but_the_last(rows: Shard, after: Shard | None) -> None:
    found = layouts("y = layer(x)", "layer = nn.Linear(4, 2)", rows)["y"]
    assert found == after if after is not None else reason(found) == ALONG_THE_LAST


ASKED = """\
def inside(x):
    if isinstance(x, torch.Tensor):
        return x.detach()
    return tuple(inside(y) for y in x)
def listed(x):
    return [one.mean() for one in x] if isinstance(x, (list, tuple)) else x.mean()
def plain(x):
    if not torch.is_tensor(x):
        x = x[0]
    return x
"""


@pytest.mark.parametrize(
    ("step", "after"),
    [
        ("y = inside(x)", Shard(0, rank=3)),
        ("y = inside((x, x))[1]", Shard(0, rank=3)),
        ("y = inside(x if asked() else (x, x))\ny = y.mean() if isinstance(y, torch.Tensor) else y[1].mean()",
         Partial("mean")),
        ("y = listed(x)", Partial("mean")),
        ("y = listed([x])[0]", Partial("mean")),
        ("y = plain((x, 1))", Shard(0, rank=3)),
        ("y = (x, x.t()) if asked() else x\nz, y = y\ny = z", Shard(0, rank=3)),
        ("y = (x, x) if asked() else x\ny = y.view(-1, 3)", None),
    ],
)  # fmt: skip
def test_a_branch_that_asks_for_the_type_of_a_value(step: str, after: Layout | None) -> None:
    found = layouts(step, ASKED)["y"]
    assert found == after if after is not None else isinstance(found, Shard)


PART_OF_A_BASE = """\
class Net(nn.Transformer):
    def __init__(self, first):
        super().__init__(8, 2, batch_first=first)
    def forward(self, x):
        return self.encoder(x)
layer = Net(True)
"""


@pytest.mark.parametrize(
    ("top", "first"),
    [
        ("layer = nn.LSTM(8, 8, 1, True, True)", True),
        ("layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 2)", True),
        ("one = nn.TransformerEncoderLayer(8, 2)\nlayer = nn.TransformerEncoder(one, num_layers=2)", False),
        ("first = True\nlayer = nn.GRU(8, 8, batch_first=first)", True),
        ("options = {'batch_first': True}\nlayer = nn.RNN(8, 8, **options)", True),
        ("layer = nn.Transformer(8, 2).encoder", False),
        (PART_OF_A_BASE, True),
        ("layer = nn.GRU(8, 8, batch_first=asked())", None),
        ("layer = nn.TransformerEncoder(given(), 2)", None),
    ],
)
def test_a_layer_over_sequences_has_its_rows_where_it_is_built_to(top: str, first: bool | None) -> None:
    def gives(dim: int) -> Layout:
        given = layouts("y = layer(x)\nz = y[0]", top, Shard(dim, rank=3))
        return given["z"] if any(name in top for name in ("LSTM", "GRU", "RNN")) else given["y"]

    assert isinstance(gives(0), Shard) is (first is True)
    assert isinstance(gives(1), Shard) is (first is False)


def test_single_values_that_are_set() -> None:
    found = layouts(
        "one = torch.zeros(3)\none[0] = 1.0\nkept = x.clone()\nkept[0] = 1.0\nmixed = torch.zeros(3)\nmixed[0] = x"
    )
    assert not isinstance(found["one"], Unclear) and found["kept"] == Shard(0, rank=3)
    assert reason(found["mixed"]) == "`mixed[0]` is set, and what `mixed` holds then cannot be told"


KEEPS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.found = {}
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        self.found["first"] = self.out(x)
        self.found["scale"] = 2.0
        self.found["inner"] = {}
        self.found["inner"]["last"] = self.found["first"] * self.found["scale"]
        return self.found

net = Net()
"""


def test_entries_of_a_table_that_an_object_keeps() -> None:
    """A key that is a text indexes no tensor."""
    found = layouts(
        'got = net(x)\nfirst, scale, last, free = got["first"], got["scale"], got["inner"]["last"], got["other"]', KEEPS
    )
    assert found["first"] == found["last"] == Shard(0, rank=3)
    assert isinstance(found["scale"], Replicated) and isinstance(found["free"], Replicated)


def test_tables_of_two_paths_with_different_keys_are_not_told_apart() -> None:
    body = 'if step:\n    table["own"] = x\nelse:\n    table["all"] = x\none, two = table["own"], table["all"]'
    found = layouts(body, "table = make()")
    assert varies(found["one"]) and varies(found["two"])


def test_a_row_that_is_set_in_a_loop_over_the_rows_is_a_row_of_the_shard() -> None:
    found = layouts("scores = x.clone()\nfor i, row in enumerate(x):\n    scores[i] = row * 2\nscores[0] = x[1]")
    assert found["row"] == ShardRow()


@pytest.mark.parametrize(
    ("rows", "call", "after"),
    [
        (Shard(0, rank=3), "x.flatten(1)", Shard(0, rank=2)),
        (Shard(0, rank=3), "x.flatten()", Shard(0, rank=1)),
        (Shard(0, rank=3), "x.flatten(0)", Shard(0, rank=1)),
        (Shard(1, rank=3), "x.flatten(2)", Shard(1, rank=3)),
        (Shard(1, rank=3), "x.flatten(1)", None),
        (Shard(0, rank=3), "x.flatten(which)", None),
    ],
)
def test_flattened(rows: Shard, call: str, after: Shard | None) -> None:
    found = layouts(f"y = {call}", rows=rows)["y"]
    if after is None:
        assert reason(found) == "it is flattened over the dimension of the rows"
    else:
        assert found == after


@pytest.mark.parametrize(("call", "dim"), [("x.t()", 1), ("x.transpose(0, 1)", 1), ("x.transpose(1, 2)", 0)])
def test_transposed(call: str, dim: int) -> None:
    assert layouts(f"y = {call}", rows=Shard(0, rank=2))["y"] == Shard(dim, rank=2)


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("x.select(0, step)", Shard(0, rank=2)),
        ("x.select(2, 0)", Shard(1, rank=2)),
        ("x.narrow(0, step, 5)", Shard(1, rank=3)),
        ("torch.narrow(x, 0, step, 5)", Shard(1, rank=3)),
    ],
)
def test_one_place_or_a_window_of_another_dimension(call: str, after: Shard) -> None:
    """One place leaves its dimension out, a window keeps it."""
    assert layouts(f"y = {call}", rows=Shard(1, rank=3))["y"] == after


@pytest.mark.parametrize("size", ["n * 2", "2 * n", "n // 2", "n / 2"])
def test_what_is_counted_in_rows(size: str) -> None:
    assert layouts(f"n = x.size(0)\ny = {size}")["y"] == ShardSize()


@pytest.mark.parametrize(
    ("size", "why"),
    [
        ("2 / n", "a part of the number of rows"),
        ("100 // n", "a part of the number of rows"),
        ("n + 1", "it is computed"),
    ],
)
def test_what_is_not(size: str, why: str) -> None:
    assert reason(layouts(f"n = x.size(0)\ny = {size}")["y"]).startswith(why)


def test_the_shape_of_a_shard() -> None:
    found = layouts("rows = x.shape[0]\nwidth = x.shape[1]\nsome = x.shape[0:2]")
    assert found["rows"] == ShardSize() and found["width"] == REPLICATED
    assert reason(found["some"]) == "a part of a shape"


@pytest.mark.parametrize("size", ["x.size(dim=0)", "np.shape(x)[0]", "np.shape(x.numpy())[0]", "np.size(x.numpy(), 0)"])
def test_the_shape_of_an_array(size: str) -> None:
    top = "import numpy as np"
    found = layouts(f"rows = {size}\nwidth = {size.replace('0', '1')}\nall = np.size(x.numpy())\nd = np.ndim(x)", top)
    assert (found["rows"], found["width"], found["all"]) == (ShardSize(), REPLICATED, ShardSize())
    assert found["d"] == REPLICATED


MOVES = """
def to_device(x):
    if isinstance(x, (list, tuple)):
        return [to_device(y) for y in x]
    if isinstance(x, dict):
        return {k: to_device(v) for k, v in x.items()}
    return x.to(device)

def to_numpy(x):
    if isinstance(x, Wrapped):
        return to_numpy(x.data)
    return x.cpu().numpy()

def grown(x, times):
    return x if times == 0 else torch.cat([grown(x, times - 1), x])

def endless(x):
    return endless(x)
"""


def test_a_function_that_calls_itself() -> None:
    """It gives what it gives where it does not call itself, if that stays so with what its calls of itself give."""
    found = layouts("a = to_numpy(x)\npair = to_device([x, x])\nb = pair[0]\nc = endless(x)\nd = grown(x, n)", MOVES)
    assert (found["a"], found["b"]) == (Shard(0, rank=3), Shard(0, rank=3))
    assert reason(found["c"]) == "`endless` may call itself, so what it gives is not known"
    assert found["d"] != Shard(0, rank=3)


def test_what_a_function_that_calls_itself_holds_after_it() -> None:
    top = "def turned(x, again):\n    y = x.t()\n    if again:\n        turned(y, False)\n    return y\n"
    assert layouts("a = turned(x, True)", top)["a"] == Shard(1, rank=3)


def test_how_long_things_are() -> None:
    found = layouts("n = len(x)\nfor row in x:\n    m = len(row)\n    k = row.dim()\nrows = list(x)")
    assert (found["n"], found["m"], found["k"]) == (ShardSize(), ShardRow(), REPLICATED)


def test_a_list_with_an_element_for_each_row() -> None:
    found = layouts("pairs = torch.tensor([[len(row), 1.0] for row in x])\nones = [1 for row in x]")
    assert found["pairs"] == Shard(0) and found["ones"] == Each(NEUTRAL)


def test_what_is_given_to_a_loss() -> None:
    found = layouts(
        "a = criterion(w, w)\nb = criterion(x, x)\nc = x.sum()", "criterion = nn.MSELoss()\nw = torch.ones(2)"
    )
    assert (found["a"], found["b"], found["c"]) == (REPLICATED, Partial("mean"), Partial("sum"))


def test_lists_and_dicts() -> None:
    step = "held = []\nheld.append(x)\nfirst = held.pop()\nother = []\nother.append(1)\nnames = {}\nnames.update(a=1)"
    found = layouts(step)
    assert found["held"] == Each(Shard(0, rank=3)) and found["first"] == Shard(0, rank=3)
    assert isinstance(found["other"], Each) and found["other"].element != Shard(0, rank=3)


def test_what_a_function_returns() -> None:
    top = "def loss_of(v, w=None):\n    if w is not None:\n        return v.sum()\n    return v.mean()\n"
    found = layouts("a = loss_of(x, flag)\nb = other(x)", top + "def other(v):\n    return\n")
    assert found["a"] == Mixed(Partial("sum"), Partial("mean")) and found["b"] == NEUTRAL


@pytest.mark.parametrize(("given", "op"), [("x", "mean"), ("x, x", "sum"), ("x, w=x", "sum"), ("x, w=None", "mean")])
@pytest.mark.parametrize("test", ["w is not None", "w is None"])
def test_a_parameter_that_is_left_out_decides(given: str, op: str, test: str) -> None:
    """What a call does not give, or gives as None, is None in it, and rows are not."""
    ways = ("v.sum()", "v.mean()") if "not" in test else ("v.mean()", "v.sum()")
    found = layouts(
        f"a = loss_of({given})",
        f"def loss_of(v, w=None):\n    if {test}:\n        return {ways[0]}\n    return {ways[1]}",
    )
    assert found["a"] == Partial(op)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("x.mean()", False),
        ("x.mean().item()", True),
        ("float(x.sum())", True),
        ("x.numpy().sum()", True),
        ("x.cpu().sum()", False),
        ("x.sum().item() if flag else x.sum()", None),
    ],
)
def test_what_is_no_tensor_any_more(value: str, host: bool | None) -> None:
    found = layouts(f"a = {value}")["a"]
    assert isinstance(found, Partial) and found.host is host


@pytest.mark.parametrize(("call", "dim"), [("x, x", 1), ("x, x], 0", 1), ("x, x], 1", 0), ("x, x], -1", 0)])
def test_stacked(call: str, dim: int) -> None:
    given = call if "]" in call else f"{call}]"
    found = layouts(f"y = torch.stack([{given})\nw = torch.ones(2)\nz = torch.stack([w, w])")
    assert found["y"] == Shard(dim, rank=4) and found["z"] == REPLICATED


def test_what_is_made_for_the_whole_batch_does_not_meet_rows() -> None:
    found = layouts("h = torch.zeros(B, 4)\ntwice = h * 2\ny = h + x", "B = 8", sizes=frozenset({"B"}))
    assert isinstance(found["twice"], Whole)
    assert reason(found["y"]) == "a tensor that is made for the whole batch meets this process's rows"


def test_rows_do_not_meet_figures_of_the_batch() -> None:
    found = layouts("a = x + torch.ones(2)\nb = x + x.mean()\nc = torch.ones(2) + x.size(0)")
    assert found["a"] == Shard(0, rank=3)
    assert reason(found["b"]) == "it compares rows with a figure of their batch"
    assert reason(found["c"]) == "it is computed from the number of rows"


@pytest.mark.parametrize(
    ("value", "dim", "rank", "merged"),
    [
        ("x.repeat(1, 2, 1)", 0, 3, False),
        ("x.repeat((4, 1, 1, 1))", 1, 4, False),
        ("x.repeat(2, 1, 1)", 0, 3, True),
        ("x[:, 0].repeat(8, 1, 1).transpose(0, 1)", 0, 3, False),
        ("x[:, 0, 0].repeat(8, 1).transpose(0, 1)", 0, 2, False),
        ("x[:, 0, 0].repeat(k, 1).t()", 0, 2, False),
        ("x.tile(3)", 0, 3, False),
        ("x.tile((2, 1, 1))", 0, 3, True),
        ("x.expand(5, -1, -1, -1)", 1, 4, False),
        ("x[:, 0, 0].expand(5, len(x))", 1, 2, False),
        ("x.repeat_interleave(2, dim=1)", 0, 3, False),
        ("x.repeat_interleave(2, dim=0)", 0, 3, False),
        ("x.repeat(len(x), 1, 1)", None, None, None),
        ("x.repeat_interleave(2)", None, None, None),
        ("rearrange(x, 'b h c -> b c h')", 0, 3, False),
        ("rearrange(x, 'b h c -> c b h')", 1, 3, False),
        ("rearrange(x, 'b (h p) c -> b h (p c)', p=2)", 0, 3, False),
        ("rearrange(x, 'b h c -> (b h) c')", 0, 2, False),
        ("rearrange(x, 'b h c -> (h b) c')", 0, 2, True),
        ("rearrange(x, 'b ... -> ... b')", 2, 3, False),
        ("rearrange(x, '... c -> c ...')", 1, 3, False),
        ("rearrange(x, 'b h c -> b 1 h c')", 0, 4, False),
        ("rearrange(x, '(g b) h c -> b (g h) c', g=2)", None, None, None),
        ("rearrange(x, 'b h -> h b')", None, None, None),
        ("rearrange(x, how)", None, None, None),
        ("repeat(x, 'b h c -> b (h k) c', k=3)", 0, 3, False),
        ("repeat(x, 'b h c -> (k b) h c', k=3)", 0, 3, True),
        ("repeat(torch.ones(1, 4), '1 d -> b n d', b=len(x), n=2)", 0, 3, False),
        ("repeat(torch.ones(1, 4), '1 d -> n b d', b=len(x), n=2)", 1, 3, False),
        ("reduce(x, 'b h c -> b c', 'max')", 0, 2, False),
        ("Rearrange('b h c -> b (h c)')(x)", 0, 2, False),
        ("flat(x)", 0, 2, False),
        ("Reduce('b h c -> b c', 'mean')(x)", 0, 2, False),
        ("einsum(x, torch.ones(4, 2), 'rows h c, c out -> rows h out')", 0, 3, False),
        ("einsum(x, x, 'rows h c, rows k c -> h rows k')", 1, 3, False),
        ("einsum(x, x, 'rows h c, other h c -> rows other')", None, None, None),
    ],
)
def test_where_rows_are_after_they_are_repeated_or_named(
    value: str, dim: int | None, rank: int | None, merged: bool | None
) -> None:
    top = "from einops import einsum, rearrange, repeat, reduce\nfrom einops.layers.torch import Rearrange, Reduce\n"
    found = layouts(
        f"y = {value}", f"{top}from odd import how, k\nflat = nn.Sequential(Rearrange('b h c -> b (h c)'))"
    )["y"]
    if dim is None:
        assert isinstance(found, Unclear)
    else:
        assert found == Shard(dim, rank=rank, merged=bool(merged))


@pytest.mark.parametrize(("how", "op"), [("mean", "mean"), ("sum", "sum"), ("max", None)])
def test_rows_that_a_named_reduction_leaves_out(how: str, op: str | None) -> None:
    found = layouts(f"y = reduce(x, 'b h c -> h c', '{how}')", "from einops import reduce\n")["y"]
    assert found == Partial(op) if op is not None else isinstance(found, Unclear)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        ("x[wide]", True),
        ("x[wide, 0]", True),
        ("x.flatten(1)[wide & (x[:, 1, 1] < 2)]", True),
        ("torch.masked_select(x, wide[:, None, None])", True),
        ("x[wide.nonzero(as_tuple=True)[0]] * 2", True),
        ("x[torch.where(wide)[0]]", True),
        ("torch.where(wide, x[:, 0, 0], 0)", False),
        ("table[wide.long()]", False),
        ("table[wide.to(torch.int64)]", False),
        ("[row for row in x if row.sum() > 0]", True),
        ("layer(x[wide])", True),
        ("x[wide] if step else x", True),
        ("torch.einsum('bij,jk->bik', x[wide], table)", True),
        ("x.masked_fill(x > 0, 0)", False),
    ],
)
def test_rows_that_are_chosen_by_what_is_in_them(value: str, chosen: bool) -> None:
    top = "table = torch.tensor([[1.0, 2.0]])\nlayer = nn.Linear(4, 2)"
    found = layouts(f"wide = x[:, 0, 0] > 0\ny = {value}", top)["y"]
    assert isinstance(found, Shard) and found.chosen is chosen and found.dim == 0


@pytest.mark.parametrize("index", ["wide", "wide & (x[:, 1, 1] < 2)", "wide.nonzero()", "x[:, 0, 0].bool()"])
def test_a_mask_of_rows_chooses_nothing_of_what_is_whole(index: str) -> None:
    found = layouts(f"wide = x[:, 0, 0] > 0\ny = table[{index}]", "table = torch.tensor([[1.0, 2.0]])")["y"]
    assert isinstance(found, Unclear)


def test_a_figure_of_what_paths_have_put_together() -> None:
    """No operation is of something that it cannot have: what is not known stays so."""
    found = layouts("a = np.argmax([x[0] < b for b in (1, 2)] + [True])\nb = a", "import numpy as np\n")
    assert found["b"] == found["a"]


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        ("out = torch.zeros(x.size(0), x.size(1), 3)\nout[:, 1, :] = x[:, 1, :]", True),
        ("out = torch.zeros(x.size(0), 3)\nout[:, 0] = x.sum(dim=(1, 2))", True),
        ("out = torch.zeros(x.size(0), 3)\nout[0] = x[:, 0]", False),
        ("out = torch.zeros(x.size(0), x.size(0))\nout[:, 0] = x[0]", False),
    ],
)
def test_rows_that_are_put_where_the_same_rows_are(step: str, kept: bool) -> None:
    found = layouts(step)["out"]
    assert (isinstance(found, Shard) and found.dim == 0) is kept


HELD = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.inner = nn.Linear(5, 3)
        self.outer = nn.Linear(3, 1)
    def forward(self, x, h):
        h = torch.tanh(self.inner(torch.cat((x, h), dim=1)))
        return self.outer(h), h
    def start(self):
        return torch.zeros({size}, 3)
x = torch.randn(40, 2)
net = Net(40)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    out, h = net(x, net.start())
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("size", "start", "cut"),
    [
        ("self.rows", "net.start()", False),
        ("40", "net.start()", False),
        ("40", "torch.zeros(len(x), 3)", True),
        ("40", "torch.zeros(1, 3).expand(len(x), 3)", True),
    ],
)
def test_a_tensor_made_for_the_whole_batch_keeps_a_batch_whole(
    size: str, start: str, cut: bool, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, _ = trained_project(train=HELD.format(size=size).replace("net.start()", start))
    assert ("shard_batch" in texts["train"]) is cut


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ("a, y = map(lambda one: one.float(), [x, x.mean()])", Partial("mean")),
        ("y = list(map(twice, x))", Shard(0)),
        ("y = sum(map(lambda row: row.sum(), x))", Partial("sum")),
        ("y = len(list(map(twice, x)))", ShardSize()),
        ("y, a = map(torch.exp, (x, 3))", Shard(0, rank=3)),
        ("y = list(map(lambda a, b: a * b, x, x))", Each(ShardRow(), rows=True)),
        ("y = list(map(str, [1, 2]))", Each(NEUTRAL)),
    ],
    ids=["each of several", "rows", "a sum of rows", "how many", "a function of torch", "two", "none"],
)
def test_a_function_that_map_runs_for_each_entry(given: str, after: Layout) -> None:
    found = layouts(given, "def twice(one):\n    return one * 2")["y"]
    assert found == after or (after == Each(NEUTRAL) and not isinstance(found, (Shard, Unclear, Partial)))


def test_what_nobody_knows_is_unknown_for_each_entry() -> None:
    assert "what `strange` does" in reason(layouts("y, a = map(strange, (x, 3))", "from odd import strange")["y"])


def test_filter_chooses_rows() -> None:
    found = layouts("y = list(filter(lambda row: row.sum() > 0, x))\nz = list(filter(None, [1, 2]))")
    assert isinstance(found["y"], Shard) and found["y"].chosen
    assert not isinstance(found["z"], (Shard, Unclear))


@pytest.mark.parametrize(
    ("made", "after"),
    [
        ("torch.full((x.size(0),), 1.0)", Shard(0, 1)),
        ("torch.full((3, x.size(0)), 0.5)", Shard(1, 2)),
        ("torch.full(size=(x.size(0), 1), fill_value=1.0)", Shard(0, 2)),
        ("torch.randint(0, 9, (len(x), 4))", Shard(0, 2)),
        ("torch.tensor(np.random.normal(0, 1, (x.shape[0], 100)))", Shard(0, 2)),
        ("np.random.exponential(2.0, len(x))", Shard(0, 1)),
        ("torch.arange(0, len(x))", Shard(0, 1)),
        ("torch.linspace(0, 1, len(x))", Shard(0, 1)),
        ("Kind(x.size(0), 1).fill_(1.0)", Shard(0, 2)),
        ("Kind(x.size(0))", Shard(0, 1)),
        ("torch.FloatTensor(4, x.size(0)).uniform_()", Shard(1, 2)),
        ("Kind(x)", Shard(0, 3)),
        ("token.expand(len(x), -1)", Shard(0, 2)),
        ("token.repeat(1, x.size(0), 1)", Shard(1, 3)),
    ],
)
def test_a_tensor_that_is_made_with_the_number_of_rows_has_rows_there(made: str, after: Shard) -> None:
    """What else the call is given is no size: a value, a bound, a mean."""
    top = "import numpy as np\nKind = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor"
    top += "\ntoken = nn.Parameter(torch.randn(1, 4))"
    assert layouts(f"y = {made}", top)["y"] == after


BY_OPTION = """\
class Plain(nn.Module):
    def forward(self, x):
        return x.relu()

class Forced(nn.Module):
    def forward(self, x, wanted):
        return wanted.relu()

net = Plain() if plain else Forced()
"""


def test_a_call_runs_those_of_several_models_that_take_what_it_gives() -> None:
    assert layouts("y = net(x)", BY_OPTION)["y"] == Shard(0, rank=3)


def test_layers_that_are_collected_in_a_table() -> None:
    top = "from collections import OrderedDict\nlayers = OrderedDict()\nfor name in 'ab':\n    layers[name] = nn.ReLU()"
    assert layouts("y = net(x)", f"{top}\nnet = nn.Sequential(layers)")["y"] == Shard(0, rank=3)


def test_what_is_the_same_on_all_processes_on_each_path_is_so_in_any_shape() -> None:
    """A graph, or a list of its parts."""
    top = "graph = load()\nif parted:\n    graph = [part.coalesce() for part in graph.split(4)]"
    assert not varies(layouts("y = graph", top)["y"])


def test_a_state_of_several_layers_that_is_made_for_the_whole_batch() -> None:
    """What one layer has of it is of the whole batch, too; a variable that is made of itself is what it was made of."""
    top = "size = 8\nstate = torch.zeros(2, size, 4)\nstate = state.to(device)"
    found = layouts("y = state[1]\nz = state[:, 0]", top, sizes=frozenset({"size"}))
    assert isinstance(found["y"], Whole) and found["y"].dim == 0
    assert isinstance(found["z"], Unclear) and found["z"].whole is not None


@pytest.mark.parametrize("made", ["torch.full((len(x),), 1.0)", "Kind(len(x), 1).fill_(1.0).view(-1)"])
def test_a_loss_against_labels_that_are_made_for_the_rows_is_a_mean(made: str) -> None:
    top = "score = nn.Linear(4, 1)\nKind = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor"
    found = layouts(f"y = F.binary_cross_entropy(score(x).view(-1), {made})", top, Shard(0, rank=2))
    assert found["y"] == Partial("mean")


STACKED_AGAIN = """\
held = [x, x]
for _ in range(3):
    fresh = []
    for depth in range(2):
        fresh.append(layer(held[depth]))
    held = torch.stack(fresh{dim})
y = held[0]
z = [part for part in held]
n = len(held)
"""


def test_a_list_that_is_stacked_later_gives_the_same_when_one_is_taken_out() -> None:
    """A list of states before the first step, one tensor afterwards: each path is asked by itself."""
    found = layouts(STACKED_AGAIN.format(dim=", 0"), "layer = nn.Linear(4, 4)", Shard(0, rank=2))
    assert (found["y"], found["z"], found["n"]) == (Shard(0, rank=2), Each(Shard(0, rank=2)), REPLICATED)
    other = layouts(STACKED_AGAIN.format(dim=", 1"), "layer = nn.Linear(4, 4)", Shard(0, rank=2))
    assert "by their place in the batch" in reason(other["y"])


TRANSFORMS = {
    "torch.fft.rfft(x)": 0,
    "torch.fft.irfft(x, n=8)": 0,
    "torch.fft.fft(torch.fft.ifft(x), dim=-2)": 0,
    "torch.fft.hfft(torch.fft.ihfft(x), 4, -1)": 0,
    "torch.fft.rfft2(x)": 0,
    "torch.fft.irfft2(torch.fft.fft2(torch.fft.ifft2(x)), s=(4, 4))": 0,
    "torch.fft.fftn(x, dim=(1, 2))": 0,
    "torch.fft.irfftn(torch.fft.rfftn(x, dim=[-2, -1]), dim=[-2, -1])": 0,
    "torch.fft.ifftshift(torch.fft.fftshift(x, dim=-1), dim=(1, 2))": 0,
    "x * torch.fft.fftfreq(8) * torch.fft.rfftfreq(14)": 0,
    "torch.fft.fft(x, dim=0)": None,
    "torch.fft.fft2(x, dim=(0, 1))": None,
    "torch.fft.ifftn(x)": None,
}


@pytest.mark.parametrize(("made", "dim"), TRANSFORMS.items())
def test_a_fourier_transform_mixes_the_dimensions_that_it_names(made: str, dim: int | None) -> None:
    made_of = layouts(f"y = {made}")["y"]
    assert made_of.dim == dim if isinstance(made_of, Shard) else dim is None and isinstance(made_of, Unclear)


def test_what_is_put_into_a_tensor_and_not_known_is_the_reason() -> None:
    """That it was put there was said, not why it is not known."""
    step = "out = torch.zeros(len(x), 4, 8)\nout[:, :, :2] = strange(x)[:, :, :2]"
    held = layouts(step)["out"]
    assert isinstance(held, Unclear) and "strange" in held.reason


TABLES = {
    "parts = {}\nparts['a'] = x\ny = parts['a']": Shard(0, rank=3),
    "parts = {'b': 1}\nparts.update({'a': x})\ny = parts['a']": Shard(0, rank=3),
    "parts = {'b': 1}\nparts.update(a=x)\ny = parts['a']": Shard(0, rank=3),
    "parts = {'a': x, 'b': x.sum()}\ny = parts.pop('a')": Shard(0, rank=3),
    "parts = {'a': x, 'b': x.sum()}\ndel parts['b']\ny = parts['a']": Shard(0, rank=3),
}


@pytest.mark.parametrize(("step", "found"), TABLES.items())
def test_entries_come_into_a_table_and_go(step: str, found: Layout) -> None:
    """What a method had put in was taken for the same on all processes."""
    assert layouts(step)["y"] == found


def test_a_variable_that_is_set_outside_of_loops_is_looked_up_once_for_all_its_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = solve([("train", cst.parse_module("import torch\nk = torch.ones(3)\n" + "print(k)\n" * 20))])
    (unit,) = Reach(state).units
    begun: list[Interpreter] = []
    copied = Interpreter.copied

    def counted(self: Interpreter, *, beside: bool = False) -> Interpreter:
        begun.append(self)
        return copied(self, beside=beside)

    monkeypatch.setattr(Interpreter, "copied", counted)
    reads = unit.names.scope.bindings["k"].reads
    assert len({repr(layouts_of(state).value(unit, read)) for read in reads}) == 1
    assert (len(reads), len(begun)) == (20, 1)
