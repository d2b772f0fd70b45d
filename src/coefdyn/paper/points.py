"""Points of a grid, selected as figures need them."""

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
    """The points indexed by these columns, which must tell them apart."""
    columns = list(names)
    duplicates = points[points.duplicated(columns)]
    if len(duplicates):
        values = ", ".join(f"{name}={duplicates.iloc[0][name]}" for name in columns)
        raise ConfigError(
            f"it has several points with {values} where the figure shows one; make it again from a "
            "grid without other axes"
        )
    return points.set_index(columns)


def seeds_of(tables: Tables, stem: str, point: Mapping[str, Any], column: str) -> Values:
    """The values of a column at one point, one per seed; of pilots only if there are no others."""
    runs = tables.get(f"{stem}_runs")
    if runs is None:
        return np.array([])
    for name in axes_of(tables[stem]):
        runs = runs[(runs[name] == point[name]) | (runs[name].isna() & pd.isna(point[name]))]
    claimed = runs[runs["seed"] < PILOT]
    rows = best_runs(claimed if len(claimed) else runs)
    return pd.to_numeric(rows[column]).dropna().to_numpy(dtype=float)


def ceiling_of(points: pd.DataFrame) -> float | None:
    """The best accuracy that can be learned; None if it is 1 or not known."""
    ceilings = points["ceiling"].dropna()
    return float(ceilings.iloc[0]) if len(ceilings) and ceilings.iloc[0] < 0.9999 else None


def chance_of(points: pd.DataFrame) -> float | None:
    """The accuracy of guessing; None if there are no points, as in a panel without runs."""
    return float(points["chance"].iloc[0]) if len(points) else None
