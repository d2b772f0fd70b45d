"""The accuracy of a predictor that knows how often tokens occurred, but not in which order.

It is a stronger baseline than chance: for noisy recall at the paper's sizes, chance is 0.125 and
counting gives 0.48. The predictor knows which tokens can be answers, how often each of them has
occurred so far, and how often the present token has. It learns from other sequences what these
numbers mean.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray

from coefdyn.tasks.task import IGNORE, Examples, Task

SEQUENCES = 2000  # at most, to learn from and again to test on
CANDIDATES = 2**22  # counts in memory, at most
MOST = 31  # larger counts are treated as this one


_KNOWN: dict[tuple[Any, ...], float] = {}  # by settings


def order_free(task: Task) -> float:
    """The predictor's accuracy on the task, measured once for each choice of settings."""
    plain = (int, float)
    settings = {name: value for name, value in vars(task).items() if isinstance(value, plain)}
    key = (type(task), *sorted(settings.items()))
    if key not in _KNOWN:
        _KNOWN[key] = _measure(task)
    return _KNOWN[key]


def _measure(task: Task) -> float:
    count = max(1, min(SEQUENCES, CANDIDATES // (task.length * task.vocab_size)))
    train, test = (
        _look(task, task.draw(count, "test", np.random.default_rng([split, 2**31])))
        for split in range(2)
    )
    # prior: how likely each token is the answer. answers / candidates: how likely a token is the
    # answer, given its count and the present token's.
    shape = (task.length if task.auto_encoder else 1, task.vocab_size)
    prior = np.full(shape, 1e-6)
    np.add.at(prior, (train.place % shape[0], train.answer), 1.0)
    answers, candidates = np.full((2, MOST + 1, MOST + 1), 1e-3)
    present = np.broadcast_to(train.present[:, None], train.counts.shape)
    possible = (prior > 0.5).any(0)
    np.add.at(candidates, (train.counts[:, possible], present[:, possible]), 1.0)
    answer_counts = train.counts[np.arange(len(train.answer)), train.answer]
    np.add.at(answers, (answer_counts, train.present), 1.0)
    likelihood = (answers / candidates)[test.counts, test.present[:, None]]
    guess = (likelihood * prior[test.place % shape[0]]).argmax(1)
    return float((guess == test.answer).mean())


class _Looks:
    """What the predictor knows at each scored target s, and the answer.

    `counts` of every token v and of the `present` one, and the target's `place` in its sequence.
    """

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
