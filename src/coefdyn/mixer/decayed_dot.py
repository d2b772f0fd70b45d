"""The decayed dot product: the one primitive under every structure of A_t."""

import torch
from jaxtyping import Float
from torch import Tensor

# Channelwise decays are multiplied out directly below this size: larger blocks split in two.
DIRECT = 4


def decayed_dot(
    x: Float[Tensor, "*b s n"], y: Float[Tensor, "*#b s n"], c: Float[Tensor, "*#b s m"] | None
) -> Float[Tensor, "*b s s"]:
    """D_ij = sum_r x_ir y_jr exp(c_ir - c_jr) for j <= i, and 0 above the diagonal.

    c is the running sum of log a_t, absent, for the whole head (m = 1) or per channel (m = n).
    Differences are masked before exp: exp of the upper triangle may overflow, and its gradient
    would be NaN even where tril() hides the value.
    """
    if c is None:
        return (x @ y.mT).tril()
    if c.shape[-1] == 1:
        return (x @ y.mT) * _masked(c - c.mT).exp()
    size = x.shape[-2]
    if size <= DIRECT:
        difference = c.unsqueeze(-2) - c.unsqueeze(-3)
        above = torch.ones(size, size, dtype=torch.bool, device=x.device).triu(1).unsqueeze(-1)
        decay = difference.masked_fill(above, -torch.inf).exp()
        return (x.unsqueeze(-2) * y.unsqueeze(-3) * decay).sum(-1)
    return _split(x, y, c, size // 2)


def _split(
    x: Float[Tensor, "*b s n"], y: Float[Tensor, "*#b s n"], c: Float[Tensor, "*#b s n"], half: int
) -> Float[Tensor, "*b s s"]:
    """Two triangles and the square between them, whose decay is split at the middle step.

    Decays only shrink, so both exponents of the square are <= 0.
    """
    (x0, x1), (y0, y1), (c0, c1) = (
        (z[..., :half, :], z[..., half:, :]) for z in (x, y, c)
    )
    middle = c0[..., -1:, :]
    square = (x1 * (c1 - middle).exp()) @ (y0 * (middle - c0).exp()).mT
    first = decayed_dot(x0, y0, c0)
    above = square.new_zeros(1).expand(*first.shape[:-1], x1.shape[-2])
    return torch.cat(
        [
            torch.cat([first, above], dim=-1),
            torch.cat([square, decayed_dot(x1, y1, c1)], dim=-1),
        ],
        dim=-2,
    )


def _masked(difference: Float[Tensor, "*b s s"]) -> Float[Tensor, "*b s s"]:
    above = torch.ones(difference.shape[-2:], dtype=torch.bool, device=difference.device).triu(1)
    return difference.masked_fill(above, -torch.inf)
