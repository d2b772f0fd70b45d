"""From the last layer's features to logits."""

from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.fused import RMSNorm
from coefdyn.model.blocks import EPS
from coefdyn.model.position import Sinusoidal


class NextTokenHead(nn.Linear):
    """logits_t = W_out x_t."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__(d_model, vocab_size, bias=False)


class AutoEncoderHead(nn.Module):
    """logits_t = W_out MLP(x_last + P_t), P sinusoidal: every token from the last step alone.

    The MLP is two rounds of Norm -> Linear -> GELU of the model's width, and a Norm.
    """

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.position = Sinusoidal(d_model)
        rounds = [
            nn.Sequential(RMSNorm(d_model, eps=EPS), nn.Linear(d_model, d_model), nn.GELU())
            for _ in range(2)
        ]
        self.mlp = nn.Sequential(*rounds, RMSNorm(d_model, eps=EPS))
        self.output = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t v"]:
        return self.output(self.mlp(self.position(x[:, -1:].expand_as(x))))
