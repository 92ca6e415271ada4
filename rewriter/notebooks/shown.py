"""The cells that show something, and those that only set up the notebook: the training's processes cannot do either."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from .document import Cell
from .magics import run_by
from .masks import MASK
from .uses import NotGathered, named

HIDDEN = "pass#<shown>"
_HANDED = "#<handed>"
_RECEIVED = "#<received>"
_DISPLAYED = "#<displayed>"
_INSTEAD = re.compile(r'"<(.*?)>"')
_PRINTS = re.compile(r"(\s*)(?:(\w+(?:\(\))?)\.)?print\(")
_LIBRARIES = frozenset(
    "plt pylab matplotlib sns seaborn display IPython px plotly alt altair ipywidgets widgets".split()
)
_PACKAGES = frozenset(
    "matplotlib pylab seaborn IPython plotly altair bokeh ipywidgets scikitplot yellowbrick plotting".split()
)
"""All that is imported of them shows something, whatever its name; so does a ``plotting`` of other packages."""
_FIGURES = frozenset("plt pylab matplotlib sns seaborn".split())
"""What draws figures, which may be saved as well as shown."""
_SETTINGS = re.compile(
    r"(?:plt|pylab|matplotlib|mpl|matplotlib\.pyplot)\.(?:ion|ioff|use|rc|switch_backend|style\.use|rcParams(?:\.update)?)"
    r"|(?:sns|seaborn)\.set(?:_\w+)?"
)
"""What sets how figures are drawn, and draws none."""
_CLEARS = re.compile(r"(?:\w+\.)*clear_output")
_SHOWS = frozenset({"plt.show", "pylab.show", "matplotlib.pyplot.show", "display"})
_INTERACTIVE = frozenset("px plotly alt altair".split())
"""What draws figures with a ``show`` of their own."""
_METHODS = frozenset("plot hist boxplot imshow show".split())
_DRAWS = frozenset("random rand randn randint choice shuffle permutation sample iter next".split())
_DEVICES = frozenset("device is_available current_accelerator print".split())
# They set up the notebook, bring data, or tell about the machine or the time that a cell takes: when they run between
# the cells of the training does not matter to it.
_HARMLESS = re.compile(
    r"\s*(%(matplotlib|config|load_ext|reload_ext|autoreload|pip|conda|env|ls|pwd|who|whos|tensorboard|precision)\b"
    r"|!\s*(pip3?|conda|apt|apt-get|nvidia-smi|ls|pwd|wget|curl|gdown|kaggle|git|unzip|tar|mkdir|echo|date|free|df|du|nproc"
    r"|lscpu|uname|cat|head|tail|wc)\b|%%time\s*$|%%capture\b)"
)

_LOOKS = re.compile(
    r"\s*(%(ls|pwd|who|whos)\b|!\s*(nvidia-smi|ls|pwd|date|free|df|du|nproc|lscpu|uname|cat|head|tail|wc|echo)\b[^>]*$)"
)
"""What of them only looks at what is there: after a training it is to see what that has left."""


def showing(texts: Sequence[str]) -> frozenset[str]:
    """The functions and classes, of the cells and of packages, that show something when they are used, by name."""
    bodies = [
        node for text in texts for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    found = frozenset(name for text in texts for node in ast.walk(ast.parse(text)) for name in _imported(node))
    while more := {node.name for node in bodies if node.name not in found and shown_by([node], found)}:
        found |= more
    return found


def _imported(node: ast.AST) -> Iterator[str]:
    """The names that an import gives to what shows something."""
    if isinstance(node, ast.ImportFrom) and not _PACKAGES.isdisjoint((node.module or "").split(".")) and not node.level:
        yield from (alias.asname or alias.name for alias in node.names if alias.name != "*")
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.partition(".")[0] in _PACKAGES:
                yield alias.asname or alias.name.partition(".")[0]


def shown_by(statements: Sequence[ast.stmt], functions: frozenset[str] = frozenset()) -> str:
    """With what statements show something: a library, one of ``functions``, or a method; empty if they do not."""
    nodes = [node for one in statements if not is_setting(one) for node in ast.walk(one)]
    wiping = (node.func for node in nodes if isinstance(node, ast.Call) and _CLEARS.fullmatch(ast.unparse(node.func)))
    wiped = {inner for function in wiping for inner in ast.walk(function)}  # `display.clear_output()` shows nothing
    nodes = [node for node in nodes if node not in wiped]
    named = (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    called = (node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    found = [
        *(name for name in named if name in _LIBRARIES | functions),
        *(name for name in called if name in _METHODS),
    ]
    return found[0] if found else ""


def is_setting(statement: ast.stmt) -> bool:
    """Whether a statement only sets how figures are drawn: ``plt.ion()``, ``plt.style.use("ggplot")``,
    ``plt.rcParams["figure.dpi"] = 120``."""
    if isinstance(statement, ast.Assign):
        return all(_SETTINGS.fullmatch(ast.unparse(target).partition("[")[0]) for target in statement.targets)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and _SETTINGS.fullmatch(ast.unparse(call.func)) is not None


def _clears(statement: ast.stmt) -> str:
    """The name by which a statement wipes what its cell has shown, ``clear_output()``, up to the first dot; else
    empty."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
    return name.partition(".")[0] if _CLEARS.fullmatch(name) else ""


def clearing(texts: Sequence[str], chosen: Sequence[int], whole: Sequence[str]) -> dict[int, frozenset[str]]:
    """
    The lines that wipe what their cell has shown, with the imports that they need, by the cells of the training.

    In one function they would wipe what all cells before them have shown. So they stay in their cells, save in the
    first one. ``whole``: the cells as they are written, with what stays of them in any case.
    """
    bodies = {n: [s for s in ast.parse(texts[n]).body if _is_line(s, texts[n].split("\n"))] for n in chosen}
    wiping = {name for n in chosen[1:] for statement in bodies[n] if (name := _clears(statement))}
    found: dict[int, frozenset[str]] = {}
    inside = {name for n in chosen for name in _imports(ast.parse(texts[n]).body)}
    known = {name for text in whole for name in _imports(ast.parse(text).body)} - inside
    for n, body in bodies.items():
        stay = []
        for statement in body:
            bound = wiping.intersection(_imports([statement]))
            if bound or (n != chosen[0] and _clears(statement) in known):
                stay.append(texts[n].split("\n")[statement.lineno - 1])
                known |= bound
        found[n] = frozenset(stay)
    return found


def _imports(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that imports bind."""
    for node in statements:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)


def saves_figures(statements: Sequence[ast.stmt]) -> bool:
    """Whether all that is drawn is a figure that is saved and not shown."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    called = {n.func.attr for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    return "savefig" in called and "show" not in called and read.isdisjoint(_LIBRARIES - _FIGURES)


def shows_figures(statements: Sequence[ast.stmt]) -> bool:
    """Whether what is drawn is shown by a call (``plt.show()``, ``display(figure)``), and not by the cell's end."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    called = {ast.unparse(node.func).removeprefix("IPython.").removeprefix("display.") for node in _calls(nodes)}
    own = not read.isdisjoint(_INTERACTIVE) and any(name.endswith(".show") for name in called)
    others = _LIBRARIES - _FIGURES - _INTERACTIVE - {"display", "IPython"}
    return (own or bool(called & _SHOWS)) and read.isdisjoint(others)


def how_shown(name: str) -> str:
    """The call by which a process shows what a library draws."""
    if name in _FIGURES:
        return "plt.show()"
    return "its show() or display(...)" if name in _INTERACTIVE else "display(...)"


def _calls(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    return (node for node in nodes if isinstance(node, ast.Call))


def hidden(text: str) -> str:
    """A cell that the notebook's own process runs, without a word for the rules: they would let one process of several
    show what it shows."""
    return "\n".join(f"{HIDDEN}{line}" if line.strip() else line for line in text.split("\n"))


def handed(names: Sequence[str], instead: Mapping[str, str]) -> str:
    """
    What ends the training function for the rules, in place of ``return`` and the names that the notebook shows.

    To the rules it is what it means: values that a person gets to see. So they are made those of all processes. They do
    not see what is returned ``instead`` of a name.
    """
    given = (f'"<{instead[name]}>"' if name in instead else name for name in names)
    return f"print({', '.join(given)}){_HANDED}"


def is_handed(line: str) -> bool:
    """Whether a line of the rules is the end of the training function (`handed`), which prints nothing."""
    return line.endswith(_HANDED)


def received(names: Sequence[str], call: str) -> str:
    """The call of the training function, with the names that it gives to the notebook."""
    return f"{call}{_RECEIVED}{', '.join(names)} = "


def displayed(printed: str) -> str:
    """
    What displays an object in the training function for the rules, before a line that prints it.

    To the rules it is that print. In its place the main process displays the object: a picture is no text.
    """
    return f"{_DISPLAYED}\n{printed}"


def called_instead(indent: str, function: str, call: str) -> str:
    """What calls a function that shows something in the training, for the rules: a print, as in `displayed`."""
    return f"{indent}{_DISPLAYED}{function}\n{indent}print{call.removeprefix(function)}"


def given_the_accelerator(text: str) -> str:
    """The first function of `called_instead` that would have to be called by all processes; empty if there is none."""
    lines = text.split("\n")
    found = (n for n, line in enumerate(lines) if _displays(line) and _is_given_the_accelerator(lines[n + 1 :]))
    return next((name for n in found if (name := lines[n].strip().removeprefix(_DISPLAYED))), "")


def _displays(line: str) -> bool:
    return line.lstrip().startswith(_DISPLAYED)


def _displaying(printed: str, function: str) -> str:
    """The display in the place of a print, or of its first line."""
    found = _PRINTS.match(printed)
    if found is None:
        return printed
    indent, accelerator, rest = found[1], found[2], f"{function}({printed[found.end() :]}"
    return f"{indent}if {accelerator}.is_main_process:\n{indent}    {rest}" if accelerator else f"{indent}{rest}"


def _is_given_the_accelerator(lines: Sequence[str]) -> bool:
    """Whether the first statement of these lines hands the accelerator to what it displays."""
    for count in range(1, len(lines) + 1):
        try:
            (printed,) = ast.parse(textwrap.dedent("\n".join(lines[:count]))).body
        except SyntaxError:
            continue
        given = printed.value.args if isinstance(printed, ast.Expr) and isinstance(printed.value, ast.Call) else []
        return any(getattr(node, "id", "") == "accelerator" for one in given for node in ast.walk(one))
    return False


def unhidden(text: str) -> str:
    """The text of a script with what `hidden`, `handed`, `received` and `displayed` stand for."""
    lines = text.replace(HIDDEN, "").split("\n")
    for number in reversed([n for n, line in enumerate(lines) if _displays(line)]):
        printed, function = lines[number + 1], lines[number].strip().removeprefix(_DISPLAYED) or "display"
        trains = _is_given_the_accelerator(lines[number + 1 :])  # then it runs on all processes, and is printed
        lines[number : number + 2] = [printed if trains else _displaying(printed, function)]
    for number, line in enumerate(lines):
        if line.endswith(_HANDED):
            printed = re.sub(r"(accelerator\.)?print\(", "return ", line.removesuffix(_HANDED), count=1)
            lines[number] = _INSTEAD.sub(r"\1", printed.removesuffix(")"))
        elif _RECEIVED in line:
            call, _, names = line.partition(_RECEIVED)
            lines[number] = f"{names}{call}"
    return "\n".join(lines)


def only_magics(text: str) -> bool:
    """Whether a cell holds magics that do not matter to the training, and nothing else."""
    lines = [line for line in text.split("\n") if line.strip() and not (line.startswith("#") and MASK not in line)]
    return bool(lines) and not for_function("\n".join(lines))[0].strip()


def for_function(text: str, repeats: Collection[str] = ()) -> tuple[str, list[str]]:
    """What of a masked cell can be in a function, and the lines that stay outside: magics that do not matter to the
    training, settings of figures, lines that are given (imports that repeat those of earlier cells), and star imports
    at the top of the cell, which Python does not allow in a function."""
    lines = text.split("\n")
    stars = {lines[node.lineno - 1] for node in _first_imports(text) if _is_star(node)}
    settings = {lines[node.lineno - 1] for node in ast.parse(text).body if is_setting(node) and _is_line(node, lines)}
    stay = stars.union(repeats, settings)
    out = {n for n, ln in enumerate(lines) if (MASK in ln and not ln[:1].isspace() and _harmless(ln)) or ln in stay}
    out.update(_headings(lines, out))
    inside = "\n".join(line for n, line in enumerate(lines) if n not in out)
    apart = [lines[n] for n in sorted(out)]
    wiping = {line for line in apart if MASK not in line and any(map(_clears, ast.parse(line).body))}
    apart = [hidden(line) if line in settings | wiping else line for line in apart]
    return inside.lstrip("\n") if repeats else inside, apart


def _headings(lines: Sequence[str], out: set[int]) -> Iterator[int]:
    """The comments of paragraphs all of whose other lines stay outside: ``# plots`` above imports alone."""
    start = 0
    for end, line in enumerate([*lines, ""]):
        if not line.strip():
            comments = [n for n in range(start, end) if lines[n].startswith("#")]
            if len(comments) < end - start and out.issuperset(set(range(start, end)).difference(comments)):
                yield from comments
            start = end + 1


def _first_imports(text: str) -> Iterator[ast.stmt]:
    """The imports before which a cell runs nothing else, each on a line of its own."""
    for node in ast.parse(text).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            return
        if _is_line(node, text.split("\n")):
            yield node


def _is_line(node: ast.stmt, lines: Sequence[str]) -> bool:
    """Whether a statement has a line for itself."""
    return node.lineno == node.end_lineno and ";" not in lines[node.lineno - 1]


def _is_star(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)


def _harmless(line: str) -> bool:
    return _HARMLESS.match(line.partition(MASK)[2]) is not None


def only_looks(text: str) -> bool:
    """Whether a text holds magics that look at the machine or at files, and nothing else."""
    lines = [line for line in text.split("\n") if line.strip() and (MASK in line or not line.startswith("#"))]
    return bool(lines) and all(_LOOKS.match(line.partition(MASK)[2]) for line in lines)


def run_by_magics(texts: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """The calls of the cells' own functions that a magic makes in its line (``%time fit(model)``), which nothing but a
    notebook reads: the position of the cell, the line, and the function."""
    own = {node.name for text in texts for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    for n, text in enumerate(texts):
        for number, line in enumerate(text.split("\n"), 1):
            called = own & set(re.findall(r"(\w+)\(", run_by(line.partition(MASK)[2])))
            yield from ((n, number, name) for name in sorted(called))


def may_draw(text: str) -> bool:
    """Whether a cell may draw random numbers, or take a batch that was drawn."""
    return not _DRAWS.isdisjoint(_words(text))


def seeds(text: str) -> bool:
    """Whether a cell sets a seed: without one no run draws the numbers of another."""
    return any("seed" in word for word in _words(text))


def only_chooses_devices(text: str) -> bool:
    """Whether a cell calls nothing but what chooses a device, so that it draws no random number and sets no seed."""
    called = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return all(
        (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")) in _DEVICES for func in called
    )


def _words(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def displays(
    cell: Cell,
    name: str,
    why: str,
    about: Collection[str] = (),
    remedy: str = "",
    *,
    case: str,
) -> NotGathered:
    return NotGathered(
        cell.number,
        f"this cell shows something of the training{f' (by `{name}`)' if name else ''}, but {why}",
        remedy
        or f"save {named(sorted(about)) or 'what it shows'} to a file in the training, and show what the file holds in "
        "a cell after the training",
        about or [name],
        case=case,
    )
