"""The page: everything is on it, nothing of the user's gets out of its place, and a browser shows it."""

from __future__ import annotations

import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from torchlift.rewriter.cli.main import run
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.report.curves import picture
from torchlift.rewriter.report.html import page
from torchlift.rewriter.report.html_frames import code_words
from torchlift.rewriter.result import Change, Diagnosis, FileResult, Result, RoleReport
from torchlift.rewriter.source import Source
from torchlift.rewriter.verify.handover import SeenPromise, SeenRow, SeenVerdict

EVIL = "</td><script>alert(1)</script>&'\""
VOID = {"meta", "br", "col", "wbr"}


class Reader(HTMLParser):
    """Reads a page: its text, and whether every element is closed where it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def result(before: str = "a\nb\n", after: str = "a\nc\n") -> Result:
    source = Source(Path(f"dir/{EVIL}.py"), before.encode(), before, "utf-8")
    changes = (Change("backward", 2, 1, f"because {EVIL}"),)
    findings = (
        Diagnosis("note-id", Severity.NOTE, "a note", ""),
        Diagnosis("stop-id", Severity.BLOCKED, f"stop {EVIL}", f"do {EVIL}", 2, 1),
    )
    return Result((FileResult(source, after.encode(), changes, findings),), 1)


def verdict(**given: object) -> SeenVerdict:
    promises = (SeenPromise("losses", "the same losses", 2, "broken", f"loss {EVIL}", 3, ""),)
    curves = {"original": [2.0, 1.0, float("nan")], "2": [2.0, 1.5]}
    rows = (SeenRow("the same losses", "2", "broken", f"step 3: loss {EVIL}"),)
    defaults = {
        "status": 1, "mode": "exact", "promises": promises, "notes": (f"held {EVIL}",), "drawing": (), "rows": rows,
        "original_error": "", "kept": (), "data": {"curves": curves},
    }  # fmt: skip
    return SeenVerdict(**{**defaults, **given})  # type: ignore[arg-type]


def test_an_empty_result_is_a_page() -> None:
    reader = read(page(Result(), ()))
    assert "Nothing to change" in reader.text


def test_the_users_text_stays_text() -> None:
    reader = read(page(result(f"{EVIL}\nb\n", f"{EVIL}\nc\n"), (), verdict()))
    assert reader.tags.count("script") == 1, "ours"
    text = "".join(reader.text)
    for words in (f"because {EVIL}", f"stop {EVIL}", f"do {EVIL}", f"loss {EVIL}", f"held {EVIL}", f"dir/{EVIL}.py"):
        assert words in text


def test_the_worst_findings_come_first() -> None:
    text = "".join(read(page(result(), ())).text)
    assert text.index("stop-id") < text.index("note-id")


def test_the_reasons_stand_above_their_lines() -> None:
    text = page(result(), ()).partition("class='sheet'")[2]
    assert text.index("because") < text.index("<td class='old full'>b</td>") < text.index("<td class='new full'>c</td>")


def test_the_words_that_differ_are_marked_also_where_they_are_coloured() -> None:
    text = page(result("a\ndef f(device): pass\n", "a\ndef f(accelerator): pass\n"), ())
    assert "<span class='k'>def</span> <span class='f'>f</span>(<del>device</del>)" in text
    assert "(<ins>accelerator</ins>): <span class='k'>pass</span>" in text


def test_no_text_turns_its_line_around() -> None:
    """A control character for the direction of text is spelled out: it would show another code than Python reads."""
    (file,) = result("a = 1  # \u202e\nb\n", "a = 1  # \u202e\nc\n").files
    found = Diagnosis("once", Severity.REVIEW, "look", "", 1)
    text = page(Result((file._replace(diagnoses=(found,)),), 1), ())
    assert "\u202e" not in text and text.count("\\u202e") == 3


@pytest.mark.parametrize("text", ["x = '''\n", "def (:\n", "\x0c\n", "x = 1 \\\n", "a = 'é' # ü\n"])
def test_what_is_no_python_is_shown_without_colours(text: str) -> None:
    read(page(result(text, text + "more\n"), ()))


def test_what_is_left_comes_first_and_is_said_where_there_is_nothing() -> None:
    text = page(result(), ())
    assert text.index("stop-id") < text.index("What changes at run time") < text.index("class='sheet'")
    assert "No findings" in page(Result(result().files[:0], 1), ())


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page(result(), (), verdict())
    assert not re.findall(r"""(?:src|href)=['"](?!#)|url\(|@import|fetch\(|import\(""", text)


def test_roles_and_what_rules_do_are_on_the_page() -> None:
    (file,) = result().files
    role = RoleReport("net", "<module>", "model", f"because {EVIL}", 3)
    text = "".join(read(page(Result((file._replace(roles=(role, role)),), 1), (), rules={"backward": "Does it."})).text)
    assert text.count("<module>") == 1
    assert "Does it." in text


def test_the_losses_are_drawn_and_what_is_no_number_is_left_out() -> None:
    text = page(result(), (), verdict())
    assert text.count("<polyline") == 2
    assert "nan" not in text
    assert "migrated, on 2" in text


def test_the_outcome_and_what_to_run_next_stand_on_top() -> None:
    text = page(result(), (), verdict(), hints=["To apply:  migrate --write 'my train.py'"])
    top = text.partition("<main id='main'>")[2]
    outcome = "1 file blocked, 1 file would change in part; 1 file checked."
    assert top.lstrip().startswith(f"<section id='next' class='bad'><p>{outcome}")
    assert (
        "<dt>To apply</dt><dd>migrate <span class='o'>--write</span> &#x27;my train.py&#x27;</dd></dl></section>" in top
    )
    assert top.index("id='next'") < top.index("id='verdict'") < top.index("id='findings'")


def test_counts_are_those_of_the_first_line() -> None:
    """A finding of which two places are told is one, and edits that are not made are none."""
    (file,) = result().files
    (note, stop) = file.diagnoses
    stopped = FileResult(file.source, file.source.data, file.changes, (stop._replace(cause=None, line=1), stop))
    text = page(Result((file._replace(diagnoses=(note, note)), stopped), 2), ())
    assert "1 edit, 2 findings (1 blocked, 1 note)." in text
    assert "<p class='dim'>1 edit, 2 files checked</p>" in text and "<span>Findings</span><span>2</span>" in text
    counts = re.findall(r"data-filter='severity' data-value='(\w+)' aria-pressed='false'>[\w ]+ <b>(\d+)</b>", text)
    assert counts == [("blocked", "1"), ("note", "1"), ("safe", "1")]
    assert ">safe edits <b>1</b>" in text, "what it counts is said, beside the severities of findings"


def test_a_finding_is_also_in_the_diff_below_its_line() -> None:
    lines = [f"line{number}" for number in range(1, 40)]
    before, after = ("\n".join([*lines, last, ""]) for last in ("b", "c"))
    (file,) = result(before, after).files
    found = Diagnosis("calm", Severity.REVIEW, "`x` may differ", "look", 7)
    text = page(Result((file._replace(diagnoses=(found,)),), 1), ())
    row = "<tr class='said review'><td colspan='4'><a href='#finding0'><b class='word'>review</b>"
    sheet = text.partition("<table class='diff'>")[2]
    assert f"{row} <span class='chip'>calm</span></a><code>x</code> may differ</td></tr>" in sheet
    assert ">line7</td></tr>" in sheet.partition(row)[0].rpartition("<tr id=")[2]
    assert ">line20<" not in sheet, "what is around it, and no more"


def test_a_hunk_names_the_function_around_it() -> None:
    before = "def train(x):\n" + "    x = 1\n" * 9 + "    a\n"
    text = page(result(before, before.replace("    a\n", "    c\n")), ())
    assert "<td colspan='4'>line 8, in def train</td>" in text


def test_a_file_without_edits_is_listed_with_its_findings() -> None:
    (file,) = result().files
    stopped = FileResult(file.source, file.source.data, (), file.diagnoses)
    names = page(Result((stopped,), 1), ()).partition("class='files'")[2].partition("</ul>")[0]
    assert "<span title='2 findings'>2 findings</span>" in names
    assert "<span title='1 edit'>1</span>" in page(result(), ())


def test_code_in_words_is_code() -> None:
    (file,) = result().files
    found = Diagnosis("local-decision", Severity.BLOCKED, "`x` differs", "write `y`", 1)
    change = Change("backward", 2, 1, "because of `z`")
    role = RoleReport("net", "f", "model", "given by `Net`", 3)
    told = file._replace(diagnoses=(found,), changes=(change,), roles=(role,))
    text = page(Result((told,), 1), (), verdict(notes=("a `b`",)), rules={"backward": "Call ``loss``."})
    body = text.partition("</style>")[2].partition("<script>")[0]
    assert "`" not in body
    for word in ("x", "y", "z", "Net", "b", "loss"):
        assert f"<code>{word}</code>" in body


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("write accelerator.reduce(x.sum()) first", ["accelerator.reduce(x.sum())"]),
        ("after prepare(...), with Accelerator(cpu=True)", ["prepare(...)", "Accelerator(cpu=True)"]),
        ("see train.py, or say --keep-global-batch.", ["train.py", "--keep-global-batch"]),
        ("in backticks: `a < b`, ``c``", ["a < b", "c"]),
        ("the process(es) that wait. Each of 2.5 million rows, 1/N of them", []),
        ("e.g. this, i.e. that", []),
        ("give it device=, or cpu=..., PYTHONHASHSEED=0.", ["device=", "cpu=...", "PYTHONHASHSEED=0"]),
        ("say --assume loader=batch, or use torchlift launch", ["--assume loader=batch", "torchlift launch"]),
        ("see lib/utils.py:126, n.ipynb: sorted(names)", ["lib/utils.py:126", "n.ipynb", "sorted(names)"]),
        ("first: x = accelerator.gather(x.to(d)).sum(), y", ["x = accelerator.gather(x.to(d)).sum()"]),
        ("make accelerator = Accelerator(); if a = b holds", ["accelerator = Accelerator()"]),
        ("add from torchlift.runtime import Inert; done", ["from torchlift.runtime import Inert"]),
        ("rows == 3, a <= b; file(s) and value(s)", []),
    ],
)
def test_what_is_set_as_code_in_a_sentence(text: str, code: list[str]) -> None:
    found = re.sub("</?span.*?>", "", code_words(text))
    assert [unescape(one) for one in re.findall("<code>(.*?)</code>", found)] == code
    assert unescape(re.sub("</?code>", "", found)) == text.replace("`", "")


def test_no_line_is_broken_in_an_option() -> None:
    assert code_words("say `--steps 3`") == "say <code><span class='o'>--steps</span> 3</code>"
    assert "span" not in code_words("in `a-b.py` and `x - y`")


def test_every_link_leads_somewhere() -> None:
    """Also that of a line which no diff shows, and that of a file which does not change."""
    (file,) = result(before="a\nb\n" + "x\n" * 90, after="a\nc\n" + "x\n" * 90).files
    found = tuple(Diagnosis("once", Severity.REVIEW, f"look {line}", "", line) for line in (0, 2, 80))
    same = FileResult(file.source._replace(path=Path("same.py")), file.source.data, (), found)
    text = page(Result((file._replace(diagnoses=found), same), 2), ())
    targets = set(re.findall("href='#([^']*)'", text))
    assert {"file0", "file0-2", "file1"} <= targets and targets <= set(re.findall(" id='([^']*)'", text))


def test_what_an_id_means_is_said_once() -> None:
    (file,) = result().files
    stops = [Diagnosis("local-decision", Severity.BLOCKED, f"stop {n}", "", 1) for n in range(3)]
    text = page(Result((file._replace(diagnoses=tuple(stops)),), 1), ())
    assert text.count("What local-decision means") == 1
    meant = "".join(read(text).text).partition("What local-decision means")[2]
    assert "process" in meant[:400]


def test_many_programs_have_a_line_each_and_many_places_are_folded() -> None:
    (file,) = result().files
    stop = Diagnosis("once", Severity.REVIEW, "look", "", 1)
    files = [file._replace(source=file.source._replace(path=Path(f"p{n}.py")), diagnoses=(stop,)) for n in range(9)]
    text = page(Result(tuple(files), 9), (), programs=[[one.source.path] for one in files])
    assert text.count("<tr class='review'><td>to review</td><td><a href='#file") == 9
    assert "<summary>and 3 other places</summary>" in text
    assert "id='programs'" not in page(Result(tuple(files), 9), ())


def test_what_is_broken_comes_first_with_its_line_and_its_cause() -> None:
    held = SeenRow("the same files", "1, 2", "held")
    place = {"at": "train.py:9", "code": "print(total < 2)", "side": "migrated", "cause": "call `gather(x)`"}
    broken = SeenRow("the same figures", "2", "broken", "1 is not 2", **place)
    text = page(result(), (), verdict(rows=(broken, held), conclusion="BROKEN: 1 of 2.", left_out="Nothing is saved."))
    words = "".join(read(text).text)
    assert words.index("BROKEN: 1 of 2.") < words.index("the same figures") < words.index("the same files")
    assert "1 is not 2train.py:9, in the migrated script9print(total < 2)likely cause: call gather(x)" in words
    assert "Nothing is saved." in words and "<code>gather(x)</code>" in text


def test_an_original_that_does_not_run_is_said_with_its_traceback() -> None:
    reader = read(page(result(), (), verdict(original_error=f"Traceback {EVIL}")))
    assert f"Traceback {EVIL}" in "".join(reader.text)
    assert "svg" not in reader.tags


def test_a_flat_curve_is_a_picture() -> None:
    read(picture({"original": [1.0]}))
    read(picture({"original": [1.0, 1.0], "migrated": [1.0, 1.0]}))


def test_the_command_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchlift.codemods.catalogue import CATALOGUE

    monkeypatch.chdir(tmp_path)
    fixture = Path(__file__).parents[3] / "fixtures" / "gan" / "before.py"
    shutil.copy(fixture, "train.py")
    assert run(CATALOGUE, ["--html", "page.html", "train.py"]) == 0
    assert "<ins>accelerator</ins>.backward(<ins>g_loss</ins>)" in Path("page.html").read_text(encoding="utf-8")
    assert run(CATALOGUE, ["--html", "missing/page.html", "train.py"]) == 3
    assert "missing/page.html: the page cannot be written" in capsys.readouterr().err


def test_what_blocks_is_named_on_top_and_leads_to_its_finding() -> None:
    (file,) = result().files
    found = (
        Diagnosis("once", Severity.REVIEW, "look", "", 1),
        Diagnosis("local-decision", Severity.BLOCKED, "stop", "", 2),
    )
    text = page(Result((file._replace(diagnoses=found),), 1), ())
    top = text.partition("<section id='next'")[2].partition("</section>")[0]
    ((target, where),) = re.findall("Blocked by: <a href='#(.*?)'>(.*?)</a>", top)
    assert target == "finding0" and where.endswith(":2")
    assert re.search("id='finding0' class='finding blocked'", text)
    assert "Blocked by" not in page(Result((file._replace(diagnoses=found[:1]),), 1), ())


def test_an_example_has_the_colours_of_a_diff() -> None:
    (file,) = result().files
    stop = Diagnosis("local-decision", Severity.BLOCKED, "stop", "", 1)
    meant = page(Result((file._replace(diagnoses=(stop,)),), 1), ()).partition("What local-decision means")[2]
    example = re.findall("<pre>(.*?)</pre>", meant, re.DOTALL)[0]
    signs = {line[:6] for line in example.splitlines() if line.startswith("<")}
    assert signs == {"<del>-", "<ins>+"}


def test_code_that_a_sentence_begins_with_is_one_piece() -> None:
    from torchlift.rewriter.report.html import _named

    assert _named("n % args.every == 0 (train.py:3, 5): this counts").startswith("`n % args.every == 0` (train.py:3")
    assert _named("len(loader) (line 41): after") == "`len(loader)` (line 41): after"
    assert _named("On a Mac (with a GPU): more") == "On a Mac (with a GPU): more"


def test_the_code_of_a_remedy_is_one_block() -> None:
    (file,) = result("a = 1\n", "a = 2\n").files
    found = Diagnosis("once", Severity.REVIEW, "m", "write it first:\n    import x\n    x.make()\nthen go on", 1)
    text = page(Result((file._replace(diagnoses=(found,)),), 1), ())
    assert "write it first: <pre>import x\nx.make()</pre> then go on" in text


def test_keys_are_named_where_there_are_changes_and_commands_can_be_copied() -> None:
    (file,) = result().files
    idle = Result((file._replace(after=file.source.data, changes=()),), 1)
    assert "<h2>Keys</h2>" in page(result(), ()) and "<h2>Keys</h2>" not in page(idle, ())
    text = page(result(), (), hints=["To apply:  migrate --write a.py"])
    assert "<dd>migrate <span class='o'>--write</span> a.py</dd>" in text and "navigator.clipboard" in text


def test_what_is_wrapped_of_a_line_is_indented() -> None:
    long = f"    total = {' + '.join(['value'] * 12)}\n"
    text = page(result(long, f"{long}    c\n"), ())
    assert "<td class='old long' style='--i:4'>" in text
    assert "class='new full'>" in text and "<td class='new full long'" not in text


def test_code_with_a_call_in_a_call_is_one_piece() -> None:
    said = code_words("move it to next(self.net.parameters()).device now")
    assert "<code>next(self.net.parameters()).device</code>" in said
