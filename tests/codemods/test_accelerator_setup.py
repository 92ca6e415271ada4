"""The rule `accelerator_setup`: where the accelerator is made, with what, and who is handed it."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent
from typing import Any

import pytest

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

NOOP_PROGRAMS = {
    "a device without training": """
        import torch
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        print(device)
        """,
    "a device parameter without training": """
        def show(model, device):
            return model.to(device)
        """,
    "a training that is already on the runtime": """
        import torch
        from torch.utils.data import DataLoader
        from torchlift.runtime import Accelerator

        accelerator = Accelerator()
        model = torch.nn.Linear(8, 1)
        loader = DataLoader(data, batch_size=32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = accelerator.prepare(
            model, optimizer, loader
        )
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
        """,
    "no training, but the word in a comment": """
        # loss.backward() and optimizer.step() belong elsewhere
        x = 1
        """,
    "an empty file": "",
}


@pytest.mark.unchanged
@pytest.mark.parametrize("text", NOOP_PROGRAMS.values(), ids=NOOP_PROGRAMS)
def test_left_alone(text: str, check_noop: Callable[..., None]) -> None:
    check_noop(text)


REFUSED = {
    "one name for a model and an optimizer": (
        """
        import torch
        from torch.utils.data import DataLoader
        thing = torch.nn.Linear(2, 2)
        loader = DataLoader(data)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(thing(x), y)
            thing = torch.optim.SGD(thing.parameters(), lr=0.1)
            loss.backward()
            thing.step()
        """,
        "conflicting-roles",
    ),
    "already distributed": (
        """
        import torch
        torch.distributed.rpc.init_rpc("worker")
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        """,
        "already-distributed",
    ),
    "no entry point": (
        """
        import torch

        def train(model, loader, optimizer):
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
        """,
        "no-entry-point",
    ),
}


@pytest.mark.parametrize(("text", "finding"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, finding: str, check_noop: Callable[..., None]) -> None:
    check_noop(text, finding)


DEVICES = {
    "a device object": ("torch.device('cuda' if torch.cuda.is_available() else 'cpu')", "Accelerator()"),
    "a word": ("'cuda' if torch.cuda.is_available() else 'cpu'", "Accelerator()"),
    "a flag against the GPU": (
        "torch.device('cuda' if torch.cuda.is_available() and not args.cpu else 'cpu')",
        "Accelerator(cpu=args.cpu)",
    ),
    "a flag for the GPU": (
        "torch.device('cuda' if torch.cuda.is_available() and args.cuda else 'cpu')",
        "Accelerator(cpu=not args.cuda)",
    ),
    "the CPU alone": ("torch.device('cpu')", "Accelerator(cpu=True)"),
}


@pytest.mark.hazard("S1", "D10")
@pytest.mark.parametrize(("device", "accelerator"), DEVICES.values(), ids=DEVICES)
def test_takes_the_place_of(device: str, accelerator: str, after: Callable[..., str]) -> None:
    text = after(top=f"device = {device}", built="model.to(device)")
    assert f"accelerator = {accelerator}" in text.splitlines()
    assert "device =" not in text


@pytest.mark.hazard("S2")
def test_stands_in_front_of_what_needs_it_first(after: Callable[..., str]) -> None:
    text = after(
        imports="from settings import args",
        top="print(args)\ndevice = args.device if torch.cuda.is_available() else 'cpu'",
        built="model.to(device)",
    )
    lines = text.splitlines()
    start = lines.index('accelerator = Accelerator(cpu=args.device == "cpu")')
    assert lines[start + 1] == "accelerator.print(args)"


def test_a_name_that_is_taken_is_left_to_its_owner(after: Callable[..., str]) -> None:
    text = after(top="accelerator = 'LHC'")
    assert "accelerator = 'LHC'" in text
    assert "torchlift_accelerator.backward(loss)" in text


def test_the_global_batch_is_kept_on_demand(after: Callable[..., str]) -> None:
    assert "accelerator = Accelerator(split_batches=True)" in after(options={"keep_global_batch": True})


def test_the_precision_is_that_of_the_option(after: Callable[..., str]) -> None:
    assert 'accelerator = Accelerator(mixed_precision="bf16")' in after(options={"mixed_precision": "bf16"})


def test_on_accelerate_only_the_import_differs(after: Callable[..., str]) -> None:
    from torchlift.rewriter.config import Target

    ours, theirs = after().splitlines(), after(options={"target": Target.ACCELERATE}).splitlines()
    different = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    assert different == [("from torchlift.runtime import Accelerator", "from accelerate import Accelerator")]


PARAMETERS: dict[str, Any] = {
    "a device parameter is replaced": ("model, device, loader", "model, accelerator, loader"),
    "an annotation follows": ("model, device: torch.device, loader", "model, accelerator: Accelerator, loader"),
}


@pytest.mark.hazard("S3")
@pytest.mark.parametrize(("before", "signature"), PARAMETERS.values(), ids=PARAMETERS)
def test_parameters(before: str, signature: str, migrated: Callable[[str], str]) -> None:
    text = f"""\
import torch
from torch.utils.data import DataLoader
device = torch.device("cuda")
def train({before}):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
model = torch.nn.Linear(2, 2).to(device)
loader = DataLoader(data)
train(model, device, loader)
"""
    assert f"def train({signature}):" in migrated(text)


STARS = {
    "whatever it is given": ("*what", "print(*what)", "*what, accelerator", "'loss', loss"),
    "keywords as well": ("*what, **how", "print(*what, **how)", "*what, accelerator, **how", "'loss', loss, end=''"),
    "something by name in front": ("name, *what", "print(name, *what)", "name, *what, accelerator", "'loss', loss"),
    "keywords alone behind": ("*what, end=''", "print(*what, end=end)", "*what, end='', accelerator", "loss, end=''"),
    "a list that is spread": ("*what", "print(*what)", "*what, accelerator", "*('loss', loss)"),
    "nothing at all": ("*what", "print(*what)", "*what, accelerator", ""),
}


@pytest.mark.parametrize(("before", "body", "signature", "call"), STARS.values(), ids=STARS)
def test_a_function_that_takes_anything(
    before: str, body: str, signature: str, call: str, migrated: Callable[[str], str]
) -> None:
    text = f"""\
import torch
from torch.utils.data import DataLoader
def log({before}):
    {body}
    return torch.ones(1).to("cuda:0")
def main():
    model = torch.nn.Linear(2, 2)
    loader = DataLoader(data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log({call})
main()
"""
    after = migrated(text)
    assert f"def log({signature}):\n    accelerator.{body}" in after
    assert f"log({call}{', ' if call else ''}accelerator=accelerator)" in after


TORCH_IS_ASKED = {
    "today's idiom": (
        'device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"'
    ),
    "with a name for it": 'found = torch.accelerator.current_accelerator()\ndevice = found.type if found else "cpu"',
    "the CPU first, then what is there": 'device = "cpu"\nif torch.cuda.is_available():\n    device = "cuda"',
    "the CPU first, then one of several": (
        'device = torch.device("cpu")\nif torch.cuda.is_available():\n    device = torch.device("cuda")\n'
        'elif torch.backends.mps.is_available():\n    device = torch.device("mps")'
    ),
    "in a branch that does more": (
        'if torch.cuda.is_available():\n    torch.cuda.manual_seed(1)\n    device = "cuda"\nelse:\n    device = "cpu"'
    ),
}
THE_USER_CHOOSES = {
    "the GPU first": ('device = torch.device("cuda")\nif args.cpu:\n    device = torch.device("cpu")', "args.cpu"),
    "the CPU first": (
        'device = "cpu"\nif torch.cuda.is_available() and not args.cpu:\n    device = "cuda"', "args.cpu"
    ),
    "in a branch that does more": (
        'if args.cpu:\n    print("slow")\n    device = "cpu"\nelse:\n    device = "cuda"', "args.cpu"
    ),
    "after what is there": (
        'device = "cuda" if torch.cuda.is_available() else "cpu"\nif args.cpu:\n    device = "cpu"', "args.cpu"
    ),
    "always": ('device = "cpu"', "True"),
    "or what is there": (
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if args.at is None'
        " else torch.device(args.at)",
        'args.at == "cpu"',
    ),
    "what is asked for, if something is": (
        'device = torch.device(args.at) if args.at else torch.device("cuda")', 'args.at == "cpu"'
    ),
    "with a default": ('device = torch.device(args.at or "cuda")', 'args.at == "cpu"'),
    "of two settings": (
        'device = torch.device(args.test_at if args.test else args.at)',
        '(args.test) and (args.test_at == "cpu") or (not args.test) and (args.at == "cpu")',
    ),
    "what is shown in each branch": (
        'if torch.cuda.is_available() and not args.cpu:\n    device = torch.device("cuda")\n    print(device, 1)\n'
        'else:\n    device = torch.device("cpu")\n    print("no GPU", device)',
        "args.cpu",
    ),
    "the CPU, if nothing is asked for": (
        'device = torch.device(args.at or "cpu")', 'args.at == "cpu" or not args.at'
    ),
}  # fmt: skip


TRAINING = """\
net = torch.nn.Linear(8, 2).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(net(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def _with_device(choice: str) -> str:
    return f"""\
import argparse
import torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--cpu", action="store_true")
args = parser.parse_args()
{choice}
print(f"on {{device}}")
{TRAINING}"""


@pytest.mark.parametrize("choice", TORCH_IS_ASKED.values(), ids=TORCH_IS_ASKED)
def test_a_device_that_torch_is_asked_for_is_no_setting(choice: str, migrated: Callable[[str], str]) -> None:
    """U21, U22: the accelerator is made on every path, and takes what is there."""
    after = migrated(_with_device(choice))
    assert "\naccelerator = Accelerator()\n" in after
    assert "current_accelerator" not in after


@pytest.mark.parametrize("choice, condition", THE_USER_CHOOSES.values(), ids=THE_USER_CHOOSES)
def test_a_device_that_the_user_chooses_stays_chosen(
    choice: str, condition: str, migrated: Callable[[str], str]
) -> None:
    assert f"\naccelerator = Accelerator(cpu={condition})\n" in migrated(_with_device(choice))


@pytest.mark.parametrize(
    ("comment", "stays"),
    [
        ("CUDA for PyTorch", False),
        ("the device", False),
        ("device = 'cuda:1'", True),
        ("the largest batch", True),
        ("모델을 GPU로", True),
        ("The net is moved, then the data, both\n# to the GPU.", True),
    ],
)
def test_a_comment_on_the_choice_of_the_device_goes_with_it(
    comment: str, stays: bool, migrated: Callable[[str], str]
) -> None:
    choice = f"print('hello')\n# {comment}\nuse_cuda = torch.cuda.is_available()\n"
    choice += "device = torch.device('cuda' if use_cuda else 'cpu')\n\nsize = 8"
    assert (comment in migrated(_with_device(choice))) is stays


def test_an_attribute_that_becomes_the_device_still_chooses_it(migrated: Callable[[str], str]) -> None:
    choice = 'args.at = torch.device("cuda") if args.at is None else torch.device(args.at)'
    text = migrated(_with_device(choice).replace("device)", "args.at)").replace("{device}", "{args.at}"))
    assert '\naccelerator = Accelerator(cpu=args.at == "cpu")\nargs.at = accelerator.device\n' in text


BY_A_FUNCTION = """\
def pick(wanted):
    wanted = wanted and torch.cuda.is_available()
    device = torch.device("cuda" if wanted else "cpu")
    return device
device = pick(not args.cpu)"""


def test_a_function_that_chooses_by_a_setting_is_still_asked(migrated: Callable[[str], str]) -> None:
    assert '\naccelerator = Accelerator(cpu=pick(not args.cpu).type == "cpu")\n' in migrated(
        _with_device(BY_A_FUNCTION)
    )


BY_A_RETURN = """\
class Place:
    def __init__(self, small):
        self.small = small

def pick(place):
    if place.small:
        return torch.device("cpu")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
device = pick(Place(args.cpu))"""


def test_a_function_that_gives_the_cpu_where_it_is_asked_for_is_still_asked(migrated: Callable[[str], str]) -> None:
    """The other return takes what is there, and the setting was lost without a word."""
    after = migrated(_with_device(BY_A_RETURN))
    assert '\naccelerator = Accelerator(cpu=pick(Place(args.cpu)).type == "cpu")\n' in after


@pytest.mark.parametrize("read", ['vars(args).get("where", "cuda")', 'getattr(args, "where", "cuda:1")'])
def test_a_device_that_is_taken_where_none_is_given_is_not_the_answer(
    read: str, migrated: Callable[[str], str]
) -> None:
    text = migrated(_with_device(f"device = torch.device({read})"))
    assert f'\naccelerator = Accelerator(cpu=torch.device({read}).type == "cpu")\n' in text


def test_a_function_that_takes_what_is_there_is_not_asked(migrated: Callable[[str], str]) -> None:
    after = migrated(
        _with_device(BY_A_FUNCTION.replace("    wanted = wanted and", "    found =").replace("if wanted", "if found"))
    )
    assert "\naccelerator = Accelerator()\n" in after


PARAMETERS_THAT_ARE_SET = {
    "to the device of that name": ("device = torch.device(device)", 'device == "cpu"'),
    "where nobody chose one": (
        'if device is None:\n        device = "cuda" if torch.cuda.is_available() else "cpu"', 'device == "cpu"'
    ),
    "by a word of the script's own": (
        'device = torch.device("cuda" if device == "gpu" else "cpu")', 'not (device == "gpu")'
    ),
    "after it was shown": ('print("asked:", device)\n    device = torch.device(device)', 'device == "cpu"'),
}  # fmt: skip


@pytest.mark.parametrize(("choice", "condition"), PARAMETERS_THAT_ARE_SET.values(), ids=PARAMETERS_THAT_ARE_SET)
def test_a_parameter_that_becomes_the_device_still_chooses_it(
    choice: str, condition: str, migrated: Callable[[str], str]
) -> None:
    after = migrated(f"""\
import argparse
import torch
from torch.utils.data import DataLoader
def main(device):
    {choice}
    print(device)
{indent(TRAINING, "    ")}
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda:0")
args = parser.parse_args()
main(args.device)
""")
    assert f"\n    accelerator = Accelerator(cpu={condition})\n" in after
    assert "    accelerator.print(accelerator.device" in after
    if "asked" in choice:
        assert '    accelerator.print("asked:", device)\n' in after


def test_where_a_tensor_is_does_not_choose_the_device(migrated: Callable[[str], str]) -> None:
    """The setting that decides about the moves is found beside a condition on a tensor."""
    text = _with_device("use_cpu = args.cpu").replace('print(f"on {device}")\n', "")
    text = text.replace(".to(device)\noptimizer", "\nif not use_cpu:\n    net = net.cuda()\noptimizer")
    text = text.replace("net(x.to(device)), y.to(device)", "net(x), y")
    text = text.replace(
        "    loss =",
        "    if not use_cpu:\n        x, y = x.cuda(), y.cuda()\n    noise = torch.randn(8)\n"
        "    if x.is_cuda:\n        noise = noise.cuda()\n    x = x + noise\n    loss =",
    )
    after = migrated(text)
    assert "\naccelerator = Accelerator(cpu=use_cpu)\n" in after


def test_a_device_that_is_chosen_anew_after_its_use_does_not_decide(migrated: Callable[[str], str]) -> None:
    """The setting of the second choice is not known where the accelerator is made."""
    first = (
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\ntable = torch.zeros(4, device=device)\n'
    )
    second = 'device = torch.device("cuda" if args.fast and torch.cuda.is_available() else "cpu")'
    text = _with_device(second).replace("import argparse\nimport torch\n", f"import argparse\nimport torch\n{first}")
    assert "\naccelerator = Accelerator()\n" in migrated(text)
