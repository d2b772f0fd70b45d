"""Tokens -> embedding -> blocks -> logits."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.blocks import EPS, Block
from coefdyn.mixer.sequence_mixer import MixerState
from coefdyn.position import Position


@runtime_checkable
class HasSpecialInit(Protocol):
    """A module with initial values that a general scheme must not overwrite."""

    def reset_special(self) -> None: ...


INITS = ("torch", "normal")
STD = 0.02


@dataclass(frozen=True)
class ModelState:
    """What token-by-token use remembers."""

    position: int
    blocks: tuple[MixerState, ...]


class SequenceModel(nn.Module):
    """logits_t = W_out Norm(blocks(E[token] + position))_t."""

    def __init__(
        self, vocab_size: int, d_model: int, position: Position, blocks: list[Block], init: str
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.position = position
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.RMSNorm(d_model, eps=EPS)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        initialize(self, init)

    def forward(self, tokens: Tensor) -> Float[Tensor, "b t v"]:
        check_tokens(tokens)
        x = self.position(self._embed(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def _embed(self, tokens: Tensor) -> Float[Tensor, "b t d"]:
        try:
            return self.embedding(tokens)
        except IndexError as error:
            raise ValueError(
                f"a token id lies outside 0..{self.embedding.num_embeddings - 1}, which "
                "model.vocab_size sets"
            ) from error

    def step(
        self, tokens: Tensor, state: ModelState | None
    ) -> tuple[Float[Tensor, "b 1 v"], ModelState]:
        """One token at constant cost, where every mixer has a recurrent form."""
        check_tokens(tokens)
        start = 0 if state is None else state.position
        x = self.position(self._embed(tokens), start)
        states = []
        for i, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x, block_state = block.step(x, None if state is None else state.blocks[i])
            states.append(block_state)
        return self.head(self.norm(x)), ModelState(start + 1, tuple(states))


def check_tokens(tokens: Tensor) -> None:
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise ValueError(
            f"tokens have shape {tuple(tokens.shape)}; expected (batch, time) with at least one "
            "sequence and one step"
        )
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"tokens have dtype {tokens.dtype}; expected int64 or int32")


def initialize(model: nn.Module, scheme: str) -> None:
    """torch: Linear weights as torch makes them; normal: N(0, 0.02). Both: embeddings N(0, 0.02),
    Linear biases zero, and then whatever a module says is special about itself."""
    if scheme not in INITS:
        raise ValueError(f"model.init={scheme} is not known; choose from {', '.join(INITS)}")
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=STD)
        if isinstance(module, nn.Linear):
            if scheme == "normal":
                nn.init.normal_(module.weight, std=STD)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, HasSpecialInit):
            module.reset_special()
