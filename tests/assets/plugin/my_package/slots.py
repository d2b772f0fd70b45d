"""Slots that coefdyn does not have, and two that lie about themselves."""

from dataclasses import dataclass

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


class Turn(Evolution):
    """A_t turns the first two channels by an angle of x_t: no decay, no reflection, so a matrix."""

    dense = True

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.angle = nn.Linear(d_model, 1, bias=False)

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        cos, sin = self.angle(x)[..., 0].cos(), self.angle(x)[..., 0].sin()
        turn = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
        A = torch.eye(k.shape[-1], dtype=k.dtype).repeat(*x.shape[:2], 1, 1)
        A[..., :2, :2] = turn
        return Transition(matrix=A.unsqueeze(1).expand(-1, k.shape[1], -1, -1, -1))


class Tanh(Evolution):
    """A_t = tanh(w x_t) I as a decay, whose logarithm does not exist where it is negative."""

    has_decay = True

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, 1, bias=False)

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        return Transition(log_decay=self.gate(x).tanh().log().unsqueeze(1).expand(*k.shape[:3], 1))


@dataclass(frozen=True)
class Turned(Transition):
    """A transition of which the forms know nothing."""

    angle: Tensor | None = None


class Unknown(Evolution):
    """Returns what only it knows."""

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        return Turned(angle=x[..., 0])
