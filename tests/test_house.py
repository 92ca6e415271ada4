"""The house: who may import whom, what is packaged, what is loaded, what every rule must have."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE

if sys.version_info >= (3, 11):
    import tomllib as toml
else:
    import tomli as toml  # type: ignore[import-not-found,unused-ignore]

ROOT = Path(__file__).resolve().parent.parent
WINGS = ("rewriter", "codemods", "runtime")
FILES = sorted(file for wing in WINGS for file in (ROOT / wing).rglob("*.py"))
PROJECT = toml.loads((ROOT / "pyproject.toml").read_text())

# ---------------------------------------------------------------- imports, from the text


def module_of(file: Path) -> str:
    """`rewriter.facts.module`, the name without the namespace; a package is called like its folder."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_of(file): file for file in FILES}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


@cache
def imported(module: str, *, only_at_import: bool = False) -> frozenset[str]:
    """What a module imports: ours without the namespace, others by their full names."""
    return frozenset(_imported(modules()[module], tree(module), only_at_import))


def _imported(file: Path, tree: ast.AST, only_at_import: bool) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if only_at_import and _later(node):
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.removeprefix("torchlift.")
        elif isinstance(node, ast.ImportFrom):
            yield from _from(file, node)
        else:
            yield from _imported(file, node, only_at_import)


def _later(node: ast.AST) -> bool:
    """Not run when the module is imported: the body of a function, or of `if TYPE_CHECKING`."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _from(file: Path, node: ast.ImportFrom) -> Iterator[str]:
    base = (node.module or "").removeprefix("torchlift.")
    if node.level:
        package = ["torchlift", *file.relative_to(ROOT).parent.parts]
        base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
        assert base.startswith("torchlift"), f"{file}:{node.lineno}: leaves the namespace"
        base = base.removeprefix("torchlift").removeprefix(".")
    for alias in node.names:
        inner = f"{base}.{alias.name}".removeprefix(".")
        yield inner if inner in modules() else base


def top(name: str) -> str:
    return name.partition(".")[0]


# Lower layers first, one a line; a module imports from its own layer and from those before it.
LAYERS = {
    "rewriter": """
        findings source deep_stack
        result config
        facts
        analysis.syntax
        editing
        rule
        gate
        analysis.dataflow
        analysis.training
        analysis.layouts
        analysis.devices
        analysis.effects
        analysis.distributed analysis.precision analysis.diagnostics analysis.sharding
        analysis
        wording
        validation
        planning
        pipeline
        audit
        notebooks
        project
        verify
        report
        cli
    """,
    "runtime": """
        types errors classes available
        torch_internals torch_sharding torch_spmd
        device
        config
        process
        collectives
        strategies gradients launch tracking monitoring memory_plan
        data checkpoint
        compat
        accelerator
        logging selftest verify launch.command
    """,
}
# Modules of names that scripts import, under the names that Accelerate gave them.
FACES = frozenset(
    f"runtime.{name}"
    for name in (
        "big_modeling checkpointing data_loader hooks inference launchers local_sgd optimizer parallelism_config "
        "scheduler state utils"
    ).split()
)


def is_face(module: str) -> bool:
    return any(module == face or module.startswith(f"{face}.") for face in FACES)


def layer(module: str) -> int:
    """The layer of the folder that a module is in, the innermost that is named."""
    wing, _, place = module.partition(".")
    layers = {name: i for i, line in enumerate(LAYERS[wing].strip().splitlines()) for name in line.split()}
    if not place or is_face(module):
        return len(layers)
    while place not in layers:
        assert "." in place, f"{module} is in no layer of the house: give it one in {Path(__file__).name}"
        place = place.rpartition(".")[0]
    return layers[place]


def test_no_import_points_up() -> None:
    ours = [module for module in modules() if top(module) in LAYERS]
    pairs = [(m, other) for m in ours for other in imported(m) if top(other) == top(m)]
    assert [f"{m} imports {other}" for m, other in pairs if layer(other) > layer(m)] == []


@pytest.mark.parametrize("wing", LAYERS)
def test_few_files_stand_beside_the_folders(wing: str) -> None:
    beside = [m for m in modules() if m.count(".") == 1 and top(m) == wing and modules()[m].stem != "__init__"]
    assert len([m for m in beside if not is_face(m)]) < 10


SAME_MEANING = {"ConfigError", "_Itself"}


def test_classes_of_one_name_mean_the_same() -> None:
    named: dict[str, set[str]] = {}
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                named.setdefault(node.name, set()).add(module)
    assert {name: where for name, where in named.items() if len(where) > 1 and name not in SAME_MEANING} == {}


@pytest.mark.parametrize("only_at_import", [False, True], ids=["all imports", "imports at import time"])
def test_there_are_no_circles(only_at_import: bool) -> None:
    graph = {
        module: {n for n in imported(module, only_at_import=only_at_import) if n in modules() and n != module}
        for module in modules()
    }
    # A wing's own __init__ answers for names of its parts on demand; nothing inside may import it, as is tested above.
    while leaves := [module for module, needs in graph.items() if not needs]:
        for leaf in leaves:
            del graph[leaf]
        for needs in graph.values():
            needs.difference_update(leaves)
    assert not graph, f"these import one another: {sorted(graph)}"


def test_faces_only_pass_names_on() -> None:
    for module in modules():
        if is_face(module):
            docstring, *rest = tree(module).body
            assert isinstance(docstring, ast.Expr)
            assert all(isinstance(node, ast.ImportFrom) for node in rest), f"{module} does more than import"
        elif top(module) == "runtime" and module != "runtime":
            for other in imported(module):
                assert not is_face(other), f"{module} imports {other}: import what stands behind it"


FORBIDDEN = {
    "rewriter": {"torch", "codemods", "runtime", "numpy"},
    "codemods": {"torch", "runtime", "numpy"},
    "runtime": {"libcst", "rewriter", "codemods"},
}


@pytest.mark.parametrize("wing", WINGS)
def test_a_wing_does_not_know(wing: str) -> None:
    known = [(m, other) for m in modules() if top(m) == wing for other in imported(m) if top(other) in FORBIDDEN[wing]]
    assert not known


def test_the_analysis_words_nothing() -> None:
    """It hands on reasons; what is said of them is in one room."""
    worded = {"rewriter.findings", "rewriter.wording"}
    inside = [module for module in modules() if module.startswith("rewriter.analysis.")]
    assert [module for module in inside for other in imported(module) if other in worded] == []


def test_a_rule_imports_the_vocabulary_of_the_rewriter_and_nothing_else() -> None:
    allowed = {"rewriter.editing.edits", "rewriter.findings", "rewriter.rule", "rewriter.facts"}
    for entry in CATALOGUE:
        for other in imported(f"codemods.{entry.id}"):
            fits = other in allowed or other.startswith("rewriter.facts.") or top(other) in sys.stdlib_module_names
            assert fits or other == "libcst", f"{entry.id} imports {other}"


def test_the_gate_needs_the_standard_library_only() -> None:
    seen: set[str] = set()
    waiting = ["rewriter.gate.prefilter", "rewriter.gate.cache", "rewriter.gate.keys"]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for other in imported(module, only_at_import=True):
            if other in modules():
                waiting.append(other)
            else:
                assert top(other) in sys.stdlib_module_names, f"{module} imports {other}"


# ---------------------------------------------------------------- what is packaged


def test_the_listed_packages_are_the_folders() -> None:
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert listed == sorted(listed), "keep the list in order"
    assert listed == sorted(
        "torchlift." + ".".join(file.parent.relative_to(ROOT).parts)
        for wing in WINGS
        for file in (ROOT / wing).rglob("__init__.py")
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_folder_with_code_is_a_package(file: Path) -> None:
    assert (file.parent / "__init__.py").exists()


@pytest.mark.parametrize("name", WINGS)
def test_no_wing_is_importable_by_its_bare_name(name: str, tmp_path: Path) -> None:
    """Users have modules of these names."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is not None)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


# ---------------------------------------------------------------- what is loaded


def loaded_by(statement: str, tmp_path: Path) -> set[str]:
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    return {top(name) for name in out.split()} | set(out.split())


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        (
            "import torchlift.rewriter.cli.main",
            {"libcst", "rich", "yaml", "click", "torch", "numpy", "tomllib", "tomli", "dataclasses", "difflib"},
        ),
        ("import torchlift.codemods.catalogue", {"libcst", "rich", "yaml", "torch", "click"}),
        ("import torchlift.rewriter.gate.cache", {"libcst", "rich", "yaml", "click"}),
        ("import torchlift.rewriter.pipeline", {"rich", "torch", "libcst.matchers", "libcst.codemod"}),
        ("import torchlift.runtime", {"torch", "numpy", "click", "libcst"}),
        ("import torchlift.runtime.launch.command", {"torch", "numpy", "libcst", "rich"}),
        ("from torchlift.runtime import Accelerator", {"libcst", "rich", "click", "yaml"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_heavy_is_loaded(statement: str, heavy: set[str], tmp_path: Path) -> None:
    assert not heavy & loaded_by(statement, tmp_path)


# ---------------------------------------------------------------- what every file keeps to

PRINTING = {
    "rewriter.cli.main",
    "codemods.__main__",
    "runtime.process.state",
    "runtime.process.early",
    "runtime.launch.command",
}


@pytest.mark.parametrize("module", [m for m in modules() if m not in PRINTING])
def test_only_commands_print(module: str) -> None:
    calls = (node for node in ast.walk(tree(module)) if isinstance(node, ast.Call))
    prints = [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    assert not prints


def test_one_file_reads_the_environment() -> None:
    # commands hand the environment on to the processes that they start, and so do the runs of `verify`
    readers = {"runtime.config.environment", "runtime.config.variables", "runtime.launch.command"}
    for module in modules():
        if top(module) == "runtime" and module not in readers and not module.startswith("runtime.verify."):
            for node in ast.walk(tree(module)):
                read = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
                assert not read, f"{module}:{getattr(node, 'lineno', 0)} reads the environment"


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_a_rule_is_one_file_one_test_file_and_an_example(entry: object) -> None:
    rule = entry.load()  # type: ignore[attr-defined]
    assert (ROOT / "codemods" / f"{rule.id}.py").exists()
    assert (ROOT / "tests" / "codemods" / f"test_{rule.id}.py").exists(), "a rule without a test file"
    assert rule.summary.endswith("."), "the docstring opens with a sentence"
    assert rule.examples, "the docstring has no example"


def test_the_catalogue_lists_every_rule() -> None:
    files = {file.stem for file in (ROOT / "codemods").glob("*.py")} - {"__init__", "__main__", "catalogue"}
    assert files == {entry.id for entry in CATALOGUE}
