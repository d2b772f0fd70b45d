"""A_t that tell how far back a key lies: rotations, and shears, which add a number to a score.

Each may be a factor of another A_t, `of`: A_t is then that of `of`, times the rotation or shear.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.shapes import head_width
from coefdyn.mixer.slots.evolution import Evolution, Identity
from coefdyn.mixer.slots.transition import Transition


class Rotation(Evolution):
    """A_t = A'_t R_t: R_t turns channels p and p + n/2 of a head by an angle, A'_t is of `of`."""

    has_angle = True

    def __init__(self, n_state: int, n_heads: int, of: Evolution | None) -> None:
        super().__init__()
        self.of = of or Identity()
        self.take_traits(self.of)
        width = head_width(n_state, n_heads)
        if width % 2:
            raise ValueError(
                f"a rotation turns pairs of channels, and heads of n_state/n_heads = {width} "
                "channels are not pairs; choose n_heads or n_state so that it is even"
            )
        if self.of.dense or self.of.two_sided or self.of.has_angle:
            raise ValueError(
                "a rotation can be a factor of decays and Householders, and this evolution is "
                "neither; choose one such as scalar_gla or householder_key_learned"
            )
        if self.of.per_channel:
            raise ValueError(
                "a rotation turns pairs of channels, which must decay alike, and this decay has "
                "one number per channel; choose one per head, such as scalar_gla or scalar_mamba2"
            )
        self.pairs, self.n_heads = width // 2, n_heads

    def angle(self, x: Float[Tensor, "b t d"], base: Transition) -> Float[Tensor, "#b #h t p"]:
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        base = self.of(x, k)
        turn = Transition(angle=self.angle(x, base)).spread(self.repeats)
        return replace(base, angle=turn.angle)


class Rotary(Rotation):
    """The angle of pair p is -base^(-2p/n) at every step, so that R_t ... R_{j+1} turns by minus
    the distance. Rotary position embedding, Su et al. 2021."""

    def __init__(
        self, n_state: int, n_heads: int, base: float = 10000.0, of: Evolution | None = None
    ) -> None:
        super().__init__(n_state, n_heads, of)
        if not 0 < base < math.inf:
            raise ValueError(f"evolution=rotary needs a finite base > 0, not base={base}")
        self.base = base

    def angle(self, x: Float[Tensor, "b t d"], base: Transition) -> Float[Tensor, "#b #h t p"]:
        exponents = torch.arange(self.pairs, device=x.device, dtype=torch.float64) / self.pairs
        angles = -(self.base**-exponents)
        return angles.expand(1, 1, x.shape[1], self.pairs)


class InputRotation(Rotation):
    """The angles are Delta_t W x_t, one per pair; without a Delta_t in `of`, W x_t. The transition
    of Mamba-3, Lahoti et al. 2025, is this times a decay."""

    def __init__(
        self, d_model: int, n_state: int, n_heads: int, of: Evolution | None = None
    ) -> None:
        super().__init__(n_state, n_heads, of)
        self.rate = nn.Linear(d_model, n_heads * self.pairs, bias=False)

    def angle(self, x: Float[Tensor, "b t d"], base: Transition) -> Float[Tensor, "#b #h t p"]:
        rate = rearrange(self.rate(x), "b t (h p) -> b h t p", h=self.n_heads)
        if base.step_size is None:
            return rate
        return base.step_size[..., :: self.repeats].unsqueeze(-1) * rate


class Shear(Evolution):
    """score_ij has the sum of shear_s over j < s <= i added: an A_t on (k, 0, 1), read by
    (q, 1, 0)."""

    has_shear = True

    def __init__(self, of: Evolution | None) -> None:
        super().__init__()
        self.of = of or Identity()
        self.take_traits(self.of)
        if self.of.dense or self.of.has_shear or self.of.may_grow:
            raise ValueError(
                "a shear can be a factor of an A_t that does not grow and has none; choose one "
                "such as identity, rotary or householder_free_learned"
            )

    def shear(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b h t"]:
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        added = Transition(shear=self.shear(x)).spread(self.repeats)
        return replace(self.of(x, k), shear=added.shear)


class Alibi(Shear):
    """shear = -slope, one slope per head: 2^(-8 h/H), h = 1 ... H. Where H is no power of 2, the
    heads beyond the largest P <= H have 2^(-4/P), 2^(-12/P), ... Press et al. 2022."""

    slopes: Tensor

    def __init__(self, n_heads: int, of: Evolution | None = None) -> None:
        super().__init__(of)
        power = 2 ** int(math.log2(n_heads))
        exponents = [8 * (h + 1) / power for h in range(power)]
        exponents += [4 * (2 * h + 1) / power for h in range(n_heads - power)]
        self.register_buffer("slopes", 2.0 ** -torch.tensor(exponents), persistent=False)

    def shear(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b h t"]:
        return -self.slopes.to(x).view(1, -1, 1).expand(x.shape[0], -1, x.shape[1])


class Forget(Shear):
    """shear_t = log sigmoid(W x_t + bias) per head. Forgetting Transformer, Lin et al. 2025."""

    def __init__(self, d_model: int, n_heads: int, of: Evolution | None = None) -> None:
        super().__init__(of)
        self.gate = nn.Linear(d_model, n_heads)

    def shear(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b h t"]:
        return rearrange(F.logsigmoid(self.gate(x)), "b t h -> b h t")
