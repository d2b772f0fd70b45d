"""torch's fused AdamW, with one step counter instead of one per parameter.

torch increments a counter for each parameter, in five calls each. For small models that is most of
the time of an optimizer step. Numbers and checkpoints are the same as torch's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ARGUMENTS = {"lr", "weight_decay", "betas", "eps", "fused"}  # those that this class supports


@dataclass(frozen=True)
class Linked:
    """The state of a group's parameters. `steps` is part of one vector for all groups, and `views`
    are its elements."""

    steps: Tensor
    views: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]


class AdamW(torch.optim.AdamW):
    """AdamW with one step counter for all parameters, as far as all groups take part in a step.

    A group needs parameters of one device and dtype that all have gradients. Otherwise the step is
    torch's own.
    """

    linked: list[Linked | None] | None = None  # per group; None before the first step
    steps: Tensor | None = None  # of all groups

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # A group without gradients belongs to a member of a population that has ended.
        gradients = [[p.grad for p in group["params"]] for group in self.param_groups]
        groups = [i for i, grads in enumerate(gradients) if any(g is not None for g in grads)]
        if any(self._state_of(i) is None or None in gradients[i] for i in groups):
            super().step()
            self._link()
            return loss
        shared = self.steps if len(groups) == len(self.param_groups) else None
        if shared is not None:
            shared.add_(1)
        for i in groups:
            group, state = self.param_groups[i], self._state_of(i)
            assert state is not None
            if shared is None:
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

    def _link(self) -> None:
        """Make the step counters views of one vector. torch's own step still increments them."""
        parts = [self._steps_of(group["params"]) for group in self.param_groups]
        kept = [part for part in parts if part is not None]
        self.steps = None
        if kept and len({(part.device, part.dtype) for part in kept}) == 1:
            self.steps = torch.cat(kept)
            kept = list(self.steps.split([len(part) for part in kept]))
        vectors = iter(kept)
        self.linked = [
            None if part is None else self._linked(group["params"], next(vectors))
            for part, group in zip(parts, self.param_groups, strict=True)
        ]
        if len(kept) < len(parts):
            self.steps = None

    def _steps_of(self, parameters: list[Tensor]) -> Tensor | None:
        """The counters of a group as a vector; None if it cannot have one."""
        states = [self.state[p] for p in parameters]
        if not all(states) or len({(p.device, p.dtype) for p in parameters}) > 1:
            return None
        return torch.stack([state["step"] for state in states])

    def _linked(self, parameters: list[Tensor], steps: Tensor) -> Linked:
        states = [self.state[p] for p in parameters]
        for state, view in zip(states, steps.unbind(), strict=True):
            state["step"] = view
        return Linked(
            steps,
            [state["step"] for state in states],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
        )
