"""Designs for tests, found from conf/: a new YAML is covered without an edit here."""

import copy
import itertools
import random
from functools import cache

import torch
from torch import Tensor

from coefdyn.config.build import DESIGN_SLOTS, build_slot
from coefdyn.config.compose import compose, options
from coefdyn.mixer.design import Design, MissingTraitError
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.mixer.slots.preprocess import Nothing

Choice = tuple[str, ...]  # evolution, scaling, readout, normalization

# Presets that differ in more than b_j; those of all_principles_lm are parts of one experiment.
ARCHITECTURES = [
    name
    for name in options("model")
    if not name.startswith("all_") and not name.endswith(("_unscaled", "_inverse_sqrt"))
]
SIZES = {"d_model": 6, "n_state": 6, "d_value": 4, "n_heads": 2}


@cache
def slot(name: str, option: str) -> object:
    sizes = [f"model.{size}={value}" for size, value in SIZES.items()]
    return build_slot(compose([f"model/{name}={option}", *sizes]).values.model[name], object)


@cache
def accepted() -> list[Choice]:
    """Every combination that the constructor accepts."""
    found = []
    for choice in itertools.product(*(options(f"model/{name}") for name in DESIGN_SLOTS)):
        try:
            design(choice)
        except MissingTraitError:
            continue
        found.append(choice)
    return found


def design(choice: Choice) -> Design:
    return Design(**_slots(choice))


@cache
def covering() -> list[Choice]:
    return cover(accepted())


def cover(choices: list[Choice]) -> list[Choice]:
    """Some of the combinations, in which every pair of choices occurs that occurs in any."""
    chooser = random.Random(0)
    by_pair: dict[tuple, list[Choice]] = {}
    for choice in choices:
        for pair in pairs(choice):
            by_pair.setdefault(pair, []).append(choice)
    missing = set(by_pair)
    found = []
    for pair in sorted(by_pair):
        if pair in missing:
            candidates = by_pair[pair]
            candidates = chooser.sample(candidates, min(80, len(candidates)))
            best = max(candidates, key=lambda choice: len(missing & set(pairs(choice))))
            missing -= set(pairs(best))
            found.append(best)
    return found


def pairs(choice: Choice) -> list[tuple]:
    return list(itertools.combinations(enumerate(choice), 2))


def mixer(
    choice: Choice,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    preprocess: object = Nothing,
    unit_qk: bool = False,
) -> SequenceMixer:
    """A small mixer of that design with random parameters, biases and gates included."""
    slots = {name: copy.deepcopy(part) for name, part in _slots(choice).items()}
    made = SequenceMixer(**SIZES, **slots, preprocess=preprocess, unit_qk=unit_qk, backend="auto")
    generator = torch.Generator().manual_seed(seed)
    made.to(dtype)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            scale = 0.2 if "evolution" in name or "scaling" in name else 0.5
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(scale * noise)
    return made


def inputs(made: SequenceMixer, batch: int, length: int) -> Tensor:
    """Random x for which no row of coefficients sums to nearly zero, where the sum divides."""
    dtype = next(made.parameters()).dtype
    for seed in range(1000):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(batch, length, SIZES["d_model"], generator=generator, dtype=torch.float64)
        design = made.design
        if design.readout.nonnegative or not design.normalization.scale_invariant:
            break
        with torch.no_grad():
            alpha, _ = made.coefficients(x.to(dtype))
        if (alpha.sum(-1).abs() > 0.02 * alpha.abs().sum(-1)).all():
            break
    else:
        raise AssertionError("no input found with row sums away from zero")
    return x.to(dtype).requires_grad_()


def run(made: SequenceMixer, form: str, x: Tensor, weight: Tensor) -> dict[str, Tensor]:
    """Value, and gradients of the input and of all parameters, of <weight, y>."""
    names, parameters = zip(*made.named_parameters(), strict=True)
    if form == "recurrent":
        state, outputs = None, []
        for t in range(x.shape[1]):
            y_t, state = made.step(x[:, t : t + 1], state)
            outputs.append(y_t)
        y = torch.cat(outputs, dim=1)
    else:
        made.backend = form
        y = made(x)
    gradients = torch.autograd.grad(y, (x, *parameters), weight, materialize_grads=True)
    return {"y": y, **dict(zip(("x", *names), gradients, strict=True))}


def forms(made: SequenceMixer) -> list[str]:
    served = ["quadratic"]
    if made.design.recurrence_obstacle is None:
        served += ["linear", "recurrent"]
    return served


def _slots(choice: Choice) -> dict[str, object]:
    return {name: slot(name, option) for name, option in zip(DESIGN_SLOTS, choice, strict=True)}
