"""Checkpoints: written once a minute and per epoch, and never left half written."""

import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException

from coefdyn.errors import ConfigError
from coefdyn.model.model import SequenceModel
from coefdyn.runs.lock import Lock, LostLockError
from coefdyn.runs.loggers import Loggers
from coefdyn.runs.loop import NobodyLeftError, Training
from coefdyn.runs.processes import ALONE, Processes
from coefdyn.runs.record import CHECKPOINT, SCHEMA, replacing, write_history

AGREE_EVERY = 10  # steps after which several processes agree on whether to save


def write_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Write a file and rename it, so that it is never incomplete."""
    with replacing(path) as file:
        try:
            torch.save(checkpoint, file)
        except RuntimeError as error:  # torch's error for a full disk
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint at `path`, which may hold only tensors and plain values."""
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


def steps_of(path: Path, model: SequenceModel) -> int:
    """The steps behind a checkpoint, 0 if there is none; ConfigError if it is of another model."""
    if not path.exists():
        return 0
    checkpoint = read_checkpoint(path)
    shapes = {f"model.{name}": value.shape for name, value in model.state_dict().items()}
    state = checkpoint.get("state_dict", {})
    same = shapes == {name: value.shape for name, value in state.items()}
    complete = {"runs", "loops", "global_step"} <= checkpoint.keys()
    if not (same and complete and checkpoint.get("schema") == SCHEMA):
        raise another_model(path)
    return int(checkpoint["global_step"])


def another_model(path: Path) -> ConfigError:
    """The error for a checkpoint of another model."""
    return ConfigError(
        f"the checkpoint {path} is not of this model as the code is now; delete it to train this "
        "run from the start"
    )


def load_weights(directory: Path, model: SequenceModel) -> None:
    """Load the weights of a run's last checkpoint into `model`."""
    path = directory / CHECKPOINT
    if not path.exists():
        raise ConfigError(
            f"{directory} has no checkpoint, so its weights are lost; train it again with "
            "force=true"
        )
    try:
        state = read_checkpoint(path)["state_dict"]
        model.load_state_dict({name.removeprefix("model."): x for name, x in state.items()})
    except (KeyError, RuntimeError) as error:
        raise another_model(path) from error


class RunFiles(CheckpointIO):
    """A checkpoint file for each run that still trains.

    A member of a population has the same file as a run alone, so each can resume as the other.
    """

    def __init__(self, directories: Sequence[Path], module: Training) -> None:
        self.paths = [directory / CHECKPOINT for directory in directories]
        self.module = module

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        rows = self.module.rows
        for row, part in zip(rows, self.module.learner.parts(checkpoint, rows), strict=True):
            write_checkpoint(part, self.paths[row])

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return self.module.learner.whole([read_checkpoint(path) for path in self.paths])

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


class StoppedByUserError(SIGTERMException):
    """Ctrl-C, after a save. It is no KeyboardInterrupt: on that, Lightning ends the process."""


class KeepProgress(Checkpoint):
    """Saves the progress of runs.

    Checkpoints are written at the end of each epoch, every `seconds` within one, and when the
    process is asked to end. metrics.csv and loggers are written at the end of each epoch. A run
    whose lock another process has taken is dropped, and nothing of it is written.

    This is a `Checkpoint` because Lightning calls those after the module's own end of epoch.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        seconds: float,
        locks: Sequence[Lock | None] = (),
        loggers: Loggers | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.directories, self.seconds, self.locks = directories, seconds, locks
        self.loggers, self.processes = loggers, processes
        self.last = time.monotonic()
        self.asked_to_end = False
        self.interrupted = False

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Install signal handlers.

        Lightning's handler talks to the other processes at the moment of the signal, which can
        hang them all. Ours only takes note.
        """
        if self.processes.world > 1:
            signal.signal(signal.SIGTERM, self._take_note)
        listening = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if listening and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._interrupt)

    def _take_note(self, number: int, frame: Any) -> None:
        self.asked_to_end = True

    def _interrupt(self, number: int, frame: Any) -> None:
        """Save at the end of the step. A second Ctrl-C ends at once."""
        self.asked_to_end = self.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _end(self) -> SIGTERMException:
        return StoppedByUserError() if self.interrupted else SIGTERMException()

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        if trainer.is_last_batch:  # the end of the epoch comes next
            return
        steps, part = divmod(index + 1, trainer.accumulate_grad_batches)
        if part:  # a checkpoint has no gradients
            return
        if self.processes.world > 1 and steps % AGREE_EVERY:
            return
        end = self.processes.any(trainer.received_sigterm or self.asked_to_end, module.device)
        due = time.monotonic() - self.last >= self.seconds
        if end or self.processes.any(due, module.device):
            self._save(trainer, module)
        if end:
            raise self._end()

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        assert isinstance(module, Training)
        self._save(trainer, module)
        for number in module.rows if self.processes.first else ():
            write_history(self.directories[number] / "metrics.csv", module.runs[number].history)
        if self.loggers is not None:  # only a run alone has loggers
            self.loggers.epoch(module.runs[0].history[-1])
        module.leave_good_enough()
        if self.processes.any(self.asked_to_end, module.device):
            raise self._end()

    def close(self) -> None:
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _save(self, trainer: Trainer, module: LightningModule) -> None:
        """Drop the runs whose lock is lost, and write a checkpoint of each that is left."""
        assert isinstance(module, Training)
        lost = []
        for row in module.rows:
            lock = self.locks[row] if self.locks else None
            try:
                if lock is not None:
                    lock.check()
            except LostLockError as error:
                module.runs[row].taken_over = error
                lost.append(row)
        module.leave(lost)
        if not module.rows:
            raise NobodyLeftError
        trainer.save_checkpoint(self.directories[0] / CHECKPOINT)
        self.last = time.monotonic()
