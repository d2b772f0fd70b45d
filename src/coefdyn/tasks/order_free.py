"""The accuracy of a predictor that knows how often tokens occurred, and nothing of their order.

Beside chance: noisy recall at the paper's sizes has a chance of 0.125, and counting gives 0.48. The
predictor sees of every candidate how often it occurred so far, how often the present token did, and
which tokens are answers at all; it has learned from other sequences what these numbers mean.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray

from coefdyn.tasks.task import IGNORE, Examples, Task

SEQUENCES = 2000  # at most, to learn from and to be tested on
CANDIDATES = 2**22  # numbers at a time, at most
MOST = 31  # occurrences, beyond which no difference is made


_KNOWN: dict[tuple[Any, ...], float] = {}  # by settings


def order_free(task: Task) -> float:
    """Measured, with the same numbers for the same settings."""
    plain = (int, float)
    settings = {name: value for name, value in vars(task).items() if isinstance(value, plain)}
    key = (type(task), *sorted(settings.items()))
    if key not in _KNOWN:
        _KNOWN[key] = _measure(task)
    return _KNOWN[key]


def _measure(task: Task) -> float:
    count = max(1, min(SEQUENCES, CANDIDATES // (task.length * task.vocab_size)))
    learned, tested = (
        _look(task, task.draw(count, "test", np.random.default_rng([split, 2**31])))
        for split in range(2)
    )
    # How likely an answer is a token; and how likely one that occurred so often is the answer.
    shape = (task.length if task.auto_encoder else 1, task.vocab_size)
    prior = np.full(shape, 1e-6)
    np.add.at(prior, (learned.place % shape[0], learned.answer), 1.0)
    right, seen = np.full((2, MOST + 1, MOST + 1), 1e-3)
    now = np.broadcast_to(learned.present[:, None], learned.counts.shape)
    possible = (prior > 0.5).any(0)
    np.add.at(seen, (learned.counts[:, possible], now[:, possible]), 1.0)
    answers = learned.counts[np.arange(len(learned.answer)), learned.answer]
    np.add.at(right, (answers, learned.present), 1.0)
    likely = (right / seen)[tested.counts, tested.present[:, None]]
    guess = (likely * prior[tested.place % shape[0]]).argmax(1)
    return float((guess == tested.answer).mean())


class _Looks:
    """What the predictor sees at each scored target, and the answer."""

    def __init__(
        self,
        counts: Int64[ndarray, "s v"],
        present: Int64[ndarray, " s"],
        place: Int64[ndarray, " s"],
        answer: Int64[ndarray, " s"],
    ) -> None:
        self.counts, self.present, self.place, self.answer = counts, present, place, answer


def _look(task: Task, examples: Examples) -> _Looks:
    inputs, targets = examples
    row, place = np.nonzero(targets != IGNORE)
    occurred: Float[ndarray, "b t v"] = np.zeros((*inputs.shape, task.vocab_size), dtype=np.int16)
    occurred[np.arange(len(inputs))[:, None], np.arange(inputs.shape[1]), inputs] = 1
    occurred = occurred.cumsum(1, dtype=np.int16)
    upto = np.full_like(place, inputs.shape[1] - 1) if task.auto_encoder else place
    counts = occurred[row, upto].clip(max=MOST).astype(np.int64)
    present = counts[np.arange(len(row)), inputs[row, upto]]
    return _Looks(counts, present, place, targets[row, place])
