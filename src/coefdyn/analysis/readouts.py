"""Readouts by name, for what is drawn and said of them without a model."""

from functools import cache

from coefdyn.mixer.level_sets import Interval
from coefdyn.mixer.readout import Readout
from coefdyn.training.build import build_slot
from coefdyn.training.config import compose


@cache
def readout(name: str) -> Readout:
    built: Readout = build_slot(compose([f"model/readout={name}"]).values.model.readout, Readout)
    return built


def near_zero_set(name: str, eps: float) -> list[Interval]:
    return readout(name).near_zero_set(eps)
