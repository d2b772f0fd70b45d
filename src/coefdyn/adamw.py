"""torch's fused AdamW, with one counter of steps for a group instead of one per parameter.

torch adds one to each parameter's own counter, five calls each: for models of this size most of
what an optimizer step takes. Numbers and checkpoints are torch's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ARGUMENTS = {"lr", "weight_decay", "betas", "eps", "fused"}  # that this one knows


@dataclass(frozen=True)
class Linked:
    """The state of a group's parameters; `views` are the elements of `steps`."""

    steps: Tensor
    views: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]


class AdamW(torch.optim.AdamW):
    """Where a group's parameters are of one kind and all have gradients, as ours have; else as
    torch does it."""

    linked: list[Linked | None] | None = None  # by group; None before a first step

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # A group without gradients is a member of a population that has ended.
        gradients = [[p.grad for p in group["params"]] for group in self.param_groups]
        groups = [i for i, found in enumerate(gradients) if any(g is not None for g in found)]
        if any(self._state_of(i) is None or None in gradients[i] for i in groups):
            super().step()
            self.linked = [self._link(group["params"]) for group in self.param_groups]
            return loss
        for i in groups:
            group, state = self.param_groups[i], self._state_of(i)
            assert state is not None
            state.steps.add_(1)
            torch._fused_adamw_(
                group["params"], gradients[i], state.means, state.squares, [], state.views,
                lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1],
                weight_decay=group["weight_decay"], eps=group["eps"],
                amsgrad=False, maximize=False,
            )  # fmt: skip
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.linked = None

    def _state_of(self, group: int) -> Linked | None:
        return self.linked[group] if self.linked else None

    def _link(self, parameters: list[Tensor]) -> Linked | None:
        """Counters that are views of one vector. They are torch's to count too."""
        states = [self.state[p] for p in parameters]
        if not all(states) or len({(p.device, p.dtype) for p in parameters}) > 1:
            return None
        steps = torch.stack([state["step"] for state in states])
        for state, view in zip(states, steps.unbind(), strict=True):
            state["step"] = view
        return Linked(
            steps,
            [state["step"] for state in states],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
        )
