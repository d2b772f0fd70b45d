"""The paper's equations as plain loops: the oracle of every test, and the first file to read.

h_{i,j} = A_i ... A_{j+1} b_j k_j               the key of step j, as it is at step i
alpha_{i,j} = phi(q_i, h_{i,j})                 how much step i reads of step j
y_i = sum_{j <= i} (alpha_{i,j} / eta_i) v_j    the output of step i
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Readout = Callable[[Tensor, Tensor], Tensor]  # (q_i, h_ij) -> alpha_ij
Normalizer = Callable[[Tensor, int], Tensor]  # (sum_j alpha_ij, i) -> eta_i


def sequence_model(
    q: Float[Tensor, "*b t n"],
    k: Float[Tensor, "*b t n"],
    v: Float[Tensor, "*b t p"],
    evolution: Float[Tensor, "*b t n n"],
    scaling: Float[Tensor, "*b t"],
    readout: Readout,
    normalizer: Normalizer,
) -> tuple[Float[Tensor, "*b t p"], Float[Tensor, "*b t t"], Float[Tensor, "*b t"]]:
    """Return y, alpha (zero for j > i) and eta. `evolution` holds A_t, `scaling` holds b_j."""
    length = q.shape[-2]
    transformed_keys: list[Tensor] = []  # h_{i,j} for every j <= i
    outputs, coefficients, normalizers = [], [], []
    for i in range(length):
        A_i, q_i = evolution[..., i, :, :], q[..., i, :]
        transformed_keys = [(A_i @ h.unsqueeze(-1)).squeeze(-1) for h in transformed_keys]
        transformed_keys.append(scaling[..., i, None] * k[..., i, :])

        alpha = [readout(q_i, h) for h in transformed_keys]
        eta_i = normalizer(torch.stack(alpha).sum(0), i)
        y_i = torch.zeros_like(v[..., i, :])
        for j, alpha_ij in enumerate(alpha):
            y_i = y_i + (alpha_ij / eta_i).unsqueeze(-1) * v[..., j, :]

        outputs.append(y_i)
        normalizers.append(eta_i)
        coefficients.append(alpha + [torch.zeros_like(eta_i)] * (length - 1 - i))
    rows = [torch.stack(row, dim=-1) for row in coefficients]
    return torch.stack(outputs, -2), torch.stack(rows, -2), torch.stack(normalizers, -1)
