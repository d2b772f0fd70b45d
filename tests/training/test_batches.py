"""The order of batches is a pure function of (seed, epoch), and an epoch can be taken up."""

import numpy as np
import torch

from coefdyn.tasks.task import Examples
from coefdyn.training.batches import Batch, Batches, ShuffledBatches

CPU = torch.device("cpu")
EXAMPLES = Examples(np.arange(20).reshape(10, 2), np.arange(20).reshape(10, 2) + 100)


def shuffled(seed: int, epoch: int) -> ShuffledBatches:
    batches = ShuffledBatches(EXAMPLES, 4, CPU, seed)
    batches.set_epoch(epoch)
    return batches


def tokens(batches: list[Batch]) -> list[int]:
    return torch.cat([inputs for inputs, _ in batches])[:, 0].tolist()


def test_every_example_once_with_its_target() -> None:
    for batches in (Batches(EXAMPLES, 4, CPU), shuffled(0, 0)):
        found = list(batches)
        assert [len(inputs) for inputs, _ in found] == [4, 4, 2]
        assert len(batches) == 3
        assert sorted(tokens(found)) == list(range(0, 20, 2))
        assert all(torch.equal(targets, inputs + 100) for inputs, targets in found)


def test_order_depends_on_seed_and_epoch_alone() -> None:
    order = tokens(list(shuffled(3, 5)))
    assert order == tokens(list(shuffled(3, 5)))
    assert order != tokens(list(shuffled(3, 6)))
    assert order != tokens(list(shuffled(4, 5)))
    again = shuffled(3, 5)
    assert [tokens(list(again)), tokens(list(again))] == [order, order]


def test_an_interrupted_epoch_goes_on_with_the_next_batch() -> None:
    first = shuffled(1, 2)
    whole = list(first)
    started = iter(first)
    next(started)
    resumed = shuffled(1, 2)
    resumed.load_state_dict(first.state_dict())
    assert tokens(list(resumed)) == tokens(whole[1:])
    assert tokens(list(resumed)) == tokens(whole)  # the next epoch is whole again
