"""Points of a grid as figures take them."""

import pandas as pd

from coefdyn.errors import ConfigError


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


def chance_of(points: pd.DataFrame) -> float | None:
    """The accuracy of guessing; none where there are no points, as in a panel without runs."""
    return float(points["chance"].iloc[0]) if len(points) else None
