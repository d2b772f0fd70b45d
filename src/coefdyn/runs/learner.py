"""What learns: one model, or in `population.stacked` several of one architecture as one."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch.nn.functional as F
from torch import Tensor, nn

from coefdyn.model.heads import NextTokenHead
from coefdyn.model.model import SequenceModel
from coefdyn.runs.batches import Batch
from coefdyn.runs.loss import CHUNK_LOGITS, LARGEST, MANY, summed_cross_entropy
from coefdyn.runs.progress import Scores
from coefdyn.tasks.task import IGNORE


@runtime_checkable
class Learner(Protocol):
    """`rows` are the members that still learn; a run alone is row 0."""

    @property
    def weights(self) -> nn.Module:
        """Holds all parameters."""
        ...

    def groups(self) -> Iterable[Any]:
        """What the optimizer gets: a group of parameters per row."""
        ...

    def losses(self, batch: Any, rows: Sequence[int]) -> Tensor:
        """Mean cross-entropy over the targets that count, per row; of one row just that number."""
        ...

    def test(self, batch: Any, rows: Sequence[int], scores: Sequence[Scores]) -> None:
        """Add a test batch to the scores of each row."""
        ...

    def model_of(self, row: int) -> SequenceModel:
        """A row's model as it is now."""
        ...

    def parts(self, checkpoint: dict[str, Any], rows: Sequence[int]) -> list[dict[str, Any]]:
        """Lightning's checkpoint of all, as one of each row alone."""
        ...

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The other way round, of all rows."""
        ...


class Alone:
    """One model, trained in any of the ways that a text of any vocabulary may need."""

    def __init__(self, model: SequenceModel, vocab_size: int) -> None:
        self.weights = self.model = model
        self.vocab_size = vocab_size

    def groups(self) -> Iterable[nn.Parameter]:
        return self.model.parameters()

    def losses(self, batch: Batch, rows: Sequence[int]) -> Tensor:
        inputs, targets = batch
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

    def test(self, batch: Batch, rows: Sequence[int], scores: Sequence[Scores]) -> None:
        (score,), (inputs, targets) = scores, batch
        scored = targets != IGNORE
        if not isinstance(self.model.head, NextTokenHead):
            score.add(self.model(inputs)[scored].float(), targets[scored])
            return
        size = max(1, CHUNK_LOGITS // self.vocab_size)
        x, wanted = self.model.features(inputs)[scored], targets[scored]
        for part, target in zip(x.split(size), wanted.split(size), strict=True):
            score.add(self.model.head(part).float(), target)

    def model_of(self, row: int) -> SequenceModel:
        return self.model

    def parts(self, checkpoint: dict[str, Any], rows: Sequence[int]) -> list[dict[str, Any]]:
        return [checkpoint]

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        (checkpoint,) = parts
        return checkpoint
