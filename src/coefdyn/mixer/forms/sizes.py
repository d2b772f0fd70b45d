"""Sizes of the pieces into which tensor forms cut a sequence.

On a CPU pieces fit the cache. On other devices every call costs a launch, so pieces are large and
few. Where w_t reads what earlier steps of its chunk have written, a chunk stays short anywhere: a
longer triangular solve would cost float32 digits.
"""

from dataclasses import dataclass

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


def sizes_on(device: torch.device) -> Sizes:
    return CPU if device.type == "cpu" else ACCELERATOR
