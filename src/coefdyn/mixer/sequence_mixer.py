"""The sequence model of a block: projections and preprocessing around a `Design`."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.backends import ADAPTERS, trial
from coefdyn.mixer.compiled.known import agrees
from coefdyn.mixer.compiled.known import obstacle as compiled_obstacle
from coefdyn.mixer.compiled.loops import can_serve
from coefdyn.mixer.design import Design, OutputClass
from coefdyn.mixer.forms.choice import FORMS, cheapest_form, prefers_loops
from coefdyn.mixer.fused import unit
from coefdyn.mixer.shapes import check_input, head_width
from coefdyn.mixer.slots.admission import check_evolution
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import Normalization
from coefdyn.mixer.slots.preprocess import Preprocess
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.scaling import Scaling
from coefdyn.mixer.stream import DesignState, Projected

log = logging.getLogger(__name__)

# The kernels that backend=auto tries, in this order.
AUTO_ADAPTERS = ("sdpa", "fla")
# Width of a head from which sdpa beats the compiled loops on a CPU. At width 8 it takes 1.1 to 4
# times as long, from 16 to 64 mostly 0.5 to 0.9 of their time (lengths from 32 to 1024).
WIDE = 16


@dataclass(frozen=True)
class MixerState:
    """Memory of the recurrent form, of constant size."""

    past: Float[Tensor, "b w c"]
    design: DesignState


class SequenceMixer(nn.Module):
    """q, k, v = preprocess(W_Q x, W_K x, W_V x), then y of `Design`, heads side by side.

    `backend` names a form (compiled: loops on a CPU), a kernel of backends/, or auto. auto takes
    the first of `AUTO_ADAPTERS` that can compute the design, is faster and passes a trial. If there
    is none, it takes the cheapest form for the length at hand.
    `unit_qk` makes every q_i and k_j a unit vector.
    """

    def __init__(
        self,
        d_model: int,
        n_state: int,
        d_value: int,
        n_heads: int,
        evolution: Evolution,
        scaling: Scaling,
        readout: Readout,
        normalization: Normalization,
        preprocess: Callable[[int], Preprocess],
        unit_qk: bool,
        backend: str,
    ) -> None:
        super().__init__()
        self.width = head_width(n_state, n_heads)
        self.value_width = head_width(d_value, n_heads, "d_value")
        self.d_model, self.n_heads, self.unit_qk = d_model, n_heads, unit_qk
        check_evolution(evolution, d_model, n_heads, self.width)
        self.design = Design(evolution, scaling, readout, normalization)
        self.backend = backend
        self.may_use_adapters = True  # they do not work under torch.func
        self._trials: dict[tuple[str, torch.device, torch.dtype | None], bool] = {}
        self.form_used: str | None = None
        # One projection, split afterwards: q, k, v, and z where A_t has a direction of its own.
        # Where A_t repeats, a step has as many keys, values and directions.
        times = evolution.repeats
        self.splits = [n_state, times * n_state, times * d_value]
        self.splits += [times * n_state] * evolution.own_direction
        self.project = nn.Linear(d_model, sum(self.splits), bias=False)
        self.preprocess = preprocess(sum(self.splits))
        self.preprocess.settle(self.splits)

    @property
    def output_class(self) -> OutputClass:
        return self.design.output_class

    def forward(self, x: Tensor) -> Float[Tensor, "b t m"]:
        check_input(x, self.project.weight)
        half = _autocast_dtype(x.device)
        form = self._form(x, half)
        with torch.autocast(x.device.type, enabled=False):
            projected = self.projected(x)
            if form in ADAPTERS:
                y = ADAPTERS[form](self.design, projected, half)
            else:
                y = {
                    "quadratic": self.design.quadratic,
                    "linear": self.design.linear,
                    "compiled": self.design.compiled,
                    "definition": self.design.definition,
                }[form](projected)
        return rearrange(y, "b h t p -> b t (h p)").to(x.dtype)

    def step(
        self, x: Tensor, state: MixerState | None
    ) -> tuple[Float[Tensor, "b 1 m"], MixerState]:
        """The recurrent form: one token, constant time and memory."""
        self._check_recurrent(x)
        if x.shape[1] != 1:
            raise ValueError(f"a step takes one token per sequence, not {x.shape[1]}")
        if state is not None and state.past.shape[0] != x.shape[0]:
            raise ValueError(
                f"the state is of {state.past.shape[0]} sequences, but the input is of {x.shape[0]}"
            )
        past, before = (None, None) if state is None else (state.past, state.design)
        return self._remembered(x, past, lambda projected: self.design.step(projected, before))

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Float[Tensor, "b t m"], MixerState]:
        """The linear form, and the state after the last token, for `step` to go on from."""
        self._check_recurrent(x)
        return self._remembered(x, None, self.design.prefill)

    def _check_recurrent(self, x: Tensor) -> None:
        check_input(x, self.project.weight)
        if self.design.recurrence_obstacle is not None:
            raise ValueError(
                f"this design has no recurrent form: {self.design.recurrence_obstacle}"
            )

    def _remembered(
        self,
        x: Tensor,
        past: Float[Tensor, "b w c"] | None,
        form: Callable[[Projected], tuple[Tensor, DesignState]],
    ) -> tuple[Float[Tensor, "b t m"], MixerState]:
        """y by a form that returns its state too, and what the mixer must remember."""
        with torch.autocast(x.device.type, enabled=False):
            x = _full_precision(x)
            projection = self.project(x)
            y, state = form(self._split(x, self.preprocess(projection, past)))
            new_past = self.preprocess.remember(projection, past)
        return rearrange(y, "b h t p -> b t (h p)"), MixerState(new_past, state)

    def coefficients(self, x: Tensor) -> tuple[Float[Tensor, "b h i j"], Float[Tensor, "b h i"]]:
        """alpha_ij (zero for j > i) and eta_i in float64, whatever the backend."""
        check_input(x, self.project.weight)
        with torch.autocast(x.device.type, enabled=False):
            coefficients = self.design.coefficients(self.projected(x))
        return coefficients.alpha, coefficients.eta

    def projected(self, x: Float[Tensor, "b t d"]) -> Projected:
        """q, k, v (and z) after preprocessing."""
        x = _full_precision(x)
        return self._split(x, self.preprocess(self.project(x)))

    def _split(self, x: Float[Tensor, "b t d"], channels: Float[Tensor, "b t c"]) -> Projected:
        parts = channels.split(self.splits, dim=-1)
        q, k, v, *z = (
            rearrange(part, "b t (h r n) -> b h (t r) n", h=self.n_heads, r=r)
            for part, r in zip(parts, (1, *[self.design.evolution.repeats] * 3), strict=False)
        )
        if self.unit_qk:
            q, k = unit(q), unit(k)
        return Projected(x, q, k, v, direction=z[0] if z else k)

    @property
    def backend(self) -> str:
        return self._backend

    @backend.setter
    def backend(self, backend: str) -> None:
        choices = ("auto", *FORMS, *ADAPTERS)
        if backend not in choices:
            raise ValueError(
                f"model.backend={backend} is not known; choose from {', '.join(choices)}"
            )
        obstacle = None
        if self.design.evolution.dense and backend not in ("auto", "definition"):
            raise ValueError(
                f"model.backend={backend} cannot serve this design: its A_t is given as a matrix; "
                "use auto or definition"
            )
        if backend == "linear":
            obstacle = self.design.recurrence_obstacle
        elif backend == "compiled":
            obstacle = compiled_obstacle(self.design.readout, self.design.evolution)
        elif backend in ADAPTERS:
            obstacle = ADAPTERS[backend].obstacle(self.design)
        if obstacle is not None:
            raise ValueError(
                f"model.backend={backend} cannot serve this design: {obstacle}; "
                "use auto or quadratic"
            )
        if backend in ADAPTERS and ADAPTERS[backend].absence is not None:
            raise ValueError(
                f"model.backend={backend} cannot be used on this machine: "
                f"{ADAPTERS[backend].absence}; use auto"
            )
        self._backend = backend

    def _form(self, x: Float[Tensor, "b t d"], half: torch.dtype | None) -> str:
        form = self.backend
        if form == "compiled":
            self._check_compiled(x.device)
        if self.design.evolution.dense:
            form = "definition"
        elif form == "auto" or (form in ADAPTERS and not self.may_use_adapters):
            form = self._fitting_adapter(x.device, half) or self._own_form(x.shape[1])
            if form != self.form_used:
                log.debug("backend=auto: %s at length %d", form, x.shape[1])
        self.form_used = form
        return form

    def _own_form(self, length: int) -> str:
        evolution, readout, width = self.design.evolution, self.design.readout, self.width
        faster = prefers_loops(readout, evolution, length, width)
        if faster and can_serve(readout, evolution, self.project.weight):
            return "compiled"
        return cheapest_form(evolution, readout, length, width, self.value_width)

    def _check_compiled(self, device: torch.device) -> None:
        if device.type != "cpu":
            raise ValueError(
                f"model.backend=compiled is for CPUs, but the model is on the {device.type}; "
                "use auto"
            )
        if not agrees(self.design.readout):
            raise ValueError(
                "model.backend=compiled cannot serve this design: the loop that its readout names "
                "computes something else; use auto or quadratic"
            )

    def _fitting_adapter(self, device: torch.device, half: torch.dtype | None) -> str | None:
        """The adapter that auto takes, if any. A package is imported only once it is eligible."""
        if not self.may_use_adapters:
            return None
        width = max(self.width, self.value_width)
        for name in AUTO_ADAPTERS:
            adapter = ADAPTERS[name]
            if adapter.obstacle(self.design) or adapter.misfit(self.design, width, device, half):
                continue
            if not self._pays(name, device, half) or adapter.absence:
                continue
            key = (name, device, half)
            if name != "sdpa" and key not in self._trials:
                self._trials[key] = trial.agrees(
                    adapter, self.design, self.projected, self.project.weight, half
                )
            if self._trials.get(key, True):
                return name
        return None

    def _pays(self, name: str, device: torch.device, half: torch.dtype | None) -> bool:
        """Whether a kernel is faster than our forms, and as exact as the precision asked for.

        Kernels other than sdpa round to TF32 or less even in float32, and row sums to `half`.
        """
        if device.type == "cpu":
            return half is None and self.width >= WIDE
        return name == "sdpa" or (half is not None and not self.design.normalization.uses_row_sum)


def _full_precision(x: Tensor) -> Tensor:
    """Convert to float32 at least: 8 bits are too few for sums of log decays and row sums."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype of autocast, or None where it is off."""
    if not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)
