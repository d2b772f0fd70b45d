"""b_j: how strongly a key is written."""

import math

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.shapes import head_width
from coefdyn.mixer.slots.transition import Transition


class Scaling(nn.Module):
    """b_j > 0, one number per head. In the subclasses, n is the width of one head.

    Traits:
    `constant`: the value of b_j, if it is the same for all inputs;
    `log_space`: forward returns log b_j, because b_j itself may overflow;
    `needs_step_size`, `needs_strength`: b_j is taken from this part of A_t.
    """

    constant: float | None = None
    log_space = False
    needs_step_size = False
    needs_strength = False

    def forward(
        self, x: Float[Tensor, "b t d"], transition: Transition
    ) -> Float[Tensor, "#b #h #s"]:
        raise NotImplementedError


class One(Scaling):
    """b_j = 1."""

    constant = 1.0

    def forward(
        self, x: Float[Tensor, "b t d"], transition: Transition
    ) -> Float[Tensor, "#b #h #s"]:
        return x.new_ones(1, 1, 1)


class InverseSqrt(Scaling):
    """b_j = 1/sqrt(n)."""

    def __init__(self, n_state: int, n_heads: int) -> None:
        super().__init__()
        self.constant = self.scale = head_width(n_state, n_heads) ** -0.5

    def forward(
        self, x: Float[Tensor, "b t d"], transition: Transition
    ) -> Float[Tensor, "#b #h #s"]:
        return x.new_full((1, 1, 1), self.scale)


class Gate(Scaling):
    """b_j = z_j, or z_j/sqrt(n) where `inverse_sqrt`; z_j = sigmoid(W_z x_j)."""

    def __init__(self, d_model: int, n_state: int, n_heads: int, inverse_sqrt: bool) -> None:
        super().__init__()
        self.scale = head_width(n_state, n_heads) ** -0.5 if inverse_sqrt else 1.0
        self.gate = nn.Linear(d_model, n_heads, bias=False)

    def forward(
        self, x: Float[Tensor, "b t d"], transition: Transition
    ) -> Float[Tensor, "#b #h #s"]:
        return self.scale * rearrange(self.gate(x).sigmoid(), "b t h -> b h t")


class StepSize(Scaling):
    """b_j = Delta_j, the step size of A_t."""

    needs_step_size = True

    def forward(
        self, x: Float[Tensor, "b t d"], transition: Transition
    ) -> Float[Tensor, "#b #h #s"]:
        assert transition.step_size is not None, "the mixer checks needs_step_size"
        return transition.step_size


class Strength(Scaling):
    """b_j = beta_j/sqrt(n), beta the strength of A_t's Householder."""

    needs_strength = True

    def __init__(self, n_state: int, n_heads: int) -> None:
        super().__init__()
        self.scale = head_width(n_state, n_heads) ** -0.5

    def forward(
        self, x: Float[Tensor, "b t d"], transition: Transition
    ) -> Float[Tensor, "#b #h #s"]:
        assert transition.strength is not None, "the mixer checks needs_strength"
        return self.scale * transition.strength


class ExpInput(Scaling):
    """b_j = exp(i_j)/sqrt(n), i_j = W_i x_j + bias; kept as log b_j. mLSTM, Beck et al. 2024."""

    log_space = True

    def __init__(self, d_model: int, n_state: int, n_heads: int) -> None:
        super().__init__()
        self.log_scale = -0.5 * math.log(head_width(n_state, n_heads))
        self.gate = nn.Linear(d_model, n_heads)
        self.reset_special()

    def reset_special(self) -> None:
        """W = 0 and a small random bias, as in xLSTM."""
        with torch.no_grad():
            self.gate.weight.zero_()
            self.gate.bias.normal_(std=0.1)

    def forward(
        self, x: Float[Tensor, "b t d"], transition: Transition
    ) -> Float[Tensor, "#b #h #s"]:
        return rearrange(self.gate(x), "b t h -> b h t") + self.log_scale
