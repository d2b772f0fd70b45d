"""Tokens -> embedding -> blocks -> logits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from coefdyn.mixer.fused import RMSNorm
from coefdyn.mixer.sequence_mixer import MixerState, SequenceMixer
from coefdyn.model.blocks import EPS, Block
from coefdyn.model.heads import AutoEncoderHead, NextTokenHead
from coefdyn.model.position import STD, Position


@runtime_checkable
class HasSpecialInit(Protocol):
    """A module with initial values that a general scheme must not overwrite."""

    def reset_special(self) -> None: ...


INITS = ("torch", "normal")


@dataclass(frozen=True)
class ModelState:
    """Memory of token-by-token use: the tokens so far, and the state of every block."""

    position: int
    blocks: tuple[MixerState, ...]


class SequenceModel(nn.Module):
    """logits = head(Norm(blocks(E[token] + position)))."""

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        position: Position,
        blocks: list[Block],
        head: NextTokenHead | AutoEncoderHead,
        init: str,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.position = position
        self.blocks = nn.ModuleList(blocks)
        self.norm = RMSNorm(d_model, eps=EPS)
        self.head = head
        self.recompute = False  # activations in the backward pass, instead of storing them
        initialize(self, init)

    def forward(self, tokens: Tensor) -> Float[Tensor, "b t v"]:
        return self.head(self.features(tokens))

    def features(self, tokens: Tensor) -> Float[Tensor, "b t d"]:
        """The input of the head."""
        x = self.embed(tokens)
        for block in self.blocks:
            recompute = self.recompute and self.training
            x = checkpoint(block, x, use_reentrant=False) if recompute else block(x)
        return self.norm(x)

    def embed(self, tokens: Tensor, start: int = 0) -> Float[Tensor, "b t d"]:
        """The input of the first block; `start` is the number of tokens before these."""
        check_tokens(tokens)
        try:
            return self.position(self.embedding(tokens), start)
        except IndexError as error:
            raise ValueError(
                f"a token id lies outside 0..{self.embedding.num_embeddings - 1}, which "
                "model.vocab_size sets"
            ) from error

    def step(
        self, tokens: Tensor, state: ModelState | None
    ) -> tuple[Float[Tensor, "b 1 v"], ModelState]:
        """Process one token at constant cost. Every mixer must have a recurrent form."""
        self._check_head()
        start = 0 if state is None else state.position
        x = self.embed(tokens, start)
        states = []
        for i, block in enumerate(blocks_of(self)):
            x, block_state = block.step(x, None if state is None else state.blocks[i])
            states.append(block_state)
        return self.head(self.norm(x)), ModelState(start + 1, tuple(states))

    @torch.no_grad()
    def prefill(self, tokens: Tensor) -> tuple[Float[Tensor, "b t v"], ModelState]:
        """Read a prompt in the linear form: its logits, and the state for `step` to go on from.
        Every mixer must have a recurrent form."""
        self._check_head()
        x = self.embed(tokens)
        states = []
        for block in blocks_of(self):
            x, state = block.prefill(x)
            states.append(state)
        return self.head(self.norm(x)), ModelState(tokens.shape[1], tuple(states))

    @torch.no_grad()
    def generate(
        self,
        tokens: Int64[Tensor, "b t"],
        count: int,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Int64[Tensor, "b s"]:
        """`tokens` and `count` more, each drawn from the softmax of logits/temperature; the most
        likely one at temperature 0.

        Where every mixer has a recurrent form, a token costs the same at any length. Else the
        whole sequence is read again for each.
        """
        self._check_head()
        if count < 0 or not temperature >= 0:
            raise ValueError(
                f"generate needs count >= 0 and temperature >= 0, not {count} and {temperature}"
            )
        recurrent = all(block.recurrence_obstacle is None for block in blocks_of(self))
        state = None
        for _ in range(count):
            if not recurrent:
                logits = self(tokens)
            elif state is None:
                logits, state = self.prefill(tokens)
            else:
                logits, state = self.step(tokens[:, -1:], state)
            chosen = _drawn(logits[:, -1], temperature, generator)
            tokens = torch.cat([tokens, chosen.to(tokens.dtype)], dim=1)
        return tokens

    def _check_head(self) -> None:
        if isinstance(self.head, AutoEncoderHead):
            raise ValueError("an auto-encoder reads whole sequences; it cannot go token by token")


def _drawn(
    logits: Float[Tensor, "b v"], temperature: float, generator: torch.Generator | None
) -> Int64[Tensor, "b 1"]:
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)


def blocks_of(model: SequenceModel) -> Iterator[Block]:
    for block in model.blocks:
        assert isinstance(block, Block)
        yield block


def mixers_of(model: SequenceModel) -> list[SequenceMixer]:
    """The mixers that are a `SequenceMixer`; those from elsewhere are left out."""
    mixers = (block.mixer for block in blocks_of(model))
    return [mixer for mixer in mixers if isinstance(mixer, SequenceMixer)]


def check_tokens(tokens: Tensor) -> None:
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise ValueError(
            f"tokens have shape {tuple(tokens.shape)}; expected (batch, time) with at least one "
            "sequence and one step"
        )
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"tokens have dtype {tokens.dtype}; expected int64 or int32")


def initialize(model: nn.Module, scheme: str) -> None:
    """Set initial weights. Scheme torch: Linear weights as torch draws them; normal: N(0, 0.02).

    In both, embeddings are N(0, 0.02) and Linear biases zero; then every `reset_special` is called.
    The Linear and Embedding layers of a mixer that is not a `SequenceMixer` are left alone.
    """
    if scheme not in INITS:
        raise ValueError(f"model.init={scheme} is not known; choose from {', '.join(INITS)}")
    blocks = (module for module in model.modules() if isinstance(module, Block))
    foreign = (block.mixer for block in blocks if not isinstance(block.mixer, SequenceMixer))
    untouched = {inner for mixer in foreign for inner in mixer.modules()}
    for module in model.modules():
        if module in untouched:
            continue
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
