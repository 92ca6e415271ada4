"""The processes of a job as a mesh: how many replicas of how many shards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError, MixedUseError, NotAvailableYet, UnknownWordError, WrongKindError
from ..torch_internals import join_axes
from .environment import Variables

# From which versions on Accelerate has the further axes; scripts compare with these.
BETA_TP_AVAILABLE_PYTORCH_VERSION = "2.3.0"
BETA_CP_AVAILABLE_PYTORCH_VERSION = "2.6.0"
BETA_TP_AVAILABLE_TRANSFORMERS_VERSION = "4.52.0"
BETA_SP_AVAILABLE_DEEPSPEED_VERSION = "0.18.2"

_VARIABLES = "PARALLELISM_CONFIG_"
_AXES = ("dp_replicate", "dp_shard", "cp", "sp", "tp")
"""In the order that they have in the mesh."""
_LATER = {"tp": "tensor parallelism", "cp": "context parallelism", "sp": "sequence parallelism"}
_STRATEGIES = ["allgather", "alltoall"]


@dataclass
class TorchTensorParallelConfig:
    """Settings of tensors that are sharded. Accepted in a `ParallelismConfig`; training with them comes later."""

    enable_async_tp: bool = False
    """Of Accelerate, which ignores it as well."""


@dataclass
class TorchContextParallelConfig:
    """Settings of sequences that are sharded. Accepted in a `ParallelismConfig`; training with them comes later."""

    cp_comm_strategy: str | None = None
    """"allgather" or "alltoall"; None: what PARALLELISM_CONFIG_CP_COMM_STRATEGY says."""

    def __post_init__(self) -> None:
        said = self.cp_comm_strategy or Variables(_VARIABLES).word("CP_COMM_STRATEGY") or _STRATEGIES[0]
        if said not in _STRATEGIES:
            raise ConfigError(f"Invalid cp_comm_strategy: {said}. It must be one of: {', '.join(_STRATEGIES)}.")
        self.cp_comm_strategy = said


@dataclass(repr=False)
class ParallelismConfig:
    """
    The sizes of a mesh. Their product is the number of processes.

    What is None is what the environment says, else 1: PARALLELISM_CONFIG_DP_REPLICATE_SIZE,
    PARALLELISM_CONFIG_DP_SHARD_SIZE, and so on.

    Raises:
        ConfigError: a size is no number from 1 on.
        MixedUseError: two settings exclude each other.
    """

    dp_replicate_size: int | None = None
    """How many replicas of the model there are."""
    dp_shard_size: int | None = None
    """Among how many processes a replica is sharded."""
    tp_size: int | None = None
    """Tensor parallelism: the mesh can be built, training with it is not supported yet."""
    cp_size: int | None = None
    """Context parallelism: as `tp_size`."""
    cp_backend: str | None = None
    """"torch"."""
    sp_size: int | None = None
    """Sequence parallelism: as `tp_size`."""
    sp_backend: str | None = None
    """"deepspeed"."""
    tp_handler: Any = None
    """Settings of tensor parallelism."""
    cp_handler: Any = None
    """Settings of context parallelism."""
    sp_handler: Any = None
    """Settings of sequence parallelism."""
    device_mesh: Any = field(default=None, init=False, compare=False)
    """The mesh of torch, once `get_device_mesh` has built it."""

    def __post_init__(self) -> None:
        says = Variables(_VARIABLES)
        for axis in _AXES:
            name = f"{axis}_size"
            given = getattr(self, name)
            size = says.number(name.upper()) if given is None else given
            size = 1 if size is None else size
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ConfigError(f"{name} must be at least 1, but got {size!r}.")
            setattr(self, name, size)
        for name, known in (("cp_backend", "torch"), ("sp_backend", "deepspeed")):
            word = getattr(self, name) or says.word(name.upper()) or known
            if word != known:
                raise UnknownWordError(name, word, [known])
            setattr(self, name, word)
        self._exclude()
        self._handlers()

    def _exclude(self) -> None:
        if self.cp_enabled and self.sp_enabled:
            raise MixedUseError(f"cp_size={self.cp_size} and sp_size={self.sp_size} exclude each other: set one to 1.")
        if (self.tp_enabled or self.cp_enabled) and self.dp_replicate_enabled and not self.dp_shard_enabled:
            raise MixedUseError(
                f"tp_size={self.tp_size} and cp_size={self.cp_size} cannot be joined with dp_replicate_size="
                f"{self.dp_replicate_size} alone: set dp_shard_size to 2 or more, or dp_replicate_size to 1."
            )

    def _handlers(self) -> None:
        if self.tp_enabled and self.tp_handler is None:
            self.tp_handler = TorchTensorParallelConfig()
        if self.cp_enabled and self.cp_handler is None:
            self.cp_handler = TorchContextParallelConfig()
        if self.cp_enabled and not isinstance(self.cp_handler, TorchContextParallelConfig):
            raise WrongKindError(
                f"cp_handler was given a {type(self.cp_handler).__name__}; it takes a TorchContextParallelConfig(...)."
            )

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis}_size={self._size(axis)}" for axis in _AXES)
        return f"ParallelismConfig({sizes})"

    def _size(self, axis: str) -> int:
        size: int = getattr(self, f"{axis}_size")
        return size

    def to_json(self) -> dict[str, Any]:
        """The settings, as what JSON can hold."""
        found = {name: value for name, value in vars(self).items() if name != "device_mesh"}
        return {name: dict(vars(value)) if hasattr(value, "__dict__") else value for name, value in found.items()}

    # ---------------------------------------------------------------- sizes

    @property
    def total_size(self) -> int:
        """How many processes the mesh has."""
        return self.data_parallel_size * self.non_data_parallel_size

    @property
    def data_parallel_size(self) -> int:
        """How many processes have rows of their own."""
        return self._size("dp_replicate") * self._size("dp_shard")

    @property
    def non_data_parallel_size(self) -> int:
        """How many processes work on the same rows."""
        return self._size("tp") * self._size("cp") * self._size("sp")

    @property
    def dp_replicate_enabled(self) -> bool:
        """There are several replicas."""
        return self._size("dp_replicate") > 1

    @property
    def dp_shard_enabled(self) -> bool:
        """A replica is sharded among several processes."""
        return self._size("dp_shard") > 1

    @property
    def tp_enabled(self) -> bool:
        """Tensors are sharded."""
        return self._size("tp") > 1

    @property
    def cp_enabled(self) -> bool:
        """Sequences are sharded, by torch."""
        return self._size("cp") > 1

    @property
    def sp_enabled(self) -> bool:
        """Sequences are sharded, by DeepSpeed."""
        return self._size("sp") > 1

    # ---------------------------------------------------------------- axes

    def _named(self, *axes: str) -> list[str]:
        return [axis for axis in axes if self._size(axis) > 1]

    @property
    def dp_dim_names(self) -> list[str]:
        """The axes along which rows differ."""
        return self._named("dp_replicate", "dp_shard")

    @property
    def non_dp_dim_names(self) -> list[str]:
        """The axes along which rows are the same."""
        return self._named("tp", "cp", "sp")

    @property
    def dp_shard_cp_dim_names(self) -> list[str]:
        """The axes along which weights are sharded."""
        return self._named("dp_shard", "cp")

    @property
    def dp_cp_dim_names(self) -> list[str]:
        """The axes along which a loss is averaged."""
        return self._named("dp_replicate", "dp_shard", "cp")

    @property
    def fsdp_dim_names(self) -> list[str]:
        """The axes that `fully_shard` is given: the replicas, and the joint axis of the shards."""
        return [*self._named("dp_replicate"), "dp_shard_cp"]

    @property
    def active_mesh_dims(self) -> list[str]:
        """All axes of more than one process."""
        return self.dp_dim_names + self.non_dp_dim_names

    def _get_mesh(self) -> tuple[tuple[Any, ...], ...]:
        """The names of the axes and their sizes, in the order of the mesh; nothing when there is one process."""
        return tuple(zip(*((axis, self._size(axis)) for axis in _AXES if self._size(axis) > 1), strict=True))

    # ---------------------------------------------------------------- the mesh

    def build_device_mesh(self, device_type: str) -> Any:
        """
        The mesh of torch, with the joint axes `dp`, `dp_shard_cp` and `dp_cp`.

        Args:
            device_type: where the processes compute: "cpu", or the type of `accelerator.device`.

        Returns:
            A DeviceMesh; None for one process.
        """
        from torch.distributed import device_mesh  # also so that a test can put another one in its place

        mesh = self._get_mesh()
        if not mesh or self.sp_enabled:  # DeepSpeed makes its own groups
            return None
        names, shape = mesh
        built = device_mesh.init_device_mesh(device_type, shape, mesh_dim_names=names)
        for axes, joint in (
            (self.dp_dim_names, "dp"),
            (self.dp_shard_cp_dim_names, "dp_shard_cp"),
            (self.dp_cp_dim_names, "dp_cp"),
        ):
            if axes:
                join_axes(built, axes, joint)
        return built

    def get_device_mesh(self, device_type: str | None = None) -> Any:
        """
        The mesh; built by the first call.

        Raises:
            MixedUseError: it was built for another kind of device, or no kind was named for the first call.
        """
        if self.device_mesh is None:
            if device_type is None:
                raise MixedUseError("there is no mesh yet: call get_device_mesh(accelerator.device.type).")
            self.device_mesh = self.build_device_mesh(device_type)
        elif device_type not in (None, self.device_mesh.device_type):
            raise MixedUseError(
                f"the mesh was built for {self.device_mesh.device_type!r} devices; {device_type!r} is asked for now."
            )
        return self.device_mesh

    def check(self, num_processes: int) -> None:
        """
        Whether a job can have this mesh.

        Args:
            num_processes: of the job.

        Raises:
            NotAvailableYet: it asks for more than replicas and shards.
            MixedUseError: its sizes are not those of the job.
        """
        for axis, ability in _LATER.items():
            if self._size(axis) > 1:
                raise NotAvailableYet(
                    f"{ability} ({axis}_size={self._size(axis)})", f"Set {axis}_size to 1; use dp_shard_size."
                )
        if self.total_size == 1:
            return
        if self.total_size != num_processes:
            raise MixedUseError(
                f"the mesh of ParallelismConfig has {self.total_size} processes "
                f"(dp_replicate_size={self.dp_replicate_size} x dp_shard_size={self.dp_shard_size}), but the job has "
                f"{num_processes}. {_fitting(num_processes, self._size('dp_replicate'))}"
            )


def _fitting(processes: int, replicas: int) -> str:
    if processes % replicas == 0:
        return f"Set dp_shard_size={processes // replicas}, or start {replicas} x dp_shard_size processes."
    return f"dp_replicate_size={replicas} does not divide it: set dp_replicate_size=1, dp_shard_size={processes}."
