"""Several models of one architecture, computed in one pass. Each has one vector of weights."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from coefdyn.model.model import SequenceModel, mixers_of
from coefdyn.runs.population.batches import BySeed
from coefdyn.runs.progress import Scores
from coefdyn.tasks.task import IGNORE

MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's state, a number per weight


class Stack:
    """A learner with a row per member. The optimizer has a group with one vector for each."""

    def __init__(
        self,
        models: Sequence[SequenceModel],
        seeds: Sequence[int],
        optimizers: Sequence[Mapping[str, Any]],
        device: torch.device,
    ) -> None:
        self.models, self.base = models, models[0].to(device)
        for mixer in mixers_of(self.base):
            mixer.may_use_adapters = False
        for layer in self.base.modules():
            if type(layer) is nn.Linear:
                layer.forward = partial(_linear, layer)  # type: ignore[method-assign]
        self.names = [name for name, _ in self.base.named_parameters()]
        self.shapes = [parameter.shape for parameter in self.base.parameters()]
        rows = [parameters_to_vector(model.parameters()).detach() for model in models]
        self.weights = nn.ParameterList(row.to(device) for row in rows)
        self.seeds, self.optimizers = seeds, optimizers

    def groups(self) -> Iterable[dict[str, Any]]:
        for row, optimizer in zip(self.weights, self.optimizers, strict=True):
            own = {name: optimizer[name] for name in ("lr", "weight_decay")}
            yield {"params": [row], **own}

    def losses(self, batch: BySeed, rows: Sequence[int]) -> Tensor:
        inputs, targets = self._data(batch, rows)
        logits = self._over_members(self._forward, rows, inputs)
        targets = targets.expand(logits.shape[:3])
        losses = F.cross_entropy(
            logits.flatten(0, 2), targets.flatten(), ignore_index=IGNORE, reduction="none"
        )
        return losses.view(len(rows), -1).sum(1) / (targets != IGNORE).sum((1, 2))

    def test(self, batch: BySeed, rows: Sequence[int], scores: Sequence[Scores]) -> None:
        inputs, targets = self._data(batch, rows)
        logits = self._over_members(self._forward, rows, inputs)
        for i, score in enumerate(scores):
            row_targets = targets if targets.ndim == 2 else targets[i]
            scored = row_targets != IGNORE
            score.add(logits[i][scored].float(), row_targets[scored])

    def model_of(self, row: int) -> SequenceModel:
        """A member's model with its present weights, and the form that computed it."""
        model, weights = self.models[row], self.weights[row].detach()
        vector_to_parameters(weights.clone(), model.to(weights.device).parameters())
        for own, base in zip(mixers_of(model), mixers_of(self.base), strict=True):
            own.form_used = base.form_used
        return model

    def parts(self, checkpoint: dict[str, Any], rows: Sequence[int]) -> list[dict[str, Any]]:
        (optimizer,) = checkpoint["optimizer_states"]
        checkpoints = []
        for place, row in enumerate(rows):
            state, group = optimizer["state"][row], optimizer["param_groups"][row]
            moments = zip(*(self._split(state[name]) for name in MOMENTS), strict=True)
            own = {
                i: {"step": state["step"].clone(), **dict(zip(MOMENTS, pair, strict=True))}
                for i, pair in enumerate(moments)
            }
            group = group | {"params": list(range(len(self.names)))}
            weights = self._split(checkpoint["state_dict"][f"model.{row}"])
            keys = (f"model.{name}" for name in self.names)
            checkpoints.append(checkpoint | {
                "state_dict": dict(zip(keys, weights, strict=True)),
                "optimizer_states": [{"state": own, "param_groups": [group]}],
                "runs": [checkpoint["runs"][place]],
            })  # fmt: skip
        return checkpoints

    def whole(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        states, groups = {}, []
        for row, part in enumerate(parts):
            (optimizer,) = part["optimizer_states"]
            own = optimizer["state"]
            states[row] = {"step": own[0]["step"]} | {
                name: _joined(own[i][name] for i in range(len(self.names))) for name in MOMENTS
            }
            groups.append(optimizer["param_groups"][0] | {"params": [row]})
        weights = {
            f"model.{row}": _joined(part["state_dict"][f"model.{name}"] for name in self.names)
            for row, part in enumerate(parts)
        }
        return parts[0] | {
            "state_dict": weights,
            "optimizer_states": [{"state": states, "param_groups": groups}],
            "runs": [part["runs"][0] for part in parts],
        }

    def _split(self, vector: Tensor) -> list[Tensor]:
        """Split a vector by parameter, into clones: a saved view would store the whole vector."""
        parts = vector.split([shape.numel() for shape in self.shapes])
        return [x.reshape(shape).clone() for x, shape in zip(parts, self.shapes, strict=True)]

    def _data(self, batch: BySeed, rows: Sequence[int]) -> list[Tensor]:
        """Inputs and targets: b t if all members share them, else m b t, m the member."""
        seeds = [self.seeds[row] for row in rows]
        if len(batch) == 1:
            return list(batch[seeds[0]])
        return [torch.stack([batch[seed][side] for seed in seeds]) for side in range(2)]

    def _over_members(
        self, function: Callable[..., Tensor], rows: Sequence[int], *data: Tensor
    ) -> Tensor:
        """`function` of each member's parameters and data, in one pass."""
        weights = torch.stack([self.weights[row] for row in rows])
        columns = weights.split([shape.numel() for shape in self.shapes], dim=1)
        parts = {
            name: column.unflatten(1, shape) if shape else column.squeeze(1)
            for name, shape, column in zip(self.names, self.shapes, columns, strict=True)
        }
        dims = tuple(None if x.ndim == 2 else 0 for x in data)
        return vmap(function, in_dims=(0, *dims))(parts, *data)

    def _forward(self, parts: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(self.base, dict(parts), (inputs,))


class Products(torch.autograd.Function):
    """x W^T of every member. torch's own gradient of W has rows and columns exchanged, and would be
    copied into place: one more launch for each layer."""

    @staticmethod
    def forward(x: Float[Tensor, "m r d"], weight: Float[Tensor, "m e d"]) -> Tensor:
        return torch.bmm(x, weight.mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        half = grad.dtype  # under autocast, where the products are rounded
        return torch.bmm(grad, weight.to(half)).to(x.dtype), torch.bmm(grad.mT, x.to(half)).to(
            weight.dtype
        )


class MemberProduct(torch.autograd.Function):
    """x W^T of one member, as `Products` under vmap."""

    @staticmethod
    def forward(x: Float[Tensor, "*b d"], weight: Float[Tensor, "e d"]) -> Float[Tensor, "*b e"]:
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass  # vmap is outermost: the gradient is that of `Products`

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *args: Tensor) -> tuple[Tensor, int]:
        x, weight = (
            part.expand(info.batch_size, *part.shape) if dim is None else part.movedim(dim, 0)
            for part, dim in zip(args, dims, strict=True)
        )
        y = Products.apply(x.flatten(1, -2), weight)  # type: ignore[no-untyped-call]
        return y.unflatten(1, x.shape[1:-1]), 0


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    y = MemberProduct.apply(x, layer.weight)  # type: ignore[no-untyped-call]
    return y if layer.bias is None else y + layer.bias


def _joined(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])
