"""Slots that coefdyn does not have, and two that lie about themselves."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition


class Square(Readout):
    """phi(s) = s^2."""

    nonnegative = True
    homogeneous = 2
    polynomial = (0.0, 0.0, 1.0)

    def forward(self, s: Tensor) -> Tensor:
        return s.square()


class Relu(Readout):
    """phi(s) = max(s, 0): named like one of coefdyn's, and not the same class."""

    nonnegative = True
    homogeneous = 1

    def forward(self, s: Tensor) -> Tensor:
        return F.relu(s)


class SignedSquare(Readout):
    """phi(s) = s |s|, which claims to be nonnegative and is not."""

    nonnegative = True
    homogeneous = 2

    def forward(self, s: Tensor) -> Tensor:
        return s * s.abs()


class HalfLife(Evolution):
    """A_t = 2^(-1/life_h) I, a learned life per head."""

    has_decay = True

    def __init__(self, n_heads: int, life: float = 8.0) -> None:
        super().__init__()
        self.log_life = nn.Parameter(torch.full((n_heads,), life).log())

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        rate = -torch.log(torch.tensor(2.0, dtype=x.dtype)) * (-self.log_life).exp()
        return Transition(log_decay=rate.view(1, -1, 1, 1).expand(*k.shape[:3], 1))


class Undeclared(HalfLife):
    """The same, without saying that it decays."""

    has_decay = False
