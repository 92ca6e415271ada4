"""The rules, in the order in which a reader of the diff wants them: ids and trigger names as plain strings."""

from __future__ import annotations

from ..rewriter.rule import Entry


def _entry(id: str, *triggers: str) -> Entry:
    return Entry(id, f"torchlift.codemods.{id}", frozenset(triggers))


CATALOGUE: tuple[Entry, ...] = (
    _entry("accelerate_imports", "accelerate"),
    _entry("accelerator_setup", "backward"),
    _entry("hand_written_ddp", "init_process_group", "DistributedDataParallel", "spawn"),
    _entry("data_parallel", "DataParallel"),
    _entry("device_placement", "to", "cuda", "cpu"),
    _entry("legacy_tensors", "type"),
    _entry("directories", "makedirs", "mkdir", "strftime", "isoformat", "uuid4", "mkdtemp", "listdir"),
    _entry("log_files", "open", "basicConfig", "setLevel", "FileHandler", "RotatingFileHandler"),
    _entry("tracking", "SummaryWriter", "init", "init_run", "start_run", "Experiment", "Visdom", "Live"),
    _entry("downloads", "MNIST", "CIFAR10", "CIFAR100", "FashionMNIST", "download", "urlretrieve", "extractall"),
    _entry("prepare", "backward", "DataLoader"),
    _entry("backward", "backward"),
    _entry("accumulation", "backward"),
    _entry("autocast", "autocast"),
    _entry("grad_scaler", "GradScaler"),
    _entry("clip_grad", "clip_grad_norm_", "clip_grad_value_"),
    _entry("scheduler", "step"),
    _entry("metrics_gather", "item"),
    _entry("main_process", "print", "open", "write", "savefig", "makedirs", "mkdir", "save_pretrained"),
    _entry("progress_bars", "tqdm", "trange"),
    _entry("checkpoint_save", "save"),
    _entry("checkpoint_load", "load", "load_state_dict"),
)
