"""What one training run does in a step and at the end of an epoch."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from coefdyn.model.heads import NextTokenHead
from coefdyn.model.model import SequenceModel
from coefdyn.runs.batches import Batch
from coefdyn.runs.loss import CHUNK_LOGITS, LARGEST, MANY, summed_cross_entropy
from coefdyn.runs.processes import ALONE, Processes
from coefdyn.runs.record import SCHEMA, Row
from coefdyn.tasks.task import IGNORE

CHECK_EVERY = 50  # steps between two looks at the losses: on a GPU each look waits for it
# Beyond it, the mean probability of the targets is zero even in double precision. Norms can keep a
# model that has lost all scale from ever showing a NaN.
LARGEST_LOSS = 745.0
KEPT = ("history", "seconds", "sessions")  # in checkpoints, besides the losses


class DivergedError(Exception):
    """A loss that is not finite, or larger than LARGEST_LOSS, at `step` (counted from 1)."""

    def __init__(self, loss: float, step: int) -> None:
        super().__init__(f"the loss is {loss:.3g} at step {step}")
        self.step = step


def cosine(total: int, warmup: int, step: int) -> float:
    """The share of the peak learning rate at a step: a linear rise, then a cosine down to 0."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class Scores:
    """Sums over test batches: the loss, and per token how often it was wanted and how often rightly
    guessed. (torchmetrics would count pairs of tokens, vocab_size^2 numbers.)"""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.wanted = torch.zeros(vocab_size, dtype=torch.int64, device=device)
        self.right = torch.zeros_like(self.wanted)

    def add(self, logits: Tensor, wanted: Tensor) -> None:
        size = len(self.wanted)
        self.loss += F.cross_entropy(logits, wanted, reduction="sum")
        self.wanted += wanted.bincount(minlength=size)
        self.right += wanted[logits.argmax(-1) == wanted].bincount(minlength=size)

    def row(self, split: str) -> Row:
        occurs, right = self.wanted > 0, self.right.double()
        return {
            f"{split}/loss": (self.loss / self.wanted.sum()).item(),
            f"{split}/accuracy": (right.sum() / self.wanted.sum()).item(),
            f"{split}/accuracy_macro": (right / self.wanted)[occurs].mean().item(),
        }


class Training(pl.LightningModule):
    """Cross-entropy on the scored targets, a cosine schedule by step, a `history` row per epoch.

    Accuracies are over the whole test set: micro, every scored target counting alike, and macro,
    every class that occurs among the targets counting alike.
    """

    allow_zero_length_dataloader_with_multiple_devices = True  # of a short text

    def __init__(
        self,
        model: SequenceModel,
        vocab_size: int,
        make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        warmup_steps: int,
        total_steps: int,
        test_every: int,
        stop_at: float | None,
        session: dict[str, Any],
        split: str = "test",
        processes: Processes = ALONE,
    ) -> None:
        super().__init__()
        self.model = model
        self.make_optimizer = make_optimizer
        # Lightning could count the steps, but would then start the data before a restart is known.
        self.total_steps, self.warmup_steps = total_steps, warmup_steps
        self.test_every, self.stop_at = test_every, stop_at
        self.split = split  # what is looked at between epochs
        self.processes = processes
        self.history: list[Row] = []
        self.sessions = [session]  # which code ran where; more than one after a restart
        self.seconds = {"training": 0.0, "testing": 0.0}  # of all sessions
        self.started = 0.0
        self.losses: list[Tensor] = []  # of the epoch's steps so far
        self.lr = 0.0  # of the last step
        self.vocab_size = vocab_size
        self.scores = Scores(vocab_size, torch.device("cpu"))

    def training_step(self, batch: Batch, index: int) -> Tensor:
        loss = self._loss(*batch)
        self.losses.append(loss.detach())
        self.lr = self.trainer.optimizers[0].param_groups[0]["lr"]
        if len(self.losses) % CHECK_EVERY == 0:
            self._check_losses()
        return loss

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        logits, head = inputs.numel() * self.vocab_size, self.model.head
        if logits > LARGEST:
            assert isinstance(head, NextTokenHead)
            total = summed_cross_entropy(self.model.features(inputs), head.weight, targets)
            return total / (targets != IGNORE).sum()
        # A GPU would have to wait for the number of targets that count.
        if logits > MANY and isinstance(head, NextTokenHead) and inputs.device.type == "cpu":
            scored = targets != IGNORE
            return F.cross_entropy(head(self.model.features(inputs)[scored]), targets[scored])
        return F.cross_entropy(
            self.model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORE
        )

    def on_train_start(self) -> None:
        self.started = time.perf_counter()
        self._plan_test()

    def on_train_epoch_start(self) -> None:
        self.started = time.perf_counter()
        self._plan_test()
        self.losses = []  # not called when an epoch goes on after a restart

    def on_validation_start(self) -> None:
        self._check_losses()
        self._lap("training")
        self.scores = Scores(self.vocab_size, self.device)

    def validation_step(self, batch: Batch, index: int) -> None:
        inputs, targets = batch
        scored = targets != IGNORE
        if not isinstance(self.model.head, NextTokenHead):
            self.scores.add(self.model(inputs)[scored].float(), targets[scored])
            return
        size = max(1, CHUNK_LOGITS // self.vocab_size)
        x, wanted = self.model.features(inputs)[scored], targets[scored]
        for part, target in zip(x.split(size), wanted.split(size), strict=True):
            self.scores.add(self.model.head(part).float(), target)

    def on_validation_epoch_end(self) -> None:
        row = self._test_row(self.split)
        self._lap("testing")
        if not row[f"{self.split}/loss"] <= LARGEST_LOSS:
            raise DivergedError(row[f"{self.split}/loss"], self.global_step)
        self.history.append(self._epoch_row() | row)
        self._stop_if_good_enough()

    def _test_row(self, split: str) -> Row:
        self.processes.sum(self.scores.loss, self.scores.wanted, self.scores.right)
        return self.scores.row(split)

    @torch.no_grad()
    def look_at(self, split: str, batches: Iterable[Batch]) -> Row:
        """A split that plays no part in training, after it."""
        self.started = time.perf_counter()
        self.eval()
        self.scores = Scores(self.vocab_size, self.device)
        for index, batch in enumerate(batches):
            self.validation_step(batch, index)
        self._lap("testing")
        return self._test_row(split)

    def on_train_epoch_end(self) -> None:
        self._check_losses()
        self._lap("training")
        if not self.history or self.history[-1]["epoch"] != self.current_epoch + 1:
            self.history.append(self._epoch_row())

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: Any = None,
        gradient_clip_algorithm: Any = None,
    ) -> None:
        """By hand: Lightning refuses to clip for fused optimizers in mixed precision, which is
        about loss scaling, and bfloat16 has none."""
        if gradient_clip_val is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), gradient_clip_val)

    def configure_optimizers(self) -> Any:
        optimizer = self.make_optimizer(self.model.parameters())
        factor = partial(cosine, self.total_steps, self.warmup_steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._lap("training")
        checkpoint["schema"] = SCHEMA
        checkpoint["losses"] = self._shared_losses().tolist()
        for name in KEPT:
            checkpoint[name] = getattr(self, name)

    def on_load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        self.losses = [torch.tensor(loss, device=self.device) for loss in checkpoint["losses"]]
        session = self.sessions[-1]
        for name in KEPT:
            setattr(self, name, checkpoint[name])
        self.sessions.append(session)
        self._stop_if_good_enough()

    def _stop_if_good_enough(self) -> None:
        name = f"{self.split}/accuracy"
        tests = [row[name] for row in self.history if name in row]
        if self.stop_at is not None and tests and tests[-1] >= self.stop_at:
            self.trainer.should_stop = True

    def _epoch_row(self) -> Row:
        mean = self._shared_losses().double().mean().item()
        return {
            "epoch": self.current_epoch + 1,
            "step": self.global_step,
            "lr": self.lr,
            "train/loss": mean,
        }

    def _lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] += now - self.started
        self.started = now

    def _plan_test(self) -> None:
        """Lightning counts epochs between two tests; the last epoch has one in any case."""
        last = self.current_epoch + 1 == self.trainer.max_epochs
        self.trainer.check_val_every_n_epoch = 1 if last else self.test_every

    def _shared_losses(self) -> Tensor:
        """Of the epoch's steps so far, each the mean over the processes."""
        if not self.losses:
            return torch.zeros(0)
        losses = self.processes.mean(torch.stack(self.losses))
        self.losses = list(losses.unbind())
        return losses

    def _check_losses(self) -> None:
        losses = self._shared_losses()
        if not len(losses):
            return
        bad = ~(losses <= LARGEST_LOSS)  # NaN too
        if bad.any():
            first = int(bad.int().argmax())
            before = self.current_epoch * int(self.trainer.num_training_batches)
            step = (before + first) // self.trainer.accumulate_grad_batches + 1
            raise DivergedError(losses[first].item(), step)
