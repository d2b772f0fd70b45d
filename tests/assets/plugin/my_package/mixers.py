"""A sequence mixer that knows nothing of coefdyn."""

import torch
from torch import Tensor, nn


class CausalMean(nn.Module):
    """y_i = W mean_{j <= i} x_j."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.project = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        return self.project(x.cumsum(1) / count.unsqueeze(-1))
