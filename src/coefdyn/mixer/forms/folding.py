"""Several models at once: how the fused operations of a mixer run under torch.func.vmap."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def over_members(function: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """Add vmap to an operation whose tensors all begin with an axis of independent sequences: the
    models are stacked along that axis."""

    def fold(info: Any, dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        def with_members(x: Any, dim: int | None) -> Any:
            if not isinstance(x, Tensor):
                return x
            x = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.flatten(0, 1)

        folded = [with_members(x, dim) for x, dim in zip(args, dims, strict=True)]
        outputs = function.apply(*folded)
        if isinstance(outputs, Tensor):
            return outputs.unflatten(0, (info.batch_size, -1)), 0
        return tuple(x.unflatten(0, (info.batch_size, -1)) for x in outputs), (0,) * len(outputs)

    return _with_vmap(function, fold)


def member_by_member(function: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """Add vmap to an operation with weights, which models do not share: one model at a time."""

    def loop(info: Any, dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        parts = [
            function.apply(*(
                x if dim is None else x.select(dim, i) for x, dim in zip(args, dims, strict=True)
            ))
            for i in range(info.batch_size)
        ]  # fmt: skip
        return torch.stack(parts), 0

    return _with_vmap(function, loop)


def _with_vmap(
    function: type[torch.autograd.Function], vmap: Callable[..., tuple[Any, Any]]
) -> type[torch.autograd.Function]:
    setattr(function, "vmap", staticmethod(vmap))  # noqa: B010  mypy: it is a method
    # torch asks for the signature at every call, and finding it takes longer than a small kernel.
    forward: Any = function.forward
    forward.__signature__ = inspect.signature(forward)
    return function
