"""How a run is carried out: the `trainer` section of a configuration, checked, and Lightning's
Trainer made from it."""

import logging
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, RichProgressBar

from coefdyn.errors import ConfigError
from coefdyn.training.checkpoint import AtomicFiles

PRECISIONS = {"fp32": "32-true", "bf16-mixed": "bf16-mixed"}
ACCELERATORS = ("cpu", "cuda")


@dataclass(frozen=True)
class Devices:
    """Where a run computes."""

    accelerator: str
    threads: int | None

    def __post_init__(self) -> None:
        if self.accelerator not in ACCELERATORS:
            raise ConfigError(
                f"trainer.devices.accelerator={self.accelerator} is not known; choose from "
                f"{', '.join(ACCELERATORS)}"
            )
        if self.accelerator == "cuda" and not torch.cuda.is_available():
            raise ConfigError("trainer.devices.accelerator=cuda finds no GPU; use trainer=cpu")
        if self.threads is not None:
            _check_whole("devices.threads", self.threads, least=1)


@dataclass(frozen=True)
class TrainerSettings:
    """The `trainer` section; conf/trainer/cpu.yaml says what each value is."""

    max_epochs: int
    batch_size: int
    warmup_steps: int
    clip: float | None
    precision: str
    stop_at: float | None
    test_every: int
    checkpoint_seconds: float
    devices: Devices

    def __post_init__(self) -> None:
        _check_whole("max_epochs", self.max_epochs, least=1)
        _check_whole("batch_size", self.batch_size, least=1)
        _check_whole("warmup_steps", self.warmup_steps, least=0)
        _check_whole("test_every", self.test_every, least=1)
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"trainer.precision={self.precision} is not known; choose from "
                f"{', '.join(PRECISIONS)}"
            )
        if self.clip is not None and not _is_number(self.clip, above=0):
            raise ConfigError(f"trainer.clip={self.clip} must be above 0, or null for no clipping")
        if self.stop_at is not None and not _is_number(self.stop_at, above=0):
            raise ConfigError(f"trainer.stop_at={self.stop_at} must be an accuracy, or null")
        if not _is_number(self.checkpoint_seconds, above=0):
            raise ConfigError(
                f"trainer.checkpoint_seconds={self.checkpoint_seconds} must be above 0"
            )

    def make(self, callbacks: Sequence[Callback], directory: Path) -> pl.Trainer:
        """Lightning's Trainer: one device, our checkpoints and metrics file instead of its own."""
        bar = [RichProgressBar(leave=True, console_kwargs={"stderr": True})]
        show = sys.stderr.isatty()
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        with warnings.catch_warnings():
            # It advises to use a GPU that is there; trainer=cpu has been asked for.
            warnings.filterwarnings("ignore", message="GPU available but not used")
            return pl.Trainer(
                accelerator=self.devices.accelerator,
                devices=1,
                precision=PRECISIONS[self.precision],  # type: ignore[arg-type]
                max_epochs=self.max_epochs,
                gradient_clip_val=self.clip,
                check_val_every_n_epoch=self.test_every,
                num_sanity_val_steps=0,
                logger=False,
                enable_checkpointing=True,
                callbacks=[*callbacks, *(bar if show else [])],
                plugins=[AtomicFiles()],
                enable_progress_bar=show,
                enable_model_summary=False,
                default_root_dir=directory,
            )


def trainer_settings(values: dict[str, Any]) -> TrainerSettings:
    try:
        return TrainerSettings(**values | {"devices": Devices(**values["devices"])})
    except TypeError as error:
        raise ConfigError(f"the trainer section is not complete: {error}") from error


def _check_whole(name: str, value: Any, least: int) -> None:
    if type(value) is not int or value < least:
        raise ConfigError(f"trainer.{name}={value} must be a whole number of at least {least}")


def _is_number(value: Any, above: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > above
