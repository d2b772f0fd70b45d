"""The processes that train a run: one, or with trainer=ddp those that torchrun or srun started."""

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch import Tensor

from coefdyn.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """Number `rank` of `world` processes on `nodes` nodes."""

    rank: int = 0
    world: int = 1
    nodes: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def sum(self, *tensors: Tensor) -> None:
        """Sum each tensor over all processes, in place."""
        if self.world > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def mean(self, tensor: Tensor) -> Tensor:
        if self.world > 1:
            dist.all_reduce(tensor)
            tensor /= self.world
        return tensor

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether `flag` is true in any of the processes."""
        if self.world == 1:
            return flag
        flags = torch.tensor(int(flag), device=device)
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags.item())

    def agree(self, find: Callable[[], T]) -> T:
        """The value of `find`, called in the first process only. If it fails there, all fail."""
        if self.world == 1:
            return find()
        message: list[tuple[T | None, str | None]] = [(None, None)]
        try:
            if self.first:
                message = [(find(), None)]
        except Exception as error:
            message = [(None, str(error))]
            raise
        finally:
            dist.broadcast_object_list(message)
        value, failure = message[0]
        if failure is not None:
            raise ConfigError(failure)
        return cast(T, value)


ALONE = Processes()


def environment(distributed: bool) -> ClusterEnvironment:
    """For Lightning: what started this process."""
    if not distributed:
        return LightningEnvironment()  # which leaves SLURM's signals to us
    if TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    if "SLURM_PROCID" in os.environ and "SLURM_STEP_ID" in os.environ:
        try:
            return SLURMEnvironment(auto_requeue=False)
        except RuntimeError as error:  # Lightning accepts only some options of srun
            raise ConfigError(" ".join(str(error).split())) from error
    raise ConfigError(
        "trainer.devices.strategy=ddp needs one process per device, all started alike: "
        "torchrun --nproc-per-node=N scripts/train.py ..., or srun python scripts/train.py ... in "
        "a SLURM job; for one process use trainer=cuda or trainer=cpu"
    )


def join(distributed: bool, accelerator: str) -> Processes:
    """Join the process group of the run, once per process."""
    if not distributed:
        return ALONE
    cluster = environment(distributed)
    rank, world, local = cluster.global_rank(), cluster.world_size(), cluster.local_rank()
    if accelerator == "cuda":
        if local >= torch.cuda.device_count():
            raise ConfigError(
                f"trainer.devices.strategy=ddp has process {local} on a node with "
                f"{torch.cuda.device_count()} GPUs; start as many processes per node as GPUs"
            )
        torch.cuda.set_device(local)
    if not dist.is_initialized():
        place = f"tcp://{cluster.main_address}:{cluster.main_port}"
        if isinstance(cluster, TorchElasticEnvironment):
            place = "env://"  # torchrun sets the address
        backend = "nccl" if accelerator == "cuda" else "gloo"
        dist.init_process_group(backend, place, rank=rank, world_size=world)
        atexit.register(dist.destroy_process_group)
    if isinstance(cluster, TorchElasticEnvironment):
        nodes = world // int(os.environ["LOCAL_WORLD_SIZE"])
    else:
        nodes = int(os.environ["SLURM_STEP_NUM_NODES"])
    if world % nodes:
        raise ConfigError(
            f"trainer.devices.strategy=ddp has {world} processes on {nodes} nodes; start the same "
            "number on each"
        )
    return Processes(rank, world, nodes)


def rank_here() -> int:
    """The rank of this process, even before `join`; 0 if it was started alone."""
    for name in ("RANK", "SLURM_PROCID"):
        if name in os.environ:
            return int(os.environ[name])
    return 0
