"""The rule `checkpoint_load`: loaded to the process's own device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

LOAD = "model.load_state_dict(torch.load('start.pt'))"

TRAINS = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""

NOOPS: dict[str, dict[str, Any]] = {
    "loaded to the CPU": {"built": "model.load_state_dict(torch.load('start.pt', map_location='cpu'))"},
    "the second argument says where to": {"built": "model.load_state_dict(torch.load('start.pt', 'cpu'))"},
    "another load": {"imports": "import json", "top": "settings = json.load(open('settings.json'))"},
    "a load of the script": {"top": "def load(path):\n    return path\n\nnames = load('names')"},
    "a numpy array": {"imports": "import numpy as np", "top": "start = np.load('start.npy')"},
    "the name, not called": {"top": "load = torch.load"},
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
        model.load_state_dict(torch.load("best.pt"))
        model.eval()
        print(model(torch.ones(1, 2)))
        """
    )


REWRITES = {
    "a state dict": (LOAD, "model.load_state_dict(torch.load('start.pt', map_location=accelerator.device))"),
    "other keywords stay": (
        "model.load_state_dict(torch.load('start.pt', weights_only=True))",
        "model.load_state_dict(torch.load('start.pt', weights_only=True, map_location=accelerator.device))",
    ),
    "a checkpoint with a name": (
        "checkpoint = torch.load('start.pt')",
        "checkpoint = torch.load('start.pt', map_location=accelerator.device)",
    ),
}


@pytest.mark.hazard("D13")
@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_loaded_to_the_device_of_the_process(before: str, after: str, lines: Lines) -> None:
    assert lines(built=before) == ([before], [after], [])


@pytest.mark.hazard("C3", "X17")
def test_what_this_run_has_written_is_waited_for(lines: Lines) -> None:
    end = "torch.save(model.state_dict(), 'best.pt')\nmodel.load_state_dict(torch.load('best.pt', map_location='cpu'))"
    assert lines(end=end) == (
        ["torch.save(model.state_dict(), 'best.pt')"],
        ["accelerator.save(accelerator.get_state_dict(model), 'best.pt')", "accelerator.wait_for_everyone()"],
        [],
    )


OTHER_PATHS = {
    "a variable and a text": ("path", "'best.pt'"),
    "two variables": ("path", "best"),
    "joined": ("os.path.join(out, 'best.pt')", "path"),
}


@pytest.mark.parametrize(("save", "load"), OTHER_PATHS.values(), ids=OTHER_PATHS)
def test_a_path_that_may_be_the_same_is_waited_for(save: str, load: str, lines: Lines) -> None:
    load = f"model.load_state_dict(torch.load({load}, map_location='cpu'))"
    new = lines(imports="import os", epoch=f"torch.save(model.state_dict(), {save})", end=load)[1]
    assert new[-1] == "accelerator.wait_for_everyone()"


NO_WAIT = {
    "another file": {"epoch": "torch.save(1, 'last.pt')", "end": "torch.load('start.pt', map_location='cpu')"},
    "in front of the training": {"epoch": "torch.save(1, path)", "built": "torch.load(start, map_location='cpu')"},
    "in a function that is called there": {
        "top": "def resume(path):\n    return torch.load(path, map_location='cpu')",
        "built": "resume('start.pt')",
        "epoch": "torch.save(1, path)",
    },
    "the last of those that are there": {
        "imports": "import os",
        "built": "for i in range(99, -1, -1):\n    if os.path.isfile(name(i)):\n"
        "        start = torch.load(name(i), map_location='cpu')\n        break",
        "epoch": "torch.save(1, name(epoch))",
    },
}


def test_a_file_that_each_turn_of_the_training_reads_is_waited_for(lines: Lines) -> None:
    loaded = "if epoch:\n    best = torch.load(path, map_location='cpu')\ntorch.save(1, path)"
    assert "    accelerator.wait_for_everyone()" in [line[4:] for line in lines(epoch=loaded)[1]]


@pytest.mark.parametrize("parts", NO_WAIT.values(), ids=NO_WAIT)
def test_nobody_waits_for_a_file_that_was_there_before(parts: dict[str, str], lines: Lines) -> None:
    assert "accelerator.wait_for_everyone()" not in lines(**parts)[1]


WAIT = "accelerator.wait_for_everyone()"
READ_BACK = {
    "an array": ("np.save('w.npy', w)\nw = np.load('w.npy')", "w = np.load('w.npy')"),
    "a list in JSON": (
        "with open(path, 'w') as out:\n    json.dump(rows, out)\nrows = json.load(open(path))",
        "rows = json.load(open(path))",
    ),
    "under with": (
        "np.savetxt(out / 'a.txt', w)\nprint('saved')\nwith open(out / 'a.txt') as lines:\n    rows = list(lines)",
        "with open(out / 'a.txt') as lines:",
    ),
    "a text": ("note.write_text('a')\nrows = note.read_text()", "rows = note.read_text()"),
    "a table": ("table.to_csv('a.csv')\ntable = pd.read_csv('a.csv')", "table = pd.read_csv('a.csv')"),
    "where it depends": ("np.save('w.npy', w)\nif again:\n    w = np.load('w.npy')", "if again:"),
    "in a loop": (
        "for k in range(2):\n    np.save(f'{k}.npy', w)\n    w = np.load(f'{k}.npy')",
        "w = np.load(f'{k}.npy')",
    ),
}
IMPORTS = "import json\nimport numpy as np\nimport pandas as pd"


@pytest.mark.parametrize(("end", "reading"), READ_BACK.values(), ids=READ_BACK)
def test_what_the_main_process_has_written_is_waited_for(
    end: str, reading: str, migrated: Callable[[str], str]
) -> None:
    text = [line.strip() for line in migrated(f"{IMPORTS}\n{TRAINS}{end}\n").splitlines()]
    assert text[text.index(reading) - 1] == WAIT


SWALLOWED = {
    "an error that is shown": ("except Exception as error:\n    print(error)", 0),
    "an error of files": ("except OSError:\n    pass", 0),
    "an error that ends all": ("except Exception:\n    raise", 1),
    "what all meet": ("except KeyboardInterrupt:\n    pass", 1),
    "no error": ("finally:\n    print('done')", 1),
}


@pytest.mark.hazard("U16")
@pytest.mark.parametrize(("handler", "count"), SWALLOWED.values(), ids=SWALLOWED)
def test_no_wait_where_an_error_is_swallowed(handler: str, count: int, migrated: Callable[[str], str]) -> None:
    """A main process that fails to write would leave the others at the wait for ever."""
    end = f"try:\n    np.save('w.npy', w)\n    w = np.load('w.npy')\n{handler}\n"
    text = migrated(f"{IMPORTS}\n{TRAINS}{end}")
    assert "accelerator.is_main_process:\n        np.save" in text and text.count(WAIT) == count


@pytest.mark.hazard("U16")
@pytest.mark.parametrize(("handler", "count"), SWALLOWED.values(), ids=SWALLOWED)
def test_no_wait_where_a_caller_swallows_the_error(handler: str, count: int, migrated: Callable[[str], str]) -> None:
    made = "def make(w):\n    np.save('w.npy', w)\n    return np.load('w.npy')\n"
    text = migrated(f"{IMPORTS}\n{TRAINS}{made}try:\n    w = make(w)\n{handler}\n")
    assert "accelerator.is_main_process:\n        np.save" in text and text.count(WAIT) == count


@pytest.mark.parametrize("use", ["w = np.load('w.npy')", "os.remove('w.npy')"], ids=["written", "taken away"])
def test_what_is_not_waited_for_is_reported(use: str) -> None:
    other = "np.save('w.npy', w)" if "load" in use else "w = np.load('w.npy')"
    end = f"import os\n{IMPORTS}\n{TRAINS}try:\n    {other}\n    {use}\nexcept OSError:\n    pass\n"
    (file,) = migrate([decode(end.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [d for d in file.diagnoses if d.id == "read-back"]
    assert "in a `try` that goes on after an error" in found.message and WAIT not in file.after.decode()
    assert "after the `try`" in found.remedy and found.line == end.count("\n") - 2


@pytest.mark.hazard("U16")
def test_what_is_read_after_a_swallowed_error_is_waited_for(migrated: Callable[[str], str]) -> None:
    read = "try:\n    w = np.load('w.npy')\nexcept OSError:\n    pass\n"
    end = f"try:\n    np.save('w.npy', w)\nexcept OSError:\n    pass\n{read}"
    text = migrated(f"{IMPORTS}\n{TRAINS}{end}")
    assert text.endswith(f"\n{WAIT}\n{read}") and text.count(WAIT) == 1


NUMBERED = {
    "filled": ("np.save('out/%d.npy' % epoch, w)", "np.load('out/%d.npy' % k)"),
    "added": ("np.save('out/' + str(epoch + 1) + '.npy', w)", "np.load('out/' + str(k + 1) + '.npy')"),
    "spelled in two ways": ("np.save('./out/{:02d}.npy'.format(epoch), w)", "np.load(f'out/{k:02}.npy')"),
    "joined": (
        "np.save(os.path.join(args.out, f'{epoch}.npy'), w)",
        "np.load(pathlib.Path(args.out) / '{n}.npy'.format(n=k))",
    ),
    "a number alone": ("np.save(f'{epoch}.npy', w)", "np.load(f'{k}.npy')"),
    "one of them": ("np.save(f'out/w{epoch}.npy', w)", "np.load('out/w2.npy')"),
    "by keyword": ("np.save(arr=w, file=f'out/{epoch}.npy')", "np.load(f'out/{k}.npy')"),
    "by a function": (
        "def keep(n, path='out/last.npy'):\n    np.save(path, n)\nkeep(w, path='out/%03d.npy' % epoch)",
        "np.load('out/%03d.npy' % k)",
    ),
    "as its default": ("def keep(n, path='out/last.npy'):\n    np.save(path, n)\nkeep(w)", "np.load('out/last.npy')"),
    "a figure": ("plt.savefig('out/%d.png' % epoch)", "imageio.imread('out/%d.png' % k)"),
    "a grid": ("torchvision.utils.save_image(w, f'{epoch}.png')", "torchvision.io.read_image(f'{k}.png')"),
    "a video": ("torchvision.io.write_video(f'{epoch}.avi', w, 9)", "torchvision.io.read_video(f'{k}.avi')"),
    "a picture": ("imageio.v3.imwrite(f'{epoch}.png', w)", "imageio.v3.imread(f'{k}.png')"),
    "a film": ("imageio.mimsave(f'{epoch}.gif', w)", "imageio.mimread(f'{k}.gif')"),
    "a drawing": ("skimage.io.imsave(f'{epoch}.png', w)", "skimage.io.imread(f'{k}.png')"),
    "a sound": ("soundfile.write(f'{epoch}.wav', w, 9)", "soundfile.read(f'{k}.wav')"),
    "a sound of another package": ("torchaudio.save(f'{epoch}.wav', w, 9)", "torchaudio.load(f'{k}.wav')"),
}
PACKAGES = (
    "import imageio, os, pathlib, skimage.io, soundfile, torchaudio, torchvision\nimport matplotlib.pyplot as plt"
)


@pytest.mark.hazard("U16")
@pytest.mark.parametrize(("write", "read"), NUMBERED.values(), ids=NUMBERED)
def test_files_with_numbers_are_waited_for_once(write: str, read: str, migrated: Callable[[str], str]) -> None:
    """The paths are written with one variable and read with another; all wait in front of the loop."""
    end = f"for epoch in range(2):\n{indent(write, '    ')}\nfor k in range(2):\n    w = {read}\n"
    text = migrated(f"{PACKAGES}\n{IMPORTS}\n{TRAINS}{end}")
    assert text.endswith(f"{WAIT}\nfor k in range(2):\n    w = {read}\n") and text.count(WAIT) == 1


OTHER_NUMBERED = {
    "another name": ("np.save(f'out/w{epoch}.npy', w)", "np.load(f'out/v{k}.npy')"),
    "another folder": ("np.save(f'out/{epoch}.npy', w)", "np.load(f'data/{k}.npy')"),
    "another option": ("np.save(f'{args.out}/{epoch}.npy', w)", "np.load(f'{args.data}/{k}.npy')"),
    "a folder below": ("np.save(f'out/{epoch}.npy', w)", "np.load(f'out/data/{k}.npy')"),
    "of another kind": ("np.save(f'{epoch}.npy', w)", "imageio.imread(f'{k}.png')"),
}


@pytest.mark.parametrize(("write", "read"), OTHER_NUMBERED.values(), ids=OTHER_NUMBERED)
def test_other_files_with_numbers_are_not_waited_for(write: str, read: str, migrated: Callable[[str], str]) -> None:
    end = f"for epoch in range(2):\n    {write}\nfor k in range(2):\n    w = {read}\n"
    text = migrated(f"{PACKAGES}\n{IMPORTS}\n{TRAINS}{end}")
    assert "accelerator.backward(" in text and WAIT not in text


ELSEWHERE = """\
import json


class Answers:
    def __init__(self, place):
        self.place = place

    def known(self):
        return json.load(open(self.place))


def known(options):
    with open(options.answers) as file:
        return json.load(file)


def known_at(place):
    return json.load(open(place))
"""
READ_ELSEWHERE = {
    "an attribute": ("args.answers", "judge.known(args)", True),
    "what is handed on": ("args.answers", "judge.known_at(args.answers)", True),
    "a variable": ("out", "judge.known_at(out)", True),
    "a text": ("'answers.json'", "judge.known_at('answers.json')", True),
    "joined": ("args.folder + '/a.json'", "judge.known_at(args.folder + '/a.json')", True),
    "kept by an object": ("args.answers", "judge.Answers(args.answers).known()", True),
    "another attribute": ("args.guesses", "judge.known(args)", False),
    "another text": ("'answers.json'", "judge.known_at('known.json')", False),
    "another file of the folder": ("args.folder + '/a.json'", "judge.known_at(args.folder + '/b.json')", False),
}


@pytest.mark.parametrize(("path", "read", "waits"), READ_ELSEWHERE.values(), ids=READ_ELSEWHERE)
def test_what_another_file_reads_by_the_same_path_is_waited_for(path: str, read: str, waits: bool) -> None:
    """Its parameter has a name of its own, and holds the same object, or was given the same path."""
    parsed = "import argparse\nimport judge\nargs = argparse.ArgumentParser().parse_args()\nout = args.answers"
    write = f"with open({path}, 'w') as file:\n    json.dump(1, file)"
    train = f"{IMPORTS}\n{parsed}\n{TRAINS}{write}\nprint({read})\n"
    texts = [decode(text.encode(), Path(name)) for name, text in (("train.py", train), ("judge.py", ELSEWHERE))]
    file = next(file for file in migrate(texts, CATALOGUE, Config()).files if file.source.path == Path("train.py"))
    lines = file.after.decode().splitlines()
    assert (WAIT in lines) is waits
    if waits:
        assert read in lines[lines.index(WAIT) + 1]


FILM = """\
def film(folder, name):
    parts = [cv2.imread(str(part)) for part in sorted(pathlib.Path(folder).glob("*.png"))]
    return parts + [name]
"""
LISTED = {
    "a folder": ("np.save('out/w.npy', w)\nnames = os.listdir('out')", "names = os.listdir('out')"),
    "a folder of another": ("np.save('/all/out/w.npy', w)\nn = os.listdir('/all/out/')", "n = os.listdir('/all/out/')"),
    "where it runs": ("np.save('w.npy', w)\nnames = os.listdir('.')", "names = os.listdir('.')"),
    "all that is below a folder": (
        "np.save('all/out/w.npy', w)\nnames = os.listdir('all')",
        "names = os.listdir('all')",
    ),
    "a pattern": ("np.save(f'out/{k}.npy', w)\nnames = glob.glob('./out/*.npy')", "names = glob.glob('./out/*.npy')"),
    "the folder of the run": ("np.save('w.npy', w)\nnames = glob.glob('*.npy')", "names = glob.glob('*.npy')"),
    "a variable": (
        "np.save(os.path.join(out, 'w.npy'), w)\nfor name in os.listdir(out):\n    rows.append(name)",
        "for name in os.listdir(out):",
    ),
    "an option": (
        "np.save('%s/%d.npy' % (args.out, 1), w)\nnames = list(pathlib.Path(args.out).iterdir())",
        "names = list(pathlib.Path(args.out).iterdir())",
    ),
    "by a function": (FILM + "cv2.imwrite('out/1.png', w)\nfilm('out', 'a')", "film('out', 'a')"),
    "written by a function": (
        "def keep(place):\n    np.save('{}/{}.npy'.format(place, 1), w)\n\nkeep('out')\nnames = os.listdir('out')",
        "names = os.listdir('out')",
    ),
    "by what an object makes": (
        "Image.open('a.png').rotate(9).save('out/' + 'b.png')\nnames = glob.glob('out/*.png')",
        "names = glob.glob('out/*.png')",
    ),
    "by a method of an object": (
        "def turn(photo):\n    return photo.rotate(9)\n\n\nturned = turn(Image.open('a.png'))\n"
        "turned.save('out/b.png')\nnames = os.listdir('out')",
        "names = os.listdir('out')",
    ),
    "of a class": (
        "class Photos:\n    folder = 'out/'\n\n    def __init__(self):\n"
        "        self.all = glob.glob(self.folder + '*.npy')\n\n\nnp.save('out/w.npy', w)\nphotos = Photos()",
        "photos = Photos()",
    ),
    "a picture": ("cv2.imwrite(path, w)\nw = cv2.imread(path)", "w = cv2.imread(path)"),
}


@pytest.mark.parametrize(("end", "reading"), LISTED.values(), ids=LISTED)
def test_a_folder_is_listed_when_the_main_process_has_written_into_it(
    end: str, reading: str, migrated: Callable[[str], str]
) -> None:
    """The others listed it, and read what lay there, while the main process was still writing."""
    imports = f"import cv2\nimport glob\nimport os\nimport pathlib\nfrom PIL import Image\n{IMPORTS}"
    text = [line.strip() for line in migrated(f"{imports}\n{TRAINS}{end}\n").splitlines()]
    assert text[text.index(reading) - 1] == WAIT


ASKED = {
    "its size": ("torch.save(w, path)\nsize = os.path.getsize(path)", "size = os.path.getsize(path)"),
    "its state": ("np.save('w.npy', w)\nsize = os.stat('w.npy').st_size", "size = os.stat('w.npy').st_size"),
    "by a path": (
        "kept = pathlib.Path('w.txt')\nkept.write_text('a')\nsize = kept.stat().st_size",
        "size = kept.stat().st_size",
    ),
    "opened by a path": (
        "with out.open('w') as file:\n    file.write('a')\nwith out.open() as file:\n    rows = list(file)",
        "with out.open() as file:",
    ),
    "whether it is there": (
        "np.save('w.npy', w)\nif not os.path.exists('w.npy'):\n    raise RuntimeError('lost')",
        "if not os.path.exists('w.npy'):",
    ),
    "a copy of it": (
        "np.save('w.npy', w)\nshutil.copy('w.npy', 'v.npy')\nsize = os.path.getsize('v.npy')",
        "size = os.path.getsize('v.npy')",
    ),
    "an archive": ("np.savez('w.npz', w)\nparts = zipfile.ZipFile('w.npz')", "parts = zipfile.ZipFile('w.npz')"),
    "a table": (
        "table.to_csv(path)\ntable = pd.read_feather(path)",
        "table = pd.read_feather(path)",
    ),
    "another package": ("np.save(path, w)\nshelf.publish(str(path))", "shelf.publish(str(path))"),
    "another program": (
        "np.save(path, w)\ntext = subprocess.check_output(['sum', path])",
        "text = subprocess.check_output(['sum', path])",
    ),
    "with numbers": (
        "for k in range(2):\n    np.save(f'{k}.npy', w)\nsizes = [os.path.getsize(f'{n}.npy') for n in range(2)]",
        "sizes = [os.path.getsize(f'{n}.npy') for n in range(2)]",
    ),
}
ASKING = "import os, pathlib, shelf, shutil, subprocess, zipfile"


@pytest.mark.hazard("U16")
@pytest.mark.parametrize(("end", "asking"), ASKED.values(), ids=ASKED)
def test_whatever_looks_at_what_the_main_process_has_written_waits(
    end: str, asking: str, migrated: Callable[[str], str]
) -> None:
    text = [line.strip() for line in migrated(f"{ASKING}\n{IMPORTS}\n{TRAINS}{end}\n").splitlines()]
    assert text[text.index(asking) - 1] == WAIT and text.count(WAIT) == 1


MENTIONED = {
    "kept in a list": "np.save(path, w)\nkept.append(path)",
    "printed": "np.save(path, w)\nprint(path)",
    "logged": "np.save(path, w)\nlogging.info('saved to %s', path)",
    "its name": "np.save(path, w)\nname = os.path.basename(path)",
    "another size": "np.save('w.npy', w)\nsize = os.path.getsize('v.npy')",
    "no path at all": (
        "def show(size=None, path=None):\n    shelf.figure(size=size)\n    np.save(path, w)\nshow(path='w.npy')"
    ),
    "asked before": "size = os.path.exists('w.npy')\nnp.save('w.npy', w)",
}


@pytest.mark.parametrize("end", MENTIONED.values(), ids=MENTIONED)
def test_a_path_that_is_only_mentioned_is_not_waited_for(end: str, migrated: Callable[[str], str]) -> None:
    text = migrated(f"import logging\n{ASKING}\n{IMPORTS}\n{TRAINS}kept = []\n{end}\n")
    guarded = "if accelerator.is_main_process:\nnp.save("
    assert guarded in text.replace("    ", "") and WAIT not in text


RESUME = """\
def resume(path):
    if os.path.isfile(path):
        state = torch.load(path, map_location="cpu")
        model.load_state_dict(state)

"""


@pytest.mark.hazard("U17")
def test_all_wait_before_they_ask_for_a_checkpoint(migrated: Callable[[str], str]) -> None:
    """In the branch they would wait for a process that did not find the file yet."""
    asks = "if os.path.exists('w.pt'):\n    w = torch.load('w.pt', map_location='cpu')\n"
    text = migrated(f"{ASKING}\n{IMPORTS}\n{TRAINS}torch.save(w, 'w.pt')\n{asks}")
    assert text.endswith(f"{WAIT}\n{asks}") and text.count(WAIT) == 1


LEFT = {
    "of the same file": ("if not os.path.exists(path):\n            continue", True),
    "by a path": ("if not path.is_file() or skip:\n            continue", True),
    "of another file": ("if not os.path.exists(other):\n            continue", False),
    "where it goes on": ("if not os.path.exists(path):\n            missing = path", False),
}


@pytest.mark.hazard("U17")
@pytest.mark.parametrize(("asks", "first"), LEFT.values(), ids=LEFT)
def test_all_wait_before_one_may_leave(asks: str, first: bool, migrated: Callable[[str], str]) -> None:
    """Who does not find the file yet goes on, and the others would wait behind the question for ever."""
    body = (
        f"path = place(name)\n        {asks}\n        with torch.no_grad():\n            w = torch.load(path, 'cpu')\n"
    )
    shows = f"def show(names):\n    for name in names:\n        {body}\n"
    text = migrated(f"{ASKING}\n{IMPORTS}\n{shows}{TRAINS}torch.save(w, place(best))\nshow(names)\n")
    ahead = f"        {WAIT}\n        {asks}" if first else f"            {WAIT}\n            w = torch.load"
    assert ahead in text and text.count(WAIT) == 1


def test_a_function_that_waits_itself_is_called_without(migrated: Callable[[str], str]) -> None:
    text = migrated(f"{ASKING}\n{IMPORTS}\n{RESUME}{TRAINS}torch.save(model.state_dict(), 'w.pt')\nresume('w.pt')\n")
    assert f"    {WAIT}\n    if os.path.isfile(path):\n" in text and text.count(WAIT) == 1


TAKEN = {
    "removed": ("rows = open('now.txt').read()", "os.remove('now.txt')"),
    "by a path": ("rows = out.read_text()", "out.unlink()"),
    "renamed": ("rows = json.load(open(path))", "os.rename(path, 'old.json')"),
    "moved": ("rows = np.load(path)", "shutil.move(path, 'old')"),
    "the folder around it": ("rows = np.load(os.path.join(out, 'rows.npy'))", "shutil.rmtree(out)"),
    "written anew": ("rows = np.load('w.npy')", "np.save('w.npy', rows)"),
    "a checkpoint": ("rows = torch.load('w.pt', map_location='cpu')", "os.remove('w.pt')"),
    "its size": ("rows = os.path.getsize(path)", "os.remove(path)"),
}


@pytest.mark.parametrize(("read", "taken"), TAKEN.values(), ids=TAKEN)
def test_what_all_have_read_is_taken_away_after_that(read: str, taken: str, migrated: Callable[[str], str]) -> None:
    end = f"{read}\n{taken}\n"
    text = migrated(f"{ASKING}\n{IMPORTS}\n{TRAINS}{end}")
    assert text.endswith(f"{read}\n{WAIT}\nif accelerator.is_main_process:\n    {taken}\n")
    assert text.count(WAIT) == 1


def test_open_files_of_one_name_are_those_of_their_paths(migrated: Callable[[str], str]) -> None:
    """All waited before the second was written: what `f` is in another `with` is another file."""
    end = "with open({!r}) as f:\n    rows = json.load(f)\nwith open('sizes.json', 'w') as f:\n    json.dump(rows, f)\n"
    assert WAIT not in migrated(f"{ASKING}\n{IMPORTS}\n{TRAINS}{end.format('rows.json')}")
    assert WAIT in migrated(f"{ASKING}\n{IMPORTS}\n{TRAINS}{end.format('sizes.json')}")


def test_all_wait_before_all_that_the_main_process_does_in_a_row(migrated: Callable[[str], str]) -> None:
    end = "rows = open('a').read()\nnp.save('b', w)\nos.remove('a')\n"
    text = migrated(f"{ASKING}\n{IMPORTS}\n{TRAINS}{end}")
    assert text.endswith(f"{WAIT}\nif accelerator.is_main_process:\n    np.save('b', w)\n    os.remove('a')\n")


def test_what_the_next_turn_of_a_loop_writes_anew_is_read_before(migrated: Callable[[str], str]) -> None:
    end = "for k in range(3):\n    np.save('now.npy', w)\n    w = np.load('now.npy')\n"
    text = migrated(f"{ASKING}\n{IMPORTS}\n{TRAINS}{end}")
    guard = "if accelerator.is_main_process:\n        np.save('now.npy', w)"
    assert text.endswith(f"    {WAIT}\n    {guard}\n    {WAIT}\n    w = np.load('now.npy')\n")


@pytest.mark.parametrize(
    "end",
    [
        "for k in range(3):\n    np.save(f'{k}.npy', w)\n    w = np.load(f'{k}.npy')\n",
        "for k in range(3):\n    name = 'w%d.npy' % k\n    np.save(name, w)\n    w = np.load(name)\n",
        f"for k in range(3):\n{indent(TRAINS[TRAINS.index('for x') :], '    ')}"
        "    np.save('w.npy', w)\n    w = np.load('w.npy')\n",
    ],
    ids=["another path in each turn", "a name that each turn gives", "trained in each turn"],
)
def test_a_turn_that_takes_nothing_away_waits_once(end: str, migrated: Callable[[str], str]) -> None:
    assert migrated(f"{ASKING}\n{IMPORTS}\n{TRAINS}{end}").count(WAIT) == 1


TURN = TRAINS[TRAINS.index("for x") :]
MET = {
    "trained in between": f"w = np.load('w.npy')\n{TRAINS}np.save('w.npy', w)",
    "trained in a function": "def fit():\n    w = np.load('w.npy')\n"
    f"{indent(TURN, '    ')}    np.save('w.npy', w)\n\nfit()",
    "trained in each turn": "w = np.load('w.npy')\nfor epoch in range(3):\n"
    f"{indent(TURN, '    ')}    np.save('w.npy', w)",
    "another file": "rows = open('a').read()\nos.remove('b')",
    "another call of the same names": "def read(path):\n    return open(path).read()\n\n"
    "def keep(path):\n    with open(path, 'w') as file:\n        file.write('a')\n\nread('a')\nkeep('b')",
    "only asked": "if os.path.exists('a'):\n    os.remove('a')",
    "left before": "def rows():\n    if cached:\n        return np.load('w.npy')\n    np.save('w.npy', w)\n\nrows()",
    "by the main process": "with open('b', 'w') as file:\n    file.write(open('a').read())\nos.remove('a')",
}


@pytest.mark.parametrize("end", MET.values(), ids=MET)
def test_nobody_waits_where_all_have_met_or_nothing_was_read(end: str, migrated: Callable[[str], str]) -> None:
    text = migrated(f"{ASKING}\n{IMPORTS}\n{TRAINS}{end}\n")
    assert "accelerator.backward(" in text and WAIT not in text


READ_BEFORE = {
    "another folder": "import os\nnp.save('out/w.npy', w)\nnames = os.listdir('data')",
    "another folder of the same one": "import os\nnp.save('/all/out/w.npy', w)\nnames = os.listdir('/all/data')",
    "another one, in a function": (
        "import os\ndef read(folder):\n    np.save('all/out/' + 'w.npy', w)\n    return os.listdir(folder)\n"
        "read('all/one')\nread('all/two')"
    ),
    "a folder of the run": "import os\nnp.save('w.npy', w)\nnames = os.listdir('data')",
    "another option": "import os\nnp.save(os.path.join(args.out, 'w.npy'), w)\nnames = os.listdir(args.data)",
    "listed before": "import os\nnames = os.listdir('out')\nnp.save('out/w.npy', w)",
    "another file": "np.save('w.npy', w)\nw = np.load('v.npy')",
    "a cache": "if cached:\n    w = np.load('w.npy')\nelse:\n    np.save('w.npy', w)",
    "added to": "with open(p, 'w') as out:\n    out.write('a')\nwith open(p, 'a') as out:\n    out.write('b')",
    "by the main process": "for k in range(2):\n    with open(p, 'w') as out:\n        out.write(open(p).read())",
    "a row": "class Rows:\n    def __getitem__(self, i):\n        np.save(p, i)\n        return np.load(p)\nRows()[0]",
}


@pytest.mark.parametrize("end", READ_BEFORE.values(), ids=READ_BEFORE)
def test_nobody_waits_where_nothing_was_written_before(end: str, migrated: Callable[[str], str]) -> None:
    text = migrated(f"{IMPORTS}\n{TRAINS}{end}\n")
    assert "accelerator.backward(" in text
    assert WAIT not in text


TAKES = """\
import argparse, os, pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--out")
parser.add_argument("--shots", default="shots/now")
parser.add_argument("--deep", type=int)
args = parser.parse_args()


def keep(path):
    with open(path, "w") as file:
        file.write("done")


def join(folder, name):
    texts = [part.read_text() for part in pathlib.Path(folder).glob("*.txt")]
    with open(f"{folder}/{name}", "w") as file:
        file.write(name.join(texts))


def show(epoch):
    keep(f"SHOTS/a{epoch}.txt")
    join(FOLDER, "a")
    keep(f"SHOTS/b{epoch}.txt")
    join(FOLDER, "b")
    if args.deep:
        keep(f"SHOTS/c{epoch}.txt")
        join(FOLDER, "c")


"""


@pytest.mark.parametrize(
    ("shots", "folder"), [("shots", '"shots"'), ("{args.out}", "args.out"), ("shots/{args.out}", "args.shots")]
)
def test_all_wait_before_each_first_read_after_a_write(shots: str, folder: str, migrated: Callable[[str], str]) -> None:
    """A helper writes, another one lists; who calls the function around them has nothing to wait for."""
    takes = TAKES.replace("SHOTS", shots).replace("FOLDER", folder)
    text = [line.strip() for line in migrated(f"{takes}{IMPORTS}\n{TRAINS}show(3)\nshow(4)\n").splitlines()]
    reads = [text.index(f'join({folder}, "{name}")') for name in "abc"]
    assert [text[at - 1] for at in reads] == [WAIT] * 3 and text.count(WAIT) == 3


def test_all_have_waited_at_the_first_of_two_reads(migrated: Callable[[str], str]) -> None:
    end = "np.save('out/w.npy', w)\nnames = os.listdir('out')\nif names:\n    w = np.load('out/w.npy')"
    text = migrated(f"import os\n{IMPORTS}\n{TRAINS}{end}\n")
    assert text.endswith(f"{WAIT}\nnames = os.listdir('out')\nif names:\n    w = np.load('out/w.npy')\n")
    assert text.count(WAIT) == 1


@pytest.mark.parametrize("read", ["parts('shots')", "parts(args.shots)"])
def test_what_a_function_of_another_file_writes_is_waited_for(read: str) -> None:
    helpers = """\
import pathlib

def keep(path):
    with open(path, "w") as file:
        file.write("done")

def parts(folder):
    return [part.read_text() for part in pathlib.Path(folder).glob("*.txt")]
"""
    option = 'import argparse\nargs = argparse.ArgumentParser()\nargs.add_argument("--shots", default="shots")\n'
    script = f"from helpers import keep, parts\n{option}args = args.parse_args()\n{TRAINS}keep('shots/a.txt')\n"
    script += f"texts = {read}\n"
    sources = [decode(text.encode(), Path(name)) for text, name in ((script, "train.py"), (helpers, "helpers.py"))]
    train = migrate(sources, CATALOGUE, Config()).files[0].after.decode()
    assert train.endswith(f"keep('shots/a.txt')\n{WAIT}\ntexts = {read}\n")


UNSURE = {
    "two options": ("np.save(os.path.join(args.out, 'w.npy'), w)", "os.listdir(args.data)", "args.data"),
    "an option and a folder": ("np.save('out/w.npy', w)", "os.listdir(args.data)", "args.data"),
    "by a function": ("np.save('out/w.npy', w)", "film(args.data, 'a')", "pathlib.Path(folder)"),
}


@pytest.mark.parametrize(("write", "read", "folder"), UNSURE.values(), ids=UNSURE)
def test_folders_that_may_be_one_are_told(write: str, read: str, folder: str) -> None:
    """Only a run knows what the options say."""
    end = f"import cv2, os, pathlib\n{IMPORTS}\n{FILM}\n{TRAINS}{write}\nnames = {read}\n"
    (file,) = migrate([decode(end.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [d for d in file.diagnoses if d.id == "read-back"]
    path = write[len("np.save(") : -len(", w)")]
    assert found.message == (
        f"every process lists `{folder}`, and only the main process has written `{path}` before: if both are in one "
        "folder, the others may list it too early"
    )
    assert found.line == end.count("\n") and WAIT not in file.after.decode()


@pytest.mark.parametrize(
    "end",
    [
        "np.save('out/w.npy', w)\nnames = os.listdir('data')",
        "names = os.listdir(args.data)\nnp.save('out/w.npy', w)",
        "np.save('out/w.npy', w)\nfirst = os.listdir('out')\nnames = os.listdir(args.data)",
    ],
    ids=["two folders", "listed before", "all have waited"],
)
def test_folders_of_which_nothing_is_told(end: str) -> None:
    text = f"import os\n{IMPORTS}\n{TRAINS}{end}\n"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "accelerator.backward(" in file.after.decode()
    assert "read-back" not in [d.id for d in file.diagnoses]


UNWRAPPED = {
    "loaded": ("model.load_state_dict(best)", "accelerator.unwrap_model(model).load_state_dict(best)"),
    "kept in memory": (
        "best = copy.deepcopy(model.state_dict())",
        "best = copy.deepcopy(accelerator.unwrap_model(model).state_dict())",
    ),
    "value by value": (
        "best = {k: v.clone() for k, v in model.state_dict().items()}",
        "best = {k: v.clone() for k, v in accelerator.unwrap_model(model).state_dict().items()}",
    ),
    "scripted": ("torch.jit.script(model)", "torch.jit.script(accelerator.unwrap_model(model))"),
}


@pytest.mark.parametrize(("before", "after"), UNWRAPPED.values(), ids=UNWRAPPED)
def test_on_accelerate_the_plain_model_is_read_and_loaded(before: str, after: str, lines: Lines) -> None:
    from torchlift.rewriter.config import Target

    assert lines(imports="import copy", top="best = {}", end=before) == ([], [], [])
    _, new, _ = lines(imports="import copy", top="best = {}", end=before, options={"target": Target.ACCELERATE})
    assert after in new


def test_on_accelerate_it_is_the_cpu(lines: Lines) -> None:
    """Its device of a CPU process is `cpu:0`, which torch.load refuses."""
    from torchlift.rewriter.config import Target

    _, come, _ = lines(built=LOAD, options={"target": Target.ACCELERATE})
    assert "model.load_state_dict(torch.load('start.pt', map_location=\"cpu\"))" in come


DATA = {
    "a tensor data set": "rows = torch.load('rows.pt')\ntrain = torch.utils.data.TensorDataset(rows)",
    "both parts of it": "rows, labels = torch.load('rows.pt')\ntrain = torch.utils.data.TensorDataset(rows, labels)",
    "a loader": "rows = torch.load('rows.pt')\nmore = DataLoader(rows, batch_size=2)",
    "a class of data sets": (
        "class Rows(torch.utils.data.Dataset):\n    def __init__(self):\n        self.rows = torch.load('rows.pt')\n\n"
        "train = Rows()"
    ),
}


@pytest.mark.parametrize("top", DATA.values(), ids=DATA)
def test_a_data_set_stays_on_the_cpu(top: str, lines: Lines) -> None:
    _, come, _ = lines(top=top)
    (line,) = [line for line in come if "map_location" in line]
    assert line.endswith("torch.load('rows.pt', map_location=\"cpu\")")


def test_a_path_is_told_by_its_keyword_wherever_that_stands(lines: Lines) -> None:
    end = "torch.save(model.state_dict(), 'm.pt')\nmodel.load_state_dict(torch.load(map_location='cpu', f='m.pt'))"
    assert WAIT in lines(end=end)[1]
    assert WAIT not in lines(end=end.replace("f='m.pt'", "f='start.pt'"))[1]


WRITTEN_WITH_ACCELERATE = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
accelerator = Accelerator()
model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
"""
SAVED = "if accelerator.is_main_process:\n    torch.save([0.5], 'best.pt')\n"
LOADED = "best = torch.load('best.pt', map_location='cpu')\n"


@pytest.mark.parametrize("between", ["", f"{WAIT}\n"], ids=["nobody waits yet", "all wait already"])
def test_all_wait_once(between: str, migrated: Callable[[str], str]) -> None:
    text = migrated(WRITTEN_WITH_ACCELERATE + SAVED + between + LOADED)
    assert text.endswith(f"{SAVED}{WAIT}\n{LOADED}")
    assert text.count(WAIT) == 1 and "from torchlift.runtime import Accelerator" in text


BUILDER = """\
import json


class Words:
    def __init__(self):
        self.path = "words.json"
        self.build()

    def build(self):
        {first}
        with open(self.path, "w") as out:
            json.dump(["a", "b"], out)
        {last}

    def read(self):
        with open(self.path) as file:
            self.words = json.load(file)
"""


@pytest.mark.parametrize(("first", "last"), [("pass", "self.read()"), ("self.read()", "pass")])
def test_a_file_that_a_called_function_reads_is_waited_for(
    first: str, last: str, migrated: Callable[[str], str]
) -> None:
    """On the first run every process but the first read a file that was not there yet; or all read one that the first
    was writing anew."""
    end = f"{BUILDER.format(first=first, last=last)}\nwords = Words()\n"
    text = [line.strip() for line in migrated(f"{TRAINS}{end}").splitlines()]
    (at,) = (number for number, line in enumerate(text) if line.endswith(".wait_for_everyone()"))
    assert text[at + 1] == (last if last != "pass" else "if accelerator.is_main_process:")


def test_so_is_one_that_a_function_without_a_class_reads(migrated: Callable[[str], str]) -> None:
    end = "def load(path):\n    return np.load(path)\n\nnp.save(path, w)\nload(path)"
    assert f"{WAIT}\nload(path)" in migrated(f"{IMPORTS}\n{TRAINS}{end}\n")


MAKES_PATH = {
    "in a dict": ('path = os.path.join(folder, "w.npy")', '{"rows": path}', '["rows"]'),
    "in a tuple": ('path = os.path.join(folder, "w.npy")', "path, 3", "[0]"),
    "joined with a slash": ('path = pathlib.Path(folder) / "w.npy"', "path", ""),
    "as a text": ('path = f"{folder}/w.npy"', "path", ""),
}


@pytest.mark.hazard("U18")
@pytest.mark.parametrize(("made", "returned", "taken"), MAKES_PATH.values(), ids=MAKES_PATH)
def test_a_path_that_the_writing_function_makes_and_returns(
    made: str, returned: str, taken: str, migrated: Callable[[str], str]
) -> None:
    """All wait before the read: in the function that wrote, where both are called in one statement."""
    tops = f"{IMPORTS}\nimport os, pathlib\n"
    make = f"def make(folder):\n    {made}\n    np.save(path, 1)\n    return {returned}\n\n"
    load = "def load(path):\n    return np.load(path)\n\n"
    apart = migrated(f"{tops}{make}{load}{TRAINS}given = make('.')\nw = load(given{taken})\n")
    assert f"{WAIT}\nw = load(given{taken})" in apart and apart.count(WAIT) == 1
    at_once = migrated(f"{tops}{make}{load}{TRAINS}w = load(make('.'){taken})\n")
    assert f"wait_for_everyone()\n    return {returned}\n" in at_once and at_once.count("wait_for_everyone") == 1


OWN = "class Where:\n    def __init__(self, path, size):\n        self.path, self.size = path, size"
KEEPS_PATH = {
    "a namespace": ("from argparse import Namespace", "kept = Namespace(size=4, path=path)", "kept.path"),
    "a namespace of types": ("import types", "kept = types.SimpleNamespace(path=path)", "kept.path"),
    "a data class": (
        "import dataclasses\n@dataclasses.dataclass\nclass Where:\n    path: str",
        "kept = Where(path)",
        "kept.path",
    ),
    "a named tuple": (
        "from collections import namedtuple\nWhere = namedtuple('Where', 'path size')",
        "kept = Where(path, 4)",
        "kept.path",
    ),
    "a class": (OWN, "kept = Where(path, 4)", "kept.path"),
    "a dictionary": ("", "kept = {'path': path}", "kept['path']"),
    "a dictionary that is filled": ("", "kept = {}\nkept['path'] = path", "kept['path']"),
}


@pytest.mark.hazard("U18")
@pytest.mark.parametrize(("top", "made", "read"), KEEPS_PATH.values(), ids=KEEPS_PATH)
def test_a_path_that_an_object_is_made_with(top: str, made: str, read: str, migrated: Callable[[str], str]) -> None:
    load = "def load(named):\n    return np.load(named)\n\n"
    end = f"path = 'a.npy'\nnp.save(path, w)\n{made}\nw = load({read})\n"
    assert f"{WAIT}\nw = load({read})" in migrated(f"{IMPORTS}\n{top}\n{load}{TRAINS}{end}")


def test_what_a_dictionary_has_by_another_key_is_another_file(migrated: Callable[[str], str]) -> None:
    end = "kept = {'a': 'a.npy', 'b': 'b.npy'}\nnp.save(kept['a'], w)\nw = np.load(kept['b'])\n"
    assert "wait_for_everyone" not in migrated(f"{IMPORTS}\n{TRAINS}{end}")


def test_another_file_that_a_helper_names_is_not_waited_for(migrated: Callable[[str], str]) -> None:
    make = 'def make(at):\n    np.save(os.path.join(at, "a.npy"), 1)\n    return os.path.join(at, "b.npy")\n'
    assert "wait_for_everyone" not in migrated(f"{IMPORTS}\nimport os\n{make}{TRAINS}np.load(make(out))\n")


HELPER = """\
import torch
from torch.utils.data import DataLoader

def restore(model, path):
{body}
    return model

def main():
    model = torch.nn.Linear(8, 1)
    loader = DataLoader(data, batch_size=32)
    restore(model, "start.pt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

main()
"""
COPIED = {
    "at once": "    model.load_state_dict(torch.load(path))",
    "a part": "    model.load_state_dict(torch.load(path)['model'], strict=False)",
    "by a name": "    state = torch.load(path)\n    if 'model' in state:\n        state = state['model']\n"
    "    model.load_state_dict(state)",
    "chosen by name": "    kept = torch.load(path)\n    kept = {k: v for k, v in kept.items() if k != 'bias'}\n"
    "    whole = model.state_dict()\n    whole.update(kept)\n    model.load_state_dict(whole)",
}
USED_OTHERWISE = {
    "a tensor": "    model.weight.data = torch.load(path)",
    "one more reader": "    state = torch.load(path)\n    model.load_state_dict(state['model'])\n"
    "    print(state['best'])",
    "handed on": "    model.load_state_dict(clean(torch.load(path)))",
}


@pytest.mark.parametrize("body", COPIED.values(), ids=COPIED)
def test_a_function_that_only_loads_weights_keeps_its_signature(body: str, migrated: Callable[[str], str]) -> None:
    text = migrated(HELPER.format(body=body))
    assert "def restore(model, path):" in text
    assert 'torch.load(path, map_location="cpu")' in text


@pytest.mark.parametrize("body", USED_OTHERWISE.values(), ids=USED_OTHERWISE)
def test_what_is_not_copied_is_loaded_to_the_device(body: str, migrated: Callable[[str], str]) -> None:
    text = migrated(HELPER.format(body=body))
    assert "def restore(model, path, accelerator):" in text
    assert "torch.load(path, map_location=accelerator.device)" in text


def test_a_class_of_the_script_may_keep_what_it_loads(migrated: Callable[[str], str]) -> None:
    kept = "class Kept:\n    def load_state_dict(self, state):\n        self.shadow = state\n\ndef restore"
    text = migrated(HELPER.replace("def restore", kept).format(body="    Kept().load_state_dict(torch.load(path))"))
    assert "torch.load(path, map_location=accelerator.device)" in text


@pytest.mark.parametrize(
    ("path", "because"),
    [
        ("'last.pt'", "this run wrote the file, and all processes read it"),
        ("sys.argv[1]", "this run may have written the file, and all processes read it"),
    ],
    ids=["the path of the save", "a path from outside"],
)
def test_the_reason_says_whether_it_is_certain_who_wrote_the_file(path: str, because: str) -> None:
    loads = f"torch.save(model.state_dict(), 'last.pt')\nmodel.load_state_dict(torch.load({path}))\n"
    (file,) = migrate([decode(f"import sys\n{TRAINS}{loads}".encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "accelerator.wait_for_everyone()\n" in file.after.decode()
    assert [edit.reason for edit in file.changes if edit.reason.startswith("this run")] == [because]


TRAINER = """\
import argparse
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, device):
        name = device.lower()
        self.device = torch.device(name)

    def fit(self, model, loader, path):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model = model.to(self.device)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x.to(self.device)), y.to(self.device)).backward()
            optimizer.step()
        torch.save({"weights": model.state_dict()}, path)


def fitted(trainer, model, loader, path):
    trainer.fit(model, loader, path)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", default="best.pt")
    args = parser.parse_args()
    loader, model = DataLoader(data, batch_size=32), torch.nn.Linear(8, 1)
    trainer = Trainer(args.device)
    {fit}
    state = torch.load(args.out)
    if isinstance(state, dict):
        model.load_state_dict(state["weights"])
    print("loaded", args.out)
    {save}


main()
"""
FITS = {
    "in the same function": ("trainer.fit(model, loader, args.out)", True),
    "by a helper": ("model = fitted(trainer, model, loader, args.out)", True),
    "under a condition": ("if args.device:\n        trainer.fit(model, loader, args.out)", False),
    "in a loop": ("for _ in range(int(args.device == 'cpu')):\n        trainer.fit(model, loader, args.out)", False),
}


@pytest.mark.hazard("U16")
@pytest.mark.parametrize(("fit", "sure"), FITS.values(), ids=FITS)
def test_what_runs_after_the_accelerator_was_created_waits_without_it(fit: str, sure: bool) -> None:
    """The option for the device is read where the accelerator is created, below; after that each process knows itself.
    Where it may not have been created, the missing wait is told."""
    text = TRAINER.replace("{fit}", fit).replace("    {save}\n", "")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after, told = file.after.decode(), [d.id for d in file.diagnoses if d.severity.value != "note"]
    assert (
        'state = torch.load(args.out, map_location="cpu")\n' in after
        and 'Accelerator(cpu=self.device.type == "cpu")' in after
    )
    assert ("    PartialState().wait_for_everyone()\n    state = " in after) is sure
    assert ('    PartialState().print("loaded", args.out)' in after) is sure
    assert ('    EarlyState().print("loaded", args.out)' in after) is not sure
    assert told == ([] if sure else ["read-back"])


KEPT_OBJECT = """\
import json
import shelf
import torch
from torch.utils.data import DataLoader


class Boxes(torch.utils.data.Dataset):
    def __init__(self, path):
        self.boxes = shelf.Boxes(path)


def judge(boxes, rows):
    json.dump(rows, open("found.json", "w"))
    found = boxes.boxes.compare("found.json")
    print(found)


truth = {}
loader = DataLoader(Boxes("train.json"), batch_size=32)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
judge(truth, [1, 2])
"""


@pytest.mark.hazard("U16")
@pytest.mark.parametrize("given", ["Boxes('all.json')", "None if flags.fast else Boxes('all.json')"])
def test_an_object_that_may_be_none_is_what_it_else_is(given: str, migrated: Callable[[str], str]) -> None:
    """None has no attributes: what is called there is the method of the other one, which reads the file."""
    assert f"{WAIT}\n    found = " in migrated(KEPT_OBJECT.format(given)).replace("PartialState()", "accelerator")


SAVES = {
    "a state": "torch.save(model.state_dict(), 'end.pt')",
    "a model": "torch.save(model, 'end.pt')",
    "settings": "torch.save({'path': args.out}, 'end.pt')",
}


@pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
def test_what_is_saved_after_the_accelerator_was_created_is_saved_once(save: str) -> None:
    """It was refused, because the function that saves cannot be given the accelerator that another one creates."""
    text = TRAINER.replace("{fit}", "trainer.fit(model, loader, args.out)").replace("{save}", save)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert f"    if PartialState().is_main_process:\n        {save}\n" in file.after.decode()
    assert not [d for d in file.diagnoses if d.severity.value != "note"]


ONE_OF_TWO = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader


def learn(rows):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(rows, batch_size=8, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "net.pt")


def predict(rows):
    model = nn.Linear(4, 2)
    model.load_state_dict(torch.load("net.pt", map_location="cpu"))
    print(model(rows[0][0]).argmax())


parser = argparse.ArgumentParser()
parser.add_argument("--action")
parser.add_argument("--quick", action="store_true")
args = parser.parse_args()
rows = torch.load("rows.pt")
"""
CHOSEN = {
    "one or the other": ('if args.action == "learn":\n    learn(rows)\nelse:\n    predict(rows)\n', False),
    "one of several": (
        'if args.quick:\n    if args.action == "learn":\n        learn(rows[:9])\nelif args.action == "learn":\n'
        '    learn(rows)\nelif args.action == "predict":\n    predict(rows)\n',
        False,
    ),
    "both": ('if args.action != "predict":\n    learn(rows)\nif args.action != "learn":\n    predict(rows)\n', True),
    "in turn": (
        'for action in args.action.split():\n    if action == "learn":\n        learn(rows)\n    else:\n'
        "        predict(rows)\n",
        True,
    ),
}


@pytest.mark.parametrize(("chosen", "waits"), CHOSEN.values(), ids=CHOSEN)
def test_a_file_is_waited_for_where_the_run_may_have_written_it(
    chosen: str, waits: bool, migrated: Callable[[str], str]
) -> None:
    text = migrated(ONE_OF_TWO + chosen)
    assert ("wait_for_everyone()" in text) is waits
