"""The rule `downloads`: one process downloads, the others wait."""

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

DATASETS = "from torchvision import datasets"

NOOPS: dict[str, dict[str, Any]] = {
    "nothing is downloaded": {"imports": DATASETS, "top": "data = datasets.MNIST('d', download=False)"},
    "by default nothing is": {"imports": DATASETS, "top": "data = datasets.MNIST('d')"},
    "the word in a string": {"top": "note = 'download=True'"},
    "a variable of that name": {"top": "download = True"},
    "a function that nothing calls": {
        "imports": DATASETS,
        "end": "def d():\n    return datasets.MNIST('d', download=True)",
    },
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop("import torch\nfrom torchvision import datasets\ndata = datasets.MNIST('d', download=True)\n")


WEIGHTS = [
    "net = models.resnet18(pretrained=True)",
    "net = models.resnet18(weights='DEFAULT')",
    "net = timm.create_model('resnet18', pretrained=args.pretrained)",
]


@pytest.mark.parametrize("statement", WEIGHTS)
def test_weights_are_downloaded_in_turn(statement: str, lines: Lines) -> None:
    out, new, findings = lines(imports="import timm\nfrom torchvision import models", top=statement)
    assert (out, findings) == ([statement], [])
    assert new == ["with accelerator.main_process_first():", f"    {statement}"]


@pytest.mark.parametrize("made", ["models.resnet18(weights=None)", "models.resnet18(pretrained=False)"])
def test_a_model_without_weights_is_made_by_all_at_once(made: str, lines: Lines) -> None:
    assert lines(imports="from torchvision import models", top=f"net = {made}") == ([], [], [])


FETCHES: dict[str, tuple[str, list[str]]] = {
    "a file": ("urllib.request.urlretrieve(url, 'a.zip')", ["urllib.request.urlretrieve(url, 'a.zip')"]),
    "a command": ("os.system('wget http://x/a.zip')", ["os.system('wget http://x/a.zip')"]),
    "an archive": ("shutil.unpack_archive('a.zip', 'a')", ["shutil.unpack_archive('a.zip', 'a')"]),
    "opened on the way": (
        "tarfile.open('a.tar').extractall('a')",
        ["tarfile.open('a.tar').extractall('a')"],
    ),
}


@pytest.mark.hazard("G5")
@pytest.mark.parametrize(("before", "after"), FETCHES.values(), ids=FETCHES)
def test_fetched_once_and_waited_for(before: str, after: list[str], lines: Lines) -> None:
    imports = "import os\nimport shutil\nimport tarfile\nimport urllib.request\nimport zipfile"
    out, new, findings = lines(imports=imports, built=before)
    assert (out, findings) == ([before], [])
    assert new == [
        "if accelerator.is_main_process:", *(f"    {a}" for a in after), "accelerator.wait_for_everyone()",
    ]  # fmt: skip


SURVIVED = {
    "an error that is shown": ("try:", "except Exception as error:", "    print(error)"),
    "an error of the network": ("try:", "except (OSError, ValueError):", "    pass"),
    "a block that suppresses it": ("with contextlib.suppress(OSError):", "", ""),
}


@pytest.mark.hazard("U17")
@pytest.mark.parametrize(("block", "handler", "body"), SURVIVED.values(), ids=SURVIVED)
@pytest.mark.parametrize("in_function", [False, True], ids=["here", "in a function that is called here"])
def test_nobody_waits_for_a_download_that_fails(
    block: str, handler: str, body: str, in_function: bool, lines: Lines
) -> None:
    """The wait is reached with an error, too, and what the main process alone learns is said."""
    call = "urllib.request.urlretrieve(url, 'a.zip')"
    top = ("def bring():", "    " + call) if in_function else ()
    what = "bring()" if in_function else call
    built = "\n".join(filter(None, [*top, block, f"    {what}", "    print('it is there')", handler, body]))
    _, new, findings = lines(imports="import contextlib\nimport urllib.request", built=built)
    added = [line.strip() for line in new]
    start = added.index("if accelerator.is_main_process:")
    assert added[start - 1 : start + 4] == [
        "try:", "if accelerator.is_main_process:", call, "finally:", "accelerator.wait_for_everyone()",
    ]  # fmt: skip
    assert findings == ["downloads"]


RETRIED = {
    "a number of times": ("for turn in range(3):", "        break"),
    "until it is there": ("while True:", "        break"),
    "until it is set": ("there = False\nwhile not there:", "        there = True"),
}


@pytest.mark.hazard("U17")
@pytest.mark.parametrize(("loop", "last"), RETRIED.values(), ids=RETRIED)
def test_nobody_waits_for_a_download_that_is_tried_again(loop: str, last: str, lines: Lines) -> None:
    """The main process would come back to the wait alone."""
    call = "urllib.request.urlretrieve(url, 'a.zip')"
    built = f"{loop}\n    try:\n        {call}\n{last}\n    except OSError:\n        pass"
    _, new, findings = lines(imports="import urllib.request", built=built)
    assert new == [] and findings == ["downloads"]


def test_of_several_files_each_is_waited_for(lines: Lines) -> None:
    call = "urllib.request.urlretrieve(url, 'a.zip')"
    built = f"for url in urls:\n    try:\n        {call}\n        print('one more')\n    except OSError:\n        pass"
    _, new, findings = lines(imports="import urllib.request", top="urls = ['a', 'b']", built=built)
    assert "finally:" in [line.strip() for line in new] and findings == ["downloads"]


@pytest.mark.hazard("U17")
@pytest.mark.parametrize("body", ["    raise", "    sys.exit(1)"])
def test_an_error_that_ends_all_processes_leaves_nobody_waiting(body: str, lines: Lines) -> None:
    call = "urllib.request.urlretrieve(url, 'a.zip')"
    built = f"try:\n    {call}\n    print('it is there')\nexcept OSError:\n{body}"
    _, new, findings = lines(imports="import sys\nimport urllib.request", built=built)
    assert "finally:" not in [line.strip() for line in new] and findings == []


@pytest.mark.parametrize(
    ("client", "call"),
    [
        ("import kaggle", "kaggle.api.dataset_download_files('a', path='d', unzip=True)"),
        (
            "from kaggle.api.kaggle_api_extended import KaggleApi\napi = KaggleApi()",
            "api.competition_download_file('a', 'b')",
        ),
    ],
)
def test_what_a_client_brings_is_brought_once(client: str, call: str, lines: Lines) -> None:
    """By a method of an object, too: all processes wrote one archive, which one of them was unpacking."""
    out, new, findings = lines(imports=client, built=call)
    assert (out, findings) == ([call], [])
    assert new == ["if accelerator.is_main_process:", f"    {call}", "accelerator.wait_for_everyone()"]


def test_an_archive_in_a_with_block(lines: Lines) -> None:
    built = "with zipfile.ZipFile('a.zip') as archive:\n    archive.extractall('a')"
    new = lines(imports="import zipfile", built=built)[1]
    assert new[0] == "if accelerator.is_main_process:"
    assert new[-1] == "accelerator.wait_for_everyone()"


def test_what_asks_first_is_done_in_turn(lines: Lines) -> None:
    """The others ask when the main process has finished, and find the files there."""
    before = "if not os.path.exists('a'):\n    urlretrieve(url, 'a.zip')\n    shutil.unpack_archive('a.zip', 'a')"
    _, new, findings = lines(imports="import os\nimport shutil\nfrom urllib.request import urlretrieve", built=before)
    assert findings == []
    assert new[0] == "with accelerator.main_process_first():"
    assert new[1] == "    if not os.path.exists('a'):"


def test_a_download_whose_result_is_used_is_reported(lines: Lines) -> None:
    assert lines(imports="import wget", built="path = wget.download(url)") == ([], [], ["downloads"])


@pytest.mark.parametrize(
    "statement",
    [
        "data = datasets.MNIST('d', download=True)",
        "train, test = datasets.MNIST('d', train=True, download=True), datasets.MNIST('d', train=False, download=True)",
        "datasets.MNIST(root='d', download=True, transform=None)",
    ],
    ids=["a data set", "two in one statement", "for the files alone"],
)
def test_rewritten(statement: str, lines: Lines) -> None:
    out, new, findings = lines(imports=DATASETS, top=statement)
    assert (out, findings) == ([statement], [])
    assert new == ["with accelerator.main_process_first():", f"    {statement}"]


OWN = """\
class Rows:
    def __init__(self, root, download=False):
        if download:
            self.download(root)
        self.rows = torch.load(os.path.join(root, 'rows.pt'))

    def download(self, root):
        if not os.path.exists(os.path.join(root, 'rows.pt')):
            with open(os.path.join(root, 'rows.pt'), 'wb') as file:
                torch.save(torch.ones(4), file)
"""


def test_what_a_data_set_writes_while_it_downloads_has_its_turn_already(lines: Lines) -> None:
    made = "data = Rows('d', download=True)"
    _, new, findings = lines(imports="import os", top=f"{OWN}\n{made}")
    assert new[-2:] == ["with accelerator.main_process_first():", f"    {made}"]
    assert findings == []
    assert not any("PartialState" in line or "save" in line or "accelerator," in line for line in new)


def test_what_is_written_elsewhere_too_has_no_turn(lines: Lines) -> None:
    top = f"{OWN}\ndata = Rows('d', download=True)\nother = Rows('e')\nother.download('f')"
    assert any(
        "accelerator.save" in line or "is_main_process" in line for line in lines(imports="import os", top=top)[1]
    )


SET = """\
import json
import os
import zipfile
from urllib.request import urlopen

ADDRESS = os.environ["LETTERS"]


class Letters(torch.utils.data.Dataset):
    def __init__(self, root, download=True):
        self.root = root
        if download:
            self.download()
        if not self._check_exists():
            raise RuntimeError("download it first")
        self.rows = json.load(open(os.path.join(self.root, "rows.json")))

    def _check_exists(self):
        return os.path.exists(os.path.join(self.root, "rows.json"))

    def download(self):
        if self._check_exists():
            return
        path = os.path.join(self.root, "letters.zip")
        with open(path, "wb") as out:
            out.write(urlopen(ADDRESS).read())
        archive = zipfile.ZipFile(path, "r")
        archive.extractall(self.root)
        with open(os.path.join(self.root, "rows.json"), "w") as out:
            json.dump([1, 2], out)

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.rows[index]
"""


TRAINED = """\
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = Letters("letters")
for x in torch.utils.data.DataLoader(data, batch_size=2):
    loss = model(x.float()[:, None]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_nobody_waits_in_what_one_process_does_before_the_others(migrated: Callable[[str], str]) -> None:
    """Inside of a turn a barrier of rank 0 let the others into the turn, and then they went past one another."""
    text = migrated("import torch\n" + SET + TRAINED)
    assert "main_process_first():\n                self.download()" in text
    assert "wait_for_everyone" not in text[text.index("def download") : text.index("def __len__")]


def test_what_is_written_in_such_a_turn_is_not_reported() -> None:
    text = SET.replace("import zipfile", "import h5py\nimport zipfile") + TRAINED
    text = text.replace('with open(path, "wb") as out:', 'with h5py.File(path, "w") as out:')
    (file,) = migrate([decode(("import torch\n" + text).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"main_process_first" in file.after
    assert "once" not in [found.id for found in file.diagnoses]


ASKED_BY_FAILURE = {
    "what is not found": "nltk.data.find('tokenizers/punkt')\nexcept LookupError:\n    nltk.download('punkt')",
    "what cannot be read": "rows = read('a')\nexcept OSError:\n    urllib.request.urlretrieve(url, 'a')",
    "under a condition": "rows = read('a')\nexcept OSError:\n    if url:\n        urllib.request.urlretrieve(url, 'a')",
    "what was found": "rows = read('a')\nexcept OSError:\n    rows = []\nelse:\n    nltk.download('punkt')",
    "a data set": "d = datasets.MNIST('a')\nexcept RuntimeError:\n    d = datasets.MNIST('a', download=True)",
}


@pytest.mark.parametrize("asked", ASKED_BY_FAILURE.values(), ids=ASKED_BY_FAILURE)
def test_what_asks_by_failing_is_asked_in_turn(asked: str, migrated: Callable[[str], str]) -> None:
    """Not all processes come to the handler: all come to the `try`."""
    imports = f"import nltk, urllib.request\n{DATASETS}\n"
    top = "try:\n    " + asked + "\n"
    inner = "\n".join(f"    {line}" for line in top.splitlines())
    assert f"with accelerator.main_process_first():\n{inner}\n" in migrated(imports + top + "import torch\n" + TRAINED)


def test_a_data_set_that_is_asked_for_first_is_asked_for_in_turn(migrated: Callable[[str], str]) -> None:
    top = "if not os.path.exists('a'):\n    datasets.MNIST('a', download=True)\n"
    inner = "    if not os.path.exists('a'):\n        datasets.MNIST('a', download=True)\n"
    text = migrated(f"import os\n{DATASETS}\n{top}import torch\n{TRAINED}")
    assert f"with accelerator.main_process_first():\n{inner}" in text


def test_nobody_waits_for_a_download_that_has_failed(migrated: Callable[[str], str]) -> None:
    top = "try:\n    urllib.request.urlretrieve(url, 'a')\nexcept OSError:\n    note('offline')\n"
    inner = "\n".join(f"    {line}" for line in top.splitlines())
    text = migrated(f"import urllib.request\n{top}import torch\n{TRAINED}")
    assert f"if accelerator.is_main_process:\n{inner}\naccelerator.wait_for_everyone()\n" in text


def test_a_handler_around_a_training_is_named(lines: Lines) -> None:
    end = "try:\n    for x, y in loader:\n        model(x)\nexcept LookupError:\n    nltk.download('punkt')"
    assert lines(imports="import nltk", end=end)[1:] == ([], ["local-decision", "downloads"])


FETCHED_BELOW = """\
import os
import tarfile
from urllib.request import urlretrieve


def bring(root):
    {ask}
    {indent}urlretrieve(ADDRESS, os.path.join(root, "letters.tar"))
    with tarfile.open(os.path.join(root, "letters.tar")) as archive:
        archive.extractall(root)


class Letters(torch.utils.data.Dataset):
    def __init__(self, root, download=False):
        if download:
            bring(root)
        self.rows = torch.load(os.path.join(root, "rows.pt"))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]
"""
ASKS = {"in every run": ("", ""), "where it is missing": ("if not os.path.exists(root):", "    ")}


@pytest.mark.parametrize(("ask", "indent"), ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("other", ["", 'test = Letters("other", download=False)\n'], ids=["one", "two"])
def test_what_one_process_brings_while_the_others_wait_needs_no_turn(
    ask: str, indent: str, other: str, migrated: Callable[[str], str]
) -> None:
    """In turns, the second process unpacked the files anew while the first one read them."""
    text = "import sys\nimport torch\n" + FETCHED_BELOW.format(ask=ask, indent=indent)
    trained = TRAINED.replace('("letters")', '("letters", download="-d" in sys.argv)')
    out = migrated(text + other + trained)
    assert '\ndata = Letters("letters", download="-d" in sys.argv)\n' in out
    unpacked = "    if accelerator.is_main_process:\n        with tarfile.open("
    assert unpacked in out and "archive.extractall(root)\n    accelerator.wait_for_everyone()\n" in out


HANDED = """\
def rows_of(where, {parameter}):
    return datasets.MNIST(where, download={read})

data = rows_of({given})
"""
ASKED = {
    "under another name": ("save", "save", "'d', args.keep"),
    "under another name, by it": ("fetch", "fetch", "'d', fetch=True"),
    "by its place": ("download", "download", "'d', True"),
    "by default": ("download=True", "download", "'d'"),
    "in a mapping": ("download=False", "download", "'d', **options"),
    "of what was read": ("save", "save", "'d', len(sys.argv) > 1"),
}
NOT_ASKED = {
    "by default": ("save=False", "save", "'d'"),
    "by its place": ("save", "save", "'d', False"),
    "by its word": ("download", "download", "'d', download=None"),
}


@pytest.mark.parametrize(("parameter", "read", "given"), ASKED.values(), ids=ASKED)
def test_a_download_that_a_caller_asks_for_is_made_in_turn_below(
    parameter: str, read: str, given: str, lines: Lines
) -> None:
    """The word is seen at a call that says it, and this one does not: every process downloaded at the same time."""
    top = HANDED.format(parameter=parameter, read=read, given=given)
    _, new, findings = lines(imports=f"import sys\n{DATASETS}", top=top)
    assert new[-2:] == [
        "    with accelerator.main_process_first():",
        f"        return datasets.MNIST(where, download={read})",
    ]
    assert findings == []


@pytest.mark.parametrize(("parameter", "read", "given"), NOT_ASKED.values(), ids=NOT_ASKED)
def test_what_no_caller_asks_for_is_not_downloaded(parameter: str, read: str, given: str, lines: Lines) -> None:
    top = HANDED.format(parameter=parameter, read=read, given=given)
    assert lines(imports=DATASETS, top=top) == ([], [], [])


def test_a_caller_that_says_the_word_has_the_turn(lines: Lines) -> None:
    top = HANDED.format(parameter="download=False", read="download", given="'d', download=True")
    _, new, _ = lines(imports=DATASETS, top=top)
    assert new == ["with accelerator.main_process_first():", "    data = rows_of('d', download=True)"]


BY_HAND = """\
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import MNIST


def main(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
{data}
    rows = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, world, rank))
    net = DistributedDataParallel(torch.nn.Linear(4, 2).to(rank), device_ids=[rank])
    rule = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in rows:
        x, y = x.to(rank), y.to(rank)
        loss = torch.nn.functional.cross_entropy(net(x), y)
        rule.zero_grad()
        loss.backward()
        rule.step()


if __name__ == "__main__":
    mp.spawn(main, args=(2,), nprocs=2)
"""
AT_ONCE = {
    "at once": ('data = MNIST("data", download=True)', True),
    "if the files are missing": ('data = MNIST("data", download=not os.path.exists("data"))', True),
    "on one process": (
        'if rank == 0:\n    MNIST("data", download=True)\ndist.barrier()\ndata = MNIST("data")',
        False,
    ),
    "on each in its turn": (
        'if rank == 0:\n    data = MNIST("data", download=True)\ndist.barrier()\n'
        'if rank != 0:\n    data = MNIST("data", download=True)',
        False,
    ),
    "the others wait for the first": (
        'if rank != 0:\n    dist.barrier()\ndata = MNIST("data", download=True)\nif rank == 0:\n    dist.barrier()',
        False,
    ),
    "asked for on one process": ('data = MNIST("data", download=rank == 0)', False),
}


@pytest.mark.parametrize(("data", "guarded"), AT_ONCE.values(), ids=AT_ONCE)
def test_a_distributed_script_downloads_on_one_process_first_where_nothing_else_does_that(
    data: str, guarded: bool
) -> None:
    text = BY_HAND.format(data=indent(data, "    "))
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert "accelerator.backward(loss)" in after
    assert ("with accelerator.main_process_first():\n        data = MNIST(" in after) is guarded


BESIDE = {
    "directly": ("", ""),
    "after a blank line": ("\n", "\n"),
    "after a comment": ("# to test\n", "    # to test\n"),
}


@pytest.mark.parametrize(("between", "kept"), BESIDE.values(), ids=BESIDE)
def test_downloads_beside_each_other_wait_once(between: str, kept: str, migrated: Callable[[str], str]) -> None:
    """Each had a block of its own, and the processes waited twice."""
    train, test = ("datasets.MNIST('d', download=True)", "datasets.MNIST('d', train=False, download=True)")
    both = f"rows = {train}\n{between}rest = {test}\n"
    text = migrated(f"import torch\n{DATASETS}\n{both}{TRAINED}")
    assert f"with accelerator.main_process_first():\n    rows = {train}\n{kept}    rest = {test}\n" in text


def test_downloads_with_something_between_them_wait_twice(migrated: Callable[[str], str]) -> None:
    one = "datasets.MNIST('d', download=True)"
    text = migrated(f"import torch\n{DATASETS}\nrows = {one}\nsize = len(rows)\nrest = {one}\n{TRAINED}")
    assert text.count("main_process_first():\n") == 2
