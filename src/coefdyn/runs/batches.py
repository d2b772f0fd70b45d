"""Batches of examples. Their order is a pure function of seed and epoch."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from numpy import ndarray
from torch import Tensor

from coefdyn.runs.processes import ALONE, Processes
from coefdyn.tasks.task import Examples
from coefdyn.tasks.text.wikitext import Blocks

Batch = tuple[Int64[Tensor, "b t"], Int64[Tensor, "b t"]]
TEST_TOKENS = 2**13  # per test batch
ORDER = 2  # the stream of batch orders; 0 and 1 draw the train and test data


class Batches:
    """All examples once, in their order. They are kept on the device."""

    def __init__(self, examples: Examples, batch_size: int, device: torch.device) -> None:
        self.inputs = torch.from_numpy(examples.inputs).to(device)
        self.targets = torch.from_numpy(examples.targets).to(device)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.inputs) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        sides = (self.inputs.split(self.batch_size), self.targets.split(self.batch_size))
        return zip(*sides, strict=True)


class BlockBatches:
    """All blocks of a text once, in their order, each read from disk when it is needed.

    Each of several processes has its share of the blocks.
    """

    def __init__(
        self,
        blocks: Blocks,
        batch_size: int,
        device: torch.device,
        processes: Processes = ALONE,
    ) -> None:
        self.blocks, self.batch_size, self.device = blocks, batch_size, device
        self.mine = np.arange(len(blocks))[processes.rank :: processes.world]

    def __len__(self) -> int:
        return -(-len(self.mine) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.mine), self.batch_size):
            yield self.take(self.mine[start : start + self.batch_size])

    def take(self, index: Int64[ndarray, " b"]) -> Batch:
        inputs, targets = (torch.from_numpy(side) for side in self.blocks.take(index))
        return inputs.to(self.device), targets.to(self.device)


class Resumable:
    """Epochs of batches that Lightning can resume in the middle of an epoch.

    Lightning sets the epoch on `sampler` and keeps `state_dict` in its checkpoints. An interrupted
    epoch resumes with its next batch.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.sampler = self
        self.epoch = self.position = 0
        self.resumed = False

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Batch]:
        if not self.resumed:
            self.position = 0
        self.resumed = False
        self.begin()
        while self.position < len(self):
            self.position += 1
            yield self.batch(self.position - 1)

    def begin(self) -> None:
        raise NotImplementedError

    def batch(self, position: int) -> Batch:
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
        self.resumed = self.position < len(self)


class ShuffledBatches(Resumable):
    """All examples once per epoch, in an order drawn from (seed, epoch)."""

    def __init__(
        self, examples: Examples, batch_size: int, device: torch.device, seed: int
    ) -> None:
        super().__init__(seed)
        self.all = Batches(examples, batch_size, device)

    def __len__(self) -> int:
        return len(self.all)

    def begin(self) -> None:
        inputs = self.all.inputs
        order = np.random.default_rng([self.seed, ORDER, self.epoch]).permutation(len(inputs))
        self.chosen = torch.from_numpy(order).to(inputs.device).split(self.all.batch_size)

    def batch(self, position: int) -> Batch:
        index = self.chosen[position]
        return self.all.inputs[index], self.all.targets[index]


class StreamBatches(Resumable):
    """Blocks of a text. `steps` batches make an epoch.

    Each pass through the text has an order drawn from (seed, pass). Blocks that do not fill a
    batch at the end of a pass are skipped in that pass. A batch may be split among several
    processes, or into `parts` that come one after the other. The blocks of a step do not depend
    on such a split.
    """

    def __init__(
        self,
        blocks: Blocks,
        batch_size: int,
        device: torch.device,
        seed: int,
        steps: int,
        parts: int = 1,
        processes: Processes = ALONE,
    ) -> None:
        super().__init__(seed)
        if batch_size % (processes.world * parts):
            raise ValueError(
                f"trainer.batch_size={batch_size} cannot be shared evenly by {processes.world} "
                f"processes and trainer.devices.accumulate={parts}"
            )
        if len(blocks) < batch_size:
            raise ValueError(
                f"the training text has {len(blocks)} blocks, fewer than "
                f"trainer.batch_size={batch_size}"
            )
        self.all, self.steps = BlockBatches(blocks, batch_size, device), steps
        self.parts, self.processes = parts, processes
        self.per_pass = len(blocks) // batch_size
        self.order: tuple[int, Int64[ndarray, " b"]] = (-1, np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return self.steps * self.parts

    def begin(self) -> None:
        pass

    def batch(self, position: int) -> Batch:
        step, part = divmod(position, self.parts)
        pass_number, place = divmod(self.epoch * self.steps + step, self.per_pass)
        if self.order[0] != pass_number:
            rng = np.random.default_rng([self.seed, ORDER, pass_number])
            self.order = (pass_number, rng.permutation(len(self.all.blocks)))
        size = self.all.batch_size
        blocks = self.order[1][place * size : (place + 1) * size]
        mine = blocks[part :: self.parts][self.processes.rank :: self.processes.world]
        return self.all.take(mine)
