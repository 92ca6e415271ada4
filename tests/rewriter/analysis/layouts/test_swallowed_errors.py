"""Errors that one process may meet alone, and after which it goes on."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

SCRIPT = """\
import contextlib
import os
import sys

import torch
from torch.utils.data import DataLoader

from features import prepared

model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train_step(x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train():
    for x, y in loader:
{turn}


{start}
"""
STEP = "train_step(x, y)"


def _migrated(turn: str = STEP, start: str = "train()") -> FileResult:
    text = SCRIPT.format(turn=indent(turn, " " * 8), start=start)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


def _tried(body: str, handler: str, rest: str = "") -> str:
    return (
        f"try:\n{indent(body, '    ')}\n{indent(handler, '    ', lambda line: not line.startswith('except'))}\n{rest}"
    )


def _told(**parts: str) -> list[tuple[str, str]]:
    file = _migrated(**parts)
    assert file.changed
    told = [d for d in file.diagnoses if d.id == "local-decision"]
    assert all(d.severity is Severity.REVIEW for d in told)
    lines = file.source.text.split("\n")
    return [(lines[d.line - 1].strip(), d.message.split("`")[1]) for d in told]


@pytest.mark.parametrize(
    ("handler", "named"),
    [
        ("except RuntimeError:\ncontinue", "except RuntimeError"),
        ("except torch.cuda.OutOfMemoryError as error:\nprint(error)", "except torch.cuda.OutOfMemoryError"),
        ("except:\npass", "except"),
        ("except (KeyboardInterrupt, ValueError):\nbreak", "except (KeyboardInterrupt, ValueError)"),
        ("except Exception as error:\nif 'memory' not in str(error):\n    raise", "except Exception"),
        ("except RuntimeError as e:\nif 'memory' in str(e):\n    continue\nraise e", "except RuntimeError"),
        ("except Exception:\nsys.exit()", "except Exception"),
        ("except Exception:\nraise SystemExit", "except Exception"),
    ],
    ids="continue print pass break raises_some goes_on_after_some exits_with_success ends_with_success".split(),
)
def test_a_handler_that_goes_on(handler: str, named: str) -> None:
    ((line, told),) = _told(turn=_tried(STEP, handler))
    assert told == named and line.startswith(named)


@pytest.mark.parametrize(
    "handler",
    [
        "except RuntimeError:\nprint('failed')\nraise",
        "except RuntimeError as error:\nraise ValueError from error",
        "except Exception:\nsys.exit(1)",
        "except Exception:\nos._exit(2)",
        "except Exception:\nfor part in (x, y):\n    if part is None:\n        break\nraise",
        "except Exception as error:\nif 'memory' in str(error):\n    raise\nelse:\n    raise SystemExit('failed')",
        "except KeyboardInterrupt:\nbreak",
        "except (StopIteration, ImportError):\npass",
        "finally:\nprint('done')",
    ],
    ids="raises_again raises_another exits_with_an_error exits_at_once leaves_a_loop_of_its_own "
    "raises_each_way the_person_who_stops_it the_end_of_the_data no_handler".split(),
)
def test_nothing_is_said_where_all_end_or_all_meet_it(handler: str) -> None:
    handler = handler.replace("finally:\n", "finally:\n    ") if handler.startswith("finally") else handler
    turn = f"try:\n    {STEP}\n{handler}" if handler.startswith("finally") else _tried(STEP, handler)
    assert _told(turn=turn) == []


def test_an_error_of_the_rows_before_the_step() -> None:
    """The step is not in the ``try``, and what it catches decides whether there is one."""
    caught = "except ValueError:\ncontinue"
    assert len(_told(turn=_tried("x = prepared(x)", caught, STEP))) == 1
    assert (
        len(
            _told(
                turn=_tried("x = prepared(x)", "except ValueError:\npass\nelse:\n    " + STEP).replace(
                    "    else:", "else:"
                )
            )
        )
        == 1
    )
    assert _told(turn=_tried("x = prepared(x)", "except ValueError:\nprint(x)", STEP)) == []
    assert _told(turn=_tried("scale = prepared(3)", caught, STEP)) == []


def test_errors_that_come_from_the_code_or_the_end_of_the_data() -> None:
    """All processes meet them at the same place."""
    kinds = (
        "except (KeyboardInterrupt): except (SystemExit): except (GeneratorExit): except (StopIteration): "
        "except (ImportError): except (ModuleNotFoundError): except (NameError): except (NotImplementedError):"
    )
    handlers = "\n".join(f"{kind}:\n    pass" for kind in kinds.rstrip(":").split(": "))
    assert _told(turn=f"try:\n    {STEP}\n{handlers}") == []


def test_what_is_suppressed() -> None:
    turn = f"with contextlib.suppress({{}}):\n    {STEP}"
    assert [told for _, told in _told(turn=turn.format("RuntimeError"))] == ["contextlib.suppress(RuntimeError)"]
    assert _told(turn=turn.format("KeyboardInterrupt")) == []


def test_a_handler_around_the_whole_training() -> None:
    """The process that has failed ends with success, and the launcher ends none of the others."""
    caught = "try:\n    train()\nexcept Exception as error:\n    print(error)"
    assert len(_told(start=caught)) == 1
    assert _told(start=f"{caught}\n    raise") == []


def test_what_only_one_process_does_may_fail() -> None:
    shown = "try:\n    print(x.sum().item())\nexcept ValueError:\n    pass"
    assert _told(turn=f"{STEP}\n{shown}") == []
