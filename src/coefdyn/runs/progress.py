"""What a run has so far, and what its losses and tests mean for it: the same for a run alone and
for the members of a population."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.runs.lock import LostLockError
from coefdyn.runs.record import Row

# Beyond it, the mean probability of the targets is zero even in double precision. Norms can keep a
# model that has lost all scale from ever showing a NaN.
LARGEST_LOSS = 745.0
KEPT = ("history", "losses", "seconds", "sessions", "initial")  # in checkpoints


def cosine(total: int, warmup: int, step: int) -> float:
    """The share of the peak learning rate at a step: a linear rise, then a cosine down to 0."""
    if step < warmup:
        return constant(total, warmup, step)
    done = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def constant(total: int, warmup: int, step: int) -> float:
    """A linear rise, then the peak, whatever the number of steps."""
    del total
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


SCHEDULES = {"cosine": cosine, "constant": constant}


@dataclass
class Progress:
    """What a run has so far, besides its weights."""

    name: str
    sessions: list[dict[str, Any]]  # which code ran where, the present one last
    history: list[Row] = field(default_factory=list)  # a row per epoch
    losses: list[float] = field(default_factory=list)  # of an epoch that a checkpoint interrupts
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "testing": 0.0})
    initial: dict[str, Any] | None = None  # statistics of the coefficients before the first step
    diverged_at: int | None = None  # a step, counted from 1
    taken_over: LostLockError | None = None  # by another process

    def kept(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in KEPT}

    def restore(self, kept: dict[str, Any]) -> None:
        """As a checkpoint has it; the present session comes after those before."""
        sessions = [*kept["sessions"], self.sessions[-1]]
        for name in KEPT:
            setattr(self, name, kept[name])
        self.sessions = sessions

    def reached(self, accuracy: float | None, split: str) -> bool:
        """Whether its last test is good enough to stop."""
        name = f"{split}/accuracy"
        tests = [row[name] for row in self.history if name in row]
        return accuracy is not None and bool(tests) and tests[-1] >= accuracy


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
