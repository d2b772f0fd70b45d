"""Saving often enough that a kill costs a minute at most, and never a broken file."""

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch.nn.utils import vector_to_parameters

from coefdyn.errors import ConfigError
from coefdyn.model.model import SequenceModel
from coefdyn.runs.loop import KEPT, Training
from coefdyn.runs.processes import ALONE, Processes
from coefdyn.runs.record import (
    MEMBER_CHECKPOINT,
    SCHEMA,
    SOLO_CHECKPOINT,
    replacing,
    write_history,
)

AGREE_EVERY = 10  # steps between two times that several processes ask each other


class AtomicFiles(CheckpointIO):
    """A checkpoint appears whole, by rename, and is read as plain tensors and numbers."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        with replacing(Path(path)) as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # torch's view of a disk that is full
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        try:
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
            if not isinstance(checkpoint, dict):
                raise TypeError(f"it holds a {type(checkpoint).__name__}")
        except Exception as error:  # torch.load has no error of its own for a damaged file
            cause = str(error).partition("\n")[0]
            raise ConfigError(
                f"the checkpoint {path} cannot be read; delete it to train this run from the "
                f"start ({type(error).__name__}: {cause[:200]})"
            ) from error
        return checkpoint

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def check_checkpoint(path: Path, module: Training) -> None:
    """It must be a checkpoint of this module, as the code is now."""
    checkpoint = AtomicFiles().load_checkpoint(path)
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    found = checkpoint.get("state_dict", {})
    same = shapes == {name: tuple(value.shape) for name, value in found.items()}
    if not (same and {"losses", "loops", *KEPT} <= checkpoint.keys()):
        raise another_model(path)
    if checkpoint.get("schema") != SCHEMA:
        raise another_model(path)


def another_model(path: Path) -> ConfigError:
    return ConfigError(
        f"the checkpoint {path} is not of this model as the code is now; delete it to train this "
        "run from the start"
    )


def load_weights(directory: Path, model: SequenceModel) -> None:
    """What a run's last checkpoint has, alone or of a population."""
    for name in (SOLO_CHECKPOINT, MEMBER_CHECKPOINT):
        path = directory / name
        if not path.exists():
            continue
        checkpoint = AtomicFiles().load_checkpoint(path)
        try:
            if name == SOLO_CHECKPOINT:
                state = {k.removeprefix("model."): v for k, v in checkpoint["state_dict"].items()}
                model.load_state_dict(state)
            else:
                vector_to_parameters(checkpoint["weights"], model.parameters())
        except (KeyError, RuntimeError) as error:
            raise another_model(path) from error
        return
    raise ConfigError(
        f"{directory} has no checkpoint, so its weights are lost; train it again with force=true"
    )


class KeepProgress(Checkpoint):
    """Keeps what a run has so far: a checkpoint at the end of each epoch, and within one when
    `seconds` have passed or the process is asked to end; metrics.csv and the loggers at the end of
    each epoch. `before` is called before each checkpoint, and may refuse it by an exception.

    A `Checkpoint` for Lightning: such callbacks come after the module's own end of epoch.
    """

    def __init__(
        self,
        directory: Path,
        seconds: float,
        loggers: Sequence[Logger] = (),
        before: Callable[[], None] = lambda: None,
        processes: Processes = ALONE,
    ) -> None:
        self.directory, self.seconds, self.loggers = directory, seconds, loggers
        self.before, self.processes = before, processes
        self.last = time.monotonic()
        self.asked_to_end = False

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Lightning's handler talks to the other processes from wherever the signal finds it,
        which can hang them all; ours only takes note."""
        if self.processes.world > 1:
            signal.signal(signal.SIGTERM, self._take_note)

    def _take_note(self, number: int, frame: Any) -> None:
        self.asked_to_end = True

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        if trainer.is_last_batch:  # the end of the epoch comes next
            return
        steps, part = divmod(index + 1, trainer.accumulate_grad_batches)
        if part:  # gradients are not kept
            return
        if self.processes.world > 1 and steps % AGREE_EVERY:
            return
        end = self.processes.any(trainer.received_sigterm or self.asked_to_end, module.device)
        due = time.monotonic() - self.last >= self.seconds
        if end or self.processes.any(due, module.device):
            self._save(trainer)
        if end:
            raise SIGTERMException

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        assert isinstance(module, Training)
        self._save(trainer)
        if self.processes.first:
            write_history(self.directory / "metrics.csv", module.history)
        row = module.history[-1]
        for logger in self.loggers:
            logger.log_metrics({k: float(v) for k, v in row.items()}, step=int(row["step"]))
        if self.processes.any(self.asked_to_end, module.device):
            raise SIGTERMException

    def close(self, exit_code: int) -> None:
        for logger in self.loggers:
            logger.finalize("success" if exit_code == 0 else "failed")
            if isinstance(logger, WandbLogger):  # or the process's next run would be logged to it
                logger.experiment.finish(exit_code=exit_code)

    def _save(self, trainer: Trainer) -> None:
        self.before()
        trainer.save_checkpoint(self.directory / SOLO_CHECKPOINT)
        self.last = time.monotonic()
