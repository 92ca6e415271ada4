"""The documentation: what is made from the code is up to date, and links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "fixtures").glob("*.md")])


def _build() -> Any:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_rules_is_up_to_date() -> None:
    wanted = _build().rules_page()
    assert (ROOT / "docs" / "rules.md").read_text(encoding="utf-8") == wanted, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_are_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} leads to {target}"


def test_the_pictures_are_small() -> None:
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size < 200_000, picture.name


def test_every_field_of_the_json_report_is_described() -> None:
    import json

    from torchlift.rewriter.findings import Severity
    from torchlift.rewriter.report.json_report import json_report
    from torchlift.rewriter.result import BehaviourReport, Change, Diagnosis, FileResult, Result, RoleReport, Trait
    from torchlift.rewriter.source import SourceError, decode

    file = FileResult(
        decode(b"a\n", Path("a.py")),
        b"b\n",
        (Change("backward", 1, 1, "because"),),
        (Diagnosis("once", Severity.NOTE, "m", "r"),),
        (RoleReport("x", "s", "loss", "b", 1),),
        (Trait("noise", "D", 1),),
        behaviour=(BehaviourReport("x", "s", "local", "b", 1),),
    )
    result = Result((file,), 1, {"target": "", "mixed_precision": "", "batch": ""})
    error = SourceError("x", 1, "c")
    document = json.loads(json_report(result, [error], status=0, written=False, verdict={"version": 1}))
    described = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "json.md").read_text(encoding="utf-8")))
    fields = {*document, *document["options"], *document["files"][0], *document["errors"][0]}
    for key in ("changes", "findings", "roles", "behaviour", "traits"):
        fields |= set(document["files"][0][key][0])
    assert not fields - described
