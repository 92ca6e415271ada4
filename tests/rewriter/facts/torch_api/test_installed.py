"""Tables of other packages: found without an import, loaded with the first name, part of what a verdict depends on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.facts.torch_api.installed import installed_tables
from torchlift.rewriter.gate.keys import UnknownVersion, judge

ROWS = (
    'ROWS = {\n    "mylib.pool": ("reduce", {"op": "mean", "dim": 1}),\n    "mylib.*Trainer": ("optimizer", {}),\n}\n'
)
ASK = """
import sys
from torchlift.rewriter.facts.torch_api.loading import row
from torchlift.rewriter.source import SourceError
assert "mylib_rows" not in sys.modules
try:
    print(*(row(name).transfer for name in sys.argv[1:]))
except SourceError as error:
    print(error)
"""


def install(folder: Path, entry: str, rows: str = ROWS, name: str = "mylib") -> Path:
    (folder / f"{name}-1.0.dist-info").mkdir()
    (folder / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(entry)
    (folder / "mylib_rows.py").write_text(rows)
    return folder / "mylib_rows.py"


def asked(folder: Path, *names: str) -> str:
    env = {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", ASK, *names]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=folder).stdout.strip()


ENTRY = "[console_scripts]\nmylib = mylib:main\n\n[torchlift.api_tables]\nmylib = mylib_rows:ROWS\n"


def test_rows_of_another_package_are_known(tmp_path: Path) -> None:
    install(tmp_path, ENTRY)
    assert asked(tmp_path, "mylib.pool", "mylib.GoodTrainer") == (
        "Reduce(op='mean', dim=1, keyword='dim', gives='value', two=False, sized='') Optimizer(whole=False)"
    )


@pytest.mark.parametrize(
    ("entry", "rows", "said"),
    [
        (ENTRY, ROWS.replace("reduce", "reduces"), "mylib_rows.py:2: the row of mylib.pool has the kind 'reduces'"),
        (
            ENTRY,
            ROWS.replace("mylib.pool", "torch.sum"),
            "mylib_rows.py:2: torch.sum has a row already. Remove this one.",
        ),
        (ENTRY, "x = 1\n", "entry_points.txt: the table 'mylib' of torchlift.api_tables cannot be loaded: module"),
        (ENTRY, "import nowhere\n", "cannot be loaded: No module named 'nowhere'. Mend or uninstall the package."),
        (ENTRY.replace("mylib_rows:", "elsewhere:"), ROWS, "cannot be loaded: No module named 'elsewhere'."),
    ],
    ids=["a kind that does not exist", "a name of ours", "no such attribute", "an import that fails", "no such module"],
)
def test_what_is_wrong_with_a_package_is_said(entry: str, rows: str, said: str, tmp_path: Path) -> None:
    install(tmp_path, entry, rows)
    assert said in asked(tmp_path, "torch.sum")


def test_the_group_is_found_among_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "[torchlift.api_tables]\n# ours\none = a.b:ROWS\ntwo=c\n[other]\nthree = d:ROWS\n")
    install(tmp_path, "[torchlift.api_tables_too]\nfour = e:ROWS\n", name="fourth")
    (tmp_path / "empty-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "nowhere.zip")])
    assert [(table.name, table.target, table.module) for table in installed_tables()] == [
        ("one", "a.b:ROWS", "a.b"),
        ("two", "c", "c"),
    ]


def test_a_verdict_depends_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "first"))
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    without = judge(CATALOGUE)
    file = install(tmp_path / "second", ENTRY)
    monkeypatch.syspath_prepend(str(tmp_path / "second"))
    installed = judge(CATALOGUE)
    file.write_text(ROWS.replace("mean", "sum"))
    assert len({without, installed, judge(CATALOGUE)}) == 3


def test_no_verdict_is_kept_where_their_code_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, ENTRY.replace("mylib_rows", "elsewhere"))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnknownVersion, match="elsewhere"):
        judge(CATALOGUE)
