"""A table as coloured squares with numbers, for more designs than lines could show."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.image import AxesImage


def squares(
    axes: Axes,
    values: pd.DataFrame,
    below: Sequence[Sequence[str]] | None = None,
    font_size: float = 6.5,
) -> AxesImage:
    """A square per row and column of accuracies, named by index and columns; blank where missing.

    `below`: what to write under each number.
    """
    numbers = values.to_numpy(dtype=float)
    picture = axes.imshow(numbers, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(numbers):
        if np.isnan(value):
            continue
        more = f"\n{below[row][column]}" if below and below[row][column] else ""
        axes.annotate(f"{value:.2f}{more}", (column, row), ha="center", va="center",
                      fontsize=font_size, color="white" if value < 0.55 else "black")  # fmt: skip
    axes.set_xticks(range(len(values.columns)), [str(name) for name in values.columns])
    axes.set_yticks(range(len(values)), [str(name) for name in values.index])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture
