"""Learners: one model; `population.stacked` has one for several models of one architecture."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch.nn.functional as F
from torch import Tensor, nn

from coefdyn.model.heads import NextTokenHead
from coefdyn.model.model import SequenceModel
from coefdyn.runs.batches import Batch
from coefdyn.runs.loss import CHUNK_LOGITS, LARGEST, MANY, summed_cross_entropy
from coefdyn.runs.progress import Scores
from coefdyn.runs.trials import check_first_loss
from coefdyn.tasks.task import IGNORE


@runtime_checkable
class Learner(Protocol):
    """What training calls. `rows` are the numbers of the runs that still train; one alone is 0."""

    @property
    def weights(self) -> nn.Module:
        """The module that holds all parameters."""
        ...

    def groups(self) -> Iterable[Any]:
        """What the optimizer gets: one group of parameters per row."""
        ...

    def losses(self, batch: Any, rows: Sequence[int]) -> Tensor:
        """Mean cross-entropy over the scored targets: one number per row, or one of a run alone."""
        ...

    def test(self, batch: Any, rows: Sequence[int], scores: Sequence[Scores]) -> None:
        """Add a test batch to the scores of each row."""
        ...

    def model_of(self, row: int) -> SequenceModel:
        """A row's model as it is now."""
        ...

    def parts(self, checkpoint: dict[str, Any], rows: Sequence[int]) -> list[dict[str, Any]]:
        """Split Lightning's checkpoint of all rows into one checkpoint per row."""
        ...

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Join the checkpoints of all rows into one for Lightning."""
        ...


class Alone:
    """One model. The loss is computed in the way that suits the number of logits."""

    def __init__(self, model: SequenceModel, vocab_size: int) -> None:
        self.weights = self.model = model
        self.vocab_size = vocab_size
        self.compared = False  # kernels with our own forms, on the first batch

    def groups(self) -> Iterable[nn.Parameter]:
        return self.model.parameters()

    def losses(self, batch: Batch, rows: Sequence[int]) -> Tensor:
        if not self.compared:
            self.compared = True
            check_first_loss(self.model, partial(self._loss, batch))
        return self._loss(batch)

    def _loss(self, batch: Batch) -> Tensor:
        inputs, targets = batch
        logits, head = inputs.numel() * self.vocab_size, self.model.head
        if logits > LARGEST:
            assert isinstance(head, NextTokenHead)
            total = summed_cross_entropy(self.model.features(inputs), head.weight, targets)
            return total / (targets != IGNORE).sum()
        # Not on a GPU, which would have to wait for the number of scored targets.
        if logits > MANY and isinstance(head, NextTokenHead) and inputs.device.type == "cpu":
            scored = targets != IGNORE
            return F.cross_entropy(head(self.model.features(inputs)[scored]), targets[scored])
        return F.cross_entropy(
            self.model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORE
        )

    def test(self, batch: Batch, rows: Sequence[int], scores: Sequence[Scores]) -> None:
        (score,), (inputs, targets) = scores, batch
        scored = targets != IGNORE
        if not isinstance(self.model.head, NextTokenHead):
            score.add(self.model(inputs)[scored].float(), targets[scored])
            return
        size = max(1, CHUNK_LOGITS // self.vocab_size)
        x, scored_targets = self.model.features(inputs)[scored], targets[scored]
        for part, target in zip(x.split(size), scored_targets.split(size), strict=True):
            score.add(self.model.head(part).float(), target)

    def model_of(self, row: int) -> SequenceModel:
        return self.model

    def parts(self, checkpoint: dict[str, Any], rows: Sequence[int]) -> list[dict[str, Any]]:
        return [checkpoint]

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        (checkpoint,) = parts
        return checkpoint
