"""Readouts by name, for what is drawn and said of them without a model."""

from functools import cache

from coefdyn.config.build import build_slot
from coefdyn.config.compose import compose
from coefdyn.mixer.slots.level_sets import Interval
from coefdyn.mixer.slots.readout import Readout


@cache
def readout(name: str) -> Readout:
    built: Readout = build_slot(compose([f"model/readout={name}"]).values.model.readout, Readout)
    return built


def near_zero_set(name: str, eps: float) -> list[Interval]:
    return readout(name).near_zero_set(eps)
