"""The words for devices: numbers of GPUs, what stays on the CPU, what a removed wrapper moved."""

from __future__ import annotations

from ..facts.reasons.devices import (
    AskedInput,
    ChosenForOthers,
    ChosenGpus,
    CountedGpus,
    CpuChoice,
    CpuChoices,
    EarlyTensor,
    FixedGpu,
    LentWrapper,
    MadeInForward,
    NumberedGpu,
    OnHost,
    PartOnCpu,
    PinnedForOthers,
    PinnedGpu,
    RowAtRest,
    SecondGpu,
    StaysOnHost,
    TwofoldModule,
    UnmovedInput,
    UnreadTensor,
    UnusedNumber,
)
from ..findings import Finding, Severity
from .registry import worded


@worded.register(UnreadTensor)
def _unread_tensor(found: UnreadTensor) -> Finding:
    return Finding(
        "device-constant",
        found.node,
        "created when the module is imported: on several GPUs every process puts it on the first one. Nothing in this "
        "program reads it",
        "no action needed, but it takes memory there: create it in a function",
        Severity.NOTE,
        case="unread",
    )


@worded.register(UnusedNumber)
def _unused_number(found: UnusedNumber) -> Finding:
    return Finding(
        "launcher",
        found.node,
        "the GPU number is no longer used here: each process has its own GPU",
        "choose the GPUs at launch: CUDA_VISIBLE_DEVICES=... torchlift launch ...",
        Severity.NOTE,
        case="own-choice",
    )


@worded.register(NumberedGpu)
def _numbered_gpu(found: NumberedGpu) -> Finding:
    return Finding(
        "device-constant",
        found.node,
        f"{found.constant} is read in code that has no access to the accelerator: if it names a GPU by number, every "
        "process uses that same GPU there",
        'set it to "cuda" without a number, which is the GPU of the current process',
        Severity.REVIEW,
        case="gpu-number",
    )


@worded.register(EarlyTensor)
def _early_tensor(found: EarlyTensor) -> Finding:
    return Finding(
        "device-constant",
        found.node,
        "created when the module is imported, before the accelerator assigns a GPU to the process: on several GPUs it "
        f"would be on the first one, whatever {found.constant} is later",
        "create it in a function, or move it where it is used: .to(x.device)",
        Severity.BLOCKED,
        case="tensor",
    )


@worded.register(StaysOnHost)
def _stays_on_host(found: StaysOnHost) -> Finding:
    happens = _HAPPENS[found.meetings[0].what].format(text=found.meetings[0].text)
    remedies = (_INSTEAD[each.what].format(text=each.text) for each in found.meetings)
    taken = ", ".join(f"`{text}`" for text in found.taken)
    back = f", add .cpu() where the CPU needs a result ({taken})," if taken else ""
    return Finding(
        "cpu-only",
        found.node,
        f"the script names no device and {happens}: on a GPU this CPU tensor causes a device mismatch, so the "
        "accelerator is created with cpu=True",
        f"to train on GPUs, {', '.join(remedies)} (likewise for what meets these tensors or a result of the "
        f"model){back} and remove cpu=True",
        Severity.REVIEW,
    )


@worded.register(FixedGpu)
def _fixed_gpu(found: FixedGpu) -> Finding:
    return Finding(
        "device-flag",
        found.node,
        f"`{found.text}` names one GPU by its number on every process, and cannot be given that of the process: "
        f"{found.fixed}",
        'write "cuda" without the number where it is chosen: each process then uses its own GPU',
        Severity.BLOCKED,
        case="gpu-number",
    )


@worded.register(PartOnCpu)
def _part_on_cpu(found: PartOnCpu) -> Finding:
    return Finding(
        "device-flag",
        found.node,
        f"{found.code} keeps a part of the training on the CPU, and the script moves other parts to another device: "
        "all of it goes to the available device",
        "if the CPU is meant, pass Accelerator(cpu=True)",
        Severity.REVIEW,
        case="part",
    )


@worded.register(CpuChoice)
def _cpu_choice(found: CpuChoice) -> Finding:
    return Finding(
        "device-flag",
        found.node,
        f"{found.code} decides whether the CPU is used, and is not known where the accelerator is created: it uses "
        "the available device",
        "pass the condition there: Accelerator(cpu=...)",
        Severity.REVIEW,
        case="out-of-reach",
    )


@worded.register(CpuChoices)
def _cpu_choices(found: CpuChoices) -> Finding:
    conditions = list(dict.fromkeys(text.replace("self.", "") for text in found.conditions))
    listed = ", ".join(f"`{text}`" for text in conditions)
    said = f"several conditions decide whether the CPU is used ({listed})"
    if len(conditions) == 1:
        said = f"{listed} decides in several places whether the CPU is used, and may be another condition in each"
    return Finding(
        "device-flag",
        found.node,
        f"{said}: the accelerator uses the available device",
        "no action needed if it should train on a GPU wherever there is one; otherwise pass the condition that decides "
        f"for the model: Accelerator(cpu={conditions[0]})",
        Severity.REVIEW,
        case="several",
    )


@worded.register(SecondGpu)
def _second_gpu(found: SecondGpu) -> Finding:
    return Finding(
        "device_placement",
        found.node,
        f"the script puts this on GPU {found.number} and other things on GPU {found.first}: each process has one GPU, "
        "and all of it is there now",
        "no action needed if one GPU can hold all of it; a model that is split over GPUs is migrated by hand",
        Severity.REVIEW,
        case="several-gpus",
    )


@worded.register(RowAtRest)
def _row_at_rest(found: RowAtRest) -> Finding:
    return Finding(
        "device_placement",
        found.node,
        f"`{found.batch}` is on the device, and `{found.text}` comes from a data set by no loader, so nothing moves "
        "it: if it is a tensor of more than one number, this causes a device mismatch on a GPU",
        f"write {found.text}.to({found.batch}.device) if it is a tensor; otherwise no action needed",
        Severity.REVIEW,
        case="data-row",
    )


@worded.register(MadeInForward)
def _made_in_forward(found: MadeInForward) -> Finding:
    return Finding(
        "device_placement",
        found.node,
        f"the script never moves {found.model}, and prepare(...) does: this tensor is made on the CPU, which causes a "
        "device mismatch with the weights on a GPU",
        "make it where the weights are: device=next(self.parameters()).device",
        Severity.REVIEW,
        case="in-forward",
    )


@worded.register(TwofoldModule)
def _twofold_module(found: TwofoldModule) -> Finding:
    return Finding(
        "data_parallel",
        found.node,
        f"this `.module` is taken for the removed wrapper's, but {found.owner or 'the model'} has one of its own",
        "if the model's own is meant, write `.module` again",
        case="attribute",
    )


@worded.register(UnmovedInput)
def _unmoved_input(found: UnmovedInput) -> Finding:
    return Finding(
        "data_parallel",
        found.node,
        f"{found.wrapper} moved `{found.text}` to the GPU of `{found.model}`, and is removed: if it comes from the "
        "CPU, nothing moves it now",
        f"if it is on the CPU, move it to accelerator.device, or to next({found.model}.parameters()).device",
        Severity.REVIEW,
        case="moves",
    )


@worded.register(LentWrapper)
def _lent_wrapper(found: LentWrapper) -> Finding:
    return Finding(
        "data_parallel",
        found.node,
        f"{found.user} also runs this: without nn.DataParallel its model is on one GPU, what it gives the model from "
        "the CPU is not moved there, and `.module` fails",
        f"migrate {found.user} in the same run, or move it there to the device of the model's parameters",
        Severity.REVIEW,
        case="other-script",
    )


@worded.register(ChosenForOthers)
def _chosen_for_others(found: ChosenForOthers) -> Finding:
    return Finding(
        "launcher",
        found.node,
        "this line also chooses the visible GPUs for other programs, so it stays: here every process would see the "
        "same GPUs, and the second process may find none for itself",
        "choose them at launch instead: CUDA_VISIBLE_DEVICES=... torchlift launch ...",
        Severity.REVIEW,
        case="kept-choice",
    )


@worded.register(PinnedForOthers)
def _pinned_for_others(found: PinnedForOthers) -> Finding:
    return Finding(
        "launcher",
        found.node,
        "this line also chooses the GPU for other programs, so it stays: here every process would work on the same GPU",
        "remove it, and choose the GPUs at launch: CUDA_VISIBLE_DEVICES=... torchlift launch ...",
        Severity.REVIEW,
        case="kept-choice",
    )


@worded.register(ChosenGpus)
def _chosen_gpus(found: ChosenGpus) -> Finding:
    return Finding(
        "launcher",
        found.node,
        "the script chose its own GPUs: every process would see the same GPUs, and the second process may find none "
        "for itself",
        f"choose them {_launch(found.notebook)}",
        Severity.NOTE,
        case="own-choice",
    )


@worded.register(CountedGpus)
def _counted_gpus(found: CountedGpus) -> Finding:
    return Finding(
        "launcher",
        found.node,
        f"`{found.code}` is looked up for each visible GPU, and the script does not choose these any more: where the "
        "machine has more GPUs than were named, this fails",
        "remove this line: the launcher says which GPUs there are",
        Severity.REVIEW,
        case="counted",
    )


@worded.register(PinnedGpu)
def _pinned_gpu(found: PinnedGpu) -> Finding:
    return Finding(
        "launcher",
        found.node,
        "the launcher now assigns a GPU to each process; the script's own GPU number has no effect",
        f"choose the GPUs {_launch(found.notebook)}",
        Severity.NOTE,
        case="own-choice",
    )


@worded.register(AskedInput)
def _asked_input(found: AskedInput) -> Finding:
    return Finding(
        "once",
        found.node,
        "every process asks for input, and each waits for its own answer",
        "make it a command-line argument of the script",
        Severity.REVIEW,
        case="question",
    )


def _launch(notebook: bool) -> str:
    """When GPUs are chosen, and how."""
    if notebook:
        return "where the notebook starts: CUDA_VISIBLE_DEVICES=... jupyter lab"
    return "at launch: CUDA_VISIBLE_DEVICES=... torchlift launch ..."


_HAPPENS = {
    OnHost.MADE: "creates this tensor on the CPU",
    OnHost.KEPT: "keeps {text} on the CPU",
    OnHost.GIVEN: "gives the model what no prepared loader yields",
    OnHost.MOVED: "moves what it gives the model to the CPU",
    OnHost.NAMED: "puts a part of the loss on the CPU by name",
}
_INSTEAD = {
    OnHost.MADE: "create such tensors with device=accelerator.device",
    OnHost.KEPT: "move {text} to accelerator.device",
    OnHost.GIVEN: "add .to(accelerator.device) to `{text}`",
    OnHost.MOVED: "remove the move",
    OnHost.NAMED: "write accelerator.device in place of the CPU",
}
