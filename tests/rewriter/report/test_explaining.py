"""What `--explain` says of a finding, and SARIF of its rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.explaining import explanation, one_sentence, sections
from torchlift.rewriter.report.sarif import sarif
from torchlift.rewriter.result import Result
from torchlift.rewriter.source import decode


@pytest.mark.parametrize("id", sections())
def test_each_finding_is_explained_in_plain_text(id: str) -> None:
    text = explanation(id)
    assert text.startswith(f"{id}\n\n") and text.endswith(f"\n\nSee docs/findings.md#{id}\n")
    assert "](" not in text and "```" not in text and "**" not in text
    assert all(len(line) <= 100 for line in text.splitlines() if "`" not in line)
    assert one_sentence(id).endswith(".") and "\n" not in one_sentence(id)


def test_several_ids_share_a_section_and_a_chapter_ends_one() -> None:
    assert sections()["round-trip"] == sections()["too-deep"]
    assert "migrate --audit" not in sections()["output-unchecked"]


def test_sarif_says_what_a_finding_means() -> None:
    text = "import torch\nmodel = torch.nn.Linear(4, 1)\nx = torch.randn(8, 4)\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text += "for _ in range(9):\n    model(x).mean().backward()\n    optimizer.step()\n"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (run,) = json.loads(sarif(Result((file,), 1, {}), ()))["runs"]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    told = [rule for id, rule in rules.items() if id in sections()]
    assert told
    for rule in told:
        assert rule["shortDescription"]["text"] == one_sentence(rule["id"])
        assert rule["help"] == {"text": explanation(rule["id"]), "markdown": sections()[rule["id"]]}
