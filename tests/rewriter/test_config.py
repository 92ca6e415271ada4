"""Configuration: the nearest table counts, mistakes are named with their remedy, the command line wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.rewriter.config import Config, ConfigError, RawConfig, Target, assumption, check_rules, final, load

KNOWN = ("backward", "prepare", "clip_grad")


def _project(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="an empty file"),
        pytest.param("[tool.black]\nline-length = 100\n", id="another tool's table"),
        pytest.param('[project]\ndependencies = ["torchlift"]\n', id="torchlift named outside its table"),
        pytest.param("this is no toml", id="a broken file that does not name torchlift"),
    ],
)
def test_a_project_without_our_table_says_nothing(tmp_path: Path, text: str) -> None:
    assert load(_project(tmp_path, text)).file is None


def test_nothing_said_is_the_default_configuration() -> None:
    assert final(RawConfig(), RawConfig(), Path("x.py")) == Config()


def test_the_nearest_table_counts_and_files_without_one_are_passed_over(tmp_path: Path) -> None:
    _project(tmp_path, '[tool.torchlift]\nignore = ["prepare"]\n')
    inner = _project(tmp_path / "a" / "b", "[tool.black]\n")
    assert load(inner).ignore == ("prepare",)
    assert load(inner).file == tmp_path / "pyproject.toml"


def test_every_key_is_understood(tmp_path: Path) -> None:
    text = """[tool.torchlift]
select = ["backward"]
ignore = ["prepare"]
assume = ["loss=err", "model=self.net"]
exclude = ["vendor"]
target = "accelerate"
mixed-precision = "bf16"
keep-global-batch = true
[tool.torchlift.per-file-ignores]
"legacy/*.py" = ["clip_grad"]
"""
    raw = load(_project(tmp_path, text))
    config = final(raw, RawConfig(), tmp_path / "legacy" / "x.py")
    assert config == Config(
        select=frozenset({"backward"}),
        ignore=frozenset({"prepare", "clip_grad"}),
        target=Target.ACCELERATE,
        mixed_precision="bf16",
        keep_global_batch=True,
        assume=(("loss", "err"), ("model", "self.net")),
        exclude=("vendor",),
    )
    assert final(raw, RawConfig(), tmp_path / "x.py").ignore == {"prepare"}


def test_the_command_line_has_the_last_word_and_ignores_add_up() -> None:
    raw = RawConfig(select=("backward",), ignore=("prepare",), target=Target.ACCELERATE, mixed_precision="fp16")
    options = RawConfig(select=("prepare",), ignore=("clip_grad",), target=Target.TORCHLIFT, partial=True)
    config = final(raw, options, Path("x.py"))
    assert config.select == {"prepare"}
    assert config.ignore == {"prepare", "clip_grad"}
    assert (config.target, config.mixed_precision, config.partial) == (Target.TORCHLIFT, "fp16", True)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param("ignore = ", "is not TOML", id="no TOML"),
        pytest.param("ignroe = []", "there is no setting 'ignroe'. Did you mean ignore?", id="an unknown key"),
        pytest.param("ignore = 'prepare'", "ignore: 'prepare' is not a list of strings", id="a string for a list"),
        pytest.param("select = [1]", "select: [1] is not a list of strings", id="a number in a list"),
        pytest.param("keep-global-batch = 'yes'", "keep-global-batch: 'yes' is not true or false", id="no boolean"),
        pytest.param("mixed-precision = 'bf61'", "there is no choice 'bf61'. Did you mean bf16?", id="no precision"),
        pytest.param("target = 'ray'", "There are torchlift, accelerate.", id="no target"),
        pytest.param("assume = ['loss']", "'loss' is not ROLE=NAME", id="no assumption"),
        pytest.param("per-file-ignores = {'*.py' = 'x'}", "'x' is not a list of strings", id="a pattern without list"),
        pytest.param("per-file-ignores = []", "[] is not a table", id="no table of patterns"),
    ],
)
def test_a_mistake_is_named_with_file_and_remedy(tmp_path: Path, body: str, says: str) -> None:
    folder = _project(tmp_path, f"[tool.torchlift]\n{body}\n")
    with pytest.raises(ConfigError) as caught:
        load(folder)
    assert str(caught.value).startswith(str(folder / "pyproject.toml"))
    assert says in str(caught.value)
    assert caught.value.remedy


def test_a_table_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tool.torchlift: is not a table"):
        load(_project(tmp_path, "[tool]\ntorchlift = 1\n"))


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        pytest.param("vendor", "src/vendored/x.py", False, id="not a part of a name"),
        pytest.param("src/x.py", "lib/src/x.py", False, id="not at another depth with a slash"),
        pytest.param("vendor", "src/vendor/deep/x.py", True, id="a folder at any depth"),
        pytest.param("*_old.py", "src/train_old.py", True, id="a name at any depth"),
        pytest.param("src/vendor", "src/vendor/x.py", True, id="a folder from the top"),
        pytest.param("src/*.py", "src/x.py", True, id="files of a folder"),
        pytest.param("src/**/x.py", "src/a/b/x.py", True, id="any depth below"),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, path: str, matches: bool) -> None:
    raw = RawConfig(file=tmp_path / "pyproject.toml", exclude=(pattern,))
    assert raw.excludes(tmp_path / path) is matches


def test_known_rules_pass() -> None:
    check_rules(RawConfig(select=("backward",), ignore=KNOWN, per_file_ignores=(("*", ("prepare",)),)), KNOWN)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        pytest.param(RawConfig(select=("bakward",)), "--select: there is no rule 'bakward'. Did you mean backward?"),
        pytest.param(
            RawConfig(ignore=("clip-grad",)), "--ignore: there is no rule 'clip-grad'. Did you mean clip_grad?"
        ),
        pytest.param(RawConfig(ignore=("zzz",)), "`migrate --rules` lists the rules"),
        pytest.param(RawConfig(file=Path("p.toml"), ignore=("zzz",)), "p.toml: [tool.torchlift] ignore: there is no"),
        pytest.param(RawConfig(per_file_ignores=(("*", ("zzz",)),)), "there is no rule 'zzz'"),
    ],
)
def test_an_unknown_rule_is_named_with_the_nearest(raw: RawConfig, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_rules(raw, KNOWN)
    assert says in str(caught.value)


def test_an_assumption_is_cut_at_the_equals_sign() -> None:
    assert assumption("--assume", "loss = self.err") == ("loss", "self.err")


@pytest.mark.parametrize("text", ["", "loss", "=err", "loss=", "loss=a b", "loss=a=b"])
def test_what_is_no_assumption_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not ROLE=NAME"):
        assumption("--assume", text)


def test_answers_are_remembered_for_the_folders_on_the_way(tmp_path: Path) -> None:
    _project(tmp_path, "[tool.torchlift]\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    seen: dict[str, RawConfig] = {}
    raw = load(tmp_path / "a" / "b", seen)
    (tmp_path / "pyproject.toml").unlink()
    assert load(tmp_path / "a", seen) is raw
