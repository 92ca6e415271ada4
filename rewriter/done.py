"""
Whether a training file is migrated already, so that no rule would change it. Standard library only.

The question is asked of every call that a rule answers to: does the accelerator make it, or does it stand in one of
the spellings that a migrated script keeps? A spelling that is missing here costs sixty milliseconds, one too many
would hide work; so names are believed only as far as assignments in the same file carry them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from .shallow import Call, Place, Scope, Survey, accelerators_of, dotted, foreign_modules

# fmt: off
_RAW = frozenset({
    "backward", "device", "DataParallel", "DistributedDataParallel", "DistributedSampler", "fully_shard",
    "init_process_group", "set_device",
})
"""Calls that no migrated script makes on anything but its accelerator, whatever the triggers are."""
_FACTORIES = frozenset({
    "arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "randperm", "tensor", "zeros",
})
_SCHEDULERS = frozenset({
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau",
    "SequentialLR", "StepLR",
})
_EFFECTS = frozenset({
    "autolog", "copy", "copy2", "copyfile", "copytree", "dump", "imsave", "imwrite", "mimsave", "move", "remove",
    "removedirs", "rename", "replace", "rmdir", "rmtree", "safe_dump", "save_file", "save_image", "save_model",
    "savemat", "savetxt", "savez", "savez_compressed", "symlink", "unpack_archive", "write_jpeg", "write_png",
    "write_video",
})
"""Functions of other modules that change the file system: of the main process alone, whether or not a trigger."""
_WRITING_METHODS = frozenset({
    "push_to_hub", "save_pretrained", "savefig", "to_csv", "to_excel", "to_feather", "to_hdf", "to_html", "to_json",
    "to_latex", "to_markdown", "to_parquet", "to_pickle", "unlink", "write_bytes", "write_html", "write_image",
    "write_text",
})
"""The same, by whatever object they are called on."""
_AUTHORS = _EFFECTS | _WRITING_METHODS | {
    "basicConfig", "item", "makedirs", "mkdir", "open", "print", "save", "setLevel", "state_dict", "write",
}
"""What the author of a script that shares its rows by itself has settled: who prints and writes, what is summed."""
# fmt: on


def is_migrated(tree: ast.Module, nodes: Sequence[ast.AST], triggers: frozenset[str], *, tells: bool = True) -> bool:
    """Whether an accelerator is at work in a file and no call named in ``triggers`` is left for the rules; with
    ``tells`` also nothing that they would tell."""
    accelerators = accelerators_of(nodes)
    if "accelerate" in triggers and _on_accelerate(nodes):
        return False
    if not accelerators or _renames(nodes, triggers | _RAW) or _types_of_old(nodes) or _searches(nodes):
        return False
    survey = Survey(accelerators, foreign_modules(nodes))
    survey.visit_all(tree.body, Place(Scope()))
    left = [call for call in survey.calls if not _leaves(survey, call, triggers)]
    if left and all(call.name == "cpu" for call in left):
        from .cpu_values import end_in_files

        return end_in_files(survey, nodes, _EFFECTS | _WRITING_METHODS | {"save"}, tells=tells)
    return not left


def _types_of_old(nodes: Sequence[ast.AST]) -> bool:
    """Whether ``torch.cuda.FloatTensor`` and the like are named, whatever is made with them."""
    attributes = (node for node in nodes if isinstance(node, ast.Attribute) and node.attr.endswith("Tensor"))
    return any(isinstance(node.value, ast.Attribute) and node.value.attr == "cuda" for node in attributes)


def _on_accelerate(nodes: Sequence[ast.AST]) -> bool:
    """Whether something is imported from Accelerate, whose names the runtime has."""
    for node in nodes:
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(module.partition(".")[0] == "accelerate" for module in modules):
            return True
    return False


def _searches(nodes: Sequence[ast.AST]) -> bool:
    """Whether a loop looks for a free name, ``while exists(...)``, and no process hands out what it has found."""
    names = [
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for loop in nodes
        if isinstance(loop, ast.While)
        for node in ast.walk(loop.test)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name))
    ]
    loops = sum(name in ("exists", "isdir", "isfile", "is_dir", "is_file") for name in names)
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    handed = sum(isinstance(f, ast.Name) and f.id == "broadcast_object_list" for f in calls)
    return loops > handed


def _renames(nodes: Sequence[ast.AST], watched: frozenset[str]) -> bool:
    """Whether an import gives one of the names that matter another one: ``from torch import save as keep``."""
    imports = (node for node in nodes if isinstance(node, ast.ImportFrom))
    return any(alias.name in watched and alias.asname not in (None, alias.name) for i in imports for alias in i.names)


def _leaves(survey: Survey, call: Call, triggers: frozenset[str]) -> bool:
    """Whether the rules have no business with a call."""
    if survey.is_ours(call.node.func):
        return survey.reaches(call.node.func, call.place.scope)
    if call.receiver is None and call.name in survey.takers and not survey.is_handed_on(call.node):
        return False
    if call.name == "DistributedSampler" and survey.shares_rows(call):
        return True
    if call.name in _RAW:
        return False
    if survey.settled and call.name in _AUTHORS:
        return True
    if call.name == "state_dict" and dotted(call.receiver) in survey.models and call.node not in survey.copied:
        return False
    if call.name not in triggers and call.name not in _EFFECTS and call.name not in _WRITING_METHODS:
        return True
    return call.name in _HARMLESS and _HARMLESS[call.name](survey, call)


def _placement(survey: Survey, call: Call) -> bool:
    """``torch.randn(n).to(accelerator.device)`` and moves that name only a dtype."""
    values = [*call.node.args, *(k.value for k in call.node.keywords if k.arg not in ("dtype", "non_blocking", "copy"))]
    moves = [value for value in values if not dotted(value).startswith("torch.")]
    factory = dotted(call.receiver.func) if isinstance(call.receiver, ast.Call) else ""
    fresh = factory.startswith("torch.") and factory[6:] in _FACTORIES
    return not moves or (fresh and all(survey.is_device(value) for value in moves))


def _loader(survey: Survey, call: Call) -> bool:
    """A loader that ``prepare`` is given: directly, by name, or by whoever calls the function that returns it."""
    scope = call.place.scope
    if call.node in survey.arguments or survey.is_prepared(call.target, scope):
        return True
    given = survey.given.get(scope.function, []) if call.target in {"return", *scope.returned} else []
    return bool(given) and all(survey.is_prepared(name, there) for there, names in given for name in names)


def _step(survey: Survey, call: Call) -> bool:
    """Something prepared, a scheduler of it beside ``backward``; or a scheduler outside those loops, not prepared."""
    name, scope, loops = dotted(call.receiver), call.place.scope, survey.backward_loops
    if survey.is_prepared(name, scope):
        return call.place.loop in loops or not survey.makers.get(name, set()) & _SCHEDULERS
    coarse = call.place.loop is not None and None not in loops and call.place.loop not in loops
    if name in scope.parameters and name not in scope.made:
        makers = [survey.makers.get(given, set()) for given in survey.filled(scope, name)]
        return coarse and bool(makers) and all(made and made <= _SCHEDULERS for made in makers)
    return coarse and scope.made.get(name) in _SCHEDULERS


def _guarded(survey: Survey, call: Call) -> bool:
    """An effect of the main process alone."""
    return call.place.guarded


def _outside(survey: Survey, call: Call) -> bool:
    """An effect of the main process alone, or a method that merely has such a name: ``text.replace``."""
    root = (dotted(call.receiver) or "?" if call.receiver else dotted(call.node.func)).partition(".")[0]
    return call.place.guarded or root not in survey.foreign


def _folder(survey: Survey, call: Call) -> bool:
    """A folder that any number of processes may make at once."""
    return call.place.guarded or any(
        k.arg == "exist_ok" and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.node.keywords
    )


def _saved(survey: Survey, call: Call) -> bool:
    """The main process saves something that is not torch's to save."""
    return call.place.guarded and dotted(call.receiver).partition(".")[0] in survey.foreign


def _open(survey: Survey, call: Call) -> bool:
    """The main process alone, or the builtin in a mode that reads."""
    if call.place.guarded or (call.node.args and survey.is_switched(call.node.args[0])):
        return True
    modes = [*call.node.args[1:2], *(k.value for k in call.node.keywords if k.arg in ("mode", None))]
    reads = all(isinstance(m, ast.Constant) and m.value in ("r", "rb", "rt") for m in modes)
    return isinstance(call.node.func, ast.Name) and reads


def _written(survey: Survey, call: Call) -> bool:
    """To a file; a line of the console is the main process's."""
    return call.place.guarded or dotted(call.receiver) not in ("sys.stdout", "sys.stderr", "tqdm", "tqdm.tqdm")


def _printed(survey: Survey, call: Call) -> bool:
    """The main process alone, or into a file that is nowhere for the others."""
    files = [dotted(k.value) for k in call.node.keywords if k.arg == "file"]
    return call.place.guarded or any(call.place.scope.made.get(name) == "open" for name in files)


def _handle(survey: Survey, call: Call) -> bool:
    """A tracker or a logger that does nothing on the other processes."""
    values = [*call.node.args, *(k.value for k in call.node.keywords)]
    return call.place.guarded or any(survey.is_switched(value) for value in values)


def _started(survey: Survey, call: Call) -> bool:
    """The same, or a method of that name that has nothing to do with it."""
    return _handle(survey, call) or dotted(call.receiver).partition(".")[0] not in survey.foreign


def _stamp(survey: Survey, call: Call) -> bool:
    """A time that is printed, or handed to all processes."""
    return call.node in survey.handed or call.node in survey.printed or call.place.guarded


def _fetched(survey: Survey, call: Call) -> bool:
    """Brought by the main process alone, or by the main process first."""
    return call.place.guarded or call.place.turn


def _load(survey: Survey, call: Call) -> bool:
    """Another library's ``load``, or torch's onto the CPU or the accelerator's device."""
    where = [k.value for k in call.node.keywords if k.arg == "map_location"]
    known = bool(where) and (survey.is_device(where[0]) or getattr(where[0], "value", None) == "cpu")
    if dotted(call.receiver).partition(".")[0] in survey.foreign:
        return True
    return known and not _races(survey, call)


def _races(survey: Survey, call: Call) -> bool:
    """Whether a file may be read that another process is still writing: no wait between the last save and the load."""
    lines: dict[str, list[int]] = {"save": [], "wait_for_everyone": []}
    for other in survey.calls:
        if other.name in lines and other.node.lineno < call.node.lineno:
            lines[other.name].append(other.node.lineno)
    return max(lines["save"], default=0) > max(lines["wait_for_everyone"], default=0)


def _load_state(survey: Survey, call: Call) -> bool:
    """The state of something prepared, or of a scheduler: they take the original's checkpoint as it is."""
    name, scope = dotted(call.receiver), call.place.scope
    return survey.is_prepared(name, scope) or scope.made.get(name) in _SCHEDULERS


def _gathered(survey: Survey, call: Call) -> bool:
    """A figure of the samples of all processes."""
    return call.gathered


def _item(survey: Survey, call: Call) -> bool:
    """A figure of all processes, or the loss that one process prints beside its ``backward``."""
    if call.gathered:
        return True
    beside = call.place.loop is not None and call.place.loop in survey.backward_loops
    return beside and call.node in survey.printed and dotted(call.receiver) in call.place.scope.losses


_HARMLESS: dict[str, Callable[[Survey, Call], bool]] = {
    "DataLoader": _loader,
    **dict.fromkeys(_EFFECTS, _outside),
    **dict.fromkeys(_WRITING_METHODS, _guarded),
    **dict.fromkeys(("SummaryWriter", "Experiment", "Visdom", "Live", "start_run", "init_run"), _handle),
    **dict.fromkeys(("basicConfig", "setLevel", "FileHandler", "RotatingFileHandler"), _handle),
    **dict.fromkeys(("strftime", "isoformat", "uuid4", "mkdtemp", "listdir"), _stamp),
    **dict.fromkeys(("MNIST", "CIFAR10", "CIFAR100", "FashionMNIST", "urlretrieve", "extractall"), _fetched),
    "cpu": _gathered,
    "init": _started,
    "item": _item,
    "load": _load,
    "load_state_dict": _load_state,
    "makedirs": _folder,
    "mkdir": _folder,
    "open": _open,
    "print": _printed,
    "save": _saved,
    "step": _step,
    "to": _placement,
    "write": _written,
}
