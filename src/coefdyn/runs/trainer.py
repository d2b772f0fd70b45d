"""Lightning's Trainer, made from the `trainer` section of the configuration."""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy

from coefdyn.config.schema import Devices, Trainer
from coefdyn.errors import ConfigError
from coefdyn.runs.bar import Bar, is_watched
from coefdyn.runs.processes import ALONE, Processes, environment

PRECISIONS = {"fp32": "32-true", "bf16-mixed": "bf16-mixed"}


def autocast(trainer: Trainer, device: torch.device) -> torch.autocast:
    """The precision of Lightning's Trainer, for computations outside of it."""
    return torch.autocast(device.type, torch.bfloat16, enabled=trainer.precision == "bf16-mixed")


def check_devices(devices: Devices) -> None:
    if devices.accelerator == "cuda" and not torch.cuda.is_available():
        raise ConfigError("trainer.devices.accelerator=cuda finds no GPU; use trainer=cpu")


def lightning_trainer(
    trainer: Trainer,
    callbacks: Sequence[Callback],
    files: CheckpointIO,
    directory: Path,
    processes: Processes = ALONE,
) -> pl.Trainer:
    """Lightning's Trainer, with our checkpoints and metrics.csv instead of its own."""
    devices = trainer.devices
    bar = [Bar()] if processes.first and is_watched() else []
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        # Lightning advises to use a free GPU, but the user chose trainer=cpu.
        warnings.filterwarnings("ignore", message="GPU available but not used")
        return pl.Trainer(
            accelerator=devices.accelerator,
            devices=processes.world // processes.nodes,
            num_nodes=processes.nodes,
            strategy=DDPStrategy() if processes.world > 1 else "auto",
            use_distributed_sampler=False,  # our batches know their share
            precision=PRECISIONS[trainer.precision],  # type: ignore[arg-type]
            max_epochs=trainer.max_epochs,
            accumulate_grad_batches=devices.accumulate,
            gradient_clip_val=trainer.clip,
            num_sanity_val_steps=0,
            logger=False,
            enable_checkpointing=True,
            callbacks=[*callbacks, *bar],
            plugins=[files, environment(devices.strategy == "ddp")],
            enable_progress_bar=bool(bar),
            enable_model_summary=False,
            default_root_dir=directory,
        )
