"""Designs for tests, found from conf/: a new YAML is covered without an edit here."""

import copy
import itertools
import random
from functools import cache

import torch

from coefdyn.config.build import DESIGN_SLOTS, build_slot
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.mixer.design import Design
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.mixer.slots.admission import UnfitSlotsError
from coefdyn.mixer.slots.preprocess import Nothing
from coefdyn.testing.forms import (
    SIZES,
    forms_of,
    inputs,
    randomized,
    signed_sums,
    values_and_gradients,
)

__all__ = ["SIZES", "forms_of", "inputs", "signed_sums", "values_and_gradients"]

Choice = tuple[str, ...]  # evolution, scaling, readout, normalization

# Presets that differ in more than b_j; those of all_principles_lm are parts of one experiment.
ARCHITECTURES = [
    name
    for name in options("model")
    if not name.startswith("all_") and not name.endswith(("_unscaled", "_inverse_sqrt"))
]


@cache
def slot(name: str, option: str) -> object:
    sizes = [f"model.{size}={value}" for size, value in SIZES.items()]
    config = compose([f"model/{name}={option}", *sizes])
    return build_slot(config, getattr(config.settings.model, name), object)


@cache
def accepted() -> list[Choice]:
    """Every combination that the constructor accepts."""
    found = []
    for choice in itertools.product(*(options(f"model/{name}") for name in DESIGN_SLOTS)):
        try:
            design(choice)
        except UnfitSlotsError:
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


@cache
def some() -> list[Choice]:
    """Fewer: every choice occurs at least twice, with other partners."""
    found, count = [], dict.fromkeys(itertools.chain(*map(enumerate, covering())), 0)
    for choice in covering():
        if any(count[part] < 2 for part in enumerate(choice)):
            found.append(choice)
            for part in enumerate(choice):
                count[part] += 1
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
    return randomized(made, dtype, seed)


def _slots(choice: Choice) -> dict[str, object]:
    return {name: slot(name, option) for name, option in zip(DESIGN_SLOTS, choice, strict=True)}
