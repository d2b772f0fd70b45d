"""Models of one architecture as one: stacked parameters, a row per member."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from coefdyn.model.model import SequenceModel, mixers_of
from coefdyn.tasks.task import IGNORE


class Stack:
    """Weights and AdamW's moments of all members, a row each, and one step of all."""

    def __init__(
        self,
        models: Sequence[SequenceModel],
        lr: Sequence[float],
        decay: Sequence[float],
        betas: tuple[float, float],
        eps: float,
        clip: float | None,
        mixed: bool,
        device: torch.device,
    ) -> None:
        self.base = models[0].to(device)
        for mixer in mixers_of(self.base):
            mixer.may_use_adapters = False
        self.names = [name for name, _ in self.base.named_parameters()]
        self.shapes = [parameter.shape for parameter in self.base.parameters()]
        rows = [parameters_to_vector(model.parameters()).detach() for model in models]
        self.weights = torch.stack([row.to(device) for row in rows])
        self.moments = (torch.zeros_like(self.weights), torch.zeros_like(self.weights))
        self.betas, self.eps, self.clip = betas, eps, clip
        self.autocast = partial(torch.autocast, device.type, torch.bfloat16, enabled=mixed)
        self.lr, self.decay = (
            torch.tensor(column, dtype=torch.float64, device=device).unsqueeze(1)
            for column in (lr, decay)
        )

    def restore(self, row: int, weights: Tensor, moments: tuple[Tensor, Tensor]) -> None:
        for stack, saved in zip((self.weights, *self.moments), (weights, *moments), strict=True):
            stack[row] = saved

    def row(self, row: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """A member's weights and moments."""
        mean, square = self.moments
        return self.weights.detach()[row], (mean[row], square[row])

    def keep(self, rows: Sequence[int]) -> None:
        index = torch.tensor(rows, device=self.weights.device)
        self.weights, self.lr, self.decay = (
            x.index_select(0, index) for x in (self.weights, self.lr, self.decay)
        )
        mean, square = self.moments
        self.moments = mean.index_select(0, index), square.index_select(0, index)

    def step(self, inputs: Tensor, targets: Tensor, number: int, factor: float) -> Tensor:
        """Losses before the step; it is step `number`, counted from 1, at `factor` of each lr."""
        weights = self.weights.requires_grad_()
        with self.autocast():
            losses = self._over_members(self._loss, weights, inputs, targets)
        (gradient,) = torch.autograd.grad(losses.sum(), weights)
        self._update(gradient, number, factor)
        return losses.detach()

    @torch.no_grad()
    def _update(self, gradient: Tensor, number: int, factor: float) -> None:
        """AdamW as torch has it, with a learning rate and a decay per row."""
        if self.clip is not None:
            norm = gradient.norm(dim=1, keepdim=True)
            gradient = gradient * (self.clip / (norm + 1e-6)).clamp(max=1.0)
        weights, (mean, square) = self.weights, self.moments
        lr = self.lr * factor
        mean.lerp_(gradient, 1 - self.betas[0])
        square.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
        corrections = [1 - beta**number for beta in self.betas]
        size = (square.sqrt() / corrections[1] ** 0.5).add_(self.eps)
        weights.mul_((1 - lr * self.decay).to(weights.dtype))
        weights.sub_((lr / corrections[0]).to(weights.dtype) * mean / size)

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        with self.autocast():
            return self._over_members(self._forward, self.weights, inputs)

    def load(self, row: int, model: torch.nn.Module) -> None:
        """A member's weights into a model of its own."""
        vector_to_parameters(self.weights[row].detach().clone(), model.parameters())

    def _over_members(
        self, function: Callable[..., Tensor], weights: Tensor, *data: Tensor
    ) -> Tensor:
        rows = weights.split([shape.numel() for shape in self.shapes], dim=1)
        parts = {
            name: row.unflatten(1, shape) if shape else row.squeeze(1)
            for name, shape, row in zip(self.names, self.shapes, rows, strict=True)
        }
        # Data of one seed are the same for all: b t; else m b t.
        dims = tuple(None if x.ndim == 2 else 0 for x in data)
        return vmap(function, in_dims=(0, *dims))(parts, *data)

    def _forward(self, parts: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(self.base, dict(parts), (inputs,))

    def _loss(self, parts: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        logits = self._forward(parts, inputs)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
