"""Where scripts choose a device, and what hangs on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.result import FileResult

Migrated = Callable[..., str]
Findings = Callable[..., list[str]]

FLAGGED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("{flag}", action="store_true")
args = parser.parse_args()
{top}
model = nn.Linear(8, 2)
if {test}:
    model.cuda()
loader = DataLoader(data, batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    if {test}:
        x, y = x.cuda(), y.cuda()
    STEP
"""
FLAGS = {
    "asked for": ("--cuda", "", "args.cuda", "cpu=not args.cuda"),
    "asked for, where there is one": ("--gpu", "", "args.gpu and torch.cuda.is_available()", "cpu=not args.gpu"),
    "refused": (
        "--no-cuda",
        "use_cuda = not args.no_cuda and torch.cuda.is_available()",
        "use_cuda",
        "cpu=args.no_cuda",
    ),
    "refused, kept as an attribute": (
        "--no-cuda",
        "args.cuda = not args.no_cuda and torch.cuda.is_available()",
        "args.cuda",
        "cpu=args.no_cuda",
    ),
    "refused, kept as an attribute, after the first print": (
        "--no-cuda",
        "print(args)\nargs.cuda = not args.no_cuda and torch.cuda.is_available()",
        "args.cuda",
        "cpu=args.no_cuda",
    ),
    "kept as an attribute in two branches, after the first print": (
        "--many",
        "print(args)\nif args.many:\n    args.cuda = True\nelse:\n    args.cuda = False",
        "args.cuda",
        "cpu=not args.cuda",
    ),
    "asked for, and renamed": ("--cuda", "cuda = args.cuda", "cuda", "cpu=not args.cuda"),
    "taken where there is one": ("--x", "cuda = torch.cuda.is_available()", "cuda", ""),
}


@pytest.mark.hazard("D8", "D10")
@pytest.mark.parametrize(("flag", "top", "test", "argument"), FLAGS.values(), ids=FLAGS)
def test_a_flag_around_the_moves_is_the_accelerators(
    flag: str, top: str, test: str, argument: str, migrated: Migrated
) -> None:
    text = migrated(FLAGGED.format(flag=flag, top=top, test=test))
    assert f"accelerator = Accelerator({argument})\n" in text
    assert ".cuda()" not in text and "pass" not in text
    assert text.index("parse_args()") < text.index("Accelerator(")
    known = text.rfind("args.cuda = ") if argument == "cpu=not args.cuda" else -1
    assert known < text.index("Accelerator("), "the flag is read before it is set"


def test_one_flag_under_two_names_is_one(findings: Findings) -> None:
    """``cuda = args.cuda``; ``use_cuda``, a parameter to which all calls give ``args.cuda``."""
    text = FLAGGED.format(flag="--cuda", top="cuda = args.cuda", test="args.cuda")
    other = "def move(use_cuda):\n    if use_cuda:\n        model.cuda()\nif cuda:\n    model.cuda()\nmove(args.cuda)"
    assert findings(text.replace("if args.cuda:\n    model.cuda()", other)) == []


HELPED = """
import argparse, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--cuda", action="store_true")
def widen(model, use_cuda=False):
    head = nn.Linear(8, 2)
    if use_cuda:
        head = head.cuda()
    model.head = head
def main():
    args = parser.parse_args()
    model = nn.Sequential()
    widen(model, {given})
    {move}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in torch.utils.data.DataLoader(torch.ones(8, 9)):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
main()
"""


def test_the_flag_of_the_training_counts_before_the_parameter_of_a_helper(migrated: Migrated) -> None:
    text = HELPED.format(given="use_cuda=args.cuda", move="if args.cuda:\n        model.cuda()")
    assert "accelerator = Accelerator(cpu=not args.cuda)\n" in migrated(text)


def test_a_flag_that_a_helper_is_given_is_known_where_it_is_given(migrated: Migrated) -> None:
    text = HELPED.format(given="use_cuda=args.cuda", move="pass")
    assert "accelerator = Accelerator(cpu=not args.cuda)\n" in migrated(text)


def test_a_flag_of_something_else_is_not(migrated: Migrated) -> None:
    text = migrated(FLAGGED.format(flag="--extra", top="", test="args.extra"))
    assert "accelerator = Accelerator()\n" in text


def test_several_flags_are_reported(findings: Findings) -> None:
    text = FLAGGED.format(flag="--cuda", top="use_gpu = args.many", test="args.cuda")
    assert "device-flag" in findings(text.replace("model.cuda()", "model.cuda()\nif use_gpu:\n    model.cuda()"))


@pytest.mark.hazard("S2")
def test_what_runs_before_the_flag_is_known_asks_the_environment(migrated: Migrated, findings: Findings) -> None:
    text = FLAGGED.format(flag="--cuda", top="", test="args.cuda")
    text = text.replace("import argparse", "import argparse\nprint('starting')")
    assert "EarlyState().print('starting')\n" in migrated(text) and findings(text) == []


# a device that is kept as an attribute -------------------------------------------------------------------------------

KEPT = """
{top}
model = nn.Linear(8, 2).to({name})
loader = DataLoader(data, batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to({name}), y.to({name})
    {use}
    STEP
"""
ARGPARSE = "import argparse\nargs = argparse.ArgumentParser().parse_args()"
CONFIG = "class Config:\n    device = 'cuda' if torch.cuda.is_available() else 'cpu'\nconfig = Config()"
ATTRIBUTES = {
    "an argument": (ARGPARSE, "args.device", 'cpu=args.device == "cpu"'),
    "an attribute of a class": (CONFIG, "config.device", 'cpu=config.device == "cpu"'),
    "set behind the arguments": (
        f"{ARGPARSE}\nargs.device = torch.device(args.device if torch.cuda.is_available() else 'cpu')",
        "args.device",
        'cpu=args.device == "cpu"',
    ),
    "set from a flag": (
        f"{ARGPARSE}\nargs.device = torch.device('cpu' if args.no_cuda else 'cuda')",
        "args.device",
        "cpu=args.no_cuda",
    ),
}


@pytest.mark.hazard("X12")
@pytest.mark.parametrize(("top", "name", "argument"), ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_a_kept_device_is_given_the_accelerators(top: str, name: str, argument: str, migrated: Migrated) -> None:
    text = migrated(KEPT.format(top=top, name=name, use=f"noise = torch.randn(8, device={name})"))
    word = ".type" if "torch.device" not in top else ""  # what is a word stays one: `args` may be written as JSON
    assert f"accelerator = Accelerator({argument})\n{name} = accelerator.device{word}\n" in text
    assert f"noise = torch.randn(8, device={name})" in text, "its uses stay as they are"
    assert ".to(" not in text


@pytest.mark.parametrize(
    "use",
    [
        "fast = args.device == 'cuda'",
        "fast = args.device.startswith('cuda')",
        "fast = 'cuda' in args.device",
        "noise = torch.randn(8, device=args.device)\n    json.dump(vars(args), open('run.json', 'w'))",
        "noise = torch.randn(8, device=args.device)\n    torch.save({'run': args}, 'run.pt')",
    ],
)
def test_a_kept_device_that_is_read_as_a_word_stays_one(use: str, migrated: Migrated) -> None:
    text = migrated(KEPT.format(top=ARGPARSE, name="args.device", use=use))
    assert "args.device = accelerator.device.type\n" in text


def test_a_kept_device_that_nothing_reads_any_more_is_left(migrated: Migrated) -> None:
    text = migrated(KEPT.format(top=ARGPARSE, name="args.device", use="pass"))
    assert 'Accelerator(cpu=args.device == "cpu")' in text and "args.device = " not in text


def test_the_device_of_something_else_is_no_kept_device(migrated: Migrated) -> None:
    use = "noise = torch.randn(8, device=x.device) + torch.ones(8, device=model.weight.device)"
    text = migrated(KEPT.format(top="", name="'cuda'", use=use))
    assert use in text and "device =" not in text


# scripts that know only the CPU ---------------------------------------------------------------------------------------

CPU = """
model = nn.Linear(8, 2)
{built}
loader = DataLoader(data, batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    {use}
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
PLAIN = "criterion = nn.CrossEntropyLoss()"


@pytest.mark.hazard("X36")
@pytest.mark.parametrize(
    ("built", "use"),
    [
        (PLAIN, "x = x + torch.randn(len(x), 8)"),
        (PLAIN, "target = torch.zeros(len(x), 2)"),
        ("criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))", "pass"),
    ],
)
def test_tensors_that_are_made_on_the_cpu_keep_a_script_there(
    built: str, use: str, migrated: Migrated, findings: Findings
) -> None:
    text = CPU.format(built=built, use=use)
    assert "Accelerator(cpu=True)" in migrated(text)
    assert "cpu-only" in findings(text)


@pytest.mark.parametrize("use", ["pass", "x = x + torch.randn_like(x)", "x = x + torch.ones(8, device=x.device)"])
def test_a_script_that_makes_none_goes_where_the_accelerator_is(use: str, migrated: Migrated) -> None:
    assert "Accelerator()" in migrated(CPU.format(built=PLAIN, use=use))


def test_what_numpy_reads_is_taken_to_the_cpu(migrated: Migrated) -> None:
    text = migrated(CPU.format(built=PLAIN, use="z, w = x.numpy(), model(x).detach().numpy()"))
    assert "z, w = x.cpu().numpy(), model(x).detach().cpu().numpy()" in text


@pytest.mark.hazard("X36")
def test_a_data_set_on_the_device_follows_it(migrated: Migrated) -> None:
    top = "device = 'cuda'\ninputs = torch.randn(9, 8).to(device)\ndata = TensorDataset(inputs)"
    assert "inputs = torch.randn(9, 8).to(accelerator.device)" in migrated(f"{top}\n{CPU.format(built=PLAIN, use='')}")


NUMBERED = """
import os
number = int(os.environ["LOCAL_RANK"])
{made}
model = nn.Linear(8, 2).to({device})
loader = DataLoader(data, batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to({device}), y.to({device})
    STEP
print(f"{{kind}}:{{number}}", f"on {{kind}}: {{number}}", f"{{kind}}")
"""


@pytest.mark.hazard("D12")
@pytest.mark.parametrize("made", ["kind = torch.device('cuda')", "kind = torch.accelerator.current_accelerator()"])
def test_a_number_behind_the_device(made: str, migrated: Migrated) -> None:
    text = migrated(NUMBERED.format(made=made, device="kind"))
    assert (
        'f"{accelerator.device.type}:{number}", f"on {accelerator.device.type}: {number}", f"{accelerator.device}"'
        in text
    )


WHOLE = """
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=16)
valid = DataLoader(test_data, batch_size=16)
for x, y in loader:
    STEP
total = 0.0
for {target} in {source}:
    # one batch
    {unpacked}
    both = model(x), model(x + 1)
    total += {kept}
print(total)
"""
ARRIVE = {
    "a pair": ("x, y", "valid", "pass", "x, y = send_to_device((x, y), accelerator.device)"),
    "a whole batch": (
        "n, batch",
        "enumerate(valid)",
        "x, y = batch",
        "batch = send_to_device(batch, accelerator.device)",
    ),
    "a label that nobody reads": ("x, _", "valid", "y = x", "x = send_to_device(x, accelerator.device)"),
}


@pytest.mark.hazard("D8")
@pytest.mark.parametrize("parts", ARRIVE.values(), ids=ARRIVE)
def test_batches_of_an_evaluation_that_stays_whole_go_to_the_device_as_they_come(
    parts: tuple[str, ...], result: Callable[..., FileResult]
) -> None:
    target, source, unpacked, moved = parts
    file = result(
        WHOLE.format(target=target, source=source, unpacked=unpacked, kept="(both[0] - both[1]).std().item()")
    )
    assert f"for {target} in {source}:\n    {moved}\n    # one batch\n" in file.after.decode()
    assert "from torchlift.runtime.utils import send_to_device\n" in file.after.decode()
    assert [d.severity.value for d in file.diagnoses if d.id == "prepare"] == ["note"]


def test_batches_that_next_gives_go_there_too(migrated: Migrated) -> None:
    kept = "(both[0] - both[1]).std().item()"
    text = WHOLE.format(target="k", source="range(len(valid))", unpacked="x, y = next(batches)", kept=kept)
    text = migrated(text.replace("total = 0.0", "total, batches = 0.0, iter(valid)"))
    assert "    x, y = next(batches)\n    x, y = send_to_device((x, y), accelerator.device)\n    both = " in text


def test_a_script_that_moves_by_ways_of_its_own_is_left_to_them(migrated: Migrated) -> None:
    """What its helper makes of a batch before it moves it must be on the CPU."""
    helper = "def made(x):\n    return torch.cat([x, torch.zeros(len(x), 1)], 1)[:, :8].cuda()\n"
    text = WHOLE.format(target="x, y", source="valid", unpacked="x = made(x)", kept="both[0].std().item()")
    assert "send_to_device" not in migrated(
        helper + text.replace("    STEP", "    x, y = x.cuda(), y.cuda()\n    STEP")
    )


def test_what_numpy_reads_of_them_is_taken_to_the_cpu(migrated: Migrated) -> None:
    text = migrated(WHOLE.format(target="x, y", source="valid", unpacked="pass", kept="x.numpy().std()"))
    assert "total += x.cpu().numpy().std()" in text


def test_batches_that_the_script_moves_are_moved_once(migrated: Migrated) -> None:
    moved = "x = x.to('cuda' if torch.cuda.is_available() else 'cpu')"
    text = migrated(WHOLE.format(target="x, y", source="valid", unpacked=moved, kept="both[0].std().item()"))
    assert "send_to_device" not in text
    assert "    x = x.to(accelerator.device)" in text


def test_a_script_that_stays_on_the_cpu_moves_them_for_the_day_that_it_does_not(migrated: Migrated) -> None:
    kept = "(both[0] * torch.ones(2)).std().item()"
    text = migrated(WHOLE.format(target="x, y", source="valid", unpacked="pass", kept=kept))
    assert "Accelerator(cpu=True)" in text
    assert "send_to_device((x, y), accelerator.device)" in text


def test_a_method_moves_them_with_the_accelerator_of_its_object(migrated: Migrated) -> None:
    text = migrated("""
class Trainer:
    def __init__(self):
        self.model = nn.Linear(8, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader, self.valid = DataLoader(data, batch_size=16), DataLoader(test_data, batch_size=16)
    def fit(self):
        for x, y in self.loader:
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.look()
    def look(self):
        for x, y in self.valid:
            both = self.model(x), self.model(x + 1)
            print((both[0] - both[1]).std().item())
Trainer().fit()
""")
    assert "            x, y = send_to_device((x, y), self.accelerator.device)\n" in text


def test_the_type_of_the_device_that_an_object_keeps_is_the_same_device(migrated: Migrated) -> None:
    """The second run, which `migrated` makes, changed the move that the first had changed."""
    text = migrated("""
class Trainer:
    def __init__(self):
        self.device = "cuda:0" if torch.cuda.is_available() else "cpu"
        self.model = nn.Linear(8, 2).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader, self.valid = DataLoader(data, batch_size=16), DataLoader(test_data, batch_size=16)
    def fit(self):
        for x, y in self.loader:
            loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        for x, y in self.valid:
            x = x.to(device=self.device)
            both = self.model(x), self.model(x + 1)
            print((both[0] - both[1]).std().item())
Trainer().fit()
""")
    assert "            x = x.to(device=self.device)\n" in text


def test_a_device_that_an_object_is_given_anew_is_still_named_so(migrated: Migrated) -> None:
    """The moves of an evaluation were aimed at `self.accelerator.device`, beside others that read `self.device`."""
    text = migrated("""
class Trainer:
    def __init__(self, wanted={"device": "cuda"}):
        self.wanted = wanted
        self.device = torch.device(self.wanted["device"])
        if self.device.type == "mps":
            print("a Mac")
        self.loader, self.valid = DataLoader(data, batch_size=16), DataLoader(test_data, batch_size=16)
    def build(self):
        self.model = nn.Linear(8, 2).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def fit(self):
        for x, y in self.loader:
            loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
    def check(self):
        for x, y in self.valid:
            x = x.to(self.device) + torch.ones(8, device=self.device)
            both = self.model(x), self.model(x + 1)
            print((both[0] - both[1]).std().item())
trainer = Trainer()
trainer.build()
trainer.fit()
trainer.check()
""")
    assert "        self.device = self.accelerator.device\n" in text
    assert "            x = x.to(self.device) + torch.ones(8, device=self.device)\n" in text


AVERAGED = """
import copy
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 2)
    def forward(self, x):
        return self.body(x)
model = Net(){placed}
{before}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=16)
for epoch in range(3):
    {late}
    for x, y in loader:
        {moved}
        STEP
        with torch.no_grad():
            for kept, p in zip(average.parameters(), model.parameters()):
                kept.mul_(0.9).add_(p, alpha=0.1)
"""


@pytest.mark.hazard("D8")
def test_a_copy_whose_weights_meet_those_of_the_model_is_where_the_model_is(migrated: Migrated) -> None:
    parts = {"placed": "", "moved": "pass", "late": "pass", "before": "average = copy.deepcopy(model)"}
    assert "average = copy.deepcopy(model).to(accelerator.device)\n" in migrated(AVERAGED.format(**parts))


def test_a_copy_of_a_prepared_model_is_there_already(migrated: Migrated) -> None:
    parts = {"placed": "", "moved": "pass", "before": "", "late": "average = copy.deepcopy(model)"}
    assert "average = copy.deepcopy(model)\n" in migrated(AVERAGED.format(**parts))


def test_a_copy_of_a_model_that_the_script_moves_is_there_already(migrated: Migrated) -> None:
    parts = {"placed": ".cuda()", "moved": "x, y = x.cuda(), y.cuda()", "before": "average = copy.deepcopy(model)"}
    text = migrated(AVERAGED.format(late="pass", **parts))
    assert "average = copy.deepcopy(model)\n" in text
    assert "model = Net().to(accelerator.device)\n" in text


@pytest.mark.parametrize("asks", ["is_available()", "device_count()", "get_device_name(0)", "manual_seed_all(3)"])
def test_who_only_asks_for_a_gpu_names_no_device(asks: str, migrated: Migrated) -> None:
    text = CPU.format(built=PLAIN, use="x = x + torch.ones(8)")
    assert "Accelerator(cpu=True)" in migrated(f"print(torch.cuda.{asks})\n{text}")


def test_what_a_trainer_hands_to_its_model_by_itself_keeps_a_script_on_the_cpu(
    result: Callable[..., FileResult],
) -> None:
    """Rows of a test set that no loader yields: on a GPU they met the model there."""
    file = result("""
class Trainer:
    def __init__(self):
        self.held_out = torch.randn(20, 8)
        self.model = nn.Linear(8, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(data, batch_size=16)
    def fit(self):
        for x, y in self.loader:
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        print(self.model(self.held_out).argmax(1).tolist())
Trainer().fit()
""")
    assert "self.accelerator = Accelerator(cpu=True)" in file.after.decode()
    assert [d.id for d in file.diagnoses] == ["cpu-only"]
