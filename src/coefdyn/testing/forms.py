"""Check that every form of a mixer equals the definition, in value and in all gradients."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from coefdyn.config.build import DESIGN_SLOTS, build_slot
from coefdyn.config.compose import compose
from coefdyn.mixer.compiled.known import obstacle as compiled_obstacle
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.mixer.slots.admission import UnfitSlotsError
from coefdyn.mixer.slots.preprocess import Nothing

SIZES = {"d_model": 6, "n_state": 8, "d_value": 4, "n_heads": 2}
TOLERANCE = 1e-9  # relative to the size of a value or gradient, in float64
# Designs to try a slot in: every structure of A_t, kind of readout and kind of normalization.
PARTNERS = (
    ("identity", "inverse_sqrt", "exp", "row_sum"),
    ("scalar_gla", "gate", "identity", "one"),
    ("diagonal_gla", "one", "relu", "power"),
    ("scalar_mamba2", "step_size", "softplus", "row_sum"),
    ("exp_forget", "exp_input_inverse_sqrt", "identity", "mlstm"),
    ("householder_key_learned", "strength_inverse_sqrt", "identity", "exp_linear"),
    ("diagonal_householder", "inverse_sqrt", "relu_squared", "row_sum"),
    ("constant", "inverse_sqrt", "kernel_relu", "row_sum"),
    ("gated_householder", "one", "kernel_softplus", "row_sum"),
    ("scalar_gla", "inverse_sqrt", "taylor_exp", "one"),
)


def companions(slot: object) -> Iterator[SequenceMixer]:
    """Mixers with this slot and three of `PARTNERS`; combinations that are refused are skipped."""
    (place,) = [i for i, kind in enumerate(DESIGN_SLOTS.values()) if isinstance(slot, kind)]
    sizes = [f"model.{size}={value}" for size, value in SIZES.items()]
    for partners in PARTNERS:
        choices = dict(zip(DESIGN_SLOTS, partners, strict=True))
        config = compose([*(f"model/{name}={choice}" for name, choice in choices.items()), *sizes])
        slots: dict[str, Any] = {
            name: build_slot(config, getattr(config.settings.model, name), kind)
            for name, kind in DESIGN_SLOTS.items()
        }
        slots[list(DESIGN_SLOTS)[place]] = copy.deepcopy(slot)
        fixed: dict[str, Any] = {**SIZES, "preprocess": Nothing, "unit_qk": False}
        with contextlib.suppress(UnfitSlotsError):
            yield randomized(SequenceMixer(**fixed, **slots, backend="auto"))


Mixer = TypeVar("Mixer", bound=nn.Module)


def randomized(mixer: Mixer, dtype: torch.dtype = torch.float64, seed: int = 0) -> Mixer:
    """Give all parameters random values, biases and gates included."""
    generator = torch.Generator().manual_seed(seed)
    mixer.to(dtype)
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            scale = 0.2 if "evolution" in name or "scaling" in name else 0.5
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(scale * noise)
    return mixer


def check_forms(mixer: SequenceMixer, batch: int = 2, length: int = 11) -> None:
    """Raise AssertionError with the form and the value or gradient that is off."""
    x = inputs(mixer, batch, length)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(batch, length, mixer.n_heads * mixer.value_width, generator=generator)
    expected = values_and_gradients(mixer, "definition", x, weight.to(x))
    largest_gradient = max(g.abs().max() for name, g in expected.items() if name != "y")
    for form in forms_of(mixer):
        for name, value in values_and_gradients(mixer, form, x, weight.to(x)).items():
            reference = expected[name]
            # An invariance of the design makes some gradients zero: there, only rounding remains.
            scale = reference.abs().max().clamp(min=1e-4 * largest_gradient)
            error = (value - reference).abs().max() / scale
            design = ", ".join(type(getattr(mixer.design, slot)).__name__ for slot in DESIGN_SLOTS)
            assert error <= TOLERANCE, f"{design}: {form} form, {name}: off by {error:.1e}"


def signed_sums(mixer: SequenceMixer) -> bool:
    """Whether a row sum divides that may be near zero, because coefficients have either sign."""
    return mixer.design.normalization.scale_invariant and not mixer.design.readout.nonnegative


def inputs(mixer: SequenceMixer, batch: int, length: int) -> Tensor:
    """Random x; if the row sum divides, no row of its coefficients sums to nearly zero."""
    dtype = next(mixer.parameters()).dtype
    signed = signed_sums(mixer)
    found: list[Tensor] = []
    for seed in range(1000 * batch):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(1, length, mixer.d_model, generator=generator, dtype=torch.float64)
        if not signed or _far_from_zero(mixer, x.to(dtype)):
            found.append(x.to(dtype))
        if len(found) == batch:
            return torch.cat(found).requires_grad_()
    raise AssertionError("no input found with row sums away from zero")


@torch.no_grad()
def _far_from_zero(mixer: SequenceMixer, x: Tensor) -> bool:
    """Whether every row of alpha sums to a good part of the sum of its sizes."""
    alpha, _ = mixer.coefficients(x)
    return bool((alpha.sum(-1).abs() > 0.02 * alpha.abs().sum(-1)).all())


def values_and_gradients(
    mixer: SequenceMixer, form: str, x: Tensor, weight: Tensor
) -> dict[str, Tensor]:
    """y, and the gradients of the input and of all parameters of <weight, y>."""
    names, parameters = zip(*mixer.named_parameters(), strict=True)
    if form == "recurrent":
        state, outputs = None, []
        for t in range(x.shape[1]):
            y_t, state = mixer.step(x[:, t : t + 1], state)
            outputs.append(y_t)
        y = torch.cat(outputs, dim=1)
    else:
        mixer.backend = form
        y = mixer(x)
    gradients = torch.autograd.grad(y, (x, *parameters), weight, materialize_grads=True)
    return {"y": y, **dict(zip(("x", *names), gradients, strict=True))}


def forms_of(mixer: SequenceMixer) -> list[str]:
    """The forms that can compute the mixer's design, besides the definition."""
    if mixer.design.evolution.dense:
        return []
    compiled = compiled_obstacle(mixer.design.readout, mixer.design.evolution) is None
    recurrent = mixer.design.recurrence_obstacle is None
    return [
        "quadratic",
        *(["compiled"] if compiled else []),
        *(["linear", "recurrent"] if recurrent else []),
    ]
