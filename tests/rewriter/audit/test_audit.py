"""The audit of a program: what it leaves alone, what it says it cannot follow, and that nothing makes it crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.rewriter.audit.audit import audit
from torchlift.rewriter.audit.catalogue import RULES
from torchlift.rewriter.audit.ids import IDS
from torchlift.rewriter.config import Config
from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.source import decode

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = (Path(__file__).parent / "fixtures" / "ddp_torchrun.py").read_text()
SAVE = 'torch.save(model.module.state_dict(), "checkpoint.pt")'
UNGUARDED = SCRIPT.replace("if rank == 0:", "if epoch:")


def told(text: str, config: Config = Config()) -> dict[str, list[int]] | None:  # noqa: B008 (frozen)
    """The lines of each finding by its id; None where the script is not distributed."""
    result = audit([decode(text.encode(), Path("train.py"))], config, ModulePaths({ENTRY: Place(ENTRY)}))
    if result is None:
        return None
    found: dict[str, list[int]] = {}
    for diagnosis in result.files[0].diagnoses:
        found.setdefault(diagnosis.id, []).append(diagnosis.line)
    return found


def test_a_script_on_one_device_is_none_of_its_business() -> None:
    assert told("import torch\nmodel = torch.nn.Linear(1, 1)\ntorch.save(model, 'm.pt')\n") is None


def test_a_finding_has_the_line_of_its_call() -> None:
    line = UNGUARDED.split("\n").index(f"            {SAVE}") + 1
    assert told(UNGUARDED) == {"unguarded-write": [line]}


@pytest.mark.parametrize("comment", ["# migrate: skip", "# migrate: skip[unguarded-write]"])
def test_a_comment_silences_a_finding(comment: str) -> None:
    assert told(UNGUARDED.replace(SAVE, f"{SAVE}  {comment}")) == {}


def test_a_comment_of_another_rule_silences_nothing() -> None:
    assert told(UNGUARDED.replace(SAVE, f"{SAVE}  # migrate: skip[seed-agrees]")) != {}


def test_settings_choose_rules() -> None:
    assert told(UNGUARDED, Config(ignore=frozenset({"unguarded-write"}))) == {}
    assert told(UNGUARDED, Config(select=frozenset({"seed-agrees"}))) == {}
    assert told(UNGUARDED, Config(select=frozenset({"unguarded-write"}))) != {}
    assert told(UNGUARDED, Config(select=frozenset({"backward"}))) != {}, "a selection of the migration's rules"


LEFT_ALONE = {
    "a path with the rank in it": (SAVE, 'torch.save(model.module.state_dict(), f"checkpoint{rank}.pt")'),
    "a guard that returns": ("if rank == 0:", "if rank != 0:\n            continue\n        if True:"),
    "a guard by another name": (
        "        if rank == 0:\n            print",
        "        first = not rank\n        if dist.get_rank() == 0 and epoch:\n            print",
    ),
    "a barrier in each branch": (
        "        if rank == 0:\n",
        "        if rank == 0:\n            dist.barrier()\n        else:\n            dist.barrier()\n"
        "        if rank == 0:\n",
    ),
    "the opposite barriers of the first come": (
        "    data = Tensor",
        "    if rank not in [-1, 0]:\n        dist.barrier()\n    size = 512\n"
        "    if rank == 0:\n        dist.barrier()\n"
        "    data = Tensor",
    ),
    "whether there are several processes": (
        "    data = Tensor",
        "    if local_rank != -1:\n        dist.barrier()\n    data = Tensor",
    ),
    "messages from one to another": (
        "    data = Tensor",
        "    if rank == 0:\n        dist.send(torch.zeros(1), 1)\n    data = Tensor",
    ),
    "a sampler of order": ("sampler = DistributedSampler(data)", "sampler = DistributedSampler(data, shuffle=False)"),
    "gradients averaged by hand": (
        "    model = DDP(model, device_ids=[local_rank])\n",
        "    def average():\n        for p in model.parameters():\n            dist.all_reduce(p.grad)\n"
        "    average()\n",
    ),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_right_is_left_alone(name: str) -> None:
    old, new = LEFT_ALONE[name]
    assert old in SCRIPT
    text = SCRIPT.replace(old, new)
    text = text.replace("model.module.state_dict", "model.state_dict") if "by hand" in name else text
    assert told(text) == {}


NOT_FOLLOWED = {
    "a sharded model": (
        "    model = DDP(model, device_ids=[local_rank])\n",
        "    from torch.distributed.fsdp import fully_shard\n    fully_shard(model)\n",
    ),
    "a sampler of another package": ("sampler = DistributedSampler(data)", "sampler = others.Sampler(data)"),
    "groups of some processes": ("    data = T", "    if rank < 2:\n        dist.new_group([0, 1])\n    data = T"),
    "no loader": ("for x, y in loader:", "for x, y in others.batches():"),
}


@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_what_is_not_followed_is_said(name: str) -> None:
    old, new = NOT_FOLLOWED[name]
    assert old in SCRIPT
    assert "not-followed" in (told("import others\n" + SCRIPT.replace(old, new)) or {})


STRANGE = {
    "nothing": "",
    "a subscripted callee": "import torch.distributed as dist\ndist.init_process_group()\nfs = [print]\nfs[0](1)\n",
    "a callee that is called": "import torch.distributed as dist\ndist.init_process_group()\n(lambda: print)()()\n",
    "deep": "import torch.distributed as dist\ndist.init_process_group()\nx = " + "(" * 90 + "1" + ")" * 90 + "\n",
    "a chain": "import torch.distributed as dist\ndist.init_process_group()\nx = 1" + " + 1" * 3000 + "\n",
    "names of themselves": (
        "import torch.distributed as dist\nfrom accelerate import Accelerator\n"
        "a = Accelerator()\nrank = rank0 = dist.get_rank()\n"
        "def f(x=lambda: f()):\n    return f(x) if x else f\n"
        "while f(rank):\n    rank = rank if rank else f(rank)\n    a, rank = rank, a\n"
        "    if rank:\n        a.gather(rank)\n"
    ),
    "a class that is named like its base": (
        "import torch.distributed as dist\nfrom torch import nn\ndist.init_process_group()\n"
        "class Linear(nn.Module): pass\nclass Linear(Linear): pass\nclass A(Linear): pass\n"
        "class B(A): pass\nclass A(B): pass\nmodel = Linear()\nmodel(1)\nA().forward(1)\n"
    ),
    "patterns": (
        "import torch.distributed as dist\ndist.init_process_group()\n"
        "match dist.get_rank():\n    case 0:\n        dist.barrier()\n"
        "    case [a, *b] if b:\n        print(a)\n"
    ),
    "methods of what is not there": (
        "from accelerate import Accelerator\naccelerator = Accelerator()\n"
        "x, *y = accelerator.prepare(*models, **more)\n"
        "accelerator.prepare()\naccelerator.save()\nfor a in y: accelerator.backward(a.loss)\nself.model = x\n"
    ),
    "a rebound loader": (
        "import torch.distributed as dist\nfrom tqdm import tqdm\nfrom torch.utils.data import DataLoader\n"
        "dist.init_process_group()\nloader = DataLoader([])\nfor i in range(2):\n    loader = tqdm(loader)\n"
        "    loader = enumerate(loader)\n    for x in loader: print(x)\n"
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_nothing_makes_it_crash(name: str) -> None:
    told(STRANGE[name])


def test_every_program_of_the_tests_is_read() -> None:
    """Nothing of the project's own makes it crash either: what is emitted, what is right, what is odd."""
    for file in [*sorted((ROOT / "fixtures").rglob("*.py")), *sorted((ROOT / "rewriter" / "audit").glob("*.py"))]:
        source = decode(file.read_bytes(), file)
        audit([source], Config(), ModulePaths({ENTRY: Place(ENTRY)}))


def test_the_names_alone_are_those_of_the_rules() -> None:
    assert tuple(rule.id for rule in RULES) == IDS


def test_each_rule_says_what_to_do() -> None:
    for rule in RULES:
        assert rule.summary.endswith((".", ":")), rule.id
        assert rule.id == "not-followed" or "\n    " in rule.doc, f"{rule.id} has no example"


def test_an_error_is_wrong_and_a_note_is_not() -> None:
    result = audit([decode(UNGUARDED.encode(), Path("t.py"))], Config(), ModulePaths({ENTRY: Place(ENTRY)}))
    assert result is not None
    assert [d.severity for d in result.files[0].diagnoses] == [Severity.ERROR]


@pytest.mark.parametrize("name", ["a rebound loader", "a class that is named like its base"])
def test_what_leads_back_to_itself_is_followed(name: str) -> None:
    source = decode(STRANGE[name].encode(), Path("t.py"))
    result = audit([source], Config(), ModulePaths({ENTRY: Place(ENTRY)}))
    assert result is not None
    assert not [d for d in result.files[0].diagnoses if "too deeply" in d.message]
