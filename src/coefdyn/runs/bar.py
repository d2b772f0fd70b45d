"""The progress bar of one run in a terminal: epoch, step, loss, accuracy, time."""

import multiprocessing as mp
import sys
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from coefdyn.runs.loop import Training

REFRESH = 0.5  # seconds between updates; reading a loss waits for the GPU


def is_watched() -> bool:
    """Whether to show a bar: in a terminal, but not in a worker, since the sweep has a table."""
    return sys.stderr.isatty() and mp.parent_process() is None


class Bar(ProgressBar):
    """One line, as in "epoch 3/40 ━━━ 120/200 loss 1.2345 accuracy 0.5600 0:00:12".

    The accuracy is that of the last test.
    """

    def __init__(self) -> None:
        super().__init__()
        self.progress: Progress | None = None
        self.last = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        steps = int(trainer.num_training_batches) * int(trainer.max_epochs or 1)
        self.progress.add_task("", total=steps, epoch=1, epochs=trainer.max_epochs, numbers="")
        self.progress.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        now = time.monotonic()
        if self.progress is None or now - self.last < REFRESH:
            return
        self.last = now
        assert isinstance(pl_module, Training)
        batches = int(trainer.num_training_batches)
        self.progress.update(
            self.progress.task_ids[0],
            completed=trainer.current_epoch * batches + index + 1,
            epoch=trainer.current_epoch + 1,
            numbers=_numbers(pl_module),
        )

    def disable(self) -> None:
        """Do nothing. Lightning calls this in every process but the first, which has no bar."""

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None


def _numbers(module: Training) -> str:
    """Loss and accuracy of the first run that still trains."""
    words = [f"loss {module.losses[-1][0].item():.4f}"] if module.losses else []
    history = module.left[0].history if module.rows else []
    tests = [row["test/accuracy"] for row in history if row.get("test/accuracy") is not None]
    words += [f"accuracy {tests[-1]:.4f}"] if tests else []
    return " ".join(words)
