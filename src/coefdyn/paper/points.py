"""Points of a grid as figures take them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from coefdyn.errors import ConfigError
from coefdyn.results.experiment import Tables
from coefdyn.results.rounds import PILOT
from coefdyn.results.tables import axes_of, best_runs
from coefdyn.results.variance import Values


def one_each(points: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The points by these columns, which must tell them apart."""
    columns = list(names)
    twice = points[points.duplicated(columns)]
    if len(twice):
        which = ", ".join(f"{name}={twice.iloc[0][name]}" for name in columns)
        raise ConfigError(
            f"it has several points with {which} where the figure shows one; make it again from a "
            "grid without other axes"
        )
    return points.set_index(columns)


def seeds_of(tables: Tables, stem: str, point: Mapping[str, Any], column: str) -> Values:
    """A number of each seed of a point: those that claims read, or pilots if these are all."""
    runs = tables.get(f"{stem}_runs")
    if runs is None:
        return np.array([])
    for name in axes_of(tables[stem]):
        runs = runs[(runs[name] == point[name]) | (runs[name].isna() & pd.isna(point[name]))]
    claimed = runs[runs["seed"] < PILOT]
    rows = best_runs(claimed if len(claimed) else runs)
    return pd.to_numeric(rows[column]).dropna().to_numpy(dtype=float)


def ceiling_of(points: pd.DataFrame) -> float | None:
    """The best that can be learned, if it is not 1."""
    found = points["ceiling"].dropna()
    return float(found.iloc[0]) if len(found) and found.iloc[0] < 0.9999 else None


def chance_of(points: pd.DataFrame) -> float | None:
    """The accuracy of guessing; none where there are no points, as in a panel without runs."""
    return float(points["chance"].iloc[0]) if len(points) else None
