"""The words for programs that distribute themselves, and for what only some of their processes do."""

from __future__ import annotations

from ..facts.manual_ddp import PLAIN_KEYS
from ..facts.reasons.distributed import (
    AlsoOfUser,
    CudaOnlyMove,
    Hindrance,
    KeptCall,
    ListedCall,
    ListedVariable,
    MetApart,
    NoPrefix,
    NoSpawn,
    NotReplaced,
    Unconnected,
    UnmovedBatches,
)
from ..findings import Cause, Finding, Severity
from .registry import worded


@worded.register(MetApart)
def _met_apart(found: MetApart) -> Finding:
    return Finding(
        "local-decision",
        found.node,
        f"only some processes pass {found.condition}, and it decides whether they come to {found.work}, which all "
        "processes must do together: those that come would wait for the others",
        "let all processes run this code, and put only what prints or writes under the condition",
        Severity.BLOCKED,
        case="some-processes",
    )


@worded.register(UnmovedBatches)
def _unmoved_batches(found: UnmovedBatches) -> Finding:
    return Finding(
        "prepare",
        found.node,
        f"{found.loader} is not prepared, because {found.because}. Nothing moves its batches to the GPU, where the "
        "prepared model is",
        "move what the loop reads to the device of the model: x = x.to(device), then migrate",
        Severity.BLOCKED,
        case="not-moved",
    )


@worded.register(CudaOnlyMove)
def _cuda_only_move(found: CudaOnlyMove) -> Finding:
    return Finding(
        "device_placement",
        found.node,
        f"`{found.moved}` goes to the accelerator's device, but only where `{found.test}` finds CUDA: with another "
        "accelerator (a Mac) this stays on the CPU, and the batches do not",
        "make this move in any case: on the CPU it does nothing",
        Severity.NOTE,
        case="condition",
    )


@worded.register(KeptCall)
def _kept_call(found: KeptCall) -> Finding:
    return Finding(
        "hand_written_ddp",
        found.node,
        f"torch.distributed.{found.name} is left unchanged: it uses the process group that the accelerator opens on "
        "several processes, and fails on a single process, which has no group",
        _INSTEAD.get(found.name, "use the accelerator's method if the script must also run on one process"),
        Severity.REVIEW,
        case="kept-call",
    )


@worded.register(NoSpawn)
def _no_spawn(found: NoSpawn) -> Finding:
    return Finding(
        "hand_written_ddp",
        found.node,
        "the script no longer starts its own processes",
        "start it with torchlift launch --num-processes N (or torchrun --nproc-per-node N)",
        Severity.NOTE,
        case="start",
    )


@worded.register(Unconnected)
def _unconnected(found: Unconnected) -> Finding:
    return Finding(
        "already-distributed",
        found.node,
        "distributed by hand: the process group is opened where the accelerator cannot be created",
        "open it in the function that builds the model and the optimizer, or in a caller of that function",
        Severity.BLOCKED,
        case="connected",
    )


@worded.register(NoPrefix)
def _no_prefix(found: NoPrefix) -> Finding:
    return Finding("hand_written_ddp", found.node, *PLAIN_KEYS, case="prefix")


@worded.register(AlsoOfUser)
def _also_of_user(found: AlsoOfUser) -> Finding:
    return Finding(
        "hand_written_ddp",
        found.node,
        f"the migrated script trains on all processes that a launcher starts. What `{found.test}` decides follows "
        f"`{found.option}` too, an option of the user: where that says one process, each process takes itself for the "
        "only one here, and prints and writes as such",
        "no action needed if nobody sets the option with a launcher; otherwise ask the launcher alone: "
        'int(os.environ.get("WORLD_SIZE", 1)) > 1',
        Severity.REVIEW,
        part=found.part,
        case="also-of-user",
    )


@worded.register(ListedCall)
def _listed_call(found: ListedCall) -> Finding:
    remedy = _INSTEAD.get(found.name, "use the accelerator's method, or leave it out")
    message = f"distributed by hand: {found.name}"
    return Finding("already-distributed", found.node, message, remedy, Severity.BLOCKED, case="listed")


@worded.register(ListedVariable)
def _listed_variable(found: ListedVariable) -> Finding:
    message = f'distributed by hand: os.environ["{found.name}"]'
    remedy = _INSTEAD_OF_VARIABLES[found.name]
    return Finding("already-distributed", found.node, message, remedy, Severity.BLOCKED, case="listed")


_SHARDS = (
    "migrate the single-device version of the script: `torchlift launch --use-fsdp` shards its weights; or leave this "
    "script as it is"
)
_INSTEAD = {
    "init_process_group": "remove it: Accelerator() opens the group, under torchrun as well",
    "destroy_process_group": "remove it: the accelerator closes what it opened",
    "DistributedDataParallel": "remove the wrapper and its .module: prepare(model) replaces it",
    "DistributedSampler": "remove the sampler and its set_epoch(): pass shuffle=True to the loader, and prepare it",
    "spawn": "call the worker directly: `torchlift launch --num-processes N` (or torchrun) starts the processes",
    "get_rank": "accelerator.process_index; if rank == 0 becomes if accelerator.is_main_process",
    "get_world_size": "accelerator.num_processes",
    "barrier": "accelerator.wait_for_everyone()",
    "all_reduce": 'accelerator.reduce(x, reduction="sum"); for a metric gather_for_metrics before it is counted',
    "reduce": 'accelerator.reduce(x, reduction="sum")',
    "all_gather": "accelerator.gather(x)",
    "all_gather_object": "accelerator.gather_for_metrics(x, use_gather_object=True)",
    "broadcast": "broadcast(x) of torchlift.runtime.utils",
    "broadcast_object_list": "broadcast_object_list(x) of torchlift.runtime.utils",
    "is_initialized": "accelerator.use_distributed",
    "init_device_mesh": "a mesh of several dimensions is not supported yet: leave this script as it is",
    "parallelize_module": "the runtime distributes data, not the layers of a model: leave this script as it is",
    "FullyShardedDataParallel": _SHARDS,
    "fully_shard": _SHARDS,
    "convert_sync_batchnorm": "keep it before prepare(model): it only matters on GPUs",
}
_INSTEAD_OF_VARIABLES = {
    "RANK": "accelerator.process_index",
    "LOCAL_RANK": "accelerator.local_process_index",
    "WORLD_SIZE": "accelerator.num_processes",
    "MASTER_ADDR": "remove it: the launcher sets it",
    "MASTER_PORT": "remove it: the launcher sets it",
}


@worded.register(NotReplaced)
def _not_replaced(found: NotReplaced) -> Finding:
    message, remedy, case = _HINDRANCES[found.why]
    return Finding(
        "already-distributed",
        found.node,
        f"distributed by hand: {message.format(name=found.name, option=found.option)}",
        remedy.format(name=found.name, instead=_INSTEAD.get(found.name.rpartition(".")[2], _LEFT_OUT)),
        Severity.BLOCKED,
        found.part,
        Cause(found.given, "it is set here") if found.given is not None else None,
        case,
    )


def blocked(why: Hindrance, message: str, remedy: str, *, case: str) -> tuple[Hindrance, tuple[str, str, str]]:
    """What is said of one hindrance; ``{name}`` and ``{option}`` are those of the reason."""
    return why, (message, remedy, case)


_LEFT_OUT = "leave it out, or keep the script as it is"
_GROUP = "leave out the group: it then works on all processes"
_ONE_DEVICE = "give each process one device, that of its local rank: model.to(local_rank), device_ids=[local_rank]"
_HINDRANCES = dict(
    (
        blocked(Hindrance.OWN_GROUP, "{name} works on its own process group", _GROUP, case="group"),
        blocked(Hindrance.NO_COUNTERPART, "{name} has no counterpart", "{instead}", case="call"),
        blocked(
            Hindrance.HIDDEN_ARGUMENTS,
            "the arguments of {name} cannot be seen here",
            "write them out in the call",
            case="call",
        ),
        blocked(
            Hindrance.UNKNOWN_OPTION, "{name} gets {option}, which has no counterpart", "leave it out", case="call"
        ),
        blocked(
            Hindrance.USED_RESULT, "the return value of {name} is used", "call it as a separate statement", case="call"
        ),
        blocked(
            Hindrance.OWN_CONDITION,
            "`{name}` decides whether the processes are connected",
            'let only the launcher decide: int(os.environ.get("WORLD_SIZE", 1)) > 1',
            case="connected",
        ),
        blocked(
            Hindrance.UNKNOWN_WORKER,
            "cannot tell which function the processes run",
            "name it: mp.spawn(main_worker, ...)",
            case="workers",
        ),
        blocked(
            Hindrance.SEVERAL_MODES,
            "the function that the processes run is also called elsewhere: the script has several modes",
            "keep one mode: the call by which the script runs on one device, or this one",
            case="workers",
        ),
        blocked(
            Hindrance.HIDDEN_WORKER_ARGUMENTS,
            "cannot tell which arguments the processes get",
            "write mp.spawn(f, args=(a, b))",
            case="workers",
        ),
        blocked(
            Hindrance.GOES_ON,
            "the script goes on while the processes run",
            "wait for them, in a separate statement: mp.spawn(f, args=(a, b), join=True)",
            case="workers",
        ),
        blocked(
            Hindrance.STARTED_AGAIN,
            "processes are started more than once",
            "start them once, and put the loop into the function that they run",
            case="workers",
        ),
        blocked(
            Hindrance.OPEN_PARAMETERS,
            "the function that the processes run takes *args or **kwargs",
            "write out its parameters",
            case="workers",
        ),
        blocked(
            Hindrance.SPREAD_MODEL,
            "the model is spread over several devices of one process",
            _ONE_DEVICE,
            case="devices",
        ),
        blocked(
            Hindrance.UNKNOWN_MODEL,
            "cannot tell which model is wrapped",
            "write DistributedDataParallel(model)",
            case="call",
        ),
        blocked(
            Hindrance.WRAPPER_METHOD,
            ".{name}() belongs to the wrapper, which is removed",
            "leave it out: DistributedDataParallelKwargs(comm_hook=...) compresses gradients; other hooks are not "
            "supported",
            case="call",
        ),
        blocked(
            Hindrance.RANK_DEVICE,
            "a device is computed from the rank: the model may be spread over several devices",
            _ONE_DEVICE,
            case="devices",
        ),
        blocked(
            Hindrance.SET_VARIABLE,
            "the script sets {name} itself",
            "remove this line: the launcher sets it",
            case="environment",
        ),
        blocked(
            Hindrance.EXCHANGE_SWITCH,
            "require_backward_grad_sync belongs to the wrapper, which is removed",
            "put the passes that exchange nothing under `with model.no_sync():`",
            case="call",
        ),
        blocked(
            Hindrance.OWN_SAMPLER,
            "{name}, the sampler of this loader, is a class of the script's own, and a prepared loader would share its "
            "rows once more",
            "use torch.utils.data.distributed.DistributedSampler in place of {name}",
            case="data",
        ),
        blocked(
            Hindrance.NO_SAMPLER,
            "cannot find a DistributedSampler for the rows of this loader, which a training loop reads",
            "give it sampler=DistributedSampler(...)",
            case="data",
        ),
        blocked(
            Hindrance.UNKNOWN_LOADER,
            "cannot tell which loader gives the batches of this loop, and whether the processes share them",
            "iterate the DataLoader itself: for batch in loader",
            case="data",
        ),
    )
)
