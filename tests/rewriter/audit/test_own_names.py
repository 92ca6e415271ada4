"""Files that no other process has: each way of naming one beside a name that all processes share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parent / "fixtures" / "ddp_torchrun.py").read_text()
IMPORTS = """\
import shutil
import tempfile
import uuid
from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import Dataset, SequentialSampler
"""
LAST = "    dist.destroy_process_group()\n"


def writing(lines: str, before: str = "") -> str:
    """The script with functions before it, and more at its end."""
    assert LAST in SCRIPT
    after = "".join(f"    {line}\n" for line in lines.split("\n"))
    return IMPORTS + SCRIPT.replace(LAST, after + LAST).replace("def main", f"{before}\n\ndef main", 1)


NAMES = """\
def named(folder, number):
    return os.path.join(folder, f"{number}.pt")


class Place:
    def __init__(self, number):
        self.number = number

    def of(self, kind):
        return f"{kind}_{self.number}.pt"
"""
OF_A_NUMBER = {
    "an image": 'image = Image.fromarray(np.zeros(3))\nimage.save(Path("out") / f"{NUMBER}.png")',
    "an array": 'path = "{}/{:d}.npy".format("out", NUMBER)\nnp.save(path, np.zeros(3))',
    "an array by keywords": 'np.save(file=f"{NUMBER}.npy", arr=np.zeros(3))',
    "a slash": 'folder = Path("out")\npath = folder / f"{NUMBER}.pt"\ntorch.save({}, path)',
    "a joined path": 'torch.save({}, os.path.join("out", str(NUMBER), "model.pt"))',
    "a helper": 'torch.save({}, named("out", NUMBER))',
    "a method": 'place = Place(NUMBER)\ntorch.save({}, place.of("last"))',
    "a text that is added to": 'path = "model"\npath += str(NUMBER)\ntorch.save({}, path)',
    "an opened path": 'with (Path("out") / str(NUMBER)).open("w") as file:\n    file.write("1")',
}


@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_the_rank_in_a_path(name: str, found: Callable[[str], set[str]]) -> None:
    lines = OF_A_NUMBER[name]
    assert found(writing(lines.replace("NUMBER", "dist.get_rank()"), NAMES)) == set()
    assert found(writing(lines.replace("NUMBER", "epoch"), NAMES)) == {"unguarded-write"}


def test_the_rank_in_what_is_written_is_no_path(found: Callable[[str], set[str]]) -> None:
    assert found(writing('torch.save({"rank": dist.get_rank()}, "model.pt")')) == {"unguarded-write"}
    assert found(writing('np.save("rank.npy", np.array([dist.get_rank()]))')) == {"unguarded-write"}


TEMPORARY = """\
def folder():
    made = MADE
    return made


def write(where):
    torch.save({}, os.path.join(where, "model.pt"))


class Cache:
    def __init__(self):
        self.folder = MADE

    def keep(self):
        torch.save({}, f"{self.folder}/model.pt")
"""
INTO_A_FOLDER = {
    "a variable": 'made = MADE\ntorch.save({}, os.path.join(made, "model.pt"))',
    "a copy": 'made = MADE\nshutil.copy("settings.py", made)\nshutil.copytree("rows", Path(made) / "rows")',
    "a result": 'np.save(os.path.join(folder(), "rows"), np.zeros(2))',
    "an argument": "write(MADE)",
    "an attribute": "Cache().keep()",
    "what is removed": "made = MADE\nshutil.rmtree(made)",
}
CONTEXTS = {
    "a folder": ("tempfile.TemporaryDirectory()", 'torch.save({}, os.path.join(made, "model.pt"))'),
    "a copy": ("tempfile.TemporaryDirectory()", 'shutil.copy("settings.py", made)'),
    "a file": ("tempfile.NamedTemporaryFile()", "np.save(made.name, np.zeros(2))"),
}


@pytest.mark.parametrize("name", INTO_A_FOLDER)
def test_a_temporary_folder(name: str, found: Callable[[str], set[str]]) -> None:
    text = writing(INTO_A_FOLDER[name], TEMPORARY)
    assert found(text.replace("MADE", "tempfile.mkdtemp()")) == set()
    assert found(text.replace("MADE", 'os.path.join("run", uuid.uuid4().hex)')) == set()
    assert found(text.replace("MADE", "tempfile.gettempdir()")) == {"unguarded-write"}, "all processes share it"


@pytest.mark.parametrize("name", CONTEXTS)
def test_the_context_of_a_temporary_folder(name: str, found: Callable[[str], set[str]]) -> None:
    made, line = CONTEXTS[name]
    assert found(writing(f"with {made} as made:\n    {line}")) == set()


def test_what_is_copied_from_a_temporary_folder(found: Callable[[str], set[str]]) -> None:
    lines = 'made = tempfile.mkdtemp()\nshutil.copy(os.path.join(made, "model.pt"), "out")'
    assert found(writing(lines)) == {"unguarded-write"}
    assert found(writing('write(tempfile.mkdtemp())\nwrite("out")', TEMPORARY)) == {"unguarded-write"}


KEEPS = """\
class Pictures(Dataset):
    def __getitem__(self, index):
        return torch.zeros(8), {"number": index, "size": torch.zeros(2)}

    def __len__(self):
        return 8


def moved(held, device):
    if isinstance(held, torch.Tensor):
        return held.to(device)
    if isinstance(held, list):
        return [moved(each, device) for each in held]
    return held


class Keeper:
    def __init__(self, folder):
        self.folder = folder
        self.rows = []

    def update(self, rows):
        for row in rows:
            with open(os.path.join(self.folder, row["file"]), "wb") as file:
                file.write(row.pop("bytes"))
        self.rows += rows


class Draw(nn.Module):
    def forward(self, outputs):
        return [{"bytes": b"1", "mean": each.mean()} for each in outputs]


def evaluate(model, loader, draw):
    keeper = Keeper("out") if loader is not None else None
    for x, targets in loader:
        targets = [{key: moved(value, "cuda") for key, value in target.items()} for target in targets]
        made = draw(model(x))
        for i, target in enumerate(targets):
            number = NUMBER
            made[i]["file"] = f"{number:012d}.png"
        if keeper is not None:
            keeper.update(made)
"""
ORDER = """\
pictures = Pictures()
if "WORLD_SIZE" in os.environ:
    order = DistributedSampler(pictures, shuffle=False)
else:
    order = SequentialSampler(pictures)
show = DataLoader(pictures, 4, sampler=order)
evaluate(model, show, Draw())
"""


def test_an_object_that_is_given_rows_writes_their_files(found: Callable[[str], set[str]]) -> None:
    own = KEEPS.replace("NUMBER", 'target["number"].item()')
    assert found(writing(ORDER, own)) == set()
    assert found(writing(ORDER, KEEPS.replace("NUMBER", "i"))) == {"unguarded-write"}
    whole = ORDER.replace("sampler=order", "shuffle=False")
    assert found(writing(whole, own)) == {"unguarded-write"}, "all processes read the same rows"


COUNTED = """\
class Settings:
    pass


def resume(settings, state):
    settings.start = state["turn"] + 1


def keep(turn):
    torch.save({"turn": turn}, f"{turn}.pt")
"""


def test_a_count_that_begins_where_it_was_left_is_no_own_name(found: Callable[[str], set[str]]) -> None:
    """It is read from its own file; where it begins at first, nothing says."""
    lines = (
        'settings = Settings()\nresume(settings, torch.load("0.pt"))\n'
        'for turn in range(settings.start, 9):\n    state = {}\n    state["turn"] = turn\n    keep(turn)'
    )
    assert found(writing(lines, COUNTED)) == {"unguarded-write"}


CACHES = """\
class Cached(Dataset):
    def __init__(self, names):
        self.names = names

    def __getitem__(self, index):
        path = Path(self.names[index]).with_suffix(".npy")
        if not path.exists():
            np.save(PATH, np.loadtxt(self.names[index]))
        return torch.zeros(8), 0

    def __len__(self):
        return len(self.names)
"""
READS = 'cached = Cached(["1.txt", "2.txt"])\nfor x, y in DataLoader(cached, 2, SAMPLER):\n    print(x)'
ONE_EACH = "sampler=DistributedSampler(cached)"


def test_a_data_set_that_keeps_the_row_it_reads(found: Callable[[str], set[str]]) -> None:
    own = CACHES.replace("PATH", "path.as_posix()")
    assert found(writing(READS.replace("SAMPLER", ONE_EACH), own)) == set()
    assert found(writing(READS.replace("SAMPLER", "shuffle=False"), own)) == {"unguarded-write"}
    unknown = READS.replace("SAMPLER", "sampler=choose(cached)")
    assert found("from others import choose\n" + writing(unknown, own)) == set(), "nobody knows what it chooses"
    both = f"{READS}\nDataLoader(cached, 2)".replace("SAMPLER", ONE_EACH)
    assert found(writing(both, own)) == {"unguarded-write"}, "another loader gives its rows to all processes"
    assert found(writing(READS.replace("SAMPLER", ONE_EACH), CACHES.replace("PATH", "'a.npy'"))) == {"unguarded-write"}


def test_a_list_of_the_numbers_of_rows(found: Callable[[str], set[str]]) -> None:
    lines = "for x, y in loader:\n    for k in y.tolist():\n        torch.save({}, f'{k}.pt')"
    assert found(writing(lines)) == set()
    assert found(writing(lines.replace("y.tolist()", "range(len(y))"))) == {"unguarded-write"}
