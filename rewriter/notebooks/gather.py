"""
The training cells of a notebook as one function, which the launcher can start on several processes.

A notebook keeps its objects in globals, and a started process has its own globals: objects that training creates there
do not come back. So everything from the first cell that needs the accelerator to the last one that reads what was
created since then goes into the function. If that would change the meaning of the program, a reason is returned instead
of a function.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from .after import After, kept_apart, made_again
from .beside import Shown
from .closures import Definition, check_taken, definitions, reached, taken_along, without
from .document import TIME, Cell, Notebook, masked
from .given import arguments, begun, check_loading, looking_at, made_before, read_first
from .last_values import LastValues, displaying
from .magics import used_by_magics
from .masks import MASK
from .pictures import check_shown, for_rules, of_main_process, widgets_of, without_show
from .shown import (
    clearing,
    for_function,
    handed,
    hidden,
    is_setting,
    only_looks,
    only_magics,
    received,
    showing,
    shown_by,
)
from .snapshots import with_snapshots
from .uses import NotGathered, Use, check_all, defines, imported, made, run, use, uses_of

NAME = "training_function"
BELOW = "# Moved below the training, "
"""How the line begins that stays of a cell which shows something between those of the training."""


def top_level(text: str, made: str) -> tuple[list[str], frozenset[str]]:
    """
    What runs at the top level of a cell, in a comparable form, without definitions, imports, the creation of ``made``,
    and its guards of what is shown: the notebook shows it. Also returns the names that ``made.prepare(...)`` binds.
    """
    parts: list[str] = []
    prepared: set[str] = set()
    for statement in ast.parse(text).body:
        if defines(statement) or (
            isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == [made]
        ):
            continue
        guarded = isinstance(statement, ast.If) and ast.unparse(statement.test).startswith(f"{made}.is_")
        body = statement.body if isinstance(statement, ast.If) and guarded else []
        inner = body if body and (shown_by(body) or all(map(is_setting, body))) else [statement]
        parts += map(ast.dump, inner)
        if isinstance(statement, ast.Assign) and f"{made}.prepare(" in ast.unparse(statement.value):
            names = (name for target in statement.targets for name in ast.walk(target))
            prepared.update(name.id for name in names if isinstance(name, ast.Name))
    return parts, frozenset(prepared)


def gathered(
    notebook: Notebook,
    needing: Sequence[int],
    prepared: Collection[str],
    after: After,
    accelerator: str,
    modules: frozenset[str] = frozenset(),
    loading: Collection[int] = (),
    files: Sequence[str] = (),
    held: Collection[str] = (),
) -> list[str]:
    """
    The texts of the cells with the training in one function, called in the last of its cells.

    ``needing`` are the positions of the cells that need the accelerator at their top level, and ``prepared`` the names
    of what is prepared there; ``modules`` have a state that only the training processes have. Cells that show
    something stay with the notebook, and those ``after`` the training: the function returns what they read. So do the
    cells ``loading`` the data, with all that is before the training: the function gets their loaders as arguments.
    ``files``: the texts of the modules beside the notebook; ``held``: names that one process alone must not use. Raises
    ``NotGathered``.
    """
    texts = [masked(cell.text) for cell in notebook.cells]
    uses = uses_of(texts)
    functions, values = showing(texts), LastValues([*texts, *files], prepared)
    beside = (
        frozenset(
            n
            for n, text in enumerate(texts)
            if n not in needing and (only_magics(text) or shown_by(run(text), functions))
        )
        | after.stays
    )
    unshown, widgets = without_show(texts, functions), widgets_of(texts)
    chosen = _chosen(texts, uses, needing, beside, modules, loading)
    texts = with_snapshots(texts, uses, chosen, beside, prepared)
    uses = uses_of(texts)
    first = begun(texts, chosen) if loading else 0
    check_loading(notebook.cells, texts, uses, chosen, loading, first)
    after = replace(after, remade=made_again(texts, uses, chosen, prepared, after))
    whole = list(texts)
    apart = kept_apart(texts, uses, chosen, beside, after)
    if apart:
        texts = [apart[n][0] if n in apart else text for n, text in enumerate(texts)]
        uses = uses_of(texts)
    among = definitions(texts, set(range(len(texts))) - {*chosen, *after.cells})
    taken = taken_along(among, uses, chosen)
    along: list[tuple[int, str]] = []
    for n in sorted({one.cell for one in taken}):
        texts[n], text = without(texts[n], [one for one in taken if one.cell == n])
        along.append((n, text))
    uses = _following(uses, [one for one in among if one not in taken], beside)
    passed = arguments(texts, uses, chosen, loading, prepared, [*among, *definitions(texts, chosen)])
    shown = Shown(notebook.cells, texts, uses, chosen, beside, prepared, after, modules, first)
    staying = ["" if n in chosen else text for n, text in enumerate(texts)]
    local = frozenset[str]().union(*(uses[n].binds for n in chosen))
    of_along = (partial(_check, unshown, widgets, notebook.cells[n], text) for n, text in along)
    of_cells = (partial(_check, unshown, widgets, notebook.cells[position], texts[position]) for position in chosen)
    of_shown = (partial(shown.check, position) for position in sorted(beside))
    of_staying = partial(check_taken, notebook.cells, staying, taken, local)
    check_all(
        [
            *of_along,
            of_staying,
            *of_cells,
            partial(_check_magics, notebook.cells, texts, uses, chosen),
            partial(_check_names, notebook.cells, uses, chosen, passed),
            *of_shown,
        ]
    )
    wiping = clearing(texts, chosen, [masked(cell.text) for cell in notebook.cells])
    plain = {n: for_function(texts[n], uses[n].repeats | wiping[n]) for n in chosen}
    for position, (_, lines) in apart.items():
        plain[position] = (plain[position][0], [*lines, *plain[position][1]])
    bodies = {n: text for n, (text, _) in plain.items() if text.strip()}
    ending = {n for n, text in bodies.items() if _ends(notebook.cells, n, text)}
    plain = _timed(plain, whole)
    inner = [text for _, text in along]
    inner += [values.printed(text) if n in ending else text for n, text in bodies.items()]
    body = "\n\n".join(map(_indented, inner))
    returned, moved = shown.returned(), shown.moved()
    instead = {name: after.unwrapped(name, accelerator) for name in returned if name in after.models}
    if instead:
        _check_classes(notebook.cells, texts, chosen)
    plain |= {n: (texts[n], []) if only_looks(texts[n]) else for_function(texts[n]) for n in moved}
    place = f"in cell {notebook.cells[chosen[-1]].number}"
    moved_note, below_note = f"# Moved into {NAME}() {place}.", f"{BELOW}{place}."
    for position in (*chosen, *moved):
        inside, lines = plain[position]
        note = moved_note if position in chosen else below_note
        stays = not inside.strip() and lines
        joined = "\n".join([*lines, note]).rstrip()
        texts[position] = _without_wiping(whole[position], lines) if stays else joined
    last, given = chosen[-1], ", ".join(passed)
    start = f"{NAME}({given})"
    if returned:
        body, start = f"{body.rstrip()}\n\n    {handed(returned, instead)}", received(returned, start)
        start = "\n".join([start, *map(hidden, after.placed(returned))])
    again = after.made_again(uses[n].reads for n in beside if n > chosen[0] or n in after.functions)
    start = "\n".join([start, *map(hidden, again)])
    for n, _ in along:
        texts[n] = "\n\n".join([*([texts[n]] if texts[n] else []), moved_note])
    looking = looking_at(uses, chosen, loading, first)
    for position in {*shown.apart(), *looking} - set(moved):
        texts[position] = hidden(texts[position])
    above = plain[last][1]
    blank = ["", ""] if above and (last in apart or MASK not in above[-1]) else []
    parts = [*above, *blank, f"def {NAME}({given}):\n{body.rstrip()}\n\n\n{start}"]
    texts[last] = "\n\n".join(["\n".join(parts), *(hidden(_drawn(plain[position][0])) for position in moved)])
    calling = [text for n, text in enumerate(whole) if n not in beside]
    of_main = of_main_process(whole, calling, functions, held)
    return [for_rules(text, of_main) for text in texts]


def _timed(plain: Mapping[int, tuple[str, list[str]]], texts: Sequence[str]) -> dict[int, tuple[str, list[str]]]:
    """The parts of the cells of the training, with the ``%%time`` of one at the call of the launcher: in a cell of
    comments it times nothing."""
    found = {n: (text, list(lines)) for n, (text, lines) in plain.items()}
    last = max(found)
    timed = [n for n, (_, lines) in found.items() if any(line.endswith(f"{MASK}{TIME}") for line in lines)]
    if not timed or (last not in timed and f"{MASK}%%" in texts[last]):  # a cell has one such magic
        return found
    for n in timed:
        if not [line for line in found[n][1] if MASK not in line]:
            found[n] = found[n][0], [line for line in found[n][1] if not line.endswith(f"{MASK}{TIME}")]
    if not any(line.endswith(f"{MASK}{TIME}") for line in found[last][1]):
        found[last] = found[last][0], [f"pass{MASK}{TIME}", *found[last][1]]
    return found


def _ends(cells: Sequence[Cell], position: int, text: str) -> bool:
    """Whether a text ends as its cell does, of which a notebook shows the last value."""
    if position + 1 < len(cells) and cells[position + 1].continued:
        return False
    body, whole = ast.parse(text).body, ast.parse(masked(cells[position].text)).body
    return bool(body and whole) and ast.dump(body[-1]) == ast.dump(whole[-1])


def _without_wiping(text: str, apart: Collection[str]) -> str:
    """A cell that stays as it is, without a word for the rules about what wipes its output, which is ``apart`` too."""
    return "\n".join(hidden(line) if line not in apart and hidden(line) in apart else line for line in text.split("\n"))


def _following(uses: Sequence[Use], staying: Sequence[Definition], beside: Collection[int]) -> list[Use]:
    """What the cells use, for those ``beside`` the training with what the functions read that they call."""
    called = {n: reached(uses[n].reads, staying) for n in beside}
    return [
        replace(found, reads=found.reads.union(*(one.later for one in called[n]))) if n in called else found
        for n, found in enumerate(uses)
    ]


def _drawn(text: str) -> str:
    """A cell that shows something, for a place before others: a notebook draws what pyplot holds at a cell's end, and
    displays the value of its last line."""
    body = ast.parse(text).body
    if only_looks(text):
        return text.rstrip()
    text = displaying(text.rstrip(), body[-1]) if body else text.rstrip()
    if not _draws(ast.parse(text)) or text.rstrip(";").endswith(".show()"):
        return text
    last = _last_drawing(ast.parse(text).body)
    if not last.col_offset:
        return f"{text}\nplt.show()"
    lines, end = text.split("\n"), last.end_lineno
    return "\n".join([*lines[:end], f"{' ' * last.col_offset}plt.show()", *lines[end:]])


def _draws(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "plt" for n in ast.walk(node))


def _last_drawing(body: Sequence[ast.stmt]) -> ast.stmt:
    """The last statement that draws: in a choice (``if plt is not None:``) the one in its only way that does."""
    last = [statement for statement in body if _draws(statement)][-1]
    blocks: list[list[ast.stmt]] = []
    if isinstance(last, ast.If):
        blocks = [last.body, last.orelse]
    elif isinstance(last, ast.Try):
        blocks = [last.body, last.orelse, last.finalbody, *(handler.body for handler in last.handlers)]
    drawing = [block for block in blocks if any(map(_draws, block))]
    return _last_drawing(drawing[0]) if len(drawing) == 1 else last


def _chosen(
    texts: Sequence[str],
    uses: Sequence[Use],
    needing: Sequence[int],
    beside: Collection[int],
    modules: frozenset[str],
    loading: Collection[int],
) -> list[int]:
    """
    The cells that belong to the training, from the first that needs the accelerator, found by repeating until nothing
    changes; those ``beside`` it do not, and those ``loading`` its data. A cell stays where it is if it needs nothing of
    the cells before it and these only choose the device, which may as well be done later; imports need not be in the
    function.
    """
    chosen = {n for n in needing if n not in loading}
    first = min(chosen)
    while True:
        apart = imported(texts, chosen)
        given = made(uses, chosen) - apart
        start = begun(texts, chosen)
        between = range(start, max(chosen))
        more: set[int] = set()
        for n in set(range(first, len(uses))) - chosen - set(beside):
            own = uses[n]
            if loading and n < start:
                wanted = bool(own.reads & (made_before(uses, chosen, n) - apart))
            else:
                runs = n in between or (n > start and own.reads & modules)
                wanted = bool(own.reads & given or own.binds & given or (runs and not own.only_defines))
            if wanted:
                more.add(n)
        if not more:
            return sorted(chosen)
        chosen |= more


def _check(unshown: Collection[str], widgets: Collection[str], cell: Cell, text: str) -> None:
    """Refuse a cell that would behave differently inside a function, or in a process without a display."""
    inside, _ = for_function(text)
    if MASK in inside:
        magic = next(line for line in inside.split("\n") if MASK in line).partition(MASK)[2].split()[0]
        raise NotGathered(
            cell.number,
            f"`{magic}` is in a cell of the training, and a function cannot have a magic",
            "Move it to a cell of its own: before those that build and train the model, where they need what it does; "
            "else after the training",
            [MASK],
            case="magic",
        )
    tree = ast.parse(inside)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            raise NotGathered(
                cell.number,
                "there is a star import between the lines of the training",
                "Move it to the top of its cell",
                ["import *"],
                case="magic",
            )
        if isinstance(node, ast.Global):
            names = ", ".join(node.names)
            raise NotGathered(
                cell.number,
                f"a function changes a global ({names})",
                "Pass it as an argument and return it",
                [f"global {node.names[0]}"],
                case="function",
            )
    check_shown(cell, tree.body, unshown, widgets)


def _check_magics(cells: Sequence[Cell], texts: Sequence[str], uses: Sequence[Use], chosen: Sequence[int]) -> None:
    """Refuse magics that stay in their cells, above the function, and read what is made in it."""
    for n in chosen:
        inside, apart = for_function(texts[n], uses[n].repeats)
        reads, binds = used_by_magics("\n".join(apart))
        if kept := sorted(binds & frozenset[str]().union(*(other.reads for other in uses))):
            raise NotGathered(
                cells[n].number,
                f"`{kept[0]}` is what a magic keeps of this cell, and the cell becomes a part of the training function",
                f"Set `{kept[0]}` in a cell of its own, without the training",
                kept,
                case="magic",
            )
        if own := sorted(reads & (use(inside).binds | made(uses, [m for m in chosen if m < n]))):
            raise NotGathered(
                cells[n].number,
                f"a magic reads `{own[0]}`, which the training makes",
                "Move it to a cell after the training",
                [f"${own[0]}", f"{{{own[0]}"],
                case="magic",
            )


def _check_classes(cells: Sequence[Cell], texts: Sequence[str], chosen: Sequence[int]) -> None:
    """Refuse to give back models whose class may be known to the training processes only."""
    for n in chosen:
        for node in ast.parse(texts[n]).body:
            if isinstance(node, ast.ClassDef):
                local = frozenset[str]().union(*(use(texts[m]).binds for m in chosen))
                read = ", ".join(sorted(use(ast.unparse(node)).reads & local)) or "what the training makes"
                raise NotGathered(
                    cells[n].number,
                    f"a later cell needs the trained model, but the class {node.name} uses {read} of the training",
                    f"Pass {read} to the class as an argument",
                    [f"class {node.name}"],
                    case="function",
                )


def _check_names(cells: Sequence[Cell], uses: Sequence[Use], chosen: Sequence[int], arguments: Collection[str]) -> None:
    """Refuse names that are used both inside and outside the function."""
    inside = set(chosen)
    made = {name: n for n in reversed(chosen) for name in uses[n].binds if name not in arguments}
    for n, other in enumerate(uses):
        if n in inside:
            continue
        later = [m for m in chosen if m > n]
        for name in sorted(other.binds & made.keys()):
            if read_first([uses[m] for m in later], name):
                reader = next(m for m in later if name in uses[m].reads)
                raise NotGathered(
                    cells[reader].number,
                    f"it uses {name}, which cell {cells[n].number} created",
                    "Create it in the training",
                    [name],
                    case="later",
                )


def _indented(text: str) -> str:
    """A cell's text, indented one level more; lines inside strings stay unchanged."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text + "\n").readline):
        if token.type == tokenize.STRING or tokenize.tok_name[token.type].startswith("FSTRING"):
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
    lines = text.split("\n")
    return "\n".join(
        line if number in inside or not line.strip() else f"    {line}" for number, line in enumerate(lines, 1)
    )
