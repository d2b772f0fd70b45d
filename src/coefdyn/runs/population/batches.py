"""Batches for all members of a population. Members with the same seed share them."""

from collections.abc import Iterator, Mapping

from coefdyn.runs.batches import Batch, Batches, Resumable

BySeed = dict[int, Batch]


class MemberBatches(Resumable):
    """Training batches of every seed: batch i of each comes at the same time."""

    def __init__(self, of_seeds: Mapping[int, Resumable]) -> None:
        super().__init__(seed=0)
        self.of_seeds = of_seeds

    def __len__(self) -> int:
        return len(next(iter(self.of_seeds.values())))

    def begin(self) -> None:
        for batches in self.of_seeds.values():
            batches.set_epoch(self.epoch)
            batches.begin()

    def batch(self, position: int) -> BySeed:  # type: ignore[override]
        return {seed: batches.batch(position) for seed, batches in self.of_seeds.items()}


class MemberTests:
    """Test batches of every seed: batch i of each comes at the same time."""

    def __init__(self, of_seeds: Mapping[int, Batches]) -> None:
        self.of_seeds = of_seeds

    def __len__(self) -> int:
        return len(next(iter(self.of_seeds.values())))

    def __iter__(self) -> Iterator[BySeed]:
        for batches in zip(*self.of_seeds.values(), strict=True):
            yield dict(zip(self.of_seeds, batches, strict=True))
