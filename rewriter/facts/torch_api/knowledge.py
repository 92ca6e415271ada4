"""What is known of names outside the program: which of torch's callables make what. Tables, and lookups in them."""

from __future__ import annotations

from ..roles import Role

OPTIMIZER_MODULES = (
    "torch.optim.",
    "torch.optim._multi_tensor.",
    "timm.optim.",
    "bitsandbytes.optim.",
    "apex.optimizers.",
)
SCHEDULER_MODULES = ("torch.optim.lr_scheduler.", "timm.scheduler.")

LOADERS = frozenset(
    {
        "torch.utils.data.DataLoader",
        "torch.utils.data.dataloader.DataLoader",
        "torch_geometric.loader.DataLoader",
        "torch_geometric.data.DataLoader",
    }
)

LOSS_FUNCTIONS = frozenset(
    "binary_cross_entropy binary_cross_entropy_with_logits cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss "
    "huber_loss kl_div ctc_loss poisson_nll_loss gaussian_nll_loss cosine_embedding_loss hinge_embedding_loss "
    "margin_ranking_loss multilabel_margin_loss multilabel_soft_margin_loss multi_margin_loss soft_margin_loss "
    "triplet_margin_loss triplet_margin_with_distance_loss nll_loss2d".split()
)

DEVICE_CALLS = frozenset(
    {
        "torch.device",
        "torch.accelerator.current_accelerator",
        "torch.get_default_device",
        "torch.cuda.device",
    }
)
DEVICE_WORDS = frozenset({"cpu", "cuda", "mps", "xpu", "npu", "hpu"})

GPU_NUMBERS = frozenset(
    "gpu gpu_id gpuid gpu_idx gpu_num gpu_number cuda_id cuda_idx cuda_device cuda_num device_id device_idx device_num "
    "device dev local_rank".split()
)
"""How scripts call the number of a GPU."""

DATA_PARALLEL = frozenset({"torch.nn.DataParallel", "torch.nn.parallel.DataParallel"})

DISTRIBUTED_DATA_PARALLEL = frozenset(
    {
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
    }
)

WRAPPERS = DATA_PARALLEL | DISTRIBUTED_DATA_PARALLEL

DISTRIBUTED_SAMPLERS = frozenset(
    {"torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler"}
)

SPAWNS = frozenset(
    {"torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn", "torch.multiprocessing.start_processes"}
)

PINS = frozenset({"torch.cuda.set_device", "torch.accelerator.set_device_index", "torch.accelerator.set_device"})

AVAILABILITY = frozenset(
    {
        "torch.cuda.is_available",
        "torch.accelerator.is_available",
        "torch.backends.mps.is_available",
        "torch.backends.mps.is_built",
        "torch.xpu.is_available",
        "torch.cuda.device_count",
    }
)

PASSES_LOADER = frozenset(
    "tqdm trange tqdm_notebook track progress islice list iter cycle log_every progress_bar reversed auto "
    "ProgressBar".split()
)
"""Last names of callables that give back what they iterate."""

DISTRIBUTED = (
    DISTRIBUTED_DATA_PARALLEL
    | DISTRIBUTED_SAMPLERS
    | SPAWNS
    | {
        "torch.distributed.init_process_group",
        "torch.distributed.rpc.init_rpc",
        "torch.distributed.init_device_mesh",
        "torch.distributed.device_mesh.init_device_mesh",
        "torch.distributed._tensor.device_mesh.init_device_mesh",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard",
        "torch.distributed.tensor.parallel.parallelize_module",
        "horovod.torch.init",
        "deepspeed.initialize",
        "deepspeed.init_distributed",
    }
)
"""What a program that distributes itself by hand calls."""

FRAMEWORKS = {
    "pytorch_lightning": "Lightning",
    "lightning": "Lightning",
    "ignite": "ignite",
    "fastai": "fastai",
    "catalyst": "Catalyst",
    "composer": "Composer",
    "flwr": "Flower",
}
"""Packages that run the training loop."""

FRAMEWORK_PARTS = ("ignite.metrics", "ignite.contrib.metrics", "lightning.fabric")
"""Modules of theirs that leave the loop to the script."""

FRAMEWORK_HELPERS = frozenset({"seed_everything"})
"""Functions of theirs that do, too."""

JOINED_METRICS = ("torchmetrics.", "ignite.metrics.", "ignite.contrib.metrics.")
"""Metrics that join the processes by themselves."""

ACCELERATORS = frozenset(
    {"torchlift.runtime.Accelerator", "accelerate.Accelerator", "accelerate.accelerator.Accelerator"}
)

KEEPS_MODULE = frozenset(
    "to cuda cpu xpu train eval half float double bfloat16 type apply requires_grad_ share_memory to_empty".split()
)
"""Methods of a module that give the module itself."""

LEAVES_DEVICE = frozenset(["item", "tolist", "numpy", "cpu", "data_ptr", "__float__", "__int__"])
"""Methods of a tensor whose result is no longer a tensor on the batch's device."""

HOST_BUILTINS = frozenset("float int len str bool round abs max min sum format print range sorted repr".split())
"""Builtins that make a Python value of a tensor (or hand a Python value on)."""


STAMPS = frozenset(
    "datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today time.time time.time_ns "
    "time.localtime time.gmtime time.strftime time.ctime time.asctime time.monotonic uuid.uuid1 uuid.uuid4 os.getpid "
    "tempfile.mkdtemp tempfile.mkstemp secrets.token_hex secrets.token_urlsafe random.randint random.random "
    "random.randrange random.choice random.choices random.sample random.getrandbits numpy.random.randint "
    "numpy.random.rand numpy.random.random numpy.random.choice".split()
)
"""What differs from process to process, although every process runs the same code."""

LISTINGS = frozenset("os.listdir os.scandir glob.glob glob.iglob".split())

KEEPS_TEXT = frozenset("str int round float abs hex format repr max min sorted list tuple reversed next iter".split())
"""Builtins through which a time, a number or a text goes on its way into a name."""


def keeps_path(qualified: str) -> bool:
    """Whether an outside callable makes a path or a text of what it is given."""
    module, _, last = qualified.rpartition(".")
    if module == "builtins":
        return last in KEEPS_TEXT
    return module in ("os.path", "pathlib", "posixpath", "datetime", "datetime.datetime", "time", "copy", "re")


def constructed(qualified: str) -> Role | None:
    """The role of what a call of an outside name gives, where the name alone decides it."""
    last = qualified.rpartition(".")[2]
    if qualified in ACCELERATORS:
        return Role.ACCELERATOR
    if qualified in LOADERS:
        return Role.LOADER
    if qualified in DEVICE_CALLS:
        return Role.DEVICE
    if qualified.startswith(SCHEDULER_MODULES) and last[:1].isupper():
        return Role.SCHEDULER
    if qualified.startswith(OPTIMIZER_MODULES) and last[:1].isupper():
        return Role.OPTIMIZER
    if qualified.startswith("transformers.get_") and "schedule" in last:
        return Role.SCHEDULER
    if qualified in ("torch.cuda.amp.GradScaler", "torch.amp.GradScaler", "torch.cuda.amp.grad_scaler.GradScaler"):
        return Role.SCALER
    if qualified.startswith("torch.nn.functional.") and last in LOSS_FUNCTIONS:
        return Role.LOSS
    if qualified in ("torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.nn.Buffer"):
        return None
    if qualified in WRAPPERS or last == "convert_sync_batchnorm":
        return None  # the model itself, looked through
    if qualified.startswith(("torch.nn.", "torch.nn.modules.")) and last[:1].isupper():
        return Role.CRITERION if last.endswith("Loss") else Role.MODEL
    if qualified.startswith("torchvision.models.") or qualified in ("timm.create_model", "torch.hub.load"):
        return Role.MODEL
    if qualified.startswith("transformers.") and last in ("from_pretrained", "from_config") and "Model" in qualified:
        return Role.MODEL
    if qualified in ("torch.load", "torch.utils.model_zoo.load_url", "safetensors.torch.load_file"):
        return Role.CHECKPOINT
    return None


def base_role(qualified: str) -> Role | None:
    """The role of an instance of a user's class with this outside base class."""
    last = qualified.rpartition(".")[2]
    if qualified in ("torch.nn.Module", "torch.nn.modules.Module", "torch.nn.modules.module.Module"):
        return Role.MODEL
    if qualified.startswith("torch.nn.") and last[:1].isupper():
        return Role.CRITERION if last.endswith("Loss") else Role.MODEL
    if qualified in LOADERS:
        return Role.LOADER
    if qualified == "torch.optim.Optimizer" or qualified.startswith("torch.optim.optimizer."):
        return Role.OPTIMIZER
    if qualified.startswith(OPTIMIZER_MODULES) and not qualified.startswith(SCHEDULER_MODULES):
        return Role.OPTIMIZER
    if qualified.startswith(SCHEDULER_MODULES):
        return Role.SCHEDULER
    if qualified.startswith("torch.utils.data."):
        return Role.DATASET
    return None
