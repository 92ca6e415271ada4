"""Files whose indentation Python reads and the parser does not: what is not edited keeps every byte."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.editing.indentation import evened, uneven
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import SourceError, decode

TRAINS = '''\
import torch

net = torch.nn.Linear(8, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.load("rows.pt", map_location="cpu"), 16)

def step(x, y):
    if x is not None:
\t    """
            a text  """
\t    # a remark
\t    if len(x) > 1:
\t        print("many")
\t    loss = torch.nn.functional.cross_entropy(
\tnet(x), y)
\t    optimizer.zero_grad()
\t    loss.backward()
\t    optimizer.step()
    return x

for x, y in loader:
    step(x, y)
'''


def migrated(text: str) -> FileResult:
    ast.parse(text)
    with pytest.raises(cst.ParserSyntaxError):
        cst.parse_module(text)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_tab_in_a_block_of_spaces(ending: str) -> None:
    text = TRAINS.replace("\n", ending)
    file = migrated(text)
    old, new = text.split(ending), file.after.decode().split(ending)
    assert [line for line in new if line not in old and line.startswith((" ", "\t"))] == [
        "    net, optimizer, loader",
        '\t        accelerator.print("many")',
        "\t    accelerator.backward(loss)",
    ]
    assert set(old) - set(new) == {old[2], '\t        print("many")', "\t    loss.backward()"}
    ast.parse(file.after)
    assert (17, 6) in [(change.line, change.column) for change in file.changes if change.rule == "backward"]


def test_what_cannot_be_written_back_is_named() -> None:
    text = TRAINS.replace("            a text", "    \t    a text")
    with pytest.raises(SourceError) as refused:
        migrated(text)
    assert (refused.value.line, "not valid" in str(refused.value)) == (9, False)
    assert "Python reads the tabs and spaces before this line" in refused.value.cause


READ = {
    "spaces in a tab": "if a:\n\tif b:\n \t c\n\telse:\n\t\td\n",
    "two in one": "if a:\n    if b:\n\t    c\n    if d:\n\t    e\n\t    if f:\n\t\t    g\n",
    "nested": "if a:\n  if b:\n\t  if c:\n\t\t  d\n\t  # of b\n  # of a\n",
    "comments below": "if a:\n    if b:\n\t    c\n\t    # after\n# at the top\n\t# anywhere\nd\n",
}


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_is_read_and_written_back(text: str) -> None:
    ast.parse(text)
    with pytest.raises(cst.ParserSyntaxError):
        cst.parse_module(text)
    found = evened(text)
    assert found is not None
    tree = cst.parse_module(found.text)
    assert found.back(tree.code) == text
    assert ast.dump(ast.parse(found.text)) == ast.dump(ast.parse(text))


@pytest.mark.parametrize("text", ["if a:\n    b\n", "if a:\n\tb\n\tif c:\n\t\td\n", "", "x = (\n"])
def test_other_text_needs_nothing(text: str) -> None:
    assert evened(text) is None
    assert uneven(text) == 0
