"""What `--explain` says of a finding, and SARIF of its rules."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.audit.catalogue import RULES
from torchlift.rewriter.audit.ids import IDS, MODULES
from torchlift.rewriter.audit.rule import AuditRule
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.explaining import (
    ADDRESS,
    address,
    cases,
    documented,
    explained,
    explanation,
    one_sentence,
    section,
    sections,
)
from torchlift.rewriter.report.sarif import sarif
from torchlift.rewriter.result import Result
from torchlift.rewriter.rule import Entry
from torchlift.rewriter.source import decode


@pytest.mark.parametrize("id", sections())
def test_each_finding_is_explained_in_plain_text(id: str) -> None:
    text = explanation(id)
    assert text.startswith(f"{id}\n\n") and text.endswith(f"\n\nSee {address('findings', id)}\n")
    words = [line for line in text.splitlines() if not line.startswith(("    ", "See "))]
    assert not re.search(r"\]\(|```|\*\*", re.sub(r"`[^`]*`", "", "\n".join(words)))
    assert all(len(line) <= 100 for line in words if "`" not in line)
    assert all(len(line) <= 120 for line in text.splitlines())
    assert one_sentence(id).endswith(".") and "\n" not in one_sentence(id)


CASES = [(id, case) for id in sections() for case in cases(id) or ("",)]
"""Each situation that is explained by itself."""


@pytest.mark.parametrize(("id", "case"), [pair for pair in CASES if pair[0] not in IDS])
def test_each_case_has_an_example_of_before_and_after(id: str, case: str) -> None:
    (example,) = re.findall(r"```diff\n(.*?)\n```", section(id, case), re.DOTALL)
    lines = example.split("\n")
    assert all(line[:1] in ("-", "+", " ") for line in lines)
    assert any(line.startswith("+") for line in lines)
    assert any(not line.startswith("+") for line in lines), "what it is before"
    assert "\n".join(f"    {line}" for line in lines) in explanation(id, case)
    for gone in "-+":
        kept = [line[1:] for line in lines if not line.startswith(gone)]
        text = "\n".join(line for line in kept if not line.startswith(("$", "(")))  # a command, or a question
        ast.parse(text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rules_of_the_audit_are_explained_without_them(rule: AuditRule) -> None:
    assert list(MODULES) == [rule.id for rule in RULES]
    assert documented(f"torchlift.rewriter.audit.{MODULES[rule.id]}") == rule.doc
    assert "\n    +" in rule.doc or rule.id == "not-followed"


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_rules_are_explained_without_them(entry: Entry) -> None:
    assert documented(entry.module) == entry.load().doc


@pytest.mark.parametrize(("id", "case"), [pair for pair in CASES if pair[0] != "notebook"])
def test_each_case_says_what_to_do(id: str, case: str) -> None:
    """In a paragraph of its own, with the severity, before the example."""
    text = section(id, case)
    remedies = re.findall(r"^\*\*What to do\*\* \((.+?)\):(?: \S|\n\n- )", text, re.MULTILINE)
    assert remedies and all(re.search("blocked|review|note|error|it depends", words) for words in remedies)
    said = explanation(id, case)
    assert "\nWhat to do (" in said
    if "```" in text:
        assert said.index("What to do (") < min(said.find(f"\n    {sign}") for sign in "-+" if f"\n    {sign}" in said)


def test_a_case_is_explained_without_the_others() -> None:
    said = explanation("unknown-loader", "next-method")
    assert said.startswith("unknown-loader: next-method\n\n") and "x, y = next(batches)" in said
    assert "--assume" not in said and said.endswith("findings.md#unknown-loader-next-method\n")
    whole = explanation("unknown-loader")
    assert "\n\nunknown-loader: next-method\n\n" in whole and "--assume" in whole and "###" not in whole


@pytest.mark.parametrize("id", [id for id in sections() if cases(id)])
def test_what_all_cases_share_says_nothing_of_what_to_do(id: str) -> None:
    """It depends on the case; an example before the first one would be that of all."""
    shared = sections()[id].partition("### ")[0]
    assert "What to do" not in shared and "```" not in shared and len(cases(id)) > 1


@pytest.mark.parametrize("id", ["local-decision", "one-share", "declined"])
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_sentences_are_as_wide_as_the_terminal_and_examples_as_they_are(id: str, width: int) -> None:
    said = explanation(id, width=width)
    words = [line for line in said.splitlines() if not line.startswith((" ", "See "))]
    assert all(len(line) <= min(width, 110) or " " not in line for line in words)
    assert said.split() == explanation(id).split()
    for example in re.findall(r"```diff\n(.*?)\n```", sections()[id], re.DOTALL):
        assert "\n".join(f"    {line}" for line in example.split("\n")) in said


def test_the_docstring_of_a_rule_is_wrapped_too(entry: str = "prepare") -> None:
    (doc,) = (rule.load().doc for rule in CATALOGUE if rule.id == entry)
    said = explained(entry, doc, "rules", width=40)
    assert "\n`prepare` averages the gradients over\nall processes and gives" in said and "``" not in said
    assert "\n     import torch\n" in said and "\n    +model, optimizer, loader = accelerator.prepare(\n" in said
    assert said.endswith(f"\n\nSee {address('rules', entry)}\n")


def test_an_explanation_has_colours_where_they_are_wanted() -> None:
    said = explanation("own-stream", color=True)
    assert said.startswith("\x1b[1mown-stream\x1b[0m\n") and "\x1b[1mWhat to do\x1b[0m (" in said
    assert "\x1b[31m    -" in said and "\x1b[32m    +" in said
    assert re.sub(r"\x1b\[\d*m", "", said) == explanation("own-stream")


def test_an_address_leads_to_a_heading() -> None:
    assert address("findings", "once") == f"{ADDRESS}/findings.md#once"
    assert address("findings", "too-deep") == f"{ADDRESS}/findings.md#round-trip-too-deep-invalid-output"
    assert address("findings", "progress_bars", "out-of-reach") == f"{ADDRESS}/findings.md#main_process-out-of-reach"
    assert address("findings", "once", "gone") == address("findings", "once")
    assert address("rules", "main_process") == f"{ADDRESS}/rules.md#main_process"


@pytest.mark.parametrize("id", ["local-decision", "backward", "missing-set-epoch"])
def test_nothing_heavy_is_imported_to_explain(id: str) -> None:
    code = (
        "import sys\nfrom torchlift.codemods.catalogue import CATALOGUE\nfrom torchlift.rewriter.cli.main import run\n"
        f"assert run(CATALOGUE, ['--explain', {id!r}]) == 0\n"
        "assert not {'libcst', 'rich', 'yaml', 'importlib.metadata'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(f"{id}\n")


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
