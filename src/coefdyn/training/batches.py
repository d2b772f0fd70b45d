"""Batches of examples that sit on the device, in an order that is a pure function."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from coefdyn.tasks.task import Examples

Batch = tuple[Int64[Tensor, "b t"], Int64[Tensor, "b t"]]
ORDER = 2  # the stream of batch orders; 0 and 1 draw the train and test data


class Batches:
    """All examples once, as they stand."""

    def __init__(self, examples: Examples, batch_size: int, device: torch.device) -> None:
        self.inputs = torch.from_numpy(examples.inputs).to(device)
        self.targets = torch.from_numpy(examples.targets).to(device)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.inputs) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        sides = (self.inputs.split(self.batch_size), self.targets.split(self.batch_size))
        return zip(*sides, strict=True)


class ShuffledBatches(Batches):
    """All examples once per epoch, shuffled by (seed, epoch).

    Lightning sets the epoch on `sampler`, and keeps `state_dict` in its checkpoints: an epoch that
    was interrupted goes on with the batch that comes next.
    """

    def __init__(
        self, examples: Examples, batch_size: int, device: torch.device, seed: int
    ) -> None:
        super().__init__(examples, batch_size, device)
        self.seed = seed
        self.sampler = self
        self.epoch = self.position = 0
        self.resumed = False

    def __iter__(self) -> Iterator[Batch]:
        if not self.resumed:
            self.position = 0
        self.resumed = False
        order = np.random.default_rng([self.seed, ORDER, self.epoch]).permutation(len(self.inputs))
        chosen = torch.from_numpy(order).to(self.inputs.device).split(self.batch_size)
        while self.position < len(self):
            index = chosen[self.position]
            self.position += 1
            yield self.inputs[index], self.targets[index]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
        self.resumed = self.position < len(self)
