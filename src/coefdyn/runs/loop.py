"""Training, step by step and epoch by epoch, of one run or of the members of a population.

Each member has its own losses, tests and end.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from coefdyn.config.schema import Trainer
from coefdyn.runs.learner import Learner
from coefdyn.runs.processes import ALONE, Processes
from coefdyn.runs.progress import LARGEST_LOSS, SCHEDULES, Progress, Scores
from coefdyn.runs.record import SCHEMA, Row

log = logging.getLogger(__name__)

CHECK_EVERY = 50  # steps between two checks of the losses; each waits for the GPU


class NobodyLeftError(Exception):
    """All runs have ended in the middle of an epoch."""


class Training(pl.LightningModule):
    """Cross-entropy on the scored targets, a schedule by step, a row of `history` per epoch.

    `runs[i]` is the progress of the learner's row i. A run ends when it diverges, when another
    process takes it over, or when it is good enough after an epoch. Then `ended` is called with
    its number, and the others continue unchanged. Accuracies are over the whole test set: in the
    micro accuracy every scored target has the same weight, in the macro accuracy every class that
    occurs among the targets.
    """

    allow_zero_length_dataloader_with_multiple_devices = True  # a short text

    def __init__(
        self,
        learner: Learner,
        runs: Sequence[Progress],
        vocab_size: int,
        make_optimizer: Callable[[Iterable[Any]], Optimizer],
        total_steps: int,
        trainer: Trainer,
        splits: Sequence[str] = ("test",),
        processes: Processes = ALONE,
        look: Callable[[int], Row] | None = None,
        ended: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        self.model = learner.weights  # so that Lightning finds the parameters
        self.learner, self.runs, self.look, self.ended = learner, runs, look, ended
        self.rows = list(range(len(runs)))  # of runs that still train
        self.make_optimizer = make_optimizer
        # Lightning could count the steps, but it would start the data before it loads a checkpoint.
        self.total_steps, self.warmup_steps = total_steps, trainer.warmup_steps
        self.test_every, self.stop_at = trainer.test_every, trainer.stop_at
        self.share_of_peak = SCHEDULES[trainer.schedule]
        self.splits = splits  # tested between epochs
        self.processes = processes
        self.started = 0.0
        self.losses: list[Tensor] = []  # a tensor per step of the epoch, with a loss per row
        self.vocab_size = vocab_size
        self.scores: dict[str, list[Scores]] = {}  # by split, one per row

    @property
    def left(self) -> list[Progress]:
        """The runs that still train."""
        return [self.runs[row] for row in self.rows]

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        factor = self.share_of_peak(self.total_steps, self.warmup_steps, self.global_step)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = group["initial_lr"] * factor

    def training_step(self, batch: Any, index: int) -> Tensor:
        losses = self.learner.losses(batch, self.rows)
        self.losses.append(losses.detach().view(-1))
        if len(self.losses) % CHECK_EVERY == 0:
            self._check_losses()
        return losses.sum() if losses.ndim else losses

    def on_train_start(self) -> None:
        self.started = time.perf_counter()
        self._plan_test()
        self.leave_good_enough()  # runs that were good enough before a restart

    def on_train_epoch_start(self) -> None:
        self.started = time.perf_counter()
        self._plan_test()
        self.losses = []  # an epoch that resumes keeps its losses: this is not called

    def on_validation_start(self) -> None:
        self._check_losses()
        self._lap("training")
        self._begin_test(self.splits)

    def _begin_test(self, splits: Iterable[str]) -> None:
        self.scores = {
            split: [Scores(self.vocab_size, self.device) for _ in self.rows] for split in splits
        }

    def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
        self.learner.test(batch, self.rows, self.scores[self.splits[dataloader_idx]])

    def on_validation_epoch_end(self) -> None:
        tests, lost = self._test_rows(), {}
        for row, epoch, test in zip(self.rows, self._epoch_rows(), tests, strict=True):
            loss = test[f"{self.splits[0]}/loss"]
            if loss <= LARGEST_LOSS:
                statistics = self.look(row) if self.look else {}
                self.runs[row].history.append(epoch | test | statistics)
            else:
                lost[row] = (loss, self.global_step)
        self._lap("testing")
        self._diverged(lost)

    def _test_rows(self) -> list[Row]:
        for scores in itertools.chain(*self.scores.values()):
            self.processes.sum(scores.loss, scores.wanted, scores.right)
        rows: list[Row] = [{} for _ in self.rows]
        for split, of_rows in self.scores.items():
            for row, scores in zip(rows, of_rows, strict=True):
                row |= scores.row(split)
        return rows

    @torch.no_grad()
    def look_at(self, split: str, batches: Iterable[Any]) -> Row:
        """The scores of a run alone on a split that training does not use, after the training."""
        self.started = time.perf_counter()
        self.eval()
        self._begin_test([split])
        for batch in batches:
            self.learner.test(batch, self.rows, self.scores[split])
        self._lap("testing")
        (scores,) = self._test_rows()
        return scores

    def on_train_epoch_end(self) -> None:
        self._check_losses()
        self._lap("training")
        done = self.current_epoch + 1
        for run, row in zip(self.left, self._epoch_rows(), strict=True):
            if not run.history or run.history[-1]["epoch"] != done:
                run.history.append(row)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: Any = None,
        gradient_clip_algorithm: Any = None,
    ) -> None:
        """Clip the gradient of each run by its own norm.

        Lightning would also refuse to clip for a fused optimizer in mixed precision. Its reason is
        loss scaling, which bfloat16 does not use.
        """
        if gradient_clip_val is not None:
            for group in optimizer.param_groups:
                nn.utils.clip_grad_norm_(group["params"], gradient_clip_val)

    def configure_optimizers(self) -> Optimizer:
        optimizer = self.make_optimizer(self.learner.groups())
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        return optimizer

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the progress of each run that still trains."""
        self._lap("training")
        losses = self._shared_losses().T.tolist()
        for run, own in zip(self.left, losses or [[]] * len(self.rows), strict=True):
            run.losses = own
        checkpoint["schema"] = SCHEMA
        checkpoint["runs"] = [run.kept() for run in self.left]

    def on_load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        for run, progress in zip(self.runs, checkpoint["runs"], strict=True):
            run.restore(progress)
        steps = zip(*(run.losses for run in self.runs), strict=True)
        self.losses = [torch.tensor(step, device=self.device) for step in steps]

    def leave_good_enough(self) -> None:
        """End the runs that have reached `stop_at`. Called when their checkpoints are written."""
        self.leave(
            [row for row in self.rows if self.runs[row].reached(self.stop_at, self.splits[-1])]
        )
        if not self.rows:
            self.trainer.should_stop = True

    def leave(self, gone: Iterable[int]) -> None:
        """End the runs with these rows."""
        gone = set(gone)
        stay = [place for place, row in enumerate(self.rows) if row not in gone]
        self.losses = [step[stay] for step in self.losses]
        self.rows = [self.rows[place] for place in stay]
        if self.ended is not None:
            for row in sorted(gone):
                self.ended(row)

    def _diverged(self, lost: Mapping[int, tuple[float, int]]) -> None:
        for row, (loss, step) in lost.items():
            run = self.runs[row]
            run.diverged_at = step
            log.warning("run %s diverged: the loss is %.3g at step %d", run.name, loss, step)
        self.leave(lost)
        if not self.rows:
            raise NobodyLeftError

    def _epoch_rows(self) -> list[Row]:
        means = self._shared_losses().double().mean(0).tolist()
        groups = self.trainer.optimizers[0].param_groups
        done, step = self.current_epoch + 1, self.global_step
        return [
            {"epoch": done, "step": step, "lr": groups[row]["lr"], "train/loss": mean}
            for row, mean in zip(self.rows, means, strict=True)
        ]

    def _lap(self, name: str) -> None:
        """Add the time since the last lap to `name`. The runs share it, so that it adds up."""
        now = time.perf_counter()
        for run in self.left:
            run.seconds[name] += (now - self.started) / len(self.rows)
        self.started = now

    def _plan_test(self) -> None:
        """Test every `test_every` epochs, and in the last one."""
        last = self.current_epoch + 1 == self.trainer.max_epochs
        self.trainer.check_val_every_n_epoch = 1 if last else self.test_every

    def _shared_losses(self) -> Tensor:
        """The epoch's losses so far, averaged over processes: a line per step, a column per run."""
        if not self.losses:
            return torch.zeros(0, len(self.rows))
        losses = self.processes.mean(torch.stack(self.losses))
        self.losses = list(losses.unbind())
        return losses

    def _check_losses(self) -> None:
        losses = self._shared_losses()
        bad = ~(losses <= LARGEST_LOSS)  # NaN too
        if not bad.any():
            return
        before = self.current_epoch * int(self.trainer.num_training_batches)
        lost = {}
        for column in bad.any(0).nonzero().flatten().tolist():
            first = int(bad[:, column].int().argmax())
            step = (before + first) // self.trainer.accumulate_grad_batches + 1
            lost[self.rows[column]] = (losses[first, column].item(), step)
        self._diverged(lost)
