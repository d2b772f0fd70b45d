"""The order of batches is a pure function of (seed, epoch), and an epoch can be taken up."""

import numpy as np
import pytest
import torch

from coefdyn.runs.batches import (
    Batch,
    Batches,
    BlockBatches,
    ShuffledBatches,
    StreamBatches,
)
from coefdyn.runs.processes import Processes
from coefdyn.tasks.task import IGNORE, Examples
from coefdyn.tasks.text.wikitext import Blocks

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
    again = shuffled(3, 5)
    assert [tokens(list(again)), tokens(list(again))] == [order, order]
    # The next epoch of a seed is no epoch of the next seed.
    orders = {tuple(tokens(list(shuffled(s, e)))) for s in range(5) for e in range(5)}
    assert len(orders) == 25


def test_an_interrupted_epoch_goes_on_with_the_next_batch() -> None:
    first = shuffled(1, 2)
    whole = list(first)
    started = iter(first)
    next(started)
    resumed = shuffled(1, 2)
    resumed.load_state_dict(first.state_dict())
    assert tokens(list(resumed)) == tokens(whole[1:])
    assert tokens(list(resumed)) == tokens(whole)  # the next epoch is whole again


def test_blocks_as_they_stand_come_once_the_last_batch_short() -> None:
    blocks = Blocks(np.arange(1, 54, dtype=np.uint16), 5, whole=True)  # ten, and one of two steps
    batches = BlockBatches(blocks, 4, CPU)
    found = list(batches)
    assert len(batches) == 3
    assert [len(inputs) for inputs, _ in found] == [4, 4, 3]
    inputs, targets = (torch.cat(side) for side in zip(*found, strict=True))
    assert inputs[:, 0].tolist() == list(range(1, 52, 5))
    assert targets[targets != IGNORE].tolist() == list(range(2, 54)), "each token is a target once"
    shares = [list(BlockBatches(blocks, 4, CPU, Processes(rank, 2))) for rank in range(2)]
    assert [sum(len(x) for x, _ in share) for share in shares] == [6, 5]


def stream(rank: int = 0, world: int = 1, steps: int = 3) -> StreamBatches:
    blocks = Blocks(np.arange(1, 52, dtype=np.uint16), 5, whole=False)  # 10 blocks
    return StreamBatches(blocks, 4, CPU, seed=1, steps=steps, processes=Processes(rank, world))


def firsts(batches: StreamBatches, epoch: int) -> list[list[int]]:
    batches.set_epoch(epoch)
    return [inputs[:, 0].tolist() for inputs, _ in batches]


def test_a_pass_shows_each_block_once_and_epochs_follow_each_other() -> None:
    """Of ten blocks, the two that do not fill a batch of four are left out of a pass."""
    steps = [batch for epoch in range(4) for batch in firsts(stream(), epoch)]
    assert [len(batch) for batch in steps] == [4] * 12
    assert firsts(stream(steps=12), 0) == steps
    passes = passes_of(steps)
    assert all(len(set(shown)) == 8 for shown in passes)
    assert set().union(*passes) == set(range(1, 51, 5)), "a block never comes"


def passes_of(steps: list[list[int]]) -> list[tuple[int, ...]]:
    """Two batches of four are a pass through ten blocks."""
    return [(*steps[i], *steps[i + 1]) for i in range(0, len(steps), 2)]


def test_no_two_passes_have_the_same_order_of_whatever_seed() -> None:
    """The second pass of a seed is not the first of the next."""
    blocks = stream().all.blocks
    passes = [
        shown
        for seed in range(4)
        for shown in passes_of(firsts(StreamBatches(blocks, 4, CPU, seed, steps=12), 0))
    ]
    assert len(set(passes)) == len(passes) == 24


def test_the_order_does_not_depend_on_the_number_of_processes() -> None:
    alone = firsts(stream(), 0)
    shares = [firsts(stream(rank, 2), 0) for rank in range(2)]
    for step, batch in enumerate(alone):
        assert sorted(batch) == sorted(shares[0][step] + shares[1][step])
    with pytest.raises(ValueError, match="cannot be shared evenly by 3"):
        stream(0, 3)
    blocks = stream().all.blocks
    parts = StreamBatches(blocks, 4, CPU, seed=1, steps=3, parts=2)
    halves = firsts(parts, 0)
    assert [sorted(a + b) for a, b in zip(halves[::2], halves[1::2], strict=True)] == [
        sorted(batch) for batch in alone
    ]
