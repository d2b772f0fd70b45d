"""Sizes of the pieces into which tensor forms cut a sequence.

On a CPU pieces fit the cache. On other devices every call costs a launch, so pieces are large and
few. Where w_t reads what earlier steps of its chunk have written, a chunk stays short anywhere: a
longer triangular solve would cost float32 digits.
"""

from dataclasses import dataclass, replace
from functools import cache

import torch

from coefdyn.mixer.slots.transition import Transition


@dataclass(frozen=True)
class Steps:
    """Steps per chunk, by what A_t has. `factor`: a_t of any sign, which are multiplied out for
    each pair of steps."""

    plain: int
    per_channel: int
    householder: int
    factor: int

    def of(self, transition: Transition) -> int:
        if transition.direction is not None:
            return self.householder
        if transition.factor is not None:
            return self.factor
        return self.per_channel if transition.per_channel else self.plain


@dataclass(frozen=True)
class Sizes:
    linear: Steps
    quadratic: Steps
    rows: int  # of a tile of the quadratic form, which has at least one chunk
    scores: int  # most scores of a tile: memory stays small, and calls stay few
    direct: int  # decays per channel are multiplied out up to this size; larger blocks are split


CPU = Sizes(
    linear=Steps(plain=64, per_channel=32, householder=16, factor=16),
    quadratic=Steps(plain=32, per_channel=32, householder=8, factor=8),
    rows=8,
    scores=2**25,
    direct=4,
)
ACCELERATOR = Sizes(
    linear=Steps(plain=128, per_channel=16, householder=16, factor=16),
    quadratic=Steps(plain=128, per_channel=16, householder=16, factor=16),
    rows=128,
    scores=2**29,
    direct=16,
)


# Bytes of a GPU for each score of a tile: a backward pass has about six numbers for it at a time,
# and most of the memory is for the model.
BYTES_PER_SCORE = 64


def sizes_on(device: torch.device) -> Sizes:
    if device.type == "cuda":
        return _on_gpu(device)
    return CPU if device.type == "cpu" else ACCELERATOR


@cache
def _on_gpu(device: torch.device) -> Sizes:
    """Tiles as large as the GPU has room for."""
    room = torch.cuda.get_device_properties(device).total_memory // BYTES_PER_SCORE
    return replace(ACCELERATOR, scores=min(ACCELERATOR.scores, room))
