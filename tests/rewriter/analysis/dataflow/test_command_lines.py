"""Functions that a library starts as the command line says are entries of their script."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

IMPORTS = "import torch\nfrom torch.utils.data import DataLoader\nfrom datasets import data\n"
TRAIN = """
def train(lr=0.1):
    model = torch.nn.Linear(8, 2)
    loader = DataLoader(data, batch_size=16)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
TESTED = "\n\ndef test(path='net.pt'):\n    print(path)\n"


def result(text: str) -> FileResult:
    """What becomes of a script."""
    (file,) = migrate([decode((IMPORTS + text).encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


def refused(text: str) -> list[str]:
    """The ids of what is said of a script that stays as it is."""
    file = result(text)
    assert not file.changed
    return [found.id for found in file.diagnoses]


@pytest.mark.parametrize(
    ("head", "decorator", "tail"),
    [
        ("import fire", "", "if __name__ == '__main__':\n    fire.Fire()"),
        ("", "", "if __name__ == '__main__':\n    import fire\n    fire.Fire()"),
        ("from fire import Fire", "", "Fire()"),
        ("from fire import Fire", "", "Fire(name='run')"),
        ("from jsonargparse import CLI", "", "CLI()"),
        ("import click", "@click.command()\n@click.option('--lr', default=0.1)", "train()"),
        ("import click\n\n\n@click.group()\ndef main():\n    pass", "@main.command()", "main()"),
        ("import click\n\n\n@click.group()\ndef main():\n    pass", "@main.command", "main()"),
        ("import typer\n\napp = typer.Typer()", "@app.command()", "app()"),
        ("from typer import Typer\n\napp = Typer(name='x')", "@app.command('train')", "app()"),
        ("from sacred import Experiment\n\nex = Experiment('x')", "@ex.automain", ""),
    ],
)
def test_a_command_is_an_entry(head: str, decorator: str, tail: str) -> None:
    file = result(f"{head}\n\n{decorator}{TRAIN}\n\n{tail}\n")
    text = file.after.decode()
    ast.parse(text)
    assert "    accelerator = Accelerator()\n" in text
    assert "model, optimizer, loader = accelerator.prepare(" in text and "accelerator.backward(" in text


@pytest.mark.parametrize("call", ["fire.Fire(test)", "fire.Fire({'test': test})"])
def test_of_a_call_with_functions_only_those_are_entries(call: str) -> None:
    assert refused(f"import fire\n{TRAIN}{TESTED}\n\n{call}\n") == ["no-entry-point"]


def test_a_method_that_is_called_command_is_no_entry() -> None:
    """The object is the script's own."""
    robot = "class Robot:\n    def command(self, function):\n        return None\n\n\nrobot = Robot()\n"
    assert refused(f"{robot}\n\n@robot.command{TRAIN}") == ["no-entry-point"]


PARSED = """\
import argparse


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    training = commands.add_parser("train")
    {sets}
    {parses}
    {runs}


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("sets", "parses", "runs"),
    [
        ("training.set_defaults(run=train)", "args = parser.parse_args()", "args.run(lr=0.1)"),
        ("training.set_defaults(lr=0.1, run=train)", "args, _ = parser.parse_known_args()", "args.run()"),
        ("training.set_defaults(run=train)", "args = parser.parse_args()", "chosen = args.run\n    chosen()"),
    ],
    ids=["called", "known options", "by another name"],
)
def test_what_a_command_of_argparse_sets_is_called(sets: str, parses: str, runs: str) -> None:
    """It was said that nothing starts the training."""
    file = result(f"{TRAIN}{TESTED}\n\n" + PARSED.format(sets=sets, parses=parses, runs=runs))
    assert "model, optimizer, loader = accelerator.prepare(" in file.after.decode()


@pytest.mark.parametrize(
    ("sets", "runs"),
    [("training.set_defaults(run=test)", "args.run()"), ("training.set_defaults(run=train)", "args.other()")],
    ids=["another function", "another attribute"],
)
def test_what_it_sets_and_nothing_calls_is_no_entry(sets: str, runs: str) -> None:
    text = f"{TRAIN}{TESTED}\n\n" + PARSED.format(sets=sets, parses="args = parser.parse_args()", runs=runs)
    assert refused(text) == ["no-entry-point"]
