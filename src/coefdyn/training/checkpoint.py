"""Saving often enough that a kill costs a minute at most, and never a broken file."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger

from coefdyn.errors import ConfigError
from coefdyn.training.module import Training
from coefdyn.training.record import write_history

CHECKPOINT = "last.ckpt"


class AtomicFiles(CheckpointIO):
    """A checkpoint appears whole, by rename, and is read as plain tensors and numbers."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        partial = Path(f"{path}.partial")
        torch.save(checkpoint, partial)
        partial.replace(path)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        try:
            checkpoint: dict[str, Any] = torch.load(path, map_location, weights_only=True)
        except Exception as error:  # torch.load has no error of its own for a damaged file
            raise ConfigError(
                f"the checkpoint {path} cannot be read; delete it to train this run from the start"
            ) from error
        return checkpoint

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


class KeepProgress(Checkpoint):
    """Keeps what a run has so far: a checkpoint at the end of each epoch, and within one when
    `seconds` have passed; metrics.csv and the loggers at the end of each epoch.

    A `Checkpoint` for Lightning: such callbacks come after the module's own end of epoch.
    """

    def __init__(self, directory: Path, seconds: float, loggers: Sequence[Logger]) -> None:
        self.directory, self.seconds, self.loggers = directory, seconds, loggers
        self.last = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        # After the last batch comes the end of the epoch.
        if time.monotonic() - self.last >= self.seconds and not trainer.is_last_batch:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        assert isinstance(module, Training)
        self._save(trainer)
        write_history(self.directory / "metrics.csv", module.history)
        for logger in self.loggers:
            row = module.history[-1]
            logger.log_metrics({k: float(v) for k, v in row.items()}, step=int(row["step"]))

    def _save(self, trainer: Trainer) -> None:
        trainer.save_checkpoint(self.directory / CHECKPOINT)
        self.last = time.monotonic()
