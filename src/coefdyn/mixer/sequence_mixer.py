"""The sequence model of a block: projections and preprocessing around a `Design`."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.backends import ADAPTERS, trial
from coefdyn.mixer.backends.choice import candidates, check_backend
from coefdyn.mixer.compiled.known import agrees
from coefdyn.mixer.compiled.loops import can_serve
from coefdyn.mixer.design import Design, OutputClass
from coefdyn.mixer.forms.choice import cheapest_form, prefers_loops
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


@dataclass(frozen=True)
class MixerState:
    """Memory of the recurrent form, of constant size."""

    past: Float[Tensor, "b w c"]
    design: DesignState


class SequenceMixer(nn.Module):
    """q, k, v = preprocess(W_Q x, W_K x, W_V x), then y of `Design`, heads side by side.

    `backend` names a form (compiled: loops on a CPU), a kernel of backends/, or auto. auto takes
    the first kernel of `candidates` that passes a trial. If there is none, it takes the cheapest
    form for the length at hand.
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
        self.trials: dict[str, trial.Outcome] = {}  # of each kernel, at the shape last trained on
        self._tried: dict[str, tuple[int, int]] = {}  # batch and length of these trials
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
        with full_precision(x.device):
            projected = self.projected(x)
            if form in ADAPTERS:
                y = ADAPTERS[form](self.design, projected, half)
            else:
                y = self._form_called(form)(projected)
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
        with full_precision(x.device):
            x = _full_precision(x)
            projection = self.project(x)
            y, state = form(self._split(x, self.preprocess(projection, past)))
            new_past = self.preprocess.remember(projection, past)
        return rearrange(y, "b h t p -> b t (h p)"), MixerState(new_past, state)

    def coefficients(self, x: Tensor) -> tuple[Float[Tensor, "b h i j"], Float[Tensor, "b h i"]]:
        """alpha_ij (zero for j > i) and eta_i in float64, whatever the backend."""
        check_input(x, self.project.weight)
        with full_precision(x.device):
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
        check_backend(backend, self.design)
        self._backend = backend

    def _form(self, x: Float[Tensor, "b t d"], half: torch.dtype | None) -> str:
        form = self.backend
        if form == "compiled":
            self._check_compiled(x.device)
        if self.design.evolution.dense:
            form = "definition"
        elif form == "auto" or (form in ADAPTERS and not self.may_use_adapters):
            form = self._kernel(x, half) or self._own_form(x.shape[1])
            if form != self.form_used:
                log.debug("backend=auto: %s at length %d", form, x.shape[1])
        elif form in ADAPTERS:
            misfit = ADAPTERS[form].misfit(self.design, max(self._widths), x.device, half)
            if reason := misfit or self._outcome(form, x, half).wrong:
                raise ValueError(f"model.backend={form} cannot be used: {reason}; use auto")
        self.form_used = form
        return form

    @property
    def _widths(self) -> tuple[int, int]:
        return self.width, self.value_width

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

    def _kernel(self, x: Float[Tensor, "b t d"], half: torch.dtype | None) -> str | None:
        """The kernel that auto takes, if any."""
        if not self.may_use_adapters:
            return None
        for name in candidates(self.design, self._widths, x.device, half):
            if self._outcome(name, x, half).reason is None:
                return name
        return None

    def _outcome(
        self, name: str, x: Float[Tensor, "b t d"], half: torch.dtype | None
    ) -> trial.Outcome:
        """What a trial of the kernel found, at the shape of the training batches.

        A test or a smaller batch, as the last of an epoch, is no reason for another one.
        """
        if not ADAPTERS[name].needs_trial(x.device):
            return trial.TRUSTED
        batch, length, width = x.shape
        most, tried = self._tried.get(name, (0, 0))
        training = self.training and torch.is_grad_enabled()
        if name in self.trials and (not training or (length == tried and batch <= most)):
            return self.trials[name]
        self._tried[name] = (batch, length)
        subject = self.subject((batch, length, width), half)
        with full_precision(x.device):
            outcome = trial.outcome_of(ADAPTERS[name], subject, self.own_form(x.shape[1]))
        if outcome != self.trials.get(name) and outcome.reason is not None:
            log.warning("%s is not used: %s", name, outcome.reason)
        self.trials[name] = outcome
        return outcome

    def subject(self, shape: tuple[int, int, int], half: torch.dtype | None) -> trial.Subject:
        """What a kernel would be tried on, for inputs of this shape."""
        return trial.Subject(
            self.design, self.projected, dict(self.named_parameters()), self.n_heads,
            self._widths, shape, self.project.weight, half,
        )  # fmt: skip

    def own_form(self, length: int) -> Callable[[Projected], Tensor]:
        """The form that computes the design where no kernel does."""
        return self._form_called(self._own_form(length))

    def _form_called(self, name: str) -> Callable[[Projected], Tensor]:
        return {
            "quadratic": self.design.quadratic,
            "linear": self.design.linear,
            "compiled": self.design.compiled,
            "definition": self.design.definition,
        }[name]


def _full_precision(x: Tensor) -> Tensor:
    """Convert to float32 at least: 8 bits are too few for sums of log decays and row sums."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Switch autocast off, on devices that have it."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def _autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype of autocast, or None where it is off."""
    available = torch.amp.is_autocast_available(device.type)
    if not (available and torch.is_autocast_enabled(device.type)):
        return None
    return torch.get_autocast_dtype(device.type)
