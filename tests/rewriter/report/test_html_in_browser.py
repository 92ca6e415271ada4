"""The page in a real browser: filters, keys, navigation, light and dark, narrow windows, and without its script."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.html import page
from torchlift.rewriter.result import Diagnosis, FileResult, Result
from torchlift.rewriter.source import decode, read
from torchlift.rewriter.verify.handover import SeenRow, SeenVerdict


def _beside(name: str) -> Any:
    """A module of this folder, which is on no path."""
    spec = importlib.util.spec_from_file_location(f"beside_{name}", Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


browser = _beside("browser")

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"
SHOWN = "[...document.querySelectorAll('tbody.changed')].filter(b => b.offsetParent !== null)"
FOUND = "[...document.querySelectorAll('.finding')].filter(b => b.offsetParent !== null)"
HUNKS = """Object.values(Object.groupBy([...document.querySelectorAll('tbody.changed:not([hidden])')],
  b => b.closest('section').id + ' ' + b.dataset.hunk)).map(bodies => bodies.map(b => b.dataset.rules).join(' '))"""
TOP = (
    "new Promise(r => setTimeout(() => requestAnimationFrame(r), 100))"
    ".then(() => document.getElementById('{}').getBoundingClientRect().top)"
)
"""Where something is, when what has come into sight is laid out."""
GROUND = "getComputedStyle(document.body).backgroundColor"

pytestmark = [
    pytest.mark.skipif(browser.found() is None, reason="needs a browser: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]


def _result() -> Result:
    files: list[FileResult] = []
    for name in ("mnist_functions", "gan", "already_distributed"):
        files += migrate([read(FIXTURES / name / "before.py")], CATALOGUE, Config()).files
    evil = f"x = 1  # {EVIL}\n"
    found = Diagnosis("once", Severity.REVIEW, f"look {EVIL}", f"do {EVIL}", 1)
    source = decode(evil.encode(), Path(f"dir/{EVIL.replace('/', '|')}.py"))
    files.append(FileResult(source, (evil + "y = 2\n").encode(), diagnoses=(found,)))
    return Result(tuple(files), len(files), {"batch": "process"})


def _verdict() -> SeenVerdict:
    place = {"at": "train.py:9", "code": f"print({EVIL!r})", "side": "migrated", "cause": "call `gather(x)`"}
    broken = SeenRow("the same numbers", "2", "broken", "1, not `2`", **place)
    rows = (broken, SeenRow("the same losses", "1, 2", "held"))
    curves = {"original": [2.0, 1.0, 0.7], "2": [2.0, 1.0, 0.71]}
    return SeenVerdict(1, "exact", (), ("a note",), (), "", (), {"curves": curves}, conclusion="BROKEN.", rows=rows)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    rules = {entry.id: entry.load().summary for entry in CATALOGUE}
    path.write_text(page(_result(), (), _verdict(), rules), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    opened = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def shown(window: Any, file: Path) -> Iterator[Any]:
    """The page, freshly loaded, in a wide light window."""
    window.colours("light")
    window.size(1400)
    window.open(file)
    window.run("localStorage.clear()")
    window.open(file)
    yield window
    assert window.errors == []
    assert window.run("window.evil") is None


def test_a_rule_filters_changes_and_another_click_shows_all(shown: Any) -> None:
    everything = shown.run(f"{SHOWN}.length")
    shown.run("document.querySelector('[data-value=backward]').click()")
    hunks = shown.run(HUNKS)
    assert 0 < len(hunks) < everything
    assert all("backward" in rules for rules in hunks)
    assert "findings shown" in shown.run("document.getElementById('shown').textContent")
    assert shown.run("document.querySelectorAll('.none:not([hidden])').length") == 1, "a file without such a change"
    shown.run("document.querySelector('[data-value=backward]').click()")
    assert shown.run(f"{SHOWN}.length") == everything


def test_a_severity_filters_findings(shown: Any) -> None:
    everything = shown.run(f"{FOUND}.length")
    shown.run("document.querySelector('[data-value=blocked]').click()")
    blocked = shown.run(f"{FOUND}.map(f => f.dataset.rules)")
    assert set(blocked) == {"already-distributed"}
    assert len(blocked) < everything
    assert shown.run(f"{SHOWN}.length") == 0
    shown.key("Escape")
    assert shown.run(f"{FOUND}.length") == everything


def test_the_gravest_finding_comes_first_and_leads_to_its_line(shown: Any) -> None:
    assert shown.run("document.querySelector('.finding .word').textContent") == "blocked"
    shown.run("[...document.querySelectorAll('.finding')].at(-1).querySelector('a').click()")
    assert shown.run("document.querySelector(location.hash).textContent").startswith("1x = 1")


def test_keys_go_from_change_to_change_and_open_reasons(shown: Any) -> None:
    shown.key("j")
    shown.key("j")
    assert shown.run(f"{SHOWN}.indexOf(document.querySelector('.current'))") == 1
    shown.key("k")
    assert shown.run(f"{SHOWN}.indexOf(document.querySelector('.current'))") == 0
    shown.key("o")
    assert shown.run("document.querySelector('.current dd').checkVisibility()")
    assert "the script now calls the accelerator" in shown.run("document.querySelector('.current dd').innerText")


def test_the_mouse_asks_for_reasons_and_a_click_keeps_them(shown: Any) -> None:
    row = "document.querySelectorAll('tbody.changed tr.change')[1]"
    shown.run(f"{row}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    x, y = shown.run(f"(r => [r.left + 200, r.top + 5])({row}.getBoundingClientRect())")
    shown.mouse(x, y)
    assert shown.run("document.querySelector('.card').checkVisibility()")
    assert "the accelerator is a parameter of train" in shown.run("document.querySelector('.card').innerText")
    shown.mouse(x, y, click=True)
    assert not shown.run("document.querySelector('.card').checkVisibility()")
    assert shown.run(f"{row}.closest('tbody').querySelector('dl').checkVisibility()")


def test_the_sidebar_leads_to_the_files(shown: Any) -> None:
    shown.run("document.querySelector('.side a[href=\"#file1\"]').click()")
    assert shown.run("location.hash") == "#file1"
    assert abs(shown.run(TOP.format("file1"))) < 40


def test_light_and_dark_follow_the_system_until_somebody_chooses(shown: Any, file: Path) -> None:
    light = shown.run(GROUND)
    shown.colours("dark")
    dark = shown.run(GROUND)
    assert light == "rgb(255, 255, 255)"
    assert dark != light
    shown.key("t")
    assert shown.run(GROUND) == light
    shown.open(file)
    assert shown.run(GROUND) == light, "the choice is kept"
    assert shown.run("document.getElementById('theme').textContent") == "Dark"


CONTRAST = r"""(() => {
  const parts = (text) => { const m = text.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m[3] ?? 1]; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, n) => sum + v * [.2126, .7152, .0722][n], 0);
  const ground = (e) => { for (; e; e = e.parentElement) {
    const c = parts(getComputedStyle(e).backgroundColor); if (c[3] > .9) return c; } return [255, 255, 255, 1]; };
  let worst = { ratio: 99 };
  for (const e of document.querySelectorAll('main *, .side *')) {
    const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!text || !e.checkVisibility() || e.closest('svg') || e.matches('.n')) continue;
    const [a, b] = [light(parts(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst.ratio) worst = { ratio, text: e.textContent.slice(0, 40), tag: e.tagName, style: e.className };
  }
  return worst;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_its_ground(shown: Any, scheme: str) -> None:
    """A contrast of 4.5 at least, as the accessibility guidelines ask."""
    shown.colours(scheme)
    worst = shown.run(CONTRAST)
    assert worst["ratio"] >= 4.5, worst


@pytest.mark.parametrize("width", [360, 700, 1100])
def test_nothing_is_wider_than_the_window(shown: Any, width: int) -> None:
    shown.size(width)
    assert shown.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [420, 1280])
def test_the_sidebar_scrolls_in_one_direction_and_in_one_place(shown: Any, width: int) -> None:
    """Long names of files are broken, after their slashes first, and their counts stay beside them."""
    shown.size(width)
    sideways = "e => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX !== 'visible'"
    assert shown.run(f"[...document.querySelectorAll('.side, .side *')].filter({sideways}).length") == 0
    shown.run("window.down = e => getComputedStyle(e).overflowY !== 'visible' && e.scrollHeight > e.clientHeight")
    inner = "[...document.querySelectorAll('.side *')].filter(e => down(e) && [...e.querySelectorAll('*')].some(down))"
    assert shown.run(f"{inner}.length") == 0
    assert shown.run("document.querySelectorAll('.files wbr').length") > 0
    heights = "[...document.querySelectorAll('h2 small')].every(e => e.getClientRects().length === 1)"
    assert shown.run(heights), "a count is on one line"


def test_without_its_script_all_can_be_read(shown: Any, tmp_path: Path, file: Path) -> None:
    before, _, rest = file.read_text(encoding="utf-8").rpartition("<script>")
    bare = tmp_path / "bare.html"
    bare.write_text(before + rest.partition("</script>")[2], encoding="utf-8")
    shown.open(bare)
    assert shown.run("[...document.querySelectorAll('.scripted')].every(e => !e.checkVisibility())")
    text = shown.run("document.body.innerText")
    for words in ("distributed by hand", "every process would print this", "accelerator.backward(loss)"):
        assert words in text
    shown.run("document.querySelector('.why summary').click()")
    assert shown.run("document.querySelector('.why dl').checkVisibility()")


def test_the_losses_are_seen(shown: Any) -> None:
    assert shown.run("document.querySelectorAll('#verdict polyline').length") == 2
    assert shown.run("document.querySelector('#verdict svg').getBoundingClientRect().height") > 100


def test_a_finding_shows_its_code(shown: Any) -> None:
    frames = shown.run("[...document.querySelectorAll('.finding')].map(f => f.querySelectorAll('.frame mark').length)")
    assert max(frames) >= 1
    marked = shown.run("[...document.querySelectorAll('.frame mark')].map(m => m.textContent)")
    assert all(text.strip() for text in marked)
    assert any(EVIL in text for text in marked), "as text"
    shown.size(420)
    assert shown.run("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_narrow_screen_the_outcome_and_the_commands_come_first(shown: Any) -> None:
    shown.size(380)
    top = "document.getElementById('{}').getBoundingClientRect().top"
    assert shown.run(top.format("next")) < 60
    assert shown.run(top.format("next")) < shown.run("document.querySelector('.side').getBoundingClientRect().top")
    assert shown.run("document.querySelector('.side').getBoundingClientRect().top") < shown.run(top.format("verdict"))


def test_printed_it_is_light_and_whole(shown: Any) -> None:
    shown.colours("dark")
    shown.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert shown.run(GROUND) == "rgb(255, 255, 255)"
    assert not shown.run("document.querySelector('.side').checkVisibility()")
    shown.run("dispatchEvent(new Event('beforeprint'))")
    assert shown.run("[...document.querySelectorAll('.why dl')].every(d => d.checkVisibility())")
    shown.call("Emulation.setEmulatedMedia", media="", features=[])


def test_two_hundred_files_open_at_once(window: Any, tmp_path: Path) -> None:
    """What is out of sight is not laid out: 200 files take 2.5 s without that, and less than 1 s with it."""
    files = [file for file in _result().files if file.changed]
    many = [files[n % len(files)] for n in range(200)]
    html = tmp_path / "many.html"
    html.write_text(page(Result(tuple(many), 200, {"batch": "process"}), ()), encoding="utf-8")
    window.size(1400)
    window.open(html)
    states = "document.querySelectorAll('.file').length + ' ' + getComputedStyle(document.querySelector('.file'))"
    assert window.run(f"{states}.contentVisibility") == "200 auto"
    taken = "performance.getEntriesByType('navigation')[0].domComplete"
    assert min(_again(window, html, taken) for _ in range(3)) < 2000
    window.run("document.querySelector('.side a[href=\"#file190\"]').click()")
    assert abs(window.run(TOP.format("file190"))) < 40
    assert window.errors == []


def _again(window: Any, html: Path, taken: str) -> float:
    window.open(html)
    return float(window.run(taken))
