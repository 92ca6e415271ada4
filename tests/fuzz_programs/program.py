"""The grammar: a whole training script, put together from the pieces that were chosen."""

from __future__ import annotations

import ast
import textwrap

from . import pieces
from .choices import Choices
from .pieces import Figure, Head
from .structure import STRUCTURES, Blocks, block, renamed, replaced
from .tasks import TASKS, Task

_IMPORTS = """
import copy
import csv
import json
import logging
import os
import shutil
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset, TensorDataset
from torch.utils.data import WeightedRandomSampler, random_split
from tqdm import tqdm
"""
_SEEDS = {"torch": "torch.manual_seed(1)", "both": "np.random.seed(2)\ntorch.manual_seed(2)"}
_CONFIGS = {
    "constants": "{name}",
    "dictionary": "config[{name!r}]",
    "arguments": "args.{name}",
    "literals": "{value}",
}
_VALUES = {"EPOCHS": "3", "BATCH": "8", "LR": "0.05"}
_NAMES = {
    "usual": {},
    "short": {
        "model": "net", "optimizer": "opt", "criterion": "loss_fn", "train_loader": "trainloader", "out": "outputs",
    },
    "long": {
        "x": "images", "y": "labels", "out": "predictions", "loss": "batch_loss", "valid_loss": "val_loss",
        "train_loader": "train_dataloader", "valid_loader": "test_loader", "scheduler": "lr_scheduler",
    },
}  # fmt: skip


def program(choices: Choices) -> str:
    """The text of the script that was chosen; it ends without an error, within seconds, on one process."""
    return _Writer(choices).text()


class _Writer:
    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.task: Task = self.choices.pick("task", TASKS)
        self.criterion, self.loss = self.choices.pick("loss", self.task.losses)
        self.device = self.choices.pick("device", pieces.DEVICES)
        self.moves = self.choices.pick("moves", pieces.MOVES)
        self.definitions: list[str] = []
        self.by_hand = self.choices.word("batches", ["loader", "by hand", "loader", "loader"]) == "by hand"
        self.named_rows = (
            not self.by_hand and self.choices.word("rows", ["tuples", "dictionaries", "tuples "]) == "dictionaries"
        )

    def text(self) -> str:
        structure = self.choices.pick("structure", STRUCTURES)
        head = self.head("train head", self.by_hand)
        setup = [*self.data(), *self.model(), self.criterion, self.choices.pick("optimizer", pieces.OPTIMIZERS)]
        evaluates = self.choices.word("evaluates", ["no", "yes", "yes "]) != "no"
        evaluation, decision = self.evaluation() if evaluates else ("", ("", ""))
        setup += [self.choices.pick("wrapped", pieces.WRAPPED)] if self.has_device else []
        setup.append(self.choices.pick("resumed", pieces.RESUMES))
        plateau = evaluates and self.choices.word("plateau", ["no", "yes", "no "]) == "yes"
        scheduler = pieces.PLATEAU if plateau else self.choices.pick("scheduler", pieces.SCHEDULERS)
        phases = evaluates and not self.by_hand and not self.named_rows
        if phases and self.choices.word("phases", ["apart", "in one loop", "apart "]) == "in one loop":
            training, evaluation = self.phases(), ""
            setup.append("loaders = {'train': train_loader, 'val': valid_loader}")
            setup.append("sizes = {'train': len(train_set), 'val': len(valid_set)}")
        else:
            training = self.training(head, scheduler[1], setup)
        if "history." in training:
            setup.append("history = []")
        setup += [self.fill(scheduler[0], head, "train_loader"), decision[0]]
        after = [scheduler[2], decision[1], self.choices.pick("after epoch", pieces.AFTER_EPOCH)]
        end = [self.choices.pick("end", pieces.ENDS)]
        if "history." in training:
            end.append("print('steps', len(history), 'last', history[-1])\nnp.savetxt('losses.txt', np.array(history))")
        if "best_weights" in decision[0]:
            end.append("model.load_state_dict(best_weights)\ntorch.save(model.state_dict(), 'kept.pt')")
        lines = [self.seed(), *setup]
        whole = "\n".join([*lines, training, evaluation, *after, *end])
        if "Meter(" in whole:
            self.definitions.append(pieces.METER)
        functions = [line for line in lines if line.lstrip().startswith(("def ", "class "))]
        config, values = self.config()
        parts = Blocks(
            imports=block(_IMPORTS + ("import argparse" if "argparse" in config else "")),
            definitions=block("\n".join([config, *self.definitions, *map(_definition, functions)])),
            setup=self.parsed(*(_rest(line) for line in lines)),
            training=self.parsed(training),
            evaluation=self.parsed(evaluation),
            after=self.parsed(*after),
            end=self.parsed(*end),
            heading=self.choices.word("epochs", ["for epoch in range(EPOCHS):", "for epoch in range(0, EPOCHS):"]),
        )
        tree = structure(parts)
        tree = renamed(replaced(tree, {**values, "ROWS": "37"}), self.choices.pick("names", _NAMES))
        text = ast.unparse(ast.fix_missing_locations(_without_passes(tree)))
        return _with_used_imports(text)

    def parsed(self, *texts: str) -> list[ast.stmt]:
        text = "\n".join(text for text in texts if text.strip())
        text = _put(text, "FORWARD", self.task.forward)
        return block(_put(text, "MOVE_X", self.move("x")))

    def config(self) -> tuple[str, dict[str, str]]:
        """What sets the settings, and how each is read."""
        kind = self.choices.word("config", ["constants", "dictionary", "arguments", "literals"])
        names = {name: name if kind == "constants" else name.lower() for name in _VALUES}
        values = {name: _CONFIGS[kind].format(name=names[name], value=value) for name, value in _VALUES.items()}
        if kind == "constants":
            return "\n".join(f"{name}_ = {value}" for name, value in _VALUES.items()), {n: f"{n}_" for n in names}
        if kind == "dictionary":
            pairs = ", ".join(f"{names[name]!r}: {value}" for name, value in _VALUES.items())
            return f"config = {{{pairs}}}", values
        if kind == "arguments":
            lines = [
                f"parser.add_argument('--{names[n]}', type={'float' if '.' in v else 'int'}, default={v})"
                for n, v in _VALUES.items()
            ]
            return "\n".join(["parser = argparse.ArgumentParser()", *lines, "args = parser.parse_args()"]), values
        return "", values

    def seed(self) -> str:
        return str(self.choices.pick("seed", _SEEDS))

    def data(self) -> list[str]:
        definition, sets = pieces.BY_NAME if self.named_rows else self.choices.pick("data set", pieces.DATA_SETS)
        lines = [self.device, self.task.data, definition, sets]
        before, options = self.choices.pick("loader", pieces.LOADERS)
        if not self.named_rows and self.choices.word("collate", ["usual", "own", "usual "]) == "own":
            lines.append(pieces.COLLATE[0])
            options = ", ".join(filter(None, (options, pieces.COLLATE[1])))
        if not self.by_hand:
            lines += [
                before,
                f"train_loader = DataLoader(train_set, batch_size=BATCH{', ' if options else ''}{options})",
            ]
        lines.append(f"valid_loader = DataLoader(valid_set, {self.choices.pick('valid loader', pieces.VALID_LOADERS)})")
        return lines

    def model(self) -> list[str]:
        self.definitions.append(self.choices.pick("model", self.task.models))
        if self.has_device and self.choices.word("placed", ["assigned", "at once"]) == "at once":
            return ["model = Net().to(device)"]
        return ["model = Net()", self.move("model")]

    @property
    def has_device(self) -> bool:
        return "device =" in self.device

    def move(self, name: str) -> str:
        if self.has_device:
            return self.moves.format(x=name)
        return f"if use_cuda:\n    {name} = {name}.cuda()" if self.device else "pass"

    def head(self, slot: str, by_hand: bool) -> Head:
        if by_hand:
            return self.choices.pick(f"{slot}, by hand", pieces.HAND_MADE)
        return pieces.NAMED if self.named_rows else self.choices.pick(slot, pieces.HEADS)

    def fill(self, text: str, head: Head, loader: str) -> str:
        """A text with the numbers of a loop in it."""
        for name, value in (
            ("BATCHES", head.batches), ("ROWS_READ", head.rows), ("COUNTER", head.counter), ("LOADER", loader),
            ("CORRECT", self.task.correct),
        ):  # fmt: skip
            text = text.replace(name, value)
        return text.replace("LOADER", loader)

    def loop(self, head: Head, figures: list[Figure], body: str, loader: str) -> str:
        moved = [self.move("x"), self.move("y")]
        inside = "\n".join([head.unpacked, *moved, body, *(figure.inside for figure in figures)])
        lines = [
            *(figure.before for figure in figures),
            head.opening,
            textwrap.indent(inside, "    "),
            *(figure.after for figure in figures),
        ]
        return self.fill("\n".join(line for line in lines if line.strip()), head, loader)

    def phases(self) -> str:
        """One loop that trains, and then evaluates."""
        figures = pieces.PHASES if self.task.correct else {n: f for n, f in pieces.PHASES.items() if n != "usual"}
        before, inside, behind = self.choices.pick("phase figures", figures)
        text = _put(pieces.PHASE, "MOVES", "\n".join([self.move("x"), self.move("y")]))
        for name, lines in (("BEFORE", before), ("INSIDE", inside), ("BEHIND", behind), ("LOSS", self.loss)):
            text = _put(text, name, lines)
        return text.replace("CORRECT", self.task.correct)

    def training(self, head: Head, after_step: str, setup: list[str]) -> str:
        steps = pieces.STEPS | (pieces.NUMBERED_STEPS if head.counter else {})
        steps = {name: step for name, step in steps.items() if name != "scaler" or self.has_device}
        step = str(self.choices.pick("step", steps))
        if "scaler" in step:
            setup.append(pieces.SCALER)
        if "if (" not in step:
            before, after = self.choices.pick("after step", pieces.AFTER_STEP)
            setup.append(before)
            step = f"{step}\n{after}"
        step = _put(step, "LOSS", self.loss)
        step = _put(step, "AFTER", self.choices.pick("after backward", pieces.AFTER_BACKWARD))
        if after_step:
            step = step.replace("optimizer.step()", f"optimizer.step()\n{after_step}") if "if (" not in step else step
        figures = pieces.TRAINING_FIGURES | (pieces.NUMBERED_FIGURES if head.counter else {})
        figures |= pieces.CORRECT_FIGURES if self.task.correct else {}
        chosen = [self.choices.pick("training figure", figures)]
        second = self.choices.pick("second training figure", figures)
        if second != chosen[0] and not _shares(second, chosen[0]):
            chosen.append(second)
        return "model.train()\n" + self.loop(head, chosen, step, "train_loader")

    def evaluation(self) -> tuple[str, tuple[str, str]]:
        """The evaluation, and what is decided by it: before the training, and after the evaluation."""
        head = self.head("valid head", False)
        figures = [self.choices.pick("valid loss", pieces.VALID_LOSSES)]
        further: dict[str, Figure] = {"none": Figure()} | {n: Figure(*f) for n, f in self.task.figures.items()}
        second = self.choices.pick("figure", further)
        figures.append(second)
        loop = self.loop(head, figures, f"FORWARD\n{self.loss}", "valid_loader")
        opening = str(self.choices.pick("without gradients", pieces.NO_GRADIENT))
        if opening == "if True:":
            body = loop.replace("valid_loss += loss\n", "valid_loss += loss.detach()\n")
        else:
            body = f"{opening}\n" + textwrap.indent(loop, "    ")
        shown = self.choices.word(
            "shown", ["print(f'valid loss {valid_loss:.5f}')", "print('valid', epoch, valid_loss)"]
        )
        return f"model.eval()\n{body}\n{shown}", self.choices.pick("decision", pieces.DECISIONS)


def _put(text: str, name: str, replacement: str) -> str:
    """A text with lines in the place of one that is a name, as deep as it."""
    lines = []
    for line in text.split("\n"):
        if line.strip() == name:
            line = textwrap.indent(replacement, line[: len(line) - len(line.lstrip())])
        lines.append(line)
    return "\n".join(lines)


def _shares(one: Figure, other: Figure) -> bool:
    """Two figures that would set one variable."""
    from .structure import sets

    texts = ["\n".join(f).replace("COUNTER", "i").replace("CORRECT", "c") for f in (one, other)]
    first, second = (sets(block(text)) for text in texts)
    return bool(first & second)


def _definition(text: str) -> str:
    """The functions and classes that a text begins with."""
    tree = ast.parse(text)
    return "\n".join(ast.unparse(s) for s in tree.body if isinstance(s, (ast.FunctionDef, ast.ClassDef)))


def _rest(text: str) -> str:
    """A text without the functions and classes that it begins with."""
    if not text.lstrip().startswith(("def ", "class ")):
        return text
    tree = ast.parse(text)
    return "\n".join(ast.unparse(s) for s in tree.body if not isinstance(s, (ast.FunctionDef, ast.ClassDef)))


class _Passes(ast.NodeTransformer):
    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list) and len(body) > 1:
                kept = [s for s in body if not isinstance(s, ast.Pass)]
                setattr(node, name, kept or body[:1])
        return node


def _without_passes(tree: ast.Module) -> ast.Module:
    """The tree without statements that do nothing."""
    return _Passes().visit(tree)  # type: ignore[no-any-return]


def _with_used_imports(text: str) -> str:
    """A text without the imports that it does not use."""
    tree = ast.parse(text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    body: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            statement.names = [a for a in statement.names if (a.asname or a.name.split(".")[0]) in used]
            if not statement.names:
                continue
        body.append(statement)
    return ast.unparse(ast.Module(body, [])) + "\n"
