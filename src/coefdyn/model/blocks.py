"""The paper's two residual blocks around a sequence mixer."""

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.fused import RMSNorm, gated, gated_halves
from coefdyn.mixer.sequence_mixer import MixerState, SequenceMixer
from coefdyn.mixer.shapes import check_input, head_width

EPS = 1e-6
POST_NORMS = ("all", "head", "none")


class SwiGLU(nn.Module):
    """W_out (SiLU(W_gate x) * W_in x)."""

    def __init__(self, d_model: int, d_mlp: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, 2 * d_mlp, bias=False)
        self.outer = nn.Linear(d_mlp, d_model, bias=False)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self.outer(gated_halves(self.inner(x)))


class PostNorm(nn.Module):
    """RMSNorm of the mixer's output: over all heads together, over each head, or none."""

    def __init__(self, d_value: int, n_heads: int, over: str) -> None:
        super().__init__()
        if over not in POST_NORMS:
            raise ValueError(
                f"model.block.post_norm={over} is not known; choose from {', '.join(POST_NORMS)}"
            )
        self.groups = n_heads if over == "head" else 1
        width = head_width(d_value, self.groups, "d_value")
        self.norm = nn.Identity() if over == "none" else RMSNorm(width, eps=EPS)

    def forward(self, y: Float[Tensor, "b t m"]) -> Float[Tensor, "b t m"]:
        if self.groups == 1:
            return self.norm(y)
        grouped = rearrange(y, "b t (h p) -> b t h p", h=self.groups)
        return rearrange(self.norm(grouped), "b t h p -> b t (h p)")


class Block(nn.Module):
    """Norm -> mixer -> Norm -> [Type 2: times SiLU(W_g x)] -> Linear -> residual; then, unless
    d_mlp is None, Norm -> SwiGLU -> residual.

    The paper's figure has one Linear to v, q, k and gate. Here it is two, the mixer's and `gate`:
    the same map. The mixer is a `SequenceMixer`, or any module that maps (b t d) to (b t d); then
    d_value = d. `gated` chooses Type 2. `post_norm` is the norm after the mixer: over `all`
    channels, over each `head`, or `none`.
    """

    def __init__(
        self,
        mixer: nn.Module,
        d_model: int,
        d_value: int,
        n_heads: int,
        d_mlp: int | None,
        gated: bool,
        post_norm: str = "all",
    ) -> None:
        super().__init__()
        self.norm = RMSNorm(d_model, eps=EPS)
        self.mixer = mixer
        self.post_norm = PostNorm(d_value, n_heads, post_norm)
        self.gate = nn.Linear(d_model, d_value, bias=False) if gated else None
        self.output = nn.Linear(d_value, d_model, bias=False)
        self.mlp = (
            None
            if d_mlp is None
            else nn.Sequential(RMSNorm(d_model, eps=EPS), SwiGLU(d_model, d_mlp))
        )

    def forward(self, x: Tensor) -> Float[Tensor, "b t d"]:
        check_input(x, self.norm.weight)
        inner = self.norm(x)
        return self._finish(x, inner, self.mixer(inner))

    def step(
        self, x: Float[Tensor, "b 1 d"], state: MixerState | None
    ) -> tuple[Float[Tensor, "b 1 d"], MixerState]:
        """One token in the recurrent form."""
        inner = self.norm(x)
        y, state = self._recurrent.step(inner, state)
        return self._finish(x, inner, y), state

    def prefill(self, x: Float[Tensor, "b t d"]) -> tuple[Float[Tensor, "b t d"], MixerState]:
        """Many tokens in the linear form, and the state to go on from."""
        inner = self.norm(x)
        y, state = self._recurrent.prefill(inner)
        return self._finish(x, inner, y), state

    @property
    def recurrence_obstacle(self) -> str | None:
        """Why the block cannot go token by token, or None if it can."""
        if isinstance(self.mixer, SequenceMixer):
            return self.mixer.design.recurrence_obstacle
        return f"the mixer {type(self.mixer).__name__} is no SequenceMixer"

    @property
    def _recurrent(self) -> SequenceMixer:
        if not isinstance(self.mixer, SequenceMixer):
            raise ValueError(
                f"the mixer {type(self.mixer).__name__} has no recurrent form; only a "
                "SequenceMixer can go token by token"
            )
        return self.mixer

    def _finish(
        self, x: Float[Tensor, "b t d"], inner: Float[Tensor, "b t d"], y: Float[Tensor, "b t m"]
    ) -> Float[Tensor, "b t d"]:
        y = self.post_norm(y)
        if self.gate is not None:
            y = gated(self.gate(inner), y)
        x = x + self.output(y)
        return x if self.mlp is None else x + self.mlp(x)
