"""The documentation: what is made from the code is up to date, findings are described, links lead somewhere."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchlift.rewriter.report.explaining import PAGE, cases, sections

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


def test_the_pictures_are_small_and_shown() -> None:
    pictures = list((ROOT / "docs" / "images").iterdir())
    assert sum(picture.stat().st_size for picture in pictures) < 700_000
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    shown = {Path(name).name for name in re.findall(r"""(?:src|srcset)="([^"]+)\"""", text)}
    assert shown == {picture.name for picture in pictures}


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


# ---------------------------------------------------------------- findings


def literals(node: ast.expr) -> set[str]:
    """The texts that an expression may be; empty where that cannot be told."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.IfExp):
        return literals(node.body) | literals(node.orelse)
    return set()


class Ids:
    """The ids of the findings that a file makes, read from its text."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        self.functions = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]

    def found(self) -> Iterator[tuple[ast.Call, set[str]]]:
        """Each finding that is made, and the ids that it may have: none where that cannot be told."""
        for call in self.calls:
            if isinstance(call.func, ast.Name) and call.func.id in ("Finding", "Diagnosis"):
                yield call, self._ids(call, call.args[0])

    def _ids(self, call: ast.AST, given: ast.expr) -> set[str]:
        if not isinstance(given, ast.Name):
            return literals(given)
        inside = [f for f in self.functions if any(node is call for node in ast.walk(f))]
        bodies: list[ast.AST] = [*reversed(inside), self.tree]
        for body in bodies:
            if isinstance(body, ast.FunctionDef):
                for place, argument in enumerate(body.args.args):
                    if argument.arg == given.id:
                        return self._handed(body.name, place, given.id)
            if found := _assigned(body, given.id):
                return found
        return set()

    def _handed(self, function: str, place: int, name: str) -> set[str]:
        """What the calls of a function of the same file hand on in one place."""
        ids = set[str]()
        for call in self.calls:
            if isinstance(call.func, ast.Name) and call.func.id == function:
                named = [word.value for word in call.keywords if word.arg == name]
                ids |= self._ids(call, named[0] if named else call.args[place])
        return ids


def _assigned(body: ast.AST, name: str) -> set[str]:
    """The texts that a name is given in a function or module."""
    ids = set[str]()
    for node in ast.walk(body):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            ids |= literals(node.value)
    return ids


UNCLEAR = {
    "rewriter/editing/diagnosed.py: finding.id",  # gives a finding its place
    "rewriter/gate/cache.py: id",  # reads what was kept of one
    # rules: main_process, downloads, progress_bars
    "rewriter/planning/unreachable.py: _RULES.get(effect.kind, 'main_process')",
}


def test_the_page_of_findings_is_the_one_that_the_package_has() -> None:
    assert (ROOT / "docs" / "findings.md").read_bytes() == PAGE.read_bytes(), "edit that of the package; make docs"


def test_the_page_of_findings_lists_its_contents() -> None:
    """It has about 90 ids: a reader without the command finds one by the list."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == _build().findings_page(), "make docs"
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    listed = re.findall(r"^- \[([^\]]+)\]\(#[a-z0-9_-]+\): ", text, re.MULTILINE)
    assert listed == headings


def test_every_finding_has_its_place_in_the_documentation() -> None:
    """A heading of its own, and no heading is left of a finding that nobody makes."""
    made, unclear = set[str](), set[str]()
    for wing in ("rewriter", "codemods"):
        for file in sorted((ROOT / wing).rglob("*.py")):
            for call, ids in Ids(file.read_text(encoding="utf-8")).found():
                made |= ids
                if not ids:
                    unclear.add(f"{file.relative_to(ROOT).as_posix()}: {ast.unparse(call.args[0])}")
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    headings = {id for line in re.findall(r"^## (.+)$", text, re.MULTILINE) for id in line.split(", ")}
    assert unclear == UNCLEAR
    more = {"notebook", "progress_bars"}  # what is moved in a notebook, by no rule; the rule of an unclear one
    assert headings == made | more


class Cases(Ids):
    """The cases of the findings that a file makes: with a word each, ``case="..."``."""

    def pairs(self) -> set[tuple[str, str]]:
        """Each id with a case that its findings may have."""
        found = set[tuple[str, str]]()
        made = {id(call) for call, _ in self.found()}
        handed = set[str]()  # what a class of the file keeps, or a function hands on
        for call in self.calls:
            if id(call) not in made:
                helper = next((f for f in self.functions if f.name == getattr(call.func, "id", "")), None)
                ids = self._of(call, helper) if helper is not None else set[str]()
                found |= {(one, case) for one in ids for case in _case(call)}
                handed |= set[str]() if ids else _case(call)
        for call, ids in self.found():
            kept = handed if ast.unparse(_word(call) or ast.Constant("")).endswith(".case") else _case(call)
            found |= {(one, case) for one in ids or unclear_ids(call) for case in kept}
        return found

    def without(self) -> set[str]:
        """The ids of which a finding is made with no case."""
        return {one for call, ids in self.found() if _word(call) is None for one in ids}

    def _of(self, call: ast.Call, helper: ast.FunctionDef) -> set[str]:
        """The ids of the findings that a function makes with the case that a call of it hands on."""
        inside = [(one, ids) for one, ids in self.found() if any(node is one for node in ast.walk(helper))]
        return {one for made, ids in inside for one in (literals(call.args[0]) if _is_given(made, helper) else ids)}


def _is_given(made: ast.Call, helper: ast.FunctionDef) -> bool:
    return isinstance(made.args[0], ast.Name) and made.args[0].id == helper.args.args[0].arg


def _word(call: ast.Call) -> ast.expr | None:
    given = next((word.value for word in call.keywords if word.arg == "case"), None)
    return given if given is not None or len(call.args) < 9 - ("Finding" in ast.unparse(call.func)) else call.args[-1]


def _case(call: ast.Call) -> set[str]:
    given = _word(call)
    return literals(given) - {""} if given is not None else set()


def unclear_ids(call: ast.Call) -> set[str]:
    """The ids of the one finding whose id is chosen from a table."""
    return {"main_process", "downloads"} if "_RULES" in ast.unparse(call.args[0]) else set()


def test_every_case_of_a_finding_is_explained_and_no_other() -> None:
    """An id has a heading for each of its cases, or none; where it has some, each of its findings says which it is."""
    made, bare = set[tuple[str, str]](), set[str]()
    for wing in ("rewriter", "codemods"):
        for file in sorted((ROOT / wing).rglob("*.py")):
            read = Cases(file.read_text(encoding="utf-8"))
            made |= read.pairs()
            bare |= read.without()
            refused = (call for call in read.calls if getattr(call.func, "id", "") in ("NotGathered", "displays"))
            made |= {("notebook-state", case) for call in refused for case in _case(call)}
            if file.parent.name == "wording":  # a table of refusals that share one id
                shared = (call for call in read.calls if getattr(call.func, "id", "") == "blocked")
                made |= {("already-distributed", case) for call in shared for case in _case(call)}
    told = {(id.partition(", ")[0], case) for id in sections() for case in cases(id)}
    assert made == {pair for pair in told if pair[0] != "progress_bars"}
    assert bare.isdisjoint({id for id, _ in made})


def test_the_cases_of_findings_are_read_from_the_code() -> None:
    text = (
        'def f(n):\n    return Finding("a", n, "m", case="one")\n'
        'def g(id, n, *, case=""):\n    return Finding(id, n, case=case)\n'
        'g("b", 1, case="two" if x else "three")\ng("c", 1)\n'
        'def h(found):\n    return Finding("d", found.node, case=found.case)\nDecision(1, case="four")\n'
    )
    pairs = {("a", "one"), ("b", "two"), ("b", "three"), ("d", "four")}
    assert Cases(text).pairs() == pairs


IDS = {
    "a text": ('Finding("a-b", node)', {"a-b"}),
    "one of two": ('Finding("a" if x else "b", node)', {"a", "b"}),
    "a constant of the module": ('ID = "a"\ndef f():\n    yield Finding(ID, node)', {"a"}),
    "a variable": ('def f():\n    id = "a"\n    return Finding(id, node)', {"a"}),
    "a parameter": ('def f(node, id):\n    return Finding(id, node)\nf(n, "a")\nf(n, id="b")', {"a", "b"}),
    "in a comment": ('# Finding("a", node)', set()),
    "unknown": ("Finding(ids[0], node)", set()),
}


@pytest.mark.parametrize(("text", "ids"), IDS.values(), ids=IDS)
def test_the_ids_of_findings_are_read_from_the_code(text: str, ids: set[str]) -> None:
    assert {id for _, some in Ids(text).found() for id in some} == ids


# ---------------------------------------------------------------- names of other places

HOSTS = {
    "github.com": "the tool of the SARIF report, and hooks that CI uses",
    "cdnjs.cloudflare.com": "fonts that Rich names in its pictures",
    "www.textualize.io": "the maker of those pictures",
    "www.w3.org": "names of XML",
    "json.schemastore.org": "the schema of SARIF",
    "www.apache.org": "the licence",
    "bford.info": "the tag of a folder that holds a cache",
    "cosmic-ray.readthedocs.io": "the tester that makes mutants",
    "semver.org": "how versions are counted",
    "keepachangelog.com": "how changes are listed",
    "download.pytorch.org": "where torch without CUDA is",
    "x": "an address in a test",
}
FOLDERS = ("home", "root", "work", "workspace", "Users", "mnt", "srv")
SUFFIXES = ("py", "md", "toml", "yaml", "yml", "json", "txt", "css", "js", "svg", "ipynb", "cfg", "typed", "pyi")


def _texts() -> list[Path]:
    wings = ("rewriter", "codemods", "runtime", "docs", "fixtures", "tests", "benchmarks", ".ci")
    files = [file for wing in wings for file in (ROOT / wing).rglob("*") if "__pycache__" not in file.parts]
    files += [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.txt"), ROOT / "Makefile", ROOT / "LICENSE"]
    return [file for file in files if file.is_file() and (file.suffix[1:] in SUFFIXES or not file.suffix)]


def other_places(text: str) -> set[str]:
    """Hosts that the project has no reason to name, folders of somebody's machine, addresses of people."""
    hosts = set(re.findall(r"https?://([\w.-]+)", text)) - HOSTS.keys()
    folders = re.findall(rf"(?<![\w.<)\]}}])/(?:{'|'.join(FOLDERS)})/[\w.-]+", text)
    people = re.findall(r"(?<![\w.\\-])[\w.-]+@[\w-]+\.[a-z]{2,}\b", text)
    return {*hosts, *folders, *(one for one in people if not one.endswith("@example.org"))}


def test_what_is_shipped_names_no_other_place() -> None:
    """The project stands by itself."""
    texts = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8", errors="replace") for file in _texts()}
    assert {"README.md", "Makefile", "runtime/accelerator/facade.py", "fixtures/gan/before.py"} <= texts.keys()
    assert {name: places for name, text in texts.items() if (places := other_places(text))} == {}


def test_other_places_are_found() -> None:
    folder, person, host = f"/{FOLDERS[0]}/someone", "@".join(("someone", "some.where")), "some.where.example"
    text = (
        f"see {folder}/notes, ask {person} and not someone@example.org, or look at https:"
        + f"//{host}/wiki; not https://github.com/a/b"
    )
    assert other_places(text) == {folder, person, host}


def test_the_paths_that_contributors_are_sent_to_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"(?<![\w/])(?:rewriter|codemods|runtime)/[\w/]*(?:\.py\b|/(?=[\s`)(]))", text))
    assert {"rewriter/planning/prepare.py", "runtime/compat/"} <= named
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
