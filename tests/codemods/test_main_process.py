"""The rule `main_process`: what happens once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

NOOPS: dict[str, dict[str, Any]] = {
    "a print of one's own": {"top": "def print(*words):\n    pass", "epoch": "print('here')"},
    "a method called print": {"epoch": "paper.print('here')"},
    "a file that is read": {"top": "text = open('names.txt').read()"},
    "a file that is read in a with": {"top": "with open('names.txt') as file:\n    names = file.read()"},
    "print handed on as a value": {"top": "say = print"},
    "the word in a string": {"top": "note = 'print(1)'"},
    "a numpy array that is loaded": {"imports": "import numpy as np", "top": "start = np.load('start.npy')"},
    "a text that is replaced": {"top": "name = 'a'.replace('a', 'b')"},
    "a save of one's own": {"top": "class Log:\n    def save(self, n):\n        pass\n\nLog().save(1)"},
    "a list that something is removed from": {"top": "names = ['a']\nnames.remove('a')"},
    "best weights in memory": {"imports": "import copy", "epoch": "best = copy.deepcopy(model.state_dict())"},
    "a picture in memory": {
        "imports": "import io\nfrom PIL import Image",
        "epoch": "with io.BytesIO() as out:\n    Image.new('RGB', (8, 8)).save(out, format='PNG')",
    },
    "a text in memory": {
        "imports": "import io\nimport json",
        "epoch": "out = io.StringIO()\njson.dump({}, out)\nprint('end', file=out)",
    },
    "weights that come back": {"top": "best = {}", "end": "model.load_state_dict(best)"},
    "words like ours": {"top": "accelerate = acceleration = 'accelerator'"},
    "a folder that may exist": {"imports": "import os", "top": "os.makedirs('out', exist_ok=True)"},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop(
        """
        import torch
        model = torch.nn.Linear(2, 2)
        print(model)
        with open("out.txt", "w") as file:
            file.write("done")
        """
    )


COMMANDS = {
    "in the background": ("os.system('sh plot.sh &')", []),
    "in the background, with a name": ("os.system('sh plot.sh {} &'.format(epoch))", []),
    "that is started": ("subprocess.Popen(['sh', 'plot.sh'])", []),
    "that is waited for": ("os.system('sh plot.sh')", ["main_process"]),
    "that must succeed": ("subprocess.check_call(['sh', 'plot.sh'])", ["main_process"]),
}


@pytest.mark.parametrize(("command", "findings"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_whose_result_nobody_takes_runs_once(command: str, findings: list[str], lines: Lines) -> None:
    out, new, ids = lines(imports="import os\nimport subprocess", epoch=command)
    assert (out, ids) == ([f"    {command}"], findings)
    assert new == ["    if accelerator.is_main_process:", f"        {command}"]


OWN_COMMANDS = {
    "its result is taken": "failed = os.system('sh plot.sh')",
    "it names the process": "os.system('taskset -p 0xff %d' % os.getpid())",
}


@pytest.mark.parametrize("command", OWN_COMMANDS.values(), ids=OWN_COMMANDS)
def test_a_command_that_each_process_may_need_is_left_and_reported(command: str, lines: Lines) -> None:
    assert lines(imports="import os", epoch=command) == ([], [], ["once"])


ASKING = {
    "the size of the terminal": ("width = os.popen('stty size', 'r').read()", []),
    "the version of the code": ("version = subprocess.check_output(['git', 'rev-parse', 'HEAD'])", []),
    "into a file": ("failed = os.system('git log > log.txt')", ["once"]),
    "a command that it is given": ("width = os.popen(command).read()", ["once"]),
    "another one": ("width = os.popen('make width').read()", ["once"]),
}


@pytest.mark.parametrize(("command", "findings"), ASKING.values(), ids=ASKING)
def test_a_command_that_only_asks_is_no_finding(command: str, findings: list[str], lines: Lines) -> None:
    """Each process may ask for itself."""
    assert lines(imports="import os\nimport subprocess\nfrom run import command", epoch=command) == ([], [], findings)


PRINTS = {
    "a print": ("print('epoch', epoch)", "accelerator.print('epoch', epoch)"),
    "keywords stay": ("print(epoch, end='', flush=True)", "accelerator.print(epoch, end='', flush=True)"),
    "behind a semicolon": ("a = 1; print(a)", "a = 1; accelerator.print(a)"),
    "nothing but a line end": ("print()", "accelerator.print()"),
    "in a condition": (
        "if epoch % 2: print(epoch)",
        "if epoch % 2: accelerator.print(epoch)",
    ),
}


@pytest.mark.parametrize(("before", "after"), PRINTS.values(), ids=PRINTS)
def test_printed_once(before: str, after: str, lines: Lines) -> None:
    assert lines(epoch=before) == ([f"    {before}"], [f"    {after}"], [])


WRITES = {
    "a numpy array": ({"imports": "import numpy as np"}, "np.save('weights.npy', model.weight.detach().numpy())"),
    "a figure": ({"imports": "import matplotlib.pyplot as plt"}, "plt.savefig('loss.png')"),
    "a window": ({"imports": "import matplotlib.pyplot as plt"}, "plt.show()"),
    "a window that stays": ({"imports": "import matplotlib.pyplot as plt"}, "plt.ion()"),
    "a window that is drawn anew": ({"imports": "import matplotlib.pyplot as plt"}, "plt.pause(0.1)"),
    "a copy of a file": ({"imports": "import shutil"}, "shutil.copyfile('last.pt', 'best.pt')"),
}


@pytest.mark.hazard("G2", "X30")
@pytest.mark.parametrize(("parts", "call"), WRITES.values(), ids=WRITES)
def test_written_once(parts: dict[str, Any], call: str, lines: Lines) -> None:
    gone, come, findings = lines(end=call, **parts)
    assert (gone, come, findings) == ([call], ["if accelerator.is_main_process:", f"    {call}"], [])


def test_a_file_written_in_a_with_is_guarded_as_a_whole(lines: Lines) -> None:
    _, come, findings = lines(end="with open('log.txt', 'w') as file:\n    file.write('done')")
    assert "if accelerator.is_main_process:" in come
    assert "    with open('log.txt', 'w') as file:" in come
    assert findings == []


NEIGHBOURS = {
    "calls": (
        "json.dump(1, open('a', 'w'))\njson.dump(2, open('b', 'w'))",
        ["json.dump(1, open('a', 'w'))", "json.dump(2, open('b', 'w'))"],
        1,
    ),
    "a call and a with": (
        "json.dump(1, open('a', 'w'))\nwith open('b', 'w') as f:\n    f.write('b')",
        ["json.dump(1, open('a', 'w'))", "with open('b', 'w') as f:", "f.write('b')"],
        1,
    ),
    "three": ("a.to_csv('a')\na.to_csv('b')\na.to_csv('c')", ["a.to_csv('a')", "a.to_csv('b')", "a.to_csv('c')"], 1),
    "a comment between": ("a.to_csv('a')\n# b\na.to_csv('b')", ["a.to_csv('a')", "a.to_csv('b')"], 2),
    "something else between": ("a.to_csv('a')\nb = a\nb.to_csv('b')", ["a.to_csv('a')", "b.to_csv('b')"], 2),
}


@pytest.mark.parametrize(("before", "kept", "guards"), NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_neighbours_stand_under_one_guard(before: str, kept: list[str], guards: int, lines: Lines) -> None:
    _, come, _ = lines(imports="import json\nimport pandas as pd", top="a = pd.DataFrame()", end=before)
    guard = "if accelerator.is_main_process:"
    assert [line.strip() for line in come if line != guard] == kept
    assert come.count(guard) == guards


def test_two_kinds_of_guard_stay_two(lines: Lines) -> None:
    end = "sys.stdout.write('a')\na.to_csv('a')"
    _, come, _ = lines(imports="import sys\nimport pandas as pd", top="a = pd.DataFrame()", end=end)
    assert [line for line in come if line.startswith("if ")] == [
        "if accelerator.is_local_main_process:",
        "if accelerator.is_main_process:",
    ]


def test_a_folder_that_must_not_exist_is_made_once(lines: Lines) -> None:
    new = ["if accelerator.is_main_process:", "    os.makedirs('out')"]
    assert lines(imports="import os", end="os.makedirs('out')") == (["os.makedirs('out')"], new, [])


IN_LINES: dict[str, tuple[str, list[str]]] = {
    "behind a semicolon": (
        "plt.plot([1]); plt.savefig('a.png'); plt.close()",
        ["plt.plot([1])", "if accelerator.is_main_process:", "    plt.savefig('a.png')", "plt.close()"],
    ),
    "two of them": (
        "plt.savefig('a.png'); plt.savefig('b.png')  # both",
        ["if accelerator.is_main_process:", "    plt.savefig('a.png')", "    plt.savefig('b.png')  # both"],
    ),
    "behind a colon": (
        "if model: plt.savefig('a.png')",
        ["if model:", "    if accelerator.is_main_process:", "        plt.savefig('a.png')"],
    ),
}


@pytest.mark.parametrize(("before", "after"), IN_LINES.values(), ids=IN_LINES)
def test_a_line_of_several_statements_is_cut(before: str, after: list[str], lines: Lines) -> None:
    assert lines(imports="import matplotlib.pyplot as plt", end=before) == ([before], after, [])


CONSOLE = ["sys.stdout.write('\\r%d' % epoch)", "sys.stderr.write('.')", "tqdm.write('done')", "sys.stdout.flush()"]
CONSOLE += ["pprint.pprint(epoch)"]


@pytest.mark.parametrize("call", CONSOLE)
def test_what_goes_to_the_console_goes_there_once_a_machine(call: str, lines: Lines) -> None:
    new = ["    if accelerator.is_local_main_process:", f"        {call}"]
    assert lines(imports="import pprint, sys\nfrom tqdm import tqdm", epoch=call) == ([f"    {call}"], new, [])


ONCE: dict[str, tuple[str, str]] = {
    "an image of a grid": ("from torchvision.utils import save_image", "save_image(x, 'a.png')"),
    "an image": ("from PIL import Image", "Image.fromarray(x.numpy()).save('a.png')"),
    "a table": ("import pandas as pd", "pd.DataFrame([1]).to_csv('a.csv')"),
    "a text": ("from pathlib import Path", "Path('a').write_text('b')"),
    "an object": ("import joblib", "joblib.dump([1], 'a')"),
    "JSON, opened on the way": ("import json", "json.dump([1], open('a.json', 'w'))"),
    "an old snapshot": ("import os", "os.remove('a.pt')"),
    "a folder with all it holds": ("import shutil", "shutil.rmtree('a')"),
    "an export": ("import torch.onnx", "torch.onnx.export(model, x, 'a.onnx')"),
    "a folder of weights": ("", "model.save_pretrained('a')"),
    "a page of a figure": ("import plotly.express as px", "px.line(y=[1]).write_html('a.html')"),
    "a figure in the browser": ("import plotly.express as px", "px.line(y=[1]).show()"),
    "a scan": ("import nibabel as nib", "nib.save(nib.Nifti1Image(1, 2), 'a.nii')"),
    "a scan that writes itself": ("import nibabel as nib", "nib.Nifti1Image(1, 2).to_filename('a.nii')"),
    "a mesh": ("import trimesh", "trimesh.Trimesh(1).export('a.ply')"),
    "an animation": ("from matplotlib import animation", "animation.FuncAnimation(1, 2).save('a.gif')"),
}


@pytest.mark.hazard("C5")
@pytest.mark.parametrize(("imports", "call"), ONCE.values(), ids=ONCE)
def test_done_once(imports: str, call: str, lines: Lines) -> None:
    guard = ["if accelerator.is_main_process:", f"    {call}".replace("x.numpy()", "x.cpu().numpy()")]
    shown = ["one-share"] if call.startswith(("save_image(x", "Image.fromarray(x")) else []
    assert lines(imports=imports, end=call) == ([call], guard, shown)


def test_scans_that_are_cut_before_the_training_are_written_once(lines: Lines) -> None:
    """Nothing was known of the package: every process wrote the files that all read, without a word."""
    cut = "scan = nib.load('a.nii')\nnib.Nifti1Image(scan.get_fdata()[:3], 1).to_filename('b.nii')"
    new = lines(imports="import nibabel as nib", built=cut)[1]
    assert "if accelerator.is_main_process:" in new


@pytest.mark.parametrize("given", ["", "index=False", "None", "buf=None, index=False"])
def test_a_table_that_becomes_a_text_is_not_written(given: str, lines: Lines) -> None:
    text = f"text = pd.DataFrame([1]).to_markdown({given})"
    assert lines(imports="import pandas as pd", end=text) == ([], [], [])
    plain = text.replace("pd.DataFrame([1])", "table")
    assert lines(imports="import pandas as pd", built="table = pd.read_csv('a')", end=plain) == ([], [], [])


def test_nobody_waits_for_a_picture_before_its_figure_is_closed(lines: Lines) -> None:
    """`close` was taken for a function that may look at the file."""
    end = "fig = plt.figure()\nfig.savefig('a.png')\nplt.close(fig)"
    new = lines(imports="import matplotlib.pyplot as plt", end=end)[1]
    assert new == ["if accelerator.is_main_process:", "    fig.savefig('a.png')"]


HOISTED: dict[str, tuple[str, list[str]]] = {
    "a forward": ("np.save('a', model(x).numpy())", ["output = model(x)", "np.save('a', output.cpu().numpy())"]),
    "of several models": (
        "np.save('a', model(model(x)).numpy())",
        ["output = model(model(x))", "np.save('a', output.cpu().numpy())"],
    ),
    "a batch": (
        "np.save('a', next(iter(test_loader))[0])",
        ["batch = next(iter(test_loader))", "np.save('a', batch[0])"],
    ),
    "a function that runs a model": ("np.save('a', sample(4))", ["output = sample(4)", "np.save('a', output)"]),
}


@pytest.mark.parametrize(("before", "after"), HOISTED.values(), ids=HOISTED)
def test_all_compute_and_one_writes(before: str, after: list[str], lines: Lines) -> None:
    top = "def sample(n):\n    return model(torch.zeros(n, 8, device=next(model.parameters()).device)).detach()"
    out, new, findings = lines(imports="import numpy as np", top=top, end=before)
    assert (out, findings) == ([before], [])
    assert new == [after[0], "if accelerator.is_main_process:", f"    {after[1]}"]


@pytest.mark.hazard("G3")
def test_a_function_that_samples_and_writes_has_only_its_leaf_guarded(lines: Lines) -> None:
    """A guard around the call, or around the loop, would leave one process alone in a collective."""
    top = """
        def show(path):
            x, y = next(iter(test_loader))
            guesses = model(x).argmax(1)
            np.save(path, guesses.numpy())
        """
    out, new, findings = lines(imports="import numpy as np", top=top, epoch="show('a.npy')")
    assert findings == ["cpu-only"]  # nothing prepares the loader that gives the model this batch
    guarded = ["if accelerator.is_main_process:", "np.save(path, guesses.numpy())"]
    assert [n.strip() for n in new] == [*guarded, "accelerator = Accelerator(cpu=True)"]
    assert len(out) == 1


def test_what_another_rule_gathers_is_computed_ahead_too(lines: Lines) -> None:
    end = "for x, y in test_loader:\n    np.save('a', model(x).detach().numpy())"
    _, new, findings = lines(imports="import numpy as np", end=end)
    assert findings == []
    assert new == [
        "    output = accelerator.gather_for_metrics(model(x))",
        "    if accelerator.is_main_process:",
        "        np.save('a', output.detach().cpu().numpy())",
    ]


def test_what_all_processes_keep_is_not_changed_by_one(lines: Lines) -> None:
    """Guarded, the list would be another one on the others."""
    assert lines(imports="import os", top="kept = ['a']", end="os.remove(kept.pop(0))") == ([], [], ["main_process"])


def test_what_is_guarded_already_stays(lines: Lines) -> None:
    """Somebody wrote it by hand: a condition on the main process is not doubled."""
    before = "if accelerator.is_main_process:\n    shutil.copyfile('last.pt', 'best.pt')"
    once = lines(imports="import shutil", end="shutil.copyfile('last.pt', 'best.pt')")[1]
    assert once == before.splitlines()


@pytest.mark.parametrize("maker", ["paint.picture(model)", "paint.canvas.picture(3)"])
def test_an_object_that_nobody_knows_may_save_a_file(maker: str, lines: Lines) -> None:
    assert lines(imports="import paint", end=f"picture = {maker}\npicture.save('a.png')") == ([], [], ["once"])


@pytest.mark.parametrize("given", ["model(x)", "y[0].cpu().numpy()"])
def test_so_may_one_that_was_made_from_rows(given: str, lines: Lines) -> None:
    """A tensor has no such method, so its result is an object that nobody knows."""
    assert lines(imports="import paint", step=f"paint.picture({given}).save('a.png')") == ([], [], ["once"])


PICTURES = {
    "a class": "transforms.ToPILImage()(y).save('a.png')",
    "a function": "transforms.functional.to_pil_image(y).save('a.png')",
    "kept": "draw(y).save('a.png')",
    "the last of several": "transforms.Compose([abs, transforms.ToPILImage()])(y).save('a.png')",
    "changed": "draw(y).resize((2, 2)).save('a.png')",
    "of the new kind": "transforms.v2.ToPILImage()(y).save('a.png')",
}


@pytest.mark.parametrize("save", PICTURES.values(), ids=PICTURES)
def test_a_picture_that_a_transform_gives_is_saved_once(save: str, lines: Lines) -> None:
    top = "draw = transforms.ToPILImage()"
    new = lines(imports="from torchvision import transforms", top=top, step=save)[1]
    assert [line.strip() for line in new] == ["if accelerator.is_main_process:", save]


@pytest.mark.parametrize("saved", ["Form().save('a.png')", "picture.save()"])
def test_a_save_that_is_known_is_not_reported(saved: str, lines: Lines) -> None:
    top = "class Form:\n    def save(self, path):\n        return path\n\npicture = paint.picture(3)"
    assert lines(imports="import paint", top=top, end=saved)[2] == []


TABLES = {
    "torchsummary": ("from torchsummary import summary", "summary(model, (8,))"),
    "torchinfo": ("import torchinfo", "torchinfo.summary(model, input_size=(1, 8))"),
    "torchstat": ("from torchstat import stat", "stat(model, (3, 8, 8))"),
}


@pytest.mark.parametrize(("imports", "line"), TABLES.values(), ids=TABLES)
def test_the_table_of_a_model_is_shown_once(imports: str, line: str, lines: Lines) -> None:
    new = ["if accelerator.is_local_main_process:", f"    {line}"]
    assert lines(imports=imports, built=line) == ([line], new, [])


def test_on_accelerate_it_is_that_of_the_model_without_its_wrapper(lines: Lines) -> None:
    """A wrapper that one process alone runs may wait for the others."""
    from torchlift.rewriter.config import Target

    imports, line = TABLES["torchsummary"]
    new = lines(imports=imports, end=line, options={"target": Target.ACCELERATE})[1]
    assert "    summary(accelerator.unwrap_model(model), (8,))" in new


SHOWN_BY_ALL = {
    "nothing is shown": ("import torchinfo", "many = torchinfo.summary(model, verbose=0)", []),
    "another package": ("from pages import summary", "summary(model, (8,))", []),
    "a result that is used": ("import torchinfo", "many = torchinfo.summary(model)", ["main_process"]),
    "beside a random split": (
        "from torchsummary import summary",
        "summary(model, (8,))",
        ["main_process"],
    ),
}


@pytest.mark.parametrize(("imports", "built", "ids"), SHOWN_BY_ALL.values(), ids=SHOWN_BY_ALL)
def test_a_table_that_is_not_shown_once(imports: str, built: str, ids: list[str], lines: Lines) -> None:
    """Its random input, drawn by one process, would let the processes split the data differently."""
    top = "first, second = torch.utils.data.random_split(data, [6, 2])" if "torchsummary" in imports else ""
    gone, come, findings = lines(imports=imports, built=built, top=top)
    assert not any("summary(" in line for line in (*gone, *come)) and findings == ids


@pytest.mark.hazard("G1")
@pytest.mark.parametrize(
    ("imports", "made", "call"),
    [
        ("import pprint", "shown = pprint.PrettyPrinter(indent=2)", "shown.pprint(epoch)"),
        ("from pprint import pp", "", "pp(epoch)"),
        ("from rich.console import Console", "console = Console()", "console.print(epoch)"),
        ("from rich import print_json", "", "print_json(text)"),
        ("import click", "", "click.echo(epoch)"),
        ("import click", "", 'click.secho("done", fg="green")'),
        ("import typer", "", "typer.echo(epoch)"),
        ("from termcolor import cprint", "", 'cprint(epoch, "green")'),
        ("try:\n    from click import echo\nexcept ImportError:\n    echo = None", "", "echo(epoch)"),
    ],
)
def test_what_shows_things_on_the_console_does_it_once(imports: str, made: str, call: str, lines: Lines) -> None:
    """An object that prints for the script did it on every process, and nothing was said."""
    new = ["    if accelerator.is_local_main_process:", f"        {call}"]
    assert lines(imports=imports, top=made, epoch=call) == ([f"    {call}"], new, [])


TIMED = """\
import time
import torch
from torch.utils.data import DataLoader


def timed(method):
    def inner(*args, **options):
        start = time.time()
        result = method(*args, **options)
        print(method.__name__, time.time() - start)
        return result

    return inner


@timed
def load():
    return torch.utils.data.TensorDataset(torch.ones(8, 8), torch.ones(8).long())


net = torch.nn.Linear(8, 2)
rows = DataLoader(load(), batch_size=32)
rule = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in rows:
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    rule.step()
"""


def test_what_a_decorator_of_the_script_prints_is_printed_once() -> None:
    """Nothing was seen to call its function: every process printed the times, and no action was said to be needed."""
    (file,) = migrate([decode(TIMED.encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert not file.blocked and "accelerator.print(method.__name__, time.time() - start)" in text
    assert text.index("\naccelerator = Accelerator()") < text.index("\nrows = DataLoader(load()"), "it is used there"


def test_who_finds_what_was_brought_says_so_once(lines: Lines) -> None:
    """The others found it, one after the other, and each printed that; a second run changed it."""
    brought = "    print('bringing it')\n    torch.hub.download_url_to_file('b', 'a')\n"
    asked = f"if not os.path.exists('a'):\n{brought}else:\n"
    new = lines(imports="import os", built=f"{asked}    print('it is there')")[1]
    assert {"        accelerator.print('bringing it')", "        accelerator.print('it is there')"} <= set(new)


@pytest.mark.parametrize("wide", ["    ", "  "])
def test_a_guard_is_indented_as_the_code_around_it(wide: str) -> None:
    """A class of the file may be indented less, and be the first that is read."""
    text = f"""\
import torch
from torch.utils.data import DataLoader
class Names:
  first = "a"
def fit(model, loader, rule):
{wide}for x, y in loader:
{wide}{wide}loss = torch.nn.functional.cross_entropy(model(x), y)
{wide}{wide}loss.backward()
{wide}{wide}rule.step()
{wide}with open(Names.first, "w") as file:
{wide}{wide}file.write("done")
model = torch.nn.Linear(8, 2)
rule = torch.optim.SGD(model.parameters(), lr=0.1)
fit(model, DataLoader(rows, batch_size=8), rule)
"""
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    guarded = f"{wide}if accelerator.is_main_process:\n{wide}{wide}with open(Names.first, "
    assert guarded in file.after.decode()
