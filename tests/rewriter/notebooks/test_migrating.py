"""Notebooks: bytes outside edited cells stay, magics stay, and the training becomes one function, or a reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.cli.main import run
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.notebooks import migrating
from torchlift.rewriter.notebooks.document import masked, read_notebook
from torchlift.rewriter.notebooks.masks import unmasked
from torchlift.rewriter.notebooks.migrating import plan_notebook
from torchlift.rewriter.pipeline import Plan, plan
from torchlift.rewriter.report.expect import expectations
from torchlift.rewriter.result import FileResult, Result
from torchlift.rewriter.source import SourceError

FIXTURE = Path(__file__).resolve().parents[3] / "fixtures" / "notebook"
IMPORTS = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader"
BUILD = (
    "model = nn.Linear(1, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "loader = DataLoader(torch.ones(8, 1), batch_size=4)"
)
LOOP = (
    "for x in loader:\n    loss = model(x).mean()\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()"
)

MODEL = "\n".join(BUILD.split("\n")[:2])

COUNT = "num_processes=torch.cuda.device_count() or 1)"


def _data(*cells: str, **layout: Any) -> bytes:
    listed = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": text.splitlines(keepends=True)} for text in cells
    ]
    document = {"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    return (json.dumps(document, **{"indent": 1, **layout}) + "\n").encode()


def _migrated(*cells: str) -> FileResult:
    notebook = read_notebook(_data(*cells), Path("nb.ipynb"))
    (file,) = plan_notebook(notebook, (), CATALOGUE, Config()).result().files
    return file


def _cells(data: bytes) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(data)["cells"]]


# ---------------------------------------------------------------- bytes


def test_the_fixture_comes_out_as_an_expert_would_write_it(tmp_path: Path) -> None:
    path = tmp_path / "before.ipynb"
    path.write_bytes((FIXTURE / "before.ipynb").read_bytes())
    assert run(CATALOGUE, ["--write", str(path)]) == 0
    once = path.read_bytes()
    assert once == (FIXTURE / "after.ipynb").read_bytes()
    assert run(CATALOGUE, ["--check", str(path)]) == 0
    assert run(CATALOGUE, ["--write", str(path)]) == 0
    assert path.read_bytes() == once


def test_only_sources_of_edited_cells_differ() -> None:
    before, after = (json.loads((FIXTURE / name).read_bytes()) for name in ("before.ipynb", "after.ipynb"))
    for old, new in zip(before["cells"], after["cells"], strict=True):
        assert {**old, "source": ""} == {**new, "source": ""}
    assert {**before, "cells": []} == {**after, "cells": []}
    assert before["cells"][2] == after["cells"][2], "a shell line"
    text = (FIXTURE / "after.ipynb").read_text(encoding="utf-8")
    assert "f\\u00fcr" in text, "an escape in a cell that is not edited"
    assert "– every fifth" in text, "none elsewhere"


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"indent": None},
        {"indent": 4},
        {"indent": "\t"},
        {"sort_keys": True},
        {"separators": (",", ":"), "indent": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"], ids=["no newline", "newline", "two"])
def test_all_ways_to_write_json_stay(layout: dict[str, Any], end: bytes) -> None:
    data = _data("a = 1\nb = 'ü'", "c = 3", **layout).rstrip() + end
    notebook = read_notebook(data, Path("nb.ipynb"))
    assert notebook.with_texts([cell.text for cell in notebook.cells]) == data
    new = notebook.with_texts(["a = 1\nb = 'ü'\nd = 4", "c = 3"])
    assert new == _data("a = 1\nb = 'ü'\nd = 4", "c = 3", **layout).rstrip() + end


def test_a_source_that_is_one_string_stays_one() -> None:
    data = b'{"cells": [{"cell_type": "code", "source": "a = 1\\nb = \\u00fc"}], "nbformat": 4}'
    notebook = read_notebook(data, Path("nb.ipynb"))
    new = notebook.with_texts(["a = 2\nb = ü"])
    assert new == data.replace(b"a = 1", b"a = 2")


def test_a_byte_order_mark_and_carriage_returns_stay() -> None:
    data = b"\xef\xbb\xbf" + _data("a = 1", "b = 2").replace(b"\n", b"\r\n")
    notebook = read_notebook(data, Path("nb.ipynb"))
    assert notebook.with_texts(["a = 1", "b = 3"]) == data.replace(b"b = 2", b"b = 3")


# ---------------------------------------------------------------- magics


@pytest.mark.hazard("S14")
@pytest.mark.parametrize(
    "text",
    [
        "%matplotlib inline", "!pip install x", "x = !ls", "files = %sx ls", "%%bash\nls\nfor x in y",
        "%%bash\nif test\n  echo a\nfi", "%%time\nx = 1",
        "x = 1\n%timeit f(x)\ny = 2", "model?", "model??", "for x in y:\n    !ls\n    pass",
        "x = '''\n%no magic\n'''\n",
        "x = 5 % 3\ny = (1\n  % 2)", "# what is this?\nx = 1", "",
    ],
)  # fmt: skip
def test_what_python_cannot_read_is_masked_and_comes_back(text: str) -> None:
    hidden = masked(text)
    compile(hidden, "cell", "exec")
    assert unmasked(hidden) == text


@pytest.mark.parametrize("text", ["x = '''\n%no magic\n'''\n", "x = 5 % 3\ny = (1\n  % 2)", "# what is this?\nx = 1"])
def test_what_python_can_read_is_not_masked(text: str) -> None:
    assert masked(text) == text


# ---------------------------------------------------------------- the training


@pytest.mark.hazard("S14")
def test_training_cells_become_one_function_in_the_last_of_them() -> None:
    file = _migrated("%matplotlib inline\n" + IMPORTS, BUILD, "def helper():\n    return 3", LOOP)
    head, build, helper, training = _cells(file.after)
    assert head.startswith("%matplotlib inline\n")
    assert head.endswith("\nfrom torchlift.runtime import Accelerator, notebook_launcher")
    assert build == "# Moved into training_function() in cell 4."
    assert helper == "def helper():\n    return 3"
    assert training.startswith("def training_function():\n    model = nn.Linear(1, 1)\n")
    assert "    accelerator.backward(loss)\n" in training
    assert training.endswith("notebook_launcher(training_function, num_processes=torch.cuda.device_count() or 1)")


def test_a_function_that_is_called_once_is_launched() -> None:
    main = "def main(lr):\n    " + f"{BUILD}\n{LOOP}".replace("\n", "\n    ")
    file = _migrated(IMPORTS, main, "main(0.1)")
    assert _cells(file.after)[2] == "notebook_launcher(main, (0.1,), num_processes=torch.cuda.device_count() or 1)"
    assert "Moved" not in file.after.decode()
    file = _migrated(IMPORTS, main, "main(lr=0.1)")
    assert _cells(file.after)[2].startswith("notebook_launcher(lambda: main(lr=0.1), num_processes=")


EVALUATES = "def evaluate():\n    for x in loader:\n        print(model(x).sum().item() / scale)"
REPORTS = "def report(x):\n    return model(x).sum().item()"


def test_a_function_of_another_cell_comes_along_where_it_reads_what_the_training_makes() -> None:
    helper = "def twice(x):\n    return 2 * x\n\n\ndef after_epoch():\n    evaluate()"
    cells = _cells(_migrated(IMPORTS, "scale = 2.0", EVALUATES, helper, BUILD, f"{LOOP}\nafter_epoch()").after)
    assert cells[1] == "scale = 2.0"
    assert cells[2] == "# Moved into training_function() in cell 6."
    assert cells[3] == "def twice(x):\n    return 2 * x\n\n# Moved into training_function() in cell 6."
    start = "def training_function():\n    def evaluate():\n        for x in loader:\n"
    assert cells[5].startswith(start) and "\n    def after_epoch():\n        evaluate()\n\n" in cells[5]


def test_a_function_that_reads_nothing_of_the_training_stays_in_its_cell() -> None:
    own = "def evaluate(model, loader):\n    for x in loader:\n        print(model(x).sum().item())"
    cells = _cells(_migrated(IMPORTS, own, BUILD, f"{LOOP}\nevaluate(model, loader)").after)
    assert cells[1].startswith("def evaluate(model, loader")


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (
            (IMPORTS, "report = lambda x: model(x).sum().item()", BUILD, f"{LOOP}\nprint(report(x))"),
            ":cell 2, line 1: report reads model, which the training makes in a function of its own",
        ),
        (
            (IMPORTS, REPORTS, "kept = [report]", BUILD, f"{LOOP}\nprint(report(x))"),
            ":cell 3, line 1: it uses report, which reads model of the training processes",
        ),
    ],
    ids=["a lambda", "used by another cell"],
)
def test_a_function_that_cannot_come_along_is_named(cells: tuple[str, ...], says: str) -> None:
    file = _migrated(*cells)
    assert not file.changed
    found = file.diagnoses[-1]
    assert says in f"{file.at(found.line)}: {found.message}"


def test_what_a_function_reads_that_a_later_cell_calls_comes_back() -> None:
    draw = "def draw():\n    plt.plot(history)"
    loop = f"history = []\n{LOOP}\n    history.append(loss.item())"
    file = _migrated(PLT, draw, BUILD, loop, "draw()")
    assert "history = notebook_launcher(training_function" in _cells(file.after)[3]


def test_strings_of_several_lines_are_not_indented() -> None:
    file = _migrated(IMPORTS, BUILD + "\ntext = '''a\n  b\nc'''", LOOP)
    assert "    text = '''a\n  b\nc'''\n" in _cells(file.after)[2]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("model", "accelerator.print(model)"),
        ("model.weight.shape  # of the classes", "accelerator.print(model.weight.shape)  # of the classes"),
        ("größe = 2\n'ä', (model,\n größe)", "accelerator.print(('ä', (model,\n     größe)))"),
        ("(model, 1)", "accelerator.print((model, 1))"),
        ("(model), (1)", "accelerator.print(((model), (1)))"),
        ("model(torch.ones(1, 1))", "accelerator.print(model(torch.ones(1, 1)))"),
        ("model;", "    model;"),
        ("model.eval()", "accelerator.print(model.eval())"),
        ("model.to('cuda')", "accelerator.print(model)"),
        ("sum(p.numel() for p in model.parameters())", "accelerator.print(sum(p.numel() for p in model.parameters()))"),
        ("len(list(model.parameters()))", "accelerator.print(len(list(model.parameters())))"),
        ("optimizer.zero_grad()", "    optimizer.zero_grad()"),
        ("torch.manual_seed(len(model.weight))", "\n    torch.manual_seed(len(model.weight))"),
        ("from torchinfo import summary\nsummary(model)", "    accelerator.print(summary(model, verbose=0))"),
        (
            "from torchinfo import summary\nsummary(\n model,\n)",
            "accelerator.print(summary(\n     model,\n    verbose=0))",
        ),
        ("import wandb\nwandb.finish()", "wandb.finish()"),
        (
            "import tables\ntables.of(model)",
            "    shown = tables.of(model)\n    if shown is not None:\n        accelerator.print(shown)",
        ),
    ],
)
def test_what_a_cell_displays_of_the_training_is_printed(shown: str, printed: str) -> None:
    file = _migrated(IMPORTS, BUILD, LOOP, shown)
    assert not file.blocked and printed in _cells(file.after)[3]


@pytest.mark.parametrize(
    ("body", "printed"), [("self.kept = path", ""), ("self.kept = path\n        return path", "accelerator.print(")]
)
def test_a_method_of_the_models_own_class_tells_whether_a_cell_displays_it(body: str, printed: str) -> None:
    net = f"class Net(nn.Linear):\n    def keep(self, path):\n        {body}"
    file = _migrated(IMPORTS, net, BUILD.replace("nn.Linear(", "Net("), LOOP, "model.keep('net')")
    last = _cells(file.after)[4]
    assert not file.blocked and f"\n    {printed}model.keep('net')" in last and "shown" not in last


@pytest.mark.parametrize("name", ["LOO_fit", "Fit"])
def test_a_training_that_a_cell_starts_last_runs_on_all_processes(name: str, tmp_path: Path) -> None:
    """Its name starts like that of a class: the main process alone trained, and waited for the others forever."""
    lines = LOOP.replace("loader", "rows").split("\n")
    code = "\n    ".join(lines)
    (tmp_path / "fitting.py").write_text(f"{IMPORTS}\ndef {name}(model, optimizer, rows):\n    {code}\n")
    path = tmp_path / "nb.ipynb"
    path.write_bytes(_data(IMPORTS, f"from fitting import {name}", BUILD, f"{name}(model, optimizer, loader)"))
    assert run(CATALOGUE, ["--write", str(path)]) == 0
    text = "".join(_cells(path.read_bytes()))
    assert f"{name}(model, optimizer, loader, accelerator)" in text and "is_main_process" not in text


@pytest.mark.parametrize(
    ("shown", "displayed"),
    [
        ("Image('net.png')", "display(Image('net.png'))"),
        ("ui.HTML(\n  'a'\n)  # a page", "display(ui.HTML(\n      'a'\n    ))  # a page"),
        ("Frame([model.weight])", "display(Frame([model.weight]))"),
    ],
)
def test_an_object_that_a_cell_makes_last_is_displayed_by_the_main_process(shown: str, displayed: str) -> None:
    file = _migrated(IMPORTS, "import ui\nfrom ui import Image, Frame", BUILD, LOOP, f"{LOOP}\n{shown}")
    text = _cells(file.after)[4]
    assert not file.blocked and f"    if accelerator.is_main_process:\n        {displayed}\n" in text
    assert "<displayed>" not in text
    again = read_notebook(file.after, Path("nb.ipynb"))
    assert not plan_notebook(again, (), CATALOGUE, Config()).result().files[0].changed


MAIN = "def main():\n    " + f"{BUILD}\n{LOOP}".replace("\n", "\n    ") + "\n    return model"


HISTORY = "history = []\n" + LOOP + "\n    history.append(loss.item())"
SHOWN = "plt.plot(history)"
EVALUATION = "with torch.no_grad():\n    print(model(torch.ones(1, 1)))"


def test_what_a_cell_shows_with_an_import_of_the_trainings_first_cell() -> None:
    """The cell that imports also chooses the device, and goes into the function: the import that others need stays."""
    first = "import matplotlib.pyplot as plt\n" + IMPORTS + "\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'"
    file = _migrated(first, BUILD.replace("Linear(1, 1)", "Linear(1, 1).to(device)"), HISTORY, "plt.plot(history)")
    assert file.changed, [d.message for d in file.diagnoses]
    cells = ["".join(cell["source"]) for cell in json.loads(file.after)["cells"]]
    assert cells[0].startswith("import matplotlib.pyplot as plt\n")
    assert cells[-1] == "plt.plot(history)"


@pytest.mark.hazard("U34")
def test_what_is_plotted_of_the_training_is_returned() -> None:
    file = _migrated("import matplotlib.pyplot as plt\n" + IMPORTS, BUILD, HISTORY, "plt.plot(history)\nplt.show()")
    training, plot = _cells(file.after)[2:]
    assert '    history.append(accelerator.reduce(loss.detach(), reduction="mean").item())\n' in training
    assert "\n    return history\n\n\nhistory = notebook_launcher(training_function, num_processes=" in training
    assert plot == "plt.plot(history)\nplt.show()"


def test_what_changes_is_named_by_cell_and_line() -> None:
    """The lines of the text that the cells make together are nowhere to be seen."""
    net = BUILD.replace("nn.Linear(1, 1)", "nn.Sequential(\n    nn.Linear(1, 1), nn.Dropout()\n)")
    file = _migrated(IMPORTS, "print(torch.__version__)\n" + net, LOOP)
    told = [text for text in expectations(Result((file,), 1)) if "noise" in text]
    assert len(told) == 1 and told[0].startswith("Dropout (cell 2, line 3): each process draws its own noise")


def test_a_plot_that_asks_for_the_library_shows_in_the_same_condition() -> None:
    """Without the library the notebook ended in an AttributeError of None."""
    show = "if plt is not None:\n    plt.plot(history)\n    plt.title('loss')"
    there = "try:\n    import matplotlib.pyplot as plt\nexcept ImportError:\n    plt = None\n"
    file = _migrated(there + IMPORTS, BUILD, HISTORY, show, EVALUATION)
    assert _cells(file.after)[-1].endswith(f"\n\n{show}\n    plt.show()")


def test_a_plot_before_the_last_cell_of_the_training_comes_behind_it() -> None:
    show = "plt.plot(history)"
    file = _migrated("import matplotlib.pyplot as plt\n" + IMPORTS, BUILD, HISTORY, show, EVALUATION)
    plot, training = _cells(file.after)[3:]
    assert plot == "# Moved below the training, in cell 5."
    assert training.endswith(" or 1)\n\nplt.plot(history)\nplt.show()")
    assert training.count("plt") == 2 and "accelerator.is_main_process" not in file.after.decode()
    told = [text for text in expectations(Result((file,), 1)) if "comes after the whole training" in text]
    assert len(told) == 1 and told[0].startswith("What cell 4, line 1 shows comes after the whole training")


def test_a_cell_that_reads_a_number_off_a_list_changes_nothing_of_it() -> None:
    """``history[-1].item()`` was taken for a change of what the plot above it shows, and the notebook was refused."""
    last = "print(history[-1].item())\nmodel = model.cuda()"
    file = _migrated("import matplotlib.pyplot as plt\n" + IMPORTS, BUILD, HISTORY, "plt.plot(history)", last)
    assert file.changed and not file.blocked


def test_a_list_of_an_earlier_cell_that_the_training_fills_comes_back() -> None:
    filled = LOOP + "\n    history.append(loss.item())"
    file = _migrated("import matplotlib.pyplot as plt\n" + IMPORTS, "history = []", BUILD, filled, "plt.plot(history)")
    cells = _cells(file.after)
    assert cells[1] == "history = []" and "\nhistory = notebook_launcher(" in cells[3]
    note = "def note(loss):\n    history.append(loss.item())"
    noted = LOOP + "\n    note(loss)"
    file = _migrated(
        "import matplotlib.pyplot as plt\n" + IMPORTS, "history = []", BUILD, note, noted, "plt.plot(history)"
    )
    assert "\nhistory = notebook_launcher(" in _cells(file.after)[4]
    file = _migrated(IMPORTS, "history = []", BUILD, filled, "print(history)")
    assert "    accelerator.print(history)\n" in _cells(file.after)[4], "the notebook's own list stays empty"


PLT = "import matplotlib.pyplot as plt\n" + IMPORTS
DEVICE_FIRST = f"{IMPORTS}\nimport matplotlib.pyplot as plt\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'"
ON_DEVICE = BUILD.replace("nn.Linear(1, 1)", "nn.Linear(1, 1).to(device)")


@pytest.mark.hazard("U34")
def test_a_cell_that_needs_only_imports_of_a_cell_that_chooses_the_device_stays_in_the_notebook() -> None:
    data = "data = torch.arange(8.0).view(8, 1)"
    shown = "plt.plot(data[0])"
    build = ON_DEVICE.replace("torch.ones(8, 1)", "data")
    file = _migrated(DEVICE_FIRST, data, shown, build, LOOP.replace("model(x)", "model(x.to(device))"))
    cells = _cells(file.after)
    assert not file.blocked and cells[1:3] == [data, shown]
    assert cells[0].startswith(f"{IMPORTS}\nimport matplotlib.pyplot as plt\n") and "import" not in cells[4]
    assert cells[4].endswith(COUNT), "torch is imported in the notebook"


def test_imports_stay_in_the_function_where_the_training_changes_their_path() -> None:
    path = "import sys\nsys.path.append('..')\nimport helpers"
    cells = _cells(_migrated(IMPORTS, f"{path}\n{BUILD}", LOOP).after)
    assert "    import sys\n    sys.path.append('..')\n    import helpers\n" in cells[2]


@pytest.mark.parametrize("seeded", [False, True])
def test_what_draws_numbers_is_shown_after_the_training_of_a_notebook_without_a_seed(seeded: bool) -> None:
    """No run of it draws the numbers of another, so none depends on where the picture is drawn."""
    seed = "torch.manual_seed(0)\n" if seeded else ""
    looks = "plt.plot(torch.rand(2))\nplt.show()"
    file = _migrated(PLT, f"{seed}{BUILD}", looks, LOOP)
    assert file.changed is not seeded and file.blocked is seeded, [d.message for d in file.diagnoses]
    assert seeded or _cells(file.after)[2] == looks, "where it was"


def test_how_figures_are_drawn_is_set_in_the_notebook() -> None:
    sets = "plt.ion()\nplt.style.use('ggplot')\nplt.rcParams['figure.dpi'] = 120"
    file = _migrated(f"{PLT}\n{sets}\nwriter = open('log.txt', 'w')", BUILD, LOOP, "plt.plot([1, 2])")
    cells = _cells(file.after)
    assert not file.blocked and sets in cells[0], [d.message for d in file.diagnoses]
    assert "plt." not in "\n".join(cells[1:-1]) and cells[-1] == "plt.plot([1, 2])"


LOADING = "loader = DataLoader(torch.arange(8.0).view(8, 1), batch_size=4, shuffle=True)"
LOOKS = "x = next(iter(loader))\nplt.plot(x)\nplt.show()"


@pytest.mark.hazard("U34")
@pytest.mark.parametrize("device", [False, True], ids=["", "after a cell that chooses the device"])
def test_what_a_loader_gives_is_shown_before_the_training_which_gets_the_loader(device: bool) -> None:
    first, build, loop = (DEVICE_FIRST, ON_DEVICE, LOOP.replace("model(x)", "model(x.to(device))"))
    first, build, loop = (first, build, loop) if device else (PLT, MODEL, LOOP)
    build = "\n".join(build.split("\n")[:2])
    count = "for x in loader:\n    print(x.shape)\n    break"
    file = _migrated(first, LOADING, LOOKS, count, build, loop)
    cells = _cells(file.after)
    assert not file.blocked and cells[1:4] == [LOADING, LOOKS, count], [d.message for d in file.diagnoses]
    assert "def training_function(loader):\n" in cells[5]
    assert "    model, optimizer, loader = accelerator.prepare(\n" in "\n".join(cells)
    assert cells[5].endswith(f"\nnotebook_launcher(training_function, (loader,), {COUNT}")
    again = read_notebook(file.after, Path("nb.ipynb"))
    assert not plan_notebook(again, (), CATALOGUE, Config()).result().files[0].changed


@pytest.mark.parametrize("pinned", ["pin_memory=True", "**options"])
def test_a_loader_that_may_pin_memory_is_not_shown_before_the_training(pinned: str) -> None:
    """The notebook would use a GPU by then, and no process could be started."""
    options = "torch.manual_seed(0)\noptions = {'pin_memory': True}\n"
    file = _migrated(PLT, options + LOADING.replace("shuffle=True", pinned), LOOKS, MODEL, LOOP)
    assert not file.changed and file.blocked
    file = _migrated(PLT, LOADING.replace("shuffle=True", "pin_memory=False"), LOOKS, MODEL, LOOP)
    assert file.changed and not file.blocked


def test_what_the_training_counts_on_from_an_earlier_cell_is_an_argument() -> None:
    file = _migrated(PLT, "steps = 0", BUILD, LOOP + "\n    steps += 1", "plt.plot(steps)")
    cells = _cells(file.after)
    assert cells[1] == "steps = 0" and "def training_function(steps):\n" in cells[3]
    assert f"\nsteps = notebook_launcher(training_function, (steps,), {COUNT}" in cells[3]


TRACKERS = {
    "a writer": (
        "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter('runs')",
        "writer.add_scalar('loss', loss.item())",
        "writer.close()",
    ),
    "a module": ("import wandb\nwandb.init(project='x')", "wandb.log({'loss': loss.item()})", "wandb.finish()"),
    "a run": ("import wandb\nrun = wandb.init(project='x')", "run.log({'loss': loss.item()})", "run.finish()"),
}


@pytest.mark.parametrize(("made", "logs", "ends"), TRACKERS.values(), ids=TRACKERS)
def test_a_tracker_of_an_earlier_cell_is_part_of_the_training(made: str, logs: str, ends: str) -> None:
    """Made in the notebook, every process would have it; ended there, the run of the training would not end."""
    file = _migrated(IMPORTS, made, BUILD, f"{LOOP}\n    {logs}", ends)
    cells = _cells(file.after)
    assert not file.blocked, [d.message for d in file.diagnoses]
    assert cells[1].endswith("\n# Moved into training_function() in cell 5.")
    function = cells[4].partition("\n\n\n")[0]
    assert "if accelerator.is_main_process else" in function and function.endswith(f"\n    {ends}")


@pytest.mark.parametrize(("made", "logs", "ends"), TRACKERS.values(), ids=TRACKERS)
def test_a_tracker_that_is_ended_after_a_picture_of_the_model_is_refused(made: str, logs: str, ends: str) -> None:
    picture = "plt.plot(model(torch.ones(1, 1)).tolist())"
    file = _migrated(PLT, made, BUILD, f"{LOOP}\n    {logs}", picture, ends)
    (found,) = [d for d in file.diagnoses if d.severity.value == "blocked"]
    assert (
        not file.changed and file.at(found.line) == ":cell 6, line 1" and "Move this cell before cell 5" in found.remedy
    )
    file = _migrated(PLT, made, BUILD, f"{LOOP}\n    {logs}", ends, picture)
    assert file.changed and not file.blocked


def test_a_cell_that_is_to_be_moved_is_moved_with_those_that_it_needs() -> None:
    """Alone it would end in a NameError."""
    picture = "plt.plot(model(torch.ones(1, 1)).tolist())"
    written, helps = "print(form(optimizer.param_groups))", "def form(groups):\n    return str(pick(groups))"
    cells = (PLT, IMPORTS, BUILD, LOOP, picture, "def pick(groups):\n    return groups[0]", helps, written)
    (found,) = [d for d in _migrated(*cells).diagnoses if d.severity.value == "blocked"]
    assert found.remedy.startswith("Move this cell, with cells 6, 7, before cell 5. If what it reads is data: ")
    shown = "drawn = plt.plot(model(torch.ones(1, 1)).tolist())"
    file = _migrated(PLT, IMPORTS, BUILD, LOOP, shown, "print(optimizer.param_groups, drawn)")
    (found,) = [d for d in file.diagnoses if d.severity.value == "blocked"]
    assert "Move this cell" not in found.remedy


@pytest.mark.hazard("U34")
def test_cells_after_the_training_that_cannot_be_part_of_it_are_run_by_the_notebook() -> None:
    """The picture is one of a function that reads what another cell has found with the model."""
    find = "found = [x for x in torch.ones(8, 1) if model(x) > 0]"
    show = "def show(n):\n    plt.plot(found[n])"
    file = _migrated(PLT, BUILD, LOOP, find, show, "show(0)")
    cells = _cells(file.after)
    assert not file.blocked and cells[3:] == [find, show, "show(0)"], [d.message for d in file.diagnoses]
    assert f"\nmodel = notebook_launcher(training_function, {COUNT}" in cells[2]


@pytest.mark.hazard("U34")
def test_an_evaluation_after_the_training_that_is_not_understood_is_run_by_the_notebook() -> None:
    seen = "kept = torch.zeros(8, 1)\nfor n, x in enumerate(loader):\n    kept[n * 4 : n * 4 + len(x)] = model(x)"
    file = _migrated(PLT, LOADING, MODEL, LOOP, f"{seen}\nprint(kept)")
    cells = _cells(file.after)
    assert file.changed and not file.blocked and cells[4] == f"{seen}\nprint(kept)"


@pytest.mark.hazard("U34")
def test_raw_pictures_stay_with_the_notebook() -> None:
    raw = "images = torch.arange(4.0).view(2, 2)\nprint(len(images))\nplt.imshow(images)"
    device = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
    cells = ("import matplotlib.pyplot as plt\n" + IMPORTS, device, raw, "rows = [1, 2]\nlen(rows)", BUILD, LOOP)
    file = _migrated(*cells)
    after = _cells(file.after)
    assert after[1] == "# Moved into training_function() in cell 6." and after[2:4] == list(cells[2:4])
    assert [d.id for d in file.diagnoses] == [], "the notebook's own process prints it once"


def test_a_function_that_draws_is_known_by_its_name() -> None:
    show = "def draw(values):\n    plt.plot(values)"
    file = _migrated("import matplotlib.pyplot as plt\n" + IMPORTS, show, BUILD, HISTORY, "draw(history)")
    assert _cells(file.after)[4] == "draw(history)" and "\nhistory = notebook_launcher(" in _cells(file.after)[3]


PREDICT = "loader = DataLoader(torch.ones(4, 1), batch_size=2)\nplt.plot([model(x).item() for x in loader])"


@pytest.mark.parametrize("end", ["plt.show()", "plt.savefig('a.png')"])
def test_cells_after_the_training_that_show_the_model_stay_with_the_notebook(end: str) -> None:
    predict, last = f"{PREDICT}\n{end}", "torch.save(model.state_dict(), 'model.pt')\nprint(loader)"
    file = _migrated(PLT, BUILD, LOOP, predict, last)
    training, *rest = _cells(file.after)[2:]
    assert file.diagnoses == () and rest == [predict, last]
    assert "\n    return accelerator.unwrap_model(model).cpu()\n\n\nmodel = notebook_launcher(training_fun" in training
    again = read_notebook(file.after, Path("nb.ipynb"))
    assert not plan_notebook(again, (), CATALOGUE, Config()).result().files[0].changed


def test_the_notebook_uses_the_model_where_it_was() -> None:
    device = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
    placed = device + BUILD.replace("nn.Linear(1, 1)", "nn.Linear(1, 1).to(device)")
    moved = LOOP.replace("model(x)", "model(x.to(device))")
    file = _migrated(PLT, placed, moved, "plt.plot(model(torch.ones(1, 1).to(device)).tolist())")
    training = _cells(file.after)[2]
    assert "\n    return accelerator.device, accelerator.unwrap_model(model)\n" in training
    assert training.endswith("\nmodel = model.to(device)")
    file = _migrated(PLT, placed, moved, "plt.plot(model(torch.ones(1, 1).cuda()).tolist())")
    assert not file.changed
    assert [d.message for d in file.diagnoses] == ["it needs the trained model on a GPU of its own"]


def test_a_model_of_a_later_cell_may_be_on_a_gpu_of_its_own() -> None:
    """It is loaded from the file: the notebook was refused, because the accelerator reached the later cell."""
    device = "device = torch.device('cuda')\n"
    placed = device + BUILD.replace("nn.Linear(1, 1)", "nn.Linear(1, 1).to(device)")
    trained = f"{placed}\n{LOOP.replace('model(x)', 'model(x.to(device))')}\ntorch.save(model.state_dict(), 'net.pth')"
    later = "def infer(path):\n    net = nn.Linear(1, 1)\n    net.load_state_dict(torch.load(path))\n    net.cuda()\n"
    later += "    rows = torch.ones(1, 1).cuda()\n    print(net(rows))\n    torch.jit.trace(net, rows).save('net.pt')"
    file = _migrated(IMPORTS, trained, later, "infer('net.pth')")
    assert not file.blocked and _cells(file.after)[2:] == [later, "infer('net.pth')"]
    again = read_notebook(file.after, Path("nb.ipynb"))
    second = plan_notebook(again, (), CATALOGUE, Config()).result().files[0]
    assert not second.changed and second.diagnoses == ()


NET = (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(1, WIDTH)\n"
    "\n    def forward(self, x):\n        return self.fc(x)"
)


def test_the_class_of_a_model_that_comes_back_stays_in_the_notebook() -> None:
    net = NET.replace("WIDTH", "1")
    build = f"import math\n\n\n{net}\n\n\n{BUILD.replace('nn.Linear(1, 1)', 'Net()')}"
    cells = _cells(_migrated(PLT, build, LOOP, "plt.plot(model(torch.ones(1, 1)).item() * math.pi)").after)
    assert cells[1].startswith("import math\n")
    assert f"\n\n\n{net}\n\n\n# Moved into training_function() in cell 3." in cells[1]
    assert "class Net" not in cells[2] and "import math" not in cells[2]
    file = _migrated(PLT, f"width = 1\n{build.replace(net, NET.replace('WIDTH', 'width'))}", LOOP, PREDICT)
    assert not file.changed and file.at(file.diagnoses[-1].line) == ":cell 2, line 5"
    assert "the class Net uses width of the training" in file.diagnoses[-1].message


def test_a_function_that_the_migration_changes_is_not_called_by_a_cell_after_the_training() -> None:
    step = "def step(model, x):\n    loss = model(x).mean()\n    loss.backward()\n    return loss"
    score = "def score(model, rows):\n    print(model(rows))\n    step(model, rows)"
    loop = "for x in loader:\n    optimizer.zero_grad()\n    step(model, x)\n    optimizer.step()"
    show = "draw = step\nplt.plot(model(torch.ones(1, 1)).item())"
    file = _migrated(PLT, step, score, BUILD, loop, show.replace("step", "score"))
    assert not file.changed and file.blocked


def test_all_that_is_in_the_way_is_told_at_once() -> None:
    loop = LOOP + "\n    plt.plot(loss.item())"
    file = _migrated(PLT, BUILD, loop, loop.replace("plot", "hist"), "plt.plot(optimizer.state)")
    found = [file.at(d.line) for d in file.diagnoses if d.id == "notebook-state"]
    assert found == [":cell 3, line 6", ":cell 4, line 6", ":cell 5, line 1"]
    told = [d for d in file.diagnoses if d.id == "notebook-state"]
    marked = [file.source.text.split("\n")[d.line - 1][d.column - 1 : d.end - 1] for d in told]
    assert marked == ["plt", "plt", "optimizer"], "what it is about"


def test_what_blocks_the_training_does_not_hide_a_cell_that_shows_it() -> None:
    counted = "n, seen = 0, []\nfor x in loader:\n    n += int(x.max())\n    seen.append(model(x).detach())\n"
    file = _migrated(PLT, BUILD, LOOP + "\n    plt.plot(loss.item())", f"{counted}print(n, torch.vstack(seen).shape)")
    assert [d.id for d in file.diagnoses if d.severity.value == "blocked"] == ["prepare", "notebook-state"]


@pytest.mark.hazard("U34")
@pytest.mark.parametrize(
    "magic",
    [
        "%matplotlib inline", "!nvidia-smi", "# the card\n!pip install -q nbformat", "%precision 3", "!mkdir -p runs",
        "!wget -q $URL\n!unzip -q b.zip",
    ],
)  # fmt: skip
def test_a_magic_that_does_not_matter_stays_where_it_is(magic: str) -> None:
    file = _migrated(IMPORTS, BUILD, magic, LOOP)
    assert _cells(file.after)[2] == magic and "notebook_launcher(" in _cells(file.after)[3]
    if magic.startswith("%"):
        file = _migrated(IMPORTS, f"{magic}\n{BUILD}", LOOP)
        assert _cells(file.after)[1] == f"{magic}\n# Moved into training_function() in cell 3."


def test_the_time_that_a_cell_of_the_training_takes_is_still_told() -> None:
    cells = _cells(_migrated(IMPORTS, f"%%time\n{BUILD}", f"%%time\n{HISTORY}", "plt.plot(history)").after)
    assert cells[1] == "%%time\n# Moved into training_function() in cell 3."
    first, _, rest = cells[2].partition("\n")
    assert (first, "notebook_launcher(training_function" in rest, "%%" in rest) == ("%%time", True, False)
    refused = _migrated(IMPORTS, BUILD, f"%%timeit -n 1\n{LOOP}")
    assert not refused.changed, "each of its runs would train"


def test_a_call_in_the_line_of_a_magic_is_named_where_no_other_is_found() -> None:
    file = _migrated(IMPORTS, MAIN, "n = 1\n%time history = main()")
    assert not file.changed
    (found,) = (d for d in file.diagnoses if "magic" in d.message)
    assert file.at(found.line) == ":cell 3, line 2"
    assert "a magic calls main() in its own line" in found.message and "%%time in the first line" in found.remedy


WIDGETS = {
    "a module": ("import ipywidgets", "ipywidgets.interact(predict, v=(0.0, 1.0))"),
    "by another name": ("import ipywidgets as w", "w.interact(predict, v=(0.0, 1.0))"),
    "a function": ("from ipywidgets import interact", "interact(predict, v=(0.0, 1.0))"),
    "a decorator": ("from ipywidgets import interact as shown", "@shown(v=(0.0, 1.0))\ndef again(v):\n    predict(v)"),
    "of plotly": ("from plotly.graph_objects import Figure as F", "F(predict(0.5))"),
}


@pytest.mark.parametrize(("imported", "shown"), WIDGETS.values(), ids=WIDGETS)
def test_widgets_stay_with_the_notebook_and_get_the_trained_model(imported: str, shown: str) -> None:
    """A started process has no notebook that could move a slider of it."""
    cell = f"def predict(v):\n    print(model(torch.full((1, 1), v)).item())\n\n\n{shown}"
    cells = _cells(_migrated(f"{imported}\n{IMPORTS}", BUILD, LOOP, cell).after)
    assert cells[3] == cell
    assert "\nmodel = notebook_launcher(training_function" in cells[2]


def test_a_star_import_at_the_top_of_a_cell_stays_where_it_is() -> None:
    """Python does not allow it in a function."""
    cells = _cells(_migrated(IMPORTS, f"import os\nfrom math import *\n{BUILD}", f"from cmath import *\n{LOOP}").after)
    assert cells[1] == "import os\nfrom math import *\n# Moved into training_function() in cell 3."
    assert cells[2].startswith(
        "from cmath import *\nfrom torchlift.runtime import Accelerator, notebook_launcher\n\n\n"
    )
    assert "\n\n\ndef training_function():\n    model = " in cells[2]


NOT_THE_NOTEBOOKS = {
    "imported again": "import os\nhome = os.getcwd()",
    "set before it is read": "def first(rows):\n    return rows[user]\n\nuser = 'a'\nprint(first({'a': 1}))",
    "of a comprehension": "print([user for user in 'ab'])\nuser = 'c'",
    "a parameter": "def first(user):\n    return user\n\nprint(first('a'))\nuser = 'b'",
}


@pytest.mark.parametrize("text", NOT_THE_NOTEBOOKS.values(), ids=NOT_THE_NOTEBOOKS)
def test_a_name_that_a_cell_binds_before_it_reads_it_is_its_own(text: str) -> None:
    file = _migrated(IMPORTS, "import os\nuser = 'me'", BUILD, f"{text}\n{LOOP}")
    assert file.changed and not file.blocked


def test_what_a_function_prints_that_the_notebook_alone_calls_is_no_finding() -> None:
    check = "def check(root):\n    print(f'checks {root}')\n    return root\n\ncheck('data')"
    file = _migrated(IMPORTS, check, BUILD, LOOP)
    assert file.changed and file.diagnoses == () and "EarlyState" not in file.after.decode()
    file = _migrated(IMPORTS, check, BUILD, f"check('a')\n{LOOP}")
    assert "EarlyState().print(f'checks {root}')" in file.after.decode() and file.diagnoses == ()


def test_what_a_call_returns_is_printed_where_it_certainly_does() -> None:
    tell = "def tell(model):\n    return model.weight.shape"
    assert "accelerator.print(tell(model))" in _cells(_migrated(IMPORTS, tell, BUILD, LOOP, "tell(model)").after)[4]
    judge = "class Judge:\n    def eval(self, model):\n        self.model = model\njudge = Judge()"
    assert "    judge.eval(model)" in _cells(_migrated(IMPORTS, judge, BUILD, LOOP, "judge.eval(model)").after)[4]


def test_a_cell_that_trains_and_then_draws_is_cut_in_two() -> None:
    draw = "# the curve\nplt.plot(history)\nplt.show()"
    train = f"history = []\n{LOOP}\n    history.append(loss.item())"
    file = _migrated(IMPORTS, BUILD, f"{train}\n{draw}", "print(max(history))\nplt.hist(history)")
    cells = _cells(file.after)
    assert not file.blocked and cells[2].endswith(
        f"    return history\n\n\nhistory = notebook_launcher(training_function, {COUNT}\n{draw}"
    )
    assert cells[3] == "print(max(history))\nplt.hist(history)"


def test_a_figure_that_is_begun_before_the_training_and_a_function_that_draws_stay_in_the_notebook() -> None:
    show = "def show(ax, values):\n    ax.plot(values)\n    plt.show()"
    begun = "fig, ax = plt.subplots()"
    train = f"history = []\n{LOOP}\n    history.append(loss.item())"
    device = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
    imports = f"{IMPORTS}\nimport matplotlib.pyplot as plt\n{device}"
    build = BUILD.replace("(1, 1)", "(1, 1).to(device)")
    file = _migrated(
        imports,
        build,
        show,
        f"{begun}\n{train.replace('model(x)', 'model(x.to(device))')}\nshow(ax, history)\nprint(len(history))",
    )
    cells = _cells(file.after)
    assert not file.blocked and cells[0].startswith(f"{IMPORTS}\nimport matplotlib.pyplot as plt\n")
    assert cells[2] == show
    assert cells[3].endswith(f"(training_function, {COUNT}\n{begun}\nshow(ax, history)\nprint(len(history))")
    assert begun not in cells[3].partition("notebook_launcher(")[0]


def test_the_gpus_of_a_notebook_are_chosen_where_it_starts() -> None:
    file = _migrated(f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n{IMPORTS}", BUILD, LOOP)
    (told,) = (found.remedy for found in file.diagnoses if found.id == "launcher")
    assert told == "choose them where the notebook starts: CUDA_VISIBLE_DEVICES=... jupyter lab"


MEASURE = """\
def measure(model, loader):
    total = 0
    for x in loader:
        total += model(x).mean().item()
    return total / len(loader)"""
DRAW = "# the curve\nplt.plot(history)\nplt.show()"


@pytest.mark.parametrize(
    "cell",
    [
        f"{DRAW}\n\nscore = measure(model, loader)\nprint(score)",
        f"score = measure(model, loader)\nprint(score)\n{DRAW}",
    ],
    ids=["below the drawing", "above it"],
)
def test_a_cell_that_draws_and_measures_is_cut_in_two(cell: str) -> None:
    """All processes measure together, and the notebook draws: its cell was refused, because it needs the function."""
    train = f"history = []\n{LOOP}\nhistory.append(measure(model, loader))"
    file = _migrated(f"{IMPORTS}\n{MEASURE}", BUILD, train, cell)
    assert not file.blocked
    inside, _, drawn = _cells(file.after)[3].partition("notebook_launcher(training_function, ")
    assert "    score = measure(model, loader" in inside and "curve" not in inside
    assert drawn.split() == f"{COUNT}\n{DRAW}".split()


def test_a_cell_whose_drawing_is_measured_is_not_cut() -> None:
    train = f"history = []\n{LOOP}\nhistory.append(measure(model, loader))"
    cell = "plt.plot(history)\nhistory.append(measure(model, loader))\nplt.plot(history)\nplt.show()"
    file = _migrated(f"{IMPORTS}\n{MEASURE}", BUILD, train, cell)
    assert [found.case for found in file.diagnoses if found.severity is Severity.BLOCKED] == ["function"]


DATA = "rows = torch.ones(8, 1)\nloader = DataLoader(\n    rows, batch_size=4\n)"


def test_a_loader_that_a_cell_shows_something_of_is_made_again() -> None:
    shown = "x = next(iter(loader))\nplt.plot(model(x).detach())\nplt.show()"
    file = _migrated(IMPORTS, f"{DATA}\n{MODEL}", LOOP, shown)
    cells = _cells(file.after)
    assert not file.blocked and cells[3] == shown
    assert "    return accelerator.unwrap_model(model).cpu(), rows\n" in cells[2]
    assert cells[2].endswith(f"{COUNT}\nloader = DataLoader(\n    rows, batch_size=4\n)")


@pytest.mark.parametrize(
    "data",
    [
        DATA.replace("batch_size=4", "generator=torch.Generator()"),
        f"{DATA}\nloader = DataLoader(rows, batch_size=2)",
        "rows = torch.ones(8, 1)\nloader, other = DataLoader(rows, batch_size=4), 1",
    ],
    ids=["a generator", "made twice", "beside another"],
)
def test_a_loader_that_cannot_be_made_again_stays_in_the_training(data: str) -> None:
    file = _migrated(IMPORTS, f"{data}\n{MODEL}", LOOP, "plt.plot(next(iter(loader)))")
    assert "what it reads (`loader`) stays in the training processes" in file.diagnoses[0].message


GUESS = "def guess(net):\n    x = next(iter(loader))\n    return net(x.to(device)).detach() * scale"
DEVICE = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\nscale = 2"


@pytest.mark.parametrize("first", [True, False], ids=["before the training", "after it"])
def test_a_function_that_only_later_cells_use_stays_in_the_notebook_with_what_it_reads(first: bool) -> None:
    build = f"{DEVICE}\n{DATA}\n{MODEL.replace('(1, 1)', '(1, 1).to(device)')}"
    loop = LOOP.replace("model(x)", "model(x.to(device))")
    middle = (GUESS, loop) if first else (loop, GUESS)
    file = _migrated(IMPORTS, build, *middle, "plt.plot(guess(model))")
    cells = _cells(file.after)
    training = cells[3 if first else 2]
    assert not file.blocked and cells[2 if first else 3] == GUESS and cells[4] == "plt.plot(guess(model))"
    assert "    return accelerator.device, accelerator.unwrap_model(model), rows, scale\n" in training
    assert training.endswith(f"{COUNT}\nmodel = model.to(device)\nloader = DataLoader(\n    rows, batch_size=4\n)")


def test_a_function_that_the_training_uses_too_is_part_of_it() -> None:
    loop = f"{LOOP}\n    guess(model)"
    file = _migrated(IMPORTS, f"{DEVICE}\n{DATA}\n{MODEL}", GUESS, loop, "plt.plot(guess(model))")
    assert "(by `plt`), but what it reads (`guess`) stays in the training processes" in file.diagnoses[0].message


def test_a_figure_that_the_training_draws_in_is_shown_by_the_main_process() -> None:
    train = f"fig, ax = plt.subplots()\n{LOOP}\n    ax.plot(loss.item())"
    file = _migrated(PLT, BUILD, f"{train}\nplt.show()")
    assert not file.blocked
    assert "\n    if accelerator.is_main_process:\n        plt.show()\n" in _cells(file.after)[2]
    file = _migrated(PLT, BUILD, train)
    assert file.blocked and "shows a figure only where plt.show() is called" in file.diagnoses[0].message


CHOOSES = "device = 'cuda' if torch.cuda.is_available() else 'cpu'"


def test_a_setting_beside_the_choice_of_the_device_stays_in_its_cell() -> None:
    """So the class of the model, which reads it, stays as well, and the model can come back."""
    build = BUILD.replace("nn.Linear(1, 1)", "Net().to(device)")
    shown = "plt.plot(model(torch.ones(1, 1).to(device)).tolist())"
    file = _migrated(PLT, f"width = 1\n{CHOOSES}\ndevice", NET.replace("WIDTH", "width"), build, LOOP, shown)
    assert not file.blocked
    cells = _cells(file.after)
    assert cells[1] == "width = 1\n# Moved into training_function() in cell 5."
    assert cells[2] == NET.replace("WIDTH", "width")
    assert "    accelerator = Accelerator()\n    accelerator.print(accelerator.device" in cells[4]


def test_a_cell_whose_other_lines_need_the_device_is_looked_at_as_one() -> None:
    file = _migrated(PLT, f"{CHOOSES}\nweights = torch.ones(2).to(device)\nwidth = 1", BUILD, LOOP)
    assert _cells(file.after)[1] == "# Moved into training_function() in cell 4."


def test_a_dictionary_of_loaders_is_made_again_for_the_cells_after_the_training() -> None:
    loaders = "loaders = {name: DataLoader(torch.ones(8, 1), batch_size=4) for name in ('train', 'val')}"
    train = LOOP.replace("in loader", "in loaders['train']")
    build = BUILD.replace("loader = DataLoader", "rest = len")
    build = "\n".join(line for line in build.split("\n") if not line.startswith("rest"))
    file = _migrated(PLT, f"{build}\n{loaders}", train, "plt.plot(model(next(iter(loaders['val']))).tolist())")
    assert not file.blocked, file.diagnoses
    assert _cells(file.after)[2].endswith(f"\n{loaders}")


def test_a_cell_of_imports_and_settings_of_figures_stays_as_it_is() -> None:
    first = f"%matplotlib inline\nimport os\n\n{PLT}\n\nplt.ion()"
    added = "from torchlift.runtime import Accelerator, notebook_launcher"
    cells = _cells(_migrated(first, BUILD, LOOP).after)
    assert cells[0].replace(f"{added}\n", "") == first


def test_the_launcher_is_imported_with_what_else_the_notebook_has_from_there() -> None:
    """A second line imported from the same module."""
    shows = "class Shows:\n    def __init__(self):\n        print('it runs')"
    cells = _cells(_migrated(f"{IMPORTS}\n\n{shows}", BUILD, f"{LOOP}\nShows()").after)
    assert sum(cell.count("from torchlift.runtime import ") for cell in cells) == 1
    assert "from torchlift.runtime import Accelerator, PartialState, notebook_launcher\n" in cells[0]


def test_only_cells_after_one_that_stays_use_what_it_creates() -> None:
    """The first cell of the training makes its own `x`."""
    again = f"x = torch.ones(1, 1)\n{BUILD}"
    file = _migrated(PLT, again, LOOP, "x = [1]\nplt.plot(x)", f"{LOOP}\n    print(x.shape)")
    assert not any("created" in found.message for found in file.diagnoses)


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        ("HTML(draw(history))", "display(HTML(draw(history)))"),
        ("history", "display(history)"),
        ("history;", "history;"),
        ("draw(history)", "draw(history)"),
    ],
    ids=["an object", "a name", "not displayed", "a call"],
)
def test_the_object_that_a_moved_cell_displays_is_still_displayed(last: str, shown: str) -> None:
    """It is no longer the last line of its cell."""
    train = f"history = []\n{LOOP}\n    history.append(loss.item())"
    second = f"{LOOP}\n    print(loss.item())"
    first = f"{PLT}\nfrom IPython.display import HTML\nfrom pictures import draw"
    cells = _cells(_migrated(first, BUILD, train, f"plt.plot(history)\n{last}", second).after)
    assert cells[3] == "# Moved below the training, in cell 5."
    assert cells[4].endswith(f"\nplt.plot(history)\n{shown}\nplt.show()")


SHOW = "def show(rows, title=''):\n    plt.plot(rows.detach().numpy())\n    plt.title(title)\n    plt.show()"


def test_a_function_that_shows_a_picture_is_called_by_the_main_process() -> None:
    """It stays as it is: the notebook calls it after the training, too."""
    loop = f"{LOOP}\n    if loss.item() < 1:\n        show(x, title='rows')"
    cells = _cells(_migrated(PLT, SHOW, BUILD, loop, "show(torch.ones(2))").after)
    assert cells[1] == SHOW and cells[4] == "show(torch.ones(2))"
    called = "            if accelerator.is_main_process:\n                show(x, title='rows')\n"
    assert called in cells[3]


def test_the_notebook_may_give_such_a_function_its_model() -> None:
    file = _migrated(PLT, SHOW, BUILD, f"{LOOP}\n    show(x)", "show(model(torch.ones(1, 1)))")
    assert _cells(file.after)[1] == SHOW and "\n            show(x)\n" in _cells(file.after)[3]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rows.detach()", "model(rows).detach()"),
        ("rows.detach()", "title(rows).detach()"),
        ("plt.title(title)", "torch.rand(1)"),
        ("plt.title(title)", "history.append(title)"),
        ("plt.title(title)", "rows[0] = 1"),
    ],
    ids=["runs the model", "runs what it gets", "draws random numbers", "fills a list", "changes its argument"],
)
def test_a_function_that_does_more_than_show_is_called_by_all_processes(old: str, new: str) -> None:
    file = _migrated(PLT, f"history = []\n{SHOW.replace(old, new)}", BUILD, f"{LOOP}\n    show(x)")
    training = "\n".join(_cells(file.after))
    assert file.blocked or "\n        show(x)\n" in training


def test_a_function_that_leaves_its_figure_to_the_end_of_the_cell_is_refused_in_the_training() -> None:
    """The end of the cell shows the figures of the notebook's own process."""
    file = _migrated(PLT, SHOW.replace("\n    plt.show()", ""), BUILD, f"{LOOP}\n    show(x)")
    (found,) = [found for found in file.diagnoses if found.severity == "blocked"]
    assert found.message.startswith("this cell shows something of the training (by `show`), but a process of the")
    assert found.case == "figure" and "Call plt.show()" in found.remedy and file.at(found.line) == ":cell 4, line 6"


@pytest.mark.parametrize(
    ("after", "inside", "drawn"),
    [
        ("torch.save(model.state_dict(), 'm.pt')", "accelerator.save(accelerator.get_state_dict(model), 'm.pt')", ""),
        ("best = loss.item()\nprint(best)", "accelerator.print(best)", ""),
        ("history.append(0)\nprint(history[0])", "", "history.append(0)\nprint(history[0])"),
        ("plt.savefig('h.png')\nprint(1)", "accelerator.print(1)", "plt.savefig('h.png')"),
    ],
    ids=["a file", "a figure", "what is drawn changes", "another drawing"],
)
def test_what_follows_a_drawing_and_needs_the_training_stays_there(after: str, inside: str, drawn: str) -> None:
    train = f"history = []\n{LOOP}\n    history.append(loss.item())\nplt.plot(history)\n{after}"
    file = _migrated(IMPORTS, BUILD, train)
    training, _, rest = _cells(file.after)[2].partition("notebook_launcher(")
    assert not file.blocked and inside in training
    assert rest.partition("\n")[2] == "\n".join(filter(None, ["plt.plot(history)", drawn]))


def test_what_a_training_cell_draws_is_drawn_after_all_training() -> None:
    first = f"history = []\n{LOOP}\n    history.append(loss.item())\nplt.plot(history)"
    cells = _cells(_migrated(IMPORTS, BUILD, first, LOOP).after)
    assert cells[2] == "# Moved into training_function() in cell 4.\n# Moved below the training, in cell 4."
    assert cells[3].endswith(f"training_function, {COUNT}\n\nplt.plot(history)\nplt.show()")


def test_a_picture_between_two_trainings_shows_what_was_then() -> None:
    """The second training binds the names of the first anew: what the picture reads is kept under another name."""
    file = _migrated(PLT, BUILD, HISTORY, "plt.plot(history)\nplt.title(str(len(history)))", BUILD, HISTORY, SHOWN)
    assert [d.message for d in file.diagnoses if d.severity.value == "blocked"] == []
    cells = _cells(file.after)
    assert cells[3] == "# Moved below the training, in cell 6."
    function, _, launched = cells[5].partition("\n\n\nhistory")
    assert function.count("\n    history_1 = history\n") == 1
    assert function.index("history_1 =") < function.rindex("history = []")
    assert "return history, history_1" in function
    assert launched.startswith(", history_1 = notebook_launcher(training_function, ")
    assert launched.endswith("\n\nplt.plot(history_1)\nplt.title(str(len(history_1)))\nplt.show()")
    assert cells[6] == SHOWN


def test_a_picture_in_the_midst_of_a_training_shows_the_list_as_it_was() -> None:
    more = f"{LOOP}\n    history.append(loss.item())\n    print(len(history), history[-1])"
    cells = _cells(_migrated(PLT, BUILD, HISTORY, SHOWN, more, SHOWN).after)
    assert "\n    history_1 = history[:]\n" in cells[4]
    assert cells[4].endswith("\n\nplt.plot(history_1)\nplt.show()")


CHANGED = {
    "an item of it": (f"history[0] = 2\n{LOOP}", SHOWN),
    "what is in it": (f"history[0].clear()\n{LOOP}", SHOWN),
    "items of a loop": (f"for one in history:\n    one.clear()\n{LOOP}\n    history.append(2)", SHOWN),
    "under another name": (f"other = history\n{LOOP}\n    history.append(2)\nother.clear()", SHOWN),
    "emptied by a function": (f"shorten(history)\n{LOOP}", SHOWN),
    "bound to a part of itself": (f"history = history[:1]\n{LOOP}", SHOWN),
    "a parameter of its name": (f"history = []\n{LOOP}", "f = lambda history: 1\nplt.plot(history)"),
    "bound by the picture": (f"history = []\n{LOOP}", "history = history[1:]\nplt.plot(history)"),
}


@pytest.mark.parametrize(("later", "shown"), CHANGED.values(), ids=CHANGED)
def test_a_picture_of_what_cannot_be_kept_is_refused(later: str, shown: str) -> None:
    file = _migrated(PLT, BUILD, HISTORY, shown, BUILD, later)
    assert not file.changed
    assert any("shows something of the training" in found.message for found in file.diagnoses)


def test_a_drawing_of_what_a_later_cell_trains_on_shows_what_was_then() -> None:
    drawn = f"history = []\n{LOOP}\n    history.append(loss.item())\nplt.plot(history)"
    file = _migrated(IMPORTS, BUILD, drawn, f"{LOOP}\n    history.append(loss.item())")
    assert [found for found in file.diagnoses if found.severity == "blocked"] == []
    cells = _cells(file.after)
    assert cells[3].index("history_1 = history[:]") < cells[3].rindex("history.append")
    assert cells[3].endswith("plt.plot(history_1)\nplt.show()")


def test_a_picture_of_what_a_later_cell_names_anew_stays_before_the_training() -> None:
    """It shows the data as they were; the rows of a batch are the training's own."""
    file = _migrated(PLT, "x = torch.randn(9, 4)", BUILD, "plt.plot(x[0])\nplt.show()", LOOP)
    assert [found for found in file.diagnoses if found.severity == "blocked"] == []
    cells = _cells(file.after)
    assert cells[3] == "plt.plot(x[0])\nplt.show()"
    assert "def training_function" in cells[4]


def test_what_a_plotting_module_draws_stays_with_the_notebook() -> None:
    last = "from mlxtend.plotting import plot_decision_regions\nplot_decision_regions(losses)"
    file = _migrated(IMPORTS, BUILD, f"losses = []\n{LOOP}\n    losses.append(loss.item())", last)
    cells = _cells(file.after)
    assert "losses = notebook_launcher(training_function" in cells[2]
    assert cells[3] == last


@pytest.mark.parametrize(
    ("last", "blocked"),
    [("plt.savefig('h.png')", 0), ("plt.savefig('h.png')\n    plt.show()", 0), ("plt.show()", 0), ("plt.grid()", 1)],
    ids=["saved", "saved and shown", "shown", "left to the cell"],
)
def test_a_function_that_trains_may_save_and_show_its_figures(last: str, blocked: int) -> None:
    fit = f"def fit():\n    history = []\n    {LOOP.replace(chr(10), chr(10) + '    ')}\n"
    fit += f"        history.append(loss.item())\n    plt.plot(history)\n    {last}\n    return history"
    file = _migrated(IMPORTS + "\nimport matplotlib.pyplot as plt", BUILD, fit, "history = fit()")
    found = [found for found in file.diagnoses if found.severity == "blocked"]
    assert len(found) == blocked, "the cell that calls it is no other cell that draws"
    assert file.source.notebook is not None
    assert all("savefig" in one.remedy and file.source.notebook.place(one.line)[0] == 3 for one in found)


def test_what_a_function_that_trains_returns_comes_back() -> None:
    main = MAIN.replace("return model", "return [loss.item()]")
    file = _migrated(IMPORTS, main, "history = main()")
    assert _cells(file.after)[2].startswith("history = notebook_launcher(main, num_processes=")


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (
            (IMPORTS, BUILD, LOOP, "plt.plot(optimizer.state)"),
            ":cell 4, line 1: this cell shows something of the training (by `plt`), but what",
        ),
        (
            (IMPORTS, BUILD, LOOP, "optimizer.state.plot()"),
            "(by `plot`), but what it reads (`optimizer`) stays in the training processes",
        ),
        ((IMPORTS, BUILD, LOOP + "\n    plt.plot(1)"), "(by `plt`), but a process of the training shows a figure only"),
        (
            (IMPORTS, BUILD, "h = [1]", "plt.plot(h)", "h.append(2)\n" + LOOP),
            "(by `plt`), but the training changes `h` afterwards",
        ),
        (
            (f"{IMPORTS}\ntorch.manual_seed(0)", BUILD, "plt.plot(torch.rand(2))", LOOP),
            "(by `plt`), but it may draw random numbers between those of",
        ),
        (
            (IMPORTS, BUILD, "%time x = 1\n" + LOOP),
            ":cell 3, line 1: `%time` is in a cell of the training",
        ),
        ((PLT, BUILD, "steps = 0\nplt.plot(1)", LOOP + "\n    steps += 1"), "it uses steps, which cell 3 created"),
        ((IMPORTS, BUILD, "from math import *", "print(model)\nfrom math import *", LOOP), "a star import"),
        ((IMPORTS, MAIN, "model = main()"), "main returns model, which stays in the training processes"),
        ((IMPORTS, MAIN, "print(main())"), "main, which trains, is called more than once, or not by a line of its own"),
        ((IMPORTS, MAIN, "main()", "main()"), "is called more than once"),
    ],
    ids=[
        "a plot of the optimizer",
        "a method",
        "a plot in the loop",
        "changed later",
        "random",
        "a magic",
        "a counter",
        "a star import",
        "a model",
        "a result",
        "two calls",
    ],
)
def test_what_cannot_be_one_function_is_refused_with_the_cell(cells: tuple[str, ...], says: str) -> None:
    file = _migrated(*cells)
    assert not file.changed
    assert [d.id for d in file.diagnoses if d.severity.value == "blocked"] == ["notebook-state"]
    found = file.diagnoses[-1]
    assert says in f"{file.at(found.line)}: {found.message}"


REPEATED = {
    "a module": "import torch",
    "a part of it": "import torch.nn",
    "names": "from torch import nn",
    "with others": "import torch\nfrom torch.utils.data import DataLoader",
}


def test_a_refused_notebook_is_not_planned_again_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways for the cells after the training are one here: it was planned once more for the second."""
    planned: list[int] = []

    def counted(*given: Any) -> Plan:
        planned.append(1)
        return plan(*given)

    monkeypatch.setattr(migrating, "plan", counted)
    shows = "plt.plot(model.weight.detach().flatten())"
    file = _migrated(f"{PLT}\n{IMPORTS}", BUILD, f"!python other.py\n{LOOP}", shows)
    assert "`!python` is in a cell of the training" in file.diagnoses[-1].message
    assert len(planned) == 2


@pytest.mark.parametrize("again", REPEATED.values(), ids=REPEATED)
def test_an_import_that_the_training_repeats_stays_in_its_cell(again: str) -> None:
    """In the function it would make the name a local one, which an earlier line reads."""
    file = _migrated(IMPORTS, BUILD, f"{again}\n\n{LOOP}")
    assert [d.id for d in file.diagnoses] == []
    last = _cells(file.after)[2]
    assert last.startswith(f"{again}\n") and "import" not in last.partition("def training_function")[2]


@pytest.mark.parametrize("named", ["", "import json\n"], ids=["here alone", "repeated"])
def test_a_comment_above_imports_alone_stays_with_them(named: str) -> None:
    head = "# what is read\nimport json"
    file = _migrated(f"{IMPORTS}\n{named}", BUILD, f"{head}\n\n# the training\n{LOOP}\njson.dumps(1)")
    assert [d.id for d in file.diagnoses] == []
    last = _cells(file.after)[2]
    assert last.startswith(f"{head}\n") and "# what" not in last.partition("def training_function")[2]
    assert "# the training\n" in last.partition("def training_function")[2]


def test_a_comment_above_an_import_and_what_follows_goes_with_that() -> None:
    file = _migrated(IMPORTS, BUILD, f"# train\nimport json\n{LOOP}\njson.dumps(1)")
    assert "# train\n" in _cells(file.after)[2].partition("def training_function")[2]


OTHER_IMPORTS = {
    "another module of that name": ("import json as tools", "print(tools)", "import csv as tools"),
    "given another value": ("import json", "json = None", "import json"),
    "not a line of its own": ("import json", "print(json)", "import json; n = 1"),
    "where it depends": ("import json", "print(json)", "if loader:\n    import json"),
}


@pytest.mark.parametrize(("first", "middle", "again"), OTHER_IMPORTS.values(), ids=OTHER_IMPORTS)
def test_an_import_that_may_change_the_name_is_no_repetition(first: str, middle: str, again: str) -> None:
    file = _migrated(f"{IMPORTS}\n{first}", f"{BUILD}\n{middle}", f"{again}\n{LOOP}")
    lines = again.splitlines()
    function = "\n".join(_cells(file.after)).partition("def training_function")[2]
    assert not file.changed or all(f"    {line}\n" in function for line in lines)


@pytest.mark.unchanged
def test_a_notebook_without_training_is_left_alone() -> None:
    assert not _migrated("import torch\nx = torch.ones(1, requires_grad=True)", "x.sum().backward()").changed


def test_places_are_those_of_cells() -> None:
    file = _migrated(IMPORTS, BUILD, LOOP)
    (backward,) = [change for change in file.changes if change.rule == "backward"]
    assert file.at(backward.line) == ":cell 3, line 4"


def test_formats_for_machines_know_cells_and_lines_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nb.ipynb").write_bytes(_data(IMPORTS, BUILD, LOOP, "plt.plot(optimizer.state)"))
    number = Path("nb.ipynb").read_text().split("\n").index('    "plt.plot(optimizer.state)"') + 1
    run(CATALOGUE, ["--output-format", "github", "nb.ipynb"])
    assert f"::error file=nb.ipynb,line={number}," in capsys.readouterr().out
    run(CATALOGUE, ["--output-format", "sarif", "nb.ipynb"])
    (found,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert found["locations"][0]["physicalLocation"]["region"]["startLine"] == number
    run(CATALOGUE, ["--output-format", "json", "nb.ipynb"])
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert (file["findings"][0]["cell"], file["findings"][0]["line"]) == (4, 1)


def test_the_fix_in_sarif_is_one_of_the_file(tmp_path: Path) -> None:
    from torchlift.rewriter.report.sarif import sarif
    from torchlift.rewriter.result import Result

    file = _migrated(IMPORTS, BUILD, LOOP)
    (found,) = json.loads(sarif(Result((file,), 1), []))["runs"][0]["results"]
    lines = file.source.data.decode().split("\n")
    for change in reversed(found["fixes"][0]["artifactChanges"][0]["replacements"]):
        region = change["deletedRegion"]
        lines[region["startLine"] - 1 : region["endLine"] - 1] = change["insertedContent"]["text"].split("\n")[:-1]
    assert "\n".join(lines) == file.after.decode()


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "not a notebook"),
        (b"[]", "it has no list of cells"),
        (b'{"worksheets": [], "nbformat": 3}', "format 3"),
        (b'{"cells": [], "metadata": {"kernelspec": {"language": "R"}}}', "a notebook in R"),
        (b'{"cells": [{"cell_type": "code", "source": [1]}]}', "cell 1: its source is not text"),
        (b"\xff\xfe", "not a notebook"),
    ],
)
def test_what_is_no_notebook_is_said(data: bytes, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        read_notebook(data, Path("nb.ipynb"))


def test_a_cell_that_does_not_parse_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nb.ipynb"
    path.write_bytes(_data(IMPORTS, BUILD, LOOP, "def f(:"))
    before = path.read_bytes()
    assert run(CATALOGUE, ["--write", str(path)]) == 3
    assert "cell 4, line 1: not valid Python" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_the_preview_and_the_page_show_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nb.ipynb").write_bytes(_data(IMPORTS, BUILD, LOOP))
    assert run(CATALOGUE, ["--html", "page.html", "nb.ipynb"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "# cell 3" in page
    assert "&quot;cell_type" not in page


# ---------------------------------------------------------------- execution


@pytest.mark.slow
def test_it_runs_in_jupyter_on_one_process_and_on_two(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")

    def printed(name: str, processes: str) -> list[str]:
        text = (FIXTURE / name).read_text(encoding="utf-8").replace("torch.cuda.device_count() or 1", processes)
        notebook = nbformat.reads(text, as_version=4)
        folder = tmp_path / f"{name}{processes}"
        folder.mkdir()
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
        assert (folder / "digits.pt").exists()
        outputs = [o for cell in notebook.cells[4:] if cell.cell_type == "code" for o in cell.outputs]
        return "".join(o.text for o in outputs if o.output_type == "stream").splitlines()

    before = printed("before.ipynb", "1")
    assert len(before) == 5
    assert printed("after.ipynb", "1") == before
    two = printed("after.ipynb", "2")
    assert two[:4] == before[:4]
    assert float(two[4].split()[1]) > 0.8
    nbformat.validate(nbformat.read(str(FIXTURE / "after.ipynb"), as_version=4))


@pytest.mark.slow
def test_verify_holds_on_the_fixture(tmp_path: Path) -> None:
    path = tmp_path / "nb.ipynb"
    path.write_bytes((FIXTURE / "before.ipynb").read_bytes())
    command = [sys.executable, "-m", "torchlift.codemods", str(path), "--verify", "--steps", "4"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "\nHELD (" in ended.stderr


@pytest.mark.slow
def test_what_a_process_of_the_training_shows_arrives_in_the_notebook(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    imports = f"{IMPORTS}\nfrom IPython.display import display"
    file = _migrated(imports, BUILD.replace("8, 1", "16, 1"), f"{LOOP}\ndisplay({{'steps': 2}})\nprint(loss.item())")
    text = file.after.decode().replace("torch.cuda.device_count() or 1", "2")
    notebook = nbformat.reads(text, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out.data["text/plain"] for cell in notebook.cells for out in cell.outputs if out.output_type != "stream"]
    assert shown == ["{'steps': 2}"], "once, by the main process"


@pytest.mark.slow
def test_what_is_plotted_comes_back_from_two_processes(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    (tmp_path / "plt.py").write_text(
        "def plot(values):\n    print('drawn', values)\n\n\ndef show():\n    print('shown')\n"
    )
    cells = ("import plt\n" + IMPORTS, BUILD, HISTORY, "plt.plot(history)", "print(len(history))")
    text = _migrated(*cells).after.decode().replace("torch.cuda.device_count() or 1", "2")
    notebook = nbformat.reads(text, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(o.text for o in notebook.cells[4].outputs if o.output_type == "stream").splitlines()
    assert printed[0] == "1", "one batch for each of two processes"
    assert printed[1].startswith("drawn [") and printed[1].count(".") == 1 and printed[2:] == ["shown"]


@pytest.mark.slow
def test_two_trainings_with_a_picture_between_them_run_on_two_processes(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    (tmp_path / "plt.py").write_text(
        "def plot(values):\n    print('drawn', values[0] < 9)\n\n\ndef show():\n    pass\n"
    )
    second = f"{BUILD}\nnn.init.constant_(model.weight, 99.0)"
    cells = ("import plt\n" + IMPORTS, BUILD, HISTORY, SHOWN, second, HISTORY, SHOWN)
    text = _migrated(*cells).after.decode().replace("torch.cuda.device_count() or 1", "2")
    notebook = nbformat.reads(text, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(o.text for cell in notebook.cells for o in cell.outputs if o.output_type == "stream")
    assert [line for line in printed.splitlines() if "drawn" in line] == ["drawn True", "drawn False"]


@pytest.mark.slow
def test_a_loader_that_the_notebook_shows_first_goes_to_two_processes(tmp_path: Path) -> None:
    """Each gets its shard of the loader, and the notebook has seen the batch that it showed before."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    (tmp_path / "plt.py").write_text("def plot(values):\n    print('drawn', values)\n\n\ndef show():\n    pass\n")
    rows = "seen = []\n" + LOOP + "\n    seen.append(len(x))"
    cells = (
        "import plt\n" + IMPORTS,
        LOADING,
        LOOKS.replace("plot(x)", "plot(len(x))"),
        MODEL,
        rows,
        "print(len(seen))",
    )
    text = _migrated(*cells).after.decode().replace("torch.cuda.device_count() or 1", "2")
    notebook = nbformat.reads(text, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(o.text for cell in notebook.cells for o in cell.outputs if o.output_type == "stream")
    assert printed.splitlines() == ["drawn 4", "1"], "one batch of two for each process"


@pytest.mark.slow
def test_a_model_comes_back_from_two_processes(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    (tmp_path / "plt.py").write_text("def plot(values):\n    print('drawn', values)\n")
    build = f"{NET.replace('WIDTH', '1')}\n\n{BUILD.replace('nn.Linear(1, 1)', 'Net()')}"
    cells = ("import plt\n" + IMPORTS, build, LOOP, "plt.plot(model(torch.ones(2, 1)).shape)\nprint(type(model))")
    text = _migrated(*cells).after.decode().replace("torch.cuda.device_count() or 1", "2")
    notebook = nbformat.reads(text, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(o.text for o in notebook.cells[3].outputs if o.output_type == "stream")
    assert printed == "drawn torch.Size([2, 1])\n<class '__main__.Net'>\n"


# ---------------------------------------------------------------- the places of edits


def test_an_edit_in_a_moved_cell_is_at_its_line_there_although_others_have_the_same_text() -> None:
    again = "accuracy = []\nfor x in loader:\n    accuracy.append(model(x).mean().item())"
    file = _migrated(IMPORTS, BUILD, LOOP, f"{again}\nprint(accuracy)", f"{LOOP}\nprint(loss.item())")
    script = file.source.text.split("\n")
    places = {(change.rule, script[change.line - 1].strip()) for change in file.changes if change.line}
    assert ("prepare", BUILD.split("\n")[-1]) in places and ("backward", "loss.backward()") in places
    assert {file.at(c.line) for c in file.changes if c.rule == "backward"} == {":cell 3, line 4", ":cell 5, line 4"}


def test_what_the_training_function_returns_is_no_print() -> None:
    file = _migrated(IMPORTS, BUILD, f"losses = []\n{LOOP}\n    losses.append(loss.item())", "plt.plot(losses)")
    assert "    return losses\n" in _cells(file.after)[2]
    assert not [change for change in file.changes if change.rule == "main_process"]
    assert [file.at(change.line) for change in file.changes if change.rule == "notebook"] == [":cell 3, line 7"]
