"""The words for what should happen once: files, folders, downloads, trackers, the console."""

from __future__ import annotations

from ..facts.reasons import about, called
from ..facts.reasons.effects import (
    AskedApart,
    AskedInHead,
    ChosenDownload,
    FileForRows,
    FileOfRows,
    FolderOfAll,
    JointWrite,
    LeftFile,
    ListedEarly,
    NoWaitInTry,
    OtherOrder,
    RunName,
    RunsCommand,
    RunsOnAll,
    SearchedName,
    SharedDownload,
    SharedFile,
    ShownByAll,
    StateOfOne,
    TemporaryFolder,
    TrackedValue,
    UnknownEffects,
    UsedWrite,
)
from ..findings import Cause, Finding, Severity
from .registry import worded


@worded.register(SharedDownload)
def _shared_download(found: SharedDownload) -> Finding:
    return Finding(
        "downloads",
        found.node,
        "every process would download the same files at the same time",
        "check first whether they exist, inside `with accelerator.main_process_first():`",
        case="same-time",
    )


@worded.register(ShownByAll)
def _shown_by_all(found: ShownByAll) -> Finding:
    return Finding(
        "main_process",
        found.node,
        f"every process still writes this to the console: {found.why}",
        "no action needed, unless it should be shown once",
        Severity.NOTE,
        case="console",
    )


@worded.register(UsedWrite)
def _used_write(found: UsedWrite) -> Finding:
    return Finding(
        "main_process",
        found.node,
        "every process would run this write, and its result is used later",
        "write on the main process only: if accelerator.is_main_process: ...",
        case="result",
    )


@worded.register(JointWrite)
def _joint_write(found: JointWrite) -> Finding:
    return Finding(
        "main_process",
        found.node,
        "every process would write this file, but the statement also runs something that all processes must run "
        "together",
        "compute the value on all processes first, then guard only the write: if accelerator.is_main_process: ...",
        case="together",
    )


@worded.register(AskedInHead)
def _asked_in_head(found: AskedInHead) -> Finding:
    return Finding(
        "read-back",
        found.node,
        "the function called here makes a file unless it is there, and each process asks for it by itself: one that "
        "comes later may read the file before it is whole",
        "call it in a statement of its own before this block, inside `with accelerator.main_process_first():`",
        Severity.REVIEW,
        case="made-inside",
    )


@worded.register(OtherOrder)
def _other_order(found: OtherOrder) -> Finding:
    return Finding(
        "read-back",
        found.node,
        f"the main process fills `{found.name}` as it makes the files, and the others by `{found.listing}`, in another "
        "order: in a first run one number is another file on each process, and some are read twice, others never",
        f"sort it after this, on all processes: {found.name}.sort()",
        Severity.REVIEW,
        case="other-order",
    )


@worded.register(AskedApart)
def _asked_apart(found: AskedApart) -> Finding:
    done, late = "written the file", "finds the file already"
    remedy = "ask for the file inside the function that makes it, and call that function without asking"
    if found.takes:
        done, late = "moved the files", "no longer finds it"
        remedy = "move the files once, in a script of its own that runs before the training"
    return Finding(
        "read-back",
        found.node,
        f"every process must wait here until the main process has {done}, but each asks `{found.test}` by itself, and "
        f"one that {late} does not come here",
        remedy,
        Severity.BLOCKED,
        case="asked",
    )


@worded.register(FolderOfAll)
def _folder_of_all(found: FolderOfAll) -> Finding:
    return Finding(
        "directories",
        found.node,
        "every process creates this folder, so it may already exist: the migrated script no longer ensures that it is "
        "new",
        "check that it does not exist at the start of the run, on the main process",
        case="new-folder",
    )


@worded.register(SearchedName)
def _searched_name(found: SearchedName) -> Finding:
    return Finding(
        "directories",
        found.node,
        "searches for an unused name: the processes may find different names",
        "search on the main process and broadcast the name: broadcast_object_list([name])[0]",
        case="unused-name",
    )


@worded.register(LeftFile)
def _left_file(found: LeftFile) -> Finding:
    return Finding(
        "once",
        found.node,
        "each process makes a temporary file of its own here, and nothing removes it: N processes leave N files",
        "no action needed if only the process itself reads it; otherwise make it on the main process alone, or remove "
        "it at the end",
        Severity.NOTE,
        case="temporary-file",
    )


@worded.register(TemporaryFolder)
def _temporary_folder(found: TemporaryFolder) -> Finding:
    return Finding(
        "directories",
        found.node,
        "each process makes a temporary folder of its own, and reads there what only the main process writes",
        "use a folder with a name that is the same for all processes",
        Severity.REVIEW,
        case="temporary",
    )


@worded.register(SharedFile)
def _shared_file(found: SharedFile) -> Finding:
    return Finding(
        "main_process",
        found.node,
        "every process would open this file for writing",
        'open it on the main process only, e.g. open(path if accelerator.is_main_process else os.devnull, "w")',
        case="open-file",
    )


@worded.register(TrackedValue)
def _tracked_value(found: TrackedValue) -> Finding:
    return Finding(
        "once",
        found.node,
        f"every process computes with `{found.text}`, so the {found.noun} is left on every process, and {found.why}",
        f"take the value from the script's own settings, then make the {found.noun} inert on the other processes",
        case="value",
    )


@worded.register(RunName)
def _run_name(found: RunName) -> Finding:
    return Finding(
        "once",
        found.node,
        "only the main process has a run, so the run's name differs between processes",
        "take the name from the script's own settings, or broadcast it with broadcast_object_list",
        case="value",
    )


@worded.register(RunsCommand)
def _runs_command(found: RunsCommand) -> Finding:
    return Finding(
        "once",
        found.node,
        about("{} runs on every process: each runs the command, and goes on with what it says", called(found.node)),
        "no action needed if it only asks for something, such as the size of the terminal; if it changes something, "
        "run it on the main process, and send what the others need with broadcast_object_list",
        Severity.REVIEW,
        case="command",
    )


@worded.register(RunsOnAll)
def _runs_on_all(found: RunsOnAll) -> Finding:
    return Finding(
        "once",
        found.node,
        about(f"{{}} runs on every process but should run once: {found.why}", called(found.node)),
        "do it on the main process only, and guard its uses or give the other processes an object that does nothing",
        Severity.REVIEW,
        case="object",
    )


@worded.register(NoWaitInTry)
def _no_wait_in_try(found: NoWaitInTry) -> Finding:
    message, remedy = (_GONE, _TAKE_LATER) if found.takes else (_EARLY, _READ_LATER)
    return Finding("read-back", found.node, message, remedy, case="in-try")


@worded.register(ListedEarly)
def _listed_early(found: ListedEarly) -> Finding:
    label = "it is listed here" if found.lists else "only the main process writes this"
    return Finding(
        "read-back",
        found.node,
        f"every process lists `{found.listed}`, and only the main process has written `{found.written}` before: if "
        "both are in one folder, the others may list it too early",
        "if they are, write accelerator.wait_for_everyone() before this line",
        Severity.NOTE,
        cause=Cause(found.source, label),
        case="listed",
    )


_EARLY = (
    "the main process alone writes what every process reads here, in a `try` that goes on after an error: no wait is "
    "added, because an error while it writes would leave the others waiting, and they may read the file too early"
)
_READ_LATER = "move the reading after the `try`, with accelerator.wait_for_everyone() before it"
_GONE = (
    "the main process alone takes away or overwrites here what every process has read, in a `try` that goes on after "
    "an error: no wait is added, because an error on one process would leave the others waiting, and the file may be "
    "gone before they read it"
)
_TAKE_LATER = "move this after the `try`, with accelerator.wait_for_everyone() before it"


@worded.register(StateOfOne)
def _state_of_one(found: StateOfOne) -> Finding:
    return Finding(
        "checkpoint_save",
        found.node,
        f"each process comes to `{found.handler}:` by itself, so `{found.taken}` stays as it is, and the main process "
        "saves what it has: with data parallelism that is the whole model",
        "no action needed, unless you shard the weights later: then save the model where all processes are",
        Severity.NOTE,
        case="alone",
    )


@worded.register(FileOfRows)
def _file_of_rows(found: FileOfRows) -> Finding:
    return Finding(
        "once",
        found.node,
        f"each process writes `{found.path}` for its own rows, while the others write the same file",
        "let each process write a file of its own: put os.environ.get('RANK', '0') into its name",
        Severity.REVIEW,
        case="row-file",
    )


@worded.register(FileForRows)
def _file_for_rows(found: FileForRows) -> Finding:
    text = f"write `{found.path}`" if found.path else "bring this file"
    return Finding(
        "once",
        found.node,
        "loaders run this for the rows of each process, and other code runs it on every process: several may "
        f"{text} at the same time",
        "let each write a name of its own and rename it with os.replace(...), or make the files before the training",
        Severity.REVIEW,
        case="row-file",
    )


@worded.register(UnknownEffects)
def _unknown_effects(found: UnknownEffects) -> Finding:
    of = f"{found.package}, a package" if found.package else "an object of a class that is chosen by name, and"
    return Finding(
        "once",
        found.node,
        f"every process calls {', '.join(f'`{call}`' for call in found.calls)} of {of} whose effects are not known",
        "if it changes something outside the process (a table, a message, a file), call it on the main process: if "
        "accelerator.is_main_process; otherwise no action needed",
        Severity.REVIEW,
        case="outside-code",
    )


@worded.register(ChosenDownload)
def _chosen_download(found: ChosenDownload) -> Finding:
    return Finding(
        "downloads",
        found.node,
        f"this download is in `{found.inside}`, which nothing is seen to call: if `{found.chooser}` chooses it, every "
        "process downloads at the same time",
        f"make what `{found.method}` chooses inside `with accelerator.main_process_first():`",
        Severity.REVIEW,
        case="chosen",
    )
