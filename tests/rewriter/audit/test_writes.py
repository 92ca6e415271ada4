"""Files that every process may write, each beside a program that differs in a line and may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.rewriter.findings import Severity

SCRIPT = (Path(__file__).parent / "fixtures" / "ddp_torchrun.py").read_text()
DATA = "    data = TensorDataset"
MAIN = "def main():\n"
HEAD = """\
import io
import json
import threading
from contextlib import contextmanager
from pathlib import Path

import fasteners
import filelock
import portalocker
import urllib.request
from PIL import Image
from filelock import FileLock
from iopath.common.file_io import file_lock
"""


def script(lines: str, above: str = "") -> str:
    """The script with other lines before it makes its data, and other functions above."""
    assert DATA in SCRIPT
    text = SCRIPT.replace(DATA, "".join(f"    {line}\n" for line in lines.split("\n")) + DATA)
    return HEAD + text.replace(MAIN, f"{above}\n\n{MAIN}")


FIRST_COMES = """\
@contextmanager
def first_comes(rank):
    if rank not in [-1, 0]:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()
"""
FIRST_COMES_CLASS = """\
class first_comes:
    def __init__(self, rank):
        self.rank = rank

    def __enter__(self):
        if self.rank != 0:
            dist.barrier()

    def __exit__(self, *error):
        if self.rank == 0:
            dist.barrier()
"""
NOBODY_WAITS = """\
@contextmanager
def first_comes(rank):
    print("begins")
    yield
    print("ends")
"""
RETURNS = """\
def cache(path):
    if os.path.exists(path):
        return torch.load(path)
    rows = [1, 2]
    torch.save(rows, path)
    return rows
"""
CATCHES = """\
def cache(path):
    try:
        rows = torch.load(path)
    except OSError:
        rows = [1, 2]
        torch.save(rows, path)
    return rows
"""
ASKS_BY_NAME = """\
def cache(path):
    there = Path(path).exists()
    if not there:
        torch.save([1, 2], path)
"""
OVERWRITES = """\
def cache(path):
    torch.save([1, 2], path)
"""
TURN = 'with first_comes(rank):\n    cache("rows.pt")'


@pytest.mark.parametrize("enters", [FIRST_COMES, FIRST_COMES_CLASS], ids=["generator", "class"])
@pytest.mark.parametrize("writes", [RETURNS, CATCHES, ASKS_BY_NAME], ids=["returns", "catches", "by name"])
def test_a_context_that_lets_the_first_process_go_first(
    enters: str, writes: str, found: Callable[[str], set[str]]
) -> None:
    assert found(script(TURN, enters + writes)) == set()
    assert found(script('cache("rows.pt")', enters + writes)) == {"unguarded-write"}


def test_each_process_in_its_turn_overwrites_the_file(found: Callable[[str], set[str]]) -> None:
    assert found(script(TURN, FIRST_COMES + OVERWRITES)) == {"unguarded-write"}


def test_a_context_in_which_nobody_waits(found: Callable[[str], set[str]]) -> None:
    assert found(script(TURN, NOBODY_WAITS + RETURNS)) == {"unguarded-write"}


def test_a_function_that_is_called_outside_of_its_turn_too(found: Callable[[str], set[str]]) -> None:
    assert found(script(f'{TURN}\ncache("others.pt")', FIRST_COMES + RETURNS)) == {"unguarded-write"}


BESIDE = f"{TURN}\nif rank in [-1, 0]:\n    cache('others.pt')"


def test_a_function_that_is_called_in_its_turn_and_by_one_process(found: Callable[[str], set[str]]) -> None:
    assert found(script(BESIDE, FIRST_COMES + RETURNS)) == set()
    assert found(script(BESIDE.replace("in [-1, 0]", "not in [-1, 0]"), FIRST_COMES + RETURNS)) == {"unguarded-write"}


FIRST_OF_MACHINE = """\
def fetch(url, path):
    if {waits}:
        dist.barrier()
    if os.path.isfile(path):
        return path
    urllib.request.urlretrieve(url, path + ".part")
    with open(path, "wb") as out:
        out.write(b"1")
    if {frees}:
        dist.barrier()
    return path
"""
WAITED_FOR = {
    "by the rank": ("int(os.environ['LOCAL_RANK']) != 0", "int(os.environ['LOCAL_RANK']) == 0"),
    "by the rank and the file": ("dist.get_rank() > 0 and not os.path.isfile(path)", "dist.get_rank() == 0"),
}
PASSED_BY = {
    "nobody waits": ("len(path) > 99", "dist.get_rank() == 0"),
    "nobody frees them": ("dist.get_rank() != 0", "len(path) > 99"),
}


@pytest.mark.parametrize("name", [*WAITED_FOR, *PASSED_BY])
def test_the_others_wait_until_the_first_has_the_file(name: str, found: Callable[[str], set[str]]) -> None:
    waits, frees = {**WAITED_FOR, **PASSED_BY}[name]
    text = FIRST_OF_MACHINE.format(waits=waits, frees=frees)
    text = text.replace("if len(path) > 99:\n        dist.barrier()", "if len(path) > 99:\n        print(path)")
    reported = found(script('fetch("u", "w.pt")', text))
    assert ("unguarded-write" in reported) == (name in PASSED_BY)
    freed = text.replace("    if os.path.isfile(path):", "    dist.barrier()\n    if os.path.isfile(path):")
    assert "unguarded-write" in found(script('fetch("u", "w.pt")', freed)), "nobody waits any more"
    asks = "    if os.path.isfile(path):\n        return path\n"
    head = "def fetch(url, path):\n"
    early = text.replace(asks, "").replace(head, head + asks)
    reported = found(script('fetch("u", "w.pt")', early))
    assert "unguarded-write" in reported, "nobody looks again when it is its turn"


ALONE = {
    "an arm": "rank == 0 and epochs > 1",
    "no several": "not distributed or rank == 0",
    "no group": "not dist.is_initialized() or dist.get_rank() == 0",
    "one or first": "size == 1 or rank == 0",
    "the official one": "not distributed or (distributed and rank % torch.cuda.device_count() == 0)",
    "an option that is not known": "args.everywhere or rank == 0",
    "not the others": "not (rank != 0)",
    "a helper": "is_first()",
}
ALL_OF_THEM = {
    "an arm of its own": "rank == 0 and epochs > 1 or epochs == 1",
    "an arm with a file": "rank == 0 and epochs or (epochs is None and os.path.exists('b'))",
    "an arm with a question": "rank == 0 or agreed('remove it?')",
    "the others": "rank != 0",
    "not the first": "not is_first()",
    "the others, turned": "not rank == 0",
}
HELPERS = """\
def is_first():
    if not dist.is_initialized():
        return True
    return dist.get_rank() == 0


def agreed(question):
    answer = input(f"{question} (y/n)")
    return answer == "y"
"""
BEFORE = "epochs = 2\nsize = dist.get_world_size()\ndistributed = size > 1\n"
ONLY = 'with open("a", "w") as out:\n    out.write("1")'


@pytest.mark.parametrize("name", [*ALONE, *ALL_OF_THEM])
def test_a_condition_with_several_arms(name: str, found: Callable[[str], set[str]]) -> None:
    condition = {**ALONE, **ALL_OF_THEM}[name]
    expected = set() if name in ALONE else {"unguarded-write"}
    args = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
    assert found(args + script(BEFORE + inside(f"if {condition}", ONLY), HELPERS)) == expected
    otherwise = inside(f"if {condition}", "print('waits')") + inside("else", ONLY)
    if name in ("not the others", "a helper", "the others", "not the first", "the others, turned"):
        wanted = {"unguarded-write"} if name in ALONE else set()
        assert found(args + script(BEFORE + otherwise, HELPERS)) == wanted


def test_a_return_of_the_first_process_guards_nothing(found: Callable[[str], set[str]]) -> None:
    """All others come to what follows; only where they return it is left to the first."""
    leaves = "def write(rank):\n    if rank {}:\n        return\n" + "".join(f"    {x}\n" for x in ONLY.split("\n"))
    assert found(script("write(rank)", leaves.format("!= 0"))) == set()
    assert found(script("write(rank)", leaves.format("== 0"))) == {"unguarded-write"}
    sometimes = leaves.format("!= 0").replace("        return", "        if len('a'):\n            return")
    assert found(script("write(rank)", sometimes)) == {"unguarded-write"}


WRITE = 'with open("a", "w") as out:\n    out.write("1")'
LOOKS = f"if not os.path.exists('a'):\n    {WRITE}".replace("\n    out", "\n        out")
FETCH = "if not os.path.exists('a'):\n    urllib.request.urlretrieve('u', 'a')"


def inside(context: str, lines: str) -> str:
    return f"{context}:\n" + "".join(f"    {line}\n" for line in lines.split("\n"))


@pytest.mark.parametrize(
    "context",
    [
        'with FileLock("a.lock")',
        'lock = FileLock("a.lock")\nwith lock',
        'with fasteners.InterProcessLock("a.lock")',
        'with filelock.SoftFileLock("a.lock")',
        'with portalocker.Lock("a.lock", timeout=60)',
        'with file_lock("a")',
    ],
)
def test_a_lock_that_the_processes_share(context: str, found: Callable[[str], set[str]]) -> None:
    assert found(script(inside(context, LOOKS))) == set()
    assert found(script(inside(context, FETCH))) == set()
    assert found(script(inside(context, WRITE))) == {"unguarded-write"}, "the last process overwrites what others read"
    late = inside("if not os.path.exists('a')", inside(context, WRITE).rstrip())
    assert found(script(late)) == {"unguarded-write"}, "nobody looks again when it is its turn"


def test_a_lock_of_one_process_alone(found: Callable[[str], set[str]]) -> None:
    assert found(script(inside("with threading.Lock()", LOOKS))) == {"unguarded-write"}


PICTURE = 'img = Image.new("RGB", (8, 8))\n'
IN_MEMORY = {
    "a state": "out = io.BytesIO()\ntorch.save({}, out)",
    "a picture": f'{PICTURE}with io.BytesIO() as out:\n    img.save(out, format="PNG")',
    "a text": "with io.StringIO() as out:\n    json.dump({}, out)",
    "by keyword": "out = io.BytesIO()\ntorch.save({}, f=out)",
    "by a function": "out = io.BytesIO()\nkeep(out)",
}
KEEP = "def keep(file):\n    torch.save({}, file)\n"


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_buffer_in_memory_is_no_file(name: str, found: Callable[[str], set[str]]) -> None:
    lines = IN_MEMORY[name]
    assert found(script(lines, KEEP)) == set()
    path = lines.replace("io.BytesIO()", "'a'").replace("io.StringIO()", "open('a', 'w')")
    path = path.replace("with 'a' as out:\n    ", "out = 'a'\n")
    assert found(script(path, KEEP)) == {"unguarded-write"}


def test_a_function_that_is_given_a_path_too(found: Callable[[str], set[str]]) -> None:
    assert found(script("keep(io.BytesIO())\nkeep('a')", KEEP)) == {"unguarded-write"}


WRITER = """\
    if rank == 0:
        writer = SummaryWriter("runs")
    else:
        writer = None
"""
CHOSEN = '    writer = SummaryWriter("runs") if rank == 0 else None\n'
EVERYONE = '    writer = SummaryWriter(f"runs{rank}")\n'
SHOWS = """\
def show(model, writer=None):
    if writer is not None:
        shutil.rmtree("samples")


def evaluate(model, log):
    show(model, writer=log)
"""


def showing(makes: str, call: str) -> str:
    text = (
        script("size = 512", SHOWS)
        .replace("    size = 512\n", makes)
        .replace("    dist.destroy", f"    {call}\n    dist.destroy")
    )
    return "import shutil\nfrom torch.utils.tensorboard import SummaryWriter\n" + text


@pytest.mark.parametrize("call", ["show(model, writer)", "show(model, writer=writer)", "evaluate(model, writer)"])
def test_a_writer_of_the_main_process_that_a_function_is_given(call: str, found: Callable[[str], set[str]]) -> None:
    assert found(showing(WRITER, call)) == set()
    assert found(showing(CHOSEN, call)) == set()
    assert found(showing(EVERYONE, call)) == {"unguarded-write"}


def test_a_function_that_is_given_a_writer_of_each_process_too(found: Callable[[str], set[str]]) -> None:
    both = "show(model, writer)\n    show(model, SummaryWriter(str(rank)))"
    assert found(showing(WRITER, both)) == {"unguarded-write"}
    assert found(showing(WRITER, "show(model, writer)\n    show(model)")) == set(), "it has none there"


ROWS = """\
class Pictures(Dataset):
    def __getitem__(self, index):
        return torch.zeros(8), f"{index}.jpg"

    def __len__(self):
        return 8
"""
SHARDED = "pictures = Pictures()\nshow = DataLoader(pictures, 4, sampler=DistributedSampler(pictures, shuffle=False))\n"
WHOLE = "show = DataLoader(Pictures(), 4)\n"
OWN_NAMES = {
    "a row": "for x, names in show:\n    for row, name in zip(x, names):\n        np.save(name, row)",
    "counted": (
        "for i, (x, names) in enumerate(tqdm(show)):\n    for j, name in enumerate(names):\n        np.save(name, x[j])"
    ),
    "an opened file": (
        "for x, names in show:\n    for name in names:\n        with open(name, 'w') as f:\n            f.write('1')"
    ),
    "a path": (
        "for x, names in show:\n    for j in range(len(x)):\n        stem = os.path.splitext(names[j])[0]\n"
        '        np.save(os.path.join("out", f"{stem}.npy"), x[j])'
    ),
}
SAME_NAMES = {
    "the count of the batch": 'for i, (x, names) in enumerate(show):\n    np.save(f"{i}.npy", x)',
    "the count of the row": "for x, names in show:\n    for j, row in enumerate(x):\n        np.save(str(j), row)",
    "no name at all": "for x, names in show:\n    np.save('x.npy', x)",
    "a figure": "for x, names in show:\n    mean = x.mean()\n    np.save(f'{mean}', x)",
}


def of_pictures(loader: str, lines: str) -> str:
    text = script(loader + lines, ROWS).replace("import DataLoader", "import DataLoader, Dataset")
    return "import numpy as np\nfrom tqdm import tqdm\n" + text


KEEPS = """\
def keep(rows, folder):
    for row in rows:
        with open(os.path.join(folder, row["name"]), "w") as out:
            out.write(str(row["mean"]))


def save(name, row):
    np.save(name, row)
"""
HANDED_ON = {
    "an argument": "for x, names in show:\n    save(names[0], x)",
    "under a key": ("for x, names in show:\n    keep([dict(name=n, mean=v.mean()) for n, v in zip(names, x)], 'out')"),
    "under a key of a display": (
        'for x, names in show:\n    keep([{"name": n, "mean": v.mean()} for n, v in zip(names, x)], "out")'
    ),
    "under a key that is set": (
        "for x, names in show:\n    made = [{} for _ in names]\n    for i, n in enumerate(names):\n"
        '        made[i]["mean"] = x[i].mean()\n        made[i]["name"] = f"{n}.txt"\n    keep(made, "out")'
    ),
}
HANDED_COUNTS = {
    "an argument": "for i, (x, names) in enumerate(show):\n    save(str(i), x)",
    "one of the arguments": "for x, names in show:\n    save(names[0], x)\n    save('all', x)",
    "under a key": (
        "for x, names in show:\n    keep([dict(name=str(i), mean=v.mean()) for i, v in enumerate(x)], 'out')"
    ),
    "under one of the keys": (
        "for x, names in show:\n    keep([dict(name=n, mean=v.mean()) for n, v in zip(names, x)], 'out')\n"
        "keep([dict(name='all', mean=1)], 'out')"
    ),
}


@pytest.mark.parametrize("name", HANDED_ON)
def test_the_name_of_a_row_that_is_handed_on(name: str, found: Callable[[str], set[str]]) -> None:
    for loader, expected in ((SHARDED, set()), (WHOLE, {"unguarded-write"})):
        text = of_pictures(loader, HANDED_ON[name]).replace("class Pictures", f"{KEEPS}\n\nclass Pictures")
        assert found(text) == expected


@pytest.mark.parametrize("name", HANDED_COUNTS)
def test_a_count_that_is_handed_on(name: str, found: Callable[[str], set[str]]) -> None:
    text = of_pictures(SHARDED, HANDED_COUNTS[name]).replace("class Pictures", f"{KEEPS}\n\nclass Pictures")
    assert found(text) == {"unguarded-write"}


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_file_that_is_named_by_a_row(name: str, found: Callable[[str], set[str]]) -> None:
    assert found(of_pictures(SHARDED, OWN_NAMES[name])) == set()
    assert found(of_pictures(WHOLE, OWN_NAMES[name])) == {"unguarded-write"}


@pytest.mark.parametrize("name", SAME_NAMES)
def test_a_file_that_is_named_by_a_count(name: str, found: Callable[[str], set[str]]) -> None:
    assert found(of_pictures(SHARDED, SAME_NAMES[name])) == {"unguarded-write"}


@pytest.mark.parametrize(
    "lines",
    [
        FETCH,
        "if os.path.exists('a'):\n    print('there')\nelse:\n    urllib.request.urlretrieve('u', 'a')",
        "# the archive\n" + FETCH,
        FETCH.replace("    url", "    os.makedirs('b', exist_ok=True)\n    url"),
    ],
)
def test_the_call_that_downloads_is_quoted(lines: str, words: Callable[[str], list[str]]) -> None:
    assert words(script(lines)) == ["every process downloads this: `urllib.request.urlretrieve('u', 'a')`"]


def test_what_comes_if_the_file_is_missing_is_quoted(words: Callable[[str], list[str]]) -> None:
    lines = "if not os.path.exists('a'):\n    with open('a', 'w') as out:\n        out.write('1')"
    assert words(script(lines)) == [f"{MISSING}: `with open('a', 'w') as out:`"]


MISSING = "every process creates this where it is missing"
ELSEWHERE = """\
class Pictures:
    def __init__(self, cache):
        if os.path.exists(cache):
            self.rows = torch.load(cache)
        else:
            names = ["a", "b"]
            self.rows = self.index(names, cache)

    def index(self, names, cache):
        {write}
        return names


def fetch(path, rows):
    if os.path.isfile(path):
        return path
    {write}
    return path
"""
CREATES = 'torch.save("rows", cache)'


@pytest.mark.parametrize("call", ['Pictures("rows.pt")', 'fetch(cache, "rows")'])
def test_a_cache_of_the_first_run_is_one_report_to_review(
    call: str, words: Callable[[str], list[str]], told: Callable[[str], dict[str, Severity]]
) -> None:
    text = script(f'cache = "rows.pt"\n{call}', ELSEWHERE.format(write=CREATES).replace("fetch(path", "fetch(cache"))
    text = text.replace("isfile(path)", "isfile(cache)").replace("return path", "return cache")
    assert words(text) == [f"{MISSING}: `{CREATES}`"]
    assert told(text) == {"unguarded-write": Severity.REVIEW}


NOT_ONLY_CREATED = {
    "it is removed": "os.remove(cache)",
    "it is renamed": 'os.rename("part", cache)',
    "rows are added": 'with open(cache, "a") as out:\n            out.write("1")',
}


@pytest.mark.parametrize("name", NOT_ONLY_CREATED)
def test_a_file_that_is_changed_where_another_is_missing(name: str, told: Callable[[str], dict[str, Severity]]) -> None:
    text = ELSEWHERE.format(write=NOT_ONLY_CREATED[name])
    assert told(script('Pictures("rows.pt")', text.partition("\n\n\ndef")[0])) == {"unguarded-write": Severity.ERROR}


REMOVES = """\
path = Path("a.pt")
try:
    FETCH
except OSError:
    if path.exists():
        path.unlink()
finally:
    if not path.exists() or path.stat().st_size < 9:
        if path.exists():
            path.unlink()
        print("it is not there")
"""


def test_what_a_download_leaves_is_removed(words: Callable[[str], list[str]]) -> None:
    fetch = "torch.hub.download_url_to_file('u', 'a.pt')"
    assert words(script(REMOVES.replace("FETCH", fetch))) == [f"every process fetches this: `{fetch}`"]
    assert len(words(script(REMOVES.replace("FETCH", "print(path)")))) > 1


def test_a_file_that_is_written_after_an_error(told: Callable[[str], dict[str, Severity]]) -> None:
    """Where a file is missing it is created in the first run; any other error may come at any time."""
    tries = inside("try", "torch.load('a')") + inside("except {}", "write('a')")
    write = f"def write(cache):\n    {CREATES}\n"
    assert told(script(tries.format("FileNotFoundError"), write)) == {"unguarded-write": Severity.REVIEW}
    assert told(script(tries.format("KeyboardInterrupt"), write)) == {"unguarded-write": Severity.ERROR}


WRITTEN_AGAIN = {
    "if it is there": ("if os.path.exists(cache):", "else:\n            self.rows = []"),
    "if it is old": ("if not os.path.exists(cache) or len(cache) > 4:", ""),
}


@pytest.mark.parametrize("name", WRITTEN_AGAIN)
def test_a_file_that_is_written_although_it_is_there(name: str, told: Callable[[str], dict[str, Severity]]) -> None:
    condition, otherwise = WRITTEN_AGAIN[name]
    text = f"""\
class Pictures:
    def __init__(self, cache):
        {condition}
            self.rows = self.index(cache)
        {otherwise}

    def index(self, cache):
        {CREATES}
        return cache
"""
    assert told(script('Pictures("rows.pt")', text)) == {"unguarded-write": Severity.ERROR}


def test_a_condition_is_quoted_without_the_comment_above(words: Callable[[str], list[str]]) -> None:
    lines = "# one process waits\nif rank == 0:\n    dist.barrier()"
    assert words(script(lines)) == [
        "`barrier` waits for all processes, but only some of them come to it: `if rank == 0:`"
    ]


FOLDER = """\
class Folder(datasets.ImageFolder):
    def __init__(self, root, train=True, {takes}):
        super().__init__(os.path.join(root, "train" if train else "val"){hands})


TABLE = {{"folder": Folder}}


def dataset(name, **options):
    return TABLE[name](**options)
"""
OPTIONS = "**kwargs", ""
DOWNLOADS = {
    "it is handed on": ("**kwargs", ", **kwargs"),
    "it is looked at": ("**kwargs", "), print(kwargs"),
    "it is a parameter": ("download=False", ", download=download"),
}


@pytest.mark.parametrize("call", ['Folder("rows", download=True)', 'TABLE["folder"]("rows", download=True)'])
def test_a_class_that_does_nothing_with_a_download(call: str, found: Callable[[str], set[str]]) -> None:
    imports = "from torchvision import datasets\n"
    text = script(f"pictures = {call}", FOLDER.format(takes=OPTIONS[0], hands=OPTIONS[1]))
    assert found(imports + text) == set()
    for takes, hands in DOWNLOADS.values():
        text = script(f"pictures = {call}", FOLDER.format(takes=takes, hands=hands))
        assert found(imports + text) == {"unguarded-write"}, takes + hands


OWN_TRAINER = """\
class Base({base}):
    def __init__(self, settings):
        self.settings = settings


class Own(Base):
    def show(self):
        print(self.settings)
"""


def test_a_method_in_which_one_process_writes_by_itself(found: Callable[[str], set[str]]) -> None:
    imports = "from transformers import Trainer\n"
    text = script('own = Own("settings")\nown.push_to_hub()', OWN_TRAINER)
    assert found(imports + text.format(base="Trainer")) == set()
    assert found(imports + text.format(base="others.Hub")) == {"unguarded-write"}
